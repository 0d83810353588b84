"""Which estimator predicts where nothing is said: moments in small regressions, else draws."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import update_description

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


class Own(nn.Module):
    """Code of a user, with an operation that a rule may or may not be known for."""

    def __init__(self, operation, inputs=3):
        super().__init__()
        self.first, self.last, self.operation = nn.Linear(inputs, 8), nn.Linear(8, 1), operation

    def forward(self, x):
        return self.last(self.operation(self.first(x)))


def usual(outputs=1):
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, outputs))


def regression(make=usual, likelihood="gaussian", std=0.3, **options):
    torch.manual_seed(0)
    model = pb.bayesianize_(make(), std_init=std, **options)
    output = model(X)
    pb.loss(model, output, torch.zeros_like(output), dataset_size=6, likelihood=likelihood)
    update_description(model, likelihood=likelihood)
    return model


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
@pytest.mark.parametrize("make", [usual, lambda: Own(torch.relu), lambda: Own(nn.SiLU())])
def test_moments_predict_one_value(make, estimator):
    model = regression(make, estimator=estimator)
    pred, same = pb.predict(model, X), pb.predict(model, X, estimator="moments")
    assert pred.estimator == "moments"
    assert torch.equal(pred.mean, same.mean)
    assert torch.equal(pred.std, same.std)
    assert pb.predict(model, X, estimator=estimator).estimator == estimator
    assert pb.evaluate(model, [(X, torch.zeros(6, 1))]).estimator == "moments"


class Late(Own):
    """Its first linear layer is not the one that runs first."""

    def __init__(self):
        super().__init__(torch.relu, inputs=2)
        self.before = nn.Linear(3, 2)

    def forward(self, x):
        return super().forward(self.before(x))


def convolving():
    return nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Conv1d(3, 2, 1), nn.Flatten(), nn.Linear(2, 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Own(torch.special.erfcx),
        lambda: Own(lambda x: x if x.sum() > 0 else -x),
        Late,
        lambda: usual(2),
        convolving,
    ],
    ids=["no rule", "values decide", "widths", "two outputs that depend", "convolution"],
)
def test_others_are_drawn(make):
    assert pb.predict(regression(make), X, single=False).estimator == "lrt"


def test_other_kinds_are_drawn():
    assert pb.predict(regression(likelihood="student-t"), X).estimator == "lrt"
    assert pb.predict(regression(likelihood="poisson"), X).estimator == "lrt"
    classes = pb.bayesianize_(usual(2))
    assert pb.predict(classes, X).estimator == "lrt"
    still = pb.fit(regression(), [(X, X[:, :1])], pb.Deterministic(), epochs=1,
                   likelihood="gaussian", dataset_size=6, progress=False).model  # fmt: skip
    assert pb.predict(still, X).estimator == "none"
    selecting = pb.fit(regression(), [(X, X[:, :1])], pb.SpikeSlab(), epochs=1,
                       likelihood="gaussian", dataset_size=6, progress=False).model  # fmt: skip
    assert pb.predict(selecting, X).estimator == "lrt"


def test_a_head_comes_first():
    model = regression()
    pb.distill_(model, [(X, torch.zeros(6, 1))], epochs=1)
    assert pb.predict(model, X).estimator == "one_pass"


def test_a_network_that_changes_is_looked_at_again():
    model = regression()
    assert pb.predict(model, X).estimator == "moments"
    model[1] = Own(torch.special.erfcx, inputs=8)
    model[1].last = nn.Linear(8, 8)
    assert pb.predict(model, X).estimator == "lrt"


def test_files_and_conformal_intervals_agree_on_it(tmp_path):
    model = regression()
    pb.conformal(model, [(X, torch.zeros(6, 1))], level=0.5)
    pb.save(model, tmp_path / "m.pocket", lossless=True, exact_state=True)
    back = pb.load(tmp_path / "m.pocket", usual())
    here, there = pb.predict(model, X), pb.predict(back, X)
    assert there.estimator == "moments"
    for one, other in zip(here.interval(), there.interval(), strict=True):
        torch.testing.assert_close(one, other)
