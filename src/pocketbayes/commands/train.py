"""`pocketbayes train`: from names to a run directory."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch

from pocketbayes.codec import save
from pocketbayes.commands.opening import (
    Dataset,
    built_network,
    chosen_device,
    in_units,
    normalised_as,
    num_outputs,
    opened_data,
    with_weights,
)
from pocketbayes.commands.runs import (
    MODEL,
    has_checkpoint,
    plain,
    read_run_config,
    start_run,
    write_metrics,
)
from pocketbayes.convert import bayesianize_
from pocketbayes.data import DATASETS, MemoryLoader, with_validation
from pocketbayes.errors import nearest, require_count
from pocketbayes.evaluation import evaluate
from pocketbayes.fitting import FitResult, fit
from pocketbayes.flags import (
    Flag,
    UsageError,
    merged,
    options_in,
    require_all_taken,
    shown,
    take,
    with_choices,
)
from pocketbayes.methods import METHODS, Method
from pocketbayes.models import MODELS

_EVALUATION_BATCH = 500
_TRAINING_NUMBERS = ("loss", "nll", "kl", "accuracy", "rmse")
_MAY_CHANGE = ("root", "device", "compile", "num_samples")
_FILLED_IN = ("input_shape", "num_outputs", "split", "root", "like", "classes")


@dataclass(frozen=True)
class TrainOptions:
    """Options of `train`, beside those of the method, the network and the data set.

    Attributes:
        data: data set to train on
        root: folder that holds the data; else $POCKETBAYES_DATA.
        model: your own network as package.module:factory, or
        method: how to train
        out: directory of the run; default runs/DATA-MODEL-METHOD.
        epochs: passes over the data; 0 stores the weights it starts from.
        batch_size: examples per step and process.
        validation: share of the training data held back, to log and to report.
        augment: crop and mirror images, as far as that suits the data.
        normalize: data (the data set's own means and stds) or imagenet.
        weights: safetensors file with weights of the plain network to start from.
        estimator: how layers draw in training: lrt, weight (Bayes by Backprop), flipout, mean.
        prior_std: std of every weight's prior.
        bias: make biases Bayesian as well.
        num_samples: draws per prediction when the finished model is measured.
        seed: determines start, order, augmentation and noise.
        device: auto, cpu or cuda.
        precision: auto, fp32 or bf16.
        processes: number of processes on this machine, each with a share of the data.
        compile: compile the training step.
    """

    data: str = ""
    root: Path | None = None
    model: str = ""
    method: str = "mean-field"
    out: Path | None = None
    epochs: int = 100
    batch_size: int = 128
    validation: float = 0.1
    augment: bool = True
    normalize: str = "data"
    weights: Path | None = None
    estimator: str = "lrt"
    prior_std: float = 0.05
    bias: bool = False
    num_samples: int = 30
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    processes: int = 1
    compile: bool = False


@dataclass(frozen=True)
class Plan:
    """A training run, resolved: options, and those of its method, network and data set."""

    options: TrainOptions
    method: Method
    network: dict[str, Any]
    dataset: dict[str, Any]

    def to_config(self) -> dict[str, Any]:
        """The same as one flat mapping, as it stands in config.yaml."""
        method = {k: v for k, v in self.method.settings().items() if k != "method"}
        return plain(asdict(self.options) | self.dataset | self.network | method)  # type: ignore[no-any-return]


def train_flags() -> dict[str, Flag]:
    """Every option of `train`."""
    found = merged(
        [
            options_in(TrainOptions),
            *(options_in(m, "Options of methods", name) for name, m in METHODS.items()),
            *(options_in(m, "Options of networks", n, _FILLED_IN) for n, m in MODELS.items()),
            *data_flag_groups(),
        ]
    )
    for name, table in (("data", DATASETS), ("model", MODELS), ("method", METHODS)):
        found[name] = with_choices(found[name], table)
    return found


def data_flag_groups() -> list[dict[str, Flag]]:
    """The options of each data set."""
    panel = "Options of data sets"
    return [options_in(d, panel, name, _FILLED_IN) for name, d in DATASETS.items()]


def planned(given: Mapping[str, Any], flags: Mapping[str, Flag]) -> Plan:
    """The run that these options ask for; what does not belong to it is an error."""
    rest = dict(given)
    options = TrainOptions(**take(rest, TrainOptions.__dataclass_fields__))
    kind = METHODS[_known(options.method, "method", METHODS)]
    _known(options.data, "data", DATASETS)
    network: dict[str, Flag] = {}
    if ":" not in options.model:
        network = options_in(MODELS[_known(options.model, "model", MODELS)], skip=_FILLED_IN)
    dataset = options_in(DATASETS[options.data], skip=_FILLED_IN)
    plan = Plan(
        options,
        kind(**take(rest, options_in(kind))),
        take(rest, network),
        take(rest, dataset),
    )
    require_all_taken(rest, flags)
    return plan


def resumed(directory: Path, given: Mapping[str, Any], flags: Mapping[str, Flag]) -> Plan:
    """The plan of an earlier run; only what does not bear on its result may change.

    A network of the user's own must be named again: a directory from elsewhere must not choose
    what is imported.
    """
    known = {
        name: flags[name].parsed(value, "")
        for name, value in read_run_config(directory).items()
        if value is not None and name in flags
    }
    for name, value in given.items():
        if name not in _MAY_CHANGE and known.get(name) != value:
            raise UsageError(
                f"--{name.replace('_', '-')} {shown(value)} is not what {directory} was started "
                f"with ({shown(known.get(name)) or 'not given'}); start a new run for that"
            )
    if ":" in str(known.get("model", "")) and "model" not in given:
        raise UsageError(f"{directory} trains a network of your own: say --model {known['model']}")
    return planned(known | dict(given) | {"out": directory}, flags)


def run_training(plan: Plan, resume: bool) -> dict[str, Any]:
    """Trains, writes the run directory, and measures on the validation part."""
    options = plan.options
    out = options.out or Path("runs", f"{options.data}-{options.model}-{options.method}")
    first = int(os.environ.get("RANK", 0)) == 0
    directory = out if resume or not first else start_run(out, plan.to_config())
    resume = resume and has_checkpoint(directory)
    device = chosen_device(options.device)
    train, validation = _opened(plan, device)
    try:
        result = _trained(plan, train, validation, directory, resume)
    except KeyboardInterrupt:
        print(f"go on with: pocketbayes train --resume {directory}", file=sys.stderr)
        raise
    if not first:
        return {}
    size = save(result.model, directory / MODEL)
    report: dict[str, Any] = {
        "run": str(directory),
        "file": str(directory / MODEL),
        "bytes": size.bytes,
        "weights": size.weights,
        "epochs": options.epochs,
        "seconds": result.seconds,
        "train": in_units(_last_numbers(result), train.preprocess),
    }
    if validation is not None:
        generator = torch.Generator().manual_seed(options.seed)
        loader = MemoryLoader(validation, _EVALUATION_BATCH)
        record = evaluate(result.model, loader, options.num_samples, generator=generator)
        report["validation"] = in_units(record.to_dict(), train.preprocess)
    write_metrics(directory, report)
    return report


def launched_processes(count: int) -> int | None:
    """Starts this very command in several processes; None in one of them, or if there is one."""
    require_count(count, "--processes")
    if count == 1 or "WORLD_SIZE" in os.environ:
        return None
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = [f"--nproc-per-node={count}", "-m", "pocketbayes", *sys.argv[1:]]
    return subprocess.run([*launcher, *program]).returncode


def _last_numbers(result: FitResult) -> dict[str, Any]:
    """The numbers of the last epoch, if there was one."""
    last = result.history[-1] if result.history else {}
    return {name: last[name] for name in _TRAINING_NUMBERS if name in last}


def _opened(plan: Plan, device: torch.device) -> tuple[Dataset, Dataset | None]:
    options = plan.options
    dataset = opened_data(options.data, "train", options.root, plan.dataset)
    dataset = normalised_as(dataset, options.normalize).to(device)
    if options.validation == 0:
        return dataset, None
    return with_validation(cast(Any, dataset), options.validation)


def _trained(
    plan: Plan, train: Dataset, validation: Dataset | None, directory: Path, resume: bool
) -> FitResult:
    options = plan.options
    torch.manual_seed(options.seed)
    net = built_network(options.model, train.preprocess, num_outputs(train), plan.network)
    if options.weights is not None:
        net = with_weights(net, options.weights)
    model = bayesianize_(
        net.to(train.device),
        prior_std=options.prior_std,
        std_init=getattr(plan.method, "std_init", 1e-3),
        estimator=options.estimator,
        bias=options.bias,
    )
    return fit(
        model,
        MemoryLoader(train, options.batch_size, shuffle=True, augment=options.augment),
        plan.method,
        epochs=options.epochs,
        likelihood=train.likelihood,
        val_loader=None if validation is None else MemoryLoader(validation, _EVALUATION_BATCH),
        seed=options.seed,
        out=directory,
        resume=resume,
        precision=options.precision,
        compile=options.compile,
        device=options.device,
    )


def _known(word: str, option: str, table: Mapping[str, Any]) -> str:
    if word in table:
        return word
    said = f"--{option} {word}: there is none of that name" if word else f"say --{option}"
    raise UsageError(f"{said}{nearest(word, table)}; there are {', '.join(table)}")
