"""The same promises on a GPU; skipped, visibly, where there is none."""

import copy
import warnings

import pytest
import torch
from layer_kinds import CASES, Case
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.posteriors.conversions import as_packed

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    # Shown, not errors: torch's compiler for GPUs warns of itself, in each version of other things.
    pytest.mark.filterwarnings("default"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_layer_kind_equals_the_original_without_std_and_spreads_with_it(case: Case):
    net, x = case.net().cuda().eval(), case.input().cuda()
    with torch.no_grad():
        before = net(x)
        for estimator in ("lrt", "weight", "flipout"):
            exact = pb.bayesianize_(copy.deepcopy(net), std_init=1e-14, estimator=estimator)
            torch.testing.assert_close(exact(x), before, rtol=0, atol=1e-10)
            random = pb.bayesianize_(copy.deepcopy(net), std_init=0.1, estimator=estimator)
            assert ((random(x) - random(x)).abs() > 0).double().mean() > 0.5


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_train_under_autocast(kind):
    model = pb.bayesianize_(kind(8, 16, 2, bidirectional=True).cuda())
    x = torch.randn(5, 3, 8, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("cuda", torch.bfloat16):
            model(x)[0].float().sum().backward()
    assert all(p.grad is not None for _, q in pb.named_posteriors(model) for p in q.parameters())


def data(n=600):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, 8, 8, generator=generator)
    return TensorDataset(x, (x.mean((2, 3)).argmax(1)))


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


class Named(nn.Module):
    """Two inputs by name, an output with logits."""

    def __init__(self):
        super().__init__()
        self.net, self.shift = network(), nn.Linear(2, 3)

    def forward(self, image, place):
        return {"logits": self.net(image) + self.shift(place)}


@pytest.mark.parametrize("compiled", [False, True])
def test_dicts_and_the_best_epoch(compiled):
    images, labels = data().tensors
    rows = [
        {"image": x, "place": x[0, 0, :2], "labels": y} for x, y in zip(images, labels, strict=True)
    ]
    model = pb.bayesianize_(Named(), estimator="weight")
    val = [{"image": images[:100].numpy(), "place": images[:100, 0, 0, :2], "labels": labels[:100]}]
    result = pb.fit(
        model, DataLoader(rows, 60, shuffle=True), pb.MeanField(lr=3e-2), epochs=6,
        val_loader=val, keep_best=True, compile=compiled, progress=False, precision="fp32",
    )  # fmt: skip
    best = result.history[result.best_epoch - 1]
    generator = torch.Generator().manual_seed(0)
    found = pb.evaluate(model, val, num_samples=10, generator=generator)
    assert found.nll == pytest.approx(best["val_nll"], rel=1e-4)
    broken = torch.tensor([[0.0, 0.0], [0.0, float("nan")]], device="cuda")
    with pytest.raises(pb.DataError, match="row 1 of input 'place'"):
        pb.predict(model, {"image": images[:2], "place": broken})


@pytest.mark.parametrize("options", [{}, {"precision": "fp32"}, {"compile": True}])
def test_training_and_prediction(options):
    model = pb.bayesianize_(network())
    loader = DataLoader(data(), 100, shuffle=True)
    result = pb.fit(model, loader, epochs=15, progress=False, **options)
    assert next(model.parameters()).is_cuda
    assert result.history[-1]["accuracy"] > 0.6
    record = pb.evaluate(model, loader, generator=torch.Generator())
    again = pb.evaluate(model, loader, generator=torch.Generator())
    assert record.nll < 1.0
    assert again.num_examples == 600


def test_equal_generators_give_equal_predictions():
    model = pb.bayesianize_(network()).cuda()
    x = torch.randn(50, 3, 8, 8)
    one, other = (pb.predict(model, x, generator=torch.Generator().manual_seed(1)) for _ in "ab")
    assert torch.equal(one.probs, other.probs)
    assert one.probs.is_cuda


def test_small_images_are_taken_more_at_a_time():
    net, seen = network(), []
    net.register_forward_pre_hook(lambda net, x: seen.append(len(x[0])))
    pb.predict(pb.bayesianize_(net).cuda(), torch.randn(1100, 3, 8, 8), 1)
    assert seen == [1024, 76]


def test_a_loss_that_is_not_finite_is_noticed_and_a_bad_label_named():
    bad = data()
    bad.tensors[1][30] = 9
    with pytest.raises(pb.DataError, match="label 9 is out of range"):
        pb.fit(pb.bayesianize_(network()), [bad[:100]] * 12, epochs=2, progress=False)


def test_replayed_graphs_draw_fresh_noise_that_the_seed_determines():
    """Compiled training replays CUDA graphs; each replay must take up the generator as it is."""

    def losses(seed):
        model = pb.bayesianize_(network(), std_init=0.3)
        x, y = (t[:100] for t in data().tensors)
        off = pb.MeanField(lr=0, std_lr=0, beta=0)
        result = pb.fit(
            model, [(x, y)], off, epochs=8, compile=True, seed=seed, progress=False,
            precision="fp32",
        )  # fmt: skip
        return [row["nll"] for row in result.history]

    one, again, other = losses(0), losses(0), losses(1)
    assert len(set(one)) == len(one)
    assert one == again
    assert not set(one) & set(other)


def test_compiled_and_eager_training_reach_the_same():
    """Mean noise-free loss after training; the two differ in their noise alone."""
    reached = []
    for compiled in (False, True):
        model = pb.bayesianize_(network())
        pb.fit(model, DataLoader(data(), 100, shuffle=True), epochs=20, progress=False,
               compile=compiled, precision="fp32")  # fmt: skip
        loader = DataLoader(data(), 600)
        reached.append(pb.evaluate(model, loader, 1, estimator="mean").nll)
    assert abs(reached[0] - reached[1]) < 0.1


@pytest.mark.parametrize("estimator", ["lrt", "weight", "flipout"])
@pytest.mark.parametrize("structure", ["none", "block16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_sparse_training(estimator, structure, compiled):
    torch._dynamo.reset()
    model = pb.bayesianize_(network(), estimator=estimator)
    loader = DataLoader(data(), 100, shuffle=True)
    seen = []

    class Spy(pb.Subspace):
        def after_step(self, model, moment):
            replaced = super().after_step(model, moment)
            seen.append([q.index.clone() for _, q in pb.named_posteriors(model)])
            return replaced

    method = Spy(density=0.5, allocation="uniform", structure=structure, update_every=4)
    result = pb.fit(model, loader, method, epochs=20, progress=False, compile=compiled)
    assert result.history[-1]["accuracy"] > 0.6
    assert {tuple(map(len, row)) for row in seen} == {tuple(map(len, seen[0]))}
    assert any(not torch.equal(a, b) for a, b in zip(seen[0], seen[-1], strict=True))
    for _, q in pb.named_posteriors(model):
        mean, variance = q.moments()
        assert int((variance > 0).sum()) == q.num_active
        assert not mean[variance == 0].any()


def test_an_exchange_is_the_same_on_every_device():
    from pocketbayes.sparsity.exchange import exchanged

    generator = torch.Generator().manual_seed(0)
    index = torch.randperm(400_000, generator=generator)[:20_000].sort().values
    score = torch.rand(20_000, generator=generator)
    growth = torch.randn(400_000, generator=generator, dtype=torch.float64)
    borders = torch.arange(0, 400_001, 1000)
    here = exchanged(index, score, growth, 6000, borders)
    there = exchanged(*(t.cuda() for t in (index, score, growth)), 6000, borders.cuda())
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one, other.cpu())


@pytest.mark.parametrize("estimator", ["lrt", "weight"])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("draw", ["independent", "shared"])
def test_sharing(estimator, compiled, draw):
    torch._dynamo.reset()
    model = pb.bayesianize_(network(), estimator=estimator)
    loader = DataLoader(data(), 100, shuffle=True)
    pb.fit(model, loader, epochs=20, progress=False)
    method = pb.Sharing(components=30, least_members=3, draw=draw, lr=1e-3, reassign_every=2)
    result = pb.fit(model, loader, method, epochs=6, progress=False, compile=compiled)
    assert result.history[-1]["accuracy"] > 0.6
    posteriors = [q for _, q in pb.named_posteriors(model)]
    assert len({id(q.table) for q in posteriors}) == 1
    assert pb.evaluate(model, loader, 5).accuracy > 0.6


def test_gradients_of_a_table_are_the_same_on_every_device():
    from pocketbayes.posteriors.codebook import looked_up

    generator = torch.Generator().manual_seed(0)
    label = torch.randint(50, (100_000,), generator=generator, dtype=torch.int32)
    label[:60_000] = 7
    values = torch.randn(50, generator=generator, dtype=torch.float64)
    upstream = torch.randn(100_000, generator=generator, dtype=torch.float64)
    found = []
    for device in ("cpu", "cuda"):
        leaf = values.to(device, copy=True).requires_grad_()
        got = looked_up(leaf, label.to(device))
        got.backward(upstream.to(device))
        found.append((got.detach().cpu(), leaf.grad.cpu()))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("objective", ["mixture", "rate_distortion"])
def test_a_plan_is_the_same_on_every_device_up_to_ties(objective):
    generator = torch.Generator().manual_seed(0)
    mean = 0.05 * torch.randn(200_000, generator=generator)
    std = 0.02 * (0.4 * torch.randn(200_000, generator=generator)).exp()
    gradient = torch.rand(200_000, generator=generator)
    method = pb.Sharing(components=200, objective=objective)
    here = method.planned(mean, std, gradient)
    there = method.planned(mean.cuda(), std.cuda(), gradient.cuda())
    assert (here.label != there.label.cpu()).double().mean() < 1e-3
    assert abs(len(here.outlier) - len(there.outlier)) <= 20
    assert abs(len(here.blend) - len(there.blend)) <= 20
    torch.testing.assert_close(torch.tensor(here.mean), torch.tensor(there.mean), rtol=0, atol=1e-5)


def test_a_network_shrinks_on_the_gpu():
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 3),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    model = pb.bayesianize_(net.cuda().to(memory_format=torch.channels_last), estimator="mean")
    dense = model[0]._posteriors["weight"]
    index = torch.arange(5 * 27, device="cuda")
    pb.replace_posterior(model, "0.weight", as_packed(dense, index, "none"))
    x = torch.randn(4, 3, 8, 8, device="cuda")
    small = pb.shrink(model, x)
    assert small[0].out_channels <= 6
    assert all(p.is_cuda for p in small.parameters())
    with torch.no_grad():
        torch.testing.assert_close(small.eval()(x), model.eval()(x), rtol=1e-3, atol=1e-4)
