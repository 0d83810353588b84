"""Picture files as the bytes a model wants, decoded in several threads."""

import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pocketbayes.data.files import Bytes, reading
from pocketbayes.data.pixels import ImageForm, covering_size, image_form
from pocketbayes.data.progress import tracked
from pocketbayes.errors import DataError, printable

if TYPE_CHECKING:
    from PIL.Image import Image

# Pillow knows more, some of which start other programs (EPS).
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 89_478_485  # where Pillow begins to suspect a decompression bomb
_MOST_ELONGATED = 8  # times the wanted proportions; of what is longer too little would be left
_MANY = 200  # files that take long enough to show how far reading has come
_DEEP_GREY = ("I", "I;16", "I;16L", "I;16B", "I;16N")


def images_from_files(
    paths: Iterable[Path | str],
    preprocess: dict[str, Any],
    skip_bad: bool = False,
    reshaped: list[Path] | None = None,
) -> tuple[Tensor, list[Path]]:
    """Reads pictures as a model with that preprocess wants them.

    Orientation marks are heeded, transparency is laid on white, 16-bit greys are scaled down;
    then come the model's channels and its size, antialiased. A picture of other proportions is
    scaled until its short side fits and cut to the middle; for a model whose preprocess does not
    say "crop", as older ones do not, it is stretched. Either is said once on stderr, and a picture
    of more than 8 times the proportions is refused.

    Args:
        paths: the files.
        preprocess: that of the model.
        skip_bad: pass over a file that cannot be read, saying so on stderr, instead of an error.
        reshaped: gathers the files of other proportions, of which nothing is then said.

    Returns:
        uint8 images (N, channels, height, width), and the paths of those that were read; with
        `skip_bad` that may be none.
    """
    form, files = image_form(preprocess), [Path(path) for path in paths]
    if form.channels not in (1, 3):
        raise DataError(f"a picture has 1 or 3 channels; the model wants {form.channels}")
    pixels = np.empty((len(files), form.channels, form.height, form.width), np.uint8)
    others = [False] * len(files)

    def fill(number: int) -> str:
        try:
            pixels[number], others[number] = read_picture(files[number], form)
        except DataError as error:
            if not skip_bad:
                raise
            return str(error)
        return ""

    with ThreadPoolExecutor(min(32, os.cpu_count() or 1)) as pool:
        results = pool.map(fill, range(len(files)))
        faults = list(tracked(results, "reading pictures", len(files), shown=len(files) >= _MANY))
    for fault in filter(None, faults):
        print(f"skipped: {printable(str(fault))}", file=sys.stderr)
    cut = [path for path, other in zip(files, others, strict=True) if other]
    if reshaped is None:
        note_reshaped(cut, preprocess, len(files))
    else:
        reshaped += cut
    kept = [number for number, fault in enumerate(faults) if not fault]
    whole = torch.from_numpy(pixels)
    return (whole if len(kept) == len(files) else whole[kept]), [files[n] for n in kept]


def note_reshaped(paths: Sequence[Path], preprocess: dict[str, Any], count: int) -> None:
    """Says what was done to pictures of other proportions, if there are any."""
    if paths:
        form = image_form(preprocess)
        done = "cut to their middle" if form.crops else "stretched"
        print(
            f"note: {len(paths):,} of {count:,} pictures have other proportions than the model's "
            f"{form.width} x {form.height} and are {done}, "
            f"{printable(str(paths[0]))} among them",
            file=sys.stderr,
        )


def read_picture(path: Path, form: ImageForm) -> tuple[Bytes, bool]:
    """One picture as bytes (channels, height, width), and whether it had other proportions."""
    from PIL import Image, ImageOps

    if not path.is_file():
        raise DataError(f"there is no file {path}")
    with reading(path, "a picture"), Image.open(path, formats=_FORMATS) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise DataError(
                f"{path} has {image.width} x {image.height} pixels, which may be meant to fill "
                f"the memory; the most is {_MOST_PIXELS}: make it smaller"
            )
        upright = ImageOps.exif_transpose(image)
        plain = _opaque(upright, path).convert("L" if form.channels == 1 else "RGB")
        wanted = form.height, form.width
        differs = covering_size((plain.height, plain.width), wanted) != wanted
        array = np.asarray(_in_size(plain, form, path))
    return (array[None] if array.ndim == 2 else array.transpose(2, 0, 1)), differs


def _opaque(image: "Image", path: Path) -> "Image":
    """The picture in 8 bits, without transparency."""
    from PIL import Image

    if image.mode in _DEEP_GREY:
        return Image.fromarray(_eight_bits(np.asarray(image).astype(np.int64), path))
    if image.mode == "F":
        raise DataError(
            f"{path} holds floating-point pixels, whose white is not known; save it with 8 or 16 "
            "bits"
        )
    if not image.has_transparency_data:
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def _eight_bits(levels: np.ndarray, path: Path) -> Bytes:
    if levels.min() < 0 or levels.max() > 65535:
        raise DataError(
            f"{path} holds grey levels from {levels.min()} to {levels.max()}; save it with 8 or "
            "16 bits"
        )
    return ((levels * 255 + 32767) // 65535).astype(np.uint8)


def _in_size(image: "Image", form: ImageForm, path: Path) -> "Image":
    """Resized by Pillow's bilinear filter, which is antialiased; stretched or cut to shape."""
    from PIL import Image

    height, width = form.height, form.width
    if image.size == (width, height):
        return image
    tall, wide = covering_size((image.height, image.width), (height, width))
    if tall * wide > _MOST_ELONGATED * height * width:
        raise DataError(
            f"{path} is {image.width} x {image.height} pixels, too long and narrow to be made "
            f"{width} x {height}: cut out the part that matters"
        )
    if not form.crops:
        return image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (wide - width) // 2, (tall - height) // 2
    covering = image.resize((wide, tall), Image.Resampling.BILINEAR)
    return covering.crop((left, top, left + width, top + height))
