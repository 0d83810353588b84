"""Several networks that predict as one."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from pocketbayes.layers.description import (
    add_noise_parameter,
    attach_description,
    describe,
    noise_parameters,
    set_description,
    set_head,
)


class Ensemble(nn.Module):
    """Networks whose predictions are averaged; one forward pass is one of them, at random.

    It says of itself what its first member says; the observation noise of a regression is the
    root mean square of the members', and so is what else a likelihood has learned. One-pass heads
    of members are dropped.
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        attach_description(self)
        for member in self.members:
            set_head(member, None)
        set_description(self, describe(self.members[0]))
        noises = [noise_parameters(member) for member in self.members]
        for name in noises[0]:
            known = torch.stack([noise[name].detach() for noise in noises if name in noise])
            add_noise_parameter(self, tuple(known.shape[1:]), name)
            noise_parameters(self)[name].data.copy_(known.mul(2).exp().mean(0).log() / 2)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output of one member, chosen at random."""
        chosen = int(torch.randint(len(self.members), ()))
        return self.members[chosen](*args, **kwargs)


def members_of(model: nn.Module) -> list[nn.Module]:
    """The members of an ensemble; of any other model, itself."""
    return list(model.members) if isinstance(model, Ensemble) else [model]
