"""Every way to predict: by draws of the network, or by one pass and a Gaussian of its outputs."""

from collections.abc import Callable

from torch import Tensor, nn

from pocketbayes.layers import ESTIMATORS, Inputs, estimator_of, has_random_weights
from pocketbayes.prediction.draws import draws_of, networks_to_run
from pocketbayes.prediction.gaussian_outputs import MOMENTS, ONE_PASS
from pocketbayes.prediction.moment_outputs import moment_draws
from pocketbayes.prediction.one_pass import chosen_estimator, one_pass_draws, require_head

PREDICTIVES = (*ESTIMATORS, MOMENTS, ONE_PASS)


def drawn_by(
    model: nn.Module, num_samples: int, estimator: str | None
) -> Callable[[Inputs], Tensor]:
    """How (S, N, ...) outputs are made of a batch; to be called inside of `drawing`."""
    if estimator == ONE_PASS:
        require_head(model)
        return lambda x: one_pass_draws(model, x, num_samples)
    if estimator == MOMENTS:
        return lambda x: moment_draws(model, x, num_samples)
    passes = networks_to_run(model, num_samples, estimator)
    return lambda x: draws_of(passes, x)


def predictive_of(model: nn.Module, chosen: str | None) -> str:
    """How draws are made, as chosen or by itself; "none" if no weight is random."""
    chosen = chosen_estimator(model, chosen)
    return chosen or (estimator_of(model) if has_random_weights(model) else "none")
