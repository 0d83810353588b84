"""What every method has: training defaults, and the moments at which it may act."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, require_choice, require_number
from pocketbayes.layers import named_posteriors, replace_posterior
from pocketbayes.methods.schedules import lr_scale
from pocketbayes.posteriors import as_point, as_random, as_unshared

Gradients = dict[str, Tensor]
PRIORS = ("learned", "fixed")
WITHOUT_INCLUSION_VARIABLES = (
    "take the inclusion variables out first with fit(model, loader, Deterministic(), epochs=0), "
    "which leaves what weights are on average"
)


@dataclass(frozen=True)
class StepContext:
    """What a method may use after an optimiser step.

    Attributes:
        step: optimiser steps so far, from 1.
        progress: share of training that has passed, from 0 to 1.
        optimizers: those of the run, to keep their state in step with changed parameters.
        dense_gradients: `dense_gradients(estimator)` gives, for each sparse posterior by name, the
            gradient of the expected negative log-likelihood of the step's batch at every weight,
            also those that are not there, averaged over processes. An extra pass: the network's
            own state, its gradients and the run's noise stay as they are.
        memory: tensors to keep from step to step; they are part of the checkpoint.
        dataset_size: number of training examples.
        beta: weight of the KL in this step.
    """

    step: int
    progress: float
    optimizers: Sequence[torch.optim.Optimizer]
    dense_gradients: Callable[[str | None], Gradients]
    memory: dict[str, Tensor]
    dataset_size: int
    beta: float


@dataclass(frozen=True)
class StartContext:
    """What a method may use before the first step, once posteriors are there, and after the last.

    Attributes:
        mean_gradients: runs once over the data and gives, for each posterior by name, the mean
            over batches of the gradient's absolute value at every mean, averaged over processes.
        memory: tensors to keep for later; see `StepContext`.
        refresh_norms: estimates the statistics of batch norms anew on the training data, the same
            on every process; does nothing if there are none.
        refresh: the same, and then of the noise of a regression.
        curvatures: `curvatures(only_last, most)` gives, for points by name, N times the mean over
            examples of the diagonal of the generalised Gauss-Newton matrix: at the last layer only
            or at all, from at most so many directions per example. Before that it estimates the
            noise of a regression anew, on the validation data if there are any.
        validation_nll: of the model's predictions for the validation data; None without any.
    """

    mean_gradients: Callable[[], Gradients]
    memory: dict[str, Tensor]
    refresh_norms: Callable[[], None]
    refresh: Callable[[], None]
    curvatures: Callable[[bool, int], Gradients]
    validation_nll: Callable[[], float] | None


@dataclass(frozen=True, kw_only=True)
class Method:
    """Settings that all methods share; each method's config has its own defaults.

    Attributes:
        lr: peak learning rate of means and deterministic parameters; falls as a cosine. None: by
            likelihood, network and data; `fit` says how.
        lr_warmup: share of training over which all learning rates rise linearly to their peak.
        std_lr: peak learning rate of log-stds, which always use Adam: their KL gradient is about
            beta / N, too small for SGD to feel.
        noise_lr: the same of the log-std of a regression's noise; None: `std_lr`.
        optimizer: "adamw" or "sgd" (with Nesterov momentum), for the means.
        momentum: of SGD.
        weight_decay: on the means of weights only, on top of the KL.
        clip_norm: largest norm of the gradient of the means; None: not clipped.
    """

    keeps_dropout: ClassVar[bool] = False
    trains: ClassVar[bool] = True  # else `fit` makes no pass but those of `begin`
    averages: ClassVar[bool] = False  # over epochs: there is no best one

    lr: float | None = None
    lr_warmup: float = 0.05
    std_lr: float = 1e-2
    noise_lr: float | None = None
    optimizer: str = "adamw"
    momentum: float = 0.9
    weight_decay: float = 0.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        kind = type(self).__name__
        for name in ("lr", "std_lr", "noise_lr", "weight_decay"):
            if getattr(self, name) is not None:
                require_number(getattr(self, name), f"{kind}.{name}", least=0)
        require_number(self.lr_warmup, f"{kind}.lr_warmup", least=0, most=0.9)
        require_number(self.momentum, f"{kind}.momentum", least=0, most=0.9999)
        require_choice(self.optimizer, f"{kind}.optimizer", ("adamw", "sgd"))
        if self.clip_norm is not None:
            require_number(self.clip_norm, f"{kind}.clip_norm", above=0)

    @property
    def peak_lr(self) -> float:
        """The peak learning rate, which must be chosen by now."""
        if self.lr is None:
            raise PocketBayesError(f"lr of {type(self).__name__} is not chosen yet: fit does so")
        return self.lr

    @property
    def noise_rate(self) -> float:
        """The peak learning rate of a regression's noise."""
        return self.std_lr if self.noise_lr is None else self.noise_lr

    @property
    def resizes(self) -> bool:
        """Whether `after_step` may put parameters of another size in place of old ones."""
        return False

    def lr_share(self, progress: float) -> float:
        """The learning rates, as a share of their peaks, when this share of training has passed."""
        return lr_scale(progress, self.lr_warmup)

    def kl_weight(self, progress: float) -> float:
        """The KL's weight when this share of training has passed; 0: there is none."""
        return 0.0

    def stages(self) -> tuple["Method", int, "Method"] | None:
        """What the model is trained by first, its epochs, and what then follows; None: one run."""
        return None

    def start(self, model: nn.Module) -> None:
        """Prepares the posteriors; comes before optimisers and DDP are set up."""
        if not any(True for _ in named_posteriors(model)):
            raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")

    def begin(self, model: nn.Module, context: StartContext) -> None:
        """Follows `start`; may look at the data and replace posteriors."""

    def after_step(self, model: nn.Module, context: StepContext) -> bool:
        """Follows every optimiser step; returns whether it replaced a parameter."""
        return False

    def after_epoch(self, model: nn.Module, epoch: int, memory: dict[str, Tensor]) -> None:
        """Follows every pass over the data, counted from 1; keeps all parameters."""

    def finish(self, model: nn.Module, context: StartContext) -> None:
        """Follows the last step; may look at the data once more and replace posteriors."""

    def settings(self) -> dict[str, object]:
        """Name and fields, for the checkpoint and the history."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {n: v.item() if hasattr(v, "item") else v for n, v in values.items()}
        return {"method": type(self).__name__} | plain


@dataclass(frozen=True, kw_only=True)
class VariationalMethod(Method):
    """A method that minimises nll + beta / N KL.

    Attributes:
        beta: weight of the KL; 1 is Bayes' rule, less is a tempered posterior, narrower than
            Bayes'. None: by likelihood and network; `fit` says how.
        least_beta: with it beta falls with the doubt that training leaves about class labels,
            max(least_beta, beta doubt); doubt is NLL + KL / (10 N) of the last epoch as a share of
            the entropy of the labels, at most 1. None: beta stays; of beta=None, as for beta.
        prior: "learned" (the prior variance of each tensor follows mean(mean^2 + std^2), where its
            KL is least) or "fixed" (as `bayesianize_` set it). None: as for beta.
        warmup: share of training over which beta rises from 0. None: as for beta.
        std_init: std that the weights of a deterministic network start with. None: a tenth of the
            root mean square of each tensor.
    """

    beta: float | None = None
    least_beta: float | None = None
    prior: str | None = None
    warmup: float | None = None
    std_init: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = type(self).__name__
        if self.beta is not None:
            require_number(self.beta, f"{kind}.beta", least=0)
        if self.least_beta is not None:
            most = float("inf") if self.beta is None else self.beta
            require_number(self.least_beta, f"{kind}.least_beta", least=0, most=most)
        if self.prior is not None:
            require_choice(self.prior, f"{kind}.prior", PRIORS)
        if self.warmup is not None:
            require_number(self.warmup, f"{kind}.warmup", least=0, most=1)
        if self.std_init is not None:
            require_number(self.std_init, f"{kind}.std_init", above=0, most=1e6)

    def kl_weight(self, progress: float) -> float:
        """Beta, after a linear rise from 0 over the share `warmup` of training."""
        if self.beta is None or self.warmup is None:
            raise PocketBayesError(
                f"beta and warmup of {type(self).__name__} are not chosen yet: fit does so"
            )
        return self.beta * (min(1.0, progress / self.warmup) if self.warmup > 0 else 1.0)

    def start(self, model: nn.Module) -> None:
        """Gives every deterministic weight a Gaussian to train, and all a Gaussian prior."""
        super().start(model)
        points_to_gaussians_(model, self.std_init)


def unshare_(model: nn.Module) -> None:
    """Gives every weight a mean and std of its own again; refuses inclusion variables."""
    require_no_inclusion_variables(model, "prune_(model) first, then they are sparse")
    for name, posterior in list(named_posteriors(model)):
        replace_posterior(model, name, as_unshared(posterior))


def require_no_inclusion_variables(model: nn.Module, advice: str) -> None:
    """An error, with this advice, if weights of the model have inclusion variables."""
    for name, posterior in named_posteriors(model):
        if any(True for _ in posterior.inclusion_parameters()):
            raise PocketBayesError(f"the weights of {name} have inclusion variables: {advice}")


def make_points_(model: nn.Module) -> None:
    """Turns every posterior into a point at its mean; a sparse one keeps its support."""
    for name, posterior in list(named_posteriors(model)):
        replace_posterior(model, name, as_point(posterior))


def points_to_gaussians_(model: nn.Module, std: float | None) -> None:
    """Turns points into Gaussians of this std around them; see `as_random`."""
    for name, posterior in list(named_posteriors(model)):
        replace_posterior(model, name, as_random(posterior, std))
