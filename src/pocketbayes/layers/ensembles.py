"""Several networks that predict as one."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from pocketbayes.layers.description import (
    add_noise_parameter,
    attach_description,
    describe,
    noise_log_std,
    set_description,
)


class Ensemble(nn.Module):
    """Networks whose predictions are averaged; one forward pass is one of them, at random.

    It says of itself what its first member says; the observation noise of a regression is the
    mean of the members' variances.
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        attach_description(self)
        set_description(self, describe(self.members[0]))
        noises = [noise_log_std(member) for member in self.members]
        known = [noise.detach() for noise in noises if noise is not None]
        if known:
            add_noise_parameter(self, tuple(known[0].shape))
            noise = noise_log_std(self)
            assert noise is not None
            noise.data.copy_(torch.stack(known).mul(2).exp().mean(0).log() / 2)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output of one member, chosen at random."""
        chosen = int(torch.randint(len(self.members), ()))
        return self.members[chosen](*args, **kwargs)


def members_of(model: nn.Module) -> list[nn.Module]:
    """The members of an ensemble; of any other model, itself."""
    return list(model.members) if isinstance(model, Ensemble) else [model]
