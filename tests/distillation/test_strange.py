"""Inputs unlike the data: made by their law, borne by every network, answered as draws do."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.distillation.losses import label_entropy, label_loss
from pocketbayes.distillation.strange import num_strange, strange, with_strange, without_excess
from pocketbayes.layers import HeadInputs, tensors_at

ROWS = 20_000


def test_strange_examples_have_twice_the_variance_and_half_the_correlation():
    """E t^2 = E (1 - t)^2 = 1: what features have in common comes from one of two sides.

    20,000 rows: deviations of 5 standard errors, about one false alarm in 10^6.
    """
    torch.manual_seed(0)
    cause = torch.randn(ROWS, 1)
    x = torch.cat([cause + 0.5 * torch.randn(ROWS, 2), torch.randn(ROWS, 1)], 1) + 3
    found = strange(x)
    torch.testing.assert_close(found.mean(0), x.mean(0), rtol=0, atol=5 * (3 / ROWS) ** 0.5)
    torch.testing.assert_close(found.var(0) / x.var(0), torch.full((3,), 2.0), rtol=0, atol=0.15)
    before, after = x.T.corrcoef(), found.T.corrcoef()
    torch.testing.assert_close(after[0, 1], before[0, 1] / 2, rtol=0, atol=5 / ROWS**0.5)
    assert after[0, 2].abs() < 5 / ROWS**0.5


@pytest.mark.parametrize("shape", [(), (3,), (2, 4, 4)])
def test_whole_numbers_are_only_dealt_anew(shape):
    torch.manual_seed(0)
    x = torch.randint(5, (40, *shape)).float()
    found = strange(x)
    assert found.shape == x.shape
    assert not torch.equal(found, x)
    assert torch.equal(found.sort(0).values, x.sort(0).values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_the_last_quarter_of_real_numbers_becomes_strange(dtype):
    torch.manual_seed(0)
    x = {
        "real": torch.randn(11, 3, dtype=dtype),
        "tokens": torch.randint(9, (11, 4)),
        "mask": torch.ones(11, 4, dtype=torch.bool),
    }
    found = with_strange(x)
    assert num_strange(11) == 2
    assert {name: tensor.dtype for name, tensor in found.items()} == {
        "real": dtype, "tokens": torch.int64, "mask": torch.bool,
    }  # fmt: skip
    assert found["tokens"] is x["tokens"]
    assert found["mask"] is x["mask"]
    assert torch.equal(found["real"][:9], x["real"][:9])
    assert (found["real"][9:] != x["real"][9:]).all()
    few = torch.randn(3, 2)
    assert with_strange(few) is few


def test_rows_beyond_all_measure_become_rows_of_the_data():
    features, draws = torch.rand(8, 3), torch.rand(5, 8, 2)
    last = torch.rand(8, 2)
    features[6, 1], draws[2, 7, 0], last[4, 1] = 1e9, torch.nan, torch.inf
    given, found = without_excess(HeadInputs(features, features[:, :2], last), draws, 4)
    rows = [0, 1, 2, 3, 0, 5, 2, 3]
    torch.testing.assert_close(given.features, features[rows])
    torch.testing.assert_close(given.last_variance, last[rows])
    torch.testing.assert_close(found, draws[:, rows])
    draws[0, 1, 0] = torch.nan  # data that cannot be learned from stays as it is
    assert without_excess(given, draws, 0)[1][0, 1].isnan().any()


class Categories(nn.Module):
    """A category in the first column of a table, the logarithm of the second."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(4, 5), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(torch.cat([self.embed(x[:, 0].long()), x[:, 1:].log()], 1))


def test_networks_that_do_not_bear_all_numbers_are_taught():
    torch.manual_seed(0)
    x = torch.stack([torch.randint(4, (64,)).float(), torch.rand(64) + 0.01], 1)
    model = pb.bayesianize_(Categories(), std_init=0.1, estimator="weight")
    assert model(strange(x)).isnan().any()
    pb.distill_(model, [x] * 10, 2)
    assert all(tensor.isfinite().all() for tensor in tensors_at(model).values())
    assert pb.predict(model, x).probs.isfinite().all()


def test_labels_that_are_certain_have_a_loss_and_gradients():
    mean = torch.tensor([[30.0, -120.0], [0.5, 500.0]], requires_grad=True)
    draws = torch.stack([mean.detach() + shift for shift in (-1.0, 0.0, 1.0)])
    loss = label_loss(mean, torch.full_like(mean, 0.01), draws)
    loss.backward()
    assert loss.isfinite()
    assert mean.grad.isfinite().all()
    p = torch.tensor([0.3, 0.5], dtype=torch.float64)
    expected = torch.special.entr(p) + torch.special.entr(1 - p)
    torch.testing.assert_close(label_entropy(p.logit()), expected)
