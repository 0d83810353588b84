"""Where a head goes with its model, and what drops it."""

import copy
import json
import pickle

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.codec.header import model_in
from pocketbayes.errors import FormatError
from pocketbayes.layers import describe, forget_head, head_of, tensors_at
from pocketbayes.models import build_network

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
    summary = pb.save(model, tmp_path / "a.pocket", lossless=lossless)
    back = pb.load(tmp_path / "a.pocket")
    assert_same(model, back, exact=lossless)
    for name, tensor in tensors_at(model).items():
        assert torch.equal(tensor, tensors_at(back)[name])
    pb.save(back, tmp_path / "b.pocket", lossless=lossless)
    assert (tmp_path / "a.pocket").read_bytes() == (tmp_path / "b.pocket").read_bytes()
    seen = pb.inspect(tmp_path / "a.pocket")
    assert seen.one_pass == summary.one_pass == head_of(model).facts()
    assert "learned from 8 draws (weight)" in str(seen)
    with_head = seen.bytes
    plain = pb.bayesianize_(build_network("mlp", **OPTIONS), estimator="weight")
    assert with_head <= pb.save(plain, tmp_path / "c.pocket", lossless=lossless).bytes + 7500


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


def test_shrink_keeps_the_head_and_its_answers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3))
    with torch.no_grad():
        net[2].weight[:, :5] = 0
        net[4].weight[:, 3:6] = 0
    model = pb.bayesianize_(net, std_init=0.1, estimator="weight")
    y = torch.randint(3, (32,))
    pb.prune_(model, 0.6, by="magnitude")
    pb.distill_(model, [(torch.randn(32, 6), y)] * 6, 3)
    small = pb.shrink(model, inputs())
    widths = [[place.width for place in head_of(m).places] for m in (model, small)]
    assert sum(widths[1]) < sum(widths[0])
    assert describe(small).one_pass == head_of(small).facts()
    assert_same(model, small, exact=False)
    assert sum(place.width for place in head_of(model).places) == sum(widths[0])


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
    with pytest.warns(UserWarning, match="temperature calibration was dropped"):
        pb.distill_(model, [x], 1)


GOOD = {"places": [["hidden1", 0, 6]], "last_variance": True, "draws": 8, "estimator": "weight"}


@pytest.mark.parametrize(
    "wrong",
    [
        7, {}, GOOD | {"more": 1}, GOOD | {"places": "hidden1"},
        GOOD | {"places": [["hidden1", 0]]},
        GOOD | {"places": [["hidden1", -1, 6]]}, GOOD | {"places": [[1, 0, 6]]},
        GOOD | {"places": [["hidden1", 0, 0]]}, GOOD | {"last_variance": 1}, GOOD | {"draws": 0},
        GOOD | {"places": []}, GOOD | {"estimator": "exec"},
    ],
)  # fmt: skip
def test_a_description_of_no_head_is_refused(wrong):
    assert model_in({"model": {"one_pass": GOOD}}).one_pass == GOOD
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


def test_an_ensemble_has_no_head(tmp_path):
    from pocketbayes.layers import Ensemble

    whole = Ensemble([distilled(0), distilled(1)])
    assert describe(whole).one_pass is None
    pb.save(whole, tmp_path / "two.pocket")
    assert pb.predict(pb.load(tmp_path / "two.pocket"), inputs()).estimator == "weight"
    with pytest.raises(pb.PocketBayesError, match="ensemble"):
        pb.distill_(whole, [inputs()])


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
