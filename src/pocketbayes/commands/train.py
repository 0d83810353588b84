"""`pocketbayes train`: from names to a run directory."""

import os
import sys
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from pocketbayes.codec import FileSummary, load
from pocketbayes.commands.flags import UsageError
from pocketbayes.commands.messages import note_compared
from pocketbayes.commands.opening import (
    Dataset,
    built_network,
    chosen_device,
    in_units,
    normalised_as,
    num_outputs,
    older_table,
    opened_data,
    prepared_alike,
    with_cutout,
    with_likelihood,
    with_weights,
)
from pocketbayes.commands.planning import Plan
from pocketbayes.commands.portable import saved_portably
from pocketbayes.commands.runs import (
    MODEL,
    has_checkpoint,
    new_directory,
    only_in,
    resumable_directory,
    write_config,
    write_metrics,
)
from pocketbayes.data import MemoryLoader, with_validation
from pocketbayes.distillation import distill_
from pocketbayes.layers import bayesianize_, describe, set_estimator
from pocketbayes.methods import ExchangingMethod, Method, Sharing, VariationalMethod
from pocketbayes.prediction import evaluate
from pocketbayes.training import FitResult, fit, suitable_batch_size, training_flops

_EVALUATION_BATCH = 500
_TRAINING_NUMBERS = ("best_epoch", "loss", "nll", "kl", "accuracy", "rmse")


def run_training(plan: Plan, resume: bool) -> dict[str, Any]:
    """Trains, writes the run directory, and measures the file on the validation part."""
    options = plan.options
    out = options.out or Path("runs", f"{options.data}-{options.model}-{options.method}")
    first = int(os.environ.get("RANK", 0)) == 0
    if not first:
        return _run_in(out, plan, resume, first)
    with only_in(out):
        return _run_in(out, plan, resume, first)


def _run_in(out: Path, plan: Plan, resume: bool, first: bool) -> dict[str, Any]:
    options = plan.options
    directory = resumable_directory(out) if resume else new_directory(out) if first else out
    if first:
        _note_untrained(plan)
    device = chosen_device(options.device)
    train, validation = opened_parts(plan, device, options.parent)
    if first and not resume:
        write_config(directory, plan.to_config())
    try:
        result = _trained(plan, train, validation, directory, resume and has_checkpoint(directory))
    except (KeyboardInterrupt, SystemExit):
        print(f"go on with: pocketbayes train --resume {directory}", file=sys.stderr)
        raise
    if not first:
        return {}
    size = _stored(plan, result.model, train, directory / MODEL)
    report: dict[str, Any] = {
        "run": str(directory),
        "file": str(directory / MODEL),
        "bytes": size.bytes,
        "weights": size.weights,
        "active_weights": size.active_weights,
        "epochs": max((row["epoch"] for row in result.history), default=0),
        **_used(result, _batch_size(plan, train)),
        "seconds": result.seconds,
        "peak_bytes": result.peak_bytes,
        **_operations(result.model, train, plan.method),
        "train": in_units(_last_numbers(result), train.preprocess),
        **note_compared(size),
    }
    if validation is not None and (options.epochs != 0 or not plan.method.trains):
        generator = torch.Generator().manual_seed(options.seed)
        loader = MemoryLoader(validation, _EVALUATION_BATCH)
        model = reopened(directory / MODEL, plan, train)
        record = evaluate(model, loader, options.num_samples, generator=generator)
        report["validation"] = in_units(record.to_dict(), train.preprocess)
    write_metrics(directory, report)
    return report


def _stored(plan: Plan, model: nn.Module, train: Dataset, path: Path) -> FileSummary:
    """Writes the model, and once more with a head: what was trained is safe meanwhile."""
    example = train.batch([0])[0]
    size = saved_portably(model, path, example)
    if not plan.options.one_pass:
        return size
    distill_(model, _loader(plan, train), seed=plan.options.seed)
    return saved_portably(model, path, example)


def reopened(path: Path, plan: Plan, train: Dataset) -> nn.Module:
    """The model as it comes out of its file: what is measured is what is shipped."""
    name, net = plan.options.model, None
    if ":" in name:
        net = built_network(name, train.preprocess, num_outputs(train), plan.network)
    return load(path, net).to(train.device)


def _note_untrained(plan: Plan) -> None:
    """Says so if a method is to have a trained network, or trained stds, and has not."""
    method, options = plan.method, plan.options
    if not method.trains and options.parent is None and options.weights is None:
        print(
            f"note: {options.method} trains nothing, and this network is not trained: say "
            "--weights FILE or --parent RUN",
            file=sys.stderr,
        )
    if isinstance(method, Sharing) and plan.options.parent is None and not method.pretrain_epochs:
        print(
            "note: these weights have stds that were never trained; sharing is meant for a trained "
            "model: say --parent RUN, or --pretrain-epochs",
            file=sys.stderr,
        )


def _operations(model: nn.Module, train: Dataset, method: Method) -> dict[str, float]:
    """Training FLOPs per example beside those of the dense network, for sparse methods."""
    if not isinstance(method, ExchangingMethod):
        return {}
    flops = training_flops(model, train.batch([0, 1])[0], method)
    return {
        "flops_per_example": flops.active,
        "dense_flops_per_example": flops.dense,
        "flops_ratio": flops.ratio,
    }


def _used(result: FitResult, batch_size: int) -> dict[str, Any]:
    """What training went by, said or chosen; of beta and prior, where there is a posterior."""
    method = result.method
    if method is None or not method.trains:
        told = describe(result.model).training or {}
        return {name: value for name, value in told.items() if name != "method"}
    found = {"steps": result.steps, "batch_size": batch_size, "lr": method.lr}
    if not isinstance(method, VariationalMethod):
        return found
    return found | {"beta": describe(result.model).beta, "prior": method.prior}


def _batch_size(plan: Plan, train: Dataset) -> int:
    return plan.options.batch_size or suitable_batch_size(len(train))


def _last_numbers(result: FitResult) -> dict[str, Any]:
    """The numbers of the last epoch, or of the best one if that was kept."""
    rows = [row for row in result.history if row["epoch"] == result.best_epoch] or result.history
    last = rows[-1] if rows else {}
    return {name: last[name] for name in _TRAINING_NUMBERS if name in last}


def opened_parts(
    plan: Plan, device: torch.device, parent: Path | None
) -> tuple[Dataset, Dataset | None]:
    """The part of the training data to train on, and the one held back, if any."""
    options = plan.options
    known = older_table(parent) if parent is not None else None
    dataset = opened_data(options.data, "train", options.root, plan.dataset, known)
    dataset = normalised_as(dataset, options.normalize).to(device)
    dataset = with_cutout(dataset) if options.cutout else dataset
    if options.validation == 0:
        return with_likelihood(dataset, options.likelihood), None
    parts = with_validation(cast(Any, dataset), options.validation)
    train, validation = (with_likelihood(part, options.likelihood) for part in parts)
    return train, validation


def _trained(
    plan: Plan, train: Dataset, validation: Dataset | None, directory: Path, resume: bool
) -> FitResult:
    options = plan.options
    torch.manual_seed(options.seed)
    net = built_network(options.model, train.preprocess, num_outputs(train), plan.network)
    if options.weights is not None:
        net = with_weights(net, options.weights)
    if ":" in options.model:
        _require_outputs(net, train)
    return fit(
        _bayesian(plan, net.to(train.device), train),
        _loader(plan, train),
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
        checkpoint_minutes=options.checkpoint_minutes,
        keep_best=options.keep_best,
        patience=options.patience,
        logger=options.logger,
        accumulate=options.accumulate,
    )


def _loader(plan: Plan, train: Dataset) -> MemoryLoader:
    batch_size = _batch_size(plan, train)
    return MemoryLoader(train, batch_size, shuffle=True, augment=plan.options.augment)


def _bayesian(plan: Plan, net: nn.Module, train: Dataset) -> nn.Module:
    """The network with fresh posteriors, or with those of `--parent`."""
    options = plan.options
    if options.parent is None:
        return bayesianize_(
            net,
            prior_std=options.prior_std,
            std_init=getattr(plan.method, "std_init", None),
            estimator=options.estimator,
            bias=options.bias,
        )
    parent = options.parent
    model = load(parent / MODEL if parent.is_dir() else parent, net).to(train.device)
    known = describe(model)
    if not prepared_alike(known, train):
        raise UsageError(
            f"{parent} was trained on data prepared otherwise (see pocketbayes inspect): "
            "give the same --data, --validation and --normalize as then"
        )
    if options.estimator is not None:
        set_estimator(model, options.estimator)
    return model


@torch.no_grad()
def _require_outputs(net: nn.Module, train: Dataset) -> None:
    """An error unless a network of the user's own has as many outputs as the data needs."""
    x, _ = train.batch([0, 1])
    shape = tuple(net.to(train.device).eval()(x).shape)
    net.train()
    if shape != (2, num_outputs(train)):
        raise UsageError(
            f"the network's output for two examples has shape {shape}; this data needs "
            f"(2, {num_outputs(train)})"
        )
