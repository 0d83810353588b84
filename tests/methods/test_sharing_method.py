"""Weight sharing through `fit`: from any start, with any family, resumed, stored, in company."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers import set_estimator
from pocketbayes.likelihoods.elbo import Objective
from pocketbayes.posteriors import Gaussian, Point, Shared, Sparse
from pocketbayes.posteriors.structures import STRUCTURES
from pocketbayes.training.gradients import mean_sizes


def network(seed=0, norm=False, **options):
    torch.manual_seed(seed)
    middle = [nn.BatchNorm1d(48)] if norm else []
    net = nn.Sequential(nn.Linear(12, 48), *middle, nn.ReLU(), nn.Linear(48, 32), nn.ReLU(),
                        nn.Linear(32, 3))  # fmt: skip
    return pb.bayesianize_(net, **options)


def batches(count=256, batch=32, seed=7):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 12, generator=generator)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch, shuffle=True)


def fit(model, method, epochs=2, loader=None, **options):
    options = {"progress": False, "device": "cpu"} | options
    return pb.fit(model, loader or batches(), method, epochs=epochs, **options)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model = network()
    fit(model, pb.MeanField(), epochs=40)
    return model


def of(model):
    return [q for _, q in pb.named_posteriors(model)]


def score(model):
    loader = batches(2000, 500, seed=8)
    return pb.evaluate(model, loader, 20, generator=torch.Generator().manual_seed(0))


def test_sharing_keeps_what_was_learned(trained):
    model = copy.deepcopy(trained)
    before = score(model)
    fit(model, pb.Sharing(components=40, least_members=5), epochs=5)
    after = score(model)
    posteriors = of(model)
    assert all(isinstance(q, Shared) for q in posteriors)
    assert len({id(q.codebook) for q in posteriors}) == 1
    assert 5 < len(posteriors[0].codebook) <= 40
    assert after.accuracy > before.accuracy - 0.02
    assert after.nll < before.nll + 0.05


def test_training_moves_codebook_and_outliers_but_neither_labels_nor_blends(trained):
    model = copy.deepcopy(trained)
    method = pb.Sharing(components=40, least_members=5, lr=1e-2, std_lr=1e-2)
    fit(model, method, epochs=0)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    assert sum(len(q.outlier) for q in of(model)) > 0
    assert sum(len(q.blend) for q in of(model)) > 0
    fit_on = copy.deepcopy(model)
    fit(fit_on, pb.MeanField(lr=1e-2), epochs=3)  # another method trains the same codebook
    for name, value in fit_on.state_dict().items():
        learns = name.endswith(("table.mean", "table.log_std", "outlier_mean", "outlier_log_std"))
        if "_posteriors" in name and value.numel() and not name.endswith("prior_std"):
            assert torch.equal(value, start[name]) != learns, name


def test_from_a_deterministic_network_in_one_call(tmp_path):
    model = network()
    fit(model, pb.Deterministic(), epochs=30)
    assert all(isinstance(q, Point) for q in of(model))
    method = pb.Sharing(pretrain_epochs=10, components=40, least_members=5)
    result = fit(model, method, epochs=3, out=tmp_path / "run")
    assert [row.get("stage") for row in result.history] == ["pretraining"] * 10 + [None] * 3
    stds = of(model)[0].codebook.log_std.exp()
    assert stds.max() > 1.5 * stds.min()
    assert score(model).accuracy > 0.85
    assert (tmp_path / "run" / "pretraining" / "checkpoint.pt").exists()


def test_from_the_prior_without_pretraining():
    model = network()
    method = pb.Sharing(components=60, least_members=2, lr=2e-2, beta=0.01, outlier_gradient=0)
    result = fit(model, method, epochs=30)
    assert len(of(model)[0].codebook) > 10
    assert result.history[-1]["nll"] < 0.7 * result.history[0]["nll"]


@pytest.mark.parametrize("structure", ["none", "block16", "channel"])
def test_zeros_of_a_sparse_network_stay_zero(structure, tmp_path):
    model = network()
    sparse = pb.Subspace(density=0.3, structure=structure, update_every=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(model, sparse, epochs=20)
    there = [q.moments()[1] > 0 for q in of(model)]
    before = score(model).accuracy
    fit(model, pb.Sharing(components=30, least_members=5), epochs=3)
    for q, support in zip(of(model), there, strict=True):
        assert isinstance(q, Shared)
        assert not q.sample()[~support].any()
        assert not q.moments()[1][~support].any()
        assert q.num_active == int(support.sum())
    assert score(model).accuracy > before - 0.03
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    net = nn.Sequential(
        nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 3)
    )
    again = pb.load(tmp_path / "m.pocket", net)
    for one, other in zip(of(model), of(again), strict=True):
        assert torch.equal(one.expectation(), other.expectation())
    assert of(again)[0].codebook is of(again)[1].codebook


def test_a_smaller_target_gives_a_smaller_code(trained):
    entries = []
    for target in (3000, 600):
        model = copy.deepcopy(trained)
        method = pb.Sharing(objective="rate_distortion", target_bytes=target)
        fit(model, method, epochs=0)
        summary = pb.sharing_summary(model)
        assert summary.coded_bytes <= target
        entries.append(summary.components)
    assert entries[0] > entries[1]


def test_the_summary_counts_as_the_paper_and_honestly(trained):
    model = copy.deepcopy(trained)
    fit(model, pb.Sharing(components=40, least_members=5), epochs=0)
    s = pb.sharing_summary(model)
    weights = 12 * 48 + 48 * 32 + 32 * 3
    assert s.weights == s.active_weights == weights
    assert s.parameters == s.outliers + s.blends + 2 * s.components
    assert s.stored_scalars == 2 * s.outliers + s.blends + 2 * s.components
    assert s.index_bytes == weights
    assert s.coded_bytes < s.index_bytes + 12 * s.outliers + 8 * s.components + 12 * s.blends
    assert str(s.outliers) in str(s).replace(",", "")
    with pytest.raises(pb.PocketBayesError, match="Sharing"):
        pb.sharing_summary(trained)


def test_labels_follow_the_codebook_when_asked_to(trained):
    method = pb.Sharing(components=40, least_members=5, lr=3e-2, reassign_every=2)
    before, one, two = (copy.deepcopy(trained) for _ in range(3))
    fit(one, method, epochs=1)
    fit(two, method, epochs=4)
    assert torch.equal(of(one)[1].outlier, of(two)[1].outlier)
    assert not torch.equal(of(one)[1].label, of(two)[1].label)
    q = of(two)[1]
    torch.testing.assert_close(q.count, q._counted(len(q.codebook)))
    mean, std = (t.detach().double().flatten() for t in (of(before)[1].mean, of(before)[1].std))
    m, s = (t.detach().double() for t in (q.codebook.mean, q.codebook.log_std.exp()))
    ratio = (s / std[:, None]) ** 2
    divergence = (ratio + ((mean[:, None] - m) / std[:, None]) ** 2 - 1 - ratio.log()) / 2
    best, chosen = divergence.min(1).values, divergence.gather(1, q.label.long()[:, None])[:, 0]
    assert ((chosen - best) < 1e-3 * (1 + best)).double().mean() > 0.98


def test_reassignment_keeps_to_the_target(trained):
    method = pb.Sharing(objective="rate_distortion", target_bytes=1200, reassign_every=1)
    model = copy.deepcopy(trained)
    fit(model, method, epochs=2)
    assert pb.sharing_summary(model).coded_bytes < 1.1 * 1200


def test_reassignment_weighs_entries_as_the_plan_did(trained):
    """By their shares in each tensor: of a codebook that did not move, labels hardly change."""
    method = pb.Sharing(
        objective="rate_distortion", rate=0.3, lr=0, std_lr=0, reassign_every=1, components=100
    )
    planned, again = copy.deepcopy(trained), copy.deepcopy(trained)
    fit(planned, method, epochs=0)
    fit(again, method, epochs=1)
    for one, two in zip(of(planned), of(again), strict=True):
        assert (one.label == two.label).double().mean() > 0.97


def test_an_earlier_run_in_the_same_directory_is_not_taken_for_this_one(tmp_path):
    method = pb.Sharing(components=20, least_members=5, pretrain_epochs=2)
    fit(network(seed=0), method, epochs=2, out=tmp_path)
    assert (tmp_path / "checkpoint.pt").exists()

    class Halt(pb.Sharing):
        def begin(self, model, beginning):
            raise InterruptedError

    other = Halt(components=20, least_members=5, pretrain_epochs=2)
    with pytest.raises(InterruptedError):
        fit(network(seed=1), other, epochs=2, out=tmp_path)
    assert not (tmp_path / "checkpoint.pt").exists()
    resumed, whole = network(seed=1), network(seed=1)
    fit(resumed, method, epochs=2, out=tmp_path, resume=True)
    fit(whole, method, epochs=2)
    for a, b in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert len(lines) == 4


def test_the_pass_over_the_data_is_spared_when_nobody_asks(trained):
    class Spied(list):
        passes = 0

        def __iter__(self):
            Spied.passes += 1
            return super().__iter__()

    data = Spied(DataLoader(batches().dataset, 64))
    for options, passes in (({}, 1), ({"outlier_gradient": 0}, 1),
                            ({"outlier_gradient": 0, "merge": "none"}, 0),
                            ({"objective": "rate_distortion"}, 0)):  # fmt: skip
        Spied.passes = 0
        fit(copy.deepcopy(trained), pb.Sharing(**options), epochs=0, loader=data, dataset_size=256)
        assert Spied.passes == passes, options


def test_padding_rows_stay_what_they_are():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(20, 8, padding_idx=3), nn.Flatten(), nn.Linear(32, 2))
    model = pb.bayesianize_(net)
    data = [(torch.randint(20, (64, 4)), torch.randint(2, (64,)))]
    for objective in ("mixture", "rate_distortion"):
        method = pb.Sharing(objective=objective, rate=0.5, least_members=2, lr=1e-2)
        fit(model, method, epochs=3, loader=data, dataset_size=64)
        assert not of(model)[0].expectation()[3].any()


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.filterwarnings("ignore:density 0.6 is")
def test_padding_rows_of_sparse_embeddings_stay_what_they_are(structure):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(20, 8, padding_idx=3), nn.Flatten(), nn.Linear(32, 2))
    model = pb.bayesianize_(net)
    data = [(torch.randint(20, (64, 4)), torch.randint(2, (64,)))]
    sparse = pb.Subspace(density=0.6, structure=structure)
    fit(model, sparse, epochs=1, loader=data, dataset_size=64)
    before = of(model)[0].in_units(torch.arange(20)[:, None].expand(20, 8) == 3)
    assert before[of(model)[0].index].any()
    fit(model, pb.Sharing(least_members=2), epochs=2, loader=data, dataset_size=64)
    assert not of(model)[0].expectation()[3].any()


def test_padding_rows_count_in_the_wanted_size():
    net = nn.Sequential(nn.Embedding(200, 8, padding_idx=0), nn.Flatten(), nn.Linear(32, 2))
    loader = [(torch.randint(200, (16, 4)), torch.randint(2, (16,)))]
    options = {"objective": "rate_distortion", "components": 50}
    model = pb.bayesianize_(net)
    small, fits = (pb.Sharing(target_bytes=size, **options) for size in (80, 400))
    with pytest.raises(pb.PocketBayesError, match="padding rows"):
        fit(copy.deepcopy(model), small, epochs=0, loader=loader)
    fit(model, fits, epochs=0, loader=loader)
    assert 300 < pb.sharing_summary(model).coded_bytes <= 400


@pytest.mark.parametrize("objective", ["mixture", "rate_distortion"])
def test_weights_that_are_not_finite_are_named(trained, objective):
    model = copy.deepcopy(trained)
    name, posterior = list(pb.named_posteriors(model))[1]
    with torch.no_grad():
        posterior.mean.view(-1)[3] = float("nan")
    with pytest.raises(pb.PocketBayesError, match=f"{name} has weights that are not finite"):
        fit(model, pb.Sharing(objective=objective), epochs=0)


def test_weights_known_to_40_digits_keep_their_entries(trained):
    model = copy.deepcopy(trained)
    for posterior in of(model):
        posterior.log_std.data.fill_(-60.0)
    options = {"objective": "rate_distortion", "target_bytes": 200, "components": 50}
    method = pb.Sharing(**options, reassign_every=1, lr=0.0, std_lr=0.0, refresh_norms=False)
    fit(model, method, epochs=1)
    once = copy.deepcopy(trained)
    for posterior in of(once):
        posterior.log_std.data.fill_(-60.0)
    fit(once, pb.Sharing(**options, refresh_norms=False), epochs=0)
    for a, b in zip(of(model), of(once), strict=True):
        assert (a.label != b.label).double().mean() < 0.05


def test_what_has_a_frozen_mean_is_left_alone(trained):
    model = copy.deepcopy(trained)
    of(model)[0].mean.requires_grad_(False)
    fit(model, pb.Sharing(components=20, least_members=5), epochs=1)
    assert isinstance(of(model)[0], Gaussian)


def test_outliers_keep_their_precision():
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Linear(40, 20).double())
    mean = of(model)[0].mean.detach().clone()
    data = [(torch.randn(8, 40).double(), torch.randint(20, (8,)))]
    fit(model, pb.Sharing(outlier_mean=0.05), epochs=0, loader=data, dataset_size=8)
    q = of(model)[0]
    assert len(q.outlier) > 100
    assert torch.equal(q.outlier_mean, mean.flatten()[q.outlier])


@pytest.mark.parametrize(("reassign", "stop"), [(0, 2), (1, 5)])
def test_a_resumed_run_is_the_uninterrupted_one(trained, tmp_path, reassign, stop):
    method = pb.Sharing(
        components=40, least_members=5, lr=1e-2, reassign_every=reassign, pretrain_epochs=3
    )

    class StopError(Exception):
        pass

    class Stopping(list):
        passes = 0

        def __iter__(self):
            Stopping.passes += 1
            if Stopping.passes > stop:
                raise StopError
            return super().__iter__()

    def ordered():
        return list(DataLoader(batches().dataset, 32))

    options = {"out": tmp_path / "cut", "dataset_size": 256, "checkpoint_minutes": 1e-9}
    plain = copy.deepcopy(trained)
    fit(plain, method, epochs=3, loader=ordered(), dataset_size=256, out=tmp_path / "plain")
    cut = copy.deepcopy(trained)
    with pytest.raises(StopError):
        fit(cut, method, epochs=3, loader=Stopping(ordered()), **options)
    cut = copy.deepcopy(trained)
    fit(cut, method, epochs=3, loader=ordered(), resume=True, **options)
    for (name, a), b in zip(plain.state_dict().items(), cut.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_the_gradients_are_means_of_sizes_and_leave_no_trace():
    model = network(norm=True, estimator="mean").train()
    data = list(DataLoader(batches().dataset, 64))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = mean_sizes(Objective(model, "categorical"), data)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(p.grad is None for p in model.parameters())
    total = 0
    for x, y in data:
        loss = nn.functional.cross_entropy(model(x), y)
        total += torch.autograd.grad(loss, of(model)[0].mean)[0].abs()
    torch.testing.assert_close(found["0.weight"], total / len(data))


def test_regression_and_biases(trained):
    loader = batches()
    x = loader.dataset.tensors[0]
    data = DataLoader(TensorDataset(x, x[:, :1].sin()), 32)
    torch.manual_seed(0)
    model = pb.bayesianize_(
        nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1)), bias=True
    )
    fit(model, pb.MeanField(), epochs=30, loader=data, likelihood="gaussian")
    result = fit(model, pb.Sharing(components=30, least_members=5), loader=data,
                 likelihood="gaussian")  # fmt: skip
    assert len(of(model)) == 4
    assert result.history[-1]["rmse"] < 0.6


def test_frozen_weights_keep_their_own_posterior(trained):
    model = copy.deepcopy(trained)
    for parameter in of(model)[0].parameters():
        parameter.requires_grad_(False)
    kept = of(model)[0].mean.clone()
    fit(model, pb.Sharing(components=20, least_members=5))
    assert isinstance(of(model)[0], Gaussian)
    assert torch.equal(of(model)[0].mean, kept)
    assert isinstance(of(model)[1], Shared)


def test_other_methods_go_on_from_shared_weights(trained):
    model = copy.deepcopy(trained)
    fit(model, pb.Sharing(components=40, least_members=5), epochs=0)
    again, sparse, plain = (copy.deepcopy(model) for _ in range(3))
    fit(again, pb.Sharing(components=10, least_members=5), epochs=0)
    assert len(of(again)[0].codebook) <= 10
    fit(sparse, pb.Subspace(density=0.5), epochs=0)
    assert [type(q) for q in of(sparse)] == [Sparse, Sparse, Gaussian]  # the last stays whole
    fit(plain, pb.Deterministic(), epochs=0)
    torch.testing.assert_close(of(plain)[0].expectation(), of(model)[0].expectation())
    with pytest.raises(pb.PocketBayesError, match="one by one"):
        fit(copy.deepcopy(model), pb.DeepEnsemble(members=2), epochs=0)


def test_a_network_compiled_as_it_trains(trained):
    one, other = copy.deepcopy(trained), copy.deepcopy(trained)
    method = pb.Sharing(components=40, least_members=5, lr=1e-3)
    for model in (one, other):
        set_estimator(model, "mean")
    fit(one, method, epochs=1)
    fit(other, method, epochs=1, compile="aot_eager")
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"components": 0}, "components"),
        ({"objective": "best"}, "objective"),
        ({"draw": "twice"}, "draw"),
        ({"merge": "all"}, "merge"),
        ({"outlier_mean": -1.0}, "outlier_mean"),
        ({"outlier_gradient": 1.5}, "outlier_gradient"),
        ({"blend_beyond": 0.0}, "blend_beyond"),
        ({"blend_nearest": 1}, "blend_nearest"),
        ({"rate": 0.0}, "rate"),
        ({"merge_below": float("nan")}, "merge_below"),
        ({"target_bytes": 1000}, "rate_distortion"),
        ({"target_bytes": 0, "objective": "rate_distortion"}, "target_bytes"),
        ({"reassign_every": -1}, "reassign_every"),
        ({"pretrain_epochs": 1.5}, "pretrain_epochs"),
        ({"pretrain_lr": -1.0}, "pretrain_lr"),
    ],
)
def test_configs_refuse_nonsense(options, word):
    with pytest.raises(pb.PocketBayesError, match=word):
        pb.Sharing(**options)
