"""Libraries that are not always installed."""

import importlib
from typing import Any

from pocketbayes.errors import PocketBayesError


def optional_module(name: str, extra: str) -> Any:
    """A module, or an error that says which extra of this library brings it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        package = {"sklearn": "scikit-learn"}.get(top, top)
        raise PocketBayesError(
            f"this needs {package}, which is not installed: pip install 'pocketbayes[{extra}]'"
        ) from error
