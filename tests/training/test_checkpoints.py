"""A checkpoint that is malformed in any field is refused with that field's name."""

import copy
import os
import pickle
from functools import reduce

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.training.checking import checked_parts

X = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)
METHODS = {
    "mean-field": pb.MeanField(),
    "sgd": pb.MeanField(optimizer="sgd", lr=1e-2),
    "ivon": pb.IVON(),
    "subspace": pb.Subspace(density=0.5, update_every=4),
    "sharing": pb.Sharing(components=4, least_members=1, blend_beyond=0.5),
    "spike-slab": pb.SpikeSlab(granularity="input"),
}


def fit(method, out, resume=False):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    loader = DataLoader(TensorDataset(X, Y), 8, shuffle=True)
    options = {"val_loader": [(X, Y)], "keep_best": True, "epochs": 4, "progress": False}
    pb.fit(pb.bayesianize_(net), loader, method, out=out, resume=resume, **options)


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A checkpoint in the middle of an epoch for each method."""
    from pocketbayes.training.run import Run

    step = Run._step

    def stopping(run, group):
        step(run, group)
        if run.at.step == 8:
            run.at.batch = group[-1][0] + 1
            run.save()
            raise StoppedError

    found = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "_step", stopping)
        for name, method in METHODS.items():
            out = tmp_path_factory.mktemp(name)
            with pytest.raises(StoppedError):
                fit(method, out)
            found[name] = out / "checkpoint.pt"
    return found


def places(node, path=()):
    """Every field of a checkpoint; of lists and of labels the first one."""
    if path:
        yield path
    if isinstance(node, dict) and node:
        keys = list(node)
        keys = keys[:1] if isinstance(keys[0], int) or "history" in path else keys
        for key in keys:
            yield from places(node[key], (*path, key))
    elif isinstance(node, list) and node:
        yield from places(node[0], (*path, 0))


def harmed(state, path, value):
    """A copy in which one field has another value, or is gone."""
    made = copy.deepcopy(state)
    holder = reduce(lambda node, key: node[key], path[:-1], made)
    if value is None:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return made


def refused(method, folder, state):
    """Whether it is refused in words; else it must have trained to the end."""
    torch.save(state, folder / "checkpoint.pt")
    said = ""
    try:
        fit(method, folder, resume=True)
    except pb.TrainingError as error:
        said = str(error)
    assert not said or str(folder) in said
    return bool(said)


WRONG = ("text", "number", "list", "tensor")
HARMLESS = ("param_groups", "labels", "settings")  # a run has its own; absent ones may be newer
NOT_OF_ALL = ("kept", "memory", "labelled", "entropy", "doubt")  # that may be absent, not wrong


@pytest.mark.parametrize("name", METHODS)
def test_a_missing_field_is_named(stored, tmp_path, name):
    state = torch.load(stored[name], weights_only=True)
    for path in places(state):
        if refused(METHODS[name], tmp_path, harmed(state, path, None)):
            continue
        assert any(part in (*HARMLESS, *NOT_OF_ALL) for part in path), path
        assert name == "spike-slab" or path[1] not in NOT_OF_ALL, path


@pytest.mark.parametrize("wrong", ["text", -1, [[]], torch.ones(2, 7, 3)], ids=WRONG)
@pytest.mark.parametrize("name", METHODS)
def test_a_field_of_a_wrong_type_or_shape_is_named(stored, tmp_path, name, wrong):
    state = torch.load(stored[name], weights_only=True)
    for path in places(state):
        if not refused(METHODS[name], tmp_path, harmed(state, path, wrong)):
            assert any(part in HARMLESS for part in path), path


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("standing", "epoch"), 99, "standing.epoch must be at most"),
        (("standing", "totals"), torch.full((5,), torch.nan).double(), "standing.totals"),
        (("standing", "seconds"), float("nan"), "standing.seconds"),
        (("standing", "best_epoch"), 77, "standing.best_epoch must be None|from 1 to"),
        (("standing", "best_nll"), 0.5, "standing.best_epoch must be that of best_nll"),
        (("standing", "strange"), 1, "standing.strange is no field"),
        (("optimizers", 0, "state", 0, "exp_avg_sq"), torch.full((8, 4), -1.0), "not negative"),
        (("optimizers", 0, "kept"), [0], "for all parameters that it was for"),
        (("model", "0.weight_posterior.mean"), torch.full((8, 4), torch.inf), "must be finite"),
        (("model", "0.weight_posterior.mean"), torch.ones(8, 4).double(), "of type torch.float32"),
    ],
    ids=repr,
)
def test_what_cannot_be_is_named(stored, tmp_path, path, value, words):
    state = torch.load(stored["mean-field"], weights_only=True)
    if path[0] == "model":
        path = ("model", next(n for n in state["model"] if state["model"][n].shape == (8, 4)))
    torch.save(harmed(state, path, value), tmp_path / "checkpoint.pt")
    with pytest.raises(pb.TrainingError, match=words):
        fit(METHODS["mean-field"], tmp_path, resume=True)


@pytest.mark.parametrize("kind", [torch.Tensor.to_sparse, lambda t: t.to("meta")])
def test_a_tensor_without_plain_numbers_is_named(stored, tmp_path, kind):
    state = torch.load(stored["mean-field"], weights_only=True)
    for path in places(state):
        holder = reduce(lambda node, key: node[key], path, state)
        if isinstance(holder, torch.Tensor):
            assert refused(METHODS["mean-field"], tmp_path, harmed(state, path, kind(holder)))


def test_a_checkpoint_that_is_no_file_or_empty_is_told(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"")
    with pytest.raises(pb.TrainingError, match="or is damaged: it ends before it should"):
        fit(METHODS["mean-field"], tmp_path, resume=True)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(pb.TrainingError, match="it is a pipe, not a file"):
        fit(METHODS["mean-field"], tmp_path, resume=True)


def test_what_is_whole_is_taken(stored, tmp_path):
    for name, method in METHODS.items():
        assert not refused(method, tmp_path, torch.load(stored[name], weights_only=True))


class Code:
    def __reduce__(self):
        return print, ("this was run",)


def test_code_is_not_run(tmp_path, capsys):
    torch.save({"settings": Code()}, tmp_path / "checkpoint.pt")
    for data in ((tmp_path / "checkpoint.pt").read_bytes(), pickle.dumps(Code()), b"", b"PK\3\4"):
        (tmp_path / "checkpoint.pt").write_bytes(data)
        with pytest.raises(pb.TrainingError, match="not a checkpoint of this library"):
            fit(METHODS["mean-field"], tmp_path, resume=True)
    assert "this was run" not in capsys.readouterr().out


class Counting(nn.Module):
    """Counts what it has seen, and keeps that where no tensor is."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def forward(self, x):
        self.seen += int(self.training)
        return x

    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


def test_extra_state_of_modules_is_part_of_a_checkpoint_and_of_the_best_epoch(tmp_path):
    def begun():
        torch.manual_seed(0)
        return pb.bayesianize_(nn.Sequential(Counting(), nn.Linear(4, 2)))

    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    batches = [(part, (part[:, 0] > 0).long()) for part in x.split(10)]
    options = {"epochs": 4, "val_loader": batches, "keep_best": True, "progress": False}
    whole = pb.fit(begun(), batches, **options)
    assert whole.model[0].seen in {1 + 4 * whole.best_epoch, 4 * whole.best_epoch}
    pb.fit(begun(), batches, out=tmp_path, **options)
    again = begun()
    pb.fit(again, batches, out=tmp_path, resume=True, **options)
    assert again[0].seen == whole.model[0].seen
    state = torch.load(tmp_path / "checkpoint.pt")
    state["model"]["0._extra_state"] = torch
    with pytest.raises(pb.TrainingError, match=r"model\.0\._extra_state must be a tensor"):
        checked_parts(state)
