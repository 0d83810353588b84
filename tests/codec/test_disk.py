"""Writing: whole or not at all, through links, with the mode that was there, and no litter."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.codec import disk
from pocketbayes.codec.disk import write_atomically


def put(path, data=b"new"):
    write_atomically(path, lambda file: file.write(data))


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_a_file_keeps_its_mode(mode, tmp_path, umask):
    path = tmp_path / "m.pocket"
    path.write_bytes(b"old")
    path.chmod(mode)
    seen = []
    write_atomically(path, lambda f: seen.extend(mode_of(p) for p in tmp_path.glob(".p*")))
    assert seen == [mode]  # before anything is in it
    assert mode_of(path) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_keeps_its_owner(tmp_path):
    path = tmp_path / "m.pocket"
    path.write_bytes(b"old")
    os.chown(path, 1234, 1235)
    path.chmod(0o600)
    put(path)
    found = os.stat(path)
    assert (found.st_uid, found.st_gid, mode_of(path)) == (1234, 1235, 0o600)


@pytest.mark.parametrize("fault", [errno.EINVAL, errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
@pytest.mark.parametrize("refused", ["owner", "owner and group"])
def test_an_owner_that_cannot_be_given_is_no_fault(fault, refused, tmp_path, monkeypatch):
    path, asked = tmp_path / "m.pocket", []
    path.write_bytes(b"old")
    path.chmod(0o640)

    def fchown(_, owner, group):
        asked.append((owner, group))
        if owner != -1 or refused != "owner":
            raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fchown", fchown)
    put(path)
    assert not asked  # it is ours already
    found = os.stat(path)
    monkeypatch.setattr(disk, "_stat", lambda _: Owned(found, 70_000, 70_001))
    put(path)
    assert asked == [(70_000, 70_001), (-1, 70_001)]
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o640)


class Owned:
    """What stat says, of other owners."""

    def __init__(self, found, owner, group):
        self.st_mode, self.st_uid, self.st_gid = found.st_mode, owner, group


def test_an_error_names_the_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no/m\.pocket"):
        put(tmp_path / "no" / "m.pocket")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        put(Path("/dev/full"))


def test_a_new_file_has_the_mode_of_the_umask(tmp_path, umask):
    put(tmp_path / "a")
    os.umask(0o077)
    put(tmp_path / "b")
    assert (mode_of(tmp_path / "a"), mode_of(tmp_path / "b")) == (0o644, 0o600)


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_one_and_leads_to_the_new_file(exists, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    if exists:
        (home / "m.pocket").write_bytes(b"old")
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("home/m.pocket")
    put(tmp_path / "first")
    assert (tmp_path / "first").readlink() == Path("second")
    assert (tmp_path / "second").readlink() == Path("home/m.pocket")
    assert (home / "m.pocket").read_bytes() == b"new"
    assert [path.name for path in home.iterdir()] == ["m.pocket"]


def test_links_in_a_ring_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"[Ss]ymbolic links"):
        put(tmp_path / "a")
    assert (tmp_path / "a").is_symlink()


def test_a_device_is_written_into(tmp_path):
    before = os.stat("/dev/null")
    put(Path("/dev/null"))
    (tmp_path / "null").symlink_to("/dev/null")
    put(tmp_path / "null")
    pb.save(pb.bayesianize_(nn.Linear(2, 2)), tmp_path / "null")
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    with pytest.raises(OSError, match="No space"):
        put(Path("/dev/full"))
    with pytest.raises(pb.FormatError, match="cannot write /dev/full: No space"):
        pb.save(pb.bayesianize_(nn.Linear(2, 2)), "/dev/full")


def test_a_pipe_is_written_into_if_somebody_reads(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):
        put(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    for _ in range(1000):
        try:
            put(pipe, b"x" * 10**6)
            break
        except OSError:
            time.sleep(0.01)
    reader.join()
    assert read == [b"x" * 10**6]
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)


OUT = """
import sys
from pathlib import Path
from pocketbayes.codec.disk import home_of, write_atomically
path = Path(sys.argv[1])
assert home_of(path) is None
print("before", flush=True)
write_atomically(path, lambda file: file.write(b"x" * 99_999))
print("after")
"""


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("to", ["pipe", "file"])
def test_what_is_open_already_is_written_into(name, to, tmp_path):
    """Where it stands: what was said before and is said afterwards stays."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    command, text = [sys.executable, "-c", OUT, str(tmp_path / name)], "before\n" + "x" * 99_999
    if to == "pipe":
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        assert done.stdout.decode() == f"{text}after\n"
        return
    path = tmp_path / "out"
    path.write_text("kept\n")
    with path.open("a") as file:
        subprocess.run(command, check=True, stdout=file)
    assert path.read_text() == f"kept\n{text}after\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "out"]


def test_a_file_that_another_process_has_open_grows(tmp_path):
    path = tmp_path / "out"
    with path.open("w") as file:
        other = subprocess.Popen(["sleep", "100"], stdout=file)
    try:
        put(Path(f"/proc/{other.pid}/fd/1"), b"one")
        put(Path(f"/proc/{other.pid}/fd/1"), b"two")
    finally:
        other.kill()
        other.wait()
    assert path.read_bytes() == b"onetwo"


def test_a_model_goes_through_a_pipe_behind_links(tmp_path):
    reading, writing = os.pipe()
    (tmp_path / "link").symlink_to(f"/proc/self/fd/{writing}")
    summary = pb.save(pb.bayesianize_(nn.Linear(2, 2)), tmp_path / "link")
    assert len(os.read(reading, 1 << 16)) == summary.bytes
    os.close(reading)
    os.close(writing)


def test_what_is_no_file_is_never_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="a directory, which is never replaced"):
        put(tmp_path / "folder")
    with pytest.raises(pb.FormatError, match="a directory, which is never replaced"):
        pb.save(pb.bayesianize_(nn.Linear(2, 2)), tmp_path / "folder")
    assert (tmp_path / "folder").is_dir()


KILLED = """
import sys, time
from pathlib import Path
from pocketbayes.codec.disk import write_atomically
def write(file):
    file.write(b"x" * 100_000)
    print("writing", flush=True)
    time.sleep(1000)
write_atomically(Path(sys.argv[1]), write)
"""


def test_what_a_killed_writer_left_goes_with_the_next_save(tmp_path):
    path = tmp_path / "m.pocket"
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        writer.stdout.readline()
        (left,) = tmp_path.glob(".pocketbayes-*")
        put(path)
        assert left.exists()  # its writer lives
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert left.exists()
    put(path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.pocket"]


def test_only_what_is_surely_dead_goes(tmp_path):
    """Locks of another machine are not seen here: its files go when they are old."""
    new, old, link = (f".pocketbayes-01234567-{kind}23456789ab" for kind in ("00", "01", "02"))
    mine = [
        ".mine", "pocketbayes-x", ".pocketbayes-config", ".pocketbayes-notes.txt", f"{old}.txt",
        old.upper(), old[:-1],
    ]  # fmt: skip
    week = time.time() - 8 * 24 * 3600
    for name in (new, old, *mine):
        (tmp_path / name).write_bytes(b"x")
        if name not in (new, ".mine"):
            os.utime(tmp_path / name, (week, week))
    (tmp_path / link).symlink_to(tmp_path / ".mine")
    put(tmp_path / "m.pocket")
    kept = {new, link, "m.pocket", *mine}
    assert {p.name for p in tmp_path.iterdir()} == kept


def test_a_writer_whose_file_was_taken_for_litter_begins_anew(tmp_path, monkeypatch):
    lock, taken = disk._lock, []

    def slow(file, wait):
        if wait and not taken:
            taken.extend(tmp_path.glob(".pocketbayes-*"))
            taken[0].unlink()
        return lock(file, wait)

    monkeypatch.setattr(disk, "_lock", slow)
    put(tmp_path / "m")
    assert taken
    assert (tmp_path / "m").read_bytes() == b"new"


@pytest.mark.parametrize("lock", [None, disk.flock])
def test_a_file_is_moved_closed_where_there_are_no_locks(lock, tmp_path, monkeypatch):
    """Windows moves no open file; elsewhere the lock must last until then."""
    temporary, replace, opened, closed = disk._temporary, os.replace, [], []
    monkeypatch.setattr(disk, "flock", lock)
    monkeypatch.setattr(disk, "_temporary", lambda d: opened.append(temporary(d)) or opened[0])
    monkeypatch.setattr(
        os, "replace", lambda *paths: closed.append(opened[0][1].closed) or replace(*paths)
    )
    put(tmp_path / "m")
    assert closed == [lock is None]
    assert (tmp_path / "m").read_bytes() == b"new"


def test_many_writers_in_one_place(tmp_path):
    def work(number):
        for k in range(30):
            put(tmp_path / f"{number}", b"%d" % k)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {str(n): b"29" for n in range(8)}


def test_a_full_disk_is_what_the_error_speaks_of(tmp_path, monkeypatch):
    """torch makes an error of its own of it, about its zip file."""
    (tmp_path / "m").write_bytes(b"old")
    fdopen = os.fdopen

    def opened(descriptor, mode):
        file = fdopen(descriptor, mode, buffering=0)
        return Full(file) if "w" in mode else file

    class Full:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return full if name == "write" else getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

    monkeypatch.setattr(os, "fdopen", opened)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "m", lambda file: torch.save({"a": torch.ones(9)}, file))
    monkeypatch.undo()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("m", b"old")]
