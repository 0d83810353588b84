"""Mean-field variational inference: every weight its own Gaussian, trained as it stands."""

from dataclasses import dataclass

from pocketbayes.methods.base import VariationalMethod


@dataclass(frozen=True, kw_only=True)
class MeanField(VariationalMethod):
    """Mean-field VI: minimises E_q[-log p(D | w)] + beta KL(q || prior) over means and stds.

    With `bayesianize_(estimator="weight")` this is Bayes by Backprop; with the default "lrt"
    the same objective at less gradient noise.
    """
