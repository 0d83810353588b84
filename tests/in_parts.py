"""What test_sharding lets two processes do, in one job: `torchrun in_parts.py FOLDER`."""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.training import steps

RANK = int(os.environ.get("RANK", 0))
METHOD = pb.MeanField(lr=1e-2, beta=0.1, prior="learned", warmup=0.0, clip_norm=5.0)
OPTIONS = {"epochs": 2, "progress": False, "device": "cpu"}


class Network(nn.Module):
    """Attention, which reads a layer that it never calls; tied layers; 3 rows for 2 processes."""

    def __init__(self, *norm: nn.Module) -> None:
        super().__init__()
        self.first, self.attention = nn.Linear(5, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.middle, self.tied = nn.Linear(8, 8), nn.Linear(8, 8)
        self.tied.weight = self.middle.weight
        self.last = nn.Sequential(nn.LayerNorm(8), *norm, nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)[:, None]
        x = self.attention(x, x, x)[0][:, 0].relu()
        return self.last(self.tied(self.middle(x).relu()))


def network(*norm: nn.Module, estimator: str = "mean") -> nn.Module:
    """One that differs from process to process: all must end up with the first one's."""
    torch.manual_seed(RANK)
    return pb.bayesianize_(Network(*norm).double(), std_init=0.05, estimator=estimator)


def data(batch: int, likelihood: str = "categorical") -> DataLoader:
    """96 examples of classes or values."""
    x = torch.randn(96, 5, generator=torch.Generator().manual_seed(0)).double()
    y = x[:, :3].argmax(1) if likelihood == "categorical" else x[:, :3]
    return DataLoader(TensorDataset(x, y), batch, shuffle=True)


def file_of(folder: Path, batch: int, strategy: str, likelihood: str) -> dict:
    """Steps of two batches each, validated: the model and its file, and what was trained here."""
    model, loader, held = network(), data(batch, likelihood), []
    make = steps.make_optimizers

    def noted(trained: nn.Module, method: pb.MeanField) -> list:
        held.append(sum(local(p).numel() for p in trained.parameters()))
        return make(trained, method)

    steps.make_optimizers = noted
    options = OPTIONS | {"strategy": strategy, "likelihood": likelihood, "accumulate": 2}
    result = pb.fit(model, loader, METHOD, val_loader=list(loader), keep_best=True, **options)
    steps.make_optimizers = make
    path = folder / f"{strategy}-{likelihood}-{RANK}.pocket"
    pb.save(model, path)
    plain = not any(isinstance(t, DTensor) for t in [*model.parameters(), *model.buffers()])
    found = {"history": result.history, "held": held[0], "plain": plain, "path": str(path)}
    return found | {"parameters": [p.detach() for p in model.parameters()]}


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def drawn(folder: Path, strategy: str) -> dict:
    """A run with noise, running statistics and SGD: all that its model holds."""
    model = network(nn.BatchNorm1d(8), estimator="weight")
    method = pb.MeanField(optimizer="sgd", lr=0.05, beta=0.1, prior="fixed", warmup=0.0)
    pb.fit(model, data(8), method, strategy=strategy, **OPTIONS)
    return dict(model.state_dict())


def resumed(folder: Path) -> dict:
    """A run that ends within its second epoch and goes on from its checkpoint, and the whole."""
    whole, out, loader = network(), folder / "resumed", data(8)
    options = OPTIONS | {"strategy": "fsdp"}
    pb.fit(whole, Interrupted(loader, never=True), METHOD, **options)
    stopped = False
    try:
        pb.fit(network(), Interrupted(loader), METHOD, out=out, **options)
    except KeyboardInterrupt:
        stopped = True
    torch.distributed.barrier()  # the checkpoint is written
    model = network()
    pb.fit(model, Interrupted(loader, never=True), METHOD, out=out, resume=True, **options)
    return {
        "whole": dict(whole.state_dict()),
        "resumed": dict(model.state_dict()),
        "stopped": stopped,
    }


class Interrupted:
    """A loader whose batch 9 comes with Ctrl-C in one process."""

    def __init__(self, loader: DataLoader, never: bool = False) -> None:
        self.dataset, self.left = loader.dataset, -1 if never else 9

    def __len__(self) -> int:
        return 6

    def for_rank(self, rank: int, world_size: int) -> "Interrupted":
        self.rank = rank
        return self

    def __iter__(self):
        for number in range(6):
            self.left -= 1
            if self.left == 0 and self.rank == 1:
                os.kill(os.getpid(), signal.SIGINT)
            rows = slice(16 * number + 8 * self.rank, 16 * number + 8 * self.rank + 8)
            yield self.dataset[rows]


def own_loop(folder: Path, split: bool) -> dict:
    """A loop of one's own in which each process has all examples: the losses, KLs and priors."""
    torch.manual_seed(0)
    model = network()
    for p, q in zip(model.parameters(), Seeded.parameters(), strict=True):
        p.data.copy_(q)
    if split:
        for layer in (model.first, model.attention, model.last[-1]):
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(pb.parameter_groups(model))
    found = []
    for x, y in [data(96).dataset.tensors] * 12:
        loss = pb.loss(model, model(x), y, 96)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append([float(loss.detach()), float(pb.kl(model).detach())])
    priors = [q.prior_std for _, q in pb.named_posteriors(model)]
    return {"numbers": torch.tensor(found), "priors": priors}


torch.manual_seed(0)
Seeded = pb.bayesianize_(Network().double(), std_init=0.05)
JOBS = {
    "classes": (file_of, 4, "fsdp", "categorical"),
    "classes-whole": (file_of, 4, "ddp", "categorical"),
    "values": (file_of, 4, "fsdp", "gaussian"),
    "values-whole": (file_of, 4, "ddp", "gaussian"),
    "drawn": (drawn, "fsdp"),
    "drawn-whole": (drawn, "ddp"),
    "resumed": (resumed,),
    "loop": (own_loop, True),
    "loop-whole": (own_loop, False),
}  # fmt: skip

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for name, (job, *arguments) in JOBS.items():
        torch.save(job(folder, *arguments), folder / f"{name}-{RANK}.pt")
        torch.distributed.barrier()  # the first process alone writes files
