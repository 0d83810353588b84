"""What a module says of itself by `get_extra_state` comes back from a file, as JSON."""

import hostile_files
import numpy as np
import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.codec.extra_state import MOST_BYTES

NAME = "scale._extra_state"


class Scale(nn.Module):
    def __init__(self, said=None):
        super().__init__()
        self.said = said
        self.factor = nn.Parameter(torch.ones(1))

    def reset_parameters(self):
        nn.init.ones_(self.factor)

    def forward(self, x):
        return self.factor * x

    def get_extra_state(self):
        return self.said

    def set_extra_state(self, state):
        if state == "odd":
            raise KeyError("names")
        self.said = state


def network(said=None) -> nn.Module:
    net = nn.Sequential()
    net.add_module("linear", nn.Linear(3, 2))
    net.add_module("scale", Scale(said))
    return net


EXACT = [
    None,
    True,
    -(10**30),
    0.1,
    "naïve ☂\n",
    [],
    {},
    {"names": ["a", "b"], "range": [0.5, 1e300], "deep": {"on": False, "n": {"": [None, [1]]}}},
]


@pytest.mark.parametrize("said", EXACT)
def test_what_json_holds_comes_back_as_it_was(said, tmp_path):
    pb.save(pb.bayesianize_(network(said)), tmp_path / "m.pocket")
    found = pb.load(tmp_path / "m.pocket", network("before")).scale.said
    assert found == said
    assert type(found) is type(said)
    assert pb.inspect(tmp_path / "m.pocket").weights == 6


class Documented(nn.Linear):
    """Writes down its arguments in its state, as neural operators do."""

    def state_dict(self, *args, **options):
        return super().state_dict(*args, **options) | {"_metadata": {"kind": Documented}}


def test_arguments_beside_a_state_are_passed_over(tmp_path):
    pb.save(pb.bayesianize_(Documented(3, 2)), tmp_path / "m.pocket")
    assert isinstance(pb.load(tmp_path / "m.pocket", Documented(3, 2)), Documented)


def test_equal_states_are_equal_bytes_whatever_their_order(tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(network({"a": 1, "b": 2}))
    pb.save(model, tmp_path / "m.pocket")
    model.scale.said = {"b": 2, "a": 1}
    pb.save(model, tmp_path / "n.pocket")
    assert (tmp_path / "m.pocket").read_bytes() == (tmp_path / "n.pocket").read_bytes()


def test_a_module_with_two_names_says_it_once(tmp_path):
    net = network(["once"])
    net.add_module("again", net.scale)
    size = pb.save(pb.bayesianize_(net), tmp_path / "m.pocket")
    text = str(pb.inspect(tmp_path / "m.pocket")) + str(size)
    assert "again" not in text
    other = network()
    other.add_module("again", other.scale)
    assert pb.load(tmp_path / "m.pocket", other).again.said == ["once"]


def test_a_bayesian_layer_of_ones_own_keeps_its_state(tmp_path):
    class Own(nn.Linear):
        said = 0

        def get_extra_state(self):
            return {"said": self.said}

        def set_extra_state(self, state):
            self.said = state["said"]

    model = pb.bayesianize_(nn.Sequential(Own(3, 2)))
    model[0].said = 7
    pb.save(model, tmp_path / "m.pocket", example=torch.zeros(1, 3))
    assert pb.load(tmp_path / "m.pocket", nn.Sequential(Own(3, 2)))[0].said == 7


def test_readers_without_torch_pass_it_over(tmp_path):
    lite = pytest.importorskip("pocketbayes_lite")
    torch.manual_seed(0)
    model = pb.bayesianize_(network({"names": ["a", "b"]}))
    pb.fit(model, [(torch.randn(8, 3), torch.arange(8) % 2)], epochs=1, progress=False)
    x = torch.randn(5, 3)
    pb.save(model, tmp_path / "m.pocket", example=x)
    expected = pb.predict(pb.load(tmp_path / "m.pocket", network()), x, estimator="mean").probs
    found = lite.load(tmp_path / "m.pocket").predict(x.numpy(), estimator="mean")
    assert np.allclose(found.probs, expected, atol=1e-5)


def test_members_of_an_ensemble_have_their_own(tmp_path):
    data = [(torch.randn(8, 3), torch.randint(2, (8,)))]
    model = pb.bayesianize_(network("first"))
    ensemble = pb.fit(model, data, pb.DeepEnsemble(members=2), epochs=1, progress=False).model
    ensemble.members[1].scale.said = "second"
    pb.save(ensemble, tmp_path / "m.pocket")
    found = pb.load(tmp_path / "m.pocket", network())
    assert [member.scale.said for member in found.members] == ["first", "second"]


def circle():
    found = []
    found.append(found)
    return found


REFUSED = {
    "tensor": ({"mean": torch.ones(1)}, r"_extra_state\['mean'\] is a Tensor.*register_buffer"),
    "bytes": (b"pickled", "is a bytes"),
    "object": ([nn.ReLU()], r"_extra_state\[0\] is a ReLU"),
    "tuple": ((1, 2), "is a tuple"),
    "set": ({1}, "is a set"),
    "number of numpy": (np.float64(1), "is a float64"),
    "nan": ([float("nan")], r"\[0\] is nan"),
    "infinite": (float("inf"), "is inf"),
    "key": ({1: "a"}, "has the key 1"),
    "half a character": ("\ud800", "no text"),
    "circle": (circle(), "nested more than 128 deep"),
    "large": ("a" * MOST_BYTES, "more than the 1,048,576.*register_buffer"),
}


@pytest.mark.parametrize(("said", "words"), REFUSED.values(), ids=REFUSED)
def test_all_else_is_refused_with_what_to_do(said, words, tmp_path):
    with pytest.raises(pb.PocketBayesError, match=words) as caught:
        pb.save(pb.bayesianize_(network(said)), tmp_path / "m.pocket")
    assert NAME in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def forged(good: bytes, text: bytes | torch.Tensor) -> bytes:
    """The file with these bytes in place of its extra state."""
    plain = isinstance(text, torch.Tensor)
    array = text if plain else torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def change(description, arrays):
        arrays[f"state/{NAME}"] = array

    return hostile_files.forged(good, change)


HOSTILE = {
    "not json": b"{'a': 1}",
    "pickle": b"\x80\x04]\x94.",
    "no utf-8": b'"\xff"',
    "nan": b"[NaN]",
    "deep": b"[" * 5000 + b"]" * 5000,
    "deep enough": b"[" * 129 + b"]" * 129,
    "unfinished": b"[1,",
    "long number": b"1" * 5000,
    "half a character": b'"\\ud800"',
    "too large": b'"' + b"a" * MOST_BYTES + b'"',
    "reals": torch.zeros(3),
    "an axis too many": torch.zeros(1, 3, dtype=torch.uint8),
    "nothing": torch.zeros(0, dtype=torch.uint8),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_are_format_errors_and_leave_the_network_alone(text, tmp_path):
    path = tmp_path / "m.pocket"
    pb.save(pb.bayesianize_(network("good")), path)
    path.write_bytes(forged(path.read_bytes(), text))
    net = network("mine")
    before = {name: value.clone() for name, value in net.named_parameters()}
    with pytest.raises(pb.FormatError, match=r"_extra_state"):
        pb.load(path, net)
    assert type(net.linear) is nn.Linear
    assert net.scale.said == "mine"
    assert all(torch.equal(value, before[name]) for name, value in net.named_parameters())
    with pytest.raises(pb.FormatError, match=r"_extra_state"):
        pb.inspect(path)


def test_a_forger_that_changes_nothing_is_read(tmp_path):
    path = tmp_path / "m.pocket"
    pb.save(pb.bayesianize_(network("good")), path)
    path.write_bytes(forged(path.read_bytes(), b' {"a" : [1e2]} '))
    assert pb.load(path, network()).scale.said == {"a": [100.0]}


def test_what_the_module_says_against_it_names_the_place(tmp_path):
    pb.save(pb.bayesianize_(network("odd")), tmp_path / "m.pocket")
    with pytest.raises(pb.FormatError, match=r"_extra_state: set_extra_state refuses.*names"):
        pb.load(tmp_path / "m.pocket", network())


def test_a_network_without_it_and_a_file_without_it_do_not_fit(tmp_path):
    pb.save(pb.bayesianize_(network("said")), tmp_path / "m.pocket")
    plain = network()
    plain.scale = nn.Module()
    plain.scale.factor = nn.Parameter(torch.ones(1))
    with pytest.raises(pb.FormatError, match=r"scale\._extra_state is not in the network"):
        pb.load(tmp_path / "m.pocket", plain)
    pb.save(pb.bayesianize_(plain), tmp_path / "n.pocket")
    with pytest.raises(pb.FormatError, match=r"scale\._extra_state is not in the file"):
        pb.load(tmp_path / "n.pocket", network())
