"""Sparse training: what is there, what moves, what is kept, and what it costs."""

import itertools
import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.likelihoods.elbo import Objective
from pocketbayes.methods.exchanging import GROWTHS
from pocketbayes.posteriors import Gaussian, Packed, Point, Sparse, SparsePoint
from pocketbayes.posteriors.conversions import as_dense
from pocketbayes.posteriors.structures import STRUCTURES, to_units
from pocketbayes.sparsity.criteria import CRITERIA
from pocketbayes.training.gradients import dense_gradients

WEIGHTS = 12 * 24 + 24 * 20 + 20 * 3


def mlp(seed=0, **options):
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 20), nn.ReLU(), nn.Linear(20, 3)
    )
    return pb.bayesianize_(net, **options)


def batches(count=96, batch=16):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(count, 12, generator=generator)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch, shuffle=True)


def fit(model, method, epochs=4, loader=None, **options):
    options = {"progress": False, "device": "cpu"} | options
    return pb.fit(model, loader or batches(), method, epochs=epochs, **options)


def sparse(**options):
    return pb.Subspace(**({"density": 0.2, "update_every": 3} | options))


def packed(model):
    return {n: q for n, q in pb.named_posteriors(model) if isinstance(q, Packed)}


def active(model):
    return sum(q.num_active for _, q in pb.named_posteriors(model))


def reached(q):
    """How many outputs have a weight."""
    return int((q.moments()[1] > 0).flatten(1).any(1).sum())


def parameters(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def watching(method, look):
    """The same method, which also calls `look(model, moment, replaced)` after every step."""

    class Watched(type(method)):
        def after_step(self, model, moment):
            replaced = super().after_step(model, moment)
            look(model, moment, replaced)
            return replaced

    return Watched(**{k: v for k, v in method.settings().items() if k != "method"})


# What is there.


@pytest.mark.parametrize("allocation", ["erk", "uniform", "global"])
@pytest.mark.parametrize("kind", [pb.Subspace, pb.RigL])
def test_the_number_of_weights_is_exact_at_every_step(allocation, kind):
    seen, places = [], []

    def look(model, moment, replaced):
        seen.append(active(model))
        places.append(torch.cat([q.index for q in packed(model).values()]).tolist())
        for q in packed(model).values():
            assert (q.index.diff() > 0).all()
            assert q.index[0] >= 0
            assert q.index[-1] < q.shape.numel()
            assert len(q.index) == len(q.mean)

    method = kind(density=0.2, update_every=3, allocation=allocation)
    fit(mlp(), watching(method, look), epochs=5)
    assert set(seen) == {round(0.2 * WEIGHTS)}
    assert len(seen) == 30
    moved = [i + 1 for i in range(1, 30) if places[i] != places[i - 1]]
    assert set(moved) <= set(range(3, 23, 3))  # not after 75% of 30 steps
    assert len(moved) >= 5


def test_weights_move_between_layers_only_globally():
    def sizes(allocation):
        model = mlp()
        before = [round(0.2 * q.shape.numel()) for _, q in pb.named_posteriors(model)]
        fit(model, sparse(allocation=allocation), epochs=8)
        return before, [len(q.index) for q in packed(model).values()]

    before, uniform = sizes("uniform")
    assert sum(abs(a - b) for a, b in zip(before, uniform, strict=True)) <= 3
    before, everywhere = sizes("global")
    assert sum(abs(a - b) for a, b in zip(before, everywhere, strict=True)) > 10


def test_density_one_is_mean_field_and_plain_training_bit_for_bit():
    pairs = [
        (pb.Subspace(density=1.0), pb.MeanField()),
        (pb.RigL(density=1.0), pb.Deterministic()),
    ]
    for one, other in pairs:
        a, b = mlp(), mlp()
        results = fit(a, one), fit(b, other)
        learned = parameters(a), parameters(b)
        for found in learned:
            found.pop("_pocketbayes_description")  # which names the method
        assert_equal(*learned)
        assert [r["loss"] for r in results[0].history] == [r["loss"] for r in results[1].history]


def test_too_small_a_density_says_so_and_cuts_no_output_off():
    model = mlp()
    with pytest.warns(UserWarning, match=r"47 are kept.*every output keeps a weight"):
        fit(model, sparse(density=0.001, update_every=1), epochs=6)
    assert active(model) == 24 + 20 + 3
    for q in packed(model).values():
        assert reached(q) == q.shape[0]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_no_exchange_cuts_an_output_off(criterion):
    def look(model, moment, replaced):
        for q in packed(model).values():
            assert reached(q) == q.shape[0]

    method = sparse(density=0.1, update_every=1, fraction=0.9, criterion=criterion)
    fit(mlp(), watching(method, look), epochs=3)


def test_an_inactive_weight_is_exactly_zero_in_mean_draw_and_variance():
    model = mlp()
    fit(model, sparse())
    for q in packed(model).values():
        off = torch.ones(q.shape.numel(), dtype=torch.bool)
        off[q.index] = False
        mean, variance = q.moments()
        for dense in (mean, variance, q.sample()):
            assert not dense.flatten()[off].any()
        assert (variance.flatten()[q.index] > 0).all()


def test_a_removed_weight_leaves_no_trace(tmp_path):
    def forget(value):
        """Trains two networks that differ only in what the weights say that are not kept."""
        model = mlp()
        for name, q in list(pb.named_posteriors(model)):
            mean, log_std = q.mean.detach().clone(), q.log_std.detach().clone()
            small = mean.abs() < mean.abs().flatten().quantile(0.5)
            mean[small] *= value
            log_std[small] += 0.1 * value  # their snr stays below all others
            pb.replace_posterior(model, name, Gaussian(mean, log_std, 0.05))
        fit(model, sparse(density=0.2, allocation="uniform"))
        pb.save(model, tmp_path / f"{value}.pocket")
        return parameters(model)

    assert_equal(forget(1.0), forget(0.5))
    assert (tmp_path / "1.0.pocket").read_bytes() == (tmp_path / "0.5.pocket").read_bytes()


@pytest.mark.parametrize("structure", STRUCTURES[1:])
def test_structures_keep_whole_units(structure):
    model = mlp()
    density = 0.3

    def look(model, moment, replaced):
        for q in packed(model).values():
            units = to_units(q.moments()[1] > 0, structure)
            assert (units.all(1) | ~units.any(1)).all()
            assert int(units.all(1).sum()) == len(q.index)

    fit(model, watching(sparse(density=density, structure=structure), look), epochs=4)
    widest = max(q.mean.shape[1] for q in packed(model).values())
    assert abs(active(model) - density * WEIGHTS) <= widest * len(packed(model))


def test_units_are_a_permutation_of_the_tensor():
    from pocketbayes.posteriors.structures import from_units, output_borders, unit_layout

    for shape in [(32, 3), (20, 4, 3, 3), (7, 5), (48, 2, 3)]:
        dense = torch.arange(math.prod(shape)).view(shape)
        for structure in STRUCTURES:
            units = to_units(dense, structure)
            number, unit = unit_layout(shape, structure)
            assert units.shape == (number, *unit)
            assert torch.equal(from_units(units, shape, structure), dense)
            if structure == "block16":  # one input, consecutive outputs
                rest = dense[0].numel()
                assert len((units % rest).unique(dim=1)[0]) == 1
                assert (units.diff(dim=1) == rest).all()
                assert 32 % unit[0] == 0 if shape[0] == 32 else shape[0] % unit[0] == 0
            if structure == "channel":
                assert torch.equal(units[1].view(shape[0], -1), dense[:, 1].reshape(shape[0], -1))
            borders = output_borders(shape, structure)
            assert borders[0] == 0
            assert borders[-1] == number
            for begin, end in itertools.pairwise(borders):  # every stretch has outputs of its own
                rows = units[begin:end].flatten() // dense[0].numel()
                others = torch.cat([units[:begin].flatten(), units[end:].flatten()])
                assert not torch.isin(rows, others // dense[0].numel()).any()


def test_a_table_and_a_dense_first_layer_override_the_allocation():
    model = mlp()
    fit(model, sparse(density=0.4, densities={"2.weight": 0.5}, allocation="uniform"), epochs=1)
    counts = {n: q.num_active for n, q in pb.named_posteriors(model)}
    assert counts["2.weight"] == 240
    model = mlp()
    fit(model, sparse(density=0.5, dense_first=True, allocation="uniform"), epochs=1)
    assert isinstance(dict(pb.named_posteriors(model))["0.weight"], Gaussian)
    assert active(model) == WEIGHTS // 2
    with pytest.raises(pb.PocketBayesError, match=r"'2.weigth'.*2.weight"):
        fit(mlp(), sparse(densities={"2.weigth": 0.5}))


def test_frozen_weights_are_neither_counted_nor_touched():
    model = mlp()
    first = dict(pb.named_posteriors(model))["0.weight"]
    for p in first.parameters():
        p.requires_grad_(False)
    before = first.mean.clone()
    fit(model, sparse(density=0.2, allocation="uniform"), epochs=1)
    after = dict(pb.named_posteriors(model))["0.weight"]
    assert isinstance(after, Gaussian)
    assert torch.equal(after.mean, before)
    assert active(model) - 288 == round(0.2 * (WEIGHTS - 288))


@pytest.mark.parametrize("allocation", ["uniform", "global"])
def test_a_frozen_sparse_layer_keeps_its_weights(allocation):
    model = mlp()
    fit(model, sparse())
    frozen = packed(model)["0.weight"]
    for p in frozen.parameters():
        p.requires_grad_(False)
    before = parameters(frozen)
    fit(model, sparse(allocation=allocation, update_every=1))
    assert_equal(parameters(packed(model)["0.weight"]), before)


def test_a_std_that_is_frozen_alone_stays_so():
    model = mlp()
    for _, q in pb.named_posteriors(model):
        q.log_std.requires_grad_(False)
    fit(model, sparse())
    assert all(not q.log_std.requires_grad for q in packed(model).values())
    assert all(q.mean.requires_grad for q in packed(model).values())


def test_a_dense_first_layer_stays_whole_globally():
    model = mlp()
    fit(model, sparse(density=0.5, dense_first=True, allocation="global", update_every=1))
    assert isinstance(dict(pb.named_posteriors(model))["0.weight"], Gaussian)
    assert active(model) == WEIGHTS // 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 0.1, "dense_first": True}, r"311 are kept.*first layer is dense"),
        ({"density": 0.1, "densities": {"2.weight": 0.9}}, "table of densities"),
        ({"density": 0.05, "structure": "channel"}, "only whole units"),
    ],
)
def test_more_weights_than_asked_for_are_explained(options, message):
    with pytest.warns(UserWarning, match=message):
        fit(mlp(), sparse(**options), epochs=0)


def test_transposed_convolutions_reach_every_output():
    for structure in STRUCTURES:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Unflatten(1, (4, 3)), nn.ConvTranspose1d(4, 6, 2), nn.Flatten())
        model = pb.bayesianize_(net)
        method = sparse(density=0.15, structure=structure, allocation="uniform", update_every=1)
        fit(model, method, epochs=3)
        (q,) = packed(model).values()
        assert q.num_active == round(0.15 * 48)
        assert int((q.moments()[1] > 0).any(0).any(1).sum()) == 6


# What moves.


def dense_twin(model):
    """The same weights as plain dense parameters, with gradients everywhere."""
    import copy

    twin = copy.deepcopy(model)
    for name, q in list(pb.named_posteriors(twin)):
        pb.replace_posterior(twin, name, Point(as_dense(q).mean.detach(), 1.0))
    return twin


class Tokens(nn.Module):
    """Embedding, attention and LSTM on whole numbers."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.recurrent = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.table((x[:, :5].abs() * 3).long().clamp(0, 8))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.recurrent(x)[0][:, -1])


class Pictures(nn.Module):
    """Convolutions, one of them tied, and batch norm."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Conv1d(4, 4, 3, padding=1, groups=2)
        self.third = nn.Conv1d(4, 4, 3, padding=1, groups=2)
        self.third.weight = self.second.weight
        self.up = nn.ConvTranspose1d(4, 3, 2)

    def forward(self, x):
        x = self.norm(self.first(x.unsqueeze(1))).relu()
        return self.up(self.third(self.second(x)).relu()).mean(2)


@pytest.mark.parametrize("kind", [mlp, Tokens, Pictures])
def test_dense_gradients_are_those_of_the_dense_network(kind):
    torch.manual_seed(0)
    model = kind() if kind is mlp else pb.bayesianize_(kind())
    method = sparse(density=0.5, update_every=1000, allocation="uniform")
    fit(model, method, epochs=1)
    model.train()
    x, y = next(iter(batches()))
    twin = dense_twin(model)
    loss, _ = Objective(twin, "categorical")(x, y, torch.zeros(()))
    loss.backward()
    state = parameters(model)
    got = dense_gradients(Objective(model, "categorical"), x, y, "mean")
    assert got.keys() == packed(model).keys()
    assert len(got) >= 3
    wanted = {name: q.mean.grad for name, q in pb.named_posteriors(twin)}
    felt = False
    for name, gradient in got.items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-6)
        elsewhere = gradient.flatten().index_fill(0, packed(model)[name].index, 0.0)
        felt = felt or bool(elsewhere.any())
    assert felt
    assert_equal(state, parameters(model))  # running statistics too
    assert all(p.grad is None for p in model.parameters())
    assert all(q._recorded is None for q in packed(model).values())


def test_growth_takes_the_largest_gradients_and_removal_the_lowest_scores():
    """With stds this large, the gradients of a draw would choose other weights."""
    model = mlp(std_init=0.3)
    moves = []

    class Spy(pb.Subspace):
        def after_step(self, model, moment):
            before = {n: q.index.clone() for n, q in packed(model).items()}
            scores = {n: self.score(q).clone() for n, q in packed(model).items()}
            gradients = moment.dense_gradients("mean")
            replaced = super().after_step(model, moment)
            if moment.step == 3:
                for name, q in packed(model).items():
                    old, new = set(before[name].tolist()), set(q.index.tolist())
                    size = gradients[name].abs().flatten()
                    count = round(self.exchange_fraction(moment.progress) * len(old))
                    lowest = set(before[name][scores[name].argsort()[:count]].tolist())
                    kept = old - lowest
                    free = torch.tensor([i for i in range(len(size)) if i not in kept])
                    grown = free[size[free].argsort(descending=True)[:count]].tolist()
                    assert new == kept | set(grown)
                    moves.append(len(new - old))
            return replaced

    fit(model, Spy(density=0.5, update_every=3, growth="mean"), epochs=1)
    assert len(moves) == 2  # the last layer is dense
    assert min(moves) > 0


@pytest.mark.parametrize("new_std", ["mean", "eps"])
def test_survivors_keep_their_state_and_newcomers_start_at_nothing(new_std):
    checked = []

    class Spy(pb.Subspace):
        def after_step(self, model, moment):
            tensors = packed(model)
            before = {n: (q.index.clone(), parameters(q)) for n, q in tensors.items()}
            memory = [
                {id(p): {k: v.clone() for k, v in s.items()} for p, s in o.state.items()}
                for o in moment.optimizers
            ]
            ids = {n: {k: id(p) for k, p in q.named_parameters()} for n, q in tensors.items()}
            average = {n: float(q.std.detach().mean()) for n, q in tensors.items()}
            replaced = super().after_step(model, moment)
            for name, q in packed(model).items():
                index, values = before[name]
                old = {place: i for i, place in enumerate(index.tolist())}
                stay = [(i, old[p]) for i, p in enumerate(q.index.tolist()) if p in old]
                fresh = [i for i, p in enumerate(q.index.tolist()) if p not in old]
                checked.append(len(fresh))
                to, come = (list(t) for t in zip(*stay, strict=True))
                for key, parameter in q.named_parameters():
                    assert torch.equal(parameter[to], values[key][come])
                    for optimizer, was in zip(moment.optimizers, memory, strict=True):
                        for k, v in optimizer.state.get(parameter, {}).items():
                            if v.shape == parameter.shape:
                                assert torch.equal(v[to], was[ids[name][key]][k][come])
                                assert not v[fresh].any()
                                checked.append(-1)
                assert not q.mean[fresh].any()
                wanted = average[name] if new_std == "mean" else 2e-3
                assert q.std[fresh].tolist() == pytest.approx([wanted] * len(fresh), rel=1e-5)
            return replaced

    for allocation in ("erk", "global"):
        method = Spy(density=0.3, update_every=2, new_std=new_std, eps=2e-3, allocation=allocation)
        fit(mlp(), method, epochs=2)
    assert max(checked) > 0
    assert min(checked) == -1


def test_the_share_exchanged_follows_its_schedule():
    method = sparse(fraction=0.4, exchange_until=0.5)
    assert method.exchange_fraction(0.0) == 0.4
    assert method.exchange_fraction(0.25) == pytest.approx(0.2)
    assert method.exchange_fraction(0.5) == method.exchange_fraction(0.9) == 0
    constant = sparse(fraction=0.4, schedule="constant")
    assert [constant.exchange_fraction(p) for p in (0, 0.7, 0.75)] == [0.4, 0.4, 0]


@pytest.mark.parametrize(
    ("criterion", "growth"), list(zip(CRITERIA, itertools.cycle(GROWTHS), strict=False))
)
def test_every_criterion_and_growth_learns(criterion, growth):
    model = mlp(prior_std=0.3)
    options = {"growth_steps": 2, "lr": 6e-3, "beta": 0.1}
    method = sparse(density=0.4, criterion=criterion, growth=growth, **options)
    result = fit(model, method, epochs=20, loader=batches(240, 40))
    assert result.history[-1]["accuracy"] > (0.6 if criterion == "snr_exp" else 0.8)


def test_multi_step_growth_adds_up_and_leaves_nothing_behind():
    sizes = []

    def look(model, moment, replaced):
        sizes.append(len(moment.memory))

    method = sparse(growth="multi_step", growth_steps=2, update_every=4)
    fit(mlp(), watching(method, look), epochs=2)
    assert sizes == [0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 0, 0]

    class Fixed:
        """A moment whose gradients are known."""

        def __init__(self, step, sign):
            self.step, self.progress, self.optimizers, self.memory = step, 0.0, [], memory
            self.sign = sign

        def dense_gradients(self, estimator):
            return {n: self.sign * wanted[n].clone() for n in wanted}

    model, memory = mlp(), {}
    method = sparse(growth="multi_step", growth_steps=3, update_every=4, allocation="uniform")
    fit(model, method, epochs=0)
    wanted = {n: torch.randn(q.shape) for n, q in packed(model).items()}
    for step, sign in ((2, 1.0), (3, -1.0)):
        assert not method.after_step(model, Fixed(step, sign))
        for name in wanted:
            torch.testing.assert_close(memory[name], (step - 1) * wanted[name].abs())
    assert not memory.keys() - wanted.keys()


# Where it starts.


def test_it_keeps_the_largest_of_a_trained_network():
    model = mlp()
    fit(model, pb.MeanField(), epochs=20)
    ratio = {n: (q.mean.abs() / q.std).detach() for n, q in pb.named_posteriors(model)}
    means = {n: q.mean.detach().clone() for n, q in pb.named_posteriors(model)}
    fit(model, sparse(density=0.3), epochs=0)
    for name, q in packed(model).items():
        assert torch.equal(q.mean, means[name].flatten()[q.index])
        kept = ratio[name].flatten()[q.index]
        left = torch.ones(q.shape.numel(), dtype=torch.bool)
        left[q.index] = False
        if ((q.moments()[1] > 0).sum(1) > 1).all():
            assert kept.min() >= ratio[name].flatten()[left].max()


def test_global_ranks_the_weights_of_all_layers_together():
    model = mlp()
    fit(model, pb.MeanField(), epochs=20)
    ratio = torch.cat(
        [(q.mean.abs() / q.std).detach().flatten() for _, q in pb.named_posteriors(model)]
    )
    method = sparse(density=0.5, allocation="global")
    fit(model, method, epochs=0)
    kept = torch.cat([q.moments()[1].flatten() > 0 for q in packed(model).values()])
    assert int(kept.sum()) == WEIGHTS // 2
    wrong = int((ratio[kept] < ratio[~kept].max()).sum())
    assert wrong <= 10  # the best of an output stays, whatever its rank
    fit(model, method, epochs=10)
    before = {n: q.index.clone() for n, q in packed(model).items()}
    fit(model, method, epochs=0)  # and what was learned about layers stays
    assert_equal(before, {n: q.index for n, q in packed(model).items()})


def test_new_weights_of_a_sparse_network_spread_over_its_outputs():
    model = mlp()
    fit(model, sparse(density=0.1, allocation="uniform"), epochs=0)
    before = {n: q.index.clone() for n, q in packed(model).items()}
    fit(model, sparse(density=0.4, allocation="uniform"), epochs=0)
    for name, q in packed(model).items():
        assert torch.isin(before[name], q.index).all()
    rows = (packed(model)["2.weight"].moments()[1] > 0).sum(1)
    assert rows.min() >= 3
    assert rows.max() <= 18


def test_a_wrong_table_leaves_the_model_as_it_was():
    for method in (pb.RigL, pb.Subspace):
        model = mlp()
        fit(model, pb.MeanField() if method is pb.RigL else pb.Deterministic(), epochs=1)
        before = parameters(model)
        with pytest.raises(pb.PocketBayesError, match="no sparse tensor is called 'x'"):
            fit(model, method(densities={"x": 0.1}))
        assert_equal(parameters(model), before)


def test_a_random_start_depends_on_the_seed_alone():
    def start(seed, **options):
        model = mlp()
        fit(model, sparse(initial="random", **options), epochs=0, seed=seed)
        return torch.cat([q.index for q in packed(model).values()]).tolist()

    assert start(1) == start(1)
    assert start(1) != start(2)


def test_methods_chain_on_one_support():
    model = mlp()
    fit(model, pb.RigL(density=0.2, update_every=3))
    index = {n: q.index.clone() for n, q in packed(model).items()}
    assert all(isinstance(q, SparsePoint) for q in packed(model).values())
    for method, family in [
        (sparse(update_every=1000), Sparse),
        (pb.MeanField(), Sparse),
        (pb.Deterministic(), SparsePoint),
        (pb.MeanField(), Sparse),
    ]:
        fit(model, method, epochs=1)
        assert all(type(q) is family for q in packed(model).values())
        for name, q in packed(model).items():
            assert torch.equal(q.index, index[name])
    fit(model, sparse(density=0.5), epochs=1)  # and to more weights again
    assert active(model) == WEIGHTS // 2
    fit(model, sparse(density=1.0), epochs=1)
    assert not packed(model)
    with pytest.raises(pb.PocketBayesError, match="network cannot"):
        fit(fit(mlp(), sparse()).model, pb.DeepEnsemble(members=2))


@pytest.mark.filterwarnings("ignore:density 0.4 is")  # few channels: whole ones are too many
@pytest.mark.parametrize(
    ("structure", "kind", "estimator"),
    [
        (structure, kind, ("lrt", "weight")[number % 2])
        for number, (structure, kind) in enumerate(
            (structure, kind) for structure in STRUCTURES for kind in (Tokens, Pictures)
        )
    ],
)
def test_every_kind_of_layer_trains_and_comes_back(kind, structure, estimator, tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(kind(), estimator=estimator)
    result = fit(model, sparse(density=0.4, structure=structure), epochs=3)
    assert math.isfinite(result.history[-1]["loss"])
    assert len(packed(model)) >= 2
    pb.save(model, tmp_path / "a.pocket", lossless=True)
    again = pb.load(tmp_path / "a.pocket", kind())
    assert_equal(parameters(model), parameters(again))


# How it goes on.


@pytest.mark.parametrize(
    ("options", "stop_at"),
    [
        ({}, 8),
        ({"allocation": "global"}, 10),
        ({"growth": "multi_step", "growth_steps": 3, "update_every": 4}, 8),
        ({"growth": "multi_step", "growth_steps": 3, "update_every": 4}, 10),
        ({"structure": "block16"}, 8),
        ({"initial": "random", "growth": "mean"}, 10),
    ],
)
def test_a_resumed_run_is_the_same_run(options, stop_at, tmp_path):
    whole = mlp()
    fit(whole, sparse(**options), epochs=3)

    class StopError(Exception):
        pass

    class Data(TensorDataset):
        count = 0

        def __getitem__(self, item):
            type(self).count += 1
            if type(self).count > 16 * stop_at:
                raise StopError
            return super().__getitem__(item)

    broken = mlp()
    loader = DataLoader(Data(*batches().dataset.tensors), 16, shuffle=True)
    with pytest.raises(StopError):
        fit(broken, sparse(**options), 3, loader, out=tmp_path, checkpoint_minutes=1e-9)
    resumed = mlp(seed=5)
    fit(resumed, sparse(**options), epochs=3, out=tmp_path, resume=True)
    assert_equal(parameters(whole), parameters(resumed))


def test_the_state_of_another_network_is_refused(tmp_path):
    def network(hidden):
        return pb.bayesianize_(
            nn.Sequential(nn.Linear(12, hidden, bias=False), nn.Linear(hidden, 3))
        )

    wide, narrow = network(40), network(8)
    fit(wide, sparse(allocation="uniform"), epochs=1, out=tmp_path)
    fit(narrow, sparse(density=0.5, allocation="uniform"), epochs=1)
    with pytest.raises(RuntimeError, match=r"0\._posteriors\.weight is a sparse tensor of another"):
        narrow.load_state_dict(wide.state_dict())
    with pytest.raises(pb.TrainingError, match="another network"):
        fit(network(8), sparse(allocation="uniform"), epochs=1, out=tmp_path, resume=True)
    state = narrow.state_dict()
    state["0._posteriors.weight.index"] = state["0._posteriors.weight.index"].flip(0)
    with pytest.raises(RuntimeError, match="another shape or structure"):
        narrow.load_state_dict(state)


def test_settings_of_every_kind_of_number_can_be_resumed(tmp_path):
    import types

    import numpy as np

    def method():
        table = types.MappingProxyType({"2.weight": np.float64(0.5)})
        return sparse(density=np.float32(0.5), densities=table)

    fit(mlp(), method(), epochs=1, out=tmp_path)
    assert len(fit(mlp(), method(), epochs=1, out=tmp_path, resume=True).history) == 1


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    torch.save({"settings": {}, "place": {}}, tmp_path / "checkpoint.pt")
    with pytest.raises(pb.TrainingError, match="another version"):
        fit(mlp(), sparse(), out=tmp_path, resume=True)


def test_compiled_and_eager_training_agree():
    def trained(backend):
        torch._dynamo.reset()
        model = mlp(estimator="mean")
        fit(model, sparse(), epochs=3, compile=backend)
        return parameters(model)

    eager, compiled = trained(False), trained("aot_eager")
    for name in eager:
        torch.testing.assert_close(eager[name], compiled[name], rtol=1e-4, atol=1e-6)


def test_what_changes_its_size_is_not_compiled_and_says_so():
    with pytest.warns(UserWarning, match="not compiled"):
        fit(mlp(), sparse(allocation="global"), epochs=1, compile="aot_eager")


def test_networks_of_one_shape_share_compiled_code():
    torch._dynamo.reset()
    compiled = []

    def count(graph, inputs):
        compiled.append(graph)
        return graph

    for seed in range(3):
        objective = Objective(fit(mlp(seed), sparse(), epochs=0).model, "categorical")
        x, y = next(iter(batches()))
        torch.compile(objective, backend=count)(x, y, torch.zeros(()))
    assert len(compiled) == 1


def test_state_is_as_small_as_the_support():
    bytes_held = {}
    for density in (0.1, 1.0):
        net = nn.Sequential(nn.Linear(12, 400), nn.ReLU(), nn.Linear(400, 3))
        model = pb.bayesianize_(net)
        held = []

        def look(model, moment, replaced, held=held):
            tensors = [t for _, q in pb.named_posteriors(model) for t in q.state_dict().values()]
            for optimizer in moment.optimizers:
                tensors += [t for s in optimizer.state.values() for t in s.values()]
            held.append(sum(t.numel() * t.element_size() for t in tensors))

        fit(model, watching(sparse(density=density, update_every=2), look), epochs=1)
        bytes_held[density] = max(held)
    # 6 floats a weight when dense; sparse also an 8-byte place. 403 biases are dense in both.
    biases = 2 * 4 * 403
    ratio = (bytes_held[0.1] - biases) / (bytes_held[1.0] - biases)
    assert ratio < 0.1 * (6 * 4 + 8) / (6 * 4) * 1.02


# What it says.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 0}, "density"),
        ({"density": 1.5}, "density"),
        ({"allocation": "erc"}, "allocation.*erk"),
        ({"structure": "block8"}, "structure.*block16"),
        ({"criterion": "snr_mag"}, "criterion.*snr_magnitude"),
        ({"growth": "two_step"}, "growth.*one_step"),
        ({"growth": "multi_step", "growth_steps": 200}, "growth_steps must not exceed"),
        ({"schedule": "linear"}, "schedule.*cosine"),
        ({"initial": "smallest"}, "initial.*largest"),
        ({"new_std": "zero"}, "new_std.*eps"),
        ({"update_every": 0}, "update_every"),
        ({"fraction": 1.1}, "fraction"),
        ({"exchange_until": -1}, "exchange_until"),
        ({"eps": 0}, "eps"),
        ({"densities": {"a": 2}}, "densities"),
        ({"densities": [("a", 1)]}, "must map names"),
        ({"densities": "a=1"}, "must map names"),
        ({"allocation": "global", "structure": "channel"}, "global.*structure"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.Subspace(**options)


def test_a_large_enough_density_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(mlp(), sparse(density=0.1), epochs=0)


# What it costs.


def test_flops_are_those_counted_by_hand():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2),
        nn.Flatten(), nn.Linear(8 * 5 * 5, 10),
    )  # fmt: skip
    x = torch.randn(4, 3, 10, 10)
    dense = 2 * (100 * 3 * 8 * 9 + 25 * 8 * 4 * 9 + 200 * 10)
    assert pb.training_flops(net, x).dense == 3 * dense
    model = pb.bayesianize_(net)
    assert pb.training_flops(model, x) == pb.TrainingFlops(3 * dense, 3 * dense)
    method = pb.Subspace(density=0.25, allocation="uniform", update_every=10)
    loader = [(x, torch.zeros(4, dtype=torch.long))]
    fit(model, method, epochs=0, loader=loader)
    uses = {"0.weight": 100, "2.weight": 25, "4.weight": 1}
    active = 2 * sum(uses[n] * q.num_active for n, q in pb.named_posteriors(model))
    got = pb.training_flops(model, x, method)
    assert got.dense == 3 * dense
    assert got.active == pytest.approx(3 * active + 0.075 * (2 * active + dense))
    assert 0.25 < got.ratio < 0.3


def test_flops_of_attention_and_recurrence():
    model = Tokens()
    x = torch.randn(2, 12)
    attention, recurrent = 4 * 8 * 8, 4 * 6 * (8 + 6)
    assert pb.training_flops(model, x).dense == 3 * 2 * (5 * (attention + recurrent) + 18)
    flops = pb.training_flops(pb.bayesianize_(model), x)
    assert flops.dense == flops.active == 3 * 2 * (5 * (attention + recurrent) + 18)
    assert model.training
    state = torch.get_rng_state()
    pb.training_flops(model, x)
    assert torch.equal(state, torch.get_rng_state())


def test_time_and_memory_are_reported_by_the_clock_and_the_machine():
    result = fit(mlp(), sparse())
    assert result.seconds > 0
    assert 2**20 < result.peak_bytes < 2**40
