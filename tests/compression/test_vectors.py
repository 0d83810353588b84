"""Biases and norms in coarse steps: what they may change, and what their files take."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.compression.vectors import round_vectors_


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
def test_no_channel_moves_by_more_than_a_share(tolerance):
    """y = w z + b is off by at most d |z w| from the variance and d rms(w) (1 + |z| / 2)."""
    net = convolutions()
    norm, share = net[1], tolerance**0.5 / 16
    x = torch.randn(100, 256, 5, 5, generator=torch.Generator().manual_seed(1))
    inputs = x * norm.running_var.sqrt()[:, None, None] + norm.running_mean[:, None, None]
    before, size = norm(inputs), norm.weight.square().mean().sqrt()
    round_vectors_(net, tolerance)
    error = (norm(inputs) - before).abs()
    bound = share * (1 + x.abs()) * (size + norm.weight.abs()[:, None, None])
    assert (error <= bound).all()
    assert error.max() > bound.max() / 50  # it is rounded at all


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
