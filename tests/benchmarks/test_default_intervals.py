"""The benchmark of default intervals: splits that do not leak, figures that are right."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path[:0] = [str(Path(__file__).parents[2] / "benchmarks")]

import defaults  # noqa: E402
import intervals  # noqa: E402
import regression_sets  # noqa: E402

import pocketbayes as pb  # noqa: E402


@pytest.fixture
def file(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 3))
    arrays = {"line/x": x, "line/y": x @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(200)}
    for k in range(regression_sets.SPLITS):
        arrays[f"line/test_{k}"] = np.arange(10 * k, 10 * k + 10)
    np.savez(tmp_path / "regression.npz", **arrays)
    return tmp_path / "regression.npz"


def test_rows_for_choosing_are_in_no_test_part(tmp_path):
    arrays = {"count/x": np.zeros((200, 1)), "count/y": np.arange(200.0)}
    for k in range(regression_sets.SPLITS):  # rows 50 to 199 are in none
        arrays[f"count/test_{k}"] = np.arange(10 * k, 10 * k + 10)
    np.savez(tmp_path / "regression.npz", **arrays)
    for split in range(3):
        part = regression_sets.opened(tmp_path / "regression.npz", "count", split, validation=True)
        seen = (torch.cat([part.y, part.y_test])[:, 0].double() * part.scale).sort().values
        assert (len(part.y), len(part.y_test)) == (120, 30)
        torch.testing.assert_close(
            seen.diff(), torch.ones(149, dtype=torch.float64), atol=1e-3, rtol=0
        )


def test_figures_of_a_mixture_are_those_of_its_draws():
    rng = torch.Generator().manual_seed(0)
    means, noise = torch.randn(3, 40, generator=rng, dtype=torch.float64), 0.5
    y = torch.randn(40, 1, generator=rng)
    part = regression_sets.Part(y, y, y, y, 1.0)
    found = intervals.of_mixture(means, noise, part)
    law = torch.distributions.Normal(means, noise)
    density = law.log_prob(y[:, 0].double()).logsumexp(0) - math.log(3)
    assert found["nll"] == pytest.approx(float(-density.mean()))
    draws = (means + noise * torch.randn(4000, 3, 40, generator=rng)).flatten(0, 1)
    near = (draws - y[:, 0]).abs().mean(0)
    apart = (draws - draws[torch.randperm(len(draws), generator=rng)]).abs().mean(0)
    assert found["crps"] == pytest.approx(float((near - apart / 2).mean()), abs=0.01)
    one = intervals.of_mixture(means[:1], noise, part)
    alone = intervals.of_normal(means[0].numpy(), noise, part)
    for name in ("nll", "rmse", "coverage_90", "crps"):
        assert one[name] == pytest.approx(alone[name], rel=1e-6)


@pytest.mark.parametrize("job", ["ensemble", "bayesian", "ridge"])
def test_every_row_is_measured(job, file, monkeypatch):
    monkeypatch.setattr(intervals, "_MOST_EPOCHS", 3)
    monkeypatch.setattr("pocketbayes.training.defaults._LEAST_STEPS", {"values": 10})
    monkeypatch.setattr("pocketbayes.training.defaults._EPOCHS", 2)
    rows = intervals.done((file, "line", 0, job))
    assert len(rows) == (2 if job == "ensemble" else 1)
    assert all(math.isfinite(row["nll"]) and row["rows"] == 190 for row in rows)


def test_the_search_agrees_with_the_library(file, tmp_path, monkeypatch):
    """Networks trained side by side come to the same NLL as one trained by `fit`."""
    (tmp_path / "settings.json").write_text('[{"beta": 1.0, "lr": 0.01, "warmup": 0.9}]')
    monkeypatch.setenv("POCKETBAYES_RESULTS", str(tmp_path))
    words = ["--data", str(file), "--settings", str(tmp_path / "settings.json"), "--splits", "0"]
    monkeypatch.setattr(sys, "argv", ["defaults.py", *words, "--steps", "400", "--width", "16"])
    defaults.main()
    row = json.loads((tmp_path / "defaults_search.jsonl").read_text())
    part = regression_sets.opened(file, "line", 0, validation=True)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU()]
    model = pb.bayesianize_(torch.nn.Sequential(*layers, torch.nn.Linear(16, 1)))
    data = torch.utils.data.TensorDataset(part.x, part.y)
    loader = torch.utils.data.DataLoader(data, 16, shuffle=True)
    pb.fit(model, loader, epochs=50, likelihood="gaussian", progress=False, device="cpu")
    record = pb.evaluate(model, [(part.x_test, part.y_test)], 100)
    assert row["sets"]["line"]["nll"] == pytest.approx(record.nll, abs=0.15)
