"""`pocketbayes bench`: every runtime that is there, each in a process of its own."""

import json

import pytest
import torch

import pocketbayes as pb
from pocketbayes import cli
from pocketbayes.commands.bench import BenchOptions, run_bench
from pocketbayes.deploy import installed
from pocketbayes.models import build_network


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("bench") / "m.pocket"
    model = pb.bayesianize_(build_network("mlp", input_shape=(6,), num_outputs=3, hidden=(4,)))
    pb.save(model, path, example=torch.randn(2, 6))
    return path


def run_here(*words):
    return cli.app([str(word) for word in words], standalone_mode=False)


def test_all_that_is_installed_is_measured(file, capsys):
    run_here("bench", file, "--seconds", "0.01", "--batch-sizes", "1,3", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["estimator"] == "lrt"  # as `predict` takes it
    by_name = {row["runtime"]: row for row in told["runtimes"]}
    assert {"torch"} <= {*by_name} <= {*installed()}
    assert by_name["torch"]["bytes"] == file.stat().st_size
    for row in by_name.values():
        assert row["milliseconds"].keys() == {"1", "3"}
        assert min(row["milliseconds"].values()) > 0
        assert row["first_answer_seconds"] > 0
        assert 1e6 < row["memory_bytes"] < 1e10
    ran = {name: row["estimator"] for name, row in by_name.items()}
    assert ran.pop("engine", "weight") == "weight"  # which has the law of the others
    assert {*ran.values()} == {"lrt"}
    run_here("bench", file, "--seconds", "0.01", "--batch-sizes", "1", "--runtimes", "torch")
    assert "answers by lrt" in capsys.readouterr().out
    most = by_name["torch"]["memory_bytes"]
    assert all(row["memory_bytes"] < most for name, row in by_name.items() if name != "torch")


def test_what_cannot_run_is_left_out_by_name(file):
    options = BenchOptions(runtimes="torch", seconds=0.01, batch_sizes="1", estimator="one_pass")
    with (
        pytest.warns(UserWarning, match="torch is left out: .*needs a head"),
        pytest.raises(pb.PocketBayesError, match="no runtime could be measured"),
    ):
        run_bench(file, options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"runtimes": "abacus"}, "abacus"), ({"batch_sizes": "1,x"}, "1,x"),
     ({"batch_sizes": "0"}, "batch_sizes"), ({"threads": 0}, "threads"),
     ({"seconds": -1.0}, "seconds"), ({"seconds": float("nan")}, "seconds"),
     ({"estimator": "sideways"}, "sideways")],
)  # fmt: skip
def test_wrong_options_are_told(file, options, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        run_bench(file, BenchOptions(**options))
