// The engine in node, on files whose answers are known. Run by test_script.py: node --test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { load, ready } from "../../src/pocketbayes/deploy/web/pocketbayes.js";

const at = (path) => new URL(`../../${path}`, import.meta.url);
const json = (path) => JSON.parse(readFileSync(at(path), "utf8"));
const file = (name) => readFileSync(at(`tests/golden/program-${name}.pocket`));
const programs = json("tests/golden/programs.json"), answers = json("tests/golden/answers.json");

const FIELDS = ["probs", "entropy", "aleatoric", "epistemic", "label", "mean", "std", "lower", "upper"];

await ready(readFileSync(at("src/pocketbayes/deploy/web/pocketbayes.wasm")));

function near(found, expected, what, most = 1e-4) {
  const wanted = expected.flat(9);
  assert.equal(found.length, wanted.length, what);
  const apart = Math.max(...wanted.map((x, i) => Math.abs(x - found[i])));
  assert.ok(apart < most, `${what}: ${apart} apart`);
}

for (const [name, known] of Object.entries(answers.files))
  for (const [estimator, told] of Object.entries(known.estimators))
    test(`${name} by ${estimator} tells what predict tells`, () => {
      const model = load(file(name)), input = programs[name].input.flat(9);
      const found = model.predict(input, { estimator, draws: answers.draws, level: answers.level });
      for (const field of FIELDS.filter((name) => told[name])) near(found[field], told[field], field);
      assert.equal(found.lower === undefined, told.lower === undefined);
      model.close();
    });

// 5.5 standard errors: a false alarm once in 10^7 numbers.
for (const [name, { draws: told }] of Object.entries(answers.files).filter(([, known]) => known.draws))
  test(`${name} by draws has the law that predict has`, () => {
    const model = load(file(name)), draws = 2000;
    const found = model.predict(programs[name].input.flat(9), { estimator: "weight", draws, seed: 1 });
    const mean = found.mean ?? found.probs, spread = told.variance.flat(9);
    told.mean.flat(9).forEach((x, i) => {
      const error = Math.sqrt(spread[i] * (1 / draws + 1 / told.num_samples));
      assert.ok(Math.abs(mean[i] - x) < 5.5 * error + 1e-6, `number ${i}: ${mean[i]}, not ${x}`);
    });
    told.epistemic.flat(9).forEach((x, i) => assert.ok(Math.abs(found.epistemic[i] - x) < 0.25 * x + 1e-6));
    model.close();
  });

test("the facts of a file", () => {
  const model = load(file("head"));
  assert.equal(model.estimator, "one_pass");
  assert.equal(model.kind, "classes");
  assert.deepEqual(model.inputShapes, [[6]]);
  assert.deepEqual(model.outputShape, [3]);
  assert.equal(model.facts.likelihood, "categorical");
  assert.ok(model.facts.one_pass.places.length > 0);
});

test("draws repeat with their seed, come near moments, and may be many", () => {
  const model = load(file("mean-field")), x = programs["mean-field"].input[0];
  const drawn = (options) => [...model.predict(x, { estimator: "weight", ...options }).probs];
  assert.deepEqual(drawn({ seed: 7 }), drawn({ seed: 7 }));
  assert.notDeepEqual(drawn({ seed: 7 }), drawn({ seed: 8 }));
  assert.notDeepEqual(drawn({ seed: 2 ** 40 + 7 }), drawn({ seed: 7 }));
  near(drawn({ draws: 1000 }), [...model.predict(x, { estimator: "moments" }).probs], "probs", 4e-3);
});

test("memory is given back", () => {
  const bytes = file("residual"), x = programs.residual.input.flat(9);
  const once = () => { const model = load(bytes); model.predict(x); model.close(); };
  const held = () => process.memoryUsage().external;
  once();
  const before = held();
  for (let i = 0; i < 100; i++) once();
  assert.ok(held() - before < 2e6, `${held() - before} bytes more`);
});

test("errors say what is wrong", () => {
  const bytes = file("mean-field"), model = load(bytes), x = programs["mean-field"].input[0];
  assert.throws(() => load(bytes.subarray(0, 500)), /cut short/);
  const damaged = Uint8Array.from(bytes);
  damaged[bytes.length - 1] ^= 1;
  assert.throws(() => load(damaged), /the checksum does not fit/);
  const bare = readFileSync(at("tests/golden/v3-mean-field.pocket"));
  assert.throws(() => load(bare), /pb.save\(model, path, example=x\)/);
  assert.throws(() => model.predict(x.slice(1)), /input 0 has 5 numbers; one example has 6/);
  assert.throws(() => model.predict([x, x]), /the network takes 1 inputs; got 2/);
  assert.throws(() => model.predict(x.map(() => NaN)), /NaN or infinite/);
  assert.throws(() => model.predict(x.map(() => 3e38), { estimator: "moments" }), /answer to row 0 is not finite/);
  assert.throws(() => model.predict(x, { estimator: "lrt" }), /the estimator is one of mean/);
  assert.throws(() => model.predict(x, { estimator: "one_pass" }), /no one-pass head/);
  assert.throws(() => model.predict(x, { draws: 0 }), /draws must be a whole number/);
  assert.throws(() => model.predict(x, { seed: -1 }), /seed must be a whole number/);
  near(model.predict(x, { estimator: "mean" }).probs, answers.files["mean-field"].estimators.mean.probs[0], "after them");
});
