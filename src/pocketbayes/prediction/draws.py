"""Draws of a network's output: which network runs, how often, how many at once."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pocketbayes.layers import (
    Inputs,
    bayesian_modules,
    describe,
    evaluation_mode,
    explained_failure,
    first_parameter,
    has_random_weights,
    mapped,
    members_of,
    modules_of,
    num_examples,
    posteriors_of,
    run,
    small_products,
    tensors_of,
)
from pocketbayes.posteriors import (
    Codebook,
    Drawing,
    JointDraw,
    codebooks_with_passes,
    current_drawing,
    joint_draws,
    repeated_input,
)
from pocketbayes.prediction.alone import alone, seed_of
from pocketbayes.prediction.compilation import pass_on
from pocketbayes.prediction.gaussian_outputs import MOMENTS, ONE_PASS
from pocketbayes.prediction.habits import Habits, habits_of, keep, without_many


class _Limits(NamedTuple):
    """Of what is run at once: bytes of the largest tensor, and rows of all draws."""

    bytes: int
    rows: int


# A CPU gains nothing beyond: more memory is asked of the system again and again. With no more rows
# than one draw of a usual batch has, no more memory is taken than for that.
_AT_ONCE = {"cpu": _Limits(4 << 20, 256), "cuda": _Limits(64 << 20, 1 << 16)}


_one_at_a_time: ContextVar[bool] = ContextVar("one at a time", default=False)


@contextmanager
def one_after_another() -> Iterator[None]:
    """Inside, draws of weights do not depend on how many rows there are, if these are several."""
    token = _one_at_a_time.set(True)
    try:
        yield
    finally:
        _one_at_a_time.reset(token)


@contextmanager
def drawing(
    model: nn.Module, estimator: str | None, generator: torch.Generator | None
) -> Iterator[None]:
    """Where the model draws as it predicts, in this thread; afterwards its mode is as it was.

    What goes by one pass of the mean network draws nothing; moments are by the layers' own
    estimators, and what they need of the weights is made once.
    """
    keeps = repeated_input() if estimator == MOMENTS else nullcontext()
    estimator = {ONE_PASS: "mean", MOMENTS: None}.get(estimator or "", estimator)
    keeps_dropout = describe(model).keeps_dropout
    made, modules = Drawing(estimator, seed_of(generator), keeps_dropout), modules_of(model)
    made.modules[model] = modules
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        evaluation_mode(model, keeps_dropout, modules),
        small_products(model, modules),
        made.here(),
        keeps,
    ):
        yield


@contextmanager
def drawn_alone(
    model: nn.Module, estimator: str | None, generator: torch.Generator | None
) -> Iterator[None]:
    """The same where the model is written to meanwhile: other predictions wait."""
    with drawing(model, estimator, generator):
        whole = current_drawing()
        assert whole is not None
        with alone(model, whole):
            yield


def networks_to_run(model: nn.Module, num_samples: int, estimator: str | None) -> list[nn.Module]:
    """The network to run for each draw; members of an ensemble take turns, all equally often."""
    members = members_of(model)
    is_random = estimator != "mean" and (has_random_weights(model) or describe(model).keeps_dropout)
    if not is_random:
        return members
    return members * math.ceil(num_samples / len(members))


def draws_of(passes: list[nn.Module], x: Inputs) -> Tensor:
    """(S, N, ...) outputs; x is left as it is, also by a network that writes into it."""
    whole = current_drawing()
    assert whole is not None, "draws are made inside of `drawing`"
    with explained_failure(x):
        found = {
            network: _outputs(network, passes.count(network), x, whole.part())
            for network in dict.fromkeys(passes)
        }
    if len(found) == 1:
        draws = found[passes[0]]
    else:
        one_by_one = {network: iter(outputs) for network, outputs in found.items()}
        draws = torch.stack([next(one_by_one[network]) for network in passes])
    return draws.to(torch.promote_types(draws.dtype, torch.float32))


def _outputs(network: nn.Module, count: int, x: Inputs, drawing: Drawing) -> Tensor:
    """So many outputs of one network, (count, N, ...)."""
    habits = habits_of(network, x, drawing, count)
    at_once = _how_many_at_once(network, count, habits, x)
    if at_once > 1:
        try:
            return _many_at_once(network, count, x, drawing, at_once)
        except Exception as error:
            draws_by_itself = "randomness" in str(error)
            drawing, habits = drawing.again(), without_many(habits, draws_by_itself)
    with alone(network, drawing) if habits.is_alone else drawing.here():
        found = _one_by_one(network, count, x)
    if at_once > 1:
        keep(network, habits)
    return found


def _how_many_at_once(network: nn.Module, count: int, habits: Habits, x: Inputs) -> int:
    """As many of these draws as have a bounded number of bytes, in equal parts."""
    if count == 1 or habits.is_alone or not habits.takes_many or _one_at_a_time.get():
        return 1
    limits = _AT_ONCE.get(first_parameter(network).device.type, _AT_ONCE["cpu"])
    rows = num_examples(x)
    each = max(1, habits.example_bytes * rows, habits.weight_bytes)
    parts = math.ceil(count / max(1, min(limits.bytes // each, limits.rows // rows)))
    return math.ceil(count / parts)


def _many_at_once(
    network: nn.Module, count: int, x: Inputs, drawing: Drawing, at_once: int
) -> Tensor:
    outputs, repeated = list[Tensor](), _Repeated(x)
    with drawing.here(), repeated_input(*tensors_of(repeated.x)):
        for first in range(0, count, at_once):
            drawing.begin_pass()
            number = min(at_once, count - first)
            outputs.append(drawing.at_once(number, lambda: run(network, repeated.x)))
            repeated.mend()
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _one_by_one(network: nn.Module, count: int, x: Inputs) -> Tensor:
    outputs, repeated = list[Tensor](), _Repeated(x)
    with repeated_input(*tensors_of(repeated.x)):
        with_passes = [] if count == 1 and current_drawing() else _with_passes(network, x)
        one_pass = pass_on(network, x)
        for _ in range(count):
            for drawn in with_passes:
                drawn.begin_pass()
            outputs.append(one_pass(repeated.x))
            repeated.mend()
    return outputs[0].unsqueeze(0) if count == 1 else torch.stack(outputs)


class _Repeated:
    """A copy of an input, which is mended if a network writes into it."""

    def __init__(self, x: Inputs) -> None:
        self.x = mapped(torch.clone, x)
        self._pairs = list(zip(tensors_of(self.x), tensors_of(x), strict=True))
        self._versions = [tensor._version for tensor, _ in self._pairs]

    def mend(self) -> None:
        """Makes it what it was."""
        for i, (tensor, original) in enumerate(self._pairs):
            if tensor._version != self._versions[i]:
                tensor.copy_(original)
                self._versions[i] = tensor._version


def _with_passes(network: nn.Module, x: Inputs) -> list[Codebook | JointDraw]:
    """What is drawn once in a pass of the network."""
    asked = [
        q
        for own in (posteriors_of(layer) for _, layer in bayesian_modules(network))
        for q in own.by_name().values()
        if own.estimator_now() != "mean"
        and (own.estimator_now() == "weight" or not q.is_independent)
    ]
    return [
        *codebooks_with_passes(network),
        *joint_draws(asked, any(map(_lies_channels_last, tensors_of(x)))),
    ]


def _lies_channels_last(x: Tensor) -> bool:
    return (
        x.dim() == 4
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )
