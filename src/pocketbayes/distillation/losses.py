"""How far a Gaussian over outputs is from draws of the network: pure functions of rows.

`mean` and `variance` are (rows, K), the network's `draws` (S, rows, K).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pocketbayes.likelihoods import Likelihood
from pocketbayes.prediction import draws_of_gaussian

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
_POINTS = 30
_WEIGHT_OF_LOGITS = 0.1  # of a nat of the logits' density beside one of the predictive


def loss_for(likelihood: Likelihood) -> Loss:
    """The loss of a head for this kind of outputs."""
    return {"classes": class_loss, "labels": label_loss, "values": value_loss}[likelihood.kind]


def value_loss(mean: Tensor, variance: Tensor, draws: Tensor) -> Tensor:
    """-log N(f; mean, variance), averaged over draws f, rows and outputs; without log(2 pi) / 2."""
    return gaussian_nll(draws - mean, variance)


def class_loss(mean: Tensor, variance: Tensor, draws: Tensor) -> Tensor:
    """Cross-entropy of the predictives, misfit of their aleatoric parts, NLL of centred logits.

    No probability depends on what all K logits have in common: it is taken from each draw, and of
    independent logits it leaves Var f_k (1 - 2 / K) + mean Var f / K.
    """
    found, taught = draws_of_gaussian(mean, variance, _POINTS).log_softmax(2), draws.softmax(2)
    between = -(taught.mean(0) * log_mean_exp(found)).sum(1).mean()
    entropies = -(found.exp() * found).sum(2), torch.special.entr(taught).sum(2)
    apart = (draws - draws.mean(2, keepdim=True)) - (mean - mean.mean(1, keepdim=True))
    left = variance * (1 - 2 / mean.shape[1]) + variance.mean(1, keepdim=True) / mean.shape[1]
    return between + misfit(*entropies) + _WEIGHT_OF_LOGITS * gaussian_nll(apart, left)


def label_loss(mean: Tensor, variance: Tensor, draws: Tensor) -> Tensor:
    """The same of K labels, each by itself; of logits, where probabilities would round to 1."""
    found = draws_of_gaussian(mean, variance, _POINTS)
    yes, no = (log_mean_exp(torch.nn.functional.logsigmoid(side)) for side in (found, -found))
    taught = draws.sigmoid().mean(0)
    between = -(taught * yes + (1 - taught) * no).mean()
    entropies = label_entropy(found), label_entropy(draws)
    return between + misfit(*entropies) + _WEIGHT_OF_LOGITS * value_loss(mean, variance, draws)


def label_entropy(logits: Tensor) -> Tensor:
    """-p log p - (1 - p) log(1 - p), p = sigmoid(logits); its gradient is finite where p is 1."""
    sides = [-side.sigmoid() * torch.nn.functional.logsigmoid(side) for side in (logits, -logits)]
    return sides[0] + sides[1]


def gaussian_nll(apart: Tensor, variance: Tensor) -> Tensor:
    """Mean of [apart^2 / variance + log variance] / 2."""
    return (apart.square() / variance + variance.log()).mean() / 2


def misfit(found: Tensor, taught: Tensor) -> Tensor:
    """Mean square of the difference of mean entropies: least where the aleatoric part is right.

    With the same predictive, the epistemic part then is so, too.
    """
    return (found.mean(0) - taught.mean(0)).square().mean()


def log_mean_exp(logs: Tensor) -> Tensor:
    """Log of the mean of exp(logs) over the first dimension."""
    return logs.logsumexp(0) - torch.tensor(len(logs), dtype=logs.dtype).log()
