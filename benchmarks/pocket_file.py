"""The file: bytes by section beside their entropy bounds, seconds and memory of save and load.

    python benchmarks/pocket_file.py --model resnet18
    python benchmarks/pocket_file.py --file trained.pocket

Without a file the posterior is drawn as in stage_two.py. Each row is one way to store it. Peak
memory is the model and what the process takes on top of it while it works, over the model's own
bytes (Linux only); each measurement runs in a process of its own.
"""

import argparse
import ctypes
import gc
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from record import append_result
from stage_two import drawn_

import pocketbayes as pb
from pocketbayes.models import build_network

ROWS: dict[str, dict[str, Any]] = {
    "default": {},
    "tolerance 0.01": {"tolerance": 0.01},
    "lossless": {"lossless": True},
}


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--model", default="resnet18")
    made.add_argument("--file", type=Path)
    made.add_argument("--repeats", type=int, default=3)
    a = made.parse_args()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        first = a.file or Path(folder) / "first.pocket"
        if a.file is None:
            torch.manual_seed(0)
            model = pb.bayesianize_(build_network(a.model))
            drawn_(model)
            pb.save(model, first, lossless=True)
        for row, options in ROWS.items():
            path = str(Path(folder) / "m.pocket")
            with context.Pool(1, maxtasksperchild=1) as alone:
                saved = alone.apply(saving, (str(first), path, options, a.repeats))
            with context.Pool(1, maxtasksperchild=1) as alone:
                loaded = alone.apply(loading, (path, a.repeats))
            name = a.model if a.file is None else a.file.name
            append_result("pocket_file", model=name, row=row, **saved, **loaded)


def saving(source: str, path: str, options: dict[str, Any], repeats: int) -> dict[str, Any]:
    """What one way to store a model takes, and what it gives."""
    model = pb.load(source)
    pb.save(pb.bayesianize_(torch.nn.Linear(2, 2)), path)
    before, seconds = forgotten_peak(), []
    for _ in range(repeats):
        begin = time.perf_counter()
        size = pb.save(model, path, **options)
        seconds.append(time.perf_counter() - begin)
    sections = [
        {"name": s.name, "coding": s.coding, "bytes": s.bytes, "bound": s.bound}
        for s in size.sections
    ]
    coded = [s for s in size.sections if s.coding != "raw"]
    return {
        "bytes": size.bytes,
        "bits_back_bytes": size.bits_back_bytes,
        "over_bound": sum(s.bytes for s in coded) / max(1.0, sum(s.bound or 0.0 for s in coded))
        - 1,
        "worst_over_bound": max(
            (s.bytes / s.bound - 1 for s in coded if s.bytes > 10_000 and s.bound), default=0.0
        ),
        "save_seconds": sorted(seconds)[repeats // 2],
        "save_peak_ratio": 1 + (peak_bytes() - before) / model_bytes(model),
        "sections": sections,
    }


def loading(path: str, repeats: int) -> dict[str, Any]:
    """What bringing it back takes."""
    pb.load(path)  # imports and the like are no part of it
    before, seconds = forgotten_peak(), []
    for _ in range(repeats):
        begin = time.perf_counter()
        model = pb.load(path)
        seconds.append(time.perf_counter() - begin)
        extra = peak_bytes() - before
        size = model_bytes(model)
        del model
    return {"load_seconds": sorted(seconds)[repeats // 2], "load_peak_ratio": extra / size}


def forgotten_peak() -> int:
    """Begins a new peak; the memory in use now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes() -> int:
    """The most memory that was in use since then."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def model_bytes(model: torch.nn.Module) -> int:
    tensors = {id(t): t for t in [*model.parameters(), *model.buffers()]}
    return sum(t.numel() * t.element_size() for t in tensors.values())


if __name__ == "__main__":
    main()
