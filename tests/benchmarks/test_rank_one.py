"""Rank-1 BNN: what its weights are, and that nothing but its vectors is random."""

import sys
from pathlib import Path

import pytest
import torch
from torch.distributions import Normal, kl_divergence

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import rank_one  # noqa: E402

import pocketbayes as pb  # noqa: E402
from pocketbayes.models import build_network  # noqa: E402

PRIOR, STD = 0.1, 0.3
IMAGE = {"input_shape": (1, 12, 12), "num_outputs": 3}


def plain(base, **options):
    torch.manual_seed(0)
    return rank_one.scaled_(build_network(base, **options))


def made(base, **options):
    net = plain(base, **options)
    known = {"prior_std": PRIOR, "std_init": STD, "include": rank_one.RANDOM}
    return pb.bayesianize_(net, estimator="weight", **known)


def weights_of(model):
    """Those of every layer in one draw, and their points."""
    layers = [m for m in model.modules() if hasattr(m, "parametrizations")]
    return [(m.weight.detach(), m.parametrizations.weight.original.detach()) for m in layers]


@pytest.mark.parametrize(
    ("base", "options"),
    [("mlp", {"input_shape": (5,), "num_outputs": 2, "hidden": (4,)}), ("lenet5", IMAGE)],
)
def test_a_draw_is_the_point_times_two_vectors_around_1(base, options):
    """Scales by outputs and inputs, rank 1; 400 draws of one: false alarm 1e-6 by 5 errors."""
    model = made(base, **options)
    for drawn, point in weights_of(model):
        ratio = (drawn / point).flatten(2).mT if drawn.dim() > 2 else (drawn / point)[:, None]
        assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-4)  # of all positions
        values = torch.linalg.svdvals(ratio[:, 0])
        assert values[1:].sum() < 1e-5 * values[0]
    scales = torch.stack(
        [(w / p).flatten()[0] for w, p in (weights_of(model)[0] for _ in range(400))]
    )
    variance = (1 + STD**2) ** 2 - 1
    assert abs(float(scales.mean()) - 1) < 5 * (variance / 400) ** 0.5
    assert float(scales.var()) == pytest.approx(variance, rel=0.5)


def test_only_its_vectors_are_random_and_their_kl_is_that_of_scales_around_1():
    model = made("lenet5", **IMAGE)
    found = dict(pb.named_posteriors(model))
    layers = weights_of(model)
    assert len(found) == 2 * len(layers)
    assert sum(q.shape.numel() for q in found.values()) == sum(
        sum(point.shape[:2]) for _, point in layers
    )
    with torch.no_grad():
        for q in found.values():
            q.mean.normal_()
    expected = sum(
        kl_divergence(Normal(1 + q.mean, q.std), Normal(1.0, PRIOR)).sum() for q in found.values()
    )
    torch.testing.assert_close(pb.kl(model), expected)


def test_a_file_brings_it_back(tmp_path):
    model = pb.fit(made("lenet5", **IMAGE), [], pb.MeanField(beta=1.0), epochs=0, progress=False)
    pb.save(model.model, tmp_path / "a.pocket")
    again = pb.load(tmp_path / "a.pocket", plain("lenet5", **IMAGE))
    x = torch.randn(4, *IMAGE["input_shape"])
    first, second = (
        pb.predict(m, x, 20, generator=torch.Generator().manual_seed(0)).probs
        for m in (model.model, again)
    )
    torch.testing.assert_close(first, second, atol=2e-3, rtol=0)
