"""What `fit` does behind the last step: the noise is the one that suits the weights."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers import noise_log_std


def problem(rows=256):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 2, generator=generator)
    return DataLoader(TensorDataset(x, x @ torch.tensor([[1.0], [-2.0]])), 32, shuffle=True)


def fitted(tmp_path=None, epochs=30, **options):
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(2, 1))
    method = options.pop("method", pb.MeanField())
    known = {"likelihood": "gaussian", "device": "cpu", "progress": False, "epochs": epochs}
    return pb.fit(model, problem(), method, out=tmp_path, **known, **options).model


def error_of(model):
    """E_q (y - f)^2, in closed form for a linear network."""
    x, y = problem().dataset.tensors
    mean, variance = model._posteriors["weight"].moments()
    found = (y - (x @ mean.T + model.bias)).square() + x.square() @ variance.T
    return float(found.detach().mean())


def noise_of(model):
    return float((2 * noise_log_std(model).detach()).exp())


def test_noise_is_the_expected_square_of_the_error():
    """A problem without noise: its learned std falls until the last step, and lags behind.

    8 draws at each of 256 rows: the estimate is within 10% but once in 10^4 or less.
    """
    model = fitted()
    assert abs(noise_of(model) / error_of(model) - 1) < 0.1


def test_a_frozen_noise_or_a_chosen_epoch_is_left_alone():
    frozen = fitted(method=pb.MeanField(noise_lr=0.0), epochs=3)
    assert noise_of(frozen) == noise_of(fitted(method=pb.MeanField(noise_lr=0.0), epochs=1))
    assert not 0.7 < noise_of(frozen) / error_of(frozen) < 1.4
    tempered = fitted(method=pb.MeanField(beta=0.5), epochs=3)
    assert not 0.7 < noise_of(tempered) / error_of(tempered) < 1.4
    best = fitted(val_loader=problem(64), keep_best=True, epochs=3)
    assert not 0.7 < noise_of(best) / error_of(best) < 1.4


def test_a_run_that_was_whole_stays_as_it_is(tmp_path):
    model = fitted(tmp_path, epochs=4)
    again = copy.deepcopy(model)
    again = fitted(tmp_path, epochs=4, resume=True)
    assert noise_of(again) == noise_of(model)


def test_all_batches_count_whatever_their_order():
    """The second half of 500 batches is noisier: the first 200 say nothing of it."""
    x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(1))
    y = x[:, :1] + torch.cat([torch.zeros(500, 1), 2 * torch.randn(500, 1)])
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(2, 1))
    batches = [(x[i : i + 2], y[i : i + 2]) for i in range(0, 1000, 2)]
    pb.fit(model, batches, likelihood="gaussian", dataset_size=1000, epochs=3, device="cpu",
           progress=False)  # fmt: skip
    assert 1.5 < noise_of(model) < 2.6  # 2 on average; half of the rows have 4, half have 0


class Ending:
    """A stream of no more passes than training needs: a look at first, and the epochs."""

    def __init__(self, passes):
        self.left = passes

    def __iter__(self):
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the stream has ended")
        return iter([problem().dataset.tensors])


def test_a_pass_that_fails_loses_nothing(tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(2, 1))
    known = {"likelihood": "gaussian", "device": "cpu", "progress": False, "epochs": 3}
    with pytest.warns(UserWarning, match="noise stays as it was learned.*ended"):
        pb.fit(model, Ending(4), pb.MeanField(lr=1e-2), dataset_size=256, out=tmp_path, **known)
    assert (tmp_path / "checkpoint.pt").exists()


def test_the_last_row_is_of_the_model_that_is_returned():
    val = [problem(64).dataset.tensors]
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(2, 1))
    result = pb.fit(model, problem(), likelihood="gaussian", val_loader=val, epochs=5,
                    device="cpu", progress=False)  # fmt: skip
    found = pb.evaluate(model, val, 10, generator=torch.Generator().manual_seed(0))
    assert result.history[-1]["val_nll"] == pytest.approx(found.nll, abs=1e-6)
