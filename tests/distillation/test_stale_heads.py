"""A head that was taught with other weights is noticed, however they came to change."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import describe, has_stale_head, head_of
from pocketbayes.layers.known_weights import KnownWeights, sketches_of
from pocketbayes.models import build_network

pytestmark = pytest.mark.filterwarnings("ignore:nothing says that this model was ever")

OPTIONS = {"input_shape": (6,), "num_outputs": 3, "hidden": (16, 12)}
STALE = "weights have changed since distill_"


def fresh(seed=0):
    torch.manual_seed(seed)
    return pb.bayesianize_(build_network("mlp", **OPTIONS), std_init=0.1, estimator="weight")


def batches():
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(32, 6, generator=generator) for _ in range(2)]


def distilled(seed=0):
    return pb.distill_(fresh(seed), batches(), 1)


def inputs():
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(5))


def steps(model, **options):
    """An own loop that never calls `pb.loss`."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, **options)
    for x in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), torch.zeros(len(x)).long()).backward()
        optimizer.step()


def mean_of(model):
    return next(posterior for _, posterior in pb.named_posteriors(model)).mean


def one_weight(model):
    with torch.no_grad():
        mean_of(model)[0, 0] += 1e-3


def by_data(model):
    mean_of(model).data.mul_(1.01)


def other_storage(model):
    mean_of(model).data = mean_of(model).data * 1.01


def a_bias(model):
    with torch.no_grad():
        model.output.bias.add_(0.01)


def a_layer(model):
    model.hidden1 = copy.deepcopy(model.hidden1)
    nn.init.zeros_(model.hidden1.bias)
    one_weight(model)


CHANGES = {
    "adam": steps,
    "fused": lambda model: steps(model, fused=True),
    "single": lambda model: steps(model, foreach=False),
    "one weight": one_weight,
    "data": by_data,
    "storage": other_storage,
    "bias": a_bias,
    "layer": a_layer,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_the_weights_is_noticed(change):
    model = distilled()
    assert pb.predict(model, inputs()).estimator == "one_pass"
    CHANGES[change](model)
    with pytest.warns(UserWarning, match=STALE):
        assert pb.predict(model, inputs()).estimator == "weight"
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        assert pb.predict(model, inputs()).estimator == "weight"
        assert pb.evaluate(model, [(inputs(), torch.zeros(5).long())]).estimator == "weight"
    for call in (pb.predict, lambda *args, **rest: pb.temperature_(args[0], batches(), **rest)):
        with pytest.raises(pb.PocketBayesError, match=r'distill_\(model, loader\) again.*"weight"'):
            call(model, inputs(), estimator="one_pass")
    pb.distill_(model, batches(), 1)
    assert pb.predict(model, inputs(), estimator="one_pass").estimator == "one_pass"


def test_a_change_before_the_first_prediction_is_noticed(tmp_path):
    model = distilled()
    steps(model)
    with pytest.warns(UserWarning, match=STALE):
        assert pb.predict(model, inputs()).estimator == "weight"
    pb.save(distilled(), tmp_path / "a.pocket")
    model = pb.load(tmp_path / "a.pocket")
    steps(model, fused=True)
    assert has_stale_head(model)


def test_weights_that_come_back_bring_the_head_back():
    model = distilled()
    expected = pb.predict(model, inputs()).probs
    before = mean_of(model).detach().clone()
    one_weight(model)
    with pytest.warns(UserWarning, match=STALE):
        pb.predict(model, inputs())
    with torch.no_grad():
        mean_of(model).copy_(before)
    assert torch.equal(pb.predict(model, inputs()).probs, expected)
    one_weight(model)
    with pytest.warns(UserWarning, match=STALE):
        pb.predict(model, inputs())


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def by_torch(model):
    room = io.BytesIO()
    torch.save(model, room)
    room.seek(0)
    return torch.load(room, weights_only=False)


def by_state(model):
    other = fresh(7)
    other.load_state_dict(model.state_dict())
    return other


def by_state_assigned(model):
    other = fresh(7)
    other.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    return other


def by_file(model, tmp_path):
    pb.save(model, tmp_path / "model.pocket")
    return pb.load(tmp_path / "model.pocket")


WAYS = {
    "deepcopy": copy.deepcopy,
    "pickle": pickled,
    "torch.save": by_torch,
    "state": by_state,
    "assigned": by_state_assigned,
    "double": lambda model: copy.deepcopy(model).double().float(),
    "half": lambda model: copy.deepcopy(model).half(),
    "bfloat16": lambda model: copy.deepcopy(model).bfloat16(),
}


@pytest.mark.parametrize("way", [*WAYS, "file"])
def test_the_head_goes_with_its_weights(way, tmp_path):
    model = distilled()
    other = by_file(model, tmp_path) if way == "file" else WAYS[way](model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not has_stale_head(other)
        if way not in ("half", "bfloat16"):
            assert pb.predict(other, inputs()).estimator == "one_pass"
    steps(other.float())
    assert has_stale_head(other)
    assert not has_stale_head(model)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_head_goes_to_a_gpu_and_back():
    model = distilled()
    assert not has_stale_head(model.cuda())
    assert pb.predict(model, inputs().cuda()).estimator == "one_pass"
    steps_on_gpu = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    model(inputs().cuda()).sum().backward()
    steps_on_gpu.step()
    assert has_stale_head(model)
    assert not has_stale_head(distilled().cuda().cpu())


@pytest.mark.parametrize("way", [*WAYS, "file"])
def test_a_stale_head_stays_stale_or_is_left_behind(way, tmp_path):
    model = distilled()
    steps(model)
    if way == "file":
        with pytest.warns(UserWarning, match="the file is written without"):
            other = by_file(model, tmp_path)
        assert pb.inspect(tmp_path / "model.pocket").one_pass is None
    else:
        other = WAYS[way](model).float()
    assert has_stale_head(other) or (head_of(other) is None and describe(other).one_pass is None)
    assert has_stale_head(model)
    pb.distill_(other, batches(), 1)
    assert pb.predict(other, inputs()).estimator == "one_pass"


def test_a_state_of_some_weights_leaves_the_head_stale():
    state = distilled().state_dict()
    missing = next(name for name in state if name.endswith("mean"))
    other = fresh(7)
    other.load_state_dict({k: v for k, v in state.items() if k != missing}, strict=False)
    assert has_stale_head(other)


def test_a_stale_head_survives_a_failed_lesson_as_stale():
    model = distilled()
    steps(model)
    with pytest.raises(pb.PocketBayesError):
        pb.distill_(model, [torch.full((4, 6), torch.nan)])
    assert has_stale_head(model)


def test_what_no_prediction_depends_on_may_change():
    model = pb.bayesianize_(nn.Linear(6, 2), std_init=0.1, estimator="weight")
    x = inputs()
    pb.fit(model, [(x, x[:, :2])], epochs=1, likelihood="gaussian", progress=False)
    pb.distill_(model, [x], 1)
    with torch.no_grad():
        model.noise_log_std.add_(1)
        for _, posterior in pb.named_posteriors(model):
            posterior.prior_std.mul_(2)
    model.register_buffer("cache", torch.zeros(3), persistent=False)
    model.register_buffer("calls", torch.tensor(3))
    model.train()
    model.requires_grad_(False)
    assert not has_stale_head(model)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mask", torch.ones(3, dtype=torch.bool))
        self.register_buffer("order", torch.arange(3))

    def forward(self, x):
        return (self.layer(x) * self.mask)[:, self.order]


@pytest.mark.parametrize("name", ["mask", "order"])
def test_masks_and_orders_are_weights(name):
    model = pb.distill_(pb.bayesianize_(Masked(), std_init=0.1), batches(), 1)
    getattr(model, name).copy_(getattr(model, name).flip(0) if name == "order" else False)
    assert has_stale_head(model)


@pytest.mark.parametrize("column", range(6))
def test_a_column_behind_torchs_back_is_noticed(column):
    model = distilled()
    assert not has_stale_head(model)
    mean_of(model).data[:, column] = 0
    assert has_stale_head(model)


def test_statistics_of_norms_are_weights():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model = pb.distill_(pb.bayesianize_(net, std_init=0.1), batches(), 1)
    assert not has_stale_head(model)
    model.train()(batches()[0] + 1)
    assert has_stale_head(model)


def test_quantisation_keeps_a_head_fresh_and_a_stale_one_stale():
    model, other = distilled(), distilled()
    pb.quantize_(model, 10, 8)
    assert not has_stale_head(model)
    steps(other)
    pb.quantize_(other, 10, 8)
    assert has_stale_head(other)


@pytest.mark.parametrize("family", ["sparse", "shared", "spike-slab"])
def test_every_kind_of_posterior_is_seen(family):
    model, x = fresh(), batches()[0]
    y = torch.zeros(len(x)).long()
    if family == "sparse":
        pb.prune_(model, 0.5, by="snr")
    else:
        method = pb.SpikeSlab() if family == "spike-slab" else pb.Sharing(components=4)
        pb.fit(model, [(x, y)], method, epochs=1, progress=False)
    pb.distill_(model, batches(), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for way in (copy.deepcopy, pickled):
            assert pb.predict(way(model), inputs()).estimator == "one_pass"
    with torch.no_grad():
        parameter = next(posterior for _, posterior in pb.named_posteriors(model))
        next(p for p in parameter.parameters()).add_(0.01)
    assert has_stale_head(model)


def test_a_wrapper_and_a_compiled_model_tell_of_the_same_head():
    model = distilled()
    compiled = torch.compile(model, backend="eager")
    assert not has_stale_head(compiled)
    steps(model, fused=True)
    assert has_stale_head(compiled)
    assert has_stale_head(nn.DataParallel(model))


def test_a_sketch_sees_small_moves_and_no_rounding_of_sums():
    """|s' - s| of a move d is about |d| / sqrt(2): seen unless |d| < 1e-9 |w| or so."""
    generator = torch.Generator().manual_seed(0)
    net = nn.Linear(700, 800)
    nn.init.normal_(net.weight, generator=generator)
    known = KnownWeights(net, ())
    shuffled = copy.deepcopy(net)
    with torch.no_grad():
        shuffled.weight.copy_(net.weight.T.contiguous().T)  # other strides, the same numbers
    assert copy.deepcopy(known).are_in(shuffled)
    moved = copy.deepcopy(net)
    with torch.no_grad():
        moved.weight.mul_(1 + 1e-6)
    assert not copy.deepcopy(known).are_in(moved)
    swapped = copy.deepcopy(net)
    with torch.no_grad():
        swapped.weight[[0, 1]] = net.weight[[1, 0]]
    assert not copy.deepcopy(known).are_in(swapped)
    assert not KnownWeights(None, ()).are_in(net)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_another_type_is_the_same_weights_but_no_excuse_for_training(kind):
    model = distilled()
    rounded = copy.deepcopy(model).to(kind)
    assert not has_stale_head(rounded)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert has_stale_head(moved.to(kind))


def test_complex_empty_and_integer_tensors_have_sketches():
    weights = [torch.randn(3, dtype=torch.complex64), torch.empty(0, 4), torch.arange(5)]
    first, again = sketches_of(weights), sketches_of([w.clone() for w in weights])
    assert all(torch.equal(a.sums, b.sums) for a, b in zip(first, again, strict=True))
    weights[0][1] += 1e-3j
    assert not torch.equal(sketches_of(weights)[0].sums, first[0].sums)
