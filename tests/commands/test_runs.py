"""Run directories: hostile configs, how many processes, signals, one writer."""

import os
import signal
import subprocess
import sys
import time

import pytest

import pocketbayes as pb
from pocketbayes import cli
from pocketbayes.codec import prepare_directory
from pocketbayes.commands import processes, runs
from pocketbayes.commands.yaml_files import YamlError, read_yaml
from pocketbayes.training import only_writer

TRAIN = ["train", "--data", "digits", "--model", "mlp", "--hidden", "8"]
LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


WAITING = """
import sys
from pathlib import Path
from pocketbayes.training import only_writer
with only_writer(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def call(tmp_path, monkeypatch, capfd):
    """`pocketbayes WORDS` in a folder of its own: exit code and what it said."""

    def run(*words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["pocketbayes", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code or 0, capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LAUGHS, "an alias"),
        ("a: &x 1\nb: *x\n", "an alias"),
        ("<<: &x {a: 1}\nb: *x\n", "an alias"),
        ("epochs: 1\nepochs: 2\n", "given twice"),
        ("[" * 100_000, "nested too deeply"),
        ("".join(f"k{i}: 1\n" for i in range(20_000)) + "k0: 2\n", "given twice"),
        ("? [a]\n: 1\n", "unhashable key"),
        ("date: 2001-99-99\n", "month"),
        ("number: " + "9" * 5000, "digits"),
        ("!!python/object/apply:os.abort []", "could not determine a constructor"),
        ("a: \x00", "special characters"),
        ("#" * (1 << 21), "larger than"),
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_config_is_refused_wherever_it_is_read(tmp_path, call, text, words):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    begin = time.monotonic()
    with path.open("rb") as file, pytest.raises(YamlError, match=words):
        read_yaml(file)
    assert time.monotonic() - begin < 20
    code, said = call("train", "--resume", tmp_path)
    assert (code, words in said) == (1, True)
    code, said = call("train", "--config", path)
    assert (code, words in said) == (2, True)


@pytest.fixture
def run(tmp_path, call):
    assert call(*TRAIN, "--epochs", 1, "--out", "run", "--checkpoint-minutes", 0.5)[0] == 0
    return tmp_path / "run"


def test_a_run_from_elsewhere_does_not_choose_how_many_processes_start(run, call, monkeypatch):
    started = []
    monkeypatch.setattr(processes, "_outlived", lambda command: started.append(command) or 0)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("processes: 1", "processes: 64"))
    code, said = call("train", "--resume", run)
    assert code == 2
    assert "was begun by 64 processes: say --processes 64" in said
    code, said = call(*TRAIN, "--config", config, "--out", "new")
    assert code == 2
    assert "the config asks for 64 processes" in said
    assert not started
    assert call("train", "--resume", run, "--processes", "64")[0] == 0
    assert "--nproc-per-node=64" in started[0]


def test_the_time_between_checkpoints_is_an_option_that_may_change(run, call):
    assert "checkpoint_minutes: 0.5" in (run / "config.yaml").read_text()
    assert call("train", "--resume", run, "--checkpoint-minutes", 2)[0] == 0
    code, said = call(*TRAIN, "--out", "other", "--checkpoint-minutes", 0)
    assert code == 2
    assert "--checkpoint-minutes must be" in said


def test_two_commands_do_not_write_into_one_directory(tmp_path, call):
    out = tmp_path / "run"
    out.mkdir()
    other = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout.readline() == b"\n"
        code, said = call(*TRAIN, "--epochs", 1, "--out", "run")
        assert code == 1
        assert f"process {other.pid} is writing into" in said
    finally:
        other.communicate()
    assert call(*TRAIN, "--epochs", 1, "--out", "run")[0] == 0
    with only_writer(out):
        pass


def test_a_refused_run_leaves_nothing_behind(tmp_path, call):
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n5,6\n7,8\n")
    for file in ("none.csv", "rows.csv"):
        code, said = call("train", "--data", "csv", "--file", file, "--target", "c",
                          "--model", "mlp", "--out", "deep/run")  # fmt: skip
        assert code != 0
        assert file in said
        assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.csv"]
    (tmp_path / "mine").mkdir()
    assert call("train", "--data", "csv", "--file", "none.csv", "--target", "c",
                "--model", "mlp", "--out", "mine")[0] != 0  # fmt: skip
    assert (tmp_path / "mine").is_dir()


def test_a_refused_run_leaves_what_another_writes(tmp_path, monkeypatch):
    """It began when there was no directory yet; by now another one holds it."""
    out = tmp_path / "deep" / "run"
    command = [sys.executable, "-c", WAITING, str(out)]
    others = []

    def slow(path):
        found = prepare_directory(path)
        others.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )  # fmt: skip
        assert others[0].stdout.readline() == b"\n"
        return found

    monkeypatch.setattr(runs, "prepare_directory", slow)
    try:
        with pytest.raises(pb.TrainingError, match="is writing into"), runs.only_in(out):
            raise AssertionError
        assert {path.name for path in out.iterdir()} == {".lock"}
    finally:
        others[0].communicate()


@pytest.mark.parametrize("kind", ["deep", "pipe"])
def test_metrics_and_configs_from_elsewhere(tmp_path, kind):
    for name in (runs.METRICS, runs.CONFIG):
        if kind == "deep":
            (tmp_path / name).write_text("[" * 200_000)
        else:
            os.mkfifo(tmp_path / name)
    assert runs.read_metrics(tmp_path) == {}
    with pytest.raises(pb.PocketBayesError, match="is not a run"):
        runs.read_run_config(tmp_path)


@pytest.mark.parametrize("count", [1, 2])
def test_sigterm_leaves_a_run_to_go_on_with(tmp_path, count):
    words = [*TRAIN, "--epochs", "5000", "--out", "run", "--batch-size", "16"]
    command = [sys.executable, "-m", "pocketbayes", *words, "--processes", str(count)]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 240
        while not (tmp_path / "run" / "history.jsonl").exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 143, said
    assert "terminated after step" in said
    assert "go on with: pocketbayes train --resume run" in said
    assert (tmp_path / "run" / "checkpoint.pt").stat().st_size > 0
