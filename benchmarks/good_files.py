"""Small good files of every family, and what they are made of."""

import importlib.util
import io
import json
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.codec.container import unpacked
from pocketbayes.codec.contents import contents_of
from pocketbayes.layers.description import update_description
from pocketbayes.methods import METHODS
from pocketbayes.models import build_network

COLUMNS = {
    "kind": "table", "target": {"name": "answer"}, "dropped": {"day": "all the same"},
    "columns": [{"name": "age", "mean": 3.0, "std": 2.0, "fill": 1.5, "empty": True},
                {"name": "kind", "values": ["a", "b"], "other": True}],
}  # fmt: skip


Keep = Callable[..., None]


def good_files(with_programs: bool = True) -> dict[str, bytes]:
    """Small files, the same at every call: of each method, small and lossless, and some others."""
    torch.manual_seed(0)
    x = torch.randn(40, 6)
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), 20)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.pocket"

        def keep(name: str, model: nn.Module, **options: Any) -> None:
            pb.save(model, path, **options)
            found[name] = path.read_bytes()

        _keep_finished(keep, loader, x[:1] if with_programs else None)
        _keep_partial(keep, x[:1])
        _keep_foreign(keep)

        for name, kind in METHODS.items():
            model = pb.bayesianize_(network())
            own = {"density": 0.5} if name in ("rigl", "subspace") else {}
            own = {"wander_from": 0.0} if name == "swag" else own
            own = {"least_members": 1, "blend_beyond": 2.0} if name == "sharing" else own
            model = pb.fit(model, loader, kind(**own), epochs=1, progress=False).model
            update_description(model, class_names=("no", "yes"), preprocess=COLUMNS)
            for lossless in (True, False):
                keep(f"{name}-{lossless}", model, lossless=lossless)
        options = {"input_shape": (1, 4, 4), "num_outputs": 2, "width": 0.05}
        keep("convolutions", pb.bayesianize_(build_network("resnet20", **options)))
        if with_programs:
            keep("program", model, example=x[:1])
    return found


def _keep_finished(keep: Keep, loader: DataLoader[Any], example: Tensor | None) -> None:
    """Calibrated and distilled models, with programs where these are asked for."""
    for name in ("calibrated", "distilled"):
        model = pb.fit(pb.bayesianize_(network()), loader, epochs=1, progress=False).model
        if name == "distilled":
            pb.distill_(model, loader, 1, num_samples=2)
        pb.calibrate_moments_(model, loader, num_samples=2)
        pb.conformal(pb.temperature_(model, loader, 2), loader, num_samples=2)
        keep(name, model)
        if example is not None:
            keep(f"{name}-program", model, example=example)


def _keep_partial(keep: Keep, example: Tensor) -> None:
    """A file without its base, and networks that have lost a unit or a head."""
    net = own_network()
    net.first.requires_grad_(False)
    keep("base", pb.bayesianize_(net, exclude="first"), frozen=False)
    net = own_network().eval()
    with torch.no_grad():
        net.attention.in_proj_weight[18:20] = 0  # the values of the second head
    keep("shrunk", pb.bayesianize_(pb.shrink(net, example)))


class Own(nn.Module):
    """A network that no file can name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.output = nn.Linear(2, 8), nn.Linear(8, 2)
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Attention of three rows to each other, in a network from 6 numbers."""
        rows = self.first(x.unflatten(1, (3, 2))).relu()
        return self.output(self.attention(rows, rows, rows)[0].mean(1))


def own_network() -> Own:
    """The same at every call: the base that a file wants."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Own()


def _keep_foreign(keep: Keep) -> None:
    """Networks of other libraries, of which timm's is a stand-in where it is not installed."""
    if importlib.util.find_spec("timm") is None:
        sys.path.append(str(Path(__file__).parents[1] / "tests"))
        import fake_timm

        made = types.ModuleType("timm")
        made.is_model, made.create_model = fake_timm.is_model, fake_timm.create_model
        sys.modules["timm"] = made
        net = made.create_model("tiny", num_classes=2, in_chans=1)
        keep("timm", pb.bayesianize_(net))
    if importlib.util.find_spec("transformers") is not None:
        from transformers import ViTConfig, ViTForImageClassification

        sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2}
        sizes |= {"intermediate_size": 4, "image_size": 4, "patch_size": 2, "num_channels": 1}
        keep("transformers", pb.bayesianize_(ViTForImageClassification(ViTConfig(**sizes))))


def network() -> nn.Module:
    return build_network("mlp", input_shape=(6,), num_outputs=2, hidden=(8,), dropout=0.2)


class Parts(NamedTuple):
    """A good file, taken apart: its description, the bytes of its sections, and its arrays."""

    data: bytes
    description: str
    sections: dict[str, bytes]
    arrays: dict[str, Tensor]


def taken_apart(data: bytes) -> Parts:
    """The parts of a good file."""
    file = unpacked(io.BytesIO(data))
    sections = {name: bytes(section.read()) for name, section in file.sections.items()}
    if file.program is not None:
        sections["program"] = file.program
    contents = contents_of(file)
    arrays = {name: contents.take(name) for name in contents.specs}
    description = {key: value for key, value in file.description.items() if key != "sha256"}
    return Parts(data, json.dumps(description), sections, arrays)
