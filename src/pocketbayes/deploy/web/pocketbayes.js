const ESTIMATORS = ["mean", "one_pass", "moments", "weight"];
const KINDS = ["classes", "labels", "values"];
const ANSWERS = ["outputs", "variances", "probs", "entropy", "aleatoric", "epistemic", "label",
    "mean", "std", "lower", "upper", "samples"];
const OF_CLASSES = ["probs", "entropy", "aleatoric", "epistemic", "label"];
const OF_VALUES = ["mean", "std", "aleatoric", "epistemic", "lower", "upper"];
const ERROR = 256;
let engine;
export async function ready(wasm) {
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
export function load(bytes) {
    return new Model(bytes);
}
export class Model {
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
