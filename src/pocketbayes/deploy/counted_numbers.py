"""Random numbers as a function of a seed, the number of a draw, and a place in it.

A graph keeps no state, and its numbers must not depend on who runs it. So each number is a mixed
counter of 31 bits: three times

    x -> x xor floor(x / 2^s),    x -> C x mod 2^31,    C odd, below 2^31,

with keys of the draw xored in before the first and the second. Both are bijections. Products stay
below 2^62, and their lower 31 bits are the same where a runtime makes int32 of int64 and wraps.
"""

import math

import torch
from torch import Tensor

_BITS = 0x7FFFFFFF
_ROUNDS = ((15, 0x2C1B3C6D), (12, 0x297A2D39), (15, 0x31848BAB))
_LAST_SHIFT = 14
_APART = 0x1E3779B9  # between what the two keys of a draw are made of


def _mixed(x: Tensor, key: Tensor | int) -> Tensor:
    """The counter mixed, with the second key after the first round."""
    for number, (shift, factor) in enumerate(_ROUNDS):
        x = ((x ^ _halved(x, shift)) * factor) & _BITS
        x = x ^ key if number == 0 else x
    return x ^ _halved(x, _LAST_SHIFT)


def _halved(x: Tensor, times: int) -> Tensor:
    """floor(x / 2^times) by way of float32, which holds the bits that stay; others lack shifts."""
    return _high_bits(x, times).long()


def _high_bits(x: Tensor, times: int) -> Tensor:
    return (x & (_BITS >> times << times)).float() * 2.0**-times


class CountedNumbers:
    """A maker of numbers for one draw, whose places go on from call to call."""

    def __init__(self, seed: Tensor, draw: Tensor) -> None:
        first = _mixed(_mixed(seed & _BITS, 0) ^ draw, 1)
        self._keys = first, _mixed((first + _APART) & _BITS, 2)
        self._used = 0

    def __call__(self, like: Tensor, kind: str) -> Tensor:
        """Numbers of this kind in the shape of the tensor; of "bernoulli" it holds the chances."""
        count = like.numel()
        places = torch.arange(self._used, self._used + count, device=like.device)
        self._used = self._used + count
        bits = _mixed(places ^ self._keys[0], self._keys[1]).view(like.shape)
        if kind == "normal":
            return _normal(bits)
        uniform = _high_bits(bits, 7) * 2.0**-24
        return (uniform < like).to(like.dtype) if kind == "bernoulli" else uniform


def _normal(bits: Tensor) -> Tensor:
    """Box and Muller's sqrt(-2 log u) cos(2 pi v), u of 16 bits, v of 15: at most 4.9."""
    u, v = (_high_bits(bits, 15) + 0.5) * 2.0**-16, (bits & 0x7FFF).float()
    return (-2 * u.log()).sqrt() * (v * (2 * math.pi / (1 << 15))).cos()
