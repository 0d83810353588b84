"""Training on dicts, several inputs and arrays: the same as on pairs of tensors."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import pocketbayes as pb
from pocketbayes.layers.description import describe


class StoppedError(Exception):
    """What ends a run in the middle."""


class Output:
    """As transformers return it."""

    def __init__(self, logits):
        self.logits = logits


class Reader(nn.Module):
    """Words to classes; norm, attention to what is not masked, an output with logits."""

    def __init__(self, outputs=3):
        super().__init__()
        self.words, self.attend = nn.Embedding(12, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.out = nn.BatchNorm1d(8), nn.Linear(8, outputs)

    def forward(self, input_ids, attention_mask):
        found = self.words(input_ids)
        hidden = found + self.attend(found, found, found, attention_mask == 0)[0]
        kept = attention_mask.unsqueeze(2)
        return Output(self.out(self.norm((hidden * kept).sum(1) / kept.sum(1))))


class Features(nn.Module):
    """The same of one tensor: ids and mask beside each other."""

    def __init__(self, outputs=3):
        super().__init__()
        self.reader = Reader(outputs)

    def forward(self, x):
        return self.reader(x[:, 0], x[:, 1]).logits


def sentences(n=96):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 12, (n, 6), generator=generator)
    mask = (torch.arange(6) < torch.randint(2, 7, (n, 1), generator=generator)).long()
    return ids * mask, mask, ids[:, 0] % 3


def rows_as(kind, n=96):
    ids, mask, labels = sentences(n)
    every = {
        "tensor": lambda i: (torch.stack([ids[i], mask[i]]), labels[i]),
        "dict": lambda i: {"input_ids": ids[i], "attention_mask": mask[i], "labels": labels[i]},
        "tuple": lambda i: (ids[i], mask[i], labels[i]),
        "nested": lambda i: ((ids[i], mask[i]), labels[i]),
    }
    return [every[kind](i) for i in range(n)]


def loader_of(kind, n=96):
    if kind != "array":
        return DataLoader(rows_as(kind, n), 16, shuffle=True)
    arrays = [tensor.numpy() for tensor in sentences(n)]

    def collate(numbers):
        ids, mask, labels = (array[np.array(numbers)] for array in arrays)
        return {"input_ids": ids, "attention_mask": mask, "label": labels.astype(np.int32)}

    return DataLoader(range(n), 16, shuffle=True, collate_fn=collate)


def model_for(kind, outputs=3):
    torch.manual_seed(0)
    net = Features(outputs) if kind == "tensor" else Reader(outputs)
    return pb.bayesianize_(net, std_init=0.01)


def fit(model, kind, method=None, **options):
    options = {"epochs": 3, "progress": False} | options
    return pb.fit(model, loader_of(kind), method or pb.MeanField(lr=1e-2), **options)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.fixture(scope="module")
def by_tensor():
    model = model_for("tensor")
    history = fit(model, "tensor", epochs=5).history
    return weights(model), history, pb.evaluate(model, loader_of("tensor"), estimator="mean")


@pytest.mark.parametrize("kind", ["dict", "tuple", "nested", "array"])
def test_every_kind_is_trained_bit_for_bit_as_one_tensor(kind, by_tensor):
    model = model_for(kind)
    history = fit(model, kind, epochs=5).history
    wanted, rows, record = by_tensor
    assert torch.equal(weights(model), wanted)
    assert [row["loss"] for row in history] == [row["loss"] for row in rows]
    assert history[-1]["nll"] < history[0]["nll"]
    found = pb.evaluate(model, loader_of(kind), estimator="mean")
    assert found.nll == pytest.approx(record.nll, rel=1e-5)
    assert found.num_examples == 96
    assert describe(model).input_dims == 2


@pytest.mark.parametrize(
    "method",
    [
        pb.Subspace(density=0.5, update_every=4, lr=1e-2),
        pb.Sharing(components=20, least_members=2, lr=1e-2),
    ],
    ids=lambda m: type(m).__name__,
)
def test_methods_that_look_at_data_do_so(method):
    model = model_for("dict")
    fit(model, "dict", method)
    other = model_for("tensor")
    fit(other, "tensor", method)
    assert torch.equal(weights(model), weights(other))


def test_resuming_is_bit_for_bit(tmp_path):
    whole, part = model_for("dict"), model_for("dict")
    fit(whole, "dict", epochs=4)

    reads = []

    def collate(batch):
        reads.append(batch)
        if len(reads) == 15:
            raise StoppedError
        return torch.utils.data.default_collate(batch)

    loader = DataLoader(rows_as("dict"), 16, shuffle=True, collate_fn=collate)
    options = {"epochs": 4, "progress": False, "out": tmp_path, "checkpoint_minutes": 1e-9}
    with pytest.raises(StoppedError):
        pb.fit(part, loader, pb.MeanField(lr=1e-2), **options)
    fresh = model_for("dict")
    fit(fresh, "dict", epochs=4, out=tmp_path, resume=True)
    assert torch.equal(weights(fresh), weights(whole))


@pytest.mark.parametrize("kind", ["dict", "tuple"])
def test_the_loss_compiles(kind):
    plain = fit(model_for(kind), kind, epochs=2).history
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = fit(model_for(kind), kind, epochs=2, compile="eager").history
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    assert compiled[-1]["loss"] == pytest.approx(plain[-1]["loss"], rel=1e-4)


def test_files_refreshing_and_counting(tmp_path):
    model = model_for("tuple", outputs=1)
    ids, mask, _ = sentences()
    y = ids[:, 0].numpy() / 6 - 1  # doubles, as NumPy has them
    data = [(ids.numpy(), mask.numpy(), y)]
    pb.fit(model, data, epochs=2, likelihood="gaussian", progress=False)
    pb.save(model, tmp_path / "a.pocket", tolerance=1e-3)
    again = pb.load(tmp_path / "a.pocket", Reader(1))
    by_mean = {"estimator": "mean"}
    one, two = (pb.predict(m, (ids, mask), **by_mean) for m in (model, again))
    torch.testing.assert_close(one.mean, two.mean, rtol=1e-3, atol=1e-3)
    pb.refresh_norms_(again, data, **by_mean)
    pb.refresh_noise_(again, data, **by_mean)
    residual = torch.from_numpy(y).float()[:, None] - pb.predict(again, (ids, mask), **by_mean).mean
    noise = pb.predict(again, (ids, mask), **by_mean).aleatoric[0]
    torch.testing.assert_close(noise, residual.square().mean(0))
    named = {"input_ids": ids, "attention_mask": mask}
    flops = pb.training_flops(model, named)
    assert flops == pb.training_flops(model, (ids, mask))
    assert flops.active == flops.dense > 0


def test_pruning_within_a_budget_reads_them():
    model = model_for("dict")
    fit(model, "dict", epochs=8)
    pb.prune_(model, budget=0.2, loader=loader_of("dict"))
    assert pb.evaluate(model, loader_of("dict")).accuracy > 0.2


def test_a_row_of_a_dict_that_is_not_finite_stops_training():
    class Scaled(Reader):
        def forward(self, input_ids, attention_mask, scale):
            return Output(super().forward(input_ids, attention_mask).logits * scale[:, None])

    model = pb.bayesianize_(Scaled())
    ids, mask, labels = sentences(8)
    scale = torch.ones(8)
    scale[6] = float("inf")
    batch = {"input_ids": ids, "attention_mask": mask, "scale": scale, "labels": labels}
    with pytest.raises(pb.DataError, match=r"step 1 \(epoch 1\), row 6 of input 'scale'"):
        pb.fit(model, [batch], epochs=1, progress=False)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 2, 3], r"label 3 is out of range: .* \(row 2\)\. .*count from 1: subtract 1"),
        ([0, -1, 2], r"label -1 is out of range: .* \(row 1\)\. .*-100 marks"),
        ([0, 9, 2], r"label 9 is out of range: .* 0 to 2 \(row 1\).*as many outputs"),
    ],
)
def test_a_label_that_is_no_class_is_explained(labels, message):
    model, batch = pb.bayesianize_(nn.Linear(2, 3)), (torch.zeros(3, 2), torch.tensor(labels))
    with pytest.raises(pb.DataError, match=message):
        pb.fit(model, [batch], epochs=1, progress=False)
    with pytest.raises(pb.DataError, match=message):
        pb.evaluate(model, [batch])
