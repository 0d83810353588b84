"""Batches as people have them, taken apart: inputs and targets of a loader, parts of arrays."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError
from pocketbayes.layers import (
    Inputs,
    describe,
    first_parameter,
    named_posteriors,
    named_tensors,
    num_dims,
    num_examples,
    parts_of,
)

TARGETS = ("labels", "label", "target", "targets", "y")


def float_dtype(model: nn.Module) -> torch.dtype:
    """What NumPy's floats become, most of which are doubles that nobody chose."""
    first = first_parameter(model).dtype
    if first.is_floating_point:
        return first
    floats = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(floats, torch.float32)


def unpack(batch: object, where: str, dtype: torch.dtype = torch.float32) -> tuple[Inputs, Tensor]:
    """Inputs and target of a batch, or an error that says what it is instead.

    (input, target), (input, input, ..., target), ((input, ...), target), or a dict with the target
    under one of `TARGETS`, of which all else is inputs by name. Arrays become tensors, and floats
    in them of this type.
    """
    inputs, target = _parted(batch, where)
    if target is None:
        what = f"a dict with keys {list(inputs)}" if isinstance(inputs, dict) else _named(batch)
        raise DataError(
            f"{where} yields {what}; it must yield pairs (input, target), tuples with the target "
            f"last, or dicts with one of {', '.join(TARGETS)}: give the loader a collate_fn that "
            "returns them"
        )
    x = _of_one_length(_inputs(inputs, where, dtype), where)
    y = _tensor(target, "targets", where, dtype)
    if num_examples(x) != len(y) or len(y) == 0:
        raise DataError(f"{where} yields {num_examples(x)} inputs with {len(y)} targets in a batch")
    return x, y


def input_batches(x: object, size: int, dtype: torch.dtype = torch.float32) -> Iterator[Inputs]:
    """The inputs of a loader, or the parts of arrays; targets are passed over, if there are any."""
    return (inputs for inputs, _ in labelled_batches(x, size, dtype))


def labelled_batches(x: object, size: int, dtype: torch.dtype) -> Iterator[tuple[Inputs, Any]]:
    """The same with what the loader has for targets, as it is; None: nothing."""
    whole = whole_inputs(x, dtype)
    if whole is not None:
        if num_examples(whole) == 0:
            shapes = ", ".join(str(tuple(t.shape)) for _, t in named_tensors(whole))
            raise DataError(f"the input has shape {shapes}: there is nothing to predict")
        for part in parts_of(_of_one_length(whole, "the input"), size):
            yield part, None
    elif isinstance(x, Iterable) and not isinstance(x, str | bytes):
        for item in x:
            inputs, target = _parted(item, "the loader")
            yield _of_one_length(_inputs(inputs, "the loader", dtype), "the loader"), target
    else:
        raise DataError(
            f"the input is a {type(x).__name__}; pass a tensor, an array, several in a tuple or "
            "dict, or a loader"
        )


def whole_inputs(x: object, dtype: torch.dtype) -> Inputs | None:
    """The input if it is all there: an array, or a dict or tuple of arrays. None: a loader."""
    if isinstance(x, Tensor | np.ndarray | Mapping):
        return _inputs(_parted(x, "the input")[0], "the input", dtype)
    if isinstance(x, tuple) and x and all(isinstance(part, Tensor | np.ndarray) for part in x):
        return _inputs(x, "the input", dtype)
    return None


def examples_at_once(model: nn.Module, x: object, device: torch.device) -> int:
    """256, or 1,024 where these take little memory: small inputs, no wide layer.

    On a CPU no convolution either. On a GPU fewer would wait for the launches of small kernels.
    """
    on_gpu = device.type == "cuda"
    is_small = (
        isinstance(x, Tensor)
        and x.is_floating_point()
        and x.numel() <= (4096 if on_gpu else 1024) * (len(x) if x.dim() else 1)
        and all(max(q.shape, default=1) <= 4096 for _, q in named_posteriors(model))
        and (on_gpu or not any(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules()))
    )
    return 1024 if is_small else 256


def lacks_batch(model: nn.Module, x: Inputs) -> bool:
    """Whether x is one example: an image for a convolution, or features for a linear layer."""
    trained_on = describe(model).input_dims
    if trained_on is not None:
        return num_dims(x) == trained_on - 1
    if not isinstance(x, Tensor) or not x.is_floating_point():
        return False
    for module in model.modules():
        if isinstance(module, nn.modules.conv._ConvNd):
            return x.dim() == len(module.kernel_size) + 1
        if isinstance(module, nn.Linear):
            return x.dim() == 1
    return False


def _parted(batch: object, where: str) -> tuple[Any, Any]:
    """What a batch holds of inputs and of targets, None if there are none; nothing is converted."""
    if isinstance(batch, Mapping):
        found = [name for name in TARGETS if name in batch]
        if len(found) > 1:
            raise DataError(
                f"{where} yields a dict with {' and '.join(map(repr, found))}: only one can be the "
                "target; leave the others out, or call them otherwise"
            )
        inputs = {name: value for name, value in batch.items() if name not in found}
        return inputs, batch[found[0]] if found else None
    if isinstance(batch, list | tuple) and len(batch) > 2:
        return tuple(batch[:-1]), batch[-1]
    if isinstance(batch, list | tuple) and batch:
        return batch[0], batch[1] if len(batch) == 2 else None
    return batch, None


def _inputs(value: Any, where: str, dtype: torch.dtype) -> Inputs:
    if isinstance(value, Mapping):
        if not value:
            raise DataError(f"{where} yields a dict without inputs: there is nothing to run on")
        if not all(isinstance(name, str) for name in value):
            raise DataError(f"{where} yields a dict with keys {list(value)}; they must be names")
        return {name: _tensor(part, repr(name), where, dtype) for name, part in value.items()}
    if isinstance(value, list | tuple) and value:
        parts = (_tensor(part, f"input {i}", where, dtype) for i, part in enumerate(value, 1))
        found = tuple(parts)
        return found[0] if len(found) == 1 else found
    return _tensor(value, "inputs", where, dtype)


def _of_one_length(x: Inputs, where: str) -> Inputs:
    if isinstance(x, Tensor):
        return x
    lengths = {name: len(tensor) for name, tensor in named_tensors(x)}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise DataError(f"{where} yields inputs of different numbers of examples: {listed}")
    return x


def _tensor(value: object, name: str, where: str, dtype: torch.dtype) -> Tensor:
    if isinstance(value, np.ndarray):
        value = _from_numpy(value, name, where, dtype)
    if not isinstance(value, Tensor):
        raise DataError(
            f"{where} yields {name} as {_named(value)}; it must be a tensor or a NumPy array: "
            "leave it out, or convert it in the loader's collate_fn"
        )
    if value.dim() == 0:
        raise DataError(f"{where} yields {name} as a single number, without a batch dimension")
    return value


def _from_numpy(array: np.ndarray, name: str, where: str, dtype: torch.dtype) -> Tensor:
    if array.dtype.kind not in "fiub" or np.ma.is_masked(array):
        raise DataError(
            f"{where} yields {name} as an array of {array.dtype}; it must hold numbers, none of "
            "them masked: encode what is text or dates, fill in what is missing"
        )
    if array.dtype.kind in "iu" and array.dtype.itemsize > 1:
        array = array.astype(np.int64, copy=False)
    elif array.dtype.kind == "f" and array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float64)  # other byte orders, longer ones
    writable = array if array.flags.writeable else array.copy()  # torch warns of others
    tensor = torch.from_numpy(np.ascontiguousarray(writable))
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _named(value: object) -> str:
    if isinstance(value, list | tuple) and len(value) != 2:
        return f"{len(value)} values"
    return f"a {type(value).__name__}"
