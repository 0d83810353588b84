"""What sparse posteriors share: places of the active weights, and the dense tensor on demand."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.posteriors.base import Posterior
from pocketbayes.posteriors.structures import (
    STRUCTURES,
    from_units,
    output_borders,
    to_units,
    unit_layout,
)


class Packed(Posterior):
    """A tensor of which only some weights are there; every other weight is exactly 0.

    `index` holds the sorted numbers of the active units (see `structures`), and every parameter
    has one entry, or one row, for each. The dense tensor exists only inside a forward pass.
    """

    index: Tensor

    def __init__(
        self,
        index: Tensor,
        mean: Tensor,
        shape: torch.Size | tuple[int, ...],
        prior_std: float | Tensor,
        structure: str = "none",
        trainable: bool = True,
    ) -> None:
        super().__init__(prior_std, like=mean)
        self.register_buffer("index", index)
        self.mean = nn.Parameter(mean, trainable)
        self.structure = structure
        self._shape = torch.Size(shape)
        self._recorded: list[Tensor] | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight tensor."""
        return self._shape

    @property
    def num_active(self) -> int:
        """Weights that are there."""
        return self.mean.numel()

    @property
    def num_units(self) -> int:
        """Units of the tensor, active or not."""
        return unit_layout(tuple(self.shape), self.structure)[0]

    def borders(self) -> Tensor:
        """The first unit of each output, or block of outputs, and the end."""
        return self.index.new_tensor(output_borders(tuple(self.shape), self.structure))

    def in_units(self, dense: Tensor) -> Tensor:
        """A dense tensor of the weight's shape as all its units."""
        return to_units(dense, self.structure)

    def expectation(self) -> Tensor:
        """E[w]: the mean of an active weight, else 0."""
        return self.placed(self.mean, record=True)

    def placed(self, values: Tensor, fill: float = 0.0, record: bool = False) -> Tensor:
        """Packed values at their places in a dense tensor, which is `fill` elsewhere."""
        units = values.new_full((self.num_units, *values.shape[1:]), fill)
        units = units.index_copy(0, self.index, values)
        dense = from_units(units, tuple(self.shape), self.structure)
        if record and self._recorded is not None:
            self._recorded.append(dense)
        return dense

    @contextmanager
    def recorded(self) -> Iterator[list[Tensor]]:
        """Collects every dense weight made inside: a loss has gradients at the zeros of those."""
        self._recorded = []
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def packed_arrays(self) -> dict[str, Tensor]:
        """What all sparse families store besides their parameters."""
        return {
            "index": self.index,
            "prior_std": self.prior_std,
            "shape": torch.tensor(self.shape),
            "structure": torch.tensor(STRUCTURES.index(self.structure)),
        }

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Takes a state of another number of active weights, too."""
        stored = state_dict.get(prefix + "index")
        if isinstance(stored, Tensor) and stored.shape != self.index.shape:
            self.index = self.index.new_zeros(stored.shape)
            for name, old in list(self.named_parameters(recurse=False)):
                fresh = old.new_zeros(len(stored), *old.shape[1:])
                setattr(self, name, nn.Parameter(fresh, old.requires_grad))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def checked_places(arrays: Mapping[str, Tensor]) -> tuple[Tensor, tuple[int, ...], str]:
    """Index, shape and structure of stored arrays, if they fit each other and the means."""
    index, shape, code = (arrays[name] for name in ("index", "shape", "structure"))
    if shape.dtype != torch.int64 or shape.dim() != 1 or bool((shape < 1).any()):
        raise PocketBayesError("shape must be a list of positive whole numbers")
    if code.dtype != torch.int64 or code.dim() or not 0 <= int(code) < len(STRUCTURES):
        raise PocketBayesError(f"structure must be a number from 0 to {len(STRUCTURES) - 1}")
    dimensions, structure = tuple(shape.tolist()), STRUCTURES[int(code)]
    if prod(dimensions) >= 2**62:
        raise PocketBayesError(f"no tensor has the shape {dimensions}")
    number, unit = unit_layout(dimensions, structure)
    if index.dtype != torch.int64 or index.dim() != 1 or len(index) == 0:
        raise PocketBayesError("index must be whole numbers, at least one")
    if arrays["mean"].shape != (len(index), *unit):
        raise PocketBayesError(
            f"mean has shape {tuple(arrays['mean'].shape)}; {len(index)} active units of "
            f"{prod(unit)} weights need {(len(index), *unit)}"
        )
    inside = int(index[0]) >= 0 and int(index[-1]) < number
    if not inside or bool((index.diff() < 1).any()):
        raise PocketBayesError(f"index must rise and stay below {number}, the number of units")
    return index.clone(), dimensions, structure
