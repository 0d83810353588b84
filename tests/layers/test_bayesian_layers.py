"""One contract for every kind of layer."""

import copy
import pickle
from itertools import product

import pytest
import torch
from layer_kinds import CASES, DRAWN_ONLY, Case
from torch import nn
from torch.func import functional_call, vmap

import pocketbayes as pb
from pocketbayes.layers import LinearLayer
from pocketbayes.layers.bayesian import BayesianModule, set_estimator

KINDS = [*CASES, *DRAWN_ONLY]
every_kind = pytest.mark.parametrize("case", KINDS, ids=lambda case: case.name)
not_recurrent = pytest.mark.parametrize(
    "case", [case for case in KINDS if not case.recurrent], ids=lambda case: case.name
)
ESTIMATORS = ("lrt", "weight", "flipout")
MODES = ("train", "eval")
# Compiling is slow: each code path, each estimator where it has code of its own, both modes.
COMPILED = [
    ("linear", "lrt", "train"), ("linear", "weight", "eval"), ("linear", "flipout", "train"),
    ("conv2d-k3-2-1-2-2", "lrt", "eval"), ("conv2d-k3-2-1-2-2", "weight", "train"),
    ("conv2d-k3-2-1-2-2", "flipout", "eval"), ("conv1d-k2-same-circular-4", "lrt", "train"),
    ("transposed2d-2-1-1-2", "flipout", "train"),
    ("embedding-padding", "weight", "eval"), ("attention", "lrt", "train"),
    ("attention-cross", "weight", "eval"), ("encoder-layer", "flipout", "train"),
    ("encoder", "lrt", "eval"), ("own-forward", "weight", "train"),
]  # fmt: skip


def spread(model: nn.Module, x: torch.Tensor, passes: int = 4) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack([model(x) for _ in range(passes)]).std(0)


@every_kind
def test_without_std_the_converted_network_is_the_original(case: Case):
    x = case.input()
    for estimator, mode in product((*ESTIMATORS, "mean"), MODES):
        net = case.net().train(mode == "train")
        with torch.no_grad():
            before = net(x)
            model = pb.bayesianize_(net, std_init=1e-14, estimator=estimator, bias=True)
            torch.testing.assert_close(
                model(x), before, rtol=0, atol=1e-10,
                msg=lambda said, which=f"{estimator}, {mode}": f"{which}: {said}",
            )  # fmt: skip


@every_kind
def test_every_layer_kind_shows_epistemic_spread(case: Case):
    for estimator, mode in product(ESTIMATORS, MODES):
        model = pb.bayesianize_(case.net(), std_init=0.1, estimator=estimator)
        model.train(mode == "train")
        varied = spread(model, case.input())
        if case.name == "embedding":
            assert (varied > 0).all(), (estimator, mode)
        assert (varied > 0).double().mean() > 0.5, (estimator, mode)


@every_kind
def test_every_posterior_learns(case: Case):
    model = pb.bayesianize_(case.net(), std_init=0.1, bias=True)
    model(case.input()).square().sum().backward()
    for name, posterior in pb.named_posteriors(model):
        for parameter in posterior.parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().sum() > 0, name


@every_kind
def test_dtype_is_kept(case: Case):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        model = pb.bayesianize_(case.net(dtype), std_init=0.05)
        assert {p.dtype for p in model.parameters()} == {dtype}
        assert model(case.input(dtype)).dtype == dtype


@every_kind
def test_copies_pickles_and_state_dicts_predict_equally(case: Case, tmp_path):
    model = pb.bayesianize_(case.net(), std_init=0.1)
    x = case.input()
    model(x)
    fresh = pb.bayesianize_(case.net(), std_init=0.5)
    fresh.load_state_dict(model.state_dict())
    torch.manual_seed(3)
    expected = model(x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), fresh):
        torch.manual_seed(3)
        assert torch.equal(twin(x), expected)


@every_kind
def test_plain_weights_are_not_passed_over(case: Case):
    model = pb.bayesianize_(case.net())
    for strict in (True, False):
        with pytest.raises(pb.ConversionError, match="load_state_dict before bayesianize_"):
            model.load_state_dict(case.net().state_dict(), strict=strict)


@not_recurrent
def test_functional_call_uses_the_given_parameters(case: Case):
    model = pb.bayesianize_(case.net(), std_init=1e-14)
    x = case.input()
    halved = {n: p / 2 if n.endswith("mean") else p for n, p in model.named_parameters()}
    by_call = functional_call(model, halved, (x,))
    by_hand = copy.deepcopy(model)
    for name, parameter in by_hand.named_parameters():
        parameter.data.copy_(halved[name])
    torch.testing.assert_close(by_call, by_hand(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("name", "estimator", "mode"), COMPILED)
def test_compiles_as_one_graph_and_still_draws(name, estimator, mode):
    torch._dynamo.reset()
    case = next(case for case in CASES if case.name == name)
    model = pb.bayesianize_(case.net(), std_init=0.1, estimator=estimator).train(mode == "train")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = case.input()
    compiled(x).sum().backward()
    assert all(p.grad is not None for _, q in pb.named_posteriors(model) for p in q.parameters())
    assert (spread(compiled, x) > 0).double().mean() > 0.5


@not_recurrent
def test_vmap_over_samples_draws_each_anew(case: Case):
    x = case.input()
    for estimator in ESTIMATORS:
        model = pb.bayesianize_(case.net(), std_init=0.1, estimator=estimator).eval()
        draw = vmap(lambda _, model=model: model(x), randomness="different")
        draws = draw(torch.arange(5))
        assert (draws.std(0) > 0).double().mean() > 0.5, estimator
        draws.sum().backward()
        with torch.no_grad():
            draws = draw(torch.arange(5))
        assert (draws.std(0) > 0).double().mean() > 0.5, estimator


@every_kind
def test_autocast_to_bfloat16(case: Case):
    for estimator in ESTIMATORS:
        model = pb.bayesianize_(case.net(torch.float32), std_init=0.05, estimator=estimator)
        with torch.autocast("cpu", torch.bfloat16):
            output = model(case.input(torch.float32))
        output.float().sum().backward()
        assert output.isfinite().all(), estimator
        for name, q in pb.named_posteriors(model):
            for grad in (p.grad for p in q.parameters()):
                assert grad is not None, (name, estimator)
                assert grad.isfinite().all(), (name, estimator)
                assert grad.dtype == torch.float32, (name, estimator)


@pytest.mark.parametrize("estimator", ["lrt", "flipout", "weight"])
def test_channels_last_is_kept(estimator):
    net = nn.Conv2d(4, 8, 3, padding=1).to(memory_format=torch.channels_last)
    model = pb.bayesianize_(net, estimator=estimator)
    x = torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last)
    assert model(x).is_contiguous(memory_format=torch.channels_last)


def test_equal_seeds_give_equal_draws():
    model = pb.bayesianize_(nn.Linear(300, 300))
    x = torch.randn(400, 300)  # large enough for the threaded generator
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append(model(x))
    assert torch.equal(*draws)
    assert not torch.equal(draws[0], model(x))


def test_hooks_fire_once_and_in_place():
    calls = []
    net = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), 2
    )
    for name, module in net.named_modules():
        module.register_forward_hook(lambda m, i, o, n=name: calls.append(n))
        module.register_forward_pre_hook(lambda m, i, n=name: calls.append(n + " before"))
    x = torch.randn(2, 3, 8)
    net(x)
    expected, calls[:] = sorted(calls), []
    model = pb.bayesianize_(net).eval()
    with torch.no_grad():
        model(x)
    assert sorted(calls) == expected
    assert len(set(calls)) == len(calls)


def test_encoder_layers_are_called_in_evaluation_mode_despite_torchs_fused_kernel():
    model = pb.bayesianize_(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
    ).eval()
    seen = []
    forward = LinearLayer.forward

    def spy(self, *args):
        seen.append(self)
        return forward(self, *args)

    mask = torch.zeros(2, 3, dtype=torch.bool)
    mask[0, 2] = True
    LinearLayer.forward = spy
    try:
        with torch.no_grad():
            model(torch.randn(2, 3, 8), src_key_padding_mask=mask)
    finally:
        LinearLayer.forward = forward
    assert len(set(map(id, seen))) == 4  # linear1 and linear2 of both layers


def test_the_padding_row_of_an_embedding_stays_put():
    model = pb.bayesianize_(nn.Embedding(5, 3, padding_idx=2), std_init=1.0)
    assert (model(torch.tensor([2])) == 0).all()
    assert (model(torch.tensor([1])) != 0).all()


def test_packed_sequences():
    sequence = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 4), [5, 3, 2])
    model = pb.bayesianize_(nn.LSTM(4, 6, 2, bidirectional=True), std_init=0.1)
    first, second = model(sequence)[0].data, model(sequence)[0].data
    assert not torch.equal(first, second)


def test_reading_the_weight_gives_a_draw_not_the_mean():
    class Tied(nn.Module):
        """A decoder that reads the embedding's weight by hand."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(7, 4)

        def forward(self, x):
            return nn.functional.linear(self.embedding(x), self.embedding.weight)

    model = pb.bayesianize_(Tied(), std_init=0.1)
    weight = model.embedding.weight
    assert not torch.equal(weight, model.embedding.weight)
    model(torch.tensor([1])).sum().backward()
    assert model.embedding._posteriors["weight"].mean.grad.abs().sum() > 0


def test_no_draw_is_held_after_a_pass_or_an_error():
    model = pb.bayesianize_(nn.MultiheadAttention(8, 2))
    with pytest.raises(Exception, match="query should be"):
        model(torch.randn(2, 2, 2, 2), torch.randn(1, 2), torch.randn(1, 2))
    assert all(
        m._posteriors._held is None for m in model.modules() if isinstance(m, BayesianModule)
    )
    lstm = pb.bayesianize_(nn.LSTM(4, 4))
    lstm(torch.randn(3, 4))
    assert lstm._flat_weights == []


def test_a_wrong_shape_gets_torchs_own_error():
    with pytest.raises(RuntimeError, match="Expected"):
        pb.bayesianize_(nn.Conv2d(3, 4, 3))(torch.randn(2, 2, 2, 2, 2, 2).float())


def test_set_estimator_leaves_sampled_layers_on_weight():
    model = pb.bayesianize_(nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2)))
    set_estimator(model, "flipout")
    assert (model[0]._posteriors.estimator, model[1]._posteriors.estimator) == ("weight", "flipout")
    set_estimator(model, "mean")
    assert model[0]._posteriors.estimator == "mean"


def test_recurrent_layers_draw_each_weight_once_per_pass(monkeypatch):
    from pocketbayes.posteriors import Gaussian

    draws = []
    sample = Gaussian.sample
    monkeypatch.setattr(Gaussian, "sample", lambda self: draws.append(self) or sample(self))
    model = pb.bayesianize_(nn.LSTM(3, 4, 2))
    model(torch.randn(5, 2, 3))
    assert len(draws) == len(set(map(id, draws))) == 4


@pytest.mark.parametrize("estimator", ["lrt", "flipout"])
def test_float16_models_have_the_right_noise(estimator):
    """Std of 2,000 outputs within 15% of 1e-3, which float16 variances could not hold."""
    model = pb.bayesianize_(nn.Linear(4, 2000).half(), std_init=1e-3, estimator=estimator)
    x = torch.full((1, 4), 0.5, dtype=torch.float16)
    with torch.no_grad():
        draws = torch.stack([model(x) for _ in range(50)])
        assert draws.dtype == torch.float16
        centred = draws.double() - draws.double().mean(0)
    assert 0.9e-3 < centred.std() < 1.15e-3


def test_unbatched_transposed_convolution_takes_an_output_size():
    net = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1).double()
    x = torch.randn(2, 5, 5, dtype=torch.float64)
    before = net(x, output_size=(3, 10, 10))
    model = pb.bayesianize_(net, std_init=1e-14)
    torch.testing.assert_close(model(x, output_size=(3, 10, 10)), before, rtol=0, atol=1e-10)


def test_packed_sequences_under_autocast():
    sequence = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 4), [5, 3, 2])
    model = pb.bayesianize_(nn.GRU(4, 6))
    with torch.autocast("cpu", torch.bfloat16):
        assert model(sequence)[0].data.isfinite().all()
