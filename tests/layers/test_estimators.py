"""The estimators against known answers: moments, gradients, and each other."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import pocketbayes as pb
from pocketbayes.layers.bayesian import set_estimator
from pocketbayes.layers.estimators import (
    Conv,
    Weights,
    _AddNoise,
    _OutputMoments,
    linear_operation,
    output_moments,
)
from pocketbayes.layers.linear import _moments

CONVS = [
    None,
    Conv((2, 1), (1, 0), (1, 2), False, (0, 0), 2),
    Conv((2, 2), (1, 1), (1, 1), True, (1, 0), 2),
]


def tensors(conv, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    if conv is None:
        x, shape, outputs = randn(3, 2, 5), (4, 5), 4
    else:
        x = randn(2, 4, 4, 5)
        shape, outputs = ((4, 3, 3, 3), 6) if conv.transposed else ((6, 2, 3, 3), 6)
    return x, randn(*shape), randn(*shape).exp(), randn(outputs), randn(outputs).exp()


@pytest.mark.parametrize(
    ("conv", "with_bias"),
    [(CONVS[0], True), (CONVS[0], False), (CONVS[1], True), (CONVS[2], False)],
)
def test_gradients_of_the_output_moments_are_exact(conv, with_bias):
    inputs = [t.requires_grad_() for t in tensors(conv)]
    if not with_bias:
        inputs[3] = inputs[4] = None
    assert torch.autograd.gradcheck(lambda *a: _OutputMoments.apply(*a, conv), inputs)


def test_gradient_of_the_noise_is_exact_and_zero_where_there_is_none():
    mean, variance = (torch.rand(5, dtype=torch.float64) + 0.1 for _ in range(2))
    noise = torch.randn(5, dtype=torch.float64)
    inputs = (mean.requires_grad_(), variance.requires_grad_(), noise)
    assert torch.autograd.gradcheck(lambda *a: _AddNoise.apply(*a)[0], inputs)
    nothing = torch.zeros(3, requires_grad=True)
    _AddNoise.apply(torch.zeros(3), nothing, torch.ones(3))[0].sum().backward()
    assert (nothing.grad == 0).all()


@pytest.mark.parametrize("conv", CONVS)
def test_output_moments_are_those_of_weight_samples(conv):
    """4,000 weight draws; every |z| < 5.5 over at most 500 outputs: false alarm 4e-5."""
    x, mean, variance, bias, bias_variance = tensors(conv, seed=1)
    first, second = output_moments(x, Weights(mean, variance, bias, bias_variance), conv)
    n = 4000
    draws = torch.stack(
        [
            linear_operation(
                x,
                mean + variance.sqrt() * torch.randn_like(mean),
                bias + bias_variance.sqrt() * torch.randn_like(bias),
                conv,
            )
            for _ in range(n)
        ]
    )
    assert ((draws.mean(0) - first) / (second / n).sqrt()).abs().max() < 5.5
    assert ((draws.var(0) / second - 1) / math.sqrt(2 / (n - 1))).abs().max() < 5.5


@pytest.mark.parametrize("estimator", ["lrt", "weight", "flipout"])
@pytest.mark.parametrize("make", [lambda: nn.Linear(6, 4), lambda: nn.Conv1d(3, 4, 2)])
def test_all_estimators_have_the_same_marginals(estimator, make):
    """Mean and variance of each output over 3,000 passes; |z| < 5.2 over at most 60 outputs."""
    torch.manual_seed(7)
    layer = make().double()
    x = torch.randn((2, 6) if isinstance(layer, nn.Linear) else (2, 3, 5), dtype=torch.float64)
    model = pb.bayesianize_(layer, std_init=0.3, estimator=estimator)
    first, second = output_moments(
        x,
        _moments(model),
        None if isinstance(layer, nn.Linear) else Conv((1,), (0,), (1,), False, (0,), 1),
    )
    n = 3000
    with torch.no_grad():
        draws = torch.stack([model(x) for _ in range(n)])
    assert ((draws.mean(0) - first) / (second / n).sqrt()).abs().max() < 5.2
    assert ((draws.var(0) / second - 1) / math.sqrt(2 / (n - 1))).abs().max() < 5.2


@pytest.mark.parametrize("estimator", ["lrt", "flipout"])
def test_examples_of_a_batch_have_uncorrelated_noise_except_with_one_weight_sample(estimator):
    """Correlation over 4,000 passes of two equal examples; |r| < 5.5 / sqrt(4000)."""
    model = pb.bayesianize_(nn.Linear(5, 1), std_init=0.3, estimator=estimator)
    x = torch.randn(1, 5).repeat(2, 1)

    def correlation():
        with torch.no_grad():
            draws = torch.stack([model(x).squeeze() for _ in range(4000)])
        return torch.corrcoef(draws.T)[0, 1]

    assert correlation().abs() < 5.5 / math.sqrt(4000)
    set_estimator(model, "weight")
    assert correlation() > 0.999


def test_the_elbo_is_tight_at_the_exact_posterior_of_a_conjugate_model():
    """Bayesian linear regression: at the true posterior, NELBO = -log evidence.

    y = X w + noise with X orthogonal, so the true posterior is mean-field. With the estimator
    "lrt" the expected likelihood is a Gaussian's second moment, so no sampling is needed.
    """
    generator = torch.Generator().manual_seed(3)
    n, d, noise, prior = 40, 5, 0.5, 0.7
    design = torch.linalg.qr(torch.randn(n, d, generator=generator, dtype=torch.float64)).Q * 3
    y = torch.randn(n, generator=generator, dtype=torch.float64)
    precision = 9 / noise**2 + 1 / prior**2
    model = pb.bayesianize_(
        nn.Linear(d, 1, bias=False).double(), prior_std=prior, std_init=precision**-0.5
    )
    model._posteriors["weight"].mean.data.copy_((design.T @ y / noise**2 / precision)[None])
    mean, variance = output_moments(design, _moments(model), None)
    expected = Normal(mean.squeeze(), noise).log_prob(y).sum() - variance.sum() / 2 / noise**2
    nelbo = pb.kl(model) - expected
    covariance = noise**2 * torch.eye(n) + prior**2 * design @ design.T
    evidence = torch.distributions.MultivariateNormal(
        torch.zeros(n, dtype=torch.float64), covariance
    ).log_prob(y)
    torch.testing.assert_close(nelbo, -evidence, rtol=1e-9, atol=1e-9)
    for parameter in model.parameters():
        (gradient,) = torch.autograd.grad(nelbo, parameter, retain_graph=True)
        assert gradient.abs().max() < 1e-9


def test_float16_autocast_does_not_lose_the_variance():
    model = pb.bayesianize_(nn.Linear(64, 8), std_init=1e-4)
    x = torch.randn(512, 64)
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        draws = torch.stack([model(x) for _ in range(200)]).float()
    expected = 1e-4 * x.norm(dim=1, keepdim=True).expand(-1, 8)
    assert (draws.std(0) / expected - 1).abs().mean() < 0.1
