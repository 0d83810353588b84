"""Pictures as a network wants them; needs Pillow."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pocketbayes_lite.errors import LiteError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
_MOST_PIXELS = 100_000_000


def images(paths: list[Path], preprocess: dict[str, Any]) -> NDArray[np.float32]:
    """(N, channels, height, width): (x / 255 - mean) / std of each channel."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise LiteError("pictures are read by Pillow: pip install pillow") from None
    try:
        channels, height, width = (int(side) for side in preprocess["shape"])
        scale = [np.array(preprocess[name], np.float32) * 255 for name in ("mean", "std")]
        mean, std = (part.reshape(channels, 1, 1) for part in scale)
        crops = preprocess.get("resize") == "crop"
    except (KeyError, TypeError, ValueError):
        raise LiteError("the file does not say how pictures become inputs") from None
    if channels not in (1, 3) or min(height, width) < 1:
        raise LiteError(f"a picture has 1 or 3 channels; the network wants {channels}")
    pixels = [_pixels(path, channels == 1, (width, height), crops) for path in paths]
    return ((np.stack(pixels).astype(np.float32) - mean) / std).astype(np.float32)


def _pixels(path: Path, grey: bool, size: tuple[int, int], crops: bool) -> NDArray[np.uint8]:
    """As `pocketbayes predict` reads them: upright, on white, cut or stretched to this size."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise LiteError(f"{path} has more than {_MOST_PIXELS:,} pixels: make it smaller")
            plain = _opaque(ImageOps.exif_transpose(image), path).convert("L" if grey else "RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise LiteError(f"{path} cannot be read as a picture: {error}") from error
    if plain.size != size:
        covering = _covering(plain.size, size)
        covering = covering if crops else size
        plain = plain.resize(covering, Image.Resampling.BILINEAR)
        left, top = ((a - b) // 2 for a, b in zip(covering, size, strict=True))
        plain = plain.crop((left, top, left + size[0], top + size[1]))
    array = np.asarray(plain)
    return array[None] if grey else array.transpose(2, 0, 1)


def _covering(own: tuple[int, int], wanted: tuple[int, int]) -> tuple[int, int]:
    """The least size of these proportions that covers the wanted one."""
    factor = max(w / o for w, o in zip(wanted, own, strict=True))
    wide, tall = (max(w, round(o * factor)) for w, o in zip(wanted, own, strict=True))
    if wide * tall > 8 * wanted[0] * wanted[1]:
        raise LiteError("a picture is too long and narrow: cut out the part that matters")
    return wide, tall


def _opaque(image: Any, path: Path) -> Any:
    """In 8 bits, without transparency."""
    from PIL import Image

    if image.mode == "F":
        raise LiteError(f"{path} holds floating-point pixels; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        levels = np.asarray(image).astype(np.int64)
        if levels.min() < 0 or levels.max() > 65535:
            raise LiteError(f"{path} holds grey levels beyond 16 bits; save it with 8 or 16")
        return Image.fromarray(((levels * 255 + 32767) // 65535).astype(np.uint8))
    if not image.has_transparency_data:
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
