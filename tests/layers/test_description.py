import copy
import io
import pickle

import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers.bayesian import set_estimator
from pocketbayes.layers.description import (
    Description,
    add_noise_parameter,
    describe,
    update_description,
)


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def test_json_round_trip_and_unknown_keys():
    one = Description("categorical", "lrt", ("cat", "dög"), {"mean": [0.5]})
    assert Description.from_json(one.to_json()) == one
    assert Description.from_json('{"likelihood": null, "from_the_future": 1}') == Description()


def test_the_state_dict_carries_it_and_nothing_but_tensors():
    model = pb.bayesianize_(net())
    update_description(model, likelihood="gaussian", class_names=("a", "b"))
    set_estimator(model, "weight")
    add_noise_parameter(model, (2,))
    state = model.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    fresh = pb.bayesianize_(net())
    result = fresh.load_state_dict(torch.load(file, weights_only=True))
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert describe(fresh).likelihood == "gaussian"
    assert describe(fresh).class_names == ("a", "b")
    assert fresh[0]._posteriors.estimator == "weight"
    assert fresh.noise_log_std.shape == (2,)


def test_copies_keep_it_and_a_bigger_model_can_hold_it():
    model = pb.bayesianize_(net())
    update_description(model, likelihood="gaussian")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert describe(twin).likelihood == "gaussian"
        assert any("description" in key for key in twin.state_dict())
    outer = nn.ModuleDict({"inner": model})
    other = nn.ModuleDict({"inner": pb.bayesianize_(net())})
    other.load_state_dict(outer.state_dict())
    assert describe(other["inner"]).likelihood == "gaussian"


def test_a_plain_model_has_an_empty_one():
    assert describe(net()) == Description()


def test_a_wrapper_finds_the_description_of_what_it_wraps():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    data = [(torch.randn(8, 3), torch.randn(8, 2))]
    model = Wrapper(pb.bayesianize_(net()))
    pb.fit(model, data, epochs=1, likelihood="gaussian", progress=False, device="cpu")
    again = Wrapper(pb.bayesianize_(net()))
    again.load_state_dict(model.state_dict())
    assert isinstance(pb.predict(again, data[0][0]), pb.ValuePrediction)
    torch._dynamo.reset()
    compiled = torch.compile(pb.bayesianize_(net()), backend="aot_eager")
    pb.fit(compiled, data, epochs=1, likelihood="gaussian", progress=False, device="cpu")
    assert isinstance(pb.predict(compiled, data[0][0]), pb.ValuePrediction)
