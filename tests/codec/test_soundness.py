"""A model that is not finite is not saved."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.methods import METHODS


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def fitted(name):
    own = {"density": 0.5} if name in ("rigl", "subspace") else {}
    own = {"least_members": 1, "components": 4} if name == "sharing" else own
    x = torch.randn(16, 3)
    method = METHODS[name](**own)
    quietly = {"epochs": 1, "progress": False, "device": "cpu"}
    return pb.fit(pb.bayesianize_(network()), [(x, (x[:, 0] > 0).long())], method, **quietly).model


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"laplace", "mc-dropout", "rigl", "swag"}))
def test_whatever_is_not_finite_is_named(tmp_path, name, value):
    model = fitted(name)
    tensors = {n: t for n, t in model.state_dict(keep_vars=True).items() if t.is_floating_point()}
    assert len(tensors) > 6
    for path, tensor in tensors.items():
        if tensor.dim() == 0 or tensor.numel() == 0:
            continue
        place = (0,) * tensor.dim()
        before = tensor[place].clone()
        tensor.data[place] = value
        with pytest.raises(pb.PocketBayesError, match="is not finite in") as error:
            pb.save(model, tmp_path / "m.pocket")
        words = path.split(".")
        assert words[-1] in str(error.value), path
        assert not any(tmp_path.iterdir())
        tensor.data[place] = before
    pb.save(model, tmp_path / "m.pocket")


def test_masks_and_marks_may_hold_anything(tmp_path):
    def masked():
        net = network()
        net.register_buffer("mask", torch.tensor([torch.nan, -torch.inf]))
        net.frozen = nn.Parameter(torch.tensor([0.0, -torch.inf]), requires_grad=False)
        return net

    loader = [(torch.randn(8, 3), torch.arange(8) % 2)]
    model = pb.fit(pb.bayesianize_(masked()), loader, epochs=1, progress=False).model
    pb.save(model, tmp_path / "m.pocket")
    found = pb.load(tmp_path / "m.pocket", masked()).get_buffer("mask")
    assert found.isnan().tolist() == [True, False]
    assert float(found[1]) == -torch.inf


def test_a_head_that_is_not_finite_is_named(tmp_path):
    x = torch.randn(32, 3)
    model = pb.distill_(fitted("mean-field"), [x], 1)
    for value in (torch.nan, torch.inf):
        model.get_buffer("one_pass_slope")[0] = value
        with pytest.raises(pb.PocketBayesError, match="one_pass_slope is not finite in 1 of 2"):
            pb.save(model, tmp_path / "m.pocket")
