"""Data sets and loaders for the command line and the benchmarks."""

from pocketbayes.data.catalogue import DATASETS, open_dataset
from pocketbayes.data.corruptions import CORRUPTIONS, corrupted
from pocketbayes.data.folders import PICTURES
from pocketbayes.data.images import ImageSet
from pocketbayes.data.loading import MemoryLoader
from pocketbayes.data.pictures import images_from_files, note_reshaped
from pocketbayes.data.pixels import image_form, normalised
from pocketbayes.data.progress import tracked
from pocketbayes.data.splits import with_validation
from pocketbayes.data.tables import TableSet, checked_table_preprocess
from pocketbayes.data.tabular import table_from_file

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "PICTURES",
    "ImageSet",
    "MemoryLoader",
    "TableSet",
    "checked_table_preprocess",
    "corrupted",
    "image_form",
    "images_from_files",
    "normalised",
    "note_reshaped",
    "open_dataset",
    "table_from_file",
    "tracked",
    "with_validation",
]
