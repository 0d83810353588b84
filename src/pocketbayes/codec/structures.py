"""Whether two networks are the same but for the numbers in them, one of them being Bayesian."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from pocketbayes.layers import (
    NOISES,
    OURS,
    PREFIX,
    bayesian_modules,
    is_description,
    plain_class_of,
    posteriors_of,
)

# What conversion, checkpoints or modes change; and paths.
_PASSED_OVER = {
    "training", "name_or_path", "gradient_checkpointing", "activation_relu_or_gelu",
    "use_nested_tensor",
}  # fmt: skip


def tensor_shapes(model: nn.Module) -> dict[str, tuple[int, tuple[int, ...]]]:
    """(a key that tied ones share, shape) of what a plain network would have in its state dict."""
    found = {
        name: (id(value), tuple(value.shape))
        for name, value in model.state_dict(keep_vars=True).items()
        if isinstance(value, Tensor) and _is_of_network(name)
    }
    for prefix, module in bayesian_modules(model):
        for name, posterior in posteriors_of(module).by_name().items():
            found[f"{prefix}.{name}".lstrip(".")] = (id(posterior), tuple(posterior.shape))
    return found


def _is_of_network(name: str) -> bool:
    is_added = name in NOISES or name.startswith(PREFIX) or is_description(name)
    return not is_added and OURS not in name.split(".")


def difference(model: nn.Module, plain: nn.Module) -> str | None:
    """The first place where they differ in modules, settings, shapes or ties, in words."""
    ours, theirs = dict(_modules(model)), dict(_modules(plain))
    for name in [*ours, *theirs]:
        if name not in ours or name not in theirs:
            return f"only one of them has {name}"
        if "forward" in vars(ours[name]) or ours[name]._forward_hooks:
            return f"{name or 'it'} has a forward or hooks of its own"
        kinds = plain_class_of(ours[name]), plain_class_of(theirs[name])
        if kinds[0] is not kinds[1]:
            return f"{name or 'it'} is a {kinds[0].__name__}, not a {kinds[1].__name__}"
        for key in (one := _settings(ours[name])).keys() | (other := _settings(theirs[name])):
            if one.get(key) != other.get(key):
                return f"{name}.{key} is {one.get(key)!r}, not {other.get(key)!r}".lstrip(".")
    tensors = [tensor_shapes(m) for m in (model, plain)]
    shapes, wanted = ({n: s for n, (_, s) in found.items()} for found in tensors)
    for name in sorted(shapes.keys() | wanted):
        if shapes.get(name) != wanted.get(name):
            return f"{name} has shape {shapes.get(name)}, not {wanted.get(name)}"
    ties, others = (_ties(found) for found in tensors)
    return next((f"only one of them ties {name}" for name in ties.keys() ^ others), None)


def _ties(tensors: Mapping[str, tuple[int, tuple[int, ...]]]) -> dict[tuple[str, ...], None]:
    """Names that share a tensor, together."""
    together = dict[int, list[str]]()
    for name, (key, _) in tensors.items():
        together.setdefault(key, []).append(name)
    return {tuple(sorted(names)): None for names in together.values() if len(names) > 1}


def _modules(net: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    return ((n, m) for n, m in net.named_modules() if OURS not in n.split("."))


def _settings(module: nn.Module) -> dict[str, Any]:
    """What a module says of itself by plain public attributes: strides, rates, sizes."""
    return {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_") and key not in _PASSED_OVER
        if _is_setting(value)
    }


def _is_setting(value: object) -> bool:
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, bool | int | float | str) for item in values)
