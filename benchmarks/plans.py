"""Which runs make which table, the papers' and our own; searches are in results/*_search.jsonl."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from uci_sets import UCI_SETS


@dataclass(frozen=True)
class Job:
    """One script with one seed.

    Attributes:
        words: script and arguments; DATA and FILES stand for folders.
        table: the results file that its rows go to.
        rows: how many it writes.
        seed: of the run.
        seconds: about, on one H200.
        makes: files that later jobs start from.
    """

    words: tuple[str, ...]
    table: str
    rows: int
    seed: int
    seconds: float
    makes: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Files that it starts from."""
        return tuple(word for word in self.words if word.startswith("FILES/"))


@dataclass(frozen=True)
class Table:
    """Jobs, what they show, and which of the paper's rows cannot be had."""

    about: str
    jobs: tuple[Job, ...]
    absent: tuple[str, ...] = ()


SEEDS = (0, 1, 2)


def jobs(
    command: str, table: str, rows: int, seconds: float, seeds: tuple[int, ...] = SEEDS
) -> tuple[Job, ...]:
    """The same command for several seeds."""
    flag = "--seed" if command.startswith("peers/") else "--seeds"
    return tuple(
        Job((*shlex.split(command), flag, str(seed)), table, rows, seed, seconds) for seed in seeds
    )


def once(command: str, table: str, rows: int, seconds: float) -> tuple[Job, ...]:
    """A command that has no seed, or all of them."""
    return (Job(tuple(shlex.split(command)), table, rows, 0, seconds),)


def _subspace(density: float, beta: float, seeds: tuple[int, ...] = SEEDS) -> tuple[Job, ...]:
    words = f"--density {density} --epochs 200 --beta {beta} --weight-decay 0.002"
    return jobs(f"subspace.py --root DATA {words}", "subspace", 2, 200, seeds)


def _chain(seed: int) -> tuple[Job, ...]:
    """Sparse subspace, pruned twice, shared: one file after the other."""
    parent = "--parent subspace --density 0.1 --epochs 200 --beta 0.004 --weight-decay 0.002"
    thin = "--prune 0.06 0.035 --tune-epochs 60 --lr 0.1 --weight-decay 0.002 --beta 0.01"
    share = "--epochs 0 --beta 0.01"
    name = f"FILES/subspace-0.1-{seed}"
    start = "sizes.py --root DATA --files FILES"
    thick, thinner = f"{name}-pruned-0.06.pocket", f"{name}-pruned-0.06-pruned-0.035.pocket"
    steps = (
        (f"{start} {parent} --estimator weight --seeds {seed}", 2, 200, (f"{name}.pocket",)),
        (f"{start} --compress {name}.pocket {thin} --target-bytes", 2, 200, (thick, thinner)),
        (f"{start} --compress {thick} --target-bytes 890000 {share}", 1, 70, ()),
        (
            f"{start} --compress {thinner} --target-bytes 490000 {share}", 1, 60,
            (f"{thinner.removesuffix('.pocket')}-490000-shared.pocket",),
        ),
    )  # fmt: skip
    return tuple(Job(tuple(shlex.split(c)), "sizes", n, seed, t, made) for c, n, t, made in steps)


def _mean_field_file(seed: int) -> tuple[Job, ...]:
    """Mean-field VI, then a rate-distortion codebook."""
    start = "sizes.py --root DATA --files FILES"
    parent = "--parent mean-field --epochs 200 --beta 0.003 --weight-decay 0.002"
    file = f"FILES/mean-field-{seed}.pocket"
    share = "--target-bytes 990000 --epochs 10 --share-lr 0.001 --share-std-lr 0.001 --beta 0.01"
    steps = (
        (f"{start} {parent} --predictives lrt weight --seeds {seed}", 3, 370, (file,)),
        (f"{start} --compress {file} {share}", 2, 150, ()),
    )
    return tuple(Job(tuple(shlex.split(c)), "sizes", n, seed, t, made) for c, n, t, made in steps)


_WITH_DRAWS = (
    "sizes.py --root DATA --files FILES --parent mean-field --estimator weight --epochs 200 "
    "--beta 0.003"
)
_CUTOUT = "--lr 0.4 --weight-decay 0.001 --cutout"
_LARGER_RATE = "--lr 0.4 --weight-decay 0.0005"
_DRAWN = (
    *jobs(f"{_WITH_DRAWS} --weight-decay 0.002", "sizes", 2, 170),
    *jobs(f"{_WITH_DRAWS} {_LARGER_RATE}", "sizes", 2, 180),
    *jobs(f"{_WITH_DRAWS} {_CUTOUT}", "sizes", 2, 180),
)
_RESNET20 = (
    "sharing.py --root DATA --model resnet20 --weights DATA/weights/cifar10_resnet20.safetensors "
    "--normalize imagenet --pretrain-epochs 60 --lr 0.1 --beta 0.025 --std-lr 0.01 "
    "--predictives weight"
)
_SHARED_20 = jobs(f"{_RESNET20} --epochs 10", "sharing", 3, 120)
_SHARED_18 = jobs(
    "sharing.py --root DATA --model resnet18 --pretrain-epochs 150 --epochs 5 --weight-decay 0.002 "
    "--beta 0.01 --predictives weight",
    "sharing",
    3,
    210,
)
_SHARED_MNIST = jobs(
    "sharing.py --root DATA --data mnist --model resnet20 --crop-digits --pretrain-epochs 30 "
    "--lr 0.1 --std-lr 0.01 --beta 0.007 --epochs 4 --share-eagerly --predictives weight --no-ood",
    "sharing",
    3,
    120,
)
_VARIED = (
    "none components=500 components=1000 components=4000 merge=none blend_beyond=none "
    "'outlier_mean=none outlier_gradient=0' outlier_mean=none outlier_gradient=0 outlier_mean=0.1 "
    "outlier_mean=0.4 outlier_mean=0.6 objective=rate_distortion draw=shared"
)
_NEITHER = "'blend_beyond=none outlier_mean=none outlier_gradient=0'"
_VARIANTS = f"{_RESNET20} --epochs 0 --no-ood --share-eagerly --table sharing_ablation"
_ABLATION = tuple(
    Job((*shlex.split(f"{_VARIANTS} {words}"), "--seeds", "0"), "sharing_ablation", rows, 0, 130)
    for words, rows in (
        (f"--quantize 4 2 1 --vary {_VARIED}", 17),
        (f"--vary {_NEITHER} objective=rate_distortion", 2),
        ("--vary objective=rate_distortion", 2),
    )
)
_BRIEF = (
    "subspace.py --root DATA --table subspace_sweep --no-ood --predictives weight --epochs 20 "
    "--beta 0.01 --weight-decay 0.002"
)
_SWEEP = (
    *jobs(f"{_BRIEF} --density 0.5 0.2 0.02 0.01 0.05 --methods subspace rigl",
          "subspace_sweep", 10, 330, (0,)),
    *jobs(f"{_BRIEF} --density 0.1 --methods rigl", "subspace_sweep", 1, 40, (0,)),
)  # fmt: skip
_CRITERIA = jobs(
    "subspace.py --root DATA --no-ood --predictives weight --epochs 20 --beta 0.01 "
    "--weight-decay 0.002 --table subspace_ablation --density 0.05 --vary criterion=magnitude "
    "criterion=snr criterion=expected_magnitude criterion=expected_exp criterion=snr_exp "
    "growth=mean growth=multi_step new_std=eps",
    "subspace_ablation",
    8,
    260,
    (0,),
)
_FIRST_STDS = jobs(
    "subspace.py --root DATA --no-ood --predictives weight --epochs 20 --beta 0.01 "
    "--weight-decay 0.002 --table subspace_robustness --density 0.1 1.0 --vary none "
    "std_init=0.003 std_init=0.01",
    "subspace_robustness",
    6,
    200,
    (0,),
)
_PLAINLY = "side_by_side.py --root DATA --model resnet18 --families deterministic --epochs 200"
_PLAIN = (
    *jobs(f"{_PLAINLY} --weight-decay 0.002", "side_by_side", 1, 130),
    *jobs(f"{_PLAINLY} {_CUTOUT}", "side_by_side", 1, 165),
)
_CHAIN = tuple(job for seed in SEEDS for job in _chain(seed))
_RATE_DISTORTION = tuple(job for seed in SEEDS for job in _mean_field_file(seed))
_RESNET_18 = (
    "side_by_side.py --root DATA --files FILES --model resnet18 --epochs 60 --weight-decay 0.002 "
    "--beta 0.003"
)


class Family(NamedTuple):
    """Of side_by_side.py: how many rows it writes, its seconds for ResNet-18, and its files."""

    rows: int
    seconds: float
    files: tuple[str, ...]


FAMILIES = {
    "deterministic": Family(1, 90, ("deterministic",)),
    "mc-dropout": Family(1, 75, ("mc-dropout",)),
    "deep-ensemble": Family(1, 250, ("ensemble-of-5",)),
    "bayes-by-backprop": Family(1, 130, ("bayes-by-backprop",)),
    "mean-field": Family(
        6, 560,
        ("mean-field", "mean-field-int8-means-4-bit-stds", "mean-field-shared-mixture",
         "mean-field-shared-rate-distortion", "mean-field-pruned-to-0.05"),
    ),
    "rigl": Family(1, 90, ("rigl-0.05",)),
    "subspace": Family(8, 420, tuple(f"subspace-{density}" for density in (0.1, 0.05, 0.02, 0.01))),
    "spike-slab": Family(1, 300, ("spike-and-slab-0.05",)),
    "chain": Family(3, 490, ("chain-shared",)),
}  # fmt: skip


def _by_family(command: str, start: str, seconds: float) -> dict[str, Job]:
    """A job for each family with seed 0; `start` begins the names of files, `seconds` is of all."""
    scale = seconds / sum(family.seconds for family in FAMILIES.values())

    def job(name: str, family: Family) -> Job:
        words = (*shlex.split(command), "--families", name, "--seeds", "0")
        made = tuple(f"FILES/{start}-{file}-0.pocket" for file in family.files)
        return Job(words, "side_by_side", family.rows, 0, scale * family.seconds, made)

    return {name: job(name, family) for name, family in FAMILIES.items()}


def _corrupted(parents: Iterable[Job], seconds: float) -> tuple[Job, ...]:
    """What these make, under the 15 corruptions at five severities, and none."""
    command = "corruptions.py --root DATA --samples 10 --files"
    return tuple(
        job
        for parent in parents
        for file in parent.makes
        for job in once(f"{command} {file}", "corruptions", 76, seconds)
    )


_BY_FAMILY_18 = _by_family(_RESNET_18, "resnet18-cifar10", 2405)
_ALL_18 = tuple(_BY_FAMILY_18.values())
_DIGITS = (
    "pruning.py --root DATA --data mnist --model mlp --hidden 300 100 --density 0.05 0.02 0.01 "
    "0.005 --optimizer adamw --lr 0.002 --tune-lr 0.001 --prior-std 0.2 --epochs 40 "
    "--tune-epochs 20 --no-compile --no-ood"
)
_CURVES = (
    *jobs(f"{_DIGITS} --rows spike-slab --inclusion 0.05 --beta 0.1", "pruning", 5, 180),
    *jobs(f"{_DIGITS} --rows spike-slab --inclusion 0.02 --beta 0.3", "pruning", 5, 180),
    *jobs(f"{_DIGITS} --rows variational-dropout --dropout-beta 0.3", "pruning", 5, 180),
    *jobs(f"{_DIGITS} --rows variational-dropout --dropout-beta 1", "pruning", 5, 180),
    *jobs(f"{_DIGITS} --rows snr --beta 0.3", "pruning", 5, 150),
    *jobs(f"{_DIGITS} --rows magnitude --weight-decay 0", "pruning", 5, 120),
)
_SMALL = (
    "side_by_side.py --root DATA --files FILES --model lenet5 --optimizer adamw --lr 0.002 "
    "--tune-lr 0.001 --weight-decay 0 --prior-std 0.2 --beta 0.03 --sparse-beta 0.03 --chain-beta "
    "0.03 --epochs 30 --tune-epochs 15 --no-compile --components 256 --target-bytes 30000 "
    "--chain-bytes 9000"
)
_SIDE_BY_SIDE = tuple(
    job
    for data in ("mnist", "fashion-mnist")
    for job in _by_family(f"{_SMALL} --data {data}", f"lenet5-{data}", 300).values()
)
_SMALL_RESNET = (
    "side_by_side.py --root DATA --files FILES --model resnet20 --lr 0.1 --std-lr 0.01 --beta "
    "0.025 --sparse-beta 0.025 --chain-beta 0.025 --epochs 40 --tune-epochs 20 --target-bytes "
    "150000 --chain-bytes 31000"
)
_BY_FAMILY_20 = _by_family(_SMALL_RESNET, "resnet20-cifar10", 900)
_ALL_20 = tuple(_BY_FAMILY_20.values())
_HEADLINE_FAMILIES = ("deterministic", "mean-field", "subspace", "chain")
_LATER_SEEDS_20 = jobs(
    f"{_SMALL_RESNET} --families {' '.join(_HEADLINE_FAMILIES)} --density 0.05",
    "side_by_side", 12, 310, (1, 2),
)  # fmt: skip
_DIGITS_20 = _by_family(
    "side_by_side.py --root DATA --files FILES --data mnist --model resnet20 --crop-digits --lr "
    "0.1 --std-lr 0.01 --beta 0.007 --sparse-beta 0.007 --chain-beta 0.007 --epochs 8 "
    "--tune-epochs 4 --share-epochs 2 --target-bytes 150000 --chain-bytes 31000",
    "resnet20-mnist",
    500,
)
_HEADLINE_FILES = (_chain(0)[0], _chain(0)[-1])
_CORRUPTED = (
    *_chain(0),
    *_corrupted(_HEADLINE_FILES, 70),
    *_ALL_18,
    *_corrupted(_ALL_18, 70),
    *_ALL_20,
    *_corrupted(_ALL_20, 40),
)
_REGRESSIONS = tuple(
    job
    for name in UCI_SETS
    for job in once(f"side_by_side_uci.py --root DATA --sets {name}", "side_by_side_uci", 81, 820)
)
_FRESH_SEEDS = (100, 101, 102)  # that chose nothing
_RECIPES = tuple(
    job
    for names, seconds in (
        ("deterministic", 170), ("deep-ensemble", 830), ("mean-field sharing", 260),
        ("subspace", 210), ("spike-slab", 600), ("swag", 180), ("ivon", 400),
    )
    for job in jobs(
        f"by_recipe.py --root DATA --runs FILES --recipe "
        f"{' '.join(f'recipes/resnet18-cifar10/{name}.yaml' for name in names.split())}",
        "recipes", len(names.split()), seconds, _FRESH_SEEDS,
    )
)  # fmt: skip
_PEERS = "peers/compare.py --root DATA"
_DIGIT_PEERS = f"{_PEERS} --data mnist --model mlp --epochs 20 --beta 0.03 --prior-std 0.2"
_LIBRARIES = (
    *(
        job
        for lr, rows, count in (
            (0.2, "pocketbayes 'pocketbayes, compiled' laplace-torch", 3),
            (0.05, "'pocketbayes, weights drawn' plain bayesian-torch torch-uncertainty", 4),
            (0.5, "ivon", 1),
        )
        for job in jobs(f"{_DIGIT_PEERS} --weight-decay 0 --lr {lr} --rows {rows}", "peers", count,
                        60 * count)
    ),
    *jobs(f"{_PEERS} --epochs 15", "peers", 9, 620, (0,)),
    *jobs(f"{_PEERS} --epochs 15 --lr 1.0 --rows ivon", "peers", 1, 35, (0,)),
)  # fmt: skip
_NO_CIFAR_100 = "CIFAR-100: no copy of the data was at hand"
_NO_IMAGENET = "ImageNet: no copy of the data was at hand"
_NO_CURVES = "the paper's curves as numbers: none were at hand"
_NO_BASELINES = "the paper's baselines: not run; its figures for them are in docs/results/files.md"

TABLES = {
    "headline": Table(
        "the first table: plain, mean-field, subspaces, sharing both ways, the chain",
        (
            *_PLAIN,
            *_subspace(0.05, 0.01),
            *_SHARED_18,
            *_SHARED_20,
            *_CHAIN,
            *_RATE_DISTORTION,
            *_DRAWN,
            *(_BY_FAMILY_20[family] for family in _HEADLINE_FAMILIES),
            *_LATER_SEEDS_20,
            *_SHARED_MNIST,
        ),
    ),
    "ssvi-1": Table(
        "sparse subspaces against dense VI, ResNet-18 on CIFAR-10",
        (*(_chain(seed)[0] for seed in SEEDS), *_subspace(0.05, 0.01), *_DRAWN),
        (_NO_CIFAR_100,),
    ),
    "ssvi-2": Table(
        "sparse subspaces against other sparse networks", _subspace(0.05, 0.01),
        (_NO_CIFAR_100, _NO_BASELINES),
    ),
    "ssvi-3": Table(
        "out of distribution: CIFAR-10 against SVHN", _subspace(0.05, 0.01), (_NO_CIFAR_100,)
    ),
    "ssvi-figure-2": Table("accuracy against density, and the choices of the method",
                           (*_SWEEP, *_CRITERIA, *_FIRST_STDS), (_NO_CURVES,)),
    "ssvi-figure-4": Table(
        "fifteen corruptions, ResNet-18 and ResNet-20 on CIFAR-10",
        _CORRUPTED,
        (_NO_CURVES,),
    ),
    "sharing-3": Table("weight sharing on CIFAR-10", (*_SHARED_18, *_SHARED_20),
                       (_NO_CIFAR_100, _NO_IMAGENET)),
    "sharing-4": Table("weight sharing against quantisation", (*_ABLATION, *_SHARED_MNIST)),
    "sharing-5": Table("outliers and blends", _ABLATION),
    "sharing-6": Table(
        "time of training and of predictions",
        (*once("inference.py --model resnet18", "inference", 4, 40),
         *once("stage_two.py", "stage_two", 3, 40)),
    ),
    "sharing-7": Table("weight sharing, CIFAR-10 against SVHN", _SHARED_18),
    "sharing-8": Table("the threshold of outliers", _ABLATION),
    "sharing-10": Table("merging", _ABLATION, (_NO_CIFAR_100,)),
    "spike-slab": Table("accuracy against sparsity, MNIST", _CURVES,
                        (_NO_CURVES,)),
    "chain": Table("subspace, pruned, shared; mean-field, shared: bytes on disk",
                   (*_CHAIN, *_RATE_DISTORTION)),
    "peers": Table("other libraries, which must be installed beside ours (peers/compare.py)",
                   _LIBRARIES),
    "side-by-side": Table("every method on the same network, data and epochs",
                          (*_SIDE_BY_SIDE, *_ALL_20, *_LATER_SEEDS_20, *_DIGITS_20.values(),
                           *_ALL_18)),
    "recipes": Table("the headline by frozen recipes and seeds that chose nothing", _RECIPES),
    "regressions": Table("every method on the UCI regressions, on a CPU", _REGRESSIONS),
}  # fmt: skip
