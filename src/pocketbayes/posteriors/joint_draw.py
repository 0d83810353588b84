"""One draw of everything that shares a codebook, for a network that runs on the same input again.

A GPU spends longer on starting a dozen small computations per layer than on doing them; here they
are done once for the whole network.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate

import torch
from torch import Tensor

from pocketbayes.posteriors.base import Posterior
from pocketbayes.posteriors.codebook import Codebook
from pocketbayes.posteriors.gaussian import noisy
from pocketbayes.posteriors.randomness import uniform
from pocketbayes.posteriors.reuse import remembered
from pocketbayes.posteriors.shared import Shared


class JointDraw:
    """All weights of some posteriors in a row, drawn together when the first of them asks.

    Each posterior gets its part once in a pass; one that asks again draws for itself. Entries that
    are drawn once in a pass are drawn by the codebook, of which layers that cannot be reached from
    here (compiled ones, those in other threads) get the same draw. For images that lie in memory
    channels last, filters are made to lie so, too: convolutions want it.
    """

    def __init__(self, posteriors: Sequence[Shared], channels_last: bool = False) -> None:
        self._posteriors, self._codebook = dict.fromkeys(posteriors), posteriors[0].codebook
        self._counts = [q.num_active for q in posteriors]
        self._reordered = [channels_last and _is_filter(q) for q in posteriors]
        self._pair = torch.cat([q.blend_label.int() for q in posteriors]).t().contiguous()
        self._share = torch.cat([q.blend_share for q in posteriors])
        labels = zip(
            posteriors, _labels(posteriors, len(self._codebook)), self._reordered, strict=True
        )
        self._label = torch.cat([_reordered(q, k) if last else k for q, k, last in labels])
        places = zip(posteriors, _starts(self._counts), self._reordered, strict=True)
        self._blend = torch.cat([start + _places(q, last) for q, start, last in places])
        self._mean = torch.cat([self._codebook.mean, *(q.outlier_mean for q in posteriors)])
        log_std = torch.cat([self._codebook.log_std, *(q.outlier_log_std for q in posteriors)])
        self._std = log_std.exp()
        self._parts: dict[Shared, tuple[Tensor, bool]] | None = None

    def begin_pass(self) -> None:
        """Forgets the last draw."""
        self._parts = None

    def part_of(self, posterior: Shared) -> Tensor | None:
        """The weights of this posterior in this pass, unless it had them already."""
        if posterior not in self._posteriors:
            return None
        if self._parts is None:
            parts = zip(torch.split(self._drawn(), self._counts), self._reordered, strict=True)
            self._parts = dict(zip(self._posteriors, parts, strict=True))
        part = self._parts.pop(posterior, None)
        if part is None:
            return None
        if self._codebook.draw == "shared":
            self._codebook.drawn_together(posterior, None)  # which knows now that it had this draw
        return _shaped(posterior, *part)

    def _drawn(self) -> Tensor:
        """All weights; a blend first chooses which of its two entries it is this time."""
        chance = uniform(len(self._share), self._share.device)
        chosen = torch.where(chance < self._share, self._pair[0], self._pair[1])
        if self._codebook.draw == "independent":
            values, blended = noisy(*self._own, None), noisy(*self._entries(chosen), None)
        else:
            entries = self._drawn_entries()
            values, blended = (entries.index_select(0, k) for k in (self._label, chosen))
        return values.index_copy_(0, self._blend, blended)

    def _drawn_entries(self) -> Tensor:
        """The codebook's draw in this pass, and behind it that of each outlier."""
        behind = slice(len(self._codebook), None)
        outliers = noisy(self._mean[behind], self._std[behind], None)
        return torch.cat([self._codebook.drawn_together(self, None), outliers])

    @cached_property
    def _own(self) -> tuple[Tensor, Tensor]:
        """Mean and std of every weight; those of blends mean nothing."""
        return self._entries(self._label)

    def _entries(self, label: Tensor) -> tuple[Tensor, Tensor]:
        return self._mean.index_select(0, label), self._std.index_select(0, label)


def joint_draws(posteriors: Iterable[Posterior], channels_last: bool = False) -> list[JointDraw]:
    """A draw for each codebook that some of these look into, known to them in this repetition."""
    by_codebook: dict[Codebook, list[Shared]] = {}
    for q in dict.fromkeys(posteriors):
        if isinstance(q, Shared):
            by_codebook.setdefault(q.codebook, []).append(q)
    return [
        remembered(("joint draw", codebook), partial(JointDraw, members, channels_last))
        for codebook, members in by_codebook.items()
    ]


def _labels(posteriors: Sequence[Shared], entries: int) -> Iterator[Tensor]:
    """Labels, those of outliers counted on from the last entry."""
    firsts = _starts([len(q.outlier) for q in posteriors])
    for q, first in zip(posteriors, firsts, strict=True):
        behind = torch.arange(len(q.outlier), dtype=torch.int32, device=q.label.device)
        label = q.label.to(torch.int32, copy=True)
        yield label.index_copy_(0, q.outlier, behind + (entries + first))


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *accumulate(counts)][:-1]


def _is_filter(posterior: Shared) -> bool:
    return posterior.index is None and len(posterior.shape) == 4


def _reordered(posterior: Shared, values: Tensor) -> Tensor:
    """Values of a filter's weights, channels last."""
    return values.view(posterior.shape).permute(0, 2, 3, 1).reshape(-1)


def _places(posterior: Shared, channels_last: bool) -> Tensor:
    """Where the blends lie."""
    if not channels_last:
        return posterior.blend
    _, inputs, height, width = posterior.shape
    pixels, channels = posterior.blend % (height * width), posterior.blend // (height * width)
    return (channels // inputs * (height * width) + pixels) * inputs + channels % inputs


def _shaped(posterior: Shared, values: Tensor, channels_last: bool) -> Tensor:
    if not channels_last:
        return posterior.placed(values)
    outputs, inputs, height, width = posterior.shape
    return values.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
