"""What every Bayesian layer is: torch's own layer, whose weights have become posteriors.

Conversion swaps a layer's class for a subclass made here, so the object stays the same: its
hooks, mode, references and place in the network need no code. In the subclass every Bayesian
parameter is a property that draws a sample when read, so code that reads `layer.weight`, torch's
own fused attention kernels included, meets the posterior and cannot bypass it. All that is ours
lies under one private name, so that a layer may call its own attributes as it likes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import new_class
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from pocketbayes.errors import ConversionError
from pocketbayes.layers.lent import LentDraw, lent
from pocketbayes.moments import Moments, is_carrying
from pocketbayes.posteriors import Posterior, current_drawing

OURS = "_posteriors"


class LayerPosteriors(nn.ModuleDict):
    """The posteriors of one layer, by the parameter's name, and how they are drawn."""

    estimator = "weight"
    _held: dict[str, Tensor] | None = None

    @classmethod
    def of(cls, layer: nn.Module, posteriors: Mapping[str, Posterior]) -> Self:
        """Those of this layer, which is still plain."""
        return cls(posteriors).train(layer.training)

    def by_name(self) -> dict[str, Posterior]:
        """All of them; as a `ModuleDict` it takes ten times as long."""
        return self._modules  # type: ignore[return-value]

    def __getitem__(self, name: str) -> Posterior:
        """The posterior of the parameter `name`."""
        return self._modules[name]  # type: ignore[return-value]

    def estimator_now(self) -> str:
        """The estimator of the prediction that runs in this thread; else the layer's own."""
        drawing = current_drawing()
        if drawing is None:
            return self.estimator
        wanted = drawing.estimator
        return self.estimator if wanted is None else self.estimator_for(wanted)

    def estimator_for(self, wanted: str) -> str:
        """The one that stands for it in a layer that can only sample weights."""
        return wanted if wanted == "mean" else "weight"

    def draws_weights(self, one_row: bool) -> bool:
        """Whether a pass draws all weights, by the estimator of now."""
        return self.estimator_now() != "mean"

    def value(self, name: str) -> Tensor:
        """The parameter as the estimator sees it: a fresh draw, the mean, or its moments."""
        held, posterior = self.held_draw(), self[name]
        if held is not None:
            return held[name]
        if is_carrying() and posterior.is_random:
            return Moments(*posterior.moments())
        if self.estimator_now() == "mean":
            return posterior.expectation()
        return posterior.sample()

    def held_draw(self) -> dict[str, Tensor] | None:
        """What every read gives inside of `one_draw`."""
        drawing = current_drawing()
        return self._held if drawing is None else drawing.held.get(self)

    @contextmanager
    def one_draw(self) -> Iterator[None]:
        """Inside, every read of a parameter gives the same draw."""
        if self.held_draw() is not None:
            yield
            return
        held, drawing = {name: self.value(name) for name in self._modules}, current_drawing()
        if drawing is None:
            self._held = held
        else:
            drawing.held[self] = held
        try:
            yield
        finally:
            if drawing is None:
                self._held = None
            else:
                drawing.held.pop(self, None)


class BayesianModule(nn.Module):
    """A torch module some of whose parameters are posteriors."""

    _plain_class: ClassVar[type[nn.Module]]
    _behaviour: ClassVar[type["BayesianModule"]]
    _kind_of_posteriors: ClassVar[type[LayerPosteriors]] = LayerPosteriors

    def __setattr__(self, name: str, value: Any) -> None:
        """A parameter that is a posterior is tied to another one, or left as it is."""
        own = posteriors_of(self).by_name()
        other = value.posterior if isinstance(value, LentDraw) else None
        if name not in own:
            super().__setattr__(name, value)
        elif other is not None and other.shape == own[name].shape:
            posteriors_of(self)[name] = other
        else:
            kind = "draw" if isinstance(value, LentDraw) else type(value).__name__
            shape = tuple(value.shape) if isinstance(value, Tensor) else ""
            raise ConversionError(
                f"{name} {tuple(own[name].shape)} of a {plain_class_of(self).__name__} is a "
                f"posterior and cannot be set to a {kind} {shape}: set it before bayesianize_, or "
                "use replace_posterior"
            )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Without the draws that a layer with a `_save_to_state_dict` of its own would add."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in posteriors_of(self).by_name():
            destination.pop(f"{prefix}{name}", None)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *more: Any, **named: Any
    ) -> None:
        """An error for a plain network's weights, which torch with strict=False would pass over."""
        for name in posteriors_of(self).by_name():
            ours = f"{prefix}{OURS}.{name}."
            if f"{prefix}{name}" in state_dict and not any(n.startswith(ours) for n in state_dict):
                raise ConversionError(
                    f"the state dict is of a plain network: {prefix}{name} is a posterior here. "
                    "Call load_state_dict before bayesianize_, whose means begin at what is loaded"
                )
        super()._load_from_state_dict(state_dict, prefix, *more, **named)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickles by the plain class and the names, since this class has no importable name."""
        recipe = (self._behaviour, self._plain_class, tuple(posteriors_of(self).by_name()))
        return blank, recipe, super().__reduce_ex__(protocol)[2]


def posteriors_of(layer: BayesianModule) -> LayerPosteriors:
    """The posteriors of a Bayesian layer."""
    return layer._modules[OURS]  # type: ignore[return-value]


def plain_class_of(module: nn.Module) -> type[nn.Module]:
    """The class that a module has, or had before it became Bayesian."""
    return getattr(type(module), "_plain_class", type(module))


@cache
def bayesian_class(
    behaviour: type[BayesianModule], plain: type[nn.Module], names: tuple[str, ...]
) -> type[BayesianModule]:
    """The subclass of `plain` in which the parameters `names` are draws."""

    def drawn(name: str) -> property:
        return property(lambda self: _read(self, name), doc=f"A draw of the posterior of {name}.")

    def body(namespace: dict[str, Any]) -> None:
        namespace |= {name: drawn(name) for name in names}
        namespace |= {
            "_plain_class": plain,
            "_behaviour": behaviour,
            "__module__": plain.__module__,
            "__doc__": f"{plain.__name__} with posteriors over {', '.join(names)}.",
        }

    made: type[BayesianModule] = new_class(
        f"Bayesian{plain.__name__}", (behaviour, plain), exec_body=body
    )
    return made


def _read(layer: BayesianModule, name: str) -> Any:
    """A value; whoever reads it from outside of the layer's own pass cannot write into it."""
    posteriors = posteriors_of(layer)
    value = posteriors.value(name)
    if posteriors.held_draw() is not None:
        return value
    return lent(value, posteriors[name], f"{name} of a {plain_class_of(layer).__name__}")


def blank(
    behaviour: type[BayesianModule], plain: type[nn.Module], names: tuple[str, ...]
) -> BayesianModule:
    """An object of that class, of which nothing is filled in."""
    kind = bayesian_class(behaviour, plain, names)  # type: ignore[arg-type]
    return kind.__new__(kind)
