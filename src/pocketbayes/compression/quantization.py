"""Post-training quantisation of Gaussian posteriors: the rival of sharing weights."""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, require_count
from pocketbayes.layers import forget_calibration, head_kept, named_posteriors
from pocketbayes.posteriors import Gaussian, Sparse

_RANGES = 3  # numbers per tensor: the means' scale, the least and the largest log-std


@dataclass(frozen=True)
class Quantization:
    """What `quantize_` did.

    Attributes:
        weights: number of weights that were rounded.
        mean_bits: bits of each mean.
        std_bits: bits of each std.
        packed_bytes: of these numbers packed tightly, with three 32-bit numbers per tensor;
            places of a sparse network left out. Not the size of a file.
    """

    weights: int
    mean_bits: int
    std_bits: int
    packed_bytes: int


@torch.no_grad()
def quantize_(model: nn.Module, mean_bits: int = 8, std_bits: int = 4) -> Quantization:
    """Rounds means and stds of every Gaussian posterior, in place.

    Each tensor's means go to 2^bits - 1 even steps between -m and m, m the largest |mean|; its
    log-stds to the centres of 2^bits even cells between the least and the largest.

    Example:
        >>> quantize_(model, std_bits=2).packed_bytes
    """
    require_count(mean_bits, "mean_bits", least=2)
    require_count(std_bits, "std_bits")
    found = [q for _, q in named_posteriors(model) if isinstance(q, Gaussian | Sparse)]
    if not found:
        raise PocketBayesError("nothing to quantise: no posterior with a mean and std per weight")
    forget_calibration(model)
    with head_kept(model):
        for q in found:
            q.mean.copy_(rounded_symmetric(q.mean, mean_bits))
            q.log_std.copy_(rounded_to_centres(q.log_std, std_bits))
    weights = sum(q.num_active for q in found)
    ranges = 4 * _RANGES * len(found)
    packed = sum(ceil(q.num_active * (mean_bits + std_bits) / 8) for q in found) + ranges
    return Quantization(weights, mean_bits, std_bits, packed)


def rounded_symmetric(values: Tensor, bits: int) -> Tensor:
    """The nearest of 2^bits - 1 even steps around 0 that reach the largest absolute value."""
    scale = values.abs().max() / (2 ** (bits - 1) - 1)
    if scale == 0:
        return values
    rounded: Tensor = (values / scale).round() * scale
    return rounded


def rounded_to_centres(values: Tensor, bits: int) -> Tensor:
    """The centre of each value's cell, of 2^bits even cells from the least to the largest."""
    low, width = values.min(), (values.max() - values.min()) / 2**bits
    if width == 0:
        return values
    cell = ((values - low) / width).floor().clamp(max=2**bits - 1)
    rounded: Tensor = low + (cell + 0.5) * width
    return rounded
