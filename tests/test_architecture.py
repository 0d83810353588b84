"""The import rules of the library: one line per module, checked against the source."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = "pocketbayes"
ROOT = Path(__file__).parents[1] / "src" / PACKAGE

# A package's line also covers the modules inside it unless they have their own.
# Everyone may import errors.
MAY_IMPORT = {
    "errors": "",
    "randomness": "",
    "metrics": "",
    "progress": "",
    "checkpoints": "",
    "environment": "",
    "allocation": "",
    "criteria": "",
    "exchange": "",
    "inclusion": "randomness",
    "ranking": "exchange",
    "cells": "",
    "mixture": "cells",
    "merging": "cells mixture",
    "rate_distortion": "cells mixture",
    "weight_sharing": "cells merging mixture",
    "compression": "",
    "codebooks": "cells rate_distortion weight_sharing",
    "estimators": "inclusion randomness",
    "posteriors": "inclusion randomness reuse",
    "reuse": "randomness",
    "repacking": "exchange posteriors",
    "convolutions": "estimators",
    "layers": "convolutions estimators posteriors randomness reuse",
    "selection": "layers",
    "auditing": "layers posteriors selection",
    "description": "layers",
    "convert": "description estimators layers posteriors selection",
    "elbo": "convert description posteriors",
    "batches": "randomness",
    "diagnosis": "elbo layers",
    "dropout": "",
    "ensembles": "description",
    "methods": "allocation codebooks convert criteria description dropout environment exchange"
    " inclusion merging posteriors rate_distortion repacking weight_sharing",
    "optimizers": "convert description methods",
    "predictive": "",
    "prediction": "convert description dropout elbo ensembles environment estimators layers"
    " posteriors predictive randomness reuse",
    "norms": "elbo ensembles environment estimators posteriors prediction",
    "noise": "batches description elbo environment norms prediction",
    "evaluation": "batches convert elbo layers metrics prediction predictive",
    "counting": "codebooks convert posteriors",
    "quantization": "convert posteriors",
    "budgets": "evaluation",
    "pruning": "budgets convert criteria elbo evaluation inclusion posteriors ranking",
    "channels": "",
    "narrowing": "layers posteriors",
    "operations": "layers narrowing posteriors",
    "channel_rules": "channels models narrowing operations",
    "shrinking": "channel_rules channels convert description ensembles layers models narrowing"
    " posteriors",
    "gradients": "convert elbo environment layers posteriors",
    "standing": "checkpoints",
    "training": "batches checkpoints description diagnosis elbo environment evaluation gradients"
    " methods optimizers posteriors progress standing",
    "composition": "checkpoints ensembles methods randomness",
    "fitting": "batches checkpoints composition description elbo ensembles environment"
    " gradients methods noise norms randomness training",
    "codec": "checkpoints convert description elbo ensembles estimators layers models posteriors",
    "data": "extras progress randomness",
    "extras": "",
    "tables": "",
    "plots": "extras",
    "planes": "plots",
    "features": "convert description elbo ensembles layers plots posteriors selection",
    "figures": "batches convert description methods planes plots posteriors prediction predictive",
    "report": "codec data evaluation extras figures methods metrics planes plots predictive tables",
    "flags": "compression",
    "commands": "checkpoints codec composition compression convert data description"
    " ensembles environment evaluation features figures fitting flags flops estimators layers"
    " extras methods models noise norms plots prediction predictive progress pruning report tables",
    "cli": " codec commands flags tables",
    "__main__": "cli",
    "models": "",
    "flops": "environment layers methods randomness",
    "": "auditing codec composition convert counting elbo evaluation features figures"
    " fitting flops methods noise norms prediction predictive pruning quantization shrinking",
}
WITHOUT_TORCH = {"errors", "progress"}
LARGEST_FILE, LONGEST_FUNCTION = 300, 40


def sources() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(p for p in parts if p != "__init__")] = path
    return found


def unit(module: str) -> str:
    """The entry of the table that governs a module."""
    while module not in MAY_IMPORT:
        module = module.rpartition(".")[0]
    return module


def imports(module: str, source: str, is_package: bool = False) -> set[str]:
    """Absolute names of everything a module imports, relative imports resolved."""
    found = set()
    here = [PACKAGE, *filter(None, module.split("."))]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            drop = node.level - (1 if is_package else 0)
            base = here[: len(here) - drop] if node.level else []
            name = ".".join([*base, *filter(None, [node.module])])
            modules = {f"{name}.{alias.name}" for alias in node.names}
            found |= {m for m in modules if m.removeprefix(PACKAGE + ".") in sources()} or {name}
    return found


@pytest.mark.parametrize("module", sorted(sources()))
def test_every_import_is_in_the_table(module):
    path = sources()[module]
    names = imports(module, path.read_text(), path.name == "__init__.py")
    allowed = {unit(module), "errors", *MAY_IMPORT[unit(module)].split()}
    ours = {unit(n.removeprefix(PACKAGE).lstrip(".")) for n in names if n.startswith(PACKAGE)}
    assert ours <= allowed, f"{module} must not import {ours - allowed}"
    if module in WITHOUT_TORCH:
        assert not any(n.partition(".")[0] == "torch" for n in names), f"{module} imports torch"


def test_every_line_of_the_table_is_used():
    assert {unit(module) for module in sources()} == set(MAY_IMPORT)


def test_the_table_has_no_cycles():
    TopologicalSorter({m: set(a.split()) for m, a in MAY_IMPORT.items()}).prepare()


def test_relative_imports_are_seen():
    assert imports("posteriors.gaussian", "from .base import Posterior") == {
        "pocketbayes.posteriors.base"
    }
    assert imports("layers", "from . import errors") == {"pocketbayes.errors"}
    assert imports("methods", "from ..layers import x", is_package=True) == {"pocketbayes.layers"}


def test_no_module_shares_a_public_name():
    import pocketbayes

    assert not set(pocketbayes.__all__) & {name.partition(".")[0] for name in sources()}


@pytest.mark.parametrize("module", sorted(sources()))
def test_files_and_functions_stay_short(module):
    source = sources()[module].read_text()
    assert source.count("\n") <= LARGEST_FILE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body:
                length = body[-1].end_lineno - body[0].lineno + 1
                assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"
