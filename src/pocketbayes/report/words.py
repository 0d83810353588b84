"""Sentences about a model: how big, how accurate, how sure."""

import math
from collections.abc import Sequence

from pocketbayes.report.findings import ClassAnswers, Findings

_TOO_WIDE = 0.1  # of two standard errors of an accuracy


def bytes_in_words(size: float) -> str:
    """Bytes as people write them: three digits, kB of 1000 bytes."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= 0.9995 * unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def verdict(found: Findings) -> list[str]:
    """How big, how accurate, how sure: one sentence each."""
    sentences = [_how_big(found)]
    if isinstance(found.answers, ClassAnswers):
        sentences += [_how_accurate(found), _how_sure(found)]
        if found.outside is not None:
            sentences.append(_how_alert(found))
    else:
        sentences += _of_values(found)
    return sentences


def _how_big(found: Findings) -> str:
    file = found.file
    smaller = f"{file.ratio_to_fp32:.3g} times smaller than its weights as 32-bit numbers"
    if file.ratio_to_fp32 < 1:
        smaller = f"{1 / file.ratio_to_fp32:.3g} times the size of its weights as 32-bit numbers"
    kept = ""
    if file.active_weights < file.weights:
        kept = f"; {file.active_weights / file.weights:.1%} of the weights are left"
    return f"{bytes_in_words(file.bytes)} on disk, {smaller}{kept}."


def _how_accurate(found: Findings) -> str:
    right, count = found.numbers["accuracy"], found.numbers["num_examples"]
    return f"{100 * right:.2f}% of {count:,} right (± {100 * chance(right, count):.2f} by chance)."


def chance(share: float, count: int) -> float:
    """Half the width of Wilson's interval of one standard error, which is never 0."""
    return math.sqrt(share * (1 - share) / count + 1 / (4 * count**2)) / (1 + 1 / count)


def _how_sure(found: Findings) -> str:
    """Confidence against accuracy; a gap within two standard errors is chance."""
    right, count = found.numbers["accuracy"], found.numbers["num_examples"]
    gap, allowed = found.numbers["confidence"] - right, 2 * chance(right, count)
    if abs(gap) > allowed:
        judgement = f"it is too {'sure of itself' if gap > 0 else 'modest'}"
    elif allowed > _TOO_WIDE:
        judgement = "too few examples to say whether that is right"
    else:
        judgement = "no more and no less than it is right, within chance"
    return (
        f"It says {100 * found.numbers['confidence']:.2f}% on average: {judgement} "
        f"(expected calibration error {found.numbers['ece']:.4f})."
    )


def _how_alert(found: Findings) -> str:
    area = found.numbers["auroc_entropy"]
    return (
        f"An input of {found.ood}, which it has never seen, makes it less sure than one of "
        f"{found.data} {100 * area:.1f}% of the time (AUROC)."
    )


def _of_values(found: Findings) -> list[str]:
    numbers = found.numbers
    inside, count = numbers["coverage_90"], numbers["num_examples"]
    judgement = "as they should, within chance"
    if abs(inside - 0.9) > 2 * chance(0.9, count):
        judgement = "too few" if inside < 0.9 else "too many"
    return [
        f"Off by {numbers['rmse']:.4g} (RMSE) on {count:,} examples.",
        f"Its 90% intervals hold {100 * inside:.1f}% of the targets: {judgement}.",
    ]


def comparison(found: Sequence[Findings]) -> str | None:
    """Who is smallest and who is best, if there are several."""
    if len(found) < 2:
        return None
    smallest = min(found, key=lambda one: one.file.bytes)
    likeliest = min(found, key=lambda one: one.numbers["nll"])
    if smallest is likeliest:
        return f"{smallest.name} is the smallest and has the best likelihood."
    times = likeliest.file.bytes / smallest.file.bytes
    if _is_chance(smallest, likeliest):
        return (
            f"{smallest.name} is the smallest; no other has a better likelihood beyond chance "
            "(two standard errors)."
        )
    return (
        f"{smallest.name} is the smallest; {likeliest.name} has the best likelihood and "
        f"{times:.3g} times its size."
    )


def _is_chance(one: Findings, other: Findings) -> bool:
    """Whether their likelihoods differ by at most two standard errors, example by example."""
    first, second = one.answers, other.answers
    if not (isinstance(first, ClassAnswers) and isinstance(second, ClassAnswers)):
        return False
    gap = first.surprise - second.surprise
    return bool(gap.mean() <= 2 * gap.std() / math.sqrt(len(gap)))
