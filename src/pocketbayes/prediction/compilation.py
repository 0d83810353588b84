"""Passes of a network as machine code by torch's compiler; where it fails, as they are.

What is compiled is one pass from beginning to end, or nothing. Its numbers are drawn as it runs, by
the same code as without a compiler, and weights are its arguments. Torch looks before each pass
whether its code still fits the network. What was made is kept beside networks, not in them.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from pocketbayes.errors import PocketBayesError, require_choice, warn
from pocketbayes.layers import Inputs, current_notes, estimator_of, modules_of, run, tensors_of
from pocketbayes.posteriors import (
    DEFAULT_GENERATORS,
    Drawing,
    current_drawing,
    prepare_tracing,
    traced_by,
)
from pocketbayes.prediction.gaussian_outputs import MOMENTS

_MOST_KINDS_OF_INPUT, _MOST_KINDS_OF_CODE = 64, 32
# Moments are of a kind that no compiler knows. Draws by "lrt" do without what is computed once for
# all of them, and took 2.3 times as long compiled in an MLP, 1.7 times in LeNet-5.
_LEFT_AS_THEY_ARE = (MOMENTS, "lrt")
_wanted: ContextVar[bool | str] = ContextVar("compile", default=False)
_numbers = count()
_kept: WeakKeyDictionary[nn.Module, dict[Hashable, "_Code"]] = WeakKeyDictionary()


@contextmanager
def compiling(wanted: bool | str, predictive: str) -> Iterator[None]:
    """Inside, in this thread, passes are compiled, by torch's own backend or that of this name."""
    if isinstance(wanted, str):
        require_choice(wanted, "compile", torch.compiler.list_backends(exclude_tags=()))
    elif not isinstance(wanted, bool):
        raise PocketBayesError(f"compile must be True, False or a backend's name; got {wanted!r}")
    if wanted and predictive in _LEFT_AS_THEY_ARE:
        warn(f'nothing is compiled: by estimator="{predictive}" networks run as without compile=')
        wanted = False
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def pass_on(network: nn.Module, x: Inputs) -> Callable[[Inputs], Tensor]:
    """What runs the network on inputs like x: compiled where that is wanted and worth it."""
    wanted = _wanted.get()
    if not wanted:
        return partial(run, network)
    with DEFAULT_GENERATORS:
        codes, key = _kept.setdefault(network, {}), (wanted, *_kind_of_pass(network, x))
        if key not in codes and len(codes) == _MOST_KINDS_OF_CODE:
            warn("hooks of the network change again and again: it goes on as without compile=")
            return partial(run, network)
        code = codes.setdefault(key, _Code(wanted))
        return partial(code if code.is_worth_it(x) else run, network)


def _kind_of_pass(network: nn.Module, x: Inputs) -> Iterator[Hashable]:
    """What code is for, as far as torch overlooks it when it looks whether code fits.

    That is the order of names, hooks, and functions of classes. For each estimator there is code
    of its own, since torch makes few versions of a function.
    """
    drawing = current_drawing()
    yield estimator_of(network) if drawing is None else drawing.estimator
    yield current_notes() is None
    yield tuple(x) if isinstance(x, dict) else None
    yield *hooks._global_forward_hooks, None, *hooks._global_forward_pre_hooks
    for module in modules_of(network):
        yield type(module).forward, *module._forward_hooks, None, *module._forward_pre_hooks


class _Code:
    """The compiled passes of one network.

    Threads take turns: switches of torch's compiler are those of the whole process.
    """

    def __init__(self, backend: bool | str) -> None:
        self._backend, self._fails = backend, False
        self._seen: set[Hashable] = set()
        self._function: Callable[..., Tensor] | None = None

    def is_worth_it(self, x: Inputs) -> bool:
        """Whether these are the first inputs, or like others before: not a shorter last batch."""
        kind = tuple((tensor.shape, tensor.dtype) for tensor in tensors_of(x))
        is_known = kind in self._seen or not self._seen
        if len(self._seen) < _MOST_KINDS_OF_INPUT:
            self._seen.add(kind)
        return is_known

    def __call__(self, network: nn.Module, x: Inputs) -> Tensor:
        """The network's output; its own errors are those that it has without a compiler."""
        if self._fails:
            return run(network, x)
        with DEFAULT_GENERATORS:
            versions = [tensor._version for tensor in tensors_of(x)]
            try:
                return self._run(network, x)
            except Exception as error:
                if versions != [tensor._version for tensor in tensors_of(x)]:
                    raise
                why = _explained(error)
            found, self._fails = run(network, x), True
            warn(why)
            return found

    def _run(self, network: nn.Module, x: Inputs) -> Tensor:
        if self._function is None:
            prepare_tracing()
            self._function = _compiled(self._backend)
        drawing = current_drawing()
        traced = Drawing(None if drawing is None else drawing.estimator)
        traced.order, traced.notes = torch.zeros(1), current_notes()
        return self._function(network, x, traced)


def _one_pass(network: nn.Module, x: Inputs, drawing: Drawing) -> Tensor:
    return traced_by(drawing, partial(run, network, x))


def _compiled(backend: bool | str) -> Callable[..., Tensor]:
    """A compiled `_one_pass` with a name of its own, by which torch keeps what it knows of it.

    By one name all networks would share the 8 versions that torch makes of a function, and one
    would get slower code, for any size, as soon as another had another size.
    """
    code = _one_pass.__code__.replace(co_name=f"pass_{next(_numbers)}")
    options: dict[str, Any] = {"backend": backend}
    if backend is True:  # "fallback_random": what the network itself draws stays the same, too
        options = {"options": {"fallback_random": True}}
    made: Callable[..., Tensor] = torch.compile(
        FunctionType(code, _one_pass.__globals__), fullgraph=True, **options
    )
    return made


def _explained(error: Exception) -> str:
    said, why = " ".join(str(error).partition("Set TORCHDYNAMO_VERBOSE")[0].split())[:300], ""
    if "compiler" in said and ("No working" in said or "not found" in said):
        why = ": install g++ or clang, or name one by the environment variable CXX"
    elif type(error).__name__ == "FailOnRecompileLimitHit":
        why = ": something that it keeps is different in each pass"
    return (
        "torch cannot compile this network, which goes on as it does without compile="
        f"{why}. It says: {said}"
    )
