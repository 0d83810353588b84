"""One contract for every family, then known answers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from pocketbayes.posteriors import (
    FAMILIES,
    Codebook,
    Gaussian,
    LogUniform,
    NarrowSpike,
    Point,
    Posterior,
    Shared,
    Sparse,
    SparsePoint,
    SpikeSlab,
)
from pocketbayes.posteriors.conversions import as_log_uniform, as_point
from pocketbayes.posteriors.gaussian import GaussianKL, Reparameterised, SquareOfExp
from pocketbayes.posteriors.parts import Blends, Outliers


def gaussian() -> Gaussian:
    generator = torch.Generator().manual_seed(4)
    mean = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    log_std = torch.randn(6, 5, generator=generator, dtype=torch.float64) - 1
    return Gaussian(mean, log_std, prior_std=0.3)


def log_uniform() -> LogUniform:
    return as_log_uniform(gaussian())


def point() -> Point:
    return Point(gaussian().mean.detach(), prior_std=0.3)


def sparse() -> Sparse:
    dense = gaussian()
    index = torch.tensor([0, 3, 4, 11, 12, 20, 29])
    mean, log_std = (t.detach().flatten()[index] for t in (dense.mean, dense.log_std))
    return Sparse(index, mean, log_std, (6, 5), prior_std=0.3)


def sparse_point() -> SparsePoint:
    return as_point(sparse())


def shared() -> Shared:
    generator = torch.Generator().manual_seed(5)
    mean, log_std = (torch.randn(7, generator=generator, dtype=torch.float64) for _ in range(2))
    label = torch.randint(7, (30,), generator=generator)
    pair = torch.tensor([2, 17])
    outliers = Outliers(pair, torch.tensor([3.0, -3]).double(), torch.tensor([0.0, -1]).double())
    share = torch.tensor([0.25, 0.9]).double()
    blends = Blends(pair + 5, torch.tensor([[0, 1], [4, 2]]), share)
    return Shared(Codebook(mean, log_std - 1), label, (6, 5), 0.3, outliers, blends)


def spike_slab() -> SpikeSlab:
    slab, log_odds = gaussian(), torch.linspace(-3, 3, 30, dtype=torch.float64).view(6, 5)
    mean, log_std = slab.mean.detach(), slab.log_std.detach()
    return SpikeSlab(mean, log_std, log_odds, 0.3, torch.tensor(-1.0, dtype=torch.float64))


def narrow_spike() -> NarrowSpike:
    q = spike_slab()
    arrays = q.arrays() | {"spike_std": torch.tensor(0.02, dtype=torch.float64)}
    return NarrowSpike.from_arrays(arrays)


EXAMPLES = {
    "gaussian": gaussian,
    "log_uniform": log_uniform,
    "narrow_spike": narrow_spike,
    "point": point,
    "shared": shared,
    "sparse": sparse,
    "sparse_point": sparse_point,
    "spike_slab": spike_slab,
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def test_every_family_has_an_example():
    assert EXAMPLES.keys() == FAMILIES.keys()


def drawn(posterior: Posterior, n: int, randomness: str = "different") -> torch.Tensor:
    """`n` draws at once, which takes a hundredth of the time of one after another."""
    return torch.vmap(lambda _: posterior.sample(), randomness=randomness)(torch.empty(n))


@every_family
def test_draws_at_once_are_draws_one_by_one(family):
    posterior = EXAMPLES[family]()
    torch.manual_seed(1)
    alone = posterior.sample()
    torch.manual_seed(1)
    assert torch.equal(drawn(posterior, 3, "same"), alone.expand(3, 6, 5))


@every_family
def test_moments_are_those_of_the_samples(family):
    """Mean and variance of 20,000 draws, 30 entries each; false alarm 30 * 2 * 2.9e-7 = 2e-5."""
    posterior = EXAMPLES[family]()
    n = 20_000
    draws = drawn(posterior, n)
    mean, variance = posterior.moments()
    if not posterior.is_random:
        assert torch.equal(draws, mean.expand_as(draws))
        assert not variance.any()
        return
    active = variance > 0
    assert not draws[:, ~active].any()
    assert not mean[~active].any()
    draws, mean, variance = draws[:, active], mean[active], variance[active]
    z_mean = (draws.mean(0) - mean) / (variance / n).sqrt()
    z_variance = (draws.var(0) / variance - 1) / math.sqrt(2 / (n - 1))
    assert z_mean.abs().max() < 5.2
    assert z_variance.abs().max() < 5.2


@every_family
def test_arrays_determine_the_posterior(family):
    posterior = EXAMPLES[family]()
    codebook = (posterior.codebook,) if isinstance(posterior, Shared) else ()
    again = FAMILIES[family].from_arrays(posterior.arrays(), *codebook)
    for one, other in zip(posterior.moments(), again.moments(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(posterior.kl(), again.kl())
    assert not any(a.requires_grad for a in posterior.arrays().values())


@every_family
def test_a_generator_fixes_the_sample_and_leaves_the_default_one_alone(family):
    posterior = EXAMPLES[family]()
    before = torch.get_rng_state()
    one = posterior.sample(torch.Generator().manual_seed(1))
    other = posterior.sample(torch.Generator().manual_seed(1))
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


@every_family
def test_the_contract(family):
    posterior = EXAMPLES[family]()
    assert isinstance(posterior, Posterior)
    assert posterior.expectation().shape == posterior.shape == posterior.sample().shape
    assert torch.equal(posterior.expectation(), posterior.moments()[0])
    parameters = {id(p) for p in posterior.parameters()}
    assert {id(p) for p in posterior.std_parameters()} < parameters
    assert posterior.kl() > 0 or not posterior.is_random


stds = st.floats(math.log(1e-12), math.log(1e3)).map(math.exp)


@given(st.floats(-1e3, 1e3), stds, stds, st.sampled_from([torch.float64, torch.float32]))
def test_kl_is_that_of_torch_distributions(mean, std, prior_std, dtype):
    posterior = Gaussian.around(torch.full((3,), mean, dtype=dtype), std, prior_std)
    got = posterior.kl().detach()
    q = Normal(posterior.mean.detach().double(), posterior.log_std.detach().double().exp())
    want = kl_divergence(q, Normal(0.0, posterior.prior_std.double())).sum()
    tolerance = 1e-6 if dtype == torch.float64 else 2e-4
    assert math.isfinite(got) or dtype == torch.float32
    if want < 1e37:
        torch.testing.assert_close(got.double(), want, rtol=tolerance, atol=3 * tolerance)


@given(stds)
def test_kl_and_its_gradient_are_never_nan(std):
    posterior = Gaussian.around(torch.tensor([0.0, 1.0, -50.0]), std, 0.05)
    posterior.kl().backward()
    assert posterior.kl().isfinite()
    assert posterior.mean.grad.isfinite().all()
    assert posterior.log_std.grad.isfinite().all()


def test_kl_is_zero_at_the_prior_and_nowhere_negative():
    posterior = Gaussian.around(torch.zeros(10_000), 0.05, 0.05)
    assert 0 <= posterior.kl() < 1e-2
    posterior.kl().backward()
    assert posterior.log_std.grad.abs().max() < 1e-5


def test_kl_under_another_prior():
    posterior = gaussian()
    other = Gaussian(posterior.mean.detach(), posterior.log_std.detach(), prior_std=2.0)
    torch.testing.assert_close(posterior.kl(2.0), other.kl())


def test_gradients_are_exact():
    mean, log_std = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    prior = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        GaussianKL.apply, (mean, log_std, prior), check_batched_grad=True
    )
    noise = torch.randn(4, 3, dtype=torch.float64)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(Reparameterised.apply, (mean, log_std, noise), check_batched_grad=True)
    assert torch.autograd.gradcheck(SquareOfExp.apply, (log_std,), check_batched_grad=True)


def test_compiled_kl_and_moments_agree_with_eager():
    posterior = gaussian()
    torch._dynamo.reset()
    kl = torch.compile(lambda: posterior.kl(), fullgraph=True, backend="aot_eager")
    moments = torch.compile(lambda: posterior.moments(), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(kl(), posterior.kl())
    torch.testing.assert_close(moments(), posterior.moments())
    eager = torch.autograd.grad(posterior.kl(), list(posterior.parameters()))
    compiled = torch.autograd.grad(kl(), list(posterior.parameters()))
    torch.testing.assert_close(compiled, eager)


def test_a_parameter_is_kept_not_copied():
    weight = torch.nn.Parameter(torch.randn(3), requires_grad=False)
    posterior = Gaussian.around(weight, 0.1, 0.1)
    assert posterior.mean is weight
    assert not posterior.log_std.requires_grad
