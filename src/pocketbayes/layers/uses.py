"""How often one pass uses each weight, as the shapes of what its layer is given tell."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError
from pocketbayes.layers.ensembles import members_of
from pocketbayes.layers.inputs import Inputs, called, explained_failure, num_examples, tensors_of
from pocketbayes.layers.modes import restored_mode
from pocketbayes.layers.module import BayesianModule, posteriors_of
from pocketbayes.layers.walking import modules_of
from pocketbayes.posteriors import Posterior, SpikeSlab, isolated_randomness

_LINEAR = (nn.Linear, nn.modules.conv._ConvNd)
_COUNTED = (*_LINEAR, nn.MultiheadAttention, nn.RNNBase)


class Use(NamedTuple):
    """One weight tensor in one call of a layer.

    Attributes:
        weight: its posterior, or the parameter of a layer that is not Bayesian.
        positions: how often each number of it multiplies an activation, for one example: once per
            row, output pixel or token.
    """

    weight: Posterior | Tensor
    positions: float

    @property
    def size(self) -> int:
        """Numbers of the tensor."""
        return self.weight.shape.numel()

    @property
    def active(self) -> int:
        """Those that are there; sparse posteriors lack the others."""
        return self.weight.num_active if isinstance(self.weight, Posterior) else self.size


def uses_of_weights(model: nn.Module, x: Inputs) -> list[Use]:
    """Every use of a weight matrix in a pass over `x`, divided by the number of its examples.

    Weights of linear layers, convolutions, attention and recurrent layers. The model, of an
    ensemble each member, is run once.
    """
    found: list[Use] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        for name, count in _counts(module, args, kwargs, output):
            weight = _weight(module, name)
            if weight is not None:
                found.append(Use(weight, count / examples))

    _require_examples(x)
    examples, device = num_examples(x), tensors_of(x)[0].device
    with ExitStack() as stack:
        for module in filter(lambda m: isinstance(m, _COUNTED), model.modules()):
            handle = module.register_forward_hook(note, with_kwargs=True)
            stack.callback(handle.remove)
        stack.enter_context(restored_mode(model))
        stack.enter_context(isolated_randomness(device))
        stack.enter_context(torch.no_grad())
        stack.enter_context(explained_failure(x))
        for member in members_of(model.eval()):
            called(member, x)
    return found


def tells_rows_alike(model: nn.Module, x: Inputs) -> bool:
    """Whether draws by "lrt" and "flipout" have the law of whole weights, for each row by itself.

    So it is where layers that are linear use each random weight once for a row, as in a network of
    linear layers, flattening and operations on each number. Of weights with an inclusion variable
    each, local reparameterisation keeps the moments alone.
    """
    for module in modules_of(model):
        if not isinstance(module, BayesianModule):
            continue
        random = [q for q in posteriors_of(module).by_name().values() if q.is_random]
        if not isinstance(module, _LINEAR) and any(len(q.shape) > 1 for q in random):
            return False
        if any(isinstance(q, SpikeSlab) and q.is_independent and not q.is_normal for q in random):
            return False
    positions = dict[Posterior | Tensor, float]()
    for weight, count in uses_of_weights(model, x):
        positions[weight] = positions.get(weight, 0) + count
    return all(n <= 1 for q, n in positions.items() if isinstance(q, Posterior) and q.is_random)


def _require_examples(x: object) -> None:
    several = x.values() if isinstance(x, dict) else x if isinstance(x, tuple) else (x,)
    if not several or any(
        not isinstance(t, Tensor) or t.dim() == 0 or len(t) == 0 for t in several
    ):
        raise DataError(
            "the example must be a batch of inputs as the model sees them, x[:1] for instance: a "
            "tensor, or several in a tuple or, by name, in a dict"
        )


def _counts(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> Iterator[tuple[str, float]]:
    """The names of a layer's weights, and how often this call applied each."""
    if isinstance(module, nn.MultiheadAttention):
        given = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
        q, k, v = (_rows(given[name]) for name in ("query", "key", "value"))
        yield from zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), (q, k, v), strict=True)
        yield from (("in_proj_weight", (q + k + v) / 3), ("out_proj.weight", q))
        return
    x = args[0] if args else next(iter(kwargs.values()))
    if isinstance(module, nn.RNNBase):
        tokens = _rows(x if isinstance(x, Tensor) else x.data)
        names = (name for name in module._flat_weights_names if name.startswith("weight"))
        yield from ((name, tokens) for name in names)
    elif isinstance(module, nn.Linear):
        yield "weight", _rows(output)
    elif isinstance(module, nn.modules.conv._ConvTransposeNd):
        yield "weight", x.numel() // module.in_channels
    elif isinstance(module, nn.modules.conv._ConvNd):
        yield "weight", output.numel() // module.out_channels


def _rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def _weight(module: nn.Module, name: str) -> Posterior | Tensor | None:
    """The posterior or parameter of that name; None where the layer has none."""
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    if isinstance(owner, BayesianModule) and leaf in posteriors_of(owner).by_name():
        return posteriors_of(owner)[leaf]
    found: Tensor | None = getattr(owner, leaf)
    return found
