"""Bayesian layers: torch's own layers, whose weights have become posteriors.

Conversion swaps a layer's class for a subclass made here, so the object stays the same: its
hooks, mode, references and place in the network need no code. In the subclass every Bayesian
parameter is a property that draws a sample when read, so code that reads `layer.weight`, torch's
own fused attention kernels included, meets the posterior and cannot bypass it.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from types import new_class
from typing import Any, ClassVar

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
    local_reparameterisation,
    output_moments,
)
from pocketbayes.moments import Moments, is_carrying
from pocketbayes.posteriors import Posterior, inside_vmap, is_repeated, remembered


class BayesianModule(nn.Module):
    """A torch module some of whose parameters are posteriors, kept in `posteriors` by name."""

    posteriors: nn.ModuleDict
    estimator: str
    plain_class: ClassVar[type[nn.Module]]
    behaviour: ClassVar[type["BayesianModule"]]
    _held: dict[str, Tensor] | None = None

    def posterior(self, name: str) -> Posterior:
        """The posterior of the parameter `name`."""
        return self.posteriors[name]  # type: ignore[return-value]

    def value(self, name: str) -> Tensor:
        """The parameter as the estimator sees it: a fresh draw, the mean, or its moments."""
        if self._held is not None:
            return self._held[name]
        posterior = self.posterior(name)
        if is_carrying() and posterior.is_random:
            return Moments(*posterior.moments())
        return posterior.expectation() if self.estimator == "mean" else posterior.sample()

    @contextmanager
    def one_draw(self) -> Iterator[None]:
        """Inside, every read of a parameter gives the same draw."""
        held = {name: self.value(name) for name in self.posteriors}
        self._held = held
        try:
            yield
        finally:
            self._held = None

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickles by the plain class and the names, since this class has no importable name."""
        recipe = (self.behaviour, self.plain_class, tuple(self.posteriors))
        return _blank, recipe, super().__reduce_ex__(protocol)[2]


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
        exact = self.estimator == "mean" or not self.posterior(name).is_random
        if self.padding_idx is None or exact or self._held is not None:
            return draw
        rows = torch.arange(draw.shape[0], device=draw.device).unsqueeze(1)
        return torch.where(rows == self.padding_idx, self.posterior(name).expectation(), draw)


class AttentionLayer(SampledLayer):
    """Multi-head attention, whose output projection is read by it and never called."""

    def forward(self, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The plain forward on one draw of all projections."""
        if not torch.compiler.is_compiling() and inside_vmap():
            key = key.view_as(key)  # torch's fused kernel, for `query is key`, cannot be vmapped
        with ExitStack() as stack:
            for child in self.children():
                if isinstance(child, BayesianModule):
                    stack.enter_context(child.one_draw())
            return super().forward(query, key, *args, **kwargs)


class RecurrentLayer(BayesianModule):
    """LSTM and GRU: torch reads their weights from a list that it keeps beside the parameters."""

    _flat_weights: list[Tensor]
    _flat_weights_names: list[str]
    _flat_weight_refs: list[Any]

    def forward(self, input: Any, hx: Any = None) -> Any:  # noqa: A002
        """The plain forward on one draw, which the list holds only as long as it lasts.

        CPU autocast is left aside: torch has no bfloat16 LSTM for every CPU (ARM lacks it).
        """
        with self.one_draw():
            self._flat_weights = [getattr(self, name) for name in self._flat_weights_names]
            try:
                return self._plain_forward(input, hx)
            finally:
                self._init_flat_weights()

    def _plain_forward(self, x: Any, hx: Any) -> Any:
        weight = self._flat_weights[0]
        if weight.is_cuda:
            with warnings.catch_warnings():  # cuDNN would like them in one chunk of memory
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

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002
        """The output for one draw, by this layer's `estimator`."""
        posteriors = [self.posterior(name) for name in self.posteriors]
        if any(q.is_random for q in posteriors):
            local = all(q.is_independent or q.gate is not None for q in posteriors)
            if is_carrying():
                carried = partial(self._carried, common=self.estimator != "lrt" or not local)
                return self._with_batch(input, carried, *args, **kwargs)
            if self.estimator == "lrt" and local:
                return self._with_batch(input, self._local, *args, **kwargs)
            if self.estimator == "flipout" and all(q.is_independent for q in posteriors):
                return self._with_batch(input, self._flipout, *args, **kwargs)
        return super().forward(input, *args, **kwargs)  # type: ignore[no-any-return]

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
        if "bias" in self.posteriors:
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


@cache
def _bayesian_class(
    behaviour: type[BayesianModule], plain: type[nn.Module], names: tuple[str, ...]
) -> type[BayesianModule]:
    """The subclass of `plain` in which the parameters `names` are draws."""

    def drawn(name: str) -> property:
        return property(lambda self: self.value(name), doc=f"A draw of the posterior of {name}.")

    def body(namespace: dict[str, Any]) -> None:
        namespace |= {name: drawn(name) for name in names}
        namespace |= {
            "plain_class": plain,
            "behaviour": behaviour,
            "__module__": plain.__module__,
            "__doc__": f"{plain.__name__} with posteriors over {', '.join(names)}.",
        }

    made: type[BayesianModule] = new_class(
        f"Bayesian{plain.__name__}", (behaviour, plain), exec_body=body
    )
    return made


def _blank(
    behaviour: type[BayesianModule], plain: type[nn.Module], names: tuple[str, ...]
) -> BayesianModule:
    kind = _bayesian_class(behaviour, plain, names)  # type: ignore[arg-type]
    return kind.__new__(kind)


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
    kind = _bayesian_class(behaviour, type(module), tuple(posteriors))  # type: ignore[arg-type]
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
        only_weight = not isinstance(module, LinearLayer) and estimator != "mean"
        module.estimator = "weight" if only_weight else estimator


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
