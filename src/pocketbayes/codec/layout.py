"""Which arrays share a section, which codings it may have, and the smallest of them.

Arrays have the names `posterior/TENSOR/ARRAY`, `table/NUMBER/ARRAY` and `state/TENSOR`. A section
holds all arrays of one name of one family, of one type: `gaussian/mean`, `state/running_var`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor

from pocketbayes.codec.adaptive import Coded
from pocketbayes.codec.arrays import Spec, as_floats, flat, spec_of
from pocketbayes.codec.codings import CODINGS
from pocketbayes.codec.float_codings import multiples_of_step
from pocketbayes.codec.jobs import Array, Arrays, Job, Steps, counts
from pocketbayes.codec.multiples import common_step
from pocketbayes.codec.steps import (
    TOLERANCE,
    Doubles,
    log_odds_nats,
    log_odds_step,
    log_std_nats,
    log_std_step,
    mean_step,
    tolerance_of_log_odds,
    tolerance_of_log_std,
    tolerance_of_mean,
)
from pocketbayes.codec.tokens import Integers, found

_PARTNER = {"mean": "log_std", "outlier_mean": "outlier_log_std"}
_LOG_STDS = tuple(_PARTNER.values())
_LEAST_TOLERANCE: dict[str, Callable[[float], float]] = {
    **dict.fromkeys(_LOG_STDS, tolerance_of_log_std),
    **dict.fromkeys(_PARTNER, tolerance_of_mean),
    "log_odds": tolerance_of_log_odds,
}
_NATS: dict[str, Callable[[Doubles], Doubles]] = {
    **dict.fromkeys(_LOG_STDS, log_std_nats),
    "log_odds": log_odds_nats,
}
_PLACES = ("index", "outlier", "blend")
_POINTS = ("point", "sparse_point")
# Of a step: numbers that were float16 in a file are multiples of finer ones.
_MOST_IN_STATE = 1 << 9
WITH_STEP = ("steps", "relative")
_SLOW = {"planes": 0.45, "half planes": 0.45, "integers": 0.1}  # of the raw bytes is good enough


class Options(NamedTuple):
    """What may be lost: nats per weight, or nothing at all; digits of what is deterministic."""

    tolerance: float
    lossless: bool = False
    exact_state: bool = False


def options_behind(sections: Mapping[str, float | None]) -> Options | None:
    """What sections of these steps were stored with; None: none of them tells.

    Steps are rounded down, so all tolerances between two bounds give the same ones: of the lower
    bounds the largest lies in between for all sections. Log-stds keep a step that they have.
    """
    told = {
        name: step
        for name, step in sections.items()
        if _role(name) in _LEAST_TOLERANCE and not _may_be_rounded(name)
    }
    if not told:
        return None
    least = [_LEAST_TOLERANCE[_role(n)](step) for n, step in told.items() if step is not None]
    return (
        Options(min(1.0, max(least) * (1 + 1e-9))) if least else Options(TOLERANCE, lossless=True)
    )


class Section(NamedTuple):
    """Coded arrays: how, the bytes, the step, and the nats by which weights differ, at most."""

    coding: str
    coded: Coded
    step: float | None
    nats: float = 0.0


def section_name(array: str, spec: Spec, families: Mapping[str, str]) -> str:
    """The section that an array belongs to."""
    kind, _, rest = array.partition("/")
    tensor, _, last = rest.rpartition("/")
    last = last if kind != "state" else last.rpartition(".")[2]  # norms' means, variances, ...
    name = f"{families.get(tensor) if kind == 'posterior' else kind}/{last}"
    return name if spec.dtype == "float32" else f"{name}/{spec.dtype}"


def grouped(specs: Mapping[str, Spec], families: Mapping[str, str]) -> dict[str, list[str]]:
    """The arrays of every section, stds before means; arrays without numbers have none."""
    groups: dict[str, list[str]] = {}
    for array, spec in sorted(specs.items()):
        if spec.numel:
            groups.setdefault(section_name(array, spec, families), []).append(array)
    return dict(sorted(groups.items(), key=lambda item: (_role(item[0]) in _PARTNER, item[0])))


def _role(section: str) -> str:
    return section.split("/")[1]


def _may_be_rounded(section: str) -> bool:
    """Whether all its numbers may be multiples of a step that somebody rounded them to."""
    family, _, role = section.partition("/")
    return family == "state" or (family in _POINTS and role.startswith("mean"))


def partner(section: str) -> str | None:
    """The section with the logs of the stds that these means go with."""
    family, _, rest = section.partition("/")
    role, slash, kind = rest.partition("/")
    return f"{family}/{_PARTNER[role]}{slash}{kind}" if role in _PARTNER else None


def candidates(section: str, spec: Spec, options: Options) -> tuple[str, ...]:
    """The codings that a section may have; the smallest is taken."""
    family, role = section.partition("/")[0], _role(section)
    if not spec.is_float:
        return ("rising", "integers") if role in _PLACES else ("exceptions", "integers", "planes")
    short = spec.item_bytes < 4  # what rounding such a number costs is not ours to bound
    rounded = ("steps",) if _may_be_rounded(section) and not short else ()
    if options.lossless or short or _is_exact(family, role, options):
        return (*rounded, "planes")
    if family in ("state", "table", *_POINTS) or role == "blend_share":
        return (*rounded, "half", "half planes", "planes")
    if role in _LEAST_TOLERANCE:
        return ("relative" if role in _PARTNER else "steps", "planes")
    return ("planes",)


def _is_exact(family: str, role: str, options: Options) -> bool:
    deterministic = family in ("state", *_POINTS)
    return (deterministic and options.exact_state) or role in ("prior_std", "spike_std")


class Packer:
    """Codes one section after the other; remembers logs of stds for the means that follow."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._logs: dict[str, tuple[Arrays, Job]] = {}
        self._labels = 0

    def section(self, name: str, tensors: list[Tensor], is_exact: bool = False) -> Section:
        """The smallest coding of these arrays."""
        specs, arrays = [spec_of(t) for t in tensors], [flat(t) for t in tensors]
        options = self._options._replace(lossless=self._options.lossless or is_exact)
        possible = candidates(name, specs[0], options)
        step = self._step(name, specs, arrays) if set(possible) & set(WITH_STEP) else None
        job = Job(specs, step, self._log_stds(name, specs), _NATS.get(_role(name)))
        found = self._smallest(name, possible, arrays, job)
        if found.coding == "steps":
            self._logs[name] = arrays, job
        if _role(name) == "label":
            self._labels += sum(counts(job))
        return found._replace(nats=self._nats(name, found, arrays))

    def _step(self, name: str, specs: list[Spec], arrays: Arrays) -> float | None:
        """The step of a section that may be coded in steps; None: points that nobody rounded."""
        role, is_rounded = _role(name), _may_be_rounded(name)
        if is_rounded or role in _LOG_STDS:
            values = [as_floats(array, spec) for array, spec in zip(arrays, specs, strict=True)]
            tolerance = self._options.tolerance
            if role in _LOG_STDS and not is_rounded:
                return log_std_step(values, tolerance)
            return common_step(values, *((_MOST_IN_STATE,) if name.startswith("state/") else ()))
        return (log_odds_step if role == "log_odds" else mean_step)(self._options.tolerance)

    def _nats(self, name: str, found: Section, arrays: Arrays) -> float:
        """Of multiples as counted; of a codebook's float16 the most for each label."""
        if found.coding in WITH_STEP:
            return found.coded.nats
        if found.coding.startswith("half") and _role(name) == "blend_share":
            return sum(len(array) * _share_cost(array) for array in arrays)
        if found.coding.startswith("half") and name.startswith("table/log_std"):
            return max(map(_log_std_cost, arrays)) * self._labels
        return 0.0

    def _log_stds(self, name: str, specs: list[Spec]) -> Steps | None:
        """What the logs of the stds of these means were coded as: found anew, one by one."""
        arrays, job = self._logs.get(partner(name) or "", ([], Job([])))
        if job.step is None or counts(job) != [spec.numel for spec in specs]:
            return None
        return Steps(map(found, multiples_of_step(arrays, job)), job.step)

    def _smallest(self, name: str, possible: tuple[str, ...], arrays: Arrays, job: Job) -> Section:
        """The smallest coding; what bytes alone can do is tried where nothing else did well."""
        best, raw = None, sum(a.nbytes for a in arrays)
        for coding in possible:
            least = raw if best is None else best.coded.size
            if coding in _SLOW and least < _SLOW[coding] * raw:
                continue
            made = self._tried(name, coding, arrays, job)
            if made is not None and made.size < least:
                best = Section(coding, made, job.step if coding in WITH_STEP else None)
        return best or Section("raw", cast(Coded, CODINGS["raw"].encode(arrays, job)), None)

    def _tried(self, name: str, coding: str, arrays: Arrays, job: Job) -> Coded | None:
        if coding.startswith("half") and not _keeps(name, arrays, self._options.tolerance):
            return None
        if coding == "steps" and job.step is None:
            return None
        return CODINGS[coding].encode(arrays, job)


def _keeps(name: str, arrays: Arrays, tolerance: float) -> bool:
    """Whether float16 keeps what posteriors are made of within the tolerance."""
    if _role(name) == "blend_share":
        return all(_share_cost(array) <= tolerance for array in arrays)
    if not name.startswith("table/"):
        return True
    return _role(name) == "log_std" and all(_log_std_cost(a) <= tolerance / 2 for a in arrays)


def _log_std_cost(array: Array) -> float:
    """An error d costs d^2 nats, about."""
    with np.errstate(over="ignore"):
        error = np.abs(array.astype("<f2").astype(np.float64) - array)
    return float(error.max(initial=0) ** 2)


def _share_cost(array: Array) -> float:
    """KL(a || b) <= (a - b)^2 / (b (1 - b)) nats of a choice between two, so of their blend."""
    with np.errstate(all="ignore"):
        stored = array.astype("<f2").astype(np.float64)
        cost = (array - stored) ** 2 / (stored * (1 - stored))
    return float(np.where(array == stored, 0, cost).max(initial=0))


def given_away(queue: deque[Integers]) -> Iterator[Integers]:
    """What waits in a queue, which then forgets it."""
    while queue:
        yield queue.popleft()
