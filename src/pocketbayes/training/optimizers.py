"""Which parameter is trained how: means by the method's optimiser, log-stds by Adam."""

from collections.abc import Sequence
from inspect import unwrap
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from pocketbayes.errors import PocketBayesError, require_number
from pocketbayes.layers import named_posteriors, noise_parameters, require_module
from pocketbayes.methods import IVON, Method, trained_by_pairs
from pocketbayes.posteriors import is_split
from pocketbayes.training import natural_gradient

_MARKED = ("state_dict", "load_state_dict", "zero_grad", "add_param_group")


def _unmarked(kind: type[Optimizer]) -> type[Any]:
    """The same optimiser without torch's marks for its compiler.

    They import it, in 3 to 10 seconds, when the first optimiser is made; none here is compiled.
    """
    methods: dict[str, Any] = {name: unwrap(getattr(kind, name)) for name in _MARKED}
    methods["step"] = torch.no_grad()(unwrap(kind.step))
    return type(kind.__name__, (kind,), methods)


Adam, AdamW, SGD = map(_unmarked, (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD))
NaturalGradient = _unmarked(natural_gradient.NaturalGradient)


class Kinds(NamedTuple):
    """The parameters that a gradient trains, by what they are."""

    means: list[nn.Parameter]
    others: list[nn.Parameter]
    log_stds: list[nn.Parameter]
    noises: list[nn.Parameter]

    def without(self, others: Sequence[nn.Parameter]) -> "Kinds":
        """All but these."""
        gone = set(map(id, others))
        return Kinds(*([p for p in kind if id(p) not in gone] for kind in self))


def kinds_of(model: nn.Module) -> Kinds:
    """Each parameter that requires a gradient, once; inclusion variables have updates of their own.

    Others are deterministic: biases, norms, layers that were not converted.
    """
    posteriors = [posterior for _, posterior in named_posteriors(model)]
    scales: dict[int, Any] = {id(p): p for q in posteriors for p in q.std_parameters()}
    noises: dict[int, Any] = {id(noise): noise for noise in noise_parameters(model).values()}
    located = {id(p): p for q in posteriors for p in q.parameters()}
    known = scales.keys() | {id(p) for q in posteriors for p in q.inclusion_parameters()}
    means = [p for key, p in located.items() if key not in known]
    elsewhere = located | scales | noises
    others = [p for p in model.parameters() if id(p) not in elsewhere]
    kinds = means, others, list(scales.values()), list(noises.values())
    return Kinds(*([p for p in kind if p.requires_grad] for kind in kinds))


def parameter_groups(
    model: nn.Module, lr: float = 3e-3, weight_decay: float = 0.0, std_lr: float = 1e-2
) -> list[dict[str, Any]]:
    """The parameters of a model in groups for an optimiser of your own, as `fit` trains them.

    Means of weights have the weight decay. Biases, norms and other deterministic parameters have
    none, nor have log-stds and a regression's noise, which a decay would draw to a std of 1. These
    go at a rate of their own: their KL gradient is about beta / N, which needs an optimiser like
    Adam. A learning rate schedule scales both rates.

    Args:
        model: the result of `bayesianize_`.
        lr: learning rate of means and deterministic parameters.
        weight_decay: of the means of weights, on top of the KL.
        std_lr: learning rate of log-stds and noise.

    Example:
        >>> optimizer = torch.optim.AdamW(parameter_groups(model, lr=1e-3, weight_decay=0.01))
    """
    require_module(model)
    require_number(lr, "lr", least=0)
    require_number(weight_decay, "weight_decay", least=0)
    require_number(std_lr, "std_lr", least=0)
    kinds = kinds_of(model)
    groups = [
        {"params": kinds.means, "lr": lr, "weight_decay": weight_decay},
        {"params": kinds.others, "lr": lr, "weight_decay": 0.0},
        {"params": kinds.log_stds + kinds.noises, "lr": std_lr, "weight_decay": 0.0},
    ]
    return _required([group for group in groups if group["params"]])


def make_optimizers(model: nn.Module, method: Method) -> list[Optimizer]:
    """One optimiser for means and deterministic parameters, one for everything on a log scale."""
    kinds = kinds_of(model)
    made: list[Optimizer] = []
    if isinstance(method, IVON) and (pairs := trained_by_pairs(model)):
        by_pairs = [q.mean for q in pairs], [q.log_std for q in pairs]
        rates = method.step_size, method.curvature_rate, method.momentum
        made.append(NaturalGradient(*by_pairs, *rates))
        kinds = kinds.without([p for found in by_pairs for p in found])
    of_means = {"peak_lr": method.peak_lr, "is_clipped": True}
    groups: list[dict[str, Any]] = [
        {"params": kinds.means, "weight_decay": method.weight_decay} | of_means,
        {"params": kinds.others, "weight_decay": 0.0} | of_means,
    ]
    on_log_scale: list[dict[str, Any]] = [
        {"params": kinds.log_stds, "peak_lr": method.std_lr},
        {"params": kinds.noises, "peak_lr": method.noise_rate},
    ]
    groups, on_log_scale = ([g for g in found if g["params"]] for found in (groups, on_log_scale))
    fused = not any(p.is_complex() for p in model.parameters())  # for which torch has no kernels
    if groups and method.optimizer == "adamw":
        made.append(AdamW(groups, lr=method.peak_lr, fused=fused))
    elif groups:
        momentum = method.momentum
        fused = fused and not any(map(is_split, model.parameters()))  # for which it has no kernel
        made.append(
            SGD(groups, lr=method.peak_lr, momentum=momentum, nesterov=momentum > 0, fused=fused)
        )
    if on_log_scale:
        made.append(Adam(on_log_scale, lr=method.std_lr, fused=True))
    return _required(made)


def _required(found: list[Any]) -> list[Any]:
    if not found:
        raise PocketBayesError("nothing to train: no parameter of the model requires a gradient")
    return found


def step_(
    optimizers: Sequence[Optimizer], lr_scale: float, kl_weight: float, clip_norm: float | None
) -> None:
    """One step of all, with gradients of means and others clipped; then there are none."""
    if clip_norm is not None:
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        clipped = [p for group in groups if group.get("is_clipped") for p in group["params"]]
        nn.utils.clip_grad_norm_(clipped, clip_norm)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"], group["kl_weight"] = group["peak_lr"] * lr_scale, kl_weight
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
