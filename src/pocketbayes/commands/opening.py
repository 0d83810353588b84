"""Data, networks and models as the command line names them."""

import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from pocketbayes.codec import described, load
from pocketbayes.commands.flags import UsageError
from pocketbayes.commands.runs import CONFIG, MODEL
from pocketbayes.data import (
    DATASETS,
    ImageSet,
    TableSet,
    checked_table_preprocess,
    image_form,
    open_dataset,
    table_features,
)
from pocketbayes.errors import DataError, FormatError, PocketBayesError, printable
from pocketbayes.layers import Description, bayesianize_, describe, update_description
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.methods import make_points_
from pocketbayes.models import build_network
from pocketbayes.training import DEVICES

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
NORMALISATIONS = ("data", "imagenet")
_LENGTHS = ("rmse", "crps", "interval_score_90")  # in units of the target
Dataset = ImageSet | TableSet


def chosen_device(name: str) -> torch.device:
    """The device of this name; "auto": a GPU if there is one, each process its own."""
    if name not in DEVICES:
        raise UsageError(f"--device must be one of {', '.join(DEVICES)}; got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise PocketBayesError("--device cuda, but torch sees no CUDA device; use cpu or auto")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def opened_data(
    name: str,
    split: str,
    root: Path | None,
    options: Mapping[str, Any],
    known: Description | None = None,
) -> Dataset:
    """One split of a data set; with `known`, prepared as the model it describes wants it."""
    if known is None or known.preprocess is None:
        return _with_notes(open_dataset(name, split, root, **options))
    accepted = signature(DATASETS[name]).parameters if name in DATASETS else {}
    like = {"like": known.preprocess, "classes": known.class_names}
    found = open_dataset(
        name, split, root, **options, **{k: v for k, v in like.items() if k in accepted}
    )
    is_image = known.preprocess.get("kind") == "image"
    if is_image != isinstance(found, ImageSet):
        raise DataError(f"the model takes {known.preprocess.get('kind')}s, but {name} has others")
    if isinstance(found, ImageSet):
        was, wanted = list(found.images.shape[1:]), list(known.preprocess.get("shape", []))
        if was != wanted:
            print(f"note: images of {name} are turned from {was} into {wanted}", file=sys.stderr)
        return found.fitted(known.preprocess)
    columns, wanted = (
        [column["name"] for column in p["columns"]] for p in (found.preprocess, known.preprocess)
    )
    if columns != wanted:
        raise DataError(f"the model takes the columns {wanted}; {name} has {columns}")
    return _with_notes(replace(found, preprocess=known.preprocess), name)


def older_table(target: Path) -> Description | None:
    """What a run or file knows, if it was made before tables had empty cells and other words.

    Its network has no inputs for these: whoever goes on with it must prepare the data as it did.
    """
    known = described(target / MODEL if target.is_dir() else target)
    columns = (known.preprocess or {}).get("columns", [])
    if not columns or any({"fill", "other"} & column.keys() for column in columns):
        return None
    return replace(known, preprocess=checked_table_preprocess(known.preprocess))


def _with_notes(found: Dataset, name: str = "") -> Dataset:
    """The data; of a table, first says what to know of it and, if named, what is new in it."""
    notes = list(found.notes) if isinstance(found, TableSet) else []
    if name and isinstance(found, TableSet) and any(found.unfamiliar):
        odd = [words for words in found.unfamiliar if words]
        told = f"{len(odd)} of {len(found)} rows of {name} hold what training did not know"
        notes.append(f"{told}: {odd[0]}")
    for note in notes if int(os.environ.get("RANK", 0)) == 0 else []:
        print(f"note: {printable(note)}", file=sys.stderr)
    return found


def normalised_as(dataset: Dataset, how: str) -> Dataset:
    """The data with the means and stds that `--normalize` names."""
    if how not in NORMALISATIONS:
        raise UsageError(f"--normalize must be one of {', '.join(NORMALISATIONS)}; got {how!r}")
    if how == "data":
        return dataset
    if not isinstance(dataset, ImageSet) or dataset.images.shape[1] != 3:
        raise UsageError("--normalize imagenet is for colour images")
    return replace(dataset, preprocess=dataset.preprocess | IMAGENET)


def with_cutout(dataset: Dataset) -> Dataset:
    """The images, each without a random square when they are augmented."""
    if not isinstance(dataset, ImageSet):
        raise UsageError("--cutout is for images; this data set is a table")
    return dataset.with_cutout()


def prepared_alike(known: Description, dataset: Dataset) -> bool:
    """Whether the data is prepared as the model's was, as far as the model says how.

    What is done to pictures of another shape does not count: training data has none.
    """
    ours, theirs = (
        {name: value for name, value in (facts or {}).items() if name != "resize"}
        for facts in (known.preprocess, dataset.preprocess)
    )
    return not ours or ours == theirs


def input_shape(preprocess: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of one input that was prepared so."""
    if preprocess["kind"] == "image":
        return tuple(preprocess["shape"])
    return (len(table_features(dict(preprocess))),)


def built_network(
    name: str, preprocess: Mapping[str, Any], outputs: int, options: Mapping[str, Any]
) -> nn.Module:
    """A network of the table, or of the user's own as "package.module:factory"."""
    sizes = {"input_shape": input_shape(preprocess), "num_outputs": outputs}
    if ":" not in name:
        return build_network(name, **sizes, **options)
    if options:
        raise UsageError(f"--{next(iter(options))} is not for a network of your own")
    factory = own_factory(name)
    accepted = signature(factory).parameters
    try:
        net = factory(**{key: value for key, value in sizes.items() if key in accepted})
    except Exception as error:
        raise PocketBayesError(f"--model {name} raised {type(error).__name__}: {error}") from error
    if not isinstance(net, nn.Module):
        raise UsageError(f"--model {name} returns a {type(net).__name__}, not a torch.nn.Module")
    return net


def num_outputs(dataset: Dataset) -> int:
    """How many outputs a network for this data has."""
    if dataset.likelihood == "categorical":
        return len(dataset.classes)
    return LIKELIHOODS[dataset.likelihood].outputs_per_target


def with_likelihood(dataset: Dataset, name: str | None) -> Dataset:
    """The data for this likelihood: counts and 0 or 1 as they are, not standardised."""
    if name in (None, dataset.likelihood):
        return dataset
    if not isinstance(dataset, TableSet) or not dataset.targets.is_floating_point():
        raise UsageError(
            f"--likelihood {name} is for a table with a target of numbers; this data calls for "
            f"{dataset.likelihood}: leave it out"
        )
    if name == "categorical":
        raise UsageError("--likelihood categorical is for classes: say --task classification")
    chosen = LIKELIHOODS[name]
    chosen.require_possible(dataset.targets, dataset.targets)
    target = dataset.preprocess["target"] | {"likelihood": name}
    if not chosen.is_standardised:
        target |= {"mean": 0.0, "std": 1.0}
    return replace(dataset, preprocess=dataset.preprocess | {"target": target})


def with_weights(net: nn.Module, path: Path) -> nn.Module:
    """The network with the weights of a safetensors file, every name and shape of which fits."""
    try:
        net.load_state_dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise PocketBayesError(f"cannot read weights from {path}: {error}") from error
    except RuntimeError as error:
        first = " ".join(str(error).split())[:200]
        raise PocketBayesError(
            f"the weights in {path} are of another network: {first} ..."
        ) from error
    return net


def opened_model(target: Path, model: str | None) -> nn.Module:
    """The model in a run directory or a file.

    A network of the user's own comes from `model`, as typed, never from the run's config: a
    directory from elsewhere must not choose what is imported.
    """
    path = target / MODEL if target.is_dir() else target
    if target.is_dir() and not path.exists():
        if not (target / CONFIG).exists():
            raise PocketBayesError(f"{target} is not a run: it holds no {CONFIG}")
        raise PocketBayesError(f"{target} is not finished: pocketbayes train --resume {target}")
    if model is None or ":" not in model:
        if described(path).network is None:
            raise UsageError(
                f"{path} does not name its network: say --model package.module:factory"
            )
        return _checked(load(path), path)
    return _checked(load(path, _own_factory_net(path, model)), path)


def _checked(model: nn.Module, path: Path) -> nn.Module:
    """The model, if what its file says of inputs and classes makes sense."""
    known = describe(model)
    if known.preprocess is not None:
        try:
            check = {"image": image_form, "table": checked_table_preprocess}
            check.get(str(known.preprocess.get("kind")), image_form)(known.preprocess)
        except DataError as error:
            raise FormatError(f"{path}: {error}") from error
    return model


def deterministic_model(
    path: Path, name: str, dataset: Dataset, options: Mapping[str, Any]
) -> nn.Module:
    """A plain network with weights from a file, as a model that `evaluate` takes."""
    outputs = num_outputs(dataset)
    net = with_weights(built_network(name, dataset.preprocess, outputs, options), path)
    model = bayesianize_(net)
    make_points_(model)
    update_description(
        model,
        likelihood=dataset.likelihood,
        class_names=dataset.classes or None,
        preprocess=dataset.preprocess,
    )
    return model.eval()


def in_units(numbers: Mapping[str, Any], preprocess: Mapping[str, Any] | None) -> dict[str, Any]:
    """Numbers of a regression in the target's own units, not in standard deviations."""
    scale = (preprocess or {}).get("target", {}).get("std", 1.0)
    return {
        name: value * scale if name in _LENGTHS
        else value + math.log(scale) if name in ("nll", "loss")
        else value
        for name, value in numbers.items()
    }  # fmt: skip


def _own_factory_net(path: Path, model: str) -> nn.Module:
    facts = described(path)
    if facts.preprocess is None:
        return cast(nn.Module, own_factory(model)())
    told = LIKELIHOODS[facts.likelihood or "categorical"]
    outputs = len(facts.class_names) if facts.class_names else told.outputs_per_target
    return built_network(model, facts.preprocess, outputs, {})


def own_factory(name: str) -> Callable[..., Any]:
    """The callable called "package.module:factory"; the working directory is searched too."""
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"--model {name}: {error}; looked in {os.getcwd()} and in PYTHONPATH"
        ) from error
    if not callable(found):
        raise UsageError(f"--model {name} is not callable")
    return found  # type: ignore[no-any-return]
