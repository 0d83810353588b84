"""`pocketbayes compress`: a run made to fit a size, a cost or a quality, by its validation part."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from pocketbayes.commands.compressed_runs import compression_report, write_compressed_run
from pocketbayes.commands.flags import Flag, UsageError, as_usage_error, options_in, with_choices
from pocketbayes.commands.opening import (
    Dataset,
    chosen_device,
    opened_data,
    opened_model,
    prepared_alike,
)
from pocketbayes.commands.planning import Plan, resumed, train_flags
from pocketbayes.commands.runs import MODEL, beside, hidden_folder, require_free
from pocketbayes.commands.train import opened_parts
from pocketbayes.compression import Compression, compress
from pocketbayes.data import DATASETS, MemoryLoader
from pocketbayes.errors import PocketBayesError, require_count, require_number
from pocketbayes.layers import Ensemble, describe
from pocketbayes.training import suitable_batch_size

_EVALUATION_BATCH = 500
_MUCH_WORSE = 0.1  # nats per example


@dataclass(frozen=True)
class CompressOptions:
    """Options of `compress`.

    Attributes:
        target_bytes: most bytes of the new file, as 500000, 500kB, 0.5MB or 1MiB.
        max_multiplications: most multiplications of a pass over one example, zeros left out.
        max_drop: most accuracy to lose, 0.01 being a point, or share by which the RMSE may rise;
            the NLL may rise by 4 nats times it. 0.005 if nothing else is said.
        out: directory of the new run; default RUN-compressed.
        epochs: passes over the training data after each pruning; 0: none. Default: a quarter of
            those that the run was trained for.
        one_pass: teach a head at the end, so that predictions need one pass.
        components: entries of a codebook at most, shared by the weights of a further candidate.
        ood: another data set, which the model should be unsure about; measured before and after.
        ood_root: folder that holds it; else as root.
        root: folder that holds the run's data, if it has moved; else as in the run.
        model: network of your own as package.module:factory.
        num_samples: draws per prediction; default as in the run.
        seed: of training and draws; default as in the run.
        device: auto, cpu or cuda; default as in the run.
    """

    target_bytes: int | None = None
    max_multiplications: int | None = None
    max_drop: float | None = None
    out: Path | None = None
    epochs: int | None = None
    one_pass: bool = True
    components: int | None = None
    ood: str | None = None
    ood_root: Path | None = None
    root: Path | None = None
    model: str | None = None
    num_samples: int | None = None
    seed: int | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        with as_usage_error():
            for name, least in (
                ("target_bytes", 1), ("max_multiplications", 1), ("epochs", 0),
                ("num_samples", 1), ("seed", 0), ("components", 2),
            ):  # fmt: skip
                if getattr(self, name) is not None:
                    require_count(getattr(self, name), f"--{name.replace('_', '-')}", least=least)
            if self.max_drop is not None:
                require_number(self.max_drop, "--max-drop", least=0)


def compress_flags() -> dict[str, Flag]:
    """Every option of `compress`."""
    found = options_in(CompressOptions)
    return found | {"ood": with_choices(found["ood"], DATASETS)}


class Opened(NamedTuple):
    """A run with its model and data."""

    run: Path
    plan: Plan
    model: nn.Module
    train: Dataset
    validation: MemoryLoader
    outside: MemoryLoader | None


def run_compression(run: Path, options: CompressOptions) -> dict[str, Any]:
    """Tries, trains, chooses and writes a run directory; the report says what was found."""
    begin = time.monotonic()
    plan = _plan_of(run, options)
    out = options.out or beside(run, "compressed")
    require_free(out)
    with hidden_folder(out) as folder:
        known = _opened(run, plan, options)
        _say(f"{run} has {(run / MODEL).stat().st_size:,} bytes")
        found = _compressed(known, options)
        report = compression_report(known, found, out, options.target_bytes)
        report["seconds"] = time.monotonic() - begin
        write_compressed_run(folder / "run", out, known, found, report)
    _say_end(out, options, isinstance(known.model, Ensemble), found)
    return report


def _compressed(known: Opened, options: CompressOptions) -> Compression:
    plan = known.plan.options
    size = plan.batch_size or suitable_batch_size(len(known.train))
    loader = MemoryLoader(known.train, size, shuffle=True, augment=plan.augment)
    return compress(
        known.model, loader, known.validation, target_bytes=options.target_bytes,
        max_multiplications=options.max_multiplications, max_drop=options.max_drop,
        one_pass=options.one_pass, epochs=options.epochs, components=options.components,
        num_samples=plan.num_samples, seed=plan.seed, likelihood=known.train.likelihood,
        precision=plan.precision, device=plan.device,
    )  # fmt: skip


def _plan_of(run: Path, options: CompressOptions) -> Plan:
    """The plan of the run, with what may be said anew."""
    if not run.is_dir():
        raise UsageError(
            f"{run} is not a run directory: compress needs the run's data and settings, so give "
            "the folder that train wrote"
        )
    names = ("root", "model", "num_samples", "device")
    said = {n: getattr(options, n) for n in names if getattr(options, n) is not None}
    plan = resumed(run, said, train_flags())
    if plan.options.validation == 0:
        raise UsageError(
            f"{run} held nothing back (validation: 0), and candidates are chosen by the validation "
            "part: train it with --validation 0.1"
        )
    seed = plan.options.seed if options.seed is None else options.seed
    return replace(plan, options=replace(plan.options, seed=seed))


def _opened(run: Path, plan: Plan, options: CompressOptions) -> Opened:
    device = chosen_device(plan.options.device)
    model = opened_model(run, options.model).to(device)
    train, validation = opened_parts(plan, device, run)
    assert validation is not None
    known = describe(model)
    if not prepared_alike(known, train):
        raise PocketBayesError(
            f"the data is not what {run} was trained on: its preparation has other numbers; "
            "restore it, or say --root where it is"
        )
    if known.class_names and known.class_names != train.classes:
        raise PocketBayesError(
            f"the data is not what {run} was trained on: its classes were "
            f"{_listed(known.class_names)}, and are {_listed(train.classes)}; restore it, or say "
            "--root where it is"
        )
    held_back = MemoryLoader(validation, _EVALUATION_BATCH)
    return Opened(run, plan, model, train, held_back, _outside(model, train, plan, options))


def _outside(
    model: nn.Module, train: Dataset, plan: Plan, options: CompressOptions
) -> MemoryLoader | None:
    """The data set that the model should be unsure about."""
    if options.ood is None:
        return None
    root = options.ood_root or plan.options.root
    unlabelled = replace(describe(model), class_names=None)
    found = opened_data(options.ood, "test", root, {}, unlabelled).to(train.device)
    return MemoryLoader(found, _EVALUATION_BATCH)


def _say_end(out: Path, options: CompressOptions, is_ensemble: bool, found: Compression) -> None:
    rose = found.chosen.record.nll - found.before.record.nll
    if rose > _MUCH_WORSE:
        helps = "a larger --target-bytes" + ("" if is_ensemble else " or more --epochs")
        _say(f"note: the negative log-likelihood rose by {rose:.2g} nats; {helps} would keep more")
    network = f" --model {options.model}" if options.model else ""
    _say(f"wrote {out}; for the test set: pocketbayes evaluate {out}{network}")


def _listed(names: Sequence[str], most: int = 4) -> str:
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
