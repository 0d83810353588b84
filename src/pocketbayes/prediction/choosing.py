"""Which estimator predicts where nothing is said."""

from torch import nn

from pocketbayes.layers import (
    Ensemble,
    bayesian_modules,
    describe,
    has_random_weights,
    plain_class_of,
    posteriors_of,
)
from pocketbayes.likelihoods import Likelihood
from pocketbayes.posteriors import SpikeSlab
from pocketbayes.prediction.gaussian_outputs import MOMENTS
from pocketbayes.prediction.one_pass import with_one_pass

_NUMBER_BY_NUMBER = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.Softplus,
    nn.Hardswish, nn.Identity, nn.Dropout, nn.BatchNorm1d,
)  # fmt: skip


def chosen_estimator(
    model: nn.Module, estimator: str | None, likelihood: Likelihood, wants_draws: bool = False
) -> str | None:
    """The estimator as chosen; by itself one pass if taught, or moments where they are as good.

    That is in regressions of one value with Gaussian noise by a plain chain of linear layers: the
    predictive is then a Gaussian in closed form, without the noise of draws, in a fraction of the
    time, and on validation rows of 19 sets its NLL is lower on 12. Not where draws themselves are
    wanted, or are what `conformal` made a promise for. None: the network is drawn.
    """
    found = with_one_pass(model, estimator, likelihood)
    if found is not None or wants_draws or likelihood.name != "gaussian":
        return found
    return MOMENTS if _suits_moments(model) else None


def _suits_moments(model: nn.Module) -> bool:
    """Whether independent Gaussian weights go, each once, through a chain of known modules.

    Code of one's own may use a layer twice, sum over its outputs or look at values, where moments
    are wrong or unknown; several outputs depend on each other, which moments lose.
    """
    known = describe(model)
    promised = known.conformal is None or known.conformal.get("estimator") == MOMENTS
    if isinstance(model, Ensemble) or known.keeps_dropout or not promised:
        return False
    chain = _chain(model)
    if chain is None or not has_random_weights(model):
        return False
    linear = [module for module in chain if isinstance(module, nn.Linear)]
    layers = (layer for _, layer in bayesian_modules(model))
    posteriors = [q for layer in layers for q in posteriors_of(layer).by_name().values()]
    is_known = all(q.is_independent and not isinstance(q, SpikeSlab) for q in posteriors)
    each_once = all(len({*map(id, some)}) == len(some) for some in (chain, posteriors))
    return bool(linear) and linear[-1].out_features == 1 and is_known and each_once


def _chain(network: nn.Module) -> list[nn.Module] | None:
    """Its modules in the order in which they run, if each gives its output to the next."""
    if network._forward_hooks or network._forward_pre_hooks or "forward" in network.__dict__:
        return None
    if type(network) is nn.Sequential or getattr(network, "is_chain", False):
        parts = [_chain(child) for child in network._modules.values() if child is not None]
        found = [module for part in parts if part is not None for module in part]
        flattens_late = any(isinstance(module, nn.Flatten) for module in found[1:])
        return None if None in parts or flattens_late else found
    kind = plain_class_of(network)
    return [network] if kind in (nn.Linear, nn.Flatten, *_NUMBER_BY_NUMBER) else None
