"""The network that `load` fills: given, made by a factory, or named by the file."""

import pytest
import torch
from torch import nn

import pocketbayes as pb


class MyNet(nn.Sequential):
    def __init__(self, hidden=8):
        super().__init__(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3))


class WithArguments(nn.Linear):
    pass


@pytest.fixture
def path(tmp_path):
    torch.manual_seed(0)
    pb.save(pb.bayesianize_(MyNet()), tmp_path / "m.pocket")
    return tmp_path / "m.pocket"


@pytest.mark.parametrize("factory", [MyNet, lambda: MyNet(8), lambda: nn.Sequential(*MyNet())])
def test_a_factory_makes_the_network(factory, path):
    known, made = pb.load(path, MyNet()), pb.load(path, factory)
    x = torch.randn(5, 4)
    torch.testing.assert_close(
        *(pb.predict(model, x, estimator="mean").probs for model in (known, made))
    )
    assert not made.training


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (WithArguments, r"WithArguments cannot be called without arguments.*lambda"),
        (dict, r"dict\(\) made a dict, not a torch.nn.Module"),
        (3, "net is of type int; it must be a plain torch.nn.Module, or a class"),
        ("MyNet", "net is 'MyNet'; it must be"),
        ({}, "net is of type dict; it must be"),
        ({"0.weight": torch.zeros(2)}, "net is a state dict, which the file holds itself; it"),
        (lambda: MyNet(9), "0.weight"),
        (lambda: pb.bayesianize_(MyNet()), "not yet Bayesian"),
    ],
)
def test_a_factory_that_makes_no_such_network_is_refused(factory, message, path):
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.load(path, factory)


@pytest.mark.parametrize("allow", [True, 1, ["tensorflow"], [["timm"]]])
def test_only_libraries_by_name_are_allowed(allow, path):
    with pytest.raises(pb.PocketBayesError, match=r"allow.*(timm|transformers).*got"):
        pb.load(path, MyNet, allow=allow)


def test_what_a_factory_raises_is_its_own(path):
    def broken():
        raise OSError("no weights here")

    with pytest.raises(OSError, match="no weights here"):
        pb.load(path, broken)


def test_a_factory_makes_one_network_for_all_members_of_an_ensemble(tmp_path):
    data = [(torch.randn(20, 4), torch.randint(3, (20,)))]
    method = pb.DeepEnsemble(members=2)
    model = pb.fit(pb.bayesianize_(MyNet()), data, method, epochs=1, progress=False).model
    pb.save(model, tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket", MyNet)
    x = torch.randn(5, 4)
    torch.testing.assert_close(
        pb.predict(again, x).probs, pb.predict(model, x).probs, atol=1e-2, rtol=0
    )
