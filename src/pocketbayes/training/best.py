"""The best epoch of a run, by its validation data: kept while it trains, restored at the end."""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.methods import agree_on_state, agreed
from pocketbayes.prediction import evaluate
from pocketbayes.training.checking import fill_model
from pocketbayes.training.run_state import RunState
from pocketbayes.training.together import raise_together


def validated(
    fabric: Any, model: nn.Module, loader: Iterable[Any] | None, seed: int
) -> dict[str, float]:
    """What the first process measures on validation data; an error of it is everyone's."""
    found, fault = dict[str, Any](), None
    if loader is not None and fabric.is_global_zero:
        generator = torch.Generator().manual_seed(seed)
        try:
            found = evaluate(model, loader, num_samples=10, generator=generator).to_dict()
        except Exception as error:
            fault = error
    if loader is not None:
        raise_together(fabric, fault)
    return {f"val_{k}": v for k, v in found.items() if isinstance(v, float)}


def compare_epoch(at: RunState, model: nn.Module, nll: float | None) -> None:
    """Keeps a copy of the model if its validation NLL is the least so far, on every process alike.

    The copy lies in main memory. A process without validation data has no NLL; the first one's is
    everyone's. One that is NaN is never the least.
    """
    known = torch.tensor(float("nan") if nll is None else nll, dtype=torch.float64)
    found = float(agreed(known.to(at.totals.device)))
    if found < at.best_nll:
        at.best_epoch, at.best_nll = at.epoch + 1, found
        at.best_state = {
            name: value.detach().to("cpu", copy=True)
            if isinstance(value, Tensor)
            else copy.deepcopy(value)
            for name, value in model.state_dict().items()
        }


def restore_best_(at: RunState, model: nn.Module) -> None:
    """Gives the model what it was after the best epoch; every process has the first one's."""
    if at.best_state is None:
        return
    device = at.totals.device
    fill_model(
        model,
        {n: v.to(device) if isinstance(v, Tensor) else v for n, v in at.best_state.items()},
    )
    agree_on_state(model)
    at.best_state = None


def has_waited(at: RunState, patience: int | None) -> bool:
    """Whether so many epochs have gone by since the best one."""
    if patience is None or at.best_epoch is None:
        return False
    return at.epoch - at.best_epoch >= patience
