"""A pass of a network as a graph of tensor operations, and what must not change for it to hold."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pocketbayes.posteriors import Drawing, Tape

Output = Any  # a tensor, or tuples and dicts of tensors and None
Pass = Callable[[Drawing], Output]

_SIMPLE = {bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size}
_NO_PART_OF_A_PASS = "_pocketbayes"  # descriptions and heads


class Structure(NamedTuple):
    """A network as code sees it: all but the values of its tensors, and these tensors."""

    facts: Hashable
    tensors: tuple[Tensor, ...]


def structure_of(modules: Sequence[nn.Module]) -> Structure:
    """The structure of a network of these modules, which are of torch and of this library."""
    numbers = {module: number for number, module in enumerate(modules)}
    places, tensors = dict[int, int](), list[Tensor]()

    def fact(value: Any) -> Hashable:
        kind = type(value)
        if kind in _SIMPLE:
            return value  # type: ignore[no-any-return]
        if isinstance(value, Tensor):
            place = places.setdefault(id(value), len(places))
            if place == len(tensors):
                tensors.append(value)
            return place, kind_of(value)
        if isinstance(value, nn.Module):
            return kind, numbers.get(value, id(value))
        if isinstance(value, tuple | list):
            return tuple(map(fact, value))
        if isinstance(value, dict):
            return tuple((str(name), fact(part)) for name, part in value.items())
        return kind, id(value)

    facts = tuple(
        (type(module), *((name, fact(value)) for name, value in _parts_of(module)))
        for module in modules
    )
    return Structure(facts, tuple(tensors))


def _parts_of(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """All that it holds, but for empty dicts, as most of torch's are, and facts of no pass."""
    for name, value in module.__dict__.items():
        is_empty = isinstance(value, dict) and not value
        if not is_empty and not name.startswith(_NO_PART_OF_A_PASS):
            yield name, value


def kind_of(x: Tensor) -> Hashable:
    """What a graph knows of a tensor."""
    return x.dtype, x.device, x.shape, x.stride()


class Trace(NamedTuple):
    """A graph, which of its tensors it needs, which it writes to, and how its outputs belong."""

    graph: torch.fx.GraphModule
    needed: tuple[int, ...]
    writes: bool
    outputs: pytree.TreeSpec


def traced(run: Pass, given: Sequence[Tensor], inputs: int, drawing: Drawing) -> Trace:
    """The operations of a pass, of which these tensors are the arguments and not constants.

    The first of them are the network's inputs. The graph takes one more: the order of its draws.
    Numbers are drawn when it runs, by the drawing of that time; none of `drawing` are used up.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    found: list[pytree.TreeSpec] = []
    scratch = Drawing(drawing.estimator, 0, drawing.keeps_dropout)
    scratch.modules, scratch.tape = drawing.modules, Tape()
    versions = [x._version for x in given[:inputs]]

    def flat(*_: Tensor) -> list[Tensor]:
        leaves, spec = pytree.tree_flatten(run(scratch))
        found.append(spec)
        return [leaf for leaf in leaves if leaf is not None]

    with scratch.here():
        graph = make_fx(flat, tracing_mode="real")(*given, scratch.tape.order)
    graph.graph.eliminate_dead_code()
    needed = list[int]()
    for number, node in enumerate(graph.graph.find_nodes(op="placeholder")):
        if node.users:
            needed.append(number)
        else:
            graph.graph.erase_node(node)
    graph.recompile()
    writes = versions != [x._version for x in given[:inputs]]
    return Trace(graph, tuple(needed), writes, found[0])
