"""Sizes, the search for one, densities on the way and the choice, without any model."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pocketbayes as pb
from pocketbayes.commands.sizes import parsed_size
from pocketbayes.compression.choosing import (
    DEFAULT_DROP,
    Limits,
    Quality,
    Sized,
    best_fitting,
    best_of,
    path_between,
    searched,
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


BEFORE = Quality(1000, 500, 0.2, 0.9, False)
FRONT = [
    Quality(90, 50, 0.3, 0.9, False),
    Quality(101, 40, 0.1, 0.95, False),
    Quality(100, 60, 0.2, 0.8, False),
    Quality(80, 70, 0.2, 0.896, False),
    Quality(70, 80, 0.2, 0.896, False),
    Quality(10, 10, math.nan, 1.0, False),
]


@pytest.mark.parametrize(
    ("limits", "best"),
    [
        (Limits(bytes=100), 4),  # least NLL, then accuracy, then bytes
        (Limits(bytes=1000), 1),
        (Limits(bytes=75), 4),
        (Limits(bytes=69), None),
        (Limits(multiplications=60), 1),
        (Limits(bytes=100, multiplications=60), 2),
        (Limits(bytes=100, multiplications=60, drop=0.05), 0),
        (Limits(drop=0.005), 4),  # the smallest
        (Limits(drop=0.0), 1),  # the accuracy of 0 is kept, its NLL is not
        (Limits(bytes=100, drop=0.001), None),
        (Limits(bytes=95, drop=0.025), 4),
        (Limits(bytes=60, drop=0.025), None),
    ],
)
def test_the_best_that_keeps_to_the_limits(limits, best):
    assert best_of(FRONT, BEFORE, limits) == best


def test_two_percent_of_bytes_give_way_to_a_better_file():
    front = [Quality(100, 1, 0.2, 0.9, False), Quality(102, 1, 0.1, 0.9, False),
             Quality(103, 1, 0.05, 0.9, False)]  # fmt: skip
    assert best_of(front, BEFORE, Limits(drop=0.01)) == 1


def test_of_values_the_rmse_may_rise_by_a_share():
    before = Quality(1000, None, 1.0, -2.0, True)
    front = [Quality(50, None, 1.0, -2.1, True), Quality(60, None, 1.0, -2.02, True)]
    assert best_of(front, before, Limits(drop=0.02)) == 1
    assert best_of(front, before, Limits(drop=0.051)) == 0
    assert best_of(front, before, Limits(drop=0.005)) is None


def test_without_a_limit_half_a_point_may_be_lost():
    assert Limits.checked(None, None, None) == Limits(drop=DEFAULT_DROP)
    assert Limits.checked(5, None, None) == Limits(bytes=5)
    for wrong in ((0, None, None), (None, -1, None), (None, None, -0.1), ("5kB", None, None)):
        with pytest.raises(pb.PocketBayesError):
            Limits.checked(*wrong)


@given(begin=st.floats(1e-3, 1), share=st.floats(1e-4, 0.999))
def test_the_way_down_keeps_a_third_at_least_and_ends_where_it_should(begin, share):
    path = path_between(begin, begin * share)
    ratios = [b / a for a, b in zip([begin, *path], path, strict=False)]
    assert path[-1] == pytest.approx(begin * share)
    assert all(1 / 3 - 1e-9 <= ratio < 1 for ratio in ratios)
    assert len(path) == max(1, math.ceil(-math.log(share, 3) - 1e-9))
