"""Shared weights: one codebook, exact gradients and KL, draws alone or together, hostile arrays."""

import copy
import math
import threading

import numpy as np
import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.errors import PocketBayesError
from pocketbayes.layers.ensembles import Ensemble
from pocketbayes.posteriors import Codebook, Gaussian, Shared, Sparse, reuse
from pocketbayes.posteriors.conversions import as_point, as_unshared
from pocketbayes.posteriors.joint_draw import JointDraw, joint_draws
from pocketbayes.posteriors.parts import Blends, Outliers, Support, label_type
from pocketbayes.posteriors.structures import STRUCTURES
from pocketbayes.prediction import draws as prediction_draws


def codebook(entries=5, draw="independent", dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(entries, generator=generator, dtype=dtype) / 2
    log_std = torch.randn(entries, generator=generator, dtype=dtype) / 3 - 2
    return Codebook(mean, log_std, draw)


def shared(made, weights=24, shape=(4, 6), with_blends=True, with_outliers=True, **options):
    generator = torch.Generator().manual_seed(2)
    label = torch.randint(len(made), (weights,), generator=generator)
    dtype = made.mean.dtype
    whole = Outliers(
        torch.tensor([3, 7]), torch.tensor([0.5, -2]).to(dtype), torch.zeros(2).to(dtype)
    )
    share = torch.tensor([0.3, 0.9]).to(dtype)
    blends = Blends(torch.tensor([1, 20]), torch.tensor([[0, 1], [2, 4]]), share)
    return Shared(
        made, label, shape, 0.4,
        whole if with_outliers else None, blends if with_blends else None, **options,
    )  # fmt: skip


def parameters(posterior):
    return [p for _, p in sorted(posterior.named_parameters())]


@pytest.mark.parametrize(
    "function",
    [
        lambda q: q.expectation(),
        lambda q: q.moments()[1],
        lambda q: q.kl(),
        lambda q: q.sample(torch.Generator().manual_seed(3)),
    ],
    ids=["expectation", "variance", "kl", "sample"],
)
@pytest.mark.parametrize("draw", ["independent", "shared"])
def test_gradients_reach_codebook_and_outliers(function, draw):
    posterior = shared(codebook(draw=draw))
    names = [name for name, _ in sorted(posterior.named_parameters())]
    assert names == ["outlier_log_std", "outlier_mean", "table.log_std", "table.mean"]

    def value(*tensors):
        made = dict(zip(names, tensors, strict=True))
        held = posterior.codebook.__dict__
        held["_drawn"] = None  # finite differences replace the parameters, not their versions
        return torch.func.functional_call(Wrapped(posterior, function), prefixed(made), ())

    assert torch.autograd.gradcheck(value, parameters(posterior), check_undefined_grad=False)


class Wrapped(nn.Module):
    def __init__(self, inner, function):
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self):
        return self.function(self.inner)


def prefixed(tensors):
    return {f"inner.{name}": tensor for name, tensor in tensors.items()}


def test_an_entrys_gradient_is_the_sum_over_its_weights():
    posterior = shared(codebook(), with_blends=False)
    upstream = torch.randn(4, 6, dtype=torch.float64)
    (posterior.expectation() * upstream).sum().backward()
    plain = torch.ones(24, dtype=torch.bool)
    plain[posterior.outlier] = False
    want = torch.zeros(5, dtype=torch.float64)
    want.index_add_(0, posterior.label[plain].int(), upstream.flatten()[plain])
    torch.testing.assert_close(posterior.codebook.mean.grad, want)
    torch.testing.assert_close(posterior.outlier_mean.grad, upstream.flatten()[posterior.outlier])


def test_without_blends_kl_and_moments_are_those_of_single_gaussians():
    posterior = shared(codebook(), with_blends=False)
    own = as_unshared(posterior)
    assert isinstance(own, Gaussian)
    torch.testing.assert_close(posterior.kl(), own.kl())
    for one, other in zip(posterior.moments(), own.moments(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_kl_of_blends_is_an_upper_bound_that_counts_shares():
    with_blends, without = shared(codebook()), shared(codebook(), with_blends=False)
    grid = np.linspace(-8, 8, 400_001)
    m, s = (
        t.detach().numpy() for t in (with_blends.codebook.mean, with_blends.codebook.log_std.exp())
    )

    def density(k, x):
        return np.exp(-(((x - m[k]) / s[k]) ** 2) / 2) / (s[k] * math.sqrt(2 * math.pi))

    def divergence(q):
        p = np.exp(-((grid / 0.4) ** 2) / 2) / (0.4 * math.sqrt(2 * math.pi))
        inside = q > 1e-300
        return np.trapezoid(np.where(inside, q * np.log(np.where(inside, q, 1) / p), 0), grid)

    labels = without.label[[1, 20]].tolist()
    exact = without.kl().item() - sum(divergence(density(k, grid)) for k in labels)
    mixed = [(0.3, 0, 1), (0.9, 2, 4)]
    true = sum(divergence(a * density(k, grid) + (1 - a) * density(n, grid)) for a, k, n in mixed)
    bound = sum(a * divergence(density(k, grid)) + (1 - a) * divergence(density(n, grid))
                for a, k, n in mixed)  # fmt: skip
    assert with_blends.kl().item() == pytest.approx(exact + bound, rel=1e-6)
    assert exact + true < with_blends.kl().item()


def test_a_blend_is_a_mixture_not_an_average():
    """Entries 10 stds apart: no draw lies between them. 30% +- 5.2 sigma are the first's."""
    made = Codebook(torch.tensor([-5.0, 5.0]), torch.zeros(2) - 1)
    none = torch.empty(0)
    blends = Blends(torch.tensor([0]), torch.tensor([[0, 1]]), torch.tensor([0.3]))
    whole = Outliers(none.long(), none, none.clone())
    posterior = Shared(made, torch.zeros(1), (1,), 1.0, whole, blends)
    draws = torch.stack([posterior.sample() for _ in range(4000)]).flatten()
    assert (draws.abs() > 2).all()
    assert abs((draws < 0).float().mean() - 0.3) < 5.2 * math.sqrt(0.21 / 4000)


def network(draw="independent", entries=5):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    model = pb.bayesianize_(net)
    made = codebook(entries, draw, torch.float32)
    for name, q in list(pb.named_posteriors(model)):
        label = torch.randint(entries, (q.shape.numel(),))
        outliers = Outliers(torch.tensor([2, 5]), torch.ones(2), torch.zeros(2) - 1)
        pb.replace_posterior(model, name, Shared(made, label, q.shape, 0.05, outliers))
    return model


def of(model):
    return [q for _, q in pb.named_posteriors(model)]


def test_shared_draws_are_one_number_per_entry_and_pass():
    model = network("shared")
    one, two = of(model)
    weights = [[q.sample() for q in (one, two)] for _ in range(2)]
    for first, second in weights:
        values = {}
        for q, w in ((one, first), (two, second)):
            plain = torch.ones(q.num_active, dtype=torch.bool)
            plain[q.outlier] = False
            for k, value in zip(q.label[plain].tolist(), w.flatten()[plain].tolist(), strict=True):
                assert values.setdefault(k, value) == value
        assert len(set(values.values())) == 5
    assert not torch.equal(weights[0][0], weights[1][0])
    assert not torch.equal(
        one.sample().flatten()[one.outlier], weights[1][0].flatten()[one.outlier]
    )


def test_shared_draws_do_not_go_through_local_reparameterisation():
    """Two equal rows of a batch see the same weights, which lrt would not give."""
    x = torch.randn(1, 8).expand(2, 8)
    apart, together = network("independent")(x), network("shared")(x)
    assert not torch.equal(apart[0], apart[1])
    assert torch.equal(together[0], together[1])


def test_shared_draws_train_and_begin_anew_after_a_step():
    model = network("shared")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        loss = model(torch.randn(4, 8)).square().sum() / 100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        outputs = [model(torch.ones(1, 8)) for _ in range(2)]
    assert not torch.equal(*outputs)
    of(model)[1].sample().sum().backward()  # not through the graph of a pass without gradients


def test_the_kl_of_shared_draws_counts_an_entry_once():
    together, apart = network("shared"), network("independent")
    entries = Gaussian(
        of(together)[0].codebook.mean.detach(), of(together)[0].codebook.log_std, 0.05
    )
    whole = Gaussian(torch.ones(4), torch.zeros(4) - 1, 0.05)
    torch.testing.assert_close(pb.kl(together), entries.kl() + whole.kl())
    assert pb.kl(apart) > 3 * pb.kl(together)


def test_shared_draws_remember_nothing_of_other_calls():
    model, x = network("shared"), torch.randn(3, 8)
    hidden = torch.randn(3, 16)

    def probabilities():
        return pb.predict(
            model, x, 3, likelihood="categorical", generator=torch.Generator().manual_seed(1)
        ).probs

    before = probabilities()
    with torch.no_grad():
        _ = model[2].weight
    assert torch.equal(probabilities(), before)
    model[:2](x).sum().backward()
    model[2:](hidden).sum().backward()  # not through the graph that is gone
    model[:2](x)
    model.double()
    assert model[2:](hidden.double()).dtype == torch.float64
    model.float()
    torch.func.vmap(lambda row: model[:2](row), randomness="different")(x)
    model[2:](hidden)
    other = network("shared", entries=300)
    model.load_state_dict(other.state_dict())
    _ = model[2].weight
    model.load_state_dict(network("shared").state_dict())
    model(x)


def test_the_kl_of_shared_draws_follows_what_is_left_of_them():
    model = network("shared")
    first = of(model)[0]
    pb.replace_posterior(model, "2.weight", as_unshared(of(model)[1]))
    torch.testing.assert_close(pb.kl(model), first.kl() + of(model)[1].kl())


def jointly_drawn(posteriors, passes):
    """Draws of each posterior, as in a prediction of so many passes."""
    found = [[] for _ in posteriors]
    with torch.no_grad(), reuse.repeated_input(torch.zeros(1)):
        (drawn,) = joint_draws(posteriors)
        for _ in range(passes):
            drawn.begin_pass()
            for draws, posterior in zip(found, posteriors, strict=True):
                draws.append(posterior.sample())
    return [torch.stack(draws) for draws in found]


@pytest.mark.parametrize("draw", ["independent", "shared"])
def test_joint_draws_have_the_moments_of_each_posterior(draw):
    """Means of 10,000 draws lie within 5 of their standard errors: false alarms 1 in 10^4."""
    made, passes = codebook(draw=draw), 10_000
    support = Support(torch.arange(0, 48, 2), "none")
    posteriors = [shared(made), shared(made, shape=(6, 8), support=support)]
    posteriors += [shared(made, shape=(24,), with_blends=False, with_outliers=False)]
    torch.manual_seed(0)
    for posterior, draws in zip(posteriors, jointly_drawn(posteriors, passes), strict=True):
        mean, variance = (moment.detach() for moment in posterior.moments())
        error = (variance / passes).sqrt()
        assert ((draws.mean(0) - mean).abs() <= 5 * error).all()
        there = variance > 0
        ratio = draws.var(0)[there] / variance[there]
        assert (ratio - 1).abs().max() < 0.08


@pytest.mark.parametrize("draw", ["independent", "shared"])
def test_channels_last_changes_only_where_weights_lie(draw):
    """Stds are tiny here, so that a weight in a wrong place would show."""
    made = codebook(30, draw=draw)
    with torch.no_grad():
        made.log_std.fill_(-30)
    posterior = shared(made, weights=72, shape=(3, 4, 2, 3))
    with torch.no_grad():
        posterior.outlier_log_std.fill_(-30)
        posterior.blend_share.fill_(1)
    for last in (False, True):
        with torch.no_grad(), reuse.repeated_input(torch.zeros(1)):
            joint_draws([shared(made), posterior], channels_last=last)
            drawn = posterior.sample()
        assert drawn.is_contiguous(memory_format=torch.channels_last) is last
        torch.testing.assert_close(drawn, posterior.expectation().detach())


def test_joint_draws_are_shared_over_layers_or_independent():
    same = torch.zeros(24, dtype=torch.int64)
    for draw, correlation in (("shared", 1.0), ("independent", 0.0)):
        made = codebook(draw=draw)
        pair = [Shared(made, same, (4, 6), 0.4) for _ in range(2)]
        first, second = jointly_drawn(pair, 4000)
        both = torch.stack([first[:, 0, 0], second[:, 3, 5]])
        assert torch.corrcoef(both)[0, 1].item() == pytest.approx(correlation, abs=0.08)


@pytest.mark.parametrize("draw", ["independent", "shared"])
def test_a_second_draw_in_one_pass_is_another_one(draw):
    posterior = shared(codebook(draw=draw))
    with torch.no_grad(), reuse.repeated_input(torch.zeros(1)):
        joint_draws([posterior])
        draws = [posterior.sample() for _ in range(2)]
        known = len(reuse._current.get().known)
        draws.append(posterior.sample())
        assert len(reuse._current.get().known) == known
    assert not torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[1], draws[2])


@pytest.mark.parametrize("draw", ["independent", "shared"])
def test_predictions_draw_the_network_as_often_as_asked(draw, monkeypatch):
    passes, x = [], torch.randn(3, 8)
    whole = JointDraw._drawn
    monkeypatch.setattr(JointDraw, "_drawn", lambda self: passes.append(1) or whole(self))
    limits = prediction_draws._Limits(1, 1)  # so one after another
    monkeypatch.setattr(prediction_draws, "_AT_ONCE", {"cpu": limits})
    model = network(draw)
    pb.predict(model, x, 7, likelihood="categorical", estimator="weight")
    assert len(passes) == 7
    pb.predict(model, x, 7, likelihood="categorical", estimator="mean")
    assert len(passes) == 7
    pb.predict(model, x, 7, likelihood="categorical", estimator="lrt")
    assert len(passes) == (14 if draw == "shared" else 7)


class ElsewhereModule(nn.Module):
    """A part of a network that runs in a thread of its own."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        found = []

        def run():
            with torch.no_grad():
                found.append(self.inner(x))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return found[0]


def drawn_values(monkeypatch, run):
    """The values that each entry had, over all draws while this ran."""
    sample, values = Shared.sample, {}

    def spy(self, generator=None):
        drawn = sample(self, generator)
        plain = torch.ones(self.num_active, dtype=torch.bool)
        plain[self.outlier] = False
        for k, value in zip(self.label[plain], drawn.flatten()[plain], strict=True):
            values.setdefault(int(k), set()).add(float(value))
        return drawn

    with monkeypatch.context() as patch:
        patch.setattr(Shared, "sample", spy)
        run()
    return values


@pytest.mark.parametrize("part", [lambda m: torch.compile(m, backend="eager"), ElsewhereModule])
def test_an_entry_is_drawn_once_in_a_pass_that_leaves_the_joint_draw(part, monkeypatch):
    model = network("shared")
    model[2] = part(model[2])
    x, options = torch.randn(3, 8), {"likelihood": "categorical", "single": False}
    pb.predict(model, x, 1, **options)  # the first one also tries how the network may be run
    for _ in range(2):
        values = drawn_values(monkeypatch, lambda: pb.predict(model, x, 1, **options))
        assert [len(found) for found in values.values()] == [1] * 5


def test_members_that_share_a_codebook_and_some_layers_draw_each_entry_once(monkeypatch):
    model = network("shared")
    own = Shared(of(model)[0].codebook, torch.arange(48) % 5, (3, 16), 0.05)
    last = pb.bayesianize_(nn.Sequential(nn.Linear(16, 3)))
    pb.replace_posterior(last, "0.weight", own)
    ensemble = Ensemble([model, nn.Sequential(model[0], nn.ReLU(), last)])
    x = torch.randn(3, 8)
    pb.predict(ensemble, x, 2, single=False)  # also tries how the members may be run
    values = drawn_values(monkeypatch, lambda: pb.predict(ensemble, x, 2, single=False))
    assert [len(found) for found in values.values()] == [2] * 5


def test_nothing_of_a_prediction_is_left_in_the_codebook():
    model, x = network("shared"), torch.randn(3, 8)
    pb.predict(model, x, 2, likelihood="categorical")
    assert of(model)[0].codebook._drawn is None
    broken = nn.Sequential(model, nn.Linear(7, 2))
    with pytest.raises(PocketBayesError):
        pb.predict(broken, x, 2, likelihood="categorical")
    assert of(model)[0].codebook._drawn is None


def test_shared_draws_of_a_network_made_in_inference_mode():
    with torch.inference_mode():
        model = network("shared")
        model(torch.randn(3, 8))
    assert pb.predict(model, torch.randn(3, 8), 2, likelihood="categorical").probs.shape == (3, 3)


@pytest.mark.parametrize("entries", [5, 70_000])
def test_a_draw_leaves_labels_as_they_are(entries):
    posterior = shared(codebook(entries))
    before = posterior.label.clone()
    posterior.sample()
    assert torch.equal(posterior.label, before)


def test_counts_are_too_large_for_small_types():
    made = Codebook(torch.zeros(1), torch.full((1,), -4.0))
    posterior = Shared(made, torch.zeros(70_000), (70_000,), 0.05)
    want = posterior.kl().item()
    assert posterior.half().kl().item() == pytest.approx(want, rel=1e-2)
    assert posterior.bfloat16().kl().item() == pytest.approx(want, rel=2e-2)


def test_a_refused_state_leaves_the_model_as_it_was():
    model = network(entries=5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="another draw"):
        model.load_state_dict(network("shared", entries=300).state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    model(torch.randn(2, 8))
    wrong = {k: v + 7 if k.endswith("label") else v for k, v in before.items()}
    with pytest.raises(RuntimeError, match="does not have"):
        model.load_state_dict(wrong)
    wrong = before | {"0._posteriors.weight.blend_label": torch.full((2, 2), 99)}
    with pytest.raises(RuntimeError, match="does not have"):
        model.load_state_dict(wrong)
    place = "0._posteriors.weight.outlier"
    wrong = before | {place: before[place] + 1, "0._posteriors.weight.label": torch.zeros(500)}
    with pytest.raises(RuntimeError, match="of 500 weights"):
        model.load_state_dict(wrong)
    assert torch.equal(model.state_dict()[place], before[place])
    model(torch.randn(2, 8))


def test_a_partly_frozen_network_keeps_its_codebook_learning(tmp_path):
    pb.save(network(), tmp_path / "m.pocket", lossless=True)
    for frozen in (0, 2):
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        net[frozen].requires_grad_(False)
        again = pb.load(tmp_path / "m.pocket", net)
        assert of(again)[0].codebook.mean.requires_grad
        learns = [q.outlier_mean.requires_grad for q in of(again)]
        assert learns == [frozen != 0, frozen != 2]


def test_reading_a_file_does_not_cost_tensors_times_entries(tmp_path):
    model = network(entries=300)
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(
        tmp_path / "m.pocket", nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    )
    assert all(q._count is None for q in of(again))
    torch.testing.assert_close(pb.kl(again), pb.kl(model))


def test_the_codebook_is_one_object_also_in_copies():
    model = network()
    assert sum(p.numel() for p in model.parameters()) == 2 * 5 + 2 * 2 * 2 + 16 + 3
    twin = copy.deepcopy(model)
    assert of(twin)[0].codebook is of(twin)[1].codebook is not of(model)[0].codebook
    with torch.no_grad():
        of(twin)[0].codebook.mean.add_(1)
    torch.testing.assert_close(of(twin)[1].expectation() - of(model)[1].expectation(),
                               (~_marked(of(model)[1])).float())  # fmt: skip


def _marked(q):
    out = torch.zeros(q.shape.numel(), dtype=torch.bool)
    out[q.outlier] = True
    return out.view(q.shape)


@pytest.mark.parametrize(
    ("entries", "dtype"),
    [(1, torch.uint8), (256, torch.uint8), (257, torch.int16), (32768, torch.int16),
     (32769, torch.int32)],
)  # fmt: skip
def test_labels_take_the_smallest_type(entries, dtype):
    assert label_type(entries) == dtype
    assert torch.iinfo(dtype).max >= entries - 1
    made = Codebook(torch.zeros(entries), torch.zeros(entries))
    posterior = Shared(made, torch.full((3,), entries - 1), (3,), 0.1)
    assert posterior.label.dtype == dtype
    assert posterior.count[-1] == 3


@pytest.mark.parametrize("structure", STRUCTURES)
def test_with_a_support_zeros_stay_zero(structure):
    dense = torch.randn(16, 6)
    index = torch.tensor([0, 2, 3]) if structure != "none" else torch.tensor([0, 7, 95])
    sparse = Sparse(index, torch.ones(3, *((16,) if structure != "none" else ())),
                    torch.zeros(3, *((16,) if structure != "none" else ())),
                    (16, 6), 0.1, structure)  # fmt: skip
    made = codebook(dtype=torch.float32)
    label = torch.arange(sparse.num_active) % 5
    posterior = Shared(made, label, dense.shape, 0.1, support=Support(index, structure))
    there = sparse.expectation() != 0
    assert posterior.num_active == int(there.sum())
    for tensor in (posterior.sample(), *posterior.moments()):
        assert torch.equal(tensor != 0, there)
    own = as_unshared(posterior)
    assert isinstance(own, Sparse)
    torch.testing.assert_close(own.moments(), posterior.moments())
    torch.testing.assert_close(own.kl(), posterior.kl())
    assert torch.equal(as_point(posterior).expectation(), own.expectation())


def test_a_state_of_other_sizes_is_taken():
    one, other = network(entries=5), network(entries=300)
    q = of(other)[0]
    fresh = Shared(q.codebook, q.label, q.shape, 0.05)
    pb.replace_posterior(other, "0.weight", fresh)
    one.load_state_dict(other.state_dict())
    assert of(one)[0].codebook is of(one)[1].codebook
    assert len(of(one)[0].outlier) == 0
    torch.testing.assert_close(pb.kl(one), pb.kl(other))
    with pytest.raises(RuntimeError, match="another draw"):
        one.load_state_dict(network("shared").state_dict())


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("label", lambda t: t[:-1]),
        ("label", lambda t: t.long()),
        ("label", lambda t: torch.full_like(t, 5)),
        ("label", lambda t: t.view(4, 6)),
        ("outlier", lambda t: t.flip(0)[:1]),
        ("outlier", lambda t: torch.tensor([3, 24], dtype=torch.int32)),
        ("outlier", lambda t: torch.tensor([-1, 3], dtype=torch.int32)),
        ("outlier", lambda t: torch.tensor([3, 3], dtype=torch.int32)),
        ("outlier", lambda t: torch.tensor([1, 3], dtype=torch.int32)),  # a blend, too
        ("outlier", lambda t: t.float()),
        ("outlier_mean", lambda t: t[:1]),
        ("outlier_mean", lambda t: t.float()),
        ("outlier_log_std", lambda t: t.view(2, 1)),
        ("blend_label", lambda t: t[:, :1]),
        ("blend_label", lambda t: torch.full_like(t, 5)),
        ("blend_share", lambda t: t + 1),
        ("blend_share", lambda t: t * math.nan),
        ("blend_share", lambda t: t.int()),
        ("blend", lambda t: t[:1]),
        ("blend", lambda t: t[0]),
        ("shape", lambda t: torch.tensor([4, 7])),
        ("shape", lambda t: torch.tensor([-4, -6])),
        ("shape", lambda t: torch.tensor([2**40, 2**40])),
        ("index", lambda t: torch.tensor([1], dtype=torch.int32)),
        ("structure", lambda t: torch.tensor(9)),
        ("structure", lambda t: torch.tensor(0)),
        ("prior_std", lambda t: t * 0),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, change):
    posterior = shared(codebook())
    arrays = posterior.arrays()
    assert torch.equal(Shared.from_arrays(arrays, posterior.codebook).label, posterior.label)
    with pytest.raises(PocketBayesError):
        Shared.from_arrays(arrays | {name: change(arrays[name])}, posterior.codebook)
    with pytest.raises(PocketBayesError, match="codebook"):
        Shared.from_arrays(arrays)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mean", lambda t: t[:0]),
        ("mean", lambda t: t.view(1, -1)),
        ("mean", lambda t: t.int()),
        ("log_std", lambda t: t[:2]),
        ("draw", lambda t: torch.tensor(2)),
        ("draw", lambda t: torch.tensor(0.0)),
    ],
)
def test_codebooks_that_do_not_fit_are_refused(name, change):
    arrays = codebook().arrays()
    Codebook.from_arrays(arrays)
    with pytest.raises(PocketBayesError):
        Codebook.from_arrays(arrays | {name: change(arrays[name])})


def test_compiled_sampling_and_kl_agree_with_eager():
    posterior = shared(codebook())
    torch._dynamo.reset()
    for function in (lambda: posterior.kl(), lambda: posterior.moments()[1]):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(), function())
        one, other = (torch.autograd.grad(f().sum(), parameters(posterior), allow_unused=True)
                      for f in (compiled, function))  # fmt: skip
        torch.testing.assert_close(one, other)
