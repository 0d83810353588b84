"""`pocketbayes figures`: pictures of a model's weights and of how sure it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbayes.commands.evaluate import EvaluateOptions, opened_target, require_target
from pocketbayes.commands.flags import (
    Flag,
    merged,
    options_in,
    require_all_taken,
    take,
    with_choices,
)
from pocketbayes.commands.opening import chosen_device, opened_model
from pocketbayes.commands.planning import data_flag_groups
from pocketbayes.data import DATASETS, MemoryLoader, tracked
from pocketbayes.layers import describe
from pocketbayes.methods import Sharing
from pocketbayes.report import weight_figures

_OTHERS = (
    "corruption",
    "severity",
    "ood",
    "ood_root",
    "normalize",
    "estimator",
    "seed",
    "precision",
)  # of `evaluate`, not for pictures


@dataclass(frozen=True)
class FigureOptions(EvaluateOptions):
    """Options of `figures`, beside those of the data set.

    Attributes:
        data: data set for confidence by class; of a run, the one it was trained on
        root: folder that holds the data; else $POCKETBAYES_DATA.
        split: test, validation (the part of the training data held back by train) or train.
        validation: share of the training data that train held back; of a run, its own.
        model: network of your own as package.module:factory.
        num_samples: draws per prediction.
        batch_size: examples at a time.
        device: auto, cpu or cuda.
        out: directory for the pictures.
        components: for a model that does not share its weights yet: how many to show.
    """

    out: Path = Path("figures")
    components: int = 200


def figure_flags() -> dict[str, Flag]:
    """Every option of `figures`."""
    found = merged([options_in(FigureOptions, skip=_OTHERS), *data_flag_groups()])
    return found | {"data": with_choices(found["data"], DATASETS)}


def run_figures(target: Path, given: Mapping[str, Any], flags: Mapping[str, Flag]) -> list[str]:
    """Draws the pictures; without data, or for values instead of classes, those of weights."""
    rest = dict(given)
    options = FigureOptions(**take(rest, FigureOptions.__dataclass_fields__))
    device, loader = chosen_device(options.device), None
    require_target(target)
    if options.data is None and not target.is_dir():
        require_all_taken(rest, flags)
        model = opened_model(target, options.model)
    else:
        options, name, model, dataset = opened_target(target, options, rest, flags)
        if describe(model).likelihood == "categorical":
            loader = tracked(MemoryLoader(dataset, options.batch_size), f"predicting {name}")
    method = Sharing(components=options.components)
    drawn = weight_figures(model.to(device), options.out, loader, method, options.num_samples)
    return list(map(str, drawn))
