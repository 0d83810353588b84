"""Networks by frozen recipes: the files that `pocketbayes train --config` takes.

    python benchmarks/by_recipe.py --recipe recipes/resnet18-cifar10/*.yaml --root DATA
        --runs FOLDER --seeds 100 101 102
    python benchmarks/by_recipe.py --recipe recipes/resnet18-cifar10/swag.yaml --root DATA
        --runs FOLDER --validation

A recipe is trained as that command would train it, into FOLDER/NAME-SEED, where a run that was cut
off goes on. A parent that it names, as in runs/mean-field, is the run of that name and the same
seed. What is measured is the file: once, on the test set; to choose settings, on the tenth of the
training images that `--validation` holds back.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from cifar import Sets, in_batches, measure, outside
from record import append_result
from timing import own_prediction_seconds

import pocketbayes as pb
from pocketbayes.commands.flags import read_config
from pocketbayes.commands.opening import chosen_device, opened_data
from pocketbayes.commands.planning import Plan, plan_of, train_flags
from pocketbayes.commands.runs import MODEL, read_metrics
from pocketbayes.commands.train import opened_parts, run_training
from pocketbayes.data import MemoryLoader
from pocketbayes.layers import describe

TIMED_IMAGES = 1024
HELD_BACK = 0.1


def main() -> None:
    a = arguments()
    for seed in a.seeds:
        for path in a.recipe:
            plan, begun = planned(path, a, seed)
            run_training(plan, resume=begun)
            report(plan, path.stem, a)


def arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--recipe", nargs="+", type=Path, required=True)
    made.add_argument("--root", type=Path, required=True, help="folder of the data")
    made.add_argument("--runs", type=Path, required=True, help="folder where the runs stay")
    made.add_argument("--seeds", nargs="+", type=int, default=[0])
    made.add_argument("--validation", action="store_true", help="for choosing settings")
    made.add_argument("--no-ood", action="store_true")
    return made.parse_args()


def planned(path: Path, a: argparse.Namespace, seed: int) -> tuple[Plan, bool]:
    """What `train --config` would do with this seed, and whether it was begun."""

    def run_of(recipe: str) -> Path:
        return a.runs.absolute() / f"{recipe}-{seed}{'-search' * a.validation}"

    flags, out = train_flags(), run_of(path.stem)
    given = read_config(path, flags) | {"root": a.root, "seed": seed}
    if a.validation:
        given["validation"] = HELD_BACK
    if "parent" in given:
        given["parent"] = run_of(given["parent"].name)
    if out.exists():
        return plan_of(out, given, flags), True
    return plan_of(None, given | {"out": out}, flags), False


def report(plan: Plan, recipe: str, a: argparse.Namespace) -> None:
    """One line: what the run's file is worth, predicting as it was trained."""
    o = plan.options
    assert o.out is not None
    model, size = pb.load(o.out / MODEL), pb.inspect(o.out / MODEL)
    sets = measured_sets(plan, model, a)
    model = model.to(sets.device, memory_format=torch.channels_last)
    x = next(iter(MemoryLoader(sets.test.dataset, TIMED_IMAGES)))[0]
    spent = own_prediction_seconds(model, x, o.num_samples)
    told = argparse.Namespace(samples=o.num_samples)
    append_result(
        "recipes_search" if a.validation else "recipes",
        row=recipe, seed=o.seed, model=o.model, data=o.data, settings=settings(plan),
        measured_on="validation" if a.validation else "test", weights=size.weights,
        active_weights=size.active_weights, file_bytes=size.bytes,
        train_seconds=read_metrics(o.out)["seconds"], predict_seconds=spent,
        **measure(told, model, sets, by_block=True),
    )  # fmt: skip


def measured_sets(plan: Plan, model: torch.nn.Module, a: argparse.Namespace) -> Sets:
    """What the file is measured on, prepared as its model wants it."""
    device = chosen_device(plan.options.device)
    train, held = opened_parts(plan, device, plan.options.parent)
    if held is not None:
        return Sets(train, in_batches(held), None, device.type)
    name = plan.options.data
    test = opened_data(name, "test", a.root, plan.dataset, describe(model)).to(device)
    told = argparse.Namespace(data=name, root=a.root, limit=None)
    away = None if a.no_ood else outside(told, device.type, test)
    return Sets(train, in_batches(test), away, device.type)


def settings(plan: Plan) -> dict[str, Any]:
    """All options but where things lie."""
    places = ("root", "out", "parent")
    return {name: value for name, value in plan.to_config().items() if name not in places}


if __name__ == "__main__":
    main()
