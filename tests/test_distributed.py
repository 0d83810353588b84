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


SPARSE_SCRIPT = """
import sys, torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset
import pocketbayes as pb
import pocketbayes.gradients as there

out, density, allocation = sys.argv[1], float(sys.argv[2]), sys.argv[3]
rank = int(__import__("os").environ.get("RANK", 0))
x = torch.randn(96, 20, generator=torch.Generator().manual_seed(0))
y = x[:, :3].argmax(1)
torch.manual_seed(rank)  # networks that differ: all must end up with the first one's
net = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3))
model = pb.bayesianize_(net, estimator="weight")
places, gradients = [], []

class Spy(pb.Subspace):
    def after_step(self, model, moment):
        if moment.step == 2:
            gradients.append(moment.dense_gradients("mean"))
            averaged = there._averaged
            there._averaged = lambda gradient: gradient
            gradients.append(moment.dense_gradients("mean"))
            there._averaged = averaged
        done = super().after_step(model, moment)
        places.append([q.index.clone() for _, q in pb.named_posteriors(model)
                       if hasattr(q, "index")])
        return done

method = Spy(density=density, allocation=allocation, update_every=4)
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
    result = pb.fit(model, loader, method, epochs=4, progress=False, device="cpu")
sent = [(e.name, e.input_shapes[0][0]) for e in seen.events()
        if e.name in ("gloo:all_reduce", "gloo:broadcast") and e.input_shapes and e.input_shapes[0]]
torch.save({"places": places, "sent": sent, "gradients": gradients,
            "accuracy": result.history[-1]["accuracy"],
            "parameters": [p.detach() for p in model.parameters()]}, f"{out}/rank{rank}.pt")
"""


def run(
    tmp_path: Path, processes: int, *words: str | float, script_text: str = SCRIPT
) -> list[dict]:
    script = tmp_path / "script.py"
    script.write_text(script_text)
    out = tmp_path / "-".join(map(str, (processes, *words)))
    out.mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), str(script), str(out)]
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=300)
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


def test_processes_agree_on_every_place(tmp_path):
    one, two = run(tmp_path, 2, 0.3, "global", script_text=SPARSE_SCRIPT)
    assert len(one["places"]) == 24
    for a, b in zip(one["places"], two["places"], strict=True):
        assert all(torch.equal(p, q) for p, q in zip(a, b, strict=True))
    flat = [torch.cat([p + 10_000 * i for i, p in enumerate(row)]) for row in one["places"]]
    moves = [step for step in range(1, 24) if not torch.equal(flat[step], flat[step - 1])]
    assert moves
    assert {len(row) for row in flat} == {round(0.3 * (20 * 64 + 64 * 3))}
    for a, b in zip(one["parameters"], two["parameters"], strict=True):
        assert torch.equal(a, b)
    assert one["accuracy"] > 0.5
    for name, gradient in one["gradients"][0].items():
        assert torch.equal(gradient, two["gradients"][0][name])
        alone = [rank["gradients"][1][name] for rank in (one, two)]
        assert not torch.equal(*alone)
        torch.testing.assert_close(gradient, (alone[0] + alone[1]) / 2)


def test_an_ordinary_step_sends_as_little_as_there_are_weights(tmp_path):
    """Numbers in gradients sent per step (the mode of all reductions), exchange steps left out."""
    weights, plain = 20 * 64 + 64 * 3, 64 + 3 + 2 * 64  # and biases, and those of the norm
    for density in (0.1, 1.0):
        one, _ = run(tmp_path, 2, density, "uniform", script_text=SPARSE_SCRIPT)
        reduced = [size for name, size in one["sent"] if name == "gloo:all_reduce"]
        ordinary = max(set(reduced), key=reduced.count)
        assert ordinary == 2 * round(density * weights) + plain
        assert reduced.count(ordinary) == 24
        broadcasts = [size for name, size in one["sent"] if name == "gloo:broadcast"]
        each_step = {size for size in set(broadcasts) if broadcasts.count(size) >= 20}
        assert each_step <= {1, 128}  # running statistics of the norm; no places


SHARED_SCRIPT = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import pocketbayes as pb

out = sys.argv[1]
rank = int(__import__("os").environ.get("RANK", 0))
x = torch.randn(96, 20, generator=torch.Generator().manual_seed(0))
y = x[:, :3].argmax(1)
torch.manual_seed(rank)  # networks that differ: all must end up with the first one's
net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3))
model = pb.bayesianize_(net, estimator="weight")
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
method = pb.Sharing(components=20, least_members=3, lr=1e-2, reassign_every=1)
pb.fit(model, loader, method, epochs=3, progress=False, device="cpu")
state = {name: value for name, value in model.state_dict().items()}
torch.save(state | {"kl": pb.kl(model).detach()}, f"{out}/rank{rank}.pt")
"""


def test_processes_agree_on_every_label(tmp_path):
    one, two = run(tmp_path, 2, script_text=SHARED_SCRIPT)
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert torch.equal(value, two[name]), name
