"""Small good files of every family, and what they are made of."""

import io
import json
import tempfile
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


def good_files(with_programs: bool = True) -> dict[str, bytes]:
    """One small file for each method, small and lossless, and some of other networks."""
    x = torch.randn(40, 6)
    loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), 20)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.pocket"

        def keep(name: str, model: nn.Module, **options: Any) -> None:
            pb.save(model, path, **options)
            found[name] = path.read_bytes()

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
