"""A few pictures in the folders of Tiny-ImageNet."""

import numpy as np
from PIL import Image

WORDS = {
    "n02": "goldfish, Carassius auratus",
    "n01": "brown bear, bruin",
    "n05": "plane",
    "n03": "sea lion",
}


def saved_jpeg(path, level, rng, grey=False):
    """A picture of about this brightness, 64 x 64, reddish if it is not grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = level + rng.integers(20, size=(64, 64))
    colours = np.stack([pixels + 15, pixels, pixels - 15], 2)
    Image.fromarray((pixels if grey else colours).astype(np.uint8)).save(path)


def tiny_imagenet_in(folder, train=3, test=2):
    """The folder, with lists, and so many pictures of each class; the first ones are grey.

    The brightness of a picture tells its class.
    """
    rng, annotations = np.random.default_rng(0), []
    for number, wnid in enumerate(sorted(WORDS)):
        for k in range(train):
            path = folder / "train" / wnid / "images" / f"{wnid}_{k}.JPEG"
            saved_jpeg(path, 20 + 50 * number, rng, grey=k == 0)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").touch()
    for k in range(test):
        for number, wnid in enumerate(sorted(WORDS)):
            name = f"val_{len(annotations)}.JPEG"
            saved_jpeg(folder / "val" / "images" / name, 20 + 50 * number, rng, grey=k == 0)
            annotations.append(f"{name}\t{wnid}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(annotations))
    (folder / "wnids.txt").write_text("\n".join(WORDS))
    others = {"n00": "entity", **WORDS}
    (folder / "words.txt").write_text("".join(f"{n}\t{w}\n" for n, w in others.items()))
    return folder
