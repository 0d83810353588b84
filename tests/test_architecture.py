"""The rooms of the library, and which room may use which: one line a room."""

import ast
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

PACKAGE = "pocketbayes"
ROOT = Path(__file__).parents[1] / "src" / PACKAGE
TESTS = Path(__file__).parent

# What a room may import; everyone may import errors.
MAY_IMPORT = {
    "moments": "",
    "posteriors": "",
    "models": "",
    "programs": "",
    "sharing": "",
    "data": "posteriors",
    "sparsity": "posteriors",
    "layers": "moments posteriors",
    "likelihoods": "layers posteriors",
    "shrinking": "layers models moments posteriors",
    "tracing": "layers moments programs",
    "methods": "layers posteriors sharing sparsity",
    "codec": "layers likelihoods models posteriors programs tracing",
    "prediction": "layers likelihoods moments posteriors",
    "distillation": "layers likelihoods posteriors prediction",
    "training": "codec layers likelihoods methods posteriors prediction",
    "deploy": "codec layers likelihoods moments posteriors prediction programs tracing",
    "estimators": "codec layers likelihoods methods models posteriors prediction training",
    "compression": "codec distillation layers methods posteriors prediction sharing "
    "sparsity training",
    "report": "codec data layers methods posteriors prediction",
    "commands": "codec compression data deploy distillation layers likelihoods methods models "
    "prediction report training",
}
AT_THE_ROOT = {
    "": {*MAY_IMPORT, "lightning"},
    "__main__": {"cli"},
    "cli": {"codec", "commands", "report"},
    "lightning": {"codec", "likelihoods", "methods", "prediction", "training"},
}
# The one name that may come from the root itself.
READ_THE_VERSION = {"cli", "commands.report", "deploy.c_answers", "deploy.onnx_models"}
FOR_USERS = {"data", "methods", "models", "posteriors"}  # these hand out more than others use
LARGEST_FILE, LONGEST_FUNCTION = 300, 40


@cache
def sources() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(p for p in parts if p != "__init__")] = path
    return found


def room_of(module: str) -> str:
    return module.partition(".")[0]


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(sources()[module].read_text())


@cache
def imports(module: str) -> set[str]:
    """What a module imports of the library: `layers` or `layers.conversion`, "" for the root."""
    found = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {n for n in inside if n.removeprefix(f"{PACKAGE}.") in sources()}
            names = modules | ({node.module} if modules != inside else set())
        else:
            continue
        ours = {n for n in names if n == PACKAGE or n.startswith(f"{PACKAGE}.")}
        found |= {n.removeprefix(PACKAGE).lstrip(".") for n in ours}
    return found


def test_a_module_imports_only_what_its_room_may():
    for module in sources():
        room = room_of(module)
        allowed = AT_THE_ROOT.get(module) or {room, *MAY_IMPORT.get(room, "").split()}
        freely = {"errors", ""} if module in READ_THE_VERSION else {"errors"}
        used = {room_of(name) for name in imports(module)} - freely
        assert used <= allowed, f"{module} must not import {used - allowed}"


def test_another_room_is_entered_by_its_door():
    for module in sources():
        inside = {n for n in imports(module) if "." in n and room_of(n) != room_of(module)}
        if module == "cli":  # the command line is put together from one file a command
            inside = {name for name in inside if room_of(name) != "commands"}
        assert not inside, f"import what {module} needs of {inside} from the room itself"


def test_the_table_names_every_room_and_has_no_cycle():
    at_root = {*AT_THE_ROOT, "errors"}
    assert {room_of(module) for module in sources()} == {*MAY_IMPORT, *at_root}
    TopologicalSorter({m: set(a.split()) for m, a in MAY_IMPORT.items()}).prepare()


def test_newcomers_are_told_of_every_room():
    told = (TESTS.parent / "CONTRIBUTING.md").read_text()
    assert all(f"`{room}/`" in told for room in MAY_IMPORT)


def test_the_table_allows_nothing_that_is_not_used():
    used = {(room_of(module), room_of(name)) for module in sources() for name in imports(module)}
    allowed = {(room, other) for room, others in MAY_IMPORT.items() for other in others.split()}
    assert allowed <= used


def test_a_room_hands_out_what_others_use_and_nothing_else():
    wanted = {room: set() for room in MAY_IMPORT}
    for module in sources():
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{PACKAGE}."):
                room = node.module.removeprefix(f"{PACKAGE}.")
                if room in wanted and room_of(module) != room:
                    wanted[room] |= {alias.name for alias in node.names}
    for room in wanted:
        given = next(
            (ast.literal_eval(n.value) for n in tree_of(room).body
             if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"), []
        )  # fmt: skip
        assert wanted[room] <= set(given), room
        assert room in FOR_USERS or set(given) == wanted[room], room
        assert all(hasattr(import_module(f"{PACKAGE}.{room}"), name) for name in given), room


def test_all_imports_are_absolute():
    for module in sources():
        for node in ast.walk(tree_of(module)):
            assert not getattr(node, "level", 0), f"{module}:{node.lineno}"


def test_no_module_shares_a_public_name():
    import pocketbayes

    assert not set(pocketbayes.__all__) & {room_of(name) for name in sources()}


def test_errors_need_no_torch():
    text = (ROOT / "errors.py").read_text()
    assert "import torch" not in text
    assert "from torch" not in text


def test_tests_lie_in_the_folders_of_the_rooms():
    others = {"benchmarks", "docs", "engine", "examples", "golden", "lite", "web", "__pycache__"}
    folders = {path.name for path in TESTS.iterdir() if path.is_dir()} - others
    assert folders == set(MAY_IMPORT)


def test_files_and_functions_stay_short():
    for module, path in sources().items():
        assert path.read_text().count("\n") <= LARGEST_FILE, module
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                assert length <= LONGEST_FUNCTION, f"{module}: {node.name} has {length} lines"
