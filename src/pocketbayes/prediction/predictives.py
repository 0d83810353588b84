"""Every way to predict: by draws of the network, or by one pass and a Gaussian of its outputs."""

from torch import Tensor, nn

from pocketbayes.layers import ESTIMATORS, Ensemble, Inputs, estimator_of, has_random_weights
from pocketbayes.prediction.draws import draws_of, networks_to_run
from pocketbayes.prediction.gaussian_outputs import MOMENTS, ONE_PASS
from pocketbayes.prediction.moment_outputs import moment_draws
from pocketbayes.prediction.one_pass import one_pass_draws

PREDICTIVES = (*ESTIMATORS, MOMENTS, ONE_PASS)


def drawn(model: nn.Module, x: Inputs, num_samples: int, estimator: str | None) -> Tensor:
    """(S, N, ...) outputs; to be called inside of `drawing`."""
    if estimator == ONE_PASS:
        return one_pass_draws(model, x, num_samples)
    if estimator == MOMENTS:
        return moment_draws(model, x, num_samples)
    return draws_of(networks_to_run(model, num_samples, estimator), x)


def is_drawn(model: nn.Module, estimator: str | None) -> bool:
    """Whether more draws tell more."""
    if estimator in (ONE_PASS, MOMENTS):
        return False
    return len(networks_to_run(model, 1, estimator)) < len(networks_to_run(model, 1000, estimator))


def has_gaussian_outputs(model: nn.Module, estimator: str | None) -> bool:
    """Whether draws stand for one Gaussian, of which they have mean and variance."""
    return estimator in (MOMENTS, ONE_PASS) and not isinstance(model, Ensemble)


def predictive_of(model: nn.Module, chosen: str | None) -> str:
    """How draws are made, as chosen or by the layers; "none" if no weight is random."""
    return chosen or (estimator_of(model) if has_random_weights(model) else "none")
