"""What is compared: a family is one training and all that is made of its network afterwards."""

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import latent_posterior
import torch
from rank_one import RANDOM, scaled_
from stored import Fit, sharing_to_fit
from timing import wait
from torch import nn

import pocketbayes as pb
from pocketbayes.methods import Method

INT8_STD_BITS = 4
RANK_ONE = {"prior_std": 0.1, "std_init": 0.05}  # of its scales; the first is the paper's


class Made(NamedTuple):
    """A model, what it is called, and the seconds of training behind it.

    `net` makes the plain network, if a file cannot name it.
    """

    row: str
    model: nn.Module
    seconds: float
    predictives: tuple[str | None, ...] = (None,)
    net: Callable[[], nn.Module] | None = None


class Bench(NamedTuple):
    """What all methods have in common.

    Attributes:
        a: settings, of which `add_arguments` names those of the families.
        seed: of the network.
        build: makes the plain network, with options such as `dropout`.
        fit: trains.
        device: on which that happens.
    """

    a: argparse.Namespace
    seed: int
    build: Callable[..., nn.Module]
    fit: Fit
    device: str

    def network(self, estimator: str = "lrt", **options: Any) -> nn.Module:
        """The same beginning for every method."""
        torch.manual_seed(self.seed)
        known = {"prior_std": self.a.prior_std, "std_init": self.a.std_init}
        return pb.bayesianize_(self.build(**options), estimator=estimator, **known)

    def trained(self, model: nn.Module, method: Method, epochs: int) -> tuple[nn.Module, float]:
        """The model after some epochs, and the seconds they took."""
        begin = time.perf_counter()
        model = self.fit(model, method, epochs)
        wait(self.device)
        return model, time.perf_counter() - begin

    def rates(self) -> dict[str, Any]:
        """Settings of every optimiser."""
        a = self.a
        return {"optimizer": a.optimizer, "lr": a.lr, "weight_decay": a.weight_decay}

    def stds(self, beta: float) -> dict[str, Any]:
        """Those of methods that train stds."""
        return self.rates() | {"beta": beta, "std_lr": self.a.std_lr, "std_init": self.a.std_init}

    def tuned(
        self, model: nn.Module, density: float, by: str, beta: float
    ) -> tuple[nn.Module, float]:
        """What is left after pruning, fine-tuned, and the seconds that took."""
        known = self.stds(beta) | {"lr": self.a.tune_lr, "warmup": 0.0}
        model = pb.prune_(model, density, by=by)
        return self.trained(model, pb.MeanField(**known), self.a.tune_epochs)

    def sharing(self, beta: float) -> pb.Sharing:
        """A codebook for all weights, by the paper's mixture."""
        a = self.a
        rates = {"lr": a.share_lr, "std_lr": a.share_std_lr, "weight_decay": 0.0}
        return pb.Sharing(components=a.components, beta=beta, **rates)

    def shared_to_fit(self, row: str, parent: Made, beta: float, target: int) -> Iterator[Made]:
        """A rate-distortion codebook, fine-tuned, if any file is so small."""
        begin = time.perf_counter()
        method = sharing_to_fit(self.fit, parent.model, self.sharing(beta), target)
        if method is None:
            return
        spent = parent.seconds + time.perf_counter() - begin
        model, seconds = self.trained(copy.deepcopy(parent.model), method, self.a.share_epochs)
        yield Made(row, model, spent + seconds)


def deterministic(bench: Bench) -> Iterator[Made]:
    method = pb.Deterministic(**bench.rates())
    yield Made("deterministic", *bench.trained(bench.network(), method, bench.a.epochs))


def mc_dropout(bench: Bench) -> Iterator[Made]:
    net = bench.network(dropout=bench.a.dropout)
    method = pb.MCDropout(**bench.rates())
    yield Made("MC dropout", *bench.trained(net, method, bench.a.epochs))


def swag(bench: Bench) -> Iterator[Made]:
    method = pb.SWAG(**bench.rates())
    made = bench.trained(bench.network("weight"), method, bench.a.epochs)
    yield Made("SWAG", *made, ("weight",))


def ivon(bench: Bench) -> Iterator[Made]:
    a = bench.a
    method = pb.IVON(
        optimizer=a.optimizer, lr=a.lr, beta=a.beta, std_init=a.std_init, step_size=a.step_size,
        curvature_rate=a.curvature_rate, prior_std=a.ivon_prior_std,
    )  # fmt: skip
    yield Made("IVON", *bench.trained(bench.network(), method, a.epochs), ("lrt",))


def rank_one(bench: Bench) -> Iterator[Made]:
    """Mean-field VI over two vectors for each layer, whose matrix is a point."""

    def net() -> nn.Module:
        torch.manual_seed(bench.seed)
        return scaled_(bench.build())

    model = pb.bayesianize_(net(), estimator="weight", include=RANDOM, **RANK_ONE)
    method = pb.MeanField(**bench.stds(bench.a.beta), prior="fixed")
    made = bench.trained(model, method, bench.a.epochs)
    yield Made("Rank-1 BNN", *made, ("weight",), net)


def lp_bnn(bench: Bench) -> Iterator[Made]:
    """Rank-1 vectors drawn by an autoencoder for each layer; its file needs the decoder alone."""

    def net() -> nn.Module:
        torch.manual_seed(bench.seed)
        return latent_posterior.scaled_(bench.build())

    model = latent_posterior.encoded_(net())
    method = pb.MeanField(**bench.stds(bench.a.beta), prior="fixed")
    model, seconds = bench.trained(model, method, bench.a.epochs)
    yield Made("LP-BNN", latent_posterior.settled_(model), seconds, ("weight",), net)


def deep_ensemble(bench: Bench) -> Iterator[Made]:
    method = pb.DeepEnsemble(members=bench.a.members, **bench.rates())
    row = f"ensemble of {bench.a.members}"
    yield Made(row, *bench.trained(bench.network(), method, bench.a.epochs))


def bayes_by_backprop(bench: Bench) -> Iterator[Made]:
    method = pb.MeanField(**bench.stds(bench.a.beta))
    model, seconds = bench.trained(bench.network("weight"), method, bench.a.epochs)
    yield Made("Bayes by Backprop", model, seconds)


def mean_field(bench: Bench) -> Iterator[Made]:
    """Mean-field VI, and what is made of its network afterwards."""
    a = bench.a
    method = pb.MeanField(**bench.stds(a.beta))
    parent, spent = bench.trained(bench.network(), method, a.epochs)
    yield Made("mean-field", parent, spent, ("lrt", "weight"))
    packed = copy.deepcopy(parent)
    pb.quantize_(packed, std_bits=INT8_STD_BITS)
    yield Made(f"mean-field, int8 means, {INT8_STD_BITS}-bit stds", packed, spent)
    model, seconds = bench.trained(copy.deepcopy(parent), bench.sharing(a.beta), a.share_epochs)
    yield Made("mean-field, shared: mixture", model, spent + seconds)
    row = "mean-field, shared: rate-distortion"
    yield from bench.shared_to_fit(row, Made("", parent, spent), a.beta, a.target_bytes)
    for density in a.prune:
        model, seconds = bench.tuned(copy.deepcopy(parent), density, "snr", a.beta)
        yield Made(f"mean-field, pruned to {density:.3g}", model, spent + seconds)


def rigl(bench: Bench) -> Iterator[Made]:
    for density in bench.a.prune:
        method = pb.RigL(density=density, **bench.rates())
        model, seconds = bench.trained(bench.network(), method, bench.a.epochs)
        yield Made(f"RigL {density:.3g}", model, seconds)


def subspace(bench: Bench) -> Iterator[Made]:
    for density in bench.a.density:
        yield Made(f"subspace {density:.3g}", *_subspace(bench, density), ("weight", "lrt"))


def _subspace(bench: Bench, density: float) -> tuple[nn.Module, float]:
    method = pb.Subspace(density=density, **bench.stds(bench.a.sparse_beta))
    return bench.trained(bench.network("weight"), method, bench.a.epochs)


def spike_slab(bench: Bench) -> Iterator[Made]:
    """Inclusion variables from the start; what is left of the network is fine-tuned."""
    a = bench.a
    method = pb.SpikeSlab(inclusion=a.inclusion, **bench.stds(a.beta))
    parent, spent = bench.trained(bench.network(), method, a.epochs)
    for density in a.prune:
        model, seconds = bench.tuned(copy.deepcopy(parent), density, "inclusion", a.beta)
        yield Made(f"spike-and-slab {density:.3g}", model, spent + seconds)


def chain(bench: Bench) -> Iterator[Made]:
    """A sparse subspace, pruned step by step, whose weights then share a codebook."""
    a = bench.a
    first, *later = a.chain
    model, spent = _subspace(bench, first)
    for density in later:
        model, seconds = bench.tuned(model, density, "snr", a.chain_beta)
        spent += seconds
        yield Made(f"chain, pruned to {density:.3g}", model, spent)
    thin = Made("", model, spent)
    yield from bench.shared_to_fit("chain, shared", thin, a.chain_beta, a.chain_bytes)


FAMILIES: dict[str, Callable[[Bench], Iterator[Made]]] = {
    "deterministic": deterministic, "mc-dropout": mc_dropout, "deep-ensemble": deep_ensemble,
    "bayes-by-backprop": bayes_by_backprop, "mean-field": mean_field, "rigl": rigl,
    "subspace": subspace, "spike-slab": spike_slab, "chain": chain, "swag": swag,
    "ivon": ivon, "rank-one": rank_one, "latent-posterior": lp_bnn,
}  # fmt: skip


def add_arguments(made: argparse.ArgumentParser) -> None:
    """The settings of families; rates, epochs, beta and what begins a network come beside them."""
    made.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    made.add_argument("--optimizer", default="sgd", choices=("sgd", "adamw"))
    made.add_argument("--sparse-beta", type=float, default=0.01, help="of subspaces")
    made.add_argument("--density", nargs="+", type=float, default=[0.1, 0.05, 0.02, 0.01])
    made.add_argument("--prune", nargs="+", type=float, default=[0.05], help="also of RigL")
    made.add_argument("--tune-lr", type=float, default=0.1)
    made.add_argument("--inclusion", type=float, default=0.05)
    made.add_argument("--dropout", type=float, default=0.1)
    made.add_argument("--step-size", type=float, default=0.1, help="of IVON")
    made.add_argument("--curvature-rate", type=float, default=0.01, help="of IVON")
    made.add_argument("--ivon-prior-std", type=float, default=0.5)
    made.add_argument("--members", type=int, default=5)
    made.add_argument(
        "--components", type=int, default=2000, help="Gaussians of a codebook, at most"
    )
    made.add_argument("--target-bytes", type=int, default=990_000, help="by rate-distortion")
    made.add_argument("--chain", nargs="+", type=float, default=[0.1, 0.06, 0.035])
    made.add_argument("--chain-beta", type=float, default=0.01)
    made.add_argument("--chain-bytes", type=int, default=490_000)
    made.add_argument("--share-lr", type=float, default=1e-4)
    made.add_argument("--share-std-lr", type=float, default=1e-3)
