"""Which layers a one-pass head reads: inputs of a few, spread over the depth, found by running."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.layers import (
    OURS,
    BayesianModule,
    Inputs,
    Place,
    as_rows,
    explained_failure,
    mapped,
    num_examples,
    run,
)

_READERS = (
    nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention, nn.Bilinear,
)  # fmt: skip
_DEPTHS = (0.25, 0.5, 0.75)  # beside the last layer
_MANY = 8


class Reading(NamedTuple):
    """A layer's input as one pass saw it: where, its positions, and what the head would get."""

    place: Place
    positions: tuple[int, ...]
    rows: Tensor


class Call(NamedTuple):
    """One call of a layer: the shape of its input, and whether that is raw, not yet of layers."""

    name: str
    layer: nn.Module
    given: Tensor
    is_raw: bool
    result: object


def readings(root: nn.Module, model: nn.Module, x: Inputs) -> tuple[list[Reading], bool]:
    """What layers read, in the order of calls; and whether the last one's output is the network's.

    The axis of examples is the one that grows when there are three examples in place of two.
    """
    few, _ = _calls(root, model, _examples(x, 2))
    calls, output = _calls(root, model, _examples(x, 3))
    found, known = dict[str, Reading](), {call.name: call for call in few}
    for call in calls:
        axis = _axis_of_examples(known.get(call.name), call)
        if axis is None or (call.is_raw and call is not calls[-1]):
            continue
        given = call.given.movedim(axis, 0)
        channels = 1 if isinstance(call.layer, nn.modules.conv._ConvNd) else given.dim() - 1
        place = Place(call.name, axis, given.shape[channels])
        positions = tuple(s for i, s in enumerate(given.shape) if i not in (0, channels))
        found.pop(call.name, None)
        rows = as_rows(call.given, place, call.layer, torch.Size(()))
        found[call.name] = Reading(place, positions, rows)
    ends = bool(calls) and bool(found) and next(reversed(found)) == calls[-1].name
    return list(found.values()), ends and _is_output(calls[-1], output)


def chosen(found: Sequence[Reading], most_features: int) -> list[Place]:
    """The last layer and up to three before it, where positions become fewer or evenly spread.

    Of many, those that are not wider than half of them; no input twice; the widest are left out
    where there would be too many features.
    """
    if not found:
        return []
    *rest, last = found
    depth = {reading.place.name: i / len(found) for i, reading in enumerate(found)}
    ends = list({reading.positions: reading for reading in rest}.values())
    pool = ends if len(ends) >= len(_DEPTHS) else rest
    if len(pool) > _MANY:
        middle = sorted(reading.place.width for reading in pool)[len(pool) // 2]
        pool = [reading for reading in pool if reading.place.width <= middle]
    taken = [last]
    for wanted in _DEPTHS:
        near = sorted(pool, key=lambda r: abs(depth[r.place.name] - wanted))
        fresh = next((r for r in near if not any(_is_same(r, t) for t in taken)), None)
        taken += [] if fresh is None else [fresh]
    taken.sort(key=lambda reading: depth[reading.place.name])
    while len(taken) > 1 and sum(r.place.width for r in taken) > most_features:
        taken.remove(max(taken[:-1], key=lambda r: r.place.width))
    return [reading.place for reading in taken]


def _is_same(one: Reading, other: Reading) -> bool:
    return one.rows.shape == other.rows.shape and torch.allclose(one.rows, other.rows, atol=1e-6)


def _examples(x: Inputs, count: int) -> Inputs:
    """So many examples of a batch; some twice if it is smaller."""
    which = torch.arange(count) % num_examples(x)
    return mapped(lambda tensor: tensor[which.to(tensor.device)], x)


def _axis_of_examples(few: Call | None, call: Call) -> int | None:
    """Where an input has 2 and then 3 examples; None if that is no single axis."""
    if few is None or few.given.dim() != call.given.dim() or call.given.dim() < 2:
        return None
    sizes = list(zip(few.given.shape, call.given.shape, strict=True))
    axes = [axis for axis, (two, three) in enumerate(sizes) if two != three]
    return axes[0] if len(axes) == 1 and sizes[axes[0]] == (2, 3) else None


def _is_output(call: Call, output: Tensor) -> bool:
    """Whether the network gives what this layer gave; channels may have moved to axis 1."""
    result = call.result
    if not isinstance(result, Tensor) or result.numel() != output.numel():
        return False
    rows = output if output.dim() < 3 else output.movedim(1, -1)
    return torch.equal(rows.reshape(-1), result.reshape(-1))


def _calls(root: nn.Module, model: nn.Module, x: Inputs) -> tuple[list[Call], Tensor]:
    """Every call of a layer that reads numbers, and the output."""
    calls: list[Call] = []
    begun = False

    def before(name: str) -> Callable[..., None]:
        def note(layer: nn.Module, args: tuple[Any, ...]) -> None:
            if args and isinstance(args[0], Tensor) and args[0].is_floating_point():
                calls.append(Call(name, layer, args[0].detach(), not begun, None))

        return note

    def after(name: str) -> Callable[..., None]:
        def note(layer: nn.Module, args: tuple[Any, ...], result: object) -> None:
            nonlocal begun
            begun = True
            for i, call in enumerate(calls):
                if call.name == name:
                    calls[i] = call._replace(result=result)

        return note

    with _hooked(root, before, after), explained_failure(x):
        output = run(model, x)
    return calls, output


@contextmanager
def _hooked(
    root: nn.Module, before: Callable[[str], Any], after: Callable[[str], Any]
) -> Iterator[None]:
    """Hooks at the layers that read, and behind all that have parameters."""
    with ExitStack() as stack:
        for name, module in root.named_modules():
            if OURS in name.split("."):
                continue
            if isinstance(module, _READERS):
                stack.enter_context(module.register_forward_pre_hook(before(name)))
            if module._parameters or isinstance(module, BayesianModule):
                stack.enter_context(module.register_forward_hook(after(name)))
        yield
