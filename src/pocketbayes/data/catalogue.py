"""The closed table of data sets, and the door to it."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pocketbayes.data.cifar import cifar10, cifar100
from pocketbayes.data.embedded import digits, photo_patches
from pocketbayes.data.folders import imagefolder
from pocketbayes.data.idx import fashion_mnist, mnist
from pocketbayes.data.images import ImageSet
from pocketbayes.data.simulated import friedman, sparse_linear, sparse_mlp
from pocketbayes.data.svhn import svhn
from pocketbayes.data.tables import TableSet
from pocketbayes.data.tabular import table
from pocketbayes.data.tiny_imagenet import tiny_imagenet
from pocketbayes.errors import DataError, nearest

DATASETS: dict[str, Callable[..., ImageSet | TableSet]] = {
    "digits": digits,
    "photo-patches": photo_patches,
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
    "tiny-imagenet": tiny_imagenet,
    "imagefolder": imagefolder,
    "csv": table,
    "parquet": table,
    "friedman": friedman,
    "sparse-linear": sparse_linear,
    "sparse-mlp": sparse_mlp,
}


def open_dataset(
    name: str, split: str, root: Path | str | None = None, **options: Any
) -> ImageSet | TableSet:
    """Opens one split of a data set of the table.

    Args:
        name: one of `DATASETS`.
        split: "train" or "test".
        root: the folder to look in; without it the one that POCKETBAYES_DATA names, if any.
        options: those of that data set.

    Example:
        >>> train = open_dataset("friedman", "train", features=20)
    """
    if name not in DATASETS:
        known = ", ".join(DATASETS)
        raise DataError(
            f"there is no data set {name!r}{nearest(name, DATASETS)}; there are {known}"
        )
    root = root if root is not None else os.environ.get("POCKETBAYES_DATA") or None
    folder = None if root is None else Path(root).expanduser()
    _check_options(name, options)
    return DATASETS[name](split, folder, **options)


def _check_options(name: str, options: dict[str, Any]) -> None:
    parameters = list(inspect.signature(DATASETS[name]).parameters.values())[2:]
    accepted = [parameter.name for parameter in parameters]
    for option in options:
        if option not in accepted:
            known = ", ".join(accepted) or "none"
            hint = nearest(option, accepted)
            raise DataError(f"{name} has no option {option!r}{hint}; its options: {known}")
    for parameter in parameters:
        if parameter.default is parameter.empty and options.get(parameter.name) is None:
            raise DataError(f"{name} needs the option {parameter.name}")
