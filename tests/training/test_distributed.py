"""Two processes on the CPU, as `torchrun script.py` starts them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import two_processes

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, open_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where two processes left what they did; one job does everything, for they start slowly."""
    folder = tmp_path_factory.mktemp("two")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [sys.executable, *launcher, two_processes.__file__, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:6000]
    return folder


@pytest.fixture
def both(folder):
    """What each of the two processes found, by the name of what they did."""
    return lambda name: [torch.load(folder / f"{name}-{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", ["mean", "accumulated", "flat", "lrt"])
def test_two_processes_do_as_one(both, tmp_path, name):
    two = both(name)
    for a, b in zip(two[0]["parameters"], two[1]["parameters"], strict=True):
        assert torch.equal(a, b)
    if name != "lrt":  # noise switched off
        one = two_processes.plain(tmp_path, 16, "mean", flatness=0.3 if name == "flat" else 0)
        for got, want in zip(two[0]["history"], one["history"], strict=True):
            for key in ("loss", "nll", "kl", "accuracy"):
                assert got[key] == pytest.approx(want[key], rel=1e-9)
        for a, b in zip(two[0]["parameters"], one["parameters"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    else:
        assert two[0]["noise"] != two[1]["noise"]
        assert two[0]["history"][-1]["accuracy"] > 0.6


def test_gradients_are_sent_once_in_a_step_of_several_batches(both):
    (one, _), steps = both("accumulated"), 4 * 6
    assert one["history"][-1]["step"] == steps
    assert one["reductions"] == steps


def test_processes_agree_on_every_place(both):
    one, two = both("global")
    assert len(one["places"]) == 24
    for a, b in zip(one["places"], two["places"], strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
    flat = [torch.cat([p + 10_000 * i for i, p in enumerate(row)]) for row in one["places"]]
    moves = [step for step in range(1, 24) if not torch.equal(flat[step], flat[step - 1])]
    assert moves
    assert {len(row) for row in flat} == {round(0.3 * (20 * 64 + 64 * 3))}
    for a, b in zip(one["parameters"], two["parameters"], strict=True):
        assert torch.equal(a, b)
    assert one["accuracy"] > 0.5
    for name, gradient in one["gradients"][0].items():
        assert torch.equal(gradient, two["gradients"][0][name])
        alone = [rank["gradients"][1][name] for rank in (one, two)]
        assert not torch.equal(*alone)
        torch.testing.assert_close(gradient, (alone[0] + alone[1]) / 2)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_an_ordinary_step_sends_as_little_as_there_are_weights(both, density):
    """Numbers in gradients sent per step (the mode of all reductions), exchange steps left out.

    Beside them go a few numbers: whether all goes well, and the loss with its parts.
    """
    weights, plain = 20 * 64 + 64 * 3, 64 + 3 + 2 * 64  # and biases, and those of the norm
    one, _ = both(f"sent-{density}")
    sizes = [size for name, size in one["sent"] if name == "gloo:all_reduce"]
    reduced = [size for size in sizes if size > 5]
    assert len(sizes) - len(reduced) <= 5 * 12
    ordinary = max(set(reduced), key=reduced.count)
    assert ordinary == 2 * round(density * weights) + plain
    assert reduced.count(ordinary) == 12
    broadcasts = [size for name, size in one["sent"] if name == "gloo:broadcast"]
    each_step = {size for size in set(broadcasts) if broadcasts.count(size) >= 10}
    assert each_step <= {1, 128}  # running statistics of the norm; no places


def test_processes_agree_on_every_label(both):
    one, two = both("shared")
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert torch.equal(value, two[name]), name


def test_processes_agree_on_norms(both):
    """Batches of one size, so the mean over all of them is that over all examples."""
    one, two = both("norms")
    for name, value in one.items():
        assert torch.equal(value, two[name]), name
    torch.testing.assert_close(one["1.running_mean"], one["mean"])
    assert one["1.num_batches_tracked"] == 6


def test_processes_agree_on_the_noise_of_a_regression(both):
    one, two = both("noise")
    for name, value in one.items():
        assert torch.equal(value, two[name]), name
    torch.testing.assert_close((2 * one["noise_log_std"]).exp(), one["error"])


def test_processes_agree_on_the_best_epoch_of_a_run_on_dicts(both):
    one, two = both("best")
    for name, value in one.items():
        assert torch.equal(value, two[name]), name
    assert one["epochs"] == one["best"] + 3 < 20


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("label", "DataError", "label 9 is out of range"),
        ("input", "DataError", "in the batch of step 2"),
        ("shape", "DataError", "7"),
        ("reading", "OSError", "the disk is gone"),
        ("number", "DataError", "different numbers of batches"),
        ("validation", "DataError", "7"),
        ("signal", "SystemExit", "143"),
    ],
)
def test_what_befalls_one_process_ends_both(both, name, kind, words):
    """And both go on after that with what else there is to do."""
    found = both(f"ending-{name}")
    kinds = {end["kind"] for end in found}
    assert kinds <= {kind, "TrainingError"}
    assert kind in kinds
    assert kinds == {kind} or name == "reading"  # whose error is none of this library's
    assert all(words in end["words"] for end in found)
    assert all(end["stored"] == (name == "signal") for end in found)


def test_the_command_shares_the_weights_of_a_parent(both, folder):
    """Of a network that two processes trained: see test_cli for how it starts them."""
    for name in ("parent", "child"):
        assert [rank["code"] for rank in both(name)] == [0, 0]
        metrics = json.loads((folder / name / "metrics.json").read_text())
        model = pb.load(folder / name / "model.pocket")
        record = pb.evaluate(model, MemoryLoader(open_dataset("digits", "test"), 500))
        assert record.accuracy > 0.2
        assert metrics["bytes"] == (folder / name / "model.pocket").stat().st_size
    sizes = [pb.inspect(folder / name / "model.pocket") for name in ("parent", "child")]
    parts = [{s.name: s.bytes for s in size.sections} for size in sizes]
    assert parts[1]["shared/label/uint8"] < parts[0]["gaussian/mean"]


def test_a_stream_is_read_in_parts_or_refused_and_the_first_process_logs(both):
    one, two = both("split")
    assert one["steps"] == two["steps"] == 3 * 96 // 2 // 8
    assert one["lrs"] == sorted(one["lrs"], reverse=True)
    assert one["lrs"][-1] < one["lrs"][0] / 10
    assert one["logged"] == [6, 12, 18]
    assert two["logged"] == []
    for found in both("not-split"):
        assert "each of 2 processes reads the same examples" in found["words"]
