"""Rows of a table as batches: each as often as its weight says, all batches of nearly one size."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import TensorDataset


def rows_by_weight(weights: Tensor, start: float) -> Tensor:
    """Systematic resampling: N row numbers, row i floor(w_i) or ceil(w_i) times, w_i on average.

    Row i is the one in whose share of [0, N) a point of start + 0, 1, ..., N - 1 falls, for
    weights that sum to N and a start uniform in [0, 1). Equal weights give each row once, so
    the start keeps away from 1, where a large number + start would be rounded up.
    """
    count = len(weights)
    ends = weights.double().cumsum(0)
    points = (start * (1 - 1e-6) + torch.arange(count, dtype=torch.float64)) * (ends[-1] / count)
    return torch.searchsorted(ends, points, right=True).clamp_max(count - 1)


class RowLoader:
    """Batches (inputs, targets) in a new order in each pass, from torch's default generator.

    Args:
        inputs: (N, features).
        targets: (N,) or (N, outputs).
        weights: (N,) above 0; only their ratios count.
        batch_size: the most rows in a batch; batches differ by one row at most.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, weights: Tensor, batch_size: int) -> None:
        self.dataset = TensorDataset(inputs, targets)
        self.weights = weights / weights.mean()
        self.batches = math.ceil(len(inputs) / batch_size)

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        start = float(torch.rand((), dtype=torch.float64))
        rows = rows_by_weight(self.weights, start)
        order = rows[torch.randperm(len(rows))]
        inputs, targets = self.dataset.tensors
        return ((inputs[part], targets[part]) for part in order.tensor_split(self.batches))
