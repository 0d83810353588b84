"""The page's pictures: each a figure of its own, so that a narrow screen can stack them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pocketbayes.methods import Sharing
from pocketbayes.prediction import risk_coverage as risk_by_coverage
from pocketbayes.report.canvas import Chart, drawn, label_bytes
from pocketbayes.report.findings import ClassAnswers, Findings, ValueAnswers
from pocketbayes.report.fronts import front_chart
from pocketbayes.report.planes import draw_confidences
from pocketbayes.report.plots import COLOURS, Numbers, as_label, draw_reliability
from pocketbayes.report.words import bytes_in_words

_REFERENCES = {"float32 network": 4, "float32 posterior": 8}  # bytes per weight


def charts_of(found: Sequence[Findings]) -> list[Chart]:
    """All pictures that these models and their data allow."""
    charts = [_sizes(found)]
    answers = {f.name: f.answers for f in found}
    classes = {n: a for n, a in answers.items() if isinstance(a, ClassAnswers)}
    values = {n: a for n, a in answers.items() if isinstance(a, ValueAnswers)}
    if classes:
        charts += [_reliability(classes), _risk_coverage(classes)]
        charts += [_entropies(f) for f in found if isinstance(f.answers, ClassAnswers)]
    if values:
        charts += [_coverage(values), *(_values(n, a) for n, a in values.items())]
    for one in found:
        charts += _of_one(one)
    return charts


def _of_one(found: Findings) -> list[Chart]:
    """Pictures of one model's file and weights, and of its classes."""
    charts = [front_chart(found.name, found.tried)] if found.tried else []
    charts.append(_bytes(found))
    if isinstance(found.answers, ClassAnswers) and 1 < len(found.classes) <= 20:
        charts.append(_classes(found))
    if found.weights.posteriors:
        charts += [_plane(found), _layers(found)]
    return charts


def _sizes(found: Sequence[Findings]) -> Chart:
    score, name = ("accuracy", "accuracy (%)") if _is_class(found[0]) else ("rmse", "RMSE")
    scale = 100 if score == "accuracy" else 1
    weights = found[0].file.weights
    is_one_size = all(one.file.weights == weights for one in found)
    about = "Bytes of the whole file on a logarithmic axis."
    if is_one_size:
        about += (
            " Dashed: the weights as plain 32-bit numbers, and with a standard deviation for each."
        )

    def draw(axes: Any) -> None:
        for one, colour in zip(found, _colours(len(found)), strict=True):
            place = (one.file.bytes, scale * one.numbers[score])
            axes.plot(*place, "o", color=colour)
            axes.annotate(
                as_label(one.name), place, xytext=(0, 7), textcoords="offset points",
                fontsize=8, ha="center", annotation_clip=False,
            )  # fmt: skip
        axes.set(xscale="log", xlabel="file on disk", ylabel=name)
        axes.margins(x=0.15, y=0.3)
        if score == "accuracy":
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, 0), min(high, 101))
        if is_one_size:
            _draw_references(axes, weights)
        label_bytes(axes)

    points = [f"{one.name} {bytes_in_words(one.file.bytes)}" for one in found]
    return drawn(
        draw,
        "How big, how good?",
        f"{name} against the bytes of the file: {'; '.join(points)}",
        about,
    )


def _draw_references(axes: Any, weights: int) -> None:
    """What the weights take as they are."""
    for label, each in _REFERENCES.items():
        axes.axvline(each * weights, color="0.6", linestyle="--", linewidth=1)
        axes.annotate(
            label, (each * weights, 0.02), xycoords=axes.get_xaxis_transform(),
            xytext=(-2, 0), textcoords="offset points", rotation=90, fontsize=7, color="0.4",
            ha="right", va="bottom",
        )  # fmt: skip


def _reliability(answers: Mapping[str, ClassAnswers]) -> Chart:
    pairs = {name: (a.confidence, a.right) for name, a in answers.items()}
    return drawn(
        lambda axes: draw_reliability(axes, pairs),
        "Is it right as often as it says?",
        "Accuracy against confidence in ten bins, one line per model",
        "Predictions by how sure they were, in ten bins (those of fewer than ten are left out). "
        "Below the diagonal it is too sure of itself, above it too modest.",
    )


def risk_coverage(answers: ClassAnswers) -> tuple[Numbers, Numbers]:
    """Share of examples answered, most confident first, and the share of errors among them."""
    wrong = torch.from_numpy(1 - answers.right)
    risk = risk_by_coverage(torch.from_numpy(answers.confidence), wrong).numpy()
    return np.arange(1, len(risk) + 1) / len(risk), risk


def _risk_coverage(answers: Mapping[str, ClassAnswers]) -> Chart:
    def draw(axes: Any) -> None:
        for (name, one), colour in zip(answers.items(), _colours(len(answers)), strict=True):
            coverage, risk = risk_coverage(one)
            shown = np.unique(np.linspace(0, len(risk) - 1, 400).astype(int))
            axes.plot(100 * coverage[shown], 100 * risk[shown], color=colour, label=as_label(name))
        axes.set(xlabel="answered, the surest first (%)", ylabel="wrong among them (%)")
        axes.set(xlim=(0, 100))
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)

    return drawn(
        draw,
        "What if it may decline?",
        "Error rate among the most confident predictions, against how many are answered",
        "If only the surest predictions are used and the others are left to someone else, this is "
        "how many of the used ones are wrong.",
    )


def _entropies(found: Findings) -> Chart:
    known = found.answers
    assert isinstance(known, ClassAnswers)

    def draw(axes: Any) -> None:
        most = max(np.log(known.probs.shape[1]), 1e-9)
        edges = np.linspace(0, most, 31)
        rows = [(known.entropy, COLOURS[0], found.data)]
        if found.outside is not None:
            rows.append((found.outside.entropy, COLOURS[1], str(found.ood)))
        for values, colour, label in rows:
            count, _ = np.histogram(values.clip(0, most), edges)
            share = 100 * count / max(1, len(values))
            axes.stairs(share, edges, color=colour, fill=True, alpha=0.35)
            axes.stairs(share, edges, color=colour, label=as_label(label))
        axes.set(xlabel="predictive entropy (nats)", ylabel="inputs (%)", yscale="symlog")
        axes.set(xlim=(0, most))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(frameon=False, fontsize=8)

    beside = "" if found.outside is None else f" and on {found.ood}, which it has never seen"
    return drawn(
        draw,
        f"{found.name}: how unsure is it?",
        f"Histogram of the predictive entropy on {found.data}{beside}",
        f"Entropy of each prediction on {found.data}{beside}: 0 is certain, the right end knows "
        "nothing. The scale of the upright axis is logarithmic above 1%.",
    )


def _coverage(answers: Mapping[str, ValueAnswers]) -> Chart:
    levels = np.linspace(0, 1, 41)

    def draw(axes: Any) -> None:
        axes.plot([0, 100], [0, 100], color="0.6", linewidth=1, linestyle="--")
        for (name, one), colour in zip(answers.items(), _colours(len(answers)), strict=True):
            distance = 2 * np.abs(one.rank - 0.5)
            inside = [100 * np.mean(distance <= level) for level in levels]
            axes.plot(100 * levels, inside, color=colour, label=as_label(name))
        axes.set(xlabel="central interval of this probability (%)", ylabel="targets inside (%)")
        axes.legend(frameon=False, fontsize=8)

    return drawn(
        draw,
        "Do the intervals hold what they promise?",
        "Share of targets inside the central interval, against the interval's probability",
        "Below the diagonal intervals are too narrow, above it too wide.",
    )


def _values(name: str, answers: ValueAnswers) -> Chart:
    def draw(axes: Any) -> None:
        shown = np.random.default_rng(0).permutation(len(answers.truth))[:1500]
        ends = np.array([answers.truth.min(), answers.truth.max()])
        axes.plot(ends, ends, color="0.6", linewidth=1, linestyle="--")
        middle = answers.mean[shown]
        reach = [middle - answers.low[shown], answers.high[shown] - middle]
        axes.errorbar(
            answers.truth[shown], middle, np.maximum(reach, 0), fmt=".", color=COLOURS[0],
            markersize=3, elinewidth=0.5, alpha=0.5, rasterized=True,
        )  # fmt: skip
        axes.set(xlabel="true value", ylabel="predicted, with its 90% interval")

    return drawn(
        draw,
        f"{name}: predicted and true",
        "Predicted against true values with 90% intervals",
        "Up to 1,500 examples, drawn at random.",
    )


def byte_shares(found: Findings, most: int = 8) -> list[tuple[str, int]]:
    """Bytes of the largest sections, all others together, and what is no section."""
    sections = Counter({s.name: s.bytes for s in found.file.sections})
    largest = sections.most_common(most)
    rest = sections.total() - sum(size for _, size in largest)
    ends = [("other sections", rest), ("description", found.file.bytes - sections.total())]
    return largest + [(name, size) for name, size in ends if size > 0]


def _bytes(found: Findings) -> Chart:
    shares = byte_shares(found)

    def draw(axes: Any) -> None:
        names, sizes = zip(*reversed(shares), strict=True)
        bars = axes.barh([as_label(name) for name in names], sizes, color=COLOURS[0])
        axes.bar_label(bars, [bytes_in_words(size) for size in sizes], fontsize=8, padding=2)
        axes.tick_params(axis="y", labelsize=8)
        axes.margins(x=0.25)
        axes.set(xlabel="bytes")

    return drawn(
        draw,
        f"{found.name}: where do the bytes go?",
        "; ".join(f"{name}: {bytes_in_words(size)}" for name, size in shares),
        f"Of {found.file.bytes:,} bytes, {found.file.bits_per_weight:.2f} bits per weight"
        + (
            f"; the bits-back limit KL / ln 2 is {bytes_in_words(found.file.bits_back_bytes)}."
            if found.file.kl > 0
            else "."
        ),
    )


def _classes(found: Findings) -> Chart:
    answers = found.answers
    assert isinstance(answers, ClassAnswers)
    assert answers.truth is not None
    truth = answers.truth
    return drawn(
        lambda axes: draw_confidences(axes, answers.confidence, truth, found.classes),
        f"{found.name}: how sure is it, class by class?",
        "Box plot of the confidence of predictions by true class",
        "Confidence by true class: quartiles, and the mean above.",
    )


def _plane(found: Findings) -> Chart:
    return drawn(
        lambda axes: found.weights.draw_plane(axes, Sharing(components=50)),
        f"{found.name}: how well does it know its weights?",
        "Mean and standard deviation of every weight",
        "A point is a weight. Those that share a codebook lie on its entries; of a model that does "
        "not, the picture shows what sharing with at most 50 components would make of it.",
    )


def _layers(found: Findings) -> Chart:
    return drawn(
        found.weights.draw_layers,
        f"{found.name}: how do its layers differ?",
        "How the means of the weights are spread, layer by layer",
        "Some layers from the first to the last.",
    )


def _is_class(found: Findings) -> bool:
    return isinstance(found.answers, ClassAnswers)


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]
