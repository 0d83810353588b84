"""What a conversion takes, what it leaves, and that it says so."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import set_estimator


class Conv1D(nn.Module):
    """A linear layer whose weight lies transposed, as those of GPT-2 do."""

    __module__, __qualname__ = "transformers.pytorch_utils", "Conv1D"

    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / 2)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Experts(nn.Module):
    """A mixture of two experts, whose weights are bare parameters."""

    def __init__(self):
        super().__init__()
        self.up, self.down = (nn.Parameter(torch.randn(2, 4, 4) / 2) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        hidden = torch.einsum("bi,eio->ebo", x, self.up).relu()
        return torch.bmm(hidden, self.down).mean(0) * self.scale


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(4, 4), Experts()

    def forward(self, x):
        return self.experts(self.gate(x))


def quiet(normalise, layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return normalise(layer)


def names(model):
    return sorted(dict(pb.named_posteriors(model)))


new, old = nn.utils.parametrizations, nn.utils
NORMALISED = {
    "weight norm": (lambda: new.weight_norm(nn.Linear(4, 4)), "parametrizations.weight.original1"),
    "spectral norm": (
        lambda: new.spectral_norm(nn.Linear(4, 4)), "parametrizations.weight.original",
    ),
    "weight norm by a hook": (lambda: quiet(old.weight_norm, nn.Linear(4, 4)), "weight_v"),
    "spectral norm by a hook": (lambda: quiet(old.spectral_norm, nn.Linear(4, 4)), "weight_orig"),
    "transposed": (lambda: Conv1D(4, 4), "weight"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "name"), NORMALISED.values(), ids=NORMALISED)
def test_what_is_normalised_or_lies_transposed_is_bayesian(make, name, tmp_path):
    def network():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 4), make(), nn.Linear(4, 2)).eval()

    x = torch.randn(3, 4)
    wanted = network()(x)
    model = pb.bayesianize_(network(), std_init=1e-7)
    assert names(model) == ["0.weight", f"1.{name}", "2.weight"]
    torch.testing.assert_close(model(x), wanted, rtol=0, atol=1e-4)
    model = pb.bayesianize_(network(), exclude=["0", "2"], std_init=0.3)
    assert not torch.equal(model(x), model(x))
    loader = [(x, torch.tensor([0, 1, 0]))]
    assert pb.fit(model, loader, epochs=2, progress=False).history[-1]["kl"] > 0
    set_estimator(model, "mean")
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", network())
    assert names(again) == [f"1.{name}"]
    set_estimator(again, "mean")
    torch.testing.assert_close(again.eval()(x), model.eval()(x))


def test_biases_of_normalised_layers_go_with_bias():
    model = pb.bayesianize_(new.weight_norm(nn.Linear(4, 4)), bias=True)
    assert names(model) == ["bias", "parametrizations.weight.original1"]
    assert not torch.equal(model(torch.zeros(1, 4)), model(torch.zeros(1, 4)))


def test_other_parametrisations_are_refused():
    with pytest.raises(pb.ConversionError, match="computed by a parametrisation"):
        pb.bayesianize_(new.orthogonal(nn.Linear(4, 4)))


def test_parameters_that_a_pattern_names_are_bayesian(tmp_path):
    torch.manual_seed(0)
    plain, x = Block(), torch.randn(5, 4)
    wanted = plain(x)
    pattern = ["*", "experts.up", "experts.d*"]
    model = pb.bayesianize_(copy.deepcopy(plain), include=pattern, std_init=1e-7)
    assert names(model) == ["experts.down", "experts.up", "gate.weight"]
    torch.testing.assert_close(model(x), wanted, rtol=0, atol=1e-4)
    only = pb.bayesianize_(copy.deepcopy(plain), include="experts.up", std_init=0.1)
    assert names(only) == ["experts.up"]
    assert not torch.equal(only(x), only(x))
    result = pb.fit(only, [(x, torch.zeros(5, dtype=torch.long))], epochs=2, progress=False)
    assert result.history[-1]["kl"] > 0
    pb.save(only, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", Block())
    set_estimator(only, "mean")
    set_estimator(again, "mean")
    assert torch.equal(again(x), only(x))
    prediction = pb.predict(again, x)
    assert prediction.epistemic.max() > 0


@pytest.mark.parametrize(
    ("norm", "shape"),
    [(nn.BatchNorm2d(4), (6, 4, 3, 3)), (nn.GroupNorm(2, 4), (6, 4, 3, 3)),
     (nn.LayerNorm(4), (6, 4)), (nn.RMSNorm(4), (6, 4))],
)  # fmt: skip
def test_scales_of_norms_are_bayesian_where_a_pattern_names_them(norm, shape, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(shape)
    net = nn.Sequential(norm, nn.Flatten(), nn.Linear(x[0].numel(), 3))
    expected, plain = net.eval()(x), copy.deepcopy(net)
    model = pb.bayesianize_(net, include=["0.weight"], std_init=0.3, estimator="weight")
    assert [(name, tuple(q.shape)) for name, q in pb.named_posteriors(model)] == [
        ("0.weight", (4,))
    ]
    model.eval()
    with torch.no_grad():
        draws = torch.stack([model(x) for _ in range(2000)])
        assert not torch.equal(draws[0], draws[1])
        # The output is linear in the scales: 5.5 standard errors, 108 or fewer numbers.
        error = (draws.mean(0) - expected).abs() / draws.std(0).clamp_min(1e-6)
    assert float(error.max()) < 5.5 / 2000**0.5
    model(x).sum().backward()
    ((_, q),) = pb.named_posteriors(model)
    assert q.mean.grad.abs().sum() > 0
    assert q.log_std.grad.abs().sum() > 0
    pb.save(model, tmp_path / "m.pocket", exact_state=True, lossless=True)
    back = pb.load(tmp_path / "m.pocket", plain)
    torch.testing.assert_close(pb.predict(back, x, estimator="mean").probs,
                               pb.predict(model, x, estimator="mean").probs)  # fmt: skip


def test_scales_and_shifts_come_back_in_their_order(tmp_path):
    """So that the same seed gives the same draw."""
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    plain, x = copy.deepcopy(net), torch.randn(3, 4)
    model = pb.bayesianize_(net, include=["*", "1.*"])
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    outputs = []
    for each in (model, pb.load(tmp_path / "m.pocket", plain)):
        torch.manual_seed(1)
        outputs.append(each(x))
    assert torch.equal(*outputs)


def test_a_layer_that_keeps_what_it_computed_is_refused():
    """As timm's attention does with its biases in evaluation."""
    block = Block()
    block.experts.bias_cache = {}
    with pytest.raises(
        pb.ConversionError, match=r"experts\.up has bias_cache.*leave experts\.up out"
    ):
        pb.bayesianize_(block, include=["*", "experts.up"])
    block.gate.cache = {}  # a layer of torch's computes nothing from its weight in advance
    assert names(pb.bayesianize_(block, exclude="experts")) == ["gate.weight"]


def test_a_pattern_of_modules_takes_no_bare_parameters():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for pattern in ("*", "", nn.Module):
            assert names(pb.bayesianize_(Block(), include=pattern)) == ["gate.weight"]
    with pytest.raises(pb.ConversionError, match="matches no module"):
        pb.bayesianize_(Block(), include="experts.sideways")
    with pytest.raises(pb.ConversionError, match="matches no module"):
        pb.bayesianize_(Block(), exclude="experts.up")
    with pytest.raises(pb.ConversionError, match="nothing to convert"):
        pb.bayesianize_(Block(), include="experts.up", exclude="experts")


class Adapter:
    """What a layer with an adapter has beside torch's own parameters."""

    __module__, __qualname__ = "loralib.layers", "LoRALayer"


class Adapted(nn.Linear, Adapter):
    """A frozen matrix and two small ones, kept in the state under names of its own."""

    def __init__(self, inputs, outputs, merge_weights=False):
        super().__init__(inputs, outputs)
        self.merge_weights = merge_weights
        self.lora_A = nn.Parameter(torch.randn(2, inputs) / 2)
        self.lora_B = nn.Parameter(torch.randn(outputs, 2) / 2)
        self.weight.requires_grad_(False)

    def forward(self, x):
        return super().forward(x) + x @ self.lora_A.T @ self.lora_B.T


class Patched(nn.Linear):
    """A linear layer with a matrix of its own, which writes its state itself."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.patch = nn.Parameter(torch.randn(inputs, outputs))

    def forward(self, x):
        return super().forward(x) + x @ self.patch

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name in ("weight", "bias", "patch"):
            destination[prefix + name] = getattr(self, name)


def test_adapters_inside_of_a_frozen_layer_are_bayesian(tmp_path):
    torch.manual_seed(0)
    net, x = nn.Sequential(Adapted(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    wanted = net(x)
    model = pb.bayesianize_(copy.deepcopy(net), std_init=1e-7)
    assert names(model) == ["0.lora_A", "0.lora_B", "2.weight"]
    torch.testing.assert_close(model(x), wanted, rtol=0, atol=1e-4)
    model(x).sum().backward()
    assert all(q.log_std.grad.any() for _, q in pb.named_posteriors(model))
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", nn.Sequential(Adapted(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    set_estimator(model, "mean")
    set_estimator(again, "mean")
    assert torch.equal(again(x), model(x))
    with pytest.raises(pb.ConversionError, match=r"0 adds its adapter .* merge_weights=False"):
        pb.bayesianize_(nn.Sequential(Adapted(4, 8, merge_weights=True)))


class Turned(nn.LayerNorm):
    """A norm with a matrix of its own."""

    def __init__(self):
        super().__init__((4, 4))
        self.turn = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return super().forward(x) @ self.turn


def test_a_norm_with_a_matrix_of_its_own_is_told_but_not_its_scales():
    with pytest.warns(UserWarning, match="turn of Turned") as heard:
        pb.bayesianize_(nn.Sequential(nn.Linear(4, 4), Turned()))
    assert "1.weight" not in str(heard[0].message)


def test_a_layer_of_torchs_with_a_matrix_of_its_own(tmp_path):
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match=r"50% .*: patch of Patched.* include=\['\*', 'patch'"):
        model = pb.bayesianize_(Patched(4, 4))
    assert names(model) == ["weight"]
    own = [name for name in model.state_dict() if not name.startswith("_")]
    assert own == ["bias", "patch"]
    assert not model.load_state_dict(model.state_dict()).unexpected_keys
    both = pb.bayesianize_(Patched(4, 4), include=["*", "patch"])
    assert names(both) == ["patch", "weight"]
    pb.save(both, tmp_path / "m.pocket", lossless=True)
    again = pb.load(tmp_path / "m.pocket", Patched(4, 4))
    assert torch.equal(again._posteriors["patch"].mean, both._posteriors["patch"].mean)


def test_biases_alone_are_bayesian_where_a_pattern_names_them():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Embedding(9, 4), nn.Linear(4, 2))
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    with pytest.raises(pb.ConversionError, match=r"0\.bias and 1 more, .*include=\['\*\.bias'\]"):
        pb.bayesianize_(copy.deepcopy(net))
    by_name = pb.bayesianize_(copy.deepcopy(net), include="*.bias")
    assert names(by_name) == names(pb.bayesianize_(net, bias=True)) == ["0.bias", "3.bias"]
    for model in (by_name, net):
        assert not torch.equal(model[0](torch.ones(1, 4)), model[0](torch.ones(1, 4)))


def test_weights_that_nobody_has_set_are_refused():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        net[1].weight[0, :3] = torch.tensor([float("nan"), float("inf"), 1e30])
    with pytest.raises(
        pb.ConversionError, match=r"1\.weight is not finite in 2 of 16.*exclude='1'"
    ):
        pb.bayesianize_(net)
    assert names(pb.bayesianize_(net, exclude="1")) == ["0.weight"]


def test_a_star_takes_what_is_taken_by_default():
    net = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), Experts())
    model = pb.bayesianize_(net, include=["*", "1.up", "1.down"])
    assert names(model) == ["1.down", "1.up"]


def test_what_is_left_is_told():
    with pytest.warns(UserWarning, match=r"80% of the weights stay deterministic: experts\.up of "):
        pb.bayesianize_(Block())
    net = nn.Sequential(Block(), Block(), nn.Linear(4, 2))
    said = r"up of Experts, .*down of Experts.* and 1 more\. include=\['\*', '\*\.experts\.up'\]"
    with pytest.warns(UserWarning, match=said):
        pb.bayesianize_(net)


class Spectral(nn.Module):
    """Complex weights, as Fourier operators have."""

    def __init__(self):
        super().__init__()
        self.modes, self.head = nn.Parameter(torch.randn(8, 4, dtype=torch.cfloat)), nn.Linear(8, 2)

    def forward(self, x):
        return self.head((torch.fft.rfft(x, n=14)[:, :8] * self.modes.sum(1)).abs())


def test_complex_weights_stay_deterministic_and_learn(tmp_path):
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match=r"modes of Spectral\. exclude="):
        model = pb.bayesianize_(Spectral())
    x, before = torch.randn(64, 16), model.modes.detach().clone()
    for optimizer in ("adamw", "sgd"):
        method = pb.MeanField(optimizer=optimizer)
        pb.fit(model, [(x, (x[:, 0] > 0).long())], method, epochs=2, progress=False)
    assert (model.modes - before).abs().min() > 0
    pb.save(model, tmp_path / "m.pocket", lossless=True)
    assert torch.equal(pb.load(tmp_path / "m.pocket", Spectral()).modes, model.modes)
    with pytest.raises(pb.ConversionError, match=r"modes has dtype torch\.complex64"):
        pb.bayesianize_(Spectral(), include=["*", "modes"])


def test_nothing_is_said_of_what_was_chosen_or_is_little():
    """Excluded, not included, frozen, or less than 5% of the weights."""
    pb.bayesianize_(Block(), exclude="experts")
    pb.bayesianize_(Block(), include="gate")
    frozen = Block()
    frozen.experts.requires_grad_(False)
    pb.bayesianize_(frozen)
    little = nn.Sequential(nn.Linear(40, 40), Block(), nn.LayerNorm(4))
    pb.bayesianize_(little)


def test_frozen_weights_stay_points_unless_asked_for():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    net[0].requires_grad_(False)
    assert names(pb.bayesianize_(copy.deepcopy(net))) == ["2.weight"]
    asked = pb.bayesianize_(copy.deepcopy(net), include=nn.Linear)
    assert names(asked) == ["0.weight", "2.weight"]
    with pytest.raises(pb.ConversionError, match="that learns"):
        pb.bayesianize_(net.requires_grad_(False))


def test_a_large_embedding_draws_only_the_rows_that_are_looked_up(monkeypatch):
    """Mean and std of 4,000 draws within 6 standard errors; the same token, the same draw."""
    drawn = []
    noise = torch.randn_like
    monkeypatch.setattr(
        torch, "randn_like", lambda t, **k: drawn.append(t.numel()) or noise(t, **k)
    )
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Embedding(1000, 4, padding_idx=0), std_init=0.5)
    tokens = torch.tensor([[7, 0, 7], [9, 999, 0]])
    with torch.no_grad():
        draws = torch.stack([model(tokens) for _ in range(4000)])
        mean = model._posteriors["weight"].mean[tokens]
    assert drawn
    assert max(drawn) == 4 * 4
    assert torch.equal(draws[:, 0, 0], draws[:, 0, 2])
    assert (draws[:, 0, 1] == 0).all()
    several = draws[:, [0, 1, 1], [0, 0, 1]]
    assert (several.mean(0) - mean[[0, 1, 1], [0, 0, 1]]).abs().max() < 6 * 0.5 / 4000**0.5
    assert (several.std(0) / 0.5 - 1).abs().max() < 6 / 8000**0.5
    model(tokens).sum().backward()
    grad = model._posteriors["weight"].mean.grad
    assert grad.abs().sum(1).nonzero().flatten().tolist() == [7, 9, 999]


@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
def test_bags_of_few_rows_are_those_of_the_whole_table(mode):
    """Without noise; with padding, offsets, weights of tokens, and none of the padding there."""
    plain = nn.EmbeddingBag(1000, 4, mode=mode, padding_idx=3)
    model = pb.bayesianize_(copy.deepcopy(plain), std_init=1e-7)
    tokens, offsets = torch.tensor([5, 3, 900, 5, 4]), torch.tensor([0, 3])
    for given in (tokens, torch.tensor([8, 9, 10, 8, 4])):
        torch.testing.assert_close(model(given, offsets), plain(given, offsets), rtol=0, atol=1e-5)
        table = given.view(1, -1)
        torch.testing.assert_close(model(table), plain(table), rtol=0, atol=1e-5)
    if mode == "sum":
        weights = torch.rand(5)
        torch.testing.assert_close(
            model(tokens, offsets, weights), plain(tokens, offsets, weights), rtol=0, atol=1e-5
        )


class Pooled(nn.Module):
    """A layer for each token, pooled."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1, bias=False)

    def forward(self, x):
        return self.layer(x).mean(1)


def pooled_spread(estimator, tokens):
    torch.manual_seed(0)
    model = pb.bayesianize_(Pooled(), std_init=0.1, estimator=estimator)
    x = torch.randn(1, 1, 8).expand(1, tokens, 8).contiguous()
    with torch.no_grad():
        return float(torch.stack([model(x) for _ in range(3000)]).std()) / float(x[0, 0].norm())


def test_flipout_draws_once_for_all_tokens_of_an_example():
    """Std .1 whatever the number of tokens, within 6 standard errors (6 / sqrt(6000) = 8%)."""
    for tokens in (1, 16, 100):
        assert abs(pooled_spread("flipout", tokens) / 0.1 - 1) < 0.08
        assert abs(pooled_spread("weight", tokens) / 0.1 - 1) < 0.08
    assert abs(pooled_spread("lrt", 100) / 0.01 - 1) < 0.08  # which is why it is no default there


def test_networks_with_attention_draw_weights():
    class OwnAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(4, 4)

        def forward(self, x):
            return F.softmax(self.q(x) @ x.mT, -1) @ x

    def estimators(net, **options):
        return {row.estimator for row in pb.audit(pb.bayesianize_(net, **options))} - {"-"}

    assert estimators(nn.Sequential(nn.Linear(4, 4), OwnAttention())) == {"weight"}
    assert estimators(nn.TransformerEncoderLayer(4, 2, 8)) == {"weight"}
    assert estimators(nn.Sequential(nn.Linear(4, 4), nn.Conv1d(2, 2, 1))) == {"lrt"}
    assert estimators(OwnAttention(), estimator="lrt") == {"lrt"}


@pytest.mark.parametrize("estimator", ["lrt", "weight", "flipout"])
def test_one_draw_is_one_function(estimator):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Embedding(500, 4), nn.GRU(4, 4, batch_first=True), Picked(), nn.Linear(4, 4),
        nn.BatchNorm1d(4), nn.Linear(4, 2),
    ).eval()  # fmt: skip
    model, x = pb.bayesianize_(net, estimator=estimator), torch.tensor([[1, 2, 3], [4, 5, 6]])
    with torch.no_grad():
        with pb.one_draw(model):
            first, again, part = model(x), model(x), model(x[:1])
            with pb.one_draw(model):
                inner = model(x)
            after = model(x)
        with pb.one_draw(model):
            other = model(x)
    assert torch.equal(first, again)
    assert torch.equal(first, inner)
    assert torch.equal(first, after)
    torch.testing.assert_close(part, first[:1])
    assert not torch.equal(first, other)
    assert not torch.equal(model(x), model(x))
    with pytest.raises(ZeroDivisionError), pb.one_draw(model):
        raise ZeroDivisionError
    assert not torch.equal(model(x), model(x))


class Picked(nn.Module):
    def forward(self, outputs):
        return outputs[0][:, -1]


def test_one_draw_lets_gradients_through():
    model = pb.bayesianize_(nn.Linear(3, 1))
    with pb.one_draw(model):
        (model(torch.ones(2, 3)) + model(torch.zeros(2, 3))).sum().backward()
    assert model._posteriors["weight"].log_std.grad.abs().min() > 0
