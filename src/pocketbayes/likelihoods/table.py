"""All likelihoods by name, and the parameters that a model has learned for its own."""

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, require_choice, warn
from pocketbayes.layers import add_noise_parameter, describe, noise_parameters
from pocketbayes.likelihoods.base import Learned, Likelihood
from pocketbayes.likelihoods.bernoulli import Bernoulli
from pocketbayes.likelihoods.categorical import Categorical
from pocketbayes.likelihoods.gaussian import Gaussian
from pocketbayes.likelihoods.heteroscedastic import Heteroscedastic
from pocketbayes.likelihoods.negative_binomial import NegativeBinomial
from pocketbayes.likelihoods.poisson import Poisson
from pocketbayes.likelihoods.student_t import StudentT

LIKELIHOODS: dict[str, Likelihood] = {
    kind.name: kind()
    for kind in (
        Categorical, Gaussian, Heteroscedastic, StudentT, Poisson, NegativeBinomial, Bernoulli,
    )
}  # fmt: skip


def likelihood_of(model: nn.Module, chosen: str | None = None) -> Likelihood:
    """The likelihood as chosen; else the one the model was trained with; else categorical."""
    name = chosen or describe(model).likelihood or "categorical"
    return LIKELIHOODS[require_choice(name, "likelihood", LIKELIHOODS)]


def learned_of(model: nn.Module, likelihood: Likelihood) -> dict[str, Tensor] | None:
    """The model's parameters of this likelihood; None if one is missing."""
    found = noise_parameters(model)
    if not all(name in found for name in likelihood.learned):
        return None
    return {name: found[name] for name in likelihood.learned}


@torch.no_grad()
def start_learned_(
    model: nn.Module, likelihood: Likelihood, output: Tensor, target: Tensor
) -> None:
    """Gives the model the parameters of this likelihood that it lacks, from a first batch."""
    if learned_of(model, likelihood) is None:
        set_learned_(model, likelihood.start(output.detach(), target))


@torch.no_grad()
def set_learned_(model: nn.Module, values: Learned) -> None:
    """Stores these values as parameters of the model, new ones where it has none."""
    for name, value in values.items():
        if name not in noise_parameters(model):
            add_noise_parameter(model, tuple(value.shape), name)
        noise_parameters(model)[name].copy_(value)


def learned_for(model: nn.Module, likelihood: Likelihood, draws: Tensor) -> dict[str, Tensor]:
    """The parameters for (S, N, ...) outputs; with a warning, next to no noise if there are none.

    Raises:
        DataError: they are of another shape than the outputs.
    """
    found = learned_of(model, likelihood)
    if found is None:
        warn(
            f"this model has no {likelihood.learned[0]}: its noise was never learned, and the "
            "prediction leaves it out. Estimate it by pb.refresh_noise_(model, train_loader, "
            f'likelihood="{likelihood.name}"), or train by pb.fit or with pb.loss',
        )
        return likelihood.unlearned(draws[0])
    for name, value in found.items():
        if value.shape != draws.shape[2:]:
            raise DataError(
                f"the model's output is {tuple(draws.shape[1:])}, its noise {tuple(value.shape)} "
                f"({name}): it was trained with other outputs"
            )
    return {name: value.detach() for name, value in found.items()}
