"""A model that trains in parts: each process holds its share of every posterior (FSDP2)."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import BayesianModule, Inputs, named_posteriors
from pocketbayes.likelihoods import Objective
from pocketbayes.methods import IVON, Method, agree_on_state, agreed
from pocketbayes.posteriors import Gaussian, Point, is_split
from pocketbayes.training.flatness import flatness_of

STRATEGIES = ("ddp", "fsdp")


class Shards:
    """The model that trains, split over processes, beside the plain one that all else sees.

    A layer is whole while it runs; in between a process holds 1 / n of its means, log-stds,
    gradients and optimiser state. The plain model lies in main memory meanwhile.

    Attributes:
        model: what the optimisers train.
    """

    def __init__(self, fabric: Any, plain: nn.Module, likelihood: str) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        agree_on_state(plain)
        self.fabric, self.plain = fabric, plain
        self.set_aside()
        self.model = copy.deepcopy(plain)
        # FSDP2 adds up gradients on a stream of its own: the KL's must be there before.
        self.objective = Objective(self.model, likelihood, kl_first=False)
        mesh = init_device_mesh(fabric.device.type, (fabric.world_size,))
        for layer in layers_to_split(self.model):
            fully_shard(layer, mesh=mesh)
        fully_shard(self.objective, mesh=mesh)

    def __call__(self, x: Inputs, y: Tensor, kl_weight: Tensor) -> Any:
        """Loss and its parts, as of `Objective`, in the precision of the run."""
        with self.fabric.autocast():
            return self.objective(x, y, kl_weight)

    def set_aside(self) -> None:
        """Takes the plain model to main memory."""
        self.plain.to("cpu")

    @torch.no_grad()
    def gather(self) -> None:
        """Gives the plain model, on its device again, what all have trained; all call it at once.

        Buffers, like running statistics, are those of the first process.
        """
        self.plain.to(self.fabric.device)
        own = dict(self.plain.named_parameters())
        for name, parameter in self.model.named_parameters():
            own[name].copy_(whole(parameter))
        buffers = dict(self.plain.named_buffers())
        for name, buffer in self.model.named_buffers():
            buffers[name].copy_(agreed(buffer) if buffer.is_floating_point() else buffer)


def require_splittable(model: nn.Module, method: Method) -> None:
    """An error unless model and method go with parts of posteriors."""
    name = type(method).__name__
    if flatness_of(method) > 0:
        raise PocketBayesError(
            f"{name}.flatness needs the length of whole gradients, of which a process here holds "
            'a part: use strategy="ddp", or flatness=0'
        )
    if type(method).after_step is not Method.after_step or isinstance(method, IVON):
        raise PocketBayesError(
            f'{name} looks at whole posteriors in its steps: use strategy="ddp"; '
            'MeanField, Deterministic and MCDropout go with strategy="fsdp"'
        )
    for weight, posterior in named_posteriors(model):
        if type(posterior) not in (Gaussian, Point):
            raise PocketBayesError(
                f"{weight} has a {type(posterior).__name__} posterior, which cannot be split over "
                'processes: use strategy="ddp"'
            )
    for weight, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise PocketBayesError(
                f"{weight} is a single number without a dimension, which cannot be split over "
                'processes: give it the shape (1,), or use strategy="ddp"'
            )


def layers_to_split(model: nn.Module) -> list[BayesianModule]:
    """The outermost Bayesian layers whose posteriors belong to no other one.

    All other parameters are whole on every process during a step, and in parts between steps.
    """
    layers = list(_outermost(model))
    users: dict[int, set[int]] = {}
    for layer in layers:
        for parameter in layer.parameters():
            users.setdefault(id(parameter), set()).add(id(layer))
    tied = {user for found in users.values() if len(found) > 1 for user in found}
    return [layer for layer in layers if id(layer) not in tied]


def _outermost(module: nn.Module, seen: set[int] | None = None) -> Iterator[BayesianModule]:
    seen = set() if seen is None else seen
    if id(module) in seen:
        return
    seen.add(id(module))
    if isinstance(module, BayesianModule):
        yield module
        return
    for child in module.children():
        yield from _outermost(child, seen)


def whole(tensor: Tensor) -> Tensor:
    """All of it, on every process; all call it at once."""
    return tensor.full_tensor() if is_split(tensor) else tensor  # type: ignore[attr-defined]


def whole_states(optimizers: Sequence[Optimizer]) -> list[dict[str, Any]]:
    """The state dicts of optimisers with all of every tensor; all processes call it at once."""
    found = [optimizer.state_dict() for optimizer in optimizers]
    for stored in found:
        stored["state"] = {
            key: {n: whole(v).cpu() if _is_part(v) else v for n, v in kept.items()}
            for key, kept in stored["state"].items()
        }
    return found


def split_states_(optimizers: Sequence[Optimizer]) -> None:
    """Lets optimisers, whose state came from a file, keep their process's part of it."""
    from torch.distributed.tensor import distribute_tensor

    for optimizer in optimizers:
        for parameter, kept in optimizer.state.items():
            if not is_split(parameter):
                continue
            place: Any = parameter
            for name, value in kept.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    kept[name] = distribute_tensor(value, place.device_mesh, place.placements)


def _is_part(value: object) -> bool:
    return isinstance(value, Tensor) and is_split(value)
