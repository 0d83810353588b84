"""What became of each module of a network."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from torch import nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers.description import NOISES, describe
from pocketbayes.layers.inference_words import inference_in_words
from pocketbayes.layers.module import OURS, BayesianModule, plain_class_of, posteriors_of
from pocketbayes.layers.one_pass import comparison_in_words
from pocketbayes.layers.selection import NORMS, kind_of, library_type
from pocketbayes.posteriors import FAMILIES, Posterior

Item = TypeVar("Item")


@dataclass(frozen=True)
class AuditRow:
    """What became of one module."""

    name: str
    type: str
    status: str
    weights: int
    deterministic: int
    estimator: str
    why: str

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        counts = (f"{self.weights:,}", f"{self.deterministic:,}")
        return (self.name or "(root)", self.type, self.status, *counts, self.estimator, self.why)


@dataclass(frozen=True)
class Audit:
    """One row per module; prints as a table.

    Attributes:
        notes: what training made of the whole: prior, beta, weight decay.
        one_pass: how near one pass came to draws, as `distill_` found it: `probs`, the share of
            probability that lies elsewhere, or `mean` and `std`, in stds of the prediction; `nll`,
            of one pass less of draws; `examples` and `draws`, how many.
    """

    rows: tuple[AuditRow, ...]
    notes: tuple[str, ...] = ()
    one_pass: Mapping[str, float] | None = None

    def __iter__(self) -> Iterator[AuditRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        head = ("module", "type", "status", "Bayesian", "deterministic", "estimator", "why")
        weights = sum(row.weights for row in self)
        rest = sum(row.deterministic for row in self)
        table = [head, *(r.cells() for r in self), ("total", "", "", f"{weights:,}", f"{rest:,}")]
        widths = [max(len(row[i]) for row in table[:-1]) for i in range(len(head))]
        numeric = (3, 4)

        def line(row: tuple[str, ...]) -> str:
            padded = (
                cell.rjust(widths[i]) if i in numeric else cell.ljust(widths[i])
                for i, cell in enumerate(row)
            )
            return "  ".join(padded).rstrip()

        return "\n".join([*map(line, table), *self.notes])

    __repr__ = __str__


def audit(model: nn.Module) -> Audit:
    """Lists every module: Bayesian or deterministic, how many parameters, and why.

    Counts are of the module's own parameters, not of its children's; a tied one counts where
    it is met first. Works before and after conversion.

    Example:
        >>> print(audit(model))                         # a table
        >>> [row.name for row in audit(model) if row.status == "bayesian"]
    """
    if not isinstance(model, nn.Module):
        raise PocketBayesError(f"audit takes a torch.nn.Module, not {type(model).__name__}")
    seen: set[int] = set()
    modules, known = model.named_modules(), describe(model)
    rows = tuple(_row(n, m, seen) for n, m in modules if not _belongs_to_posterior(n))
    words = inference_in_words(known.prior, known.beta, known.decay_std, known.training)
    notes = [f"{name}: {text}" for name, text in words]
    compared = (known.one_pass or {}).get("compared")
    return Audit(rows, (*notes, *([comparison_in_words(compared)] if compared else [])), compared)


def _row(name: str, module: nn.Module, seen: set[int]) -> AuditRow:
    posteriors: dict[str, Posterior] = {}
    plain, estimator = type(module), "-"
    if isinstance(module, BayesianModule):
        posteriors = dict(posteriors_of(module).by_name())
        plain, estimator = plain_class_of(module), posteriors_of(module).estimator
    own = {n: p for n, p in module._parameters.items() if p is not None}
    random = [p for p in posteriors.values() if p.is_random]
    exact = [p for p in posteriors.values() if not p.is_random]
    return AuditRow(
        name=name,
        type=plain.__name__,
        status="bayesian" if random else "deterministic" if own or exact else "-",
        weights=sum(prod(p.shape) for p in _unseen(random, seen)),
        deterministic=sum(p.numel() for p in _unseen(own.values(), seen))
        + sum(prod(p.shape) for p in _unseen(exact, seen)),
        estimator=estimator,
        why=_why(module, posteriors, list(own)),
    )


def _why(module: nn.Module, posteriors: dict[str, Posterior], own: list[str]) -> str:
    if posteriors:
        family = {kind: name for name, kind in FAMILIES.items()}
        random = ", ".join(f"{n}: {family[type(p)]}" for n, p in posteriors.items())
        return random + (f"; deterministic: {', '.join(own)}" if own else "")
    if not own:
        return "no parameters of its own"
    if isinstance(module, NORMS):
        return "normalisation"
    if isinstance(module, nn.PReLU):
        return "activation"
    if kind_of(module) is not None:
        return "not selected"
    if library_type(module) is not None:
        return "not a kind that can be converted"
    if all(name in NOISES for name in own):
        return "the likelihood's noise"
    bare = [name for name in own if name not in NOISES]
    return f"bare parameters of your own module: {', '.join(bare)}"


def _unseen(items: Iterable[Item], seen: set[int]) -> list[Item]:
    new = [item for item in items if id(item) not in seen]
    seen.update(map(id, new))
    return new


def _belongs_to_posterior(name: str) -> bool:
    return OURS in name.split(".")
