"""`predict` and `evaluate` by the engine, against torch."""

import sys

import pytest
import torch
from program_models import GOLDEN, NAMES, example, network
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import head_of, set_estimator
from pocketbayes.layers.description import add_noise_parameter, update_description
from pocketbayes.models import build_network

pytestmark = pytest.mark.usefixtures("lite")
FIELDS = ("probs", "entropy", "aleatoric", "epistemic", "variance")
OF_VALUES = ("mean", "std", "aleatoric", "epistemic")


def close(found, expected, atol=1e-4):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_tells_what_torch_tells(name):
    model, x = pb.load(GOLDEN / f"program-{name}.pocket", network(name)), example(name)
    for estimator in ["mean", "moments"] + ["one_pass"] * (head_of(model) is not None):
        expected = pb.predict(model, x, estimator=estimator, keep_samples=True)
        found = pb.predict(model, x, estimator=estimator, keep_samples=True, backend="engine")
        assert (found.estimator, found.num_samples) == (expected.estimator, expected.num_samples)
        for field in FIELDS if hasattr(found, "probs") else OF_VALUES:
            close(getattr(found, field), getattr(expected, field))
        close(found.samples, expected.samples)


def regression():
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=(6,), num_outputs=1, hidden=(12,))
    model = pb.bayesianize_(net, std_init=0.2).eval()
    add_noise_parameter(model, (1,), "noise_log_std")
    update_description(model, likelihood="gaussian")
    return model, torch.randn(20, 6)


def test_values_intervals_and_single_examples():
    model, x = regression()
    expected, found = pb.predict(model, x), pb.predict(model, x, backend="engine")
    assert found.estimator == expected.estimator == "moments"
    for name in ("mean", "std", "aleatoric", "epistemic", "samples"):
        close(getattr(found, name), getattr(expected, name))
    close(found.interval(0.9)[0], expected.interval(0.9)[0])
    close(pb.predict(model, x[0], backend="engine").mean, expected.mean[0])


def test_draws_repeat_and_are_those_of_weights_in_law():
    """Means over 4,000 draws each; 6 standard errors are passed by chance once in 10^8 numbers."""
    model, x = regression()
    expected, made = pb.predict(model, x, 4000, estimator="weight"), []
    for estimator in ("weight", "lrt"):
        for seed in (0, 0, 1):
            generator = torch.Generator().manual_seed(seed)
            made.append(pb.predict(model, x, 4000, generator, estimator, backend="engine"))
            error = (2 * expected.epistemic / 4000).sqrt()
            assert ((made[-1].mean - expected.mean).abs() < 6 * error).all()
    assert made[0].mean.equal(made[1].mean)
    assert not made[0].mean.equal(made[2].mean)
    torch.testing.assert_close(made[0].epistemic, expected.epistemic, rtol=0.25, atol=0)
    settled = pb.predict(model, x, "auto", estimator="weight", backend="engine")
    assert settled.samples_used.min() >= 30


def test_evaluate():
    model, x = regression()
    loader = [(x[:12], torch.randn(12)), (x[12:], torch.randn(8))]
    expected, found = pb.evaluate(model, loader), pb.evaluate(model, loader, backend="engine")
    assert found.nll == pytest.approx(expected.nll, abs=1e-4)
    assert found.rmse == pytest.approx(expected.rmse, abs=1e-4)


def test_changed_weights_and_facts_are_seen():
    model, x = regression()
    before = pb.predict(model, x, estimator="mean", backend="engine")
    with torch.no_grad():
        next(p for n, p in model.named_parameters() if n.endswith("mean") and p.dim() > 1).mul_(2)
    expected = pb.predict(model, x, estimator="mean")
    found = pb.predict(model, x, estimator="mean", backend="engine")
    assert not torch.allclose(before.mean, found.mean, atol=1e-3)
    close(found.mean, expected.mean)
    update_description(model, temperature=2.0)
    close(
        pb.predict(model, x, estimator="mean", backend="engine").std,
        pb.predict(model, x, estimator="mean").std,
    )


def test_what_the_engine_cannot_do_is_said():
    model = pb.bayesianize_(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)))
    x = torch.randn(2, 1, 8, 8)
    with pytest.raises(pb.PocketBayesError, match='pass estimator="weight"'):
        pb.predict(model, x, backend="engine")
    set_estimator(model, "weight")
    assert pb.predict(model, x, backend="engine").probs.shape == (2, 2)
    with pytest.raises(pb.PocketBayesError, match="backend must be one of torch, engine"):
        pb.predict(model, x, backend="rust")


class Twice(nn.Module):
    """One layer for both halves of a row."""

    def __init__(self):
        super().__init__()
        self.part, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.part(x[:, :3]) + self.part(x[:, 3:]))


def test_noise_at_every_output_is_drawn_where_each_row_uses_each_weight_once():
    torch.manual_seed(0)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    model, x = pb.bayesianize_(flat, std_init=0.3).eval(), torch.randn(5, 2, 3)
    for estimator in (None, "lrt", "flipout"):
        expected = pb.predict(model, x, 4000, estimator="lrt")
        found = pb.predict(model, x, 4000, estimator=estimator, backend="engine")
        close(found.probs, expected.probs, atol=0.03)
        close(found.epistemic, expected.epistemic, atol=0.03)
    deep = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    for net, inputs in ((deep, x), (Twice(), x.flatten(1))):
        with pytest.raises(pb.PocketBayesError, match='pass estimator="weight"'):
            pb.predict(pb.bayesianize_(net), inputs, backend="engine")


def test_a_promise_holds_for_draws_of_one_law(lite, tmp_path, recwarn):
    torch.manual_seed(0)
    x, y = torch.randn(40, 2, 3), torch.randint(0, 2, (40,))
    for late in (False, True):
        layers = [nn.Flatten(), nn.Linear(6, 8)], [nn.Linear(3, 4), nn.Flatten()]
        model = pb.bayesianize_(nn.Sequential(*layers[late], nn.ReLU(), nn.Linear(8, 2)))
        pb.conformal(model, [(x, y)], level=0.8)
        pb.save(model, tmp_path / "m.pocket", example=x[:1])
        recwarn.clear()
        assert lite.load(tmp_path / "m.pocket").predict(x.numpy()).prediction_set.any(1).all()
        assert pb.predict(model, x, estimator="weight").prediction_set.any(1).all()
        said = [str(w.message) for w in recwarn if "calibrated by" in str(w.message)]
        assert len(said) == 2 * late, said


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.fft.fft(x).real)


def test_an_operation_without_a_program_is_named():
    model = pb.bayesianize_(Odd())
    with pytest.raises(pb.PocketBayesError, match="fft"):
        pb.predict(model, torch.randn(3, 4), backend="engine")


def test_without_the_package_it_says_how_to_get_it(monkeypatch):
    model, x = regression()
    monkeypatch.setitem(sys.modules, "pocketbayes_lite", None)
    with pytest.raises(pb.PocketBayesError, match="pip install pocketbayes-lite"):
        pb.predict(model, x, backend="engine")
