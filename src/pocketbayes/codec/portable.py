"""The section `program` of a file: written by tracing, checked when read, never copied."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from pocketbayes.codec.contents import Contents
from pocketbayes.codec.header import Header
from pocketbayes.errors import FormatError, ProgramError, warn
from pocketbayes.layers import home, members_of
from pocketbayes.programs import (
    Input,
    Plan,
    Program,
    channels_of,
    decoded,
    encoded,
    planned,
    positions_of,
    shape_of,
    weight_names,
)
from pocketbayes.tracing import inputs_of, program_of

_KEY = "_pocketbayes_inputs"


class Portable(NamedTuple):
    """A program that fits its file, with shapes and work, and its bytes there.

    Attributes:
        uses: of each weight matrix of the file, how often one example uses it, and its size.
    """

    program: Program
    plan: Plan
    bytes: int
    uses: Mapping[str, tuple[int, int]]

    def facts(self, active: Mapping[str, int]) -> dict[str, Any]:
        """As plain values, with so many weights of each posterior being there."""
        uses = self.uses.items()
        return {
            "operations": len(self.program.operations),
            "bytes": self.bytes,
            "inputs": [list(given.shape) for given in self.program.inputs],
            "output": list(self.plan.shapes[self.program.output.number]),
            "products": self.plan.work,
            "multiplications": {
                "dense": sum(positions * size for _, (positions, size) in uses),
                "sparse": sum(
                    positions * active.get(name, size) for name, (positions, size) in uses
                ),
            },
        }


def section_of(
    model: nn.Module,
    example: Tensor | tuple[Tensor, ...] | None,
    posteriors: Iterable[str],
    state: Iterable[str],
) -> bytes | None:
    """The program of a model for inputs like the example, or as in the file it came from."""
    names = weight_names(posteriors, state, len(members_of(model)))
    if example is not None:
        return encoded(program_of(model, inputs_of(example), names, example))
    known: Sequence[Input] | None = home(model).__dict__.get(_KEY)
    if known is None:
        return None
    try:
        return encoded(program_of(model, known, names))
    except ProgramError as error:
        warn(f"the file is written without the program that it had: {error}")
        return None


def remember_inputs(model: nn.Module, file: Portable | None) -> None:
    """Notes for the next `save` that the file had a program, and for which inputs."""
    home(model).__dict__.pop(_KEY, None)
    if file is not None:
        home(model).__dict__[_KEY] = file.program.inputs


def portable_in(
    file: Contents, header: Header, posteriors: Mapping[str, Sequence[int]]
) -> Portable | None:
    """The program of a file whose posteriors have these shapes, if it has one; or an error."""
    data = file.file.program
    if data is None:
        return None
    shapes = {name: tuple(shape) for name, shape in posteriors.items()}
    shapes |= {name: file.specs[f"state/{name}"].shape for name in header.state}
    names = weight_names(header.posteriors, header.state, header.members)
    prefixes = [f"members.{k}." if header.members > 1 else "" for k in range(header.members)]
    try:
        program = decoded(data)
        weights = [shapes[prefixes[0] + name] for name in names]
        plan = planned(program, weights)
        _require_places(program, plan, weights, header)
    except FormatError as error:
        raise FormatError(f"section program: {error}") from error
    uses = {
        prefix + names[number]: (positions, math.prod(weights[number]))
        for prefix in prefixes
        for number, positions in positions_of(program, plan.shapes, weights).items()
    }
    return Portable(program, plan, len(data), uses)


def _require_places(
    program: Program, plan: Plan, weights: Sequence[tuple[int, ...]], header: Header
) -> None:
    """As many places as the one-pass head has, each with its channels."""
    head = header.model.one_pass
    wanted = [] if head is None else [place[2] for place in head["places"]]
    found = [
        channels_of(shape_of(place.operand, plan.shapes, weights), place.channels)
        for place in program.places
    ]
    if found != wanted:
        raise FormatError("its places are not those of the one-pass head")
