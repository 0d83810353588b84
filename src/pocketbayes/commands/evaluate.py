"""`pocketbayes evaluate`: a model, a data set, and the numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

import torch
from torch import nn

from pocketbayes.commands.flags import (
    Flag,
    UsageError,
    as_usage_error,
    merged,
    options_in,
    require_all_taken,
    take,
    with_choices,
)
from pocketbayes.commands.opening import (
    Dataset,
    chosen_device,
    deterministic_model,
    in_units,
    normalised_as,
    opened_data,
    opened_model,
)
from pocketbayes.commands.planning import data_flag_groups
from pocketbayes.commands.runs import read_run_config
from pocketbayes.data import (
    CORRUPTIONS,
    DATASETS,
    ImageSet,
    MemoryLoader,
    corrupted,
    tracked,
    with_validation,
)
from pocketbayes.errors import DataError, require_choice
from pocketbayes.layers import Description, describe
from pocketbayes.prediction import Answers, answered, record_of
from pocketbayes.training import PRECISIONS

_TOLD = ("split", "corruption", "severity", "ood")
SPLITS = ("test", "validation", "train")
Options = TypeVar("Options", bound="EvaluateOptions")


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of `evaluate`, beside those of the data set.

    Attributes:
        data: data set to measure on; of a run, the one it was trained on
        root: folder that holds the data; else $POCKETBAYES_DATA.
        split: test, validation (the part of the training data held back by train) or train.
        validation: share of the training data that train held back; of a run, its own.
        corruption: measure on images corrupted in this way
        severity: of the corruption, 1 (mild) to 5.
        ood: another data set, which the model should be unsure about.
        ood_root: folder that holds it; else as root.
        model: network of a plain safetensors file with weights, or package.module:factory.
        normalize: for plain weights: data (the data set's own means and stds) or imagenet.
        num_samples: draws per prediction; auto: as many as each example needs, 30 to 960.
        estimator: lrt, weight, flipout, mean, moments or one_pass; default as trained, or one_pass
            of a distilled model.
        batch_size: examples at a time.
        seed: makes the draws and the corruption repeat.
        device: auto, cpu or cuda.
        precision: auto, fp32 or bf16.
        compile: run the network as machine code, which takes minutes to make; for long jobs.
    """

    data: str | None = None
    root: Path | None = None
    split: str = "test"
    validation: float | None = None
    corruption: str | None = None
    severity: int | None = None
    ood: str | None = None
    ood_root: Path | None = None
    model: str | None = None
    normalize: str = "data"
    num_samples: int | Literal["auto"] = 30
    estimator: str | None = None
    batch_size: int = 500
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    compile: bool = False


def evaluate_flags() -> dict[str, Flag]:
    """Every option of `evaluate`."""
    found = merged([options_in(EvaluateOptions), *data_flag_groups()])
    return found | {
        "data": with_choices(found["data"], DATASETS),
        "corruption": with_choices(found["corruption"], CORRUPTIONS),
    }


def run_evaluation(
    target: Path, given: Mapping[str, Any], flags: Mapping[str, Flag]
) -> dict[str, Any]:
    """The record of a run, a model file, or a plain file of weights."""
    rest = dict(given)
    options = EvaluateOptions(**take(rest, EvaluateOptions.__dataclass_fields__))
    found = measured_target(target, options, rest, flags)
    facts = {"target": str(target), "data": found.name}
    facts |= {name: getattr(options, name) for name in _TOLD}
    return {k: v for k, v in facts.items() if v} | found.numbers()


@dataclass(frozen=True)
class Measured(Generic[Options]):
    """A model, its data, and what it says about them."""

    options: Options
    name: str
    model: nn.Module
    dataset: Dataset
    answers: Answers

    def numbers(self) -> dict[str, Any]:
        """The record, in the target's own units."""
        return in_units(record_of(self.answers).to_dict(), describe(self.model).preprocess)


def measured_target(
    target: Path, options: Options, rest: dict[str, Any], flags: Mapping[str, Flag]
) -> Measured[Options]:
    """Opens a model with its data and lets it answer."""
    options, name, model, dataset = opened_target(target, options, rest, flags)
    device = chosen_device(options.device)
    outside = None
    if options.ood is not None:
        root = options.ood_root or options.root
        unlabelled = replace(describe(model), class_names=None)
        found = opened_data(options.ood, "test", root, {}, unlabelled).to(device)
        outside = tracked(MemoryLoader(found, options.batch_size), f"predicting {options.ood}")
    inside = MemoryLoader(dataset.to(device), options.batch_size)
    with in_precision(options.precision, device):
        answers = answered(
            model.to(device),
            tracked(inside, f"predicting {name}"),
            options.num_samples,
            outside,
            generator=torch.Generator().manual_seed(options.seed),
            estimator=options.estimator,
            compile=options.compile,
        )
    return Measured(options, name, model, dataset, answers)


def opened_target(
    target: Path, options: Options, rest: dict[str, Any], flags: Mapping[str, Flag]
) -> tuple[Options, str, nn.Module, Dataset]:
    """A model with its data: the options as they then are, the data set's name, and both."""
    if options.split not in SPLITS:
        raise UsageError(f"--split must be one of {', '.join(SPLITS)}; got {options.split!r}")
    _require_both(options)
    require_target(target)
    if target.is_dir() and options.root is None and read_run_config(target).get("root"):
        options = replace(options, root=Path(read_run_config(target)["root"]))
    name, data_options = _data_of(target, options.data, rest, flags)
    model, dataset = _model_and_data(target, options, name, data_options)
    return options, name, model, _corrupted(dataset, name, options)


def _require_both(options: EvaluateOptions) -> None:
    """An error for a corruption without a severity or a severity without a corruption."""
    if (options.corruption is None) != (options.severity is None):
        raise UsageError("--corruption and --severity (1 to 5) go together: say both or neither")


def _corrupted(dataset: Dataset, name: str, options: EvaluateOptions) -> Dataset:
    """The data with the corruption that was asked for, if any, on images as the model gets them."""
    if options.corruption is None or options.severity is None:
        return dataset
    if not isinstance(dataset, ImageSet):
        raise UsageError(f"--corruption is for images, but {name} is a table: leave it out")
    with as_usage_error():
        images = corrupted(dataset.images, options.corruption, options.severity, options.seed)
    return replace(dataset, images=images)


def require_target(target: Path) -> None:
    """An error unless there is such a run or file."""
    if not target.exists():
        raise UsageError(f"there is no run or file {target}")


def in_precision(precision: str, device: torch.device) -> torch.autocast:
    """Autocast to bf16 if asked for, or if "auto" finds a GPU that has it."""
    require_choice(precision, "--precision", PRECISIONS)
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    wanted = precision == "bf16" or (precision == "auto" and fast)
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted)


def _data_of(
    target: Path, name: str | None, rest: dict[str, Any], flags: Mapping[str, Flag]
) -> tuple[str, dict[str, Any]]:
    """The data set's name and options: as given or, of a run, as trained on."""
    known: dict[str, Any] = {}
    if target.is_dir():
        config = read_run_config(target)
        if name in (None, config.get("data")):
            name, known = config.get("data"), config
    if name is None or name not in DATASETS:
        raise UsageError(f"say --data; there are {', '.join(DATASETS)}")
    accepted = options_in(DATASETS[name], skip=("split", "root", "like", "classes"))
    trained_on = {k: v for k, v in known.items() if k in accepted and v is not None}
    chosen = {k: flags[k].parsed(v, "") for k, v in trained_on.items()} | take(rest, accepted)
    require_all_taken(rest, flags)
    return name, chosen


def _model_and_data(
    target: Path, options: EvaluateOptions, name: str, data_options: Mapping[str, Any]
) -> tuple[nn.Module, Dataset]:
    split = "test" if options.split == "test" else "train"
    if target.suffix == ".safetensors":
        if options.model is None:
            raise UsageError(f"{target} holds weights alone: say which network, --model NAME")
        dataset = opened_data(name, split, options.root, data_options)
        dataset = normalised_as(dataset, options.normalize)
        model = deterministic_model(target, options.model, dataset, {})
        return model, _part(dataset, target, options)
    if options.normalize != "data":
        raise UsageError("--normalize is for plain weights; a model file knows its own")
    model = opened_model(target, options.model)
    dataset = opened_data(name, split, options.root, data_options, describe(model))
    _require_same_classes(name, dataset, describe(model))
    return model, _part(dataset, target, options)


def _part(dataset: Dataset, target: Path, options: EvaluateOptions) -> Dataset:
    """The test set as it is, or the part of the training set that `train` made of it."""
    if options.split == "test":
        return dataset
    share = options.validation
    if share is None and target.is_dir():
        share = read_run_config(target).get("validation")
    if share is None:
        raise UsageError(f"--split {options.split} needs --validation, the share held back")
    if share == 0:
        if options.split == "validation":
            raise UsageError(f"{target} held nothing back: there is no validation part")
        return dataset
    train, held_back = with_validation(cast(Any, dataset), share)
    part = held_back if options.split == "validation" else train
    return cast(Dataset, replace(part, preprocess=dataset.preprocess))


def _require_same_classes(name: str, dataset: Dataset, known: Description) -> None:
    if known.class_names and dataset.classes and dataset.classes != known.class_names:
        raise DataError(
            f"the model tells {', '.join(known.class_names[:4])}, ... apart, but the classes of "
            f"{name} are {', '.join(dataset.classes[:4])}, ...; to see how unsure it is about "
            f"them, use --ood {name}"
        )
