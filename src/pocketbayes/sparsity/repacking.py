"""Applies an exchange to a sparse posterior and to what optimisers remember of it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pocketbayes.posteriors import Packed
from pocketbayes.sparsity.exchange import Exchange, places_of, repacked

Optimizers = Sequence[torch.optim.Optimizer]


@torch.no_grad()
def repack_(
    posterior: Packed,
    exchange: Exchange,
    newcomers: Mapping[str, float],
    optimizers: Optimizers,
) -> bool:
    """Moves a posterior to its new places; returns whether its size changed.

    Args:
        posterior: whose `index` and parameters change: in place if their number stays the same
            (recorded CUDA graphs and DDP go on), else as new parameters.
        exchange: the new places, and where each was before.
        newcomers: value of each parameter at a place that is new, by name.
        optimizers: survivors keep their state, newcomers start with zeros.
    """
    resized = len(exchange.places) != len(posterior.index)
    moves = (exchange.source.clamp_min(0), places_of(exchange.source < 0))
    for name, old in list(posterior.named_parameters(recurse=False)):
        value = repacked(old, *moves, newcomers[name])
        new = nn.Parameter(value, old.requires_grad) if resized else old
        if resized:
            setattr(posterior, name, new)
        else:
            old.copy_(value)
        for optimizer in optimizers:
            _move_state(optimizer, old, new, moves)
    if resized:
        posterior.index = exchange.places
    else:
        posterior.index.copy_(exchange.places)
    return resized


def _move_state(
    optimizer: torch.optim.Optimizer,
    old: nn.Parameter,
    new: nn.Parameter,
    moves: tuple[Tensor, Tensor],
) -> None:
    """Gives `new` the entries that `old` had, in their new order."""
    size = old.shape
    if old is not new:
        for group in optimizer.param_groups:
            group["params"] = [new if p is old else p for p in group["params"]]
    if old not in optimizer.state:
        return
    state = optimizer.state.pop(old) if old is not new else optimizer.state[old]
    for key, value in state.items():
        if isinstance(value, Tensor) and value.shape == size:
            state[key] = repacked(value, *moves, 0.0)
    optimizer.state[new] = state
