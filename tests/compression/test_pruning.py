"""Pruning after training: exact densities, the order of scores, budgets, and zeros that stay."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
import pocketbayes.compression.budgets
from pocketbayes.compression.budgets import least_density
from pocketbayes.posteriors import Gaussian, LogUniform, Packed, Point, Sparse, SparsePoint
from pocketbayes.sparsity.ranking import best_units, ranked, units_above

SIZES = {"0.weight": 240, "2.weight": 60}
DATA = [(torch.randn(8, 12), torch.randint(3, (8,)))]
OPTIONS = {"progress": False, "device": "cpu", "dataset_size": 8}
METHODS = {
    "gaussian": pb.MeanField(),
    "log_uniform": pb.VariationalDropout(),
    "point": pb.Deterministic(),
    "sparse": pb.Subspace(density=0.8),
    "sparse_point": pb.RigL(density=0.8),
    "spike_slab": pb.SpikeSlab(),
}
CASES = [
    *((family, "magnitude") for family in METHODS if family != "spike_slab"),
    *((family, "snr") for family in ("gaussian", "log_uniform", "sparse")),
    ("spike_slab", "inclusion"),
]
every_case = pytest.mark.parametrize(("family", "by"), CASES)
both_scopes = pytest.mark.parametrize("within", ["network", "layer"])
every_case_with_a_scope = pytest.mark.parametrize(
    ("family", "by", "within"),
    [
        *((*case, ("network", "layer")[number % 2]) for number, case in enumerate(CASES)),
        (*CASES[0], "layer"),
        (*CASES[1], "network"),
    ],
)


def net(family="gaussian", bias=False):
    """Twelve inputs, twenty units, three outputs: 300 weights with scores of all sizes."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))
    model = pb.bayesianize_(layers, prior_std=0.3, bias=bias)
    pb.fit(model, DATA, METHODS[family], epochs=0, **OPTIONS)
    with torch.no_grad():
        for _, q in pb.named_posteriors(model):
            for parameter in (*q.std_parameters(), *q.inclusion_parameters()):
                parameter.copy_(torch.randn_like(parameter) - 2)
    return model


def scores(model, by):
    """The score of every weight, flat, by name; nothing for a weight that is not there."""
    found = {}
    for name, q in pb.named_posteriors(model):
        mean, variance = (t.detach() for t in q.moments())
        if by == "inclusion":
            found[name] = q.log_odds.detach().flatten()
        elif by == "snr":
            found[name] = (mean.abs() / variance.sqrt()).nan_to_num(-1).flatten()
        else:
            found[name] = mean.abs().flatten()
    return found


def there(model):
    """Which weights are there, flat, by name."""
    found = {}
    for name, q in pb.named_posteriors(model):
        mask = torch.ones(q.shape, dtype=torch.bool)
        if isinstance(q, Packed):
            mask = q.placed(torch.ones_like(q.mean.detach())) > 0
        found[name] = mask.flatten()
    return found


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("density", [0.01, 0.21, 0.5])
@every_case_with_a_scope
def test_exactly_the_weights_of_the_largest_scores_stay(family, by, within, density):
    model = net(family)
    score, before = scores(model, by), dict(pb.named_posteriors(model))
    assert pb.prune_(model, density, by=by, within=within) is model
    kept = there(model)
    groups = [list(SIZES)] if within == "network" else [[name] for name in SIZES]
    for names in groups:
        mask = torch.cat([kept[n] for n in names])
        values = torch.cat([score[n] for n in names])
        wanted = round(density * len(mask))
        assert mask.sum() == wanted
        best = torch.cat([score[n] == score[n].max() for n in names])  # stays in any case
        others = torch.cat([values[mask & ~best], torch.tensor([math.inf])])
        assert others.min() >= values[~mask].max()
    point = family in ("point", "sparse_point")
    for name, q in pb.named_posteriors(model):
        assert type(q) is (SparsePoint if point else Sparse)
        assert q.prior_std.item() == pytest.approx(0.3)
        was, now = before[name], kept[name].view(q.shape)
        want = (was.mean, was.std**2) if family == "spike_slab" else was.moments()
        for one, other in zip(want, q.moments(), strict=True):
            torch.testing.assert_close(one[now], other[now])


@pytest.mark.parametrize(("family", "by"), CASES[:-1])
def test_pruning_twice_is_pruning_once(family, by):
    once = pb.prune_(net(family), 0.1, by=by)
    twice = pb.prune_(pb.prune_(net(family), 0.5, by=by), 0.1, by=by)
    assert same(there(once), there(twice))


def test_the_default_score_is_the_best_that_a_model_has():
    for family, by in (("gaussian", "snr"), ("point", "magnitude"), ("spike_slab", "inclusion")):
        one, other = pb.prune_(net(family), 0.3), pb.prune_(net(family), 0.3, by=by)
        assert same(there(one), there(other))


def test_equal_scores_still_give_the_exact_number():
    model = net("point")
    with torch.no_grad():
        for _, q in pb.named_posteriors(model):
            q.mean.fill_(0.5)
    pb.prune_(model, 0.1)
    found = dict(pb.named_posteriors(model))
    assert found["0.weight"].index.tolist() == list(range(29))
    assert found["2.weight"].index.tolist() == [0]


def test_every_tensor_keeps_a_weight_and_vectors_are_left_alone():
    model = net("gaussian", bias=True)
    with torch.no_grad():
        model[2]._posteriors["weight"].mean.mul_(1e-9)
        model[0]._posteriors["bias"].mean.zero_()
    best = int(model[2]._posteriors["weight"].mean.abs().argmax())
    pb.prune_(model, 0.01, by="magnitude")
    assert model[2]._posteriors["weight"].index.tolist() == [best]
    assert model[0]._posteriors["weight"].num_active == 2
    assert all(type(layer._posteriors["bias"]) is Gaussian for layer in (model[0], model[2]))


def test_density_one_changes_nothing_but_priors():
    model = net("gaussian")
    before = dict(pb.named_posteriors(model))
    pb.prune_(model, 1.0)
    assert all(q is before[name] for name, q in pb.named_posteriors(model))
    for family in ("log_uniform", "spike_slab"):
        pruned = pb.prune_(net(family), 1.0)
        assert all(type(q) is Gaussian for _, q in pb.named_posteriors(pruned))


def test_only_whole_units_of_a_structured_network_go():
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(30, 32))
    pb.fit(
        model, [(torch.randn(8, 30), torch.randint(32, (8,)))],
        pb.Subspace(density=0.5, structure="block16"), epochs=0, **OPTIONS,
    )  # fmt: skip
    before = model._posteriors["weight"].index
    pb.prune_(model, 0.105, by="magnitude")
    q = model._posteriors["weight"]
    assert (q.structure, q.num_active, len(q.index)) == ("block16", 96, 6)
    assert set(q.index.tolist()) < set(before.tolist())


@every_case
def test_fine_tuning_keeps_exactly_the_zeros(family, by):
    model = pb.prune_(net(family), 0.2, by=by)
    kept = there(model)
    for method in (pb.Deterministic(), pb.MeanField(std_init=0.01)):
        before = {name: q.expectation().clone() for name, q in pb.named_posteriors(model)}
        pb.fit(model, DATA, method, epochs=2, **OPTIONS)
        for name, q in pb.named_posteriors(model):
            assert type(q) is (Sparse if isinstance(method, pb.MeanField) else SparsePoint)
            assert torch.equal((q.expectation() != 0).flatten(), kept[name])
            assert not q.sample().flatten()[~kept[name]].any()
            assert not torch.equal(q.expectation(), before[name])


def test_frozen_and_tied_weights():
    model = pb.bayesianize_(Tied())
    model.encoder._posteriors["weight"].requires_grad_(False)
    pb.prune_(model, 0.2)
    assert model.encoder._posteriors["weight"] is model.decoder._posteriors["weight"]
    assert model.encoder._posteriors["weight"].num_active == 11
    assert not any(p.requires_grad for p in model.encoder._posteriors["weight"].parameters())


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
        self.decoder.weight = self.encoder.weight


def test_a_pruned_model_is_saved_smaller(tmp_path):
    model = net()
    whole = pb.save(model, tmp_path / "m.pocket", lossless=True)
    small = pb.save(pb.prune_(model, 0.1), tmp_path / "m.pocket", lossless=True)
    assert (small.active_weights, small.weights) == (30, 300)
    stored = [sum(s.bytes for s in size.sections) for size in (small, whole)]
    assert stored[0] < 0.5 * stored[1]
    again = pb.load(tmp_path / "m.pocket", net_of_same_form())
    assert same(there(model), there(again))


def net_of_same_form():
    return nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 3))


def labelled(model, n=400):
    """Inputs, with the classes that the model's mean finds, one in ten of them wrong."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 12, generator=generator)
    y = pb.predict(model, x, estimator="mean").probs.argmax(1)
    wrong = torch.rand(n, generator=generator) < 0.1
    return x, torch.where(wrong, (y + 1) % 3, y)


def density_of(model):
    found = [q for _, q in pb.named_posteriors(model)]
    return sum(q.num_active for q in found) / sum(q.shape.numel() for q in found)


def accuracy(model, data):
    generator = torch.Generator().manual_seed(0)
    return pb.evaluate(model, data, generator=generator).accuracy


@every_case_with_a_scope
def test_a_budget_is_kept_and_used(family, by, within):
    """Accuracy within the budget; at a density 10% lower, not."""
    model = net(family)
    with torch.no_grad():
        for _, q in pb.named_posteriors(model):
            for parameter in q.std_parameters():
                parameter.sub_(1)
            for parameter in q.inclusion_parameters():
                parameter.mul_(3).add_(7)
    whole, data = copy.deepcopy(model), [labelled(model)]
    before = accuracy(model, data)
    state = torch.get_rng_state()
    pb.prune_(model, by=by, within=within, budget=0.03, loader=data)
    assert torch.equal(torch.get_rng_state(), state)
    assert accuracy(model, data) >= before - 0.03 - 1e-9
    found = density_of(model)
    assert 0.02 < found < 0.95
    assert accuracy(pb.prune_(whole, 0.9 * found, by=by, within=within), data) < before - 0.03


def test_a_larger_budget_leaves_less_and_any_loader_will_do():
    model = net("point")
    data = TensorDataset(*labelled(model))
    loader = DataLoader(data, 50, shuffle=True)
    densities = [
        density_of(pb.prune_(copy.deepcopy(model), budget=budget, loader=loader))
        for budget in (0, 0.05, 0.2, 1)
    ]
    assert densities == sorted(densities, reverse=True)
    assert densities[-1] == 2 / 300
    once = pb.prune_(copy.deepcopy(model), budget=0.05, loader=iter(DataLoader(data, 50)))
    assert density_of(once) == densities[1]


def test_the_budget_of_a_regression_is_a_share_of_its_rmse():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 10, generator=generator)
    weight = torch.tensor([[3.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0]])
    noise = torch.randn(200, 1, generator=generator)
    model = pb.bayesianize_(nn.Linear(10, 1, bias=False))
    data = [(x, x @ weight.T + noise)]
    pb.fit(model, data, pb.Deterministic(), epochs=0, likelihood="gaussian", **OPTIONS)
    with torch.no_grad():
        model._posteriors["weight"].mean.copy_(weight)
    before = pb.evaluate(model, data).rmse
    pb.prune_(model, budget=0.08, loader=data)
    assert pb.evaluate(model, data).rmse <= 1.08 * before
    assert model._posteriors["weight"].index.tolist() == [
        0,
        1,
        2,
        3,
    ]  # less 0.5: 1.14 times as much


def test_after_an_error_the_model_is_as_it_was(monkeypatch):
    model = net()
    before = dict(pb.named_posteriors(model))
    x, y = labelled(model)
    with pytest.raises(pb.DataError):
        pb.prune_(model, budget=0.01, loader=[(x, y), (x[:, :5], y)])
    measured = []

    def interrupted(*arguments, **options):
        measured.append(density_of(model))
        if len(measured) == 4:
            raise KeyboardInterrupt
        return pb.evaluate(*arguments, **options)

    monkeypatch.setattr(pocketbayes.compression.budgets, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pb.prune_(model, budget=0.01, loader=[(x, y)])
    assert measured[-1] < 1
    assert all(q is before[name] for name, q in pb.named_posteriors(model))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"density": 0}, "density must be finite, above 0"),
        ({"density": 1.5}, "density must be finite, above 0, at most 1"),
        ({"density": math.nan}, "density must be finite"),
        ({"density": True}, "density must be a number"),
        ({"density": "half"}, "density must be a number"),
        ({}, "nothing to prune.*density=0.05"),
        ({"by": "magnitude"}, "nothing to prune.*density=0.05"),
        ({"density": 0.1, "by": "size"}, "by must be one of inclusion, snr, magnitude"),
        ({"density": 0.1, "within": "block"}, "within must be one of network, layer"),
        ({"density": 0.1, "by": "inclusion"}, "no weight has an inclusion variable"),
        ({"budget": 0.01}, "loader=validation_loader"),
        ({"loader": DATA}, "loader=validation_loader"),
        ({"density": 0.1, "loader": DATA}, "loader=validation_loader"),
        ({"budget": 0.01, "loader": DATA, "density": 0.1}, "give one of them"),
        ({"budget": -0.01, "loader": DATA}, "budget must be finite, at least 0"),
        ({"budget": math.nan, "loader": DATA}, "budget must be finite"),
        ({"budget": 0.01, "loader": 7}, "the loader is a int"),
        ({"budget": 0.01, "loader": []}, "the loader is empty"),
        ({"budget": 0.01, "loader": DATA, "seed": -1}, "seed"),
        ({"budget": 0.01, "loader": DATA, "num_samples": 0}, "num_samples"),
    ],
)
def test_what_makes_no_sense_is_refused(fields, message):
    model = net()
    before = dict(pb.named_posteriors(model))
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.prune_(model, **fields)
    assert all(q is before[name] for name, q in pb.named_posteriors(model))


@pytest.mark.parametrize(
    ("family", "by", "message"),
    [
        ("point", "snr", r'0\.weight cannot be pruned by snr.* say by="magnitude"'),
        ("sparse_point", "snr", 'say by="magnitude"'),
        ("spike_slab", "snr", 'say by="inclusion"'),
        ("spike_slab", "magnitude", 'say by="inclusion"'),
        ("point", "inclusion", "no weight has an inclusion variable"),
    ],
)
def test_a_score_that_a_family_lacks(family, by, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.prune_(net(family), 0.1, by=by)


def test_models_that_cannot_be_pruned():
    with pytest.raises(pb.PocketBayesError, match="bayesianize_"):
        pb.prune_(nn.Linear(2, 2), 0.1)
    with pytest.raises(pb.PocketBayesError, match=r"torch\.nn\.Module"):
        pb.prune_("model", 0.1)
    with pytest.raises(pb.PocketBayesError, match="those of vectors"):
        pb.prune_(pb.bayesianize_(nn.Sequential(nn.BatchNorm1d(3)), bias=True), 0.1)
    sparse = pb.prune_(net(), 0.1)
    with pytest.raises(pb.PocketBayesError, match=r"more weights than the model has.*0\.1,"):
        pb.prune_(sparse, 0.2)
    with pytest.raises(pb.PocketBayesError, match=r"more weights than [02]\.weight has"):
        pb.prune_(sparse, 0.15, within="layer")
    shared = pb.fit(net(), DATA, pb.Sharing(least_members=1), epochs=0, **OPTIONS).model
    with pytest.raises(pb.PocketBayesError, match="share a codebook; prune first"):
        pb.prune_(shared, 0.1)
    broken = net()
    with torch.no_grad():
        broken[2]._posteriors["weight"].mean[0, 0] = math.nan
    with pytest.raises(pb.PocketBayesError, match=r"2\.weight has a weight that is not a number"):
        pb.prune_(broken, 0.1)


@pytest.mark.parametrize("parameter", ["log_odds", "mean", "log_std"])
@pytest.mark.parametrize("density", [None, 0.1])
def test_inclusion_variables_that_are_not_numbers_are_refused(parameter, density):
    broken = net("spike_slab")
    with torch.no_grad():
        getattr(broken[2]._posteriors["weight"], parameter)[0, 0] = math.nan
    with pytest.raises(pb.PocketBayesError, match=r"2\.weight has a weight that is not a number"):
        pb.prune_(broken, density)


def test_an_inclusion_variable_in_front_of_a_certain_weight_has_a_rank():
    model = net("spike_slab")
    with torch.no_grad():
        weights = model[2]._posteriors["weight"]
        weights.log_std[0, 0], weights.log_odds[0, 0] = -math.inf, 12.0
        certain = weights.mean[0, 0].clone()
    pb.prune_(model, 0.1)
    assert model[2]._posteriors["weight"].expectation()[0, 0] == certain


def test_units_are_taken_from_the_best_down():
    ranking = ranked([torch.tensor([1.0, 9.0, 5.0]), torch.tensor([0.5, 0.1])], [1, 4])
    assert ranking.order.tolist() == [1, 3, 2, 0, 4]
    assert ranking.weights.tolist() == [1, 5, 6, 7, 11]
    assert [m.tolist() for m in best_units(ranking, 6)] == [[False, True, True], [True, False]]
    assert [m.tolist() for m in best_units(ranking, 0)] == [[False, True, False], [True, False]]
    assert ranking.num_weights == 11
    assert units_above(torch.tensor([1.0, 3.0, 2.0]), 2.0).tolist() == [False, True, True]
    assert units_above(torch.tensor([1.0, 3.0, 2.0]), 5.0).tolist() == [False, True, False]


def test_the_least_density_is_found_to_two_percent():
    for border in (1.5e-6, 0.003, 0.7):
        found = least_density(lambda density, border=border: density >= border, 1e-6, [1.0])
        assert border <= found <= 1.021 * border
    assert least_density(lambda density: True, 1e-6, [0.5, 1.0]) <= 1.02e-6
    assert 0.7 <= least_density(lambda density: density >= 0.7, 1e-6, [0.5, 1.0]) <= 0.72
    with pytest.raises(pb.PocketBayesError, match="allow more"):
        least_density(lambda density: False, 1e-6, [0.5, 1.0])


def test_log_uniform_models_have_a_threshold_of_their_own():
    model = net("log_uniform")
    assert all(isinstance(q, LogUniform) for _, q in pb.named_posteriors(model))
    score = scores(model, "snr")
    pb.prune_(model, by="snr")
    for name, mask in there(model).items():
        assert torch.equal(mask, score[name] >= math.exp(-1.5))
    assert not any(isinstance(q, Point) for _, q in pb.named_posteriors(model))


# Multiplications, too.


class Reader(nn.Module):
    """Words, pictures and a plain layer: weights that are used never, often and once."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.early = nn.Conv1d(6, 8, 3, padding=1)
        self.late = nn.Linear(8 * 12, 10)
        self.plain = nn.Linear(10, 3)

    def forward(self, words):
        x = torch.relu(self.early(self.table(words).mT))
        return self.plain(torch.relu(self.late(x.flatten(1))))


WORDS = torch.randint(9, (8, 12), generator=torch.Generator().manual_seed(0))
PLAIN = 30  # multiplications of the layer that is not Bayesian


def reader(family):
    torch.manual_seed(0)
    model = pb.bayesianize_(Reader(), prior_std=0.3, exclude=["plain"])
    pb.fit(model, [(WORDS, torch.zeros(8).long())], METHODS[family], epochs=0, **OPTIONS)
    with torch.no_grad():
        for _, q in pb.named_posteriors(model):
            for parameter in (*q.std_parameters(), *q.inclusion_parameters()):
                parameter.copy_(torch.randn_like(parameter) - 2)
    return model


@pytest.mark.parametrize(("family", "by"), CASES)
def test_a_density_is_kept_within_so_many_multiplications(family, by):
    usual = pb.prune_(reader(family), 0.3, by=by)
    taken = pb.multiplications(usual, WORDS).sparse
    most = round(0.6 * (taken - PLAIN)) + PLAIN
    limited = {"max_multiplications": most, "example": WORDS[:1]}
    model = pb.prune_(reader(family), 0.3, by=by, **limited)
    kept, before = there(model), there(usual)
    assert sum(mask.sum() for mask in kept.values()) == round(0.3 * (54 + 144 + 960))
    assert 0.98 * most < pb.multiplications(model, WORDS).sparse <= most
    assert kept["table.weight"].sum() >= before["table.weight"].sum()
    assert kept["late.weight"].sum() > before["late.weight"].sum()
    score = scores(reader(family), by)
    for name, mask in kept.items():
        assert score[name][mask].min() >= score[name][~mask].max()
    limited["max_multiplications"] = taken
    assert same(there(pb.prune_(reader(family), 0.3, by=by, **limited)), before)


def test_squares_of_snr_are_weighed_against_multiplications():
    """With the best of each, 10 at four places and 3 at one: not 6 and 5 at two, a larger sum."""
    first, second = nn.Conv1d(1, 2, 1), nn.Conv1d(2, 2, 1, stride=2)
    model = pb.bayesianize_(nn.Sequential(first, second, nn.Flatten(), nn.Linear(4, 1)))
    means = [20.0, 10.0], [20.0, 6.0, 5.0, 0.1], [20.0, 3.0, 0.1, 0.1]
    with torch.no_grad():
        for (_, q), mean in zip(pb.named_posteriors(model), means, strict=True):
            q.mean.copy_(torch.tensor(mean).view(q.shape))
            q.log_std.zero_()
    x = torch.ones(1, 1, 4)
    pb.prune_(model, 0.5, max_multiplications=12, example=x)
    assert [mask.tolist() for mask in there(model).values()] == [
        [True, True], [True, False, False, False], [True, True, False, False]
    ]  # fmt: skip
    assert pb.multiplications(model, x) == pb.Multiplications(8 + 8 + 4, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_multiplications": 100}, "only they need one: give"),
        ({"example": WORDS}, "only they need one: give"),
        ({"max_multiplications": 100, "example": WORDS, "density": None}, "at a density"),
        ({"max_multiplications": 100, "example": WORDS, "within": "layer"}, 'within="network"'),
        ({"max_multiplications": -1, "example": WORDS}, "max_multiplications must be finite"),
        ({"max_multiplications": "few", "example": WORDS}, "max_multiplications must be a number"),
        ({"max_multiplications": 300, "example": WORDS},
         r"300 multiplications are too few .*: 347 weights cost 304 at least, not 270, beside 30"),
        ({"max_multiplications": 1e6, "example": WORDS.float()}, "cannot run on an input"),
    ],
)  # fmt: skip
def test_a_number_of_multiplications_that_cannot_be_is_an_error(options, message):
    model = reader("gaussian")
    before = there(model)
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.prune_(model, **{"density": 0.3} | options)
    assert same(there(model), before)
