"""The file: what comes back is what was put in, and nothing else is believed."""

import copy
import dataclasses
import hashlib
import io
import json
import math
import os
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hostile_files import (
    FIRST,
    by_zlib,
    compact,
    crafted,
    forged,
    opened,
    sealed,
    tensors_of,
    with_texts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Normal
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.codec import container, contents, deflate, described
from pocketbayes.codec.adaptive import coded_integers
from pocketbayes.codec.container import packed, unpacked
from pocketbayes.codec.deflate import deflated
from pocketbayes.codec.varints import varints
from pocketbayes.layers.bayesian import set_estimator
from pocketbayes.layers.description import describe, noise_log_std, unwrapped, update_description
from pocketbayes.layers.ensembles import members_of
from pocketbayes.methods import METHODS
from pocketbayes.models import build_network
from pocketbayes.posteriors import Sparse

GOLDEN = Path(__file__).parents[1] / "golden"
X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def network(outputs=2):
    torch.manual_seed(0)
    return build_network("mlp", input_shape=(6,), num_outputs=outputs, hidden=(8,), dropout=0.2)


def trained(method="mean-field", net=None, targets=Y, **options):
    model = pb.bayesianize_(net or network(), **options)
    loader = DataLoader(TensorDataset(X, targets), batch_size=20)
    likelihood = "gaussian" if targets.is_floating_point() else "categorical"
    own = {"density": 0.5} if method in ("rigl", "subspace") else {}
    own = {"wander_from": 0.0} if method == "swag" else own
    own = {"prior_by": "evidence"} if method == "laplace" else own
    own = {"least_members": 1, "blend_beyond": 2.0} if method == "sharing" else own
    made = METHODS[method](**own)
    options = {"epochs": 1, "progress": False, "likelihood": likelihood, "device": "cpu"}
    return pb.fit(model, loader, made, **options).model


def predictions(model):
    pred = pb.predict(model, X, 5, generator=torch.Generator().manual_seed(3))
    return pred.probs if hasattr(pred, "probs") else torch.cat([pred.mean, pred.std])


def assert_same(one, other):
    a, b = one.state_dict(), other.state_dict()
    assert a.keys() == b.keys()
    for key in a:
        assert a[key].dtype == b[key].dtype
        assert torch.equal(a[key], b[key]), key


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("targets", [Y, X[:, 1]], ids=["classes", "values"])
def test_a_model_comes_back_bit_for_bit(method, targets, tmp_path):
    outputs = 2 if targets is Y else 1
    model = trained(method, network(outputs), targets)
    update_description(model, class_names=("no", "yes"), preprocess={"mean": [0.5]})
    size = pb.save(model, tmp_path / "m.pocket", lossless=True)
    assert size.bytes == os.path.getsize(tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket")
    if method not in ("csg-mcmc", "deep-ensemble"):
        assert_same(model, again)
    assert torch.equal(predictions(model), predictions(again))
    assert describe(again) == dataclasses.replace(describe(model), estimator="lrt")
    assert not any(m.training for m in again.modules())
    pb.save(again, tmp_path / "n.pocket", lossless=True)
    assert (tmp_path / "m.pocket").read_bytes() == (tmp_path / "n.pocket").read_bytes()


@pytest.mark.parametrize("method", METHODS)
def test_a_small_file_comes_back_as_the_same_small_file(method, tmp_path):
    model = trained(method)
    pb.save(model, tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket")
    torch.testing.assert_close(predictions(model), predictions(again), atol=0.02, rtol=0)
    pb.save(again, tmp_path / "n.pocket")
    assert (tmp_path / "m.pocket").read_bytes() == (tmp_path / "n.pocket").read_bytes()


def test_it_is_a_valid_safetensors_file(tmp_path):
    model = trained()
    pb.save(model, tmp_path / "m.pocket")
    with safetensors.safe_open(tmp_path / "m.pocket", "pt") as file:
        names, metadata = list(file.keys()), file.metadata()
        text = zlib.decompress(file.get_tensor("description").numpy().tobytes(), -15)
    short, long = json.loads(metadata["pocketbayes"]), json.loads(text)
    assert set(names) == {*long["sections"], "description"} >= {"gaussian/mean", "state/bias"}
    assert short.keys() == {"version", "sha256", "model", "members"}
    assert long.keys() == {"posteriors", "arrays", "sections"}
    assert short["version"] == 3
    assert short["model"]["likelihood"] == "categorical"


def test_a_network_of_ones_own_loads_into_a_given_one(tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Embedding(9, 6)
            self.norm = nn.BatchNorm1d(6)
            self.decoder = nn.Linear(6, 9, bias=False)
            self.decoder.weight = self.encoder.weight
            self.scale = nn.Parameter(torch.rand(9))
            self.register_buffer("mask", torch.arange(9))
            self.register_buffer("cache", torch.rand(3), persistent=False)

        def forward(self, x):
            return self.decoder(self.norm(self.encoder(x))) * self.scale * self.mask

    model = pb.bayesianize_(Own().double())
    model.norm.running_mean.uniform_()
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    with pytest.raises(pb.FormatError, match=r"load\(path, net\)"):
        pb.load(tmp_path / "m.pocket")
    net = Own()
    again = pb.load(tmp_path / "m.pocket", net)
    assert again is net
    assert_same(model, again)
    assert again.encoder._posteriors["weight"] is again.decoder._posteriors["weight"]
    x = torch.randint(9, (5,))
    torch.manual_seed(1)
    one = model.eval()(x)
    torch.manual_seed(1)
    assert torch.equal(one, again(x))
    with pytest.raises(pb.FormatError, match="not yet Bayesian"):
        pb.load(tmp_path / "m.pocket", again)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (nn.Linear(6, 2), "no parameter"),
        (
            build_network("mlp", input_shape=(6,), num_outputs=3, hidden=(8,)),
            "is .* in the network",
        ),
        (build_network("mlp", input_shape=(6,), num_outputs=2, hidden=(8, 8)), "network|file"),
        ("net", "plain torch.nn.Module"),
    ],
    ids=["names", "shapes", "more", "no-net"],
)
def test_a_network_that_does_not_fit_is_refused(net, message, tmp_path):
    pb.save(trained(), tmp_path / "m.pocket")
    with pytest.raises(pb.FormatError, match=message):
        pb.load(tmp_path / "m.pocket", net)


def sparse_twin(posterior):
    index = torch.tensor([1, 5, 6])
    mean, log_std = (t.detach().flatten()[index] for t in (posterior.mean, posterior.log_std))
    return Sparse(index, mean, log_std, posterior.shape, float(posterior.prior_std))


def test_a_sparse_posterior_comes_back_and_takes_little(tmp_path):
    model = trained()
    dense = pb.save(model, tmp_path / "dense.pocket", lossless=True)
    for name, posterior in list(pb.named_posteriors(model)):
        pb.replace_posterior(model, name, sparse_twin(posterior))
    size = pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket")
    assert_same(model, again)
    assert torch.equal(predictions(model), predictions(again))
    assert size.families == {"sparse": 64}
    stored = sum(s.bytes for s in size.sections if not s.name.startswith("state/"))
    assert stored < sum(s.bytes for s in dense.sections if not s.name.startswith("state/"))


@pytest.mark.parametrize(
    ("array", "value"),
    [
        ("index", torch.tensor([5, 1, 6])), ("index", torch.tensor([1, 5, 999])),
        ("index", torch.tensor([-1, 5, 6])), ("index", torch.tensor([1, 5])),
        ("index", torch.tensor([5, -(2**31), 6], dtype=torch.int32)),
        ("index", torch.tensor([1.0, 5.0, 6.0])), ("shape", torch.tensor([8, 0])),
        ("shape", torch.tensor([[8, 6]])), ("mean", torch.zeros(2)),
    ],
)  # fmt: skip
def test_forged_sparse_arrays_are_refused(array, value):
    arrays = sparse_twin(next(q for _, q in pb.named_posteriors(trained()))).arrays()
    with pytest.raises(pb.PocketBayesError):
        Sparse.from_arrays(arrays | {array: value})


def test_partly_bayesian_networks_and_every_dtype(tmp_path):
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        net = network().to(dtype)
        first = next(n for n, m in net.named_modules() if isinstance(m, nn.Linear))
        model = pb.bayesianize_(net, exclude=first, bias=True)
        pb.save(model, tmp_path / "m.pocket", lossless=True)
        assert_same(model, pb.load(tmp_path / "m.pocket"))


def test_inspect_tells_what_is_there(tmp_path):
    model = trained()
    size = pb.save(model, tmp_path / "m.pocket")
    found = pb.inspect(tmp_path / "m.pocket")
    plain = [dataclasses.replace(s, bound=None) for s in size.sections]
    known = {"kl": found.kl, "stored_within": None}
    assert found == dataclasses.replace(size, sections=tuple(plain), **known)
    assert found.kl == pytest.approx(size.kl, rel=1e-2)
    assert found.bits_back_bytes == pytest.approx(found.kl / 8 / math.log(2))
    assert found.network == "mlp"
    assert found.families == {"gaussian": 6 * 8 + 8 * 2}
    assert found.weights == 64
    assert found.bits_per_weight == 8 * found.bytes / 64
    assert sum(s.bytes for s in found.sections) < found.bytes
    assert "gaussian" in str(found)
    assert f"{found.bytes:,}" in str(found)
    header, rest = found.bytes - sum(s.bytes for s in found.sections), str(found).splitlines()[-1]
    assert rest.split() == ["description,", "header", f"{header:,}"]
    carried = pb.save(model, tmp_path / "n.pocket", example=torch.randn(1, 6))
    rows = str(carried).splitlines()
    rows = [r.split() for r in rows[1 + next(i for i, r in enumerate(rows) if "coding" in r) :]]
    numbers = [int(r[3 if len(r) > 3 else -1].replace(",", "")) for r in rows]
    assert sum(numbers) == carried.bytes
    json.dumps(found.to_dict())
    assert pb.inspect(tmp_path / "m.pocket").sha256 == found.sha256


def test_a_file_says_how_far_it_is_from_the_model(tmp_path):
    """Of Gaussians KL(model || file) as it is, of others what it is at most."""
    model = trained()
    size = pb.save(model, tmp_path / "m.pocket", tolerance=0.1)
    again = dict(pb.named_posteriors(pb.load(tmp_path / "m.pocket")))
    nats = sum(
        torch.distributions.kl_divergence(
            *(
                Normal(g.mean.detach().double(), g.log_std.detach().double().exp())
                for g in (q, again[name])
            )
        ).sum()
        for name, q in pb.named_posteriors(model)
    )
    assert size.stored_within == pytest.approx(float(nats), rel=1e-5)
    assert f"stored within    {float(nats):,.0f} nats of the model" in str(size)
    assert "stored within" not in str(pb.inspect(tmp_path / "m.pocket"))
    assert pb.save(model, tmp_path / "m.pocket", lossless=True).stored_within == 0


@pytest.mark.parametrize("method", ["spike-slab", "sharing"])
def test_what_is_no_gaussian_is_stored_within_the_tolerance_too(tmp_path, method):
    model = trained(method)
    size = pb.save(model, tmp_path / "m.pocket", tolerance=0.1)
    assert 0 < size.stored_within <= 0.2 * size.weights


def test_freezing_is_not_part_of_the_file(tmp_path):
    net = network()
    for p in net.parameters():
        p.requires_grad_(False)
    pb.save(pb.bayesianize_(net, include=nn.Module), tmp_path / "m.pocket")
    assert all(p.requires_grad for p in pb.load(tmp_path / "m.pocket").parameters())


def test_saving_what_cannot_be_saved(tmp_path):
    with pytest.raises(pb.PocketBayesError, match="call bayesianize_"):
        pb.save(nn.Linear(2, 2), tmp_path / "m.pocket")
    with pytest.raises(pb.FormatError, match="cannot write"):
        pb.save(trained(), tmp_path / "nowhere" / "m.pocket")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), torch.ones(1)], ids=["nan", "tensor"])
def test_a_description_that_cannot_be_stored_is_refused_at_once(tmp_path, value):
    model = trained()
    with pytest.raises(pb.PocketBayesError, match="must be JSON"):
        update_description(model, preprocess={"scale": value})
    assert describe(model).preprocess is None
    pb.save(model, tmp_path / "m.pocket")


def test_a_converted_half_model_is_written_the_same_again(tmp_path):
    pb.save(trained().half(), tmp_path / "m.pocket")
    pb.save(pb.load(tmp_path / "m.pocket"), tmp_path / "n.pocket")
    assert (tmp_path / "m.pocket").read_bytes() == (tmp_path / "n.pocket").read_bytes()


def test_a_deep_network_of_long_names_takes_few_bytes(tmp_path):
    names = ("query", "key", "value", "output")
    net = nn.ModuleDict({
        f"transformer_layers_{n}": nn.ModuleDict(
            {f"self_attention_{name}_projection": nn.Linear(2, 2) for name in names}
        )
        for n in range(80)
    })  # fmt: skip
    saved = pb.save(pb.bayesianize_(copy.deepcopy(net)), tmp_path / "m.pocket")
    with safetensors.safe_open(tmp_path / "m.pocket", "pt") as file:
        text = deflate.inflated(bytes(file.get_tensor("description").tolist()))
    assert len(text) > deflate.MOST_ANYWAY
    assert saved.bytes < len(text) / 6
    pb.load(tmp_path / "m.pocket", net)


def test_a_stranger_in_a_file_is_refused_before_it_is_decoded(tmp_path, monkeypatch):
    path = tmp_path / "m.pocket"
    pb.save(pb.bayesianize_(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))), path)
    taken, take = [], contents.Contents.take

    def watched(self, name):
        taken.append(name)
        return take(self, name)

    monkeypatch.setattr(contents.Contents, "take", watched)
    with pytest.raises(pb.PocketBayesError, match=r"no parameter '1\.weight'"):
        pb.load(path, nn.Sequential(nn.Linear(2, 2)))
    assert taken == []
    with pytest.raises(pb.PocketBayesError, match=r"1\.bias is not in the network"):
        pb.load(path, nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False)))
    assert taken
    assert not any(name.startswith("state/") for name in taken)


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    model = trained()
    update_description(model, class_names=("a\x1b[31m", "b\x07"))
    assert "\x1b" not in str(pb.save(model, tmp_path / "m.pocket"))


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    model = trained()
    pb.save(model, tmp_path / "m.pocket")
    before = (tmp_path / "m.pocket").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(pb.FormatError, match="No space left"):
        pb.save(trained("deterministic"), tmp_path / "m.pocket")
    assert (tmp_path / "m.pocket").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "m.pocket"
    pb.save(trained(), path, lossless=True)
    return path.read_bytes()


@pytest.fixture(scope="module")
def good_small(tmp_path_factory):
    path = tmp_path_factory.mktemp("file") / "m.pocket"
    pb.save(trained(), path)
    return path.read_bytes()


def refused(data, path):
    path.write_bytes(data)
    messages = []
    for read in (pb.load, pb.inspect):
        with pytest.raises(pb.FormatError, match=r"m\.pocket") as caught:
            read(path)
        messages.append(str(caught.value))
    return "; ".join(messages)


def with_header(text):
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda d: b"", "safetensors"),
        (lambda d: d[:-1], "cut short"),
        (lambda d: d[:100], "cut short"),
        (lambda d: d + b"x", "cut short"),
        (lambda d: struct.pack("<Q", 2**63) + d[8:], "cut short"),
        (lambda d: d[:-5] + bytes([d[-5] ^ 1]) + d[-4:], "checksum"),
        (lambda d: d.replace(b"categorical", b"kategorical"), "checksum"),
        (lambda d: safetensors.torch.save({"a": torch.ones(2)}), "not one of pocketbayes"),
        (lambda d: with_header(b'{"__metadata__":null}'), "not one of pocketbayes"),
        (
            lambda d: safetensors.torch.save(
                {}, {"pocketbayes": r'{"sha256":"%s"}' % (r"\ud800" * 64)}
            ),
            "is no text",
        ),
        (lambda d: safetensors.torch.save({}, {"pocketbayes": "{"}), "not JSON"),
        (lambda d: safetensors.torch.save({}, {"pocketbayes": "[" * 10**5}), "not JSON"),
        (lambda d: safetensors.torch.save({}, {"pocketbayes": "[]"}), "not a JSON object"),
        (lambda d: safetensors.torch.save({}, {"pocketbayes": "{}"}), "no checksum"),
    ],
)
def test_damaged_files_are_refused(good, harm, message, tmp_path):
    assert message in refused(harm(good), tmp_path / "m.pocket")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_flipped_bit_goes_unnoticed(good, tmp_path_factory, data):
    place = data.draw(st.integers(0, len(good) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    harmed = good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :]
    refused(harmed, tmp_path_factory.mktemp("flip") / "m.pocket")


def option(name, value):
    def change(description, sections):
        description["model"]["network"]["options"][name] = value

    return change


def field(name, value):
    def change(description, sections):
        description["model"][name] = value

    return change


def top(name, value):
    def change(description, sections):
        description[name] = value

    return change


def section(name, value):
    def change(description, sections):
        full = next(s for s in sections if s.endswith(name))
        if value is None:
            del sections[full]
        else:
            sections[full] = value(sections[full])

    return change


@pytest.mark.parametrize(
    "change",
    [
        option("num_outputs", 10**15), option("num_outputs", -1), option("num_outputs", "2"),
        option("hidden", [10**12, 10**12]), option("hidden", "8"), option("hidden", None),
        option("input_shape", []), option("unheard_of", 1), option("dropout", 3),
        field("network", {"name": "os.system", "options": {}}), field("network", {"name": "mlp"}),
        field("network", ["mlp"]), field("likelihood", "evil"), field("estimator", ["lrt"]),
        field("class_names", "abc"), field("preprocess", 3), field("input_dims", -1),
        field("keeps_dropout", "yes"), field("shrunk", [1]), field("shrunk", {"a": {"b": -1}}),
        top("members", 10**9), top("members", 2), top("members", 0), top("members", True),
        top("version", 4), top("version", "3"), top("version", True), top("posteriors", {}),
        top("version", 2), top("version", 1), top("version", 0),
        top("posteriors", []), top("tables", {"a": 0}),
        top("model", None),
        lambda d, s: d["posteriors"].update({next(iter(d["posteriors"])): "builtins"}),
        lambda d, s: s.update({"more": torch.ones(1)}),
        section("/mean", None), section("/mean", lambda t: t[:1]),
        section("/mean", lambda t: t.long()),
        section("/log_std", lambda t: t.double()), section("/prior_std", lambda t: -t),
        section("/prior_std", lambda t: t.repeat(2)), section("bias", lambda t: t[:1]),
        section("bias", lambda t: t.long()), section("bias", None),
    ],
)  # fmt: skip
def test_forged_files_are_refused(good, change, tmp_path):
    path = tmp_path / "m.pocket"
    path.write_bytes(forged(good, change))
    with pytest.raises(pb.FormatError, match=r"m\.pocket"):
        pb.load(path)


def test_the_forger_himself_is_right(good, tmp_path):
    (tmp_path / "m.pocket").write_bytes(forged(good, lambda d, s: None))
    pb.load(tmp_path / "m.pocket")
    assert forged(good, lambda d, s: None) == crafted(good, lambda d, s: None) == good


@pytest.mark.parametrize("level", [0, 1, 9])
def test_any_deflate_is_read(good, level, tmp_path):
    file, description = opened(good)
    (tmp_path / "m.pocket").write_bytes(
        sealed(description, tensors_of(file.sections), by_zlib(level))
    )
    model = pb.load(tmp_path / "m.pocket")
    pb.save(model, tmp_path / "n.pocket", lossless=True)
    assert (tmp_path / "n.pocket").read_bytes() == good


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        (lambda t: t, "section description: it is not DEFLATE"),
        (lambda t: b"", "section description: it ends too early or too late"),
        (lambda t: deflated(t)[:-9], "section description: it ends too early or too late"),
        (lambda t: deflated(t) + b"x", "section description: it ends too early or too late"),
        (lambda t: by_zlib(9)(t + b" " * 10**6), "section description: it is longer than 65,536"),
        (lambda t: deflated(b"[]"), "section description: the description is not a JSON object"),
        (lambda t: deflated(t[:-1]), "section description: the description is not JSON"),
        (lambda t: deflated(b"[" * 10**5), "section description: the description is not JSON"),
        (lambda t: deflated(t[:-1] + b',"a":NaN}'), "section description: the description is not"),
        (lambda t: deflated(b'"\xff"'), "section description: 'utf-8' codec"),
        (lambda t: deflated(t[:-1] + b',"members":1}'), "in the wrong place"),
        (lambda t: deflated(t[:-1] + b',"model":{}}'), "in the wrong place"),
        (lambda t: deflated(t[:-1] + b',"version":3}'), "in the wrong place"),
        (lambda t: deflated(t[:-1] + b',"more":3}'), "something unknown"),
        (lambda t: deflated(b"{}"), "arrays"),
        (lambda t: None, "section description is missing"),
    ],
)
def test_crafted_descriptions_are_refused(good, pack, message, tmp_path):
    file, description = opened(good)
    short = {"sha256": "0" * 64} | {k: v for k, v in description.items() if k in FIRST}
    long = {k: v for k, v in description.items() if k not in FIRST}
    data = with_texts(compact(short), pack(compact(long).encode()), tensors_of(file.sections))
    assert message in refused(data, tmp_path / "m.pocket")


@pytest.mark.parametrize("part", [b"[],", b'{"":{"":0}},'], ids=["lists", "objects"])
def test_a_description_takes_little_memory(good, part, tmp_path, monkeypatch):
    """As long as may be, a 40th of it here, and packed so that 16 to a byte are just allowed."""
    monkeypatch.setattr(deflate, "MOST", deflate.MOST // 40)
    text = b'{"x":[' + part * ((deflate.MOST - 10) // len(part)) + b"0]}"
    file, description = opened(good)
    short = {"sha256": "0" * 64} | {k: v for k, v in description.items() if k in FIRST}
    packed = by_zlib(9)(text)
    filler = max(0, len(text) // 16 - len(packed)) // 5 + 1
    data = b"\0\0\0\xff\xff" * filler + packed  # empty blocks
    made = with_texts(compact(short), data, tensors_of(file.sections))
    tracemalloc.start()
    try:
        assert "says something unknown" in refused(made, tmp_path / "m.pocket")
        assert tracemalloc.get_traced_memory()[1] < 15e6
    finally:
        tracemalloc.stop()


def test_no_file_is_written_that_would_not_be_read(good, tmp_path, monkeypatch):
    monkeypatch.setattr(container, "MOST", 10_000)
    monkeypatch.setattr(deflate, "MOST", 10_000)
    monkeypatch.setattr(deflate, "MOST_ANYWAY", 100)
    file, description = opened(good)
    longest = 10_000 - len(compact({k: v for k, v in description.items() if k not in FIRST}))

    def saved(spare):
        name = "x" * (longest - len(',"":"8"') - spare)
        description["arrays"]["state"][name] = "8"
        pieces, _ = packed(description, file.sections)
        del description["arrays"]["state"][name]
        return b"".join(bytes(piece.read()) for piece in pieces)

    for spare in (0, 1, 5):
        assert unpacked(io.BytesIO(saved(spare))).version == 3
    with pytest.raises(pb.FormatError, match="names in the model take more than 10,000 bytes"):
        saved(-1)
    long = with_texts(compact({"version": 3, "sha256": "0" * 64}), bytes(20_001), {})
    assert "section description is too long" in refused(long, tmp_path / "m.pocket")


def test_no_header_is_written_that_would_not_be_read(monkeypatch):
    monkeypatch.setattr(container, "_LONGEST_HEADER", 1000)
    head = packed({"model": "x" * 700}, {})[0][0]
    assert len(head) <= 1008
    with pytest.raises(pb.FormatError, match="description takes more than 1,000 bytes"):
        packed({"model": "x" * 1000}, {})


@pytest.mark.parametrize("size", [16_000_001, 2**40, 2**63])
def test_a_header_that_says_to_be_too_long_is_refused(good, size, tmp_path):
    assert "16,000,000 bytes" in refused(struct.pack("<Q", size) + good[8:], tmp_path / "m.pocket")
    with pytest.raises(pb.FormatError, match=r"m\.pocket: .*16,000,000 bytes"):
        described(tmp_path / "m.pocket")


def test_the_header_says_nothing_of_the_section(good, tmp_path):
    file, description = opened(good)
    short = {"sha256": "0" * 64} | description
    data = with_texts(compact(short), deflated(b"{}"), tensors_of(file.sections))
    assert "in the wrong place" in refused(data, tmp_path / "m.pocket")


def array(kind, tensor, name, word):
    def change(description, sections):
        home = description["arrays"][kind]
        (home if tensor is None else home[tensor])[name] = word

    return change


def coding(section, **said):
    def change(description, sections):
        description["sections"][section] = said

    return change


def bytes_of(section, value):
    def change(description, sections):
        sections[section] = value(sections[section])

    return change


def byte(place, value):
    def change(t):
        t = t.clone()
        t[place] = value
        return t

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (array("posterior", "hidden1.weight", "mean", "999999x999999"), "more than a file"),
        (array("posterior", "hidden1.weight", "mean", "9" * 30), "any memory"),
        (array("state", None, "none", "0x9999999999999999999"), "any memory"),
        (array("state", None, "none", "0x999999999999999999x999999999999999999"), "any memory"),
        (array("state", None, "none", "0" + 10_000 * "x1"), "any memory"),
        (array("posterior", "hidden1.weight", "mean", "8x7"), "gaussian/mean"),
        (array("posterior", "hidden1.weight", "mean", "8x-6"), "names no type"),
        (array("posterior", "hidden1.weight", "mean", "int64:8x6"), "sections"),
        (array("posterior", "hidden1.weight", "mean", ["8", "6"]), "names no type"),
        (array("posterior", "hidden1.weight", "code", "8"), "sections"),
        (array("state", None, "hidden1.bias", "9"), "state/bias"),
        (array("state", None, "hidden1.bias", "float128:8"), "names no type"),
        (lambda d, s: d.update(arrays=[]), "arrays"),
        (lambda d, s: d.update(arrays={"pickle": {}}), "arrays"),
        (lambda d, s: d.update(sections={}), "sections"),
        (coding("gaussian/mean", coding="pickle"), "gaussian/mean"),
        (coding("gaussian/mean", coding=["raw"]), "gaussian/mean"),
        (coding("gaussian/mean", coding="raw"), "gaussian/mean"),
        (coding("gaussian/mean", coding="rising"), "gaussian/mean"),
        (coding("gaussian/mean", coding="half"), "gaussian/mean"),
        (
            lambda d, s: (
                d["arrays"]["state"].update({"flag": "int64:4"}),
                d["sections"].update({"state/flag/int64": {"coding": "half"}}),
                s.update({"state/flag/int64": torch.full((8,), 255, dtype=torch.uint8)}),
            ),
            "coding of floats",
        ),
        (coding("gaussian/mean", coding="relative"), "gaussian/mean"),
        (coding("gaussian/mean", coding="relative", step=float("1e300")), "gaussian/mean"),
        (coding("gaussian/mean", coding="relative", step=True), "gaussian/mean"),
        (coding("gaussian/log_std", coding="steps"), "gaussian/log_std"),
        (coding("gaussian/log_std", coding="steps", step=-0.1), "gaussian/log_std"),
        (coding("gaussian/log_std", coding="steps", step=0.1, more=1), "gaussian/log_std"),
        (bytes_of("gaussian/mean", lambda t: t[:-1]), "gaussian/mean"),
        (bytes_of("gaussian/mean", lambda t: t[:5]), "gaussian/mean"),
        (bytes_of("gaussian/mean", lambda t: t[:0]), "gaussian/mean"),
        (bytes_of("gaussian/mean", lambda t: torch.cat([t, t])), "gaussian/mean"),
        (bytes_of("gaussian/mean", lambda t: t.float()), "gaussian/mean"),
        (bytes_of("gaussian/mean", lambda t: t[None]), "gaussian/mean"),
        (bytes_of("gaussian/mean", byte(slice(0, 4), 0)), "gaussian/mean"),
        (bytes_of("gaussian/mean", byte(slice(0, 4), 255)), "gaussian/mean"),
        (bytes_of("gaussian/mean", byte(slice(4, 8), 255)), "gaussian/mean"),
        (bytes_of("gaussian/mean", byte(slice(8, 12), 255)), "gaussian/mean"),
        (bytes_of("gaussian/mean", byte(slice(12, 20), 255)), "gaussian/mean"),
    ],
)
def test_crafted_codes_are_refused(good_small, change, message, tmp_path):
    assert message in refused(crafted(good_small, change), tmp_path / "m.pocket")


def multiples(step, *values):
    """Log-stds of an attacker's choice: the first few multiples of some step, others 0."""

    def change(description, sections):
        description["sections"]["gaussian/log_std"] = {"coding": "steps", "step": step}
        first, second = np.zeros(48, np.int64), np.zeros(16, np.int64)
        first[: len(values)] = values
        data = coded_integers([first, second], smooth=False).data
        sections["gaussian/log_std"] = torch.tensor(list(data), dtype=torch.uint8)

    return change


@pytest.mark.parametrize(
    "change",
    [multiples(5e-9, *[1 << 36] * 9), multiples(0.05, *[11_000] * 9)],
    ids=["fine", "coarse"],
)
def test_log_stds_beyond_all_bounds_are_refused_at_once(good_small, change, tmp_path):
    """The exponentials are those of the multiples that are there, not of all in between."""
    message = refused(crafted(good_small, change), tmp_path / "m.pocket")
    assert "section gaussian/mean: a number does not fit its type" in message


def test_multiples_that_the_type_cannot_hold_are_refused(good_small, tmp_path):
    def change(description, sections):
        description["arrays"]["state"]["flag"] = "float16:2"
        description["sections"]["state/flag/float16"] = {"coding": "steps", "step": 1.0}
        data = coded_integers([np.array([70_000, 1])], smooth=False).data
        sections["state/flag/float16"] = torch.tensor(list(data), dtype=torch.uint8)

    assert "state/flag/float16" in refused(crafted(good_small, change), tmp_path / "m.pocket")


def test_a_small_file_takes_no_more_memory_than_it_says(good_small, tmp_path):
    """Half a gigabyte of bytes in twenty: the array itself, and nothing eight times as wide."""
    count = 1 << 29

    def change(description, sections):
        none = np.empty(0, np.int64)
        parts = (varints(np.array([7, 0])), coded_integers([none]).data)
        data = np.array([*map(len, parts)], "<u4").tobytes() + b"".join(parts)
        data += coded_integers([none], smooth=False).data
        description["arrays"]["state"]["flag"] = f"uint8:{count}"
        description["sections"]["state/flag/uint8"] = {"coding": "exceptions"}
        sections["state/flag/uint8"] = torch.tensor(list(data), dtype=torch.uint8)

    (tmp_path / "m.pocket").write_bytes(crafted(good_small, change))
    tracemalloc.start()
    try:
        pb.inspect(tmp_path / "m.pocket")
        assert tracemalloc.get_traced_memory()[1] < 1.2 * count
    finally:
        tracemalloc.stop()


def wide(width):
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4)))


@pytest.mark.parametrize(
    ("options", "width"), [({"tolerance": 1e-3}, 500), ({"lossless": True}, 800)], ids=str
)
def test_saving_and_loading_take_little_memory_on_top_of_the_model(options, width, tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(wide(width))
    for _, q in pb.named_posteriors(model):
        q.mean.data.normal_(0, 0.01)
        q.log_std.data.normal_(-4, 0.3)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    tracemalloc.start()
    try:
        pb.save(model, tmp_path / "m.pocket", **options)
        assert tracemalloc.get_traced_memory()[1] < size / 3 + 4e6
        tracemalloc.reset_peak()
        pb.load(tmp_path / "m.pocket", wide(width))
        assert tracemalloc.get_traced_memory()[1] < 1.5 * size
    finally:
        tracemalloc.stop()


def test_what_a_file_says_of_its_model_is_read_at_once(good, tmp_path):
    path = tmp_path / "m.pocket"
    path.write_bytes(good[: 8 + struct.unpack("<Q", good[:8])[0]])
    assert described(path) == dataclasses.replace(describe(trained()), estimator="lrt")
    for data, message in ((b"", "cut short"), (good[:99], "cut short"), (with_header(b"[]"), "no")):
        path.write_bytes(data)
        with pytest.raises(pb.FormatError, match=rf"m\.pocket.*{message}"):
            described(path)


def test_the_checksum_is_that_of_the_document(good):
    """docs/format.md: SHA-256 of the file with the checksum's own digits as zeros."""
    end = 8 + struct.unpack("<Q", good[:8])[0]
    digest = json.loads(json.loads(good[8:end])["__metadata__"]["pocketbayes"])["sha256"]
    blank = good.replace(digest.encode(), b"0" * 64)
    assert hashlib.sha256(blank).hexdigest() == digest


def test_a_class_called_like_an_empty_checksum_does_no_harm(tmp_path):
    model = trained()
    names = ("0" * 64, 'a"sha256":"' + "0" * 64 + '"', r"\"sha256\":\"" + "0" * 64)
    update_description(model, class_names=names)
    pb.save(model, tmp_path / "m.pocket")
    assert describe(pb.load(tmp_path / "m.pocket")).class_names == names


@pytest.mark.parametrize("name", json.loads((GOLDEN / "v1.json").read_text()))
def test_files_of_version_1_load_for_ever(name, tmp_path):
    known = json.loads((GOLDEN / "v1.json").read_text())[name]
    path = GOLDEN / f"v1-{name}.pocket"
    assert pb.inspect(path).sha256 == known["sha256"]
    model = pb.load(path)
    pb.save(model, tmp_path / "again.pocket", lossless=True)
    again = pb.load(tmp_path / "again.pocket")
    assert all(map(torch.equal, model.state_dict().values(), again.state_dict().values()))
    set_estimator(model, "mean")
    outputs = [member(torch.tensor(known["input"])) for member in members_of(model)]
    torch.testing.assert_close(torch.stack(outputs), torch.tensor(known["mean_outputs"]))


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("name", json.loads((GOLDEN / "v2.json").read_text()))
def test_files_are_written_the_same_for_ever(name, version, tmp_path):
    model = pb.load(GOLDEN / f"{version}-{name}.pocket")
    options = {"lossless": True} if name.endswith("lossless") else {"tolerance": 1e-3}
    pb.save(model, tmp_path / "again.pocket", **options)
    assert (tmp_path / "again.pocket").read_bytes() == (GOLDEN / f"v3-{name}.pocket").read_bytes()


def test_a_file_of_version_1_with_unknown_numbers_is_refused(tmp_path):
    name = next(iter(json.loads((GOLDEN / "v1.json").read_text())))
    with safetensors.safe_open(GOLDEN / f"v1-{name}.pocket", "pt") as file:
        said = json.loads(file.metadata()["pocketbayes"]) | {"sha256": "0" * 64}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    (tmp_path / "m.pocket").write_bytes(with_texts(compact(said), None, tensors))
    pb.load(tmp_path / "m.pocket")
    small = {k: v.to(torch.float8_e5m2) if v.is_floating_point() else v for k, v in tensors.items()}
    message = refused(with_texts(compact(said), None, small), tmp_path / "m.pocket")
    assert "float8_e5m2" in message


def digest_of(model):
    """Of every number in it, bit by bit, by the names that they had when the files were made."""
    digest, state = hashlib.sha256(), model.state_dict()
    of_old = {name.replace("._posteriors.", ".posteriors."): name for name in state}
    for name in sorted(of_old):
        value = state[of_old[name]]
        if isinstance(value, torch.Tensor):
            digest.update(name.encode() + value.contiguous().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize("name", json.loads((GOLDEN / "v2.json").read_text()))
def test_files_mean_the_same_for_ever(name, version):
    known = json.loads((GOLDEN / "v2.json").read_text())[name]
    model = pb.load(GOLDEN / f"{version}-{name}.pocket")
    assert digest_of(model) == known["numbers"]
    set_estimator(model, "mean")
    outputs = [member(torch.tensor(known["input"])) for member in members_of(model)]
    torch.testing.assert_close(torch.stack(outputs), torch.tensor(known["mean_outputs"]))


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_every_file_is_known(version):
    known = json.loads((GOLDEN / "v2.json").read_text())
    there = {p.name for p in GOLDEN.glob(f"{version}-*.pocket")}
    assert {f"{version}-{name}.pocket" for name in known} == there
    assert {pb.inspect(GOLDEN / name).version for name in there} == {int(version[1])}


class Standardised(nn.Module):
    """A batch norm far from 0, a buffer of tiny numbers, and a parameter of tiny numbers."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.BatchNorm1d(2), nn.Linear(2, 2)
        self.register_buffer("sd", torch.tensor([2e-8, 1.0]))
        self.gain = nn.Parameter(torch.tensor([1e-6, 1.1e-6]))

    def forward(self, x):
        return self.out(self.norm(x) + self.gain + self.sd)


def test_float16_is_not_taken_where_it_would_change_the_model(tmp_path):
    model = pb.bayesianize_(Standardised())
    model.norm.running_mean.copy_(torch.tensor([1013.2467, 2023.4027]))
    model.norm.running_var.fill_(0.04)
    pb.save(model, tmp_path / "m.pocket")
    stored = pb.load(tmp_path / "m.pocket", Standardised())
    assert torch.equal(stored.norm.running_mean, model.norm.running_mean)
    assert torch.equal(stored.sd, model.sd)
    assert torch.equal(stored.gain, model.gain)
    model.norm.running_var.fill_(1e6)  # now float16 moves the mean by little of a std
    pb.save(model, tmp_path / "m.pocket")
    stored = pb.load(tmp_path / "m.pocket", Standardised())
    assert stored.norm.running_mean.tolist() == [1013.0, 2023.0]
    model.norm.running_var.copy_(torch.tensor([1e-9, 1.0]))  # less than what the norm adds
    model.norm.running_mean.fill_(0)
    size = pb.save(model, tmp_path / "m.pocket")
    codings = {section.name: section.coding for section in size.sections}
    assert codings["state/running_var"].startswith("half")


@pytest.mark.parametrize(
    ("change", "is_half"),
    [
        ({"running_mean": [3.001, 0.0], "running_var": [0.02, 1.0]}, False),  # 1/148 of a std off
        ({"running_mean": [3.001, 0.0], "running_var": [0.07, 1.0]}, True),  # 1/278
        ({"running_mean": [1675.4072265625, 0.0], "running_var": [10868.0517578125, 1.0]}, None),
        ({"running_var": [1e-7, 1.0]}, False),
        ({"running_var": [1e-7, 1.0], "eps": 1e-3}, True),
        ({"running_var": [1e6, 1.0]}, False),
    ],
)
def test_statistics_of_norms_are_halved_by_what_they_do(tmp_path, change, is_half):
    def net():
        return nn.Sequential(nn.BatchNorm1d(2, eps=change.get("eps", 1e-5)), nn.Linear(2, 2))

    model = pb.bayesianize_(net())
    for name in ("running_mean", "running_var"):
        if name in change:
            getattr(model[0], name).copy_(torch.tensor(change[name]))
    mean, std = model[0].running_mean, (model[0].running_var + model[0].eps).sqrt()
    size = pb.save(model, tmp_path / "m.pocket")
    stored = pb.load(tmp_path / "m.pocket", net())
    assert ((stored[0].running_mean - mean).abs() <= std / 250).all()
    var = stored[0].running_var + model[0].eps
    assert ((var - std**2).abs() <= std**2 / 1000).all()
    codings = {section.name: section.coding for section in size.sections}
    if is_half is not None:
        assert codings[f"state/{next(iter(change))}"].startswith("half") == is_half
    pb.save(stored, tmp_path / "again.pocket")
    assert (tmp_path / "again.pocket").read_bytes() == (tmp_path / "m.pocket").read_bytes()


class Grouped(nn.Module):
    """Statistics of its own kind under the names of a batch norm's."""

    def __init__(self):
        super().__init__()
        self.out, self.eps = nn.Linear(6, 2), 1e-5
        self.register_buffer("running_mean", torch.full((6,), 1013.2467))
        self.register_buffer("running_var", torch.full((2,), 1e9))

    def forward(self, x):
        return self.out(x)


def test_names_alone_make_no_norm(tmp_path):
    model = pb.bayesianize_(Grouped())
    pb.save(model, tmp_path / "m.pocket")
    stored = pb.load(tmp_path / "m.pocket", Grouped())
    assert torch.equal(stored.running_mean, model.running_mean)


@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("wrapper", [torch.compile, nn.DataParallel])
def test_wrapped_models_are_stored_without_their_wrapper(tmp_path, wrapper):
    model = trained()
    pb.save(wrapper(model), tmp_path / "m.pocket")
    pb.save(model, tmp_path / "plain.pocket")
    assert (tmp_path / "m.pocket").read_bytes() == (tmp_path / "plain.pocket").read_bytes()
    pb.load(tmp_path / "m.pocket")
    wrapped = wrapper(network())
    assert pb.load(tmp_path / "m.pocket", wrapped) is wrapped
    inner, stored = unwrapped(wrapped), pb.load(tmp_path / "m.pocket")
    torch.testing.assert_close(predictions(inner), predictions(stored), rtol=0, atol=0)


def test_a_wrapper_that_was_converted_is_the_model(tmp_path):
    def net():
        return nn.DataParallel(nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1)))

    model = trained(net=net(), targets=Y.float()[:, None])
    pb.save(model, tmp_path / "m.pocket")
    stored = pb.load(tmp_path / "m.pocket", net())
    assert describe(stored).likelihood == "gaussian"
    torch.testing.assert_close(noise_log_std(stored), noise_log_std(model), rtol=1e-3, atol=0)


class Frozen(dict):
    """A table of the user's own, which nobody may touch."""

    def refuse(self, *_):
        raise TypeError("frozen")

    copy = update = __copy__ = refuse


@pytest.mark.parametrize("root", [False, True])
def test_a_network_that_does_not_fit_stays_as_it_was(tmp_path, root):
    def net():
        return nn.Linear(6, 2) if root else nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))

    pb.save(pb.bayesianize_(net()), tmp_path / "m.pocket")
    given = net()
    given.register_buffer("extra", torch.ones(1))
    given.notes, given.own_hooks = Frozen(kept=1), [1]
    before = {name: id(value) for name, value in given.state_dict(keep_vars=True).items()}
    kinds = [type(module) for module in given.modules()]
    for _ in range(2):
        with pytest.raises(pb.FormatError, match="extra is not in the file"):
            pb.load(tmp_path / "m.pocket", given)
        after = given.state_dict(keep_vars=True)
        assert {name: id(value) for name, value in after.items()} == before
        assert [type(module) for module in given.modules()] == kinds
        assert (given.notes, given.own_hooks) == ({"kept": 1}, [1])
    del given.extra
    pb.load(tmp_path / "m.pocket", given)


@pytest.mark.parametrize(
    "buffer",
    [torch.ones(2, dtype=torch.uint16), torch.ones(2).to(torch.float8_e4m3fn),
     torch.eye(2).to_sparse(), torch.ones(2, device="meta")],
    ids=["uint16", "float8", "sparse", "meta"],
)  # fmt: skip
def test_tensors_that_no_file_holds_are_named(tmp_path, buffer):
    net = nn.Sequential(nn.Linear(3, 2))
    net.register_buffer("odd", buffer)
    with pytest.raises(pb.FormatError, match="odd"):
        pb.save(pb.bayesianize_(net), tmp_path / "m.pocket")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [".", "", "a\0b"])
def test_paths_that_name_no_file(path):
    with pytest.raises(pb.FormatError, match="names no file"):
        pb.save(trained(), path)
    for read in (pb.load, pb.inspect, described):
        with pytest.raises(pb.FormatError, match="names no file"):
            read(path)


def test_names_that_are_no_text_or_long(tmp_path):
    net = nn.Sequential(nn.Linear(2, 2))
    net.register_buffer("a\ud800", torch.ones(2))
    with pytest.raises(pb.FormatError, match="no text"):
        pb.save(pb.bayesianize_(net), tmp_path / "m.pocket")
    long = tmp_path / ("x" * 248 + ".pocket")
    pb.save(trained(), long)
    pb.load(long)
    torch.save({"a": 1}, tmp_path / "m.pocket")
    with pytest.raises(pb.FormatError, match=r"m\.pocket: not a safetensors file"):
        pb.load(tmp_path / "m.pocket")


@pytest.fixture(scope="module")
def good_shared(tmp_path_factory):
    path = tmp_path_factory.mktemp("shared") / "m.pocket"
    pb.save(trained("sharing"), path, lossless=True)
    return path.read_bytes()


def numbers(value):
    def change(description, sections):
        description["tables"] = dict(zip(description["tables"], value, strict=True))

    return change


@pytest.mark.parametrize(
    "change",
    [
        top("tables", {}), top("tables", None), top("tables", [0, 0]), top("tables", {"a": 0}),
        numbers([0, 1]), numbers([1, 1]), numbers([-1, -1]), numbers([0, True]),
        numbers([0.0, 0.0]), numbers(["0", "0"]), numbers([0, 10**9]),
        lambda d, s: d["posteriors"].update({next(iter(d["posteriors"])): "gaussian"}),
        section("table/0/mean", None), section("table/0/mean", lambda t: t[:0]),
        section("table/0/mean", lambda t: t[:1]), section("table/0/draw", lambda t: t + 2),
        section("/label", lambda t: t + 200), section("/label", None),
        section("/shape", lambda t: t * 2), section("/structure", lambda t: t + 1),
    ],
)  # fmt: skip
def test_forged_codebooks_are_refused(good_shared, change, tmp_path):
    refused(forged(good_shared, change), tmp_path / "m.pocket")


def test_a_codebook_is_stored_once_and_shared_again(good_shared, tmp_path):
    path = tmp_path / "m.pocket"
    path.write_bytes(good_shared)
    summary = pb.inspect(path)
    assert sum(s.name.startswith("table/") for s in summary.sections) == 3
    assert set(summary.families) == {"shared"}
    again = pb.load(path)
    assert len({id(q.table) for _, q in pb.named_posteriors(again)}) == 1
    pb.save(again, tmp_path / "n.pocket", lossless=True)
    assert (tmp_path / "n.pocket").read_bytes() == good_shared


def test_missing_files_and_directories(tmp_path):
    with pytest.raises(pb.FormatError, match="No such file"):
        pb.load(tmp_path / "none.pocket")
    with pytest.raises(pb.FormatError, match="cannot read"):
        pb.inspect(tmp_path)


def test_a_loaded_model_trains_on(tmp_path):
    model = trained()
    pb.save(model, tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket")
    before = copy.deepcopy(again.state_dict())
    loader = DataLoader(TensorDataset(X, Y), batch_size=20)
    pb.fit(again, loader, epochs=1, progress=False, device="cpu")
    assert any(not torch.equal(before[k], v) for k, v in again.state_dict().items())
