"""LP-BNN: four members share every weight, and an autoencoder in each layer draws their vectors.

Member j has the weights W_oi s_jo r_ji. W and s_j are points; r_j = D z + d for a draw of z from
q(z | f_j) = N(A f_j + a, exp(2 (B f_j + b))), where f_j is a fixed vector around 1. The loss has,
beside the KL of q to N(0, 1), the error E|f_j - r_j|^2. After G. Franchi et al. 2020,
arXiv:2012.02818; a pass here is of one member, theirs is of all.
"""

from collections.abc import Iterator
from math import log
from typing import Any

import torch
from rank_one import scaled_ as scaled_by_
from rank_one import times
from torch import Tensor, nn

import pocketbayes as pb
from pocketbayes.posteriors import Gaussian, Posterior

MEMBERS, LATENT = 4, 32  # as in the authors' code
SPREAD = 0.1  # of f and s around 1
STD_AT_FIRST = 0.1  # of z


class Averaged(nn.Linear):
    """W x / n + b, n numbers in x: a step of Adam changes it by about as much for any n."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        with torch.no_grad():
            self.weight.mul_(inputs)

    def forward(self, x: Tensor) -> Tensor:
        """The values at x."""
        return super().forward(x / self.in_features)


class Turn:
    """Whose pass this is, for all layers: a hook that runs before the network does."""

    member = 0

    def __call__(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        """Any member, each as likely."""
        self.member = int(torch.randint(MEMBERS, ()))


class Scales(nn.Module):
    """The vectors of all members of one layer, from z."""

    def __init__(self, weight: Tensor, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self.latents = nn.Parameter(weight.new_zeros(MEMBERS, LATENT))
        self.outputs = nn.Parameter(1 + SPREAD * torch.randn(MEMBERS, weight.shape[0]))
        self.decoder = Averaged(LATENT, weight.shape[1])
        nn.init.ones_(self.decoder.bias)

    def forward(self, weight: Tensor) -> Tensor:
        """The weight of the member whose turn it is."""
        member = self.turn.member
        return times(weight, self.outputs[member], self.decoder(self.latents[member]))


class Encoded(Gaussian):
    """q(z | f) of all members; its KL includes the error of decoding."""

    def __init__(self, decoder: Averaged) -> None:
        Posterior.__init__(self, 1.0, like=decoder.weight)
        width, latent = decoder.weight.shape
        self.register_buffer("fixed", 1 + SPREAD * torch.randn(MEMBERS, width))
        self.to_mean, self.to_log_std = Averaged(width, latent), Averaged(width, latent)
        nn.init.zeros_(self.to_log_std.weight)
        nn.init.constant_(self.to_log_std.bias, log(STD_AT_FIRST))
        self._decoder = (decoder,)  # a tuple: the layer's own, no second time here

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """A f + a."""
        return self.to_mean(self.fixed)

    @property
    def log_std(self) -> Tensor:  # type: ignore[override]
        """B f + b."""
        return self.to_log_std(self.fixed)

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(q || N(0, 1)) + E|f - r|^2, in closed form."""
        decoder, mean, log_std = self._decoder[0], self.mean, self.log_std
        missed = (self.fixed - decoder(mean)).square().sum()
        variance = ((2 * log_std).exp() @ (decoder.weight / LATENT).square().T).sum()
        return super().kl(prior_std) + missed + variance

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """Those of the log-stds."""
        return self.to_log_std.parameters()


def scaled_(net: nn.Module) -> nn.Module:
    """The network with such vectors in every layer; each pass is one member's."""
    turn = Turn()
    scaled_by_(net, lambda weight: Scales(weight, turn))
    net.register_forward_pre_hook(turn)
    return net


def encoded_(net: nn.Module) -> nn.Module:
    """It with an encoder in every layer, to be trained."""
    model = pb.bayesianize_(net, prior_std=1.0, include=["*.latents"], estimator="weight")
    for name, _ in list(pb.named_posteriors(model)):
        scales = model.get_submodule(name.removesuffix(".latents"))
        pb.replace_posterior(model, name, Encoded(scales.decoder))
    return model


@torch.no_grad()
def settled_(model: nn.Module) -> nn.Module:
    """What encoders say once and for all in their place: ordinary Gaussians, to be stored."""
    for name, q in list(pb.named_posteriors(model)):
        pb.replace_posterior(model, name, Gaussian(q.mean, q.log_std, q.prior_std))
    return model
