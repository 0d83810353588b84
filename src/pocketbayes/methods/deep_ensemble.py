"""Deep ensembles: several plain networks from different starts."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar, cast

import torch
from torch import nn

from pocketbayes.errors import PocketBayesError, require_count
from pocketbayes.layers import NOISES, named_posteriors
from pocketbayes.methods.base import make_points_
from pocketbayes.methods.deterministic import Deterministic
from pocketbayes.posteriors import Packed, Posterior, Shared, SpikeSlab


@dataclass(frozen=True, kw_only=True)
class DeepEnsemble(Deterministic):
    """Trains `members` deterministic networks; a prediction averages over them.

    The first member starts from the weights given, the others from fresh ones: each module's own
    `reset_parameters()` is called, children before parents. `fit` returns the ensemble as
    `result.model`, a new model.

    Attributes:
        members: number of networks.
    """

    restarts: ClassVar[bool] = True

    members: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self.members, f"{type(self).__name__}.members", least=2)

    def member(self) -> Deterministic:
        """How one member is trained."""
        return Deterministic(**{f.name: getattr(self, f.name) for f in fields(Deterministic)})


@torch.no_grad()
def restart_(model: nn.Module) -> None:
    """Draws all weights of a network anew, by the rules of its own modules; frozen ones stay.

    Raises:
        PocketBayesError: a module has parameters but no `reset_parameters`.
    """
    _require_resets(model)
    make_points_(model)
    frozen = [(p, p.clone()) for p in model.parameters() if not p.requires_grad]
    for module in reversed(list(model.modules())):
        reset = _reset_of(module)
        if reset is not None:
            reset()
    for parameter, value in frozen:
        parameter.copy_(value)


def _require_resets(model: nn.Module) -> None:
    """Every parameter needs a module, its own or one around it, that can draw it anew."""
    if any(
        isinstance(posterior, Packed | Shared | SpikeSlab)
        for _, posterior in named_posteriors(model)
    ):
        raise PocketBayesError(
            "a deep ensemble starts every member afresh, which a sparse, shared or spike-and-slab "
            "network cannot: train the members one by one, each from a network of its own"
        )
    covered: set[int] = set()
    for module in model.modules():
        if _reset_of(module) is not None:
            covered |= {id(inner) for inner in module.modules()}
    for name, module in model.named_modules():
        own = [n for n, p in module._parameters.items() if p is not None and n not in NOISES]
        if own and id(module) not in covered and not isinstance(module, Posterior):
            raise PocketBayesError(
                f"a deep ensemble needs fresh weights, but {name or 'the network'} "
                f"({type(module).__name__}) has no reset_parameters(): give it one"
            )


def _reset_of(module: nn.Module) -> Callable[[], None] | None:
    for name in ("reset_parameters", "_reset_parameters"):
        if callable(getattr(module, name, None)):
            return cast(Callable[[], None], getattr(module, name))
    return None
