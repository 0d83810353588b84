"""Passes of networks made into machine code by torch's compiler, once for each kind of pass.

Networks of torch's and this library's layers are traced here: the code draws the same numbers as
they do, in any thread. Networks with code of users, which may do anything, are left to
`torch.compile`. What was made is kept beside the networks, not in them, and holds no weights.
"""

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from pocketbayes.errors import CompileError
from pocketbayes.layers import Inputs, modules_of, num_examples, tensors_of
from pocketbayes.posteriors import Drawing, current_drawing, remembered_tensors
from pocketbayes.prediction.tracing import (
    Output,
    Pass,
    Structure,
    kind_of,
    structure_of,
    traced,
)

_COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch")
_MOST_STRUCTURES = 4  # of one network, which was pruned or moved
_MOST_KINDS = 32  # of passes
_LOCK = threading.RLock()
_Known = dict[Hashable, "_Compiled"]  # by kind of pass
_kept: WeakKeyDictionary[nn.Module, OrderedDict[Hashable, _Known]] = WeakKeyDictionary()


class _Job:
    """What is to be compiled in one prediction, or those of one evaluation."""

    def __init__(self) -> None:
        self._known: dict[nn.Module, tuple[_Known, tuple[Tensor, ...]]] = {}
        self._first: dict[Hashable, Hashable] = {}

    def begin_prediction(self) -> None:
        """Networks may have changed."""
        self._known.clear()

    def known_of(self, network: nn.Module) -> tuple[_Known, tuple[Tensor, ...]]:
        """What is compiled for a network as it is, and its tensors; looked up once a prediction."""
        if network not in self._known:
            structure = structure_of(modules_of(network))
            self._known[network] = _kept_for(network, structure), structure.tensors
        return self._known[network]

    def is_worth_it(self, network: nn.Module, what: str, kind: Hashable) -> bool:
        """Whether it is the first of its sort: another, such as a shorter last batch, is not."""
        return self._first.setdefault((network, what), kind) == kind


def _kept_for(network: nn.Module, structure: Structure) -> _Known:
    with _LOCK:
        structures = _kept.setdefault(network, OrderedDict())
        known = structures.setdefault(structure.facts, {})
        structures.move_to_end(structure.facts)
        if len(structures) > _MOST_STRUCTURES:
            structures.popitem(last=False)
        return known


_job: ContextVar[_Job | None] = ContextVar("compiling", default=None)


def compiling(whether: bool) -> AbstractContextManager[None]:
    """Inside, in this thread, passes of networks are compiled; inside of another, for that job."""
    job = _job.get()
    if not whether and job is None:
        return nullcontext()
    return _within((job or _Job()) if whether else None)


@contextmanager
def _within(job: _Job | None) -> Iterator[None]:
    if job is not None:
        job.begin_prediction()
    token = _job.set(job)
    try:
        yield
    finally:
        _job.reset(token)


def is_compiling() -> bool:
    """Whether passes are compiled here."""
    return _job.get() is not None


class _Compiled:
    """Machine code of a pass."""

    def __init__(self, run: Pass, given: list[Tensor], inputs: int, drawing: Drawing) -> None:
        with _uncached_autocast(given[0].device.type):
            made = traced(run, given, inputs, drawing)
        self._inputs = inputs if made.writes else 0
        self._needed, self._outputs = made.needed, made.outputs
        self._order, self._device = torch.zeros(1), given[0].device.type
        with _as_it_is(self._device):
            self._code = compiled_graph(made.graph, self._arguments(given))

    def __call__(self, given: list[Tensor]) -> Output:
        """The outputs of the pass."""
        with _as_it_is(self._device):
            found = self._code(*self._arguments(given))
        return pytree.tree_unflatten(list(found), self._outputs)

    def _arguments(self, given: list[Tensor]) -> list[Tensor]:
        """Those that are needed; inputs that would be written to are copied."""
        everything = [*given, self._order]
        return [
            everything[number].clone() if number < self._inputs else everything[number]
            for number in self._needed
        ]


def passed(network: nn.Module, what: str, count: int, x: Inputs, run: Pass) -> Output:
    """What `run` gives: a pass of the network on x, for so many draws; compiled where wanted."""
    job, drawing = _job.get(), current_drawing()
    assert drawing is not None
    if job is None:
        return run(drawing)
    known, weights = job.known_of(network)
    inputs = tensors_of(x)
    others = [*inputs, *remembered_tensors()]
    key = (
        what, count, len(inputs), drawing.estimator, _surroundings(inputs[0].device),
        *map(kind_of, others),
    )  # fmt: skip
    if key not in known and not job.is_worth_it(network, what, key):
        return run(drawing)
    given = [*others, *weights]
    code = known.get(key) or _made(known, key, run, given, len(inputs), drawing)
    return code(given)


def _made(
    known: _Known, key: Hashable, run: Pass, given: list[Tensor], inputs: int, drawing: Drawing
) -> _Compiled:
    """Machine code that is kept from now on; other threads wait, and then find it."""
    with _LOCK:
        if key not in known:
            try:
                known[key] = _Compiled(run, given, inputs, drawing)
            except Exception as error:
                with drawing.again().here() as again:
                    run(again)  # what the network itself cannot do, it says itself
                raise compile_error(error) from None
            if len(known) > _MOST_KINDS:
                del known[next(iter(known))]
        return known[key]


def left_to_torch(network: nn.Module, x: Inputs) -> nn.Module:
    """A network with code of its own, compiled by `torch.compile`, which looks into that."""
    job = _job.get()
    is_made = "_orig_mod" in network._modules or network._compiled_call_impl is not None
    if job is None or is_made or not job.is_worth_it(network, "own code", num_examples(x)):
        return network
    made: Any = torch.compile(network, dynamic=False)
    return made  # type: ignore[no-any-return]


def require_no_own_code(estimator: str) -> None:
    """An error where a network that only `torch.compile` may look into is to be compiled."""
    if is_compiling():
        raise CompileError(
            f'compile=True does not go with estimator="{estimator}" for a network that has code of '
            "your own, hooks or dropout that stays on: do without, or predict by draws"
        )


def compiled_graph(graph: torch.fx.GraphModule, arguments: list[Tensor]) -> Callable[..., Any]:
    """Machine code of a graph for tensors like these; torch keeps it on disk for other processes.

    It does so only for graphs of fake tensors with an environment of shapes, all of them fixed.
    """
    import torch._inductor
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    fakes = FakeTensorMode(shape_env=ShapeEnv())
    like = [fakes.from_tensor(tensor, static_shapes=True) for tensor in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: Callable[..., Any] = torch._inductor.compile(graph, list(like))
    return made


@contextmanager
def explained_compilation() -> Iterator[None]:
    """Turns what torch's compilers complain about into an error that says what to do."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith(_COMPILERS):
            raise compile_error(error) from None  # else some hundred lines of torch's own code
        raise


def compile_error(error: Exception) -> CompileError:
    """What went wrong, and what to do."""
    said = " ".join(str(error).split())
    if "compiler" in said.lower() and ("no working" in said.lower() or "not found" in said.lower()):
        advice = "install g++ or clang, or name one by the environment variable CXX; or do without"
    else:
        advice = "do without"
    return CompileError(
        f"torch cannot compile this network here: {advice} compile=True. It says: {said[:300]}"
    )


def _surroundings(device: torch.device) -> Hashable:
    """What code is made for, beside the network."""
    return (
        _autocast_dtype(device.type),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.backends.mkldnn.enabled,
    )


def _autocast_dtype(device: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _uncached_autocast(device: str) -> AbstractContextManager[object]:
    """The autocast of now without the rounded weights that it keeps, which code must not."""
    dtype = _autocast_dtype(device)
    if dtype is None:
        return nullcontext()
    return torch.autocast(device, dtype, cache_enabled=False)


def _as_it_is(device: str) -> AbstractContextManager[object]:
    """Autocast off: a graph has its conversions written into it."""
    return (
        nullcontext() if _autocast_dtype(device) is None else torch.autocast(device, enabled=False)
    )
