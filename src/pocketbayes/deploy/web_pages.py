"""A model as one page that asks it in a browser: engine, model and script are in it."""

import base64
import gzip
import json
import os
import tempfile
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import torch
from torch import nn

from pocketbayes.codec import described, inspect, load, save, stored_with, write_atomically
from pocketbayes.deploy.exported import Exported
from pocketbayes.deploy.web_examples import facts_of_pictures, facts_of_rows, pixels_of
from pocketbayes.errors import PocketBayesError, require_choice
from pocketbayes.layers import Description
from pocketbayes.likelihoods import likelihood_named
from pocketbayes.prediction import draws_of_gaussian

ESTIMATORS = ("one_pass", "moments", "mean", "weight")
_THRESHOLD = 0.9  # as in `pocketbayes predict`
_MOST_NORMALS = 16_384


def web_page(
    model: nn.Module | str | os.PathLike[str],
    path: Path,
    example: Any,
    estimator: str | None,
    num_samples: int,
    level: float | None,
    tolerance: float,
) -> Exported:
    """Writes the page; see `export`."""
    if estimator is not None:
        require_choice(estimator, "estimator", ESTIMATORS)
    stored, known, summary = _stored(model, example, tolerance)
    about = _about(known, example, num_samples, level)
    chosen = estimator or _default(known, summary.program or {})
    if chosen is not None:
        about["estimator"] = chosen
    title = " or ".join(known.class_names) if _is_short(known.class_names) else _goal_of(known)
    text = _page(f"{title}?", stored, about)
    write_atomically(path, lambda file: file.write(text.encode()))
    size, coded = len(text.encode()), len(_as_text(stored))
    return Exported(
        path=path,
        to="web",
        estimator=chosen or "as the file says",
        num_samples=num_samples,
        outputs=_outputs(known),
        bytes=size,
        pocket_bytes=len(stored),
        graph_bytes=size - coded,
    )
