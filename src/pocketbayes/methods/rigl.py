"""RigL, sparse training without stds: what sparse Bayesian networks are measured against."""

from dataclasses import dataclass

from torch import Tensor, nn

from pocketbayes.methods.base import make_points_
from pocketbayes.methods.exchanging import ExchangingMethod
from pocketbayes.posteriors import Packed, Point, Posterior, SparsePoint


@dataclass(frozen=True, kw_only=True)
class RigL(ExchangingMethod):
    """Sparse training of a plain network (Evci et al. 2020): drops by size, grows by gradient."""

    weight_decay: float = 0.01

    def prepare_(self, model: nn.Module) -> None:
        """Turns every posterior into a point at its mean."""
        make_points_(model)

    def ranks_across(self, model: nn.Module) -> bool:
        """No: sizes of weights differ with the layers' fan-in."""
        return False

    def score(self, posterior: Posterior) -> Tensor:
        """|w|."""
        assert isinstance(posterior, Point | SparsePoint)
        return posterior.mean.abs()

    def newcomers(self, posterior: Packed) -> dict[str, float]:
        """A weight just added is 0."""
        return {"mean": 0.0}
