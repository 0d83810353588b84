"""The picture of mean ranks."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import rank_figure
from rank_figure import Ranking, alike, critical_difference, ranking


@pytest.mark.parametrize(
    ("methods", "sets", "expected"),
    [(4, 14, 1.25), (2, 10, 1.960 / 10**0.5), (10, 30, 3.164 * (110 / 180) ** 0.5)],
)
def test_the_critical_difference_is_that_of_the_tables(methods, sets, expected):
    assert critical_difference(methods, sets) == pytest.approx(expected, rel=5e-3)


def row(where, method, nll):
    return {"set": where, "row": method, "nll": nll}


def test_ranks_are_means_over_sets_of_means_over_splits():
    rows = [
        row("a", "x", 1.0), row("a", "x", 3.0),  # 2, behind y
        row("a", "y", 1.5), row("a", "z", 9.0),
        row("b", "x", 1.0), row("b", "y", 1.0), row("b", "z", 0.0),
        row("b", "left out", -5.0),
    ]  # fmt: skip
    found = ranking("{} sets", rows, lambda row: row["row"] != "left out")
    assert found.title == "2 sets"
    assert found.means == {"y": 1.75, "z": 2.0, "x": 2.25}
    assert list(found.means) == ["y", "z", "x"]


def test_groups_hold_those_that_are_near_and_no_group_is_part_of_another():
    means = {"a": 1.0, "b": 1.8, "c": 2.5, "d": 3.4, "e": 6.0}
    assert alike(Ranking("", means, 1.65, 0.0)) == [["a", "b", "c"], ["b", "c", "d"]]
    assert alike(Ranking("", means, 0.5, 0.0)) == []
    assert alike(Ranking("", means, 9.0, 0.0)) == [list(means)]


def test_the_picture_shows_every_method(tmp_path):
    rank_figure.write_figure(tmp_path / "ranks")
    words = (tmp_path / "ranks.svg").read_text()
    assert (tmp_path / "ranks.png").stat().st_size > 10_000
    for found in rank_figure.rankings():
        assert all(f"<!-- {method} -->" in words for method in found.means)
