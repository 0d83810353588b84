"""What the paper leaves open: very deep networks, attention and recurrence under switches."""

from pages.common import Row, scores, table

NETWORKS = {
    "resnet110": "110 layers",
    "vit-tiny": "a transformer encoder",
    "lstm": "an LSTM that reads images row by row",
}


def questions(found: list[Row]) -> str:
    """Whether spike-and-slab converges there, at what density and cost."""
    of_them = [row for row in found if row["model"] in NETWORKS]
    if not of_them:
        return ""
    head = [
        "network", "which is", "data", "epochs", "kept", "accuracy", "NLL", "ECE",
        "dense twin's accuracy", "pruned by signal to noise", "training, with switches",
        "the twin's",
    ]  # fmt: skip
    lines = [
        _line(row, of_them) for row in of_them if row["row"] == "spike-slab" and row["density"] < 1
    ]
    return (
        "### Deep, attentive and recurrent networks\n\n"
        "Questions that the paper leaves open: does it converge there, at what density and cost? "
        "Networks with switches, pruned and trained on, beside their twins without: mean-field "
        "VI of all weights for as many epochs, and what pruning that by signal to noise leaves. "
        "One seed, few epochs; empty is not measured. Times at 16e66d4 were taken beside other "
        "work on the same GPU and are too long. Commands are above.\n\n" + table(head, lines)
    )


def _line(row: Row, found: list[Row]) -> list[str]:
    settings = row["settings"]
    whole, twin = (_same(row, found, kind, 1.0) for kind in ("spike-slab", "snr"))
    rival = _same(row, found, "snr", row["density"])
    return [
        row["model"],
        NETWORKS[row["model"]],
        row["data"],
        f"{settings['epochs']} + {settings['tune_epochs']}",
        f"{100 * row['density']:g}%",
        *scores(row),
        f"{100 * twin['accuracy']:.2f}" if twin else "",
        f"{100 * rival['accuracy']:.2f}" if rival else "",
        f"{whole['train_seconds']:.0f} s" if whole else "",
        f"{twin['train_seconds']:.0f} s" if twin else "",
    ]


def _same(row: Row, found: list[Row], kind: str, density: float) -> Row | None:
    """The row of another method or density, of the same network, data, epochs and seed."""
    key = (row["model"], row["data"], row["settings"]["epochs"], row["seed"])
    for other in found:
        same = (other["model"], other["data"], other["settings"]["epochs"], other["seed"]) == key
        if same and (other["row"], other["density"]) == (kind, density):
            return other
    return None
