"""The picture of accuracy against bytes."""

import json
import re
import sys
from itertools import combinations
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
from matplotlib.text import Annotation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import size_figure
from pages import render
from pages.published import MASK, PUBLISHED, WEIGHTS

from pocketbayes.report.words import bytes_in_words

SETTINGS = {"epochs": 200, "beta": 0.003, "lr": 0.2, "weight_decay": 0.002, "estimator": "weight"}
FILE = {"row": "mean-field", "stage": "file", "estimator": "weight", "settings": SETTINGS}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Writes results of one's own; all other files are empty."""
    for path in render.RESULTS.glob("*.jsonl"):
        (tmp_path / path.name).touch()
    monkeypatch.setattr(render, "RESULTS", tmp_path)

    def write(*found):
        (tmp_path / "sizes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
        render._read.cache_clear()

    write()
    yield write
    render._read.cache_clear()


def test_a_mark_is_the_mean_over_seeds_of_what_has_a_file(results):
    results(
        FILE | {"seed": 0, "accuracy": 0.94, "file_bytes": 100},
        FILE | {"seed": 1, "accuracy": 0.96, "file_bytes": 300},
        FILE | {"seed": 2, "accuracy": 0.95},
    )
    (mark,) = size_figure.ours()
    assert mark.name == "mean-field VI, weight draws"
    assert (mark.size, mark.accuracy) == pytest.approx((200, 95))


def test_what_has_no_file_is_not_shown(results):
    results(FILE | {"seed": 0, "accuracy": 0.94})
    assert size_figure.ours() == []


def test_published_sizes_count_what_the_papers_store():
    sizes = {point.name: point.size for point in PUBLISHED}
    assert sizes["dense VI"] == 8 * WEIGHTS
    assert sizes["SSVI 95%"] == 8 * 0.56e6 + MASK
    assert sizes["2DGBNN"] == 4 * (2 * 123_310 + 67 + 2 * 1_569) + WEIGHTS


def test_labels_of_todays_results_cover_neither_each_other_nor_the_edge():
    marks = [*size_figure.ours(), *size_figure.published()]
    figure = size_figure.drawn(marks)
    axes, bar = figure.axes
    notes = [size_figure.box_of(note) for note in axes.texts if isinstance(note, Annotation)]
    assert len(notes) == len(marks)
    assert all(size_figure.overlap(a, b) < 1 for a, b in combinations(notes, 2))
    inside = axes.bbox.extents
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in notes]
    covered = [size_figure.overlap(box, inside) for box in notes]
    assert not any(size_figure.overlap(box, bar.get_tightbbox().extents) for box in notes)
    assert covered == pytest.approx(areas)


def test_the_picture_is_that_of_todays_results_and_always_the_same(tmp_path):
    size_figure.write_figure(tmp_path / "a")
    size_figure.write_figure(tmp_path / "b")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert words_of(size_figure.PICTURE) == words_of(tmp_path / "a")


def words_of(picture):
    """All texts of an SVG, in order; a renderer of another version may move them a little."""
    return re.findall(r"<!-- (.*?) -->", picture.with_suffix(".svg").read_text())


def test_every_point_is_in_the_picture():
    shown = words_of(size_figure.PICTURE)
    for mark in size_figure.ours():
        assert f"{mark.name}, {bytes_in_words(mark.size)}" in shown
    assert {mark.name for mark in size_figure.published()} <= set(shown)
