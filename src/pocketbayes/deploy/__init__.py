"""From a model or its file to what runs elsewhere: `export`."""

from pocketbayes.deploy.exported import Exported
from pocketbayes.deploy.exporting import export

__all__ = ["Exported", "export"]
