"""Inclusion variables: half precision, second runs, and models that are refused."""

import copy
from itertools import product

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers.bayesian import drawing_by
from pocketbayes.methods import StepContext
from pocketbayes.posteriors import SpikeSlab
from pocketbayes.posteriors.conversions import thinned
from pocketbayes.posteriors.inclusion import stationary_log_odds

every_granularity = pytest.mark.parametrize("granularity", ["weight", "input", "output"])
both_spikes = pytest.mark.parametrize("spike", ["dirac", "gaussian"])
both_halves = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def two_layers(dtype=torch.float32, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    return pb.bayesianize_(net.to(dtype), **options)


def batch(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(64, 8, generator=generator).to(dtype), torch.arange(64) % 2)]


def fitted(model, epochs=0, **fields):
    dtype = next(p.dtype for name, p in model.named_parameters() if name.endswith("mean"))
    options = {"epochs": epochs, "progress": False, "dataset_size": 64}
    pb.fit(model, batch(dtype), pb.SpikeSlab(**fields), **options)
    return model


def posteriors(model):
    return dict(pb.named_posteriors(model))


@pytest.mark.parametrize(
    ("granularity", "spike", "dtype"),
    [
        ("weight", "dirac", torch.bfloat16), ("input", "dirac", torch.float16),
        ("output", "dirac", torch.bfloat16), ("weight", "gaussian", torch.float16),
        ("input", "gaussian", torch.bfloat16), ("output", "gaussian", torch.float16),
    ],
)  # fmt: skip
def test_inclusion_variables_leave_their_start_in_half_precision(granularity, spike, dtype):
    """From p = 0.9999, which half precision rounds to 1: log-odds of 9.2."""
    fields = {"granularity": granularity, "spike": spike, "initial_inclusion": 0.9999}
    model = two_layers(dtype)
    with torch.no_grad():
        for q in posteriors(model).values():
            q.mean.mul_(0.01)
    fitted(model, 60, beta=1.0, warmup=0.1, hold=0.1, **fields)
    for q in posteriors(model).values():
        assert q.log_odds.dtype == torch.float32
        assert (q.log_odds - 9.21).abs().min() > 0.1


@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.bfloat16])
def test_converting_keeps_the_log_odds_as_they_are(convert):
    model = fitted(two_layers(), granularity="input", inclusion=0.3)
    q = posteriors(model)["0.weight"]
    with torch.no_grad():
        q.log_odds.copy_(torch.linspace(-5, 5, 8))
    q.log_odds.grad = torch.ones(8)
    odds, prior = q.log_odds.detach().clone(), q.prior_log_odds.clone()
    convert(model)
    assert q.mean.dtype == q.log_std.dtype != torch.float32
    assert q.log_odds.grad.dtype == torch.float32
    assert torch.equal(q.log_odds, odds)
    assert torch.equal(q.prior_log_odds, prior)
    q.log_odds.grad = None
    model.double()
    assert q.log_odds.dtype == q.prior_log_odds.dtype == torch.float64
    model.half()
    assert q.log_odds.dtype == q.prior_log_odds.dtype == torch.float32


@every_granularity
@both_spikes
@both_halves
def test_a_converted_model_computes_in_its_type(granularity, spike, dtype):
    model = fitted(two_layers(bias=True), granularity=granularity, spike=spike).to(dtype)
    for estimator, smooth in product(("lrt", "weight", "mean"), (True, False)):
        with drawing_by(model, estimator), torch.set_grad_enabled(smooth):
            output = model(batch(dtype)[0][0])
        assert output.dtype == dtype, (estimator, smooth)
        assert output.isfinite().all(), (estimator, smooth)
        if smooth:
            model.zero_grad()
            (output.float().square().mean() + pb.kl(model) / 64).backward()
            for q in posteriors(model).values():
                assert q.log_odds.grad.dtype == torch.float32, estimator
                assert all(p.grad.isfinite().all() for p in q.parameters()), estimator


@both_spikes
@both_halves
def test_files_of_half_precision_keep_float32_log_odds(spike, dtype, tmp_path):
    model = fitted(two_layers(dtype), granularity="output", spike=spike)
    with torch.no_grad():
        for q in posteriors(model).values():
            q.log_odds.normal_()
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)).to(dtype)
    back = posteriors(pb.load(tmp_path / "m.pocket", net))
    for name, q in posteriors(model).items():
        for key, array in q.arrays().items():
            assert array.dtype == back[name].arrays()[key].dtype
            assert torch.equal(array, back[name].arrays()[key])


def test_log_odds_of_half_precision_are_widened():
    """As older files hold them."""
    arrays = posteriors(fitted(two_layers(torch.bfloat16)))["0.weight"].arrays()
    q = SpikeSlab.from_arrays(arrays | {"log_odds": arrays["log_odds"].bfloat16()})
    assert q.log_odds.dtype == torch.float32


def test_a_checkpoint_of_half_precision_keeps_float32_log_odds(tmp_path):
    options = {"epochs": 4, "dataset_size": 64, "progress": False, "out": tmp_path}
    method = pb.SpikeSlab(beta=1.0, hold=0.0, warmup=0.0)
    one, other = two_layers(torch.bfloat16), two_layers(torch.bfloat16)
    pb.fit(one, batch(torch.bfloat16), method, **options)
    pb.fit(other, batch(torch.bfloat16), method, resume=True, **options)
    for name, q in posteriors(one).items():
        assert torch.equal(q.log_odds, posteriors(other)[name].log_odds)
        assert not torch.equal(q.log_odds, q.log_odds.bfloat16().float())


@both_halves
def test_optima_at_the_bound_are_finite_in_half_precision(dtype):
    log_odds = torch.tensor([12.0, -12.0, 0.0]).to(dtype)
    slope = torch.tensor([0.0, 0.0, 0.5]).to(dtype)
    assert stationary_log_odds(log_odds, slope).tolist() == [12, -12, -2]


def families(model):
    return {name: (type(q), q) for name, q in pb.named_posteriors(model)}


METHODS = {
    "spike_slab": pb.SpikeSlab(), "variational_dropout": pb.VariationalDropout(),
    "sharing": pb.Sharing(), "subspace": pb.Subspace(), "rigl": pb.RigL(),
}  # fmt: skip


@pytest.mark.parametrize("method", ["spike_slab", "variational_dropout"])
def test_a_model_that_is_sparse_in_its_last_layer_is_left_as_it_is(method):
    model = two_layers()
    pb.fit(model, batch(), pb.Deterministic(), epochs=0, progress=False, dataset_size=64)
    last = posteriors(model)["2.weight"]
    pb.replace_posterior(model, "2.weight", thinned(last, torch.arange(12) % 2 == 0))
    before = families(model)
    with pytest.raises(pb.PocketBayesError, match=r"2\.weight is sparse already"):
        pb.fit(model, batch(), METHODS[method], epochs=1, progress=False, dataset_size=64)
    assert families(model) == before


@pytest.mark.parametrize("method", ["variational_dropout", "sharing", "subspace", "rigl"])
def test_a_model_with_inclusion_variables_in_its_last_layer_is_left_as_it_is(method):
    model = fitted(two_layers())
    gated = posteriors(model)["2.weight"]
    pb.fit(model, batch(), pb.Deterministic(), epochs=0, progress=False, dataset_size=64)
    pb.replace_posterior(model, "2.weight", gated)
    before = families(model)
    with pytest.raises(pb.PocketBayesError, match=r"2\.weight have inclusion variables"):
        pb.fit(model, batch(), METHODS[method], epochs=1, progress=False, dataset_size=64)
    assert families(model) == before


def test_inclusion_variables_of_other_layers_are_not_left_undecided():
    model = fitted(two_layers(), granularity="input")
    before = families(model)
    with pytest.raises(
        pb.PocketBayesError, match=r'2\.weight has inclusion variables.*layers="all"'
    ):
        fitted(model, granularity="input", layers="first")
    assert families(model) == before
    fitted(fitted(two_layers(), granularity="input", layers="first"), granularity="input")


def test_a_second_run_has_its_own_spike():
    model = fitted(two_layers(), spike="gaussian", spike_scale=0.1)
    fitted(model, spike="gaussian", spike_scale=0.02, inclusion=0.3)
    for q in posteriors(model).values():
        assert q.spike_std.item() == pytest.approx(0.02 * q.prior_std.item())
        assert torch.sigmoid(q.prior_log_odds).item() == pytest.approx(0.3)


@pytest.mark.parametrize(
    "method",
    [pb.SpikeSlab(granularity="output"), pb.SpikeSlab(spike="gaussian"), pb.VariationalDropout()],
)
def test_the_way_out_that_errors_name_leads_out(method):
    options = {"epochs": 0, "progress": False, "dataset_size": 64}
    model = fitted(two_layers(), granularity="input")
    with pytest.raises(pb.PocketBayesError, match=r"Deterministic\(\), epochs=0\)"):
        pb.fit(model, batch(), method, **options)
    pb.fit(model, batch(), pb.Deterministic(), **options)
    pb.fit(model, batch(), method, **options)


def test_pruning_by_another_score_says_what_to_say():
    model = fitted(two_layers(), granularity="input")
    for by in ("magnitude", "snr"):
        with pytest.raises(pb.PocketBayesError, match='by="inclusion"'):
            pb.prune_(model, by=by)
    pb.prune_(model, by="inclusion")


KINDS = {
    "linear": (lambda: nn.Linear(4, 6), (4,), 1),
    "convolution": (lambda: nn.Conv1d(4, 6, 3), (4, 5), 1),
    "transposed": (lambda: nn.ConvTranspose1d(4, 6, 3), (4, 5), 0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("granularity", ["input", "output"])
def test_an_inclusion_variable_that_is_off_turns_off_its_own_input_or_output(kind, granularity):
    make, shape, axis = KINDS[kind]
    torch.manual_seed(0)
    model = pb.bayesianize_(make())
    data = [(torch.randn(3, *shape), model(torch.randn(3, *shape)).detach())]
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 3, "epochs": 0}
    pb.fit(model, data, pb.SpikeSlab(granularity=granularity), **options)
    q = posteriors(model)["weight"]
    assert q.axis == (axis if granularity == "input" else 1 - axis)
    assert q.log_odds.shape == ((4,) if granularity == "input" else (6,))
    with torch.no_grad(), drawing_by(model, "mean"):
        model.bias.zero_()
        q.log_odds.fill_(50.0)[2] = -50.0
        probe = torch.zeros(1, *shape)
        probe[0, 2] = 1.0
        output = model(probe)
    if granularity == "input":
        assert output.abs().max() < 1e-6
    else:
        off = output[0].reshape(6, -1).abs().amax(1) < 1e-6
        assert off.tolist() == [k == 2 for k in range(6)]


def test_optima_are_averaged_by_the_betas_that_they_were_found_at():
    """With averaging = 1/2: mean of beta times optimum, over the same mean of beta."""
    model, memory = fitted(two_layers()), {}
    q = posteriors(model)["0.weight"]
    method = pb.SpikeSlab(beta=1.0, warmup=1.0, hold=0.0, averaging=0.5, step=1.0)
    betas, products = [], []
    for progress, gain in ((0.2, 1.0), (0.6, 2.0), (1.0, -1.0)):
        odds = q.log_odds.detach().clone()
        p = torch.sigmoid(odds)
        q.log_odds.grad = -gain / 64 * p * (1 - p)  # the optimum is odds + gain / beta
        betas.append(progress)
        products.append(progress * odds + gain)
        method.after_step(model, StepContext(1, progress, [], dict, memory, 64, progress))
        want = halved(products) / halved(betas)
        torch.testing.assert_close(q.log_odds.detach(), want, rtol=1e-4, atol=1e-4)


def halved(values):
    """A running mean that begins at 0 and in which the past always weighs one half."""
    mean = 0.0
    for value in values:
        mean = (mean + value) / 2
    return mean


def test_the_first_batch_counts_as_every_other():
    """An optimum of 8 and then a hundred of -2: the mean is near -2, whatever came first."""
    model, memory = pb.bayesianize_(nn.Linear(1, 1, bias=False), prior_std=1.0), {}
    method = pb.SpikeSlab(beta=1.0, warmup=0.0, hold=0.0)
    method.start(model)
    q = model._posteriors["weight"]
    for number in range(101):
        odds = q.log_odds.detach().clone()
        p = torch.sigmoid(odds)
        q.log_odds.grad = (odds - (8.0 if number == 0 else -2.0)) * p * (1 - p)
        method.after_step(model, StepContext(number + 1, 0.5, [], dict, memory, 1, 1.0))
    weights = 0.99 ** torch.arange(100, -1, -1.0)
    optima = torch.tensor([8.0] + 100 * [-2.0])
    assert q.log_odds.item() < -1.5
    mean = (memory["weight"] / memory["weight, weight of the mean"]).item()
    assert mean == pytest.approx((weights * optima).sum().item() / weights.sum().item(), rel=1e-4)


def test_a_layer_that_is_used_later_on_has_a_mean_of_its_own():
    model, memory = two_layers(), {"0.weight": torch.full((6, 8), 9.0)}  # of an earlier version
    method = pb.SpikeSlab(beta=1.0, warmup=0.0, hold=0.0, step=1.0)
    method.start(model)
    for number in range(60):
        for name, q in posteriors(model).items():
            if name == "0.weight" or number >= 50:
                odds = q.log_odds.detach().clone()
                p = torch.sigmoid(odds)
                q.log_odds.grad = (odds + 8.0) * p * (1 - p)  # the optimum is -8
        method.after_step(model, StepContext(number + 1, 0.5, [], dict, memory, 1, 1.0))
    for q in posteriors(model).values():
        torch.testing.assert_close(q.log_odds, torch.full_like(q.log_odds, -8.0), atol=0.01, rtol=0)


@pytest.mark.parametrize("layers", ["all", "first"])
def test_a_network_without_posterior_is_refused(layers):
    options = {"epochs": 1, "progress": False, "dataset_size": 64}
    with pytest.raises(pb.PocketBayesError, match="bayesianize_"):
        pb.fit(nn.Linear(8, 2), batch(), pb.SpikeSlab(layers=layers), **options)


@pytest.mark.parametrize("name", ["inclusion", "initial_inclusion"])
@pytest.mark.parametrize("value", [1e-6, 1 - 1e-6])
def test_probabilities_that_log_odds_cannot_hold_are_refused(name, value):
    with pytest.raises(pb.PocketBayesError, match=rf"SpikeSlab\.{name}.*at least 6\.14417e-06"):
        pb.SpikeSlab(**{name: value})
    pb.SpikeSlab(**{name: 7e-6})


@every_granularity
@pytest.mark.parametrize("estimator", ["lrt", "weight"])
@pytest.mark.parametrize("smooth", [True, False])
def test_inclusion_variables_are_drawn_under_vmap(granularity, estimator, smooth):
    model = fitted(two_layers(estimator=estimator), granularity=granularity)
    x = batch()[0][0].view(4, 16, 8)
    with torch.set_grad_enabled(smooth):
        output = torch.func.vmap(model, randomness="different")(x)
    assert output.shape == (4, 16, 2)


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize(("transposed", "granularity"), [(False, "input"), (True, "output")])
def test_groups_that_share_an_inclusion_variable_are_on_or_off_together(
    smooth, transposed, granularity
):
    """One gate for three groups; with gradients outputs have noise of their own in each."""
    make = nn.ConvTranspose2d if transposed else nn.Conv2d
    model = pb.bayesianize_(make(3, 3, 1, groups=3, bias=False))
    data = [(torch.randn(4, 3, 2, 2), torch.randn(4, 3, 2, 2))]
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 4, "epochs": 0}
    pb.fit(model, data, pb.SpikeSlab(granularity=granularity), **options)
    q = posteriors(model)["weight"]
    assert q.log_odds.shape == (1,)
    with torch.no_grad():
        q.log_odds.zero_()
        q.mean.fill_(1.0)
        q.log_std.fill_(-20.0)
    with torch.set_grad_enabled(smooth):
        drawn = model(torch.ones(200, 3, 2, 2)).detach()
    assert drawn.flatten(1).std(0).min() > 0.3
    if granularity == "input" or not smooth:
        assert drawn.flatten(1).std(1).max() < 1e-3


def test_a_density_below_the_best_unit_of_each_tensor_keeps_those():
    model = fitted(two_layers(), granularity="input")
    pb.prune_(model, density=0.01)
    assert {n: q.num_active for n, q in posteriors(model).items()} == {"0.weight": 6, "2.weight": 2}


class Tied(nn.Module):
    """Words in, words out, by one matrix."""

    def __init__(self, words):
        super().__init__()
        self.embedding, self.out = nn.Embedding(words, 6), nn.Linear(6, words)
        self.out.weight = self.embedding.weight

    def forward(self, x):
        return self.out(self.embedding(x).mean(1))


@pytest.mark.parametrize("words", [11, 6])
@pytest.mark.parametrize("granularity", ["weight", "input", "output"])
def test_tied_layers_of_which_one_reads_what_the_other_writes_gate_single_weights(
    granularity, words
):
    model = pb.bayesianize_(Tied(words))
    x = torch.randint(0, words, (20, 4))
    method = pb.SpikeSlab(granularity=granularity)
    options = {"epochs": 1, "progress": False, "dataset_size": 20}
    if granularity == "weight":
        pb.fit(model, [(x, x[:, 0])], method, **options)
        return
    with pytest.raises(pb.PocketBayesError, match="tied"):
        pb.fit(model, [(x, x[:, 0])], method, **options)
    assert not any(isinstance(q, SpikeSlab) for _, q in pb.named_posteriors(model))
    assert pb.predict(model, x).probs.shape == (20, words)


class Recurrent(nn.Module):
    """The mean over time of a recurrent layer, read out."""

    def __init__(self, kind, both):
        super().__init__()
        self.layer = kind(4, 8, batch_first=True, bidirectional=both)
        self.out = nn.Linear(16 if both else 8, 1)

    def forward(self, x):
        return self.out(self.layer(x)[0].mean(1))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_one_direction_does_not_speak_for_both(kind):
    data = [(torch.randn(20, 5, 4), torch.randn(20, 1))]
    options = {"likelihood": "gaussian", "epochs": 0, "progress": False, "dataset_size": 20}
    first = pb.SpikeSlab(granularity="input", layers="first", beta=1.0)
    one = pb.fit(pb.bayesianize_(Recurrent(kind, False)), data, first, **options).model
    assert len(pb.feature_report(one).probabilities) == 4
    both = pb.bayesianize_(Recurrent(kind, True))
    with pytest.raises(pb.PocketBayesError, match="one direction only"):
        pb.fit(both, data, first, **options)
    pb.fit(both, data, pb.SpikeSlab(granularity="input", beta=1.0), **options)
    with pytest.raises(pb.PocketBayesError, match="two directions"):
        pb.feature_report(both)


def test_a_state_of_another_granularity_does_not_fit():
    inputs, outputs = (pb.bayesianize_(nn.Linear(4, 4)) for _ in range(2))
    pb.SpikeSlab(granularity="input").start(inputs)
    pb.SpikeSlab(granularity="output").start(outputs)
    before = {name: value.clone() for name, value in outputs.state_dict().items()}
    with pytest.raises(RuntimeError, match="another granularity"):
        outputs.load_state_dict(inputs.state_dict())
    for name, value in outputs.state_dict().items():
        if "weight" in name:
            assert torch.equal(value, before[name]), name
    outputs.load_state_dict(before)
    empty = copy.deepcopy(outputs).to("meta")
    empty.load_state_dict(before, assign=True)


def test_a_frozen_network_has_nothing_to_include():
    model = pb.bayesianize_(nn.Linear(4, 2)).requires_grad_(False)
    with pytest.raises(pb.PocketBayesError, match="no weight learns"):
        pb.SpikeSlab().start(model)


@pytest.mark.parametrize(
    ("method", "field"),
    [
        (pb.SpikeSlab, "learn_inclusion"),
        (pb.Subspace, "dense_first"),
        (pb.RigL, "dense_first"),
        (pb.Sharing, "refresh_norms"),
    ],
)
@pytest.mark.parametrize("value", ["yes", 3, None])
def test_what_is_true_or_false_is_nothing_else(method, field, value):
    with pytest.raises(pb.PocketBayesError, match=rf"{field} must be True or False"):
        method(**{field: value})
