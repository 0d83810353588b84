"""What the reader of the library says of a file, and files that nobody should send."""

import copy
import hashlib
import importlib.util
import io
import json
import re
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

import pocketbayes as pb
from pocketbayes.codec.container import unpacked
from pocketbayes.codec.contents import coded, contents_of
from pocketbayes.codec.deflate import deflated
from pocketbayes.codec.header import header_of
from pocketbayes.codec.heads import require_finite_part, require_head
from pocketbayes.codec.layout import Options
from pocketbayes.codec.sections import posteriors_in

CODEC_TESTS = Path(__file__).parent / "codec" / "test_files.py"


def accepts(data: bytes) -> bool:
    """Whether the library reads a file, but for its program and network."""
    try:
        contents = contents_of(unpacked(io.BytesIO(data)))
        header = header_of(contents)
        for _ in posteriors_in(contents, header):
            pass
        require_head(header)
        for name in header.state:
            tensor = contents.take(f"state/{name}")
            if header.model.one_pass is not None and name.startswith("one_pass_"):
                require_finite_part(name, tensor)
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


def opened(good):
    file = unpacked(io.BytesIO(good))
    description = {k: v for k, v in file.description.items() if k != "sha256"}
    return file, copy.deepcopy(description)


def tensors_of(sections):
    return {k: torch.tensor(list(v.read()), dtype=torch.uint8) for k, v in sections.items()}


FIRST = ("version", "sha256", "model", "members")


def sealed(description, sections, pack=deflated):
    """The file as docs/format.md has it, made by safetensors."""
    said = {"version": 3, "sha256": "0" * 64} | description
    short = {k: v for k, v in said.items() if k in FIRST}
    long = {k: v for k, v in said.items() if k not in FIRST}
    return with_texts(compact(short), pack(compact(long).encode()), sections)


def compact(said):
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def with_texts(short, long, sections):
    """The file with these two texts, the second as bytes, or None: without it."""
    tensors = {name: tensor.contiguous() for name, tensor in sections.items()}
    if long is not None:
        tensors["description"] = torch.tensor(list(long), dtype=torch.uint8)
    data = safetensors.torch.save(tensors, {"pocketbayes": short})
    return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1)


def forged(good, change):
    """A file with a right checksum and a description or arrays of an attacker's choice."""
    file, description = opened(good)
    contents = contents_of(file)
    arrays = {name: contents.take(name) for name in contents.specs}
    change(description, arrays)
    families = description.get("posteriors")
    families = families if isinstance(families, dict) else {}
    made = coded(arrays, families, Options(1e-3, lossless=True), io.BytesIO())
    return sealed(description | made.description, tensors_of(made.sections))


def crafted(good, change):
    """A file with a right checksum and coded bytes of an attacker's choice."""
    file, description = opened(good)
    sections = tensors_of(file.sections)
    change(description, sections)
    return sealed(description, sections)


def by_zlib(level):
    def pack(text):
        made = zlib.compressobj(level, wbits=-15)
        return made.compress(text) + made.flush()

    return pack


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


def nested(depth: int) -> list:
    """Lists inside of each other, so many."""
    found: list = []
    for _ in range(depth - 1):
        found = [found]
    return found


def with_model(**fields: object) -> Callable[[dict, dict], None]:
    """A change of what the description says of the model."""
    return lambda description, sections: description["model"].update(fields)


def with_names(count: int) -> Callable[[dict, dict], None]:
    """As many more arrays, all empty."""
    names = {f"{number:x}": "0" for number in range(count)}
    return lambda description, sections: description["arrays"]["state"].update(names)


def with_posteriors(count: int) -> Callable[[dict, dict], None]:
    """As many more names of posteriors, which have no arrays."""
    names = {f"{number:x}": "point" for number in range(count)}
    return lambda description, sections: description["posteriors"].update(names)


def crafted_by_zlib(good: bytes, change: Callable[[dict, dict], None]) -> bytes:
    """As `crafted`; our own DEFLATE would take minutes for megabytes of names."""
    file, description = opened(good)
    sections = tensors_of(file.sections)
    change(description, sections)
    return sealed(description, sections, by_zlib(9))


def of_shape(*shape: int) -> Callable[[dict, dict], None]:
    """A change of the shape that the first sparse tensor stands for."""

    def change(description: dict, arrays: dict) -> None:
        name = next(name for name in arrays if name.endswith("/shape"))
        arrays[name] = torch.tensor(shape)

    return change


def with_program(description: dict, sections: dict) -> None:
    """A program beside a base that is left out."""
    description["model"]["base"] = {"sha256": "0" * 64, "tensors": 1}
    sections["program"] = torch.zeros(9, dtype=torch.uint8)


# Each loads and then hurts, says what cannot be, or takes far more than a file of its size should:
# of (the good file that it is made of, what it is made by, what is changed).
HURTS = {
    "nested": ("lossless", crafted, with_model(preprocess={"a": nested(126)})),
    "names": ("lossless", crafted, with_model(class_names=["a", "\ud800"])),
    "other half": ("lossless", crafted, with_model(preprocess={"\udfff": 1})),
    "NUL": ("lossless", crafted, with_model(class_names=["a", "b\0"])),
    "many arrays": ("lossless", crafted, with_names(1 << 15)),
    "many names": ("lossless", crafted_by_zlib, with_posteriors(700_000)),
    "2^31 weights": ("sparse", forged, of_shape(1 << 11, 1 << 20)),
    "2^28 weights": ("sparse", forged, of_shape((1 << 28) - 15)),
    "temperature": ("lossless", crafted, with_model(temperature=int("9" * 400))),
    "thresholds": ("lossless", crafted, with_model(conformal={
        "level": 0.9, "threshold": [], "shape": [int("9" * 4000)] * 9, "examples": 9,
        "num_samples": 9,
    })),
    "no head": ("lossless", crafted, with_model(one_pass={
        "places": [["output", 0, 8]], "last_variance": True, "draws": 2, "estimator": "lrt",
    })),
    "one law": ("lossless", crafted, with_model(one_law=1)),
    "digest": ("lossless", crafted, with_model(base={"sha256": "g" * 64, "tensors": 1})),
    "no tensors": ("lossless", crafted, with_model(base={"sha256": "0" * 64, "tensors": 0})),
    "base and program": ("lossless", crafted, with_program),
}  # fmt: skip
# As much as may be: these are read.
BEARABLE = {
    "nested": ("lossless", crafted, with_model(preprocess={"a": nested(125)})),
    "a pair": ("lossless", crafted, with_model(class_names=["\U0001f600", "\\ud800"])),
    "many arrays": ("lossless", crafted, with_names((1 << 15) - 8)),
    "2^28 weights": ("sparse", forged, of_shape((1 << 28) - 16)),
}


def made(attack: tuple[str, Callable, Callable], good: dict[str, bytes]) -> bytes:
    """The file of such an attack."""
    name, forge, change = attack
    data: bytes = forge(good[name], change)
    return data


def same(one: np.ndarray, other: np.ndarray, ulps: int = 0) -> bool:
    """Whether float32 arrays are equal, or this many floats apart at most."""
    one, other = (torch.as_tensor(a).float().numpy() for a in (one, other))
    if ulps == 0:
        return np.array_equal(one, other, equal_nan=True)
    apart = np.abs(one.astype(np.float64) - other)
    return bool((apart <= ulps * np.spacing(np.maximum(np.abs(one), np.abs(other)))).all())
