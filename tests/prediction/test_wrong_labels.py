"""Labels of a wrong form are refused by all that read them, in the same words."""

import pytest
import torch
from torch import nn

import pocketbayes as pb

X, Y = torch.randn(12, 3), torch.arange(12) % 2
QUIETLY = {"epochs": 1, "progress": False, "device": "cpu"}
WRONG = {
    "a column": Y.unsqueeze(1),
    "one-hot": torch.eye(2, dtype=torch.int64)[Y],
    "floats": Y.float(),
    "a column of floats": Y.unsqueeze(1).float(),
    "truth values": Y.bool(),
}


def network():
    return pb.bayesianize_(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))


READERS = {
    "fit": lambda data: pb.fit(network(), data, **QUIETLY),
    "val_loader": lambda data: pb.fit(network(), [(X, Y)], val_loader=data, **QUIETLY),
    "keep_best": lambda data: pb.fit(
        network(), [(X, Y)], val_loader=data, keep_best=True, **QUIETLY
    ),
    "Laplace": lambda data: pb.fit(network(), [(X, Y)], pb.Laplace(), val_loader=data, **QUIETLY),
    "loss": lambda data: pb.loss(network(), network()(X), data[0][1], 12, likelihood="categorical"),
    "evaluate": lambda data: pb.evaluate(network(), data),
    "temperature_": lambda data: pb.temperature_(network(), data),
    "conformal": lambda data: pb.conformal(network(), data, 0.5),
}


def complaint(reader, labels):
    with pytest.raises(pb.DataError) as refused:
        READERS[reader]([(X, labels)])
    return str(refused.value)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("form", WRONG)
def test_every_reader_says_the_same(reader, form):
    assert complaint(reader, WRONG[form]) == complaint("fit", WRONG[form])


@pytest.mark.parametrize("reader", READERS)
def test_labels_of_the_right_form_are_taken(reader):
    READERS[reader]([(X, Y)])


def test_a_column_of_labels_is_named_by_its_shape():
    told = complaint("evaluate", WRONG["a column"])
    assert "output is (12, 2), the labels are (12, 1)" in told
    assert "squeeze(1)" in told


@pytest.mark.parametrize("reader", ["evaluate", "conformal"])
def test_the_first_batch_is_enough_to_tell(reader):
    """A long loader is not run to its end for a fault of its first batch."""

    def batches():
        yield X, WRONG["a column"]
        pytest.fail("read on")

    with pytest.raises(pb.DataError, match="labels are"):
        READERS[reader](batches())


@pytest.mark.parametrize("labels", [torch.zeros(4, 5), torch.zeros(4, 1, 5)])
def test_labels_of_positions_have_the_shape_of_positions(labels):
    net = nn.Sequential(nn.Conv1d(3, 2, 1))
    model, x = pb.bayesianize_(net), torch.randn(4, 3, 5)
    data = [(x, labels.long())]
    if labels.shape == (4, 5):
        assert pb.evaluate(model, data).num_examples == 4
        return
    for read in (pb.evaluate, pb.temperature_):
        with pytest.raises(pb.DataError, match="labels are"):
            read(model, data)


def test_classes_that_come_last_are_told():
    x, tags = torch.randn(6, 7, 3), torch.arange(42).view(6, 7) % 4
    tagger = pb.bayesianize_(nn.Linear(3, 4))
    with pytest.raises(pb.DataError, match=r"come last here: return output.movedim\(-1, 1\)"):
        pb.fit(tagger, [(x, tags)], **QUIETLY)
    pb.fit(Moved(tagger), [(x, tags)], **QUIETLY)


class Moved(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).movedim(-1, 1)


def ending_in(*last):
    return pb.bayesianize_(nn.Sequential(nn.Linear(3, 4), nn.Softmax(1), nn.Linear(4, 2), *last))


def test_a_softmax_at_the_end_is_told():
    with pytest.warns(UserWarning, match="take the last Softmax out of the network"):
        pb.fit(ending_in(nn.Softmax(1)), [(X, Y)], pb.Deterministic(), **QUIETLY)
    with pytest.warns(UserWarning, match="outputs are probabilities"):
        pb.predict(ending_in(nn.Softmax(1)), X)


@pytest.mark.parametrize("last", [(), (nn.LogSoftmax(1),)])
def test_other_ends_are_fine(last):
    model = ending_in(*last)
    pb.fit(model, [(X, Y)], **QUIETLY)
    pb.predict(model, X)


def test_a_softmax_is_fine_where_outputs_are_values():
    model = ending_in(nn.Softmax(1))
    pb.fit(model, [(X, torch.rand(12, 2))], likelihood="gaussian", **QUIETLY)
    pb.predict(model, X)
