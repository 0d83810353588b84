"""The pictures of weight sharing for any model, trained by it or not."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import describe, named_posteriors
from pocketbayes.methods import Sharing
from pocketbayes.posteriors import Codebook, Posterior, Shared, Sparse, as_unshared
from pocketbayes.prediction import ClassPrediction, float_dtype, predict, unpack
from pocketbayes.report.planes import (
    draw_confidences,
    draw_plane,
    draw_weight_densities,
    draw_weight_shares,
)
from pocketbayes.report.plots import Numbers, new_figure, save_figure


def weight_figures(
    model: nn.Module,
    out: str | os.PathLike[str],
    loader: Iterable[Any] | None = None,
    method: Sharing | None = None,
    num_samples: int | Literal["auto"] = 30,
) -> list[Path]:
    """Draws the (mean, std) plane, densities of weights and, with data, confidence by class.

    Of a model with shared weights the plane shows its codebook; of any other, what `Sharing` would
    make of it without looking at gradients: components with ellipses of 1 and 2 standard
    deviations, outliers red, blends yellow. Shared weights have few values, so that instead of
    their density the share of weights up to each value is drawn.

    Args:
        model: a Bayesian model.
        out: directory for `plane.png`, `densities.png` and `confidence.png`.
        loader: (input, class number) batches.
        method: thresholds and number of components for a model that does not share yet.
        num_samples: draws per prediction; "auto": as in `predict`.

    Example:
        >>> weight_figures(model, "figures", test_loader, method=Sharing(components=50))
    """
    weights = RandomWeights.of(model)
    if not weights.posteriors:
        raise PocketBayesError("this model has no random weights to draw: train it first")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    figure, (axes,) = new_figure(1)
    weights.draw_plane(axes, method or Sharing())
    paths = [folder / "plane.png"]
    save_figure(figure, paths[-1])
    figure, (axes,) = new_figure(1)
    weights.draw_layers(axes)
    paths.append(folder / "densities.png")
    save_figure(figure, paths[-1])
    if loader is not None:
        figure, (axes,) = new_figure(1)
        draw_confidences(axes, *_confidences(model, loader, num_samples))
        paths.append(folder / "confidence.png")
        save_figure(figure, paths[-1])
    return paths


@dataclass(frozen=True)
class RandomWeights:
    """The weights of a model that are random: posteriors, and mean and std of each weight."""

    posteriors: dict[str, Posterior]
    moments: dict[str, tuple[Numbers, Numbers]]

    @classmethod
    def of(cls, model: nn.Module) -> "RandomWeights":
        """Those of this model."""
        posteriors = {name: q for name, q in named_posteriors(model) if q.is_random}
        return cls(posteriors, {name: _moments(q) for name, q in posteriors.items()})

    def draw_plane(self, axes: Any, method: Sharing) -> None:
        """The (mean, std) plane with the codebook in use, or the one this method would make."""
        _draw_plane(axes, self.posteriors, self.moments, method)

    def draw_layers(self, axes: Any) -> None:
        """How the means are spread, layer by layer."""
        shares = any(isinstance(q, Shared) for q in self.posteriors.values())
        draw = draw_weight_shares if shares else draw_weight_densities
        draw(axes, {name: mean for name, (mean, _) in self.moments.items()})


@torch.no_grad()
def _moments(posterior: Posterior) -> tuple[Numbers, Numbers]:
    """Mean and std of every weight that is there, in the order of labels and places."""
    own = as_unshared(posterior)
    mean, variance = own.moments()
    if isinstance(own, Sparse):
        mean, variance = own.mean, own.std.square()
    first, second = (t.double().flatten().cpu().numpy() for t in (mean, variance))
    return first, np.sqrt(second)


def _draw_plane(
    axes: Any,
    posteriors: dict[str, Posterior],
    moments: dict[str, tuple[Numbers, Numbers]],
    method: Sharing,
) -> None:
    mean, std = (np.concatenate([pair[i] for pair in moments.values()]) for i in range(2))
    shared = {name: q for name, q in posteriors.items() if isinstance(q, Shared)}
    if shared:
        codebooks = {id(q.codebook): q.codebook for q in shared.values()}.values()
        entries = np.concatenate([_entries(codebook) for codebook in codebooks])
        ends = np.cumsum([0, *(len(pair[0]) for pair in moments.values())])
        begin = dict(zip(moments, ends, strict=False))
        outliers = [q.outlier.cpu().numpy() + begin[name] for name, q in shared.items()]
        blends = [q.blend.cpu().numpy() + begin[name] for name, q in shared.items()]
        parts = np.concatenate(outliers), np.concatenate(blends)
        draw_plane(axes, (mean, std), *parts, components=(entries, None))
        return
    plan = method.planned(torch.from_numpy(mean).float(), torch.from_numpy(std).float())
    parts = plan.outlier.numpy(), plan.blend.numpy()
    ellipses = (
        (np.stack([plan.mean, plan.std], 1), None)
        if plan.mixture is None
        else (plan.mixture.mean, plan.mixture.covariance)
    )
    draw_plane(axes, (mean, std), *parts, components=ellipses)


def _entries(codebook: Codebook) -> Numbers:
    found: Numbers = (
        torch.stack([codebook.mean, codebook.log_std.exp()], 1).detach().double().cpu().numpy()
    )
    return found


def _confidences(
    model: nn.Module, loader: Iterable[Any], num_samples: int | Literal["auto"]
) -> tuple[Numbers, Numbers, tuple[str, ...]]:
    """Confidence and true class of every example, and the names of the classes."""
    confidence, labels, classes = list[Tensor](), list[Tensor](), 0
    for batch in loader:
        x, y = unpack(batch, "the loader", float_dtype(model))
        found = predict(model, x, num_samples, single=False)
        if not isinstance(found, ClassPrediction):
            raise PocketBayesError("confidence by class needs a model of classes, not of values")
        confidence.append(found.probs.max(1).values.cpu())
        labels.append(y.cpu())
        classes = found.probs.shape[1]
    names = describe(model).class_names or tuple(map(str, range(classes)))
    return torch.cat(confidence).double().numpy(), torch.cat(labels).numpy(), names
