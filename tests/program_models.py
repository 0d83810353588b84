"""Small models of every kind, whose files with programs lie in tests/golden.

`python tests/program_models.py` writes files that are not there yet, and never changes one that is.
"""

import json
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from traced import mean_outputs

import pocketbayes as pb
from pocketbayes.layers import members_of
from pocketbayes.methods import METHODS
from pocketbayes.models import build_network
from pocketbayes.models.residual import BasicBlock, padded_shortcut, projected_shortcut

# Of one-dimensional outputs that are no classes: likelihood, and how many.
OTHERS = {
    "gaussian": ("gaussian", 1), "gaussian-head": ("gaussian", 2), "bernoulli": ("bernoulli", 3),
    "heteroscedastic": ("heteroscedastic", 4), "student-t": ("student-t", 2),
    "poisson": ("poisson", 2), "negative-binomial": ("negative-binomial", 1),
}  # fmt: skip
GOLDEN = Path(__file__).parent / "golden"
KNOWN = GOLDEN / "programs.json"
MLP = {"input_shape": (6,), "num_outputs": 3, "hidden": (12, 8), "dropout": 0.2}


class Residual(nn.Module):
    """Both kinds of shortcuts, norms with statistics, pooling."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.padded = BasicBlock(4, 6, 2, padded_shortcut, 0.1)
        self.projected = BasicBlock(6, 8, 2, projected_shortcut, 0.0)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.last(self.projected(self.padded(x)).mean((2, 3)))


class Attentive(nn.Module):
    """Tokens of an image, a class token, positions, one encoder."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(2, 8, 4, 4)
        self.token, self.positions = (nn.Parameter(torch.randn(1, n, 8) / 4) for n in (1, 5))
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, 0.1, "gelu", batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.last(self.encoder(x)[:, 0])


class Sequential1d(nn.Module):
    """Words, a bidirectional LSTM, a GRU, convolutions over time."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 5)
        self.lstm = nn.LSTM(5, 3, batch_first=True, bidirectional=True)
        self.gru, self.conv = nn.GRU(6, 4, batch_first=True), nn.Conv1d(6, 4, 3, 2, 1, 2, 2)
        self.norm, self.last = nn.GroupNorm(2, 4), nn.Linear(8, 3)

    def forward(self, x):
        x, _ = self.lstm(self.words(x))
        _, h = self.gru(x)
        pooled = nn.functional.max_pool1d(nn.functional.silu(self.norm(self.conv(x.mT))), 2)
        return self.last(torch.cat([h[-1], pooled.mean(2)], 1))


def example(name):
    made = torch.Generator().manual_seed(7)
    if name in ("residual", "attentive", "residual-sparse"):
        return torch.randn(4, 2, 8, 8, generator=made)
    if name == "sequential":
        return torch.randint(11, (4, 9), generator=made)
    return torch.randn(4, 6, generator=made)


def network(name):
    """A plain network for `load`, or None: the file names its own."""
    torch.manual_seed(3)
    own = {"residual": Residual, "attentive": Attentive, "sequential": Sequential1d}
    made = own.get(name.partition("-")[0])
    return None if made is None else made()


def targets(likelihood, outputs, x):
    """What a model of this likelihood can learn of 6 numbers."""
    if likelihood == "categorical":
        return torch.randint(outputs, (len(x),))
    if likelihood == "bernoulli":
        return (x[:, :outputs] + torch.randn(len(x), outputs) > 0).long()
    if likelihood in ("poisson", "negative-binomial"):
        return torch.poisson((x[:, :outputs] + 1).exp())
    width = outputs // 2 if likelihood == "heteroscedastic" else outputs
    return x[:, :width] - x[:, 1 : width + 1] + 0.5 * torch.randn(len(x), width)


def trained(method, net, x, likelihood="categorical", outputs=3):
    """A few steps, so that every family of posteriors is what its method makes of it."""
    torch.manual_seed(4)
    y = targets(likelihood, outputs, x)
    loader = DataLoader(TensorDataset(x, y), batch_size=20)
    own = {"density": 0.5} if method in ("rigl", "subspace") else {}
    own = {"least_members": 1, "blend_beyond": 2.0} if method == "sharing" else own
    is_other = likelihood != "categorical"  # they learn something, and are in doubt
    model = pb.bayesianize_(net, std_init=0.1 if is_other else None)
    epochs = 100 if is_other else 2
    quiet = {"epochs": epochs, "progress": False, "likelihood": likelihood, "device": "cpu"}
    return pb.fit(model, loader, METHODS[method](**own), **quiet).model


def model_of(name):
    """The model of this name, made anew."""
    x = example(name)
    x = x.repeat(10, *(1 for _ in x.shape[1:]))
    if not x.dtype.is_floating_point:
        return trained("mean-field", network(name), x)
    x = x + 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(8))
    if name in ("residual", "attentive"):
        return trained("mean-field", network(name), x)
    if name == "residual-sparse":
        return trained("subspace", network(name), x)
    torch.manual_seed(5)
    if name in OTHERS:
        likelihood, outputs = OTHERS[name]
        net = build_network("mlp", **MLP | {"num_outputs": outputs})
        model = trained("mean-field", net, x, likelihood, outputs)
        return pb.distill_(model, [x, x + 0.1], 2) if name.endswith("head") else model
    if name == "head":
        net = build_network("mlp", **MLP)
        return pb.distill_(trained("mean-field", net, x), [x, x + 0.1], 2)
    return trained(name, build_network("mlp", **MLP), x)


NAMES = (
    "mean-field", "sharing", "spike-slab", "subspace", "variational-dropout", "mc-dropout",
    "deep-ensemble", "head", "residual", "residual-sparse", "attentive", "sequential", *OTHERS,
)  # fmt: skip


def main():
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    for name in NAMES:
        path = GOLDEN / f"program-{name}.pocket"
        if not path.exists():
            size = pb.save(model_of(name), path, example=example(name), tolerance=1e-3)
            model = pb.load(path, network(name))
            outputs = [mean_outputs(member, example(name)) for member in members_of(model)]
            known[name] = {
                "sha256": size.sha256,
                "input": example(name).tolist(),
                "mean_outputs": torch.stack(outputs).tolist(),
            }
            print(name, size.bytes, size.program)
    KNOWN.write_text(json.dumps(known) + "\n")


if __name__ == "__main__":
    main()
