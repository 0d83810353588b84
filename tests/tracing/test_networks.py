"""Whole networks: their programs are small, and compute what they compute."""

import copy
import inspect

import pytest
import torch
from torch import nn
from traced import assert_same_outputs, mean_outputs, names_of, traced

import pocketbayes as pb
from pocketbayes.layers import Ensemble
from pocketbayes.models import MODELS, build_network, options_of
from pocketbayes.programs import REALS, Input, encoded
from pocketbayes.tracing import inputs_of, program_of

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def model_of(name, **options):
    torch.manual_seed(0)
    net = build_network(name, **options)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2.0)
    return pb.bayesianize_(net, std_init=0.01)


@pytest.mark.parametrize(
    ("name", "options", "x", "most"),
    [
        ("mlp", {"input_shape": (3, 32, 32), "hidden": (8, 7), "dropout": 0.1}, IMAGES, 40),
        ("scaled_mlp", {"input_shape": (3, 32, 32), "hidden": (8,)}, IMAGES, 50),
        ("lenet5", {"dropout": 0.5}, IMAGES[:, :1, 2:-2, 2:-2], 110),
        ("resnet20", {"dropout": 0.2}, IMAGES, 700),
        ("resnet20", {"width": 0.2}, IMAGES, 700),
        ("resnet18", {}, IMAGES, 700),
        ("resnet18", {"stem": "imagenet", "num_outputs": 3}, IMAGES, 700),
        ("vit-tiny", {"input_shape": (3, 32, 32), "patch": 8, "dropout": 0.1}, IMAGES, 1500),
    ],
)
def test_networks_of_the_library(name, options, x, most):
    program = assert_same_outputs(model_of(name, **options), x)
    assert len(encoded(program)) <= most


@pytest.mark.parametrize("name", MODELS)
def test_every_network_of_the_library_has_a_program(name):
    shape = options_of(name)["input_shape"].default
    shape = (6,) if shape is inspect.Parameter.empty else shape
    with torch.device("meta"):
        net = build_network(name, input_shape=shape)
    program = program_of(net, [Input(REALS, tuple(shape))], names_of(net))
    assert len(encoded(program)) < 4096


def sequence_network():
    return nn.Sequential(
        nn.Conv1d(2, 6, 5, padding="same"),
        nn.BatchNorm1d(6),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(6, 8, 3, stride=2, padding=1, dilation=2, groups=2),
        nn.GELU(),
        nn.AdaptiveAvgPool1d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def test_convolutions_of_sequences():
    torch.manual_seed(0)
    assert_same_outputs(pb.bayesianize_(sequence_network()), torch.randn(3, 2, 30))


class Two(nn.Module):
    """Two inputs, one of them whole numbers; a weight that two layers share."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
        self.out.weight = self.words.weight
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]), persistent=False)

    def forward(self, x, words):
        position = self.words(torch.arange(words.shape[1]))
        return self.out((self.words(words) + position).mean(1) * self.mask + x)


def test_several_inputs_and_shared_weights():
    torch.manual_seed(0)
    model = pb.bayesianize_(Two())
    program = assert_same_outputs(model, torch.randn(3, 4), torch.randint(9, (3, 5)))
    assert [given.kind for given in program.inputs] == [0, 1]
    assert [given.shape for given in program.inputs] == [(4,), (5,)]


def test_sizes_of_batches_that_stand_elsewhere_in_the_network_do_no_harm():
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(11, 13), nn.ReLU(), nn.Linear(13, 17)))
    for batch in (1, 11, 13):
        assert_same_outputs(model, torch.randn(batch, 11))


def test_the_model_stays_as_it_was():
    model = model_of("resnet20").train()
    modes = [module.training for module in model.modules()]
    kinds = [type(module) for module in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    program_of(model, inputs_of(IMAGES), names_of(model), IMAGES)
    assert [module.training for module in model.modules()] == modes
    assert [type(module) for module in model.modules()] == kinds
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_shrunk_networks_have_programs_of_their_own():
    torch.manual_seed(0)
    net = build_network("resnet20", num_outputs=4)
    for module in net.modules():
        if isinstance(module, nn.Conv2d) and module.out_channels > 16:
            module.weight.data[::3] = 0
    small = pb.shrink(net, IMAGES)
    model = pb.bayesianize_(small)
    assert model.layer2[0].conv1.weight.shape[0] < 32
    assert_same_outputs(model, IMAGES)


def test_members_of_an_ensemble_have_one_program():
    one, other = (model_of("lenet5") for _ in range(2))
    ensemble = Ensemble([one, other])
    x = IMAGES[:, :1, 2:-2, 2:-2]
    program = program_of(ensemble, inputs_of(x), names_of(one), x)
    assert program == traced(one, x)
    strange = copy.deepcopy(other)
    strange.relu1 = nn.Tanh()
    with pytest.raises(pb.ProgramError, match="differ in structure"):
        program_of(Ensemble([one, strange]), inputs_of(x), names_of(one))


class Aliased(nn.Module):
    """Writes through a view, which no list of operations shows."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)

    def forward(self, x):
        x = self.first(x)
        x.view(-1, 2, 3).mul_(2)
        return x


def test_a_program_that_computes_something_else_is_refused():
    torch.manual_seed(0)
    model, x = pb.bayesianize_(Aliased()), torch.randn(2, 6)
    with pytest.raises(pb.ProgramError, match="does not give what the network gives"):
        program_of(model, inputs_of(x), names_of(model), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_of_numbers(dtype):
    torch.manual_seed(0)
    model = pb.bayesianize_(sequence_network().to(dtype))
    x = torch.randn(2, 2, 30).to(dtype)
    program = program_of(model, inputs_of(x), names_of(model), x)
    assert mean_outputs(model, x).dtype == dtype
    assert program == traced(model, x.float())


@pytest.mark.parametrize(
    "example",
    [None, [1.0], torch.tensor(1.0), torch.zeros(0, 3), (), (torch.ones(2), torch.ones(3))],
)
def test_examples_that_are_none(example):
    with pytest.raises(pb.PocketBayesError, match="example must be a batch"):
        inputs_of(example)


def test_an_example_that_does_not_fit_the_network():
    with pytest.raises(pb.ProgramError, match="linear"):
        traced(model_of("mlp", input_shape=(6,)), torch.randn(2, 5))
    with pytest.raises(pb.ProgramError, match="cannot be traced"):
        traced(model_of("mlp", input_shape=(6,)), torch.randn(2, 6), torch.randn(2, 6))


CONVOLUTION = [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)]


@pytest.mark.parametrize(
    ("layers", "shape", "told"),
    [([nn.Flatten(), nn.Linear(64, 3)], (2, 63), r"1 \(Linear\) takes 64 features .* \(1, 63\)"),
     ([nn.Flatten(), nn.Linear(64, 3)], (64,), r"is \(1,\): layer 0 \(Flatten\) was given \(1,\)"),
     (CONVOLUTION, (2, 1, 8, 8), r"0 \(Conv2d\) takes 3 channels along axis 1 .* \(1, 1, 8, 8\)"),
     (CONVOLUTION, (2, 3, 9, 9), r"3 \(Linear\) takes 144 features .* was given \(1, 196\)"),
     (CONVOLUTION, (3, 8, 8), r"layer 0 \(Conv2d\) takes 3 channels along axis 1 .* \(1, 8, 8\)"),
     ([nn.LSTM(4, 5, batch_first=True)], (2, 7, 3), r"0 \(LSTM\) takes 4 .* \(1, 7, 3\)"),
     ([nn.Linear(4, 3)], (2, 5), r"does not run on this example, one of which is \(1, 5\)")],
)  # fmt: skip
def test_a_wrong_example_is_told_from_a_network_without_a_program(layers, shape, told):
    """It is the network that refuses: which layer, what it takes, and what it was given."""
    model = pb.bayesianize_(nn.Sequential(*copy.deepcopy(layers))).train()
    x = torch.randn(shape)
    with pytest.raises(pb.ProgramError, match=told) as caught:
        program_of(model, inputs_of(x), names_of(model), x)
    assert "example must be a batch" in str(caught.value)
    assert "portable program cannot hold" not in str(caught.value)
    assert model.training
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
