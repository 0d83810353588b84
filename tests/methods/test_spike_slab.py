"""Spike-and-slab weights: exact KL, gates of whole inputs and outputs, and gradients."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli, Normal, kl_divergence

import pocketbayes as pb
from pocketbayes.errors import PocketBayesError
from pocketbayes.methods import MeanField
from pocketbayes.posteriors import SpikeSlab
from pocketbayes.posteriors.inclusion import log_odds_of, stationary_log_odds
from pocketbayes.report.features import input_names
from pocketbayes.training.optimizers import make_optimizers


def posterior(granularity="weight", shape=(3, 4), axis=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    axis = (1 if granularity == "input" else 0) if axis is None else axis
    mean, log_std = (torch.randn(shape, generator=generator, dtype=dtype) for _ in range(2))
    groups = shape if granularity == "weight" else (shape[axis],)
    log_odds = torch.randn(groups, generator=generator, dtype=dtype)
    prior = torch.tensor(log_odds_of(0.2), dtype=dtype)
    return SpikeSlab(mean, log_std - 1, log_odds, 0.5, prior, granularity, axis)


every_granularity = pytest.mark.parametrize("granularity", ["weight", "input", "output"])


@every_granularity
def test_kl_is_that_of_gaussians_and_inclusion_variables(granularity):
    q = posterior(granularity)
    slabs = kl_divergence(Normal(q.mean, q.std), Normal(0.0, 0.5))
    inclusions = kl_divergence(Bernoulli(logits=q.log_odds), Bernoulli(logits=q.prior_log_odds))
    axis = {"weight": None, "input": 0, "output": 1}[granularity]
    slabs = slabs if axis is None else slabs.sum(axis)
    torch.testing.assert_close(q.kl(), (q.inclusion * slabs + inclusions).sum())
    parameters = [q.mean, q.log_std, q.log_odds]
    assert torch.autograd.gradcheck(lambda m, s, a: _kl(q, m, s, a), parameters)


def _kl(q, mean, log_std, log_odds):
    names = ("mean", "log_std", "log_odds")
    state = dict(zip(names, (mean, log_std, log_odds), strict=True))
    return torch.func.functional_call(Kl(q), {f"q.{k}": v for k, v in state.items()}, ())


class Kl(nn.Module):
    def __init__(self, q):
        super().__init__()
        self.q = q

    def forward(self):
        return self.q.kl()


def repeated(q, copies):
    """The same weights and gates many times over, side by side: one draw is many of them."""
    arrays = q.arrays()
    for name in ("mean", "log_std", "log_odds"):
        axis = q.axis if arrays[name].dim() == 2 else 0
        arrays[name] = torch.cat([arrays[name]] * copies, axis)
    return SpikeSlab.from_arrays(arrays)


def each_copy(weights, q, copies):
    return torch.stack(weights.detach().chunk(copies, q.axis))


@every_granularity
@pytest.mark.parametrize("smooth", [True, False])
def test_draws_have_the_moments_with_and_without_gradients(granularity, smooth):
    """20,000 draws of 12 weights, kurtosis as drawn; false alarm 48 * 2e-7 per case."""
    q, n, copies = posterior(granularity), 20_000, 500
    many = repeated(q, copies)
    with torch.set_grad_enabled(smooth):
        draws = torch.cat([each_copy(many.sample(), q, copies) for _ in range(n // copies)])
    mean, variance = (t.detach() for t in q.moments())
    assert ((draws.mean(0) - mean).abs() / (variance / n).sqrt()).max() < 5.2
    fourth = (draws - mean).pow(4).mean(0)
    error = ((fourth - variance**2) / n).sqrt()
    assert ((draws.var(0) - variance).abs() / error).max() < 5.2
    if not smooth:
        zero = draws == 0
        share = zero.double().mean(0)
        off = 1 - q.each(q.inclusion.detach()).expand(3, 4)
        assert ((share - off).abs() / (off * (1 - off) / n).sqrt()).max() < 5.2
        if granularity != "weight":  # all weights of an inclusion variable go together
            axis = 2 if granularity == "output" else 1
            assert torch.equal(zero.all(axis), zero.any(axis))


LAYERS = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "tokens": (lambda: nn.Linear(4, 3), (5, 4)),
    "conv": (lambda: nn.Conv2d(4, 6, 3, padding=1, stride=2), (4, 5, 5)),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), (4, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (4, 3, 3)),
}


def gated(kind, granularity):
    """A layer with inclusion variables, its example, and the axis that they lie along."""
    make, shape = LAYERS[kind]
    torch.manual_seed(3)
    layer = pb.bayesianize_(make().double())
    weight = dict(pb.named_posteriors(layer))["weight"]
    axis = int((granularity == "input") != (kind == "transposed"))
    generator = torch.Generator().manual_seed(4)
    log_odds = torch.randn(weight.shape[axis], generator=generator, dtype=torch.float64)
    q = SpikeSlab(
        weight.mean.detach(), torch.full_like(weight.mean.detach(), -2.0), log_odds, 0.5,
        torch.tensor(0.0, dtype=torch.float64), granularity, axis,
    )  # fmt: skip
    pb.replace_posterior(layer, "weight", q)
    return layer, torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("granularity", ["input", "output"])
@pytest.mark.parametrize("smooth", [True, False])
def test_gated_layers_have_the_moments_of_drawn_weights(kind, granularity, smooth):
    """Outputs of 2,000 examples by local reparameterisation, and of 2,000 drawn weights.

    Two-sample z-scores of mean and variance, up to 200 outputs; false alarm below 1e-3 in all.
    """
    layer, x = gated(kind, granularity)
    n = 2000
    with torch.set_grad_enabled(smooth):
        local = layer(x.expand(n, *x.shape)).detach()
    with torch.no_grad():
        layer._posteriors.estimator = "weight"
        alone = torch.vmap(lambda _: layer(x.unsqueeze(0)), randomness="different")
        drawn = alone(torch.empty(n)).squeeze(1)
    for one, other in (
        (local, drawn),
        ((local - local.mean(0)) ** 2, (drawn - drawn.mean(0)) ** 2),
    ):
        error = ((one.var(0) + other.var(0)) / n).sqrt()
        assert ((one.mean(0) - other.mean(0)).abs() / error).max() < 5.5


def test_an_input_that_is_off_is_off_for_every_output_and_position():
    layer, x = gated("conv", "input")
    with torch.no_grad():
        q = layer._posteriors["weight"]
        q.log_odds.copy_(torch.tensor([50.0, -50, -50, -50]))
        q.log_std.fill_(-30)
        alone = x.clone()
        alone[1:] = 0
        got, want = layer(x.unsqueeze(0)), layer(alone.unsqueeze(0))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("granularity", ["input", "output"])
def test_the_gradient_of_an_inclusion_variable_is_what_its_moments_say(granularity):
    """d E[y^2] / dp against its closed form, from 20,000 examples, to 12% of the largest."""
    layer, x = gated("linear", granularity)
    q = layer._posteriors["weight"]
    n = 20_000
    with torch.no_grad():
        layer.bias.zero_()
    value = layer(x.expand(n, 4)).square().sum(1).mean()
    (slope,) = torch.autograd.grad(value, q.log_odds)
    p = q.inclusion.detach()
    found = slope / (p * (1 - p))
    m, v = q.mean.detach(), q.std.detach().square()
    if granularity == "output":  # E[y_o^2] = p_o (E y^2)
        want = (v @ x.square()) + (m @ x).square()
    else:  # E[y_o^2] = sum_i p_i s_oi x_i^2 + p_i (1 - p_i) (m_oi x_i)^2 + (sum p m x)^2
        total = (m * p * x).sum(1, keepdim=True)
        want = (v * x**2 + (1 - 2 * p) * (m * x) ** 2 + 2 * total * m * x).sum(0)
    torch.testing.assert_close(found, want, rtol=0.12, atol=0.12 * want.abs().max().item())


def regression(n=80, d=6, seed=0):
    """Correlated inputs, some of which matter; the noise is known to no one."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    x[:, 1] = 0.4 * x[:, 0] + 0.9 * x[:, 1]
    truth = torch.tensor([0.8, 0, -0.5, 0, 0, 0.12], dtype=torch.float64)[:d]
    return x, x @ truth + 0.5 * torch.randn(n, generator=generator, dtype=torch.float64)


def exact_inclusion(x, y, noise, slab, prior):
    """Posterior inclusion probabilities, summed over all 2^d models."""
    n, d = x.shape
    weights, inside = [], []
    for model in itertools.product((0, 1), repeat=d):
        keep = torch.tensor(model, dtype=torch.bool)
        eye = torch.eye(n, dtype=torch.float64)
        covariance = noise**2 * eye + slab**2 * x[:, keep] @ x[:, keep].T
        density = torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance)
        chance = sum(math.log(prior if k else 1 - prior) for k in model)
        weights.append(density.log_prob(y).item() + chance)
        inside.append(keep.double())
    return torch.softmax(torch.tensor(weights, dtype=torch.float64), 0) @ torch.stack(inside)


@pytest.mark.parametrize(("granularity", "optimum"), [("weight", "gradient"), ("input", "density")])
def test_training_finds_the_inclusion_probabilities_of_a_regression(granularity, optimum):
    """Against the sum over all 64 models, at the noise that training found."""
    x, y = regression()
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(6, 1, bias=False).double(), prior_std=0.7, std_init=0.05)
    method = pb.SpikeSlab(
        inclusion=0.3, granularity=granularity, beta=1.0, warmup=0.2, lr=4e-2, std_lr=4e-2,
        hold=0.2, optimum=optimum,
    )  # fmt: skip
    data = [(x, y[:, None])] * 10
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": len(y)}
    pb.fit(model, data, method, epochs=45, **options)
    q = dict(pb.named_posteriors(model))["weight"]
    noise = model.noise_log_std.exp().item()
    want = exact_inclusion(x, y, noise, 0.7, 0.3)
    got = q.inclusion.detach().flatten()
    assert ((got > 0.5) == (want > 0.5)).all()
    assert (got - want).abs().max() < 0.15


def test_inclusion_variables_hold_still_at_first_and_the_prior_is_learned():
    x, y = regression()
    data = [(x, y[:, None])]
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": len(y)}

    def fitted(**fields):
        torch.manual_seed(0)
        model = pb.bayesianize_(nn.Linear(6, 1, bias=False).double(), prior_std=0.7)
        pb.fit(model, data, pb.SpikeSlab(beta=1.0, **fields), epochs=200, **options)
        return dict(pb.named_posteriors(model))["weight"]

    still = fitted(hold=1.0, initial_inclusion=0.9)
    assert torch.allclose(still.inclusion, torch.tensor(0.9, dtype=torch.float64))
    learned = fitted(learn_inclusion=True, inclusion=0.9)
    assert torch.sigmoid(learned.prior_log_odds).item() == pytest.approx(
        learned.inclusion.mean().item(), abs=0.02
    )


def test_the_update_of_a_group_is_prior_less_divergence_and_gain():
    """By autograd: the loss' slope in the log-odds, and the likelihood's slope in p."""
    q = posterior("output")
    n, beta = 50.0, 0.7
    weight = torch.randn(3, 4, dtype=torch.float64)

    def likelihood(p):
        return (q.each(p) * q.mean.detach() * weight).sum()

    loss = -likelihood(q.inclusion) / n + beta / n * q.kl()
    (slope,) = torch.autograd.grad(loss, q.log_odds)
    p = q.inclusion.detach().requires_grad_()
    (gain,) = torch.autograd.grad(likelihood(p), p)
    want = q.prior_log_odds - q.of_groups(q.slab_kls()) + gain / beta
    got = stationary_log_odds(q.log_odds, slope * n / beta)
    torch.testing.assert_close(got.detach(), want.detach())


@every_granularity
def test_the_densities_at_zero_say_what_an_inclusion_variable_gains(granularity):
    """Loss h (w - a)^2 / 2, at its best Gaussian: gain / beta less KL is the ratio's logarithm."""
    q = posterior(granularity)
    beta, slab = 0.3, float(q.prior_std)
    target, curvature = (torch.rand(q.shape, dtype=torch.float64) + 0.5 for _ in range(2))
    precision = curvature / beta + slab**-2
    with torch.no_grad():
        q.mean.copy_(curvature / beta * target / precision)
        q.log_std.copy_(-precision.log() / 2)
    gain = curvature * (target**2 - (q.mean - target) ** 2 - q.std**2) / 2
    want = q.prior_log_odds + q.of_groups(gain / beta - q.slab_kls())
    torch.testing.assert_close(q.log_odds_by_density(), want)


@every_granularity
@pytest.mark.parametrize("density", [None, 0.3])
def test_pruning_keeps_what_is_on(granularity, density, tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 4)))
    data = [(torch.randn(40, 10), torch.randint(4, (40,)))]
    options = {"progress": False, "dataset_size": 40}
    pb.fit(model, data, pb.SpikeSlab(granularity=granularity), epochs=0, **options)
    with torch.no_grad():
        for _, q in pb.named_posteriors(model):
            q.log_odds.copy_(torch.randn_like(q.log_odds))
    before = dict(pb.named_posteriors(model))
    assert pb.prune_(model, density) is model
    for name, q in pb.named_posteriors(model):
        was = before[name]
        there = q.moments()[1] > 0
        if density is None:
            assert torch.equal(there, was.each(was.log_odds >= 0).expand(was.shape))
        torch.testing.assert_close(q.expectation()[there], was.mean[there])
    kept = sum(q.num_active for _, q in pb.named_posteriors(model))
    if density is not None:
        assert kept == pytest.approx(0.3 * 280, abs=21)
    pb.fit(model, data, pb.MeanField(), epochs=1, **options)
    assert sum(q.num_active for _, q in pb.named_posteriors(model)) == kept
    with pytest.raises(PocketBayesError, match="nothing to prune"):
        pb.prune_(model)


def test_among_certain_inclusion_variables_the_signal_decides():
    model = pb.bayesianize_(nn.Linear(10, 2, bias=False))
    data = [(torch.randn(8, 10), torch.randint(2, (8,)))]
    pb.fit(model, data, pb.SpikeSlab(), epochs=0, progress=False, dataset_size=8)
    q = dict(pb.named_posteriors(model))["weight"]
    with torch.no_grad():
        q.mean.copy_(torch.arange(20.0).view(2, 10))
        q.log_odds.copy_(12 - torch.arange(20.0).view(2, 10) / 100)
        q.log_odds[0, 3] = 20.0
    pb.prune_(model, 0.25)
    assert dict(pb.named_posteriors(model))["weight"].index.tolist() == [15, 16, 17, 18, 19]


def test_a_tensor_never_loses_its_last_inclusion_variable():
    model = pb.bayesianize_(nn.Linear(5, 2))
    data = [(torch.randn(8, 5), torch.randint(2, (8,)))]
    pb.fit(model, data, pb.SpikeSlab(), epochs=0, progress=False, dataset_size=8)
    q = dict(pb.named_posteriors(model))["weight"]
    with torch.no_grad():
        q.log_odds.copy_(-torch.arange(1.0, 11).view(2, 5))
    pb.prune_(model)
    assert dict(pb.named_posteriors(model))["weight"].num_active == 1


@pytest.mark.parametrize(
    "fields",
    [{"inclusion": 0.0}, {"inclusion": 1.0}, {"initial_inclusion": 1.5}, {"granularity": "row"},
     {"hold": 2.0}, {"step": 0.0}, {"averaging": 1.0}, {"layers": "last"}, {"spike": "laplace"},
     {"spike_scale": 1.0}, {"optimum": "noise"}],
)  # fmt: skip
def test_configs_refuse_nonsense(fields):
    with pytest.raises(PocketBayesError, match=next(iter(fields))):
        pb.SpikeSlab(**fields)


def test_a_sparse_model_is_refused():
    model = pb.bayesianize_(nn.Linear(20, 10))
    data = [(torch.randn(8, 20), torch.randint(10, (8,)))]
    options = {"progress": False, "dataset_size": 8}
    pb.fit(model, data, pb.Subspace(density=0.5), epochs=0, **options)
    with pytest.raises(PocketBayesError, match="sparse already"):
        pb.fit(model, data, pb.SpikeSlab(), epochs=0, **options)


def test_other_methods_ask_for_pruning_first():
    model = pb.bayesianize_(nn.Linear(20, 10))
    data = [(torch.randn(8, 20), torch.randint(10, (8,)))]
    options = {"progress": False, "dataset_size": 8, "epochs": 0}
    pb.fit(model, data, pb.SpikeSlab(), **options)
    for method in (pb.Subspace(), pb.RigL(), pb.Sharing()):
        with pytest.raises(PocketBayesError, match="prune_"):
            pb.fit(model, data, method, **options)
    with pytest.raises(PocketBayesError, match="one by one"):
        pb.fit(model, data, pb.DeepEnsemble(), **options)
    pb.fit(model, data, pb.SpikeSlab(), **options)
    pb.fit(model, data, pb.MeanField(), **options)
    pb.fit(pb.prune_(model, 0.5), data, pb.Sharing(least_members=2), **options)


def test_log_odds_have_no_optimiser():
    layer, _ = gated("linear", "output")
    groups = [g for o in make_optimizers(layer, MeanField(lr=1e-3)) for g in o.param_groups]
    moved = {id(p) for g in groups for p in g["params"]}
    q = layer._posteriors["weight"]
    assert id(q.log_odds) not in moved
    assert {id(q.mean), id(q.log_std)} <= moved


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("log_odds", lambda t: t[:1]),
        ("log_odds", lambda t: t.float()),
        ("layout", lambda t: t + 5),
        ("layout", lambda t: t[:1]),
        ("layout", lambda t: t.int()),
        ("layout", lambda t: torch.tensor([1, -1])),
        ("prior_log_odds", lambda t: t * math.nan),
        ("prior_log_odds", lambda t: t.repeat(2)),
        ("log_std", lambda t: t[:1]),
        ("prior_std", lambda t: -t),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, change):
    arrays = posterior("output").arrays()
    SpikeSlab.from_arrays(arrays)
    with pytest.raises(PocketBayesError):
        SpikeSlab.from_arrays(arrays | {name: change(arrays[name])})


def test_a_file_brings_inclusion_variables_back(tmp_path):
    layer, _ = gated("conv", "input")
    pb.save(layer, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", LAYERS["conv"][0]().double())
    one, two = (m._posteriors["weight"] for m in (layer, again))
    assert torch.equal(one.log_odds, two.log_odds)
    assert (one.granularity, one.axis) == (two.granularity, two.axis)
    torch.testing.assert_close(pb.kl(layer), pb.kl(again))


def small_run(model, **fields):
    data = [(torch.randn(40, 10), torch.randint(4, (40,)))]
    method = pb.SpikeSlab(**fields)
    return pb.fit(model, data, method, epochs=1, progress=False, dataset_size=40)


def two_layers():
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 4)))


def test_the_first_layer_stays_the_only_one_in_a_second_run():
    model = two_layers()
    for _ in range(2):
        small_run(model, layers="first", granularity="input")
        gated = [name for name, q in pb.named_posteriors(model) if isinstance(q, SpikeSlab)]
        assert gated == ["0.weight"]


def test_a_first_layer_that_does_not_learn_is_refused():
    model = two_layers()
    for _, q in list(pb.named_posteriors(model))[:1]:
        q.requires_grad_(False)
    with pytest.raises(PocketBayesError, match="unfreeze"):
        small_run(model, layers="first")


def test_a_second_run_sets_its_prior_and_refuses_other_inclusion_variables():
    model = two_layers()
    small_run(model)
    small_run(model, inclusion=0.5)
    for _, q in pb.named_posteriors(model):
        assert q.prior_log_odds.item() == 0
    for fields in ({"granularity": "input"}, {"spike": "gaussian"}):
        with pytest.raises(PocketBayesError, match="another spike or granularity"):
            small_run(model, **fields)


def test_a_small_beta_at_first_does_not_decide():
    """With no hold the first optima are gain / 0.01; at the end only what matters is on."""
    torch.manual_seed(0)
    x = torch.randn(200, 20)
    y = x[:, :1] - x[:, 5:6] + 0.5 * torch.randn(200, 1)
    model = pb.bayesianize_(nn.Linear(20, 1, bias=False), prior_std=1.0)
    method = pb.SpikeSlab(beta=1.0, hold=0.02, lr=2e-2, std_lr=2e-2)
    data = [(x[i::4], y[i::4]) for i in range(4)]
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 200}
    pb.fit(model, data, method, epochs=150, **options)
    q = dict(pb.named_posteriors(model))["weight"]
    assert (q.inclusion >= 0.5).flatten().nonzero().flatten().tolist() == [0, 5]


def test_inclusion_variables_at_the_bound_have_an_optimum_in_half_precision():
    log_odds = torch.tensor([12.0, -12.0, 0.0]).bfloat16()
    slope = torch.tensor([0.0, 0.0, 0.5]).bfloat16()
    assert stationary_log_odds(log_odds, slope).tolist() == [12, -12, -2]


def test_reports_of_ensembles_and_other_orders_are_refused():
    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.first = nn.Linear(8, 4), nn.Linear(10, 8)

        def forward(self, x):
            return self.head(self.first(x).relu())

    model = pb.bayesianize_(Backwards())
    small_run(model, granularity="input", layers="first")
    columns = [{"name": f"c{k}"} for k in range(10)]
    with pytest.raises(PocketBayesError, match="first that the network registers"):
        input_names({"columns": columns}, len(pb.feature_report(model).probabilities))
    members = pb.fit(
        two_layers(), [(torch.randn(8, 10), torch.randint(4, (8,)))],
        pb.DeepEnsemble(members=2), epochs=0, progress=False, dataset_size=8,
    ).model  # fmt: skip
    with pytest.raises(PocketBayesError, match="members"):
        pb.feature_report(members)
