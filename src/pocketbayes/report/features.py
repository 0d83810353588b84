"""Which inputs matter: inclusion probabilities by feature, with the names of the data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pocketbayes.data import table_features
from pocketbayes.errors import PocketBayesError, printable, warn
from pocketbayes.layers import (
    BayesianModule,
    Ensemble,
    describe,
    library_type,
    named_posteriors,
    posteriors_of,
    require_module,
)
from pocketbayes.posteriors import SpikeSlab
from pocketbayes.report.plots import COLOURS, as_label

_WIDEST = 40


@dataclass(frozen=True)
class FeatureReport:
    """How likely it is that each input is used; prints as a table.

    Attributes:
        probabilities: by feature, the most likely first. Of a column with several values, which
            takes one input per value, the probability of its likeliest one.
    """

    probabilities: Mapping[str, float]

    def chosen(self, least: float = 0.5) -> list[str]:
        """The features that are more likely in than out."""
        return [name for name, p in self.probabilities.items() if p >= least]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {"features": dict(self.probabilities), "chosen": self.chosen()}

    def draw(self, axes: Any, most: int = 30) -> None:
        """Bars of the likeliest features, with a line at one half."""
        shown = list(self.probabilities.items())[:most][::-1]
        colours = [COLOURS[0] if p >= 0.5 else "0.7" for _, p in shown]
        rows = range(len(shown))  # by number: cut names may be equal
        axes.barh(rows, [p for _, p in shown], color=colours)
        axes.set_yticks(rows, [as_label(name) for name, _ in shown])
        axes.margins(y=0.01)
        axes.axvline(0.5, color="0.4", linewidth=1, linestyle="--")
        axes.set(xlim=(0, 1), xlabel="probability of use")
        axes.set_title("Which inputs matter?", fontsize=10)

    def __str__(self) -> str:
        names = _distinct([printable(name) for name in self.probabilities])
        width = max(map(len, names), default=0)
        lines = [
            f"{name:<{width}}  {p:6.3f}  {'█' * round(20 * p)}".rstrip()
            for name, p in zip(names, self.probabilities.values(), strict=True)
        ]
        return "\n".join(lines)


def _distinct(names: list[str]) -> list[str]:
    """Long names cut in the middle, unless two would then look the same."""
    half = (_WIDEST - 1) // 2
    cut = [n if len(n) <= _WIDEST else f"{n[: half + 1]}…{n[-half:]}" for n in names]
    return cut if len(set(cut)) == len(set(names)) else names


@torch.no_grad()
def feature_report(model: nn.Module, names: Iterable[object] | None = None) -> FeatureReport:
    """How likely each input is used by a model that `SpikeSlab(granularity="input")` has trained.

    The layer that reads the data must be the first that the network registers. Other layers that
    read it as well, such as a skip connection, are not in the report.

    Args:
        model: the trained model.
        names: of the inputs, in their order, for instance the columns of a data frame. Inputs of
            the same name are one feature, as likely as its likeliest. None: those of the table that
            the model was trained on; without one, numbers, as have the rows of an Embedding.

    Raises:
        PocketBayesError: there are more or fewer names than inputs; the model is an ensemble, the
            first layer with a posterior has no gates of its inputs, or has groups that share them,
            or reads them in two directions, or another layer comes before it.

    Example:
        >>> report = feature_report(model, names=["age", "height", "weight"])
        >>> report.chosen()
    """
    require_module(model)
    if isinstance(model, Ensemble):
        raise PocketBayesError("an ensemble has several reports: ask for each of model.members")
    first = _input_gates(model)
    beta = describe(model).beta
    if beta is not None and beta < 1:
        warn(
            f"trained with beta {beta:g}: these numbers are too near 0 and 1 to be probabilities, "
            "and irrelevant inputs may have a high one; fit with SpikeSlab(beta=1)",
        )
    inputs = len(first.log_odds)
    owners = (
        input_names(describe(model).preprocess, inputs) if names is None
        else _given_names(names, inputs)
    )  # fmt: skip
    best: dict[str, float] = {}
    for name, p in zip(owners, first.inclusion.tolist(), strict=True):
        best[name] = max(p, best.get(name, 0.0))
    return FeatureReport(dict(sorted(best.items(), key=lambda item: -item[1])))


def _input_gates(model: nn.Module) -> SpikeSlab:
    """The posterior of the first layer, if its gates are those of the data's features."""
    matrices = ((name, q) for name, q in named_posteriors(model) if len(q.shape) > 1)
    name, first = next(matrices, ("", None))
    if not isinstance(first, SpikeSlab) or first.granularity != "input":
        raise PocketBayesError(
            "the first layer has no gates of inputs: train with "
            'method=SpikeSlab(granularity="input"), and report before prune_'
        )
    layer = name.rpartition(".")[0]
    before = next(other for other, module in model.named_modules() if _has_weights(module))
    if before != layer:
        raise PocketBayesError(
            f"{before} comes before {layer}, the first layer with a posterior, so the gates are "
            "not those of the data's features: let bayesianize_ convert it too"
        )
    if getattr(model.get_submodule(layer), "bidirectional", False):
        raise PocketBayesError(
            f"{layer or 'the layer'} reads the inputs in two directions, each with gates of its "
            "own: use one of a single direction to choose among its inputs"
        )
    if getattr(model.get_submodule(layer), "groups", 1) != 1:
        raise PocketBayesError(
            f"{layer or 'the layer'} has groups, whose inputs share gates: use one without "
            "groups to choose among its inputs"
        )
    return first


def _has_weights(module: nn.Module) -> bool:
    """Whether it mixes its inputs: a layer with a posterior, or one of torch's with a matrix."""
    if isinstance(module, BayesianModule):
        return any(len(q.shape) > 1 for q in posteriors_of(module).by_name().values())
    own = (p for p in module._parameters.values() if p is not None)
    return library_type(module) is not None and any(p.dim() > 1 for p in own)


def _given_names(names: Iterable[object], inputs: int) -> list[str]:
    is_list = isinstance(names, Iterable) and not isinstance(names, str | bytes)
    found = list(map(str, names)) if is_list else []
    if len(found) != inputs:
        text = f"the text {names!r}" if isinstance(names, str) else f"a {type(names).__name__}"
        given = f"{len(found)} names" if is_list else text
        raise PocketBayesError(
            f"names= is {given} and the first layer has {inputs} inputs: pass a list with one name "
            "for each, in their order"
        )
    return found


def input_names(preprocess: Mapping[str, Any] | None, inputs: int) -> list[str]:
    """The feature that each input belongs to; a column of words has an input for each word."""
    columns = (preprocess or {}).get("columns", [])
    names = [feature.about for feature in table_features({"columns": columns})]
    if names and len(names) != inputs:
        raise PocketBayesError(
            f"the first layer has {inputs} inputs and the table {len(names)}: the layer that reads "
            "the data must be the first that the network registers"
        )
    return names or [f"input {k}" for k in range(inputs)]
