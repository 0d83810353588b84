"""A model as C: what answers it gives, and of what the file is made."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from pocketbayes.deploy.c_answers import answer_tables, facts_of
from pocketbayes.deploy.c_head import Head
from pocketbayes.deploy.c_memory import Slot
from pocketbayes.deploy.c_operations import run_operation
from pocketbayes.deploy.c_passes import Pass, Value
from pocketbayes.deploy.c_sources import Source, source_of
from pocketbayes.deploy.c_tables import Array, Tables, levels_of
from pocketbayes.deploy.c_text import (
    Facts,
    functions_text,
    header_text,
    kernels_text,
    nodes_of,
    source_text,
)
from pocketbayes.deploy.plans import Plan
from pocketbayes.prediction import spread_normals
from pocketbayes.programs import Weight

_TYPES = ("weights", "window")  # of tables
_READS_VARIANCES = ("dense_moments", "sparse_moments")
_TELLERS = {"categorical": "classes", "bernoulli": "labels"}


@dataclass(frozen=True)
class CModel:
    """Both files, what the answers are, and what they take.

    Attributes:
        facts: what the header tells; more can be added before it is written.
        source: the .c file.
        flash_bytes: of all tables, code apart.
        ram_bytes: of all buffers, the stack apart.
    """

    facts: Facts
    source: str
    flash_bytes: int
    ram_bytes: int

    @property
    def header(self) -> str:
        """The .h file."""
        return header_text(self.facts)


def c_model(model: nn.Module, plan: Plan, name: str, exact: bool) -> CModel:
    """The C of a model as its file has it; all names in it begin with `name`."""
    source = source_of(model, plan)
    tables = Tables(_levels(source), exact)
    body = Pass(source, tables)
    body.values[0] = Value(source.shapes[0], "input", None, (False,) * len(source.shapes[0]))
    head = None if source.head is None else Head(body)
    if head is not None:
        head.read(0)
    for body.step in range(len(source.program.operations)):
        run_operation(body)
        number = body.step + 1
        if head is not None and number in body.values:
            head.read(number)
    body.step = len(source.program.operations)
    return _assembled(source, body, head, name)


def _levels(source: Source) -> Array:
    if not source.carries and source.last_layer is None:
        return np.zeros(0)
    weights = [Weight(i) for i in range(len(source.names))]
    wanted = weights if source.carries else [source.last_layer]
    found = (source.variance_of(w) for w in wanted)
    return levels_of(v for v in found if v is not None and v.ndim > 1)


def _assembled(source: Source, body: Pass, head: Head | None, name: str) -> CModel:
    plan, tables = source.plan, body.tables
    output = body.values[source.program.output.number]
    draws = plan.num_samples if head or output.is_random else 1
    mean: Any = output.mean
    variance: Slot | str = output.variance if isinstance(output.variance, Slot) else "0"
    if head is not None:
        head.finish(output.mean)
        mean, variance = head.mean, head.variance
    variance = variance if draws > 1 else "0"  # one draw is the mean
    teller = _TELLERS.get(plan.likelihood.name, plan.likelihood.name)
    body.kernels |= {teller, "are_finite"}
    room = output.size if teller == "classes" else draws if teller == "heteroscedastic" else 1
    work = body.memory.slot(room, body.step, body.step)
    numbers = body.memory.place()
    if draws > 1 and teller != "gaussian":
        normals = spread_normals(draws, output.size)[: draws // 2].numpy()
        tables.floats("normals", normals, len(normals))
        body.kernels.add("normal")
    constants = {"OUTPUTS": output.size, "DRAWS": draws} | (head.constants if head else {})
    constants |= {"WINDOW": body.window} if "max_pool_moments" in body.kernels else {}
    answer_tables(source, tables, teller, output.size, draws)
    parts = [
        f"typedef {'int16_t' if tables.wide else 'int8_t'} mean_code;", kernels_text(_TYPES),
        *_shared_tables(body), *tables.text, f"static float memory[{max(1, numbers)}];",
        kernels_text(body.kernels, _TYPES), functions_text(body.functions),
    ]  # fmt: skip
    calls = [f"    {kernel}({', '.join(map(str, args))});" for kernel, args in body.calls]
    calls.append(f"    tell({mean}, {variance}, {work}, answer);")
    facts = facts_of(source, name, teller, output.size, draws)
    text = source_text(facts, constants, parts, "\n".join(calls))
    names = sum(len(n.encode()) + 5 for n in facts.class_names)
    return CModel(facts, text, tables.bytes + names, 4 * max(1, numbers))


def _shared_tables(body: Pass) -> list[str]:
    """What several calls read: variances by their codes, nodes of quadratures."""
    own = Tables(body.tables.levels, body.tables.wide)
    if any(k.startswith("last") or k.endswith(_READS_VARIANCES) for k in body.kernels):
        own.floats("variances", np.concatenate([[0.0], body.tables.levels]))
    for number in sorted(body.nodes):
        own.floats(f"nodes{number}", nodes_of(number))
    body.tables.bytes += own.bytes
    return own.text
