"""A pass of a network as a graph of tensor operations, and what must stay the same for it to hold."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pocketbayes.posteriors import Drawing, Tape

Output = Any  # a tensor, or tuples and dicts of tensors and None
Pass = Callable[[Drawing], Output]

_SIMPLE = (int, float, str, bytes, type(None), type, torch.dtype, torch.device, torch.Size)
_ELSEWHERE = ("_parameters", "_buffers", "_modules", "training")
_NO_PART_OF_A_PASS = "_pocketbayes"  # descriptions and heads


class Structure(NamedTuple):
    """A network as code sees it: all but the values of its tensors, and these tensors."""

    facts: Hashable
    tensors: tuple[Tensor, ...]


def structure_of(modules: Sequence[nn.Module]) -> Structure:
    """The structure of a network of these modules, which are of torch and of this library."""
    tensors: dict[int, Tensor] = {}
    places: dict[int, int] = {}
    numbers = {id(module): number for number, module in enumerate(modules)}

    def fact(value: Any) -> Hashable:
        if isinstance(value, _SIMPLE):
            return value
        if isinstance(value, Tensor):
            tensors.setdefault(id(value), value)
            return places.setdefault(id(value), len(places)), kind_of(value)
        if isinstance(value, tuple | list):
            return tuple(map(fact, value))
        if isinstance(value, dict):
            return tuple((str(name), fact(part)) for name, part in value.items())
        return type(value), numbers.get(id(value), id(value))

    facts = []
    for module in modules:
        own = module.__dict__
        others = [
            (name, fact(value))
            for name, value in own.items()
            if name not in _ELSEWHERE and not name.startswith(_NO_PART_OF_A_PASS)
        ]
        parts = fact([own["_parameters"], own["_buffers"], own["_modules"]])
        facts.append((type(module), parts, *others))
    return Structure(tuple(facts), tuple(tensors.values()))


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
