"""Places for the labels of a picture, so that they cover neither each other nor what is drawn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[np.float64]  # one box a row: left, bottom, right, top, in points

ANGLES = [math.radians(a) for a in (90, 270, 0, 180, 60, 120, 240, 300, 30, 150, 210, 330)]
DISTANCES = (6, 9, 13, 20, 28, 38, 50, 64, 80)  # points
LEADER_FROM = 12  # points; a nearer label needs no line to what it names
OWN_MARK = 5  # points around what is named
GAP = 1.5  # points that labels keep from all else
ROUNDS = 4  # each label may move again once the others have their places

OUTWARD = np.array([-1.0, -1.0, 1.0, 1.0])

# Costs: of a square point that is covered, and of a point of distance, more where it crosses, and
# where another point is nearer; of another point that the leader goes through.
OVER_LABEL, OVER_MARK, APART, ACROSS, CONFUSING, THROUGH = 60.0, 20.0, 1.0, 2.0, 10.0, 3000.0


@dataclass(frozen=True)
class Label:
    """Words for the point (x, y) of the data; `style` is for `axes.annotate`."""

    words: str
    x: float
    y: float
    style: dict[str, Any]


def place_labels(axes: Any, labels: Sequence[Label], marks: Boxes) -> list[Any]:
    """Draws every label where it covers least, near what it names.

    Args:
        axes: where to draw; its limits and size must be final.
        labels: the first have the first choice.
        marks: boxes of all that is drawn already.

    Returns:
        The annotations.
    """
    notes = [
        axes.annotate(
            label.words, (label.x, label.y), xytext=(0, 0), textcoords="offset points",
            ha="center", va="center", **label.style,
        )
        for label in labels
    ]  # fmt: skip
    points = in_points(axes, [(label.x, label.y) for label in labels])
    extents = np.vstack([no_boxes(), *map(box_of, notes)])
    boxes = _places(extents, points, marks, _points(axes, axes.bbox.extents))
    for note, box, extent, point in zip(notes, boxes, extents, points, strict=True):
        note.set_position(tuple((box - extent)[:2]))
        _draw_leader(axes, point, box)
    return notes


def _places(extents: Boxes, points: Boxes, marks: Boxes, inside: Boxes) -> Boxes:
    """The box of every label."""
    chosen: dict[int, Boxes] = {}
    for _ in range(ROUNDS):
        last = dict(chosen)
        for i, (extent, point) in enumerate(zip(extents, points, strict=True)):
            others = {j: box for j, box in chosen.items() if j != i}
            leaders = [_leader(box, points[j]) for j, box in others.items()]
            scene = Scene(
                inside,
                np.vstack([no_boxes(), *others.values()]),
                np.vstack([marks, *leaders]),
                np.delete(points, i, axis=0),
            )
            places = _candidates(extent)
            chosen[i] = places[np.argmin(scene.costs(places, point))]
        if all(i in last and np.array_equal(box, last[i]) for i, box in chosen.items()):
            break
    return np.vstack([no_boxes(), *(chosen[i] for i in range(len(extents)))])


@dataclass(frozen=True)
class Scene:
    """What a label must respect: the axes, other labels, all that is drawn, other points."""

    inside: Boxes
    labels: Boxes
    marks: Boxes
    points: Boxes

    def costs(self, boxes: Boxes, point: Boxes) -> Boxes:
        """Of every place that the label of a point may have: what it covers, how far it is."""
        areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        outside = areas - overlaps(boxes, self.inside[None]).sum(axis=1)
        roomy = boxes + GAP * OUTWARD
        covered = OVER_LABEL * (outside + overlaps(roomy, self.labels).sum(axis=1))
        covered += OVER_MARK * overlaps(roomy, self.marks).sum(axis=1)
        near = _nearest(boxes, point)
        distance = np.linalg.norm(near - point, axis=1)
        on_the_way = point + (near - point)[:, None] * np.linspace(0, 1, 9)[1:-1, None]
        is_beyond = np.linalg.norm(on_the_way - point, axis=2) > OWN_MARK
        others = np.vstack([self.labels, self.marks])
        is_over = _holds(others, on_the_way[:, :, None]).any(axis=2)
        crossed = (is_over & is_beyond).sum(axis=1)
        met = np.linalg.norm(on_the_way[:, :, None] - self.points, axis=3).min(axis=1) < OWN_MARK
        covered += THROUGH * met.sum(axis=1)
        return covered + distance * (APART + ACROSS * crossed) + self._doubt(boxes, distance)

    def _doubt(self, boxes: Boxes, distance: Boxes) -> Boxes:
        """How much nearer other points are than they may be."""
        near = _nearest(boxes[:, None], self.points)
        away = np.linalg.norm(near - self.points, axis=2)
        return np.asarray(CONFUSING * np.maximum(distance[:, None] + 4 - away, 0).sum(axis=1))


def no_boxes() -> Boxes:
    """Room for boxes."""
    return np.empty((0, 4))


def box_of(artist: Any) -> Boxes:
    """The one box of something drawn."""
    return _points(artist, [artist.get_window_extent().extents])


def in_points(axes: Any, places: Sequence[tuple[float, float]]) -> Boxes:
    """Places of the data, one a row, in points from the lower left of the figure."""
    return _points(axes, axes.transData.transform(np.reshape(places, (-1, 2))))


def _points(artist: Any, pixels: Any) -> Boxes:
    return np.asarray(pixels) * 72 / artist.figure.dpi


def boxes_along(axes: Any, places: Sequence[tuple[float, float]], half: float) -> Boxes:
    """Boxes that cover straight lines through places of the data, `half` points to each side."""
    return _along(in_points(axes, places), half)


def _along(corners: Boxes, half: float) -> Boxes:
    """One box for a point and for a level or upright line, many for a slanting one."""
    ends = [np.hstack([corners[:1], corners[:1]])]
    for start, end in pairwise(corners):
        is_slanting = np.abs(end - start).min() > half
        steps = math.ceil(math.dist(start, end) / (2 * half)) if is_slanting else 1
        stops = start + (end - start) * np.linspace(0, 1, steps + 1)[:, None]
        low, high = np.minimum(stops[:-1], stops[1:]), np.maximum(stops[:-1], stops[1:])
        ends.append(np.hstack([low, high]))
    return np.concatenate(ends) + half * OUTWARD


def overlaps(boxes: Boxes, others: Boxes) -> Boxes:
    """Square points that each box has in common with each of the others."""
    one = boxes[:, None]
    sides = np.minimum(one[..., 2:], others[:, 2:]) - np.maximum(one[..., :2], others[:, :2])
    return np.asarray(np.prod(np.maximum(sides, 0), axis=2))


def _candidates(extent: Boxes) -> Boxes:
    """A label's box, moved from its point so that its edge is at each of the distances."""
    half = (extent[2:] - extent[:2]) / 2
    ways = np.round([(math.cos(angle), math.sin(angle)) for angle in ANGLES], 9)
    moves = [distance * ways + np.sign(ways) * half for distance in DISTANCES]
    return extent + np.tile(np.concatenate(moves), 2)


def _holds(boxes: Boxes, points: Boxes) -> NDArray[np.bool_]:
    """Which boxes hold which points; the two are paired as arrays are."""
    return np.asarray(((boxes[:, :2] <= points) & (points <= boxes[:, 2:])).all(axis=-1))


def _nearest(boxes: Boxes, points: Boxes) -> Boxes:
    """The places of boxes that are nearest to points."""
    return np.asarray(np.clip(points, boxes[..., :2], boxes[..., 2:]))


def _leader(box: Boxes, point: Boxes) -> Boxes:
    """Boxes along the line from a point to its label."""
    return _along(np.array([point, _nearest(box, point)]), 1)


def _draw_leader(axes: Any, point: Boxes, box: Boxes) -> None:
    near = _nearest(box, point)
    if math.dist(near, point) < LEADER_FROM:
        return
    pixels = np.array([point, near]) * axes.figure.dpi / 72
    ends = axes.transData.inverted().transform(pixels)
    axes.plot(ends[:, 0], ends[:, 1], color="0.6", linewidth=0.5, zorder=1)
