"""Data sets and loaders for the command line and the benchmarks."""

from pocketbayes.data.catalogue import DATASETS, open_dataset
from pocketbayes.data.corruptions import CORRUPTIONS, corrupted
from pocketbayes.data.features import checked_table_preprocess, table_features
from pocketbayes.data.folders import PICTURES
from pocketbayes.data.images import ImageSet
from pocketbayes.data.loading import MemoryLoader
from pocketbayes.data.pictures import images_from_files, note_reshaped
from pocketbayes.data.pixels import image_form, normalised
from pocketbayes.data.progress import tracked
from pocketbayes.data.splits import with_validation
from pocketbayes.data.tables import TableSet
from pocketbayes.data.tabular import TableRows, table_from_file

__all__ = [
    "CORRUPTIONS",
    "DATASETS",
    "PICTURES",
    "ImageSet",
    "MemoryLoader",
    "TableRows",
    "TableSet",
    "checked_table_preprocess",
    "corrupted",
    "image_form",
    "images_from_files",
    "normalised",
    "note_reshaped",
    "open_dataset",
    "table_features",
    "table_from_file",
    "tracked",
    "with_validation",
]
