"""Hostile files: `load` and `inspect` refuse them or do their work, and never anything else.

    python benchmarks/fuzz.py --mutations 1000000
    python benchmarks/fuzz.py --engine atheris --mutations 1000000
    python benchmarks/fuzz.py --engine c --mutations 100000

Each mutation takes a small good file of some family, changes its description (or the bytes of it),
its coded bytes or its safetensors header, mends the checksum (an attacker can, too), and reads it.
Anything but a `FormatError` or a model is a finding: it is stored and counted, as are loads that
take long; any other file counts as what `load` made of it. With atheris (`pip install atheris`) the
bytes are chosen by what they reach in the library's code. With c the C engine reads them, compiled
so that it stops at whatever C does not define; of one in ten the library is asked, too, and another
verdict than its own is a finding.
"""

import argparse
import copy
import io
import json
import math
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
from record import append_result
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.codec import container
from pocketbayes.codec.container import packed, unpacked
from pocketbayes.codec.deflate import deflated
from pocketbayes.codec.file_views import file_view_of
from pocketbayes.methods import METHODS
from pocketbayes.models import build_network

_SLOW = 2.0
KINDS = ("bytes", "deflate", "description", "description", "section", "section", "section")
_STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 1e308, 0.5, "", "x" * 99, [], {}, [[]], "int64:999999x999",
    "raw", "planes", "half planes", "integers", "exceptions", "rising", "steps", "relative",
)  # fmt: skip


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--mutations", type=int, default=10_000)
    made.add_argument("--seconds", type=float, default=math.inf)
    made.add_argument("--engine", default="random", choices=("random", "atheris", "c"))
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--findings", type=Path, default=Path("findings"))
    a = made.parse_args()
    torch.set_num_threads(1)
    good = good_files()
    begin, seen = time.perf_counter(), Counter[str]()

    def done() -> bool:
        """Whether that was enough; then it has been recorded."""
        seconds = time.perf_counter() - begin
        if sum(seen.values()) < a.mutations and seconds < a.seconds:
            return False
        append_result(
            "fuzz", engine=a.engine, mutations=sum(seen.values()), outcomes=dict(seen),
            seed=a.seed, seconds=seconds,
            peak_bytes=1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        )  # fmt: skip
        return True

    if a.engine == "atheris":
        with_atheris(a, good, seen, done)
    chance = random.Random(a.seed)
    if a.engine == "c":
        with_c(a, good, seen, done)
        return
    while not done():
        name = chance.choice(sorted(good))
        number = f"{a.seed}-{sum(seen.values())}"
        seen[tried(mutated(good[name], chance), a.findings, number)] += 1


def good_files() -> dict[str, bytes]:
    """One small file for each method, small and lossless."""
    x = torch.randn(40, 6)
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), 20)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in METHODS.items():
            model = pb.bayesianize_(network())
            own = {"density": 0.5} if name in ("rigl", "subspace") else {}
            own = {"least_members": 1, "blend_beyond": 2.0} if name == "sharing" else own
            model = pb.fit(model, loader, kind(**own), epochs=1, progress=False).model
            for lossless in (True, False):
                path = Path(folder) / "m.pocket"
                pb.save(model, path, lossless=lossless)
                found[f"{name}-{lossless}"] = path.read_bytes()
    return found


def network() -> nn.Module:
    return build_network("mlp", input_shape=(6,), num_outputs=2, hidden=(8,), dropout=0.2)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The file with one to three changes of some kind."""
    kind = chance.choice(KINDS)
    if kind == "bytes":
        return harmed(data, chance)
    file = unpacked(io.BytesIO(data))
    description = json.loads(json.dumps(file.description))
    description.pop("sha256")
    sections = {name: bytes(section.read()) for name, section in file.sections.items()}
    for _ in range(chance.randint(1, 3)):
        if kind == "section":
            name = chance.choice(sorted(sections))
            sections[name] = harmed(sections[name], chance) or bytes(1)
        elif kind == "description":
            altered(description, chance)
    stretches = {name: file_view_of(section) for name, section in sections.items()}
    harm = (lambda text: harmed(deflated(text), chance)) if kind == "deflate" else deflated
    with patch.object(container, "deflated", harm):
        pieces, _ = packed(description, stretches)
    return b"".join(bytes(piece.read()) for piece in pieces)


def harmed(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data) + 1)
    kind = chance.choice(("flip", "set", "cut", "insert", "repeat"))
    if kind == "cut":
        return data[:place]
    if kind == "insert":
        return data[:place] + chance.randbytes(chance.randint(1, 8)) + data[place:]
    if kind == "repeat":
        return data[:place] + data[chance.randrange(len(data) + 1) :]
    value = bytes([chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))])
    if kind == "flip" and place < len(data):
        value = bytes([data[place] ^ (1 << chance.randrange(8))])
    return data[:place] + value + data[place + 1 :]


def altered(node: Any, chance: random.Random) -> None:
    """Changes, removes or adds something somewhere in a tree of JSON."""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and chance.random() < 0.8:
            node = node[key]
            continue
        if chance.random() < 0.2:
            del node[key]
        elif isinstance(node[key], str) and chance.random() < 0.5:
            node[key] = harmed(node[key].encode(), chance).decode("latin-1")
        else:
            node[key] = copy.deepcopy(chance.choice(_STRANGE))
        return


def tried(
    data: bytes,
    findings: Path,
    name: str,
    readers: tuple[Callable[[str], object], ...] = (pb.inspect, pb.load),
) -> str:
    """What became of one file, in a word: what the last of these readers says."""
    begin = time.perf_counter()
    with tempfile.NamedTemporaryFile(suffix=".pocket", dir="/dev/shm") as file:
        file.write(data)
        file.flush()
        outcomes = [_read(reader, file.name) for reader in readers]
    outcome = next((word for word in outcomes if word.startswith("finding")), outcomes[-1])
    if time.perf_counter() - begin > _SLOW:
        outcome = "finding: slow"
    if outcome.startswith("finding"):
        findings.mkdir(exist_ok=True)
        (findings / f"{name}.pocket").write_bytes(data)
    return outcome


def _read(read: Callable[[str], object], path: str) -> str:
    try:
        read(path)
    except pb.FormatError:
        return "refused"
    except Exception as error:
        return f"finding: {type(error).__name__}"
    return "model"


def with_atheris(
    a: argparse.Namespace, good: dict[str, bytes], seen: Counter[str], done: Callable[[], bool]
) -> None:
    """Lets coverage of the library's code choose the seed of each mutation; ends the process."""
    import atheris

    names = sorted(good)

    def one(choice: bytes) -> None:
        provider = atheris.FuzzedDataProvider(choice)
        chance = random.Random(provider.ConsumeUInt(8))
        name = names[provider.ConsumeIntInRange(0, len(names) - 1)]
        seen[tried(mutated(good[name], chance), a.findings, f"atheris-{sum(seen.values())}")] += 1
        if done():
            os._exit(0)  # libFuzzer would not come back

    modules = [m for n, m in list(sys.modules.items()) if n.startswith("pocketbayes.codec")]
    for module in modules:
        kinds = [k for k in vars(module).values() if isinstance(k, type)]
        for home in (module, *(k for k in kinds if k.__module__ == module.__name__)):
            for key, value in list(vars(home).items()):
                if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                    setattr(home, key, atheris.instrument_func(value))
    atheris.Setup([sys.argv[0]], one)
    atheris.Fuzz()


def with_c(
    a: argparse.Namespace, good: dict[str, bytes], seen: Counter[str], done: Callable[[], bool]
) -> None:
    """Lets the C engine read the files, some hundred at a time."""
    chance, names = random.Random(a.seed), sorted(good)
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder) / "verdicts")
        while not done():
            files = [mutated(good[chance.choice(names)], chance) for _ in range(500)]
            stream = b"".join(struct.pack("<I", len(data)) + data for data in files)
            found = subprocess.run([program], input=stream, capture_output=True)
            said = found.stdout.decode(errors="replace").splitlines()
            outcomes = ["model" if word == "read" else "refused" for word in said]
            if found.returncode:
                outcomes.append("finding: stopped")
                sys.stderr.buffer.write(found.stderr)
            for number, (data, outcome) in enumerate(zip(files, outcomes, strict=False)):
                name = f"c-{a.seed}-{sum(seen.values())}"
                if number % 10 == 0 and outcome != tried(data, a.findings, name, (pb.inspect,)):
                    outcome = "finding: another verdict"
                if outcome.startswith("finding"):
                    a.findings.mkdir(exist_ok=True)
                    (a.findings / f"{name}.pocket").write_bytes(data)
                seen[outcome] += 1


def compiled(program: Path) -> Path:
    """The engine's reader as a program, with sanitisers."""
    root = Path(__file__).parents[1]
    sources = [p for p in root.glob("engine/*.c") if "int main(" not in p.read_text()]
    options = ["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    places = [f"-I{root / 'engine'}", root / "tests" / "engine" / "verdicts.c", *sources]
    subprocess.run(["cc", *options, *places, "-lm", "-o", program], check=True)
    return program


if __name__ == "__main__":
    main()
