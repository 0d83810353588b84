"""One safe file for every posterior: `save`, `load`, `inspect`."""

from pocketbayes.codec.files import described, inspect, load, save
from pocketbayes.codec.summary import FileSummary

__all__ = ["FileSummary", "described", "inspect", "load", "save"]
