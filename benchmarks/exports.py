"""How large exports are: ONNX beside .pocket files, C for a Cortex-M4, a page, the wheel of lite.

    python benchmarks/exports.py

Weights are trained on digits for some epochs, or, of C, as they start: its size depends on their
number only. C is linked for a Cortex-M4 by zig's clang with `-Os` against musl. A row is one of
"onnx", "c", "page" or "wheel". It takes some minutes.
"""

import argparse
import gzip
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from record import append_result
from torch import nn

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, open_dataset
from pocketbayes.deploy import export
from pocketbayes.layers import update_description
from pocketbayes.models import build_network

ROOT = Path(__file__).parents[1]
CORTEX_M4 = ("-target", "thumb-linux-musleabihf", "-mcpu=cortex_m4")
KINDS = ("onnx", "c", "page", "wheel")
# Of ONNX: the network, its options, the density of `Subspace`, or None: mean field.
TRAINED: dict[str, tuple[str, dict[str, Any], float | None]] = {
    "lenet5": ("lenet5", {}, None),
    "mlp, 1,000 hidden": ("mlp", {"hidden": (1000,)}, None),
    "mlp, 1,000 hidden, 5%": ("mlp", {"hidden": (1000,)}, 0.05),
}
# Of C: the network and the shape of its inputs.
FRESH: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "mlp, 64-100-10": ("mlp", {"hidden": (100,)}, (1, 8, 8)),
    "lenet5": ("lenet5", {}, (1, 28, 28)),
    "resnet20": ("resnet20", {}, (3, 32, 32)),
}


def trained(name: str, epochs: int) -> tuple[nn.Module, torch.Tensor]:
    """A network that knows digits, lenet5 in 28 x 28, and some of them."""
    kind, options, density = TRAINED[name]
    data = open_dataset("digits", "train")
    x, y = data.batch(range(len(data)))
    x = nn.functional.interpolate(x, (28, 28)) if kind == "lenet5" else x
    torch.manual_seed(0)
    net = build_network(kind, input_shape=tuple(x.shape[1:]), num_outputs=10, **options)
    loader = [(x[i : i + 100], y[i : i + 100]) for i in range(0, len(x), 100)]
    method = pb.MeanField() if density is None else pb.Subspace(density=density)
    model = pb.fit(
        pb.bayesianize_(net),
        loader,
        method,
        epochs=epochs,
        progress=False,
        likelihood="categorical",
    ).model
    return model, x[:8]


def onnx_row(name: str, epochs: int, folder: Path) -> dict[str, Any]:
    model, x = trained(name, epochs)
    made = export(model, folder / "m.onnx", example=x, estimator="moments")
    return {
        "network": name, "epochs": epochs, "bytes": made.bytes, "pocket_bytes": made.pocket_bytes,
        "graph_bytes": made.graph_bytes, "times": made.bytes / made.pocket_bytes,
    }  # fmt: skip


def c_row(name: str, estimator: str, folder: Path) -> dict[str, Any]:
    kind, options, shape = FRESH[name]
    torch.manual_seed(0)
    model = pb.bayesianize_(build_network(kind, input_shape=shape, num_outputs=10, **options))
    update_description(model, likelihood="categorical")
    x = torch.randn(2, *shape)
    size = export(model.eval(), folder / "net.c", "c", example=x, estimator=estimator).footprint
    assert size is not None
    command = [
        sys.executable, "-m", "ziglang", "cc", *CORTEX_M4, "-Os", "-std=c99", "-static",
        "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-Wl,--entry=net_predict",
        "-o", "net.elf", "net.c", "-lm",
    ]  # fmt: skip
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    told = subprocess.run(["size", "net.elf"], cwd=folder, check=True, capture_output=True)
    text, data, bss = map(int, told.stdout.split(b"\n")[1].split()[:3])
    return {
        "network": name, "estimator": estimator, "tables_bytes": size.flash_bytes,
        "buffers_bytes": size.ram_bytes, "flash_bytes": text + data, "ram_bytes": data + bss,
    }  # fmt: skip


def page_row(folder: Path) -> dict[str, Any]:
    """A page of digits: what it is without its model, and what a page of one's own loads."""
    data = open_dataset("digits", "train")
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=(1, 8, 8), num_outputs=10, hidden=(100,))
    loader = MemoryLoader(data, 100, shuffle=True)
    model = pb.fit(pb.bayesianize_(net), loader, epochs=2, progress=False).model
    made = export(model, folder / "page", "web", example=data.batch(range(8))[0])
    web = files("pocketbayes.deploy") / "web"
    parts = [(web / name).read_bytes() for name in ("pocketbayes.wasm", "pocketbayes.js")]
    packed = sum(len(gzip.compress(part, 9)) for part in parts)
    return {"bytes": made.bytes, "page_bytes": made.graph_bytes, "packed_bytes": packed}


def wheel_row(folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "--no-index", "--wheel-dir", folder, ROOT / "lite"], check=True)
    (made,) = folder.glob("*.whl")
    return {"bytes": made.stat().st_size}


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    made.add_argument("--epochs", type=int, default=10)
    a = made.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {
            "onnx": [(onnx_row, (n, a.epochs, folder)) for n in TRAINED],
            "c": [(c_row, (n, e, folder)) for n in FRESH for e in ("mean", "moments")],
            "page": [(page_row, (folder,))],
            "wheel": [(wheel_row, (folder,))],
        }
        for kind in a.kinds:
            for measure, given in rows[kind]:
                append_result("exports", row=kind, **measure(*given))  # type: ignore[operator]


if __name__ == "__main__":
    main()
