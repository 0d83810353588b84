"""Sparse variational dropout: every weight learns its own dropout rate, and most can go."""

from dataclasses import dataclass

from torch import nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import named_posteriors, replace_posterior
from pocketbayes.methods.base import (
    WITHOUT_INCLUSION_VARIABLES,
    VariationalMethod,
    require_no_inclusion_variables,
    unshare_,
)
from pocketbayes.posteriors import Gaussian, Packed, as_log_uniform, as_unshared, is_trainable


@dataclass(frozen=True, kw_only=True)
class VariationalDropout(VariationalMethod):
    """Sparse variational dropout (Molchanov et al. 2017): mean-field VI under a log-uniform prior.

    Minimises E_q[-log p(D | w)] + beta KL(q || p), p(log |w|) = constant. The prior wants
    alpha = std^2 / mean^2 large; `prune_` then drops every weight with log alpha of 3 or more.
    Vectors (biases) keep their Gaussian prior. `beta` is 1, as in the paper; the less it is, the
    more weights stay.
    """

    beta: float = 1.0

    def start(self, model: nn.Module) -> None:
        """Puts the prior on every Gaussian that learns and has two axes or more, or on none."""
        require_no_inclusion_variables(model, WITHOUT_INCLUSION_VARIABLES)
        for name, q in named_posteriors(model):
            if isinstance(as_unshared(q), Packed):
                raise PocketBayesError(
                    f"{name} is sparse already: variational dropout decides that itself, so start "
                    "from a dense model"
                )
        super().start(model)
        unshare_(model)
        for name, q in list(named_posteriors(model)):
            if isinstance(q, Gaussian) and is_trainable(q) and len(q.shape) > 1:
                replace_posterior(model, name, as_log_uniform(q))
