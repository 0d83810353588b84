"""Models and their files: how large these are, what comes back from them, and making them fit."""

import copy
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torch import nn

import pocketbayes as pb
from pocketbayes.compression.choosing import best_fitting, searched
from pocketbayes.methods import Method

# A model after so many epochs of a method.
Fit = Callable[[nn.Module, Method, int], nn.Module]


def file_bytes(model: nn.Module) -> int:
    """What its file takes."""
    with tempfile.TemporaryDirectory() as folder:
        return pb.save(model, Path(folder) / "model.pocket").bytes


def reopened(
    model: nn.Module,
    device: str,
    path: Path | None = None,
    net: Callable[[], nn.Module] | None = None,
) -> tuple[nn.Module, pb.FileSummary]:
    """The model as it comes back from its file, which is kept where asked to, and its summary.

    A file that cannot name its network needs `net`, which makes it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = path or Path(folder) / "model.pocket"
        size = pb.save(model, path)
        return pb.load(path, net and net()).to(device), size


def sharing_to_fit(
    fit: Fit, model: nn.Module, method: pb.Sharing, target: int
) -> pb.Sharing | None:
    """The method whose file, before fine-tuning, is the largest of at most so many bytes.

    Its own count leaves out what is not weights, so it is corrected. None: no file is so small.
    """

    def to(value: float) -> pb.Sharing:
        return replace(method, objective="rate_distortion", target_bytes=round(value))

    def measured(value: float) -> int:
        trial = replace(to(value), refresh_norms=False)  # their statistics hardly change the size
        return file_bytes(fit(copy.deepcopy(model), trial, 0))

    tried = searched(measured, target, target, 1.0, (target / 20, 2.0 * target), steps=8)
    best = best_fitting(tried, target)
    if best is None:
        least = min(t.size for t in tried)
        print(f"no file has {target:,} bytes: the least has {least:,}", file=sys.stderr)
        return None
    return to(best.value)
