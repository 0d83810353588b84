"""The deterministic rest of a model: parameters and buffers that have no posterior."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from pocketbayes.codec.extra_state import as_bytes, give_back, home_of, is_extra, value_in
from pocketbayes.errors import FormatError, PocketBayesError
from pocketbayes.layers import OURS, bayesian_modules, without_descriptions

_METADATA = "_metadata"  # what is no state; some networks put their arguments there
_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, persistent buffers and extra state outside of posteriors.

    A tied one by its first name; extra state as the bytes of its JSON.
    """
    return {
        name: as_bytes(name, value) if is_extra(name) else value
        for name, value in _entries(model).items()
    }


def _entries(model: nn.Module) -> dict[str, Any]:
    """The same with extra state as its module gives it."""
    inside = tuple(f"{name}.{OURS}.".lstrip(".") for name, _ in bayesian_modules(model))
    found: dict[str, Any] = {}
    seen: set[int] = set()
    with without_descriptions():
        state = model.state_dict(keep_vars=True)
    for name, value in state.items():
        if name.startswith(inside) or name == _METADATA:
            continue
        if not is_extra(name) and not isinstance(value, Tensor):
            raise PocketBayesError(
                f"{name} is a {type(value).__name__} that is neither parameter nor buffer: return "
                "it by get_extra_state as JSON values, or register a buffer"
            )
        key = id(home_of(model, name)) if is_extra(name) else id(value)
        if key not in seen:
            seen.add(key)
            found[name] = value
    return found


def lost_in_float16(model: nn.Module) -> set[str]:
    """Names of buffers that must stay as they are.

    float16 may move a batch norm's mean by 1/256 of its std, and its variance by 1/1024, counting
    what the norm adds to that. What other buffers are for nobody knows.
    """
    homes = {id(b): m for m in model.modules() for b in m._buffers.values() if b is not None}
    return {
        name
        for name, value in plain_state(model).items()
        if id(value) in homes and value.is_floating_point() and not _bears(homes[id(value)], value)
    }


def _bears(home: nn.Module, value: Tensor) -> bool:
    """Whether this buffer is a batch norm's, and float16 good enough for it."""
    if not isinstance(home, _NormBase) or value.is_meta or value.layout != torch.strided:
        return False
    mean, var = home.running_mean, home.running_var
    if not isinstance(mean, Tensor) or not isinstance(var, Tensor) or mean.shape != var.shape:
        return False
    exact, half = (v.detach().cpu().double() for v in (var, var.half()))  # the file may hold either
    spread = torch.where(half.isfinite(), half, exact) + home.eps
    error = (value.detach().double() - value.detach().half().double()).abs().cpu()
    if value is mean:
        return bool((error <= spread.sqrt() / 256).all())
    return value is var and bool((error <= spread / 1024).all())


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[None]:
    """Puts modules, parameters and buffers back in their places if what is done to them fails."""
    kept = [(module, type(module), dict(vars(module))) for module in model.modules()]
    tables = [
        (table, table.copy())
        for _, _, attributes in kept
        for name, table in attributes.items()
        if name in _TABLES or (name.endswith("_hooks") and isinstance(table, dict))
    ]
    try:
        yield
    except BaseException:
        for module, kind, attributes in kept:
            module.__class__ = kind
            vars(module).clear()
            vars(module).update(attributes)
        for table, content in tables:
            table.clear()
            table.update(content)
        raise


def replace_state_(
    model: nn.Module,
    names: Collection[str],
    taken: Callable[[str], Tensor],
    kept: Collection[str] = (),
) -> None:
    """Puts tensors of these names in place of the model's own, wherever they are tied to.

    It has no others but those that are kept.
    """
    expected = {name: value for name, value in _entries(model).items() if name not in kept}
    for name in sorted(expected.keys() ^ set(names)):
        where = "the file" if name in expected else "the network"
        raise FormatError(f"{name} is not in {where}")
    slots: dict[int, list[tuple[dict[str, Tensor | None], str]]] = {}
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                slots.setdefault(id(tensor), []).append((table, key))  # type: ignore[arg-type]
    extra = [name for name in expected if is_extra(name)]
    for name, old in expected.items():
        if name in extra:
            continue
        new = _fitting(name, old, taken(name))
        for table, key in slots[id(old)]:
            table[key] = new
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            raise FormatError(f"{name} is not in the file")
    for name in extra:  # a module may look at its tensors
        give_back(model, name, value_in(name, taken(name)))


def _fitting(name: str, old: Tensor, new: Tensor) -> Tensor:
    if old.shape != new.shape or old.is_floating_point() != new.is_floating_point():
        raise FormatError(
            f"section state/{name} is {new.dtype} of shape {tuple(new.shape)}; the network has "
            f"{old.dtype} of shape {tuple(old.shape)}"
        )
    if isinstance(old, nn.Parameter):
        return nn.Parameter(new.clone(), requires_grad=old.requires_grad)
    return new.clone()
