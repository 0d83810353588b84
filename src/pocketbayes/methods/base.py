"""What every method has: training defaults, and three moments at which it may act."""

from dataclasses import dataclass, fields

from torch import nn

from pocketbayes.convert import named_posteriors
from pocketbayes.errors import PocketBayesError, require_choice, require_number


@dataclass(frozen=True)
class Method:
    """Settings that all methods share; each method's config has its own defaults.

    Attributes:
        beta: weight of the KL; 1 is Bayes' rule, less is a colder posterior.
        warmup: share of training over which beta rises from 0.
        lr: peak learning rate of means and deterministic parameters; falls as a cosine.
        lr_warmup: share of training over which all learning rates rise linearly to their peak.
        std_lr: the same for log-stds, which always use Adam: their KL gradient is about
            beta / N, too small for SGD to feel.
        optimizer: "adamw" or "sgd" (with Nesterov momentum), for the means.
        momentum: of SGD.
        weight_decay: on posterior means only, on top of the KL.
        clip_norm: largest norm of the gradient of the means; None: not clipped.
    """

    beta: float = 0.01
    warmup: float = 0.5
    lr: float = 3e-3
    lr_warmup: float = 0.05
    std_lr: float = 1e-2
    optimizer: str = "adamw"
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        kind = type(self).__name__
        for name in ("beta", "lr", "std_lr", "weight_decay"):
            require_number(getattr(self, name), f"{kind}.{name}", least=0)
        require_number(self.warmup, f"{kind}.warmup", least=0, most=1)
        require_number(self.lr_warmup, f"{kind}.lr_warmup", least=0, most=0.9)
        require_number(self.momentum, f"{kind}.momentum", least=0, most=0.9999)
        require_choice(self.optimizer, f"{kind}.optimizer", ("adamw", "sgd"))
        if self.clip_norm is not None:
            require_number(self.clip_norm, f"{kind}.clip_norm", above=0)

    def start(self, model: nn.Module) -> None:
        """Prepares the posteriors; comes before optimisers and DDP are set up."""
        if not any(True for _ in named_posteriors(model)):
            raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")

    def after_step(self, model: nn.Module, step: int) -> None:
        """Follows every optimiser step; `step` counts from 1."""

    def finish(self, model: nn.Module) -> None:
        """Follows the last step."""

    def settings(self) -> dict[str, object]:
        """Name and fields, for the checkpoint and the history."""
        return {"method": type(self).__name__} | {
            field.name: getattr(self, field.name) for field in fields(self)
        }
