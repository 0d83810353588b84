"""What a model says of itself: likelihood, estimator, class names and how inputs are prepared.

The description lives on the root module and travels in its `state_dict` as one tensor of bytes.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, warn
from pocketbayes.layers.bayesian import estimator_of, set_estimator
from pocketbayes.layers.known_weights import KnownWeights
from pocketbayes.layers.one_pass import PREFIX, OnePassHead
from pocketbayes.layers.reading import attach_head, detach_head, fill_head, head_at

NOISE = "noise_log_std"
# What likelihoods learn beside the weights: one number per target, each on a log scale.
NOISES = (NOISE, "noise_log_scale", "noise_log_freedom", "noise_log_dispersion")
CALIBRATIONS = ("temperature", "conformal", "moments_factor")
_KEY = "_pocketbayes_description"
SHRUNK = "_pocketbayes_shrunk"  # of a network that is not converted yet
_LATER = (*CALIBRATIONS, "prior", "beta", "decay_std", "training", "one_pass", "one_law", "shrunk")
_OF_HEAD = tuple(PREFIX + name for name in OnePassHead.names)
_LEFT_OUT = ContextVar("_LEFT_OUT", default=False)


@dataclass(frozen=True)
class Description:
    """Facts about a model that its weights do not tell. None: not known (yet).

    `input_dims` is the number of dimensions of a batch of inputs; `keeps_dropout` says that
    dropout stays on in prediction; `network` is {"name", "options"} of a network of the library.
    `prior` ("learned" or "fixed"), `beta` and `decay_std` say how the posterior came about,
    `training` by which method: with its learning rate, epochs and steps, or what `Laplace` chose.
    `temperature` and `conformal` are what `temperature_` and `conformal` found on held-out data,
    `moments_factor` is what `calibrate_moments_` did.
    `one_pass` is what `distill_` taught: where the head reads, and from which draws it learned.
    `shrunk` are sizes that `shrink` changed, of modules by their names.
    `one_law`: `conformal` saw that "lrt", "flipout" and "weight" have one law for each example.
    """

    likelihood: str | None = None
    estimator: str | None = None
    class_names: tuple[str, ...] | None = None
    preprocess: dict[str, Any] | None = None
    input_dims: int | None = None
    keeps_dropout: bool = False
    network: dict[str, Any] | None = None
    prior: str | None = None
    beta: float | None = None
    decay_std: float | None = None
    training: dict[str, Any] | None = None
    temperature: float | None = None
    conformal: dict[str, Any] | None = None
    one_pass: dict[str, Any] | None = None
    moments_factor: float | None = None
    one_law: bool | None = None
    shrunk: dict[str, dict[str, int]] | None = None

    def to_facts(self) -> dict[str, Any]:
        """As plain values; without what files of old do not have, where it is not there."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v for k, v in facts.items() if k not in _LATER or v is not None}

    def to_json(self) -> str:
        """As JSON text."""
        try:
            return json.dumps(self.to_facts(), sort_keys=True, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise PocketBayesError(
                f"a model's description must be JSON (text, finite numbers, lists, dicts): {error}"
            ) from error

    @classmethod
    def from_json(cls, text: str) -> "Description":
        """From JSON text; unknown keys, of a newer version, are passed over."""
        return cls.from_facts(json.loads(text))

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> "Description":
        """From the facts that JSON text holds."""
        known = {k: v for k, v in facts.items() if k in cls.__dataclass_fields__}
        names = known.get("class_names")
        return cls(**known | {"class_names": None if names is None else tuple(names)})


def attach_description(model: nn.Module) -> None:
    """Gives the root an empty description that its state dict carries from now on."""
    network = getattr(model, "pocketbayes_network", None)
    shrunk = model.__dict__.pop(SHRUNK, None)
    model._pocketbayes = Description(network=network, shrunk=shrunk)  # type: ignore[assignment]
    model.register_state_dict_post_hook(_write)  # type: ignore[no-untyped-call]
    model.register_load_state_dict_pre_hook(_read)  # type: ignore[no-untyped-call]
    model.register_load_state_dict_post_hook(_end_reading)  # type: ignore[no-untyped-call]


def home(model: nn.Module) -> nn.Module:
    """The module that was converted: the model itself, or the one it is wrapped around."""
    if has_description(model):
        return model
    return next((module for module in model.modules() if has_description(module)), model)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of `torch.compile` and of wrappers for several devices.

    A wrapper that was itself converted is the model.
    """
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while not has_description(model):
        inner = model.module if isinstance(model, wrappers) else model._modules.get("_orig_mod")
        if inner is None:
            break
        model = inner
    return model


def has_description(module: nn.Module) -> bool:
    """Whether this very module was converted, or is an ensemble."""
    return isinstance(module.__dict__.get("_pocketbayes"), Description)


def describe(model: nn.Module) -> Description:
    """The model's description; an empty one for a model that has none."""
    found = home(model).__dict__.get("_pocketbayes")
    return found if isinstance(found, Description) else Description()


def update_description(model: nn.Module, **facts: Any) -> None:
    """Changes some facts of the description."""
    set_description(model, replace(describe(model), **facts))


def set_description(model: nn.Module, description: Description) -> None:
    """Replaces the whole description, which must be storable."""
    share_description([home(model)], description)


def share_description(models: Iterable[nn.Module], description: Description) -> None:
    """The same, once, for all of these, which were converted themselves."""
    description.to_json()
    for model in models:
        model._pocketbayes = description  # type: ignore[assignment]


def forget_calibration(
    model: nn.Module, names: Sequence[str] = CALIBRATIONS, why: str = "the model changes"
) -> None:
    """Drops what was calibrated on held-out data, since predictions are about to change."""
    known = [name for name in names if getattr(describe(model), name) is not None]
    if known:
        update_description(model, **dict.fromkeys(known))
        warn(
            f"{why}, so its {' and '.join(known)} calibration was dropped: calibrate it again "
            "afterwards",
        )


def has_stale_head(model: nn.Module) -> bool:
    """Whether it has a one-pass head that was taught with other weights."""
    root = home(model)
    head = head_at(root)
    return head is not None and head.weights is not None and not head.weights.are_in(root)


def known_weights(model: nn.Module | None) -> KnownWeights:
    """The weights that a head knows, without it and the noise; None: some that no model has."""
    return KnownWeights(None if model is None else home(model), (*NOISES, *_OF_HEAD))


def description_to_store(model: nn.Module) -> Description:
    """The description with the estimator of today, and without a stale head."""
    known = replace(describe(model), estimator=estimator_of(model))
    return replace(known, one_pass=None) if has_stale_head(model) else known


def noise_log_std(model: nn.Module) -> Tensor | None:
    """The learned log-std of the observation noise, one per output; None without one."""
    return noise_parameters(model).get(NOISE)


def noise_parameters(model: nn.Module) -> dict[str, Tensor]:
    """What the model has learned of its likelihood's noise, by name."""
    found = home(model)._parameters
    return {name: p for name in NOISES if (p := found.get(name)) is not None}


def add_noise_parameter(model: nn.Module, shape: tuple[int, ...], name: str = NOISE) -> None:
    """Gives the model a trainable parameter of its noise, on a log scale, starting at 1."""
    like = next(model.parameters())
    dtype = torch.promote_types(like.dtype, torch.float32)
    zeros = torch.zeros(shape, dtype=dtype, device=like.device)
    home(model).register_parameter(name, nn.Parameter(zeros))


def leave_noise_to_loss(model: nn.Module, whether: bool) -> None:
    """Notes that `loss` moves the noise, which `fit` then takes back; or does take it back."""
    if whether:
        home(model).__dict__["_pocketbayes_loss_moves_noise"] = True
    elif home(model).__dict__.pop("_pocketbayes_loss_moves_noise", False):
        for noise in noise_parameters(model).values():
            noise.requires_grad_(True)


def is_description(key: str) -> bool:
    """Whether this entry of a state dict is a description."""
    return key.rpartition(".")[2] == _KEY


@contextmanager
def without_descriptions() -> Iterator[None]:
    """Inside, state dicts come without them: each would be all of an ensemble's, as text."""
    before = _LEFT_OUT.set(True)
    try:
        yield
    finally:
        _LEFT_OUT.reset(before)


def _write(module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
    for name in _OF_HEAD if has_stale_head(module) else ():
        state.pop(prefix + name, None)
    if _LEFT_OUT.get():
        return
    text = description_to_store(module).to_json().encode()
    state[prefix + _KEY] = torch.frombuffer(bytearray(text), dtype=torch.uint8)


def _read(
    module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any], *_: Any
) -> None:
    data = state.pop(prefix + _KEY, None)
    if data is None:
        return
    description = Description.from_json(data.cpu().numpy().tobytes().decode())
    module._pocketbayes = description  # type: ignore[assignment]
    _read_head(module, description, state, prefix)
    if description.estimator is not None:
        set_estimator(module, description.estimator)
    for name in NOISES:
        stored = state.get(prefix + name)
        if stored is not None and name not in noise_parameters(module):
            add_noise_parameter(module, tuple(stored.shape), name)


def _read_head(
    module: nn.Module, description: Description, state: dict[str, Any], prefix: str
) -> None:
    """The head that the state speaks of, to be filled from it."""
    if description.one_pass is None:
        detach_head(module)
        return
    keys = {name: f"{prefix}{PREFIX}{name}" for name in OnePassHead.names}
    found = {name: state[key] for name, key in keys.items() if key in state}
    if len(found) < len(keys):
        detach_head(module)
        update_description(module, one_pass=None)
        return
    device = next(module.parameters()).device
    attach_head(module, OnePassHead.from_facts(description.one_pass))
    fill_head(module, {n: torch.empty_like(t, device=device) for n, t in found.items()})


def _end_reading(module: nn.Module, incompatible_keys: Any) -> None:
    """A head that came with all weights knows these."""
    head = head_at(module)
    if head is not None and head.weights is None:
        head.weights = known_weights(None if incompatible_keys.missing_keys else module)
