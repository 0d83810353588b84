"""What the estimators say: units, laws of scales and weights, files, hostile input."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import pocketbayes as pb
from pocketbayes.cli import main
from pocketbayes.estimators.rows import RowLoader, rows_by_weight
from pocketbayes.models import mlp

QUICK = {"hidden": (16,), "epochs": 20, "batch_size": 32, "random_state": 0, "device": "cpu"}
METHOD = pb.MeanField(lr=2e-2, beta=0.3)


def line(rows=400, seed=0, noise=5.0):
    """y = 200 + 30 x_0 + noise, and a column that says nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal([3, 50], [1, 20], size=(rows, 2))
    return X, 200 + 30 * (X[:, 0] - 3) + noise * rng.normal(size=rows)


def blobs(rows=90, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % 3
    return rng.normal(size=(rows, 2)) + 4 * np.eye(3)[y][:, :2], y


def test_stds_and_intervals_are_in_the_targets_units():
    """Noise of std 5; of 2,000 new rows 90% +- 4% lie in the interval (binomial std 0.7%)."""
    method = pb.MeanField(lr=2e-2, std_lr=5e-2, beta=0.3)
    model = pb.BayesRegressor(**QUICK, method=method).fit(*line())
    X, y = line(2000, seed=1)
    mean, std = model.predict(X, return_std=True)
    assert np.sqrt(np.mean((y - mean) ** 2)) < 6.5
    assert 4 < std.mean() < 7
    low, high = model.predict_interval(X, coverage=0.9)
    assert 0.86 < np.mean((low <= y) & (y <= high)) < 0.94
    wide = model.predict_interval(X, coverage=0.99)
    assert (wide[0] < low).all()
    assert (wide[1] > high).all()
    pred = pb.predict(model.model_, torch.tensor(X[:50]), 300)
    np.testing.assert_allclose(pred.std[:, 0], std[:50], rtol=0.1)


def test_predictions_follow_the_units_of_inputs_and_targets():
    X, y = line(100)
    first = pb.BayesRegressor(**QUICK).fit(X, y)
    other = pb.BayesRegressor(**QUICK).fit(X * [1024, 2.0**-20], y * 512 - 2**13)
    mean, std = first.predict(X, return_std=True)
    other_mean, other_std = other.predict(X * [1024, 2.0**-20], return_std=True)
    np.testing.assert_allclose(other_mean, mean * 512 - 2**13, rtol=1e-4)
    np.testing.assert_allclose(other_std, std * 512, rtol=1e-4)


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 1e6), (1e150, 0), (1e-200, 0)])
def test_a_small_spread_around_a_large_mean_and_extreme_units_are_learned(scale, shift):
    X, y = line(100)
    model = pb.BayesRegressor(**QUICK, method=METHOD).fit(X * scale + shift, y * scale + shift)
    spread = model.predict(X * scale + shift) / scale - shift / scale
    assert np.corrcoef(spread, y)[0, 1] > 0.9


def test_a_constant_column_and_a_constant_target_are_no_trouble():
    X, y = line(40)
    X[:, 1] = 0.1
    assert np.isfinite(pb.BayesRegressor(**QUICK).fit(X, y).predict(X + 1)).all()
    constant = pb.BayesRegressor(**QUICK).fit(X, np.full(40, 7.0))
    np.testing.assert_allclose(constant.predict(X), 7, atol=1)


def test_several_outputs_have_their_own_scales():
    X, y = line()
    both = np.column_stack([y, -1000 * y, X[:, 1]])
    model = pb.BayesRegressor(**QUICK, method=METHOD).fit(X, both)
    mean, std = model.predict(X, return_std=True)
    assert mean.shape == std.shape == both.shape
    assert model.score(X, both) > 0.9
    assert 500 < std[:, 1].mean() / std[:, 0].mean() < 2000
    assert [part.shape for part in model.predict_interval(X[:3], 0.5)] == [(3, 3)] * 2


def test_what_is_said_of_a_row_does_not_depend_on_others():
    X, y = line(1100)
    model = pb.BayesRegressor(**QUICK | {"epochs": 1}).fit(X, y)
    np.testing.assert_allclose(model.predict(X)[[5, 1099]], model.predict(X[[5, 1099]]))


@pytest.mark.parametrize(
    "method",
    [pb.Subspace(density=0.5), pb.SpikeSlab(), pb.Sharing(pretrain_epochs=1), pb.RigL(density=0.5),
     pb.VariationalDropout(), pb.Deterministic(), pb.DeepEnsemble(members=2)],
    ids=lambda method: type(method).__name__,
)  # fmt: skip
def test_every_method_trains_them(method, tmp_path):
    X, y = line(60)
    model = pb.BayesRegressor(**QUICK | {"epochs": 2}, method=method).fit(X, y)
    model.save(tmp_path / "a.pocket")
    again = pb.BayesRegressor.load(tmp_path / "a.pocket", random_state=0)
    mean, std = model.predict(X, return_std=True)
    assert (std > 0).all()
    assert np.abs(again.predict(X) - mean).max() < 0.2 * y.std()


def test_rows_come_as_often_as_their_weights_say():
    """Counts differ from the weight by less than one; on average they are it (2,000 passes)."""
    weights = torch.tensor([0.25, 0.5, 1.75, 3.0, 0.5], dtype=torch.float64) * 5 / 6
    total = torch.zeros(5)
    for start in (torch.arange(2000) + 0.5) / 2000:
        counts = rows_by_weight(weights, float(start)).bincount(minlength=5)
        assert counts.sum() == 5
        assert ((counts - weights).abs() < 1).all()
        total += counts
    torch.testing.assert_close(total / 2000, weights.float(), atol=2e-3, rtol=0)
    for start in (0.0, 0.5, 1 - 2**-53):
        assert rows_by_weight(torch.ones(10_000), start).tolist() == list(range(10_000))


def test_batches_are_of_nearly_one_size_and_hold_every_row():
    loader = RowLoader(torch.arange(33.0)[:, None], torch.arange(33), torch.ones(33), 16)
    batches = list(loader)
    assert sorted(len(y) for _, y in batches) == [11, 11, 11]
    assert sorted(torch.cat([y for _, y in batches]).tolist()) == list(range(33))
    assert all((x[:, 0] == y).all() for x, y in batches)


def test_rows_of_weight_zero_are_as_if_they_were_not_there():
    X, y = line(60)
    weights = np.r_[np.ones(40), np.zeros(20)]
    y[40:] = 1e6
    with_zeros = pb.BayesRegressor(**QUICK).fit(X, y, sample_weight=weights)
    without = pb.BayesRegressor(**QUICK).fit(X[:40], y[:40])
    np.testing.assert_array_equal(with_zeros.predict(X), without.predict(X))


def test_weights_decide_between_rows_that_disagree():
    X, y = np.zeros((200, 1)), np.arange(200) % 2
    weights = np.where(y == 1, 4.0, 1.0)
    method = pb.Deterministic(lr=0.1)
    model = pb.BayesClassifier(**QUICK, method=method).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.predict_proba(X[:1]), [[0.2, 0.8]], atol=0.03)


@pytest.mark.parametrize(
    "labels",
    [np.array([3, -1, 7]), np.array(["b", "a", "ö"]), np.array([True, False, True]),
     np.array([0.0, 2.0, 5.0]), np.array(["x", "yy", "z"], dtype=object)],
    ids=lambda labels: labels.dtype.str,
)  # fmt: skip
def test_a_file_holds_labels_as_they_were(labels, tmp_path):
    X, y = blobs()
    model = pb.BayesClassifier(**QUICK, method=METHOD).fit(X, labels[y])
    assert model.score(X, labels[y]) > 0.9
    model.save(tmp_path / "a.pocket")
    again = pb.BayesClassifier.load(tmp_path / "a.pocket", random_state=0)
    np.testing.assert_array_equal(again.classes_, model.classes_)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=0.05)
    assert again.classes_.dtype == model.classes_.dtype
    assert (again.hidden, again.n_features_in_) == ((16,), 2)


def named_table(X):
    return pytest.importorskip("pyarrow").table({"size": X[:, 0], "age": X[:, 1]})


def test_a_file_alone_predicts_in_python_and_on_the_command_line(tmp_path, monkeypatch, capsys):
    X, y = line()
    model = pb.BayesRegressor(**QUICK, method=METHOD).fit(named_table(X), y)
    assert list(model.feature_names_in_) == ["size", "age"]
    model.save(tmp_path / "a.pocket")
    mean, std = model.predict(named_table(X), return_std=True)
    pred = pb.predict(pb.load(tmp_path / "a.pocket"), torch.tensor(X), 200)
    np.testing.assert_allclose(pred.mean[:, 0], mean, atol=std.mean() / 4)
    again = pb.BayesRegressor.load(tmp_path / "a.pocket")
    assert list(again.feature_names_in_) == ["size", "age"]
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(pytest.importorskip("pyarrow").table({"a": X[:, 0], "age": X[:, 1]}))
    (tmp_path / "new.csv").write_text(f"age,size\n{X[0, 1]},{X[0, 0]}\n")
    words = ["pocketbayes", "predict", str(tmp_path / "a.pocket"), str(tmp_path / "new.csv")]
    monkeypatch.setattr(sys, "argv", [*words, "--csv", str(tmp_path / "out.csv")])
    with pytest.raises(SystemExit):
        main()
    value = float((tmp_path / "out.csv").read_text().splitlines()[1].split(",")[1])
    assert abs(value - mean[0]) < std.mean()


def test_files_of_other_kinds_are_refused(tmp_path):
    X, y = blobs()
    pb.BayesClassifier(**QUICK | {"epochs": 1}).fit(X, y).save(tmp_path / "classes")
    pb.BayesRegressor(**QUICK | {"epochs": 1}).fit(X, y).save(tmp_path / "values")
    pb.save(pb.bayesianize_(mlp(input_shape=(2,))), tmp_path / "mlp")
    with pytest.raises(pb.FormatError, match=r"holds a regression: use BayesRegressor\.load"):
        pb.BayesClassifier.load(tmp_path / "values")
    with pytest.raises(pb.FormatError, match=r"holds a classification: use BayesClassifier\.load"):
        pb.BayesRegressor.load(tmp_path / "classes")
    with pytest.raises(pb.FormatError, match=r"was not written by BayesRegressor\.save"):
        pb.BayesRegressor.load(tmp_path / "mlp")


@pytest.mark.parametrize(
    "target",
    [{"labels": [1], "dtype": "<i8"}, {"labels": "abc", "dtype": "<i8"}, {"labels": ["a"] * 3,
     "dtype": "<i8"}, {"labels": [[1], [2], [3]], "dtype": "<i8"}, {"labels": [1, 2, 3],
     "dtype": "nonsense"}, {"labels": [1, 2, 3], "dtype": 5}],
    ids=str,
)  # fmt: skip
def test_forged_labels_are_format_errors(target, tmp_path):
    from pocketbayes.layers import describe, update_description

    model = pb.BayesClassifier(**QUICK | {"epochs": 1}).fit(*blobs())
    preprocess = describe(model.model_).preprocess
    forged = preprocess | {"target": {"name": "target"} | target}
    update_description(model.model_, preprocess=forged)
    model.save(tmp_path / "a")
    with pytest.raises(pb.FormatError, match="labels"):
        pb.BayesClassifier.load(tmp_path / "a")


@pytest.mark.parametrize(
    ("params", "said"),
    [({"hidden": (0,)}, "hidden"), ({"hidden": "wide"}, "hidden"), ({"epochs": -1}, "epochs"),
     ({"batch_size": 0}, "batch_size"), ({"num_samples": 0}, "num_samples"),
     ({"device": "tpu"}, "device"), ({"verbose": "yes"}, "verbose"), ({"method": "vi"}, "method"),
     ({"method": pb.MCDropout()}, "dropout")],
    ids=str,
)  # fmt: skip
def test_a_wrong_parameter_is_named(params, said):
    with pytest.raises(pb.PocketBayesError, match=said):
        pb.BayesRegressor(**QUICK | params).fit(*line(20))


def test_wrong_weights_and_coverages_are_named():
    X, y = line(20)
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        pb.BayesRegressor(**QUICK).fit(X, y, sample_weight=np.zeros(20))
    with pytest.raises(ValueError, match="Negative values"):
        pb.BayesRegressor(**QUICK).fit(X, y, sample_weight=-np.ones(20))
    model = pb.BayesRegressor(**QUICK | {"epochs": 1}).fit(X, y)
    for coverage in (0, 1, 1.5, "all"):
        with pytest.raises(pb.PocketBayesError, match="coverage"):
            model.predict_interval(X, coverage)


def test_threads_do_not_disturb_each_other():
    X, y = line(60)

    def answers(seed):
        return pb.BayesRegressor(**QUICK | {"random_state": seed, "epochs": 3}).fit(X, y).predict(X)

    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(answers, (0, 1)))
    for seed in (0, 1):
        np.testing.assert_array_equal(together[seed], answers(seed))


def test_without_epochs_it_trains_as_fit_does(monkeypatch):
    monkeypatch.setattr("pocketbayes.training.defaults._LEAST_STEPS", {"values": 35})
    monkeypatch.setattr("pocketbayes.training.defaults._EPOCHS", 2)
    model = pb.BayesRegressor(hidden=(4,), random_state=0, device="cpu").fit(*line(100))
    assert len(model.history_) == 5  # of seven batches each


def test_without_scikit_learn_names_are_there_and_use_is_an_error():
    code = """
import sys
sys.modules["sklearn"] = None
from pocketbayes import *
try:
    BayesRegressor(hidden=(8,))
except PocketBayesError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(r"needs scikit-learn.*pip install 'pocketbayes\[sklearn\]'", done.stdout)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_loaded_estimator_answers_as_the_one_that_was_saved(outputs, tmp_path):
    X, y = line()
    table, path = named_table(X), tmp_path / "m.pocket"
    model = pb.BayesRegressor(**QUICK, method=METHOD)
    model.fit(table, y if outputs == 1 else np.stack([y] * outputs, 1)).save(path)
    mean, std = model.predict(table, return_std=True)
    again = pb.BayesRegressor.load(path)
    assert list(again.feature_names_in_) == ["size", "age"]
    np.testing.assert_allclose(again.predict(table), mean, atol=0.1 * std.mean())
    assert np.array_equal(again.predict(table), pb.BayesRegressor.load(path).predict(table))
    other = pb.BayesRegressor.load(path, random_state=4)
    is_drawn = not np.array_equal(other.predict(table), again.predict(table))
    assert is_drawn == (outputs > 1)  # one value is predicted by moments


def test_the_command_line_shows_one_value_only(tmp_path, monkeypatch, capsys):
    X, y = line()
    pb.BayesRegressor(**QUICK).fit(named_table(X), np.stack([y, y], 1)).save(tmp_path / "m.pocket")
    (tmp_path / "x.csv").write_text("age,size\n1,2\n")
    words = ["pocketbayes", "predict", str(tmp_path / "m.pocket"), str(tmp_path / "x.csv")]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit):
        main()
    assert "2 values for each input" in " ".join(capsys.readouterr().err.split())
