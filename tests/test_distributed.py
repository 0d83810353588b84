"""Two processes on the CPU, as `torchrun script.py` starts them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = """
import json, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import pocketbayes as pb

out, batch, estimator = sys.argv[1], int(sys.argv[2]), sys.argv[3]
generator = torch.Generator().manual_seed(0)
x = torch.randn(96, 5, generator=generator)
y = x[:, :3].argmax(1)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)).double()
model = pb.bayesianize_(net, std_init=0.05, estimator=estimator)
loader = DataLoader(TensorDataset(x.double(), y), batch_size=batch, shuffle=True)
method = pb.MeanField(optimizer="sgd", lr=0.1, beta=0.1)
noise = []
model[0].register_forward_hook(lambda m, i, o: noise.append(o.detach().sum().item()))
result = pb.fit(model, loader, method, epochs=4, progress=False, out=out, device="cpu")
rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
torch.save({"history": result.history, "noise": noise,
            "parameters": [p.detach() for p in model.parameters()]}, f"{out}/rank{rank}.pt")
"""


def run(tmp_path: Path, processes: int, batch: int, estimator: str) -> list[dict]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    out = tmp_path / f"{processes}-{estimator}"
    out.mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), str(script), str(out)]
    done = subprocess.run(
        [*command, str(batch), estimator], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[:6000]
    return [torch.load(out / f"rank{r}.pt") for r in range(processes)]


@pytest.mark.parametrize("estimator", ["mean", "lrt"])
def test_two_processes_do_as_one(tmp_path, estimator):
    (one,) = run(tmp_path, 1, 16, estimator)
    two = run(tmp_path, 2, 8, estimator)
    for a, b in zip(two[0]["parameters"], two[1]["parameters"], strict=True):
        assert torch.equal(a, b)
    if estimator == "mean":  # noise switched off
        for got, want in zip(two[0]["history"], one["history"], strict=True):
            for key in ("loss", "nll", "kl", "accuracy"):
                assert got[key] == pytest.approx(want[key], rel=1e-9)
        for a, b in zip(two[0]["parameters"], one["parameters"], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    else:
        assert two[0]["noise"] != two[1]["noise"]
        assert two[0]["history"][-1]["accuracy"] > 0.6
