"""Which estimator predicts where nothing is said: moments in small regressions, else draws."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import update_description
from pocketbayes.models import build_network
from pocketbayes.prediction import choosing

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


class Own(nn.Module):
    """Code of a user: who knows what it does."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.first(x).relu())


def usual(outputs=1):
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, outputs))


def regression(make=usual, likelihood="gaussian", std=0.3, **options):
    torch.manual_seed(0)
    model = pb.bayesianize_(make(), std_init=std, **options)
    output = model(X)
    pb.loss(model, output, torch.zeros_like(output), dataset_size=6, likelihood=likelihood)
    update_description(model, likelihood=likelihood)
    return model


def nested():
    tail = nn.Sequential(nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 1))
    return nn.Sequential(nn.Flatten(), nn.Linear(3, 8), nn.BatchNorm1d(8), tail)


def scaled():
    return build_network("scaled_mlp", input_shape=(3,), num_outputs=1, hidden=(8,))


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
@pytest.mark.parametrize("make", [usual, nested, scaled, lambda: nn.Linear(3, 1)])
def test_moments_predict_one_value(make, estimator):
    model = regression(make, estimator=estimator)
    pred, same = pb.predict(model, X), pb.predict(model, X, estimator="moments")
    assert pred.estimator == "moments"
    assert torch.equal(pred.mean, same.mean)
    assert torch.equal(pred.std, same.std)
    assert pb.predict(model, X, estimator=estimator).estimator == estimator
    assert pb.evaluate(model, [(X, torch.zeros(6, 1))]).estimator == "moments"


def twice():
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(3, 1))


def summing():
    return nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4)), nn.Flatten(), nn.Linear(8, 1))


def hooked():
    net = usual()
    net[1].register_forward_hook(lambda module, x, y: 2 * y)
    return net


@pytest.mark.parametrize("make", [Own, twice, summing, hooked, lambda: usual(2)])
def test_others_are_drawn(make):
    assert pb.predict(regression(make), X, single=False).estimator == "lrt"


def test_every_module_that_is_known_has_a_rule():
    for kind in choosing._NUMBER_BY_NUMBER:
        part = kind(8) if kind is nn.BatchNorm1d else kind()
        model = regression(lambda part=part: nn.Sequential(nn.Linear(3, 8), part, nn.Linear(8, 1)))
        assert pb.predict(model, X).estimator == "moments"


def test_draws_are_made_where_they_are_wanted():
    model = regression()
    assert pb.predict(model, X, keep_samples=True).estimator == "lrt"
    one, other = (
        pb.predict(model, X, 1, generator=torch.Generator().manual_seed(seed)).mean
        for seed in (0, 1)
    )
    assert not torch.equal(one, other)  # functions drawn at random
    pb.conformal(model, [(X, torch.zeros(6, 1))], level=0.5, estimator="lrt")
    assert pb.predict(model, X).estimator == "lrt"  # what the promise is for


def test_units_whose_variance_is_too_large_are_an_error():
    model = regression(scaled)
    for unit in (1e150, 1e-150):
        model.output_std.fill_(unit)
        assert pb.predict(model, X).std.isfinite().all()
    model.output_std.fill_(1e200)
    with pytest.raises(pb.DataError, match=r"row 0 of (mean|std) is not finite"):
        pb.predict(model, X)


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


def test_files_and_conformal_intervals_agree_on_it(tmp_path):
    model = regression()
    pb.conformal(model, [(X, torch.zeros(6, 1))], level=0.5)
    pb.save(model, tmp_path / "m.pocket", lossless=True, exact_state=True)
    back = pb.load(tmp_path / "m.pocket", usual())
    here, there = pb.predict(model, X), pb.predict(back, X)
    assert there.estimator == "moments"
    for one, other in zip(here.interval(), there.interval(), strict=True):
        torch.testing.assert_close(one, other)
