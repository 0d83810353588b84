"""The loss: expected negative log-likelihood plus the scaled KL to the prior."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import Inputs, describe, home, named_posteriors, require_module, run
from pocketbayes.likelihoods.table import LIKELIHOODS
from pocketbayes.posteriors import (
    Posterior,
    Shared,
    codebooks_with_passes,
    is_split,
    summed_over_parts,
)


def kl(model: nn.Module) -> Tensor:
    """KL(q || prior) of the whole model in nats; a tied posterior counts once. Differentiable.

    Where training added weight decay, that is a second prior on the means, and counts.
    For your own training loop, with N the number of training examples (not of the batch):

        >>> loss = F.cross_entropy(model(x), y) + beta * kl(model) / N

    `fit` takes beta = 1 for values in fully connected networks, 0.3 to 0.05 for classes there (see
    `MeanField`), 0.01 for classes in other networks; `loss` takes 0.1 in the second case.
    """
    require_module(model)
    posteriors = [posterior for _, posterior in named_posteriors(model)]
    return total_kl(posteriors, describe(model).decay_std)


def total_kl(posteriors: Iterable[Posterior], decay_std: float | None = None) -> Tensor:
    """The sum of their KLs, where the first of them is.

    `decay_std` is that of a second prior on the means, which adds |mean|^2 / (2 decay_std^2).
    A codebook that is drawn once for all its weights counts once, with the prior of its first user.
    """
    counted: set[int] = set()
    terms = []
    for posterior in posteriors:
        if isinstance(posterior, Shared) and not posterior.is_independent:
            again = id(posterior.codebook) in counted
            counted.add(id(posterior.codebook))
            terms.append(posterior.outlier_kl() if again else posterior.kl())
        else:
            terms.append(posterior.kl())
        mean = getattr(posterior, "mean", None)
        if decay_std is not None and mean is not None and mean.requires_grad:
            terms.append(_sum_of_squares(mean) / (2 * decay_std**2))
    if not terms:
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    return torch.stack([term.to(terms[0].device, terms[0].dtype) for term in terms]).sum()


def _sum_of_squares(mean: Tensor) -> Tensor:
    if is_split(mean):
        return summed_over_parts(_sum_of_squares, mean)
    return mean.square().sum()


class Objective(nn.Module):
    """The loss of one batch as a module, so that DDP and compilation see all of it.

    The posteriors are listed once: to find them in every step would tie compiled code to the very
    objects, and the next network of the same shape would be compiled anew. What is computed first
    has its gradient last: of the KL when the draws are gone, which takes 4 bytes a weight less.
    """

    def __init__(self, model: nn.Module, likelihood: str, kl_first: bool = True) -> None:
        super().__init__()
        self.model, self.kl_first = model, kl_first
        self.likelihood = LIKELIHOODS[likelihood]
        self.posteriors = tuple(posterior for _, posterior in named_posteriors(model))
        self.codebooks = codebooks_with_passes(model)
        self.homes = (home(model),)  # a tuple: no module of this one a second time
        for posterior in self.posteriors:
            if isinstance(posterior, Shared):
                _ = posterior.count  # made here, not inside compiled code

    def forward(self, x: Inputs, y: Tensor, kl_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Loss = nll + kl_weight KL; and (loss, nll, KL, accuracy or squared error), detached."""
        for codebook in self.codebooks:
            codebook.begin_pass()
        divergence = total_kl(self.posteriors) if self.kl_first else None
        output = run(self.model, x)
        learned = {name: getattr(self.homes[0], name) for name in self.likelihood.learned}
        nll, score = self.likelihood.nll(output, y, learned)
        divergence = total_kl(self.posteriors) if divergence is None else divergence
        loss = nll + kl_weight * divergence
        return loss, torch.stack([loss, nll, divergence, score]).detach()
