"""What test_distributed lets two processes do, in one job: `torchrun two_processes.py FOLDER`."""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import pocketbayes as pb
import pocketbayes.training.gradients
from pocketbayes import cli
from pocketbayes.layers.bayesian import set_estimator

RANK = int(os.environ.get("RANK", 0))


def plain(
    folder: Path, batch: int, estimator: str, accumulate: int = 1, flatness: float = 0
) -> dict:
    """A run in double precision, with its noise noted."""
    x = torch.randn(96, 5, generator=torch.Generator().manual_seed(0))
    y = x[:, :3].argmax(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)).double()
    model = pb.bayesianize_(net, std_init=0.05, estimator=estimator)
    loader = DataLoader(TensorDataset(x.double(), y), batch_size=batch, shuffle=True)
    method = pb.MeanField(optimizer="sgd", lr=0.1, beta=0.1, flatness=flatness)
    noise = []
    model[0].register_forward_hook(lambda m, i, o: noise.append(o.detach().sum().item()))
    out = folder / f"plain-{estimator}-{accumulate}-{flatness}"
    options = {"out": out, "accumulate": accumulate, "progress": False, "device": "cpu"}
    result = pb.fit(model, loader, method, epochs=4, **options)
    parameters = [p.detach() for p in model.parameters()]
    return {"history": result.history, "noise": noise, "parameters": parameters}


def accumulated(folder: Path) -> dict:
    """The same of two batches a step, and how often all gradients were sent."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        found = plain(folder, 4, "mean", accumulate=2)
    count = sum(p.numel() for p in found["parameters"])
    shapes = [e.input_shapes for e in seen.events() if e.name == "gloo:all_reduce"]
    return found | {"reductions": sum(shape[0] == [count] for shape in shapes if shape)}


def wide(*norm: nn.Module) -> tuple[nn.Module, DataLoader]:
    """A network that differs from process to process: all must end up with the first one's."""
    x = torch.randn(96, 20, generator=torch.Generator().manual_seed(0))
    y = x[:, :3].argmax(1)
    torch.manual_seed(RANK)
    net = nn.Sequential(nn.Linear(20, 64), *norm, nn.ReLU(), nn.Linear(64, 3))
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    return pb.bayesianize_(net, estimator="weight"), loader


class Spy(pb.Subspace):
    """Notes places after each step and, once, gradients with and without the others' share."""

    def after_step(self, model, moment):
        if moment.step == 2:
            GRADIENTS.append(moment.dense_gradients("mean"))
            averaged = pocketbayes.training.gradients.averaged
            pocketbayes.training.gradients.averaged = lambda gradient: gradient
            GRADIENTS.append(moment.dense_gradients("mean"))
            pocketbayes.training.gradients.averaged = averaged
        done = super().after_step(model, moment)
        posteriors = [q for _, q in pb.named_posteriors(model) if hasattr(q, "index")]
        PLACES.append([q.index.clone() for q in posteriors])
        return done


PLACES, GRADIENTS = [], []


def sparse(folder: Path, density: float, allocation: str, epochs: int = 4) -> dict:
    """A run of exchanges."""
    PLACES.clear()
    GRADIENTS.clear()
    model, loader = wide(nn.BatchNorm1d(64))
    method = Spy(density=density, allocation=allocation, update_every=4)
    result = pb.fit(model, loader, method, epochs=epochs, progress=False, device="cpu")
    return {
        "places": list(PLACES),
        "gradients": list(GRADIENTS),
        "accuracy": result.history[-1]["accuracy"],
        "parameters": [p.detach() for p in model.parameters()],
    }


def sent(folder: Path, density: float) -> dict:
    """All that the first process sends in such a run: what it does, and how many numbers."""
    if RANK > 0:
        return sparse(folder, density, "uniform", epochs=2)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        sparse(folder, density, "uniform", epochs=2)
    shapes = [(e.name, e.input_shapes) for e in seen.events() if e.name.startswith("gloo:")]
    return {"sent": [(name, shape[0][0]) for name, shape in shapes if shape and shape[0]]}


def shared(folder: Path) -> dict:
    """A run of shared weights: all that its model holds."""
    model, loader = wide()
    method = pb.Sharing(components=20, least_members=3, lr=1e-2, reassign_every=1)
    pb.fit(model, loader, method, epochs=3, progress=False, device="cpu")
    return dict(model.state_dict()) | {"kl": pb.kl(model).detach()}


def norms(folder: Path) -> dict:
    """Shared weights without training or noise: all that the model holds, and what is its mean."""
    model, loader = wide(nn.BatchNorm1d(64))
    set_estimator(model, "mean")
    pb.fit(model, loader, pb.Sharing(components=20), epochs=0, progress=False, device="cpu")
    mean = model[0](loader.dataset.tensors[0]).mean(0)
    return dict(model.state_dict()) | {"mean": mean.detach()}


def noise(folder: Path) -> dict:
    """The same of a regression: all that the model holds, and what its noise should be."""
    model, loader = wide()
    set_estimator(model, "mean")
    x = loader.dataset.tensors[0]
    loader = DataLoader(TensorDataset(x, x[:, :3]), batch_size=8, shuffle=True)
    known = {"epochs": 0, "progress": False, "device": "cpu"}
    pb.fit(model, loader, pb.Sharing(components=20), likelihood="gaussian", **known)
    error = (model(x) - x[:, :3]).square().mean(0)
    return dict(model.state_dict()) | {"error": error.detach()}


class Added(nn.Module):
    """Two inputs by name, an output with logits."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(20, 3), nn.BatchNorm1d(3), nn.Linear(20, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> dict:
        return {"logits": self.norm(self.first(left)) + self.second(right)}


def best(folder: Path) -> dict:
    """A run on dicts, ended early and with its best epoch: all that the model holds."""
    x = torch.randn(96, 20, generator=torch.Generator().manual_seed(0))
    rows = [{"left": a, "right": -a, "labels": a[:3].argmax()} for a in x]
    torch.manual_seed(RANK)
    model = pb.bayesianize_(Added(), estimator="weight")
    val = [{"left": x[:40], "right": x[40:80], "labels": torch.arange(40) % 3}]  # of no use
    options = {"val_loader": val, "keep_best": True, "patience": 3, "epochs": 20}
    method = pb.MeanField(lr=3e-2, warmup=0.1)
    loader = DataLoader(rows, batch_size=8, shuffle=True)
    result = pb.fit(model, loader, method, **options, progress=False, device="cpu")
    counted = {"epochs": torch.tensor(len(result.history)), "best": torch.tensor(result.best_epoch)}
    return dict(model.state_dict()) | counted


class Own:
    """Batches of this process alone."""

    def __init__(self, batches: list) -> None:
        self.batches = batches

    def __iter__(self):
        return (batch() if callable(batch) else batch for batch in self.batches)

    def for_rank(self, rank: int, world_size: int) -> "Own":
        return self


def unreadable() -> tuple:
    """A batch that cannot be read."""
    raise OSError("the disk is gone")


def terminated() -> tuple:
    """A batch that comes with the signal to end."""
    os.kill(os.getpid(), signal.SIGTERM)
    return GOOD


GOOD = torch.ones(4, 20), torch.tensor([0, 1, 2, 0])
ENDINGS = {
    "label": (1, [GOOD, (GOOD[0], torch.tensor([0, 1, 9, 0]))]),
    "input": (0, [GOOD, (GOOD[0] * torch.nan, GOOD[1])]),
    "shape": (1, [GOOD, (GOOD[0][:, :7], GOOD[1])]),
    "reading": (1, [GOOD, unreadable]),
    "number": (1, [GOOD]),
    "signal": (1, [terminated, GOOD]),
    "validation": (1, [GOOD, GOOD]),
}


def ending(folder: Path, name: str) -> dict:
    """How a run ends in which something befalls one of two processes."""
    model, _ = wide()
    rank, batches = ENDINGS[name]
    loader = Own(batches if rank == RANK else [GOOD, GOOD])
    out, val = folder / f"ending-{name}", None
    if name == "validation":
        val = [(GOOD[0][:, :7], GOOD[1])]
    options = {"epochs": 3, "progress": False, "device": "cpu", "dataset_size": 16, "out": out}
    try:
        pb.fit(model, loader, pb.MeanField(lr=1e-3), val_loader=val, **options)
    except (Exception, SystemExit) as error:
        torch.distributed.barrier()  # both are still there
        stored = (out / "checkpoint.pt").exists()
        return {"kind": type(error).__name__, "words": str(error), "stored": stored}
    return {"kind": "none"}


class Stream(IterableDataset):
    """Rows that are only read from first to last, by each process its part, or by each all."""

    def __init__(self, is_split: bool) -> None:
        self.is_split = is_split

    def __len__(self) -> int:
        return 96

    def __iter__(self):
        x = torch.randn(96, 20, generator=torch.Generator().manual_seed(0))
        rows = list(zip(x, x[:, :3].argmax(1), strict=True))
        return iter(rows[RANK::2] if self.is_split else rows)


def stream(folder: Path, is_split: bool) -> dict:
    """A run on a stream; whether it is refused."""
    model, _ = wide()
    logger, told = Rows(), {}
    try:
        loader = DataLoader(Stream(is_split), batch_size=8)
        result = pb.fit(model, loader, epochs=3, progress=False, device="cpu", logger=logger)
        told = {"steps": result.steps, "lrs": [row["lr"] for row in result.history]}
    except pb.DataError as error:
        told = {"words": str(error)}
    return told | {"logged": logger.steps}


class Rows:
    """A logger that notes which steps it was given."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def log_metrics(self, metrics: dict, step: int) -> None:
        self.steps.append(step)


def command(folder: Path, *words: str) -> dict:
    """The command line in each process, as it starts itself there."""
    sys.argv = ["pocketbayes", *words, "--processes", "2"]
    os.chdir(folder)
    try:
        cli.main()
    except SystemExit as stopped:
        return {"code": stopped.code or 0}


TRAIN = ["train", "--data", "digits", "--model", "mlp", "--hidden", "16", "--batch-size", "16"]
JOBS = {
    "mean": (plain, 8, "mean"),
    "lrt": (plain, 8, "lrt"),
    "flat": (plain, 4, "mean", 2, 0.3),
    "accumulated": (accumulated,),
    "global": (sparse, 0.3, "global"),
    "sent-0.1": (sent, 0.1),
    "sent-1.0": (sent, 1.0),
    "shared": (shared,),
    "norms": (norms,),
    "noise": (noise,),
    "best": (best,),
    "split": (stream, True),
    "not-split": (stream, False),
    **{f"ending-{name}": (ending, name) for name in ENDINGS},
    "parent": (command, *TRAIN, "--epochs", "2", "--out", "parent"),
    "child": (command, *TRAIN, "--epochs", "1", "--out", "child", "--parent", "parent",
              "--method", "sharing", "--components", "20"),
}  # fmt: skip

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, (job, *arguments) in JOBS.items():
        torch.save(job(folder, *arguments), folder / f"{name}-{RANK}.pt")
        torch.distributed.barrier()  # the first process alone writes files
