"""Many draws at once: the same law as one by one, the same answers to the same seed."""

import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.posteriors import Drawing, SpikeSlab, current_drawing
from pocketbayes.prediction import draws
from pocketbayes.prediction.habits import Habits, habits_of


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2),
        nn.ReLU(), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def with_gates(granularity):
    model = pb.bayesianize_(mlp())
    for name, q in list(pb.named_posteriors(model)):
        odds = torch.zeros(q.shape if granularity == "weight" else q.shape[1])
        parts = (q.mean.detach(), q.log_std.detach(), odds, 1.0, torch.tensor(0.0))
        pb.replace_posterior(model, name, SpikeSlab(*parts, granularity, 1))
    return model


def with_biases():
    return pb.bayesianize_(mlp(), std_init=0.4, bias=True)


MODELS = {
    "mlp": (lambda: pb.bayesianize_(mlp(), std_init=0.4), (4,)),
    "biases": (with_biases, (4,)),
    "convolutions": (lambda: pb.bayesianize_(convolutional(), std_init=0.2), (1, 6, 6)),
    "gates of weights": (lambda: with_gates("weight"), (4,)),
    "gates of inputs": (lambda: with_gates("input"), (4,)),
}


def made(name, rows):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    return make().eval(), torch.randn(rows, *shape)


def drawn(model, x, number, estimator, seed=0):
    given = torch.Generator().manual_seed(seed)
    with draws.drawing(model, estimator, given):
        return draws.draws_of([model] * number, x)


@pytest.mark.parametrize("estimator", ["lrt", "weight", "flipout"])
@pytest.mark.parametrize("name", MODELS)
def test_draws_at_once_have_the_law_of_independent_ones(name, estimator, monkeypatch):
    """Means, variances and covariances of 1,000 draws against as many made one by one.

    Each differs by less than 6 standard errors (of variances and covariances by the fourth moments
    of the draws): false alarms 1 in 10^6 over all 15 cases.
    """
    model, x = made(name, 2)
    together = drawn(model, x, 1000, estimator).flatten(1).double()
    assert habits_of(model, x, Drawing(estimator), 2).takes_many
    monkeypatch.setattr(draws, "habits_of", lambda *_: Habits(is_alone=False))
    apart = drawn(model, x, 1000, estimator, seed=1).flatten(1).double()
    centred = [d - d.mean(0) for d in (together, apart)]
    products = [(c.unsqueeze(1) * c.unsqueeze(2)).flatten(1) for c in centred]
    for one, two in ((together, apart), products):
        error = (one.var(0) / len(one) + two.var(0) / len(two)).sqrt()
        assert ((one.mean(0) - two.mean(0)).abs() <= 6 * error).all()


def test_one_row_through_drawn_weights_is_drawn_without_them():
    """y = W x for one x has independent normal outputs: 20,000 draws against exact moments.

    Means within 6 standard errors, variances within 6%: false alarms 1 in 10^8.
    """
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(5, 4)), std_init=0.3)
    x = torch.randn(1, 5)
    found = drawn(model, x, 20_000, "weight")[:, 0].double()
    mean, variance = (moment.detach() for moment in model[0]._posteriors["weight"].moments())
    exact = x.square() @ variance.T
    bias = model[0].bias.detach()
    assert ((found.mean(0) - x @ mean.T - bias).abs() <= 6 * (exact / 20_000).sqrt()).all()
    assert ((found.var(0) / exact - 1).abs() < 0.06).all()
    apart = torch.corrcoef(found.T) - torch.eye(4)
    assert apart.abs().max() < 6 / 20_000**0.5
    correlated = drawn(model, x.repeat(2, 1), 500, "weight")
    torch.testing.assert_close(correlated[:, 0], correlated[:, 1])  # several rows share the weights


@pytest.mark.parametrize("estimator", ["lrt", "weight", "flipout"])
@pytest.mark.parametrize("name", MODELS)
def test_a_seed_gives_the_same_draws_again_in_any_number(name, estimator):
    model, x = made(name, 2)
    assert torch.equal(*(drawn(model, x, 7, estimator) for _ in range(2)))
    assert not torch.equal(*(drawn(model, x, 7, estimator, seed) for seed in range(2)))
    few = drawn(model, x, 7, estimator)
    assert len({tuple(draw.flatten().tolist()) for draw in few}) == 7


def test_as_many_at_once_as_have_bounded_bytes(monkeypatch):
    model, x = made("convolutions", 2)
    counts = []
    at_once = Drawing.at_once

    def counted(self, count, run):
        counts.append(count)
        return at_once(self, count, run)

    monkeypatch.setattr(Drawing, "at_once", counted)
    drawn(model, x, 10, "lrt")
    assert counts == [10]
    largest = 2 * 3 * 6 * 6 * 4  # the output of the first convolution, for two rows
    monkeypatch.setattr(draws, "_AT_ONCE", {"cpu": draws._Limits(4 * largest, 256)})
    counts.clear()
    assert drawn(model, x, 10, "lrt").shape == (10, 2, 3)
    assert counts == [4, 4, 2]
    monkeypatch.setattr(draws, "_AT_ONCE", {"cpu": draws._Limits(100 * largest, 10)})
    counts.clear()
    drawn(model, x, 10, "lrt")
    assert counts == [5, 5]


class Branching(nn.Module):
    """What it does depends on numbers, which torch cannot do for many draws at once."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        y = self.layer(x)
        return y if float(y.sum()) > 0 else -y


class Remembering(nn.Module):
    """Keeps what it saw."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        self.seen = self.layer(x)
        return self.seen


class Mixing(nn.Module):
    """Compares the rows of a batch with each other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        y = self.layer(x)
        return y - y.mean(0)


@pytest.mark.parametrize("kind", [Branching, Remembering])
def test_what_cannot_run_at_once_runs_one_by_one(kind):
    model, x = pb.bayesianize_(kind(), std_init=0.3), torch.randn(5, 4)
    first = drawn(model, x, 6, "lrt")
    assert not habits_of(model, x, Drawing("lrt"), 2).takes_many
    assert torch.equal(first, drawn(model, x, 6, "lrt"))
    if kind is Remembering:
        assert model.seen.shape == (5, 3)
        assert model.seen.isfinite().all()


def test_rows_of_one_draw_meet_only_each_other():
    model, x = pb.bayesianize_(Mixing(), std_init=0.3), torch.randn(5, 4)
    found = drawn(model, x, 50, "lrt")
    torch.testing.assert_close(found.mean(1), torch.zeros(50, 3), atol=1e-6, rtol=0)


def test_a_network_that_writes_into_its_input_gets_it_as_it_was():
    class Drifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x.add_(1))

    model, x = pb.bayesianize_(Drifting(), std_init=1e-9), torch.randn(5, 4)
    before = x.clone()
    found = drawn(model, x, 6, "lrt")
    assert torch.equal(x, before)
    torch.testing.assert_close(found[0], found[-1])


def test_there_is_no_drawing_after_a_prediction_nor_an_error():
    model, x = made("mlp", 2)
    pb.predict(model, x, 3)
    assert current_drawing() is None
    with pytest.raises(pb.DataError):
        pb.predict(model, x[:, :3], 3)
    assert current_drawing() is None
