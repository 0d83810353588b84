"""The prior variance that a posterior's KL is least at."""

import pytest
import torch

from pocketbayes.posteriors import Gaussian, LogUniform, NarrowSpike, Point, Sparse, SpikeSlab


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def posteriors() -> dict[str, torch.nn.Module]:
    mean, log_std = drawn(5, 4), 0.3 * drawn(5, 4) - 1
    prior = torch.tensor(0.0)
    return {
        "gaussian": Gaussian(mean, log_std, 0.7),
        "sparse": Sparse(torch.tensor([1, 4, 7]), drawn(3), drawn(3) - 1, (5, 4), 0.7),
        "spike and slab": SpikeSlab(mean, log_std, 3 * drawn(5, 4), 0.7, prior),
        "gates": SpikeSlab(mean, log_std, 3 * drawn(4), 0.7, prior, "input", 1),
    }


@pytest.mark.parametrize("name", posteriors())
def test_no_other_prior_has_a_smaller_kl(name):
    q = posteriors()[name].double()
    best = q.best_prior_variance().sqrt().detach()
    least = q.kl(best).detach()
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert q.kl(factor * best).detach() > least


def test_weights_of_one_value_give_its_square():
    q = Gaussian(torch.full((3,), 0.4), torch.full((3,), -100.0), 1.0)
    assert float(q.best_prior_variance().detach()) == pytest.approx(0.16)


def test_what_is_out_says_nothing_of_the_slab():
    odds = torch.tensor([12.0, -12.0])
    q = SpikeSlab(torch.tensor([0.1, 50.0]), torch.full((2,), -9.0), odds, 1.0, torch.tensor(0.0))
    assert float(q.best_prior_variance().detach()) < 0.05


def test_families_without_a_scale_keep_their_prior():
    assert Point(torch.ones(2), 0.3).best_prior_variance() is None
    assert LogUniform(torch.ones(2), torch.zeros(2), 0.3).best_prior_variance() is None
    spike = NarrowSpike(
        torch.ones(2), torch.zeros(2), torch.zeros(2), 0.7, torch.tensor(0.0), spike_std=0.07
    )
    assert spike.best_prior_variance() is None
