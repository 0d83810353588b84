"""Files that were written in an older format, in today's: the same models, smaller.

    python benchmarks/resaved.py FOLDER

A folder stands for all its files. Each is loaded and saved again, and what comes back must be the
same in every bit; so all that was measured of the older file holds for the new one.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from prediction import files
from record import append_result

import pocketbayes as pb


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("paths", nargs="+", type=Path)
    for path in [file for given in made.parse_args().paths for file in files(given)]:
        report(path)


def report(path: Path) -> None:
    """One line."""
    before = pb.inspect(path)
    with tempfile.TemporaryDirectory() as folder:
        model, new = pb.load(path), Path(folder) / path.name
        now = pb.save(model, new)
        require_same(model.state_dict(), pb.load(new).state_dict(), path)
    append_result(
        "resaved", file=path.name, file_bytes=before.bytes, file_version=before.version,
        bytes_now=now.bytes, version_now=now.version,
    )  # fmt: skip


def require_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], path: Path) -> None:
    """Every number the same, bit for bit."""
    if {k: bits(v) for k, v in one.items()} != {k: bits(v) for k, v in other.items()}:
        raise SystemExit(f"{path} comes back as another model")


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    """All that a tensor is; 0 and -0 differ."""
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return tensor.dtype, tensor.shape, data


if __name__ == "__main__":
    main()
