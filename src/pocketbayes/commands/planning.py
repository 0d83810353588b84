"""What a training run is to be: from options to a plan, or an error that says what is wrong."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pocketbayes.commands.flags import (
    Flag,
    UsageError,
    as_usage_error,
    merged,
    options_in,
    require_all_taken,
    shown,
    take,
    with_choices,
)
from pocketbayes.commands.runs import CONFIG, plain, read_run_config
from pocketbayes.data import DATASETS
from pocketbayes.errors import nearest, require_choice, require_count, require_number
from pocketbayes.layers import ESTIMATORS
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.methods import METHODS, Laplace, Method, VariationalMethod
from pocketbayes.models import MODELS
from pocketbayes.training import DEVICES, LOGGERS, PRECISIONS, require_logger

_MAY_CHANGE = ("root", "device", "compile", "num_samples", "checkpoint_minutes", "logger")
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
        epochs: passes over the data; 0 stores what the method starts from; laplace makes none.
        batch_size: examples per step and process; default 128, less for small data.
        accumulate: batches per step, one after the other, where that many examples at once would
            take too much memory.
        likelihood: how the numbers that a table is to predict are spread; default gaussian, or
            categorical for classes
        validation: share of the training data held back, to log and to report.
        keep_best: end with the model of the epoch of least NLL on the validation part.
        patience: with --keep-best, stop after so many epochs without a better one.
        augment: crop and mirror images, as far as that suits the data.
        cutout: blank a square of half the side in each training image as well.
        normalize: data (the data set's own means and stds) or imagenet.
        weights: safetensors file with weights of the plain network to start from.
        parent: run or model file with posteriors of the same network to go on from; what was said
            of a run's data and network holds again, unless said anew.
        estimator: how layers draw in training: lrt, weight (Bayes by Backprop), flipout, mean;
            default weight for networks with attention, else lrt, or as in --parent.
        prior_std: std of every weight's prior; default: learned for each tensor with mlp and for
            values, else 0.05.
        bias: make biases Bayesian as well.
        one_pass: teach the trained model to tell from one pass what its draws say, by 5 passes
            over the data, and as many as make 500 steps.
        num_samples: draws per prediction when the finished model is measured.
        seed: determines start, order, augmentation and noise.
        device: auto, cpu or cuda.
        precision: auto, fp32 or bf16.
        processes: number of processes on this machine, each with a share of the data.
        checkpoint_minutes: time between checkpoints, of which one is written at the end and after
            Ctrl-C or SIGTERM in any case.
        compile: compile the training step.
        logger: give each epoch's numbers to csv, tensorboard or mlflow as well.
    """

    data: str = ""
    root: Path | None = None
    model: str = ""
    method: str = "mean-field"
    out: Path | None = None
    epochs: int | None = None
    batch_size: int | None = None
    accumulate: int = 1
    likelihood: str | None = None
    validation: float = 0.1
    keep_best: bool = False
    patience: int | None = None
    augment: bool = True
    cutout: bool = False
    normalize: str = "data"
    weights: Path | None = None
    parent: Path | None = None
    estimator: str | None = None
    prior_std: float | None = None
    bias: bool = False
    one_pass: bool = False
    num_samples: int = 30
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    processes: int = 1
    checkpoint_minutes: float = 10.0
    compile: bool = False
    logger: str | None = None

    def __post_init__(self) -> None:
        with as_usage_error():
            require_count(self.seed, "--seed", least=0)
            if self.epochs is not None:
                require_count(self.epochs, "--epochs", least=0)
            for name in ("batch_size", "accumulate", "num_samples", "processes", "patience"):
                if getattr(self, name) is not None:
                    require_count(getattr(self, name), f"--{name.replace('_', '-')}")
            require_number(self.validation, "--validation", least=0, most=0.99)
            require_number(self.checkpoint_minutes, "--checkpoint-minutes", above=0)
            require_choice(self.device, "--device", DEVICES)
            require_choice(self.precision, "--precision", PRECISIONS)
            require_choice(self.estimator or "lrt", "--estimator", ESTIMATORS)
            if self.likelihood is not None:
                require_choice(self.likelihood, "--likelihood", LIKELIHOODS)
            if self.logger is not None:
                require_logger(require_choice(self.logger, "--logger", LOGGERS), True)
            if self.prior_std is not None:
                require_number(self.prior_std, "--prior-std", above=0)
        if self.keep_best and self.validation == 0:
            raise UsageError("--keep-best chooses by the validation part, --validation 0 has none")
        if self.patience is not None and not self.keep_best:
            raise UsageError("--patience counts epochs since the best one: say --keep-best, too")
        if self.cutout and not self.augment:
            raise UsageError("--cutout changes training images, --no-augment forbids it")
        if self.parent is not None:
            for name in ("weights", "prior_std", "bias"):
                if getattr(self, name) not in (None, False):
                    raise UsageError(
                        f"--{name.replace('_', '-')} is for a fresh network, --parent for one that "
                        "has posteriors: give one of them"
                    )


@dataclass(frozen=True)
class Plan:
    """A training run, resolved: options, and those of its method, network and data set."""

    options: TrainOptions
    method: Method
    network: dict[str, Any]
    dataset: dict[str, Any]

    def child(self, parent: Path, out: Path, epochs: int) -> "Plan":
        """The plan of a run that goes on from this one."""
        options = replace(
            self.options, parent=parent.absolute(), out=out, epochs=epochs, weights=None,
            prior_std=None, bias=False,
        )  # fmt: skip
        return replace(self, options=options)

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
    tables: dict[str, Iterable[str]] = {
        "data": DATASETS,
        "model": MODELS,
        "method": METHODS,
        "likelihood": LIKELIHOODS,
    }
    for name, table in tables.items():
        found[name] = with_choices(found[name], table)
    return found


def data_flag_groups() -> list[dict[str, Flag]]:
    """The options of each data set."""
    panel = "Options of data sets"
    return [options_in(d, panel, name, _FILLED_IN) for name, d in DATASETS.items()]


def planned(given: Mapping[str, Any], flags: Mapping[str, Flag]) -> Plan:
    """The run that these options ask for; what does not belong to it is an error."""
    rest = dict(given)
    kind = METHODS[_known(rest.get("method", TrainOptions.method), "method", METHODS)]
    with as_usage_error():
        method = kind(**take(rest, options_in(kind)))  # first: the prior of IVON is its own
    options = TrainOptions(**take(rest, TrainOptions.__dataclass_fields__))
    _known(options.data, "data", DATASETS)
    network: dict[str, Flag] = {}
    if ":" not in options.model:
        network = options_in(MODELS[_known(options.model, "model", MODELS)], skip=_FILLED_IN)
    dataset = options_in(DATASETS[options.data], skip=_FILLED_IN)
    if options.likelihood not in (None, "categorical") and "task" in dataset:
        rest.setdefault("task", "regression")  # or few different counts would be classes
    if options.one_pass and not _draws(method):
        raise UsageError(f"--one-pass tells what draws say, and {options.method} makes none")
    options = options if method.trains else replace(options, epochs=0)
    plan = Plan(options, method, take(rest, network), take(rest, dataset))
    require_all_taken(rest, flags)
    for name, flag in dataset.items():
        if flag.is_required() and name not in plan.dataset:
            raise UsageError(f"--data {options.data} needs --{name.replace('_', '-')}")
    return plan


def with_parents_choices(given: Mapping[str, Any], flags: Mapping[str, Flag]) -> dict[str, Any]:
    """What was given, with the data and network of the run that `parent` names.

    The same validation part is held back as by the parent, or what it has seen would be in it. A
    network of the user's own must be named again, as in `resumed`.
    """
    parent = given.get("parent")
    if parent is None or not (parent / CONFIG).is_file():
        return dict(given)
    known = {
        name: flags[name].parsed(value, f"{parent}: ")
        for name, value in read_run_config(parent).items()
        if value is not None and name in flags
    }
    taken: dict[str, Any] = {}
    data, model = known.get("data"), known.get("model", "")
    if data in DATASETS and given.get("data", data) == data:
        options = options_in(DATASETS[data], skip=_FILLED_IN)
        taken |= take(known, ("data", "root", "validation", "normalize", "likelihood", *options))
    if ":" in model and "model" not in given:
        raise UsageError(f"{parent} holds a network of your own: say --model {model}")
    if model in MODELS and given.get("model", model) == model:
        taken |= take(known, ("model", *options_in(MODELS[model], skip=_FILLED_IN)))
    return taken | dict(given)


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


def plan_of(resume: Path | None, given: Mapping[str, Any], flags: Mapping[str, Flag]) -> Plan:
    """A new run by these options, or an earlier one that goes on."""
    if resume is None:
        return planned(with_parents_choices(given, flags), flags)
    return resumed(resume, given, flags)


def _draws(method: Method) -> bool:
    """Whether one network that it trains draws when it predicts."""
    return method.keeps_dropout or isinstance(method, VariationalMethod | Laplace)


def _known(word: str, option: str, table: Mapping[str, Any]) -> str:
    if word in table:
        return word
    said = f"--{option} {word}: there is none of that name" if word else f"say --{option}"
    raise UsageError(f"{said}{nearest(word, table)}; there are {', '.join(table)}")
