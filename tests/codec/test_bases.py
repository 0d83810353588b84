"""Files without the frozen base: small, filled into that base alone, and saved again alike."""

import copy

import pytest
import torch
from hostile_files import crafted, forged, with_model
from torch import nn

import pocketbayes as pb


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def net(seed=0):
    """A base of 100,000 weights with adapters, and a head that learns."""
    torch.manual_seed(seed)
    return nn.Sequential(
        LoRA(nn.Linear(20, 300)), nn.BatchNorm1d(300), nn.ReLU(), LoRA(nn.Linear(300, 300)),
        nn.LayerNorm(300).requires_grad_(False), nn.Linear(300, 3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained():
    model = pb.bayesianize_(net(), exclude="5")
    model[0].register_buffer("mask", torch.ones(3))
    data = [(torch.randn(30, 20), torch.randint(3, (30,)))]
    pb.fit(model, data, epochs=3, progress=False)
    return model


def base(seed=0):
    plain = net(seed)
    plain[0].register_buffer("mask", torch.ones(3))
    for parameter in plain.parameters():
        parameter.requires_grad_(True)
    return plain


@pytest.fixture
def path(trained, tmp_path):
    pb.save(trained, tmp_path / "m.pocket", frozen=False)
    return tmp_path / "m.pocket"


def test_only_what_was_trained_is_in_the_file(trained, path):
    found = pb.inspect(path)
    assert found.bytes < 13_000 < pb.save(trained, path.with_name("all.pocket")).bytes / 10
    assert found.base["tensors"] == 7  # two weights and biases, a norm's two, a mask
    assert "base             7 tensors that are not in the file" in str(found)
    assert sum(found.families.values()) == 2 * (20 + 300) + 2 * (300 + 300)


def test_the_base_is_filled_and_frozen(trained, path):
    again, x = pb.load(path, base()), torch.randn(5, 20)
    torch.testing.assert_close(
        pb.predict(again, x, estimator="mean").probs,
        pb.predict(trained, x, estimator="mean").probs,
        atol=2e-3, rtol=0,
    )  # fmt: skip
    assert not again[0].base.weight.requires_grad
    assert again[1].weight.requires_grad
    assert again[5].weight.requires_grad
    data = path.read_bytes()
    pb.save(again, path, frozen=False)
    assert path.read_bytes() == data
    assert pb.inspect(path).base is not None
    pb.save(again, path)
    assert pb.inspect(path).base is None
    assert pb.load(path, base(1))


def nudged(plain):
    with torch.no_grad():
        plain[3].base.weight[7, 7] = plain[3].base.weight[7, 7].nextafter(torch.tensor(9.0))


def other_buffer(plain):
    plain[0].mask[1] = 0


def without_buffer(plain):
    del plain[0].mask


def in_double(plain):
    plain[4].double()


def transposed(plain):
    plain[3].base.weight = nn.Parameter(plain[3].base.weight.detach().T.clone())


def on_meta(plain):
    plain[3].base.to("meta")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (nudged, r"another base: 7 tensors of sha256 \w{16}\.\.\.; this network has 7 tensors"),
        (other_buffer, "another base"),
        (without_buffer, "this network has 6 tensors"),
        (in_double, "another base"),
        (transposed, "another base"),
        (on_meta, r"3.base.weight of the base has no plain values|3.base.bias"),
    ],
)
def test_another_base_is_refused_and_left_as_it_was(change, message, path):
    plain = base()
    change(plain)
    before = copy.deepcopy(plain)
    with pytest.raises(pb.FormatError, match=message):
        pb.load(path, plain)
    assert all(p.requires_grad for p in plain.parameters())
    assert [type(m) for m in plain.modules()] == [type(m) for m in before.modules()]


def test_statistics_of_norms_are_in_the_file(trained, path):
    plain = base()
    plain[1].running_mean.fill_(9.0)
    again = pb.load(path, plain)
    torch.testing.assert_close(again[1].running_mean, trained[1].running_mean, atol=1e-2, rtol=0)


def test_a_network_is_needed(path):
    with pytest.raises(pb.FormatError, match=r"frozen base, 7 tensors of sha256.*load\(path, net"):
        pb.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"example": torch.randn(1, 20)}, "a program needs all weights"),
        ({"network": "timm:resnet18"}, "leave network= out"),
    ],
)
def test_what_needs_the_base_is_refused(options, message, trained, tmp_path):
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.save(trained, tmp_path / "m.pocket", frozen=False, **options)


def test_something_must_be_frozen_in_one_model(tmp_path):
    model = pb.bayesianize_(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    with pytest.raises(pb.PocketBayesError, match=r"requires_grad_\(False\)"):
        pb.save(model, tmp_path / "m.pocket", frozen=False)
    data = [(torch.randn(9, 3), torch.randint(2, (9,)))]
    found = pb.fit(model, data, pb.DeepEnsemble(members=2), epochs=1, progress=False).model
    with pytest.raises(pb.PocketBayesError, match="members of an ensemble alone"):
        pb.save(found, tmp_path / "m.pocket", frozen=False)


@pytest.mark.parametrize(
    "said",
    [
        7, [], {}, {"sha256": "0" * 63 + "1"}, {"sha256": "x" * 64, "tensors": 7},
        {"sha256": "a" * 64, "tensors": 0}, {"sha256": "a" * 64, "tensors": 7, "more": 1},
        {"sha256": 7, "tensors": 7}, {"sha256": "A" * 64, "tensors": 7},
    ],
    ids=str,
)  # fmt: skip
def test_a_base_that_is_badly_said_is_refused(said, path):
    path.write_bytes(crafted(path.read_bytes(), with_model(base=said)))
    for read in (pb.inspect, lambda path: pb.load(path, base())):
        with pytest.raises(pb.FormatError, match=r"model\.base is not"):
            read(path)


def with_members(description, arrays):
    description["members"] = 2


def without_base(description, arrays):
    del description["model"]["base"]


def with_less(description, arrays):
    del arrays["state/5.bias"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_members, "one network"),
        (without_base, "is not in the file"),
        (with_less, "this network has 8 tensors"),
    ],
)
def test_forged_files_are_refused(change, message, path):
    path.write_bytes(forged(path.read_bytes(), change))
    with pytest.raises(pb.FormatError, match=message):
        pb.load(path, base())


def test_types_that_files_do_not_hold_may_be_in_the_base(trained, tmp_path):
    model = copy.deepcopy(trained)
    model.register_buffer("codes", torch.zeros(4).to(torch.float8_e4m3fn))
    pb.save(model, tmp_path / "m.pocket", frozen=False)
    plain = base()
    plain.register_buffer("codes", torch.zeros(4).to(torch.float8_e4m3fn))
    assert pb.load(tmp_path / "m.pocket", plain)


def test_what_spectral_norm_keeps_moves_with_training(tmp_path):
    def network():
        torch.manual_seed(0)
        normed = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        net = nn.Sequential(nn.Linear(4, 8), normed, nn.Linear(8, 2))
        net[0].requires_grad_(False)
        return net

    data = [(torch.randn(16, 4), torch.randint(2, (16,)))] * 4
    model = pb.fit(
        pb.bayesianize_(network()), data, epochs=2, dataset_size=64, progress=False
    ).model
    pb.save(model, tmp_path / "m.pocket", frozen=False)
    again = pb.load(tmp_path / "m.pocket", network())
    kept = {n: b for n, b in model.named_buffers() if n.endswith(("_u", "_v"))}
    assert len(kept) == 2
    for name, value in again.named_buffers():
        if name in kept:
            torch.testing.assert_close(value, kept[name])
