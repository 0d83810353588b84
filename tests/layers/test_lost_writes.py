"""What would go wrong without a word: writes into draws, weights kept aside, names that collide."""

import copy
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import set_estimator
from pocketbayes.methods.base import make_points_

WRITES = {
    "div_": lambda layer: layer.weight.div_(2),
    "without gradients": lambda layer: torch.no_grad()(lambda: layer.weight.mul_(2))(),
    "one row": lambda layer: operator.setitem(layer.weight, 0, 1.0),
    "+=": lambda layer: operator.iadd(layer.weight, 1),
    "data.copy_": lambda layer: layer.weight.data.copy_(torch.zeros(3, 4)),
    "data =": lambda layer: setattr(layer.weight, "data", torch.zeros(3, 4)),
    "data -=": lambda layer: exec("layer.weight.data -= 1", {"layer": layer}),
    "data[0] =": lambda layer: operator.setitem(layer.weight.data, 0, 1.0),
    "init": lambda layer: nn.init.xavier_uniform_(layer.weight),
    "init by name": lambda layer: nn.init.normal_(tensor=layer.weight, std=0.1),
    "out=": lambda layer: torch.add(torch.ones(3, 4), 1, out=layer.weight),
    "inplace=": lambda layer: F.relu(layer.weight, inplace=True),
    "several": lambda layer: torch._foreach_mul_([layer.weight], 2.0),
    "view": lambda layer: layer.weight.view(-1).zero_(),
    "transposed row": lambda layer: layer.weight.t()[0].zero_(),
    "part": lambda layer: layer.weight.chunk(3)[1].zero_(),
    "detached": lambda layer: layer.weight.detach().zero_(),
    "frozen": lambda layer: layer.weight.requires_grad_(False),
    "frozen by attribute": lambda layer: setattr(layer.weight, "requires_grad", False),
}  # fmt: skip


@pytest.mark.parametrize("estimator", ["lrt", "weight", "flipout", "mean"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writing_into_a_draw_is_an_error_at_that_place(write, estimator):
    model = pb.bayesianize_(nn.Linear(4, 3), estimator=estimator)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(pb.ConversionError, match="weight of a Linear is a draw of its posterior"):
        write(model)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


LAYERS = {
    "convolution": (lambda: nn.Conv2d(2, 3, 3), "weight"),
    "embedding": (lambda: nn.Embedding(5, 4), "weight"),
    "attention": (lambda: nn.MultiheadAttention(4, 2), "in_proj_weight"),
    "lstm": (lambda: nn.LSTM(4, 3), "weight_hh_l0"),
}


@pytest.mark.parametrize(("make", "name"), LAYERS.values(), ids=LAYERS)
def test_so_it_is_in_every_layer(make, name):
    model = pb.bayesianize_(make())
    with pytest.raises(pb.ConversionError, match=f"{name} of a .* is a draw"):
        getattr(model, name).mul_(2)


def test_sparse_weights_and_biases_refuse_as_well():
    model = pb.bayesianize_(nn.Linear(4, 3), bias=True)
    pb.prune_(model, density=0.5)
    for name in ("weight", "bias"):
        with pytest.raises(pb.ConversionError, match=f"{name} of a Linear"):
            getattr(model, name).zero_()


def test_points_are_written_into_like_plain_weights():
    model = pb.bayesianize_(nn.Linear(4, 3))
    make_points_(model)
    model.reset_parameters()
    with torch.no_grad():
        model.weight.fill_(2.0)
    assert torch.equal(model._posteriors["weight"].mean, torch.full((3, 4), 2.0))


def test_reading_is_free():
    """What comes of a draw is plain, but for views; gradients reach the posterior."""
    model = pb.bayesianize_(nn.Linear(4, 4), estimator="weight")
    x = torch.randn(2, 5, 4)
    for found in (
        F.linear(x, model.weight), x @ model.weight.t(), model.weight + 1, model.weight.clone(),
        torch.einsum("bti,oi->bto", x, model.weight), model.weight.norm(),
        torch.stack([model.weight]),
    ):  # fmt: skip
        assert type(found) is torch.Tensor
        found.mul_(2)
    assert x.add_(model.weight[0]) is x
    assert model.weight.shape == (4, 4)
    assert model.weight.dtype == torch.float32
    assert "tensor" in repr(model.weight)
    assert model.weight.data.numpy().shape == (4, 4)
    assert len(list(model.weight)) == 4
    sum(part.square().sum() for part in model.weight.chunk(2)).backward()
    assert model._posteriors["weight"].mean.grad.abs().min() > 0


def test_a_pass_that_reads_other_layers_weights_trains_and_predicts():
    class Reading(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 2)

        def forward(self, x):
            return F.linear(F.relu(F.linear(x, self.a.weight), inplace=True), self.b.weight)

    torch.manual_seed(0)
    model, x = pb.bayesianize_(Reading()), torch.randn(64, 4)
    history = pb.fit(model, [(x, (x[:, 0] > 0).long())], epochs=20, progress=False).history
    assert history[-1]["nll"] < history[0]["nll"]
    assert pb.predict(model, x).epistemic.max() > 0
    torch.compile(model, backend="eager")(x)


def test_a_block_that_rescales_its_weights_is_told():
    """As RWKV does in evaluation mode, where the update would be lost."""

    class Rescaling(nn.Module):
        def __init__(self):
            super().__init__()
            self.output = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            if not self.training:
                with torch.no_grad():
                    self.output.weight.div_(2)
            return self.output(x)

    model = pb.bayesianize_(Rescaling())
    with pytest.raises(pb.ConversionError, match="div_ cannot write"):
        pb.predict(model, torch.zeros(1, 4), likelihood="categorical")


def test_a_layer_that_merges_its_update_is_told():
    """As loralib does when it leaves training mode."""

    class Merging(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.update = nn.Parameter(torch.ones(4, 4))

        def train(self, mode=True):
            super().train(mode)
            self.weight.data += self.update if not mode else -self.update
            return self

    with pytest.warns(UserWarning, match="update of Merging"):
        model = pb.bayesianize_(Merging())
    with pytest.raises(pb.ConversionError, match="is a draw of its posterior"):
        model.eval()


def test_a_weight_is_tied_to_another_posterior_but_not_replaced():
    """`tie_weights()` of Hugging Face sets the same weight again and again."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.tie_weights()

        def tie_weights(self):
            self.head.weight = self.table.weight

    model = pb.bayesianize_(Tied())
    model.tie_weights()
    assert model.head._posteriors["weight"] is model.table._posteriors["weight"]
    assert len(dict(pb.named_posteriors(model))) == 1
    apart = pb.bayesianize_(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    apart[1].weight = apart[0].weight
    assert list(dict(pb.named_posteriors(apart))) == ["0.weight"]
    with pytest.raises(pb.ConversionError, match="set it before bayesianize_"):
        apart[0].weight = nn.Parameter(torch.zeros(4, 4))
    for other in (pb.bayesianize_(nn.Linear(3, 2)).weight, apart[0].weight.t()):
        with pytest.raises(pb.ConversionError, match=r"weight \(4, 4\) of a Linear .* to a draw"):
            apart[0].weight = other


class Busy(nn.Linear):
    """A layer whose own names are those that this library once used."""

    def __init__(self):
        super().__init__(4, 4)
        self.estimator, self.value, self.behaviour, self._held = 2.0, 3.0, 4.0, 5.0
        self.posteriors = nn.ModuleList([nn.Linear(4, 4)])
        self.plain_class = "mine"

    def posterior(self, x):
        return self.posteriors[0](x) * self.estimator + self.value

    def one_draw(self):
        return self.behaviour * self._held

    def forward(self, x):
        return super().forward(self.posterior(x)) + self.one_draw() + len(self.plain_class)


def test_a_layers_own_names_are_its_own(tmp_path):
    torch.manual_seed(0)
    plain, x = Busy(), torch.randn(3, 4)
    wanted = plain(x)
    model = pb.bayesianize_(copy.deepcopy(plain))
    with torch.no_grad():
        set_estimator(model, "mean")
        torch.testing.assert_close(model(x), wanted)
    assert sorted(dict(pb.named_posteriors(model))) == ["posteriors.0.weight", "weight"]
    assert [row.name for row in pb.audit(model)] == ["", "posteriors", "posteriors.0"]
    pb.save(model, tmp_path / "busy.pocket", lossless=True)
    again = pb.load(tmp_path / "busy.pocket", Busy())
    set_estimator(again, "mean")
    torch.testing.assert_close(again(x), wanted)
    set_estimator(model, "weight")
    assert not torch.equal(model(x), model(x))


ASIDE = {
    "list": lambda net: setattr(net, "kept", [net.layer.weight]),
    "dict in a list": lambda net: setattr(net, "kept", [{"w": (net.layer.weight,)}]),
    "view": lambda net: setattr(net, "kept", net.layer.weight.data.t()),
    "buffer": lambda net: net.register_buffer("kept", net.layer.weight.detach()[0]),
    "attribute": lambda net: object.__setattr__(net, "kept", net.layer.weight),
}


@pytest.mark.parametrize("keep", ASIDE.values(), ids=ASIDE)
def test_a_weight_that_is_kept_aside_is_refused(keep):
    net = nn.Module()
    net.layer, net.other = nn.Linear(3, 3), nn.Linear(3, 3)
    keep(net)
    before = [type(module) for module in net.modules()]
    with pytest.raises(pb.ConversionError, match=r"keeps layer\.weight beside .*exclude='layer'"):
        pb.bayesianize_(net)
    assert [type(module) for module in net.modules()] == before
    pb.bayesianize_(net, exclude="layer")


def test_lists_of_layers_and_of_other_tensors_are_fine():
    net = nn.Sequential(nn.Linear(3, 3), nn.LSTM(3, 2))
    net.order, net.scales, net.empty = [net[1], net[0]], [torch.ones(3)], torch.empty(0)
    net.sparse, net.meta = torch.eye(3).to_sparse(), torch.empty(3, device="meta")
    pb.bayesianize_(net)
