"""What each step of weight sharing is worth, beside the paper's tables."""

from collections.abc import Sequence

from pages.common import Row, grouped, mean_scores, origins, rows, table

COUNTS = ("outliers", "blends", "components", "parameters")
HEAD = ["accuracy", "NLL", "ECE", *COUNTS[:3], "paper's parameters", "bytes"]

# What a line shows, the change that makes it, and the paper's figures.
Lines = Sequence[tuple[str, str, list[str]]]

OUTLIERS_AND_BLENDS: Lines = (
    ("both", "none", ["90.92 / .265 / .040"]),
    ("no blends", "blend_beyond=none", ["90.43 / .304 / .043"]),
    ("no outliers", "outlier_mean=none outlier_gradient=0", ["90.18 / .308 / .026"]),
    (
        "neither",
        "blend_beyond=none outlier_mean=none outlier_gradient=0",
        ["90.01 / .318 / .029"],
    ),
    ("no outliers by mean", "outlier_mean=none", [""]),
    ("no outliers by gradient", "outlier_gradient=0", [""]),
)
THRESHOLDS: Lines = (
    ("0.1", "outlier_mean=0.1", ["91.14 / .376 / .0197", "223,046"]),
    ("0.2, the default", "none", ["91.04 / .303 / .037", "14,624"]),
    ("0.4", "outlier_mean=0.4", ["90.53 / .396 / .0279", "101,970"]),
    ("0.6", "outlier_mean=0.6", ["89.78 / .322 / .038", "12,211"]),
    ("no limit", "outlier_mean=none", ["", ""]),
)
MERGING: Lines = (
    ("not merged", "merge=none", ["88.77 / .3792 / .0500"]),
    ("merged", "none", ["91.02 / .3066 / .0374"]),
)
# The paper prints these ECEs in percent.
INT8 = {
    "int8, 4 bits": "90.92 / .266 / .0178",
    "int8, 2 bits": "90.85 / .273 / .0255",
    "int8, 1 bits": "90.96 / .266 / .0071",
}

INTRO = """
### What each step of sharing is worth

ResNet-20 on CIFAR-10 from the published weights: one parent, one seed, each variant measured right
after sharing, before the table is trained on; 30 samples. `none` changed nothing. Bytes are those
of an ideal code or, of int8, of packed means, stds and scales, not of files. The paper's figures
are accuracy / NLL / ECE.

Differences of .2 points in one seed are within chance: the standard error of an accuracy on 10,000
images is .27, and no limit on means and one of 0.6, which keep equally many weights whole, lie .25
apart; so outliers, blends and merging hardly matter here, where the paper finds .5 to 2.3 points,
and the rate-distortion objective has the smallest code.

"""


def sharing_ablation() -> str:
    """Four small tables, three of them after the paper's Tables 5, 8 and 10."""
    found = [row for row in rows("sharing_ablation") if row.get("stage") in (None, "shared")]
    groups = grouped(found, _name)
    first = (
        ("Outliers and blends, as in its Table 5. Clusters of too few stay whole in any case:",
         ["", *HEAD, "paper"], OUTLIERS_AND_BLENDS),
        ("The largest mean that is shared (`outlier_mean`), as in its Table 8:",
         ["outlier_mean", *HEAD, "paper", "its outliers"], THRESHOLDS),
        ("Merging, as in its Table 10:", ["", *HEAD, "paper"], MERGING),
    )  # fmt: skip
    parts = [
        f"{text}\n\n{table(head, [_line(groups, *line) for line in lines])}\n"
        for text, head, lines in first
    ]
    return INTRO + origins(found) + "\n" + "".join(parts) + _others(groups)


def _name(row: Row) -> tuple[str, frozenset[str]]:
    """Which variant a row is, in whatever order its changes were given."""
    return row["row"], frozenset(row.get("change", "").split())


def _line(
    groups: dict[tuple[str, frozenset[str]], list[Row]], name: str, change: str, paper: list[str]
) -> list[str]:
    """One variant beside the paper's."""
    group = groups.get(("sharing", frozenset(change.split())))
    ours = _figures(group) if group else ["not measured", *[""] * (len(HEAD) - 1)]
    return [name, *ours, *paper]


def _figures(group: list[Row]) -> list[str]:
    """Scores, counts and bytes; counts are those of the first run."""
    first = group[0]
    counts = [f"{first[name]:,}" if name in first else "" for name in COUNTS]
    if "packed" in first:
        size = f"{first['packed']['packed_bytes']:,}"
    else:
        size = f"{first['coded_bytes']:,}" if "coded_bytes" in first else ""
    return [*mean_scores(group), *counts, size]


def _others(groups: dict[tuple[str, frozenset[str]], list[Row]]) -> str:
    """Everything that is in none of the tables after the paper, and the default."""
    after = {
        frozenset(change.split())
        for lines in (OUTLIERS_AND_BLENDS, THRESHOLDS, MERGING)
        for _, change, _ in lines
    }
    lines = [
        [row, " ".join(sorted(change)), *_figures(group), INT8.get(row, "")]
        for (row, change), group in groups.items()
        if change not in after or change == {"none"}
    ]
    return (
        "What else was varied, with the parent and the int8 rival of the paper's Table 4 (means in "
        "8 bits, stds in 4, 2 or 1; it prints the ECE in percent). With stds of 1 bit int8 takes "
        "fewer bytes than any mixture, at an accuracy that cannot be told from theirs; only the "
        "rate-distortion objective takes still fewer, and that in an ideal code:\n\n"
        + table(["row", "changed", *HEAD, "paper"], lines)
    )
