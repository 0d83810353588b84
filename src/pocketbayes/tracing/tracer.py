"""Traces a network twice, with batches of different sizes, and checks the program by running it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pocketbayes.errors import FormatError, PocketBayesError, ProgramError
from pocketbayes.layers import (
    first_parameter,
    has_stale_head,
    head_of,
    members_of,
    noting,
    require_tensor,
)
from pocketbayes.programs import (
    FIRST,
    LAST,
    REALS,
    WHOLE_NUMBERS,
    Buffer,
    Input,
    Operation,
    Place,
    Program,
    Weight,
    planned,
    run,
)
from pocketbayes.tracing.examples import answer_to
from pocketbayes.tracing.networks import means_in, weights_in, without_numbers
from pocketbayes.tracing.value import Recorder, Traced

_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
_SAME = 1e-3  # of the largest output; rounding is far below, a wrong program far above
_SAME_IN_HALF = 0.1
_ADVICE = "save without example="


def inputs_of(example: Tensor | tuple[Tensor, ...]) -> tuple[Input, ...]:
    """Kinds and shapes of the inputs of one example, from a batch of them."""
    tensors = example if isinstance(example, tuple) else (example,)
    good = tensors and all(isinstance(t, Tensor) and t.dim() > 0 and t.numel() for t in tensors)
    if not good or len({len(t) for t in tensors}) > 1:
        raise ProgramError(
            "example must be a batch of inputs as the model sees them, x[:1] for instance, or a "
            "tuple of such tensors, one for each argument of forward"
        )
    return tuple(
        Input(REALS if t.is_floating_point() else WHOLE_NUMBERS, tuple(t.shape[1:]))
        for t in tensors
    )


def program_of(
    model: nn.Module, inputs: Sequence[Input], names: Sequence[str], example: Any = None
) -> Program:
    """The program of a network, or of each member of an ensemble, whose weights have these names.

    With an example it is run, and must give what the network gives.
    """
    found, tensors = None, example if isinstance(example, tuple) else (example,)
    for member in members_of(model):
        if example is not None:
            one = tuple(t[:1].to(first_parameter(member).device) for t in tensors)
            expected = answer_to(member, one)
        program = _of_one(member, inputs, names)
        if found not in (None, program):
            raise ProgramError(f"the members of the ensemble differ in structure: {_ADVICE}")
        found = program
        if example is not None:
            _require_same(program, member, names, one, expected)
    assert found is not None
    return found


def _of_one(network: nn.Module, inputs: Sequence[Input], names: Sequence[str]) -> Program:
    """Names that no weight has, of extra state, are numbered as in the file, and never read."""
    known = weights_in(network)
    shapes = [tuple(known[name].shape) if name in known else () for name in names]
    sizes = {n for shape in shapes for n in shape}
    sizes |= {n for given in inputs for n in given.shape}
    first, second = (p for p, _ in zip((p for p in _PRIMES if p not in sizes), "ab", strict=False))
    program = _traced(network, inputs, names, first)
    if program != _traced(network, inputs, names, second):
        raise ProgramError(
            f"what {type(network).__name__} does depends on the size of the batch, which no "
            f"portable program can hold: {_ADVICE}"
        )
    try:
        planned(program, shapes)
    except FormatError as error:
        raise ProgramError(
            f"{type(network).__name__} has no portable program ({error}): {_ADVICE}"
        ) from error
    return program


def _traced(
    network: nn.Module, inputs: Sequence[Input], names: Sequence[str], batch: int
) -> Program:
    recorder = Recorder(inputs, batch)
    copied = without_numbers(network, recorder, {name: i for i, name in enumerate(names)})
    types = {REALS: torch.float32, WHOLE_NUMBERS: torch.int64}
    given = [
        Traced(recorder, Buffer(i), said.shape, 0, types[said.kind])
        for i, said in enumerate(inputs)
    ]
    with torch.no_grad(), noting() as notes:
        try:
            output = require_tensor(copied(*given))
        except PocketBayesError:
            raise
        except Exception as error:
            raise ProgramError(
                f"the forward pass of {type(network).__name__} cannot be traced for a portable "
                f"program ({_first_line(error)}): {_ADVICE}"
            ) from error
    if not isinstance(output, Traced) or output.batch != 0 or isinstance(output.operand, Weight):
        raise ProgramError(
            f"the output of {type(network).__name__} does not have the examples along its first "
            f"axis: {_ADVICE}"
        )
    return _pruned(recorder, output.operand, _places(network, copied, notes))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _places(network: nn.Module, copied: nn.Module, notes: dict[int, Tensor]) -> list[Place]:
    """What the head reads, if there is one of the weights as they are."""
    head = head_of(network)
    if head is None or has_stale_head(network):
        return []
    found = []
    for number, place in enumerate(head.places):
        noted, layer = notes.get(number), copied.get_submodule(place.name)
        if not isinstance(noted, Traced):
            raise ProgramError(f"the network does not call {place.name!r}: {_ADVICE}")
        is_first = isinstance(layer, nn.modules.conv._ConvNd)
        found.append(Place(noted.operand, FIRST if is_first else LAST))
    return found


def _pruned(recorder: Recorder, output: Buffer, places: list[Place]) -> Program:
    """Without what nobody reads."""
    first = len(recorder.inputs)
    needed = {*_buffers([output, *(place.operand for place in places)])}
    for number in reversed(range(len(recorder.operations))):
        if Buffer(first + number) in needed:
            needed |= {*_buffers(recorder.operations[number].operands())}
    kept = [Buffer(i) for i in range(len(recorder.shapes)) if i < first or Buffer(i) in needed]
    moved: dict[Any, Any] = {old: Buffer(new) for new, old in enumerate(kept)}

    def renumbered(operand: Any) -> Any:
        return moved.get(operand, operand) if isinstance(operand, Buffer) else operand

    operations = [recorder.operations[old.number - first] for old in kept[first:]]
    return Program(
        recorder.inputs,
        tuple(Operation(o.name, o.with_operands(renumbered)) for o in operations),
        renumbered(output),
        tuple(Place(renumbered(place.operand), place.channels) for place in places),
    )


def _buffers(operands: Iterable[Any]) -> Iterator[Buffer]:
    return (operand for operand in operands if isinstance(operand, Buffer))


def _require_same(
    program: Program,
    network: nn.Module,
    names: Sequence[str],
    one: Sequence[Tensor],
    expected: Tensor,
) -> None:
    """An error if the program gives something else than the network for the first example."""
    means = means_in(network)
    read = [o for step in program.operations for o in step.operands() if isinstance(o, Weight)]
    weights = {o.number: as_array(means[names[o.number]]) for o in read}
    given = run(program, weights, *(as_array(t[0]) for t in one)).output
    wanted = as_array(expected[0])
    # convolutions of GPUs have TF32's digits, if not told otherwise
    exact = torch.finfo(expected.dtype).bits >= 32 and expected.device.type == "cpu"
    scale = np.abs(wanted).max(initial=1e-6) * (_SAME if exact else _SAME_IN_HALF)
    if given.shape != wanted.shape or not np.all(np.abs(given - wanted) <= scale):
        raise ProgramError(
            f"the portable program of {type(network).__name__} does not give what the network "
            f"gives for the example (it may write into parts of tensors): {_ADVICE}"
        )


def as_array(tensor: Tensor) -> Any:
    """As numpy's float32."""
    return tensor.detach().float().cpu().numpy()
