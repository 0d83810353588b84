"""One safe file for every posterior: `save`, `load`, `inspect`."""

from pocketbayes.codec.disk import prepare_directory, regular, write_atomically
from pocketbayes.codec.files import described, inspect, load, save, stored_with
from pocketbayes.codec.state import plain_state
from pocketbayes.codec.steps import TOLERANCE, log_odds_step, log_std_steps, mean_step, to_steps
from pocketbayes.codec.stored_copies import as_stored
from pocketbayes.codec.summary import FileSummary

__all__ = [
    "TOLERANCE",
    "FileSummary",
    "as_stored",
    "described",
    "inspect",
    "load",
    "log_odds_step",
    "log_std_steps",
    "mean_step",
    "plain_state",
    "prepare_directory",
    "regular",
    "save",
    "stored_with",
    "to_steps",
    "write_atomically",
]
