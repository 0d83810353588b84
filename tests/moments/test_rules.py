"""Every rule beside draws; how far those that are no identities may be off is said in each case."""

import math

import pytest
import torch
import torch.nn.functional as F
from against_draws import assert_agrees, assert_moments, gaussians
from torch import nn

from pocketbayes.moments import Moments
from pocketbayes.moments.gaussians import half_moments
from pocketbayes.moments.value import RULES

EXACT = {
    "relu": F.relu, "leaky relu": lambda x: F.leaky_relu(x, 0.2), "abs": torch.abs,
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3, -0.5, 1.5])),
    "hardtanh": F.hardtanh, "relu6": lambda x: F.relu6(3 * x), "clamp": lambda x: x.clamp(-0.2, 1),
    "clamp below": lambda x: x.clamp(min=0.3), "clamp above": lambda x: x.clamp_max(0.3),
    "hardsigmoid": lambda x: F.hardsigmoid(3 * x), "exp": torch.exp, "square": torch.square,
    "x * x": lambda x: x * x, "x + x": lambda x: x + x, "x - x": lambda x: x - x,
    "-x": lambda x: -x,
    "2 x + 1": lambda x: 2 * x + 1, "1 - x / 2": lambda x: 1 - x / 2, "+x": lambda x: +x,
    "alpha": lambda x: torch.add(torch.ones(4), x, alpha=3), "cube": lambda x: x**3,
    "sum": lambda x: x.sum(1), "sum of all": torch.sum, "mean": lambda x: x.mean((1, 2)),
    "kept mean": lambda x: x.mean(-1, keepdim=True),
    "average pool": lambda x: F.avg_pool1d(x, 2), "padded pool": lambda x: F.avg_pool1d(x, 3, 2, 1),
    "uncounted": lambda x: F.avg_pool1d(x, 3, 2, 1, count_include_pad=False),
    "adaptive pool": lambda x: F.adaptive_avg_pool1d(x, 2),
    "2d": lambda x: F.avg_pool2d(x, 2), "2d by 3": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "2d to 2": lambda x: F.adaptive_avg_pool2d(x, (2, None)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "batch norm": lambda x: F.batch_norm(
        x, torch.ones(3), torch.arange(1.0, 4.0), torch.tensor([1.0, -2.0, 0.5]), torch.ones(3)
    ),
    "linear": lambda x: F.linear(x, torch.linspace(-1, 1, 12).view(3, 4), torch.ones(3)),
    "convolution": lambda x: F.conv1d(x, torch.linspace(-1, 1, 18).view(2, 3, 3), padding=1),
    "transposed": lambda x: F.conv_transpose1d(x, torch.linspace(-1, 1, 12).view(3, 2, 2)),
    "matmul": lambda x: x @ torch.linspace(-1, 1, 8).view(4, 2),
    "from the left": lambda x: torch.linspace(-1, 1, 6).view(2, 3) @ x,
    "einsum": lambda x: torch.einsum("ncl,lk->nck", x, torch.linspace(-1, 1, 8).view(4, 2)),
}  # fmt: skip
SMOOTH = {
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": F.gelu, "silu": F.silu, "mish": F.mish,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"), "softplus": F.softplus,
    "sin": torch.sin,
    "cos": torch.cos, "logsigmoid": F.logsigmoid, "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "elu": F.elu, "selu": F.selu, "celu": F.celu, "erf": torch.erf, "2^x": lambda x: 2**x,
    "glu": lambda x: F.glu(x, 2),
}  # fmt: skip
KINKED = {
    "hardswish": F.hardswish, "softshrink": F.softshrink, "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.1, -2.0),
}  # fmt: skip
FIRST_ORDER = {
    "1 / x": lambda x: 1 / x, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log": torch.log,
    "x^1.5": lambda x: x**1.5, "softmax": lambda x: x.softmax(1),
    "log softmax": lambda x: F.log_softmax(x, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_identities(name):
    assert_agrees(EXACT[name], gaussians(2, 3, 4))


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_are_within_a_percent(name):
    assert_agrees(SMOOTH[name], gaussians(2, 3, 4), mean_slack=0.002, variance_slack=0.01)


@pytest.mark.parametrize("name", KINKED)
def test_functions_with_kinks_and_jumps_are_near(name):
    assert_agrees(KINKED[name], gaussians(2, 3, 4), mean_slack=0.03, variance_slack=0.07)


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_first_order_holds_for_narrow_gaussians(name):
    x = gaussians(2, 3, 4, scale=0.05, shift=5.0)
    assert_agrees(FIRST_ORDER[name], x, mean_slack=0.05, variance_slack=0.05)


TWO = {
    "a + b": lambda a, b: a + b, "a - 3 b": lambda a, b: torch.sub(a, b, alpha=3),
    "a b": lambda a, b: a * b, "maximum": torch.maximum, "minimum": torch.minimum,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3), "cat": lambda a, b: torch.cat([a, b], 1).sum(1),
    "stack": lambda a, b: torch.stack([a, b], 1).sum(1), "where": lambda a, b: torch.where(
        torch.eye(3).bool(), a, b), "matmul": lambda a, b: a @ b.mT,
    "einsum": lambda a, b: torch.einsum("bij,bkj->bik", a, b),
    "broadcast": lambda a, b: a * b[:, :1],
    "weights": lambda a, b: F.linear(a, b[0]),
    "kernels": lambda a, b: F.conv1d(a, b[:, :, :1]),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_two_random_tensors(name):
    assert_agrees(TWO[name], gaussians(2, 3, 3), gaussians(2, 3, 3, seed=1))


def test_a_share_that_is_random():
    a, b, share = (gaussians(2, 3, seed=seed) for seed in range(3))
    assert_agrees(torch.lerp, a, b, share)


def test_linear_layers_with_random_weights_and_biases():
    x, weight, bias = gaussians(5, 4), gaussians(3, 4, seed=1), gaussians(3, seed=2)
    assert_agrees(F.linear, x, weight, bias)
    certain = x.expected
    assert_agrees(lambda w, b: F.linear(certain, w, b), weight, bias)
    assert_agrees(lambda b: F.linear(certain, weight.expected, b), bias)


LARGEST = {
    "max pool": lambda x: F.max_pool1d(x, 2), "2d": lambda x: F.max_pool2d(x, 2),
    "overlapping": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "dilated": lambda x: F.max_pool1d(x, 2, 1, 0, 2),
    "adaptive": lambda x: F.adaptive_max_pool2d(x, 2),
    "amax": lambda x: x.amax(1), "amin": lambda x: x.amin((0, 2), keepdim=True),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_of_many_by_rounds_of_two(name):
    """The larger of two is no Gaussian, as the next round takes it; of nine there are four."""
    slack = 0.25 if name == "overlapping" else 0.15
    assert_agrees(LARGEST[name], gaussians(2, 4, 4), mean_slack=0.04, variance_slack=slack)


COMMON = {
    "sum": lambda x: x.sum(2), "mean": lambda x: x.mean((1, 2)),
    "pool": lambda x: F.avg_pool1d(x, 2),
    "to one": lambda x: F.adaptive_avg_pool1d(x, 1), "attention": lambda x: torch.softmax(
        torch.linspace(0, 1, 16).view(4, 4), -1) @ x.mT,
        "linear interpolation": lambda x: F.interpolate(
        x, 7, mode="linear", align_corners=True), "einsum": lambda x: torch.einsum(
        "ncl,kl->nck", x, torch.linspace(-1, 1, 12).view(3, 4)),
    "flattened": lambda x: x.view(2, 3, 2, 2).flatten(2).mean(2),
    "transposed": lambda x: x.permute(2, 0, 1).unsqueeze(1).sum(0),
    "chosen": lambda x: x[:, :, 1:].sum(2),
    "expanded": lambda x: x[:1].expand(5, 3, 4).mean((0, 2)),
    "parts": lambda x: x.chunk(2, 2)[0].sum(2),
    "relu first": lambda x: x.sum(2).relu(),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMON)
def test_where_noise_is_common_stds_add(name):
    assert_agrees(COMMON[name], gaussians(2, 3, 4, positions=(False, False, True)))


def test_the_winner_of_a_pool_whose_noise_is_common():
    """Exact where the stds of a window are equal: all its numbers move together."""
    x = gaussians(2, 3, 4, positions=(False, False, True))
    x.variance = x.variance[..., :1].expand(x.shape)
    assert_agrees(lambda x: F.max_pool1d(x, 2), x)
    assert_agrees(lambda x: x.amax(2), x)


NORMS = {
    "layer norm": lambda x: F.layer_norm(x, (64,), torch.linspace(1, 2, 64), torch.ones(64)),
    "group norm": lambda x: F.group_norm(x.unflatten(1, (16, 4)), 2),
    "instance norm": lambda x: F.instance_norm(x.unsqueeze(1)),
    "rms norm": lambda x: F.rms_norm(x, (64,), torch.linspace(1, 2, 64)),
    "normalize": lambda x: F.normalize(x),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_norms_by_their_mean_statistics(name):
    """Of 64 numbers, whose statistics hardly move; stds are a third of the spread of means."""
    x = gaussians(1, 64, scale=0.5)
    assert_agrees(NORMS[name], x, mean_slack=0.06, variance_slack=0.05)


def test_norms_with_random_scales_and_shifts():
    scale, shift = gaussians(3, seed=1), gaussians(3, seed=2)
    x = torch.randn(2, 3, 4)
    assert_agrees(lambda w, b: F.group_norm(x, 1, w, b), scale, shift)
    assert_agrees(lambda w, b: F.layer_norm(x.mT, (3,), w, b), scale, shift)
    mean, var = torch.zeros(3), torch.ones(3)
    assert_agrees(lambda w, b: F.batch_norm(x, mean, var, w, b), scale, shift)
    assert_agrees(
        lambda x, w, b: F.batch_norm(x, mean, var, w, b), gaussians(2, 3, 4), scale, shift
    )


def test_dropout_that_stays_on():
    x = gaussians(3, 4)
    torch.manual_seed(0)
    with torch.no_grad():
        found = F.dropout(x, 0.3, training=True)
        mask = (torch.rand(200_000, 3, 4) > 0.3) / 0.7
        noise = torch.randn(200_000, 3, 4)
    outputs = (x.expected + x.variance.sqrt() * noise) * mask
    assert_moments(found.expected, found.variance, outputs)
    assert F.dropout(x, 0.3, training=False) is x


def test_certain_numbers_stay_certain():
    """A variance of 0 must not make NaN anywhere, at 0 neither."""
    x = torch.tensor([[-2.0, -1e-30, 0.0, 3.0]])
    for name, operation in {**EXACT, **SMOOTH, **KINKED}.items():
        values = x.expand(2, 3, 4)
        found = operation(Moments(values, torch.zeros_like(values)))
        torch.testing.assert_close(found.expected, operation(values), msg=name)
        assert (found.variance.abs() < 1e-9).all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_far_from_a_kink_is_a_line_or_nothing(dtype):
    """Where the density at 0 is subnormal, a relu is the identity or 0, to the bit."""
    edge = math.sqrt(-2 * math.log(torch.finfo(dtype).tiny))
    m = edge * torch.linspace(1.001, 1.2, 50, dtype=dtype)
    mean, variance, above = half_moments(m, torch.ones_like(m))
    assert mean.equal(m)
    assert variance.equal(torch.ones_like(m))
    assert above.equal(torch.ones_like(m))
    mean, variance, above = half_moments(-m, torch.ones_like(m))
    assert not mean.any()
    assert not variance.any()
    assert not above.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_moments_are_never_in_half_precision(dtype):
    x = Moments(torch.ones(2, 3, dtype=dtype), torch.full((2, 3), 1e-6).to(dtype))
    wide = torch.promote_types(dtype, torch.float32)
    assert nn.Linear(3, 2).to(dtype)(x).dtype == wide
    assert x.half().dtype == x.to(torch.bfloat16).dtype == wide
    assert x.double().dtype == torch.float64


def test_extreme_inputs_give_finite_moments():
    m = torch.tensor([-1e18, -1e4, 1e4, 1e18, 0.0])
    for v in (0.0, 1e-38, 1.0, 1e18):
        x = Moments(m, torch.full_like(m, v))
        for operation in (F.relu, F.hardtanh, lambda x: F.leaky_relu(x, 0.1), torch.tanh, F.gelu):
            found = operation(x)
            assert found.expected.isfinite().all()
            assert (found.variance >= 0).all()


def test_the_table_has_no_rule_by_accident():
    """What depends on values in a way no rule knows is refused, not approximated by the mean."""
    for name in ("sort", "argmax", "topk", "median", "item", "bool", "gt", "cumsum", "svd", "fft"):
        assert name not in RULES
