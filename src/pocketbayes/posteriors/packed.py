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
    LAYOUTS,
    output_borders,
    placed_units,
    to_units,
    unit_layout,
)


class Packed(Posterior):
    """A tensor of which only some weights are there; every other weight is exactly 0.

    `index` holds the sorted numbers of the active units (see `structures`), and every parameter
    has one entry, or one row, for each. The dense tensor exists only inside a forward pass.
    """

    index: Tensor
    layout: Tensor

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
        # Part of the state, so that a state of another tensor is not taken for this one's.
        layout = torch.tensor([LAYOUTS.index(structure), *shape], device=index.device)
        self.register_buffer("layout", layout)
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
        dense = placed_units(values, self.index, tuple(self.shape), self.structure, fill)
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
        small = self.num_units < 2**31
        return {
            "index": self.index.int() if small else self.index,
            "prior_std": self.prior_std,
            "shape": torch.tensor(self.shape),
            "structure": torch.tensor(LAYOUTS.index(self.structure)),
        }

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Takes a state of another number of active weights, too, but of no other tensor."""
        stored, layout = (state_dict.get(prefix + name) for name in ("index", "layout"))
        if isinstance(stored, Tensor) and isinstance(layout, Tensor):
            if layout.tolist() != self.layout.tolist() or not rises_below(stored, self.num_units):
                error_msgs.append(f"{prefix[:-1]} is a sparse tensor of another shape or structure")
                return
            if stored.shape != self.index.shape:
                self._resize(len(stored))
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )

    def _resize(self, units: int) -> None:
        self.index = self.index.new_zeros(units)
        for name, old in list(self.named_parameters(recurse=False)):
            fresh = old.detach().new_zeros(units, *old.shape[1:])
            setattr(self, name, nn.Parameter(fresh, old.requires_grad))


def rises_below(index: Tensor, number: int) -> bool:
    """Whether these are sorted numbers of units, at least one."""
    if index.dim() != 1 or len(index) == 0:
        return False
    inside = int(index[0]) >= 0 and int(index[-1]) < number
    return inside and not bool((index[1:] <= index[:-1]).any())  # differences might wrap around


def checked_places(arrays: Mapping[str, Tensor]) -> tuple[Tensor, tuple[int, ...], str]:
    """Index, shape and structure of stored arrays, if they fit each other and the means."""
    dimensions, code = checked_shape(arrays["shape"]), arrays["structure"]
    if code.dtype != torch.int64 or code.dim() or not 0 <= int(code) < len(LAYOUTS):
        raise PocketBayesError(f"structure must be a number from 0 to {len(LAYOUTS) - 1}")
    structure = LAYOUTS[int(code)]
    index, unit = checked_index(arrays["index"], dimensions, structure)
    if arrays["mean"].shape != (len(index), *unit):
        raise PocketBayesError(
            f"mean has shape {tuple(arrays['mean'].shape)}; {len(index)} active units of "
            f"{prod(unit)} weights need {(len(index), *unit)}"
        )
    return index, dimensions, structure


def checked_shape(shape: Tensor) -> tuple[int, ...]:
    """A stored shape, if a tensor can have it."""
    if shape.dtype != torch.int64 or shape.dim() != 1 or bool((shape < 1).any()):
        raise PocketBayesError("shape must be a list of positive whole numbers")
    dimensions = tuple(shape.tolist())
    if prod(dimensions) >= 2**62:
        raise PocketBayesError(f"no tensor has the shape {dimensions}")
    return dimensions


def checked_index(
    index: Tensor, shape: tuple[int, ...], structure: str
) -> tuple[Tensor, tuple[int, ...]]:
    """Stored numbers of active units, if they are sorted and inside; and the shape of a unit."""
    if structure == "transposed" and len(shape) < 2:
        raise PocketBayesError("a transposed tensor needs two axes")
    number, unit = unit_layout(shape, structure)
    if index.dtype not in (torch.int32, torch.int64) or not rises_below(index, number):
        raise PocketBayesError(
            f"index must be whole numbers that rise and stay below {number}, the number of units"
        )
    return index.long(), unit
