"""Whether a checkpoint holds what a run needs: every field, of its type, shape and range."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, TrainingError
from pocketbayes.layers import named_posteriors
from pocketbayes.posteriors import Shared
from pocketbayes.training.optimizers import SGD, Adam, AdamW, NaturalGradient

_PARTS = ("settings", "model", "optimizers", "standing")
_LABELS, _BEST = (
    ("labels", "labelled", "entropy", "doubt"),
    ("best_epoch", "best_nll", "best_state"),
)
_ALWAYS = ("totals", "epoch", "batch", "step", "seconds", "beta", "lr_scale", "memory", "history")
_ROW = ("epoch", "step", "loss", "nll", "kl")
_MOMENTS = {"exp_avg", "exp_avg_sq", "momentum_buffer"}
_KEPT_BY: dict[type, tuple[str, ...]] = {
    Adam: ("step", "exp_avg", "exp_avg_sq"),
    AdamW: ("step", "exp_avg", "exp_avg_sq"),
    SGD: ("momentum_buffer",),
    NaturalGradient: ("step", "exp_avg"),
}


def checked_parts(state: object) -> dict[str, Any]:
    """The four parts of a checkpoint, settings of plain values."""
    if not isinstance(state, dict):
        raise _fault("it is no dict")
    for name in _PARTS:
        if name not in state:
            raise _fault(f"{name} is missing, as if another version had written it")
    settings = state["settings"]
    _require(_is_table(settings, _is_plain), "settings", "names and plain values")
    _require(_is_count(settings.get("epochs", 0)), "settings.epochs", "a whole number from 0 on")
    _require(_is_table(state["model"], lambda _: True), "model", "names and tensors")
    _require_values(state["model"])
    _require(isinstance(state["optimizers"], list), "optimizers", "a list")
    _require(_is_table(state["standing"], lambda _: True), "standing", "names and values")
    return state


def require_standing(
    state: Mapping[str, Any], model: nn.Module, fresh: Mapping[str, Tensor]
) -> None:
    """An error unless the run stands somewhere: `fresh` is the memory it would begin with."""
    standing, settings = state["standing"], state["settings"]
    wanted = [*_ALWAYS]
    wanted += _LABELS if settings.get("least_beta") is not None else ()
    wanted += _BEST if settings.get("keep_best") else ()
    for name in wanted:
        if name not in standing:
            raise _fault(f"standing.{name} is missing")
    for name, value in standing.items():
        if name not in _KINDS:
            raise _fault(f"standing.{name} is no field of this version")
        kind, words = _KINDS[name]
        _require(kind(value), f"standing.{name}", words)
    epoch, history = standing["epoch"], standing["history"]
    _require(epoch <= settings.get("epochs", epoch), "standing.epoch", "at most that of settings")
    numbered = [row["epoch"] for row in history] == list(range(1, epoch + 1))
    _require(numbered, "standing.history", f"{epoch} rows, one for each epoch")
    if settings.get("least_beta") is not None:
        known = all(_is_number(row.get("doubt")) for row in history)
        _require(known, "standing.history", "rows with doubt")
    best = standing.get("best_epoch")
    _require(best is None or 1 <= best <= epoch, "standing.best_epoch", f"from 1 to {epoch}")
    if best is None and "best_nll" in standing:
        none = standing["best_nll"] == math.inf and standing.get("best_state") is None
        _require(none, "standing.best_epoch", "that of best_nll and best_state")
    if standing.get("best_state") is not None:
        same = standing["best_state"].keys() == state["model"].keys()
        _require(same, "standing.best_state", "all tensors of the model")
        fill_model(copy.deepcopy(model), standing["best_state"])  # now, not after hours
    _require_memory(standing["memory"], model, fresh)


def fill_model(model: nn.Module, tensors: Mapping[str, Any]) -> None:
    """Gives the model these tensors and extra states; sparse posteriors take on their size."""
    own, parameters = model.state_dict(), dict(model.named_parameters())
    for name in own:
        if name not in tensors:
            raise TrainingError(f"the checkpoint is of another network: model.{name} is missing")
    _require_values(tensors)
    for name, value in tensors.items():
        if name in own and isinstance(own[name], Tensor):
            wanted = own[name].dtype
            alike = value.dtype == wanted or not (wanted.is_floating_point or value.is_complex())
            alike = alike and value.dtype.is_floating_point == wanted.is_floating_point
            _require(alike, f"model.{name}", f"of type {wanted}, not {value.dtype}")
        if name in parameters:
            _require(bool(value.isfinite().all()), f"model.{name}", "finite")
    try:
        model.load_state_dict(dict(tensors))
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise TrainingError(f"the checkpoint is of another network: {error}") from error
    for name, q in named_posteriors(model):
        more = {"codebook": q.codebook} if isinstance(q, Shared) else {}
        try:
            type(q).from_arrays(q.arrays(), **more)
        except PocketBayesError as error:
            raise _fault(f"model.{name}: {error}") from error


def fill_optimizers(optimizers: Sequence[torch.optim.Optimizer], stored: list[Any]) -> None:
    """Gives optimisers their state; their settings are those of the run and stay."""
    _require(len(stored) == len(optimizers), "optimizers", f"{len(optimizers)} of them")
    for number, (optimizer, saved) in enumerate(zip(optimizers, stored, strict=True)):
        name = f"optimizers.{number}"
        _require(isinstance(saved, dict), name, "a dict")
        own = optimizer.state_dict()
        groups, state = saved.get("param_groups"), saved.get("state")
        _require(isinstance(groups, list), f"{name}.param_groups", "a list")
        ordered = [group.get("params") if isinstance(group, dict) else None for group in groups]
        wanted = [group["params"] for group in own["param_groups"]]
        plain = all(isinstance(one, list) and all(map(_is_count, one)) for one in ordered)
        same = plain and ordered == wanted
        _require(same, f"{name}.param_groups", "for the same parameters as this run's")
        _require(isinstance(state, dict), f"{name}.state", "a dict")
        kept = saved.get("kept", list(state))  # checkpoints of earlier versions have none
        complete = isinstance(kept, list) and all(map(_is_count, kept)) and set(kept) == set(state)
        _require(complete, f"{name}.state", "for all parameters that it was for")
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for key, found in state.items():
            known = _is_count(key) and key < len(parameters)
            _require(known, f"{name}.state", "for parameters of the model")
            _require_kept(f"{name}.state.{key}", found, parameters[key], _KEPT_BY[type(optimizer)])
        optimizer.load_state_dict(own | {"state": state})


def _require_kept(name: str, kept: Any, parameter: Tensor, fields: tuple[str, ...]) -> None:
    """What an optimiser keeps of a parameter."""
    _require(isinstance(kept, dict) and set(kept) == set(fields), name, f"{', '.join(fields)}")
    for field, value in kept.items():
        shape = parameter.shape if field in _MOMENTS else torch.Size()
        if value is None and field == "momentum_buffer":
            continue
        good = _is_tensor(value) and value.shape == shape and value.is_floating_point()
        _require(good, f"{name}.{field}", f"a tensor of real numbers of shape {tuple(shape)}")
        _require(bool(value.isfinite().all()), f"{name}.{field}", "finite")
        if field in ("step", "exp_avg_sq"):
            _require(bool((value >= 0).all()), f"{name}.{field}", "not negative")


def _require_memory(
    memory: Mapping[str, Tensor], model: nn.Module, fresh: Mapping[str, Tensor]
) -> None:
    """What methods keep: from their start, of posteriors or parameters by name, or one number."""
    posteriors, parameters = dict(named_posteriors(model)), dict(model.named_parameters())
    of_parameters = {n.partition(" ")[0] for n in memory if n.partition(" ")[2] in parameters}
    for kind in of_parameters:
        for name in (n for n, p in parameters.items() if p.requires_grad):
            _require(f"{kind} {name}" in memory, f"standing.memory.{kind} {name}", "there")
    for name, value in fresh.items():
        same = name in memory and memory[name].shape == value.shape
        _require(same, f"standing.memory.{name}", f"a tensor of shape {tuple(value.shape)}")
    for name, value in memory.items():
        where = f"standing.memory.{name}"
        finite = value.is_floating_point() and bool(value.isfinite().all())
        _require(finite, where, "finite real numbers")
        if name in posteriors:
            q = posteriors[name]
            shapes = {tuple(q.shape), *(tuple(p.shape) for p in q.parameters())}
            _require(tuple(value.shape) in shapes, where, "of the shape of that weight")
        elif name.partition(" ")[2] in parameters:
            same = value.shape == parameters[name.partition(" ")[2]].shape
            _require(same, where, "of the shape of that parameter")
        elif name not in fresh:
            _require(value.dim() == 0, where, "one number")
            about = [n for n in posteriors if name.startswith(f"{n},")]
            _require(all(n in memory for n in about), where, "beside that of its weight")


def _require(good: object, name: str, words: str) -> None:
    if not good:
        raise _fault(f"{name} must be {words}")


def _fault(words: str) -> TrainingError:
    return TrainingError(f"{words}: it is not a checkpoint of this library, or is damaged")


def _require_values(tensors: Mapping[str, Any]) -> None:
    """Tensors; of `get_extra_state` also plain values."""
    for name, value in tensors.items():
        extra = name.rpartition(".")[2] == "_extra_state" and _is_plain(value)
        _require(extra or _is_tensor(value), f"model.{name}", "a tensor")


def _is_tensor(value: object) -> TypeGuard[Tensor]:
    """A plain one: neither sparse nor quantised, and with its numbers."""
    is_whole = isinstance(value, Tensor) and value.layout == torch.strided
    return is_whole and not (value.is_quantized or value.is_meta)  # type: ignore[attr-defined]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_size(value: object) -> bool:
    return _is_number(value) and value >= 0  # type: ignore[operator]


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return _is_table(value, _is_plain)
    return value is None or isinstance(value, bool | int | float | str)


def _is_table(value: object, kind: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and kind(item) for name, item in value.items()
    )


def _is_row(row: object) -> bool:
    return (
        isinstance(row, dict)
        and _is_table(row, _is_plain)
        and all(_is_number(row.get(name)) for name in _ROW)
    )


def _is_totals(value: object) -> bool:
    good = _is_tensor(value) and value.shape == (5,) and value.dtype == torch.float64
    return good and bool(value.isfinite().all())  # type: ignore[attr-defined]


def _are_counts(value: object) -> bool:
    return isinstance(value, dict) and all(
        _is_count(label) and _is_count(times) for label, times in value.items()
    )


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "totals": (_is_totals, "a tensor of 5 finite numbers of type torch.float64"),
    **dict.fromkeys(("epoch", "batch", "step"), (_is_count, "a whole number from 0 on")),
    **dict.fromkeys(("seconds", "beta", "lr_scale"), (_is_size, "a finite number from 0 on")),
    "labels": (_are_counts, "a dict of how often each class was seen"),
    "labelled": (_is_count, "a whole number from 0 on"),
    "entropy": (lambda v: v is None or _is_size(v), "None or a finite number from 0 on"),
    "doubt": (lambda v: _is_size(v) and v <= 1, "a number from 0 to 1"),
    "memory": (lambda v: _is_table(v, _is_tensor), "a dict of names and tensors"),
    "history": (
        lambda v: isinstance(v, list) and all(map(_is_row, v)),
        f"a list of rows with {', '.join(_ROW)}",
    ),
    "best_epoch": (lambda v: v is None or _is_count(v), "None or a whole number"),
    "best_nll": (lambda v: isinstance(v, float) and not math.isnan(v), "a number"),
    "best_state": (
        lambda v: v is None or _is_table(v, lambda _: True),
        "None or names and tensors",
    ),
}
