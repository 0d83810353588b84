"""Biases and norms in coarse steps: what they may change, and what their files take."""

import copy

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.compression.vectors import _move_moments_, round_vectors_


def convolutions(channels=256):
    """With norms whose channels have sizes of their own."""
    generator = torch.Generator().manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(channels, 10),
    ).eval()  # fmt: skip
    norm = net[1]
    scale = torch.logspace(-2, 0, channels)
    norm.running_mean.copy_(scale * torch.randn(channels, generator=generator))
    norm.running_var.copy_(scale**2)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(channels, generator=generator))
        norm.bias.copy_(torch.randn(channels, generator=generator))
    return net


def normed(norm, x):
    return norm(x * norm.running_var.sqrt()[:, None, None] + norm.running_mean[:, None, None])


@pytest.mark.parametrize("tolerance", [1.0, 0.3, 0.1, 0.01])
@pytest.mark.parametrize("affine", [True, False])
def test_no_channel_moves_by_more_than_a_share(tolerance, affine):
    """y = w z + b is off by at most d rms(w) (1/2 + |z'| / 2), as only w and b are rounded,
    z' = (x - m') / s' with |m' - m| <= s' / 4 and s / s' <= 1.12; without them, z by d (|z| + 1).
    """
    net = convolutions()
    norm, share = net[1].double(), tolerance**0.5 / 16
    if not affine:
        norm.weight = norm.bias = None
    x = torch.randn(100, 256, 5, 5, generator=torch.Generator().manual_seed(1)).double()
    inputs = x * norm.running_var.sqrt()[:, None, None] + norm.running_mean[:, None, None]
    before = norm(inputs)
    size = norm.weight.square().mean().sqrt() if affine else 1.0
    round_vectors_(net, tolerance)
    error = (norm(inputs) - before).abs()
    bound = share * size * ((1.25 + 1.12 * x.abs()) / 2 if affine else 1 + x.abs())
    assert (error <= bound * 1.001).all()
    assert error.max() > bound.max() / 50  # it is rounded at all


def test_moments_move_into_scale_and_bias_exactly():
    """The same answers up to float64, from powers of four and multiples of their roots."""
    norm = convolutions()[1].double()
    norm.running_var[:3] = torch.tensor([1e-7, norm.eps, 3.0])  # below eps it does not count
    x = 3 * torch.randn(50, 256, 4, 4, dtype=torch.double)
    with torch.no_grad():
        before = norm(x)
        _move_moments_(norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps)
    torch.testing.assert_close(norm(x), before, rtol=1e-9, atol=1e-9)
    assert (norm.running_var > 0).all()
    digits = torch.frexp(norm.running_var)[0] * 4
    assert torch.equal(digits, digits.round())
    std = norm.running_var.add(norm.eps).sqrt().log2().floor().exp2()
    multiple = 2 * norm.running_mean / std
    assert torch.equal(multiple, multiple.round())


def test_real_moments_may_come_back():
    """Each channel is then the old one times (v / v')^.5, and off by |w| s / s' / 4 at most."""
    norm = convolutions()[1].double()
    mean, var = norm.running_mean.clone(), norm.running_var.clone()
    x = torch.randn(64, 256, 4, 4, dtype=torch.double)
    x = x * var.sqrt()[:, None, None] + mean[:, None, None]
    weight, before = norm.weight.detach().clone(), norm(x)
    with torch.no_grad():
        _move_moments_(norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps)
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(var)
    after = norm(x)
    assert ((after - before).mean((0, 2, 3)).abs() <= 0.28 * weight + 1e-9).all()
    ratio = after.std((0, 2, 3)) / before.std((0, 2, 3))
    assert (ratio >= 0.89).all()
    assert (ratio <= 1.1).all()


@pytest.mark.parametrize("size", [1e-9, 1e-6, 4e-6, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("eps", [1e-5, 1e-3])
def test_rounding_again_changes_no_answer(size, eps, tmp_path):
    """Also of what a file of float16 gives back, and where variances lie below eps."""
    net = pb.bayesianize_(convolutions())
    norm = net[1]
    norm.eps = eps
    norm.running_var.mul_(size / norm.running_var)
    norm.running_mean.copy_(size**0.5 * torch.randn(256))
    x = size**0.5 * torch.randn(20, 256, 3, 3)
    before = norm(x)
    round_vectors_(net, 1e-4)
    once = norm(x)
    torch.testing.assert_close(once, before, rtol=0.01, atol=0.01)
    pb.save(net, tmp_path / "a.pocket", tolerance=1e-4)
    again = pb.load(tmp_path / "a.pocket", convolutions())
    again[1].eps = eps
    round_vectors_(again, 1e-4)
    torch.testing.assert_close(again[1](x), once, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_norms_of_few_digits_stay_finite(dtype):
    norm = convolutions()[1].to(dtype)
    norm.running_var.copy_(torch.linspace(1, 65000, 256))
    before = copy.deepcopy(norm)
    round_vectors_(norm, 0.01)
    assert norm.running_var.isfinite().all()
    x = torch.linspace(1, 65000, 256).sqrt()[:, None, None] * torch.randn(10, 256, 2, 2)
    error = norm.float()(x) - before.float()(x)
    assert error.abs().max() < 0.05


def test_a_channel_that_never_varied_is_its_bias():
    norm = convolutions()[1]
    norm.running_var[:100] = 0
    bias = norm.bias[:100].clone()
    with torch.no_grad():
        _move_moments_(norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps)
    x = torch.randn(2, 256, 3, 3)
    assert torch.equal(norm(x)[:, :100], bias[:, None, None].expand(2, 100, 3, 3))
    assert not norm.running_mean[:100].any()


@pytest.mark.parametrize("name", ["weight", "bias", "running_mean"])
def test_what_two_norms_share_is_not_made_up_for_twice(name):
    net = nn.Sequential(convolutions()[1], convolutions()[1]).eval()
    with torch.no_grad():
        net[1].running_var.mul_(5)
        net[1].running_mean.add_(0.3)
    setattr(net[1], name, getattr(net[0], name))
    x = torch.randn(20, 256, 3, 3)
    before = net(x)
    round_vectors_(net, 1e-6)
    torch.testing.assert_close(net(x), before, rtol=0.01, atol=0.02)


def test_twice_is_once():
    net = convolutions()
    round_vectors_(net, 0.3)
    moments = net[1].running_mean.clone(), net[1].running_var.clone()
    round_vectors_(net, 0.3)
    assert torch.equal(net[1].running_mean, moments[0])
    assert torch.equal(net[1].running_var, moments[1])


def test_numbers_without_a_size_stay():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), nn.Linear(2, 1))
    with torch.no_grad():
        net[0].running_var.copy_(torch.tensor([0.0, 1.0, torch.inf]))
        net[0].running_mean.copy_(torch.tensor([3.3, 1.0, torch.nan]))
        net[1].bias.zero_()
        net[2].bias.fill_(1.2345)
    round_vectors_(net, 1.0)
    assert net[0].running_var.tolist() == [0.0, 1.0, torch.inf]
    assert net[0].running_mean[2].isnan()
    assert net[1].bias.tolist() == [0.0, 0.0]
    assert net[2].bias.item() == pytest.approx(1.2345)


def test_their_files_are_smaller(tmp_path):
    net = pb.bayesianize_(convolutions(1024), std_init=0.01)
    before = state_bytes(net, tmp_path)
    round_vectors_(net, 1.0)
    assert state_bytes(net, tmp_path) < before * 3 / 4


def state_bytes(net, tmp_path):
    size = pb.save(net, tmp_path / "a.pocket", tolerance=1.0)
    loaded = pb.load(tmp_path / "a.pocket", convolutions(1024))
    assert torch.equal(loaded[1].running_mean, net[1].running_mean.half().float()) or torch.equal(
        loaded[1].running_mean, net[1].running_mean
    )
    return sum(s.bytes for s in size.sections if s.name.startswith("state/"))


def test_compress_stores_them_so():
    """A network with norms, small enough that they are much of its file."""
    torch.manual_seed(0)
    x, y = torch.randn(64, 3, 8, 8), torch.randint(10, (64,))
    model = pb.fit(pb.bayesianize_(convolutions()), [(x, y)], epochs=1, progress=False).model
    small = pb.compress(
        model, [(x, y)], [(x, y)], target_bytes=10_000, epochs=0, num_samples=2, one_pass=False,
        progress=False,
    )  # fmt: skip
    weight = small.model[1].weight.detach()
    finest = 2**-7  # d rms(w) is at least .58 / 64
    assert small.chosen.tolerance >= 0.1
    assert torch.equal((weight / finest).round() * finest, weight)
    assert not torch.equal(model[1].weight, weight)
