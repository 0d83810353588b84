"""One safe file for every posterior: `save`, `load`, `inspect`."""

from pocketbayes.codec.disk import prepare_directory, write_atomically
from pocketbayes.codec.files import described, inspect, load, save, stored_with
from pocketbayes.codec.summary import FileSummary

__all__ = [
    "FileSummary",
    "described",
    "inspect",
    "load",
    "prepare_directory",
    "save",
    "stored_with",
    "write_atomically",
]
