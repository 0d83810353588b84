"""Files of the command line carry their network where that is possible and costs little."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.commands import portable
from pocketbayes.commands.portable import saved_portably

X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


class Sums(nn.Module):
    def forward(self, x):
        return x.cumsum(1)


def model(*more):
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Sequential(nn.Linear(6, 4), *more))


def test_a_known_network_is_in_its_file(tmp_path, capsys):
    size = saved_portably(model(nn.ReLU()), tmp_path / "m.pocket", X)
    assert size.program == pb.inspect(tmp_path / "m.pocket").program
    assert size.program["operations"] == 2
    assert capsys.readouterr().err == ""


def test_of_an_unknown_one_it_is_told_why(tmp_path, capsys):
    size = saved_portably(model(Sums()), tmp_path / "m.pocket", X)
    assert size.program is pb.inspect(tmp_path / "m.pocket").program is None
    assert "'cumsum'" in capsys.readouterr().err


def test_a_program_may_not_cost_much(tmp_path, monkeypatch):
    monkeypatch.setattr(portable, "_MOST_BYTES", 10)
    size = saved_portably(model(), tmp_path / "m.pocket", X)
    assert size.program is None
    monkeypatch.setattr(portable, "_MOST_SHARE", 0.5)
    assert saved_portably(model(), tmp_path / "m.pocket", X).program is not None


def test_other_errors_are_none_of_its_business(tmp_path):
    with pytest.raises(pb.FormatError, match="cannot write"):
        saved_portably(model(), tmp_path / "missing" / "m.pocket", X)
