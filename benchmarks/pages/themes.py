"""Every page but the first: one theme each, as declarations of its tables."""

import math
import re
from collections import Counter
from collections.abc import Callable

from families import FAMILIES
from uci_sets import UCI_SETS

from pages.differences import ALIKE, by_recipe, differences
from pages.headline import BYTES, FRESH, HEADS, RESNET_18, RESNET_20
from pages.published import published_table
from pages.render import (
    NAMES,
    SCORES,
    Column,
    Field,
    Line,
    Page,
    Row,
    Show,
    Table,
    average,
    count,
    grouped,
    matches,
    mean,
    number,
    percent,
    results,
    significant,
    text,
    whole,
)


def named(name: str) -> Column:
    """A column that names what lines are about."""
    return Column(name, name, text)


NETWORK = Column("network", "model", text)
NETWORK_NAME = Column("network", "network", text)
METHOD = Column("method", "row", text)
ESTIMATOR = Column("estimator", "estimator", text)
OOD = Column("OOD AUROC", "auroc_entropy", number(3))
WEIGHTS = Column("weights", "active_weights", whole)
STAGES = {"trained on": "fine-tuned", "shared": "not fine-tuned"}


def by_family(row: Row) -> tuple[int, int]:
    """Family by family, and in each those first that keep the most weights."""
    return list(FAMILIES).index(row["family"]), -row.get("active_weights", 0)


# Every method on the same task.


def compared(model: str, data: str, epochs: int) -> Table:
    """All methods on one network and data set; training times where they were measured."""
    where = {"model": model, "data": data, "settings.epochs": epochs}
    timed = any("train_seconds" in r for r in results("side_by_side") if matches(r, where))
    return Table(
        f"{NAMES[model]} on {NAMES[data]}, {epochs} epochs",
        (
            METHOD, ESTIMATOR, Column("seeds", "seed", count), *SCORES, OOD, WEIGHTS, BYTES,
            *((Column("training, s", "train_seconds", whole),) if timed else ()),
        ),
        source=("side_by_side",),
        where=where,
        by=("row", "estimator"),
        order=by_family,
    )  # fmt: skip


METHODS = Page(
    "methods",
    "Every method on the same task",
    "all methods on one network, data set and number of epochs",
    "Every method has the same network, data and epochs; what is pruned or shared is fine-tuned "
    "after that. No method was tuned by itself: the commands show all settings. OOD is SVHN "
    "(digits cropped from the full pictures) for CIFAR-10, Fashion-MNIST for MNIST, and MNIST "
    "for Fashion-MNIST; training, by the clock, includes start-up and, of what is pruned or "
    "shared, the network that it was made of.",
    (
        compared("resnet18", "cifar10", 60),
        compared("resnet20", "cifar10", 40),
        compared("resnet20", "mnist", 8),
        compared("lenet5", "mnist", 30),
        compared("lenet5", "fashion-mnist", 30),
        *differences("side_by_side", (*ALIKE, "settings.epochs")),
        *by_recipe(),
    ),
)


# What training on makes of a trained network.

STAGES_OF_TRAINED = ("plain", "converted", "1 epochs", "10 epochs")


def in_one_epoch(values: list[str]) -> str:
    """The stage, by good grammar."""
    return values[0].replace("1 epochs", "1 epoch")


def of_trained(data: str) -> Table:
    """The same networks before and after."""
    return Table(
        NAMES[data],
        (
            Column("stage", "stage", in_one_epoch),
            *SCORES,
            Column("90% over 10% of stds", "std_range", number(2)),
            Column("stds over means", "std_share", number(2)),
            Column("fit, s", "fit_seconds", whole),
        ),
        source=("from_trained",),
        where={"data": data},
        by=("stage",),
        order=lambda row: STAGES_OF_TRAINED.index(row["stage"]),
    )  # fmt: skip


TRAINED = Page(
    "trained",
    "A trained network, some epochs later",
    "what `bayesianize_` and `fit` make of a network that was trained before",
    "A plain network is trained by Adam, converted, and given to `fit` with nothing said but the "
    "epochs. Stds that differ within a tensor have been learned: at first all are a tenth of the "
    "root mean square of its weights.",
    (of_trained("digits"), of_trained("fashion-mnist")),
)


# Regression.


def is_own(row: Row) -> bool:
    """Whether a network predicts as it was trained."""
    trained = ("subspace", "bayes-by-backprop", "chain", "swag", "rank-one", "latent-posterior")
    by_weights = row["family"] in trained
    return row["estimator"] in ("none", "weight" if by_weights else "lrt")


def complete(source: str) -> set[str]:
    """The methods that were run on every set."""
    sets = {row["set"] for row in results(source)}
    found = grouped(results(source), lambda row: row["row"])
    return {method for method, rows in found.items() if {row["set"] for row in rows} == sets}


def is_ranked(row: Row) -> bool:
    """Whether it counts in means over all sets."""
    return is_own(row) and row["row"] in complete("side_by_side_uci")


def ranks(name: str, source: str) -> dict[tuple[str, str], float]:
    """The place of a method among all by its mean over splits, by set and method."""
    methods = complete(source)
    known = [row for row in results(source) if row["row"] in methods]
    found = [row for row in known if source == "intervals" or is_own(row)]
    cells = grouped(found, lambda row: (row["set"], row["row"]))
    means = {key: mean([row[name] for row in group]) for key, group in cells.items()}
    places = {}
    for (where, method), value in means.items():
        others = [other for (there, _), other in means.items() if there == where]
        ties = sum(other == value for other in others)
        places[where, method] = sum(other < value for other in others) + (1 + ties) / 2
    return places


def rank(name: str, source: str = "side_by_side_uci") -> Column:
    """The mean of that place over sets."""

    def show(found: list[Row]) -> str:
        places, method = ranks(name, source), found[0]["row"]
        return f"{mean([places[where, method] for where in {row['set'] for row in found}]):.1f}"

    return Column(f"mean rank, {name.upper()}", dict, show)


def by_set(name: str) -> Table:
    """A figure of every method on every set."""
    return Table(
        f"{name.upper()} by set",
        (METHOD, *(Column(where, name, significant, {"set": where}) for where in UCI_SETS)),
        source=("side_by_side_uci",),
        where=is_own,
        by=("row",),
        has_commands=False,
    )


def paired(name: str) -> tuple[Column, ...]:
    """A figure of the dense and of the sparse network."""
    return (
        Column(f"{name.upper()}, dense", name, significant, {"row": "mean-field"}),
        Column(f"{name.upper()}, sparse", name, significant, {"row": "spike-slab"}),
    )


REGRESSION = Page(
    "regression",
    "UCI regression",
    "all methods on nine UCI sets; sparse networks against dense ones",
    "Networks have two hidden layers of 100 units, in the last table 400, and Gal's splits: three, "
    "in the last table five. Learning rates, beta and prior were found for mean-field VI and "
    "spike-and-slab in the larger network; no other method was tuned. RMSE and NLL are in the "
    "target's units; methods that were run on some sets only have no rank.",
    (
        Table(
            "All sets",
            (
                METHOD, ESTIMATOR, rank("nll"), rank("rmse"),
                Column("coverage of 90% intervals", "coverage_90", average(3)), WEIGHTS, BYTES,
            ),
            source=("side_by_side_uci",),
            where=is_ranked,
            by=("row",),
        ),
        by_set("nll"),
        by_set("rmse"),
        Table(
            "Mean-field VI against spike-and-slab with a tenth of the weights",
            (
                named("set"),
                Column("density", "density", average(3), {"row": "spike-slab"}),
                *paired("rmse"), *paired("nll"),
            ),
            source=("uci",),
            by=("set",),
        ),
    ),
)  # fmt: skip


RIVALS = (
    "pocketbayes", "plain network", "ensemble of 5", "Gaussian process", "gradient boosting",
    "Bayesian ridge",
)  # fmt: skip


def sets_inside(found: list[Row]) -> str:
    """The number of sets on which 86 to 94% of the targets lie in the 90% interval."""
    sets = grouped(found, lambda row: row["set"])
    shares = [mean([row["coverage_90"] for row in group]) for group in sets.values()]
    return f"{sum(0.86 <= share <= 0.94 for share in shares)} of {len(shares)}"


def is_timed(row: str) -> bool:
    """Whether its time is known: a plain network is a member of the ensemble, timed as a whole."""
    return row != "plain network"


def of_rivals(title: str, name: str, show: Show) -> Table:
    """A figure of every rival on every set."""
    columns = (Column(row, name, show, {"row": row}) for row in RIVALS)
    return Table(
        title, (named("set"), *columns), source=("intervals",), by=("set",), has_commands=False
    )


INTERVALS = Page(
    "intervals",
    "Default intervals",
    "coverage and NLL with nothing tuned, on 21 regressions",
    '`pb.fit(pb.bayesianize_(net), loader, likelihood="gaussian")` with nothing else said, on an '
    "MLP of 64 and 64 units, five splits and standardised targets; rivals are described in "
    "`benchmarks/intervals.py`, and the ensemble holds five networks. The defaults were chosen on "
    "rows that no test part holds (`benchmarks/defaults.py`), with nothing of crime, nitrogen, "
    "production, salaries, schools and wages. The test parts were read twice before, by other "
    "defaults; the last column is the mean time of training and prediction on one core.\n\n"
    "![Mean ranks of methods by NLL over the sets; bars join those whose order may be "
    "chance](../images/ranks.svg)",
    (
        Table(
            "All sets",
            (
                named("row"),
                rank("nll", "intervals"),
                rank("crps", "intervals"),
                Column("mean coverage", "coverage_90", average(3)),
                Column("sets with 86 to 94%", dict, sets_inside),
                Column("a split, s", "seconds", average(1), {"row": is_timed}),
            ),
            source=("intervals",),
            by=("row",),
        ),
        of_rivals("Coverage of nominal 90% intervals", "coverage_90", average(2)),
        of_rivals("NLL", "nll", average(2)),
    ),
)


# One pass.

WAYS = {
    "weight": "30 draws of weights", "lrt": "30 draws (lrt)", "moments": "moments", "mean": "mean",
    "one_pass": "one pass",
}  # fmt: skip


def way(row: Row) -> str:
    """How a row was predicted."""
    return WAYS[row.get("row", row["estimator"])]


def of_ways(title: str, name: str, digits: int) -> Table:
    """A figure of every way to predict on every regression."""
    columns = (
        Column(words, name, average(digits), {"row": key})
        for key, words in WAYS.items()
        if key != "weight"
    )
    return Table(
        title, (named("set"), *columns), source=("one_pass_values",), by=("set",),
        has_commands=name == "nll",
    )  # fmt: skip


ONE_PASS = Page(
    "one-pass",
    "One pass against thirty draws",
    "what a learned head keeps of the draws, and what a prediction costs",
    "Networks were trained with draws of weights, regressions by the defaults of `fit`, then "
    "distilled by `pb.distill_`; settings of the head were chosen on training images and rows, and "
    "the seeds chose nothing. Corrupted images are six corruptions at severities 2 and 5; OOD is "
    "SVHN for CIFAR-10, Fashion-MNIST for MNIST and MNIST for Fashion-MNIST. Costs are ratios to a "
    "plain pass of the same network on one thread of an x86 core, with all that `predict` does "
    "beside it.",
    (
        Table(
            "Images",
            (
                NETWORK_NAME, Column("data", "data", text), Column("images", "images", text),
                Column("prediction", way, text), Column("seeds", "seed", count), *SCORES, OOD,
            ),
            source=("one_pass",),
            by=("network", "data", "images", "estimator"),
            order=lambda row: (row["network"], row["data"], row["images"] != "clean"),
        ),
        of_ways("Regressions: NLL, means over three splits", "nll", 3),
        of_ways("Regressions: coverage of nominal 90% intervals", "coverage_90", 3),
        Table(
            "Cost of a prediction, in plain passes",
            (
                NETWORK_NAME, Column("prediction", "row", text),
                *(
                    Column(f"batch {size}", "ratio", average(2), {"batch": size})
                    for size in (1, 256)
                ),
            ),
            source=("passes",),
            by=("network", "row"),
        ),
    ),
)  # fmt: skip


# Runtimes.


def per_density(row: Row) -> str:
    """Dense, or the share of weights that are there."""
    return "dense" if row["density"] == 1 else f"{100 * row['density']:g}%"


def part_of_exports(row: Row) -> str:
    """What a row of exports is of."""
    return "a page of digits" if row["row"] == "page" else "the wheel"


RUNTIMES = Page(
    "runtimes",
    "Without torch",
    "what a pass of the C engine costs, in passes of torch",
    "Ratios to torch's plain, dense, eager pass of the same network that was timed just before, on "
    "one thread: below 1 the engine is faster. Weights are random, and of a density one by one at "
    "random; moments include 30 draws of the outputs' Gaussian and all that a prediction holds. "
    "Of files, both sides have as many threads, and the fastest of six turns or more counts.",
    (
        Table(
            "The engine beside torch",
            (
                NETWORK_NAME, Column("weights", per_density, text),
                *(
                    Column(f"{way}, batch {size}", "ratio", average(2),
                           {"batch": size, "estimator": way})
                    for way in ("mean", "moments") for size in (1, 64)
                ),
            ),
            source=("runtime",), where={"estimator": ("mean", "moments")},
            by=("network", per_density),
        ),
        Table(
            "8-bit products of dense layers, the fastest of many turns",
            (
                NETWORK_NAME,
                *(
                    Column(f"{way}, batch {size}", "ratio", average(2),
                           {"batch": size, "estimator": f"mean, {way}"})
                    for way in ("float", "int8") for size in (1, 64)
                ),
            ),
            source=("runtime",), where={"estimator": ("mean, float", "mean, int8")},
            by=("network",),
        ),
        Table(
            "From a cold start, through Python: torch and pocketbayes-lite",
            (
                NETWORK_NAME, Column("estimator", "estimator", text),
                Column("runtime", "runtime", text),
                Column("first answer", "first_answer_seconds", average(2, unit=" s")),
                Column("memory", "memory_bytes", average(0, 1e-6, " MB")),
                Column("ms an example, batch 1", "milliseconds.1", average(3)),
                Column("batch 64", "milliseconds.64", average(3)),
            ),
            source=("runtime_starts",),
            by=("network", "estimator", "runtime"),
        ),
        Table(
            "ONNX files beside .pocket files, by moments, trained on digits",
            (
                NETWORK_NAME, Column(".pocket", "pocket_bytes", average(1, 1e-3, " kB")),
                Column("ONNX", "bytes", average(1, 1e-3, " kB")),
                Column("times", "times", average(2)),
                Column("the graph alone", "graph_bytes", average(1, 1e-3, " kB")),
            ),
            source=("exports",), where={"row": "onnx"}, by=("network",),
        ),
        Table(
            "C on a Cortex-M4, linked by clang -Os with what it needs of math.h",
            (
                NETWORK_NAME, Column("estimator", "estimator", text),
                Column("tables", "tables_bytes", average(1, 1e-3, " kB")),
                Column("flash, linked", "flash_bytes", average(1, 1e-3, " kB")),
                Column("RAM", "ram_bytes", average(1, 1e-3, " kB")),
            ),
            source=("exports",), where={"row": "c"}, by=("network", "estimator"),
        ),
        Table(
            "A page, and the wheel of pocketbayes-lite",
            (
                Column("what", part_of_exports, text),
                Column("size", "bytes", average(0, 1e-3, " kB")),
                Column("without its model", "page_bytes", average(0, 1e-3, " kB")),
                Column("engine and script by gzip", "packed_bytes", average(1, 1e-3, " kB")),
            ),
            source=("exports",), where={"row": ("page", "wheel")}, by=("row",),
        ),
        Table(
            "Files with the sparsity of trained networks, beside a plain dense ResNet-18",
            (
                Column("file", "about", text), Column("batch", "batch", text),
                Column("threads", "cores", text), Column("estimator", "estimator", text),
                Column("of its pass", "ratio", average(2)),
                Column("of `pb.predict` with it", "ratio_to_predict", average(2)),
                Column("file to answer, of the same with it", "ratio_from_file", average(2)),
            ),
            source=("runtime_files",),
            by=("about", "batch", "cores", "estimator"),
        ),
    ),
)  # fmt: skip


# Other libraries.


def library(row: Row) -> str:
    """The name of a row; the network without uncertainty is no library."""
    return str(row["row"].replace("weights drawn", "weight samples")).replace(
        "plain", "deterministic"
    )


def libraries(model: str, data: str, epochs: int) -> Table:
    """All libraries on one network."""
    return Table(
        f"{NAMES[model]} on {NAMES[data]}, {epochs} epochs",
        (
            Column("library", library, text), Column("learning rate", "settings.lr", text), *SCORES,
            OOD, Column("stored, bytes", "stored_bytes", whole),
            Column("training step", "step_seconds", average(1, 1000, " ms")),
            Column("prediction", "predict_seconds", average(3, unit=" s")),
        ),
        source=("peers",),
        where={"model": model},
        by=("row", "settings.lr"),
        order=lambda row: not row["row"].startswith("pocketbayes"),
    )  # fmt: skip


LIBRARIES = Page(
    "libraries",
    "Other libraries on the same task",
    "bayesian-torch, torch-uncertainty, IVON and laplace-torch beside pocketbayes",
    "Network, first weights, data and epochs are the same for all; stored is a file of ours, and a "
    "state dict of the others. Learning rates were searched on held-out images for the MLP and for "
    "IVON; in the ResNet-18 the others have ours, which need not suit them. A prediction is of "
    "1,024 images with 30 samples; times on the GPU differ by up to a factor of two between runs.",
    (libraries("mlp", "mnist", 20), libraries("resnet18", "cifar10", 15)),
)


# Sparse subspaces.

FIGURES = (
    *SCORES,
    Column("marginal CE", "marginal_ce", number(4)),
    Column("SVHN AUROC", "auroc_entropy", number(3)),
    BYTES,
)
CHOICES = {
    "criterion": "snr_magnitude", "growth": "one_step", "new_std": "mean", "std_init": 0.001,
}  # fmt: skip


def changed(row: Row) -> str:
    """The choices of a sparse training that are not the defaults."""
    known = row["settings"]
    found = [f"{k}={known[k]}" for k, v in CHOICES.items() if known.get(k, v) != v]
    return " ".join(found) or "defaults"


def sparse(name: str) -> tuple[Column, ...]:
    """Accuracy and NLL of one of two methods."""
    return (
        Column(f"{name}, accuracy", "accuracy", percent, {"method": name}),
        Column(f"{name}, NLL", "nll", number(3), {"method": name}),
    )


SUBSPACE = Page(
    "subspace",
    "Sparse subspaces",
    "the paper's settings, accuracy against density, what each choice is worth",
    "The long runs have three seeds and 200 epochs. All other tables have one seed and 20 epochs: "
    "they compare, and say nothing of what long training reaches. `snr` ranks weights as "
    "`snr_magnitude` does, so that the distance of their rows is chance.",
    (
        Table(
            "ResNet-18 on CIFAR-10, 200 epochs",
            FIGURES,
            lines=tuple(line for line in RESNET_18 if line.words[0].startswith("Subspace")),
            heads=HEADS,
        ),
        Table(
            "Accuracy against density, beside RigL",
            (named("density"), *sparse("Subspace"), *sparse("RigL")),
            source=("subspace_sweep", "subspace_robustness"),
            where=lambda row: row["density"] < 1 and changed(row) == "defaults",
            by=("density",),
            order=lambda row: -row["density"],
        ),
        Table(
            "Choices of the method, at density 0.05",
            (Column("changed", changed, text), *SCORES),
            source=("subspace_sweep", "subspace_ablation"),
            where={"method": "Subspace", "density": 0.05},
            by=(changed,),
        ),
        Table(
            "Initial standard deviation",
            (named("density"), Column("changed", changed, text), *SCORES),
            source=("subspace_robustness",),
            by=("density", changed),
        ),
    ),
)


# Weight sharing.

# The paper's accuracy / NLL / ECE, by what was changed.
ABLATION = {
    "defaults": "90.92 / .265 / .040",
    "blend_beyond=none": "90.43 / .304 / .043",
    "outlier_mean=none outlier_gradient=0": "90.18 / .308 / .026",
    "blend_beyond=none outlier_mean=none outlier_gradient=0": "90.01 / .318 / .029",
    "outlier_mean=0.1": "91.14 / .376 / .020",
    "outlier_mean=0.4": "90.53 / .396 / .028",
    "outlier_mean=0.6": "89.78 / .322 / .038",
    "merge=none": "88.77 / .379 / .050",
    "int8, 4 bits": "90.92 / .266 / .018",
    "int8, 2 bits": "90.85 / .273 / .026",
    "int8, 1 bits": "90.96 / .266 / .007",
}


def variant(row: Row) -> str:
    """What was changed in sharing, or what else a row is."""
    return str(row.get("change", row["row"])).replace(
        "none", "defaults", row.get("change") == "none"
    )


def coded(row: Row) -> int | None:
    """Bytes of an ideal code or, of int8, of packed numbers."""
    return row["packed"]["packed_bytes"] if "packed" in row else row.get("coded_bytes")


COUNTS = (
    Column("outliers", "outliers", whole),
    Column("Gaussians", "components", whole),
)
SHARING = Page(
    "sharing",
    "Weight sharing",
    "the paper's mixture before and after fine-tuning, what each step is worth",
    "The second table has one seed and one parent, is measured before fine-tuning, and gives the "
    "bytes of an ideal code (of int8, of packed numbers). The standard error of an accuracy there "
    "is 0.27, so that outliers, blends and merging cannot be told apart, where the paper finds "
    "0.5 to 2.3 points. The paper's parameters are outliers + blends + 2 Gaussians, without "
    "assignments.",
    (
        Table(
            "Mean-field VI and the mixture made of it",
            (
                NETWORK, named("data"), METHOD,
                Column("stage", lambda row: STAGES.get(row.get("stage"), ""), text), *SCORES,
                Column("the paper's parameters", "parameters", whole), BYTES,
            ),
            source=("sharing",),
            by=("model", "data", "row", "stage"),
        ),
        Table(
            "What each step is worth: ResNet-20 on CIFAR-10",
            (
                Column("changed", variant, text), *SCORES, *COUNTS,
                Column("bytes", coded, whole),
                Column("the paper's", lambda row: ABLATION.get(variant(row), ""), text),
            ),
            source=("sharing_ablation",),
            where={"row": lambda name: name != "mean-field"},
            by=(variant,),
        ),
        Table(
            "Our order and the paper's: LeNet-5 on 20,000 images of Fashion-MNIST, not fine-tuned",
            (
                Column("changed", variant, text), Column("seeds", "seed", count), *SCORES,
                *COUNTS, Column("blends", "blends", whole), Column("bytes", coded, whole),
            ),
            source=("sharing_orders",),
            by=(variant,),
        ),
    ),
)  # fmt: skip


# Spike-and-slab.


def settings_of(row: Row) -> str:
    """Prior inclusion and betas of a pruned network."""
    known = row["settings"]
    beta = known["dropout_beta"] if row["row"] == "variational-dropout" else known["beta"]
    inclusion = f", inclusion {known['inclusion']:g}" if row["row"] == "spike-slab" else ""
    return "" if row["row"] == "magnitude" else f"beta {beta:g}{inclusion}"


def ratio(row: Row) -> float:
    """Of the error to that on the true support."""
    return float(row["rmse"] / row["oracle_rmse"])


def rate(head: str, found: str, of: Callable[[Row], int]) -> Column:
    """How many features were found, of all that could be."""

    def show(group: list[Row]) -> str:
        return f"{sum(row[found] for row in group) / sum(map(of, group)):.4f}"

    return Column(head, dict, show)


def at_most(values: list[float]) -> str:
    """The largest."""
    return f"{max(values):.3f}"


def least(values: list[int]) -> str:
    """The smallest count."""
    return str(min(values))


def most(values: list[int]) -> str:
    """The largest count."""
    return str(max(values))


DENSITIES = (1.0, 0.1, 0.05, 0.02, 0.01, 0.005)
SPIKE_SLAB = Page(
    "spike-slab",
    "Spike-and-slab",
    "features found, inclusion probabilities against the truth, accuracy against density",
    "Density 1 is before pruning; every other density is pruned from that network and fine-tuned. "
    "The MLP (300 and 100 hidden units) has three seeds, all other networks one. Inclusion "
    "probabilities are compared with the exact sum over 64 models (6 inputs, 100 examples), with "
    "1,500 steps (`long`) and 400 (`short`).",
    (
        Table(
            "Features found",
            (
                named("problem"), named("features"),
                Column("seeds", "seed", count),
                rate("true-positive rate", "found", lambda row: row["relevant"]),
                rate("false-positive rate", "false", lambda row: row["features"] - row["relevant"]),
                Column("RMSE", "rmse", number(3)),
                Column("oracle's RMSE", "oracle_rmse", number(3)),
                Column("ratio", ratio, average(3)), Column("largest ratio", ratio, at_most),
            ),
            source=("selection",),
            by=("problem",),
        ),
        Table(
            "Features found with all defaults, five of fifty matter",
            (
                named("problem"), Column("seeds", "seed", count),
                Column("found", "found", average(2)), Column("least found", "found", least),
                Column("false", "false", average(2)), Column("most false", "false", most),
            ),
            source=("false_features",),
            by=("problem",),
        ),
        Table(
            "Inclusion probabilities",
            (
                named("training"),
                Column("inclusion variables of", "granularity", text),
                named("correlation"),
                Column("largest error", "largest_error", number(3)),
                Column("worst seed", "largest_error", at_most),
                Column("same median model", "same_median_model", average(0, 100, "%")),
            ),
            source=("exact_inclusion",),
            by=("training", "granularity", "correlation"),
        ),
        Table(
            "Accuracy against density",
            (
                NETWORK, named("data"), METHOD,
                Column("settings", settings_of, text),
                *(Column(f"{d:g}", "accuracy", percent, {"density": d}) for d in DENSITIES),
            ),
            source=("pruning",),
            by=("model", "data", "row", settings_of),
            order=lambda row: (row["model"] != "mlp", row["model"], row["row"]),
        ),
    ),
)  # fmt: skip


# Corrupted images.

LONGER = {
    "subspace-0.1-0.pocket": "Subspace, 90% sparse, 200 epochs",
    "subspace-0.1-0-pruned-0.06-pruned-0.035-490000-shared.pocket": "chain, smaller, 320 epochs",
}


def made_by(row: Row) -> Row:
    """What all methods on the same task know of a file."""
    return next((r for r in results("side_by_side") if r.get("file") == row["file"]), {})


def method_of(row: Row) -> str:
    """The method whose file it is."""
    return str(LONGER.get(row["file"]) or made_by(row)["row"])


def by_method(row: Row) -> tuple[int, int]:
    """In the order of all methods; longer trainings after these."""
    made = made_by(row)
    return by_family(made) if made else (len(FAMILIES), 0)


def corruption_table(model: str, epochs: int) -> Table:
    """Accuracy by severity."""
    severities = tuple(
        Column(str(n), "accuracy", average(2, 100), {"severity": n}) for n in range(6)
    )
    others = {"severity": lambda severity: severity > 0}
    return Table(
        f"{NAMES[model]} on CIFAR-10, {epochs} epochs",
        (
            Column("method", method_of, text), *severities,
            Column("1 to 5", "accuracy", average(2, 100), others),
            Column("NLL, 1 to 5", "nll", average(3), others),
            Column("ECE, 1 to 5", "ece", average(4), others),
        ),
        source=("corruptions",),
        where={"network": model},
        by=("file",),
        order=by_method,
    )  # fmt: skip


CORRUPTIONS = Page(
    "corruptions",
    "Corrupted images",
    "accuracy and calibration under fifteen corruptions at five severities",
    "Accuracy by severity (0 is the test set as it is), mean over the fifteen corruptions of "
    "CIFAR-10-C, which this library makes itself: [metrics.md](../metrics.md) says what differs "
    "from the published files. One seed and 10 samples: less than two points may be chance.",
    (corruption_table("resnet18", 60), corruption_table("resnet20", 40)),
)


# Files.

PICTURE = (
    "![Test accuracy of ResNet-18 on CIFAR-10 against the size of its file, on a logarithmic axis: "
    "files of this library, published results, and the sizes of the network and of its posterior "
    "in float32](../images/accuracy_against_bytes.svg)"
)


def kept(title: str, lines: tuple[Line, ...]) -> Table:
    """All figures of the headline rows of one network, by both estimators."""
    columns = (
        *SCORES,
        Column("SVHN AUROC", "auroc_entropy", number(3)),
        Column("marginal CE", "marginal_ce", number(4)),
        Column("bits-back limit, bytes", "bits_back_bytes", whole), BYTES,
    )  # fmt: skip
    return Table(title, columns, lines=lines, heads=HEADS)


FAULTS = {
    "kill": "kill -9", "kill two": "kill -9, two processes", "disk": "disk full",
    "clock": "jumping clocks",
}  # fmt: skip


def fault(row: Row) -> str:
    """What befell a run."""
    return FAULTS[row["fault"]]


def befalls_training(row: Row) -> bool:
    """Whether it is a fault while a network trains."""
    return row["fault"] in FAULTS


def outcomes(name: str) -> Column:
    """How many hostile files ended so."""

    def show(values: list[dict[str, int]]) -> str:
        found = sum((Counter(value) for value in values), Counter[str]())
        others = sum(found.values()) - found["refused"] - found["model"]
        return f"{others if name == 'findings' else found[name]:,}"

    return Column("loaded" if name == "model" else name, "outcomes", show)


def total(values: list[int]) -> str:
    """Of all runs."""
    return f"{sum(values):,}"


def published() -> str:
    """Where the published points of the picture come from."""
    return f"\n## Published results of ResNet-18 on CIFAR-10\n\n{published_table()}"


FILES = Page(
    "files",
    "Files",
    "all figures of the rows above and the commands behind them; the coder, fuzzing",
    "The bits-back limit is KL(posterior ‖ prior) in bytes, the least that a code which knows the "
    "prior can take, for the weights alone, without the positions of those that are kept. The "
    "chain's settings and the rates of fine-tuning were tuned with seed 0, partly on the test set; "
    "sizes of published results are derived from the counts that the papers print. The fuzzer "
    "recomputes the checksum after each change, so that a file must load as a valid model or be "
    "refused, and anything else is a finding.",
    (
        kept("ResNet-18 on CIFAR-10", RESNET_18),
        kept("ResNet-20 on CIFAR-10 and MNIST", RESNET_20),
        Table(
            "Rate-distortion codebooks: MNIST, 10,000 held-back training digits, not fine-tuned",
            (
                NETWORK, METHOD, Column("bytes asked for", "target_bytes", whole), *SCORES,
                Column("confidence", "confidence", average(1, 100)),
            ),
            source=("rate_curve",),
            by=("model", "row", "target_bytes"),
        ),
        Table(
            "The coder: a synthetic posterior of ResNet-18",
            (
                Column("stored", "row", text), Column("bytes", "bytes", whole),
                Column("over the entropy bound", "over_bound", average(2, 100, "%")),
                Column("worst section", "worst_over_bound", average(2, 100, "%")),
                Column("save", "save_seconds", average(1, unit=" s")),
                Column("load", "load_seconds", average(1, unit=" s")),
                Column("memory, save", "save_peak_ratio", average(2, unit=" x")),
                Column("memory, load", "load_peak_ratio", average(2, unit=" x")),
            ),
            source=("pocket_file",),
            by=("row",),
        ),
        Table(
            "Fuzzing",
            (
                named("engine"), Column("mutations", "mutations", total),
                outcomes("refused"), outcomes("model"), outcomes("findings"),
            ),
            source=("fuzz",),
            by=("engine",),
        ),
        Table(
            "Faults while training: killed, the disk full, clocks that jump",
            (
                Column("fault", fault, text), Column("runs", "runs", total),
                Column("faults", "faults", total), Column("resumed bit for bit", "equal", total),
                Column("different", "different", total), Column("lost", "lost", total),
                Column("hung", "hung", total),
            ),
            source=("torture",),
            where=befalls_training,
            by=("fault",),
        ),
        Table(
            "Predictions by eight threads of one process",
            (
                Column("predictions", "predictions", total), Column("wrong", "wrong", total),
                Column("growth of memory", "growth_bytes", average(2, 1e-6, " MB")),
            ),
            source=("torture",),
            where={"fault": "predictions"},
            by=("fault",),
        ),
    ),
    PICTURE,
    published,
)  # fmt: skip


# Speed.


def predicted(model: str, machine: str) -> Column:
    """Seconds of one prediction from a file of this network, on this machine."""
    where = {"model": model, "hardware": lambda name: machine in name}
    return Column(f"{model}, {machine}", "predict_seconds", average(2, unit=" s"), where)


SPEED = Page(
    "speed",
    "Speed",
    "training, prediction, sharing, data",
    "Ratios are to the deterministic network in the same run. A prediction is of 1,024 images with "
    "30 samples: a small file takes less to store, not to compute, as torch multiplies by zeros. "
    "The paper reports 5.8 times the speed for predictions with shared weights; that is not "
    "reached.",
    (
        Table(
            "Cost of a training step and of 10 samples, on a CPU",
            (
                named("task"), named("network"),
                named("estimator"),
                Column("time", "time_ratio", average(2, unit=" x")),
                Column("memory", "memory_ratio", average(2, unit=" x")),
            ),
            source=("costs",),
            by=("task", "network", "estimator"),
        ),
        Table(
            "Large networks by AdamW against torch's own loop, one example a batch, on a CPU",
            (
                NETWORK_NAME, named("setting"),
                Column("tensors", "tensor_bytes", average(2, 1e-9, " GB")),
                Column("against", "tensor_ratio", average(2, unit=" x")),
                Column("process", "resident_bytes", average(2, 1e-9, " GB")),
                Column("against", "resident_ratio", average(2, unit=" x")),
                Column("time", "seconds_ratio", average(2, unit=" x")),
            ),
            source=("memory",),
            where={"task": "training", "device": "cpu"},
            by=("network", "setting"),
        ),
        Table(
            "Large networks before training: to convert, save by default settings, and load",
            (
                NETWORK_NAME, Column("weights", "parameters", whole),
                Column("file, bytes", "bytes", whole),
                Column("convert", "convert_seconds", average(1, unit=" s")),
                Column("save", "save_seconds", average(1, unit=" s")),
                Column("load", "load_seconds", average(1, unit=" s")),
            ),
            source=("memory",),
            where={"task": "files"},
            by=("network",),
        ),
        Table(
            "ResNet-18 on CIFAR-10, 60 epochs",
            (
                METHOD, ESTIMATOR,
                Column("training", "train_seconds", average(0, unit=" s")),
                Column("a prediction", "predict_seconds", average(3, unit=" s")),
            ),
            source=("side_by_side",),
            where={"model": "resnet18", "settings.epochs": 60,
                   "predict_seconds": lambda value: value is not None},
            by=("row", "estimator"),
            order=by_family,
        ),
        Table(
            "A prediction from a file, on two CPU cores",
            (
                Column("method", method_of, text), ESTIMATOR,
                predicted("lenet5", "Neoverse-N1"), predicted("resnet20", "Neoverse-N1"),
                predicted("resnet18", "Xeon"),
            ),
            source=("prediction",),
            where=lambda row: is_own(made_by(row) | {"estimator": row["estimator"]}),
            by=(method_of,),
            order=by_method,
        ),
        Table(
            "Predictions with shared weights: ResNet-18",
            (METHOD, Column("time", "median_seconds", average(2, unit=" s"))),
            source=("inference",),
            by=("row",),
        ),
        Table(
            "Sharing the weights of a synthetic posterior: ResNet-18",
            (
                Column("objective", "row", text), Column("time", "seconds", average(1, unit=" s")),
                *COUNTS, Column("bytes of an ideal code", "coded_bytes", whole),
            ),
            source=("stage_two",),
            by=("row",),
        ),
        Table(
            "One exchange of weights of a sparse subspace",
            (
                NETWORK, named("density"),
                named("allocation"), WEIGHTS,
                Column("time", "median_ms", average(0, unit=" ms")),
                Column("memory", "held_bytes", average(1, 1e-6, " MB")),
                Column("dense VI", "dense_posterior_bytes", average(0, 1e-6, " MB")),
            ),
            source=("exchange",),
            by=("model", "density", "allocation"),
        ),
        Table(
            "Loading and augmenting CIFAR-10",
            (
                Column("where", "hardware", text),
                Column("loading", "load_seconds", average(2, unit=" s")),
                Column("images per second", "images_per_second", whole),
            ),
            source=("data_speed",),
            by=("hardware",),
        ),
    ),
)  # fmt: skip


# Making it small.


def of_network(head: str, value: Field, show: Show, tolerance: float) -> Column:
    """A figure of networks that were stored to a tolerance."""
    return Column(head, value, show, {"tolerance": tolerance})


def milli(values: list[float]) -> str:
    """The mean in thousandths, with its sign."""
    return f"{1000 * mean(values):+.1f}"


def of_at_most(row: Row) -> str:
    """The most bytes that the file of a control may have."""
    return f"{row['most_bytes']:,} bytes" if "most_bytes" in row else "as trained"


def is_of_fresh_seed(row: Row) -> bool:
    """Those of the headline; its last row has seeds of its own."""
    last = row.get("target_bytes") == 100_000
    return row["seed"] in ((100, 101, 102) if last else FRESH)


def by_size(row: Row) -> float:
    """The dense network first, and then smaller and smaller files."""
    return -row.get("target_bytes", math.inf)


def listed(values: list[int]) -> str:
    """All of them, once."""
    return ", ".join(str(value) for value in sorted(set(values)))


def of_files(values: list[list[str]]) -> str:
    """The files, by target and seed."""
    return ", ".join(values[0])


def target(row: Row) -> str:
    """The most bytes that a file of the ladder may have."""
    return f"{row['target_bytes']:,} bytes" if "target_bytes" in row else ""


SIZE = Column("file, bytes", "bytes", whole)
STORED = (0.001, 0.01, 0.1, 1.0)
SMALL = Page(
    "small",
    "Making it small",
    "accuracy against bytes and multiplications, what coarse storage costs",
    "A dense network is pruned step by step, learning from what it was, and stored as finely as "
    "fits, by a recipe set with other seeds than those of the first table, but for seed 100 of its "
    "last two rows (`recipes/resnet18-small.yaml`). "
    "For comparison, one of half the width that "
    "learns from one of full width; of its files that fit, the images held back choose (one seed), "
    "as they do between the files of a plain and of a Bayesian network, each with the library's "
    "defaults and 12 epochs. "
    "Tolerances are of networks with the library's defaults, two splits each: bytes and, behind "
    "them, the rise of the validation NLL over lossless storage, in thousandths of a nat.",
    (
        Table(
            "Files of a ResNet-18 on CIFAR-10, pruned step by step",
            (
                METHOD, ESTIMATOR, *SCORES,
                Column("AUROC", "auroc_entropy", number(3)),
                Column("NLL, corrupted", "corrupted_nll", number(3)),
                Column("multiplications", "multiplications", average(1, 1e-6, " M")), BYTES,
                Column("seeds", "seed", listed),
            ),
            source=("ladder",),
            where=is_of_fresh_seed,
            by=("row", "target_bytes", "estimator"),
            order=by_size,
        ),
        Table(
            "Three such files as one ensemble",
            (
                Column("files", "files", of_files), ESTIMATOR, *SCORES,
                Column("AUROC", "auroc_entropy", number(3)),
                Column("NLL, corrupted", "corrupted_nll", number(3)),
                Column("bytes", "file_bytes", whole),
            ),
            source=("joined",),
            by=("files", "estimator"),
        ),
        Table(
            "What making them takes, alone on a GPU: all training until then",
            (
                METHOD, Column("at most", target, text),
                Column("seconds", "train_seconds", average(0)),
            ),
            source=("ladder",),
            where={"trainings_at_once": (None, 1), "estimator": "weight"},
            by=("row", "target_bytes"),
        ),
        Table(
            "Files of a ResNet-18 of half the width on CIFAR-10",
            (
                METHOD, ESTIMATOR, *SCORES, Column("AUROC", "auroc_entropy", number(3)),
                Column("NLL, corrupted", "corrupted_nll", number(3)),
                Column("multiplications", "multiplications", average(1, 1e-6, " M")), SIZE,
                Column("all training", "train_seconds", average(0, unit=" s")),
            ),
            source=("front",),
            where={"row": ("teacher", "student", "file")},
            by=("row", "what", "estimator"),
        ),
        Table(
            "The front of one compression: 5,000 images held back",
            (
                Column("what was done", "what", text), *SCORES,
                Column("multiplications", "multiplications", average(1, 1e-6, " M")), SIZE,
            ),
            source=("front",),
            where={"row": "front"},
            by=("what",),
        ),
        Table(
            "`compress` with its defaults, for a fifth more bytes, and the best of seven settings",
            (
                NETWORK, named("data"), METHOD, *SCORES, SIZE,
                Column("what was done", "what", text), Column("dense, NLL", "dense.nll", number(3)),
            ),
            source=("compressing",),
            by=("model", "data", "row"),
        ),
        Table(
            "A plain and a Bayesian MLP on Fashion-MNIST in as many bytes: one `compress` for both",
            (
                Column("at most", of_at_most, text), Column("network", "kind", text), *SCORES,
                Column("AURC", "aurc", number(4)), OOD,
                Column("NLL, corrupted", "corrupted_nll", number(3)),
                Column("ECE, corrupted", "corrupted_ece", number(4)), SIZE,
            ),
            source=("controls",),
            where={"data": "fashion-mnist"},
            by=("most_bytes", "kind"),
            order=lambda row: (row.get("most_bytes", math.inf), row["kind"] == "Bayesian"),
        ),
        Table(
            "What storing one draw would buy: 2,000 test images, no stds, by a coder at its bound",
            (
                Column("file", "file", text), Column("weights", "row", text), *SCORES,
                Column("means and stds now, bytes", "now_bytes", whole),
                Column("a draw, bytes", "draw_bytes", whole),
                Column("whole file, bytes", "file_bytes", whole),
            ),
            source=("one_draw",),
            by=("file", "row"),
            order=lambda row: (-row["file_bytes"], row["row"] == "draw"),
        ),
        Table(
            "What rounding biases and norms costs: published networks, mean, 4,000 test images",
            (
                NETWORK, Column("tolerance", lambda row: row["tolerance"] or "none", text), *SCORES,
                Column("these numbers, bytes", "bytes", whole),
            ),
            source=("vectors",),
            by=("model", "tolerance"),
        ),
        Table(
            "What storing to a tolerance costs",
            (
                NETWORK_NAME,
                *(
                    part
                    for tolerance in STORED
                    for part in (
                        of_network(f"{tolerance:g} nats", "bytes", whole, tolerance),
                        of_network("", "rise", milli, tolerance),
                    )
                ),
            ),
            source=("tolerance",),
            by=("network",),
        ),
    ),
)  # fmt: skip

# Networks of other libraries.


def outcome(row: Row) -> str:
    """Its verdict, and whether a pattern is asked for by a warning or an error."""
    if row["verdict"] in ("right", "refused") and row.get("bayesian_by_name"):
        return VERDICTS[1]
    if row["verdict"] == "right":
        return VERDICTS[0]
    return row["verdict"] if row["verdict"] in VERDICTS else VERDICTS[-1]


def by_library(row: Row) -> str:
    """Libraries by the alphabet; networks stay as they are."""
    return str(row["library"])


def how_many(verdict: str) -> Column:
    """Networks of one verdict."""
    return Column(verdict, outcome, lambda found: str(found.count(verdict)))


def why(row: Row) -> str:
    """What was said; in brief where it needs no more than a pattern."""
    said = str(row["error"] or row.get("warned", ""))
    if outcome(row) in VERDICTS[:2]:
        said = ": ".join(re.split(r"[:;] |\. |, (?=into|and becomes)", said)[:2])
    return said.replace("|", "/").replace("*", "\\*")


VERDICTS = ("right as is", "right with `include`", "refused", "wrong", "not judged")
SHARE = average(1, 100, "%")
ZOO = Page(
    "zoo",
    "Networks of other libraries",
    "what `bayesianize_` makes of small networks of timm, transformers, peft and others",
    "Weights are random, and what counts as right is told in `benchmarks/zoo.py`: outputs without "
    "noise, draws, gradients, files, predictions and a step of training. Where the library says "
    "that parameters stay deterministic unless `include` names them, the same is asked with all of "
    "them named, and the second share is that one. What cannot be built is not judged.",
    (
        Table(
            "Libraries",
            (
                named("library"),
                Column("version", "version", text),
                Column("networks", "network", count),
                *map(how_many, VERDICTS),
            ),
            source=("zoo",),
            by=("library",),
            order=by_library,
        ),
        Table(
            "Networks",
            (
                named("library"),
                NETWORK_NAME,
                Column("class", "class", text),
                Column("weights", "weights", whole),
                Column("Bayesian", "bayesian", SHARE),
                Column("with `include`", "bayesian_by_name", SHARE),
                Column("verdict", outcome, text),
                Column("why", why, text),
            ),
            source=("zoo",),
            by=("library", "network"),
            order=by_library,
            has_commands=False,
        ),
    ),
)


PAGES = (
    METHODS, TRAINED, REGRESSION, INTERVALS, ONE_PASS, RUNTIMES, LIBRARIES, ZOO, SMALL, SUBSPACE,
    SHARING, SPIKE_SLAB, CORRUPTIONS, FILES, SPEED,
)  # fmt: skip
