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

import torch
from torch import nn

from pocketbayes.codec import described, inspect, load, save, stored_with, write_atomically
from pocketbayes.deploy.exported import Exported
from pocketbayes.deploy.web_examples import facts_of_pictures, facts_of_rows, pixels_of
from pocketbayes.errors import DataError, PocketBayesError, printable, require_choice
from pocketbayes.layers import Description

ESTIMATORS = ("one_pass", "moments", "mean", "weight")
_ANSWERS = {
    "classes": ("probs", "entropy", "aleatoric", "epistemic", "label"),
    "values": ("mean", "std", "aleatoric", "epistemic", "lower", "upper"),
}
_THRESHOLD = 0.9  # as in `pocketbayes predict`
_MOST_CLASSES, _MOST_NAMED = 4, 60  # classes in a title, and their letters


def web_page(
    model: nn.Module | str | os.PathLike[str],
    path: Path,
    example: Any,
    *,
    estimator: str | None,
    num_samples: int,
    level: float | None,
    tolerance: float,
) -> Exported:
    """Writes the page; see `export`."""
    if estimator is not None:
        require_choice(estimator, "estimator", ESTIMATORS)
    if path.suffix.lower() not in (".html", ".htm"):
        path = path / "index.html"
    stored, known = _stored(model, example, tolerance)
    about = _about(known, example) | {
        "draws": num_samples, "level": level or 0.9, "threshold": _THRESHOLD,
    }  # fmt: skip
    if estimator is not None:
        about["estimator"] = estimator
    page = _page(_title(known), stored, about).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda file: file.write(page))
    kind = "classes" if known.likelihood in (None, "categorical", "bernoulli") else "values"
    return Exported(
        path=path, to="web", estimator=estimator or "its own estimator", num_samples=num_samples,
        outputs=_ANSWERS[kind], bytes=len(page), pocket_bytes=len(stored),
        graph_bytes=len(page) - len(_as_text(stored)),
    )  # fmt: skip


def _stored(
    model: nn.Module | str | os.PathLike[str], example: Any, tolerance: float
) -> tuple[bytes, Description]:
    """The bytes of a file that carries its program, and what it says; written if there is none."""
    if isinstance(model, nn.Module):
        return _written(model, example, {"tolerance": tolerance}, "a model in memory has none")
    if inspect(model).program is not None:
        return Path(model).read_bytes(), described(model)
    return _written(load(model), example, stored_with(model), f"{model} has none")


def _written(
    model: nn.Module, example: Any, options: dict[str, Any], what: str
) -> tuple[bytes, Description]:
    if example is None:
        raise PocketBayesError(
            f"a page runs the program of a file, and {what}: one is traced from an example: pass "
            "example=x, or --data NAME to `pocketbayes export`"
        )
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model.pocket"
        save(model, made, example=example, **options)
        return made.read_bytes(), described(made)


def _about(known: Description, example: Any) -> dict[str, Any]:
    """What the page shows to try, as far as an example tells."""
    kind = (known.preprocess or {}).get("kind")
    if kind not in ("image", "table"):
        raise PocketBayesError(
            "the model does not say how its inputs are prepared, so a page cannot turn pictures or "
            "cells into them: train it by `pocketbayes train`, or on an ImageSet or TableSet of "
            "pocketbayes.data, which fit keeps the preprocess of"
        )
    assert known.preprocess is not None
    if example is None:
        return {}
    x = torch.as_tensor(example).detach().cpu().float().numpy()
    shape = known.preprocess.get("shape") if kind == "image" else None
    if x.ndim < 2 or (shape is not None and list(x.shape[1:]) != list(shape)):
        raise DataError(
            f"the example has the shape {x.shape}; the model takes batches of "
            f"{shape or 'rows'}, as its data set gives them"
        )
    if kind == "image":
        return facts_of_pictures(pixels_of(x, known.preprocess), known.preprocess)
    return facts_of_rows(x)


def _title(known: Description) -> str:
    target = (known.preprocess or {}).get("target", {}).get("name")
    if target is not None:
        return str(target)
    names = " or ".join(known.class_names or ())
    if 0 < len(names) <= _MOST_NAMED and len(known.class_names or ()) <= _MOST_CLASSES:
        return f"{names}?"
    return f"Which of {len(known.class_names)} classes?" if known.class_names else "Which class?"


def _page(title: str, stored: bytes, about: dict[str, Any]) -> str:
    """The template with everything in it; the engine is packed, the model is small by itself."""
    folder = files("pocketbayes.deploy") / "web"
    packed = gzip.compress((folder / "pocketbayes.wasm").read_bytes(), 9, mtime=0)
    subtitle = (
        f"A Bayesian neural network of {len(stored):,} bytes. It runs in this page: nothing that "
        "you draw, type or open leaves your device."
    )
    facts = {
        name: _as_text(value) if isinstance(value, bytes) else value
        for name, value in about.items()
        if value is not None
    }
    told = json.dumps(facts, sort_keys=True).replace("<", "\\u003c")  # it stands in a script
    return Template((folder / "page.html").read_text("utf-8")).substitute(
        title=escape(printable(title)), subtitle=escape(subtitle), about=told,
        model=_as_text(stored), engine=_as_text(packed),
        script=(folder / "page.js").read_text("utf-8"),
    )  # fmt: skip


def _as_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
