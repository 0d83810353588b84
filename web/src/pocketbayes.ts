// A .pocket file as a model that predicts with uncertainty: the C engine, as WebAssembly.

export type Estimator = "mean" | "one_pass" | "moments" | "weight";

/** What is asked: by default as `pb.predict` of the file would, but 30 draws and seed 0. */
export interface Options {
  estimator?: Estimator;
  draws?: number;
  seed?: number;
  level?: number;
}

/** What a prediction holds, row by row; entropies in nats. Of classes and labels the first group, of values the other. */
export interface Prediction {
  estimator: Estimator;
  draws: number;
  probs?: Float32Array;
  entropy?: Float32Array;
  label?: Int32Array;
  mean?: Float32Array;
  std?: Float32Array;
  lower?: Float32Array;
  upper?: Float32Array;
  aleatoric: Float32Array;
  epistemic: Float32Array;
}

type Input = ArrayLike<number>;
/** Facts of a file (docs/format.md): whatever it holds. */
export type Facts = Record<string, any>;

interface Exports {
  memory: WebAssembly.Memory;
  take(size: number): number;
  give(place: number): void;
  open(bytes: number, size: number, draws: number, moments: number, error: number): number;
  close(model: number): void;
  fact(model: number, text: number, room: number): number;
  shape(model: number, number: number, sides: number): number;
  kind(model: number): number;
  inputs(model: number): number;
  estimator(model: number): number;
  members(model: number): number;
  error(model: number): number;
  predict(model: number, inputs: number, rows: number, estimator: number, draws: number,
    seed: number, seedAbove: number, level: number, answer: number): number;
}

const ESTIMATORS: Estimator[] = ["mean", "one_pass", "moments", "weight"];
const KINDS = ["classes", "labels", "values"] as const;
/** The order of a pocket_answer in engine/pocket.h. */
const ANSWERS = ["outputs", "variances", "probs", "entropy", "aleatoric", "epistemic", "label",
  "mean", "std", "lower", "upper", "samples"];
const OF_CLASSES = ["probs", "entropy", "aleatoric", "epistemic", "label"];
const OF_VALUES = ["mean", "std", "aleatoric", "epistemic", "lower", "upper"];
const ERROR = 256;

let engine: Exports | undefined;

/** Compiles the engine, once; call and await it before `load`. */
export async function ready(wasm: BufferSource): Promise<void> {
  if (engine) return;
  const bytes = (place: number, size: number) => new Uint8Array(engine!.memory.buffer, place, size);
  const page = {
    exp: Math.exp, log: Math.log, pow: Math.pow, cos: Math.cos, tanh: Math.tanh,
    expm1: Math.expm1, log1p: Math.log1p,
    number: (text: number, size: number) => Number(new TextDecoder().decode(bytes(text, size).slice())),
    digits: (number: number, to: number) => new TextEncoder().encodeInto(String(number), bytes(to, 32)).written,
  };
  const made = await WebAssembly.instantiate(wasm, { page });
  engine = made.instance.exports as unknown as Exports;
}

/** Opens the bytes of a .pocket file that carries its program; an error says what is wrong. */
export function load(bytes: Uint8Array): Model {
  return new Model(bytes);
}

/** An open model. */
export class Model {
  /** What the file says: likelihood, class_names, preprocess, temperature, ... */
  readonly facts: Facts;
  readonly classNames: string[] | null;
  readonly preprocess: Facts | null;
  readonly kind: (typeof KINDS)[number];
  /** Estimator where none is named. */
  readonly estimator: Estimator;
  readonly inputShapes: number[][];
  readonly outputShape: number[];
  private readonly bytes: Uint8Array;
  private handle = 0;
  private draws = 0;
  private moments = false;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes.slice();
    this.open(30, false);
    const wasm = engine!, size = wasm.fact(this.handle, 0, 0) + 1, place = taken(size);
    wasm.fact(this.handle, place, size);
    this.facts = JSON.parse(textAt(place)) as Facts;
    wasm.give(place);
    this.classNames = this.facts.class_names ?? null;
    this.preprocess = this.facts.preprocess ?? null;
    this.kind = KINDS[wasm.kind(this.handle)];
    this.estimator = ESTIMATORS[wasm.estimator(this.handle)];
    this.outputShape = this.shape(-1);
    this.inputShapes = Array.from({ length: wasm.inputs(this.handle) }, (_, i) => this.shape(i));
  }

  /** Gives back all memory. */
  close(): void {
    engine!.close(this.handle);
    this.handle = 0;
  }

  /**
   * What pb.predict tells. An input holds the numbers of one example or of several, row by row;
   * a network of several inputs takes a list of those.
   */
  predict(input: Input | Input[], options: Options = {}): Prediction {
    const { estimator = this.estimator, draws = 30, seed = 0, level = 0.9 } = options;
    if (!ESTIMATORS.includes(estimator)) throw new Error(`the estimator is one of ${ESTIMATORS.join(", ")}; got ${estimator}`);
    if (!(Number.isSafeInteger(draws) && draws > 0)) throw new Error(`draws must be a whole number above 0; got ${draws}`);
    if (!(Number.isSafeInteger(seed) && seed >= 0)) throw new Error(`seed must be a whole number, 0 or more; got ${seed}`);
    this.open(draws, estimator === "moments");
    const inputs = (Array.isArray(input) && typeof input[0] === "object" ? input : [input]) as Input[];
    const rows = this.rows(inputs);
    const names = this.kind === "values" ? OF_VALUES : OF_CLASSES;
    return this.asked(inputs, rows, names, { estimator, draws, seed, level });
  }

  private asked(inputs: Input[], rows: number, names: string[], o: Required<Options>): Prediction {
    const wasm = engine!, kept: number[] = [], room = rows * product(this.outputShape);
    const take = (size: number) => { kept.push(taken(size)); return kept[kept.length - 1]; };
    try {
      const places = inputs.map((x) => take(4 * x.length)), pointers = take(4 * inputs.length), answer = take(4 * ANSWERS.length);
      const found = names.map(() => take(4 * room));
      // Views come last: memory that grows takes them away.
      places.forEach((place, i) => new Float32Array(wasm.memory.buffer, place, inputs[i].length).set(inputs[i]));
      new Uint32Array(wasm.memory.buffer, pointers, places.length).set(places);
      const table = new Uint32Array(wasm.memory.buffer, answer, ANSWERS.length).fill(0);
      names.forEach((name, i) => { table[ANSWERS.indexOf(name)] = found[i]; });
      if (wasm.predict(this.handle, pointers, rows, ESTIMATORS.indexOf(o.estimator), o.draws, o.seed >>> 0,
        Math.floor(o.seed / 2 ** 32), o.level, answer)) throw new Error(textAt(wasm.error(this.handle)));
      const told = { estimator: o.estimator, draws: o.draws } as Record<string, unknown>;
      names.forEach((name, i) => {
        const kind = name === "label" ? Int32Array : Float32Array;
        told[name] = new kind(wasm.memory.buffer, found[i], rows * this.each(name)).slice();
      });
      return told as unknown as Prediction;
    } finally {
      kept.forEach((place) => wasm.give(place));
    }
  }

  /** Numbers of one row of an answer. */
  private each(name: string): number {
    const all = product(this.outputShape);
    if (this.kind === "classes" && name !== "probs") return all / this.outputShape[0];
    return this.facts.likelihood === "heteroscedastic" ? all / 2 : all;
  }

  private rows(inputs: Input[]): number {
    const shapes = this.inputShapes, rows = inputs[0].length / product(shapes[0]);
    if (inputs.length !== shapes.length) throw new Error(`the network takes ${shapes.length} inputs; got ${inputs.length}`);
    inputs.forEach((x, i) => {
      if (rows >= 1 && x.length === rows * product(shapes[i]) && Number.isInteger(rows)) return;
      throw new Error(`input ${i} has ${x.length} numbers; one example has ${product(shapes[i])} (${shapes[i].join(" x ")})`);
    });
    return rows;
  }

  private shape(number: number): number[] {
    const place = taken(32), rank = engine!.shape(this.handle, number, place);
    const sides = [...new Int32Array(engine!.memory.buffer, place, rank)];
    engine!.give(place);
    return sides;
  }

  /** Opens the file for as many draws and for moments, if it is not open so. */
  private open(draws: number, moments: boolean): void {
    if (!engine) throw new Error("await ready(wasm) first");
    if (this.handle && draws <= this.draws && (this.moments || !moments)) return;
    const place = taken(this.bytes.length), error = taken(ERROR);
    if (this.handle) engine.close(this.handle);
    this.draws = Math.max(draws, this.draws);
    this.moments ||= moments;
    new Uint8Array(engine.memory.buffer).set(this.bytes, place);
    this.handle = engine.open(place, this.bytes.length, this.draws, Number(this.moments), error);
    const why = this.handle ? "" : textAt(error);
    engine.give(place);
    engine.give(error);
    if (why) throw new Error(why);
  }
}

function product(sides: number[]): number {
  return sides.reduce((all, side) => all * side, 1);
}

function taken(size: number): number {
  const place = engine!.take(size);
  if (!place) throw new Error("there is no memory");
  return place;
}

function textAt(place: number): string {
  const bytes = new Uint8Array(engine!.memory.buffer), end = bytes.indexOf(0, place);
  return new TextDecoder().decode(bytes.slice(place, end));
}
