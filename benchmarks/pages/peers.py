"""Other libraries on the same work, network by network."""

from pages.common import (
    Row,
    average,
    grouped,
    is_there,
    last_runs,
    mean_of,
    mean_scores,
    origins,
    rows,
    seconds,
    table,
)

HEAD = [
    "row", "seeds", "rate", "accuracy", "NLL", "ECE", "OOD AUROC", "stored, bytes",
    "training step", "a prediction", "commit",
]  # fmt: skip


def peers() -> str:
    """A table for each network and data set, and the search behind it."""
    parts = [
        "## Other libraries on the same work\n",
        "The same network, first weights, data and epochs; ours, bayesian-torch and "
        "torch-uncertainty also have the same prior and weight of the KL (its sum over weights; "
        "bayesian-torch's own is a mean), ivon what its authors take for a ResNet, laplace-torch "
        "a prior of its own choice. Each draws, stores and predicts in its own way; laplace-torch "
        "and the plain network need no samples. Only rows that are called compiled are. Stored "
        "is what must be kept to predict: ours the file, theirs a state dict. Of a run that was "
        "repeated the last counts; of those that count, times are of seeds with nothing beside "
        "them, if there are any. Steps that are not compiled wait for the host, which was not "
        "equally fast in all runs, so that distances below a factor of two say nothing (repeated "
        "runs differ that much; all are in results/peers.jsonl). Rates were looked for where a "
        "search stands below, and some of the best are the largest or smallest that were tried "
        "(ivon's on the GPU, others' on MNIST); else all lines have our own, which need not suit "
        "them.\n",
        *_parts(rows("peers")),
    ]
    searched = rows("peers_search") if is_there("peers_search") else []
    if searched:
        parts += [
            "Rates were looked for on held-out training images, and the least NLL chose:\n",
            *_parts(searched, ", held-out images"),
        ]
    return "\n".join(parts)


def _parts(found: list[Row], on: str = "") -> list[str]:
    """A table for each network, data set and machine; a run that was repeated counts once."""
    groups = grouped(last_runs(found, lambda row: (_where(row), _kind(row))), _where)
    return [_part(f"{epochs} epochs{on}", *key, group) for (*key, epochs), group in groups.items()]


def _where(row: Row) -> tuple[str, str, int, int, str, int]:
    """What one table is about."""
    counts = (row["settings"][name] for name in ("timed_images", "samples"))
    return (row["model"], row["data"], *counts, row["hardware"], row["settings"]["epochs"])


def _part(
    how: str, model: str, data: str, images: int, samples: int, machine: str, found: list[Row]
) -> str:
    ours_first = sorted(found, key=lambda row: not row["row"].startswith("pocketbayes"))
    lines = [_line(group) for group in grouped(ours_first, _kind).values()]
    return (
        f"### {model}, {data}, {how}\n\n"
        f"On {machine}; {images:,} images x {samples} samples.\n\n{origins(found)}\n"
        + table(HEAD, lines)
    )


def _kind(row: Row) -> tuple[str, str]:
    """What one line is about."""
    of_all = {k: v for k, v in row["settings"].items() if k not in ("rows", "seed")}
    return row["row"], str(sorted(of_all.items()))


def _line(group: list[Row]) -> list[str]:
    first = group[0]
    in_ms = [row | {"step_ms": 1000 * row["step_seconds"]} for row in group]
    return [
        first["row"],
        str(len(group)),
        f"{first['settings']['lr']:g}",
        *mean_scores(group),
        average(group, "auroc_entropy", 3),
        f"{mean_of(group, 'stored_bytes'):,.0f}",
        seconds(in_ms, "step_ms", 1, "ms"),
        seconds(group, "predict_seconds", 3),
        ", ".join(dict.fromkeys(row["commit"] for row in group)),
    ]
