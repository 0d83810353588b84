"""Files of what was trained on top of a frozen network, the base, which they name by a digest."""

import hashlib
from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm

from pocketbayes.codec.arrays import spec_of
from pocketbayes.codec.extra_state import is_extra
from pocketbayes.codec.header import Header
from pocketbayes.codec.state import plain_state
from pocketbayes.errors import FormatError, PocketBayesError
from pocketbayes.layers import NOISES, PREFIX, Ensemble

Base = dict[str, Any]


def frozen_state(model: nn.Module) -> set[str]:
    """Names of the plain state that are the base's: frozen parameters, and buffers beside them.

    Buffers of a module that trains parameters of its own may move with these; statistics of norms
    and vectors of spectral norms always do.
    """
    moving = {id(b) for m in model.modules() if _may_move(m) for b in m._buffers.values()}
    return {
        name
        for name, value in plain_state(model).items()
        if not (is_extra(name) or name in NOISES or name.startswith(PREFIX))
        if id(value) not in moving and not value.requires_grad
    }


def _may_move(module: nn.Module) -> bool:
    """Whether its own buffers may change in training."""
    learns = any(p.requires_grad for p in module.parameters(recurse=False))
    return learns or isinstance(module, _NormBase | _SpectralNorm)


def base_left_out(model: nn.Module, example: object) -> tuple[set[str], Base]:
    """What a file without the base lacks, and how it names that."""
    if isinstance(model, Ensemble):
        raise PocketBayesError("frozen=False stores one model: save members of an ensemble alone")
    if example is not None:
        raise PocketBayesError(
            "a program needs all weights, and frozen=False leaves some out: save without example"
        )
    names = frozen_state(model)
    if not any(isinstance(value, nn.Parameter) for value in map(plain_state(model).get, names)):
        raise PocketBayesError(
            "frozen=False leaves out what is frozen, and nothing is: call requires_grad_(False) on "
            "the base's parameters, or save without frozen="
        )
    return names, named_base(model, names)


def named_base(model: nn.Module, names: Collection[str]) -> Base:
    """SHA-256 over names, types, shapes and bytes of these tensors, in the order of names."""
    digest, state = hashlib.sha256(), plain_state(model)
    for name in sorted(names):
        tensor = state[name].detach()
        if tensor.is_meta or tensor.layout != torch.strided:
            raise PocketBayesError(
                f"{name} of the base has no plain values: load its weights first"
            )
        digest.update(f"{name}\0{spec_of(tensor).word()}\0".encode())
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return {"sha256": digest.hexdigest(), "tensors": len(names)}


def require_base_given(header: Header, net: nn.Module | None) -> None:
    """An error for a file without its base if no network is given."""
    if header.base is not None and net is None:
        raise FormatError(
            f"it holds only what was trained on top of a frozen base, {_words(header.base)}: pass "
            "the network with that base's weights, load(path, net)"
        )


def base_in(net: nn.Module, header: Header) -> set[str]:
    """Names of what the file leaves to the network, whose values must be those of its base."""
    if header.base is None:
        return set()
    names = plain_state(net).keys() - header.posteriors.keys() - {*header.state}
    names = {name for name in names if not is_extra(name)}
    found = named_base(net, names)
    if found != header.base:
        raise FormatError(
            f"it was trained on top of another base: {_words(header.base)}; this network has "
            f"{_words(found)}. Load the weights that it was trained with, in the same dtype, "
            "before load"
        )
    return names


def freeze_base_(model: nn.Module, names: Collection[str]) -> None:
    """Freezes what the file left to the network, as it was when that was saved."""
    state = plain_state(model) if names else {}
    for name in names:
        if isinstance(state[name], nn.Parameter):
            state[name].requires_grad_(False)


def _words(base: Base) -> str:
    return f"{base['tensors']} tensors of sha256 {base['sha256'][:16]}..."
