"""Losses of heads: finite, with finite gradients, where labels are certain."""

import torch

from pocketbayes.distillation.losses import label_entropy, label_loss


def test_labels_that_are_certain_have_a_loss_and_gradients():
    mean = torch.tensor([[30.0, -120.0], [0.5, 500.0]], requires_grad=True)
    draws = torch.stack([mean.detach() + shift for shift in (-1.0, 0.0, 1.0)])
    loss = label_loss(mean, torch.full_like(mean, 0.01), draws)
    loss.backward()
    assert loss.isfinite()
    assert mean.grad.isfinite().all()


def test_the_entropy_of_labels_is_that_of_their_probabilities():
    p = torch.tensor([0.3, 0.5, 0.999], dtype=torch.float64)
    expected = torch.special.entr(p) + torch.special.entr(1 - p)
    torch.testing.assert_close(label_entropy(p.logit()), expected)
