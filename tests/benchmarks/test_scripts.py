"""What benchmarks are made of: files made to fit, times, UCI tables and the families compared."""

import argparse
import json
import math
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import cifar  # noqa: E402
import contestants  # noqa: E402
import families  # noqa: E402
import plans  # noqa: E402
import prediction  # noqa: E402
import record  # noqa: E402
import side_by_side  # noqa: E402
import side_by_side_uci  # noqa: E402
import stored  # noqa: E402
import timing  # noqa: E402
import uci_sets  # noqa: E402

import pocketbayes as pb  # noqa: E402
from pocketbayes.data import ImageSet, MemoryLoader  # noqa: E402
from pocketbayes.layers.description import noise_log_std  # noqa: E402
from pocketbayes.models import build_network  # noqa: E402


@pytest.fixture
def sizes(monkeypatch):
    """Files of 900 bytes and as many as the method counts, or what else is set."""
    made = {"of": lambda counted: 900 + counted}
    monkeypatch.setattr(stored, "file_bytes", lambda method: made["of"](method.target_bytes))
    return made


def fit_nothing(model, method, epochs):
    assert epochs == 0
    assert not method.refresh_norms
    return method


@pytest.mark.parametrize("of", [lambda n: 900 + n, lambda n: 100 + 2 * n, lambda n: 9 * (n // 7)])
@pytest.mark.parametrize("target", [5000, 20_011])
def test_a_file_is_made_to_fit(sizes, of, target):
    sizes["of"] = of
    found = stored.sharing_to_fit(fit_nothing, None, pb.Sharing(beta=0.5), target)
    assert 0.97 * target <= of(found.target_bytes) <= target
    assert (found.objective, found.beta, found.refresh_norms) == ("rate_distortion", 0.5, True)


def test_a_file_that_cannot_fit_is_none(sizes, capsys):
    sizes["of"] = lambda counted: 6000 + counted
    assert stored.sharing_to_fit(fit_nothing, None, pb.Sharing(), 5000) is None
    assert "no file has 5,000 bytes: the least has 6,250" in capsys.readouterr().err


def rows_in(folder, table):
    return [json.loads(line) for line in (folder / f"{table}.jsonl").read_text().splitlines()]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells memory elsewhere")
def test_a_row_says_how_much_memory_was_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("POCKETBAYES_RESULTS", str(tmp_path))
    record.append_result("t")
    record.append_result("t", peak_bytes=7)
    measured, given = rows_in(tmp_path, "t")
    held = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    assert 0.9 * held < measured["peak_bytes"] < 100 * held
    assert given["peak_bytes"] == 7


def test_a_command_is_one_from_the_folder_of_benchmarks(tmp_path, monkeypatch):
    file = tmp_path / "a.pocket"
    file.touch()
    script = BENCHMARKS / "peers" / "compare.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--root", str(tmp_path), str(file)])
    assert record.command() == "python peers/compare.py --root DATA DATA/a.pocket"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "mine.py"), "--rows", "a, b"])
    assert record.command() == "python mine.py --rows 'a, b'"


class Wobbling(contestants.Plain):
    """A library that turns a weight into a mean and a rho."""

    is_random = True

    def converted(self, net):
        net.rho = torch.nn.Parameter(torch.tensor(-3.0))
        with torch.no_grad():
            net[0].weight.zero_()  # as libraries do that begin elsewhere
        return net

    def posteriors(self):
        return [contestants.Posterior("0.weight", self.model[0].weight, self.model.rho)]


def of_the_same(kind):
    setting = {"lr": 0.1, "weight_decay": 0.01, "beta": 0.1, "prior_std": 1.0, "std_init": 0.1}
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 2))
    return kind(net, contestants.Setting(**setting, examples=10))


def test_libraries_begin_at_the_same_weights_and_their_stds_do_not_decay():
    plain, other = of_the_same(contestants.Plain), of_the_same(Wobbling)
    torch.testing.assert_close(other.model[0].weight, plain.model[0].weight)
    means, rhos = other.optimizer.param_groups
    assert [len(group["params"]) for group in (means, rhos)] == [2, 1]
    assert (means["weight_decay"], rhos["weight_decay"]) == (0.01, 0.0)


def test_libraries_draw_as_often_as_asked_and_the_plain_network_once():
    for kind, passes in ((contestants.Plain, 1), (Wobbling, 5)):
        peer, seen = of_the_same(kind), []
        peer.model.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        assert peer.probs(torch.zeros(4, 3), 5).sum() == pytest.approx(4.0)
        assert len(seen) == passes


def test_a_librarys_kl_is_the_sum_over_its_weights():
    pytest.importorskip("bayesian_torch")
    peer, plain = of_the_same(contestants.BayesianTorch), of_the_same(contestants.Plain)
    rho = torch.cat([rho.flatten() for _, _, rho in peer.posteriors()])
    std = torch.nn.functional.softplus(rho)
    mean = torch.cat([parameter.flatten() for parameter in plain.model.parameters()])
    expected = (-std.log() + (std**2 + mean**2 - 1) / 2).sum()
    torch.testing.assert_close(peer.kl(), expected)


def blank_images(count=600):
    preprocess = {"kind": "image", "shape": [1, 2, 2], "mean": [0.0], "std": [1.0]}
    pixels, labels = torch.zeros(count, 1, 2, 2, dtype=torch.uint8), torch.zeros(count).long()
    return ImageSet(pixels, labels, preprocess)


def test_measuring_takes_batches_that_fit_a_cpu():
    assert [len(x) for x, _ in cifar.in_batches(blank_images())] == [500, 100]


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [((), ()), (("--cutout",), ("cutout",)), (("--crop-digits", "--cutout"), ("crop", "cutout"))],
)
def test_training_images_are_augmented_as_asked(monkeypatch, flags, kinds):
    monkeypatch.setattr(cifar, "open_dataset", lambda name, split, root: blank_images())
    a = cifar.parser("").parse_args(["--root", ".", *flags])
    assert cifar.open_sets(a).train.augmentation == kinds


@pytest.mark.parametrize(("epochs", "compiled"), [(9, False), (10, True)])
def test_brief_trainings_are_not_compiled(monkeypatch, epochs, compiled):
    asked = []

    def fitted(a, *_):
        asked.append(not a.no_compile)
        return argparse.Namespace(model=None)

    monkeypatch.setattr(side_by_side, "fitted", fitted)
    a, sets = argparse.Namespace(no_compile=False), argparse.Namespace(device="cpu")
    side_by_side.bench(a, sets, 0).fit(None, None, epochs)
    assert asked == [compiled]


def test_predictions_are_timed_by_the_names_that_records_have(tmp_path, monkeypatch):
    monkeypatch.setenv("POCKETBAYES_RESULTS", str(tmp_path))
    net = build_network("lenet5", input_shape=(1, 12, 12), num_outputs=2)
    random = pb.bayesianize_(net)
    pb.save(random, tmp_path / "random.pocket")
    plain = pb.fit(random, [], pb.Deterministic(), epochs=0, progress=False).model
    pb.save(plain, tmp_path / "plain.pocket")
    words = ["prediction.py", str(tmp_path), "--images", "2", "--samples", "2"]
    monkeypatch.setattr(sys, "argv", [*words, "--predictives", "lrt", "weight"])
    prediction.main()
    found = rows_in(tmp_path, "prediction")
    assert [(row["file"], row["estimator"]) for row in found] == [
        ("plain.pocket", "none"), ("random.pocket", "lrt"), ("random.pocket", "weight"),
    ]  # fmt: skip


def test_the_fastest_prediction_counts_and_the_first_does_not(monkeypatch):
    asked, times = [], iter((0.1, 5.0, 3.0, 4.0))

    def pretend(work, device):
        work()
        return next(times)

    monkeypatch.setattr(timing, "seconds", pretend)
    assert timing.prediction_seconds(asked.append, 30, "cpu", repeats=3) == 3.0
    assert asked == [2, 30, 30, 30]


@pytest.mark.parametrize(
    ("parent", "estimator", "name"),
    [
        ("mean-field", "lrt", "mean-field"),
        ("mean-field", "weight", "mean-field-weight"),
        ("subspace", "weight", "subspace-0.1"),
        ("subspace", "lrt", "subspace-0.1-lrt"),
    ],
)
def test_files_of_networks_trained_in_two_ways_have_two_names(parent, estimator, name):
    import sizes

    told = argparse.Namespace(parent=parent, estimator=estimator, density=0.1, lr=0.2, width=1.0)
    told.cutout = False
    assert sizes.parent_name(told) == name
    told.lr, told.cutout, told.width = 0.4, True, 0.5
    assert sizes.parent_name(told) == f"{name}-lr0.4-width-0.5-cutout"


@pytest.fixture
def uci(tmp_path):
    """Ninety rows of y = 100 + 10 x0 + noise, of which ten lie elsewhere and are for testing."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(90, 3))
    rows[:10] += 50
    rows[:, 2] = 100 + 10 * rows[:, 0] + rng.normal(size=90)
    arrays = {"data": rows, "features": [0.0, 1.0], "target": 2.0, "test_0": np.arange(10.0)}
    np.savez(tmp_path / "uci_regression.npz", **{f"yacht/{k}": v for k, v in arrays.items()})
    return tmp_path, rows


def test_test_rows_are_standardised_by_those_trained_on(uci):
    root, rows = uci
    train, test = uci_sets.uci_tables(root, "yacht", 0)
    assert (len(train), len(test)) == (80, 10)
    assert np.allclose(test.features, rows[:10, :2])
    x, y = train.batch(range(80))
    assert torch.allclose(x.mean(0), torch.zeros(2), atol=1e-5)
    assert y.std(correction=0) == pytest.approx(1, abs=1e-5)
    x, y = test.batch(range(10))
    assert float(x.mean()) > 20
    assert float(y.mean()) > 20
    assert train.preprocess == test.preprocess


def test_scores_are_in_the_targets_own_units(uci):
    root, rows = uci
    train, _ = uci_sets.uci_tables(root, "yacht", 0)
    net = build_network("mlp", input_shape=(2,), num_outputs=1, hidden=())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    model = pb.bayesianize_(net, std_init=1e-6)
    model = pb.fit(
        model, MemoryLoader(train, 80), pb.Deterministic(lr=0.0), epochs=1,
        likelihood="gaussian", progress=False,
    ).model  # fmt: skip
    found = side_by_side_uci.scores(model, train, 3, None)
    inside = rows[10:, 2]
    assert found["rmse"] == pytest.approx(inside.std(), rel=1e-4)  # it always says the mean
    noise = noise_log_std(model).detach().exp().item() * inside.std()
    expected = math.log(noise * math.sqrt(2 * math.pi)) + inside.var() / (2 * noise**2)
    assert found["nll"] == pytest.approx(expected, rel=1e-4)


def settings():
    made = argparse.ArgumentParser()
    families.add_arguments(made)
    a = made.parse_args([])
    known = {"epochs": 7, "tune_epochs": 3, "share_epochs": 2, "lr": 0.1, "std_lr": 0.1}
    known |= {"weight_decay": 0.0, "beta": 0.25, "prior_std": 0.3, "std_init": 0.01}
    return argparse.Namespace(**vars(a) | known)


@pytest.fixture
def bench(monkeypatch):
    """Nothing is trained; what would have been is written down. Any file fits from 1,000 bytes."""
    done = []

    def fit(model, method, epochs):
        done.append((method, epochs))
        return model

    def fitting(fit, model, method, target):
        return pb.Sharing(objective="rate_distortion", target_bytes=target) if target else None

    def pruned(model, density, by):
        done.append((by, density))
        return model

    monkeypatch.setattr(families, "sharing_to_fit", fitting)
    monkeypatch.setattr(families.pb, "prune_", pruned)

    def build(**options):
        return build_network("mlp", input_shape=(3,), num_outputs=2, hidden=(4,), **options)

    return families.Bench(settings(), 0, build, fit, "cpu"), done


def test_a_chain_is_a_subspace_that_is_pruned_and_then_shares(bench):
    bench, done = bench
    rows = [made.row for made in families.chain(bench)]
    assert rows == ["chain, pruned to 0.06", "chain, pruned to 0.035", "chain, shared"]
    (first, epochs), thick, (tuned, tune_epochs), thin, _, (last, share_epochs) = done
    assert (type(first), first.density, epochs) == (pb.Subspace, 0.1, 7)
    assert (thick, thin) == (("snr", 0.06), ("snr", 0.035))
    assert (type(tuned), tune_epochs) == (pb.MeanField, 3)
    assert (last.target_bytes, share_epochs) == (490_000, 2)


def test_inclusion_variables_are_pruned_by_inclusion(bench):
    bench, done = bench
    (made,) = families.spike_slab(bench)
    assert made.row == "spike-and-slab 0.05"
    assert type(done[0][0]) is pb.SpikeSlab
    assert done[1] == ("inclusion", 0.05)


def test_plans_count_the_rows_of_all_families(bench):
    bench, _ = bench

    def rows(words):
        made = argparse.ArgumentParser()
        families.add_arguments(made)
        known, _ = made.parse_known_args(words)
        mine = bench._replace(a=argparse.Namespace(**vars(bench.a) | vars(known)))
        made = [one for name in known.families for one in families.FAMILIES[name](mine)]
        return sum(len(one.predictives) for one in made)

    for job in plans.TABLES["side-by-side"].jobs:
        assert job.rows == rows(job.words)
    for job in plans.TABLES["regressions"].jobs:
        assert job.rows == 3 * rows(job.words)  # of 3 splits


def test_what_cannot_fit_has_no_row(bench):
    bench, _ = bench
    bench.a.target_bytes = 0
    rows = [made.row for made in families.mean_field(bench)]
    assert "mean-field, shared: mixture" in rows
    assert "mean-field, shared: rate-distortion" not in rows


def test_times_are_those_of_the_whole_way(bench, monkeypatch):
    bench, _ = bench
    clock = iter(range(1000))
    monkeypatch.setattr(families.time, "perf_counter", lambda: float(next(clock)))
    assert [made.seconds for made in families.chain(bench)] == [2.0, 3.0, 5.0]


@pytest.mark.filterwarnings("ignore:density .* is .* of .* weights")
@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_family_trains_on_a_table(family, uci, monkeypatch):
    root, _ = uci
    words = ["x", "--root", str(root), "--steps", "8", "--tune-steps", "1", "--share-steps", "1"]
    monkeypatch.setattr(sys, "argv", [*words, "--hidden", "6", "--members", "2"])
    a = side_by_side_uci.arguments()
    train, test = uci_sets.uci_tables(root, "yacht", 0)
    a.target_bytes = a.chain_bytes = 20_000
    made = list(families.FAMILIES[family](side_by_side_uci.of_table(a, train, 0)))
    assert made
    for one in made:
        model, _ = stored.reopened(one.model, "cpu", net=one.net)
        assert math.isfinite(side_by_side_uci.scores(model, test, 2, one.predictives[0])["nll"])
