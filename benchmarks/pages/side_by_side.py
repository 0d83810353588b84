"""Every method beside every other, network by network."""

from families import FAMILIES

from pages.common import (
    Row,
    average,
    grouped,
    hardware,
    is_there,
    last_runs,
    made_again,
    mean_of,
    mean_scores,
    measured,
    origins,
    rows,
    seconds,
    table,
)

CPU = ", 2 cores"
HEAD = [
    "method", "prediction", "seeds", "accuracy", "NLL", "ECE", "Brier", "OOD AUROC, entropy",
    "OOD AUROC, epistemic", "weights", "file, bytes", "in version 3", "training", "a prediction",
    "on 2 CPU cores", "settings",
]  # fmt: skip
# By setting: what it is, and which families it counts for.
BETAS = {
    "beta": ("", {"bayes-by-backprop", "mean-field", "spike-slab"}),
    "sparse_beta": ("for subspaces", {"subspace", "chain"}),
    "chain_beta": ("for the chain after that", {"chain"}),
}
LATER_EPOCHS = {
    "tune_epochs": ("after each pruning:", {"mean-field", "spike-slab", "chain"}),
    "share_epochs": ("after sharing:", {"mean-field", "chain"}),
}
OF_A_RUN = ("seeds", "families", "density", "data", "model", "validation")  # names tell densities


def side_by_side() -> str:
    """One table for each network and data set."""
    test, validation = measured("side_by_side")
    parts = [
        "## Every method on the same work\n",
        "The same network, data and epochs of first training for each; measured after loading the "
        "file back, last epoch. What is pruned (spike-and-slab too) or shared was trained on for "
        "the epochs that stand over the table, and its time is that of the whole way, with the "
        "compilation of trainings of ten epochs or more; the first method of a command also waits "
        "for libraries to load. `a prediction` is the time for the images and samples named over "
        "the table, where the model was trained; `on 2 CPU cores` the same from the stored file on "
        "the CPU named there, which is not the same for all tables; empty: not timed. What is not "
        "random takes one sample, an ensemble one of each member. Times are of runs with nothing "
        "beside them, if there are any (of several seeds maybe one), and else have a *; of several "
        "predictions from one file the fastest counts (of those with a *, the first), and on the "
        "GPU, which waits for its host, the same work may take twice as long in another run; a "
        "file that had been lost may have been made again, with the same settings and seed, to be "
        f"timed.{_distance_of_times()} `in version 3` is the size of the "
        "same model, bit by bit, saved again in that version of the format; where it is empty in "
        "tables of the test set, the file had that version already. The mixture is the paper's, "
        "which does not aim at bytes: its file may be larger than its parent's. Out of "
        "distribution is SVHN for CIFAR-10, Fashion-MNIST for MNIST and the reverse. Settings are "
        "named where they differ between lines, and were looked for only where that is shown, here "
        "or below. ResNet-18 with other settings, or trained longer, is in "
        "[Baselines](#baselines-resnet-18-cifar-10) and the sections after it.\n",
        *_parts(test),
    ]
    if validation:
        parts += ["Looked for on held-out training images:\n", *_parts(validation)]
    return "\n".join(parts)


def compared_lines() -> list[Row]:
    """Of the test set; of a run that was repeated, the last."""
    return last_runs(measured("side_by_side")[0], _kind)


def _parts(found: list[Row]) -> list[str]:
    """A table for each network and data set; of a run that was repeated, the last counts."""
    return [_part(*key, group) for key, group in grouped(found, _where).items()]


def _where(row: Row) -> tuple[str, str, int, int, int]:
    """What one table is about."""
    settings = row["settings"]
    counts = (settings[name] for name in ("epochs", "timed_images", "samples"))
    return (row["model"], row["data"], *counts)


def _kind(row: Row) -> tuple[str, str, str]:
    """What one line is about."""
    return row["row"], row["estimator"], str(sorted(_settings(row).items()))


def _place(row: Row) -> tuple[int, int]:
    """Family by family, and in each those first that keep the most weights."""
    return list(FAMILIES).index(row["family"]), -row["active_weights"]


def _settings(row: Row) -> Row:
    return {k: v for k, v in row["settings"].items() if k not in OF_A_RUN}


def _part(model: str, data: str, epochs: int, images: int, samples: int, every: list[Row]) -> str:
    found = last_runs(every, _kind)
    different = {
        name
        for name in found[0]["settings"]
        if len({str(_settings(row).get(name)) for row in found}) > 1
    }
    lines = [
        _line(group, different) for group in grouped(sorted(found, key=_place), _kind).values()
    ]
    elsewhere = _on_a_cpu(found)
    also = f", and {hardware(elsewhere)}" if elsewhere else ""
    commands = origins([*found, *_timed(found), *resaved(found)])
    return (
        f"### {model}, {data}, {epochs} epochs\n\n"
        f"On {hardware(found)}{also}; {images:,} images x {samples} samples."
        f"{_lengths(found, different)}{_repeated(every)}{_absent(found)}\n\n"
        f"{commands}\n" + table(HEAD, lines)
    )


def _lengths(found: list[Row], different: set[str]) -> str:
    """Betas, and epochs after the first training, that are the same for all lines."""
    known, families = found[0]["settings"], {row["family"] for row in found}

    def said(about: dict[str, tuple[str, set[str]]]) -> str:
        """Settings that count for some family here, in words."""
        counting = {name: words for name, (words, who) in about.items() if who & families}
        return ", ".join(
            f"{words} {known[name]}".strip()
            for name, words in counting.items()
            if name not in different
        )

    betas, later = said(BETAS), said(LATER_EPOCHS)
    return (f" Beta is {betas}." if betas else "") + (f" Epochs {later}." if later else "")


def _repeated(every: list[Row]) -> str:
    """How much the same setting and seed differs from run to run, where there were several."""
    runs = grouped(every, lambda row: (_kind(row), row["seed"])).values()
    scores = [[row["accuracy"] for row in group] for group in runs if len(group) > 1]
    if not scores:
        return ""
    most = max(max(found) - min(found) for found in scores)
    lines = "1 line" if len(scores) == 1 else f"{len(scores)} lines"
    return (
        f" Of what was run again with the same seed ({lines}) the last counts; "
        f"accuracy differed by up to {100 * most:.2f}."
    )


def _absent(found: list[Row]) -> str:
    """Which families a table on the test set is without."""
    there = {row["family"] for row in found}
    absent = [family for family in FAMILIES if family not in there]
    is_whole = not absent or found[0]["measured_on"] != "test"
    return "" if is_whole else f" Not in this table: {', '.join(absent)}."


def _line(group: list[Row], different: set[str]) -> list[str]:
    first = group[0]
    return [
        first["row"],
        first["estimator"].replace("none", ""),
        str(len(group)),
        *mean_scores(group),
        average(group, "brier", 4),
        average(group, "auroc_entropy", 3),
        average(group, "auroc_epistemic", 3),
        f"{first['active_weights']:,}",
        f"{mean_of(group, 'file_bytes'):,.0f}",
        _bytes_in_version_3(group),
        seconds(group, "train_seconds", 0),
        seconds([_best([row, *_where_it_was_trained(row)]) for row in group], "predict_seconds", 3),
        seconds(
            [_best(found) for row in group if (found := _on_a_cpu([row]))], "predict_seconds", 1
        ),
        " ".join(f"{k}={v}" for k, v in _settings(first).items() if k in different),
    ]


def _bytes_in_version_3(group: list[Row]) -> str:
    found = resaved(group)
    return f"{mean_of(found, 'bytes_now'):,.0f}" if len(found) == len(group) else ""


def resaved(group: list[Row]) -> list[Row]:
    """The same files, each once, as they were saved last."""
    files = {(row.get("file"), row["file_bytes"]) for row in group}
    found = rows("resaved") if is_there("resaved") else ()
    last = {(row["file"], row["file_bytes"]): row for row in found}
    return [row for key, row in last.items() if key in files]


def _best(found: list[Row]) -> Row:
    """The fastest prediction with nothing beside it or, if there is none, the first."""
    clean = [row for row in found if not row.get("beside_other_work")]
    return min(clean, key=lambda row: row["predict_seconds"], default=found[0])


def _where_it_was_trained(row: Row) -> list[Row]:
    return [other for other in _timed([row]) if other["hardware"] == row["hardware"]]


def _on_a_cpu(group: list[Row]) -> list[Row]:
    return [row for row in _timed(group) if row["hardware"].endswith(CPU)]


def _distance_of_times() -> str:
    """How much longer a prediction took than another, from a file of its name at another commit."""
    found = rows("prediction") if is_there("prediction") else []
    clean = [r for r in found if r["hardware"].endswith(CPU) and not r.get("beside_other_work")]
    alike = grouped(
        clean, lambda r: (r["hardware"], r["file"], r["estimator"], r["images"], r["samples"])
    )
    pairs = [group for group in alike.values() if len({row["commit"] for row in group}) > 1]
    if not pairs:
        return ""
    times = [[row["predict_seconds"] for row in group] for group in pairs]
    furthest = max(max(of_one) / min(of_one) for of_one in times)
    return (
        " Where files of one name (the same network, or trained again) were timed at two commits "
        f"on CPUs of one name ({len(pairs)}), one took up to {furthest:.1f} times as long as the "
        "other, with nothing known to be beside it: so far apart may be what was not timed in one "
        "go, whatever the method."
    )


def is_again(row: Row, first: Row) -> bool:
    """Whether its network was trained as the first was, under the same name."""
    one, other = _settings(row), _settings(first)
    is_named_so = (row["file"], row["estimator"]) == (first.get("file"), first["estimator"])
    return is_named_so and all(one[name] == other[name] for name in one.keys() & other.keys())


def _timed(group: list[Row]) -> list[Row]:
    """Predictions of the same files, or of such as were made again, timed alone on any machine."""
    settings = group[0]["settings"]
    again = [
        other for other in made_again("side_by_side") if any(is_again(other, r) for r in group)
    ]
    files = {(row.get("file"), row["file_bytes"], row["estimator"]) for row in (*group, *again)}
    return [
        row
        for row in (rows("prediction") if is_there("prediction") else ())
        if (row["file"], row["file_bytes"], row["estimator"]) in files
        and (row["images"], row["samples"]) == (settings["timed_images"], settings["samples"])
    ]
