"""`export(..., to="c")`: both files, written and measured."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pocketbayes.codec import write_atomically
from pocketbayes.deploy.c_models import c_model
from pocketbayes.deploy.c_running import compared, measured
from pocketbayes.deploy.exported import Exported, Footprint
from pocketbayes.deploy.plans import Plan
from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import describe

_LONGEST = 40


def export_c(model: nn.Module, path: Path, plan: Plan, pocket_bytes: int, exact: bool) -> Exported:
    """Writes NAME.c and NAME.h; a path that is no .c file is a folder for model.c and model.h."""
    path = path if path.suffix == ".c" else path / "model.c"
    name = re.sub(r"\W", "_", path.stem, flags=re.ASCII)
    if name[:1].isdigit() or not name or len(name) > _LONGEST:
        raise PocketBayesError(
            f"{path.name} gives no name for functions of C: use letters, digits and _, at most "
            f"{_LONGEST}, not a digit first"
        )
    made = c_model(model, plan, name, exact)
    found = measured(made)
    size = Footprint(
        made.flash_bytes, made.ram_bytes, found and found.flash, found and found.ram, exact
    )
    promises = describe(model).conformal is not None and plan.likelihood.kind == "classes"
    apart = compared(made, model, plan)
    made = replace(made, facts=replace(made.facts, told=[*made.facts.told, *size.told()]))
    path.parent.mkdir(parents=True, exist_ok=True)
    for file, text in ((path, made.source), (path.with_suffix(".h"), made.header)):
        _write(file, text, path.stem, name)
    return Exported(
        path=path, to="c", estimator=plan.estimator, num_samples=plan.num_samples,
        outputs=tuple(key for _, key, _ in made.facts.fields),
        bytes=made.flash_bytes, pocket_bytes=pocket_bytes, graph_bytes=0,
        compared=apart, footprint=size,
        left_out="no prediction_set: C has none" if promises else "",
    )  # fmt: skip


def _write(file: Path, text: str, stem: str, name: str) -> None:
    """The .c file includes the header by the name that it has on the disk."""
    data: Any = text.replace(f'#include "{name}.h"', f'#include "{stem}.h"').encode()
    write_atomically(file, lambda out: out.write(data))
