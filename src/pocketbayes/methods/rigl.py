"""RigL, sparse training without stds: what sparse Bayesian networks are measured against."""

from dataclasses import dataclass

from torch import Tensor, nn

from pocketbayes.methods.base import Method, make_points_
from pocketbayes.methods.exchanging import ExchangingMethod
from pocketbayes.posteriors import Packed, Point, Posterior, SparsePoint


@dataclass(frozen=True, kw_only=True)
class RigL(ExchangingMethod):
    """Sparse training of a plain network (Evci et al. 2020): drops by size, grows by gradient."""

    weight_decay: float = 0.01

    def start(self, model: nn.Module) -> None:
        """Turns every posterior into a sparse point."""
        Method.start(self, model)
        make_points_(model)
        super().start(model)

    def score(self, posterior: Posterior) -> Tensor:
        """|w|."""
        assert isinstance(posterior, Point | SparsePoint)
        return posterior.mean.abs()

    def newcomers(self, posterior: Packed) -> dict[str, float]:
        """A weight just added is 0."""
        return {"mean": 0.0}
