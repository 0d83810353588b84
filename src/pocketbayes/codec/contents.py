"""What a file holds: named arrays, coded in sections or, in version 1, as they are."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor

from pocketbayes.codec.arrays import TYPES, Spec, spec_in, spec_of
from pocketbayes.codec.codings import CODINGS
from pocketbayes.codec.container import Container
from pocketbayes.codec.file_views import FileView, appended
from pocketbayes.codec.layout import WITH_STEP, Options, Packer, grouped
from pocketbayes.codec.unpacking import Stored, Unpacker
from pocketbayes.errors import FormatError

_LEAST_ROOM, _GROWTH = 1 << 30, 256  # bytes that any file may unfold to; times its own size
_LEAST_ARRAYS, _BYTES_PER_ARRAY = 1 << 15, 64  # as many as any file may name; or one for so many


@dataclass(frozen=True)
class Part:
    """One stored section; its bound and the nats lost are known to who writes it."""

    name: str
    coding: str
    bytes: int
    bound: float | None
    arrays: tuple[str, ...]
    nats: float | None = None


@dataclass
class Contents:
    """The arrays of a file. Each is decoded when first asked for, and given away."""

    file: Container
    specs: dict[str, Spec]
    parts: tuple[Part, ...]
    _unpacker: Unpacker | None = None

    def take(self, name: str) -> Tensor:
        """An array of the file, once."""
        spec = self.specs[name]
        if self._unpacker is None:
            return self.file.tensors.pop(name)
        if spec.numel == 0:
            return torch.empty(spec.shape, dtype=TYPES[spec.dtype])
        return self._unpacker.take(name)


class CodedArrays(NamedTuple):
    """What the description says of arrays, their sections, types, and how these are coded."""

    description: dict[str, Any]
    sections: dict[str, FileView]
    specs: dict[str, Spec]
    parts: tuple[Part, ...]


def coded(
    arrays: Mapping[str, Tensor],
    families: Mapping[str, str],
    options: Options,
    room: IO[bytes],
    exact: Collection[str] = (),
) -> CodedArrays:
    """Arrays as coded sections, those with exact ones as they are, in a file of no name yet."""
    packer, sections, said, parts = Packer(options), {}, {}, []
    specs = {name: _storable(name, tensor) for name, tensor in arrays.items()}
    for name, members in grouped(specs, families).items():
        is_exact = any(member in exact for member in members)
        made = packer.section(name, [arrays[member] for member in members], is_exact)
        sections[name] = appended(room, made.coded.pieces)
        said[name] = {"coding": made.coding} | ({} if made.step is None else {"step": made.step})
        size, bound = len(sections[name]), made.coded.bound
        parts.append(Part(name, made.coding, size, bound, tuple(members), made.nats))
        del made  # its bytes are on disk now
    words = nested({name: spec.word() for name, spec in specs.items()})
    return CodedArrays({"arrays": words, "sections": said}, sections, specs, tuple(parts))


def _storable(name: str, tensor: Tensor) -> Spec:
    """Type and shape of a tensor, if a file can hold it."""
    spec, rest = spec_of(tensor), name.partition("/")[2]
    if spec.dtype not in TYPES or tensor.layout != torch.strided:
        what = spec.dtype if tensor.layout == torch.strided else f"{tensor.layout} tensor"
        raise FormatError(
            f"{rest} is a {what.removeprefix('torch.')}, which a file does not hold: convert it to "
            f"a plain tensor of one of {', '.join(TYPES)}"
        )
    if tensor.is_meta:
        raise FormatError(f"{rest} has no values: it lies on the meta device")
    return spec


def contents_of(file: Container) -> Contents:
    """The arrays of a file, none of them decoded yet."""
    if file.version == 1:
        specs = {name: _known(name, tensor) for name, tensor in file.tensors.items()}
        parts = [Part(name, "raw", t.nbytes, None, (name,)) for name, t in file.tensors.items()]
        return Contents(file, specs, tuple(parts))
    words = _flattened(file.description)
    _require_few(len(words), file.size)
    specs = {name: _spec(name, word) for name, word in words}
    require_room(specs, file.size)
    families = file.description.get("posteriors")
    groups = grouped(specs, families if isinstance(families, dict) else {})
    said = file.description.get("sections")
    if not isinstance(said, dict) or not said.keys() == groups.keys() == file.sections.keys():
        raise FormatError("its sections are not those that its arrays belong to")
    stored, parts = dict[str, Stored](), []
    for name, members in groups.items():
        coding, step = _checked(name, said[name])
        stored[name] = Stored(tuple(members), [specs[m] for m in members], coding, step)
        parts.append(Part(name, coding, len(file.sections[name]), None, tuple(members)))
    return Contents(file, specs, tuple(parts), Unpacker(stored, file.sections))


def require_room(specs: Mapping[str, Spec], size: int) -> None:
    """An error if a file of so many bytes may not hold so many arrays, or such large ones."""
    _require_few(len(specs), size)
    room = sum(spec.numel * spec.item_bytes for spec in specs.values())
    if room > max(_LEAST_ROOM, _GROWTH * size):
        raise FormatError(f"its arrays would take {room:,} bytes: more than a file of its size may")


def _require_few(arrays: int, size: int) -> None:
    most = max(_LEAST_ARRAYS, size // _BYTES_PER_ARRAY)
    if arrays > most:
        raise FormatError(f"it has {arrays:,} arrays: more than the {most:,} of a file of its size")


def _known(name: str, tensor: Tensor) -> Spec:
    spec = spec_of(tensor)
    if spec.dtype not in TYPES:
        raise FormatError(f"{name} is {spec.dtype}; a file holds one of {', '.join(TYPES)}")
    return spec


def _spec(name: str, word: object) -> Spec:
    try:
        return spec_in(word)
    except FormatError as error:
        raise FormatError(f"array {name}: {error}") from error


def _checked(name: str, said: Any) -> tuple[str, float | None]:
    """Coding and step of a section whose description is well formed."""
    step = said.get("step") if isinstance(said, dict) else None
    good = isinstance(said, dict) and said.keys() <= {"coding", "step"}
    good = good and isinstance(said.get("coding"), str) and said["coding"] in CODINGS
    good = good and (step is None or (isinstance(step, float) and 1e-9 < step < 1e3))
    if not good:
        raise FormatError(f"section {name}: its coding is none that this library knows")
    if step is None and said["coding"] in WITH_STEP:
        raise FormatError(f"section {name}: it does not say its step")
    return said["coding"], step


def nested(words: Mapping[str, str]) -> dict[str, Any]:
    """posterior/TENSOR/ARRAY as {"posterior": {TENSOR: {ARRAY: ...}}}, state/TENSOR likewise."""
    tree: dict[str, Any] = {}
    for name, word in words.items():
        kind, _, rest = name.partition("/")
        home = tree.setdefault(kind, {})
        if kind == "state":
            home[rest] = word
        else:
            tensor, _, array = rest.rpartition("/")
            home.setdefault(tensor, {})[array] = word
    return tree


def _flattened(description: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The names and words of such a tree."""
    tree = description.get("arrays")
    if not isinstance(tree, dict) or not tree.keys() <= {"posterior", "table", "state"}:
        raise FormatError("arrays must be an object of posteriors, tables and state")
    found = []
    for kind, home in tree.items():
        for tensor, inside in home.items() if isinstance(home, dict) else ():
            if kind == "state":
                found.append((f"state/{tensor}", inside))
            else:
                pairs = inside.items() if isinstance(inside, dict) else ()
                found += [(f"{kind}/{tensor}/{array}", word) for array, word in pairs]
    return found
