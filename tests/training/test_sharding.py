"""Two nodes of one process each, on the CPU, that train a model in parts."""

import socket
import subprocess
import sys
from pathlib import Path

import in_parts
import pytest
import torch
from torch import nn

import pocketbayes as pb


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Where the processes of two launchers left what they did: `torchrun` as on two machines."""
    folder = tmp_path_factory.mktemp("nodes")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    place = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    script = [in_parts.__file__, str(folder)]
    nodes = [
        subprocess.Popen([*launcher, f"--node-rank={rank}", *place, *script],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]  # fmt: skip
    said = [node.communicate(timeout=300)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(said)[-8000:]
    return folder


@pytest.fixture
def both(folder):
    """What each of the two processes found, by the name of what they did."""
    return lambda name: [torch.load(folder / f"{name}-{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", ["classes", "values"])
def test_the_file_is_that_of_one_process(both, tmp_path, name):
    """Of values the noise begins by the first batch of a process: two that hold all begin alike."""
    two, one = both(name), both("values-whole")[0]
    if name == "classes":
        one = in_parts.file_of(tmp_path, 8, "ddp", "categorical")
    for got, want in zip(two[0]["history"], one["history"], strict=True):
        for key in ("loss", "nll", "kl", "val_nll"):
            assert got[key] == pytest.approx(want[key], rel=1e-9)
    for rank in two:
        assert rank["plain"]
        for a, b in zip(rank["parameters"], one["parameters"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
        files = [Path(found["path"]) for found in (rank, one)]
        assert files[0].stat().st_size == pytest.approx(files[1].stat().st_size, rel=0.01)
        models = [pb.load(path, in_parts.Network().double()) for path in files]
        for (n, p), (_, q) in zip(*map(pb.named_posteriors, models), strict=True):
            for a, b in zip(p.moments(), q.moments(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9, msg=n)


def test_a_process_trains_half_of_the_model(both):
    """Up to rows that two processes cannot share evenly."""
    whole = [rank["held"] for rank in both("classes-whole")]
    parts = [rank["held"] for rank in both("classes")]
    assert sum(parts) == whole[0] == whole[1]
    assert max(parts) < 0.55 * whole[0]


def test_parts_learn_what_the_whole_learns_from_the_same_draws(both):
    (one, other), (want, _) = both("drawn"), both("drawn-whole")
    for name, value in want.items():
        assert torch.equal(one[name], other[name]), name
        torch.testing.assert_close(one[name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_a_run_in_parts_goes_on_from_its_checkpoint_bit_for_bit(both):
    for rank in both("resumed"):
        assert rank["stopped"]
        for name, value in rank["whole"].items():
            assert torch.equal(rank["resumed"][name], value), name


def test_a_loop_of_ones_own_may_split_its_layers(both):
    for got, want in zip(both("loop"), both("loop-whole"), strict=True):
        torch.testing.assert_close(got["numbers"], want["numbers"], rtol=1e-9, atol=0)
        torch.testing.assert_close(got["priors"], want["priors"], rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("net", "method", "options", "words"),
    [
        (nn.Linear(5, 3), pb.Subspace(density=0.5), {}, "Subspace looks at whole posteriors"),
        (nn.Linear(5, 3), None, {"compile": True}, "is not compiled"),
        (nn.Linear(5, 3), None, {"strategy": "zero"}, "strategy must be"),
        (nn.Linear(5, 3), pb.VariationalDropout(), {}, "LogUniform posterior"),
    ],
)
def test_what_does_not_go_in_parts_is_refused_in_one_process_too(net, method, options, words):
    model, loader = pb.bayesianize_(net), [(torch.randn(8, 5), torch.arange(8) % 3)]
    options = {"strategy": "fsdp", "epochs": 1, "progress": False} | options
    with pytest.raises(pb.PocketBayesError, match=words):
        pb.fit(model, loader, method, **options)
