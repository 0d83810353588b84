"""Conversion: what is kept, what is chosen, what is refused."""

import copy

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import LinearLayer
from pocketbayes.layers.bayesian import BayesianModule, SampledLayer
from pocketbayes.posteriors import Gaussian


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


class Vit(nn.Module):
    """A module of the user's own with bare parameters."""

    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 8))
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(torch.cat([self.cls_token.expand(len(x), 1, 8), x], 1))[:, 0])


def names(model):
    return [name for name, _ in pb.named_posteriors(model)]


def test_it_works_in_place_and_returns_the_same_object():
    net = mlp()
    first = net[0]
    assert pb.bayesianize_(net) is net
    assert net[0] is first
    assert isinstance(first, nn.Linear)
    assert isinstance(first, BayesianModule)
    assert type(first).__name__ == "BayesianLinear"


@pytest.mark.parametrize("net", [nn.Linear(3, 2), nn.LSTM(3, 2), nn.MultiheadAttention(4, 2)])
def test_the_root_may_itself_be_a_layer(net):
    assert pb.bayesianize_(net) is net
    assert names(net)[0] in ("weight", "weight_ih_l0", "in_proj_weight")


def test_means_start_at_the_weights_and_stds_as_chosen():
    net = mlp()
    weights = [net[0].weight, net[2].weight]
    values = [w.detach().clone() for w in weights]
    model = pb.bayesianize_(net, prior_std=0.2, std_init=0.03)
    for (_, q), weight, value in zip(pb.named_posteriors(model), weights, values, strict=True):
        assert q.mean is weight
        assert torch.equal(q.mean, value)
        torch.testing.assert_close(q.std, torch.full_like(value, 0.03))
        assert float(q.prior_std) == pytest.approx(0.2)
    assert names(model) == ["0.weight", "2.weight"]
    assert isinstance(model[0].bias, nn.Parameter)


def test_mode_frozen_weights_and_dtypes_are_kept():
    net = mlp().double().eval()
    net[0].weight.requires_grad_(False)
    net[2].train()
    model = pb.bayesianize_(net, include=nn.Linear)
    q = dict(pb.named_posteriors(model))
    assert not any(p.requires_grad for p in q["0.weight"].parameters())
    assert all(p.requires_grad for p in q["2.weight"].parameters())
    assert [m.training for m in (model, model[0], model[2], q["2.weight"])] == [
        False,
        False,
        True,
        True,
    ]
    assert {p.dtype for p in model.parameters()} == {torch.float64}


def test_moving_and_casting_work_after_conversion():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(4, 4), First(nn.GRU(4, 4))))
    model.double().half().float()
    model.to("meta")
    assert {p.device.type for p in model.parameters()} == {"meta"}


class First(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


def test_tied_weights_share_one_posterior_that_counts_once():
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    net[1].weight = net[0].weight
    model = pb.bayesianize_(net)
    assert names(model) == ["0.weight"]
    assert model[0]._posteriors["weight"] is model[1]._posteriors["weight"]
    torch.testing.assert_close(pb.kl(model), model[0]._posteriors["weight"].kl())
    rows = {row.name: row for row in pb.audit(model)}
    assert (rows["0"].weights, rows["1"].weights) == (28, 0)
    assert len(list(model.parameters())) == 2


def test_a_module_used_twice_is_converted_once():
    shared = nn.Linear(4, 4)
    model = pb.bayesianize_(nn.Sequential(shared, nn.ReLU(), shared))
    assert names(model) == ["0.weight"]
    model(torch.randn(2, 4)).sum().backward()


def test_a_tie_that_would_be_torn_apart_is_an_error():
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    net[1].weight = net[0].weight
    with pytest.raises(pb.ConversionError, match=r"0\.weight and 1\.weight are one tied"):
        pb.bayesianize_(net, exclude="1")

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(7, 4)
            self.decoder = self.embedding.weight

    with pytest.raises(pb.ConversionError, match="tied"):
        pb.bayesianize_(Bare())


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"include": "head"}, ["head.weight"]),
        ({"include": "body.layers.*.linear?"},
         ["body.layers.0.linear1.weight", "body.layers.0.linear2.weight"]),
        ({"exclude": "body"}, ["head.weight"]),
        ({"exclude": ["body", nn.Embedding]}, ["head.weight"]),
        ({"include": nn.TransformerEncoder, "exclude": nn.MultiheadAttention},
         ["body.layers.0.linear1.weight", "body.layers.0.linear2.weight"]),
        ({"include": lambda name, module: getattr(module, "out_features", 0) == 3},
         ["head.weight"]),
    ],
)  # fmt: skip
def test_include_and_exclude(rules, expected):
    model = pb.bayesianize_(Vit(), **rules)
    assert names(model) == expected
    model(torch.randn(2, 3, 8)).sum().backward()


def test_bare_parameters_stay_and_are_listed():
    model = pb.bayesianize_(Vit())
    assert "cls_token" in dict(model.named_parameters())
    rows = {row.name: row for row in pb.audit(model)}
    assert rows[""].status == "deterministic"
    assert "cls_token" in rows[""].why
    assert rows["head"].status == "bayesian"
    assert rows["body.layers.0.norm1"].why == "normalisation"
    assert rows["body.layers.0.self_attn.out_proj"].estimator == "weight"
    assert rows["head"].estimator == "weight"
    assert sum(r.weights + r.deterministic for r in rows.values()) == sum(
        p.numel() for p in Vit().parameters()
    )
    assert len(rows) == len(list(Vit().named_modules()))
    text = str(pb.audit(model))
    assert all(name in text for name in ("cls_token", "head", "in_proj_weight: gaussian", "total"))


def test_audit_also_works_before_conversion():
    assert {row.status for row in pb.audit(mlp())} == {"deterministic", "-"}


def test_biases_on_request():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LayerNorm(4))
    assert names(pb.bayesianize_(copy.deepcopy(net))) == ["0.weight"]
    model = pb.bayesianize_(net, bias=True, std_init=0.1)
    assert names(model) == ["0.weight", "0.bias", "1.bias", "2.bias"]
    x = torch.randn(2, 3, 6, 6)
    assert not torch.equal(model(x), model(x))


def test_activations_with_parameters_are_known():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(3, 3), nn.PReLU()))
    assert names(model) == ["0.weight"]


def test_an_own_layer_that_overrides_forward_samples_its_weight():
    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(x) * self.weight.norm()

    model = pb.bayesianize_(nn.Sequential(Scaled(3, 3), nn.Linear(3, 3)))
    assert isinstance(model[0], SampledLayer)
    assert isinstance(model[1], LinearLayer)


class OfTomorrow(nn.Module):
    """A layer that a later torch may have."""

    __module__ = "torch.nn.modules.tomorrow"

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 2))


def test_an_unknown_library_module_is_an_error_that_names_it():
    net = nn.Sequential(nn.Linear(2, 2), OfTomorrow())
    with pytest.raises(pb.ConversionError, match=r"1 is a OfTomorrow.*exclude='1'"):
        pb.bayesianize_(net)
    assert type(net[0]) is nn.Linear
    assert names(pb.bayesianize_(net, exclude="1")) == ["0.weight"]


def test_a_lazy_module_is_an_error_until_materialised():
    net = nn.Sequential(nn.LazyLinear(3), nn.Linear(3, 2))
    with pytest.raises(pb.ConversionError, match=r"0 \(LazyLinear\) is lazy.*run one batch"):
        pb.bayesianize_(net)
    net(torch.randn(2, 5))
    assert names(pb.bayesianize_(net)) == ["0.weight", "1.weight"]


def test_parametrised_weights_are_an_error():
    net = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)), nn.Linear(3, 2))
    with pytest.raises(pb.ConversionError, match=r"0\.weight is not a parameter.*exclude='0'"):
        pb.bayesianize_(net)
    assert names(pb.bayesianize_(net, exclude="0")) == ["1.weight"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior_std": -1.0}, "prior_std must be finite, above 0"),
        ({"prior_std": float("nan")}, "prior_std must be finite"),
        ({"prior_std": "0.1"}, "prior_std must be a number"),
        ({"std_init": 0}, "std_init must be finite, above 0"),
        ({"std_init": float("inf")}, "std_init"),
        ({"std_init": True}, "std_init must be a number"),
        ({"estimator": "lrtt"}, "estimator must be one of lrt, weight, flipout, mean"),
        ({"include": "hed"}, "include='hed' matches no module"),
        ({"exclude": 3}, "exclude takes name patterns"),
        ({"exclude": lambda module: True}, "called with the module's name and the module"),
        ({"exclude": nn.Linear}, "nothing to convert"),
    ],
)
def test_bad_arguments(arguments, message):
    net = mlp()
    with pytest.raises(pb.PocketBayesError, match=message):
        pb.bayesianize_(net, **arguments)
    assert not any(isinstance(m, BayesianModule) for m in net.modules())


def test_a_misspelt_name_gets_a_hint():
    with pytest.raises(pb.ConversionError, match="did you mean 'head'"):
        pb.bayesianize_(Vit(), exclude="haed")


def test_other_refusals():
    with pytest.raises(pb.ConversionError, match="already Bayesian"):
        pb.bayesianize_(pb.bayesianize_(mlp()))
    with pytest.raises(pb.ConversionError, match=r"torch\.nn\.Module, not str"):
        pb.bayesianize_("net")
    with pytest.raises(pb.ConversionError, match="nothing to convert"):
        pb.bayesianize_(nn.ReLU())
    with pytest.raises(pb.ConversionError, match="sparse=True"):
        pb.bayesianize_(nn.Sequential(nn.Embedding(4, 2, sparse=True)))
    with pytest.raises(pb.ConversionError, match="complex"):
        pb.bayesianize_(nn.Linear(2, 2, dtype=torch.complex64))


def test_replacing_a_posterior():
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7, bias=False))
    net[1].weight = net[0].weight
    model = pb.bayesianize_(net)
    other = Gaussian.around(torch.ones(7, 4), 0.1, 0.1)
    pb.replace_posterior(model, "0.weight", other)
    assert model[0]._posteriors["weight"] is model[1]._posteriors["weight"] is other
    with pytest.raises(pb.ConversionError, match=r"did you mean '0\.weight'"):
        pb.replace_posterior(model, "0.wieght", other)
    with pytest.raises(pb.ConversionError, match=r"shape \(7, 4\)"):
        pb.replace_posterior(model, "0.weight", Gaussian.around(torch.ones(3), 0.1, 0.1))


def test_a_shared_module_can_be_excluded_by_any_of_its_names():
    net = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    net["c"] = net["a"]
    assert names(pb.bayesianize_(net, exclude="c")) == ["b.weight"]


def test_more_bad_arguments():
    for arguments in ({"bias": "no"}, {"std_init": 1e300}, {"prior_std": 1e300}):
        with pytest.raises(pb.PocketBayesError, match=next(iter(arguments))):
            pb.bayesianize_(mlp(), **arguments)
    with pytest.raises(pb.PocketBayesError, match="audit takes"):
        pb.audit("model")
