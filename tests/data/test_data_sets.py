"""The table of data sets, those made here, those that come with scikit-learn, and real ones."""

import inspect
import os
import sys

import numpy as np
import pytest
import torch
from scipy import spatial, stats
from sklearn.datasets import load_digits, make_friedman1

import pocketbayes as pb
from pocketbayes.data import DATASETS, MemoryLoader, open_dataset
from pocketbayes.data.pixels import measured
from pocketbayes.data.simulated import friedman_mean, sparse_coefficients

needs_data = pytest.mark.skipif(
    not os.environ.get("POCKETBAYES_DATA"), reason="POCKETBAYES_DATA names no folder of data"
)


@pytest.mark.parametrize("name", DATASETS)
def test_every_option_is_described(name):
    parameters = inspect.signature(DATASETS[name]).parameters
    assert list(parameters)[:2] == ["split", "root"]
    described = inspect.getdoc(DATASETS[name]).partition("Args:")[2]
    assert all(f"\n    {option}: " in described for option in parameters)
    assert all(p.annotation is not p.empty for p in parameters.values())


def test_unknown_names_and_options_show_the_nearest():
    with pytest.raises(pb.DataError, match="did you mean 'cifar10'"):
        open_dataset("cifar-10", "train")
    with pytest.raises(pb.DataError, match="there are digits, photo-patches"):
        open_dataset("qqqq", "train")
    with pytest.raises(pb.DataError, match="did you mean 'features'"):
        open_dataset("friedman", "train", feature=5)
    with pytest.raises(pb.DataError, match="mnist has no option 'size'; its options: none"):
        open_dataset("mnist", "train", size=5)
    with pytest.raises(pb.DataError, match="needs the option file"):
        open_dataset("csv", "train")


@pytest.mark.parametrize(
    "name",
    ["mnist", "fashion-mnist", "cifar10", "cifar100", "svhn", "tiny-imagenet", "imagefolder"],
)
def test_files_need_a_root(name, monkeypatch):
    monkeypatch.delenv("POCKETBAYES_DATA", raising=False)
    with pytest.raises(pb.DataError, match="POCKETBAYES_DATA"):
        open_dataset(name, "train")
    with pytest.raises(pb.DataError, match="no split 'all'"):
        open_dataset(name, "all", "/")


def test_digits_are_those_of_scikit_learn():
    train, test = open_dataset("digits", "train"), open_dataset("digits", "test")
    assert (len(train), len(test)) == (1287, 510)
    reference = load_digits()
    levels = torch.cat([train.images, test.images])[:, 0].double() * 16 / 255
    assert torch.equal(levels.round(), torch.from_numpy(reference.images))
    assert int(train.images.max()) == 255
    assert train.labels.tolist() + test.labels.tolist() == reference.target.tolist()
    assert train.preprocess == test.preprocess == measured(train.images)
    x, _ = train.batch(range(1287))
    assert float(x.mean()) == pytest.approx(0, abs=1e-5)
    assert float(x.std()) == pytest.approx(1, abs=1e-3)
    with pytest.raises(pb.DataError, match="no split"):
        open_dataset("digits", "validation")


def test_photo_patches_are_no_digits():
    patches = open_dataset("photo-patches", "test")
    assert patches.images.shape == (1000, 1, 8, 8)
    assert patches.classes == ("photo",)
    assert set(patches.labels.tolist()) == {0}
    assert torch.equal(patches.images, open_dataset("photo-patches", "test").images)
    assert len({image.numpy().tobytes() for image in patches.images}) > 900
    digits = open_dataset("digits", "test")
    x, _ = patches.fitted(digits.preprocess).batch([0])
    assert x.shape == (1, 1, 8, 8)
    with pytest.raises(pb.DataError, match="it has: test"):
        open_dataset("photo-patches", "train")


def test_embedded_data_without_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        pb.PocketBayesError, match=r"scikit-learn.*pip install 'pocketbayes\[demo\]'"
    ):
        open_dataset("digits", "train")


def test_friedmans_function_is_that_of_scikit_learn():
    x, y = make_friedman1(200, 7, noise=0, random_state=0)
    assert friedman_mean(x) == pytest.approx(y)


@pytest.mark.parametrize("name", ["friedman", "sparse-linear", "sparse-mlp"])
def test_splits_and_seeds_differ_and_repeat(name):
    train, test = open_dataset(name, "train", rows=40), open_dataset(name, "test", rows=40)
    assert len(train) == len(test) == 40
    assert not torch.equal(train.features, test.features)
    assert torch.equal(train.features, open_dataset(name, "train", rows=40).features)
    other = open_dataset(name, "train", rows=40, data_seed=1)
    assert not torch.equal(train.features, other.features)
    assert test.preprocess == train.preprocess
    assert test.support == train.support
    assert train.likelihood == "gaussian"
    assert len(train.feature_names) == train.features.shape[1]
    x, y = train.batch(range(40))
    assert x.mean(0).abs().max() < 1e-5
    assert float(y.std(correction=0)) == pytest.approx(1, abs=1e-5)


def test_friedman_has_the_noise_asked_for():
    """Kolmogorov-Smirnov of residuals and of features; false alarm 1e-6 each."""
    data = open_dataset("friedman", "test", rows=5000, noise=2.0, features=6)
    x = data.features.double().numpy()
    residuals = (data.targets.double().numpy() - friedman_mean(x)) / 2
    assert stats.kstest(residuals, "norm").pvalue > 1e-6
    assert stats.kstest(x.ravel(), "uniform").pvalue > 1e-6
    assert data.support == (0, 1, 2, 3, 4)
    exact = open_dataset("friedman", "train", noise=0.0)
    assert friedman_mean(exact.features.double().numpy()) == pytest.approx(
        exact.targets.numpy(), rel=1e-5
    )


def test_sparse_linear_data_is_what_its_support_says():
    data = open_dataset("sparse-linear", "train", noise=0.0, data_seed=3)
    weights = np.linalg.lstsq(data.features.double().numpy(), data.targets.numpy(), rcond=None)[0]
    assert tuple(np.flatnonzero(np.abs(weights) > 0.5)) == data.support
    assert len(data.support) == 10
    assert weights == pytest.approx(sparse_coefficients(100, 10, 3), abs=1e-4)
    sizes = np.abs(weights[list(data.support)])
    assert ((sizes > 0.999) & (sizes < 2.001)).all()
    assert {-1.0, 1.0} == set(np.sign(weights[list(data.support)]))


def test_a_sparse_network_reads_its_support_and_nothing_else():
    data = open_dataset("sparse-mlp", "train", features=4, relevant=2, noise=0.0, rows=4000)
    x, y = data.features.double().numpy(), data.targets.double().numpy()
    assert y.std() == pytest.approx(1, abs=0.1)
    others = [k for k in range(4) if k not in data.support]
    for columns, known in ((list(data.support), True), (others, False)):
        part = x[:, columns]
        nearest = spatial.KDTree(part).query(part, k=2)[1][:, 1]
        assert (np.square(y[nearest] - y).mean() < 0.1) == known


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("friedman", {"features": 4}),
        ("friedman", {"rows": 0}),
        ("friedman", {"noise": -1.0}),
        ("friedman", {"data_seed": -1}),
        ("sparse-linear", {"features": 5, "relevant": 6}),
        ("sparse-mlp", {"features": 5, "relevant": 6}),
        ("sparse-mlp", {"units": 0}),
        ("sparse-linear", {"relevant": 0}),
        ("sparse-linear", {"data_seed": 1.5}),
    ],
)
def test_impossible_simulations(name, options):
    with pytest.raises(pb.PocketBayesError):
        open_dataset(name, "train", **options)


@needs_data
def test_real_cifar10_is_what_it_should_be():
    train, test = open_dataset("cifar10", "train"), open_dataset("cifar10", "test")
    assert torch.bincount(train.labels).tolist() == [5000] * 10
    assert torch.bincount(test.labels).tolist() == [1000] * 10
    assert train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    for name, values in measured(train.images).items():
        if name in ("mean", "std"):
            assert train.preprocess[name] == pytest.approx(values, abs=1e-4)
    batches = list(MemoryLoader(test, 512, shuffle=True, augment=True))
    assert len(batches) == 19


@needs_data
def test_real_svhn_has_ten_digits():
    test = open_dataset("svhn", "test")
    assert len(test) == 26_032
    assert torch.bincount(test.labels).tolist() == [
        1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595,
    ]  # fmt: skip
