"""From a network whose units are dead to one without them."""

import copy
import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import (
    BayesianModule,
    Ensemble,
    bayesian_modules,
    called,
    describe,
    drawing_by,
    head_knows_weights,
    named_posteriors,
    note_shrunk,
    numbers_changed,
    one_draw,
    posteriors_of,
    update_description,
)
from pocketbayes.posteriors import SpikeSlab, isolated_randomness
from pocketbayes.shrinking.cutting import cut_, kept_cells
from pocketbayes.shrinking.following import Follower
from pocketbayes.shrinking.operations import outputs_in
from pocketbayes.shrinking.steps import Comparison, rounding_of

Example = tuple[Any, ...] | dict[str, Any]


@torch.no_grad()
def shrink(model: nn.Module, example: Tensor | Example) -> nn.Module:
    """A copy of the model without the units, channels and features that do nothing.

    The layers of the copy have fewer inputs and outputs, so that it is smaller and faster, and its
    outputs in evaluation mode have the same distribution. A unit goes if nothing reads it, or if
    all its weights are gone. Such a unit is not 0 but a constant: its bias, and after a norm and an
    activation another number. Of the constants c_d that a layer reads one, c_e, stays for all:

        w_e c_e = sum_d w_d c_d,  E w_e = sum_d r_d E w_d,  Var w_e = sum_d r_d^2 Var w_d,

    with r_d = c_d / c_e.

    A constant that stays has no weights, so that its layer is a sparse one even if all others are
    there: no Gaussian is exactly 0. A layer whose weights all read zeros becomes a point at 0,
    which `MeanField` makes live again, as it does with every point.

    The network is run on the example, and every operation of torch followed, so that its code may
    be anything. A head of attention goes as a whole, when its values are gone or nothing reads it,
    whether the code is torch's or another library's; numbers of heads and widths that modules keep
    are set to what is left. Inputs and outputs stay as they are, and so do tied, grouped and shared
    weights and what goes into a norm over channels, a recurrent layer, or an operation that is not
    known. The copy is compared with the model after each operation; what would differ stays whole.

    Of control flow the way is followed that the example takes, and numbers that the code takes from
    the size of an input are the example's: let it have the size that the model will see. After code
    that reads numbers of the example (`if x.max() > 0`) no constant is taken for one.

    Args:
        model: one with weights that are exactly 0: pruned after `SpikeSlab`, trained by
            `Subspace(structure="channel")`, `RigL`, or a plain network. It is left as it is.
        example: a batch of inputs as the model will see them, a tuple of the arguments of
            `forward`, or a dictionary of them, on the model's device.

    Raises:
        PocketBayesError: inclusion variables that `prune_` has not decided yet, an example that
            does not fit, or outputs that differ, as where a network draws random numbers.

    Example:
        >>> small = shrink(prune_(model), images[:8])
    """
    _require_decided(model)
    args: Example = example if isinstance(example, tuple | dict) else (example,)
    _require_example(model, args)
    whole = _copy(model)
    if isinstance(whole, BayesianModule):
        return whole  # one layer: its inputs and outputs are the network's
    follower, before = _followed(whole, args)
    small, kept = _cut(whole, follower, args)
    if not kept.all():
        with _evaluating(small):
            _require_same(small, args, before)
        _forget_name(small)
        note_shrunk(small, numbers_changed(whole, small))
    head_knows_weights(small)
    return small


def _require_decided(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise PocketBayesError(f"shrink takes a torch.nn.Module, not {type(model).__name__}")
    if isinstance(model, Ensemble):
        raise PocketBayesError("shrink takes one network: shrink each of model.members instead")
    for name, posterior in named_posteriors(model):
        if isinstance(posterior, SpikeSlab):
            raise PocketBayesError(
                f"{name} has inclusion variables that are not decided yet: call prune_ first"
            )


def _require_example(model: nn.Module, args: Example) -> None:
    """An error if the forward pass does not take such arguments, or they hold no input."""
    try:
        signature = inspect.signature(model.forward)
        signature.bind(**args) if isinstance(args, dict) else signature.bind(*args)
    except TypeError as error:
        raise PocketBayesError(
            f"the forward pass of {type(model).__name__} does not take the example ({error}): pass "
            "inputs without targets; a tuple holds all arguments of forward"
        ) from error
    if any(isinstance(leaf, Tensor) and leaf.numel() == 0 for leaf in tree_leaves(args)):
        raise PocketBayesError("the example is empty: pass a batch of at least one input")


def _first_line(error: Exception) -> str:
    """What went wrong, without the tracer's advice to its authors."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _copy(model: nn.Module) -> nn.Module:
    """A copy; tensors that hooks computed for the last pass are computed anew."""
    computed = (t for module in model.modules() for t in vars(module).values())
    memo = {id(t): t.detach() for t in computed if isinstance(t, Tensor) and not t.is_leaf}
    return copy.deepcopy(model, memo)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, the network is in evaluation mode and without noise."""
    modes = [(module, module.training) for module in model.modules()]
    eager: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    try:
        with drawing_by(model.eval(), "mean"), one_draw(model), eager:
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        for _, layer in bayesian_modules(model):
            posteriors_of(layer).train(layer.training)


@contextmanager
def _same_noise(model: nn.Module) -> Iterator[None]:
    """Inside, random numbers are the same each time."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    with isolated_randomness(device):
        torch.manual_seed(0)
        yield


def _followed(model: nn.Module, args: Example) -> tuple[Follower, Any]:
    """The model's channels, and what it gives for the example."""
    with _evaluating(model), _same_noise(model):
        follower = Follower(model, describe(model).keeps_dropout)
        try:
            with follower.running, follower:
                result = called(model, _copied(args))
        except Exception as error:
            raise PocketBayesError(
                f"the example does not go through the network ({_first_line(error)}): pass a batch "
                "of inputs as the model will see them, also if it is one of a single input, x[:1]"
            ) from error
        follower.end(result)
    return follower, result


def _cut(model: nn.Module, follower: Follower, args: Example) -> tuple[nn.Module, Tensor]:
    """A smaller copy, which does step by step what the model did, and the marks of what stays.

    Where it does something else, whatever takes part there stays, and all is done again.
    """
    while True:
        kept = kept_cells(follower)
        small = _copy(model)
        cut_(small, follower, kept)
        wrong = None if kept.all() else _first_difference(small, follower, kept, args)
        if wrong is None or not follower.keep_at(wrong):
            return small, kept


def _first_difference(
    small: nn.Module, follower: Follower, kept: Tensor, args: Example
) -> int | None:
    """The number of the first step that is not what it was; None: there is none."""
    comparison = Comparison(small, follower.steps, kept)
    with _evaluating(small), _same_noise(small):
        try:
            with comparison.running, comparison:
                called(small, _copied(args))
        except Exception:
            return comparison.number
    return None


def _copied(args: Example) -> Any:
    """The arguments for a pass that may overwrite them."""
    return tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, args)


def _require_same(model: nn.Module, args: Example, before: Any) -> None:
    """An error if the smaller network does not compute what the larger did."""
    try:
        after = called(model, _copied(args))
    except Exception as error:
        raise PocketBayesError(
            f"{type(model).__name__} depends on the widths of its layers ({_first_line(error)}): "
            "use the model as it is, or shrink its parts"
        ) from error
    if not _is_same(before, after):
        again = called(model, _copied(args))
        raise PocketBayesError(f"{type(model).__name__} {_why_other(before, after, again)}")


def _is_same(before: Any, after: Any) -> bool:
    """Whether all outputs agree but for rounding."""
    for old, new in zip(outputs_in(before), outputs_in(after), strict=True):
        if old.is_floating_point() and old.numel():
            scale = old.abs().max().clamp_min(1e-6)
            most = rounding_of(old) * scale
            if old.shape != new.shape or not (new - old).abs().max() <= most:
                return False
    return True


def _why_other(before: Any, after: Any, again: Any) -> str:
    """What may be the matter when outputs are not what they were."""
    numbers = [t for t in outputs_in(before) if t.is_floating_point()]
    if not all(bool(t.isfinite().all()) for t in numbers):
        return (
            "makes infinite outputs, or some that are not numbers, of this example, so that there "
            "is nothing to compare: pass another example, or look for such weights"
        )
    if not _is_same(after, again):
        return (
            "draws random numbers of its own in the forward pass, so that there is nothing to "
            "compare: shrink its parts without them"
        )
    return (
        "would not compute the same without its dead channels, perhaps as it reads weights outside "
        "of their layers, or as rounding adds up: use the model as it is, or shrink its parts"
    )


def _forget_name(model: nn.Module) -> None:
    """It is no longer a network of the library's table, which a file could name."""
    for module in model.modules():
        module.__dict__.pop("pocketbayes_network", None)
    if describe(model).network is not None:
        update_description(model, network=None)
