"""What posteriors hold, counted."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch

from pocketbayes.likelihoods import total_kl
from pocketbayes.posteriors import Posterior


class Tally(NamedTuple):
    """What posteriors hold.

    Attributes:
        families: number of weights by family.
        shapes: of the tensors, by name.
        active: how many of their weights are there, by name.
        kl: nats from prior to posterior.
    """

    families: Counter[str]
    shapes: dict[str, torch.Size]
    active: dict[str, int]
    kl: float


def tally_of(
    posteriors: Iterable[tuple[str, Posterior]],
    families: Mapping[str, str],
    decay_std: float | None = None,
) -> Tally:
    """Counts posteriors of these families, which it takes one by one."""
    weights, shapes, active = Counter[str](), dict[str, torch.Size](), dict[str, int]()

    def passing() -> Iterator[Posterior]:
        for name, posterior in posteriors:
            weights[families[name]] += posterior.shape.numel()
            shapes[name], active[name] = posterior.shape, posterior.num_active
            yield posterior

    with torch.no_grad():
        divergence = float(total_kl(passing(), decay_std))
    return Tally(weights, shapes, active, divergence)
