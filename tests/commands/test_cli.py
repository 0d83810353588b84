"""The command line, end to end: some commands in processes of their own, all in this one."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import pocketbayes as pb
from pocketbayes import cli
from pocketbayes.commands.demo import with_shifts
from pocketbayes.commands.demo_steps import SHOWN
from pocketbayes.data import ImageSet, open_dataset
from pocketbayes.layers.description import describe, update_description
from pocketbayes.prediction import compilation

TINY = ["--epochs", "2", "--hidden", "16"]


def call(*words, cwd, program=(sys.executable, "-m", "pocketbayes"), **environment):
    """Runs `pocketbayes WORDS` in a process of its own, and checks that it succeeds."""
    done = subprocess.run(
        [*program, *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "160", "NO_COLOR": "1"} | environment,
    )
    check(done, code=0)
    return done


def check(done, code):
    """The exit code, and that a failure is explained."""
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code:
        assert done.stderr.strip()
        assert not done.stdout.strip()


@pytest.fixture
def quick(work, monkeypatch, capfd):
    """The same in this process, which saves the seconds that torch takes to load."""

    def call_here(*words, code=0, cwd=work):
        monkeypatch.chdir(cwd)
        monkeypatch.setenv("COLUMNS", "160")
        monkeypatch.setattr(sys, "argv", ["pocketbayes", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capfd.readouterr()
        done = subprocess.CompletedProcess(words, stopped.value.code or 0, out, err)
        check(done, code)
        return done

    return call_here


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder with one trained run, digit pictures and a table."""
    folder = tmp_path_factory.mktemp("work")
    words = ["train", "--data", "digits", "--model", "mlp", *TINY, "--out", "run"]
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "argv", ["pocketbayes", *words])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    assert not stopped.value.code
    images = open_dataset("digits", "test").images
    for number in range(3):
        Image.fromarray(images[number, 0].numpy()).save(folder / f"digit{number}.png")
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\nnot a picture")
    (folder / "plain.safetensors").write_bytes(b"")
    rng = np.random.default_rng(0)
    size = rng.uniform(20, 200, 300)
    town = rng.choice(["Rome", "Oslo"], 300)
    price = 3000 * size + 50_000 * (town == "Oslo") + rng.normal(0, 10_000, 300)
    lines = [f"{s},{t},{p}" for s, t, p in zip(size, town, price, strict=True)]
    (folder / "house.csv").write_text("\n".join(["size,town,price", *lines]) + "\n")
    return folder


def test_help_lists_what_exists_and_shows_examples(work, quick):
    text = quick("--help").stdout
    names = ("demo", "train", "compress", "distill", "evaluate", "predict", "inspect")
    assert all(word in text for word in names)
    for command in names:
        text = quick(command, "--help").stdout
        assert "Examples" in text
        assert f"pocketbayes {command}" in text
    assert quick("--version").stdout.strip() == pb.__version__


def test_train_writes_a_whole_run(work):
    run = work / "run"
    assert {p.name for p in run.iterdir()} == {
        "config.yaml", "history.jsonl", "checkpoint.pt", "model.pocket", "metrics.json",
        ".lock",
    }  # fmt: skip
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["hidden"] == [16]
    assert config["beta"] == pb.MeanField().beta
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["bytes"] == (run / "model.pocket").stat().st_size
    assert metrics["validation"]["num_examples"] == 129
    assert config["lr"] is None
    chosen = [metrics[name] for name in ("lr", "beta", "prior", "epochs", "steps", "batch_size")]
    rows = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert chosen == [3e-3, rows[-1]["beta"], "learned", 2, rows[-1]["step"], 32]
    assert pb.inspect(run / "model.pocket").training["lr"] == metrics["lr"]
    assert len((run / "history.jsonl").read_text().splitlines()) == 2


def test_evaluate(work, quick):
    words = ["evaluate", "run", "--ood", "photo-patches", "--json"]
    result = json.loads(quick(*words).stdout)
    assert result["num_examples"] == 510
    assert 0.2 < result["accuracy"] <= 1
    assert {"nll", "ece", "auroc_entropy", "auroc_epistemic"} <= result.keys()
    again = json.loads(quick("evaluate", "run/model.pocket", "--data", "digits", "--json").stdout)
    assert again["accuracy"] == result["accuracy"]
    held = json.loads(quick("evaluate", "run", "--split", "validation", "--json").stdout)
    metrics = json.loads((work / "run" / "metrics.json").read_text())
    assert held["num_examples"] == 129
    assert held["nll"] == pytest.approx(metrics["validation"]["nll"], abs=1e-6)
    table = quick("evaluate", "run").stdout
    assert f"{100 * result['accuracy']:.2f} %" in table


@pytest.mark.parametrize("words", [["evaluate", "run"], ["predict", "run", "digit0.png"]])
def test_compiled(work, quick, monkeypatch, words):
    """With `torch.compile` left out, whose own tests are elsewhere."""
    backends = []

    def left_out(backend):
        backends.append(backend)
        return compilation._one_pass

    monkeypatch.setattr(compilation, "_compiled", left_out)
    plain, compiled = (
        json.loads(quick(*words, "--estimator", "mean", "--json", *more).stdout)
        for more in ([], ["--compile"])
    )
    assert backends == [True]
    assert plain | {"seconds": 0} == compiled | {"seconds": 0}


def test_as_many_draws_as_needed(work, quick):
    found = json.loads(quick("evaluate", "run", "--num-samples", "auto", "--json").stdout)
    assert found["num_samples"] in (30, 60, 120, 240, 480, 960)
    words = ["predict", "run", "digit0.png", "--num-samples", "auto", "--json"]
    assert quick(*words).stdout == quick(*words).stdout
    assert "whole number or auto" in quick("evaluate", "run", "--num-samples", "all", code=2).stderr
    train = ["train", "--data", "digits", "--model", "mlp", "--num-samples", "auto", "--out", "no"]
    assert "num-samples must be" in quick(*train, code=2).stderr


def test_evaluate_on_other_classes_points_to_ood(work, quick):
    done = quick("evaluate", "run", "--data", "photo-patches", code=1)
    assert "--ood photo-patches" in done.stderr


def test_predict_images(work, quick):
    words = ["predict", "run", "digit0.png", "digit1.png", "--csv", "out.csv"]
    table = quick(*words).stdout
    assert "digit0.png" in table
    rows = json.loads(quick(*words, "--json").stdout)["predictions"]
    assert [row["input"] for row in rows] == ["digit0.png", "digit1.png"]
    for row in rows:
        assert row["entropy"] == pytest.approx(row["aleatoric"] + row["epistemic"], rel=0.05)
        assert row["sure"] == (row["probability"] >= 0.9)
        assert bool(row["why_not"]) == (not row["sure"])
    with open(work / "out.csv") as file:
        stored = list(csv.DictReader(file))
    assert [row["class"] for row in stored] == [row["class"] for row in rows]
    model = pb.load(work / "run" / "model.pocket")
    x, _ = open_dataset("digits", "test").batch([0, 1])
    want = pb.predict(model, x, generator=torch.Generator().manual_seed(0))
    assert rows[0]["probability"] == pytest.approx(float(want.confidence[0]), abs=1e-6)


def test_pictures_of_other_proportions_are_cut_and_said_once(work, quick, monkeypatch):
    monkeypatch.setattr("pocketbayes.commands.predict._CHUNK", 1)
    digit = np.asarray(Image.open(work / "digit0.png"))
    for name in ("wide0.png", "wide1.png"):
        Image.fromarray(np.pad(digit, ((0, 0), (4, 4)))).save(work / name)
    done = quick("predict", "run", "digit0.png", "wide0.png", "wide1.png", "--json")
    assert done.stderr.count("note:") == 1
    assert "2 of 3 pictures" in done.stderr
    assert "cut to their middle, wide0.png among them" in done.stderr
    by_mean = ["--estimator", "mean", "--json"]
    rows = json.loads(quick("predict", "run", "digit0.png", "wide0.png", *by_mean).stdout)
    one, two = (row["probability"] for row in rows["predictions"])
    assert one == pytest.approx(two, abs=1e-6)


def test_models_from_before_cutting_are_known_again(work, quick):
    """A parent whose file says nothing of other proportions was prepared alike."""
    model = pb.load(work / "run" / "model.pocket")
    facts = dict(describe(model).preprocess)
    assert facts.pop("resize") == "crop"
    update_description(model, preprocess=facts)
    pb.save(model, work / "old.pocket")
    words = ["train", "--data", "digits", "--model", "mlp", *TINY]
    quick(*words, "--parent", "old.pocket", "--out", "from-old")
    update_description(model, preprocess=facts | {"mean": [0.1]})
    pb.save(model, work / "other.pocket")
    done = quick(*words, "--parent", "other.pocket", "--out", "from-other", code=2)
    assert "prepared otherwise" in done.stderr


def test_the_best_epoch_is_kept(work, quick):
    words = ["train", "--data", "digits", "--model", "mlp", *TINY, "--epochs", "6", "--lr", "0.1"]
    quick(*words, "--keep-best", "--patience", "4", "--out", "best")
    metrics = json.loads((work / "best" / "metrics.json").read_text())
    rows = [json.loads(row) for row in (work / "best" / "history.jsonl").read_text().splitlines()]
    best = metrics["train"]["best_epoch"]
    assert best == rows[-1]["best_epoch"] > 3  # after the warm-up
    assert metrics["train"]["nll"] == rows[best - 1]["nll"]
    held = json.loads(quick("evaluate", "best", "--split", "validation", "--json").stdout)
    assert held["nll"] == pytest.approx(metrics["validation"]["nll"], abs=1e-6)
    assert "--validation 0" in quick(*words, "--keep-best", "--validation", "0", code=2).stderr
    assert "say --keep-best" in quick(*words, "--patience", "3", code=2).stderr


def test_a_corrupt_image_is_named_and_skipped_only_on_demand(work, quick):
    done = quick("predict", "run", "digit0.png", "bad.png", code=1)
    assert "bad.png" in done.stderr
    done = quick("predict", "run", "digit0.png", "bad.png", "--skip-bad", "--json")
    assert "bad.png" in done.stderr
    assert len(json.loads(done.stdout)["predictions"]) == 1
    assert "house.csv" in quick("predict", "run", "house.csv", code=1).stderr
    assert "nowhere.png" in quick("predict", "run", "nowhere.png", code=1).stderr


def test_a_run_carries_its_network(work, quick):
    found = json.loads(quick("inspect", "run", "--json").stdout)["program"]
    assert found["inputs"] == [[1, 8, 8]]
    assert found["output"] == [10]
    assert (
        f"{found['operations']} operations, {found['bytes']} bytes"
        in quick("inspect", "run").stdout
    )


def test_inspect_by_the_installed_command(work, quick):
    installed = [Path(sys.executable).parent / "pocketbayes"]
    words = ["inspect", "run/model.pocket", "--json"]
    found = json.loads(call(*words, cwd=work, program=installed).stdout)
    text = quick("inspect", "run").stdout
    assert found["bytes"] == (work / "run" / "model.pocket").stat().st_size
    assert f"{found['bytes']:,}" in text
    assert found["class_names"] == [str(n) for n in range(10)]
    assert found["preprocess"]["shape"] == [1, 8, 8]
    (work / "torn.pocket").write_bytes((work / "run" / "model.pocket").read_bytes()[:-3])
    assert "torn.pocket" in quick("inspect", "torn.pocket", code=1).stderr


def test_a_regression_from_a_csv_speaks_in_its_own_units(work, quick):
    words = ["--data", "csv", "--file", "house.csv", "--target", "price", "--model", "mlp"]
    quick("train", *words, "--hidden", "32", "--epochs", "60", "--out", "house",
          "--batch-size", "32")  # fmt: skip
    result = json.loads(quick("evaluate", "house", "--json").stdout)
    config = yaml.safe_load((work / "house" / "config.yaml").read_text())
    assert (config["beta"], config["prior_std"]) == (None, None)  # as fit chooses
    assert 0.75 < result["coverage_90"] <= 1
    assert 8_000 < result["rmse"] < 30_000
    assert result["num_examples"] == 60
    metrics = json.loads((work / "house" / "metrics.json").read_text())
    assert 5_000 < metrics["validation"]["rmse"] < 40_000
    assert 5_000 < metrics["train"]["rmse"] < 40_000
    (work / "new.csv").write_text("town,size\nOslo,100\nRome,100\n")
    done = quick("predict", "house", "new.csv", "--json")
    oslo, rome = json.loads(done.stdout)["predictions"]
    assert oslo["value"] == pytest.approx(350_000, rel=0.15)
    assert rome["value"] < oslo["value"]
    assert oslo["low_90"] < oslo["value"] < oslo["high_90"]
    assert oslo["std"] ** 2 == pytest.approx(oslo["aleatoric"] + oslo["epistemic"], rel=1e-4)
    (work / "new.csv").write_text("town,size\nParis,100\n")
    (paris,) = json.loads(quick("predict", "house", "new.csv", "--json").stdout)["predictions"]
    assert paris["unfamiliar"] == "town=Paris"
    assert oslo["unfamiliar"] == ""


def test_config_files_and_flags(work, quick):
    (work / "run.yaml").write_text(
        "data: digits\nmodel: mlp\nepochs: 1\nhidden: [8]\nlr: 1e-2\nwidth: 0.5"
    )
    done = quick("train", "--config", "run.yaml", "--epochs", "2", "--out", "c", "--json")
    assert json.loads(done.stdout)["epochs"] == 2
    config = yaml.safe_load((work / "c" / "config.yaml").read_text())
    assert (config["epochs"], config["lr"], config["hidden"]) == (2, 0.01, [8])
    assert pb.load(work / "c" / "model.pocket").hidden1.out_features == 4
    quick("train", "--config", "c/config.yaml", "--out", "d")
    assert (work / "d" / "model.pocket").read_bytes() == (work / "c" / "model.pocket").read_bytes()
    (work / "bad.yaml").write_text("data: digits\nmodle: mlp\n")
    assert "did you mean 'model'" in quick("train", "--config", "bad.yaml", code=2).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--data", "digits", "--model", "mlp", "--epohcs", "3"], "--epochs"),
        (["train", "--data", "digits", "--model", "mlp", "--epochs", "ten"], "integer"),
        (["train", "--data", "digits"], "--model"),
        (["train", "--data", "digits", "--model", "mlp", "--members", "3"], "deep-ensemble"),
        (["train", "--data", "digits", "--model", "no.such:net"], "no.such:net"),
        (["train", "--data", "digits", "--model", "mlp", "--normalize", "imagenet"], "colour"),
        (["evaluate", "plain.safetensors", "--data", "digits"], "--model"),
        (["evaluate", "run", "--device", "gpu"], "auto, cpu, cuda"),
        (["evaluate", "run", "--split", "dev"], "test, validation, train"),
        (["evaluate", "nowhere"], "nowhere"),
        (["train", "--data", "digits", "--model", "mlp", "--epochs", "-1"], "--epochs"),
        (["train", "--data", "digits", "--model", "mlp", "--processes", "0"], "--processes"),
        (["train", "--data", "digits", "--model", "mlp", "--batch-size", "0"], "--batch-size"),
        (["train", "--data", "digits", "--model", "mlp", "--validation", "1.5"], "--validation"),
        (["train", "--data", "digits", "--model", "mlp", "--lr", "nan"], "lr must be finite"),
        (["train", "--data", "digits", "--model", "mlp", "--device", "tpu"], "auto, cpu, cuda"),
        (["train", "--data", "csv", "--model", "mlp"], "--data csv needs --file"),
        (["evaluate", "run", "--normalize", "imagenet"], "plain weights"),
        (["predict", "run"], "inputs"),
        (["fly"], "fly"),
    ],
)
def test_wrong_calls_exit_with_2(work, quick, words, message):
    assert message in quick(*words, code=2).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--data", "digits", "--model", "mlp", "--out", "run"], "--resume"),
        (["train", "--data", "digits", "--model", "mlp", "--out", "digit0.png/a"], "cannot write"),
        (["train", "--data", "mnist", "--model", "mlp", "--root", "."], "train-images-idx3-ubyte"),
        (["train", "--data", "digits", "--model", "lenet5", "--out", "x"], "12 x 12"),
        (["train", "--data", "digits", "--model", "mlp", "--method", "mc-dropout", "--out", "x"],
         "dropout=0.1"),
        (["train", "--resume", "nowhere"], "nowhere"),
        (["evaluate", "run", "--device", "cuda"], "CUDA"),
    ],
)  # fmt: skip
def test_failures_exit_with_1(work, quick, words, message):
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert message in quick(*words, code=1).stderr


PAUSING = """
import os, signal, time
from pathlib import Path
from torch import nn

if "PAUSE_AT" in os.environ:  # a job in the background would be deaf to it
    signal.signal(signal.SIGINT, signal.default_int_handler)

class Pausing(nn.Sequential):
    steps = 0

    def forward(self, x):
        self.steps += self.training
        if self.training and self.steps == int(os.environ.get("PAUSE_AT", 0)):
            Path("paused").touch()
            for _ in range(30_000):  # five minutes at most
                if Path("signalled").exists():
                    break
                time.sleep(0.01)
        return super().forward(x)

def net():
    return Pausing(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""


def test_ctrl_c_and_resume_end_where_an_unbroken_run_ends(work, quick):
    """The signal comes in the middle of step 50, in the second of three epochs."""
    (work / "pausing.py").write_text(PAUSING)
    own = ["--model", "pausing:net"]
    words = ["train", "--data", "digits", *own, "--epochs", "3", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pocketbayes", *words, "broken"],
        cwd=work, stderr=subprocess.PIPE, text=True, env=os.environ | {"PAUSE_AT": "50"},
    )  # fmt: skip
    try:
        quick(*words, "whole")
        deadline = time.monotonic() + 300
        while not (work / "paused").exists():
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        (work / "signalled").touch()
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode in (1, 130)
    assert "interrupted after step 50;" in errors
    assert "pocketbayes train --resume broken" in errors
    assert len((work / "broken" / "history.jsonl").read_text().splitlines()) == 1
    assert "not finished" in quick("evaluate", "broken", code=1).stderr
    quick("train", "--resume", "broken", *own)
    model = "model.pocket"
    assert (work / "broken" / model).read_bytes() == (work / "whole" / model).read_bytes()


def test_a_network_of_ones_own(work, quick):
    (work / "mine.py").write_text(
        "from torch import nn\n"
        "def net(input_shape, num_outputs):\n"
        "    size = input_shape[0] * input_shape[1] * input_shape[2]\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(size, num_outputs))\n"
    )
    quick(
        "train",
        "--data",
        "digits",
        "--model",
        "mine:net",
        "--epochs",
        "1",
        "--out",
        "own",
    )
    own = ["--model", "mine:net"]
    assert "say --model" in quick("evaluate", "own", code=2).stderr
    assert json.loads(quick("evaluate", "own", *own, "--json").stdout)["accuracy"] > 0.1
    assert "--model mine:net" in quick("train", "--resume", "own", code=2).stderr
    quick("train", "--resume", "own", *own)
    words = ["predict", "own/model.pocket", "digit0.png"]
    assert "say --model" in quick(*words, code=2).stderr
    quick(*words, "--model", "mine:net")


def test_what_is_wrong_with_a_network_of_ones_own_is_said(work, quick):
    (work / "odd.py").write_text(
        "from torch import nn\n"
        "def raises():\n    raise ValueError('my own mistake')\n"
        "def seven():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))\n"
    )
    words = ["train", "--data", "digits", "--epochs", "1", "--out", "odd", "--model"]
    assert "ValueError: my own mistake" in quick(*words, "odd:raises", code=1).stderr
    assert "(2, 7); this data needs (2, 10)" in quick(*words, "odd:seven", code=2).stderr
    assert "PYTHONPATH" in quick(*words, "odd:nothing", code=2).stderr


def test_a_run_finds_its_data_again_from_anywhere(work, quick, tmp_path, monkeypatch):
    words = ["--data", "csv", "--file", "house.csv", "--model", "mlp", *TINY, "--out", "far"]
    quick("train", *words)
    done = quick("evaluate", work / "far", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["num_examples"] == 60
    for split in ("train", "test"):
        for name in ("a", "b"):
            (work / "pictures" / split / name).mkdir(parents=True)
            for number in range(2):
                shutil.copy(work / f"digit{number}.png", work / "pictures" / split / name)
    words = ["--data", "imagefolder", "--root", "pictures", "--size", "8", "--model", "mlp"]
    quick("train", *words, *TINY, "--validation", "0.4", "--out", "folder")
    assert json.loads(quick("evaluate", "folder", "--json").stdout)["num_examples"] == 4
    (work / "pictures" / "train" / "a" / "note.txt").write_text("not a picture")
    rows = json.loads(quick("predict", "folder", "pictures/train/a", "--json").stdout)
    assert len(rows["predictions"]) == 2


def test_a_failed_start_leaves_no_run(work, quick):
    words = ["train", "--data", "csv", "--file", "nowhere.csv", "--model", "mlp", "--out", "failed"]
    quick(*words, code=1)
    assert "cannot read failed" in quick("predict", "failed", "digit0.png", code=1).stderr


def test_images_of_another_size_are_not_shrunk_silently(work, quick):
    rng = np.random.default_rng(0)
    for stem, array in (
        ("t10k-images-idx3-ubyte", rng.integers(0, 255, (5, 28, 28), np.uint8)),
        ("t10k-labels-idx1-ubyte", np.arange(5, dtype=np.uint8)),
    ):
        head = np.array([2048 + array.ndim, *array.shape], ">i4").tobytes()
        (work / stem).write_bytes(head + array.tobytes())
    done = quick("evaluate", "run", "--data", "mnist", "--root", ".")
    assert "[1, 28, 28] into [1, 8, 8]" in done.stderr


def test_a_run_from_elsewhere_does_not_choose_what_is_imported(work, quick):
    shutil.copytree(work / "run", work / "stranger")
    config = work / "stranger" / "config.yaml"
    config.write_text(config.read_text().replace("model: mlp", "model: os:abort"))
    quick("evaluate", "stranger")
    quick("predict", "stranger", "digit0.png")
    assert "--model os:abort" in quick("train", "--resume", "stranger", code=2).stderr


def test_a_resumed_run_keeps_what_it_was_started_with(work, quick):
    done = quick("train", "--resume", "run", "--estimator", "weight", code=2)
    assert "--estimator weight is not what run was started with (not given)" in done.stderr
    quick("train", "--resume", "run", "--device", "cpu", "--epochs", "2")


def test_the_validation_part_is_the_runs_own(work, quick):
    words = ["train", "--data", "digits", "--model", "mlp", *TINY]
    quick(*words, "--validation", "0.3", "--out", "third")
    found = json.loads(quick("evaluate", "third", "--split", "validation", "--json").stdout)
    rest = json.loads(quick("evaluate", "third", "--split", "train", "--json").stdout)
    metrics = json.loads((work / "third" / "metrics.json").read_text())
    assert found["num_examples"] == metrics["validation"]["num_examples"] == 386
    assert found["nll"] == pytest.approx(metrics["validation"]["nll"], abs=1e-6)
    assert rest["num_examples"] == 1287 - 386
    quick(*words, "--validation", "0", "--out", "none")
    words = ["evaluate", "none", "--split", "validation"]
    assert "held nothing back" in quick(*words, code=2).stderr
    words = ["evaluate", "third/model.pocket", "--data", "digits", "--split", "validation"]
    assert "--validation" in quick(*words, code=2).stderr


def test_errors_do_not_drive_the_terminal(work, quick):
    assert "\x1b" not in quick("inspect", "no\x1b[31msuch.pocket", code=1).stderr
    listed = quick("train", "--data", "cifar10", "--root", "no\x1b[31m", "--model", "mlp", code=1)
    assert "\x1b" not in listed.stderr
    assert len([line for line in listed.stderr.splitlines() if line.startswith("  /")]) > 1


def test_names_are_shown_as_they_are(work, quick):
    shutil.copy(work / "digit0.png", work / "a[bold].png")
    assert "a[bold].png" in quick("predict", "run", "a[bold].png").stdout
    model = pb.load(work / "run" / "model.pocket")
    update_description(model, class_names=tuple(f"[/b]{n}\x1b[31m" for n in range(10)))
    pb.save(model, work / "names.pocket")
    assert "\x1b" not in quick("predict", "names.pocket", "digit0.png").stdout


@pytest.mark.parametrize(
    "facts",
    [
        {"preprocess": {}},
        {"preprocess": {"kind": "image", "shape": [4096] * 3, "mean": [0.0], "std": [1.0]}},
        {"preprocess": {"kind": "table", "columns": [], "target": "x"}},
        {"class_names": ("a",)},
    ],
    ids=["empty", "huge", "table", "names"],
)
def test_a_file_that_says_nonsense_of_its_inputs_is_refused(work, quick, facts):
    model = pb.load(work / "run" / "model.pocket")
    update_description(model, **facts)
    pb.save(model, work / "odd.pocket")
    quick("predict", "odd.pocket", "digit0.png", code=1)


def test_a_whole_chunk_of_bad_pictures_does_not_lose_the_rest(work, quick, monkeypatch):
    monkeypatch.setattr("pocketbayes.commands.predict._CHUNK", 1)
    done = quick("predict", "run", "digit0.png", "bad.png", "--skip-bad", "--json")
    assert len(json.loads(done.stdout)["predictions"]) == 1
    assert "none of the inputs" in quick("predict", "run", "bad.png", "--skip-bad", code=1).stderr


@pytest.mark.parametrize(
    "method", ["deterministic", "deep-ensemble", "mc-dropout", "variational-dropout"]
)
def test_baselines_from_train_to_predict(work, quick, method):
    words = ["--dropout", "0.1"] if method == "mc-dropout" else []
    words += ["--members", "2"] if method == "deep-ensemble" else []
    quick("train", "--data", "digits", "--model", "mlp", "--method", method, *TINY, *words,
         "--out", method)  # fmt: skip
    assert json.loads(quick("evaluate", method, "--json").stdout)["accuracy"] > 0.2
    quick("predict", method, "digit0.png")


@pytest.mark.filterwarnings("default")
def test_warnings_are_words_without_a_line_of_code(work, quick):
    words = ("--data", "digits", "--model", "mlp", "--method", "laplace", "--validation", "0")
    lines = quick("train", *words, "--out", "unsure").stderr.splitlines()
    told = [line for line in lines if line.startswith("warning: without a val_loader")]
    assert len(told) == 1
    assert not any(".py" in line or "UserWarning" in line for line in lines)


def test_features_of_a_table_are_reported_by_name(work, quick):
    rows = ["size,age,noise"]
    rng = np.random.default_rng(0)
    for size, age, noise in rng.standard_normal((200, 3)):
        rows.append(f"{size},{age},{noise}")
    lines = [f"{row},{3 * float(row.split(',')[0])}" for row in rows[1:]]
    (work / "rooms.csv").write_text("\n".join(["size,age,noise,price", *lines]) + "\n")
    quick("train", "--data", "csv", "--file", "rooms.csv", "--target", "price", "--model", "mlp",
          "--hidden", "4", "--method", "spike-slab", "--granularity", "input", "--layers", "first",
          "--epochs", "60", "--beta", "1", "--lr", "0.02", "--out", "rooms")  # fmt: skip
    report = json.loads(quick("features", "rooms", "--plot", "f/f.png", "--json").stdout)
    assert set(report["features"]) == {"size", "age", "noise"}
    assert next(iter(report["features"])) == "size"
    assert "size" in report["chosen"]
    assert (work / "f" / "f.png").read_bytes()[1:4] == b"PNG"
    assert quick("features", "rooms").stdout.startswith("size")
    assert "no gates" in quick("features", "run", code=1).stderr
    assert "no run or file" in quick("features", "nothing", code=2).stderr


def test_sharing_goes_on_from_a_run_and_figures_show_it(work, quick):
    words = ["train", "--data", "digits", "--model", "mlp", "--hidden", "16", "--epochs", "1",
             "--method", "sharing", "--components", "20"]  # fmt: skip
    quick(*words, "--parent", "run", "--out", "shared")
    assert json.loads(quick("evaluate", "shared", "--json").stdout)["accuracy"] > 0.2
    before, shared = (pb.inspect(work / run / "model.pocket") for run in ("run", "shared"))
    parts = [{s.name: s.bytes for s in size.sections} for size in (before, shared)]
    assert parts[1]["shared/label/uint8"] < parts[0]["gaussian/mean"]
    after = shared.bytes
    again = quick(*words, "--parent", work / "run" / "model.pocket", "--out", "same", "--json")
    assert json.loads(again.stdout)["bytes"] == after
    assert (work / "same" / "model.pocket").read_bytes() == (
        work / "shared" / "model.pocket"
    ).read_bytes()
    drawn = json.loads(quick("figures", "shared", "--out", "pictures", "--json").stdout)["figures"]
    assert [Path(name).name for name in drawn] == ["plane.png", "densities.png", "confidence.png"]
    assert all((work / name).exists() for name in drawn)
    alone = quick("figures", "run/model.pocket", "--components", "5", "--out", "alone")
    assert "confidence" not in alone.stdout


def test_laplace_trains_nothing_and_is_measured_all_the_same(work, quick):
    told = quick("train", "--parent", "run", "--method", "laplace", "--out", "laplace", "--json")
    report = json.loads(told.stdout)
    assert (report["epochs"], report["train"]) == (0, {})
    assert (report["subset"], report["prior_by"]) == ("last-layer", "validation")
    assert "lr" not in report
    assert report["validation"]["nll"] > 0
    shown = quick("inspect", "laplace").stdout
    assert "Laplace, diagonal, of the last layer" in shown
    assert f"chosen by validation, std {report['prior_std'][0]:.3g}" in shown
    before, after = (pb.load(work / run / "model.pocket") for run in ("run", "laplace"))
    kept = dict(pb.named_posteriors(before))
    for name, q in pb.named_posteriors(after):
        torch.testing.assert_close(q.mean, kept[name].mean, atol=1e-2, rtol=0)
    words = ["--data", "digits", "--model", "mlp", *TINY, "--method", "laplace", "--out", "raw"]
    assert "trains nothing, and this network is not trained" in quick("train", *words).stderr


def test_a_parent_brings_its_data_and_network(work, quick):
    short = ["--epochs", "0", "--no-augment", "--device", "cpu"]
    table = ["--data", "csv", "--file", "house.csv", "--target", "size", "--validation", "0.25"]
    quick("train", *table, "--model", "mlp", "--hidden", "14", "--width", "0.5", *short,
          "--out", "elder")  # fmt: skip
    quick("train", "--parent", "elder", "--lr", "0.1", *short, "--out", "younger")
    first, second = (yaml.safe_load((work / n / "config.yaml").read_text())
                     for n in ("elder", "younger"))  # fmt: skip
    for name in ("data", "file", "target", "validation", "model", "hidden", "width"):
        assert second[name] == first[name], name
    assert second["lr"] == 0.1
    assert second["augment"] is False
    words = ["train", "--parent", "elder", *short, "--out", "youngest"]
    assert "prepared otherwise" in quick(*words, "--validation", "0.5", code=2).stderr
    assert "hidden1.weight" in quick(*words, "--width", "1", code=1).stderr
    quick(*words, "--data", "digits", code=1)
    assert "say --data" in quick("train", "--parent", "elder/model.pocket", code=2).stderr


def test_cutout_is_for_training_images_alone(work, quick, monkeypatch):
    from pocketbayes.commands import train

    short = ["--model", "mlp", "--epochs", "0", "--device", "cpu"]
    seen, make = [], train.MemoryLoader

    def watched(data, *rest, **options):
        seen.append(data)
        return make(data, *rest, **options)

    monkeypatch.setattr(train, "MemoryLoader", watched)
    quick("train", "--data", "digits", *short, "--cutout", "--out", "cut")
    assert yaml.safe_load((work / "cut" / "config.yaml").read_text())["cutout"] is True
    assert "cutout" in seen[0].augmentation
    words = ["train", "--data", "digits", *short, "--cutout", "--no-augment"]
    assert "--no-augment forbids it" in quick(*words, code=2).stderr
    table = ["train", "--data", "csv", "--file", "house.csv", "--target", "size", *short]
    assert "--cutout is for images" in quick(*table, "--cutout", code=2).stderr


def test_an_interrupted_pretraining_is_resumed_not_begun_anew(work, quick, monkeypatch):
    from pocketbayes.methods import sharing

    def stop(*_):
        raise pb.PocketBayesError("stopped here")

    words = ["train", "--data", "digits", "--model", "mlp", "--hidden", "16", "--epochs", "1",
             "--method", "sharing", "--pretrain-epochs", "2", "--out", "pre"]  # fmt: skip
    with monkeypatch.context() as broken:
        broken.setattr(sharing.Sharing, "begin", stop)
        assert "stopped here" in quick(*words, code=1).stderr
    seen = quick("train", "--resume", "pre").stderr
    assert "epoch 1/2" not in seen
    assert len((work / "pre" / "history.jsonl").read_text().splitlines()) == 3


def test_a_start_that_does_not_fit_is_refused(work, quick):
    words = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--out", "nowhere"]
    quick(*words, "--hidden", "17", "--parent", "run", code=1)
    model = pb.load(work / "run" / "model.pocket")
    shifted = describe(model).preprocess | {"mean": [0.123]}
    update_description(model, preprocess=shifted)
    pb.save(model, work / "shifted.pocket")
    other = [*words, "--hidden", "16", "--parent", "shifted.pocket"]
    assert "prepared otherwise" in quick(*other, code=2).stderr
    both = [*words, "--parent", "run", "--weights", "w.safetensors"]
    assert "give one" in quick(*both, code=2).stderr
    for wrong in (["--prior-std", "0.5"], ["--bias"]):
        assert "give one" in quick(*words, "--parent", "run", *wrong, code=2).stderr
    assert "no run or file" in quick("figures", "nothing", code=2).stderr


def test_several_processes(work, quick):
    quick("train", "--data", "digits", "--model", "mlp", *TINY, "--processes", "2", "--out", "two",
          "--batch-size", "16")  # fmt: skip
    steps = [
        json.loads((work / run / "history.jsonl").read_text().splitlines()[-1])["step"]
        for run in ("two", "run")
    ]
    assert steps[0] == steps[1]
    assert json.loads(quick("evaluate", "two", "--json").stdout)["accuracy"] > 0.2


def test_the_demo(work, quick):
    """In less than 40 s of one core, whatever else the machine does meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    before = time.process_time()
    try:
        done = quick("demo", "--out", "demo", "--epochs", "2")
    finally:
        torch.set_num_threads(threads)
    assert time.process_time() - before < 40
    text = done.stdout
    assert "epoch" not in done.stderr
    table = json.loads((work / "demo" / "table.json").read_text())
    assert [row["method"] for row in table["rows"]] == list(SHOWN)
    for row in table["rows"]:
        path = work / "demo" / f"{row['method']}.pocket"
        assert row["file_bytes"] == path.stat().st_size
        assert row["accuracy"] > 0.6
        assert f"{row['file_bytes']:,}" in text
    assert [row["passes"] for row in table["rows"]] == [1, 30, 30, 1]
    sizes = {row["method"]: row["file_bytes"] for row in table["rows"]}
    assert sizes["pruned"] < 0.55 * sizes["mean-field"]
    assert sizes["pruned"] < sizes["one-pass"] < sizes["pruned"] + 8000
    assert sizes["mean-field"] < 1.1 * sizes["deterministic"]  # float16, and steps of the own std
    with Image.open(work / "demo" / "demo.png") as picture:
        assert picture.width > 800
    assert re.search(r"refuses to judge digit-3.png: \d+% sure.*% (aleatoric|epistemic)", text)
    assert f"one-pass.pocket, {sizes['one-pass']:,} bytes" in text
    pictures = [work / "demo" / f"digit-{n}.png" for n in (1, 2, 3)]
    shown = re.findall(r"written as (\d)", text)
    rows = json.loads(quick("predict", "demo/one-pass.pocket", *pictures, "--json").stdout)
    assert [row["class"] for row in rows["predictions"]][:2] == shown[:2]
    assert rows["predictions"][2]["sure"] is False


def test_the_demo_shifts_digits_by_a_pixel():
    images = torch.arange(18, dtype=torch.uint8).view(2, 1, 3, 3) + 1
    preprocess = {"kind": "image", "shape": [1, 3, 3], "mean": [0.0], "std": [1.0]}
    found = with_shifts(ImageSet(images, torch.tensor([4, 7]), preprocess))
    assert found.labels.tolist() == [4, 7] * 5
    same, down, up, right, left = found.images.split(2)
    assert same.equal(images)
    for moved, shift, axis, edge in ((down, 1, 2, 0), (up, -1, 2, -1), (right, 1, 3, 0),
                                     (left, -1, 3, -1)):  # fmt: skip
        rolled = images.roll(shift, axis)
        rolled.select(axis, edge).zero_()
        assert moved.equal(rolled)


@pytest.mark.skipif("POCKETBAYES_DATA" not in os.environ, reason="needs $POCKETBAYES_DATA")
@pytest.mark.parametrize(("name", "accuracy"), [("resnet20", 0.9173), ("resnet32", 0.9263)])
def test_published_weights_reach_their_published_accuracy(work, quick, name, accuracy):
    weights = Path(os.environ["POCKETBAYES_DATA"], "weights", f"cifar10_{name}.safetensors")
    if not weights.exists():
        pytest.skip(f"needs {weights}")
    words = ["evaluate", weights, "--model", name, "--data", "cifar10", "--normalize", "imagenet"]
    assert json.loads(quick(*words, "--json").stdout)["accuracy"] == accuracy
    if name == "resnet20":  # and through a file that knows how its inputs are prepared
        quick("train", "--data", "cifar10", "--model", name, "--weights", weights, "--out", name,
              "--normalize", "imagenet", "--method", "deterministic", "--epochs", "0",
              "--validation", "0")  # fmt: skip
        found = quick("evaluate", f"{name}/model.pocket", "--data", "cifar10", "--json").stdout
        assert json.loads(found)["accuracy"] == accuracy
