"""How much training leaves open about the labels: what beta may follow."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError
from pocketbayes.methods import Method, VariationalMethod

_KL_SHARE = 0.1


def follows_doubt(method: Method) -> bool:
    """Whether the KL's weight falls with the doubt about the labels."""
    return isinstance(method, VariationalMethod) and method.least_beta is not None


def share_of_beta(method: Method, doubt: float) -> float:
    """What remains of beta at this doubt: max(least_beta / beta, doubt), or 1."""
    if not isinstance(method, VariationalMethod) or method.least_beta is None or not method.beta:
        return 1.0
    return max(method.least_beta / method.beta, doubt)


def known_doubt(method: Method, beta: float | None) -> float:
    """The doubt at which beta is this one, with which an earlier training ended."""
    if not isinstance(method, VariationalMethod) or not method.beta or beta is None:
        return 1.0
    return min(1.0, beta / method.beta)


def require_labels(method: Method, likelihood: str) -> None:
    """An error if doubt is to be followed where targets are no classes."""
    if follows_doubt(method) and likelihood != "categorical":
        raise PocketBayesError(
            f"least_beta follows the entropy of class labels, which a {likelihood} likelihood has "
            "not: leave it out, or take likelihood='categorical'"
        )


def add_labels(counts: dict[int, int], target: Tensor) -> None:
    """Counts the labels of a batch; negative ones do not count, of probabilities the likeliest."""
    labels = target.argmax(1) if target.is_floating_point() else target.long()
    found, times = torch.unique(labels[labels >= 0], return_counts=True)
    for label, number in zip(found.tolist(), times.tolist(), strict=True):
        counts[label] = counts.get(label, 0) + number


def entropy_of(counts: Mapping[int, int]) -> float:
    """The entropy of all labels together in nats, which is the NLL of their frequencies."""
    total = sum(counts.values())
    return -sum(n * math.log(n / total) for n in counts.values())


def doubt_left(row: Mapping[str, float], size: int, entropy: float) -> float:
    """(NLL + KL / (10 N)) / entropy of the labels, at most 1; 1 if there is no entropy.

    The NLL alone would fall as a network learns noise by heart; its KL then grows.

    Args:
        row: of the epoch, with `nll`, for each example, and `kl`.
        size: N, the number of training examples.
        entropy: of the labels of an example.
    """
    nats = row["nll"] + _KL_SHARE * row["kl"] / size
    return min(1.0, nats / entropy) if entropy > 0 else 1.0
