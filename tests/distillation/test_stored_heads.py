"""Where a head goes with its model, and what drops it."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.codec import files
from pocketbayes.codec.header import model_in
from pocketbayes.errors import FormatError
from pocketbayes.layers import OnePassHead, describe, forget_head, head_of, tensors_at
from pocketbayes.layers.one_pass import numbers_in
from pocketbayes.models import build_network
from pocketbayes.prediction.draws import drawing
from pocketbayes.prediction.one_pass import one_pass_gaussian

pytestmark = pytest.mark.filterwarnings("ignore:nothing says that this model was ever")

GOLDEN = Path(__file__).parents[1] / "golden"
KNOWN = json.loads((GOLDEN / "heads.json").read_text())
OPTIONS = {"input_shape": (6,), "num_outputs": 3, "hidden": (16, 12)}


def distilled(seed=0):
    torch.manual_seed(seed)
    model = pb.bayesianize_(build_network("mlp", **OPTIONS), std_init=0.1, estimator="weight")
    return pb.distill_(model, [torch.randn(32, 6) for _ in range(4)], 2)


def inputs():
    return torch.randn(20, 6, generator=torch.Generator().manual_seed(5))


def assert_same(one, other, exact=True):
    first, second = (pb.predict(model, inputs()) for model in (one, other))
    assert first.estimator == second.estimator == "one_pass"
    tolerance = {"rtol": 0, "atol": 0} if exact else {"rtol": 0.02, "atol": 1e-3}
    torch.testing.assert_close(first.probs, second.probs, **tolerance)
    torch.testing.assert_close(first.epistemic, second.epistemic, **tolerance)


@pytest.mark.parametrize("lossless", [True, False])
def test_a_file_holds_the_head(tmp_path, lossless):
    model = distilled()
    options = {"lossless": lossless, "tolerance": 1e-3}
    summary = pb.save(model, tmp_path / "a.pocket", **options)
    back = pb.load(tmp_path / "a.pocket")
    assert_same(model, back, exact=lossless)
    for name, tensor in tensors_at(model).items():
        assert torch.equal(tensor, tensors_at(back)[name])
    pb.save(back, tmp_path / "b.pocket", **options)
    assert (tmp_path / "a.pocket").read_bytes() == (tmp_path / "b.pocket").read_bytes()
    seen = pb.inspect(tmp_path / "a.pocket")
    assert seen.one_pass == summary.one_pass == head_of(model).facts()
    assert "learned from 8 draws (weight)" in str(seen)
    with_head = seen.bytes
    plain = pb.bayesianize_(build_network("mlp", **OPTIONS), estimator="weight")
    assert with_head <= pb.save(plain, tmp_path / "c.pocket", lossless=lossless).bytes + 7500


@pytest.mark.parametrize("hidden", [32, 64, 100])
def test_a_head_takes_at_most_6000_bytes_of_a_small_file(tmp_path, hidden):
    torch.manual_seed(0)
    sizes = {"input_shape": (64,), "num_outputs": 10, "hidden": (hidden, hidden)}
    model = pb.bayesianize_(build_network("mlp", **sizes))
    without = pb.save(model, tmp_path / "a.pocket").bytes
    pb.distill_(model, [torch.randn(64, 64)], epochs=20, num_samples=4)
    assert 2000 < pb.save(model, tmp_path / "b.pocket").bytes - without <= 6000


def test_a_network_of_ones_own_gets_its_head_back(tmp_path):
    def net():
        return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    model = pb.distill_(pb.bayesianize_(net(), estimator="weight"), [torch.randn(16, 6)] * 2, 1)
    pb.save(model, tmp_path / "own.pocket", lossless=True)
    assert_same(model, pb.load(tmp_path / "own.pocket", net()))
    with pytest.raises(FormatError):
        pb.load(tmp_path / "own.pocket", nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3)))


def test_copies_pickles_and_state_dicts_have_the_head():
    model = distilled()
    assert_same(model, copy.deepcopy(model))
    assert_same(model, pickle.loads(pickle.dumps(model)))
    fresh = pb.bayesianize_(build_network("mlp", **OPTIONS), estimator="weight")
    fresh.load_state_dict(model.state_dict())
    assert_same(model, fresh)
    bare = pb.bayesianize_(build_network("mlp", **OPTIONS), estimator="weight")
    state = bare.state_dict()
    fresh.load_state_dict(state)
    assert head_of(fresh) is None
    assert pb.predict(fresh, inputs()).estimator == "weight"


def test_a_second_head_replaces_the_first():
    model = distilled()
    pb.distill_(model, [torch.randn(16, 6)] * 2, 1, num_samples=3, estimator="lrt")
    assert describe(model).one_pass["draws"] == 3
    assert describe(model).one_pass["estimator"] == "lrt"
    hooks = sum(len(module._forward_pre_hooks) for module in model.modules())
    assert hooks == len(head_of(model).places)


def test_quantisation_and_another_type_keep_the_head():
    model = distilled()
    whole = copy.deepcopy(model)
    pb.quantize_(model, 10, 8)
    assert_same(model, whole, exact=False)
    assert_same(copy.deepcopy(whole).double().float(), whole, exact=False)


def with_strong_answers(model):
    """The head answers to all that it reads, not only to what it has learned to need."""
    generator = torch.Generator().manual_seed(0)
    for name in ("inner_rows", "outer_rows"):
        rows = tensors_at(model)[name]
        rows.copy_(torch.randint(-127, 128, rows.shape, generator=generator))
    tensors_at(model)["inner_scale"].fill_(0.02)
    tensors_at(model)["outer_scale"].fill_(0.001)
    tensors_at(model)["center"].add_(0)  # so that all is read anew
    return model


def gaussian_of(model, x):
    with drawing(model, "one_pass", None):
        return one_pass_gaussian(model, x)


class Separable(nn.Module):
    """A depthwise convolution between two of 1 x 1, and a linear layer behind an average."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.c, self.out = nn.Conv2d(8, 6, 1), nn.Linear(6, 3)

    def forward(self, x):
        x = torch.relu(self.b(torch.relu(self.a(x))))
        return self.out(torch.relu(self.c(x)).mean((2, 3)))


def mlp_with_dead_units():
    """Units of the first layer that nobody reads; of the second some that are constant, or 0."""
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))
    with torch.no_grad():
        net[2].weight[:, :5] = 0
        net[2].weight[6:10] = 0
        net[2].bias[6:10] = torch.tensor([1.5, 0.5, -1.0, 2.0])
    return net, torch.randn(32, 6)


def separable_with_dead_units():
    net = Separable()
    with torch.no_grad():
        net.a.weight[2:5] = 0
        net.a.bias[2:5] = 0
        net.b.weight[2:5] = 0
        net.b.bias[2:5] = 0
        net.c.weight[:, 2:5] = 0
    return net, torch.randn(32, 2, 5, 5)


@pytest.mark.parametrize("make", [mlp_with_dead_units, separable_with_dead_units])
def test_shrink_keeps_the_head_and_its_answers(make, tmp_path):
    torch.manual_seed(0)
    net, x = make()
    model = pb.bayesianize_(net, std_init=0.1, estimator="weight")
    number = sum((q.mean != 0).sum().item() for _, q in pb.named_posteriors(model))
    whole = sum(q.mean.numel() for _, q in pb.named_posteriors(model))
    pb.prune_(model, number / whole, by="magnitude")
    with_strong_answers(pb.distill_(model, [x] * 4, 2))
    places = [place.width for place in head_of(model).places]
    small = pb.shrink(model, x)
    assert sum(place.width for place in head_of(small).places) < sum(places)
    assert describe(small).one_pass == head_of(small).facts()
    elsewhere = 3 * torch.randn(50, *x.shape[1:])
    for inside in (x, elsewhere):
        found, expected = gaussian_of(small, inside), gaussian_of(model, inside)
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=1e-4)
    assert pb.predict(small, x, estimator="one_pass").estimator == "one_pass"
    assert [place.width for place in head_of(model).places] == places
    again = pb.shrink(small, x)
    torch.testing.assert_close(gaussian_of(again, x), gaussian_of(small, x))
    pb.save(small, tmp_path / "small.pocket", lossless=True)
    assert pb.inspect(tmp_path / "small.pocket").one_pass == head_of(small).facts()
    if isinstance(small, nn.Sequential):
        sizes = [(m.in_features, m.out_features) for m in small if isinstance(m, nn.Linear)]
        a, b, c = (nn.Linear(*size) for size in sizes)
        back = pb.load(tmp_path / "small.pocket", nn.Sequential(a, nn.ReLU(), b, nn.ReLU(), c))
        torch.testing.assert_close(gaussian_of(back, x), gaussian_of(small, x))


@pytest.mark.parametrize("why", ["it reads the channel", "it is of old", "it is stale"])
def test_shrink_drops_a_head_that_it_cannot_keep(why):
    torch.manual_seed(0)
    net, x = mlp_with_dead_units()
    model = pb.bayesianize_(net, std_init=0.1, estimator="weight")
    pb.prune_(model, 0.6, by="magnitude")
    pb.distill_(model, [x] * 2, 1)
    if why == "it reads the channel":
        tensors_at(model)["log_scale"].clamp_(min=-30)
    elif why == "it is of old":
        head = head_of(model)
        head.gone = None
    else:
        with torch.no_grad():
            model[4].bias.add_(1)
    with pytest.warns(UserWarning, match="head was dropped"):
        small = pb.shrink(model, x)
    assert head_of(small) is None
    assert describe(small).one_pass is None
    assert head_of(model) is not None


def test_a_head_of_old_counts_all_channels():
    """Files of before have no "gone": -127 is a scale like others, and sizes are of all."""
    model = distilled()
    tensors_at(model)["log_scale"][:3] = torch.tensor([-128, -127, 0], dtype=torch.int8)
    facts = head_of(model).facts()
    old = OnePassHead.from_facts({name: facts[name] for name in facts if name != "gone"})
    assert "gone" not in old.facts()
    for head, scales, counts in (
        (old, [0, 2 ** (-127 / 8), 1], [1, 1, 1]),
        (OnePassHead.from_facts(facts), [0, 0, 1], [1, 0, 1]),
    ):
        numbers = numbers_in(tensors_at(model), head.gone is not None)
        torch.testing.assert_close(numbers.scale[:3], torch.tensor(scales, dtype=torch.float32))
        assert numbers.counts[:3].tolist() == counts


def changes():
    x, y = torch.randn(32, 6), torch.randint(3, (32,))
    return {
        "fit": lambda m: pb.fit(m, [(x, y)], epochs=1, progress=False),
        "loss": lambda m: pb.loss(m, m(x), y, dataset_size=32),
        "prune_": lambda m: pb.prune_(m, 0.5, by="snr"),
        "replace_posterior": lambda m: pb.replace_posterior(m, *next(pb.named_posteriors(m))),
    }


@pytest.mark.parametrize("change", changes())
def test_what_changes_weights_drops_the_head(change):
    model = distilled()
    with pytest.warns(UserWarning, match="one-pass head was dropped"):
        changes()[change](model)
    assert head_of(model) is None
    assert describe(model).one_pass is None
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any(name.startswith("one_pass_") for name in model.state_dict())
    assert pb.predict(model, inputs()).estimator != "one_pass"


def test_calibrations_are_of_one_pass():
    model, x, y = distilled(), inputs(), torch.randint(3, (20,))
    pb.temperature_(model, [(x, y)])
    warm = describe(model).temperature
    other = copy.deepcopy(model)
    pb.temperature_(other, [(x, y)])
    assert describe(other).temperature == warm  # no draws, no noise
    pb.conformal(model, [(x, y)], level=0.5)
    pb.calibrate_moments_(model, [x])
    factor = describe(model).moments_factor
    with pytest.warns(UserWarning, match="conformal calibration was dropped") as told:
        pb.distill_(model, [x], 1)
    (dropped,) = (str(w.message) for w in told if "dropped" in str(w.message))
    assert "are now those of this head, so its temperature and conformal" in dropped
    known = describe(model)
    assert (known.temperature, known.conformal, known.moments_factor) == (None, None, factor)


NEAR = {"examples": 256, "draws": 64, "probs": 0.004, "nll": -0.01}
GOOD = {"places": [["hidden1", 0, 6]], "last_variance": True, "draws": 8, "estimator": "weight"}


@pytest.mark.parametrize(
    "wrong",
    [
        7, {}, GOOD | {"more": 1}, GOOD | {"places": "hidden1"},
        GOOD | {"places": [["hidden1", 0]]},
        GOOD | {"places": [["hidden1", -1, 6]]}, GOOD | {"places": [[1, 0, 6]]},
        GOOD | {"places": [["hidden1", 0, 0]]}, GOOD | {"last_variance": 1}, GOOD | {"draws": 0},
        GOOD | {"places": []}, GOOD | {"estimator": "exec"}, GOOD | {"gone": []},
        GOOD | {"gone": [[1]]}, GOOD | {"gone": [[-1, 0.0]]}, GOOD | {"gone": [[1, -1.0]]},
        GOOD | {"gone": [[True, 1.0]]}, GOOD | {"gone": [[10**50, 1.0]]},
        GOOD | {"compared": {}}, GOOD | {"compared": NEAR | {"draws": 0}},
        GOOD | {"compared": NEAR | {"probs": float("nan")}}, GOOD | {"compared": NEAR | {"a": 1.0}},
        GOOD | {"compared": NEAR | {"nll": "0"}}, GOOD | {"compared": [1]},
        GOOD | {"likelihood": None}, GOOD | {"likelihood": "exec"}, GOOD | {"likelihood": ["a"]},
        GOOD | {"gone": [[1, "1"]]}, GOOD | {"gone": {"0": [1, 1.0]}}, GOOD | {"gone": None},
    ],
)  # fmt: skip
def test_a_description_of_no_head_is_refused(wrong):
    for good in (
        GOOD,
        GOOD | {"gone": [[3, 0.5]]},
        GOOD | {"likelihood": "poisson", "compared": NEAR},
    ):
        assert model_in({"model": {"one_pass": good}}).one_pass == good
    with pytest.raises(FormatError, match="one_pass"):
        model_in(json.loads(json.dumps({"model": {"one_pass": wrong}})))


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"places": [["elsewhere", 0, 16], ["output", 0, 12]]}, "which the network has not"),
        ({"places": [["hidden2", 0, 17], ["output", 0, 12]]}, "its places need"),
        (None, "is not in the network"),
    ],
)
def test_a_forged_head_is_refused(tmp_path, facts, says):
    model = distilled()
    known = describe(model)
    one_pass = None if facts is None else known.one_pass | facts
    vars(model)["_pocketbayes"] = type(known).from_facts(known.to_facts() | {"one_pass": one_pass})
    pb.save(model, tmp_path / "forged.pocket")
    with pytest.raises(FormatError, match=says):
        pb.load(tmp_path / "forged.pocket")


REAL = ("center", "inner_scale", "inner_bias", "outer_scale", "outer_bias", "slope")
POISONS = {
    "nan": lambda t: t.index_fill(0, torch.tensor([0]), torch.nan),
    "inf": lambda t: t.index_fill(0, torch.tensor([-1]), torch.inf),
    "minus inf": lambda t: t.index_fill(0, torch.tensor([0]), -torch.inf),
    "double nan": lambda t: t.double().index_fill(0, torch.tensor([0]), torch.nan),
    "integers": lambda t: t.to(torch.int8),
    "truth": lambda t: t > 0,
    "complex": lambda t: t.to(torch.complex64),
    "shorter": lambda t: t[:-1].clone(),
    "deeper": lambda t: t.unsqueeze(0).clone(),
}
WRONG_INTEGERS = (torch.float16, torch.float32, torch.int16, torch.uint8, torch.bool)


INTEGERS = ("log_scale", "inner_rows", "outer_rows")
TRIES = [
    *((name, POISONS["nan"]) for name in REAL),
    *zip(REAL * 2, POISONS.values(), strict=False),
    *((name, lambda t: t.half()) for name in INTEGERS),
    *(("inner_rows", lambda t, kind=kind: t.to(kind)) for kind in WRONG_INTEGERS),
]


def test_poisoned_tensors_of_a_head_are_refused(tmp_path, monkeypatch):
    """The network that was to be filled is left plain; a forger's `save` writes anything."""
    monkeypatch.setattr(files, "require_finite", lambda arrays: None)
    model, path = distilled(), tmp_path / "poisoned.pocket"
    assert {*REAL, *INTEGERS} == set(tensors_at(model))
    for name, poison in TRIES:
        forged = copy.deepcopy(model)
        forged._buffers[f"one_pass_{name}"] = poison(tensors_at(model)[name])
        pb.save(forged, path, lossless=True)
        net = build_network("mlp", **OPTIONS)
        with pytest.raises(FormatError, match=rf"one.pass.*({name}|its places need)"):
            pb.load(path, net)
        if not bool(forged._buffers[f"one_pass_{name}"].isfinite().all()):
            with pytest.raises(FormatError, match=f"one_pass_{name} holds NaN"):
                pb.inspect(path)
        assert not any(True for _ in pb.named_posteriors(net))
        assert not any(module._forward_pre_hooks for module in net.modules())


def test_whatever_finite_numbers_a_head_holds_predictions_are_finite(tmp_path):
    """Heads of random bits, as far as float16 is finite."""
    generator = torch.Generator().manual_seed(0)
    model = distilled()
    for _ in range(20):
        forged = copy.deepcopy(model)
        for name, old in tensors_at(model).items():
            bits = torch.randint(-(2**15), 2**15, old.shape, generator=generator)
            new = bits.to(torch.int8) if name not in REAL else bits.to(torch.int16)
            new = new if name not in REAL else new.view(torch.float16).nan_to_num()
            forged._buffers[f"one_pass_{name}"] = new
        pb.save(forged, tmp_path / "random.pocket")
        found = pb.predict(pb.load(tmp_path / "random.pocket"), inputs())
        assert found.estimator == "one_pass"
        assert found.probs.isfinite().all()
        assert found.epistemic.isfinite().all()


def test_an_ensemble_has_no_head(tmp_path):
    from pocketbayes.layers import Ensemble

    whole = Ensemble([distilled(0), distilled(1)])
    assert describe(whole).one_pass is None
    pb.save(whole, tmp_path / "two.pocket")
    assert pb.predict(pb.load(tmp_path / "two.pocket"), inputs()).estimator == "weight"
    with pytest.raises(pb.PocketBayesError, match="ensemble"):
        pb.distill_(whole, [inputs()])


@pytest.mark.parametrize("name", KNOWN)
def test_heads_in_files_mean_the_same_for_ever(name, tmp_path):
    """The first ones have no "gone", and count channels that nobody reads."""
    model, known = pb.load(GOLDEN / f"head-{name}.pocket"), KNOWN[name]
    found = pb.predict(model, torch.tensor(known["input"]))
    assert found.estimator == "one_pass"
    torch.testing.assert_close(found.probs, torch.tensor(known["probs"]))
    torch.testing.assert_close(
        found.epistemic, torch.tensor(known["epistemic"]), rtol=1e-4, atol=1e-6
    )
    pb.save(model, tmp_path / "again.pocket", tolerance=1e-3)
    assert (tmp_path / "again.pocket").read_bytes() == (GOLDEN / f"head-{name}.pocket").read_bytes()


def test_a_state_without_its_head_has_none():
    model = distilled()
    state = {k: v for k, v in model.state_dict().items() if "one_pass_" not in k}
    plain = pb.bayesianize_(build_network("mlp", **OPTIONS))
    plain.load_state_dict(state, strict=False)
    assert head_of(plain) is None
    assert describe(plain).one_pass is None


def test_a_head_whose_place_is_gone_can_be_dropped():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model = pb.distill_(pb.bayesianize_(net, std_init=0.1), [torch.randn(32, 6)], 1)
    del model[2]
    with pytest.warns(UserWarning, match="head was dropped"):
        forget_head(model)
    assert head_of(model) is None
