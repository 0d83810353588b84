"""`pocketbayes compress`, end to end: sizes on disk, what it prints, and what it refuses."""

import io
import json
import math
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest
import torch
import yaml

import pocketbayes as pb
from pocketbayes import cli
from pocketbayes.commands import candidates, compress, opening, train
from pocketbayes.commands.candidates import Candidate, CandidateMaker, TooLarge, traits_of
from pocketbayes.compression import search as compression
from pocketbayes.compression.search import Recipe
from pocketbayes.layers.description import add_noise_parameter, noise_log_std

FAST = ["--components", "8", "--num-samples", "2", "--device", "cpu"]


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
def _fewer_recipes():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compression, "_PARTS_KEPT", ())
        patched.setattr(compression, "_TOLERANCES", (0.03,))
        yield


@pytest.fixture
def one_recipe(monkeypatch):
    """As little work as can be, where what is tried does not matter."""
    tried = [Recipe(), Recipe(0.03, density=0.2)]
    monkeypatch.setattr(compress, "recipes_for", lambda *_: tried)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs"), "run", "--lr", "0.05")


SMALL = ["--target-bytes", "2400", "--epochs", "1", *FAST]


@pytest.fixture(scope="module")
def small(run, tmp_path_factory):
    """One compressed run for all to look at, with what was printed."""
    new = tmp_path_factory.mktemp("small") / "new"
    words = [run, *SMALL, "--ood", "photo-patches", "--out", new]
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(compression, "_PARTS_KEPT", (0.5,))
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


@pytest.mark.parametrize(("size", "most"), [("2600", 2600), ("3KiB", 3072)])
def test_the_file_on_disk_fits(run, compressed, tmp_path, size, most):
    words = ["--target-bytes", size, "--epochs", "0", "--out", tmp_path / "new", "--json"]
    report = json.loads(compressed(run, *words).stdout)
    real = (tmp_path / "new" / "model.pocket").stat().st_size
    assert 0.85 * most < real <= report["target_bytes"] == most
    assert report["after"]["bytes"] == real


def test_the_report_tells_what_was_tried(run, small):
    report = small.report
    real = (small.folder / "model.pocket").stat().st_size
    assert 0.85 * 2400 < real <= report["target_bytes"] == 2400
    assert report["after"]["bytes"] == real
    assert report["before"]["bytes"] == (run / "model.pocket").stat().st_size
    assert [c["chosen"] for c in report["candidates"]].count(True) == 1
    assert all((c["bytes"] <= 2400) == c["fits"] for c in report["candidates"])
    fitting = [c for c in report["candidates"] if c["fits"]]
    chosen = next(c for c in fitting if c["chosen"])
    assert chosen["nll"] == min(c["nll"] for c in fitting) == report["after"]["nll"]
    assert sum(c["epochs"] == 1 for c in fitting) == 2
    assert report["candidates"][len(fitting)]["what"] == "as it is"


def test_a_new_run_works_like_any_other(run, small, compressed, tmp_path, capfd):
    new, report = small.folder, small.report
    for word in ("before", "after", "accuracy", "auroc entropy", f"{report['after']['bytes']:,}"):
        assert word in small.stdout
    assert "shared" in small.stderr
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
    words = ["--target-bytes", "2800", "--epochs", "0", "--out", tmp_path / "newer"]
    compressed(new, *words)
    assert (tmp_path / "newer" / "model.pocket").stat().st_size <= 2800


def test_the_same_seed_gives_the_same_bytes(run, small, compressed, tmp_path, monkeypatch):
    monkeypatch.setattr(compression, "_PARTS_KEPT", (0.5,))
    compressed(run, *SMALL, "--out", tmp_path / "again", fast=[])
    again, before = (folder / "model.pocket" for folder in (tmp_path / "again", small.folder))
    assert again.read_bytes() == before.read_bytes()


def test_a_compressed_run_cannot_be_resumed_and_lost(small, capfd):
    before = (small.folder / "model.pocket").read_bytes()
    assert run_here("train", "--resume", small.folder) == 1
    assert f"--parent {small.folder}" in capfd.readouterr().err
    assert (small.folder / "model.pocket").read_bytes() == before


def test_a_file_that_fits_already_may_stay_and_never_grows(run, compressed, tmp_path):
    words = ["--target-bytes", "1MB", "--epochs", "0", "--out", tmp_path / "new", "--json"]
    done = compressed(run, *words)
    report = json.loads(done.stdout)
    assert report["fitted_already"]
    assert report["target_bytes"] == 1_000_000
    assert "fits already" in done.stderr
    assert report["after"]["nll"] <= report["before"]["nll"]
    assert report["candidates"][0]["what"] == "as it is"
    fitting = [c for c in report["candidates"] if c["fits"]]
    assert len(fitting) > 2
    assert all(c["bytes"] <= report["before"]["bytes"] for c in fitting)


def test_an_unreachable_size_says_how_small_it_gets(run, compressed, tmp_path):
    done = compressed(run, "--target-bytes", "300", "--out", tmp_path / "new", code=1)
    last = done.stderr.strip().splitlines()[-1]
    assert "300 bytes" in last
    assert "smallest" in last
    smallest = int(last.partition("smallest file was ")[2].split()[0].replace(",", ""))
    assert 300 < smallest < 3000
    assert "--target-bytes" in last
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
    shops = []

    def look(shop):
        shops.append(shop)
        raise pb.PocketBayesError("seen enough")

    monkeypatch.setattr(CandidateMaker, "as_stored", look)
    compressed(run, "--target-bytes", "1MB", "--out", tmp_path / "new", code=1)
    train_part, held_back = ({x.tobytes() for x in part.images.numpy()} for part in
                             (shops[0].train, shops[0].validation))  # fmt: skip
    assert len(shops[0].validation) == 129
    assert not train_part & held_back


@pytest.mark.parametrize("moment", ["fitted", "finished"])
def test_an_interrupted_command_leaves_nothing(run, compressed, tmp_path, monkeypatch, moment):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(CandidateMaker, moment, stop)
    compressed(run, "--target-bytes", "3000", "--out", tmp_path / "new", code=130)
    assert not list(tmp_path.iterdir())


def test_a_finalist_that_cannot_be_trained_is_left_out(run, compressed, tmp_path):
    words = ["--target-bytes", "3000", "--epochs", "1", "--lr", "1e30", "--out", tmp_path / "new"]
    done = compressed(run, *words, "--json")
    report = json.loads(done.stdout)
    assert done.stderr.count("trained for an epoch: not possible: the loss is not finite") == 2
    assert report["after"]["bytes"] <= 3000
    assert all(math.isfinite(c["nll"]) for c in report["candidates"] if c["fits"])


class PaperShop(CandidateMaker):
    """A maker of candidates whose files have `floor` bytes and `slope` times the density."""

    def _made(self, recipe, epochs, refresh=True):
        return None, []

    def stored(self, model, recipe):
        path = self.folder / "file"
        path.write_bytes(bytes(self.floor + round(self.slope * recipe.density)))
        return path

    def measured(self, path, outside=None):
        return None


@pytest.mark.parametrize(("floor", "fits"), [(1000, True), (5000, False)])
def test_a_file_that_has_grown_is_turned_back_until_it_fits_or_as_far_as_can_be(
    tmp_path, floor, fits
):
    source = tmp_path / "source"
    source.write_bytes(
        bytes(60_000)
    )  # inclusion variables make it far larger than what density explains
    traits = compression.Traits(True, False, False, True, density=0.2)
    shop = PaperShop(None, source, None, None, None, tmp_path, 4500, traits, 0.003)
    vars(shop).update(floor=floor, slope=50_000)
    recipe = Recipe(0.03, density=0.08, knob="density")
    outcome = shop.finished(recipe, epochs=1)
    assert isinstance(outcome, Candidate if fits else TooLarge)
    assert outcome.size == floor + round(50_000 * outcome.recipe.density)
    assert 0 < outcome.recipe.density < 0.08
    if fits:
        assert 0.8 * 4500 < outcome.size <= 4500


@pytest.mark.parametrize("name", ["nosuch", "mnist", "csv"])
def test_unknown_data_is_missed_at_once(run, compressed, tmp_path, monkeypatch, name):
    monkeypatch.delenv("POCKETBAYES_DATA", raising=False)
    words = ["--target-bytes", "3000", "--ood", name, "--out", tmp_path / "new"]
    done = compressed(run, *words, code=1)
    assert name in done.stderr
    assert "as it is" not in done.stderr


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.usefixtures("one_recipe")
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


@pytest.mark.usefixtures("one_recipe")
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
        ([], 2, "say --target-bytes"),
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


@pytest.mark.usefixtures("one_recipe")
def test_a_config_file_says_the_same(run, compressed, tmp_path):
    lines = f"target-bytes: 3000\nepochs: 0\nout: {tmp_path / 'new'}\n"
    (tmp_path / "c.yaml").write_text(lines)
    compressed(run, "--config", tmp_path / "c.yaml")
    assert (tmp_path / "new" / "model.pocket").stat().st_size <= 3000


@pytest.mark.parametrize(
    "words",
    [
        ["--method", "deterministic"],
        ["--method", "mc-dropout", "--dropout", "0.1"],
        ["--method", "deep-ensemble", "--members", "2"],
        ["--method", "subspace", "--density", "0.5"],
        ["--method", "spike-slab"],
        ["--method", "variational-dropout"],
        ["--method", "sharing", "--components", "8", "--objective", "rate_distortion"],
    ],
    ids=lambda words: words[1],
)
def test_every_family(words, compressed, tmp_path):
    run = trained(tmp_path, "run", *words)
    size = (run / "model.pocket").stat().st_size
    target = 2600 if size > 3000 else round(0.97 * size)
    if words[1] == "deep-ensemble":
        target = round(0.7 * size)
    asked = ["--target-bytes", target, "--epochs", "1", "--finalists", "1", "--json"]
    done = compressed(run, *asked)
    report = json.loads(done.stdout)
    new = tmp_path / "run-compressed"
    assert (new / "model.pocket").stat().st_size <= target
    assert report["run"] == str(new)
    model = pb.load(new / "model.pocket")
    assert traits_of(model).is_ensemble == (words[1] == "deep-ensemble")
    assert traits_of(model).keeps_dropout == (words[1] == "mc-dropout")


@pytest.mark.parametrize("is_ensemble", [True, False])
def test_more_epochs_are_advised_only_where_they_help(is_ensemble, tmp_path, capfd):
    traits = compression.Traits(False, is_ensemble, False, False, density=1.0)
    ends = tuple(SimpleNamespace(record=SimpleNamespace(nll=nll)) for nll in (0.1, 0.5))
    compress._say_end(tmp_path, None, traits, ends)
    note = capfd.readouterr().err
    assert "a larger --target-bytes" in note
    assert ("more --epochs" in note) != is_ensemble


def test_values_in_their_own_units(compressed, tmp_path, monkeypatch):
    refreshed = []
    monkeypatch.setattr(
        candidates, "refresh_noise_", lambda model, *_, **__: refreshed.append(model)
    )
    words = ["--data", "friedman", "--features", "8", "--rows", "400", "--model", "mlp"]
    words += ["--hidden", "200", "--epochs", "3", "--num-samples", "2", "--device", "cpu"]
    assert run_here("train", *words, "--out", tmp_path / "run") == 0
    words = ["--target-bytes", "2700", "--epochs", "1"]
    assert "coverage 90" in compressed(tmp_path / "run", *words).stdout
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["validation"]
    new = json.loads((tmp_path / "run-compressed" / "metrics.json").read_text())
    before, after = (new["compression"][name] for name in ("before", "after"))
    for name in ("rmse", "nll", "coverage_90"):
        assert before[name] == pytest.approx(metrics[name], abs=1e-6)
        assert new["validation"][name] == after[name]
    assert refreshed  # those that were pruned only


class Refreshing(CandidateMaker):
    """A maker of candidates for a regression, in which nothing is trained."""

    def loader(self):
        x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        return [(x, x[:, :1])]

    def _trained(self, model, method, epochs):
        return [{"noise": noise_log_std(model).item()}]


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_pruned_regression_has_a_noise_that_fits_before_it_is_trained_on(tmp_path, epochs):
    model = pb.bayesianize_(torch.nn.Linear(4, 1), std_init=1e-4)
    add_noise_parameter(model, (1,))
    noise_log_std(model).data.fill_(-7.0)
    plan = SimpleNamespace(options=SimpleNamespace(seed=0), method=None)
    traits = compression.Traits(True, False, False, True, density=1.0)
    shop = Refreshing(model, tmp_path, plan, None, None, tmp_path, 4500, traits, 0.003)
    made, history = shop._made(Recipe(0.03, density=0.5, knob="density"), epochs)
    assert noise_log_std(model) == -7
    assert noise_log_std(made) > -3
    assert history == [{"noise": noise_log_std(made).item()}] * epochs


def test_help_has_examples(capfd):
    assert run_here("compress", "--help") == 0
    text = capfd.readouterr().out
    assert "pocketbayes compress runs/" in text
    assert "--target-bytes" in text
