"""`pocketbayes compress`, end to end: sizes on disk, what it prints, and what it refuses."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest
import yaml

import pocketbayes as pb
from pocketbayes import cli
from pocketbayes.commands import compress, opening, train
from pocketbayes.compression import chain, traits
from pocketbayes.layers import Ensemble, describe

FAST = ["--num-samples", "2", "--device", "cpu"]


def run_here(*words):
    """`pocketbayes WORDS` in this process; returns its exit code."""
    before = sys.argv
    sys.argv = ["pocketbayes", *map(str, words)]
    try:
        cli.main()
    except SystemExit as stopped:
        return stopped.code or 0
    finally:
        sys.argv = before


def trained(folder, name, *words):
    base = ["train", "--data", "digits", "--model", "mlp", "--hidden", "16", "--epochs", "2"]
    fast = ["--batch-size", "128", "--num-samples", "2", "--device", "cpu"]
    assert run_here(*base, *words, "--out", folder / name, *fast) == 0
    return folder / name


@pytest.fixture(scope="module", autouse=True)
def _little_work():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(chain, "_SECONDS", 0.0)
        patched.setattr(traits, "TOLERANCES", (0.01, 0.3, 1.0))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"), "run", "--lr", "0.05")


SMALL = ["--target-bytes", "2200", "--epochs", "1", *FAST]


@pytest.fixture(scope="module")
def small(run, tmp_path_factory):
    """One compressed run for all to look at, with what was printed."""
    new = tmp_path_factory.mktemp("small") / "new"
    words = [run, *SMALL, "--ood", "photo-patches", "--out", new]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        assert run_here("compress", *words) == 0
    report = json.loads((new / "metrics.json").read_text())["compression"]
    return SimpleNamespace(folder=new, report=report, stdout=out.getvalue(), stderr=err.getvalue())


@pytest.fixture
def compressed(capfd):
    """Compresses and returns what was printed, after checking the exit code."""

    def call(target, *words, code=0, fast=FAST):
        capfd.readouterr()
        found = run_here("compress", target, *words, *fast)
        out, err = capfd.readouterr()
        assert found == code, out + err
        assert "Traceback" not in err
        if code:
            assert not out.strip()
        return subprocess.CompletedProcess(words, found, out, err)

    return call


@pytest.mark.parametrize(("size", "most"), [("2600", 2600), ("2KiB", 2048)])
def test_the_file_on_disk_fits(run, compressed, tmp_path, size, most):
    words = ["--target-bytes", size, "--epochs", "0", "--out", tmp_path / "new", "--json"]
    report = json.loads(compressed(run, *words).stdout)
    real = (tmp_path / "new" / "model.pocket").stat().st_size
    assert 0.8 * most < real <= report["target_bytes"] == most
    assert report["after"]["bytes"] == real


def test_the_report_tells_what_was_tried(run, small):
    report = small.report
    real = (small.folder / "model.pocket").stat().st_size
    assert 0.8 * 2200 < real <= report["target_bytes"] == 2200
    assert report["after"]["bytes"] == real
    assert report["before"]["bytes"] == (run / "model.pocket").stat().st_size
    assert [c["chosen"] for c in report["candidates"]].count(True) == 1
    fitting = [c for c in report["candidates"] if c["bytes"] <= 2200]
    chosen = next(c for c in fitting if c["chosen"])
    assert chosen["nll"] == min(c["nll"] for c in fitting) == report["after"]["nll"]
    assert {c["epochs"] for c in report["candidates"]} == {0, 1}
    assert all(c["multiplications"] > 0 for c in report["candidates"])


def test_a_new_run_works_like_any_other(run, small, compressed, tmp_path, capfd):
    new, report = small.folder, small.report
    for word in ("before", "after", "accuracy", "auroc entropy", f"{report['after']['bytes']:,}"):
        assert word in small.stdout
    assert "pruned to" in small.stderr
    names = {path.name for path in new.iterdir()}
    assert {"config.yaml", "model.pocket", "metrics.json"} <= names
    assert {path.name for path in new.parent.iterdir()} == {"new"}
    config = yaml.safe_load((new / "config.yaml").read_text())
    assert config["parent"] == str(run)
    assert config["data"] == "digits"
    words = ["evaluate", new, "--split", "validation", "--num-samples", "2", "--json"]
    assert run_here(*words) == 0
    again = json.loads(capfd.readouterr().out)
    assert again["nll"] == pytest.approx(report["after"]["nll"], abs=1e-6)
    assert again["accuracy"] == report["after"]["accuracy"]
    words = ["--target-bytes", "2100", "--epochs", "0", "--out", tmp_path / "newer"]
    compressed(new, *words)
    assert (tmp_path / "newer" / "model.pocket").stat().st_size <= 2100


def test_the_same_seed_gives_the_same_bytes(run, small, compressed, tmp_path):
    compressed(run, *SMALL, "--out", tmp_path / "again", fast=[])
    again, before = (folder / "model.pocket" for folder in (tmp_path / "again", small.folder))
    assert again.read_bytes() == before.read_bytes()


def test_a_compressed_run_cannot_be_resumed_and_lost(small, capfd):
    before = (small.folder / "model.pocket").read_bytes()
    assert run_here("train", "--resume", small.folder) == 1
    assert f"--parent {small.folder}" in capfd.readouterr().err
    assert (small.folder / "model.pocket").read_bytes() == before


def test_a_file_that_fits_already_is_only_stored_anew(run, compressed, tmp_path):
    words = ["--target-bytes", "1MB", "--out", tmp_path / "new", "--json"]
    report = json.loads(compressed(run, *words).stdout)
    assert report["fitted_already"]
    assert report["target_bytes"] == 1_000_000
    assert report["after"]["nll"] <= report["before"]["nll"] + 0.01
    assert {c["density"] for c in report["candidates"]} == {1.0}
    assert report["after_one_pass"]["bytes"] == report["after"]["bytes"]  # a head is taught


def test_without_a_size_the_smallest_that_loses_little(run, compressed, tmp_path):
    words = ["--max-drop", "0.05", "--epochs", "1", "--no-one-pass", "--json"]
    report = json.loads(compressed(run, *words, "--out", tmp_path / "new").stdout)
    assert report["target_bytes"] is None
    least = report["before"]["accuracy"] - 0.05
    most = report["before"]["nll"] + 0.2
    good = [c for c in report["candidates"] if c["accuracy"] >= least and c["nll"] <= most]
    assert report["after"]["bytes"] <= 1.02 * min(c["bytes"] for c in good)
    assert "after_one_pass" not in report


def test_an_unreachable_size_says_how_small_it_gets(run, compressed, tmp_path):
    done = compressed(run, "--target-bytes", "300", "--out", tmp_path / "new", code=1)
    last = done.stderr.strip().splitlines()[-1]
    assert "300 bytes" in last
    assert "smallest" in last
    smallest = int(last.partition("smallest file was ")[2].split()[0].strip(";").replace(",", ""))
    assert 300 < smallest < 3000
    assert not list(tmp_path.iterdir())


def test_the_test_set_is_not_opened(run, compressed, tmp_path, monkeypatch):
    opened = []

    def spy(name, split, *rest, **options):
        opened.append((name, split))
        return real(name, split, *rest, **options)

    real = opening.open_dataset
    for module in (opening, train, compress):
        if hasattr(module, "open_dataset"):
            monkeypatch.setattr(module, "open_dataset", spy)
    words = ["--target-bytes", "3000", "--epochs", "0", "--out", tmp_path / "new"]
    compressed(run, *words, "--ood", "photo-patches")
    assert opened == [("digits", "train"), ("photo-patches", "test")]


def test_choice_and_training_see_different_examples(run, compressed, tmp_path, monkeypatch):
    seen = []

    def look(model, *loaders, **options):
        seen.extend(loader.dataset for loader in loaders)
        raise pb.PocketBayesError("seen enough")

    monkeypatch.setattr(compress, "compress", look)
    compressed(run, "--target-bytes", "1MB", "--out", tmp_path / "new", code=1)
    train_part, held_back = ({x.tobytes() for x in part.images.numpy()} for part in seen)
    assert len(seen[1]) == 129
    assert not train_part & held_back


@pytest.mark.parametrize("moment", ["candidate", "sparser"])
def test_an_interrupted_command_leaves_nothing(run, compressed, tmp_path, monkeypatch, moment):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(chain.Chain, moment, stop)
    compressed(run, "--target-bytes", "2500", "--out", tmp_path / "new", code=130)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["nosuch", "mnist", "csv"])
def test_unknown_data_is_missed_at_once(run, compressed, tmp_path, monkeypatch, name):
    monkeypatch.delenv("POCKETBAYES_DATA", raising=False)
    words = ["--target-bytes", "3000", "--ood", name, "--out", tmp_path / "new"]
    done = compressed(run, *words, code=1)
    assert name in done.stderr
    assert "as it is" not in done.stderr


@pytest.mark.parametrize("there", [True, False])
def test_out_may_be_a_link(run, compressed, tmp_path, there):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    if there:
        (tmp_path / "real").mkdir()
    compressed(run, "--target-bytes", "3kB", "--epochs", "0", "--out", tmp_path / "link")
    assert (tmp_path / "real" / "model.pocket").stat().st_size <= 3000
    assert {path.name for path in tmp_path.iterdir()} == {"link", "real"}


def test_classes_that_have_changed_places_are_noticed(compressed, tmp_path):
    rows = [f"{x / 40},{'up' if x % 3 else 'down'}" for x in range(40)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["x,way", *rows]))
    words = ["--data", "csv", "--file", table, "--model", "mlp", "--hidden", "4", "--epochs", "1"]
    assert run_here("train", *words, "--out", tmp_path / "run", "--device", "cpu") == 0
    table.write_text(table.read_text().replace("up", "at"))
    done = compressed(tmp_path / "run", "--target-bytes", "2kB", code=1)
    assert "classes were down, up, and are at, down" in done.stderr


def test_a_training_that_breaks_leaves_nothing(run, compressed, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(compress, "write_compressed_run", fail)
    words = ["--target-bytes", "1MB", "--epochs", "0", "--out", tmp_path / "new"]
    assert "disk is full" in compressed(run, *words, code=1).stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--max-drop", "-1"], 2, "--max-drop"),
        (["--max-multiplications", "0"], 2, "--max-multiplications"),
        (["--target-bytes", "lots"], 2, "500kB"),
        (["--target-bytes", "0"], 2, "at least one byte"),
        (["--target-bytes", "3kB", "--epochs", "-1"], 2, "--epochs"),
        (["--target-bytes", "3kB", "--device", "moon"], 2, "device"),
        (["--target-bytes", "3kB", "--num-samples", "0"], 2, "num-samples"),
        (["--target-bytes", "3kB", "--root", "x", "--seed", "-3"], 2, "--seed"),
        (["--target-bytes", "3kB", "--colour", "red"], 2, "colour"),
        (["--target-bytes", "3kB", "--out", "TAKEN"], 1, "choose another --out"),
    ],
)
def test_wrong_calls(run, compressed, words, code, message):
    words = [str(run) if word == "TAKEN" else word for word in words]
    assert message in compressed(run, *words, code=code, fast=[]).stderr


def test_what_is_no_run_is_refused(run, compressed, tmp_path):
    words = ["--target-bytes", "3kB"]
    assert "not a run" in compressed(run / "model.pocket", *words, code=2).stderr
    assert "not a run" in compressed(tmp_path, *words, code=1).stderr
    assert "not a run" in compressed(tmp_path / "nowhere", *words, code=2).stderr
    blind = tmp_path / "blind"
    blind.mkdir()
    config = yaml.safe_load((run / "config.yaml").read_text()) | {"validation": 0.0}
    (blind / "config.yaml").write_text(yaml.safe_dump(config))
    assert "held nothing back" in compressed(blind, *words, code=2).stderr
    (blind / "config.yaml").write_text(yaml.safe_dump(config | {"validation": 0.1}))
    assert "not finished" in compressed(blind, *words, code=1).stderr


def test_a_config_file_says_the_same(run, compressed, tmp_path):
    lines = f"target-bytes: 3000\nepochs: 0\nout: {tmp_path / 'new'}\n"
    (tmp_path / "c.yaml").write_text(lines)
    compressed(run, "--config", tmp_path / "c.yaml")
    assert (tmp_path / "new" / "model.pocket").stat().st_size <= 3000


@pytest.mark.parametrize(
    "words",
    [
        ["--method", "deterministic", "--width", "1.5"],
        ["--method", "mc-dropout", "--dropout", "0.1"],
        ["--method", "deep-ensemble", "--members", "2"],
        ["--method", "subspace", "--density", "0.5"],
        ["--method", "spike-slab"],
        ["--method", "variational-dropout"],
        ["--method", "sharing", "--objective", "rate_distortion"],
    ],
    ids=lambda words: words[1],
)
def test_every_family(words, compressed, tmp_path):
    run = trained(tmp_path, "run", *words)
    size = (run / "model.pocket").stat().st_size
    target = 2600 if size > 3000 else round(0.97 * size)
    if words[1] == "deep-ensemble":
        target = round(0.7 * size)
    asked = ["--target-bytes", target, "--epochs", "1", "--json"]
    done = compressed(run, *asked)
    report = json.loads(done.stdout)
    new = tmp_path / "run-compressed"
    assert (new / "model.pocket").stat().st_size <= target
    assert report["run"] == str(new)
    model = pb.load(new / "model.pocket")
    assert isinstance(model, Ensemble) == (words[1] == "deep-ensemble")
    assert describe(model).keeps_dropout == (words[1] == "mc-dropout")


def note_after(before, after, is_ensemble, capfd):
    ends = (SimpleNamespace(record=SimpleNamespace(nll=nll)) for nll in (before, after))
    found = SimpleNamespace(**dict(zip(("before", "chosen"), ends, strict=True)))
    compress._say_end("out", compress.CompressOptions(), is_ensemble, found)
    return capfd.readouterr().err


@pytest.mark.parametrize("is_ensemble", [True, False])
def test_more_epochs_are_advised_only_where_they_help(is_ensemble, capfd):
    note = note_after(0.1, 0.5, is_ensemble, capfd)
    assert "a larger --target-bytes" in note
    assert ("more --epochs" in note) != is_ensemble
    assert "note" not in note_after(0.1, 0.15, is_ensemble, capfd)


def test_values_in_their_own_units(compressed, tmp_path):
    words = ["--data", "friedman", "--features", "8", "--rows", "400", "--model", "mlp"]
    words += ["--hidden", "16", "--epochs", "3", "--num-samples", "2", "--device", "cpu"]
    assert run_here("train", *words, "--out", tmp_path / "run") == 0
    words = ["--target-bytes", "2250", "--epochs", "1"]
    assert "coverage 90" in compressed(tmp_path / "run", *words).stdout
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["validation"]
    new = json.loads((tmp_path / "run-compressed" / "metrics.json").read_text())
    before, after = (new["compression"][name] for name in ("before", "after"))
    for name in ("rmse", "nll", "coverage_90"):
        assert before[name] == pytest.approx(metrics[name], abs=1e-6)
        assert new["validation"][name] == after[name]


def test_help_has_examples(capfd):
    assert run_here("compress", "--help") == 0
    text = capfd.readouterr().out
    assert "pocketbayes compress runs/" in text
    assert "--target-bytes" in text
