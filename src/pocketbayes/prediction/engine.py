"""Draws by the C engine of pocketbayes-lite in place of torch.

The engine reads files, and this room must not know how they are written: so `save` is taken from
the public surface when the first answer is wanted. That one arrow up is bound here and nowhere
else; a room above, which would wrap `predict`, would have to repeat all of it.
"""

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError, require_choice
from pocketbayes.layers import (
    Description,
    Inputs,
    KnownWeights,
    description_to_store,
    estimator_of,
    first_parameter,
    has_random_weights,
    members_of,
    tells_rows_alike,
    unwrapped,
)
from pocketbayes.posteriors import current_drawing, mixed_seed, no_drawing
from pocketbayes.prediction.gaussian_outputs import MOMENTS, ONE_PASS, spread_normals
from pocketbayes.prediction.predictives import drawn

BACKENDS = ("torch", "engine")
_MOST_SHAPES = 4  # of inputs, whose engines are kept for a model
Draw = Callable[[nn.Module, Inputs, int, str | None], Tensor]


class _Engines(NamedTuple):
    """Of one model, as it was: an engine for each shape of inputs."""

    weights: KnownWeights
    facts: Description
    by_shape: dict[object, Any]
    alike: dict[object, bool]  # whether their rows are told of equally by all draws


_known = WeakKeyDictionary[nn.Module, _Engines]()


def drawn_by(backend: str) -> Draw:
    """What makes draws (S, N, ...), to be called inside of `drawing`."""
    require_choice(backend, "backend", BACKENDS)
    return drawn if backend == "torch" else _EngineDraws()


class _EngineDraws:
    """Those of one prediction: each batch has random numbers of its own."""

    def __init__(self) -> None:
        self._batches = 0

    def __call__(
        self, model: nn.Module, x: Inputs, num_samples: int, estimator: str | None
    ) -> Tensor:
        drawing, inputs = current_drawing(), _positional(x)
        assert drawing is not None
        by = _estimator(model, inputs, estimator)
        self._batches += 1
        with no_drawing():
            engine = _engine_of(model, inputs)
        engine.threads = torch.get_num_threads()
        width, each = (*engine.output_shape, 1)[0], -(-num_samples // len(members_of(model)))
        normals = spread_normals(each, width).numpy() if by in (MOMENTS, ONE_PASS) else None
        seed = mixed_seed(drawing.seed, self._batches) if by == "weight" else 0
        given = tuple(part.detach().float().cpu().numpy() for part in inputs)
        try:
            made = engine.samples(
                given if len(given) > 1 else given[0], by, num_samples, seed, normals
            )
        except _lite().LiteError as error:
            raise PocketBayesError(f'backend="engine": {error}') from error
        return torch.from_numpy(made).to(first_parameter(model).device)


def _estimator(model: nn.Module, inputs: tuple[Tensor, ...], chosen: str | None) -> str:
    """What the engine calls it; noise at every output, too, where that is the law of weights."""
    by = chosen or (estimator_of(model) if has_random_weights(model) else "weight")
    if by not in ("lrt", "flipout"):
        return by
    with no_drawing():
        known, shape = _known_of(model), _shape(inputs)
        if shape not in known.alike:
            x = tuple(part[:1] for part in inputs)
            known.alike[shape] = tells_rows_alike(unwrapped(model), x if len(x) > 1 else x[0])
    if not known.alike[shape]:
        raise PocketBayesError(
            f'backend="engine" has no estimator="{by}" for this network: pass estimator="weight", '
            "which draws whole networks (another predictive), or leave backend away"
        )
    return "weight"


def _positional(x: Inputs) -> tuple[Tensor, ...]:
    if isinstance(x, Tensor):
        return (x,)
    if isinstance(x, dict):
        raise DataError('backend="engine" takes inputs by position: pass a tuple, not a dict')
    return tuple(x)


def _engine_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    """The model in the engine."""
    known, shape = _known_of(model), _shape(inputs)
    if shape not in known.by_shape:
        while len(known.by_shape) >= _MOST_SHAPES:
            known.by_shape.pop(next(iter(known.by_shape)))
        known.by_shape[shape] = _loaded(unwrapped(model), inputs)
    return known.by_shape[shape]


def _known_of(model: nn.Module) -> _Engines:
    """What is kept for as long as it has the same weights and says the same of itself."""
    root = unwrapped(model)
    facts, known = description_to_store(root), _known.get(root)
    if known is None or known.facts != facts or not known.weights.are_in(root):
        known = _known[root] = _Engines(KnownWeights(root, ()), facts, {}, {})
    return known


def _shape(inputs: tuple[Tensor, ...]) -> tuple[torch.Size, ...]:
    return tuple(part.shape[1:] for part in inputs)


def _loaded(model: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
    example = tuple(part[:1] for part in inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pocket"
        save = importlib.import_module("pocketbayes").save
        save(model, path, lossless=True, exact_state=True,
             example=example if len(example) > 1 else example[0])  # fmt: skip
        try:
            return _lite().read(path.read_bytes())
        except _lite().LiteError as error:
            raise PocketBayesError(f'backend="engine" cannot run this model: {error}') from error


def _lite() -> Any:
    try:
        return importlib.import_module("pocketbayes_lite")
    except ImportError as error:
        raise PocketBayesError(
            'backend="engine" needs pocketbayes-lite: pip install pocketbayes-lite, or in a '
            "checkout pip install ./lite"
        ) from error
