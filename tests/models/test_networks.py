import copy
import inspect
import json
import math
import os
import pickle
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import pocketbayes as pb
from pocketbayes.methods.base import make_points_
from pocketbayes.models import MODELS, build_network, options_of
from pocketbayes.models.residual import Bottleneck
from pocketbayes.models.resnet import ResNet
from pocketbayes.models.vit import VisionTransformer
from pocketbayes.models.wide_resnet import WideResNet

NAMES = [
    "mlp", "lenet5", "vgg_like", "resnet20", "resnet32", "resnet44", "resnet56", "resnet110",
    "resnet18", "resnet34", "resnet50", "resnet101", "wrn-28-10", "vit-tiny", "vit-small",
    "vit-b16", "scaled_mlp",
]  # fmt: skip
IMAGE = {name: (3, 32, 32) if name.startswith("vit") else (3, 16, 16) for name in NAMES}
# Of networks that differ in depth or width only, the smallest.
ONE_OF_EACH = [
    "mlp", "lenet5", "vgg_like", "resnet20", "resnet18", "resnet50", "wrn-28-10", "vit-tiny",
    "scaled_mlp",
]  # fmt: skip
QUICK = ["mlp", "lenet5", "resnet20", "vit-tiny"]
IMAGENET = {"input_shape": (3, 224, 224), "num_outputs": 1000}


def on_meta(name, **options):
    with torch.device("meta"):
        return build_network(name, **{"input_shape": IMAGE[name]} | options)


def small(name, **options):
    return build_network(name, **{"input_shape": IMAGE[name]} | options)


# One of each class with real weights; the tests of all sizes run on the meta device.
SMALL = {
    "mlp": lambda: small("mlp"),
    "lenet5": lambda: small("lenet5"),
    "vgg_like": lambda: small("vgg_like"),
    "resnet20": lambda: small("resnet20"),
    "bottlenecks": lambda: ResNet(Bottleneck, (1, 1, 1, 1), (3, 16, 16), 10, "cifar", 0.0),
    "wide": lambda: WideResNet(1, 2, (3, 16, 16), 10, 0.0),
    "transformer": lambda: VisionTransformer(64, 2, (3, 16, 16), 10, 4, 0.0, depth=2),
}


def parameters(net):
    return sum(p.numel() for p in net.parameters())


def test_the_table_is_closed():
    assert sorted(MODELS) == sorted(NAMES)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("lenet5", {"input_shape": (1, 28, 28)}, 61_706),
        ("lenet5", {"input_shape": (1, 32, 32)}, 61_706),
        ("vgg_like", {"input_shape": (3, 32, 32)}, 14_991_946),
        ("resnet20", {}, 269_722),
        ("resnet32", {}, 464_154),
        ("resnet44", {}, 658_586),
        ("resnet56", {}, 853_018),
        ("resnet110", {}, 1_727_962),
        ("resnet18", {}, 11_173_962),
        ("resnet34", {}, 21_282_122),
        ("resnet50", {}, 23_520_842),
        ("resnet101", {}, 42_512_970),
        ("resnet18", IMAGENET | {"stem": "imagenet"}, 11_689_512),
        ("resnet34", IMAGENET | {"stem": "imagenet"}, 21_797_672),
        ("resnet50", IMAGENET | {"stem": "imagenet"}, 25_557_032),
        ("resnet101", IMAGENET | {"stem": "imagenet"}, 44_549_160),
        ("wrn-28-10", {}, 36_479_194),
        ("vit-tiny", IMAGENET, 5_717_416),
        ("vit-small", IMAGENET, 22_050_664),
        ("vit-b16", IMAGENET, 86_567_656),
        ("resnet18", {"width": 0.5}, 2_797_610),
        ("resnet20", {"width": 4}, 4_286_026),
    ],
)
def test_parameter_counts_are_the_literatures(name, options, expected):
    assert parameters(on_meta(name, **options)) == expected


@pytest.mark.parametrize("hidden", [(), (7,), (5, 3)])
def test_an_mlp_has_a_weight_per_connection_and_a_bias_per_unit(hidden):
    widths = (2 * 3 * 4, *hidden, 6)
    expected = sum((a + 1) * b for a, b in pairwise(widths))
    net = build_network("mlp", input_shape=(2, 3, 4), num_outputs=6, hidden=hidden)
    assert parameters(net) == expected
    assert net(torch.randn(5, 2, 3, 4)).shape == (5, 6)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_remembers_how_to_build_it_again(name):
    net = on_meta(name, input_shape=torch.Size(IMAGE[name]), num_outputs=np.int64(3))
    built = net.pocketbayes_network
    assert built["name"] == name
    assert list(built["options"]) == [option for option in options_of(name) if option != "width"]
    assert built["options"]["input_shape"] == list(IMAGE[name])
    assert built["options"]["dropout"] == 0.0
    with torch.device("meta"):
        again = build_network(name, **json.loads(json.dumps(built["options"])))
    assert again.pocketbayes_network == built
    assert {k: v.shape for k, v in again.state_dict().items()} == {
        k: v.shape for k, v in net.state_dict().items()
    }


@pytest.mark.parametrize("name", QUICK)
def test_a_width_of_1_changes_nothing(name):
    torch.manual_seed(0)
    net = small(name)
    torch.manual_seed(0)
    same = small(name, width=1)
    assert same.pocketbayes_network == net.pocketbayes_network
    torch.testing.assert_close(same.state_dict(), net.state_dict(), rtol=0, atol=0)


def both_sides_differ(first, second):
    return len(first) > 1 and first[0] != second[0] and first[1] != second[1]


@pytest.mark.parametrize("width", [0.37, 0.5, 2])
@pytest.mark.parametrize("name", NAMES)
def test_hidden_weights_go_with_the_square_of_the_width(name, width):
    """To the rounding of the channels; a hidden weight leads from hidden units to hidden units."""
    net = on_meta(name, width=width).eval()
    assert net(torch.empty(2, *IMAGE[name], device="meta")).shape == (2, 10)
    assert net.pocketbayes_network["options"]["width"] == width
    pairs = zip(net.parameters(), on_meta(name).parameters(), strict=True)
    hidden = [(p.numel(), q.numel()) for p, q in pairs if both_sides_differ(p.shape, q.shape)]
    assert len(hidden) >= (1 if "mlp" in name else 2)
    scaled, usual = map(sum, zip(*hidden, strict=True))
    assert scaled / usual == pytest.approx(width**2, rel=0.05)


@pytest.mark.parametrize(("width", "expected"), [(0.01, 6), (0.37, 144), (0.5, 192)])
def test_the_heads_of_a_transformer_stay(width, expected):
    net = on_meta("vit-small", width=width)
    attention = net.blocks[0].attention
    assert (attention.num_heads, attention.embed_dim) == (6, expected)
    assert net.blocks[0].mlp[0].out_features == 4 * expected


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_narrow_network_comes_back_from_its_file(name, tmp_path):
    net = small(name, width=0.07, input_shape=(3, 32, 32))
    model = pb.bayesianize_(net, std_init=1e-3).eval()
    x = torch.randn(2, 3, 32, 32)
    summary = pb.save(model, tmp_path / "a.pocket", lossless=True, example=x[:1])
    assert summary.options["width"] == 0.07
    told = pb.inspect(tmp_path / "a.pocket")
    assert (told.options, told.program) == (summary.options, summary.program)
    assert told.program is not None
    again = pb.load(tmp_path / "a.pocket")
    found, expected = (pb.predict(m, x, estimator="mean").probs for m in (again, model))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", QUICK)
def test_copies_remember_too(name):
    net = small(name).eval()
    x = torch.randn(2, *IMAGE[name])
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.pocketbayes_network == net.pocketbayes_network
        assert torch.equal(other(x), net(x))
    assert pb.bayesianize_(net).pocketbayes_network["name"] == name


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_of_a_network_is_in_its_state_dict(name):
    net = on_meta(name)
    tensors = [value for m in net.modules() for value in vars(m).values()]
    assert not any(isinstance(value, torch.Tensor) for value in tensors)
    assert not any(m._non_persistent_buffers_set for m in net.modules())
    assert all(t.is_meta for t in net.state_dict().values())


@pytest.mark.parametrize("name", QUICK)
def test_a_network_on_the_meta_device_takes_stored_weights(name):
    net, empty = small(name).eval(), on_meta(name).eval()
    empty.load_state_dict(net.state_dict(), assign=True)
    x = torch.randn(2, *IMAGE[name])
    assert torch.equal(empty(x), net(x))


def weight_names(net):
    return {name for name, p in net.named_parameters() if p.dim() > 1}


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_weight_of_a_network_becomes_bayesian(name):
    """In shapes, by weight samples: the other estimators ask for autocast, which meta has not."""
    net = on_meta(name, num_outputs=3)
    weights = weight_names(net)
    model = pb.bayesianize_(net, estimator="weight").eval()
    assert weights - dict(pb.named_posteriors(model)).keys() <= {"token", "positions"}
    assert model(torch.empty(2, *IMAGE[name], device="meta")).shape == (2, 3)


@pytest.mark.parametrize("kind", SMALL)
def test_converted_networks_train(kind):
    model = pb.bayesianize_(SMALL[kind]()).train()
    first, second = model(torch.randn(2, 3, 16, 16)).unbind()
    assert first.shape == (10,)
    assert not torch.equal(first, second)
    first.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (3, 33, 30)), ("lenet5", (1, 28, 28)), ("lenet5", (3, 33, 30)),
        ("lenet5", (4, 64, 32)), ("vgg_like", (1, 28, 28)), ("vgg_like", (3, 33, 30)),
        ("resnet20", (4, 64, 32)), ("resnet18", (3, 33, 30)), ("resnet50", (1, 28, 28)),
        ("wrn-28-10", (4, 64, 32)),
    ],
)  # fmt: skip
def test_images_may_have_any_channels_and_size(name, shape):
    net = on_meta(name, input_shape=shape).eval()
    assert net(torch.empty(2, *shape, device="meta")).shape == (2, 10)


@pytest.mark.parametrize("side", range(12, 40))
def test_lenet5_computes_its_sizes(side):
    net = on_meta("lenet5", input_shape=(1, side, 32))
    assert net(torch.empty(2, 1, side, 32, device="meta")).shape == (2, 10)
    assert net.conv1.padding == ((2, 2) if side < 32 else (0, 0))


@pytest.mark.parametrize("side", [16, 17, 28, 32, 48, 65])
def test_vgg_like_computes_its_sizes(side):
    net = on_meta("vgg_like", input_shape=(3, side, 32))
    assert net(torch.empty(2, 3, side, 32, device="meta")).shape == (2, 10)


@pytest.mark.parametrize(("stem", "side"), [("cifar", 32), ("imagenet", 8)])
def test_the_stem_decides_what_the_stages_see(stem, side):
    net = on_meta("resnet50", input_shape=(3, 32, 32), stem=stem)
    sides = []
    net.layer1.register_forward_hook(lambda *a: sides.append(a[2].shape[-1]))
    net(torch.empty(2, 3, 32, 32, device="meta"))
    assert sides == [side]


@pytest.mark.parametrize("name", NAMES)
def test_dropout_drops_in_training_and_changes_no_names(name):
    net = on_meta(name, dropout=0.25)
    rates = {m.p for m in net.modules() if isinstance(m, nn.Dropout)}
    assert rates == {0.25}
    assert list(net.state_dict()) == list(on_meta(name).state_dict())


@pytest.mark.parametrize("name", QUICK)
def test_dropout_is_random_in_training_only(name):
    net = small(name, dropout=0.5)
    x = torch.randn(2, *IMAGE[name])
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))


def start_again(net):
    for module in reversed(list(net.modules())):
        for reset in ("reset_parameters", "_reset_parameters"):
            if hasattr(module, reset):
                getattr(module, reset)()
                break


def assert_same_distribution(drawn, fresh, name):
    """Equal stds up to 6 sigma: two stds of n normals differ by about 1/sqrt(n) of themselves.

    That is 2e-9 for a false alarm, and less for uniform and truncated draws.
    """
    if fresh.numel() < 2 or fresh.std() == 0:
        assert torch.equal(drawn, fresh), name
    else:
        limit = 6 / math.sqrt(fresh.numel())
        assert abs(drawn.std() / fresh.std() - 1) < limit, name
        assert abs(drawn.mean() - fresh.mean()) < limit * fresh.std() * math.sqrt(2), name


@pytest.mark.parametrize("kind", SMALL)
def test_resetting_children_first_starts_as_the_constructor_does(kind):
    net, fresh = SMALL[kind](), SMALL[kind]().state_dict()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.mul_(3).add_(1)
    start_again(net)
    for name, tensor in net.state_dict().items():
        assert_same_distribution(tensor.float(), fresh[name].float(), name)
        if tensor.dim() > 1:
            assert not torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("kind", SMALL)
def test_resetting_reaches_the_means_of_a_converted_network(kind):
    fresh = dict(SMALL[kind]().named_parameters())
    model = pb.bayesianize_(SMALL[kind]())
    make_points_(model)
    before = {name: p.expectation().clone() for name, p in pb.named_posteriors(model)}
    start_again(model)
    for name, posterior in pb.named_posteriors(model):
        mean = posterior.expectation().detach()
        assert_same_distribution(mean, fresh[name].detach(), name)
        assert not torch.equal(mean, before[name]), name


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_described(name):
    section = inspect.getdoc(MODELS[name]).partition("\nArgs:\n")[2]
    described = re.findall(r"^    (\w+): \S.*\.$", section, flags=re.MULTILINE)
    assert described == list(options_of(name))
    assert {"input_shape", "num_outputs"} <= set(described)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet21", {}, r"no network is called 'resnet21'; did you mean 'resnet\d\d+'\?; there"),
        (["mlp"], {}, "no network is called"),
        ("mlp", {"input_shape": (4,), "hiden": (3,)}, "no option 'hiden'; did you mean 'hidden'"),
        ("resnet20", {"num_classes": 10}, "it has input_shape, num_outputs"),
        ("mlp", {}, "network 'mlp': missing a required argument: 'input_shape'; it takes"),
        ("mlp", {"input_shape": 64}, r"network 'mlp': input_shape must be .* such as \(64,\)"),
        ("mlp", {"input_shape": "64"}, "input_shape must be"),
        ("mlp", {"input_shape": ()}, "between 1 and 8 dimensions"),
        ("mlp", {"input_shape": (0,)}, "every dimension of input_shape must be a whole number"),
        ("mlp", {"input_shape": (2.0,)}, "every dimension of input_shape must be a whole number"),
        ("mlp", {"input_shape": (10**6, 10**6)}, "use smaller inputs"),
        ("mlp", {"input_shape": (4,), "hidden": 16}, r"hidden must be a sequence .* \(128, 128\)"),
        ("mlp", {"input_shape": (4,), "hidden": (0,)}, "every width in hidden"),
        ("mlp", {"input_shape": (4,), "hidden": (10**9,)}, "at most 1,048,576"),
        ("mlp", {"input_shape": (4,), "hidden": (1,) * 65}, "64 layers at most"),
        ("mlp", {"input_shape": (4,), "num_outputs": 0}, "num_outputs must be a whole number"),
        ("lenet5", {"input_shape": (1, 8, 8)}, r"8 x 8 pixels .* at least 12 x 12: enlarge"),
        ("lenet5", {"input_shape": (28, 28, 1)}, "channels come first"),
        ("resnet18", {"input_shape": (64,)}, r"must be \(channels, height, width\).*mlp"),
        ("resnet18", {"stem": "imagenet", "input_shape": (3, 28, 28)}, "at least 32 x 32"),
        ("resnet18", {"stem": "mnist"}, "stem must be one of cifar, imagenet"),
        ("wrn-28-10", {"dropout": 1}, "dropout must be below 1"),
        ("vgg_like", {"dropout": -0.1}, "dropout must be finite, at least 0"),
        ("resnet20", {"dropout": float("nan")}, "dropout must be finite"),
        ("vit-tiny", {"input_shape": (3, 28, 28)}, "patch=16 does not divide .* use patch=14,"),
        ("vit-tiny", {"input_shape": (3, 48, 32), "patch": 5}, "use patch=4,"),
        ("vit-tiny", {"patch": 0}, "patch must be a whole number"),
        ("resnet18", {"width": 0}, "width must be finite, at least 0.01, at most 16; got 0"),
        ("vgg_like", {"width": 1e-9}, "width must be .* at least 0.01"),
        ("wrn-28-10", {"width": float("nan")}, "width must be finite"),
        ("vit-tiny", {"width": 17}, "width must be .* at most 16"),
        ("lenet5", {"width": "wide"}, "width must be a number, not 'wide'"),
        ("mlp", {"input_shape": (4,), "hidden": (), "width": -1}, "width must be finite"),
        ("mlp", {"input_shape": (4,), "hidden": (2**20,), "width": 2}, "at most 1,048,576"),
    ],
)
def test_wrong_options_are_errors_that_say_what_to_do(name, options, message):
    with torch.device("meta"), pytest.raises(pb.PocketBayesError, match=message):
        build_network(name, **options)


def test_options_go_by_name():
    with pytest.raises(pb.PocketBayesError, match="it takes, by name, input_shape, num_outputs"):
        MODELS["resnet20"](100)


@pytest.mark.parametrize("name", ["resnet20", "resnet32", "resnet44", "resnet56"])
def test_published_weights_load_strictly(name):
    folder = os.environ.get("POCKETBAYES_DATA")
    path = Path(folder or "") / "weights" / f"cifar10_{name}.safetensors"
    if not folder or not path.is_file():
        pytest.skip(f"needs $POCKETBAYES_DATA/weights/{path.name}")
    net = build_network(name).eval()
    net.load_state_dict(load_file(path), strict=True)
    assert net(torch.randn(2, 3, 32, 32)).isfinite().all()
