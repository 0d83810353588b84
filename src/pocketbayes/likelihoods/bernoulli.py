"""Several labels at once: each is there or not, by its own logit."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pocketbayes.likelihoods.base import Learned, Likelihood, at_least_float32, matched_target


class Bernoulli(Likelihood):
    """P(label) = sigmoid(output), for each of (batch, labels); targets are 0 or 1."""

    name = "bernoulli"
    kind = "labels"
    score = "accuracy"

    def nll(self, output: Tensor, target: Tensor, learned: Learned) -> tuple[Tensor, Tensor]:
        """Binary cross-entropy per example, summed over its labels, and accuracy per label."""
        logits = at_least_float32(output)
        y = matched_target(output, target).to(logits.dtype)
        loss = F.binary_cross_entropy_with_logits(logits, y, reduction="sum") / len(logits)
        possible = ((y == 0) | (y == 1)).all()
        accuracy = ((logits > 0) == (y > 0.5)).to(loss.dtype).mean()
        return torch.where(possible, loss, torch.nan), accuracy

    def constant(self, output: Tensor, target: Tensor) -> Tensor:
        """The log-odds of each label; where all are alike, as of half an example more."""
        y = matched_target(output, target).float()
        there, count = y.sum(0, keepdim=True), len(y)
        return (there.clamp(0.5, count - 0.5) / count).logit()

    def sums(self, target: Tensor) -> Tensor:
        """(2, ...) of 1 and y."""
        y = target.double()
        return torch.stack([torch.ones_like(y), y]).sum(1)

    def constant_nll(self, sums: Tensor, best_for: Tensor) -> Tensor:
        """By the share of each label."""
        share = best_for[1].clamp_min(0.5).minimum(best_for[0] - 0.5) / best_for[0]
        return -(sums[1] * share.log() + (sums[0] - sums[1]) * (-share).log1p()).sum()

    def complaint(self, output: Tensor, target: Tensor) -> str | None:
        """The first target that is neither 0 nor 1."""
        wrong = target[(target != 0) & (target != 1)]
        if not len(wrong):
            return None
        return (
            f"target {float(wrong[0]):g} is neither 0 nor 1: bernoulli needs one of them for each "
            'label; for one class out of several use likelihood="categorical"'
        )
