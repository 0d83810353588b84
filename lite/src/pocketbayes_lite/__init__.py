"""Predictions that know how sure they are, from .pocket files, with numpy alone.

Example:
    >>> import pocketbayes_lite as lite
    >>> model = lite.load("digits.pocket")
    >>> pred = model.predict(x)
    >>> unsure = pred.epistemic > 0.1
"""

from pocketbayes_lite.errors import LiteError
from pocketbayes_lite.model import Model, load, read
from pocketbayes_lite.predictions import (
    ClassPrediction,
    LabelPrediction,
    Prediction,
    ValuePrediction,
)

__version__ = "0.1.0"

__all__ = [
    "ClassPrediction",
    "LabelPrediction",
    "LiteError",
    "Model",
    "Prediction",
    "ValuePrediction",
    "load",
    "read",
]
