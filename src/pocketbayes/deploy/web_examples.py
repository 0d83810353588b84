"""Of a batch of inputs what a page shows of them, and how their lines lie in a picture."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_SHOWN_PICTURES, _SHOWN_ROWS, _LEAST_INK = 8, 4, 0.4


def pixels_of(x: NDArray[np.float32], preprocess: dict[str, Any]) -> Bytes:
    """Bytes (N, C, H, W) of normalised images."""
    mean, std = (np.array(preprocess[name])[:, None, None] for name in ("mean", "std"))
    levels: Bytes = np.rint(np.clip(x.astype(np.float64) * std + mean, 0, 1) * 255).astype(np.uint8)
    return levels


def facts_of_pictures(pixels: Bytes, preprocess: dict[str, Any]) -> dict[str, Any]:
    """The first pictures and, if they are lines on even ground, how thick these are and how large.

    A line of length l and thickness w has the area l w and the boundary 2 l, so that w is twice the
    area by the boundary, the sum of all differences of neighbours (4 / pi too long on average).
    """
    facts: dict[str, Any] = {"samples": pixels[:_SHOWN_PICTURES].tobytes()}
    ground = 0.0 if np.mean(preprocess["mean"]) < 0.5 else 1.0
    ink = abs(pixels.mean(1) / 255 - ground)
    border = np.concatenate([ink[:, 0], ink[:, -1], ink[:, :, 0], ink[:, :, -1]], 1)
    if np.median(border) > 0.05 or ink.mean() > _LEAST_INK or pixels.shape[1] > 1:
        return facts  # photographs
    framed = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    boundary = sum(abs(np.diff(framed, axis=axis)).sum() for axis in (1, 2)) * np.pi / 4
    shares = [_extent(picture) for picture in ink]
    return facts | {
        "stroke": round(float(2 * ink.sum() / max(boundary, 1e-9)), 2),
        "fit": round(float(np.median(shares)), 3),
    }


def _extent(ink: NDArray[np.float64]) -> float:
    """The share of a picture's height or width, whichever is larger, that its lines take."""
    dark = ink > 0.25 * ink.max()
    sides = [np.flatnonzero(dark.any(axis)) for axis in (1, 0)]
    return max(
        (side[-1] - side[0] + 1) / length if len(side) else 0.0
        for side, length in zip(sides, ink.shape, strict=True)
    )


def facts_of_rows(x: NDArray[np.float32]) -> dict[str, Any]:
    """The first rows, as the network sees them."""
    return {"rows": x[:_SHOWN_ROWS].astype("<f4").tobytes()}
