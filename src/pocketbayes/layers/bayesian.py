"""The kinds of Bayesian layers, by what becomes of a draw of their weights."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from pocketbayes.layers.carried import carried_moments
from pocketbayes.layers.convolutions import as_convolution
from pocketbayes.layers.estimators import (
    Conv,
    Weights,
    add_noise,
    as_half,
    flipout,
    gated_reparameterisation,
    linear_operation,
    local_reparameterisation,
    output_moments,
)
from pocketbayes.layers.module import BayesianModule, bayesian_class
from pocketbayes.layers.module import blank as _blank  # noqa: F401  where older pickles look for it
from pocketbayes.moments import is_carrying
from pocketbayes.posteriors import (
    Posterior,
    current_drawing,
    inside_vmap,
    is_repeated,
    remembered,
)

_WARNINGS = threading.Lock()  # what is ignored is so in all threads


class SampledLayer(BayesianModule):
    """A layer around its own forward, on one weight sample per pass (the `weight` estimator)."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The plain layer's forward on one draw of its posteriors."""
        with self.one_draw():
            return super().forward(*args, **kwargs)


class EmbeddingLayer(SampledLayer):
    """An embedding; the padding row, which never learns, has no noise either."""

    padding_idx: int | None

    def value(self, name: str) -> Tensor:
        """A draw of the table whose padding row is the mean's."""
        draw = super().value(name)
        exact = self.estimator_now() == "mean" or not self.posterior(name).is_random
        if self.padding_idx is None or exact or self.held_draw() is not None:
            return draw
        rows = torch.arange(draw.shape[0], device=draw.device).unsqueeze(1)
        return torch.where(rows == self.padding_idx, self.posterior(name).expectation(), draw)


class AttentionLayer(SampledLayer):
    """Multi-head attention, whose output projection is read by it and never called."""

    def forward(self, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The plain forward on one draw of all projections."""
        if not torch.compiler.is_dynamo_compiling() and inside_vmap():
            key = key.view_as(key)  # torch's fused kernel, for `query is key`, cannot be vmapped
        with ExitStack() as stack:
            for child in self.children():
                if isinstance(child, BayesianModule):
                    stack.enter_context(child.one_draw())
            return super().forward(query, key, *args, **kwargs)


class RecurrentLayer(BayesianModule):
    """LSTM and GRU: torch reads their weights from a list that it keeps beside the parameters."""

    _flat_weights_names: list[str]
    _flat_weight_refs: list[Any]

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002
        """The plain forward on one draw.

        CPU autocast is left aside: torch has no bfloat16 LSTM for every CPU (ARM lacks it).
        """
        with self.one_draw():
            return self._plain_forward(input, hx)

    @property
    def _flat_weights(self) -> list[Tensor]:
        """The draw that is held, in torch's order; what torch would keep here is not kept."""
        held = self.held_draw()
        return [] if held is None else [getattr(self, name) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, _: list[Tensor]) -> None:
        self.__dict__.pop("_flat_weights", None)

    def _plain_forward(self, x: Any, hx: Any) -> Any:
        weight = self._flat_weights[0]
        if weight.is_cuda:
            with _WARNINGS, warnings.catch_warnings():  # cuDNN would like them in one chunk
                warnings.filterwarnings("ignore", "RNN module weights are not part of single")
                return super().forward(x, hx)
        if not torch.is_autocast_enabled("cpu"):
            return super().forward(x, hx)
        x, hx = tree_map(lambda t: t.to(weight.dtype) if _is_real(t) else t, (x, hx))
        with torch.autocast("cpu", enabled=False):
            return super().forward(x, hx)

    def _update_flat_weights(self) -> None:
        """Keeps torch from reading, and so drawing, the weights a second time."""

    def _init_flat_weights(self) -> None:
        self._flat_weights, self._flat_weight_refs = [], []


def _is_real(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


class LinearLayer(BayesianModule):
    """Any layer that is linear in its weight: Linear, ConvNd, ConvTransposeNd."""

    def estimator_for(self, wanted: str) -> str:
        """Any."""
        return wanted

    def draws_weights(self, one_row: bool) -> bool:
        """By local reparameterisation it does not."""
        is_local = isinstance(self, nn.Linear) and one_row and self._is_normal
        return self.estimator_now() in ("weight", "flipout") and not is_local

    @property
    def _is_normal(self) -> bool:
        return all(q.is_normal for q in self.posteriors_by_name().values())

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002
        """The output for one draw, by this layer's `estimator`."""
        drawing, estimator = current_drawing(), self.estimator_now()
        posteriors = self.posteriors_by_name().values()
        if (estimator != "mean" or is_carrying()) and any(q.is_random for q in posteriors):
            local = all(q.is_independent or q.gate is not None for q in posteriors)
            if is_carrying():
                carried = partial(self._carried, common=estimator != "lrt" or not local)
                return self._with_batch(input, carried, *args, **kwargs)
            if (estimator == "lrt" and local) or (drawing is not None and self._is_local(input)):
                return self._with_batch(input, self._local, *args, **kwargs)
            if estimator == "flipout" and all(q.is_independent for q in posteriors):
                return self._with_batch(input, self._flipout, *args, **kwargs)
        if drawing is not None and drawing.is_at_once and not isinstance(self, nn.Linear):
            return self._with_batch(input, self._plain, *args, **kwargs)
        return super().forward(input, *args, **kwargs)  # type: ignore[no-any-return]

    def _is_local(self, x: Tensor) -> bool:
        """Whether the output for drawn weights has the law of local reparameterisation.

        Outputs of one row are independent normal numbers if the weights are, so that there is no
        need to draw all of these.
        """
        return (
            self.estimator_now() == "weight"
            and isinstance(self, nn.Linear)
            and x.numel() == x.shape[-1]
            and self._is_normal
        )

    def _local(self, x: Tensor, conv: Conv | None) -> Tensor:
        gate = self.posterior("weight").gate
        if gate is not None:
            return gated_reparameterisation(x, self._weights(), conv, *gate)
        if not is_repeated(x):
            return local_reparameterisation(x, self._weights(), conv)
        place = x.untyped_storage().data_ptr(), x.storage_offset()
        key = (id(self), conv, x.dtype, x.size(), x.stride(), *place)
        known = remembered(key, lambda: output_moments(x, self._weights(), conv))
        return as_half(x, add_noise(*known))

    def _plain(self, x: Tensor, conv: Conv | None) -> Tensor:
        return linear_operation(x, self.weight, self.bias, conv)  # type: ignore[arg-type]

    def _carried(self, x: Tensor, conv: Conv | None, common: bool) -> Tensor:
        weights, gate = self._weights(), self.posterior("weight").gate
        if gate is not None and gate.side == "input":
            weights, gate = Weights(*self.posterior("weight").moments(), *weights[2:]), None
        square = remembered(("square", self.posterior("weight")), weights.mean.square)
        inclusion = None if gate is None else gate.inclusion
        return carried_moments(x, weights, conv, common, inclusion, square)

    def _flipout(self, x: Tensor, conv: Conv | None) -> Tensor:
        mean = self.posterior("weight").expectation()
        deviation = self.posterior("weight").sample() - mean
        return flipout(x, mean, deviation, self.bias, conv)  # type: ignore[arg-type]

    def _weights(self) -> Weights:
        """Moments of weight and bias; of a weight behind a gate, those while it is open."""
        mean, variance = self.posterior("weight").slab()
        if "bias" in self.posteriors_by_name():
            return Weights(mean, variance, *self.posterior("bias").moments())
        return Weights(mean, variance, self.bias, None)  # type: ignore[arg-type]

    def _with_batch(
        self, x: Tensor, run: Callable[[Tensor, Conv | None], Tensor], *args: Any, **kwargs: Any
    ) -> Tensor:
        """Runs `run` on a batched, padded input; torch's layers also take a single example."""
        if isinstance(self, nn.Linear):
            return run(x, None)
        spatial = len(self.kernel_size)  # type: ignore[arg-type]
        if x.dim() not in (spatial + 1, spatial + 2):
            return super().forward(x, *args, **kwargs)  # type: ignore[no-any-return]  # torch's own error
        batched = x.dim() == spatial + 2
        output = run(*as_convolution(self, x, batched, *args, **kwargs))
        return output if batched else output.squeeze(0)


def make_bayesian_(
    module: nn.Module,
    behaviour: type[BayesianModule],
    posteriors: dict[str, Posterior],
    estimator: str,
) -> None:
    """Turns `module` into its Bayesian subclass, in place."""
    for name in posteriors:
        del module._parameters[name]
    module.posteriors = nn.ModuleDict(posteriors).train(module.training)
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
        module.estimator = module.estimator_for(estimator)


@contextmanager
def drawing_by(model: nn.Module, estimator: str | None) -> Iterator[None]:
    """Inside, layers draw by this estimator; None: by their own. Afterwards they are as before."""
    before = [(module, module.estimator) for _, module in bayesian_modules(model)]
    try:
        if estimator is not None:
            set_estimator(model, estimator)
        yield
    finally:
        for module, was in before:
            module.estimator = was


def estimator_of(model: nn.Module) -> str:
    """The estimator of the layers that can choose; "weight" if there are none."""
    for _, module in bayesian_modules(model):
        if isinstance(module, LinearLayer):
            return module.estimator
    return "weight"
