"""Which parameter is trained how: means by the method's optimiser, log-stds by Adam."""

from collections.abc import Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import named_posteriors, noise_parameters
from pocketbayes.methods import Method

_MARKED = ("state_dict", "load_state_dict", "zero_grad", "add_param_group")


def _unmarked(kind: type[Optimizer]) -> type[Any]:
    """The same optimiser without torch's marks for its compiler.

    They import it, in 3 to 10 seconds, when the first optimiser is made; none here is compiled.
    """
    methods: dict[str, Any] = {name: unwrap(getattr(kind, name)) for name in _MARKED}
    methods["step"] = torch.no_grad()(unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


Adam, AdamW, SGD = map(_unmarked, (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD))


def make_optimizers(model: nn.Module, method: Method) -> list[Optimizer]:
    """One optimiser for means and deterministic parameters, one for everything on a log scale."""
    scales: dict[int, torch.Tensor] = {
        id(p): p for _, q in named_posteriors(model) for p in q.std_parameters()
    }
    noises = {id(noise): noise for noise in noise_parameters(model).values()}
    located = {id(p): p for _, q in named_posteriors(model) for p in q.parameters()}
    inclusions = {id(p) for _, q in named_posteriors(model) for p in q.inclusion_parameters()}
    known = scales.keys() | inclusions
    means = [p for key, p in located.items() if key not in known and p.requires_grad]
    others = located | scales | noises
    rest = [p for p in model.parameters() if id(p) not in others and p.requires_grad]
    groups = [
        {"params": means, "weight_decay": method.weight_decay, "peak_lr": method.peak_lr},
        {"params": rest, "weight_decay": 0.0, "peak_lr": method.peak_lr},
    ]
    on_log_scale = [
        {"params": [p for p in scales.values() if p.requires_grad], "peak_lr": method.std_lr},
        {"params": [p for p in noises.values() if p.requires_grad], "peak_lr": method.noise_rate},
    ]
    groups, on_log_scale = ([g for g in found if g["params"]] for found in (groups, on_log_scale))
    made: list[Optimizer] = []
    fused = not any(p.is_complex() for p in model.parameters())  # for which torch has no kernels
    if groups and method.optimizer == "adamw":
        made.append(AdamW(groups, lr=method.peak_lr, fused=fused))
    elif groups:
        momentum = method.momentum
        made.append(
            SGD(groups, lr=method.peak_lr, momentum=momentum, nesterov=momentum > 0, fused=fused)
        )
    if on_log_scale:
        made.append(Adam(on_log_scale, lr=method.std_lr, fused=True))
    if not made:
        raise PocketBayesError("nothing to train: no parameter of the model requires a gradient")
    return made


def step_(optimizers: Sequence[Optimizer], lr_scale: float, clip_norm: float | None) -> None:
    """One step of all, with gradients of the first's parameters clipped; then there are none."""
    if clip_norm is not None:
        means = [p for group in optimizers[0].param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(means, clip_norm)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * lr_scale
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
