"""Statistics of batch norms, estimated anew: known answers, what stays, and what is refused."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.ensembles import Ensemble
from pocketbayes.posteriors.conversions import as_point


def network(seed=0, estimator="lrt", bias=False, norm=None):
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(12, 32),
        norm or nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(32, 3),
    )
    return pb.bayesianize_(net, estimator=estimator, bias=bias)


def inputs(count=256, seed=7):
    return torch.randn(count, 12, generator=torch.Generator().manual_seed(seed))


def loader(count=256, batch=32):
    x = inputs(count)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch)


def statistics(model):
    return {n: b.clone() for n, b in model.named_buffers() if "running" in n or "tracked" in n}


def with_wrong_statistics(model):
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.fill_(17.0)
    return model


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_means_and_variances_of_known_inputs():
    norm = nn.BatchNorm1d(12)
    net = pb.bayesianize_(nn.Sequential(norm, nn.Linear(12, 3)))
    x = inputs(100) * 3 + 5
    parts = [x[:60], x[60:]]
    pb.refresh_norms_(with_wrong_statistics(net), parts)
    torch.testing.assert_close(norm.running_mean, torch.stack([p.mean(0) for p in parts]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([p.var(0) for p in parts]).mean(0))
    assert norm.num_batches_tracked == 2


def test_it_does_what_torch_does_for_an_averaged_network():
    model = network(estimator="mean").eval()
    model[3].p = 0.0  # torch's function keeps dropout on
    other = copy.deepcopy(model)
    pb.refresh_norms_(model, loader())
    update_bn(loader(), other)
    torch.testing.assert_close(statistics(model), statistics(other))


def test_the_noise_of_weights_is_in_the_variance():
    """Of y = w x with w ~ N(m, s^2): Var y = |m|^2 + s^2 E|x|^2 for white x, to within 3%."""
    model = network()
    q = dict(pb.named_posteriors(model))["0.weight"]
    with torch.no_grad():
        q.log_std.fill_(np.log(0.5))
    x = inputs(20_000)
    pb.refresh_norms_(model, [x], generator=torch.Generator().manual_seed(0))
    want = q.mean.detach().square().sum(1) + 0.25 * 12
    assert float((model[1].running_var / want - 1).abs().max()) < 0.03
    pb.refresh_norms_(model, [x], estimator="mean")
    want = q.mean.detach().square().sum(1)
    assert float((model[1].running_var / want - 1).abs().max()) < 0.1


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("training", [True, False])
def test_all_else_stays(momentum, training):
    model = with_wrong_statistics(network(bias=True).train(training))
    model[1].momentum = momentum
    model[2].training = not training
    before = copy.deepcopy(model)
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    assert pb.refresh_norms_(model, loader(), generator=torch.Generator()) is model
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)
    assert model[1].momentum == momentum
    for old, new in zip(before.modules(), model.modules(), strict=True):
        assert old.training == new.training
    changed = {n for n, v in model.state_dict().items() if not v.equal(before.state_dict()[n])}
    assert changed == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert all(p.grad is None for p in model.parameters())


def test_the_same_generator_gives_the_same_numbers():
    found = []
    for seed in (1, 1, 2):
        model = network()
        pb.refresh_norms_(model, loader(), generator=torch.Generator().manual_seed(seed))
        found.append(statistics(model))
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_at_most_so_many_batches_are_read():
    read = []

    def parts():
        for number in range(10):
            read.append(number)
            yield inputs(32, number)

    model = network()
    pb.refresh_norms_(model, parts(), batches=3)
    assert read == [0, 1, 2]
    assert model[1].num_batches_tracked == 3


def test_members_of_an_ensemble_get_their_own():
    members = [network(seed) for seed in (1, 2)]
    alone = [pb.refresh_norms_(copy.deepcopy(m), loader(), estimator="mean") for m in members]
    pb.refresh_norms_(Ensemble(members), loader(), estimator="mean")
    for member, other in zip(members, alone, strict=True):
        assert same(statistics(member), statistics(other))
    assert not torch.equal(members[0][1].running_mean, members[1][1].running_mean)


@pytest.mark.parametrize(
    "norm",
    [nn.Identity(), nn.LayerNorm(32), nn.BatchNorm1d(32, track_running_stats=False)],
    ids=["none", "layer", "untracked"],
)
def test_without_such_norms_nothing_is_read(norm):
    model = network(norm=norm)
    before = copy.deepcopy(model.state_dict())
    pb.refresh_norms_(model, (pytest.fail("was read") for _ in range(1)))
    assert same(before, model.state_dict())


def test_a_norm_that_does_not_run_keeps_its_statistics():
    class Idle(nn.Sequential):
        def forward(self, x):
            return self[0](x)

    model = pb.bayesianize_(Idle(nn.Linear(12, 3), nn.BatchNorm1d(3)))
    before = statistics(with_wrong_statistics(model))
    pb.refresh_norms_(model, loader())
    assert same(before, statistics(model))


def test_a_single_example_left_over_is_passed_by():
    model, other = network(estimator="mean"), network(estimator="mean")
    x = inputs(65)
    pb.refresh_norms_(model, in_parts(x))
    pb.refresh_norms_(other, in_parts(x[:64]))
    assert same(statistics(model), statistics(other))


def in_parts(x):
    return DataLoader(TensorDataset(x, x), 32)


NAN = torch.full((8, 12), float("nan"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "is empty"),
        ([inputs(32), NAN], "NaN"),
        ([inputs(32), torch.full((8, 12), float("inf"))], "NaN or infinite"),
        ([inputs(32), inputs(32)[:, :5]], "shape"),
        ([inputs(1)], "shape"),
        ([{"x": inputs(8)}], "unexpected keyword argument 'x'"),
        (7, "int"),
    ],
)
def test_what_cannot_be_used_is_refused_and_changes_nothing(data, message):
    model = with_wrong_statistics(network(bias=True))
    before, momentum = copy.deepcopy(model.state_dict()), model[1].momentum
    with pytest.raises(pb.DataError, match=message):
        pb.refresh_norms_(model, data)
    assert same(before, model.state_dict())
    assert model[1].momentum == momentum
    assert model[1].training


@pytest.mark.parametrize(
    "options", [{"batches": 0}, {"batches": 1.5}, {"estimator": "guess"}, {"generator": 3}]
)
def test_wrong_arguments(options):
    with pytest.raises(pb.PocketBayesError, match=next(iter(options))):
        pb.refresh_norms_(network(), loader(), **options)
    with pytest.raises(pb.PocketBayesError):
        pb.refresh_norms_("model", loader())


def convolutional():
    torch.manual_seed(0)
    blocks = []
    for width in (1, 8, 8):
        blocks += [nn.Conv2d(width, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return pb.bayesianize_(nn.Sequential(*blocks, nn.Flatten(), nn.Linear(8 * 16, 4)))


def pictures(count=256, batch=64):
    generator = torch.Generator().manual_seed(3)
    y = torch.randint(4, (count,), generator=generator)
    x = 0.7 * torch.randn(count, 1, 4, 4, generator=generator)
    x[torch.arange(count), 0, y] += 1
    return DataLoader(TensorDataset(x, y), batch, shuffle=True)


def fitted(model, method, epochs, **options):
    return pb.fit(model, pictures(), method, epochs=epochs, progress=False, device="cpu", **options)


@pytest.fixture(scope="module")
def trained():
    model = convolutional()
    fitted(model, pb.MeanField(), 8)
    return model


def shared(model, epochs=0, **options):
    model = copy.deepcopy(model)
    method = pb.Sharing(objective="rate_distortion", rate=3.0, components=32, **options)
    fitted(model, method, epochs)
    return model


def nll(model):
    generator = torch.Generator().manual_seed(0)
    return pb.evaluate(model, pictures(), 5, generator=generator).nll


def test_sharing_leaves_norms_that_fit(trained):
    stale, fresh = shared(trained, refresh_norms=False), shared(trained)
    assert same(statistics(stale), statistics(trained))
    assert nll(fresh) < nll(stale)
    assert same(statistics(fresh), statistics(shared(trained)))  # the seed determines them
    means = [pb.refresh_norms_(copy.deepcopy(fresh), pictures()) for _ in range(2)]
    close = statistics(means[0])["1.running_mean"]
    torch.testing.assert_close(statistics(fresh)["1.running_mean"], close, rtol=0.2, atol=0.05)


def test_training_on_does_not_suffer(trained):
    assert nll(shared(trained, epochs=2)) < nll(shared(trained, 2, refresh_norms=False)) + 0.02


def test_pruned_points_are_refreshed_as_well(trained):
    model = copy.deepcopy(trained)
    for name, q in list(pb.named_posteriors(model)):
        pb.replace_posterior(model, name, as_point(q))
    pb.prune_(model, 0.3, by="magnitude")
    before = nll(model)
    assert nll(pb.refresh_norms_(model, pictures())) < before
