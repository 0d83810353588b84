"""Frozen recipes: one file drives `pocketbayes train --config` and the benchmark."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_imagenet_files import tiny_imagenet_in

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import by_recipe  # noqa: E402
import plans  # noqa: E402
from pages import headline  # noqa: E402

from pocketbayes import cli  # noqa: E402
from pocketbayes.commands.flags import UsageError  # noqa: E402
from pocketbayes.commands.runs import MODEL, read_run_config  # noqa: E402
from pocketbayes.methods import METHODS  # noqa: E402

FOLDER = BENCHMARKS / "recipes" / "resnet18-cifar10"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
LARGER = {"resnet18-tiny-imagenet": "resnet18", "vit-small-tiny-imagenet": "vit-small"}
TINY = {"epochs": 1, "batch_size": 7, "width": 0.02, "compile": False, "num_samples": 2}
# With fewer than 16 channels of 64 x 64 pixels oneDNN's 1x1 convolutions of stride 2 write past
# the end of their memory: the interpreter crashes.
WIDTHS = {"resnet18": 0.25, "vit-small": 0.1}


def plan_of(name, *words, folder=FOLDER):
    words = ["--recipe", str(folder / f"{name}.yaml"), "--root", "DATA", "--runs", "RUNS", *words]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["by_recipe.py", *words])
        a = by_recipe.arguments()
    return by_recipe.planned(a.recipe[0], a, 7)[0]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_uses_all_training_images_with_cutout_and_leaves_no_rate_open(name):
    plan = plan_of(name)
    o = plan.options
    assert (o.data, o.model, o.cutout, o.validation, o.seed) == ("cifar10", "resnet18", True, 0, 7)
    assert (o.out.name, o.epochs is None) == (f"{name}-7", False)
    assert type(plan.method) is METHODS[name]
    assert plan.method.lr is not None
    assert getattr(plan.method, "beta", 0.0) is not None


def test_rates_are_those_of_the_headline_and_members_of_ensembles_are_the_plain_network():
    plain, rates = plan_of("deterministic").method, headline.CUTOUT
    for name in ("deterministic", "mean-field", "swag"):
        method = plan_of(name).method
        assert (method.lr, method.weight_decay) == (
            rates["settings.lr"], rates["settings.weight_decay"]
        )  # fmt: skip
    assert plan_of("deep-ensemble").method.member() == plain
    assert plan_of("deep-ensemble").options.epochs == plan_of("deterministic").options.epochs


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("folder", LARGER)
def test_a_recipe_of_tiny_imagenet_takes_as_many_steps_as_that_of_cifar10(folder, name):
    plan, small = plan_of(name, folder=FOLDER.parent / folder), plan_of(name)
    o = plan.options
    assert (o.data, o.model, o.cutout, o.validation) == ("tiny-imagenet", LARGER[folder], True, 0)
    assert type(plan.method) is METHODS[name]
    assert plan.method.lr is not None
    assert getattr(plan.method, "beta", 0.0) == getattr(small.method, "beta", 0.0)
    steps = [100_000 // o.batch_size * o.epochs, 50_000 // o.batch_size * small.options.epochs]
    assert steps[0] == pytest.approx(steps[1], rel=0.25 if name == "sharing" else 0.01)
    assert plan.network.get("patch") == (8 if o.model == "vit-small" else None)
    assert name != "sharing" or o.parent.name == "mean-field-7"


@pytest.mark.parametrize("folder", LARGER)
def test_members_of_an_ensemble_for_tiny_imagenet_are_the_plain_network(folder):
    plain, five = (
        plan_of(name, folder=FOLDER.parent / folder) for name in ("deterministic", "deep-ensemble")
    )
    assert five.method.member() == plain.method
    assert five.options.epochs == plain.options.epochs
    assert len(list((FOLDER.parent / folder).glob("*.yaml"))) == len(RECIPES)


def test_every_recipe_is_planned_once_for_each_fresh_seed():
    named = [
        (Path(word).stem, job.seed)
        for job in plans.TABLES["recipes"].jobs
        for word in job.words
        if word.endswith(".yaml")
    ]
    assert sorted(named) == [(name, seed) for name in RECIPES for seed in (100, 101, 102)]


def test_settings_are_chosen_on_a_tenth_held_back_and_never_into_the_same_run():
    plan = plan_of("sharing", "--validation")
    assert plan.options.validation == 0.1
    assert plan.options.out.name == "sharing-7-search"
    assert plan.options.parent.name == "mean-field-7-search"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Images of ten colours, house numbers that are noise, and larger images of four classes."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for split, count in (("train", 60), ("test", 30)):
        y = np.arange(count, dtype=np.uint8) % 10
        x = 20 * y[:, None, None, None] + rng.integers(0, 50, (count, 32, 32, 3))
        np.savez(folder / f"cifar10_{split}.npz", x=x.astype(np.uint8), y=y)
        noise = rng.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
        np.savez(folder / f"svhn_{split}.npz", x=noise, y=y)
    tiny_imagenet_in(folder / "tiny-imagenet-200")
    return folder


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    """The same recipes for a narrow network and one epoch."""
    folder = tmp_path_factory.mktemp("recipes")
    for name in RECIPES:
        known = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(known | TINY))
    return folder


def by_command(recipe, root, runs, seed, monkeypatch):
    name = recipe.stem
    words = ["train", "--config", recipe, "--root", root, "--seed", seed, "--out", runs / name]
    if name == "sharing":
        words += ["--parent", runs / "mean-field"]
    monkeypatch.setattr(sys, "argv", ["pocketbayes", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert not stopped.value.code
    return runs / name


@pytest.mark.filterwarnings("ignore:density .* is .* of .* weights")
def test_the_command_and_the_benchmark_make_the_same_file(root, recipes, tmp_path, monkeypatch):
    monkeypatch.setenv("POCKETBAYES_RESULTS", str(tmp_path))
    paths = [str(recipes / f"{name}.yaml") for name in RECIPES]
    words = ["--root", str(root), "--runs", str(tmp_path / "runs"), "--seeds", "3"]
    monkeypatch.setattr(sys, "argv", ["by_recipe.py", "--recipe", *paths, *words])
    by_recipe.main()
    rows = [json.loads(s) for s in (tmp_path / "recipes.jsonl").read_text().splitlines()]
    assert [(row["row"], row["seed"], row["measured_on"]) for row in rows] == [
        (name, 3, "test") for name in RECIPES
    ]
    for row in rows:
        theirs = tmp_path / "runs" / f"{row['row']}-3"
        ours = by_command(recipes / f"{row['row']}.yaml", root, tmp_path, 3, monkeypatch)
        known, told = read_run_config(ours), read_run_config(theirs)
        assert all(known[n] == told[n] for n in known if n not in ("out", "parent")), row["row"]
        assert (ours / MODEL).read_bytes() == (theirs / MODEL).read_bytes(), row["row"]
        assert row["file_bytes"] == (ours / MODEL).stat().st_size
        assert row["settings"]["lr"] == known["lr"]
        assert (row["num_examples"], row["num_ood"]) == (30, 30)
        assert sum(row["blocks"]["accuracy"]) == pytest.approx(30 * row["accuracy"])
        assert sum(row["blocks"]["nll"]) == pytest.approx(30 * row["nll"], rel=1e-4)


@pytest.mark.parametrize("folder", LARGER)
def test_by_a_recipe_of_tiny_imagenet_a_network_is_trained_and_measured(
    folder, root, tmp_path, monkeypatch
):
    monkeypatch.setenv("POCKETBAYES_RESULTS", str(tmp_path))
    known = yaml.safe_load((FOLDER.parent / folder / "mean-field.yaml").read_text())
    (tmp_path / "mean-field.yaml").write_text(
        yaml.safe_dump(known | TINY | {"width": WIDTHS[known["model"]]})
    )
    words = ["--recipe", tmp_path / "mean-field.yaml", "--root", root, "--runs", tmp_path]
    monkeypatch.setattr(sys, "argv", ["by_recipe.py", *map(str, words)])
    by_recipe.main()
    (row,) = [json.loads(s) for s in (tmp_path / "recipes.jsonl").read_text().splitlines()]
    assert (row["data"], row["model"]) == ("tiny-imagenet", LARGER[folder])
    assert (row["num_examples"], row["num_ood"]) == (8, 30)


def test_a_run_that_was_begun_by_another_recipe_is_refused(root, recipes, tmp_path, monkeypatch):
    recipe = recipes / "deterministic.yaml"
    by_command(recipe, root, tmp_path, 0, monkeypatch).rename(tmp_path / "deterministic-0")
    a = argparse.Namespace(root=root, runs=tmp_path, validation=False)
    assert by_recipe.planned(recipe, a, 0)[1]
    changed = tmp_path / "deterministic.yaml"
    changed.write_text(recipe.read_text().replace("lr: 0.4", "lr: 0.3"))
    with pytest.raises(UsageError, match=r"--lr 0\.3 is not what"):
        by_recipe.planned(changed, a, 0)


def test_for_choosing_settings_the_test_set_is_not_opened(root, recipes, tmp_path, monkeypatch):
    monkeypatch.setenv("POCKETBAYES_RESULTS", str(tmp_path))
    train = tmp_path / "train"
    train.mkdir()
    (train / "cifar10_train.npz").symlink_to(root / "cifar10_train.npz")  # and nothing else
    words = ["--recipe", recipes / "deterministic.yaml", "--root", train, "--runs", tmp_path]
    words = ["by_recipe.py", *map(str, words), "--validation"]
    monkeypatch.setattr(sys, "argv", words)
    by_recipe.main()
    (row,) = [json.loads(s) for s in (tmp_path / "recipes_search.jsonl").read_text().splitlines()]
    assert (row["measured_on"], row["num_examples"]) == ("validation", 6)
    assert "num_ood" not in row
