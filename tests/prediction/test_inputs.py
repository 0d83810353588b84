"""Batches as people have them: dicts, several inputs, arrays; and what is refused in them."""

from collections import UserDict
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import pocketbayes as pb
from pocketbayes.layers.inputs import Inputs, num_examples, parts_of, require_tensor, tensors_of
from pocketbayes.posteriors.reuse import is_repeated, repeated_input
from pocketbayes.prediction.inputs import input_batches, unpack


@dataclass
class Output:
    """As transformers return it."""

    logits: Tensor
    hidden: Tensor


class Reader(nn.Module):
    """Words to classes: an embedding, one layer of attention, the mean over what is not masked."""

    def __init__(self, words=12, width=8, classes=3):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(width, classes)

    def forward(self, input_ids, attention_mask):
        hidden = self.layer(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        kept = attention_mask.unsqueeze(2).to(hidden.dtype)
        pooled = (hidden * kept).sum(1) / kept.sum(1)
        return Output(self.out(pooled), hidden)


class Pair(nn.Module):
    """One layer for both of its inputs: what is remembered of one must not serve the other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, left, right):
        return self.layer(left) - self.layer(right)


def reader():
    torch.manual_seed(0)
    return pb.bayesianize_(Reader(), std_init=0.05)


def sentences(n=10, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 12, (n, 6), generator=generator)
    length = torch.randint(1, 7, (n, 1), generator=generator)
    mask = (torch.arange(6) < length).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, ids[:, 0] % 3


def pair(std=0.3):
    torch.manual_seed(0)
    return pb.bayesianize_(Pair(), std_init=std)


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def same(one, two):
    return torch.equal(one.probs, two.probs)


A, B, Y = torch.zeros(3, 2), torch.ones(3, 2), torch.arange(3)


@pytest.mark.parametrize(
    ("batch", "wanted"),
    [
        ((A, Y), A),
        ([A, Y], A),
        ((A, B, Y), (A, B)),
        (((A, B), Y), (A, B)),
        (([A], Y), A),
        (({"a": A}, Y), {"a": A}),
        ({"a": A, "labels": Y}, {"a": A}),
        ({"b": B, "label": Y, "a": A}, {"b": B, "a": A}),
        (UserDict({"a": A, "target": Y}), {"a": A}),
        ({"a": A, "targets": Y}, {"a": A}),
        ({"a": A, "y": Y}, {"a": A}),
        ((A.numpy(), Y.numpy()), A),
        ({"a": A.double().numpy(), "y": Y.int().numpy()}, {"a": A}),
    ],
)
def test_every_form_of_a_batch(batch, wanted):
    x, y = unpack(batch, "the loader")
    assert type(x) is type(wanted)
    if isinstance(x, dict):
        assert list(x) == list(wanted)
    for got, want in zip(tensors_of(x), tensors_of(wanted), strict=True):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)
    assert torch.equal(y, Y)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"a": A}, r"a dict with keys \['a'\].*labels, label, target, targets, y"),
        ({"labels": Y}, "without inputs"),
        ({"a": A, "y": Y, "labels": Y}, "'labels' and 'y'"),
        ({"a": A, 3: B, "y": Y}, r"keys \['a', 3\]; they must be names"),
        ({"a": A, "text": ["x", "y", "z"], "y": Y}, "'text' as 3 values"),
        ({"a": A, "more": None, "y": Y}, "'more' as a NoneType"),
        ({"a": A, "b": B[:2], "y": Y}, "input 'a' has 3, input 'b' has 2"),
        ((A, B[:1], Y), "input 1 has 3, input 2 has 1"),
        ((A, B, Y[:2]), "3 inputs with 2 targets"),
        (((A, "b"), Y), "input 2 as a str"),
        ((A, torch.tensor(1)), "targets as a single number"),
        ((A, None), "a tuple; it must yield pairs"),
        ((np.array(["a", "b", "c"]), Y), "an array of <U1"),
        ((np.array([None, 1, 2]), Y), "an array of object"),
        ((np.ma.masked_equal([1.0, 2.0, 3.0], 2), Y), "none of them masked"),
        ((np.array(["2020-01-01"] * 3, "datetime64[D]"), Y), "datetime64"),
    ],
)  # fmt: skip
def test_what_is_no_batch(batch, message):
    with pytest.raises(pb.DataError, match=message):
        unpack(batch, "the loader")


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (np.zeros(3), torch.float64),
        (np.zeros(3, np.float16), torch.float64),
        (np.zeros(3, np.longdouble), torch.float64),
        (np.zeros(3, ">f4"), torch.float64),
        (np.zeros(3, ">i4"), torch.int64),
        (np.zeros(3, np.uint16), torch.int64),
        (np.zeros(3, np.uint8), torch.uint8),
        (np.zeros(3, bool), torch.bool),
    ],
)
def test_arrays_become_tensors_of_the_networks_type(array, dtype):
    x, _ = unpack((array, Y), "the loader", torch.float64)
    assert x.dtype == dtype
    assert torch.equal(x, torch.zeros(3, dtype=dtype))


def test_arrays_that_cannot_be_shared_are_copied():
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    x, _ = unpack((frozen, np.arange(3)[::-1]), "the loader")
    assert x.tolist() == [0, 1, 2]
    assert unpack((A, np.arange(3)[::-1]), "the loader")[1].tolist() == [2, 1, 0]


def test_parts_hold_every_example_once_and_in_order():
    for x in (A, (A, B), {"a": A, "b": B}):
        parts = list(parts_of(x, 2))
        assert [num_examples(part) for part in parts] == [2, 1]
        for number, whole in enumerate(tensors_of(x)):
            assert torch.equal(torch.cat([tensors_of(part)[number] for part in parts]), whole)


def test_a_loaders_targets_are_passed_over():
    items = [A, (A, "no tensor"), [A], (A, B, None), ((A, B),), {"a": A, "labels": "any"}]
    kinds: list[Inputs] = list(input_batches(items, 9))
    assert [len(tensors_of(x)) for x in kinds] == [1, 1, 1, 2, 2, 1]
    assert list(kinds[-1]) == ["a"]


@pytest.mark.parametrize(
    "output", [{"logits": A}, UserDict({"logits": A}), Output(A, B), A], ids=lambda o: type(o)
)
def test_outputs_with_logits(output):
    assert require_tensor(output) is A


@pytest.mark.parametrize("output", [(A, B), (A,), {"loss": A}, None, Output("text", B)])
def test_outputs_of_which_nobody_knows_what_they_are(output):
    with pytest.raises(pb.DataError, match=r"not a tensor nor something with \.logits"):
        require_tensor(output)


def test_a_dict_is_predicted_in_parts_and_from_a_loader_alike():
    model, (x, y) = reader(), sentences()
    whole = pb.predict(model, x, 5, seeded(), batch_size=4)
    assert whole.probs.shape == (10, 3)
    parts = list(parts_of(x, 4))
    assert same(whole, pb.predict(model, parts, 5, seeded()))
    with_labels = [part | {"labels": y[:1]} for part in parts]
    assert same(whole, pb.predict(model, with_labels, 5, seeded()))
    arrays = UserDict({name: tensor.numpy() for name, tensor in x.items()})
    assert same(whole, pb.predict(model, arrays, 5, seeded(), batch_size=4))
    in_order = (x["input_ids"], x["attention_mask"])
    assert same(whole, pb.predict(model, in_order, 5, seeded(), batch_size=4))
    rows = [{**{k: v[i] for k, v in x.items()}, "label": y[i]} for i in range(10)]
    of_rows = pb.predict(model, DataLoader(rows, 4), estimator="mean")
    assert same(of_rows, pb.predict(model, x, estimator="mean", batch_size=4))


def test_what_is_masked_bears_on_nothing():
    model, (x, _) = reader(), sentences()
    other = x | {"input_ids": torch.where(x["attention_mask"] == 1, x["input_ids"], 7)}
    assert not torch.equal(other["input_ids"], x["input_ids"])
    by_mean = {"estimator": "mean"}
    torch.testing.assert_close(
        pb.predict(model, x, **by_mean).probs, pb.predict(model, other, **by_mean).probs
    )


def test_one_example_of_several_inputs():
    model, (x, y) = reader(), sentences()
    pb.fit(model, [x | {"labels": y}], epochs=1, progress=False)
    one = {name: tensor[3] for name, tensor in x.items()}
    single = pb.predict(model, one, estimator="mean")
    assert single.probs.shape == (3,)
    torch.testing.assert_close(single.probs, pb.predict(model, x, estimator="mean").probs[3])
    left, right = torch.randn(2, 4)
    assert pb.predict(pair(), (left, right), single=True).probs.shape == (3,)


def test_arrays_and_tensors_are_predicted_alike():
    torch.manual_seed(0)
    model, x = pb.bayesianize_(nn.Linear(4, 3), std_init=0.3), torch.randn(6, 4)
    whole = pb.predict(model, x, 5, seeded())
    assert same(whole, pb.predict(model, x.double().numpy(), 5, seeded()))
    assert same(whole, pb.predict(model, [x.numpy()], 5, seeded()))
    assert pb.predict(model, x[0].numpy()).probs.shape == (3,)
    wide = model.double()
    assert pb.predict(wide, x.numpy()).probs.dtype == torch.float64


def test_a_layer_for_two_inputs_does_not_confuse_them():
    """Its moments are remembered from draw to draw, of each input its own."""
    model, x = pair(std=1e-9), torch.randn(5, 4)
    pred = pb.predict(model, (x, x + 1), 4, keep_samples=True)
    wanted = (x @ model.layer._posteriors["weight"].mean.T).detach()
    wanted = wanted - ((x + 1) @ model.layer._posteriors["weight"].mean.T).detach()
    torch.testing.assert_close(pred.samples, wanted.softmax(1).expand(4, -1, -1))
    noisy = pb.predict(pair(std=0.5), (x, x), 400, seeded(), keep_samples=True)
    assert (noisy.samples.std(0) > 0).all()  # equal inputs, and yet two draws


def test_inputs_that_a_network_changes_are_mended():
    class Drifting(Pair):
        def forward(self, left, right):
            return self.layer(left) - self.layer(right.add_(1))

    torch.manual_seed(0)
    model = pb.bayesianize_(Drifting(), std_init=1e-9)
    left, right = torch.randn(2, 5, 4)
    before = right.clone()
    pred = pb.predict(model, (left, right), 5, keep_samples=True)
    assert torch.equal(right, before)
    torch.testing.assert_close(pred.samples[0], pred.samples[-1])


def test_each_input_is_known_until_it_is_changed():
    left, right = torch.zeros(2, 3), torch.zeros(2, 3)
    with torch.no_grad(), repeated_input(left, right):
        assert is_repeated(left)
        assert is_repeated(right[1:])
        right.add_(1)
        assert is_repeated(left)
        assert not is_repeated(right)
        assert not is_repeated(torch.zeros(2, 3))


def test_a_name_that_forward_does_not_have():
    x, _ = sentences()
    with pytest.raises(pb.DataError, match=r"input 'idx' of shape .*unexpected keyword .*'idx'"):
        pb.predict(reader(), x | {"idx": torch.zeros(10)})
    with pytest.raises(pb.DataError, match="missing 1 required positional argument"):
        pb.predict(reader(), x["input_ids"])


def test_ensembles_take_them_too():
    x = torch.randn(3, 4)
    method = pb.DeepEnsemble(members=2)
    ensemble = pb.fit(pair(), [(x, x + 1, Y)], method, epochs=1, progress=False).model
    assert pb.predict(ensemble, (x, x)).probs.shape == (3, 3)
    assert ensemble(x, x).shape == ensemble(left=x, right=x).shape == (3, 3)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_row_that_is_not_finite_is_named(value):
    model, x = pair(), torch.randn(7, 4)
    bad = x.clone()
    bad[5, 2] = value
    message = rf"row 5 of input 2 is not finite: it holds {value}, at 2 in it"
    for size in (3, 100):
        with pytest.raises(pb.DataError, match=message):
            pb.predict(model, (x, bad), batch_size=size)
    with pytest.raises(pb.DataError, match="row 5 of input 'right'"):
        pb.predict(model, {"left": x, "right": bad}, batch_size=2)
    with pytest.raises(pb.DataError, match="row 12 of input 1"):
        pb.evaluate(model, [(x, x, torch.zeros(7).long()), (bad, x, torch.zeros(7).long())])
    image = torch.zeros(2, 1, 2)
    image[1, 0, 1] = value
    with pytest.raises(pb.DataError, match=r"row 1 of the input .* at \(0, 1\)"):
        pb.predict(pb.bayesianize_(nn.Linear(2, 2)), image)


def test_targets_of_a_regression_are_looked_at_too():
    model = pb.bayesianize_(nn.Linear(4, 1))
    pb.refresh_noise_(model, [(torch.zeros(3, 4), torch.zeros(3))], likelihood="gaussian")
    y = torch.tensor([0.0, NAN, 1.0])
    data = [(torch.zeros(3, 4), torch.zeros(3)), (torch.zeros(3, 4), y)]
    with pytest.raises(pb.DataError, match="row 4 of the target is not finite: it holds nan"):
        pb.evaluate(model, data)


def test_large_numbers_and_masks_of_minus_infinity_are_right():
    """A sum may overflow though no number is infinite; a mask may be added to scores."""
    model = pb.bayesianize_(nn.Linear(4, 3), estimator="weight")
    huge = torch.full((2, 4), 1e38)
    assert not huge.sum().isfinite()
    pb.predict(model, huge)

    class Masked(Pair):
        def forward(self, left, score_mask):
            return self.layer(left) * score_mask.exp()

    masked, mask = pb.bayesianize_(Masked()), torch.zeros(2, 3)
    mask[0, 1] = -INF
    pb.predict(masked, {"left": torch.zeros(2, 4), "score_mask": mask})
    mask[0, 1] = NAN
    with pytest.raises(pb.DataError, match="row 0 of input 'score_mask'"):
        pb.predict(masked, {"left": torch.zeros(2, 4), "score_mask": mask})
