"""What determines a training run, besides model and data."""

from dataclasses import dataclass
from typing import Any

from pocketbayes.methods import Method


@dataclass(frozen=True)
class Settings:
    """What determines a run, besides model and data."""

    epochs: int
    likelihood: str
    seed: int
    dataset_size: int
    method: Method
    compile: bool | str
    checkpoint_minutes: float
    keep_best: bool = False
    patience: int | None = None
    accumulate: int = 1
    logger: Any = None
    strategy: str = "ddp"

    def to_dict(self) -> dict[str, Any]:
        """All that bears on the result."""
        kept = {"keep_best": True, "patience": self.patience} if self.keep_best else {}
        kept |= {"accumulate": self.accumulate} if self.accumulate > 1 else {}
        return {
            "epochs": self.epochs,
            "likelihood": self.likelihood,
            "seed": self.seed,
            "dataset_size": self.dataset_size,
            **kept,
            **self.method.settings(),
        }

    def compares(self, epoch: int) -> bool:
        """Whether this epoch, counted from 0, may be the best one.

        While the KL's weight rises, networks are of another objective, which hardly regularises:
        only epochs that begin with the whole weight count. If none does, all do.
        """
        return self._has_whole_weight(epoch) or not self._has_whole_weight(self.epochs - 1)

    def _has_whole_weight(self, epoch: int) -> bool:
        return self.method.kl_weight(epoch / self.epochs) == self.method.kl_weight(1.0)
