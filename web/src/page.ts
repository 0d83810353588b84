// The page: a place to draw or a form, and the answer, anew with every stroke.
import { load, Model, Prediction, ready } from "./pocketbayes.js";
import type { Facts, Options } from "./pocketbayes.js";
import { blankCanvas, drawLines, fitted, pictureOf, show } from "./pictures.js";
import type { Picture, Point } from "./pictures.js";
import { decoded, encoded, widthOf } from "./columns.js";

const at = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const about = JSON.parse(at("about").textContent!) as Facts;
const bytesOf = (text: string) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const percent = (p: number) => (100 * p).toFixed(p > 0.0005 && p < 0.0995 ? 1 : 0) + "%";
const brief = (x: number) => Number(x.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
const nats = (x: number) => (x < 0.001 ? "below 0.001" : x.toFixed(3)) + " nats";
const SHOWN = 10;

/** A new element with these properties and children. */
function made<K extends keyof HTMLElementTagNameMap>(
  tag: K, properties: Facts = {}, ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    if (name in element) (element as Facts)[name] = value;
    else element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const bar = (kind: string, share: number) => made("span", { className: kind, style: `width:${100 * share}%` });

/** The doubt split in two, as a bar and its legend. */
function doubt(aleatoric: number, epistemic: number, whole: number, told: (x: number) => string): Node[] {
  const key = (kind: string, text: string) => made("p", { className: "soft" }, made("span", { className: `key ${kind}`, ariaHidden: "true" }), ` ${text}`);
  return [
    made("h2", {}, "Its doubt"),
    made("div", { className: "track", ariaHidden: "true" }, bar("alea", aleatoric / whole), bar("epi", epistemic / whole)),
    key("alea", `aleatoric ${told(aleatoric)}: ${told === nats ? "the input is ambiguous" : "noise in the data"}`),
    key("epi", `epistemic ${told(epistemic)}: it has seen too little like this`),
  ];
}

/** One plain sentence of why it is not sure. */
function reason(aleatoric: number, epistemic: number, estimator: string, ambiguous: string): string {
  if (estimator === "mean" && epistemic === 0) return "A single network cannot tell why.";
  const share = epistemic / Math.max(aleatoric + epistemic, 1e-30);
  if (share > 0.5) return `${percent(share)} of the doubt is epistemic: networks that fit the training data disagree, for they have seen too little like this.`;
  return `${percent(1 - share)} of the doubt is aleatoric: networks that fit the training data agree that ${ambiguous}.`;
}

const sum = (x: ArrayLike<number>) => Array.from(x).reduce((a, b) => a + b, 0);

function named(model: Model, index: number): string {
  return model.classNames?.[index] ?? String(index);
}

function barsOf(model: Model, probs: Float32Array, chosen: number[]): Node {
  const rows = chosen.map((i) => made("li", { "data-p": String(probs[i]), "data-class": String(i) },
    made("span", {}, named(model, i)), made("span", { className: "track", ariaHidden: "true" }, bar("fill", probs[i])), made("span", {}, percent(probs[i]))));
  const wide = chosen.some((i) => named(model, i).length > 3);
  return made("ul", { className: wide ? "bars named" : "bars", ariaLabel: "Probabilities" }, ...rows);
}

/** What is shown of an answer: head, why, bars and doubt. */
type Shown = [string, string, Node, Node[]];

function ofClasses(model: Model, pred: Prediction): Shown {
  const probs = pred.probs!, order = [...probs.keys()].sort((a, b) => probs[b] - probs[a]);
  const [best, next] = order, a = pred.aleatoric[0], e = pred.epistemic[0];
  const why = probs[best] >= about.threshold ? `It is sure: ${percent(probs[best])}.`
    : `Not sure. ${reason(a, e, pred.estimator, `this may be ${named(model, best)} or ${named(model, next)}`)}`;
  const chosen = probs.length > SHOWN ? order.slice(0, SHOWN) : [...probs.keys()];
  return [named(model, best), why, barsOf(model, probs, chosen), doubt(a, e, Math.log(probs.length), nats)];
}

function ofLabels(model: Model, pred: Prediction): Shown {
  const probs = pred.probs!, all = [...probs.keys()], a = sum(pred.aleatoric), e = sum(pred.epistemic);
  const sure = all.every((i) => Math.max(probs[i], 1 - probs[i]) >= about.threshold);
  const head = all.filter((i) => probs[i] > 0.5).map((i) => named(model, i)).join(", ") || "none of them";
  const why = sure ? "It is sure of all." : `Not sure. ${reason(a, e, pred.estimator, "it is ambiguous")}`;
  return [head, why, barsOf(model, probs, all), doubt(a, e, probs.length * Math.log(2), nats)];
}

function ofValues(model: Model, pred: Prediction): Shown {
  const target = model.preprocess?.target ?? {}, scale = target.std ?? 1, centre = target.mean ?? 0;
  const real = (x: number) => centre + scale * x, mean = real(pred.mean![0]);
  const low = real(pred.lower![0]), high = real(pred.upper![0]);
  const from = Math.min(centre - 3 * scale, low), to = Math.max(centre + 3 * scale, high), place = (x: number) => (100 * (x - from)) / (to - from);
  const range = made("div", { "data-mean": String(pred.mean![0]) },
    made("div", { className: "range", ariaHidden: "true" }, made("div", { className: "all" }),
      made("div", { className: "inside", style: `left:${place(low)}%;right:${100 - place(high)}%` }),
      made("div", { className: "middle", style: `left:${place(mean)}%` })),
    made("div", { className: "ends soft" }, made("span", {}, brief(from)), made("span", {}, brief(to))),
    made("p", {}, `${percent(about.level)} interval: ${brief(low)} to ${brief(high)}`));
  const a = pred.aleatoric[0], e = pred.epistemic[0];
  const why = e / (a + e) < 0.5 && pred.estimator !== "mean" ? "The spread is mostly noise in the data, which more data would not take away."
    : reason(a, e, pred.estimator, "it is noisy");
  return [`${target.name ? target.name + " " : ""}${brief(mean)}`, why, range, doubt(a, e, a + e || 1, (x) => `std ${brief(scale * Math.sqrt(x))}`)];
}

let spoken = 0;

function answer(model: Model, x: ArrayLike<number>, unfamiliar = ""): void {
  const options: Options = { estimator: about.estimator, draws: about.draws, level: about.level };
  const pred = model.predict(x, options), odd = unfamiliar && ` Unfamiliar: ${unfamiliar}.`;
  const [head, why, bars, parts] = { classes: ofClasses, labels: ofLabels, values: ofValues }[model.kind](model, pred);
  at("head").textContent = head;
  at("why").textContent = why + odd;
  at("bars").replaceChildren(bars);
  at("doubt").replaceChildren(...parts);
  clearTimeout(spoken);
  spoken = setTimeout(() => { at("live").textContent = `${head}. ${why}${odd}`; }, 700);
}

/** Runs at most once a frame, however often it is asked for. */
function eachFrame(work: () => void): () => void {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => { waits = false; guarded(work); });
  };
}

function guarded(work: () => void): void {
  at("fault").hidden = true;
  try { work(); } catch (error) { fault(error); }
}

function fault(error: unknown): void {
  at("fault").textContent = error instanceof Error ? error.message : String(error);
  at("fault").hidden = false;
}

function group(title: string, tiles: Node[]): void {
  if (tiles.length) at("tries").append(made("div", {}, made("h2", {}, title), made("div", { className: "tiles" }, ...tiles)));
}

/* ------------------------------------------------------------------ images */

function forImages(model: Model): void {
  const form = model.preprocess!, [channels, height, width] = form.shape as number[], size = height * width;
  const like: Picture = { channels, height, width, bytes: new Uint8Array() };
  const isDark = sum(form.mean) / channels < 0.5, paper = isDark ? "#000" : "#fff", crops = form.resize === "crop";
  const side = 336, tall = Math.round((side * height) / width), thick = about.stroke || 0.1 * Math.min(width, height);
  const pad = made("canvas", { id: "pad", width: side, height: tall, tabIndex: 0, role: "img",
    ariaLabel: "Drawing area. Draw with mouse or finger; or arrow keys move the pen, space puts it down and up." });
  const seen = made("canvas", { id: "seen", role: "img", ariaLabel: `What the network sees: ${width} by ${height} pixels` });
  const colour = made("input", { type: "color", value: isDark ? "#ffffff" : "#000000", ariaLabel: "Colour of the pen" });
  const file = made("input", { type: "file", accept: "image/*", className: "hidden" });
  const clear = made("button", { type: "button" }, "Clear"), invert = made("button", { type: "button", ariaPressed: "false" }, "Invert");
  let lines: Point[][] = [], colours: string[] = [], picture: HTMLCanvasElement | null = null, exact: Picture | null = null, inverts = false;

  /** Strokes in units of the network's pixels, drawn eight times as large. */
  function drawn(): Picture {
    const fine = blankCanvas(8 * width, 8 * height, paper);
    const scaled = lines.map((line) => line.map(([x, y]): Point => [(x / side) * width, (y / tall) * height]));
    const placed = lines.length ? fitted(scaled, width, height, thick, about.fit) : [];
    drawLines(fine, placed.map((line) => line.map(([x, y]): Point => [8 * x, 8 * y])), 8 * thick, colours);
    return pictureOf(fine, like, false, false);
  }

  function judged(): void {
    if (!exact && !picture && !lines.length) return silence();
    const found = exact ?? (picture ? pictureOf(picture, like, crops, inverts) : drawn());
    show(found, seen);
    answer(model, Float32Array.from(found.bytes, (b, i) => {
      const c = Math.floor(i / size);
      return (b / 255 - form.mean[c]) / form.std[c];
    }));
  }
  const judge = eachFrame(judged), screen = pad.getContext("2d")!;

  function silence(): void {
    show(drawn(), seen);
    at("head").textContent = "\u2026";
    at("why").textContent = "Draw something, or choose a picture below.";
    at("bars").replaceChildren();
    at("doubt").replaceChildren();
  }

  function painted(): void {
    screen.fillStyle = paper;
    screen.fillRect(0, 0, side, tall);
    if (!exact && !picture && !lines.length) {
      Object.assign(screen, { fillStyle: "#808080", font: "20px sans-serif", textAlign: "center" });
      screen.fillText("draw here", side / 2, tall / 2);
    }
    screen.imageSmoothingEnabled = !exact;
    if (exact) show(exact, seen);
    const shown = exact ? seen : picture, zoom = shown && Math.min(side / shown.width, tall / shown.height);
    if (shown) screen.drawImage(shown, (side - shown.width * zoom!) / 2, (tall - shown.height * zoom!) / 2, shown.width * zoom!, shown.height * zoom!);
    drawLines(pad, lines, (thick / width) * side, colours);
    judge();
  }

  function start(next: { exact?: Picture; picture?: HTMLCanvasElement } = {}): void {
    lines = [];
    colours = [];
    exact = next.exact ?? null;
    picture = next.picture ?? null;
    inverts = false;
    invert.ariaPressed = "false";
    invert.hidden = !picture;
    painted();
  }

  const begin = (line: Point[]) => { lines.push(line); colours.push(colour.value); };
  const place = (e: PointerEvent): Point => {
    const box = pad.getBoundingClientRect();
    return [((e.clientX - box.left) / box.width) * side, ((e.clientY - box.top) / box.height) * tall];
  };
  pad.onpointerdown = (e) => {
    pad.setPointerCapture(e.pointerId);
    if (exact || picture) start();
    begin([place(e)]);
    painted();
  };
  pad.onpointermove = (e) => {
    if (!e.buttons || !lines.length) return;
    lines[lines.length - 1].push(place(e));
    painted();
  };
  withKeys(pad, (from, to, goesOn) => {
    if (exact || picture) start();
    if (goesOn && lines.length) lines[lines.length - 1].push(to);
    else begin([from, to]);
    painted();
  });
  clear.onclick = () => start();
  invert.onclick = () => { inverts = !inverts; invert.ariaPressed = String(inverts); judge(); };
  const opened = (chosen?: File | null) => { if (chosen) canvasOf(chosen).then((canvas) => start({ picture: canvas })).catch(fault); };
  file.onchange = () => { opened(file.files?.[0]); file.value = ""; };
  document.ondragover = (e) => { e.preventDefault(); pad.classList.add("over"); };
  document.ondragleave = () => pad.classList.remove("over");
  document.ondrop = (e) => { e.preventDefault(); pad.classList.remove("over"); opened(e.dataTransfer?.files[0]); };
  document.onpaste = (e) => opened(e.clipboardData?.files[0]);

  at("input").append(pad, made("div", { className: "row" }, clear, made("label", { className: "button" }, "Open an image", file), invert,
    ...(channels > 1 ? [colour] : []), seen),
    made("p", { className: "soft" }, `Draw, or drop an image. The small picture is what the network sees: ${width} x ${height} pixels${about.fit ? ", moved and scaled as its training images are" : ""}.`));
  const tile = (name: string, bytes: Uint8Array) => {
    const own = { ...like, bytes }, small = made("canvas", { ariaHidden: "true" });
    show(own, small);
    const button = made("button", { type: "button", ariaLabel: name }, small, ...(name.startsWith("Sample") ? [] : [name]));
    button.onclick = () => start({ exact: own });
    return button;
  };
  const each = channels * size, samples = about.samples ? bytesOf(about.samples) : new Uint8Array();
  group("Like its training data", Array.from({ length: samples.length / each }, (_, i) => tile(`Sample ${i + 1}`, samples.slice(i * each, (i + 1) * each))));
  group("Nothing it has seen", unseen(like, paper, isDark ? "#fff" : "#000").map(([name, bytes]) => tile(name, bytes)));
  start(samples.length ? { exact: { ...like, bytes: samples.slice(0, each) } } : {});
}

/** Arrow keys move a pen over the canvas; space puts it down and up. */
function withKeys(pad: HTMLCanvasElement, draw: (from: Point, to: Point, goesOn: boolean) => void): void {
  let pen: Point = [pad.width / 2, pad.height / 2], isDown = false, goesOn = false;
  const moves: Record<string, Point> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  pad.onkeydown = (e) => {
    const move = moves[e.key], step = pad.width / 16;
    if (e.key === " ") { isDown = !isDown; goesOn = false; }
    else if (!move) return;
    e.preventDefault();
    const to: Point = move ? [pen[0] + step * move[0], pen[1] + step * move[1]] : pen;
    if (to[0] < 0 || to[1] < 0 || to[0] > pad.width || to[1] > pad.height) return;
    if (isDown) { draw(pen, to, goesOn); goesOn = true; }
    pen = to;
    at("live").textContent = `pen ${isDown ? "down" : "up"}, ${Math.round((100 * pen[0]) / pad.width)} across, ${Math.round((100 * pen[1]) / pad.height)} down`;
  };
}

async function canvasOf(file: File): Promise<HTMLCanvasElement> {
  const image = await createImageBitmap(file).catch(() => { throw new Error(`${file.name} is no image that this browser reads`); });
  const zoom = Math.min(1, 1024 / Math.max(image.width, image.height));
  const canvas = blankCanvas(Math.max(1, Math.round(image.width * zoom)), Math.max(1, Math.round(image.height * zoom)), "#fff");
  const pen = canvas.getContext("2d")!;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** Noise, a letter and nothing at all. */
function unseen(like: Picture, paper: string, ink: string): [string, Uint8Array][] {
  const { channels, height, width } = like, fine = blankCanvas(8 * width, 8 * height, paper), pen = fine.getContext("2d")!;
  let state = 1;
  const noise = Uint8Array.from({ length: channels * height * width }, () => (state = (state * 48271) % 2147483647) >>> 23);
  const blank = pictureOf(fine, like, false, false).bytes;
  Object.assign(pen, { fillStyle: ink, font: `bold ${11 * height * (about.fit || 0.75)}px sans-serif`, textAlign: "center", textBaseline: "middle" });
  pen.fillText("R", 4 * width, 4.3 * height, 7 * width);
  return [["noise", noise], ["a letter", pictureOf(fine, like, false, false).bytes], ["blank", blank]];
}

/* ------------------------------------------------------------------ tables */

function forTables(model: Model): void {
  const columns = model.preprocess!.columns as Facts[];
  const fields = columns.map((column) => fieldOf(column));
  const judge = eachFrame(() => {
    const cells = columns.map((column, i) => encoded(column, fields[i].value));
    answer(model, cells.flatMap(([numbers]) => numbers), cells.map(([, odd]) => odd).filter(Boolean).join(", "));
  });
  fields.forEach((field) => { field.oninput = judge; });
  at("input").append(made("div", { className: "fields" }, ...columns.map((column, i) =>
    made("label", {}, made("span", {}, column.name), fields[i], made("span", { className: "soft" }, hint(column))))));
  const tile = (name: string, cells: string[]) => {
    const button = made("button", { type: "button", className: "words" }, name);
    button.onclick = () => { fields.forEach((field, i) => { field.value = cells[i]; }); judge(); };
    return button;
  };
  const whole = sum(columns.map(widthOf)), numbers = about.rows ? [...new Float32Array(bytesOf(about.rows).buffer)] : [];
  const usual = columns.map((column) => (column.values ? column.values[0] : decoded(column, [((column.fill ?? column.mean) - column.mean) / column.std])));
  const far = (times: number) => columns.map((column, i) => (column.values || column.date ? usual[i]
    : decoded(column, [times * Math.max(4, (1.5 * ((column.most ?? 0) - (column.least ?? 0))) / column.std)])));
  group("Like its training data", [tile("the middle of all", usual), ...Array.from({ length: numbers.length / whole }, (_, i) => {
    let place = i * whole;
    return tile(`row ${i + 1}`, columns.map((column) => decoded(column, numbers.slice(place, (place += widthOf(column))))));
  })]);
  group("Nothing it has seen", [tile("all far too large", far(1)), tile("all far too small", far(-1))]);
  fields.forEach((field, i) => { field.value = usual[i]; });
  judge();
}

function fieldOf(column: Facts): HTMLInputElement | HTMLSelectElement {
  if (!column.values) return made("input", { type: column.date ? (column.date === "day" ? "date" : "datetime-local") : "number", step: "any" });
  const extra = [...(column.empty ? [["", "(empty)"]] : []), ...(column.other ? [["\u0000", "(another)"]] : [])];
  return made("select", {}, ...[...column.values.map((v: string) => [v, v]), ...extra].map(([value, text]) => made("option", { value }, text)));
}

function hint(column: Facts): string {
  if (column.least === undefined || column.date) return "";
  return `${brief(column.least)} to ${brief(column.most)}`;
}

async function start(): Promise<void> {
  const packed = new Blob([bytesOf(at("engine").textContent!)]).stream().pipeThrough(new DecompressionStream("gzip"));
  await ready(await new Response(packed).arrayBuffer());
  const model = load(bytesOf(at("model").textContent!));
  const [first = 1, ...rest] = model.outputShape, told = rest.reduce((a, b) => a * b, model.kind === "values" ? first : 1);
  if (told > (model.facts.likelihood === "heteroscedastic" ? 2 : 1))
    throw new Error(`The model gives ${told} answers for each input, and this page shows one: use pocketbayes.js.`);
  (model.preprocess?.kind === "image" ? forImages : forTables)(model);
}

start().catch(fault);
