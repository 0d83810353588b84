"""What `distill_` teaches: exact where draws are Gaussian, near to many draws elsewhere."""

import copy
import threading

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.distillation.lessons import _not_tiny
from pocketbayes.errors import DataError, PocketBayesError
from pocketbayes.layers import Gone, Numbers, folded, head_of, spread
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.models import build_network
from pocketbayes.prediction.draws import drawing
from pocketbayes.prediction.one_pass import one_pass_gaussian

pytestmark = pytest.mark.filterwarnings("ignore:nothing says that this model was ever")

INPUTS, CLASSES = 6, 4


def batches(count=12, size=64, inputs=INPUTS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, inputs, generator=generator) for _ in range(count)]


def linear_model(scaled=False):
    """Outputs (2) w x + b with stds of their own: exactly Gaussian over draws of w."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(INPUTS, CLASSES)

        def forward(self, x):
            return 2 * self.layer(x) if scaled else self.layer(x)

    torch.manual_seed(3)
    model = pb.bayesianize_(Twice(), std_init=0.3, estimator="weight")
    (_, posterior), *_ = pb.named_posteriors(model)
    with torch.no_grad():
        posterior.log_std.add_(torch.linspace(-1, 1, CLASSES).unsqueeze(1))
    factor = 4 if scaled else 1
    return model, lambda x: factor * x.square() @ posterior.std.square().T.detach()


def gaussian_of(model, x):
    with drawing(model, "one_pass", None):
        return one_pass_gaussian(model, x)


def output_of(model, x):
    with drawing(model, "mean", None):
        return model(x)


def left_in_centred(variance):
    """Variances of independent logits less their mean: all that probabilities depend on."""
    return variance * (1 - 2 / CLASSES) + variance.mean(1, keepdim=True) / CLASSES


@pytest.mark.parametrize("likelihood", ["categorical", "gaussian", "bernoulli"])
def test_gaussian_outputs_are_found_again(likelihood):
    model, variance_of = linear_model()
    pb.distill_(model, batches(40), 5, likelihood=likelihood)
    x = batches(1, 400, seed=9)[0]
    mean, variance = gaussian_of(model, x)
    apart = (mean - output_of(model, x)) / variance_of(x).sqrt()
    if likelihood == "categorical":  # what all logits have in common is free
        apart = apart - apart.mean(1, keepdim=True)
    assert apart.square().mean().sqrt() < 0.1
    expected = variance_of(x)
    if likelihood == "categorical":
        variance, expected = left_in_centred(variance), left_in_centred(expected)
    ratio = variance / expected
    assert (ratio.log().mean(0).abs() < 0.15).all()
    assert ratio.log().std() < 0.25


def test_a_variance_that_no_layer_tells_is_learned_from_features():
    model, variance_of = linear_model(scaled=True)
    pb.distill_(model, batches(40), 10, likelihood="gaussian")
    assert not head_of(model).knows_variance
    x = batches(1, 400, seed=9)[0]
    log_ratio = (gaussian_of(model, x)[1] / variance_of(x)).log()
    assert log_ratio.mean().abs() < 0.1
    assert log_ratio.std() < 0.5 * variance_of(x).log().std(0).mean()  # a constant leaves all of it


def test_the_folded_head_is_its_formula():
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    widths, outputs, rows = [5, 3, 4], 4, 11
    scale = random(12).exp()
    scale[2] = 0
    counts = torch.ones(12, dtype=torch.float64)
    scale[3] = counts[3] = 0  # unread
    numbers = Numbers(
        random(12), scale, counts, random(7, 12), random(7), random(9, 7 + 3 + 2 + 1) / 9,
        random(9), random(4),
    )  # fmt: skip
    gone = [Gone(2, 3.5), Gone(0, 0.0)]
    features, last = random(rows, 12), random(rows, 4).exp()
    out = features[:, -4:]
    z = (features - numbers.center) * scale
    inside = (
        z[:, [0, 1, 4]].square().mean(1),
        z[:, 5:8].square().mean(1),
        z[:, 8:].square().mean(1),
    )
    read = features[:, [0, 1, 2, 4]].square().sum(1)
    sizes = (read + 3.5).div(4 + 2).log(), features[:, 5:8].square().mean(1).log()
    relu = torch.relu(z @ numbers.inner.T + numbers.inner_bias).clamp(max=50)
    entropy = torch.special.entr(out.softmax(1)).sum(1)
    known = [*relu.T, *(d.log1p() for d in inside), *sizes, entropy]
    found = torch.stack(known, 1) @ numbers.outer.T + numbers.outer_bias
    mean = out * found[:, :1].exp() + found[:, 1:5] / scale[-outputs:]
    least = (0.01 / scale[-outputs:]).square()
    variance = found[:, 5:].exp() * (last + least) ** numbers.slope
    torch.testing.assert_close(
        spread(folded(numbers, widths, gone), features, out, last), (mean, variance)
    )


@pytest.fixture(scope="module")
def digits():
    """A trained network, its data, and data from elsewhere: digits with pixels in another order."""
    sets = pytest.importorskip("sklearn.datasets")
    data = sets.load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 8 - 1
    y = torch.tensor(data.target)
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=(64,), num_outputs=10, hidden=(48, 48))
    model = pb.bayesianize_(net, estimator="weight")
    train = list(zip(x[:1200].split(64), y[:1200].split(64), strict=True))
    pb.fit(model, train, pb.MeanField(beta=0.3, lr=1e-2), epochs=15, progress=False)
    strange = x[1200:, torch.randperm(64, generator=torch.Generator().manual_seed(1))]
    return pb.distill_(model, train, 12), (x[1200:], y[1200:]), strange


def test_one_pass_is_nearer_to_many_draws_than_the_mean_network(digits):
    model, (x, y), strange = digits
    generator = torch.Generator().manual_seed(0)
    for inputs in (x, strange):
        truth = pb.predict(model, inputs, 200, generator, "weight")
        taught, mean = pb.predict(model, inputs), pb.predict(model, inputs, estimator="mean")
        assert (taught.estimator, taught.num_samples) == ("one_pass", 30)
        assert _apart(taught, truth) < _apart(mean, truth)
    one, many, mean = (pb.evaluate(model, [(x, y)], 30, None, generator, e)
                       for e in (None, "weight", "mean"))  # fmt: skip
    assert (one.estimator, many.estimator) == ("one_pass", "weight")
    assert abs(one.nll - many.nll) < max(0.02, abs(mean.nll - many.nll))


def _apart(one, other):
    return (one.probs - other.probs).abs().sum(1).mean()


def test_one_pass_knows_the_epistemic_part(digits):
    model, (x, _), strange = digits
    generator = torch.Generator().manual_seed(0)
    for inputs in (x, strange):
        truth = pb.predict(model, inputs, 200, generator, "weight").epistemic
        taught = pb.predict(model, inputs).epistemic
        assert torch.corrcoef(torch.stack([taught, truth]))[0, 1] > 0.7
        assert 0.6 < taught.mean() / truth.mean() < 1.6


def test_one_pass_is_deterministic_and_has_samples(digits):
    model, (x, _), _ = digits
    first, again = (pb.predict(model, x[:5], 16, keep_samples=True) for _ in range(2))
    assert torch.equal(first.samples, again.samples)
    assert first.samples.shape == (16, 5, 10)
    single = pb.predict(model, x[0], 16)
    torch.testing.assert_close(single.probs, first.probs[0])
    drawn = pb.predict(model, x[:5], 16, estimator="weight")
    assert drawn.estimator == "weight"
    assert not torch.allclose(drawn.probs, first.probs)


def test_threads_do_not_read_each_others_features(digits):
    model, (x, _), _ = digits
    alone = [pb.predict(model, part).probs for part in x.split(150)]
    found = [None] * len(alone)

    def work(i):
        for _ in range(5):
            found[i] = pb.predict(model, x.split(150)[i]).probs

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(alone))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(found, alone)


OUTPUTS = {"categorical": 3, "heteroscedastic": 4}


@pytest.mark.filterwarnings("ignore:draws of this model tell the loader's targets no better")
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_every_likelihood_predicts_from_one_pass(likelihood):
    torch.manual_seed(0)
    x, outputs = torch.randn(64, INPUTS), OUTPUTS.get(likelihood, 2)
    y = {
        "categorical": x[:, 0].gt(0).long(),
        "bernoulli": x[:, :2].gt(0).float(),
        "poisson": x[:, :2].abs().round(),
        "negative-binomial": x[:, :2].abs().round(),
    }.get(likelihood, x[:, :2])
    net = nn.Sequential(nn.Linear(INPUTS, 16), nn.Tanh(), nn.Linear(16, outputs))
    model = pb.bayesianize_(net, std_init=0.2, estimator="weight")
    pb.fit(model, [(x, y)] * 4, epochs=2, likelihood=likelihood, progress=False)
    pb.distill_(model, [(x, y)] * 8, 10)
    one = pb.predict(model, x)
    many = pb.predict(model, x, 400, torch.Generator().manual_seed(0), "weight")
    assert one.estimator == "one_pass"
    assert 0.5 < one.epistemic.mean() / many.epistemic.mean() < 2
    torch.testing.assert_close(one.aleatoric.mean(), many.aleatoric.mean(), rtol=0.25, atol=0.02)
    if likelihood == "gaussian":  # the law of total variance, with the noise that was learned
        noise = model.noise_log_std.detach().exp().square().expand_as(one.mean)
        torch.testing.assert_close(one.aleatoric, noise)
        torch.testing.assert_close(one.epistemic, gaussian_of(model, x)[1])
    assert pb.evaluate(model, [(x, y)]).estimator == "one_pass"


@pytest.mark.filterwarnings("ignore:the one-pass head did not learn")
def test_rows_on_which_no_unit_is_active_are_learned_too():
    """Half of all rows: the last layer varies by nothing there, the network does."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(INPUTS)[0].repeat(8, 1))
        net[0].bias.zero_()
    model = pb.bayesianize_(net, std_init=0.5, estimator="weight")
    pb.distill_(model, batches(40), 10, likelihood="gaussian")
    x = batches(1, 400, seed=1)[0]
    with drawing(model, "weight", torch.Generator().manual_seed(0)):
        found = torch.stack([model(x) for _ in range(400)]).std(0)
    ratio = gaussian_of(model, x)[1].sqrt() / found
    assert (x[:, 0] < 0).any()
    for rows in (x[:, 0] < 0, x[:, 0] > 0):
        assert 0.25 < float(ratio[rows].median()) < 4  # the head sees zeros, whatever the row


OTHERS = {"categorical": "bernoulli", "bernoulli": "poisson", "gaussian": "categorical"}


@pytest.mark.parametrize("taught", OTHERS)
@pytest.mark.parametrize("stored", [False, True])
def test_a_head_is_not_used_for_another_kind_of_outputs(taught, stored):
    """Its factors or shifts were learned for classes, labels or values; draws serve all of them."""
    model, _ = linear_model()
    pb.distill_(model, batches(2), 1, likelihood=taught)
    if stored:
        state = model.state_dict()
        model, _ = linear_model()
        model.load_state_dict(state)
    x, y = batches(1)[0], torch.ones(64, CLASSES)
    other = OTHERS[taught]
    y = y[:, 0].long() if other == "categorical" else y
    with pytest.warns(UserWarning, match=f'taught for likelihood="{taught}".*the network is drawn'):
        pred = pb.predict(model, x, likelihood=other)
    assert pred.estimator == "weight"
    with pytest.warns(UserWarning, match=f'"{other}"'):
        assert pb.evaluate(model, [(x, y)], likelihood=other).estimator == "weight"
    if other != "poisson":
        with pytest.warns(UserWarning, match=f'"{other}"'):
            pb.temperature_(copy.deepcopy(model), [(x, y)], likelihood=other)
    with pytest.raises(PocketBayesError, match=rf'distill_\(model, loader, likelihood="{other}"'):
        pb.predict(model, x, likelihood=other, estimator="one_pass")


@pytest.mark.filterwarnings("ignore:the one-pass head did not learn")
def test_values_of_all_kinds_share_a_head_and_heads_of_old_are_not_doubted():
    """It is one of outputs, whatever noise there is; a head that says nothing is trusted."""
    model, _ = linear_model()
    pb.distill_(model, batches(2), 1, likelihood="negative-binomial")
    assert pb.predict(model, batches(1)[0], likelihood="poisson").estimator == "one_pass"
    head_of(model).likelihood = None
    assert pb.predict(model, batches(1)[0], likelihood="categorical").estimator == "one_pass"


def test_by_default_a_small_loader_is_passed_500_times_in_all():
    counted = _Counted(batches(7))
    model, _ = linear_model()
    pb.distill_(model, counted)
    assert counted.passes >= 72  # 500 / 7, rounded up, beside those that look


class _Counted(list):
    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


@pytest.mark.parametrize(
    ("loader", "error", "says"),
    [
        ([], DataError, "empty"),
        (iter(batches(1)), DataError, "iterator"),
        (7, DataError, "int"),
        ([torch.randn(4, INPUTS + 1)], DataError, "cannot run on an input of shape"),
        ([torch.full((4, INPUTS), torch.nan)], DataError, "row 0"),
        (["text"], DataError, "str"),
    ],
)
def test_wrong_loaders_are_refused_and_the_old_head_stays(loader, error, says):
    model, _ = linear_model()
    pb.distill_(model, batches(2), 1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(error, match=says):
        pb.distill_(model, loader)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert pb.predict(model, batches(1)[0]).estimator == "one_pass"


def test_models_that_cannot_be_distilled_say_why():
    net = nn.Linear(INPUTS, CLASSES)
    with pytest.raises(PocketBayesError, match="no posterior"):
        pb.distill_(net, batches(1))
    point = pb.fit(pb.bayesianize_(net), [(x, torch.zeros(64).long()) for x in batches(1)],
                   pb.Deterministic(), epochs=1, progress=False).model  # fmt: skip
    with pytest.raises(PocketBayesError, match="nothing in this model is random"):
        pb.distill_(point, batches(1))
    model, _ = linear_model()
    with pytest.raises(PocketBayesError, match="call distill_"):
        pb.predict(model, batches(1)[0], estimator="one_pass")
    wrongs = ({"epochs": 0}, {"num_samples": 1}, {"lr": 0.0}, {"seed": -1}, {"estimator": "mean"})
    for wrong in wrongs:
        with pytest.raises(PocketBayesError, match=next(iter(wrong))):
            pb.distill_(model, batches(1), **wrong)
    assert pb.predict(model, batches(1)[0]).estimator == "weight"


def test_an_untrained_model_may_be_distilled_and_global_generators_stay():
    model, _ = linear_model()
    torch.manual_seed(5)
    expected = torch.randn(3)
    torch.manual_seed(5)
    pb.distill_(model, batches(2), 1)
    assert torch.equal(torch.randn(3), expected)
    other, _ = linear_model()
    torch.manual_seed(77)
    pb.distill_(other, batches(2), 1)
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), other.buffers(), strict=True))


def test_a_unit_that_few_examples_wake_is_not_magnified():
    """Stds 3, 0.001, 4 and a constant: rms 2.89 of those that vary; outputs keep their units."""
    std = torch.tensor([3.0, 0.001, 4.0, 0.0, 0.002, 5.0])
    varies = torch.tensor([True, True, True, False, True, True])
    found = _not_tiny(std, varies, [4, 2])
    rms = (25 + 1e-6) ** 0.5 / 3**0.5
    expected = [3.0, 0.3 * rms, 4.0, 0.3 * rms, 0.002, 5.0]
    torch.testing.assert_close(found, torch.tensor(expected))
