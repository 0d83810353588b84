"""A warning names the line of whoever called the library, never one of its own."""

import ast
import warnings
from inspect import unwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.errors import warn
from pocketbayes.layers import update_description

QUIETLY = {"epochs": 0, "progress": False, "device": "cpu"}
X = torch.randn(8, 3)
CLASSES, VALUES = [(X, torch.arange(8) % 2)], [(X, X[:, :2])]


def network(likelihood="categorical", **facts):
    model = pb.bayesianize_(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    update_description(model, likelihood=likelihood, **facts)
    return model


def calibrated():
    return network(temperature=2.0)


def gated(beta):
    model, method = network(), pb.SpikeSlab(granularity="input", beta=beta)
    pb.fit(model, CLASSES, method, **QUIETLY)
    return model


def noisy(beta):
    model = network("gaussian")
    pb.fit(model, VALUES, pb.MeanField(beta=beta), likelihood="gaussian", **QUIETLY)
    return model


class Wrapped(nn.Module):
    """Calls the library from inside of a forward pass, which torch runs."""

    def forward(self, x):
        warn("from inside")
        return x


LINES = {
    "fit": lambda: pb.fit(calibrated(), CLASSES, **QUIETLY),
    "fit without gradients": torch.no_grad()(lambda: pb.fit(calibrated(), CLASSES, **QUIETLY)),
    "prune_": lambda: pb.prune_(calibrated(), 0.5),
    "quantize_": lambda: pb.quantize_(calibrated()),
    "loss": lambda: pb.loss(calibrated(), torch.zeros(8, 2, requires_grad=True), CLASSES[0][1], 8),
    "Laplace": lambda: pb.fit(network(), CLASSES, pb.Laplace(), **QUIETLY),
    "Subspace": lambda: pb.fit(network(), CLASSES, pb.Subspace(density=0.01), **QUIETLY),
    "compile": lambda: pb.fit(
        network(), CLASSES, pb.Subspace(density=0.5, allocation="global"), compile=True, **QUIETLY
    ),
    "predict": lambda: pb.predict(network("gaussian"), X),
    "evaluate": lambda: pb.evaluate(network("gaussian"), VALUES),
    "interval": lambda: pb.predict(noisy(0.01), X).interval(0.9),
    "feature_report": lambda: pb.feature_report(gated(0.1)),
    "prediction_set": lambda: (
        pb.predict(pb.conformal(network(), CLASSES, 0.5), X, 5).prediction_set
    ),
    "forward pass": lambda: Wrapped()(X),
}


@pytest.mark.parametrize("name", LINES)
def test_the_line_is_the_callers(name):
    speaks = Wrapped.forward if name == "forward pass" else unwrap(LINES[name])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        LINES[name]()
    assert found, "this was to warn"
    for warning in found:
        assert warning.filename == __file__, f"{warning.filename}:{warning.lineno}"
        assert warning.lineno in {line for *_, line in speaks.__code__.co_lines()}


def test_nobody_warns_in_another_way():
    root = Path(pb.__file__).parent
    for path in root.rglob("*.py"):
        calls = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ]
        said = {ast.unparse(call.func) for call in calls}
        assert "warnings.warn" not in said, path
        assert path.name == "errors.py" or "warnings.warn_explicit" not in said, path


def test_a_line_is_told_once_unless_asked_for_more():
    def twice():
        for _ in range(2):
            pb.predict(network("gaussian"), X)

    for action, count in (("default", 1), ("always", 2)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(action)
            twice()
        assert len(found) == count


def test_a_warning_may_be_made_an_error_for_ones_own_module():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", module=__name__)
        with pytest.raises(UserWarning, match="never learned"):
            pb.predict(network("gaussian"), X)
