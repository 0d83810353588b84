"""Memory of Bayesian training in units of deterministic training of the same large network.

    python benchmarks/memory.py                       # writes benchmarks/results/memory.jsonl
    python benchmarks/memory.py --networks resnet50 --batch 4 --device cuda

Both train by AdamW on the same random batch, two steps, each in a process of its own: `fit` by
`MeanField`, and a loop of torch's. Networks begin at random. `tensor_bytes` is the most that
tensors hold at once, network included: on a CPU as torch's profiler counts every allocation, which
is the same on every machine; on a GPU as its allocator does. `resident_bytes` is by how much the
process grows above what it is with torch alone. A last process converts, saves and loads.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from record import append_result, peak_memory
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import pocketbayes as pb
from pocketbayes.models import build_network

VOCABULARY, CONTEXT, SEQUENCE = 50_257, 1024, 256
SETTINGS = {"plain": (False, 1), "checkpointed, two batches a step": (True, 2)}


class Block(nn.Module):
    """Causal attention and two layers, each normalised before and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read, self.write = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        parts = self.read(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.write(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT2(nn.Module):
    """The smallest GPT-2, of 124M weights; its head is its embedding. Classes are dim 1."""

    def __init__(self, width: int = 768, heads: int = 12, depth: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the next words."""
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x))).transpose(1, 2)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vit-b16": partial(build_network, "vit-b16", num_outputs=1000),
    "resnet50": partial(build_network, "resnet50", input_shape=(3, 224, 224), num_outputs=1000),
    "gpt2": GPT2,
}


def batch_of(name: str, size: int, device: str) -> tuple[Tensor, Tensor]:
    """Images and classes, or words and those that follow."""
    if name == "gpt2":
        words = torch.randint(VOCABULARY, (size, SEQUENCE + 1))
        return words[:, :-1].to(device), words[:, 1:].to(device)
    return torch.randn(size, 3, 224, 224).to(device), torch.randint(1000, (size,)).to(device)


def computes_again(net: nn.Module) -> None:
    """Lets every block compute its activations again for the gradient."""
    for module in net.modules():
        if type(module).__name__ in ("Block", "EncoderBlock", "Bottleneck"):
            module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def train_deterministic(net: nn.Module, batch: tuple[Tensor, Tensor], accumulate: int) -> None:
    """Two steps of a plain loop."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x, y = batch
    for _ in range(2):
        for _ in range(accumulate):
            loss = F.cross_entropy(net(x), y) / accumulate
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def train_bayesian(net: nn.Module, batch: tuple[Tensor, Tensor], accumulate: int) -> None:
    """The same steps of `fit`."""
    model = pb.bayesianize_(net)
    method = pb.MeanField(lr=1e-4)
    device = batch[0].device.type
    options = {"epochs": 1, "accumulate": accumulate, "progress": False, "device": device}
    pb.fit(model, [batch] * (2 * accumulate), method, precision="fp32", **options)


def measured(kind: str, name: str, setting: str, size: int, device: str) -> dict[str, float]:
    """Seconds of two steps in this process, and its bytes, without a trace."""
    torch.manual_seed(0)
    before = peak_memory()["peak_bytes"]
    seconds = trained(kind, name, setting, size, device)
    found = {"resident_bytes": peak_memory()["peak_bytes"] - before, "seconds": seconds}
    if device == "cuda":
        found["tensor_bytes"] = torch.cuda.max_memory_allocated()
    return found


def traced(kind: str, name: str, setting: str, size: int, device: str) -> dict[str, float]:
    """Most bytes of tensors at once, on a CPU, as the profiler counts them, which takes memory."""
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        trained(kind, name, setting, size, device)
    return {"tensor_bytes": highest_level(trace)}


def trained(kind: str, name: str, setting: str, size: int, device: str) -> float:
    """Builds a network and trains it; seconds of the latter."""
    again, accumulate = SETTINGS[setting]
    net = NETWORKS[name]().to(device)
    if again:
        computes_again(net)
    batch = batch_of(name, size, device)
    begin = time.perf_counter()
    train = train_bayesian if kind == "bayesian" else train_deterministic
    train(net, batch, accumulate)
    return time.perf_counter() - begin


def highest_level(trace: profile) -> int:
    """Most bytes allocated at once, above what there was when the trace began."""
    level = highest = 0
    found = (e for e in trace.profiler.kineto_results.events() if e.name() == "[memory]")
    for event in sorted(found, key=lambda e: e.start_ns()):
        level += event.nbytes()
        highest = max(highest, level)
    return highest


def stored(name: str) -> dict[str, float]:
    """Seconds to convert, save and load, and the file's bytes."""
    torch.manual_seed(0)
    net, begin = NETWORKS[name](), time.perf_counter()
    model = pb.bayesianize_(net)
    converted = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.pocket"
        pb.save(model, path)
        saved = time.perf_counter()
        with torch.device("meta"):
            empty = NETWORKS[name]()
        started = time.perf_counter()
        pb.load(path, empty.to_empty(device="cpu"), max_weights=10**9)
        loaded = time.perf_counter()
        size = path.stat().st_size
    return {
        "parameters": sum(math.prod(q.shape) for _, q in pb.named_posteriors(model)),
        "convert_seconds": converted - begin,
        "save_seconds": saved - converted,
        "load_seconds": loaded - started,
        "bytes": size,
    }


def elsewhere(*words: str) -> dict[str, float]:
    """What a fresh process measures."""
    command = [sys.executable, __file__, "--one", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str, setting: str, size: int, device: str) -> None:
    """One row: both kinds of training."""
    kinds = ("deterministic", "bayesian")
    words = name, setting, str(size), device
    plain, own = (elsewhere("measured", kind, *words) for kind in kinds)
    if device == "cpu":
        for found, kind in zip((plain, own), kinds, strict=True):
            found |= elsewhere("traced", kind, *words)
    ratios = {f"{key.removesuffix('_bytes')}_ratio": own[key] / plain[key] for key in own}
    append_result(
        "memory", task="training", network=name, setting=setting, batch=size, device=device, seed=0,
        **own, **{f"deterministic_{key}": value for key, value in plain.items()}, **ratios,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS], default=[*NETWORKS])
    parser.add_argument("--settings", nargs="+", choices=[*SETTINGS], default=[*SETTINGS])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-files", action="store_true", help="train only")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    if a.one:
        job, *words = a.one
        if job == "stored":
            found = stored(*words)
        else:
            kind, name, setting, size, device = words
            of = {"measured": measured, "traced": traced}[job]
            found = of(kind, name, setting, int(size), device)
        print(json.dumps(found))
        return
    for name in a.networks:
        for setting in a.settings:
            compare(name, setting, a.batch, a.device)
        if not a.no_files:
            append_result("memory", task="files", network=name, seed=0, **elsewhere("stored", name))


if __name__ == "__main__":
    main()
