"""Predictions that know how sure they are: averages over draws of the network."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.convert import named_posteriors
from pocketbayes.description import describe, noise_log_std
from pocketbayes.dropout import dropout_modules
from pocketbayes.elbo import LIKELIHOODS, explained_failure, require_module, require_tensor
from pocketbayes.ensembles import members_of
from pocketbayes.environment import restored_mode
from pocketbayes.errors import DataError, PocketBayesError, require_choice, require_count
from pocketbayes.estimators import ESTIMATORS
from pocketbayes.layers import bayesian_modules, drawing_by
from pocketbayes.posteriors.joint_draws import JointDraw, joint_draws
from pocketbayes.posteriors.table import Table, passes_of, tables_with_passes
from pocketbayes.predictive import ClassPrediction, Prediction, ValuePrediction
from pocketbayes.randomness import isolated_randomness, seed_everything
from pocketbayes.reuse import repeated_input

AVERAGES = ("probs", "logits")


def predict(
    model: nn.Module,
    x: Tensor | Iterable[Any],
    num_samples: int = 30,
    generator: torch.Generator | None = None,
    estimator: str | None = None,
    average: str = "probs",
    batch_size: int | None = None,
    keep_samples: bool = False,
    likelihood: str | None = None,
    single: bool | None = None,
) -> Prediction:
    """Predicts with uncertainty by averaging `num_samples` draws of the network.

    A deterministic network, or the mean of a Bayesian one, is run once; an ensemble of such once
    per member.
    The model's mode and parameters are left as they were, also after an error; so are the
    global random generators if `generator` is given.

    Args:
        model: a Bayesian model, trained or not.
        x: a batch, one example (an image without batch dimension, a 1-d feature vector), or an
            iterable of batches, for instance a DataLoader, whose targets are passed over.
        num_samples: draws to average over.
        generator: makes the draws reproducible: equal models, inputs and batch sizes give equal
            predictions. It is advanced by one number.
        estimator: "lrt", "weight" (the textbook predictive: whole weight draws), "flipout" or
            "mean" (the mean network alone); None: the one the model was trained with. On
            convolutions "lrt" and "weight" are different predictives.
        average: "probs" averages probabilities; "logits" averages logits before the softmax,
            which is not the Bayesian predictive, for comparison with work that does so.
        batch_size: examples at a time, when `x` is a tensor; None: 256, or 1,024 small ones: of
            at most 4,096 numbers on a CUDA device, elsewhere of at most 1,024 and in a network
            without convolutions; never with integers or layers wider than 4,096.
        keep_samples: also return every sample's probabilities.
        likelihood: "categorical" or "gaussian"; None: as trained, else "categorical".
        single: whether `x` is one example without batch dimension; None: told from the inputs
            seen in training or, untrained, from the first convolution or linear layer.

    Returns:
        A `ClassPrediction` (`.probs .entropy .aleatoric .epistemic .variance`) or, for a
        Gaussian likelihood, a `ValuePrediction` (`.mean .std .aleatoric .epistemic`,
        `.interval(0.9)`), on the model's device.

    Example:
        >>> pred = predict(model, x, generator=torch.Generator().manual_seed(0))
        >>> unsure = pred.epistemic > 0.1
    """
    require_module(model)
    require_count(num_samples, "num_samples")
    if batch_size is not None:
        require_count(batch_size, "batch_size")
    require_choice(average, "average", AVERAGES)
    likelihood = likelihood or describe(model).likelihood or "categorical"
    require_choice(likelihood, "likelihood", LIKELIHOODS)
    if estimator is not None:
        require_choice(estimator, "estimator", ESTIMATORS)
    if not any(True for _ in bayesian_modules(model)):
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    single = isinstance(x, Tensor) and (_lacks_batch(model, x) if single is None else single)
    device = next(model.parameters()).device
    at_once = batch_size or _examples_at_once(model, x, device)
    batches = [x.unsqueeze(0)] if single else input_batches(x, at_once)  # type: ignore[union-attr]
    parts: list[Prediction] = []
    with drawing(model, estimator, generator):
        passes = networks_to_run(model, num_samples, estimator)
        for batch in batches:
            draws = draws_of(passes, batch.to(device))
            if likelihood == "gaussian":
                parts.append(_value_prediction(draws, noise_log_std(model)))
            else:
                parts.append(_class_prediction(draws, average, keep_samples))
    if not parts:
        raise DataError("there is nothing to predict: the input holds no batch")
    return _joined(parts, single)


def networks_to_run(model: nn.Module, num_samples: int, estimator: str | None) -> list[nn.Module]:
    """The network to run for each draw; members of an ensemble take turns, all equally often."""
    members = members_of(model)
    random = any(posterior.is_random for _, posterior in named_posteriors(model))
    if estimator == "mean" or not (random or describe(model).keeps_dropout):
        return members
    return members * math.ceil(num_samples / len(members))


def draws_of(passes: list[nn.Module], x: Tensor) -> Tensor:
    """(S, N, ...) outputs, from a copy of x that is mended if a network writes into it."""
    outputs, copy = [], x.clone()
    with repeated_input(copy):
        with_passes = {network: _with_passes(network, x) for network in dict.fromkeys(passes)}
        for network in passes:
            for drawn in with_passes[network]:
                drawn.begin_pass()
            version = copy._version
            with explained_failure(x):
                outputs.append(require_tensor(network(copy)))
            if copy._version != version:
                copy.copy_(x)
    draws = torch.stack(outputs)
    return draws.to(torch.promote_types(draws.dtype, torch.float32))


def _with_passes(network: nn.Module, x: Tensor) -> list[Table | JointDraw]:
    """What is drawn once in a pass of the network."""
    asked = [
        layer.posterior(name)
        for _, layer in bayesian_modules(network)
        for name in layer.posteriors
        if layer.estimator != "mean"
        and (layer.estimator == "weight" or not layer.posterior(name).is_independent)
    ]
    return [*tables_with_passes(network), *joint_draws(asked, _lies_channels_last(x))]


def _lies_channels_last(x: Tensor) -> bool:
    return (
        x.dim() == 4
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _class_prediction(draws: Tensor, average: str, keep_samples: bool) -> ClassPrediction:
    if draws.dim() < 3:
        raise DataError(
            f"the model's output has shape {tuple(draws.shape[1:])}; a categorical prediction "
            'needs (batch, classes, ...). Is this a regression? Then likelihood="gaussian"'
        )
    samples = draws.softmax(2)
    probs = samples.mean(0) if average == "probs" else draws.mean(0).softmax(1)
    entropy = torch.special.entr(probs).sum(1)
    aleatoric = torch.special.entr(samples).sum(2).mean(0)
    return ClassPrediction(
        num_samples=len(draws),
        samples=samples if keep_samples else None,
        probs=probs,
        entropy=entropy,
        aleatoric=aleatoric,
        epistemic=(entropy - aleatoric).clamp_min(0) if average == "probs" else entropy - aleatoric,
        variance=samples.var(0, correction=0),
    )


def _value_prediction(draws: Tensor, log_std: Tensor | None) -> ValuePrediction:
    mean, epistemic = draws.mean(0), draws.var(0, correction=0)
    noise = torch.zeros_like(mean) if log_std is None else (2 * log_std).exp().expand_as(mean)
    return ValuePrediction(
        num_samples=len(draws),
        samples=draws,
        mean=mean,
        std=(noise + epistemic).sqrt(),
        aleatoric=noise,
        epistemic=epistemic,
    )


def _joined(parts: list[Prediction], single: bool) -> Prediction:
    """One prediction from those of the batches; for a single example, without batch dimension."""
    kind, joined = type(parts[0]), dict[str, Any]()
    for name in kind.__dataclass_fields__:
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], Tensor):
            dim = 1 if name == "samples" else 0
            value = torch.cat(values, dim)
            joined[name] = value.squeeze(dim) if single else value
        else:
            joined[name] = values[0]
    if single and kind is ClassPrediction:
        joined["class_dim"] = 0
    return kind(**joined)


def input_batches(x: object, size: int) -> Iterator[Tensor]:
    """The inputs of a loader of inputs or pairs, or the parts of one tensor."""
    if isinstance(x, Tensor):
        if x.dim() == 0 or len(x) == 0:
            raise DataError(f"the input has shape {tuple(x.shape)}: there is nothing to predict")
        yield from torch.split(x, size)
    elif isinstance(x, Iterable) and not isinstance(x, dict | str):
        for item in x:
            first = item[0] if isinstance(item, list | tuple) and item else item
            if not isinstance(first, Tensor):
                raise DataError(
                    f"the input yields a {type(item).__name__}; it must yield tensors, or pairs "
                    "whose first is one"
                )
            yield first
    else:
        raise DataError(f"the input is a {type(x).__name__}; pass a tensor or a loader")


def _examples_at_once(model: nn.Module, x: object, device: torch.device) -> int:
    """256, or 1,024 where these take little memory: small inputs, no wide layer.

    On a CPU no convolution either. On a GPU fewer would wait for the launches of small kernels.
    """
    on_gpu = device.type == "cuda"
    is_small = (
        isinstance(x, Tensor)
        and x.is_floating_point()
        and x.numel() <= (4096 if on_gpu else 1024) * (len(x) if x.dim() else 1)
        and all(max(q.shape, default=1) <= 4096 for _, q in named_posteriors(model))
        and (on_gpu or not any(isinstance(m, nn.modules.conv._ConvNd) for m in model.modules()))
    )
    return 1024 if is_small else 256


def _lacks_batch(model: nn.Module, x: Tensor) -> bool:
    """Whether x is one example: an image for a convolution, or features for a linear layer."""
    trained_on = describe(model).input_dims
    if trained_on is not None:
        return x.dim() == trained_on - 1
    if not x.is_floating_point():
        return False
    for module in model.modules():
        if isinstance(module, nn.modules.conv._ConvNd):
            return x.dim() == len(module.kernel_size) + 1
        if isinstance(module, nn.Linear):
            return x.dim() == 1
    return False


@contextmanager
def drawing(
    model: nn.Module, estimator: str | None, generator: torch.Generator | None
) -> Iterator[None]:
    """Where the model draws as it predicts; afterwards its mode is as it was.

    With a generator the global ones are so, too.
    """
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        ready_to_predict(model, estimator),
        seeded(generator, next(model.parameters()).device),
        passes_of(model),
    ):
        yield


@contextmanager
def ready_to_predict(model: nn.Module, estimator: str | None) -> Iterator[None]:
    """Evaluation mode and the wanted estimator; afterwards every module is as it was."""
    with drawing_by(model, estimator), restored_mode(model):
        model.eval()
        if describe(model).keeps_dropout and estimator != "mean":
            for module in dropout_modules(model):
                module.training = True
        yield


@contextmanager
def seeded(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """With a generator: a fork of the default generators, seeded by its next number."""
    if generator is None:
        yield
        return
    if not isinstance(generator, torch.Generator):
        raise PocketBayesError(f"generator must be a torch.Generator; got {generator!r}")
    seed = int(
        torch.empty((), dtype=torch.int64, device=generator.device).random_(generator=generator)
    )
    with isolated_randomness(device):
        seed_everything(seed, device)
        yield
