"""Trained networks: the demo, baselines, dense VI, and how defaults were chosen."""

from pages.common import (
    Row,
    average,
    grouped,
    known,
    last_runs,
    mean_of,
    mean_scores,
    measured,
    origins,
    rows,
    scores,
    seconds,
    table,
    unusual,
)

RESNET_18 = ("resnet18", "cifar10")
DENSE_VI = ("bayes-by-backprop", "mean-field")
MEANT = {"accuracy": 0.935, "nll": 0.2, "ece": 0.01}
BRIEF, LATER_DECAY = 60, 0.002


def demo() -> str:
    """What `pocketbayes demo` shows."""
    found = rows("demo")
    lines = [
        [
            row["method"],
            f"{100 * row['accuracy']:.1f}",
            f"{row['nll']:.3f}",
            f"{row['ece']:.3f}",
            f"{row['ood_auroc']:.3f}",
            f"{row['weights_kept']:,}",
            f"{row['file_bytes']:,}",
            f"{row['seconds']:.0f} s",
        ]
        for row in found
    ]
    head = ["method", "accuracy", "NLL", "ECE", "OOD AUROC", "weights", "file, bytes", "training"]
    return (
        "## The demo\n\n"
        "510 test digits, which by their order in the file come from other writers than those "
        f"trained on; one seed, {found[0]['hardware']}; the "
        f"whole demo took {found[0]['demo_seconds']:.0f} s. OOD are patches of photographs.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )


def baselines() -> str:
    """What a Bayesian network is measured against."""
    found = [row for row in rows("baselines") if (row["model"], row["data"]) == RESNET_18]
    return (
        "## Baselines, ResNet-18, CIFAR-10\n\n"
        "Mean and standard error over seeds, last epoch, measured after loading the file back; "
        "batch 512, SGD at 0.2, where nothing else is said, with Nesterov momentum and weight "
        f"decay (in Bayesian rows too, beside the KL), on one {found[0]['hardware']}, torch "
        f"{found[0]['torch']}, compilation included in the time. MC dropout has rate 0.1 and 30 "
        "draws, the ensemble five members; Bayes by Backprop draws whole weights in training and "
        "prediction, mean-field is local reparameterisation; stds begin at 0.001 where nothing "
        "else is said. SVHN is that of [dense VI](#dense-mean-field-vi-cifar-10). Files of 44.7, "
        "89.4 and 223.8 MB are of an older format. "
        f"{_goal(found)}{_with_later_decay(found)}\n\n"
        f"{origins(found)}\n{_compared(found)}" + "".join(known(baselines_search))
    )


def _goal(found: list[Row]) -> str:
    """Which lines of dense VI are as good as meant after 60 epochs."""
    groups = grouped(last_runs(found, _setting_of), _setting_of)
    names = [_words(key) for key, group in groups.items() if key[1] == BRIEF and _is_good(group)]
    return (
        f"Our goal for dense VI (Bayes by Backprop or mean-field) after {BRIEF} epochs: accuracy "
        f"{100 * MEANT['accuracy']:.1f}, NLL {MEANT['nll']:.2f} and ECE {MEANT['ece']:.2f}; met in "
        f"all three by {' and '.join(names) or 'no line'}."
    )


def _with_later_decay(found: list[Row]) -> str:
    """Where to find methods that have no line here with the weight decay that was found later."""
    brief = [row for row in found if row["epochs"] == BRIEF]
    here = {row["row"] for row in brief if row["method"]["weight_decay"] == LATER_DECAY}
    names = [name for name in dict.fromkeys(row["row"] for row in brief) if name not in here]
    known = _methods_above()
    above = ", ".join(name for name in names if name in known)
    nowhere = ", ".join(name for name in names if name not in known)
    section = "[Every method on the same work](#every-method-on-the-same-work)"
    parts = [f"{above} are in {section}"] * bool(above)
    parts += [f"{nowhere} were not measured"] * bool(nowhere)
    if not parts:
        return ""
    return (
        f" On the test set after {BRIEF} epochs with weight decay {LATER_DECAY}, which a later "
        f"search chose: {'; '.join(parts)}."
    )


def _methods_above() -> set[str]:
    """Families of this network, trained as briefly with that weight decay, beside all others."""
    return {
        row["family"]
        for row in measured("side_by_side")[0]
        if (row["model"], row["data"]) == RESNET_18
        and row["settings"]["epochs"] == BRIEF
        and row["settings"]["weight_decay"] == LATER_DECAY
    }


def _is_good(group: list[Row]) -> bool:
    """Whether this is dense VI that is as good as meant, in the mean over seeds."""
    is_accurate = mean_of(group, "accuracy") >= MEANT["accuracy"]
    is_sure = all(mean_of(group, name) <= MEANT[name] for name in ("nll", "ece"))
    return group[0]["row"] in DENSE_VI and is_accurate and is_sure


def _words(setting: tuple[object, ...]) -> str:
    """A line's method and settings."""
    name, _, beta, decay, others, _ = setting
    return f"{name} (beta={beta} weight_decay={decay}{f' {others}' if others else ''})"


def baselines_search() -> str:
    """How settings were chosen."""
    found = rows("baselines_search")
    return (
        "\nSettings were looked for on 5,000 held-out training images, trained on the other 45,000:"
        f"\n\n{origins(found)}\n{_compared(found)}"
    )


def _compared(found: list[Row]) -> str:
    """One line for each method and setting, over seeds; of a repeated run, the last."""
    groups = grouped(last_runs(found, _setting_of), _setting_of)
    head = [
        "method", "epochs", "beta", "weight decay", "other", "prediction", "seeds", "accuracy",
        "NLL", "ECE", "Brier", "SVHN AUROC, entropy", "SVHN AUROC, epistemic", "file, bytes",
        "training",
    ]  # fmt: skip
    lines = [
        [
            *map(str, key),
            str(len(group)),
            *mean_scores(group),
            average(group, "brier", 4),
            average(group, "auroc_entropy", 3),
            average(group, "auroc_epistemic", 3),
            f"{mean_of(group, 'file_bytes'):,.0f}",
            seconds(group, "train_seconds", 0),
        ]
        for key, group in groups.items()
    ]
    return table(head, lines)


def _setting_of(row: Row) -> tuple[object, ...]:
    """What tells the lines apart."""
    method = row["method"]
    known = (row["row"], row["epochs"], method.get("beta", ""), method["weight_decay"])
    is_drawn = row["row"] in DENSE_VI and row["estimator"] != "none"
    return (*known, unusual(row.get("settings", {})), row["estimator"] if is_drawn else "")


def dense_vi() -> str:
    """Mean-field VI of all weights."""
    found = rows("dense_vi")
    lines = [
        [
            row["model"],
            str(row["settings"]["epochs"]),
            str(row["settings"]["beta"]),
            row["estimator"],
            *scores(row),
            f"{row['auroc_entropy']:.3f}",
            f"{row['auroc_epistemic']:.3f}",
            f"{row['kl']:,.0f}",
            f"{row['train_seconds']:.0f} s",
            f"{row['seconds_per_epoch']:.2f} s",
        ]
        for row in found
    ]
    head = [
        "network", "epochs", "beta", "prediction", "accuracy", "NLL", "ECE", "SVHN AUROC, entropy",
        "SVHN AUROC, epistemic", "KL, nats", "training", "per epoch",
    ]  # fmt: skip
    return (
        "## Dense mean-field VI, CIFAR-10\n\n"
        f"One seed, last epoch, 30 samples, probabilities averaged, on one {found[0]['hardware']}, "
        f"torch {found[0]['torch']}. The SVHN digits are re-cropped from the full-number format, "
        "not the bytes of `test_32x32.mat`. `mean` is the mean network alone.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )


def defaults() -> str:
    """How the defaults of MeanField were chosen."""
    found = rows("defaults")
    names = list(found[0]["nll"])
    lines = [
        [
            str(row["beta"]),
            str(row["lr"]),
            str(row["std_lr"]),
            " ".join(map(str, row["splits"])),
            *(f"{row['nll'][name]:.3f}" for name in names),
        ]
        for row in found
    ]
    return (
        "## Defaults of MeanField\n\n"
        "NLL (of regressions, in standard deviations of the target) on validation parts of "
        "training sets, 100 epochs, one seed; beta 0.03 was cut short. A learning rate of 0.01 is "
        "better on yacht and concrete and worse on bostonHousing and wine: none wins everywhere, "
        "so the defaults (0.01, 0.003, 0.01) stay.\n\n"
        f"{origins(found)}\n" + table(["beta", "lr", "std_lr", "splits", *names], lines)
    )


def regressions() -> str:
    """How those of the command line were."""
    found = rows("regressions")
    names = list(found[0]["nll"])
    lines = [
        [
            str(row["beta"]),
            str(row["prior_std"]),
            *(f"{row['nll'][n]:.2f} / {100 * row['coverage_90'][n]:.0f}%" for n in names),
        ]
        for row in found
    ]
    return (
        "## Where the command line begins with regressions\n\n"
        "NLL (in standard deviations of the target) and the share of targets inside the 90% "
        "interval, on validation parts of training sets, one seed. The command line takes beta "
        "0.1 and prior_std 0.3; the library's own defaults are 0.01 and 0.05.\n\n"
        f"{origins(found)}\n" + table(["beta", "prior_std", *names], lines)
    )
