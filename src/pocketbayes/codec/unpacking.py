"""Sections to tensors: those in steps array by array, means side by side with their log-stds."""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from torch import Tensor

from pocketbayes.codec.arrays import Spec, tensor_of
from pocketbayes.codec.codings import CODINGS
from pocketbayes.codec.file_views import Data
from pocketbayes.codec.float_codings import steps_in, values_of_steps
from pocketbayes.codec.jobs import Array, Job, Steps
from pocketbayes.codec.layout import WITH_STEP, given_away, partner
from pocketbayes.codec.tokens import Integers
from pocketbayes.errors import FormatError

_OF_FLOATS = (*WITH_STEP, "half", "half planes")
_OF_INTEGERS = ("integers", "exceptions", "rising")


class Stored(NamedTuple):
    """What is known of a section: its arrays' names and types, and how it is coded."""

    arrays: tuple[str, ...]
    specs: list[Spec]
    coding: str
    step: float | None


class Unpacker:
    """Decodes every section as far as it was asked for, and then forgets its bytes."""

    def __init__(self, sections: Mapping[str, Stored], data: Mapping[str, Data]) -> None:
        self._sections = sections
        self._home = {array: name for name, s in sections.items() for array in s.arrays}
        self._logs = {name: _logs_for(name, sections) for name in sections}
        self._queues = {logs: deque[Integers]() for logs in self._logs.values() if logs}
        self._streams = {name: self._stream(name, data[name]) for name in sections}
        self._found: dict[str, Tensor] = {}

    def take(self, array: str) -> Tensor:
        """An array, once; every error names its section."""
        while array not in self._found:
            self._advance(self._home[array])
        return self._found.pop(array)

    def _advance(self, section: str) -> None:
        """Decodes what comes next in a section, and before it the log-stds that it goes with."""
        logs, stored = self._logs[section], self._sections[section]
        if logs is not None and not self._queues[logs]:
            self._advance(logs)
        count = 1 if stored.coding in WITH_STEP else None
        try:
            self._found |= islice(self._streams[section], count)
            if stored.arrays[-1] in self._found:
                next(self._streams.pop(section), None)  # checks the end of the bytes
        except FormatError as error:
            raise FormatError(f"section {section}: {error}") from error

    def _stream(self, section: str, data: Data) -> Iterator[tuple[str, Tensor]]:
        """The arrays, which it does not keep; behind the last the end of the bytes is checked."""
        names, specs, coding, _ = self._sections[section]
        if coding in _OF_FLOATS and not all(spec.is_float for spec in specs):
            raise FormatError(f"{coding} is a coding of floats")
        if coding in _OF_INTEGERS and any(spec.is_float for spec in specs):
            raise FormatError(f"{coding} is a coding of integers")
        if coding in WITH_STEP and any(spec.item_bytes < 4 for spec in specs):
            raise FormatError(f"{coding} is no coding of numbers that are as short")
        decoded = self._decoded(section, data)
        for name, spec in zip(names, specs, strict=True):
            yield name, tensor_of(next(decoded), spec)
        if next(decoded, None) is not None:
            raise AssertionError("arrays are left over")

    def _decoded(self, section: str, data: Data) -> Iterator[Array]:
        _, specs, coding, step = self._sections[section]
        logs, job = self._logs[section], Job(specs, step)
        if logs is not None:
            job = job._replace(log_stds=self._log_stds(logs))
        if section not in self._queues:
            yield from CODINGS[coding].decode(data, job)
            return
        for k, spec in zip(steps_in(data, job), specs, strict=True):
            self._queues[section].append(k)
            yield values_of_steps(k, spec, job)

    def _log_stds(self, logs: str) -> Steps:
        step = self._sections[logs].step
        assert step is not None
        return Steps(given_away(self._queues[logs]), step)


def _logs_for(name: str, sections: Mapping[str, Stored]) -> str | None:
    """The section with the log-stds that the means of this one are coded relative to."""
    stored, logs = sections[name], sections.get(partner(name) or "")
    if stored.coding != "relative" or logs is None or logs.coding != "steps":
        return None
    fits = [s.numel for s in logs.specs] == [s.numel for s in stored.specs]
    return partner(name) if fits else None
