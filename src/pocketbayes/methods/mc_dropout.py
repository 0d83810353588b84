"""Monte Carlo dropout: a plain network whose dropout stays on when it predicts."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import dropout_modules
from pocketbayes.methods.deterministic import Deterministic


@dataclass(frozen=True, kw_only=True)
class MCDropout(Deterministic):
    """Trains as `Deterministic`; each draw of a prediction is a dropout mask of its own."""

    keeps_dropout: ClassVar[bool] = True

    def start(self, model: nn.Module) -> None:
        """Makes sure that there is something to drop."""
        if not any(True for _ in dropout_modules(model)):
            raise PocketBayesError(
                "MCDropout needs dropout, and this network has none: add nn.Dropout(0.1) after "
                "its activations (to a network of the library by dropout=0.1, or --dropout 0.1)"
            )
        super().start(model)
