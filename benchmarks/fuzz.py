"""Hostile files: `load` and `inspect` refuse them or do their work, and never anything else.

    python benchmarks/fuzz.py --mutations 1000000
    python benchmarks/fuzz.py --engine atheris --mutations 1000000
    python benchmarks/fuzz.py --engine c --mutations 100000

Each mutation takes a small good file of some family, changes what it says, its arrays, shapes,
names and nesting, or the bytes of any part of it, mends the checksum (an attacker can, too), and
reads it: see `forging.py`. What is read is also told, and predicts, where its inputs are small.
Anything but a `FormatError` or a model is a finding: it is stored and counted, as are files that
take long, or more memory than docs/format.md promises, or that end the process. With atheris (`pip
install atheris`) the bytes are chosen by what they reach in the library's code. With c the C engine
reads them, compiled so that it stops at whatever C does not define; of one in ten the library is
asked, too, and another verdict than its own is a finding.
"""

import argparse
import json
import math
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from bounded import DEAD, ROOM, TooLong, end_on_alarm, in_a_child, limit_memory
from forging import mutated
from good_files import Parts, good_files, own_network, taken_apart
from record import append_result
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import describe

_SLOW, _SLOW_PER_BYTE, _HANGS = 2.0, 5e-7, 60  # seconds: of the processor, of the clock
_WEIGHTS, _WEIGHTS_PER_BYTE = 1 << 28, 64  # as docs/format.md promises
_LARGEST_INPUT, _IN_ONE_PROCESS = 1 << 16, 1000


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--mutations", type=int, default=10_000)
    made.add_argument("--seconds", type=float, default=math.inf)
    made.add_argument("--engine", default="random", choices=("random", "atheris", "c"))
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--findings", type=Path, default=Path("findings"))
    a = made.parse_args()
    torch.set_num_threads(1)
    good = {name: taken_apart(data) for name, data in good_files(a.engine != "c").items()}
    begin, seen = time.perf_counter(), Counter[str]()

    def done() -> bool:
        """Whether that was enough; then it has been recorded."""
        seconds = time.perf_counter() - begin
        if sum(seen.values()) < a.mutations and seconds < a.seconds:
            return False
        whose = resource.RUSAGE_SELF if a.engine == "atheris" else resource.RUSAGE_CHILDREN
        append_result(
            "fuzz", engine=a.engine, mutations=sum(seen.values()), outcomes=dict(seen),
            seed=a.seed, seconds=seconds,
            peak_bytes=1024 * resource.getrusage(whose).ru_maxrss,
        )  # fmt: skip
        return True

    ways = {"atheris": with_atheris, "c": with_c, "random": with_chance}
    ways[a.engine](a, good, seen, done)


def with_chance(
    a: argparse.Namespace, good: dict[str, Parts], seen: Counter[str], done: Callable[[], bool]
) -> None:
    """Reads files in a process of its own, whose memory and time are bounded."""

    def one(number: int) -> str:
        return tried(forged(a, good, number), a.findings, name(a, number), READERS)

    while not done():
        first = sum(seen.values())
        count = min(_IN_ONE_PROCESS, a.mutations - first)
        outcomes = in_a_child(one, first, count)
        number = first + len(outcomes)
        if len(outcomes) < count:  # it ended at the next one: others may have had the processor
            outcomes += in_a_child(one, number, 1)
            if number == first + len(outcomes):
                keep_finding(forged(a, good, number), a.findings, name(a, number))
                outcomes.append("finding: the end of the process")
        seen.update(outcomes)


def forged(a: argparse.Namespace, good: dict[str, Parts], number: int) -> bytes:
    """The file of this number: the same whenever it is asked for."""
    chance = random.Random(f"{a.seed}-{number}")
    return mutated(good[chance.choice(sorted(good))], chance)


def name(a: argparse.Namespace, number: int) -> str:
    return f"{a.engine}-{a.seed}-{number}"


Reader = Callable[[str], object]


def tried(data: bytes, findings: Path, name: str, readers: tuple[Reader, ...]) -> str:
    """What became of one file, in a word; `load` is not asked what `inspect` refuses."""
    begin = time.perf_counter()
    path = f"/dev/shm/fuzz-{os.getpid()}.pocket"
    with open(path, "wb") as file:
        file.write(data)
    for reader in readers:
        outcome = _patiently(reader, path)
        if outcome != "model":
            break
    most = _SLOW + _SLOW_PER_BYTE * len(data)
    if time.perf_counter() - begin > most and seconds_of_work(path, readers) > most:
        outcome = f"finding: slow {outcome.removeprefix('finding: ')}"
    if outcome.startswith("finding"):
        keep_finding(data, findings, name)
    return outcome


def seconds_of_work(path: str, readers: tuple[Reader, ...]) -> float:
    """Of the processor, once more: others may have had it while the clock went on."""
    begin = time.process_time()
    for reader in readers:
        _read(reader, path)
    return time.process_time() - begin


def keep_finding(data: bytes, findings: Path, name: str) -> None:
    findings.mkdir(exist_ok=True)
    (findings / f"{name}.pocket").write_bytes(data)


def told(path: str) -> None:
    """All that is told of a file can be printed and encoded."""
    summary = pb.inspect(path)
    f"{summary}\n{json.dumps(summary.to_dict(), ensure_ascii=False)}".encode()


def used(path: str) -> None:
    """A model that loads has weights, and predicts or says why not, within memory and time."""
    model = loaded(path)
    weights = sum(posterior.shape.numel() for _, posterior in pb.named_posteriors(model))
    if weights > max(_WEIGHTS, _WEIGHTS_PER_BYTE * os.path.getsize(path)):
        raise MemoryError
    try:
        shape = input_shape(model)
        if math.prod(shape) <= _LARGEST_INPUT:
            prediction = pb.predict(model, torch.zeros(2, *shape), 2)
            f"{prediction} {getattr(prediction, 'prediction_set', None)}"
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # a shape, too, may be anything
        if "memory" in str(error):
            raise


def loaded(path: str) -> nn.Module:
    """The model in what the file names, or in a network of one's own, which errors leave alone."""
    try:
        return pb.load(path, allow=("timm", "transformers"))
    except pb.FormatError:
        net = own_network()
        try:
            return pb.load(path, net)
        except pb.FormatError:
            if not same(net, own_network()):
                raise AssertionError("a refused file changed the network") from None
            raise


def same(net: nn.Module, other: nn.Module) -> bool:
    """Whether both have the same modules and numbers."""
    kinds = [[(name, type(m)) for name, m in n.named_modules()] for n in (net, other)]
    states = [n.state_dict() for n in (net, other)]
    return (
        kinds[0] == kinds[1]
        and states[0].keys() == states[1].keys()
        and all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    )


def input_shape(model: nn.Module) -> tuple[Any, ...]:
    """Of one example, as the model's network says, be that numbers or not."""
    network = describe(model).network or {"name": "", "options": {}}
    if network["name"].startswith("timm:"):
        return (network["options"].get("in_chans", 3), 4, 4)
    if network["name"].startswith("transformers:"):
        found = network["options"]["config"]
        sides = found.get("image_size", 4)
        sides = sides if isinstance(sides, list) else [sides] * 2
        return (found.get("num_channels", 1), *sides)
    return tuple(network["options"].get("input_shape", (6,)))


READERS = (told, used)


def _patiently(read: Callable[[str], object], path: str) -> str:
    """The outcome; asked up to three times while others have the processor."""
    for _ in range(3):
        begin = time.process_time()
        outcome = _read(read, path)
        if outcome != "finding: TooLong" or time.process_time() - begin > _HANGS / 10:
            break
    return outcome


def _read(read: Callable[[str], object], path: str) -> str:
    signal.alarm(_HANGS)
    try:
        read(path)
    except pb.FormatError:
        return "refused"
    except (Exception, TooLong) as error:
        return f"finding: {type(error).__name__}"
    finally:
        signal.alarm(0)
    return "model"


def with_atheris(
    a: argparse.Namespace, good: dict[str, Parts], seen: Counter[str], done: Callable[[], bool]
) -> None:
    """Lets coverage of the library's code choose the seed of each mutation; ends the process."""
    import atheris

    names = sorted(good)
    limit_memory()
    end_on_alarm()

    def one(choice: bytes) -> None:
        provider = atheris.FuzzedDataProvider(choice)
        chance = random.Random(provider.ConsumeUInt(8))
        kind = names[provider.ConsumeIntInRange(0, len(names) - 1)]
        seen[
            tried(mutated(good[kind], chance), a.findings, name(a, sum(seen.values())), READERS)
        ] += 1
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
    a: argparse.Namespace, good: dict[str, Parts], seen: Counter[str], done: Callable[[], bool]
) -> None:
    """Lets the C engine read the files, some hundred at a time."""
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder) / "verdicts")
        while not done():
            first = sum(seen.values())
            files = [forged(a, good, first + k) for k in range(min(500, a.mutations - first))]
            outcomes = verdicts(program, files)
            for number, said in asked(files[: len(outcomes) : 10], a, first):
                if said != outcomes[number] and not outcomes[number].startswith("finding"):
                    outcomes[number] = f"finding: the library says {said}"
            for number, outcome in enumerate(outcomes):
                if outcome.startswith("finding"):
                    keep_finding(files[number], a.findings, name(a, first + number))
            seen.update(outcomes)


def asked(files: list[bytes], a: argparse.Namespace, first: int) -> Iterator[tuple[int, str]]:
    """What the library says of every tenth file, by its place among all of them."""
    words = in_a_child(
        lambda k: tried(files[k], a.findings, name(a, first + 10 * k), (told,)), 0, len(files)
    )
    yield from ((10 * k, word) for k, word in enumerate(words))


def verdicts(program: Path, files: list[bytes]) -> list[str]:
    """What the engine says of files; after a finding it begins anew."""
    found: list[str] = []
    bounds = os.environ | {"ASAN_OPTIONS": f"hard_rss_limit_mb={ROOM >> 20}"}
    while len(found) < len(files):
        rest = files[len(found) :]
        stream = b"".join(struct.pack("<I", len(data)) + data for data in rest)
        try:
            done = subprocess.run(
                [program], input=stream, capture_output=True, env=bounds, timeout=DEAD * 5
            )
            said, fault = done.stdout, done.stderr if done.returncode else b""
        except subprocess.TimeoutExpired as error:
            said, fault = error.stdout or b"", b"it hangs\n"
        words = said.decode(errors="replace").splitlines()
        found += ["model" if word == "read" else "refused" for word in words]
        if len(words) < len(rest):
            sys.stderr.buffer.write(fault)
            found.append("finding: stopped")
    return found


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
