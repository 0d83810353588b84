"""The file."""

import math
from collections import Counter

from pages.common import Row, grouped, hardware, known, origins, rows, scores, table, unusual
from pages.published import published_table

PICTURE = (
    "![Test accuracy of ResNet-18 on CIFAR-10 against the size of its file, on a logarithmic axis: "
    "files of this library, each joined to its bits-back limit, published results, and the sizes "
    "of the network and of its posterior in float32](images/accuracy_against_bytes.svg)"
)


def pocket_file() -> str:
    """Bytes, bounds, seconds and memory of save and load."""
    found = rows("pocket_file")
    lines = [
        [
            row["model"],
            row["row"],
            f"{row['bytes']:,}",
            f"{row['bits_back_bytes']:,.0f}",
            f"{100 * row['over_bound']:.2f}%, worst {100 * row['worst_over_bound']:.2f}%",
            f"{row['save_seconds']:.1f} s",
            f"{row['load_seconds']:.1f} s",
            f"{row['save_peak_ratio']:.2f} x, {row['load_peak_ratio']:.2f} x",
        ]
        for row in found
    ]
    head = [
        "model", "stored", "bytes", "bits-back limit", "over the entropy bound", "save", "load",
        "peak memory, save and load",
    ]  # fmt: skip
    return (
        "## What a file takes\n\n"
        "A drawn posterior (see stage_two.py) unless a file is named. The bound is that of the "
        "entropy of all numbers that are coded; the worst section is that of more than 10,000 "
        "bytes. Memory is the model's own and all that save or load takes, over the model's. "
        f"Meant: 1%, 5 s, 3 s, 1.5 x.\n\n{origins(found)}\n" + table(head, lines)
    )


def sizes() -> str:
    """Real files of trained networks."""
    found = rows("sizes")
    return (
        "## Files of trained networks\n\n"
        f"CIFAR-10, on {hardware(found)}; one line per run, last epoch, 30 samples. `trained` is "
        "measured without a file, every other stage after loading the file back. `shared` is "
        "before training on; the rates of a table are those of its means and log-stds there. "
        "Behind a parent's name: its bytes, where they were recorded. `training` is the time of "
        "this step, without its parents'.\n\n"
        f"{origins(found)}\n{_sizes(found)}" + "".join(known(sizes_search)) + _picture()
    )


def sizes_search() -> str:
    """How settings were chosen."""
    found = rows("sizes_search")
    return (
        "\nOn 5,000 held-out training images, trained on the other 45,000, for choosing settings:"
        f"\n\n{origins(found)}\n{_sizes(found)}"
    )


def _sizes(found: list[Row]) -> str:
    """A line for each model and way to predict."""
    head = [
        "network", "made by", "from", "seed", "stage", "epochs", "beta", "decay", "other",
        "table's rates", "prediction", "weights", "file, bytes", "bits-back limit", "accuracy",
        "NLL", "ECE", "Brier", "SVHN AUROC, entropy", "training",
    ]  # fmt: skip
    return table(head, [_sized(row) for row in found])


def _picture() -> str:
    """Accuracy against bytes, and where its published points come from."""
    return (
        f"\n### Accuracy against bytes\n\n{PICTURE}\n\n"
        "    python size_figure.py\n\n"
        "Files of ResNet-18 on CIFAR-10 from the table above and from those of weight sharing, "
        "sparse subspaces, pruning and (the network without uncertainty, of the longest "
        "training) baselines; all on the test set after loading back, with the estimator of "
        "their training, without cutout. Of several seeds a mark is the mean, its bar the range. "
        "Of several settings of a kind are shown those with the most seeds and "
        "the most accurate. A bits-back limit, where it was recorded, is that of the weights kept: "
        "the positions of these come on top. The axis shows where accuracies differ, not all of "
        "it; what lies outside is named in the picture.\n\n"
        "The papers print accuracies and counts, not bytes; these are derived, with nothing for "
        "norms and biases, which our files hold:\n\n" + published_table()
    )


def _sized(row: Row) -> list[str]:
    limit = row.get("bits_back_bytes") or row["kl_nats"] / math.log(2) / 8
    size = f"{row['file_bytes']:,}" if "file_bytes" in row else ""
    epochs = "tune_epochs" if row["row"] == "pruned" else "epochs"
    trained = "" if row["stage"] == "shared" else str(row["settings"][epochs])
    made = [
        row["model"],
        row["row"],
        _parent(row),
        str(row["seed"]),
        row["stage"],
        trained,
    ]
    decay = row["settings"]["weight_decay"] if row["row"] != "rate-distortion" else 0
    made += [f"{row['settings']['beta']:g}", f"{decay:g}", _others(row), _rates(row)]
    made += [row["estimator"]]
    made += [f"{row['active_weights']:,}" if "active_weights" in row else ""]
    spent = row.get("train_seconds")
    after = [_digits(row.get("brier"), 4), _digits(row.get("auroc_entropy"), 3)]
    after += ["" if spent is None else f"{spent:.0f} s"]
    return [*made, size, f"{limit:,.0f}", *scores(row), *after]


def _digits(value: float | None, count: int) -> str:
    return "" if value is None else f"{value:.{count}f}"


def _others(row: Row) -> str:
    """Settings of a training that are not the usual ones."""
    return unusual(row["settings"]) if row["row"] != "rate-distortion" else ""


def _parent(row: Row) -> str:
    """The file that it was made of; several may have one name."""
    size = f" ({row['parent_bytes']:,})" if "parent_bytes" in row else ""
    return row.get("parent", "") + size


def _rates(row: Row) -> str:
    """Of means and log-stds in a table that was trained on."""
    if (row["row"], row["stage"]) != ("rate-distortion", "trained on"):
        return ""
    return f"{row['settings']['share_lr']:g}, {row['settings']['share_std_lr']:g}"


def rate_curve() -> str:
    """Bytes against nats of shared weights."""
    found = rows("rate_curve")
    head = ["commit", "network", "made by", "size asked for", "file, bytes", "accuracy", "NLL",
            "ECE", "confidence"]  # fmt: skip
    lines = [
        [
            row["commit"],
            row["model"],
            row["row"],
            f"{row['target_bytes']:,}" if row["target_bytes"] else "",
            f"{row['file_bytes']:,}",
            *scores(row),
            f"{100 * row['confidence']:.1f}",
        ]
        for row in found
    ]
    return (
        "## Bytes against nats\n\n"
        "Mean-field networks of 20,000 MNIST digits whose weights then share a table by rate and "
        "distortion, without training on; measured on 10,000 other training digits. The first "
        "commit measures distortion as KL(weight || entry), the second as KL(entry || weight): its "
        "networks have the better NLL at every size asked for, most with slightly larger files, "
        "and are surer; at the smallest sizes they are far more accurate, at the largest not. A "
        "size asked for is of labels and table; biases and header come on top, and the table that "
        f"is nearest may be smaller.\n\n{origins(found)}\n" + table(head, lines)
    )


def fuzz() -> str:
    """Hostile files."""
    found = rows("fuzz")
    head = ["engine", "commit", "runs", "mutations", "refused", "loaded", "findings", "peak memory"]
    groups = grouped(found, lambda row: (row["engine"], row["commit"]))
    total = sum(row["mutations"] for row in found)
    return (
        "## Hostile files\n\n"
        "Small files of every method, changed at random in description or coded bytes, with a "
        "right checksum; loaded and, at the last commit, inspected. A finding is anything but a "
        f"model or a `FormatError`, or takes 2 s. {total:,} in all, those at commits before "
        "06d5e31 of versions 1 and 2.\n\n"
        f"{origins(found)}\n" + table(head, [_fuzzed(group) for group in groups.values()])
    )


def _fuzzed(group: list[Row]) -> list[str]:
    """Runs of one engine at one commit, added up."""
    outcomes = Counter[str]()
    for row in group:
        outcomes.update(row["outcomes"])
    mutations = sum(row["mutations"] for row in group)
    others = mutations - outcomes["refused"] - outcomes["model"]
    numbers = (len(group), mutations, outcomes["refused"], outcomes["model"], others)
    peak = max(row["peak_bytes"] for row in group)
    words = [group[0]["engine"], group[0]["commit"]]
    return [*words, *(f"{n:,}" for n in numbers), f"{peak / 1e6:.0f} MB"]
