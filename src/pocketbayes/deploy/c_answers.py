"""What an answer in C holds, of which constants it is made, and what its header tells."""

import math

import numpy as np
import torch

from pocketbayes import __version__
from pocketbayes.deploy.c_sources import Source
from pocketbayes.deploy.c_tables import Array, Tables, real
from pocketbayes.deploy.c_text import Facts
from pocketbayes.layers import describe
from pocketbayes.prediction import Conformal

_HALF = 0.5


def answer_tables(source: Source, tables: Tables, teller: str, outputs: int, draws: int) -> None:
    """Temperature, factor on variances, noise, and how many stds an interval reaches."""
    known, plan = describe(source.model), source.plan
    factor = (known.moments_factor if source.carries else None) or 1.0
    _constant(tables, "temperature", known.temperature or 1.0)
    _constant(tables, "spread_factor", factor)
    if draws > 1 and teller != "gaussian":
        tables.text.append("#define NORMAL(s, k) normal(s, k)")
    elif teller != "gaussian":
        tables.text.append("#define NORMAL(s, k) 0")
    if teller == "gaussian":
        logs = plan.learned["noise_log_std"].detach().double().reshape(-1).numpy()
        tables.floats("noise_variance", np.exp(2 * logs))
        tables.floats("reach", _reach(source, outputs, True))
    if teller == "heteroscedastic":
        tables.floats("reach", _reach(source, outputs // 2, draws == 1))
        _constant(tables, "interval_level", plan.level or 0.9)


def _constant(tables: Tables, name: str, value: float) -> None:
    tables.text.append(f"static const float {name} = {real(value)};")


def _reach(source: Source, targets: int, is_normal: bool) -> Array:
    """Stds from the mean to either end: as promised, or of one normal; 0: a mixture's quantile."""
    promise, level = describe(source.model).conformal, source.plan.level
    if promise is not None and level is None:
        threshold = Conformal.from_facts(promise).threshold.numpy().reshape(-1)
        return np.asarray(np.broadcast_to(threshold, (targets,)))
    share = torch.tensor((1 + (level or 0.9)) * _HALF, dtype=torch.float64)
    return np.full(targets, torch.special.ndtri(share).item() if is_normal else 0.0)


def facts_of(source: Source, name: str, teller: str, outputs: int, draws: int) -> Facts:
    """What the header tells, but for sizes."""
    known, plan = describe(source.model), source.plan
    shape = source.shapes[0]
    how = plan.estimator if draws == 1 else f"{plan.estimator}, {draws} draws of a Gaussian"
    told = [
        f"Written by pocketbayes {__version__}.",
        f"Input: {math.prod(shape)} numbers of shape {shape}, row-major.",
        f"Answers by {how}; likelihood {plan.likelihood.name}.",
    ]
    preprocess = known.preprocess or {}
    lists = {
        key: [float(v) for v in preprocess[key]]
        for key in ("mean", "std")
        if isinstance(preprocess.get(key), list)
    }
    if preprocess.get("kind") == "image" and len(lists) == 2:
        told.append("Prepare each channel of an image by (byte / 255 - INPUT_MEAN) / INPUT_STD.")
    elif preprocess:
        told.append(f"Inputs were prepared so: {preprocess}")
    return Facts(
        name, _fields(teller, outputs), told, math.prod(shape), known.class_names or (), lists
    )


def _fields(teller: str, outputs: int) -> list[tuple[str, str, int]]:
    """Of the answer: type, name, size."""
    if teller in ("classes", "labels"):
        each = 0 if teller == "classes" else outputs
        doubts = [("float", key, each) for key in ("entropy", "aleatoric", "epistemic")]
        return [("float", "probs", outputs), *doubts, ("int", "label", each)]
    targets = outputs if teller == "gaussian" else outputs // 2
    names = ("mean", "std", "aleatoric", "epistemic", "lower", "upper")
    return [("float", key, targets) for key in names]
