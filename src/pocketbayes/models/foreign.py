"""Networks of other libraries from names and plain options: a closed table of builders.

Nothing is downloaded, and only the library's own code runs: a name must be in its tables, options
are of a closed grammar, with bounds, since files bring them too.
"""

import importlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as registration

from pocketbayes.errors import PocketBayesError, nearest

Options = dict[str, Any]
MOST_NUMBER, MOST_ITEMS, MOST_LABELS, MOST_TEXT = 2**20, 1024, 32_768, 256
_WORD = re.compile(r"[A-Za-z0-9_+-]{0,64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_PER_TENSOR, _LEAST = 64, 1024  # modules and parameters that a network may register


class Library(NamedTuple):
    """How networks of one library are described, and built from that."""

    options_of: Callable[[nn.Module], tuple[str, Options]]
    build: Callable[[str, Options], nn.Module]


def split_name(network: str) -> tuple[str, str]:
    """(library, name) of "timm:resnet50"; a bare library has no name."""
    library, _, name = network.partition(":")
    if library not in LIBRARIES:
        raise PocketBayesError(
            f"no networks of a library {library!r}{nearest(library, LIBRARIES)}; "
            f"there are {', '.join(LIBRARIES)}"
        )
    if ":" in network and not _NAME.fullmatch(name):
        raise PocketBayesError(f"{name!r} is no name of a network of {library}: no paths, no hubs")
    return library, name


def is_foreign(network: Mapping[str, Any] | None) -> bool:
    """Whether this is a network of another library."""
    return network is not None and ":" in network["name"]


def foreign_network(model: nn.Module, kind: type, name: str = "") -> dict[str, Any] | None:
    """{"name", "options"} of a model whose class, before conversion, is of another library."""
    library = kind.__module__.partition(".")[0]
    if library not in LIBRARIES:
        return None
    known, options = LIBRARIES[library].options_of(model)
    return {"name": f"{library}:{name or known}", "options": options}


def build_foreign(network: Mapping[str, Any], tensors: int) -> nn.Module:
    """The network, with weights at random, if it has about as many tensors at most."""
    library, name = split_name(network["name"])
    try:
        importlib.import_module(library)
    except ImportError as error:
        raise PocketBayesError(
            f"the network {network['name']} needs {library}, which cannot be imported ({error}): "
            f"pip install {library}"
        ) from error
    try:
        with torch.random.fork_rng(devices=[]), _few_registrations(tensors):
            return LIBRARIES[library].build(name, dict(network["options"]))
    except PocketBayesError:
        raise
    except Exception as error:  # whatever another library says of strange options
        said = f"{type(error).__name__}: {error}"
        raise PocketBayesError(f"{network['name']} cannot be built: {said}") from error


@contextmanager
def _few_registrations(tensors: int) -> Iterator[None]:
    """Inside, this thread makes only so many modules, parameters and buffers for its tensors."""
    left, thread = _PER_TENSOR * tensors + _LEAST, get_ident()

    def count(*_: Any) -> None:
        nonlocal left
        if get_ident() == thread:
            left -= 1
            if left < 0:
                raise PocketBayesError("the network has far more layers than the file has tensors")

    handles = [
        registration.register_module_module_registration_hook(count),
        registration.register_module_parameter_registration_hook(count),
        registration.register_module_buffer_registration_hook(count),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


_OF_TIMM = {
    "num_classes", "in_chans", "img_size", "patch_size", "embed_dim", "depth", "depths",
    "num_heads", "mlp_ratio", "qkv_bias", "class_token", "init_values", "global_pool",
    "output_stride", "drop_rate", "drop_path_rate", "attn_drop_rate", "proj_drop_rate",
}  # fmt: skip


def _timm_options(model: nn.Module) -> tuple[str, Options]:
    """The architecture, and what of its arguments the model tells."""
    known = getattr(model, "pretrained_cfg", None) or {}
    known = known if isinstance(known, Mapping) else known.to_dict()
    options: Options = {"num_classes": getattr(model, "num_classes", None)}
    first = known.get("first_conv")
    first = next(iter(first), "") if isinstance(first, list | tuple) else first
    modules = dict(model.named_modules())
    if first in modules:
        options["in_chans"] = getattr(modules[first], "in_channels", None)
    patches = modules.get("patch_embed")
    if getattr(patches, "img_size", None) is not None:
        options["img_size"] = list(patches.img_size)  # type: ignore[union-attr]
    options["drop_rate"] = getattr(model, "drop_rate", 0) or None
    paths = [m.drop_prob for m in modules.values() if type(m).__name__ == "DropPath"]
    options["drop_path_rate"] = (
        round(max(paths, default=0), 6) or None
    )  # it rises from layer to layer
    name = str(known.get("architecture"))
    given = {key: value for key, value in options.items() if value is not None}
    return name, _checked_timm(name, given)


def _checked_timm(name: str, options: Options) -> Options:
    timm = importlib.import_module("timm")
    if not _WORD.fullmatch(name) or not timm.is_model(name):
        raise PocketBayesError(f"timm has no network {name!r}")
    for key, value in options.items():
        if key not in _OF_TIMM:
            raise PocketBayesError(f"{key!r} is no option of timm's networks that a file may set")
        _require_plain(key, value)
    return options


def _timm_network(name: str, options: Options) -> nn.Module:
    given = _checked_timm(name, options)
    timm = importlib.import_module("timm")
    return timm.create_model(name, pretrained=False, **given)  # type: ignore[no-any-return]


_TASKS = (
    "", "_FOR_SEQUENCE_CLASSIFICATION", "_FOR_TOKEN_CLASSIFICATION", "_FOR_IMAGE_CLASSIFICATION",
    "_FOR_AUDIO_CLASSIFICATION", "_FOR_CAUSAL_LM", "_FOR_MASKED_LM", "_FOR_MULTIPLE_CHOICE",
    "_FOR_QUESTION_ANSWERING", "_FOR_NEXT_SENTENCE_PREDICTION", "_FOR_SEQ_TO_SEQ_CAUSAL_LM",
)  # fmt: skip
_LABELS = "id2label"
_OBJECTS = {"rope_parameters", "rope_scaling"}  # plain values inside
_NOT_OF_CONFIGS = {
    "transformers_version", "architectures", "output_hidden_states", "output_attentions",
    "return_dict", "dtype", "torch_dtype", "label2id", "kwargs", "use_cache",
    "task_specific_params",
}  # fmt: skip
_FETCHING = re.compile(r"\bget_kernel\b|\bcpp_extension\b|\bload_\w*cuda_kernel")
# Sizes of encoders and decoders and shares of dropped paths do not; a whole encoder may be a name.
_REACHING_OUT = re.compile(
    r"backbone|pretrained|(?<!drop_)path|hub|repo|code(?!r)|kernel|quanti|checkpoint|auto_"
    r"|_config$|(?<!is_)(?<!encoder_)(?:en|de)coder$"
)


def _transformers_options(model: nn.Module) -> tuple[str, Options]:
    """The class of the model, and its configuration."""
    config: Any = model.config
    known, name = config.to_dict(), type(model).__name__
    fields = _fields_of(type(config)) & known.keys()
    kept = {key: _as_json(known[key]) for key in fields}
    labels = known.get(_LABELS) or {}
    kept.pop(_LABELS, None)
    if labels != {number: f"LABEL_{number}" for number in range(len(labels))}:
        kept[_LABELS] = [labels.get(number) for number in range(len(labels))]
    elif labels:
        kept["num_labels"] = len(labels)
    options = {"class": name, "config": {"model_type": config.model_type} | kept}
    _checked_transformers(options)
    return name, options


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _fields_of(config: type) -> set[str]:
    """Arguments of a class of configurations that say how its networks are built."""
    names = set(inspect.signature(config).parameters) - _NOT_OF_CONFIGS
    return {name for name in names if not _REACHING_OUT.search(name)}


def _checked_transformers(options: Options) -> tuple[type, type, Options]:
    """Classes of network and configuration, and arguments of the latter."""
    config = options.get("config")
    if options.keys() != {"class", "config"} or not isinstance(config, dict):
        raise PocketBayesError("options of a network of transformers are its class and config")
    given = dict(config)
    kind, made_by = _classes(options["class"], given.pop("model_type", None))
    labels = given.pop(_LABELS, None)
    fields = _fields_of(made_by) - {_LABELS} | {"num_labels"}
    for key, value in given.items():
        if key not in fields:
            raise PocketBayesError(f"{key!r} is no field of {made_by.__name__} that a file may set")
        _require_plain(key, value, key in _OBJECTS)
    if labels is not None:
        _require_labels(labels, given)
        given[_LABELS] = dict(enumerate(labels))
        given["label2id"] = {label: number for number, label in enumerate(labels)}
    return kind, made_by, given


def _classes(name: object, model_type: object) -> tuple[type, type]:
    """Those of the library's own tables: no other attribute of it is looked up."""
    transformers = importlib.import_module("transformers")
    models = importlib.import_module("transformers.models.auto.modeling_auto")
    configs = importlib.import_module("transformers.models.auto.configuration_auto")
    found = set[str]()
    for task in _TASKS if isinstance(model_type, str) else ():
        names = getattr(models, f"MODEL{task}_MAPPING_NAMES", {}).get(model_type, ())
        found |= {names} if isinstance(names, str) else set(names)
    if not isinstance(name, str) or name not in found:
        raise PocketBayesError(f"transformers has no network {name!r} of type {model_type!r}")
    made_by = getattr(transformers, configs.CONFIG_MAPPING_NAMES[model_type])
    kind = getattr(transformers, name)
    if kind.config_class is not made_by or getattr(made_by, "sub_configs", None):
        raise PocketBayesError(f"{name} has configurations inside of its own: pass such a network")
    if _FETCHING.search(inspect.getsource(sys.modules[kind.__module__])):
        raise PocketBayesError(f"{name} fetches or compiles kernels: pass such a network")
    return kind, made_by


def _require_labels(labels: object, beside: Options) -> None:
    known = labels if isinstance(labels, list) else []
    good = all(isinstance(label, str) and len(label) <= MOST_TEXT for label in known)
    if not good or not 1 <= len(known) <= MOST_LABELS or "num_labels" in beside:
        raise PocketBayesError("id2label must be a list of short names, without num_labels")


def _transformers_network(name: str, options: Options) -> nn.Module:
    kind, made_by, given = _checked_transformers(options)
    return kind(made_by(**given))  # type: ignore[no-any-return]


def _require_plain(key: str, value: object, may_be_object: bool = False) -> None:
    """A number with bounds, a word, or a short list of these; nothing that names a place."""
    if may_be_object and isinstance(value, dict) and len(value) <= MOST_ITEMS:
        items = [x for pair in value.items() for x in pair]
    else:
        items = value if isinstance(value, list) else [value]
    if len(items) > MOST_ITEMS or not all(map(_is_plain, items)):
        raise PocketBayesError(
            f"{key} must be a word, a number of at most {MOST_NUMBER:,}, or a short list of those; "
            f"got {str(value)[:80]}"
        )


def _is_plain(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, int):
        return abs(value) <= MOST_NUMBER
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) <= MOST_NUMBER**2
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


LIBRARIES = {
    "timm": Library(_timm_options, _timm_network),
    "transformers": Library(_transformers_options, _transformers_network),
}
