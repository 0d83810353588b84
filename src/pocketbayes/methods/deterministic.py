"""Plain training: every weight a point. What the Bayesian methods are measured against."""

from dataclasses import dataclass

from torch import nn

from pocketbayes.methods.base import Method, make_points_


@dataclass(frozen=True, kw_only=True)
class Deterministic(Method):
    """Maximum likelihood with weight decay: minimises -log p(D | w), one network, no noise."""

    weight_decay: float = 0.01

    def start(self, model: nn.Module) -> None:
        """Turns every posterior into a point at its mean."""
        super().start(model)
        make_points_(model)
