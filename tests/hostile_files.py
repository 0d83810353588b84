"""What the reader of the library says of a file, and files that nobody should send."""

import hashlib
import importlib.util
import io
import json
import re
import struct
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch

import pocketbayes as pb
from pocketbayes.codec.container import unpacked
from pocketbayes.codec.contents import contents_of
from pocketbayes.codec.header import header_of
from pocketbayes.codec.sections import posteriors_in

CODEC_TESTS = Path(__file__).parent / "codec" / "test_files.py"


def accepts(data: bytes) -> bool:
    """Whether the library reads a file, but for its program and network."""
    try:
        contents = contents_of(unpacked(io.BytesIO(data)))
        header = header_of(contents)
        for _ in posteriors_in(contents, header):
            pass
        for name in header.state:
            tensor = contents.take(f"state/{name}")
            is_head = header.model.one_pass is not None and name.startswith("one_pass_")
            if is_head and not bool(tensor.isfinite().all()):
                return False
    except pb.FormatError:
        return False
    return contents.file.version == 3


def verdicts(program: Path, files: Iterable[bytes]) -> list[str]:
    """What the engine says of files: "read", or an error."""
    stream = b"".join(struct.pack("<I", len(data)) + data for data in files)
    done = subprocess.run([program], input=stream, capture_output=True)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    return done.stdout.decode(errors="replace").splitlines()


def mended(data: bytes) -> bytes:
    """The file with a right checksum, if it still has a place for one."""
    size = min(8 + int.from_bytes(data[:8], "little"), len(data))
    found = re.search(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"', data[:size])
    if found is None:
        return data
    blank = data[: found.start(1)] + b"0" * 64 + data[found.end(1) :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return data[: found.start(1)] + digest + data[found.end(1) :]


def flipped(data: bytes) -> Iterator[bytes]:
    """The file with each of its bits flipped, and the checksum mended."""
    for place in range(len(data)):
        for bit in range(8):
            yield mended(data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :])


def known_attacks(good: dict[str, bytes]) -> Iterator[bytes]:
    """The hostile files of the codec's own tests, made of good ones."""
    spec = importlib.util.spec_from_file_location("codec_tests", CODEC_TESTS)
    tests = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests)

    def cases(test: object) -> list:
        marks = (m for m in test.pytestmark if m.name == "parametrize")
        return [getattr(case, "values", case) for m in marks for case in m.args[1]]

    for harm, _ in cases(tests.test_damaged_files_are_refused):
        yield harm(good["lossless"])
    for change in cases(tests.test_forged_files_are_refused):
        yield tests.forged(good["lossless"], change)
    for change, _ in cases(tests.test_crafted_codes_are_refused):
        yield tests.crafted(good["small"], change)
    for change in cases(tests.test_log_stds_beyond_all_bounds_are_refused_at_once):
        yield tests.crafted(good["small"], change)
    for change in cases(tests.test_forged_codebooks_are_refused):
        yield tests.forged(good["shared"], change)
    file, said = tests.opened(good["lossless"])
    short = {"sha256": "0" * 64} | {k: v for k, v in said.items() if k in tests.FIRST}
    long = json.dumps({k: v for k, v in said.items() if k not in tests.FIRST}).encode()
    for pack, _ in cases(tests.test_crafted_descriptions_are_refused):
        yield tests.with_texts(tests.compact(short), pack(long), tests.tensors_of(file.sections))
    for level in (0, 1, 9):
        yield tests.sealed(said, tests.tensors_of(file.sections), tests.by_zlib(level))
    for size in (16_000_001, 2**40, 2**63):
        yield struct.pack("<Q", size) + good["lossless"][8:]


def same(one: np.ndarray, other: np.ndarray, ulps: int = 0) -> bool:
    """Whether float32 arrays are equal, or this many floats apart at most."""
    one, other = (torch.as_tensor(a).float().numpy() for a in (one, other))
    if ulps == 0:
        return np.array_equal(one, other, equal_nan=True)
    apart = np.abs(one.astype(np.float64) - other)
    return bool((apart <= ulps * np.spacing(np.maximum(np.abs(one), np.abs(other)))).all())
