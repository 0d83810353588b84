"""The value that is carried: what it says of itself, where it is refused, and in which words."""

import pytest
import torch
import torch.nn.functional as F
from against_draws import gaussians
from torch import nn

import pocketbayes as pb
from pocketbayes.moments import Moments, carrying
from pocketbayes.moments.shapes import positions_regrouped


class Sorting(nn.Module):
    def forward(self, x):
        return x.sort(1).values


def test_it_is_a_tensor_to_those_who_ask():
    x = gaussians(2, 3)
    assert isinstance(x, torch.Tensor)
    assert (x.shape, x.dim(), x.size(1), len(x), x.dtype) == ((2, 3), 2, 3, 2, torch.float32)
    assert x.device.type == "cpu"
    assert "variance" in repr(x)
    assert torch.zeros_like(x).sum() == 0
    assert [type(row) for row in x] == [Moments, Moments]


def test_an_operation_without_a_rule_is_named_with_its_module():
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), Sorting()))
    pb.bayesianize_(model)
    with pytest.raises(pb.PocketBayesError, match=r"no rule for the operation 'sort' in 1.1 \(Sor"):
        pb.predict(model, torch.ones(2, 3), estimator="moments")
    with pytest.raises(pb.PocketBayesError, match="'argmax' outside of any module"):
        gaussians(2, 3).argmax()


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: bool((x > 0).all()), lambda x: x.sum().item(), lambda x: x.numpy(),
        lambda x: x.long(), lambda x: torch.zeros(2, 3).add_(x), lambda x: x @ x,
        lambda x: torch.add(x, 1, out=torch.zeros(2, 3)), lambda x: x.cumsum(0),
        lambda x: F.max_pool1d(x, 2, return_indices=True), lambda x: x.tolist(),
        lambda x: torch.zeros(2, 3).__setitem__(0, x[0]),
        lambda x: F.embedding(torch.ones(1).long(), x, max_norm=1.0),
        lambda x: torch.div(x, 2, rounding_mode="floor"), lambda x: x**x,
        lambda x: F.alpha_dropout(x, 0.5, True), lambda x: F.adaptive_max_pool1d(x, 2),
        lambda x: torch.einsum("ij", x), lambda x: F.normalize(x, p=1.0),
    ],
)  # fmt: skip
def test_nothing_falls_back_on_the_mean_in_silence(operation):
    with pytest.raises(pb.PocketBayesError, match="moments"):
        operation(gaussians(2, 3))


@pytest.mark.filterwarnings("ignore:.*jit:DeprecationWarning")
def test_scripted_code_cannot_pass_the_rules_by():
    scripted = torch.jit.trace(lambda x: x * 2, torch.ones(2, 3), check_trace=False)
    with pytest.raises(RuntimeError, match="TorchScript"):  # ours is its cause
        scripted(gaussians(2, 3))


def test_operations_in_place_change_the_object_and_nothing_that_it_was_made_from():
    x = gaussians(2, 3)
    before = x.expected.clone(), x.variance.clone()
    y = x + 1
    assert F.relu(y, inplace=True) is y
    y += x
    y.mul_(2)
    y[:, 0] = 0.0
    assert (y.expected[:, 0] == 0).all()
    assert (y.variance[:, 0] == 0).all()
    torch.testing.assert_close((x.expected, x.variance), before)
    again = 2 * (F.relu(x + 1) + x)
    torch.testing.assert_close(y.expected[:, 1:], again.expected[:, 1:])
    torch.testing.assert_close(y.variance[:, 1:], again.variance[:, 1:])


MOVES = {
    "permute": lambda x: x.permute(2, 0, 1), "view": lambda x: x.view(6, 4), "T": lambda x: x.mT,
    "flatten": lambda x: x.flatten(1), "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "index": lambda x: x[:, 1], "slices": lambda x: x[..., 1::2], "lists": lambda x: x[:, [2, 0]],
    "masks": lambda x: x[:, torch.tensor([True, False, True])], "new": lambda x: x[:, None],
    "squeeze": lambda x: x[:, :1].squeeze(1), "expand": lambda x: x[:1].expand(3, 3, 4),
    "pad": lambda x: F.pad(x, (1, 1)), "reflect": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "flip": lambda x: x.flip(2), "roll": lambda x: x.roll(1, 0),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "gather": lambda x: x.gather(2, torch.zeros(2, 3, 1).long()),
    "cat": lambda x: torch.cat([x, x], 1),
    "shuffle": lambda x: F.pixel_shuffle(x.view(1, 4, 3, 2), 2),
    "stack": lambda x: torch.stack([x, x]),
    "select": lambda x: x.index_select(1, torch.tensor([1])), "clone": lambda x: x.clone().detach(),
    "contiguous": lambda x: x.mT.contiguous(), "movedim": lambda x: x.movedim(0, 2),
    "mask": lambda x: x.masked_fill(torch.eye(3, 4).bool(), 0.0),
    "last": lambda x: x.split(3, 2)[-1],
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves_do_to_both_moments_what_they_do_to_a_tensor(name):
    x = gaussians(2, 3, 4, positions=(True, False, True))
    found = MOVES[name](x)
    assert torch.equal(found.expected, MOVES[name](x.expected))
    assert torch.equal(found.variance, MOVES[name](x.variance))
    assert len(found.positions) == found.dim()


POSITIONS = {
    "permute": (lambda x: x.permute(2, 0, 1), (True, False, False)),
    "flatten": (lambda x: x.flatten(1), (False, False)),
    "split": (lambda x: x.view(2, 3, 2, 2), (False, False, True, True)),
    "merge": (lambda x: x.view(2, 3, 2, 2).flatten(2), (False, False, True)),
    "index": (lambda x: x[:, 1], (False, True)),
    "every second": (lambda x: x[..., ::2].mT, (False, True, False)),
    "chunk": (lambda x: x.chunk(2, 1)[0], (False, False, True)),
    "expand": (lambda x: x[:, :1].expand(2, 5, 4), (False, True, True)),
    "broadcast": (lambda x: torch.zeros(5, 2, 3, 4) + x, (False, False, False, True)),
    "mean": (lambda x: x.mean(1), (False, True)),
    "linear": (lambda x: nn.Linear(4, 2)(x), (False, False, False)),
    "after": (lambda x: nn.Linear(3, 2)(x.mT), (False, True, False)),
    "convolution": (lambda x: nn.Conv1d(3, 2, 3)(x), (False, False, True)),
    "weights": (lambda x: F.linear(torch.ones(5, 6, 4), x[0]), (True, True, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", POSITIONS)
def test_where_noise_is_common_is_known_through_moves(name):
    operation, positions = POSITIONS[name]
    with torch.no_grad():
        assert operation(gaussians(2, 3, 4, positions=(False, False, True))).positions == positions


def test_regrouping_of_dimensions():
    assert positions_regrouped((True, False, True), (2, 3, 4), (6, 4)) == (False, True)
    assert positions_regrouped((True, True, False), (2, 3, 4), (6, 4)) == (True, False)
    assert positions_regrouped((True, False), (4, 3), (2, 2, 1, 3)) == (True, True, False, False)
    assert positions_regrouped((True,), (1,), (1, 1)) == (False, False)
    assert positions_regrouped((False, True), (1, 6), (6,)) == (True,)


def test_layers_are_as_before_once_nothing_is_carried():
    model = pb.bayesianize_(nn.Linear(3, 2))
    with torch.no_grad(), carrying():
        assert isinstance(model(torch.ones(1, 3)), Moments)
    assert not isinstance(model(torch.ones(1, 3)), Moments)
