"""Accuracy against density: spike-and-slab beside other ways to prune."""

from typing import Any

from pages.common import (
    Row,
    average,
    grouped,
    hardware,
    last_runs,
    mean_scores,
    measured,
    origins,
    seconds,
    table,
    unusual,
)
from pages.questions import questions

# Settings that are shown only where they differ from these.
USUAL = {
    "optimizer": "sgd", "lr": 0.2, "tune_lr": 0.02, "std_lr": 0.005, "weight_decay": 0.0005,
    "inclusion": 0.02, "prior_std": 0.05, "std_init": 0.001, "batch": 512, "estimator": "lrt",
    "samples": 30, "crop_digits": False, "limit": None, "dense_epochs": 0, "select_beta": None,
    "select_lr": None, "optimum": "gradient", "through": [],
}  # fmt: skip

SWITCHES = {"inclusion", "dense_epochs", "select_beta", "select_lr", "optimum"}

# Settings that a method does not look at.
IDLE = {
    "magnitude": SWITCHES | {"std_lr", "prior_std", "std_init", "estimator", "samples"},
    "snr": SWITCHES,
    "variational-dropout": SWITCHES,
}


def pruning() -> str:
    """What is left at each density and, behind it, how settings were chosen."""
    test, validation = (last_runs(found, _kind) for found in measured("pruning"))
    parts = ["## Accuracy against density\n"]
    if test:
        parts.append(
            "Mean and standard error over seeds, last epoch, measured after loading the file back, "
            f"on {hardware(test)}, torch {test[0]['torch']}. One "
            "network per method and seed; copies of it are pruned over the whole network "
            "(`spike-slab` by inclusion, `magnitude` by the weights of a deterministic network, "
            "`snr` and `variational-dropout` by signal to noise) and trained on. Density 1 is "
            "before pruning. Epochs and betas: before + after it; `through` names densities on the "
            "way, each with as many epochs as after the last. Weights and bytes are of the first "
            "seed, training is the time after pruning; at density 1, before it.\n\n" + _table(test)
        )
        parts.append(questions(test))
    if validation:
        parts.append(
            "Settings were chosen by training on all but 5,000 training images and measuring on "
            "those:\n\n" + _table(validation)
        )
    return "\n".join(parts)


def _table(found: list[Row]) -> str:
    """One line per network, density and method, with the commands behind them."""
    groups = grouped(found, _kind)
    first = {network: place for place, (network, *_) in reversed(list(enumerate(groups)))}
    order = sorted(groups, key=lambda key: (first[key[0]], -key[1]))
    head = [
        "network", "density", "method", "epochs", "beta", "other", "seeds", "accuracy", "NLL",
        "ECE", "SVHN AUROC, entropy", "weights", "file, bytes", "training",
    ]  # fmt: skip
    return f"{origins(found)}\n" + table(head, [_line(key, groups[key]) for key in order])


def _kind(row: Row) -> tuple[Any, ...]:
    """What runs of one line have in common."""
    s, method, is_pruned = row["settings"], row["row"], row["density"] < 1
    widths = "-".join(map(str, s.get("hidden") or []))
    network = f"{row['model']}{' ' * bool(widths)}{widths}, {row['data']}"
    epochs = [s["epochs"], s["tune_epochs"]] if is_pruned else [s["epochs"]]
    betas = _betas(s, method) if is_pruned else _betas(s, method)[:1]
    idle = IDLE.get(method, set()) | (set() if is_pruned else {"tune_lr"})
    others = unusual({k: v for k, v in s.items() if k not in idle}, USUAL)
    shown = (" + ".join(map(str, epochs)), " + ".join(f"{beta:g}" for beta in betas))
    return (network, row["density"], method, *shown, others)


def _betas(s: dict[str, Any], method: str) -> list[float]:
    """Those before and after pruning; one if they are the same, none if there is no KL."""
    if method == "magnitude":
        return []
    after = s["beta"] if s.get("tune_beta") is None else s["tune_beta"]
    before = s["dropout_beta"] if method == "variational-dropout" else s["beta"]
    return [before] if before == after else [before, after]


def _line(key: tuple[Any, ...], group: list[Row]) -> list[str]:
    """One line of the table."""
    network, density, *others = key
    return [
        network,
        f"{density:g}",
        *others,
        str(len(group)),
        *mean_scores(group),
        average(group, "auroc_entropy", 3),
        f"{group[0]['active_weights']:,}",
        f"{group[0]['file_bytes']:,}",
        seconds(group, "train_seconds", 0),
    ]
