"""Paired differences: what is stored of test images, and intervals of what it says."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import paired  # noqa: E402
from pages import differences as pages  # noqa: E402
from pages import render  # noqa: E402


def blocks_of(right, nll):
    """Of scores by example: two classes, the first of which is true."""
    chosen = torch.as_tensor(np.exp(-np.asarray(nll)))
    wrong = torch.where(torch.as_tensor(right), chosen / 2, 1 - chosen / 2)  # above it, or below
    probs = torch.stack([chosen, wrong], 1).split(7)
    answers = SimpleNamespace(
        predictions=[SimpleNamespace(probs=p) for p in probs],
        targets=[torch.zeros(len(p)).long() for p in probs],
    )
    return paired.sums_by_block(answers)


def test_blocks_hold_every_hundredth_example():
    right, nll = np.arange(250) % 3 > 0, np.linspace(0.5, 2, 250)
    found = blocks_of(right, nll)
    assert found["examples"] == [3.0] * 50 + [2.0] * 50
    assert found["accuracy"] == [float(right[i::100].sum()) for i in range(100)]
    assert found["nll"] == pytest.approx([nll[i::100].sum() for i in range(100)], rel=1e-5)
    few = blocks_of(right[:30], nll[:30])
    assert (len(few["nll"]), few["examples"]) == (30, [1.0] * 30)


def test_a_certain_mistake_counts_as_in_the_nll_of_records():
    answers = SimpleNamespace(
        predictions=[SimpleNamespace(probs=torch.tensor([[0.0, 1.0]]))],
        targets=[torch.tensor([0])],
    )
    assert paired.sums_by_block(answers)["nll"] == pytest.approx([87.3365], abs=1e-3)


def both(rng, gain=0.0, examples=2000):
    """Two networks whose NLLs share what images are hard: it is 1, their own part 0.1."""
    hard = 2 + rng.standard_normal(examples)
    sides = [hard + 0.1 * rng.standard_normal(examples) - shift for shift in (gain, 0)]
    return [blocks_of(np.ones(examples, bool), np.abs(side)) for side in sides]


def test_the_interval_covers_no_difference_as_often_as_it_says():
    """300 pairs without one: coverage 95% within 5 standard errors, false alarm 6e-7.

    By blocks of a hundred the interval of the mean is 1.5% short, which counts for 0.6%.
    """
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(300):
        ours, others = both(rng)
        found = paired.difference([ours], [others], "nll")
        held += found.low <= 0 <= found.high
    assert abs(held / 300 - 0.944) < 5 * (0.05 * 0.95 / 300) ** 0.5


def test_pairs_see_what_separate_intervals_would_not():
    """A gain of 0.02 is eight times the error of the difference, and less than that of a mean."""
    ours, others = both(np.random.default_rng(1), gain=0.02)
    found = paired.difference([ours], [others], "nll")
    assert -0.03 < found.low < found.mean < found.high < -0.01
    shuffled = dict(others, nll=list(np.random.default_rng(2).permutation(others["nll"])))
    apart = paired.difference([ours], [shuffled], "nll")
    assert apart.high - apart.low > 5 * (found.high - found.low)


def test_networks_of_several_seeds_are_averaged_and_sets_must_agree():
    rng = np.random.default_rng(3)
    (one, plain), (two, _) = both(rng), both(rng)
    together = paired.difference([one, two], [plain], "nll")
    alone = [paired.difference([row], [plain], "nll").mean for row in (one, two)]
    assert together.mean == pytest.approx(np.mean(alone))
    with pytest.raises(ValueError, match="different examples"):
        paired.difference([one], [both(rng, examples=1999)[0]], "nll")


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    """A results file of one's own, if there are rows."""

    def write(rows):
        monkeypatch.setattr(pages, "RESULTS", tmp_path)
        monkeypatch.setattr(render, "RESULTS", tmp_path)
        if rows:
            (tmp_path / "recipes.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        render._read.cache_clear()
        return pages.by_recipe()

    yield write
    render._read.cache_clear()


def test_a_page_shows_differences_from_the_plain_network_alone(recipes):
    assert recipes([]) == ()
    ours, plain = both(np.random.default_rng(1), gain=0.02)
    like = {"model": "m", "data": "d", "measured_on": "test", "settings": {"cutout": True}}
    known = {"seed": 100, "estimator": "weight", "command": "python x.py", **like}
    rows = [
        known | {"row": "deterministic", "blocks": plain},
        known | {"row": "deterministic", "blocks": ours, "settings": {"cutout": False}},
        known | {"row": "swag", "blocks": ours},
    ]
    _, table = recipes(rows)
    (line,) = render.cells(table)
    found = paired.difference([ours], [plain], "nll")
    assert line[:5] == ["m", "d", "True", "swag", "weight"]
    assert line[5] == "+0.00 [+0.00, +0.00]"
    assert line[6] == f"{found.mean:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
