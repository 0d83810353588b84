"""One safe file for every posterior: `save`, `load`, `inspect`."""

from pocketbayes.codec.files import inspect, load, save
from pocketbayes.codec.summary import FileSummary

__all__ = ["FileSummary", "inspect", "load", "save"]
