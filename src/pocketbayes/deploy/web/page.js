const ESTIMATORS = ["mean", "one_pass", "moments", "weight"];
const KINDS = ["classes", "labels", "values"];
const ANSWERS = ["outputs", "variances", "probs", "entropy", "aleatoric", "epistemic", "label",
"mean", "std", "lower", "upper", "samples"];
const OF_CLASSES = ["probs", "entropy", "aleatoric", "epistemic", "label"];
const OF_VALUES = ["mean", "std", "aleatoric", "epistemic", "lower", "upper"];
const ERROR = 256;
let engine;
async function ready(wasm) {
if (engine)
return;
const bytes = (place, size) => new Uint8Array(engine.memory.buffer, place, size);
const page = {
exp: Math.exp, log: Math.log, pow: Math.pow, cos: Math.cos, tanh: Math.tanh,
expm1: Math.expm1, log1p: Math.log1p,
number: (text, size) => Number(new TextDecoder().decode(bytes(text, size).slice())),
digits: (number, to) => new TextEncoder().encodeInto(String(number), bytes(to, 32)).written,
};
const made = await WebAssembly.instantiate(wasm, { page });
engine = made.instance.exports;
}
function load(bytes) {
return new Model(bytes);
}
class Model {
facts;
classNames;
preprocess;
kind;
estimator;
inputShapes;
outputShape;
bytes;
handle = 0;
draws = 0;
moments = false;
constructor(bytes) {
this.bytes = bytes.slice();
this.open(30, false);
const wasm = engine, size = wasm.fact(this.handle, 0, 0) + 1, place = taken(size);
wasm.fact(this.handle, place, size);
this.facts = JSON.parse(textAt(place));
wasm.give(place);
this.classNames = this.facts.class_names ?? null;
this.preprocess = this.facts.preprocess ?? null;
this.kind = KINDS[wasm.kind(this.handle)];
this.estimator = ESTIMATORS[wasm.estimator(this.handle)];
this.outputShape = this.shape(-1);
this.inputShapes = Array.from({ length: wasm.inputs(this.handle) }, (_, i) => this.shape(i));
}
close() {
engine.close(this.handle);
this.handle = 0;
}
predict(input, options = {}) {
const { estimator = this.estimator, draws = 30, seed = 0, level = 0.9 } = options;
if (!ESTIMATORS.includes(estimator))
throw new Error(`the estimator is one of ${ESTIMATORS.join(", ")}; got ${estimator}`);
if (!(Number.isSafeInteger(draws) && draws > 0))
throw new Error(`draws must be a whole number above 0; got ${draws}`);
if (!(Number.isSafeInteger(seed) && seed >= 0))
throw new Error(`seed must be a whole number, 0 or more; got ${seed}`);
this.open(draws, estimator === "moments");
const inputs = (Array.isArray(input) && typeof input[0] === "object" ? input : [input]);
const rows = this.rows(inputs);
const names = this.kind === "values" ? OF_VALUES : OF_CLASSES;
return this.asked(inputs, rows, names, { estimator, draws, seed, level });
}
asked(inputs, rows, names, o) {
const wasm = engine, kept = [], room = rows * product(this.outputShape);
const take = (size) => { kept.push(taken(size)); return kept[kept.length - 1]; };
try {
const places = inputs.map((x) => take(4 * x.length)), pointers = take(4 * inputs.length), answer = take(4 * ANSWERS.length);
const found = names.map(() => take(4 * room));
places.forEach((place, i) => new Float32Array(wasm.memory.buffer, place, inputs[i].length).set(inputs[i]));
new Uint32Array(wasm.memory.buffer, pointers, places.length).set(places);
const table = new Uint32Array(wasm.memory.buffer, answer, ANSWERS.length).fill(0);
names.forEach((name, i) => { table[ANSWERS.indexOf(name)] = found[i]; });
if (wasm.predict(this.handle, pointers, rows, ESTIMATORS.indexOf(o.estimator), o.draws, o.seed >>> 0, Math.floor(o.seed / 2 ** 32), o.level, answer))
throw new Error(textAt(wasm.error(this.handle)));
const told = { estimator: o.estimator, draws: o.draws };
names.forEach((name, i) => {
const kind = name === "label" ? Int32Array : Float32Array;
told[name] = new kind(wasm.memory.buffer, found[i], rows * this.each(name)).slice();
});
return told;
}
finally {
kept.forEach((place) => wasm.give(place));
}
}
each(name) {
const all = product(this.outputShape);
if (this.kind === "classes" && name !== "probs")
return all / this.outputShape[0];
return this.facts.likelihood === "heteroscedastic" ? all / 2 : all;
}
rows(inputs) {
const shapes = this.inputShapes, rows = inputs[0].length / product(shapes[0]);
if (inputs.length !== shapes.length)
throw new Error(`the network takes ${shapes.length} inputs; got ${inputs.length}`);
inputs.forEach((x, i) => {
if (rows >= 1 && x.length === rows * product(shapes[i]) && Number.isInteger(rows))
return;
throw new Error(`input ${i} has ${x.length} numbers; one example has ${product(shapes[i])} (${shapes[i].join(" x ")})`);
});
return rows;
}
shape(number) {
const place = taken(32), rank = engine.shape(this.handle, number, place);
const sides = [...new Int32Array(engine.memory.buffer, place, rank)];
engine.give(place);
return sides;
}
open(draws, moments) {
if (!engine)
throw new Error("await ready(wasm) first");
if (this.handle && draws <= this.draws && (this.moments || !moments))
return;
const place = taken(this.bytes.length), error = taken(ERROR);
if (this.handle)
engine.close(this.handle);
this.draws = Math.max(draws, this.draws);
this.moments ||= moments;
new Uint8Array(engine.memory.buffer).set(this.bytes, place);
this.handle = engine.open(place, this.bytes.length, this.draws, Number(this.moments), error);
const why = this.handle ? "" : textAt(error);
engine.give(place);
engine.give(error);
if (why)
throw new Error(why);
}
}
function product(sides) {
return sides.reduce((all, side) => all * side, 1);
}
function taken(size) {
const place = engine.take(size);
if (!place)
throw new Error("there is no memory");
return place;
}
function textAt(place) {
const bytes = new Uint8Array(engine.memory.buffer), end = bytes.indexOf(0, place);
return new TextDecoder().decode(bytes.slice(place, end));
}
function shares(from, to) {
const scale = from / to, reach = Math.max(1, scale);
return Array.from({ length: to }, (_, i) => {
const centre = (i + 0.5) * scale, first = Math.max(0, Math.floor(centre - reach + 0.5));
const last = Math.min(from, Math.floor(centre + reach + 0.5));
const w = Array.from({ length: last - first }, (_, k) => Math.max(0, 1 - Math.abs(first + k + 0.5 - centre) / reach));
const sum = w.reduce((a, b) => a + b, 0);
return [first, w.map((share) => share / sum)];
});
}
function pictureOf(canvas, like, crops, inverts) {
const { channels, height, width } = like, tall = canvas.height, wide = canvas.width;
const zoom = Math.max(height / tall, width / wide);
const rows = crops ? Math.max(height, Math.round(tall * zoom)) : height;
const columns = crops ? Math.max(width, Math.round(wide * zoom)) : width;
const top = Math.floor((rows - height) / 2), left = Math.floor((columns - width) / 2);
const from = canvas.getContext("2d").getImageData(0, 0, wide, tall).data;
const across = shares(wide, columns).slice(left, left + width), down = shares(tall, rows).slice(top, top + height);
const bytes = new Uint8Array(channels * height * width), half = new Float32Array(tall * width);
for (let c = 0; c < channels; c++) {
const level = (p) => {
const a = from[4 * p + 3] / 255, over = (k) => Math.round(from[4 * p + k] * a + 255 * (1 - a));
return channels > 1 ? over(c) : (19595 * over(0) + 38470 * over(1) + 7471 * over(2) + 32768) >> 16;
};
for (let y = 0; y < tall; y++)
across.forEach(([first, w], x) => {
half[y * width + x] = w.reduce((sum, share, k) => sum + share * level(y * wide + first + k), 0);
});
down.forEach(([first, w], y) => {
for (let x = 0; x < width; x++) {
const sum = w.reduce((all, share, k) => all + share * half[(first + k) * width + x], 0);
bytes[(c * height + y) * width + x] = inverts ? 255 - Math.round(sum) : Math.round(sum);
}
});
}
return { channels, height, width, bytes };
}
function show(picture, canvas) {
const { channels, height, width, bytes } = picture, size = height * width;
Object.assign(canvas, { width, height });
const data = new ImageData(width, height);
for (let p = 0; p < size; p++) {
for (let c = 0; c < 3; c++)
data.data[4 * p + c] = bytes[(channels > 1 ? c * size : 0) + p];
data.data[4 * p + 3] = 255;
}
canvas.getContext("2d", { willReadFrequently: true }).putImageData(data, 0, 0);
}
function blankCanvas(width, height, colour) {
const canvas = Object.assign(document.createElement("canvas"), { width, height });
const pen = canvas.getContext("2d", { willReadFrequently: true });
pen.fillStyle = colour;
pen.fillRect(0, 0, width, height);
return canvas;
}
function drawLines(canvas, lines, thick, colours) {
const pen = canvas.getContext("2d");
Object.assign(pen, { lineWidth: thick, lineCap: "round", lineJoin: "round" });
lines.forEach((line, i) => {
pen.strokeStyle = colours[i];
pen.beginPath();
line.forEach(([x, y]) => pen.lineTo(x, y));
if (line.length === 1)
pen.lineTo(line[0][0] + 0.01, line[0][1]);
pen.stroke();
});
}
function fitted(lines, width, height, thick, share) {
const points = lines.flat(), box = (k) => [Math.min(...points.map((p) => p[k])), Math.max(...points.map((p) => p[k]))];
const [left, right] = box(0), [top, bottom] = box(1);
const most = Math.min((share * width - thick) / Math.max(right - left, 1e-9), (share * height - thick) / Math.max(bottom - top, 1e-9));
const zoom = !share ? 1 : right - left + bottom - top < thick ? 1 : Math.max(0, most);
const middle = [(left + right) / 2, (top + bottom) / 2], to = share ? [width / 2, height / 2] : middle;
return lines.map((line) => line.map(([x, y]) => [(x - middle[0]) * zoom + to[0], (y - middle[1]) * zoom + to[1]]));
}
const TURNS = { day: [365.2425, 7], time: [365.2425, 7, 1] };
const DAY = 86_400_000;
function widthOf(column) {
if (column.values)
return column.values.length + Number(!!column.empty) + Number(!!column.other);
return 1 + 2 * (TURNS[column.date]?.length ?? 0) + Number(!!column.empty);
}
function encoded(column, cell) {
if (column.values)
return word(column, cell);
const given = cell.trim() === "" ? NaN : column.date ? Date.parse(cell + (cell.includes("T") ? "Z" : "")) / DAY : Number(cell);
const empty = Number.isNaN(given), value = empty ? column.fill ?? column.mean : given;
const numbers = [(value - column.mean) / column.std];
for (const turn of TURNS[column.date] ?? [])
numbers.push(...[Math.sin, Math.cos].map((wave) => (empty ? 0 : wave((2 * Math.PI * given) / turn))));
if (column.empty)
numbers.push(Number(empty));
if (empty)
return [numbers, column.empty ? "" : `${column.name} is empty`];
const reach = (column.most - column.least) / 2;
const far = given < column.least - reach || given > column.most + reach;
return [numbers, far ? `${column.name} = ${cell}` : ""];
}
function word(column, cell) {
const numbers = new Array(widthOf(column)).fill(0), place = column.values.indexOf(cell);
const empty = cell === "" && column.empty;
numbers[place >= 0 ? place : empty ? column.values.length : numbers.length - 1] = 1;
return [numbers, place >= 0 || empty ? "" : `${column.name} is none that it knows`];
}
function decoded(column, numbers) {
if (column.values)
return column.values[numbers.indexOf(1)] ?? "";
if (column.empty && numbers[numbers.length - 1] === 1)
return "";
const value = numbers[0] * column.std + column.mean;
if (!column.date)
return String(Number(value.toPrecision(6)));
return new Date(Math.round(value * 1440) * 60_000).toISOString().slice(0, column.date === "day" ? 10 : 16);
}
const at = (id) => document.getElementById(id);
const about = JSON.parse(at("about").textContent);
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const percent = (p) => (100 * p).toFixed(p > 0.0005 && p < 0.0995 ? 1 : 0) + "%";
const brief = (x) => Number(x.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 });
const nats = (x) => (x < 0.001 ? "below 0.001" : x.toFixed(3)) + " nats";
const SHOWN = 10;
function made(tag, properties = {}, ...children) {
const element = document.createElement(tag);
for (const [name, value] of Object.entries(properties))
if (name in element)
element[name] = value;
else
element.setAttribute(name, value);
element.append(...children);
return element;
}
const bar = (kind, share) => made("span", { className: kind, style: `width:${100 * share}%` });
function doubt(aleatoric, epistemic, whole, told) {
const key = (kind, text) => made("p", { className: "soft" }, made("span", { className: `key ${kind}`, ariaHidden: "true" }), ` ${text}`);
return [
made("h2", {}, "Its doubt"),
made("div", { className: "track", ariaHidden: "true" }, bar("alea", aleatoric / whole), bar("epi", epistemic / whole)),
key("alea", `aleatoric ${told(aleatoric)}: ${told === nats ? "the input is ambiguous" : "noise in the data"}`),
key("epi", `epistemic ${told(epistemic)}: it has seen too little like this`),
];
}
function reason(aleatoric, epistemic, estimator, ambiguous) {
if (estimator === "mean" && epistemic === 0)
return "A single network cannot tell why.";
const share = epistemic / Math.max(aleatoric + epistemic, 1e-30);
if (share > 0.5)
return `${percent(share)} of the doubt is epistemic: networks that fit the training data disagree, for they have seen too little like this.`;
return `${percent(1 - share)} of the doubt is aleatoric: networks that fit the training data agree that ${ambiguous}.`;
}
const sum = (x) => Array.from(x).reduce((a, b) => a + b, 0);
function named(model, index) {
return model.classNames?.[index] ?? String(index);
}
function barsOf(model, probs, chosen) {
const rows = chosen.map((i) => made("li", { "data-p": String(probs[i]), "data-class": String(i) }, made("span", {}, named(model, i)), made("span", { className: "track", ariaHidden: "true" }, bar("fill", probs[i])), made("span", {}, percent(probs[i]))));
const wide = chosen.some((i) => named(model, i).length > 3);
return made("ul", { className: wide ? "bars named" : "bars", ariaLabel: "Probabilities" }, ...rows);
}
function ofClasses(model, pred) {
const probs = pred.probs, order = [...probs.keys()].sort((a, b) => probs[b] - probs[a]);
const [best, next] = order, a = pred.aleatoric[0], e = pred.epistemic[0];
const why = probs[best] >= about.threshold ? `It is sure: ${percent(probs[best])}.`
: `Not sure. ${reason(a, e, pred.estimator, `this may be ${named(model, best)} or ${named(model, next)}`)}`;
const chosen = probs.length > SHOWN ? order.slice(0, SHOWN) : [...probs.keys()];
return [named(model, best), why, barsOf(model, probs, chosen), doubt(a, e, Math.log(probs.length), nats)];
}
function ofLabels(model, pred) {
const probs = pred.probs, all = [...probs.keys()], a = sum(pred.aleatoric), e = sum(pred.epistemic);
const sure = all.every((i) => Math.max(probs[i], 1 - probs[i]) >= about.threshold);
const head = all.filter((i) => probs[i] > 0.5).map((i) => named(model, i)).join(", ") || "none of them";
const why = sure ? "It is sure of all." : `Not sure. ${reason(a, e, pred.estimator, "it is ambiguous")}`;
return [head, why, barsOf(model, probs, all), doubt(a, e, probs.length * Math.log(2), nats)];
}
function ofValues(model, pred) {
const target = model.preprocess?.target ?? {}, scale = target.std ?? 1, centre = target.mean ?? 0;
const real = (x) => centre + scale * x, mean = real(pred.mean[0]);
const low = real(pred.lower[0]), high = real(pred.upper[0]);
const from = Math.min(centre - 3 * scale, low), to = Math.max(centre + 3 * scale, high), place = (x) => (100 * (x - from)) / (to - from);
const range = made("div", { "data-mean": String(pred.mean[0]) }, made("div", { className: "range", ariaHidden: "true" }, made("div", { className: "all" }), made("div", { className: "inside", style: `left:${place(low)}%;right:${100 - place(high)}%` }), made("div", { className: "middle", style: `left:${place(mean)}%` })), made("div", { className: "ends soft" }, made("span", {}, brief(from)), made("span", {}, brief(to))), made("p", {}, `${percent(about.level)} interval: ${brief(low)} to ${brief(high)}`));
const a = pred.aleatoric[0], e = pred.epistemic[0];
const why = e / (a + e) < 0.5 && pred.estimator !== "mean" ? "The spread is mostly noise in the data, which more data would not take away."
: reason(a, e, pred.estimator, "it is noisy");
return [`${target.name ? target.name + " " : ""}${brief(mean)}`, why, range, doubt(a, e, a + e || 1, (x) => `std ${brief(scale * Math.sqrt(x))}`)];
}
let spoken = 0;
function answer(model, x, unfamiliar = "") {
const options = { estimator: about.estimator, draws: about.draws, level: about.level };
const pred = model.predict(x, options), odd = unfamiliar && ` Unfamiliar: ${unfamiliar}.`;
const [head, why, bars, parts] = { classes: ofClasses, labels: ofLabels, values: ofValues }[model.kind](model, pred);
at("head").textContent = head;
at("why").textContent = why + odd;
at("bars").replaceChildren(bars);
at("doubt").replaceChildren(...parts);
clearTimeout(spoken);
spoken = setTimeout(() => { at("live").textContent = `${head}. ${why}${odd}`; }, 700);
}
function eachFrame(work) {
let waits = false;
return () => {
if (waits)
return;
waits = true;
requestAnimationFrame(() => { waits = false; guarded(work); });
};
}
function guarded(work) {
at("fault").hidden = true;
try {
work();
}
catch (error) {
fault(error);
}
}
function fault(error) {
at("fault").textContent = error instanceof Error ? error.message : String(error);
at("fault").hidden = false;
}
function group(title, tiles) {
if (tiles.length)
at("tries").append(made("div", {}, made("h2", {}, title), made("div", { className: "tiles" }, ...tiles)));
}
function forImages(model) {
const form = model.preprocess, [channels, height, width] = form.shape, size = height * width;
const like = { channels, height, width, bytes: new Uint8Array() };
const isDark = sum(form.mean) / channels < 0.5, paper = isDark ? "#000" : "#fff", crops = form.resize === "crop";
const side = 336, tall = Math.round((side * height) / width), thick = about.stroke || 0.1 * Math.min(width, height);
const pad = made("canvas", { id: "pad", width: side, height: tall, tabIndex: 0, role: "img",
ariaLabel: "Drawing area. Draw with mouse or finger; or arrow keys move the pen, space puts it down and up." });
const seen = made("canvas", { id: "seen", role: "img", ariaLabel: `What the network sees: ${width} by ${height} pixels` });
const colour = made("input", { type: "color", value: isDark ? "#ffffff" : "#000000", ariaLabel: "Colour of the pen" });
const file = made("input", { type: "file", accept: "image/*", className: "hidden" });
const clear = made("button", { type: "button" }, "Clear"), invert = made("button", { type: "button", ariaPressed: "false" }, "Invert");
let lines = [], colours = [], picture = null, exact = null, inverts = false;
function drawn() {
const fine = blankCanvas(8 * width, 8 * height, paper);
const scaled = lines.map((line) => line.map(([x, y]) => [(x / side) * width, (y / tall) * height]));
const placed = lines.length ? fitted(scaled, width, height, thick, about.fit) : [];
drawLines(fine, placed.map((line) => line.map(([x, y]) => [8 * x, 8 * y])), 8 * thick, colours);
return pictureOf(fine, like, false, false);
}
function judged() {
if (!exact && !picture && !lines.length)
return silence();
const found = exact ?? (picture ? pictureOf(picture, like, crops, inverts) : drawn());
show(found, seen);
answer(model, Float32Array.from(found.bytes, (b, i) => {
const c = Math.floor(i / size);
return (b / 255 - form.mean[c]) / form.std[c];
}));
}
const judge = eachFrame(judged), screen = pad.getContext("2d");
function silence() {
show(drawn(), seen);
at("head").textContent = "\u2026";
at("why").textContent = "Draw something, or choose a picture below.";
at("bars").replaceChildren();
at("doubt").replaceChildren();
}
function painted() {
screen.fillStyle = paper;
screen.fillRect(0, 0, side, tall);
if (!exact && !picture && !lines.length) {
Object.assign(screen, { fillStyle: "#808080", font: "20px sans-serif", textAlign: "center" });
screen.fillText("draw here", side / 2, tall / 2);
}
screen.imageSmoothingEnabled = !exact;
if (exact)
show(exact, seen);
const shown = exact ? seen : picture, zoom = shown && Math.min(side / shown.width, tall / shown.height);
if (shown)
screen.drawImage(shown, (side - shown.width * zoom) / 2, (tall - shown.height * zoom) / 2, shown.width * zoom, shown.height * zoom);
drawLines(pad, lines, (thick / width) * side, colours);
judge();
}
function start(next = {}) {
lines = [];
colours = [];
exact = next.exact ?? null;
picture = next.picture ?? null;
inverts = false;
invert.ariaPressed = "false";
invert.hidden = !picture;
painted();
}
const begin = (line) => { lines.push(line); colours.push(colour.value); };
const place = (e) => {
const box = pad.getBoundingClientRect();
return [((e.clientX - box.left) / box.width) * side, ((e.clientY - box.top) / box.height) * tall];
};
pad.onpointerdown = (e) => {
pad.setPointerCapture(e.pointerId);
if (exact || picture)
start();
begin([place(e)]);
painted();
};
pad.onpointermove = (e) => {
if (!e.buttons || !lines.length)
return;
lines[lines.length - 1].push(place(e));
painted();
};
withKeys(pad, (from, to, goesOn) => {
if (exact || picture)
start();
if (goesOn && lines.length)
lines[lines.length - 1].push(to);
else
begin([from, to]);
painted();
});
clear.onclick = () => start();
invert.onclick = () => { inverts = !inverts; invert.ariaPressed = String(inverts); judge(); };
const opened = (chosen) => { if (chosen)
canvasOf(chosen).then((canvas) => start({ picture: canvas })).catch(fault); };
file.onchange = () => { opened(file.files?.[0]); file.value = ""; };
document.ondragover = (e) => { e.preventDefault(); pad.classList.add("over"); };
document.ondragleave = () => pad.classList.remove("over");
document.ondrop = (e) => { e.preventDefault(); pad.classList.remove("over"); opened(e.dataTransfer?.files[0]); };
document.onpaste = (e) => opened(e.clipboardData?.files[0]);
at("input").append(pad, made("div", { className: "row" }, clear, made("label", { className: "button" }, "Open an image", file), invert, ...(channels > 1 ? [colour] : []), seen), made("p", { className: "soft" }, `Draw, or drop an image. The small picture is what the network sees: ${width} x ${height} pixels${about.fit ? ", moved and scaled as its training images are" : ""}.`));
const tile = (name, bytes) => {
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
function withKeys(pad, draw) {
let pen = [pad.width / 2, pad.height / 2], isDown = false, goesOn = false;
const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
pad.onkeydown = (e) => {
const move = moves[e.key], step = pad.width / 16;
if (e.key === " ") {
isDown = !isDown;
goesOn = false;
}
else if (!move)
return;
e.preventDefault();
const to = move ? [pen[0] + step * move[0], pen[1] + step * move[1]] : pen;
if (to[0] < 0 || to[1] < 0 || to[0] > pad.width || to[1] > pad.height)
return;
if (isDown) {
draw(pen, to, goesOn);
goesOn = true;
}
pen = to;
at("live").textContent = `pen ${isDown ? "down" : "up"}, ${Math.round((100 * pen[0]) / pad.width)} across, ${Math.round((100 * pen[1]) / pad.height)} down`;
};
}
async function canvasOf(file) {
const image = await createImageBitmap(file).catch(() => { throw new Error(`${file.name} is no image that this browser reads`); });
const zoom = Math.min(1, 1024 / Math.max(image.width, image.height));
const canvas = blankCanvas(Math.max(1, Math.round(image.width * zoom)), Math.max(1, Math.round(image.height * zoom)), "#fff");
const pen = canvas.getContext("2d");
pen.imageSmoothingQuality = "high";
pen.drawImage(image, 0, 0, canvas.width, canvas.height);
return canvas;
}
function unseen(like, paper, ink) {
const { channels, height, width } = like, fine = blankCanvas(8 * width, 8 * height, paper), pen = fine.getContext("2d");
let state = 1;
const noise = Uint8Array.from({ length: channels * height * width }, () => (state = (state * 48271) % 2147483647) >>> 23);
const blank = pictureOf(fine, like, false, false).bytes;
Object.assign(pen, { fillStyle: ink, font: `bold ${11 * height * (about.fit || 0.75)}px sans-serif`, textAlign: "center", textBaseline: "middle" });
pen.fillText("R", 4 * width, 4.3 * height, 7 * width);
return [["noise", noise], ["a letter", pictureOf(fine, like, false, false).bytes], ["blank", blank]];
}
function forTables(model) {
const columns = model.preprocess.columns;
const fields = columns.map((column) => fieldOf(column));
const judge = eachFrame(() => {
const cells = columns.map((column, i) => encoded(column, fields[i].value));
answer(model, cells.flatMap(([numbers]) => numbers), cells.map(([, odd]) => odd).filter(Boolean).join(", "));
});
fields.forEach((field) => { field.oninput = judge; });
at("input").append(made("div", { className: "fields" }, ...columns.map((column, i) => made("label", {}, made("span", {}, column.name), fields[i], made("span", { className: "soft" }, hint(column))))));
const tile = (name, cells) => {
const button = made("button", { type: "button", className: "words" }, name);
button.onclick = () => { fields.forEach((field, i) => { field.value = cells[i]; }); judge(); };
return button;
};
const whole = sum(columns.map(widthOf)), numbers = about.rows ? [...new Float32Array(bytesOf(about.rows).buffer)] : [];
const usual = columns.map((column) => (column.values ? column.values[0] : decoded(column, [((column.fill ?? column.mean) - column.mean) / column.std])));
const far = (times) => columns.map((column, i) => (column.values || column.date ? usual[i]
: decoded(column, [times * Math.max(4, (1.5 * ((column.most ?? 0) - (column.least ?? 0))) / column.std)])));
group("Like its training data", [tile("the middle of all", usual), ...Array.from({ length: numbers.length / whole }, (_, i) => {
let place = i * whole;
return tile(`row ${i + 1}`, columns.map((column) => decoded(column, numbers.slice(place, (place += widthOf(column))))));
})]);
group("Nothing it has seen", [tile("all far too large", far(1)), tile("all far too small", far(-1))]);
fields.forEach((field, i) => { field.value = usual[i]; });
judge();
}
function fieldOf(column) {
if (!column.values)
return made("input", { type: column.date ? (column.date === "day" ? "date" : "datetime-local") : "number", step: "any" });
const extra = [...(column.empty ? [["", "(empty)"]] : []), ...(column.other ? [["\u0000", "(another)"]] : [])];
return made("select", {}, ...[...column.values.map((v) => [v, v]), ...extra].map(([value, text]) => made("option", { value }, text)));
}
function hint(column) {
if (column.least === undefined || column.date)
return "";
return `${brief(column.least)} to ${brief(column.most)}`;
}
async function start() {
const packed = new Blob([bytesOf(at("engine").textContent)]).stream().pipeThrough(new DecompressionStream("gzip"));
await ready(await new Response(packed).arrayBuffer());
const model = load(bytesOf(at("model").textContent));
const [first = 1, ...rest] = model.outputShape, told = rest.reduce((a, b) => a * b, model.kind === "values" ? first : 1);
if (told > (model.facts.likelihood === "heteroscedastic" ? 2 : 1))
throw new Error(`The model gives ${told} answers for each input, and this page shows one: use pocketbayes.js.`);
(model.preprocess?.kind === "image" ? forImages : forTables)(model);
}
start().catch(fault);
