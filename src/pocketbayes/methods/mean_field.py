"""Mean-field variational inference: every weight its own Gaussian, trained as it stands."""

from dataclasses import dataclass

from pocketbayes.errors import require_number
from pocketbayes.methods.base import VariationalMethod


@dataclass(frozen=True, kw_only=True)
class MeanField(VariationalMethod):
    """Mean-field VI: minimises E_q[-log p(D | w)] + beta KL(q || prior) over means and stds.

    With `bayesianize_(estimator="weight")` this is Bayes by Backprop; with the default "lrt"
    the same objective at less gradient noise.

    Attributes:
        flatness: radius r of sharpness-aware steps: with g the gradient at the means of all
            weights, a step follows the gradients at mean + r g / |g|, which prefers flat minima
            and takes two passes. 0: plain steps.
    """

    flatness: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self.flatness, "MeanField.flatness", least=0)
