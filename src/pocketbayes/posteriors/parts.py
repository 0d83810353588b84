"""The parts of shared weights besides their labels, and checks of those that come from files."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from pocketbayes.errors import PocketBayesError
from pocketbayes.posteriors.base import require_real_arrays
from pocketbayes.posteriors.packed import checked_index, checked_shape, rises_below
from pocketbayes.posteriors.structures import LAYOUTS

LABEL_TYPES = (torch.uint8, torch.int16, torch.int32)


@dataclass(frozen=True)
class Support:
    """Which weights are there: sorted numbers of units, and what a unit is (see `structures`)."""

    index: Tensor
    structure: str


class Outliers(NamedTuple):
    """Weights with a Gaussian of their own: places among the weights, means and log-stds."""

    place: Tensor
    mean: Tensor
    log_std: Tensor


class Blends(NamedTuple):
    """Weights between two entries: places, the two labels of each, and the share of the first."""

    place: Tensor
    label: Tensor
    share: Tensor


def no_outliers(like: Tensor) -> Outliers:
    """Every weight shares."""
    none = like.detach().new_empty(0)
    return Outliers(none.long(), none, none.clone())


def no_blends(like: Tensor) -> Blends:
    """No weight lies between two entries."""
    none = like.detach().new_empty(0)
    return Blends(none.long(), none.int().view(0, 2), none)


def checked_support(arrays: Mapping[str, Tensor]) -> tuple[tuple[int, ...], Support | None, int]:
    """Shape, support (None: all weights are there) and number of weights that are there."""
    shape, code, index = checked_shape(arrays["shape"]), arrays["structure"], arrays["index"]
    if code.dtype != torch.int64 or code.dim() or not -1 <= int(code) < len(LAYOUTS):
        raise PocketBayesError(f"structure must be a number from -1 to {len(LAYOUTS) - 1}")
    if int(code) == -1:
        if index.shape != (0,):
            raise PocketBayesError("index must be empty where all weights are there")
        return shape, None, prod(shape)
    structure = LAYOUTS[int(code)]
    index, unit = checked_index(index, shape, structure)
    return shape, Support(index, structure), len(index) * prod(unit)


def checked_outliers(arrays: Mapping[str, Tensor], like: Tensor) -> Outliers:
    """The outliers, if there is one mean and log-std for each, in the codebook's type."""
    mean, log_std = arrays["outlier_mean"].clone(), arrays["outlier_log_std"].clone()
    require_real_arrays(mean, log_std)
    if mean.dim() != 1 or mean.dtype != like.dtype or mean.shape != arrays["outlier"].shape:
        raise PocketBayesError("outliers need a place, a mean and a log-std each")
    return Outliers(_places(arrays["outlier"], "outlier"), mean, log_std)


def checked_blends(arrays: Mapping[str, Tensor], like: Tensor) -> Blends:
    """The blends, if each has a place, two labels of the codebook, and a share from 0 to 1."""
    share, label, place = arrays["blend_share"], arrays["blend_label"], arrays["blend"]
    places, number = _places(place, "blend"), len(place)
    require_labels(label, len(like), (number, 2), "blend_label")
    if share.dtype != like.dtype or share.shape != (number,):
        raise PocketBayesError("blends need one share each")
    if not bool(((share >= 0) & (share <= 1)).all()):
        raise PocketBayesError("the share of a blend must lie between 0 and 1")
    return Blends(places, label.clone(), share.clone())


def label_type(entries: int) -> torch.dtype:
    """The smallest integer type for labels below `entries`."""
    return torch.uint8 if entries <= 2**8 else torch.int16 if entries <= 2**15 else torch.int32


def require_labels(label: Tensor, entries: int, shape: tuple[int, ...], name: str) -> None:
    """An error unless these are numbers of entries, in this shape."""
    if label.dtype not in LABEL_TYPES or label.shape != shape:
        raise PocketBayesError(
            f"{name} has {label.dtype} of shape {tuple(label.shape)}; integers of {shape} are meant"
        )
    if label.numel() and not 0 <= int(label.min()) <= int(label.max()) < entries:
        raise PocketBayesError(f"{name} must stay below {entries}, the entries of the codebook")


def are_below(label: Tensor | None, mean: Tensor | None) -> bool:
    """Whether these labels, if there are any, name entries of a codebook with these means."""
    if label is None or mean is None or label.numel() == 0:
        return True
    return 0 <= int(label.min()) <= int(label.max()) < len(mean)


def require_separate(outlier: Tensor, blend: Tensor, number: int) -> None:
    """An error unless all places differ and exist."""
    taken = torch.cat([outlier, blend]).sort().values
    if len(taken) and not rises_below(taken, number):
        raise PocketBayesError("an outlier or blend lies outside, or is named twice")


def _places(places: Tensor, name: str) -> Tensor:
    if places.dtype != torch.int32 or places.dim() != 1:
        raise PocketBayesError(f"{name} must be a list of places")
    return places.long()
