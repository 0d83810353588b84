"""Draws that are lent to code outside of a layer: free to read, and nothing is lost by writing."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter, tree_map_only

from pocketbayes.errors import ConversionError
from pocketbayes.posteriors import Posterior, inside_vmap

_IN_PLACE = {
    f"__i{name}__"
    for name in (
        "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor",
        "lshift", "rshift",
    )
}  # fmt: skip
_WRITES = {*_IN_PLACE, "__setitem__", "__set__"}


class LentDraw(Tensor):
    """A draw of a weight that refuses to be written into, as do all views of it.

    The next read is another draw, so that whatever was written would be lost without a word; by
    the mean it would change the posterior.
    """

    posterior: Posterior | None  # None of a view
    place: str

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Does what is asked with the plain tensor; what comes of it, but for views, is plain."""
        kwargs = dict(kwargs or {})
        for target in _targets(func, args, kwargs):
            if isinstance(target, LentDraw):
                raise ConversionError(
                    f"{target.place} is a draw of its posterior, into which {_word(func)} cannot "
                    "write: the next read is another draw. Change the weights before bayesianize_, "
                    "or the mean: dict(named_posteriors(model))[NAME].mean"
                )
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*_plain(args), **_plain(kwargs))
            first = args[0] if args else None
            if not isinstance(first, LentDraw):
                return found
            return tree_map_only(Tensor, lambda t: _guarded(t, first), found)


def lent(value: Any, posterior: Posterior, place: str) -> Any:
    """The value, guarded where a user's code runs as it stands; a point may be written into."""
    if not posterior.is_random and isinstance(value, torch.nn.Parameter):
        return value
    if type(value) not in (Tensor, torch.nn.Parameter) or torch.compiler.is_compiling():
        return value
    if torch._C._len_torch_dispatch_stack() or inside_vmap():
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return _named(value, posterior, place)


def _named(value: Tensor, posterior: Posterior | None, place: str) -> LentDraw:
    draw = value.as_subclass(LentDraw)
    draw.__dict__["posterior"], draw.__dict__["place"] = posterior, place
    return draw


def _guarded(found: Tensor, draw: LentDraw) -> Tensor:
    """The result, guarded as well where it is a view of the draw."""
    if type(found) is not Tensor or not found.numel():
        return found
    if found.untyped_storage().data_ptr() != draw.untyped_storage().data_ptr():
        return found
    return _named(found, None, draw.place)


def _targets(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """What a call writes into."""
    yield from tree_iter(kwargs.get("out"))
    name = getattr(func, "__name__", "")
    if name in _WRITES or (name.endswith("_") and not name.endswith("__")) or kwargs.get("inplace"):
        yield from tree_iter(args[0] if args else kwargs.get("tensor", kwargs.get("input")))


def _word(func: Any) -> str:
    """The name of a function; of an attribute, that of the attribute."""
    name = getattr(func, "__name__", str(func))
    return str(getattr(func.__self__, "__name__", name)) if name == "__set__" else name


def _plain(found: Any) -> Any:
    return tree_map_only(LentDraw, lambda draw: draw.as_subclass(Tensor), found)
