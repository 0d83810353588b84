"""cSG-MCMC: one network goes through cycles of rates and noise; each cycle leaves a sample."""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import nn

from pocketbayes.errors import PocketBayesError, require_number
from pocketbayes.methods.base import StartContext, StepContext
from pocketbayes.methods.deep_ensemble import DeepEnsemble
from pocketbayes.methods.deterministic import Deterministic
from pocketbayes.methods.processes import agreed


@dataclass(frozen=True, kw_only=True)
class LangevinCycle(Deterministic):
    """One cycle: `Deterministic` by SGD, with noise after its first part.

    After each step of rate a and momentum m every trained parameter moves by

        sqrt(2 temperature a / ((1 - m) N)) eps,   eps ~ N(0, 1),

    so that it wanders over p(w | D)^(1 / temperature), weight decay being the prior.
    """

    optimizer: str = "sgd"
    lr: float | None = 0.1
    weight_decay: float = 5e-4
    noise_from: float = 0.75
    temperature: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer != "sgd":
            raise PocketBayesError(
                f"the noise of cSG-MCMC is that of steps of SGD; got optimizer={self.optimizer!r}"
            )
        kind = type(self).__name__
        require_number(self.noise_from, f"{kind}.noise_from", least=0, most=1)
        require_number(self.temperature, f"{kind}.temperature", least=0)

    def begin(self, model: nn.Module, context: StartContext) -> None:
        """Agrees on the noise: it is the same on every process, and after a checkpoint."""
        context.memory["noise"] = agreed(torch.randint(2**24, ()).float())

    @torch.no_grad()
    def after_step(self, model: nn.Module, context: StepContext) -> bool:
        """Adds the noise of this step."""
        if context.progress < self.noise_from or self.temperature == 0:
            return False
        seed = int(context.memory["noise"]) * 2**32 + context.step
        generators = dict[torch.device, torch.Generator]()
        for group in context.optimizers[0].param_groups:
            rate = group["lr"] / (1 - self.momentum)
            std = math.sqrt(2 * self.temperature * rate / context.dataset_size)
            for p in group["params"]:
                if p.device not in generators:
                    generators[p.device] = torch.Generator(p.device).manual_seed(seed)
                p += std * torch.empty_like(p).normal_(generator=generators[p.device])
        return False


@dataclass(frozen=True, kw_only=True)
class CyclicalSGMCMC(LangevinCycle, DeepEnsemble):
    """Cyclical stochastic gradient MCMC (Zhang et al. 2020, arXiv:1902.03932).

    One network goes through `members` cycles of `epochs` passes each. The learning rate of a cycle
    falls as a cosine: large rates find another mode, small ones with noise draw a sample there.
    The samples are an ensemble: `fit` returns it as `result.model`, a new model.

    Attributes:
        members: cycles, and networks that a prediction averages.
        noise_from: share of a cycle that is plain SGD.
        temperature: of the noise; 1 is Bayes' rule, 0 none: a snapshot ensemble.
    """

    restarts: ClassVar[bool] = False

    def member(self) -> LangevinCycle:
        """One cycle."""
        return LangevinCycle(**{f.name: getattr(self, f.name) for f in fields(LangevinCycle)})
