// Columns of a table as the numbers that a network takes, as pocketbayes.data does it, and back.
import type { Facts } from "./pocketbayes.js";

const TURNS: Record<string, number[]> = { day: [365.2425, 7], time: [365.2425, 7, 1] };
const DAY = 86_400_000;

/** How many numbers a column becomes. */
export function widthOf(column: Facts): number {
  if (column.values) return column.values.length + Number(!!column.empty) + Number(!!column.other);
  return 1 + 2 * (TURNS[column.date]?.length ?? 0) + Number(!!column.empty);
}

/** A cell as numbers, and what is unfamiliar in it. */
export function encoded(column: Facts, cell: string): [number[], string] {
  if (column.values) return word(column, cell);
  const given = cell.trim() === "" ? NaN : column.date ? Date.parse(cell + (cell.includes("T") ? "Z" : "")) / DAY : Number(cell);
  const empty = Number.isNaN(given), value = empty ? column.fill ?? column.mean : given;
  const numbers = [(value - column.mean) / column.std];
  for (const turn of TURNS[column.date] ?? [])
    numbers.push(...[Math.sin, Math.cos].map((wave) => (empty ? 0 : wave((2 * Math.PI * given) / turn))));
  if (column.empty) numbers.push(Number(empty));
  if (empty) return [numbers, column.empty ? "" : `${column.name} is empty`];
  const reach = (column.most - column.least) / 2;
  const far = given < column.least - reach || given > column.most + reach;
  return [numbers, far ? `${column.name} = ${cell}` : ""];
}

function word(column: Facts, cell: string): [number[], string] {
  const numbers = new Array<number>(widthOf(column)).fill(0), place = column.values.indexOf(cell);
  const empty = cell === "" && column.empty;
  numbers[place >= 0 ? place : empty ? column.values.length : numbers.length - 1] = 1;
  return [numbers, place >= 0 || empty ? "" : `${column.name} is none that it knows`];
}

/** The cell that became these numbers. */
export function decoded(column: Facts, numbers: number[]): string {
  if (column.values) return column.values[numbers.indexOf(1)] ?? "";
  if (column.empty && numbers[numbers.length - 1] === 1) return "";
  const value = numbers[0] * column.std + column.mean;
  if (!column.date) return String(Number(value.toPrecision(6)));
  return new Date(Math.round(value * 1440) * 60_000).toISOString().slice(0, column.date === "day" ? 10 : 16);
}
