"""The loss of a training loop of one's own."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pocketbayes as pb


def data(rows: int = 400, noise: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 2, generator=generator)
    y = x @ torch.tensor([[1.0], [-0.5]]) + noise * torch.randn(rows, 1, generator=generator)
    return x, y


def mlp(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, outputs)))


def trained(model, x, y, steps: int = 300, **options) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(steps):
        optimizer.zero_grad()
        progress = step / steps
        pb.loss(model, model(x), y, len(x), progress=progress, **options).backward()
        optimizer.step()
    return model


def test_it_is_the_loss_by_hand():
    x, _ = data()
    y = (x[:, 0] > 0).long()
    model = pb.bayesianize_(nn.Linear(2, 2), prior_std=0.5)
    output = model(x)
    expected = F.cross_entropy(output, y) + 0.3 * pb.kl(model) / 1000
    assert torch.allclose(pb.loss(model, output, y, 1000, beta=0.3), expected)
    half = F.cross_entropy(output, y) + 0.3 * 0.5 * pb.kl(model) / 1000
    assert torch.allclose(pb.loss(model, output, y, 1000, beta=0.3, progress=0.25), half)


def test_a_regression_learns_its_noise_and_its_prior():
    x, y = data()
    model = trained(mlp(), x, y)
    record = pb.evaluate(model, [data()], generator=torch.Generator().manual_seed(0))
    assert record.likelihood == "gaussian"
    assert math.isfinite(record.nll)
    noise = float(pb.predict(model, x).aleatoric.mean().sqrt())
    assert noise == pytest.approx(0.3, rel=0.15)
    assert 0.85 < record.coverage_90 < 0.95
    priors = {round(float(q.prior_std), 4) for _, q in pb.named_posteriors(model)}
    assert 0.05 not in priors
    assert len(priors) == 2


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [("student-t", 1), ("heteroscedastic", 2), ("poisson", 1), ("negative-binomial", 1)],
)
def test_every_likelihood_trains(likelihood, outputs):
    x, y = data(100)
    y = torch.poisson((0.5 * y).exp()) if "o" in likelihood[:2] or "neg" in likelihood else y
    model = trained(mlp(outputs), x, y, steps=30, likelihood=likelihood)
    record = pb.evaluate(model, [(x, y)])
    assert record.likelihood == likelihood
    assert math.isfinite(record.nll)


def test_a_model_without_noise_is_finite_and_says_so_until_it_is_estimated():
    x, y = data()
    model = mlp()
    with pytest.warns(UserWarning, match="never learned"):
        assert pb.predict(model, x, likelihood="gaussian").mean.isfinite().all()
    with pytest.warns(UserWarning, match="never learned"):
        assert math.isfinite(pb.evaluate(model, [(x, y)], likelihood="gaussian").nll)
    pb.refresh_noise_(model, [(x, y)], likelihood="gaussian")
    assert float(pb.predict(model, x, likelihood="gaussian").aleatoric.mean()) > 0.1


def test_a_noise_of_fit_stays_with_the_optimiser():
    x, y = data()
    model = mlp()
    pb.fit(model, [(x, y)], epochs=2, likelihood="gaussian", progress=False)
    before = float(model.noise_log_std.detach())
    pb.loss(model, model(x), y, len(x)).backward()
    assert float(model.noise_log_std.detach()) == before
    assert model.noise_log_std.grad is not None


def test_mistakes_are_named():
    x, y = data(10)
    with pytest.raises(pb.PocketBayesError, match="bayesianize_"):
        pb.loss(nn.Linear(2, 1), y, y, 10)
    with pytest.raises(pb.PocketBayesError, match="dataset_size"):
        pb.loss(mlp(), y, y, 0)
    with pytest.raises(pb.DataError, match="label"):
        pb.loss(mlp(2), mlp(2)(x), torch.full((10,), 2), 10)
    with pytest.raises(pb.PocketBayesError, match="progress"):
        pb.loss(mlp(), y, y, 10, progress=2.0)


def test_a_later_fit_learns_the_noise_that_the_loss_began():
    x, y = data()
    model = mlp()
    pb.loss(model, model(x), y, len(x))
    before = float(model.noise_log_std.detach())
    pb.fit(model, [(x, y)], epochs=30, likelihood="gaussian", progress=False)
    assert model.noise_log_std.requires_grad
    assert float(model.noise_log_std.detach()) != before


def test_training_on_drops_a_calibration():
    x, y = data()
    model = trained(mlp(), x, y, steps=20)
    pb.conformal(model, [(x, y)], level=0.9)
    with pytest.warns(UserWarning, match="calibra"):
        pb.loss(model, model(x), y, len(x)).backward()
    assert pb.predict(model, x[:2]).conformal is None


def test_several_losses_may_share_a_backward_pass():
    x, y = data()
    model = mlp()
    total = sum(pb.loss(model, model(part), y[:10], len(x)) for part in (x[:10], x[10:20]))
    total.backward()
    assert all(q.mean.grad is not None for _, q in pb.named_posteriors(model))


def test_groups_for_an_optimiser_of_ones_own_are_those_of_fit():
    x, y = data(50)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))
    model = pb.bayesianize_(net)
    pb.fit(model, [(x, y)], epochs=1, likelihood="gaussian", progress=False)
    means, others, scales = pb.parameter_groups(model, lr=0.1, weight_decay=0.01, std_lr=0.3)
    posteriors = [q for _, q in pb.named_posteriors(model)]
    assert {id(p) for p in means["params"]} == {id(q.mean) for q in posteriors}
    noise = {id(model.noise_log_std)}
    assert {id(p) for p in scales["params"]} == {id(q.log_std) for q in posteriors} | noise
    assert sum(len(g["params"]) for g in (means, others, scales)) == len([*model.parameters()])
    assert [g["lr"] for g in (means, others, scales)] == [0.1, 0.1, 0.3]
    assert [g["weight_decay"] for g in (means, others, scales)] == [0.01, 0, 0]


def test_groups_are_what_an_optimiser_takes_and_decay_moves_the_means_only():
    model = mlp()
    optimizer = torch.optim.AdamW(pb.parameter_groups(model, lr=0.1, weight_decay=0.5))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        factor = 0.95 if name.endswith(".mean") else 1
        assert torch.allclose(p, factor * before[name]), name


def test_groups_leave_out_what_is_frozen_and_say_so_if_nothing_is_left():
    model = mlp()
    model[0].requires_grad_(False)
    frozen = {id(p) for p in model[0].parameters()}
    assert not frozen & {id(p) for g in pb.parameter_groups(model) for p in g["params"]}
    with pytest.raises(pb.PocketBayesError, match="nothing to train"):
        pb.parameter_groups(model.requires_grad_(False))
    with pytest.raises(pb.PocketBayesError, match="weight_decay"):
        pb.parameter_groups(mlp(), weight_decay=-1)
