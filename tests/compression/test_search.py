"""Sizes, recipes, the search for a size and the choice among candidates, without any model."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pocketbayes as pb
from pocketbayes.commands.sizes import parsed_size
from pocketbayes.compression.search import (
    Recipe,
    Score,
    Sized,
    Traits,
    best_fitting,
    ranked_scores,
    recipes_for,
    searched,
)

BAYESIAN = Traits(
    is_random=True,
    is_ensemble=False,
    keeps_dropout=False,
    has_inclusion_variables=False,
    density=1.0,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500000", 500_000),
        ("500_000", 500_000),
        ("500kB", 500_000),
        ("500 KB", 500_000),
        ("0.5MB", 500_000),
        ("0.3MB", 300_000),
        ("1MiB", 2**20),
        ("1.5kib", 1536),
        ("2k", 2000),
        ("1GB", 10**9),
        (" 7b ", 7),
        ("1.9", 1),
    ],
)
def test_sizes(text, size):
    assert parsed_size(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kB",
        "500 apples",
        "-5kB",
        "0",
        "0.4",
        "1e6",
        "nan",
        "inf",
        "5kB5",
        "1,5MB",
        "٣",
        "9" * 40,
    ],
)
def test_what_is_no_size(text):
    with pytest.raises(pb.PocketBayesError, match=r"not a size.*(500kB|one byte)"):
        parsed_size(text)


def search(measure, target, first=1.0, slope=1000.0, bounds=(0.0, 100.0)):
    asked = []

    def spy(value):
        asked.append(value)
        return measure(value)

    tried = searched(spy, target, first, slope, bounds)
    assert [t.value for t in tried] == asked
    assert len(set(asked)) == len(asked) <= 6
    assert all(bounds[0] <= value <= bounds[1] for value in asked)
    return tried


def test_a_line_is_met_at_once():
    tried = search(lambda v: 500 + round(1000 * v), 20_000)
    best = best_fitting(tried, 20_000)
    assert 0.98 * 20_000 <= best.size <= 20_000
    assert len(tried) == 2


@given(
    slope=st.floats(10, 1e5),
    power=st.floats(0.3, 3),
    floor=st.integers(0, 5000),
    target=st.integers(10, 10**6),
    guess=st.floats(10, 1e5),
)
def test_what_is_found_fits_whenever_anything_does(slope, power, floor, target, guess):
    def measure(value):
        return floor + round(slope * value**power)

    tried = search(measure, target, slope=guess)
    best = best_fitting(tried, target)
    assert (best is not None) == (floor <= target)
    if best is None:
        assert min(t.size for t in tried) == floor
    else:
        assert best.size == measure(best.value) <= target


@given(target=st.integers(2000, 90_000))
def test_a_curve_is_met_within_a_few_percent(target):
    tried = search(lambda v: 1000 + round(900 * v**1.3), target)
    assert best_fitting(tried, target).size >= 0.9 * min(target, 1000 + 900 * 100**1.3)


def test_a_cliff_is_never_overstepped():
    """As sharing has: many entries, or one."""
    tried = search(lambda v: 9000 if v > 3.3 else 2000, 5000)
    assert best_fitting(tried, 5000).size == 2000


def test_a_cliff_does_not_hold_the_search_below_it():
    """As sharing has at a rate of 1: a small file, and then suddenly far larger ones."""
    tried = search(lambda v: 9400 if v == 0 else 14_000 + round(3500 * v), 15_000, 0.0, 3000.0)
    assert best_fitting(tried, 15_000).size > 14_000


def test_it_stops_where_nothing_changes_any_more():
    tried = search(lambda v: 700, 10**6)
    assert len(tried) == 2
    assert best_fitting(tried, 10**6) == Sized(1.0, 700)
    tried = search(lambda v: 700, 100)
    assert best_fitting(tried, 100) is None
    assert tried[-1].value == 0.0


def test_the_knob_goes_from_high_rates_to_low_ones():
    recipe = Recipe(entries=256, knob="fineness")
    found = [recipe.turned(f) for f in (-8, 0, math.log(2), 11)]
    assert [r.rate for r in found] == pytest.approx([math.exp(8), 1, 0.5, math.exp(-11)])
    assert Recipe(density=0.5, knob="density").turned(0.25).density == 0.25


def test_recipes_suit_the_model():
    bayesian = recipes_for(BAYESIAN, 256)
    assert bayesian[0] == Recipe()
    assert [r.tolerance for r in bayesian if r.is_untouched] == [None, 3e-2, 1e-1, 3e-1]
    assert [r.density for r in bayesian if r.entries] == [None, 0.5, 0.25, 0.1]
    sparse = recipes_for(replace(BAYESIAN, density=0.2), 256)
    assert [r.density for r in sparse if r.entries] == pytest.approx([None, 0.1, 0.05, 0.02])
    points = recipes_for(replace(BAYESIAN, is_random=False), 256)
    assert [r.words() for r in points] == ["as it is", "shared", "pruned to 50%"]
    for trait in ("is_ensemble", "keeps_dropout"):
        assert not any(r.entries for r in recipes_for(replace(BAYESIAN, **{trait: True}), 256))
    assert all(not r.knob or r.setting == getattr(r, r.knob) for r in bayesian)


def test_what_was_done_is_said():
    recipe = Recipe(0.01, density=0.125, entries=16, fineness=math.log(4))
    assert recipe.words() == "pruned to 12.5%, shared, stored to 0.01 nats"
    assert recipe.to_dict() == {
        "what": recipe.words(), "tolerance": 0.01, "density": 0.125, "rate": 0.25,
        "components": 16,
    }  # fmt: skip
    assert Recipe().to_dict() == {"what": "as it is"}


def test_the_least_nll_that_fits_is_best():
    scores = [
        Score(90, 0.3, 0.9),
        Score(101, 0.1, 1.0),  # too large
        Score(100, 0.2, 0.8),
        Score(80, 0.2, 0.9),
        Score(70, 0.2, 0.9),
        Score(10, math.nan, 1.0),
    ]
    assert ranked_scores(scores, 100) == [4, 3, 2, 0]
    assert ranked_scores(scores, 5) == []
