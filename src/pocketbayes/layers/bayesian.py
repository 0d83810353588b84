"""The kinds of Bayesian layers, by what becomes of a draw of their weights."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pocketbayes.layers.embeddings import EmbeddingLayer
from pocketbayes.layers.linear import LinearLayer
from pocketbayes.layers.module import OURS, BayesianModule, bayesian_class, posteriors_of
from pocketbayes.posteriors import Posterior, inside_vmap

_WARNINGS = threading.Lock()  # what is ignored is so in all threads


class SampledLayer(BayesianModule):
    """A layer around its own forward, on one weight sample per pass (the `weight` estimator)."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The plain layer's forward on one draw of its posteriors."""
        with posteriors_of(self).one_draw():
            return super().forward(*args, **kwargs)


class AttentionLayer(SampledLayer):
    """Multi-head attention, whose output projection is read by it and never called."""

    def forward(self, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The plain forward on one draw of all projections."""
        if not torch.compiler.is_dynamo_compiling() and inside_vmap():
            key = key.view_as(key)  # torch's fused kernel, for `query is key`, cannot be vmapped
        with ExitStack() as stack:
            for child in self.children():
                if isinstance(child, BayesianModule):
                    stack.enter_context(posteriors_of(child).one_draw())
            return super().forward(query, key, *args, **kwargs)


class RecurrentLayer(BayesianModule):
    """LSTM and GRU: torch reads their weights from a list that it keeps beside the parameters."""

    _flat_weights_names: list[str]
    _flat_weight_refs: list[Any]

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002
        """The plain forward on one draw.

        CPU autocast is left aside: torch has no bfloat16 LSTM for every CPU (ARM lacks it).
        """
        with posteriors_of(self).one_draw():
            weight = self._flat_weights[0]
            if weight.is_cuda:
                with _WARNINGS, warnings.catch_warnings():  # cuDNN would like them in one chunk
                    warnings.filterwarnings("ignore", "RNN module weights are not part of single")
                    return super().forward(input, hx)
            if not torch.is_autocast_enabled("cpu"):
                return super().forward(input, hx)
            input, hx = tree_map(lambda t: _like(weight, t), (input, hx))  # noqa: A001
            with torch.autocast("cpu", enabled=False):
                return super().forward(input, hx)

    @property
    def _flat_weights(self) -> list[Tensor]:
        """The draw that is held, in torch's order; what torch would keep here is not kept."""
        held = posteriors_of(self).held_draw()
        return [] if held is None else [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, _: list[Tensor]) -> None:
        self.__dict__.pop("_flat_weights", None)

    def _update_flat_weights(self) -> None:
        """Keeps torch from reading, and so drawing, the weights a second time."""

    def _init_flat_weights(self) -> None:
        self._flat_weights, self._flat_weight_refs = [], []


def _like(weight: Tensor, value: object) -> object:
    real = isinstance(value, Tensor) and value.is_floating_point()
    return value.to(weight.dtype) if real else value  # type: ignore[attr-defined]


def make_bayesian_(
    module: nn.Module,
    behaviour: type[BayesianModule],
    posteriors: dict[str, Posterior],
    estimator: str,
) -> None:
    """Turns `module` into its Bayesian subclass, in place.

    A layer whose own weight stays as it is just reads draws of what else it has.
    """
    if issubclass(behaviour, LinearLayer | EmbeddingLayer) and "weight" not in posteriors:
        behaviour = SampledLayer
    for name in posteriors:
        del module._parameters[name]
    module.add_module(OURS, behaviour._kind_of_posteriors.of(module, posteriors))
    kind = bayesian_class(behaviour, type(module), tuple(posteriors))  # type: ignore[arg-type]
    module.__class__ = kind
    set_estimator(module, estimator)
    if isinstance(module, RecurrentLayer):
        module._init_flat_weights()


def bayesian_modules(model: nn.Module) -> Iterator[tuple[str, BayesianModule]]:
    """The Bayesian modules of a network, by name."""
    return ((n, m) for n, m in model.named_modules() if isinstance(m, BayesianModule))


def set_estimator(model: nn.Module, estimator: str) -> None:
    """Makes every layer draw by `estimator`; those that can only sample weights, by "weight"."""
    for _, module in bayesian_modules(model):
        posteriors = posteriors_of(module)
        posteriors.estimator = posteriors.estimator_for(estimator)


@contextmanager
def drawing_by(model: nn.Module, estimator: str | None) -> Iterator[None]:
    """Inside, layers draw by this estimator; None: by their own. Afterwards they are as before."""
    posteriors = [posteriors_of(module) for _, module in bayesian_modules(model)]
    before = [own.estimator for own in posteriors]
    try:
        if estimator is not None:
            set_estimator(model, estimator)
        yield
    finally:
        for own, was in zip(posteriors, before, strict=True):
            own.estimator = was


def estimator_of(model: nn.Module) -> str:
    """The estimator of the layers that can choose; "weight" if there are none."""
    for _, module in bayesian_modules(model):
        if isinstance(module, LinearLayer):
            return posteriors_of(module).estimator
    return "weight"


def usual_estimator(net: nn.Module) -> str:
    """By which the layers of a network draw where nothing is said."""
    kinds = [type(module) for module in net.modules()]
    has_attention = any("attention" in kind.__name__.lower() for kind in kinds)
    return "weight" if has_attention else "lrt"


@contextmanager
def one_draw(model: nn.Module) -> Iterator[None]:
    """Inside, every call of the model is by the same weights: one function, drawn at random.

    For solvers, simulations and plots that call a model many times. Without gradients, or with one
    backward pass. Dropout that is on still drops anew. `predict` and `evaluate` draw as ever.

    Example:
        >>> with torch.no_grad(), one_draw(model):
        ...     path = [model(t) for t in times]
    """
    with ExitStack() as stack:
        for _, module in bayesian_modules(model):
            stack.enter_context(posteriors_of(module).one_draw())
        yield
