"""A disk that fills up: an error of ours, or a warning and a run that goes on."""

import os
import resource
import signal
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def net():
    torch.manual_seed(0)
    return pb.bayesianize_(nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 2)))


def fitted(out, **options):
    loader = DataLoader(TensorDataset(X, Y), batch_size=20)
    return pb.fit(
        net(), loader, epochs=3, out=out, progress=False, likelihood="categorical", device="cpu",
        method=pb.MeanField(beta=0.1, prior="fixed"), checkpoint_minutes=1e-9, **options,
    )  # fmt: skip


def run_without_checkpoints(folder):
    """What is written meanwhile by this process must be small, so it is one of its own."""
    expected = fitted(None).model.state_dict()
    bound_files(2000)
    with pytest.warns(UserWarning, match=r"cannot write .*checkpoint\.pt: File too large; there"):
        found = fitted(folder)
    assert all(torch.equal(v, found.model.state_dict()[k]) for k, v in expected.items())


def save_without_room(folder):
    model = net()
    bound_files(300)
    with pytest.raises(pb.FormatError, match=r"cannot write .*m\.pocket: File too large"):
        pb.save(model, f"{folder}/m.pocket")


def bound_files(size):
    """The largest file that can be written; the system's own fault then is another one."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def in_a_process(function, folder):
    here, name = os.path.dirname(__file__), function.__name__
    code = "import sys; sys.path[:0] = sys.argv[1:2]; import test_full_disk as t; "
    done = subprocess.run(
        [sys.executable, "-c", f"{code}t.{name}(sys.argv[2])", here, folder],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted(os.listdir(folder))


def test_a_run_goes_on_without_checkpoints(tmp_path):
    assert in_a_process(run_without_checkpoints, tmp_path) == [".lock", "history.jsonl"]


def test_a_checkpoint_is_tried_again_and_the_old_one_kept(tmp_path, monkeypatch):
    """Room for the first and the last of them."""
    fsync, tried = os.fsync, []

    def once_full(descriptor):
        tried.append(descriptor)
        if 1 < len(tried) < 5:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", once_full)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fitted(tmp_path)
    assert "checkpoint.pt: No space left on device; what was there is kept" in str(told[0].message)
    monkeypatch.undo()
    assert len(tried) > 6
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".lock", "checkpoint.pt", "history.jsonl"]
    assert fitted(tmp_path, resume=True).history[-1]["epoch"] == 3


def test_the_file_of_a_model_is_an_error_of_ours(tmp_path):
    assert in_a_process(save_without_room, tmp_path) == []


SMALL = """
mount -t tmpfs -o size=8k tmpfs "$1" || exit 77
exec "$2" -c '
import sys
sys.path.insert(0, sys.argv[1])
import test_full_disk, warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    test_full_disk.fitted(sys.argv[2])
assert any("No space left on device" in str(w.message) for w in told), [str(w) for w in told]
' "$3" "$1"
"""


def test_a_disk_that_is_full_indeed(tmp_path):
    """A small disk of memory, where the system lets a test have one."""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", SMALL, "sh"]
    try:
        done = subprocess.run(
            [*command, tmp_path, sys.executable, os.path.dirname(__file__)],
            capture_output=True, text=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no disk of one's own: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
