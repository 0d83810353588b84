"""Forged files: good ones taken apart, changed in one to three places, and sealed again.

A forger knows the format. He changes bytes, but also numbers, types and shapes of the arrays, what
the description says, how deep it is nested, how long its names are and how many, and he mends the
checksum, since anybody can.
"""

import copy
import hashlib
import json
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from good_files import Parts
from torch import Tensor

from pocketbayes.codec.adaptive import coded_integers
from pocketbayes.codec.arrays import TYPES, flat, spec_of
from pocketbayes.codec.contents import nested
from pocketbayes.codec.layout import grouped
from pocketbayes.codec.varints import varints

_SHA = rb"\"sha256\":\"%s\""
_BEFORE = ("version", "sha256", "model", "members")
_HUGE = (2**7, 2**8, 2**15, 2**20, 2**24, 2**28, 2**28 + 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**63)
_SIZES = (0, 1, 2, 3, 6, 7, 8, 16, 48, 49, 2**10, 2**16, 2**20, 2**27, 2**28, 2**31, 2**56)
_NUMBERS = (*_HUGE, -1, 0, 1, 2, 10**30, 10**400, -(2**63), 0.5, -0.0, 1e-300, 1e308, 5e-324)
_WORDS = (
    "", "\ud800", "a\udfff", "\0", "\x1b[31m", "x" * 99, "x" * 5000, "=1+1", "é\U0001f600", "../..",
    "int64:999999x999", "0", "1x1x1x1x1x1x1x1", "float64:", "bool:8", "bfloat16:8x6", "8x6", "6x8",
    "raw", "planes", "half", "half planes", "integers", "exceptions", "rising", "steps", "relative",
    "gaussian", "point", "sparse", "shared", "spike_slab", "narrow_spike", "lrt", "categorical",
    "mlp", "conv", "resnet18", "vit-tiny", "wide-resnet-28-10",
)  # fmt: skip
_LONGEST = 1 << 24  # of what is repeated: as much text as any file may have, and more
_DEPTHS = (1, 2, 7, 60, 124, 125, 126, 127, 128, 300, 495, 700, 800)
_TYPES = sorted(name for name in TYPES if not name.startswith("complex"))


def sealed(
    description: dict[str, Any],
    sections: dict[str, bytes],
    pack: Callable[[bytes], bytes] | None = None,
) -> bytes:
    """The bytes of a file that says this and has a right checksum, whatever it says."""
    said = {"version": 3, "sha256": "0" * 64} | description
    short = _json({key: value for key, value in said.items() if key in _BEFORE})
    long = _json({key: value for key, value in said.items() if key not in _BEFORE}).encode()
    stored = sections | {"description": (pack or deflated)(long)}
    header: dict[str, Any] = {"__metadata__": {"pocketbayes": short}}
    end = 0
    for name, data in sorted(stored.items()):
        begin, end = end, end + len(data)
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [begin, end]}
    head = _json(header).encode()
    head += b" " * (-len(head) % 8)
    whole = (
        struct.pack("<Q", len(head)) + head + b"".join(data for _, data in sorted(stored.items()))
    )
    digest = hashlib.sha256(whole).hexdigest().encode()
    return whole.replace(_SHA % (b"0" * 64), _SHA % digest, 1)


def _json(said: Any) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


def deflated(text: bytes) -> bytes:
    """Any DEFLATE is read; this one is quick."""
    made = zlib.compressobj(1, wbits=-15)
    return made.compress(text) + made.flush()


def mutated(good: Parts, chance: random.Random) -> bytes:
    """The file with one to three changes of some kind."""
    kind = chance.choice(_KINDS)
    if kind == "bytes":
        return harmed(good.data, chance)
    description, sections = json.loads(good.description), dict(good.sections)
    if kind == "deflate":
        return sealed(description, sections, lambda text: harmed(deflated(text), chance))
    program = {name: sections[name] for name in ("program",) if name in sections}
    arrays, changes = dict(good.arrays), _OF_ARRAYS if kind == "arrays" else (kind,)
    for _ in range(chance.randint(1, 3)):
        try:
            chance.choice(changes)(description, arrays if kind == "arrays" else sections, chance)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError):
            break  # what was changed before leaves nothing of the kind
    if kind == "arrays":
        sections = stored_raw(description, arrays) | program
    try:
        return sealed(description, sections)
    except RecursionError:  # one depth inside of another is too much for who writes it, too
        return harmed(good.data, chance)


def stored_raw(description: dict[str, Any], arrays: dict[str, Tensor]) -> dict[str, bytes]:
    """Sections of these arrays as they are, which the description then names."""
    specs = {name: spec_of(tensor) for name, tensor in arrays.items()}
    families = {name: str(family) for name, family in description["posteriors"].items()}
    groups = grouped(specs, families)
    description["arrays"] = nested({name: spec.word() for name, spec in specs.items()})
    description["sections"] = {name: {"coding": "raw"} for name in groups}
    return {name: b"".join(flat(arrays[m]).tobytes() for m in own) for name, own in groups.items()}


def harmed(data: bytes, chance: random.Random) -> bytes:
    """Bytes that are flipped, set, cut, inserted or repeated somewhere."""
    place = chance.randrange(len(data) + 1)
    kind = chance.choice(("flip", "set", "cut", "insert", "repeat"))
    if kind == "cut":
        return data[:place]
    if kind == "insert":
        return data[:place] + chance.randbytes(chance.randint(1, 8)) + data[place:]
    if kind == "repeat":
        return data[:place] + data[chance.randrange(len(data) + 1) :]
    value = bytes([chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))])
    if kind == "flip" and place < len(data):
        value = bytes([data[place] ^ (1 << chance.randrange(8))])
    return data[:place] + value + data[place + 1 :]


def _harm_section(description: Any, sections: dict[str, bytes], chance: random.Random) -> None:
    name = chance.choice(sorted(sections))
    sections[name] = harmed(sections[name], chance) or bytes(1)


def _alter(description: Any, sections: Any, chance: random.Random) -> None:
    """Changes, removes or adds something somewhere in the description."""
    node = description
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and chance.random() < 0.8:
            node = node[key]
            continue
        if chance.random() < 0.15:
            del node[key]
        elif isinstance(node, dict) and chance.random() < 0.1:
            node[chance.choice(_WORDS)] = node.pop(key)
        else:
            node[key] = _strange(node[key], chance)
        return


def _strange(old: Any, chance: random.Random) -> Any:
    """Something that an honest writer would not put there."""
    kind = chance.randrange(10)
    if kind < 3 and isinstance(old, int | float) and not isinstance(old, bool):
        return chance.choice((old + 1, old - 1, -old, 2 * old, float(old)))
    if kind < 3 and isinstance(old, str):
        return harmed(old.encode(errors="replace"), chance).decode("latin-1")
    if kind < 5:
        return chance.choice(_NUMBERS)
    if kind < 7:
        return chance.choice(_WORDS)
    if kind < 8:
        return deep(chance, chance.choice(_DEPTHS))
    if kind < 9:
        times = chance.choice((0, 1, 2, 9, 100, 5000))
        return [copy.deepcopy(old)] * min(times, max(1, _LONGEST // len(_json(old))))
    return copy.deepcopy(chance.choice((None, True, False, [], {}, [[]], [1, 2], {"a": None})))


def deep(chance: random.Random, depth: int) -> Any:
    """Lists or objects inside of each other."""
    is_list, found = chance.random() < 0.5, chance.choice((None, 1, "a", [], {}))
    for _ in range(depth):
        found = [found] if is_list else {"a": found}
    return found


def _nest(description: dict[str, Any], sections: Any, chance: random.Random) -> None:
    """Something deep where a description may hold anything, or nearly."""
    model = description["model"]
    home = chance.choice(
        [model, model["network"]["options"], model["training"], model["preprocess"]]
    )
    home[chance.choice(sorted(home))] = deep(chance, chance.choice(_DEPTHS))


def _flood(description: dict[str, Any], sections: Any, chance: random.Random) -> None:
    """Many names, or a long one, somewhere."""
    count = int(10 ** chance.uniform(0, 5.2)) if chance.random() < 0.1 else chance.randrange(99)
    names = [f"{chance.choice(('', 'hidden1.', 'a/b.'))}{n:x}" for n in range(count)]
    arrays, posteriors = description["arrays"], description["posteriors"]
    place = chance.randrange(6)
    if place == 0:
        arrays["state"] |= dict.fromkeys(names, chance.choice(("0", "", "0x9", "int64:0")))
    elif place == 1:
        posteriors |= dict.fromkeys(names, "point")
        arrays["posterior"] |= {name: {"mean": "0", "prior_std": "0"} for name in names}
    elif place == 2:
        description["model"]["class_names"] = names
    elif place == 3:
        description["model"]["preprocess"] = {
            "kind": "table",
            "columns": [{"name": n} for n in names],
        }
    elif place == 4:
        description["members"] = max(1, count)
    else:
        description["model"]["network"]["options"]["x" * count * 9] = 1


def _claim(description: dict[str, Any], sections: Any, chance: random.Random) -> None:
    """A field of the model that a file of another kind has, nearly as it would be there."""
    model = description["model"]
    field = chance.choice(sorted(_CLAIMS))
    if model.get(field) is None or chance.random() < 0.5:
        model[field] = copy.deepcopy(chance.choice(_CLAIMS[field]))
    if chance.random() < 0.7:
        _alter({field: model[field]} if chance.random() < 0.1 else model[field], sections, chance)


def _of_timm(name: str, **options: Any) -> dict[str, Any]:
    return {"name": f"timm:{name}", "options": options}


def _of_transformers(kind: str, model_type: str, **config: Any) -> dict[str, Any]:
    options = {"class": kind, "config": {"model_type": model_type} | config}
    return {"name": f"transformers:{kind}", "options": options}


_CLAIMS: dict[str, list[Any]] = {
    "network": [
        _of_timm("tiny", num_classes=2, in_chans=1), _of_timm("tiny", depth=2**20),
        _of_timm("resnet18"), _of_timm("hf-hub:a/b"), _of_timm("tiny", pretrained=True),
        _of_transformers("ViTForImageClassification", "vit", hidden_size=4, num_hidden_layers=1,
                         num_attention_heads=2, id2label=["no", "yes"]),
        _of_transformers("BertModel", "bert", hidden_size=4, num_hidden_layers=1,
                         num_attention_heads=2, vocab_size=9),
        _of_transformers("GPT2LMHeadModel", "gpt2", n_embd=4, n_layer=2**20, n_head=2),
        _of_transformers("Trainer", "vit"), _of_transformers("AutoModel", "auto", path="/etc"),
        {"name": "os:system", "options": {}}, {"name": "mlp", "options": {"input_shape": [6]}},
    ],
    "base": [{"sha256": "0" * 64, "tensors": 1}, {"sha256": "f" * 64, "tensors": 2**62}],
    "shrunk": [
        {"hidden1": {"in_features": 3, "out_features": 4}, "output": {"in_features": 0}},
        {"attention": {"num_heads": 0, "embed_dim": 2, "head_dim": 1}},
        {"attention": {"num_heads": 1, "training": 0}, "": {"training": 0}},
        {"conv1": {"groups": 0, "out_channels": 1}, "fc": {"x": 2**40}, "no": {}},
        {"members": {"a": 1}, "members.0": {"a": 1}},
    ],
    "one_pass": [
        {"places": [["output", 0, 8]], "last_variance": True, "draws": 2, "estimator": "lrt"},
        {"places": [["fc", 0, 3], ["", 3, 2**31]], "last_variance": False, "draws": 2**62,
         "estimator": "mean", "gone": [[0, 0.0], [2**40, 1e12]], "likelihood": "gaussian"},
        {"places": [], "last_variance": False, "draws": 1, "estimator": "weight", "gone": [],
         "compared": {"examples": 1, "draws": 1, "nll": 1e9, "probs": -1.0}},
    ],
    "conformal": [
        {"level": 0.9, "threshold": [0.5], "shape": [], "examples": 40, "num_samples": 2},
        {"level": 5e-324, "threshold": [0, 1e308], "shape": [1, 2, 1], "examples": 2**62,
         "num_samples": 2**62, "estimator": "one_pass"},
        {"level": 0.5, "threshold": [1.0], "shape": [1] * 200, "examples": 1, "num_samples": 1,
         "estimator": "none"},
    ],
    "training": [
        {"method": "Laplace", "subset": "all", "prior_by": "evidence",
         "prior_std": [1e-300, 1e308]},
        {"method": "x" * 5000, "lr": 0, "epochs": 2**62, "best_epoch": 10**30, "steps": 1,
         "betas": [0.1, 1]},
    ],
    "temperature": [1.0, 5e-324, 1e308], "moments_factor": [1e-6, 1e6], "one_law": [True, False],
    "decay_std": [1e-150, 1e150], "beta": [0, 1e-300, 10**300], "prior": ["learned", "fixed"],
    "likelihood": ["bernoulli", "gaussian", "student_t", "poisson", "negative_binomial"],
}  # fmt: skip


def _promise_much(description: dict[str, Any], sections: Any, chance: random.Random) -> None:
    """Another word for an array, with the sections as they are."""
    arrays = description["arrays"]
    homes = [*arrays["posterior"].values(), arrays["state"]]
    home = chance.choice([home for home in homes if home])
    kind = f"{chance.choice(_TYPES)}:" if chance.random() < 0.3 else ""
    sides = [str(chance.choice(_SIZES)) for _ in range(chance.randrange(4))]
    home[chance.choice(sorted(home))] = kind + "x".join(sides)


def _promise_constants(description: Any, sections: dict[str, bytes], chance: random.Random) -> None:
    """Integers that are all the same: an array of any size from a few bytes."""
    count = int(2 ** chance.uniform(0, 29 if chance.random() < 0.02 else 20))
    kind = chance.choice(("int64", "int32", "uint8", "bool"))
    name, rows = f"state/many/{kind}", np.zeros(0, np.int64)
    usual = np.array([chance.choice((0, 1, 5)), 0])
    parts = (varints(usual), coded_integers([rows]).data)
    sizes = np.array([len(part) for part in parts], "<u4").tobytes()
    sections[name] = sizes + b"".join(parts) + coded_integers([rows], False).data
    description["arrays"]["state"]["many"] = f"{kind}:{count}"
    description["sections"][name] = {"coding": "exceptions"}


def _widen(description: dict[str, Any], arrays: dict[str, Tensor], chance: random.Random) -> None:
    """A network as wide as can be, of which few weights are there."""
    side = chance.choice(_HUGE)
    options = description["model"]["network"]["options"]
    if "input_shape" in options:
        options["input_shape"] = [side]
    for name in [name for name in arrays if name.endswith("/shape")][:1]:
        rows = int(arrays[name].flatten()[0]) if arrays[name].numel() else 1
        arrays[name] = torch.tensor([max(-(2**62), min(rows, 2**62)), min(side, 2**62)])


def _revalue(description: Any, arrays: dict[str, Tensor], chance: random.Random) -> None:
    """One or all numbers of an array become extreme."""
    name = chance.choice(sorted(arrays))
    array = arrays[name].clone()
    if array.is_floating_point():
        value: float = chance.choice((float("nan"), float("inf"), -1.0, 0.0, 1e30, -1e30, 200.0))
    else:
        most = 1 if array.dtype == torch.bool else torch.iinfo(array.dtype).max
        value = min(chance.choice((-1, 0, 1, 2, 3, 7, 2**31, 2**62)), most)
        value = max(value, 0) if array.dtype in (torch.bool, torch.uint8) else value
    if array.numel() and chance.random() < 0.7:
        array.view(-1)[chance.randrange(array.numel())] = value
    else:
        array.fill_(value)
    arrays[name] = array


def _reshape(description: Any, arrays: dict[str, Tensor], chance: random.Random) -> None:
    """An array of another shape: without axes, with more, empty, cut, repeated, transposed."""
    name = chance.choice(sorted(arrays))
    array = arrays[name]
    arrays[name] = chance.choice((
        lambda: array.new_zeros(()), lambda: array.new_zeros((0,)), lambda: array.reshape(-1),
        lambda: array[None], lambda: array.reshape(-1)[:1], lambda: array.reshape(-1)[:-1],
        lambda: array.repeat(2) if array.dim() == 1 else array[None].repeat(2, *[1] * array.dim()),
        lambda: array.t() if array.dim() == 2 else array.reshape(-1, 1),
        lambda: array.new_zeros((0, 7)), lambda: array.new_zeros((3, 0, 5)),
    ))().contiguous()  # fmt: skip


def _retype(description: Any, arrays: dict[str, Tensor], chance: random.Random) -> None:
    name = chance.choice(sorted(arrays))
    arrays[name] = arrays[name].to(TYPES[chance.choice(_TYPES)])


def _drop_or_add(description: Any, arrays: dict[str, Tensor], chance: random.Random) -> None:
    name = chance.choice(sorted(arrays))
    if chance.random() < 0.5:
        del arrays[name]
    else:
        arrays[name.rpartition("/")[0] + "/" + chance.choice(("mean", "shape", "x"))] = arrays[name]


def _refamily(description: Any, arrays: Any, chance: random.Random) -> None:
    posteriors = description["posteriors"]
    if posteriors:
        posteriors[chance.choice(sorted(posteriors))] = chance.choice(_WORDS[-14:])


_OF_ARRAYS = (
    _widen, _widen, _revalue, _revalue, _reshape, _reshape, _retype, _drop_or_add, _refamily,
)  # fmt: skip
_KINDS: tuple[Any, ...] = (
    "bytes", "deflate", "arrays", "arrays", "arrays", _alter, _alter, _alter, _claim, _claim,
    _harm_section, _harm_section, _harm_section, _flood, _nest, _promise_much, _promise_constants,
)  # fmt: skip
