"""What is to be exported, decided and checked before anything is traced."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pocketbayes.errors import DataError, PocketBayesError, require_choice
from pocketbayes.layers import (
    ESTIMATORS,
    Ensemble,
    Inputs,
    describe,
    has_random_weights,
    mapped,
    moved,
    named_tensors,
    num_examples,
    tensors_of,
)
from pocketbayes.likelihoods import Likelihood, learned_for, likelihood_of
from pocketbayes.prediction import (
    Conformal,
    chosen_estimator,
    drawing,
    drawn,
    float_dtype,
    require_finite,
    whole_inputs,
)

MOMENTS, ONE_PASS = "moments", "one_pass"
DRAWN = tuple(name for name in ESTIMATORS if name != "mean")


@dataclass(frozen=True)
class Plan:
    """One export: inputs, how answers are made, and of what.

    Attributes:
        example: the inputs as given, on the CPU.
        names: of the graph's inputs.
        keys: names that `forward` knows its inputs by, if it does.
        rows: the example's tensors with at least two rows, which a tracer needs.
        outputs: (S, N, ...) of these rows; where the network is drawn, of one draw.
        estimator: one of `predict`.
        num_samples: what each answer is told from.
        level: of the interval; None: as promised, else 0.9.
    """

    example: Inputs
    names: tuple[str, ...]
    keys: tuple[str, ...] | None
    rows: tuple[Tensor, ...]
    outputs: Tensor
    likelihood: Likelihood
    learned: dict[str, Tensor]
    estimator: str
    num_samples: int
    level: float | None

    @property
    def is_drawn(self) -> bool:
        """Whether the network itself is drawn."""
        return self.estimator in DRAWN


def planned(
    model: nn.Module,
    example: Any,
    estimator: str | None,
    likelihood: str | None,
    num_samples: int,
    level: float | None,
    has_sets: bool = True,
) -> Plan:
    """The plan for a model as its file has it; `has_sets`: answers hold prediction sets."""
    x = whole_inputs(example, float_dtype(model))
    if x is None or num_examples(x) == 0:
        raise DataError("example must be a batch of inputs: a tensor, an array, or several of them")
    x = moved(x, torch.device("cpu"))
    require_finite(named_tensors(x), "the example")
    chosen = likelihood_of(model, likelihood)
    estimator = _estimator(model, estimator, chosen)
    rows = mapped(lambda t: t if len(t) > 1 else torch.cat([t, t]), x)
    with drawing(model, estimator, None):  # also makes, and keeps, what no tracer can follow
        outputs = drawn(model, rows, 1 if estimator in DRAWN else num_samples, estimator)
    keys = tuple(x) if isinstance(x, dict) else None
    many = tuple(f"x{number}" for number in range(1, len(tensors_of(x)) + 1))
    count = num_samples if estimator in DRAWN else len(outputs)
    if has_sets or chosen.kind != "classes":
        _require_promise(model, estimator, count, level)
    return Plan(
        x, keys or (many if isinstance(x, tuple) else ("x",)), keys, tensors_of(rows),
        outputs, chosen, learned_for(model, chosen, outputs), estimator, count, level,
    )  # fmt: skip


def _estimator(model: nn.Module, wanted: str | None, likelihood: Likelihood) -> str:
    """As wanted, or the cheapest that knows how sure it is."""
    if wanted is not None:
        require_choice(wanted, "estimator", (*ESTIMATORS, MOMENTS, ONE_PASS))
    is_random = has_random_weights(model) or describe(model).keeps_dropout
    found = chosen_estimator(model, wanted, likelihood) or (MOMENTS if is_random else "mean")
    if found in DRAWN and not is_random:
        return "mean"
    if found in DRAWN and (isinstance(model, Ensemble) or describe(model).keeps_dropout):
        what = "an ensemble's members" if isinstance(model, Ensemble) else "dropout"
        raise PocketBayesError(
            f'draws of {what} are not exported: pass estimator="moments", or "mean"'
        )
    return found


def _require_promise(
    model: nn.Module, estimator: str, num_samples: int, level: float | None
) -> None:
    """An error if `conformal` made its promise for other predictions."""
    known = describe(model)
    if known.conformal is None or level is not None:
        return
    found = Conformal.from_facts(known.conformal, known.one_law)
    made = {estimator, "none"} if estimator == "mean" else {estimator}
    if found.num_samples != num_samples or not any(map(found.holds_for, made)):
        raise PocketBayesError(
            f'conformal promised for estimator="{found.estimator}" and {found.num_samples} draws, '
            f'and this would be "{estimator}" and {num_samples}: export with those, or call '
            "pb.conformal again for these"
        )
