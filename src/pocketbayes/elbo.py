"""The loss: expected negative log-likelihood plus the scaled KL to the prior."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pocketbayes.convert import named_posteriors
from pocketbayes.description import noise_log_std
from pocketbayes.errors import DataError, PocketBayesError
from pocketbayes.posteriors import Posterior, Shared
from pocketbayes.posteriors.table import tables_with_passes

LIKELIHOODS = ("categorical", "gaussian")


def kl(model: nn.Module) -> Tensor:
    """KL(q || prior) of the whole model in nats; a tied posterior counts once. Differentiable.

    For your own training loop, with N the number of training examples (not of the batch):

        >>> loss = F.cross_entropy(model(x), y) + kl(model) / N
    """
    require_module(model)
    return total_kl([posterior for _, posterior in named_posteriors(model)])


def total_kl(posteriors: Iterable[Posterior]) -> Tensor:
    """The sum of their KLs, where the first of them is.

    A table that is drawn once for all its weights counts once, with the prior of its first user.
    """
    counted: set[int] = set()
    terms = []
    for posterior in posteriors:
        if isinstance(posterior, Shared) and not posterior.is_independent:
            again = id(posterior.table) in counted
            counted.add(id(posterior.table))
            terms.append(posterior.outlier_kl() if again else posterior.kl())
        else:
            terms.append(posterior.kl())
    if not terms:
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    return torch.stack([term.to(terms[0].device, terms[0].dtype) for term in terms]).sum()


def categorical_nll(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy per example, summed over its positions, and accuracy; classes are dim 1.

    A label that is no class makes the result NaN, which needs no wait for the device; `fit`
    then says which label it was.
    """
    expected = logits.shape[:1] + logits.shape[2:]
    if logits.dim() < 2 or labels.shape != expected:
        raise DataError(
            f"the model's output is {tuple(logits.shape)}, the labels are {tuple(labels.shape)}; "
            "a categorical likelihood needs (batch, classes, ...) and (batch, ...)"
            + (
                '; for real-valued targets use likelihood="gaussian"'
                if labels.is_floating_point()
                else ""
            )
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DataError(
            f"class labels must be integers, not {labels.dtype}; "
            'for real-valued targets use likelihood="gaussian"'
        )
    classes = logits.shape[1]
    labels = labels.long()
    valid = ((labels >= 0) & (labels < classes)).all()
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = F.cross_entropy(logits, labels.clamp(0, classes - 1), reduction="sum") / len(logits)
    accuracy = (logits.argmax(1) == labels).to(loss.dtype).mean()
    return torch.where(valid, loss, math.nan), accuracy


def gaussian_nll(output: Tensor, target: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over examples of -log N(target; output, exp(log_std)^2), and the mean squared error."""
    target = matched_target(output, target)
    output = output.to(torch.promote_types(output.dtype, torch.float32))
    error = target.to(output.dtype) - output
    per_value = (error * (-log_std).exp()).square() / 2 + log_std + math.log(2 * math.pi) / 2
    return per_value.sum() / len(output), error.square().mean()


def matched_target(output: Tensor, target: Tensor) -> Tensor:
    """The target in the output's shape: (batch,) goes with (batch, 1), and nothing broadcasts."""
    if output.shape == (*target.shape, 1):
        return target.unsqueeze(-1)
    if output.shape != target.shape:
        raise DataError(
            f"the model's output is {tuple(output.shape)}, the target is {tuple(target.shape)}; "
            "a Gaussian likelihood needs them equal, or (batch, 1) and (batch,)"
        )
    return target


def require_module(model: object) -> None:
    """An error unless `model` is a network."""
    if not isinstance(model, nn.Module):
        raise PocketBayesError(f"the model must be a torch.nn.Module, not {type(model).__name__}")


@contextmanager
def explained_failure(x: Tensor) -> Iterator[None]:
    """Turns a network's complaint about its input into an error that shows the input."""
    try:
        yield
    except (PocketBayesError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise DataError(
            f"the model cannot run on an input of shape {tuple(x.shape)} and dtype {x.dtype}: "
            f"{error}"
        ) from error


def require_tensor(output: object) -> Tensor:
    """A network's output if it is one tensor, else an error."""
    if not isinstance(output, Tensor):
        raise DataError(
            f"the model returns a {type(output).__name__}, not a tensor; wrap it in a module "
            "whose forward returns the logits or the prediction alone"
        )
    return output


class Objective(nn.Module):
    """The loss of one batch as a module, so that DDP and compilation see all of it.

    The posteriors are listed once: to find them in every step would tie compiled code to the very
    objects, and the next network of the same shape would be compiled anew.
    """

    def __init__(self, model: nn.Module, likelihood: str) -> None:
        super().__init__()
        self.model = model
        self.likelihood = likelihood
        self.posteriors = tuple(posterior for _, posterior in named_posteriors(model))
        self.tables = tables_with_passes(model)
        for posterior in self.posteriors:
            if isinstance(posterior, Shared):
                _ = posterior.count  # made here, not inside compiled code

    def forward(self, x: Tensor, y: Tensor, kl_weight: Tensor) -> tuple[Tensor, Tensor]:
        """Loss = nll + kl_weight KL; and (loss, nll, KL, accuracy or squared error), detached."""
        for table in self.tables:
            table.begin_pass()
        output = require_tensor(self.model(x))
        if self.likelihood == "categorical":
            nll, score = categorical_nll(output, y)
        else:
            log_std = noise_log_std(self.model)
            assert log_std is not None
            nll, score = gaussian_nll(output, y, log_std)
        divergence = total_kl(self.posteriors)
        loss = nll + kl_weight * divergence
        return loss, torch.stack([loss, nll, divergence, score]).detach()
