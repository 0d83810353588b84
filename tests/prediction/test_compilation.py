"""Compiled predictions: the same answers, whatever becomes of the model between two of them."""

import copy
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.posteriors import Blends, Codebook, Outliers, Shared, SpikeSlab
from pocketbayes.prediction import compilation

DRAWN = ("lrt", "weight", "flipout")
X = torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(5))


@pytest.fixture
def made(monkeypatch):
    """Counts the graphs that go to torch's compiler, which is left out: they run as they are."""
    graphs = []

    def interpreted(graph, arguments):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(compilation, "compiled_graph", interpreted)
    return graphs


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip


def gaussian():
    return pb.bayesianize_(network())


def distilled():
    model = gaussian()
    pb.distill_(model, [(X, torch.zeros(4).long())], epochs=1, num_samples=2)
    return model


def sharing(draw):
    model = gaussian()
    entries = Codebook(torch.randn(5) / 2, torch.full((5,), -1.5), draw)
    for name, q in list(pb.named_posteriors(model)):
        outliers = Outliers(torch.tensor([2, 5]), torch.ones(2), torch.zeros(2) - 1)
        blends = Blends(torch.tensor([1, 7]), torch.tensor([[0, 1], [2, 4]]), torch.rand(2))
        label = torch.randint(5, (q.shape.numel(),))
        pb.replace_posterior(model, name, Shared(entries, label, q.shape, 0.05, outliers, blends))
    return model


def gated():
    model = gaussian()
    for name, q in list(pb.named_posteriors(model)):
        parts = (q.mean.detach(), q.log_std.detach(), torch.zeros(q.shape[1]), 1.0)
        pb.replace_posterior(model, name, SpikeSlab(*parts, torch.tensor(0.0), "input", 1))
    return model


def pruned():
    model = gaussian()
    pb.prune_(model, density=0.5)
    return model


MODELS = {
    "gaussian": gaussian, "shared": partial(sharing, "shared"), "gated": gated, "pruned": pruned,
    "independent": partial(sharing, "independent"),
}  # fmt: skip


def answers(model, x=X, compile=True, **options):  # noqa: A002
    generator = torch.Generator().manual_seed(1)
    pred = pb.predict(model, x, generator=generator, compile=compile, **options)
    return torch.cat([pred.probs, pred.epistemic.unsqueeze(1), pred.aleatoric.unsqueeze(1)], 1)


def assert_same(model, x=X, **options):
    """Epistemic is a difference of entropies, which are sums over classes in float32."""
    found, wanted = answers(model, x, **options), answers(model, x, compile=False, **options)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "estimator"),
    [*((kind, "weight") for kind in MODELS), ("gated", "lrt"), ("shared", "moments"),
     *(("gaussian", estimator) for estimator in ("lrt", "flipout", "mean", "moments"))],
)  # fmt: skip
def test_graphs_give_the_same_draws_and_hold_no_weights(kind, estimator, made):
    model = MODELS[kind]()
    assert_same(model, estimator=estimator)
    number = len(made)
    before = answers(model, estimator=estimator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
        model[1].running_var.mul_(3)
    assert_same(model, X + 1, estimator=estimator)
    assert (answers(model, estimator=estimator) - before).abs().max() > 1e-3
    assert len(made) == number >= 1


def test_one_draw_after_another_is_the_same(made):
    x = torch.randn(300, 1, 6, 6)  # more than many draws at once may have
    model = gaussian()
    for estimator in DRAWN:
        assert_same(model, x, estimator=estimator, num_samples=3, batch_size=300)
    assert len(made) == len(DRAWN)


def test_one_pass(made):
    model = distilled()
    assert_same(model, estimator="one_pass")
    assert_same(model, X + 1)
    assert len(made) == 1


def test_weights_that_come_from_elsewhere_show(made):
    model, other = gaussian(), gaussian()
    answers(model)
    model.load_state_dict(other.state_dict())
    assert torch.equal(answers(model), answers(other, compile=False))
    model.load_state_dict(gaussian().state_dict(), assign=True)
    assert_same(model)
    model[6].posteriors["weight"].mean.data = torch.randn(3, 8)
    assert_same(model)
    assert len(made) == 1
    pb.fit(model, [(X, torch.tensor([0, 1, 2, 0]))], epochs=1)
    assert_same(model)
    pb.prune_(model, density=0.4)
    assert_same(model)
    assert len(made) == 2


@pytest.mark.parametrize("change", ["module", "stride", "double", "hidden tensor"])
def test_other_changes_show(change, made):
    model = gaussian()
    assert_same(model)
    if change == "module":
        model[5] = nn.Tanh()
    elif change == "stride":
        model[0].stride, model[0].padding = (2, 2), (2, 2)
    elif change == "double":
        model.double()
    else:
        model[1].eps = 5.0
    assert_same(model, X.double() if change == "double" else X)
    assert len(made) == 2


def test_a_short_last_batch_is_not_compiled(made):
    model, x = gaussian(), torch.randn(10, 1, 6, 6)
    assert_same(model, x, batch_size=4)
    assert len(made) == 1
    y = torch.zeros(10).long()
    loader = [(x[:4], y[:4]), (x[4:8], y[4:8]), (x[8:], y[8:])]
    options = {"ood_loader": [x[:4], x[4:7]], "estimator": "mean"}
    records = [pb.evaluate(model, loader, compile=c, **options).to_dict() for c in (True, False)]
    assert len(made) == 2
    assert [r.pop("seconds") for r in records]
    assert records[0] == pytest.approx(records[1], abs=1e-5)


def test_auto_compiles_whole_batches_alone(made):
    model, x = gaussian(), torch.randn(12, 1, 6, 6)
    assert_same(model, x, num_samples="auto")
    assert len(made) == 1


def test_nothing_lies_in_the_model(made, tmp_path):
    model = gaussian()
    keys = list(model.state_dict())
    answers(model)
    assert list(model.state_dict()) == keys
    for same in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_same(same)
    assert pb.save(model, tmp_path / "a.pocket")
    dies = weakref.ref(model)
    del model, same
    gc.collect()
    assert dies() is None


def test_the_input_is_left_as_it_is(made):
    model = pb.bayesianize_(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)))
    x = torch.randn(5, 3)
    before = x.clone()
    for estimator in ("mean", "lrt"):
        assert_same(model, x, estimator=estimator)
    assert torch.equal(x, before)


def test_autocast_is_part_of_the_graph(made):
    model = gaussian()
    for estimator in ("mean", "weight"):
        assert_same(model, estimator=estimator)
        with torch.autocast("cpu", torch.bfloat16):
            assert_same(model, estimator=estimator)
            with torch.no_grad():
                model[6].posteriors["weight"].mean.add_(1)
            torch.clear_autocast_cache()
            assert_same(model, estimator=estimator)
    assert len(made) == 4


def test_threads_get_what_they_would_get_alone(made):
    model = gaussian()

    def one(seed):
        generator = torch.Generator().manual_seed(seed)
        return pb.predict(model, X, generator=generator, compile=True).probs

    alone = [one(seed) for seed in range(8)]
    made.clear()
    fresh = copy.deepcopy(model)
    model = fresh
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(one, range(8)))
    assert all(map(torch.equal, alone, together))
    assert len(made) == 1


class Own(nn.Module):
    """Code of a user."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x):
        return self.body(x).tanh() if x.shape[0] else x


def test_own_code_is_left_to_torch(monkeypatch):
    """Draws are equal in law: 2,000 of each, 15 comparisons at 5 standard errors, p < 1e-5."""
    calls = []

    def by_eager(model, **options):
        calls.append(model)
        return compile_(model, backend="eager", **options)

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", by_eager)
    model, x = pb.bayesianize_(Own()), torch.randn(5, 4)
    assert_same(model, x, estimator="mean")
    found, wanted = (
        pb.predict(model, x, 2000, estimator="lrt", keep_samples=True, compile=c).samples
        for c in (True, False)
    )
    error = ((found.var(0) + wanted.var(0)) / 2000).sqrt()
    assert ((found.mean(0) - wanted.mean(0)).abs() < 5 * error).all()
    assert len(calls) == 2
    answers(model, torch.randn(7, 4), batch_size=5)
    assert len(calls) == 3
    with pytest.raises(pb.CompileError, match='estimator="moments" for a network that has code'):
        answers(model, x, estimator="moments")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A folder for torch's compiled code that holds nothing yet."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


def small():
    return pb.bayesianize_(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))


def test_machine_code_gives_the_same_and_is_kept_on_disk(cache):
    """A second model with other weights has the code of the first."""
    from torch._dynamo.utils import counters

    for is_known in (False, True):
        counters.clear()
        model, x = small(), torch.randn(7, 3)
        assert_same(model, x, batch_size=4, estimator="lrt")
        assert_same(model, x + 1, batch_size=4, estimator="lrt")
        assert (counters["inductor"]["fxgraph_cache_hit"] > 0) == is_known
        assert (counters["inductor"]["fxgraph_cache_miss"] > 0) != is_known


def test_without_a_compiler_one_error_says_what_to_do(cache):
    import torch._inductor.config as config

    with config.patch({"cpp.cxx": ("no-such-compiler",)}), pytest.raises(pb.CompileError) as found:
        answers(small(), torch.randn(7, 3))
    assert "install g++ or clang, or name one by the environment variable CXX" in str(found.value)
    assert len(str(found.value)) < 500
    assert found.value.__suppress_context__


def test_what_cannot_be_traced_says_so(made, monkeypatch):
    model = gaussian()
    with pytest.raises(pb.DataError, match="cannot run on an input of shape"):
        answers(model, torch.randn(4, 2, 6, 6), estimator="mean")

    def fails(graph, arguments):
        raise RuntimeError("no such operation")

    monkeypatch.setattr(compilation, "compiled_graph", fails)
    with pytest.raises(
        pb.CompileError, match=r"do without compile=True\. It says: no such operation"
    ):
        answers(model)
    with pytest.raises(pb.PocketBayesError, match="compile must be True or False; got 1"):
        answers(model, compile=1)
