"""The JSON description of a file, checked before anything is built from it."""

import math
import re
import sys
from dataclasses import dataclass
from typing import Any

from pocketbayes.codec.contents import Contents
from pocketbayes.errors import FormatError
from pocketbayes.layers import ESTIMATORS, Description
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.posteriors import FAMILIES, Codebook


@dataclass(frozen=True)
class Header:
    """What a file says it holds: families and codebooks of posteriors, and names of the rest."""

    model: Description
    members: int
    posteriors: dict[str, str]
    codebooks: dict[str, int]
    state: tuple[str, ...]
    base: dict[str, Any] | None = None

    @property
    def num_codebooks(self) -> int:
        """Codebooks that shared posteriors use."""
        return len(set(self.codebooks.values()))


def header_of(file: Contents) -> Header:
    """The header, if it is well formed and names exactly the sections that are there."""
    found: dict[str, Any] = {"posteriors": None, "members": None} | file.file.description
    posteriors, members = found["posteriors"], found["members"]
    state: Any = found.get("state") if file.file.version == 1 else _state_of(file)
    _require(_is_dict(posteriors) and bool(posteriors), "posteriors", "an object with entries")
    _require(_are_strings(state) and len(set(state)) == len(state), "state", "a list of names")
    _require(_is_count(members) and members <= len(posteriors), "members", "a count")
    if len(posteriors) > len(file.specs):  # no list of what is missing of a million
        raise FormatError("the description names more posteriors than it has arrays")
    for name, family in posteriors.items():
        if not isinstance(family, str) or family not in FAMILIES:
            raise FormatError(f"section posterior/{name}: no family is called {family!r}")
    codebooks = _codebooks(found.get("tables", {}), posteriors)
    wanted = {f"posterior/{n}/{a}" for n, f in posteriors.items() for a in FAMILIES[f].array_names}
    wanted |= {f"state/{name}" for name in state}
    wanted |= {f"table/{k}/{a}" for k in set(codebooks.values()) for a in Codebook.array_names}
    for name in sorted(wanted ^ file.specs.keys()):
        what = "is missing" if name in wanted else "is not named in the description"
        raise FormatError(f"array {name} {what}")
    model, base = model_in(found), found["model"].get("base")
    _require(base is None or _is_base(base), "model.base", "a digest and a count")
    if base is not None and (members > 1 or file.file.program is not None):
        raise FormatError("a file without its base holds one network, and no program")
    return Header(model, members, posteriors, codebooks, tuple(state), base)


def _is_base(base: Any) -> bool:
    return (
        _is_dict(base)
        and base.keys() == {"sha256", "tensors"}
        and isinstance(base["sha256"], str)
        and re.fullmatch("[0-9a-f]{64}", base["sha256"]) is not None
        and _is_count(base["tensors"])
    )


def _state_of(file: Contents) -> list[str]:
    return [n.removeprefix("state/") for n in file.specs if n.startswith("state/")]


def _codebooks(codebooks: Any, posteriors: dict[str, str]) -> dict[str, int]:
    """Which codebook each shared posterior uses, if all have one, and none other has."""
    shared = {name for name, family in posteriors.items() if family == "shared"}
    _require(
        _is_dict(codebooks) and codebooks.keys() == shared, "tables", "one for each shared tensor"
    )
    numbers = list(codebooks.values())
    whole = all(isinstance(k, int) and not isinstance(k, bool) for k in numbers)
    rising = whole and set(numbers) == set(range(len(set(numbers))))
    _require(rising, "tables", "numbers of tables from 0 on")
    return dict(codebooks)


def model_in(description: dict[str, Any]) -> Description:
    """What a file's description says of the model, if it is well formed."""
    model: Any = description.get("model")
    _require(_is_dict(model), "model", "an object")
    names, network = model.get("class_names"), model.get("network")
    checks = {
        "likelihood": model.get("likelihood") in (None, *LIKELIHOODS),
        "estimator": model.get("estimator") in (None, *ESTIMATORS),
        "class_names": names is None or _are_strings(names),
        "preprocess": model.get("preprocess") is None or _is_dict(model["preprocess"]),
        "input_dims": model.get("input_dims") is None or _is_count(model["input_dims"]),
        "keeps_dropout": isinstance(model.get("keeps_dropout", False), bool),
        "network": network is None or _is_network(network),
        "prior": model.get("prior") in (None, "learned", "fixed"),
        "beta": model.get("beta") in (None, 0) or _is_positive(model["beta"]),
        "decay_std": model.get("decay_std") is None or _is_std(model["decay_std"]),
        "training": model.get("training") is None or _is_training(model["training"]),
        "temperature": model.get("temperature") is None or _is_positive(model["temperature"]),
        "moments_factor": model.get("moments_factor") is None
        or (_is_positive(model["moments_factor"]) and 1e-6 <= model["moments_factor"] <= 1e6),
        "conformal": model.get("conformal") is None or _is_conformal(model["conformal"]),
        "one_law": model.get("one_law") is None or isinstance(model["one_law"], bool),
        "shrunk": model.get("shrunk") is None or _are_sizes(model["shrunk"]),
        "one_pass": model.get("one_pass") is None or _is_one_pass(model["one_pass"]),
    }
    for field, good in checks.items():
        _require(good, f"model.{field}", "of the right kind")
    return Description.from_facts(model)


def _is_network(network: Any) -> bool:
    return (
        _is_dict(network)
        and network.keys() == {"name", "options"}
        and isinstance(network["name"], str)
        and _is_dict(network["options"])
    )


def _is_training(found: Any) -> bool:
    """A method's name, and numbers beside it; what a later version adds is passed over."""
    return (
        _is_dict(found)
        and isinstance(found.get("method"), str)
        and (found.get("lr") in (None, 0) or _is_positive(found["lr"]))
        and all(_is_count(found.get(name, 1)) for name in ("epochs", "best_epoch", "steps"))
        and all(isinstance(found.get(name, ""), str) for name in ("subset", "prior_by"))
        and ("prior_by" not in found or _is_range(found.get("prior_std")))
    )


def _is_std(value: Any) -> bool:
    """Positive, and so is its square, as a finite number."""
    return _is_positive(value) and 1e-150 <= value <= 1e150


def _is_range(ends: Any) -> bool:
    return isinstance(ends, list) and len(ends) == 2 and all(map(_is_positive, ends))


_PREDICTIVES = (*ESTIMATORS, "moments", "one_pass", "none")


def _is_conformal(found: Any) -> bool:
    """A level, the examples and draws behind it, and as many thresholds as their shape has.

    Files from before it was kept have no estimator.
    """
    keys = {"level", "threshold", "shape", "examples", "num_samples"}
    return (
        _is_dict(found)
        and found.keys() - {"estimator"} == keys
        and found.get("estimator", "none") in _PREDICTIVES
        and _is_positive(found["level"])
        and found["level"] < 1
        and all(_is_count(found[name]) for name in ("examples", "num_samples"))
        and all(isinstance(found[name], list) for name in ("threshold", "shape"))
        and all(map(_is_count, found["shape"]))
        and all(side <= len(found["threshold"]) for side in found["shape"])  # as for the product
        and len(found["threshold"]) == math.prod(found["shape"])
        and all(t == 0 or _is_positive(t) for t in found["threshold"])
    )


def _are_sizes(found: Any) -> bool:
    """{module: {name: size}}."""
    return _is_dict(found) and all(
        _is_dict(own) and all(type(n) is int and 0 <= n <= _MOST_GONE for n in own.values())
        for own in found.values()
    )


def _is_one_pass(found: Any) -> bool:
    """Places [name, axis of examples, channels], and the draws that were learned from."""
    return (
        _is_dict(found)
        and found.keys() - {"gone", "likelihood", "compared"}
        == {"places", "last_variance", "draws", "estimator"}
        and isinstance(found["places"], list)
        and all(map(_is_place, found["places"]))
        and isinstance(found["last_variance"], bool)
        and (not found["last_variance"] or bool(found["places"]))
        and _is_count(found["draws"])
        and found["estimator"] in ESTIMATORS
        and ("gone" not in found or _is_gone(found["gone"], len(found["places"])))
        and ("likelihood" not in found or found["likelihood"] in [*LIKELIHOODS])
        and ("compared" not in found or _is_comparison(found["compared"]))
    )


def _is_gone(found: Any, places: int) -> bool:
    """[channels, sum of their squares] of each place."""
    return (
        isinstance(found, list)
        and len(found) == places
        and all(isinstance(pair, list) and len(pair) == 2 for pair in found)
        and all(type(n) is int and 0 <= n <= _MOST_GONE for n, _ in found)
        and all(type(square) is float and 0 <= square <= _MOST_GONE for _, square in found)
    )


def _is_comparison(found: Any) -> bool:
    """Two counts, and differences."""
    counts, differences = {"examples", "draws"}, {"probs", "mean", "std", "nll"}
    return (
        _is_dict(found)
        and counts <= found.keys() <= counts | differences
        and all(_is_count(found[name]) and found[name] <= _MOST_GONE for name in counts)
        and all(type(found[n]) is float for n in found.keys() - counts)
        and all(abs(found[n]) <= _MOST_APART for n in found.keys() - counts)
    )


_MOST_AXIS = 3  # of the examples, in the input of a layer
_MOST_GONE = 1 << 40
_MOST_APART = 1e9


def _is_place(place: Any) -> bool:
    return (
        isinstance(place, list)
        and len(place) == 3
        and isinstance(place[0], str)
        and type(place[1]) is int
        and 0 <= place[1] <= _MOST_AXIS
        and _is_count(place[2])
    )


def _is_positive(value: Any) -> bool:
    """Of whole numbers, too, only what a float can be."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value <= sys.float_info.max


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _require(good: bool, field: str, what: str) -> None:
    if not good:
        raise FormatError(f"the description's {field} is not {what}")
