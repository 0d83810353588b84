"""Points in coarse steps: the steps that cost least, the rise of the loss, files of `compress`."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.compression.rounding import NATS_AN_EXAMPLE, rounded, sensitivities
from pocketbayes.layers import named_posteriors, noise_log_std


def loader_of(x, y):
    return DataLoader(TensorDataset(x, y), 100)


def regression(rows=400, inputs=60):
    """y = x w + noise, with inputs of which some say a hundred times as much as others."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(-1, 1, inputs)
    x = torch.randn(rows, inputs, generator=generator) * scale
    y = (x / scale).sum(1, keepdim=True) / inputs**0.5
    return x, y + 0.5 * torch.randn(rows, 1, generator=generator)


def point_model(net, x, y, likelihood, epochs):
    torch.manual_seed(0)
    model = pb.bayesianize_(net)
    method = pb.Deterministic()
    return pb.fit(
        model, loader_of(x, y), method, epochs=epochs, likelihood=likelihood, progress=False
    ).model


@pytest.fixture(scope="module")
def line():
    x, y = regression()
    return point_model(nn.Linear(60, 1, bias=False), x, y, "gaussian", 30), x, y


def test_the_sensitivity_of_a_line_is_known(line):
    model, x, y = line
    (_, found), *rest = sensitivities(model, "gaussian", [(x, y)]).items()
    expected = float(x.square().mean()) / _noise_variance(model)
    assert not rest
    assert found == pytest.approx(expected, rel=1e-3)


def _noise_variance(model):
    return float((2 * noise_log_std(model).detach()).exp())


def test_the_loss_rises_as_said():
    """By e / 2 to 2 e, as steps are powers of two of one another; of 2,000 weights."""
    torch.manual_seed(1)
    x = torch.randn(3000, 2000)
    w = torch.randn(2000, 1)
    y = x @ w / 2000**0.5 + torch.randn(3000, 1)
    model = point_model(nn.Linear(2000, 1, bias=False), x, y, "gaussian", 1)
    tolerance = 0.3
    found = rounded(model, sensitivities(model, "gaussian", [(x, y)]), tolerance)
    rise = NATS_AN_EXAMPLE * tolerance
    ((_, old),), ((_, new),) = pb.named_posteriors(model), pb.named_posteriors(found)
    moved = (x @ (new.mean - old.mean).detach().T).square().mean() / _noise_variance(model) / 2
    assert rise / 2 < float(moved) < 2 * rise


def test_steps_share_one_unit_and_follow_the_sensitivity():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(50, 40), nn.ReLU(), nn.Linear(40, 30))
    x, y = torch.randn(100, 50), torch.arange(100) % 30
    model = point_model(net, x, y, "categorical", 1)
    names = [name for name, _ in pb.named_posteriors(model)]
    found = rounded(model, {names[0]: 1.0, names[1]: 64.0}, 1.0)
    steps = [_least_gap(q.mean) for _, q in pb.named_posteriors(found)]
    assert steps[0] / steps[1] == 8  # the root of the ratio of sensitivities
    expected = math.sqrt(24 * NATS_AN_EXAMPLE / (50 * 40 + 40 * 30))
    assert expected / 1.04 < steps[0] <= expected


def _least_gap(mean):
    values = mean.detach().flatten().unique()
    return float(values.diff().min())


def test_what_does_not_matter_keeps_its_size_and_zeros_stay():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 3)))
    x, y = torch.randn(100, 30), torch.arange(100) % 3
    model = pb.fit(model, loader_of(x, y), pb.Deterministic(), epochs=1, progress=False).model
    (first, _), (second, q) = pb.named_posteriors(model)
    q.mean.data.zero_()
    found = dict(pb.named_posteriors(rounded(model, {first: 0.0, second: 1.0}, 1.0)))
    assert found[first].mean.isfinite().all()
    assert not found[second].mean.any()


def test_the_model_itself_stays_and_random_weights_are_left_alone(line):
    model, x, y = line
    before = copy.deepcopy(model)
    assert rounded(model, sensitivities(model, "gaussian", [(x, y)]), 1.0) is not model
    pairs = zip(before.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    random = pb.bayesianize_(nn.Linear(60, 1))
    assert sensitivities(random, "gaussian", [(x, y)]) == {}
    pairs = zip(*(named_posteriors(m) for m in (rounded(random, {}, 1.0), random)), strict=True)
    assert all(torch.equal(a.mean, b.mean) for (_, a), (_, b) in pairs)


@pytest.fixture(scope="module")
def classes():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1200, 20, generator=generator)
    y = (x[:, :4] @ torch.randn(4, 4, generator=generator)).argmax(1)
    return (x[:800], y[:800]), (x[800:], y[800:])


def wide():
    return nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )


def test_a_plain_network_becomes_small(classes, tmp_path):
    train, held = classes
    model = point_model(wide(), *train, "categorical", 30)
    small = pb.compress(
        model, loader_of(*train), loader_of(*held), max_drop=0.02, epochs=0, one_pass=False,
        progress=False,
    )  # fmt: skip
    assert small.bytes < 0.4 * pb.save(model, tmp_path / "plain.pocket").bytes
    small.save(tmp_path / "small.pocket")
    back = pb.load(tmp_path / "small.pocket", wide())
    record = pb.evaluate(back, loader_of(*held))
    assert record.nll == pytest.approx(small.chosen.record.nll, abs=1e-5)
    assert record.accuracy >= small.before.record.accuracy - 0.02


def test_members_of_an_ensemble_each_have_their_own(classes):
    train, held = classes
    model = pb.fit(
        pb.bayesianize_(wide()),
        loader_of(*train),
        pb.DeepEnsemble(members=2),
        epochs=3,
        progress=False,
    ).model
    found = sensitivities(model, "categorical", [held])
    assert set(found) == {name for name, _ in pb.named_posteriors(model)}
    assert found["members.0.0.weight"] != found["members.1.0.weight"]


def test_of_a_last_layer_laplace_the_points_are_rounded(classes):
    train, held = classes
    model = point_model(wide(), *train, "categorical", 10)
    model = pb.fit(
        model, loader_of(*train), pb.Laplace(), epochs=0, val_loader=loader_of(*held),
        progress=False,
    ).model  # fmt: skip
    found = sensitivities(model, "categorical", [held])
    assert set(found) == {"0.weight", "2.weight"}
