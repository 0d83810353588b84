"""From a model or its file to what runs elsewhere: `export`; and what an answer costs there."""

from pocketbayes.deploy.exported import Exported
from pocketbayes.deploy.exporting import export
from pocketbayes.deploy.timing import RUNTIMES, Timing, installed, reads_onnx, timed

__all__ = ["RUNTIMES", "Exported", "Timing", "export", "installed", "reads_onnx", "timed"]
