"""Differences on the same test images: what a row stores for them, and their intervals.

A row has sums over a hundred blocks, example i being in block i mod 100: each is a small test set
of its own, and a difference of two rows is a mean over blocks of paired differences.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pocketbayes.prediction import Answers

BLOCKS = 100
RESAMPLES = 10_000
LEVEL = 0.95


class Difference(NamedTuple):
    """A mean difference, and the interval of its bootstrap."""

    mean: float
    low: float
    high: float


def sums_by_block(answers: Answers) -> dict[str, list[float]]:
    """Examples, right answers and nats of NLL of each block."""
    probs = torch.cat([p.probs for p in answers.predictions]).double().cpu()
    labels = torch.cat(answers.targets).long().cpu()
    chosen = probs.gather(1, labels[:, None])[:, 0]
    scores = {
        "examples": torch.ones(len(labels)),
        "accuracy": probs.argmax(1) == labels,
        "nll": -chosen.clamp_min(torch.finfo(torch.float32).tiny).log(),
    }
    count = min(BLOCKS, len(labels))
    block = torch.arange(len(labels)) % count
    sums = {
        n: torch.zeros(count).double().index_add(0, block, v.double()) for n, v in scores.items()
    }
    return {name: [float(f"{value:.6g}") for value in total] for name, total in sums.items()}


def difference(ours: Sequence[Any], others: Sequence[Any], score: str) -> Difference:
    """Of a mean score, ours less theirs, over the same examples.

    Each side is a network per seed, as rows have it under "blocks": their mean is compared. Blocks
    are drawn with replacement, the same for both sides, so that the interval is about other test
    examples; the networks stay.
    """
    size = np.array(ours[0]["examples"])
    if any(row["examples"] != ours[0]["examples"] for row in (*ours, *others)):
        raise ValueError("these rows were measured on different examples")
    first, second = (np.mean([row[score] for row in side], 0) for side in (ours, others))
    drawn = np.random.default_rng(0).integers(len(size), size=(RESAMPLES, len(size)))
    gap = first - second
    means = gap[drawn].sum(1) / size[drawn].sum(1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Difference(float(gap.sum() / size.sum()), float(low), float(high))
