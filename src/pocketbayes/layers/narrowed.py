"""What `shrink` changed of a network's form, and the same done to a whole one that a file fills."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from pocketbayes.layers.description import (
    SHRUNK,
    describe,
    has_description,
    home,
    update_description,
)
from pocketbayes.layers.fewer_heads import keep_heads_

Numbers = dict[str, dict[str, int]]


def numbers_changed(whole: nn.Module, small: nn.Module) -> Numbers:
    """By names of modules, the sizes that they keep as attributes and that are others now."""
    found: Numbers = {}
    for (name, old), (_, new) in zip(whole.named_modules(), small.named_modules(), strict=True):
        sizes = {k: v for k, v in vars(new).items() if _is_size(v) and vars(old).get(k) != v}
        if sizes:
            found[name] = sizes
    return found


def note_shrunk(model: nn.Module, numbers: Numbers) -> None:
    """Adds sizes of modules to those that the model knows to be others than at first."""
    root = home(model)
    known = root.__dict__.get(SHRUNK) or describe(model).shrunk or {}
    every = {name: known.get(name, {}) | numbers.get(name, {}) for name in known | numbers}
    if has_description(root):
        update_description(model, shrunk=every)
    else:
        root.__dict__[SHRUNK] = every


def narrow_to_(net: nn.Module, shapes: Mapping[str, tuple[int, ...]], numbers: Numbers) -> None:
    """Gives a whole network the form of one that was shrunk; what its tensors hold is lost.

    Nothing becomes larger, so that numbers from anywhere do no harm.
    """
    modules = dict(net.named_modules())
    tables = {name: (m._parameters, m._buffers) for name, m in modules.items()}
    for name, shape in shapes.items():
        home, _, key = name.rpartition(".")
        for table in tables.get(home, ()):
            tensor: Any = table.get(key)
            if tensor is not None and _is_smaller(shape, tensor.shape):
                table[key] = _cut(tensor, shape)
    for name, sizes in numbers.items():
        own = vars(modules[name]) if name in modules else {}
        for key, size in sizes.items():
            if _is_size(own.get(key)) and 0 <= size < own[key]:
                _set(modules[name], key, size)
    if numbers:
        leave_nested_tensors(net)


def leave_nested_tensors(net: nn.Module) -> None:
    """Keeps torch's encoders from tensors that only whole attention takes."""
    for module in net.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False


def _set(module: nn.Module, key: str, size: int) -> None:
    if isinstance(module, nn.MultiheadAttention) and key == "num_heads":
        keep_heads_(module, max(1, size))
    else:
        setattr(module, key, size)


def _cut(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    made = tensor.detach()[tuple(slice(size) for size in shape)].clone()
    learns = tensor.requires_grad
    return nn.Parameter(made, learns) if isinstance(tensor, nn.Parameter) else made


def _is_smaller(shape: tuple[int, ...], old: tuple[int, ...]) -> bool:
    fits = len(shape) == len(old) and all(n <= m for n, m in zip(shape, old, strict=True))
    return fits and tuple(shape) != tuple(old)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
