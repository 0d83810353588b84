"""Whole networks by 8-bit products: near those in float, the same from all threads."""

import numpy as np
import pytest
import torch
from program_models import GOLDEN

import pocketbayes as pb
from pocketbayes.models import build_network

NETWORKS = {  # input, options, how far probabilities may be off
    "mlp": ((64,), {"hidden": (1000,)}, 0.005),
    "lenet5": ((1, 28, 28), {}, 0.005),
    "resnet20": ((3, 32, 32), {}, 0.02),
}
CASES = [
    (n, e) for n in NETWORKS for e in ("mean", "one_pass") if (n, e) != ("resnet20", "one_pass")
]
FIELDS = ("probs", "entropy", "aleatoric", "epistemic", "label")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Networks, two of them with one-pass heads."""
    folder = tmp_path_factory.mktemp("files")
    for name, (shape, options, _) in NETWORKS.items():
        torch.manual_seed(0)
        net = build_network(name, input_shape=shape, num_outputs=5, **options)
        with torch.no_grad():
            [net(torch.randn(64, *shape)) for _ in range(20)]  # statistics of norms
            list(net.parameters())[-2].mul_(4)  # classes that differ
        x = torch.randn(16, *shape)
        model = pb.bayesianize_(net, std_init=0.01).eval()
        pb.layers.update_description(model, likelihood="categorical")
        if name != "resnet20":
            pb.distill_(model, [x], 1)
        pb.save(model, folder / f"{name}.pocket", example=x[:1])
    return folder


def opened(lite, path, threads=1):
    """In float, and by 8 bits; skips where the processor cannot."""
    model = lite.load(path, threads, int8=True)
    if not model.int8_layers:
        pytest.skip("needs a processor with products of 8 bits")
    return lite.load(path, threads), model


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize(("name", "estimator"), CASES)
def test_answers_are_near_those_in_float(lite, files, name, estimator, rows):
    plain, eight = opened(lite, files / f"{name}.pocket")
    x = np.random.default_rng(0).normal(size=(rows, *NETWORKS[name][0]))
    a, b = (model.predict(x, estimator) for model in (plain, eight))
    most = NETWORKS[name][2]
    assert 0 < np.abs(a.probs - b.probs).max() < most
    assert np.abs(a.epistemic - b.epistemic).max() < most
    best = np.sort(a.probs)
    clear = best[:, -1] - best[:, -2] > 2 * most
    assert clear.mean() > 0.3
    assert (a.label == b.label)[clear].all()


@pytest.mark.parametrize("name", NETWORKS)
def test_threads_give_the_same_bits(lite, files, name, monkeypatch):
    parts = pytest.importorskip(lite.__name__ + ".parts")
    monkeypatch.setattr(parts, "WORTH_A_THREAD", 1e-3)
    path, rows = files / f"{name}.pocket", 70
    x = np.random.default_rng(1).normal(size=(rows, *NETWORKS[name][0]))
    one = opened(lite, path)[1]
    for threads in (2, 3):
        other = opened(lite, path, threads)[1]
        for estimator in (e for n, e in CASES if n == name):
            a, b = (model.predict(x, estimator) for model in (one, other))
            assert all(np.array_equal(getattr(a, f), getattr(b, f)) for f in FIELDS)


def test_moments_and_draws_are_those_in_float(lite, files):
    plain, eight = opened(lite, files / "lenet5.pocket")
    x = np.random.default_rng(2).normal(size=(20, 1, 28, 28))
    for estimator in ("moments", "weight"):
        assert (plain.predict(x, estimator, 3).probs == eight.predict(x, estimator, 3).probs).all()


def test_a_file_of_small_layers_is_answered_in_float(lite):
    path, x = GOLDEN / "program-head.pocket", np.random.default_rng(0).normal(size=(20, 6))
    plain, eight = (lite.load(path, int8=on) for on in (False, True))
    assert plain.int8_layers == eight.int8_layers == 0
    for estimator in ("mean", "one_pass", "moments"):
        assert (plain.predict(x, estimator).probs == eight.predict(x, estimator).probs).all()
    assert lite.read(path.read_bytes(), int8=True).int8_layers == 0


def test_without_being_asked_for_nothing_is_of_8_bits(lite, files):
    assert lite.load(files / "mlp.pocket").int8_layers == 0
