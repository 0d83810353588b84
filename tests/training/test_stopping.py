"""SIGTERM: the step is finished, a checkpoint written, the exit code that of a shell."""

import os
import signal

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.training.stopping import StopRequest, deferred_signals


class Loader(list):
    """Eight batches, at one of which the process is told to end."""

    def __init__(self, at=None):
        x = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
        super().__init__(zip(x.split(4), (x[:, 0] > 0).long().split(4), strict=True))
        self.at = at

    def __iter__(self):
        for number, batch in enumerate(super().__iter__()):
            if number == self.at:
                self.at = None
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch


def fit(loader, **options):
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)))
    method = pb.MeanField(lr=3e-3)  # with the size: nothing is read before the first step
    plain = {"epochs": 3, "progress": False, "device": "cpu", "dataset_size": 32}
    pb.fit(model, loader, method, **plain, **options)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture
def handler():
    """What the process does by itself with SIGTERM, put back afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    yield lambda action: signal.signal(signal.SIGTERM, action)
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("at", [0, 5, 7])
def test_a_run_that_is_terminated_goes_on_bit_for_bit(tmp_path, capsys, handler, at):
    handler(signal.SIG_DFL)
    with pytest.raises(SystemExit) as stopped:
        fit(Loader(at), out=tmp_path)
    assert stopped.value.code == 143
    assert f"terminated after step {at + 1}; saved to {tmp_path}" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert torch.equal(fit(Loader(), out=tmp_path, resume=True), fit(Loader()))


def test_a_handler_of_the_callers_is_called_once_all_is_saved(tmp_path, handler):
    found = []
    handler(lambda number, frame: found.append((tmp_path / "checkpoint.pt").exists()))
    with pytest.raises(SystemExit):
        fit(Loader(3), out=tmp_path)
    assert found == [True]


def test_who_ignores_it_goes_on(handler):
    handler(signal.SIG_IGN)
    fit(Loader(3))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_a_second_signal_stops_at_once_unless_it_is_the_first_one_passed_on():
    asked = StopRequest()
    asked.handle(signal.SIGINT, None)
    asked.handle(signal.SIGINT, None)
    asked._since -= 2
    with pytest.raises(KeyboardInterrupt):
        asked.handle(signal.SIGTERM, None)


def test_where_it_is_not_wanted_nothing_is_changed():
    before = signal.getsignal(signal.SIGTERM)
    with deferred_signals(False) as asked:
        assert signal.getsignal(signal.SIGTERM) == before
        assert not asked
