"""How a posterior came about, in words."""

from collections.abc import Mapping
from typing import Any


def inference_in_words(
    prior: str | None,
    beta: float | None,
    decay_std: float | None,
    training: Mapping[str, Any] | None,
) -> list[tuple[str, str]]:
    """What the posterior is, as (name, words); nothing where it is not known."""
    rows = [] if training is None else [("training", _training_in_words(training))]
    if beta is not None:
        kind = "tempered: narrower than Bayes'" if beta < 1 else "wider than Bayes'"
        rows.append(("posterior", f"beta {beta:g}, {'Bayes rule' if beta == 1 else kind}"))
    if training is not None and "prior_by" in training:
        rows.append(("prior", _laplace_prior_in_words(training)))
    elif prior is not None or beta is not None:
        rows.append(("prior", "learned, a std for each tensor" if prior == "learned" else "fixed"))
    if decay_std is not None:
        rows.append(("weight decay", f"a second prior on the means, of std {decay_std:.2g}"))
    return rows


def _training_in_words(training: Mapping[str, Any]) -> str:
    words = {
        "lr": "learning rate {:g}", "epochs": "epochs {:,}", "best_epoch": "best {:,}",
        "steps": "steps {:,}",
    }  # fmt: skip
    found = {name: value for name, value in training.items() if value is not None}
    known = [text.format(found[name]) for name, text in words.items() if name in found]
    parts = {"last-layer": "diagonal, of the last layer", "all": "diagonal, of all weights"}
    known += [parts.get(training[name], training[name]) for name in ("subset",) if name in training]
    return ", ".join([training["method"], *known])


def _laplace_prior_in_words(training: Mapping[str, Any]) -> str:
    by, (low, high) = training["prior_by"], training["prior_std"]
    how = "fixed" if by == "fixed" else f"chosen by {by}"
    return f"{how}, std {low:.3g}" + ("" if low == high else f" to {high:.3g}")
