"""One directory, one writer; a dead one holds nothing."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.training.locking import only_writer

HOLDING = """
import sys, time
from pathlib import Path
from pocketbayes.training.locking import only_writer

with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def writer(tmp_path):
    """Another process that writes into the directory."""
    command = [sys.executable, "-c", HOLDING, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def fit(out):
    net = pb.bayesianize_(nn.Linear(2, 2))
    batches = [(torch.ones(4, 2), torch.arange(4) % 2)]
    method = pb.DeepEnsemble(members=2)
    return pb.fit(net, batches, method, epochs=1, out=out, progress=False, device="cpu")


def test_a_second_run_is_refused_and_told_who_writes(writer, tmp_path):
    with pytest.raises(pb.TrainingError, match=f"process {writer.pid} is writing into"):
        fit(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}


def test_a_dead_one_holds_nothing(writer, tmp_path):
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    fit(tmp_path)
    fit(tmp_path)
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_a_child_that_loads_data_does_not_keep_it(tmp_path):
    ready, begun = os.pipe()
    with only_writer(tmp_path), only_writer(tmp_path):
        child = os.fork()
        if child == 0:
            os.write(begun, b"!")
            signal.pause()
            os._exit(0)
    try:
        assert os.read(ready, 1) == b"!"
        with only_writer(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(begun)


def test_another_thread_is_another_writer(tmp_path):
    found = []

    def enter():
        try:
            with only_writer(tmp_path):
                pass
        except pb.TrainingError as error:
            found.append(str(error))

    with only_writer(tmp_path):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert f"process {os.getpid()} is writing" in found[0]


def test_a_lock_that_was_just_taken_away_is_none(tmp_path, monkeypatch):
    import fcntl

    flock, taken = fcntl.flock, []

    def slow(descriptor, how):
        if not taken:
            taken.append((tmp_path / ".lock").unlink())
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with only_writer(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    assert taken


def test_a_number_that_cannot_be_written_is_no_fault_and_nothing_stays_locked(
    tmp_path, monkeypatch
):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with only_writer(tmp_path):
            pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_lock_that_cannot_be_opened_is_named(tmp_path):
    for wrong in (lambda path: path.mkdir(), lambda path: path.symlink_to(tmp_path / "mine")):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        wrong(folder / ".lock")
        with pytest.raises(pb.TrainingError, match=r"cannot open .*\.lock: "), only_writer(folder):
            pass
    assert not (tmp_path / "mine").exists()


def test_what_a_dead_run_of_another_user_left_keeps_nobody_out(tmp_path, monkeypatch):
    """Its lock may be read, not written: as root may write all, the system is made to refuse."""
    (tmp_path / ".lock").write_text("7\n")
    opened = os.open

    def refuse(path, flags, *mode, **more):
        if path == tmp_path / ".lock" and flags & os.O_RDWR:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refuse)
    fit(tmp_path)
    assert (tmp_path / ".lock").read_text() == "7\n"
    with only_writer(tmp_path):
        found = []
        thread = threading.Thread(target=lambda: found.append(refused(tmp_path)))
        thread.start()
        thread.join()
    assert found == [True]


def refused(folder):
    try:
        with only_writer(folder):
            return False
    except pb.TrainingError:
        return True


def test_a_system_without_locks_says_so(tmp_path, monkeypatch):
    import fcntl

    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="cannot be locked"), only_writer(tmp_path):
        pass
