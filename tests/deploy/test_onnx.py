"""ONNX files answer as `predict` does, whoever runs them."""

import functools
import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from small_models import classifier, regressor
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.codec import as_stored
from pocketbayes.deploy.coded_weights import code_weights_
from pocketbayes.deploy.counted_numbers import CountedNumbers
from pocketbayes.deploy.traced_modules import Answers
from pocketbayes.layers import named_posteriors, update_description
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.models import build_network
from pocketbayes.posteriors import Codebook, Shared, SpikeSlab, as_packed
from pocketbayes.prediction import summarised

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
NEAR = 1e-4


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.lstm(x)[0][:, -1])


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm, self.last = nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        x = self.words(x)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.last(x.mean(1))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(2, 3, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(3, 3),
    )  # fmt: skip


def bayesian(net, seed=1, std=0.1):
    torch.manual_seed(seed)
    return pb.bayesianize_(net(), std_init=std)


def inputs(*shape, seed=2):
    return torch.randn(7, *shape, generator=torch.Generator().manual_seed(seed))


@functools.cache
def opened(path):
    return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


def run(path, x, **others):
    session = opened(path)
    names = [output.name for output in session.get_outputs()]
    feed = {"x": x.numpy()} | {name: np.array(value) for name, value in others.items()}
    return dict(zip(names, session.run(names, feed), strict=True))


def run_by_openvino(path, x, **others):
    openvino = pytest.importorskip("openvino", reason="openvino is not installed")
    exactly = {"INFERENCE_PRECISION_HINT": "f32"}  # else bfloat16, where a CPU has that
    compiled = openvino.Core().compile_model(path, "CPU", exactly)
    found = compiled({"x": x.numpy()} | {name: np.array(value) for name, value in others.items()})
    return {next(iter(output.names)): value for output, value in found.items()}


def require_answers_of_predict(model, path, x, record, **options):
    onnx.checker.check_model(path, full_check=True)
    stored = as_stored(model)[0]
    for batch in (x, x[:1]):
        pred = pb.predict(stored, batch, estimator=record.estimator, single=False, **options)
        found = run(path, batch)
        assert tuple(found) == record.outputs
        for name, value in found.items():
            if name not in ("lower", "upper"):
                torch.testing.assert_close(
                    torch.tensor(value), getattr(pred, name), rtol=NEAR, atol=NEAR, msg=name
                )
        if "lower" in found:
            for name, bound in zip(("lower", "upper"), pred.interval(), strict=True):
                np.testing.assert_allclose(found[name], bound, rtol=NEAR, atol=NEAR)
    assert record.compared is None or record.compared < NEAR
    return found


CASES = {
    "lenet by moments": (lambda: bayesian(lenet), inputs(1, 8, 8), "moments"),
    "resnet20 by its mean": (
        lambda: bayesian(lambda: build_network("resnet20", input_shape=(1, 8, 8), num_outputs=3)),
        inputs(1, 8, 8), "mean",
    ),
    "lstm by its mean": (lambda: bayesian(Recurrent), inputs(3, 3), "mean"),
    "attention by moments": (
        lambda: bayesian(Attentive), torch.arange(35).view(7, 5) % 9, "moments",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_networks_answer_as_predict_does(name, tmp_path):
    make, x, estimator = CASES[name]
    model, path = make(), tmp_path / "m.onnx"
    record = pb.export(model, path, example=x[:2], estimator=estimator)
    require_answers_of_predict(model, path, x, record)
    if name in ("lenet by moments", "lstm by its mean"):
        by_openvino = run_by_openvino(path, x)
        for answer, value in run(path, x).items():
            np.testing.assert_allclose(by_openvino[answer], value, rtol=NEAR, atol=NEAR)


def test_a_file_is_exported_with_what_it_knows(tmp_path):
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=(6,), num_outputs=3, hidden=(64,))
    model = pb.bayesianize_(net, std_init=0.1)
    facts = {"likelihood": "categorical", "class_names": ("a", "b", "c"), "temperature": 1.5}
    update_description(model, **facts, moments_factor=2.0, preprocess={"kind": "none"})
    x, pocket, path = inputs(6), tmp_path / "m.pocket", tmp_path / "m.onnx"
    data = TensorDataset(x.repeat(10, 1), torch.arange(70) % 3)
    pb.conformal(model, DataLoader(data, 70), estimator="moments")
    size = pb.save(model, pocket, tolerance=0.01)
    record = pb.export(pocket, path, example=x.numpy(), num_samples=30)
    assert record.estimator == "moments"
    assert "prediction_set" in record.outputs
    assert record.pocket_bytes == size.bytes
    loaded, found = pb.load(pocket), run(path, x)
    pred = pb.predict(loaded, x, estimator="moments")
    for name, value in found.items():
        np.testing.assert_allclose(value, getattr(pred, name), atol=NEAR, err_msg=name)
    stored = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    told = json.loads(stored["pocketbayes"])
    assert told["class_names"] == ["a", "b", "c"]
    assert told["preprocess"] == {"kind": "none"}
    assert (told["likelihood"], told["estimator"]) == ("categorical", "moments")
    with pytest.raises(pb.PocketBayesError, match='promised for estimator="moments" and 30 draws'):
        pb.export(pocket, path, example=x, num_samples=10)


def test_every_family_is_stored_as_codes(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(60, 50), nn.Tanh(), nn.Linear(50, 40), nn.Tanh(), nn.Linear(40, 3)
    )
    model = pb.bayesianize_(net, std_init=0.05)
    sparse, shared, gated = (q for n, q in named_posteriors(model) if n.endswith("weight"))
    kept = torch.arange(0, 3000, 7)
    pb.replace_posterior(model, "0.weight", as_packed(sparse, kept, "none"))
    entries = Codebook(torch.linspace(-0.2, 0.2, 16), torch.linspace(-4, -3, 16))
    label = torch.arange(2000) % 16
    pb.replace_posterior(model, "2.weight", Shared(entries, label, shared.shape, 0.1))
    mean, log_std = gated.arrays()["mean"], gated.arrays()["log_std"]
    odds = torch.linspace(-3, 3, 120).view(3, 40)
    pb.replace_posterior(model, "4.weight", SpikeSlab(mean, log_std, odds, 1.0, torch.tensor(0.0)))
    x, path = inputs(60), tmp_path / "m.onnx"
    record = pb.export(model, path, example=x, estimator="moments")
    require_answers_of_predict(model, path, x, record)
    numbers = record.bytes - record.graph_bytes
    assert numbers < 3 * 429 + 2000 + 3 * 120 + 1600 + 30 * 3 * 4  # codes, tables, points


def test_dense_files_are_at_most_twice_the_pocket_file(tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(300, 200), std_init=0.02)
    with torch.no_grad():
        for _, posterior in named_posteriors(model):
            posterior.log_std += 0.3 * torch.randn_like(posterior.log_std)
    record = pb.export(model, tmp_path / "m.onnx", example=inputs(300), estimator="mean")
    assert record.bytes < 2 * record.pocket_bytes
    assert record.why_larger == ""
    assert "times the .pocket file" in str(record)


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.9])
def test_codes_stand_for_what_they_were(share):
    """Also where most are alike, and places lie far apart."""
    generator = torch.Generator().manual_seed(3)
    model = pb.bayesianize_(nn.Linear(100, 30), std_init=0.05)
    weight = dict(named_posteriors(model))["weight"]
    moved = torch.rand(30, 100, generator=generator) < share
    with torch.no_grad():
        weight.mean.copy_(moved * torch.randn(30, 100, generator=generator))
    stored = as_stored(model)[0]
    coded, size = as_stored(model)[0], 3000 * 4
    code_weights_(coded, 1e-3)
    for found, known in zip(
        *(dict(named_posteriors(m))["weight"].moments() for m in (coded, stored)), strict=True
    ):
        torch.testing.assert_close(found, known, rtol=1e-5, atol=1e-7)
    kept = sum(
        b.nbytes
        for n, b in dict(named_posteriors(coded))["weight"].named_buffers()
        if n != "prior_std"
    )
    assert kept <= size * min(0.5, max(share, 0.005))


def test_one_pass_is_the_default_of_a_model_with_a_head(tmp_path):
    model, x = classifier(estimator="weight"), inputs(4)
    data = TensorDataset(x.repeat(20, 1), torch.arange(140) % 3)
    with pytest.warns(UserWarning, match="ever trained"):
        pb.distill_(model, DataLoader(data, 70), epochs=2)
    record = pb.export(model, tmp_path / "m.onnx", example=x)
    assert record.estimator == "one_pass"
    require_answers_of_predict(model, tmp_path / "m.onnx", x, record)


def test_values_have_an_interval(tmp_path):
    model, x, path = regressor(), inputs(4), tmp_path / "m.onnx"
    record = pb.export(model, path, example=x, level=0.8)
    found = run(path, x)
    low, high = pb.predict(as_stored(model)[0], x, estimator="moments").interval(0.8)
    np.testing.assert_allclose(found["lower"], low, atol=NEAR)
    np.testing.assert_allclose(found["upper"], high, atol=NEAR)
    assert record.outputs == ("mean", "std", "aleatoric", "epistemic", "lower", "upper")


@pytest.mark.parametrize("level", [0.02, 0.5, 0.9, 0.999])
def test_intervals_of_mixtures_are_those_of_predict(level):
    draws = torch.randn(30, 7, 4, generator=torch.Generator().manual_seed(4)) * 3
    likelihood = LIKELIHOODS["heteroscedastic"]
    *_, low, high = Answers(regressor(), likelihood, {}, "weight", level)(draws)
    known = summarised(likelihood, draws, {}, None, "probs", False).central_interval(level)
    torch.testing.assert_close((low, high), known, rtol=NEAR, atol=NEAR)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A regression by weight draws, 64 of them."""
    path = tmp_path_factory.mktemp("drawn") / "m.onnx"
    model = regressor()
    return (
        model,
        path,
        pb.export(model, path, example=inputs(4), estimator="weight", num_samples=64),
    )


def test_the_seed_decides_the_draws(drawn):
    _, path, _ = drawn
    x = inputs(4)
    first, again, other = (run(path, x, seed=seed)["mean"] for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**40 + 5])
def test_a_seed_out_of_bounds_is_an_error(drawn, seed):
    _, path, _ = drawn
    x = inputs(4)
    with pytest.raises(Exception, match=r"seed must be a whole number from 0 to 2\^31 - 1"):
        run(path, x, seed=seed)
    largest = run(path, x, seed=2**31 - 1)["mean"]
    assert not np.array_equal(largest, run(path, x, seed=0)["mean"])


def test_draws_have_the_law_of_the_posterior(drawn):
    """200 means of 64 draws each: by Bonferroni a false alarm comes once in 1,000 runs of seeds."""
    model, path, _ = drawn
    x, stored = inputs(4), as_stored(model)[0]
    found = [run(path, x, seed=seed) for seed in range(200)]
    ((_, weight),) = named_posteriors(stored)
    mean = (x @ weight.moments()[0].T + stored.bias).detach().numpy()
    variance = (x.square() @ weight.moments()[1].T).detach().numpy()
    scores = (np.stack([f["mean"] for f in found]) - mean) / np.sqrt(variance / 64)
    # Rows of one seed share their draws; of the seeds all are independent.
    chances = [stats.kstest(column, "norm").pvalue for column in scores.reshape(200, -1).T]
    chances.append(2 * stats.norm.sf(abs(scores.mean(0)).max() * math.sqrt(200)))
    sums = np.stack([f["epistemic"] for f in found]).sum(0) * 63 / variance
    chances += [2 * min(stats.chi2.sf(s, 200 * 63), stats.chi2.cdf(s, 200 * 63)) for s in sums.flat]
    assert min(chances) > 1e-3 / len(chances)


def test_intervals_of_draws_hold_their_share(drawn):
    _, path, _ = drawn
    x = inputs(4)
    found = run(path, x, seed=1)
    reach = stats.norm.ppf(0.95) * found["std"]
    np.testing.assert_allclose((found["upper"] - found["lower"]) / 2, reach, rtol=0.1)


def test_runtimes_agree_on_draws(drawn):
    _, path, _ = drawn
    x = inputs(4)
    for wrong in (-1, 2**31):
        assert np.isnan(run_by_openvino(path, x, seed=wrong)["mean"]).all()
    found = run_by_openvino(path, x, seed=77)
    np.testing.assert_allclose(found["mean"], run(path, x, seed=77)["mean"], atol=NEAR)


def test_counted_numbers_are_normal_and_unrelated():
    """Laws of 2^16 numbers: each bound is passed by chance less than once in 100,000 seeds."""
    size = 1 << 16
    rows = []
    for seed, draw in ((0, 0), (0, 1), (1, 0), (2**31 - 1, 29)):
        numbers = CountedNumbers(torch.tensor([seed]), torch.tensor([draw]))
        rows += [numbers(torch.empty(size), "normal").numpy() for _ in range(2)]
    assert min(stats.kstest(row, "norm").pvalue for row in rows) > 1e-6
    related = np.corrcoef(np.concatenate([rows, np.square(rows)]))[~np.eye(16, dtype=bool)]
    assert abs(related).max() * math.sqrt(size) < 5.5
    chances = torch.tensor([0.0, 0.3, 1.0]).view(3, 1).expand(3, size)
    share = CountedNumbers(torch.tensor([3]), torch.tensor([0]))(chances, "bernoulli").mean(1)
    assert share[0] == 0
    assert share[2] == 1
    assert abs(share[1] - 0.3) < 5 * math.sqrt(0.21 / size)


def test_local_draws_and_labels(tmp_path):
    """A false alarm once in 10,000 seeds: 400 draws, 5 standard errors."""
    model, x, path = bayesian(lambda: nn.Linear(4, 2), std=0.5), inputs(4), tmp_path / "m.onnx"
    update_description(model, likelihood="bernoulli")
    record = pb.export(model, path, example=x, estimator="lrt", num_samples=400)
    assert record.outputs == ("probs", "entropy", "aleatoric", "epistemic", "label")
    pred = pb.predict(as_stored(model)[0], x, 4000, estimator="lrt")
    error = (pred.variance * (1 / 400 + 1 / 4000)).sqrt()
    assert bool(
        ((torch.tensor(run(path, x, seed=1)["probs"]) - pred.probs).abs() < 5 * error).all()
    )


def test_int8_says_what_it_changes(tmp_path):
    model, x = classifier(std=0.01), inputs(4)
    record = pb.export(model, tmp_path / "m.onnx", example=x, estimator="mean", int8=True)
    kinds = {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}
    assert "QuantizeLinear" in kinds
    assert 0 < record.int8_change["probs"] < 0.1
    assert "int8 changed" in str(record)


def test_flipout_opens_without_a_warning(tmp_path, capfd):
    """A warning says that onnxruntime tried to simplify the graph, and could not."""
    path = tmp_path / "m.onnx"
    made = bayesian(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    pb.export(made, path, example=inputs(4), estimator="flipout", num_samples=3)
    capfd.readouterr()
    found = run(path, inputs(4), seed=1)
    assert capfd.readouterr().err == ""
    assert (found["probs"].argmax(1) == found["label"]).all()


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 3)

    def forward(self, entropy, seed):
        return self.last(entropy * seed)


def test_inputs_named_as_answers_are_refused_with_a_way_out(tmp_path):
    x, path = inputs(4), tmp_path / "m.onnx"
    with pytest.raises(pb.PocketBayesError, match=r'"entropy", as an answer .* example as a tuple'):
        pb.export(bayesian(Named), path, example={"entropy": x, "seed": x}, estimator="mean")
    model = bayesian(Named)
    record = pb.export(model, path, example=(x, x), estimator="mean")
    assert [i.name for i in opened(str(path)).get_inputs()] == ["x1", "x2"]
    assert str(record).splitlines()[1].startswith("answers by mean: probs")
    with pytest.raises(pb.PocketBayesError, match='"seed", as a part of the ONNX file'):
        pb.export(bayesian(Seeded), path, example={"x": x, "seed": x}, estimator="weight")


class Seeded(Named):
    def forward(self, x, seed):
        return self.last(x * seed)


class Unusual(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.special.bessel_j0(x))


class Noisy(nn.Linear):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


def test_refusals_name_the_operation(tmp_path):
    x, path = inputs(4), tmp_path / "m.onnx"
    with pytest.raises(pb.PocketBayesError, match="bessel_j0"):
        pb.export(bayesian(Unusual), path, example=x, estimator="mean")
    with pytest.raises(pb.PocketBayesError, match="no rule for the operation 'cumprod'"):
        pb.export(
            bayesian(lambda: nn.Sequential(nn.Linear(4, 4), Products())), path, example=x,
            estimator="moments",
        )  # fmt: skip
    with pytest.raises(pb.PocketBayesError, match=r"Random.*no seed decides"):
        pb.export(bayesian(lambda: Noisy(4, 2)), path, example=x, estimator="mean")
    with pytest.raises(pb.PocketBayesError, match="to must be one of onnx"):
        pb.export(classifier(), path, to="tflite", example=x)
    dropping = classifier()
    update_description(dropping, keeps_dropout=True)
    with pytest.raises(pb.PocketBayesError, match="draws of dropout are not exported"):
        pb.export(dropping, path, example=x, estimator="weight")
    with pytest.raises(pb.PocketBayesError, match="needs a head"):
        pb.export(classifier(), path, example=x, estimator="one_pass")
    assert not path.exists()


class Products(nn.Module):
    def forward(self, x):
        return x.cumprod(1)
