"""What every Bayesian layer is: torch's own layer, whose weights have become posteriors.

Conversion swaps a layer's class for a subclass made here, so the object stays the same: its
hooks, mode, references and place in the network need no code. In the subclass every Bayesian
parameter is a property that draws a sample when read, so code that reads `layer.weight`, torch's
own fused attention kernels included, meets the posterior and cannot bypass it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import new_class
from typing import Any, ClassVar

from torch import Tensor, nn

from pocketbayes.moments import Moments, is_carrying
from pocketbayes.posteriors import Posterior, current_drawing


class BayesianModule(nn.Module):
    """A torch module some of whose parameters are posteriors, kept in `posteriors` by name."""

    posteriors: nn.ModuleDict
    estimator: str
    plain_class: ClassVar[type[nn.Module]]
    behaviour: ClassVar[type["BayesianModule"]]
    _held: dict[str, Tensor] | None = None

    def posterior(self, name: str) -> Posterior:
        """The posterior of the parameter `name`."""
        return self.posteriors_by_name()[name]

    def posteriors_by_name(self) -> dict[str, Posterior]:
        """All of them; `self.posteriors` takes torch ten times as long."""
        return self._modules["posteriors"]._modules  # type: ignore[union-attr, return-value]

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
        held, posterior = self.held_draw(), self.posterior(name)
        if held is not None:
            return held[name]
        if is_carrying() and posterior.is_random:
            return Moments(*posterior.moments())
        if self.estimator_now() == "mean":
            return posterior.expectation()
        return self.posterior(name).sample()

    def held_draw(self) -> dict[str, Tensor] | None:
        """What every read gives inside of `one_draw`."""
        drawing = current_drawing()
        return self._held if drawing is None else drawing.held.get(self)

    @contextmanager
    def one_draw(self) -> Iterator[None]:
        """Inside, every read of a parameter gives the same draw."""
        held, drawing = {name: self.value(name) for name in self.posteriors}, current_drawing()
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

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickles by the plain class and the names, since this class has no importable name."""
        recipe = (self.behaviour, self.plain_class, tuple(self.posteriors))
        return blank, recipe, super().__reduce_ex__(protocol)[2]


@cache
def bayesian_class(
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


def blank(
    behaviour: type[BayesianModule], plain: type[nn.Module], names: tuple[str, ...]
) -> BayesianModule:
    """An object of that class, of which nothing is filled in."""
    kind = bayesian_class(behaviour, plain, names)  # type: ignore[arg-type]
    return kind.__new__(kind)
