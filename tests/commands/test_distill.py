"""`pocketbayes distill`, `train --one-pass`, and what `compress` does with a head."""

import copy
import json
import subprocess
import sys
import time

import pytest
import torch
import yaml
from PIL import Image

import pocketbayes as pb
from pocketbayes import cli
from pocketbayes.codec import stored_with
from pocketbayes.commands import distill
from pocketbayes.commands import predict as predict_command
from pocketbayes.commands.compressed_runs import before_and_after
from pocketbayes.commands.evaluate import evaluate_flags
from pocketbayes.commands.flags import options_in
from pocketbayes.commands.planning import train_flags
from pocketbayes.commands.predict import PredictOptions
from pocketbayes.commands.report import report_flags
from pocketbayes.compression import chain, compressing, heads
from pocketbayes.data import open_dataset
from pocketbayes.distillation import teaching
from pocketbayes.layers import head_of, set_head

FAST = ["--epochs", "1", "--device", "cpu"]


@pytest.fixture(autouse=True, scope="module")
def _few_steps():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(teaching, "_LEAST_STEPS", 20)
        yield


def run_here(*words):
    """`pocketbayes WORDS` in this process; returns its exit code."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["pocketbayes", *map(str, words)])
        try:
            cli.main()
        except SystemExit as stopped:
            return stopped.code or 0


@pytest.fixture
def called(capfd):
    """Calls and returns what was printed, after checking the exit code."""

    def call(*words, code=0):
        capfd.readouterr()
        found = run_here(*words)
        out, err = capfd.readouterr()
        assert found == code, out + err
        assert "Traceback" not in err
        return subprocess.CompletedProcess(words, found, out, err)

    return call


def trained(folder, name, *words):
    base = ["train", "--data", "digits", "--model", "mlp", "--hidden", "16", "--num-samples", "2"]
    assert run_here(*base, *FAST, *words, "--out", folder / name) == 0
    return folder / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of digits: as usual, and with a head from the start."""
    folder = tmp_path_factory.mktemp("runs")
    trained(folder, "run", "--lr", "0.05")
    trained(
        folder, "taught", "--lr", "0.05", "--hidden", "64,64", "--one-pass", "--batch-size", "400"
    )
    return folder


def test_a_run_gets_a_head_and_nothing_else_changes(folder, called, tmp_path):
    run, new = folder / "run", tmp_path / "new"
    report = json.loads(called("distill", run, "--out", new, *FAST, "--json").stdout)
    assert {p.name for p in new.iterdir()} == {"config.yaml", "metrics.json", "model.pocket"}
    assert {p.name for p in tmp_path.iterdir()} == {"new"}
    before, after = (pb.load(path / "model.pocket") for path in (run, new))
    assert head_of(before) is None
    assert head_of(after).taught_by == {"draws": 8, "estimator": "lrt"}
    for (name, old), (_, same) in zip(
        before.named_parameters(), after.named_parameters(), strict=True
    ):
        assert torch.equal(old, same), name
    assert report["bytes"] == (new / "model.pocket").stat().st_size
    assert report["bytes_before"] == (run / "model.pocket").stat().st_size < report["bytes"]
    assert report["draws"]["estimator"] == "lrt"
    assert report["one_pass"]["estimator"] == "one_pass"
    assert report["one_pass"]["nll"] == pytest.approx(report["draws"]["nll"], abs=0.2)
    metrics = json.loads((new / "metrics.json").read_text())
    assert metrics["distillation"] == report
    assert metrics["distill_seconds"] == report["seconds"]
    old = json.loads((run / "metrics.json").read_text())
    kept = {"epochs", "steps", "batch_size", "lr", "beta", "prior", "seconds", "train"}
    assert kept <= old.keys() & metrics.keys()
    assert {name: metrics[name] for name in kept} == {name: old[name] for name in kept}
    held = called("evaluate", new, "--split", "validation", "--device", "cpu", "--json")
    held = json.loads(held.stdout)
    assert held["num_examples"] == 129
    assert held["nll"] == pytest.approx(metrics["validation"]["nll"], abs=1e-6)
    config = yaml.safe_load((new / "config.yaml").read_text())
    assert (config["parent"], config["one_pass"]) == (str(run.absolute()), True)
    assert "learned from 8 draws" in called("inspect", new).stdout


@pytest.mark.parametrize("estimator", ["own", None])
def test_what_starts_up_once_is_not_counted(folder, estimator):
    """The first pass of each way sleeps for a second, as if something had to be loaded."""
    model = pb.load(folder / "taught" / "model.pocket")
    data = distill.with_validation(open_dataset("digits", "train"), 0.1)[1]
    first = iter([1.0])
    model.register_forward_pre_hook(lambda *_: time.sleep(next(first, 0.0)))
    again = distill._measured(model, data, 0, estimator)
    assert next(first, None) is None
    assert again["seconds"] < 0.9


@pytest.mark.parametrize(
    ("words", "estimator", "number", "ran", "doubt"),
    [([], "one_pass", 30, "one pass, no draws", "by one pass, draws would"),
     (["--estimator", "lrt", "--num-samples", "7"], "lrt", 7, "7 draws", "its draws"),
     (["--estimator", "moments"], "moments", 30, "moments, no draws", "by moments, draws would"),
     (["--estimator", "mean"], "mean", 1, "one network, no draws", "a single network"),
     (["--estimator", "weight", "--num-samples", "auto"], "weight", None, "up to ", "its draws")],
)  # fmt: skip
def test_predict_says_what_it_ran(
    folder, called, tmp_path, monkeypatch, words, estimator, number, ran, doubt
):
    monkeypatch.setattr(predict_command, "CONFIDENCE_THRESHOLD", 1.1)  # each answer has a doubt
    monkeypatch.setenv("COLUMNS", "300")
    pixels = open_dataset("digits", "test").images[0, 0].numpy()
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    words = ["predict", folder / "taught", tmp_path / "digit.png", "--device", "cpu", *words]
    found = json.loads(called(*words, "--json").stdout)
    assert found["estimator"] == estimator
    assert number is None or found["num_samples"] == number
    assert doubt in found["predictions"][0]["why_not"]
    told = " ".join(called(*words).stdout.split())
    assert f"estimator {estimator}: {ran}" in told


def test_train_and_distill_say_in_one_line_how_near_one_pass_came(folder, called, tmp_path):
    line = "one pass against 64 draws, on 256 inputs: probabilities "
    base = ["--data", "digits", "--model", "mlp", "--hidden", "16", "--num-samples", "2", "--json"]
    done = called("train", *base, "--lr", "0.05", "--one-pass", *FAST, "--out", tmp_path / "a")
    report = json.loads(done.stdout)
    assert sum(row.startswith(line) for row in done.stderr.splitlines()) == 1
    assert report["compared"] == pb.inspect(tmp_path / "a" / "model.pocket").one_pass["compared"]
    assert report["compared"].keys() == {"examples", "draws", "probs", "nll"}
    done = called("distill", folder / "taught", "--out", tmp_path / "b", *FAST, "--json")
    assert sum(row.startswith(line) for row in done.stderr.splitlines()) == 1
    new = json.loads(done.stdout)["compared"]
    metrics = json.loads((tmp_path / "b" / "metrics.json").read_text())
    assert metrics["compared"] == new != json.loads(
        (folder / "taught" / "metrics.json").read_text()
    )["compared"]  # fmt: skip
    assert line in called("inspect", tmp_path / "b").stdout
    done = called("train", *base, "--lr", "0.05", *FAST, "--out", tmp_path / "c")
    assert "compared" not in json.loads(done.stdout)
    assert line not in done.stderr


@pytest.mark.filterwarnings("ignore:nothing says that this model was ever trained")
def test_inspect_counts_one_layer(called, tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(torch.nn.Sequential(torch.nn.Linear(6, 3)), std_init=0.1)
    pb.save(pb.distill_(model, [torch.randn(32, 6)], 1), tmp_path / "one.pocket")
    assert "at 1 layer\n" in called("inspect", tmp_path / "one.pocket").stdout


def test_a_file_becomes_a_file_beside_it(folder, called, tmp_path):
    path = tmp_path / "mine.pocket"
    path.write_bytes((folder / "run" / "model.pocket").read_bytes())
    table = called("distill", path, "--data", "digits", *FAST).stdout
    assert "one pass" in table
    assert head_of(pb.load(tmp_path / "mine-distilled.pocket")) is not None
    bare = called("distill", path, "--data", "digits", "--validation", "0", *FAST, "--json",
                  "--out", tmp_path / "b.pocket")  # fmt: skip
    assert json.loads(bare.stdout)["one_pass"] == {}
    names = {"mine.pocket", "mine-distilled.pocket", "b.pocket"}
    assert {p.name for p in tmp_path.iterdir()} == names
    assert head_of(pb.load(path)) is None


def test_it_learns_as_the_run_was_trained(called, tmp_path, monkeypatch):
    run = trained(tmp_path, "cut", "--cutout", "--batch-size", "96", "--validation", "0.3")
    seen = []
    whole = distill.distill_
    monkeypatch.setattr(
        distill, "distill_", lambda m, x, *a, **b: seen.append((x, b)) or whole(m, x, *a, **b)
    )
    called("distill", run, *FAST, "--num-samples", "3", "--estimator", "weight", "--lr", "0.02")
    called("distill", run, *FAST, "--no-augment", "--no-cutout", "--validation", "0.5",
           "--batch-size", "50", "--out", tmp_path / "other")  # fmt: skip
    (first, options), (second, _) = seen
    assert options == {"num_samples": 3, "estimator": "weight", "lr": 0.02, "seed": 0}
    assert (first.augment, first.shuffle, first.batch_size) == (True, True, 96)
    assert (second.augment, second.batch_size) == (False, 50)
    assert len(first.dataset) / len(second.dataset) == pytest.approx(0.7 / 0.5, rel=0.02)
    assert "cutout" in first.dataset.augmentation
    assert "cutout" not in second.dataset.augmentation
    assert head_of(pb.load(tmp_path / "cut-distilled" / "model.pocket")).taught_by["draws"] == 3


def test_values_keep_their_units(called, tmp_path):
    words = ["--data", "friedman", "--features", "8", "--rows", "300", "--model", "mlp"]
    words += ["--hidden", "16", "--epochs", "3", "--device", "cpu", "--out", tmp_path / "run"]
    assert run_here("train", *words) == 0
    report = json.loads(called("distill", tmp_path / "run", *FAST, "--json").stdout)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["validation"]
    assert report["draws"]["rmse"] == pytest.approx(metrics["rmse"], rel=0.02)  # by moments
    assert report["one_pass"]["rmse"] == pytest.approx(metrics["rmse"], rel=0.3)
    assert "coverage_90" in report["one_pass"]


def test_a_network_of_ones_own_must_be_named(called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_for_distill.py").write_text(
        "from torch import nn\n\ndef net():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    words = ["--data", "digits", "--model", "own_for_distill:net", "--out", "run", *FAST]
    assert run_here("train", *words) == 0
    assert "--model" in called("distill", "run", *FAST, code=2).stderr
    called("distill", "run", "--model", "own_for_distill:net", *FAST)
    called("evaluate", "run-distilled", "--model", "own_for_distill:net", "--device", "cpu")


@pytest.mark.parametrize("options", [{}, {"tolerance": 0.03}, {"tolerance": 0.1},
                                     {"tolerance": 0.00317}, {"lossless": True}])  # fmt: skip
def test_a_file_tells_with_what_it_was_stored(folder, tmp_path, options):
    """Written once more with that, it is the same, byte by byte."""
    model = pb.load(folder / "run" / "model.pocket")
    pb.save(model, tmp_path / "a.pocket", **options)
    found = stored_with(tmp_path / "a.pocket")
    assert found["lossless"] == ("lossless" in options)
    pb.save(pb.load(tmp_path / "a.pocket"), tmp_path / "b.pocket", **found)
    assert (tmp_path / "a.pocket").read_bytes() == (tmp_path / "b.pocket").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["FILE"], 2, "say --data"),
        (["nowhere"], 2, "no run or file nowhere"),
        (["RUN", "--epochs", "0"], 2, "--epochs"),
        (["RUN", "--num-samples", "1"], 2, "--num-samples"),
        (["RUN", "--estimator", "mean"], 2, "--estimator"),
        (["RUN", "--validation", "1.5"], 2, "--validation"),
        (["RUN", "--lr", "0"], 2, "--lr"),
        (["RUN", "--batch-size", "0"], 2, "--batch-size"),
        (["RUN", "--seed", "-1"], 2, "--seed"),
        (["RUN", "--size", "3"], 2, "not of this run"),
        (["RUN", "--out", "TAKEN"], 1, "choose another --out"),
        (["RUN", "--data", "photo-patches"], 1, "has no split 'train'"),
    ],
)
def test_wrong_calls(folder, called, words, code, message):
    places = {"RUN": folder / "run", "FILE": folder / "run" / "model.pocket", "TAKEN": folder}
    before = sorted(folder.iterdir())
    done = called("distill", *(places.get(word, word) for word in words), code=code)
    assert message in done.stderr
    assert not done.stdout.strip()
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("method", "message"), [("deterministic", "nothing in this model is random"),
                            ("deep-ensemble", "one pass of a member knows nothing")],
)  # fmt: skip
def test_what_makes_no_draws_or_is_several_networks_is_refused(called, tmp_path, method, message):
    run = trained(tmp_path, "run", "--method", method)
    assert message in called("distill", run, *FAST, code=1).stderr
    assert {p.name for p in tmp_path.iterdir()} == {"run"}
    words = ["--data", "digits", "--model", "mlp", "--one-pass", "--method", method]
    assert "makes none" in called("train", *words, code=2).stderr


def test_training_can_end_with_a_head(folder, called):
    metrics = json.loads((folder / "taught" / "metrics.json").read_text())
    assert metrics["validation"]["estimator"] == "one_pass"
    assert metrics["bytes"] == (folder / "taught" / "model.pocket").stat().st_size
    config = yaml.safe_load((folder / "taught" / "config.yaml").read_text())
    assert config["one_pass"] is True
    assert head_of(pb.load(folder / "taught" / "model.pocket")) is not None


COMPRESS = ["--num-samples", "2", "--epochs", "0", "--device", "cpu", "--json"]


def compressed(called, folder, out, target):
    words = ["--target-bytes", target, "--out", out, *COMPRESS]
    done = called("compress", folder / "taught", *words)
    report = json.loads(done.stdout)
    assert (out / "model.pocket").stat().st_size == report["after"]["bytes"] <= target
    assert report["before"]["estimator"] == ("lrt" if "after_one_pass" in report else "one_pass")
    has_head = head_of(pb.load(out / "model.pocket")) is not None
    assert ("after_one_pass" in report) == has_head
    assert yaml.safe_load((out / "config.yaml").read_text())["one_pass"] == has_head
    assert json.loads((out / "metrics.json").read_text())["compression"] == report
    return report, pb.load(out / "model.pocket"), done.stderr


@pytest.fixture
def large_heads(monkeypatch):
    monkeypatch.setattr(heads, "_MOST", 0.9)


@pytest.mark.usefixtures("large_heads")
def test_compress_teaches_other_weights_again(folder, called, tmp_path):
    size = (folder / "taught" / "model.pocket").stat().st_size
    report, model, _ = compressed(called, folder, tmp_path / "new", round(0.7 * size))
    chosen = next(row for row in report["candidates"] if row["chosen"])
    assert report["after"]["nll"] == pytest.approx(chosen["nll"], abs=1e-6)
    one_pass = report["after_one_pass"]
    assert one_pass["estimator"] == "one_pass"
    assert one_pass["nll"] != pytest.approx(chosen["nll"], abs=1e-6)
    metrics = json.loads((tmp_path / "new" / "metrics.json").read_text())
    assert metrics["validation"] | {"bytes": one_pass["bytes"]} == one_pass
    rows = before_and_after(report)
    assert [row[""] for row in rows] == ["before", "after", "after"]
    assert [row["nll"] for row in rows] == [
        report[name]["nll"] for name in ("before", "after", "after_one_pass")
    ]
    assert "one pass" in rows[2]["what"]
    assert head_of(model).taught_by == {"draws": 8, "estimator": "lrt"}
    x = torch.randn(200, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    drawn = pb.predict(model, x, 200, torch.Generator().manual_seed(0), "lrt")
    old = pb.load(folder / "taught" / "model.pocket")
    found, before = (pb.predict(m, x, estimator="one_pass") for m in (model, old))
    apart = [(p.probs - drawn.probs).abs().sum(1).mean() for p in (found, before)]
    assert apart[0] < apart[1]


def test_compress_says_that_a_file_has_no_head(folder, called, tmp_path):
    target = 10_000
    assert (folder / "taught" / "model.pocket").stat().st_size > target
    _, model, said = compressed(called, folder, tmp_path / "new", target)
    assert "without a one-pass head" in said
    assert head_of(model) is None
    called("distill", tmp_path / "new", *FAST)
    assert head_of(pb.load(tmp_path / "new-distilled" / "model.pocket")) is not None


def bytes_of_head(model, path):
    plain = copy.deepcopy(model)
    set_head(plain, None)
    return pb.save(model, path).bytes - pb.save(plain, path).bytes


@pytest.mark.filterwarnings("ignore:the one-pass head did not learn")
@pytest.mark.filterwarnings("ignore:draws of this model tell the loader's targets no better")
def test_room_is_left_for_any_head_of_the_same_network(folder, tmp_path):
    """Other weights, inputs and seeds make other heads, whose codes have other lengths."""
    taught = pb.load(folder / "taught" / "model.pocket")
    model = copy.deepcopy(taught)
    set_head(model, None)
    x = torch.randn(256, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = [(part, torch.arange(32) % 10) for part in x.split(32)]
    settings = chain.Settings(None, 0, None, 2, 0, "categorical", {})
    begun = chain.Chain(model, model, data, data, x[:1], tmp_path, settings)
    room = heads.head_bytes_for(begun)
    found = []
    for seed, density in enumerate((1, 0.5, 0.1, 0.02)):
        other = copy.deepcopy(model)
        pb.prune_(other, density)
        pb.distill_(other, data, 4, seed=seed, lr=0.1)
        found.append(bytes_of_head(other, tmp_path / "a.pocket"))
    own = bytes_of_head(taught, tmp_path / "a.pocket")
    assert len(set(found)) > 1
    assert max(found) <= room < 1.1 * own


@pytest.mark.usefixtures("large_heads")
def test_bytes_kept_for_a_head_that_does_not_fit_are_used(folder, called, monkeypatch, tmp_path):
    room, target = heads.head_bytes_for, 9_500
    monkeypatch.setattr(compressing, "head_bytes_for", lambda *given: room(*given) // 3)
    report, model, said = compressed(called, folder, tmp_path / "new", target)
    assert "the one-pass head is left out" in said
    assert head_of(model) is None
    fitting = [row for row in report["candidates"] if row["bytes"] <= target]
    assert report["after"]["nll"] == min(row["nll"] for row in fitting)


def test_one_pass_of_a_run_without_a_head_names_the_command(folder, called):
    words = ["evaluate", folder / "run", "--estimator", "one_pass", "--device", "cpu"]
    told = called(*words, code=1).stderr
    assert "distill_(model, loader)" in told
    assert "pocketbayes distill" in told


def test_helps_agree():
    """What an option does by default is said alike wherever there is such an option."""
    for flags in (evaluate_flags(), options_in(PredictOptions), report_flags()):
        assert "default as trained, or one_pass of a distilled model" in flags["estimator"].help
    for told in (train_flags()["one_pass"].help, distill.distill_flags()["epochs"].help):
        assert "5" in told
        assert "and as many as make 500 steps" in told


def test_help_has_examples(called):
    text = called("distill", "--help").stdout
    assert "pocketbayes distill runs/" in text
    assert "--num-samples" in text
