"""Random numbers for each image by its number: no matter which others are drawn with it."""

import math

import torch
from torch import Tensor

# Steele, Lea and Flood (2014), "Fast splittable pseudorandom number generators": SplitMix64.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


class Draws:
    """A stream of random numbers for each image, on any device.

    Each is a function of the seed, the image's number, and how much was drawn for it before.

    Args:
        seed: a whole number of up to 64 bits.
        first: the number of the first image.
        count: how many images.
        device: where the numbers will lie.
    """

    def __init__(self, seed: int, first: int, count: int, device: torch.device) -> None:
        numbers = torch.arange(first, first + count, device=device)
        self._streams = _mixed(_mixed(numbers * _STEP).add_(_signed(seed))).unsqueeze(1)
        self._used = 0

    def uniform(self, *shape: int) -> Tensor:
        """float64 in [0, 1) of (images, *shape)."""
        words = self._words(math.prod(shape))
        return _shifted(words, 11).double().mul_(2.0**-53).view(-1, *shape)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal float32 of (images, *shape), by Box and Muller; none is beyond 5.8."""
        count = math.prod(shape)
        words = self._words((count + 1) // 2)
        radius = _shifted(words, 40).float().add_(1).mul_(2.0**-24).log_().mul_(-2).sqrt_()
        angle = (words & 0xFFFFFF).float().mul_(2.0**-24 * math.tau)
        pairs = torch.cat([radius * angle.cos(), radius * angle.sin()], 1)
        return pairs[:, :count].reshape(-1, *shape)

    def _words(self, count: int) -> Tensor:
        places = torch.arange(1, count + 1, device=self._streams.device).add_(self._used)
        self._used += count
        return _mixed(self._streams + places.mul_(_STEP))


def _mixed(words: Tensor) -> Tensor:
    """SplitMix64's scrambling of 64-bit words, in place."""
    words.bitwise_xor_(_shifted(words, 30)).mul_(_FIRST)
    words.bitwise_xor_(_shifted(words, 27)).mul_(_SECOND)
    return words.bitwise_xor_(_shifted(words, 31))


def _shifted(words: Tensor, bits: int) -> Tensor:
    """Words moved right, with zeros from the left: torch's own shift repeats the sign."""
    return (words >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63
