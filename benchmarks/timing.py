"""How long work takes by the clock, on a CPU or a GPU."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import pocketbayes as pb


def wait(device: str) -> None:
    """Until the device has done all that was asked of it."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], object], device: str) -> float:
    """Of one call, with bfloat16 on a GPU."""
    wait(device)
    begin = time.perf_counter()
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        work()
    wait(device)
    return time.perf_counter() - begin


def prediction_seconds(
    predict: Callable[[int], object], samples: int, device: str, repeats: int = 2
) -> float:
    """The fastest of some predictions with so many samples, after one to warm up.

    On a GPU that is as long as the others, and there are twice as many.
    """
    is_quick = device == "cuda"
    seconds(lambda: predict(samples if is_quick else min(2, samples)), device)
    count = repeats * (1 + is_quick)
    return min(seconds(lambda: predict(samples), device) for _ in range(count))


def own_prediction_seconds(
    model: nn.Module, x: Tensor, samples: int, estimator: str | None = None, repeats: int = 2
) -> float:
    """The same of a model of this library."""
    return prediction_seconds(
        lambda count: pb.predict(model, x, count, estimator=estimator),
        samples,
        x.device.type,
        repeats,
    )
