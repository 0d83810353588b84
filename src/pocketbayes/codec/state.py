"""The deterministic rest of a model: parameters and buffers that have no posterior."""

from collections.abc import Mapping

from torch import Tensor, nn

from pocketbayes.description import is_description
from pocketbayes.errors import FormatError, PocketBayesError
from pocketbayes.layers import bayesian_modules


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers outside of posteriors; a tied one by its first name."""
    inside = tuple(f"{name}.posteriors.".lstrip(".") for name, _ in bayesian_modules(model))
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in model.state_dict(keep_vars=True).items():
        if name.startswith(inside) or is_description(name):
            continue
        if not isinstance(value, Tensor) or name.endswith("_extra_state"):
            raise PocketBayesError(
                f"{name} is a {type(value).__name__} that is neither parameter nor buffer; a file "
                "holds tensors only"
            )
        if id(value) not in seen:
            seen.add(id(value))
            found[name] = value
    return found


def replace_state_(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Puts these tensors in place of the model's own, wherever they are tied to."""
    expected = plain_state(model)
    for name in sorted(expected.keys() ^ state.keys()):
        where = "the file" if name in expected else "the network"
        raise FormatError(f"{name} is not in {where}")
    slots: dict[int, list[tuple[dict[str, Tensor | None], str]]] = {}
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for key, tensor in table.items():
                slots.setdefault(id(tensor), []).append((table, key))  # type: ignore[arg-type]
    for name, old in expected.items():
        new = _fitting(name, old, state[name])
        for table, key in slots[id(old)]:
            table[key] = new
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            raise FormatError(f"{name} is not in the file")


def _fitting(name: str, old: Tensor, new: Tensor) -> Tensor:
    if old.shape != new.shape or old.is_floating_point() != new.is_floating_point():
        raise FormatError(
            f"section state/{name} is {new.dtype} of shape {tuple(new.shape)}; the network has "
            f"{old.dtype} of shape {tuple(old.shape)}"
        )
    if isinstance(old, nn.Parameter):
        return nn.Parameter(new.clone(), requires_grad=old.requires_grad)
    return new.clone()
