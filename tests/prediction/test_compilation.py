"""Compiled predictions: the same answers, whatever the network does and whatever becomes of it."""

import gc
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import update_description
from pocketbayes.posteriors import Blends, Codebook, Outliers, Shared, SpikeSlab
from pocketbayes.prediction import compilation

ROWS = 130  # of so many, draws are made one after another
X = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(5))
GRAPHS = []


@pytest.fixture(scope="module", autouse=True)
def backends():
    """`counting` runs graphs as they are, and counts them; `lacking` finds no C++ compiler."""
    from torch._dynamo import register_backend
    from torch._inductor.exc import InvalidCxxCompiler

    def counting(graph, _):
        GRAPHS.append(graph)
        return graph.forward

    def lacking(graph, _):
        raise InvalidCxxCompiler

    register_backend(counting, "counting")
    register_backend(lacking, "lacking")


@pytest.fixture
def made():
    GRAPHS.clear()
    return GRAPHS


def network(*between):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), *between, nn.ReLU(), nn.Linear(5, 3))


def gaussian(*between):
    return pb.bayesianize_(network(*between))


def shared(draw):
    model = gaussian()
    entries = Codebook(torch.randn(5) / 2, torch.full((5,), -1.5), draw)
    for name, q in list(pb.named_posteriors(model)):
        outliers = Outliers(torch.tensor([2, 4]), torch.ones(2), torch.zeros(2) - 1)
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


def samples(model, x=X, compile="counting", num_samples=3, **options):  # noqa: A002
    generator = torch.Generator().manual_seed(1)
    options = {"single": False, "keep_samples": True, "generator": generator, **options}
    return pb.predict(model, x, num_samples, compile=compile, **options).samples


def assert_same(model, x=X, compile="counting", **options):  # noqa: A002
    found = samples(model, x, compile, **options)
    wanted = samples(model, x, False, **options)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("model", "estimator"),
    [*((gaussian, estimator) for estimator in ("mean", "weight", "flipout")),
     (gated, "weight")],
)  # fmt: skip
def test_draws_are_the_same(model, estimator, made):
    model = model()
    before = samples(model, estimator=estimator)
    torch.testing.assert_close(before, samples(model, compile=False, estimator=estimator))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    assert_same(model, X + 1, estimator=estimator)
    assert (samples(model, estimator=estimator) - before).abs().max() > 1e-3
    assert len(made) == 1


def test_draws_of_a_codebook_have_the_same_law(made):
    """Without a compiler layers draw together. Of 15 means and 15 spreads, 5 sigma: 2e-5."""
    model = shared("independent")
    found, wanted = (
        samples(model, compile=compiled, num_samples=200, estimator="weight")[:, :5].flatten(1)
        for compiled in ("counting", False)
    )
    error = ((found.var(0) + wanted.var(0)) / 200).sqrt()
    assert ((found.mean(0) - wanted.mean(0)).abs() < 5 * error).all()
    squares, others = ((s - s.mean(0)).square() for s in (found, wanted))
    error = ((squares.var(0) + others.var(0)) / 200).sqrt()
    assert ((squares.mean(0) - others.mean(0)).abs() < 5 * error).all()
    assert len(made) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of itself
def test_machine_code_gives_the_same_draws():
    model = gaussian(nn.BatchNorm1d(5))
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    assert_same(model, compile=True, estimator="weight")
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    assert (np.random.get_state()[1] == state[2]).all()


def test_one_pass(made):
    model = gaussian()
    pb.distill_(model, [(X, torch.zeros(ROWS).long())], epochs=1, num_samples=2)
    assert_same(model)
    assert_same(model, X + 1, estimator="one_pass")
    assert len(made) == 1
    assert_same(model, estimator="mean")


def test_one_pass_of_code_of_a_user(made):
    model = gaussian(Doubling())
    pb.distill_(model, [(X, torch.zeros(ROWS).long())], epochs=1, num_samples=2)
    assert_same(model)
    assert len(made) == 1


@pytest.mark.parametrize("estimator", ["moments", "lrt", None])
def test_what_is_faster_as_it_is_stays_so(estimator, made):
    with pytest.warns(UserWarning, match="nothing is compiled"):
        assert_same(gaussian(), estimator=estimator)
    assert not made


class Doubling(nn.Module):
    """Of a user, who writes into the input."""

    def forward(self, x):
        return x.mul_(2)


@pytest.mark.parametrize("first", [Doubling(), nn.ReLU(inplace=True)])
def test_a_layer_that_writes_into_its_input(first, made):
    x = X.clone()
    assert_same(pb.bayesianize_(nn.Sequential(first, nn.Linear(4, 3))), x, estimator="weight")
    assert torch.equal(x, X)
    assert made


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, **parts):
        return {"logits": sum((i + 1) * self.linear(x) for i, x in enumerate(parts.values()))}


def test_the_order_of_named_inputs_and_a_layer_that_is_read_twice(made):
    model = pb.bayesianize_(ByName())
    assert_same(model, {"a": X, "b": X + 1}, estimator="weight")
    assert_same(model, {"b": X + 1, "a": X}, estimator="weight")
    assert len(made) == 2


class Tokens(nn.Module):
    def __init__(self, recurrent):
        super().__init__()
        self.table = nn.Embedding(9, 4, padding_idx=0)
        if recurrent:
            self.inner = nn.LSTM(4, 4, batch_first=True)
        else:
            self.inner = nn.MultiheadAttention(4, 2, batch_first=True)
        self.last = nn.Linear(4, 3)

    def forward(self, tokens):
        x = self.table(tokens)
        inner = self.inner(x) if isinstance(self.inner, nn.LSTM) else self.inner(x, x, x)
        return self.last(inner[0][:, -1])


def test_tokens_and_attention(made):
    model, tokens = pb.bayesianize_(Tokens(False)), torch.randint(9, (ROWS, 5))
    assert_same(model, tokens, estimator="weight")
    assert len(made) == 1
    with pytest.raises(pb.DataError, match="cannot run on an input of shape"):
        samples(model, tokens + 9, estimator="weight")
    assert_same(model, tokens, estimator="weight")


def test_what_torch_cannot_compile_goes_on_as_it_is(made):
    model, tokens = pb.bayesianize_(Tokens(True)), torch.randint(9, (ROWS, 5))
    with pytest.warns(UserWarning, match=r"cannot compile this network.*LSTM") as said:
        assert_same(model, tokens, estimator="weight")
    assert len(said) == 1
    assert_same(model, tokens, estimator="weight")  # and warns no more
    with pytest.warns(UserWarning, match="cannot compile"):
        assert_same(shared("shared"), estimator="weight")
    assert not made


def test_without_a_compiler_one_warning_says_what_to_install():
    model = gaussian()
    with pytest.warns(UserWarning, match=r"install g\+\+ or clang") as said:
        assert_same(model, compile="lacking", estimator="weight")
    assert len(said) == 1
    assert_same(model, compile="lacking", estimator="weight")


class Own(nn.Module):
    """Code of a user that draws, counts, and keeps what grows."""

    def __init__(self, keeps):
        super().__init__()
        self.keeps, self.calls, self.kept = keeps, 0, []

    def forward(self, x):
        self.calls += 1
        if self.keeps:
            self.kept.append(x.sum())
        return x + torch.randn_like(x)


def test_code_of_users_may_draw_and_count(made):
    own = Own(False)
    assert_same(gaussian(own), estimator="weight")
    assert own.calls == 6
    assert 1 <= len(made) <= 3  # for a number of 0, of 1, and of any value


def test_code_that_never_fits_again_is_given_up_aloud():
    own = Own(True)
    model = gaussian(own)
    few = torch._dynamo.config.patch(recompile_limit=2)
    with few, pytest.warns(UserWarning, match="different in each pass"):
        assert_same(model, estimator="weight", num_samples=5)
    assert own.calls == len(own.kept) == 10


def test_dropout_that_stays_on(made):
    model = gaussian(nn.Dropout(0.5))
    update_description(model, keeps_dropout=True)
    assert_same(model, estimator="weight")
    assert samples(model, estimator="weight").std(0).max() > 1e-3
    assert made


def test_changes_of_the_network_show(made, monkeypatch):
    model = pb.bayesianize_(nn.Sequential(nn.Linear(4, 3), Doubling(), nn.Softplus()))
    hook = model[0].register_forward_hook(lambda module, args, output: output + 1)
    changes = [
        lambda: setattr(model[2], "beta", 3),
        lambda: model.__setitem__(2, nn.Tanh()),
        hook.remove,
        lambda: model[0].register_forward_hook(lambda module, args, output: output - 1),
        lambda: model[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
        lambda: monkeypatch.setattr(Doubling, "forward", lambda self, x: x * 3),
        lambda: pb.prune_(model, density=0.5),
    ]
    assert_same(model, estimator="mean")
    for change in changes:
        before = samples(model, estimator="mean")
        change()
        assert (samples(model, estimator="mean") - before).abs().max() > 1e-3
        assert_same(model, estimator="mean")
    assert len(changes) < len(made) <= len(changes) + 2  # a number that changes is one of any value


def test_hooks_that_change_all_the_time_are_given_up_aloud(made, monkeypatch):
    monkeypatch.setattr(compilation, "_MOST_KINDS_OF_CODE", 2)
    model = gaussian()

    def hooked():
        handle = model[1].register_forward_hook(lambda *_: None)
        samples(model, X[:1], estimator="mean")
        handle.remove()

    hooked(), hooked()
    with pytest.warns(UserWarning, match="hooks of the network change again and again"):
        hooked()
    assert len(made) == 2


def test_other_sizes_are_compiled_when_they_come_again(made):
    model = gaussian()
    for size in (130, 129, 130):  # one shorter batch is not worth it
        assert_same(model, X[:size], estimator="weight")
    assert len(made) == 1
    for size in (129, 128, 128, 127, 127):
        assert_same(model, X[:size], num_samples=2, estimator="weight", batch_size=130)
    assert len(made) == 2  # for any size


def test_networks_share_nothing(made):
    with torch._dynamo.config.patch(recompile_limit=1):
        for number in range(3):
            model = pb.bayesianize_(nn.Linear(4, 2 + number))
            assert_same(model, X[number:], estimator="mean")
    assert len(made) == 3
    assert not any("Sym" in graph.code for graph in made)  # each for its own size of batch


def test_threads_get_what_they_would_get_alone():
    model = gaussian(nn.Dropout(0.1))
    jobs = [
        {"estimator": estimator, "compile": compiled, "x": X + number}
        for estimator in ("mean", "weight", "flipout")
        for number, compiled in enumerate((False, "counting", "counting"))
    ]
    wanted = [samples(model, **job | {"compile": False}) for job in jobs]
    barrier = threading.Barrier(len(jobs))

    def run(job):
        barrier.wait()
        return [samples(model, **job) for _ in range(3)]

    with ThreadPoolExecutor(len(jobs)) as pool:
        found = list(pool.map(run, jobs))
    for answers, right in zip(found, wanted, strict=True):
        for answer in answers:
            torch.testing.assert_close(answer, right, atol=1e-5, rtol=0)


@pytest.mark.parametrize("rows", [3, ROWS])
@pytest.mark.parametrize("estimator", ["mean", "weight"])
def test_predictions_do_not_mind_that_another_thread_compiles(rows, estimator, monkeypatch):
    """Torch's flag for that is one for all threads, from 2.13 on."""
    model = shared("independent")
    wanted = samples(model, X[:rows], False, estimator=estimator)
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
    assert torch.equal(samples(model, X[:rows], False, estimator=estimator), wanted)


def test_without_a_generator_draws_follow_the_default_one(made):
    model = gaussian()
    found = []
    for compiled in ("counting", False):
        torch.manual_seed(3)
        found.append(samples(model, compile=compiled, generator=None, estimator="weight"))
        found.append(torch.rand(3))
    torch.testing.assert_close(found[0], found[2])
    assert torch.equal(found[1], found[3])
    assert made


def test_nothing_keeps_a_network_alive():
    model = gaussian()
    samples(model, estimator="weight")
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_errors_of_the_network_are_its_own():
    model = gaussian()
    with pytest.raises(pb.DataError) as plain:
        samples(model, torch.randn(ROWS, 7), compile=False, estimator="mean")
    with pytest.raises(pb.DataError) as compiled:
        samples(model, torch.randn(ROWS, 7), estimator="mean")
    assert str(compiled.value) == str(plain.value)
    assert_same(model, estimator="mean")


@pytest.mark.parametrize("wanted", ["contin", 1, None])
def test_what_compile_may_be(wanted):
    with pytest.raises(pb.PocketBayesError, match="compile must be"):
        samples(gaussian(), compile=wanted)


def test_evaluation(made):
    model, y = gaussian(), torch.randint(3, (ROWS,))
    loader = [(X, y), (X + 1, y), (X[:7], y[:7])]
    options = {"num_samples": 3, "estimator": "weight", "ood_loader": [X - 1]}
    found, wanted = (
        pb.evaluate(model, loader, generator=torch.Generator().manual_seed(0), compile=c, **options)
        for c in ("counting", False)
    )
    different = {"seconds"}
    for name, value in wanted.to_dict().items():
        assert name in different or found.to_dict()[name] == pytest.approx(value, abs=1e-5), name
    assert len(made) == 1
