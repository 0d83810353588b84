"""What C is made of: a model's program, with moments of its weights and shapes of its buffers."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import nn

from pocketbayes.codec import plain_state
from pocketbayes.deploy.c_tables import Array
from pocketbayes.deploy.plans import Plan
from pocketbayes.errors import PocketBayesError, ProgramError
from pocketbayes.layers import (
    Ensemble,
    OnePassHead,
    bayesian_modules,
    describe,
    head_of,
    named_posteriors,
    posteriors_of,
)
from pocketbayes.posteriors import Posterior
from pocketbayes.programs import Buffer, Operation, Program, Weight, planned, weight_names
from pocketbayes.tracing import inputs_of, program_of

KINDS = ("categorical", "bernoulli", "gaussian", "heteroscedastic")
_ALIASES = ("reshape", "dropout")


@dataclass
class Source:
    """A model as it is to be written.

    Attributes:
        names: of the program's weights, by their numbers.
        shapes: of the program's buffers.
    """

    model: nn.Module
    plan: Plan
    program: Program
    names: list[str]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def carries(self) -> bool:
        """Whether variances go through the network."""
        return self.plan.estimator == "moments"

    @cached_property
    def head(self) -> OnePassHead | None:
        """The head that answers."""
        return head_of(self.model) if self.plan.estimator == "one_pass" else None

    @cached_property
    def last_layer(self) -> Weight | None:
        """The weight of a head's last place, if the head reads its variances."""
        if self.head is None or not self.head.knows_variance:
            return None
        name = f"{self.head.places[-1].name}.weight"
        weight = Weight(self.names.index(name)) if name in self._posteriors else None
        is_linear = weight is not None and self.mean_of(weight).ndim == 2
        return weight if is_linear and self.variance_of(weight) is not None else None

    @cached_property
    def _posteriors(self) -> dict[str, Posterior]:
        return dict(named_posteriors(self.model))

    def mean_of(self, weight: Weight) -> Array:
        """A weight's mean, or itself."""
        name = self.names[weight.number]
        found = self._posteriors.get(name)
        tensor = plain_state(self.model)[name] if found is None else found.expectation()
        return np.asarray(tensor.detach().float().numpy())

    def variance_of(self, weight: Weight | None) -> Array | None:
        """A weight's variance; None: it is certain."""
        found = None if weight is None else self._posteriors.get(self.names[weight.number])
        if found is None or weight is None:
            return None
        if self.carries and found.gate is not None and found.gate.side != "input":
            raise PocketBayesError(
                f"{self.names[weight.number]} has gates at outputs, whose moments are not exported "
                'to C: pass estimator="mean", or "one_pass" after pb.distill_'
            )
        values = np.asarray(found.moments()[1].detach().float().numpy())
        return values if values.any() else None

    def is_common(self, weight: Weight) -> bool:
        """Whether one draw of a weight serves all positions."""
        name = self.names[weight.number]
        for prefix, layer in bayesian_modules(self.model):
            own = {
                f"{prefix}.{key}".lstrip("."): q
                for key, q in posteriors_of(layer).by_name().items()
            }
            if name in own:
                is_local = all(q.is_independent or q.gate is not None for q in own.values())
                return posteriors_of(layer).estimator_now() != "lrt" or not is_local
        return True

    def root(self, buffer: int) -> int:
        """The buffer that holds the numbers of this one."""
        operation = self._maker(buffer)
        if operation is not None and operation.name in _ALIASES:
            return self.root(operation.fields[0].number)
        return buffer

    def _maker(self, buffer: int) -> Operation | None:
        step = buffer - len(self.program.inputs)
        return self.program.operations[step] if step >= 0 else None

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """The steps that read the numbers of each buffer; behind all, the output's."""
        found: dict[int, list[int]] = {}
        for step, operation in enumerate(self.program.operations):
            for operand in operation.operands():
                if isinstance(operand, Buffer) and operation.name not in _ALIASES:
                    found.setdefault(self.root(operand.number), []).append(step)
        found.setdefault(self.root(self.program.output.number), []).append(
            len(self.program.operations)
        )
        return found


def source_of(model: nn.Module, plan: Plan) -> Source:
    """The program of a model for one example, or an error that says what C cannot do."""
    known = describe(model)
    _require(not isinstance(model, Ensemble), "an ensemble", "export one of its members")
    _require(not plan.is_drawn, f'estimator="{plan.estimator}"', 'pass "moments" or "mean"')
    _require(
        plan.likelihood.name in KINDS, f'likelihood="{plan.likelihood.name}"',
        f"it knows {', '.join(KINDS)}; export to ONNX",
    )  # fmt: skip
    keeps = known.keeps_dropout and plan.estimator == "moments"
    _require(not keeps, "dropout that stays on in prediction", 'pass estimator="mean"')
    _require(len(plan.rows) == 1, "a network of several inputs", "join them into one")
    names = weight_names([n for n, _ in named_posteriors(model)], plain_state(model))
    try:
        program = program_of(model, inputs_of(plan.rows[0]), names, plan.rows[0])
    except ProgramError as error:
        raise PocketBayesError(f"the model cannot be exported to C: {error}") from error
    source = Source(model, plan, program, names, ())
    tensors: Callable[[int], Array] = lambda i: source.mean_of(Weight(i))  # noqa: E731
    source.shapes = planned(program, [tensors(i).shape for i in range(len(names))]).shapes
    _require(
        len(source.shapes[program.output.number]) <= 1, "an output with positions",
        "average over them in the network",
    )  # fmt: skip
    return source


def _require(good: bool, what: str, advice: str) -> None:
    if not good:
        raise PocketBayesError(f"{what} is not exported to C: {advice}")
