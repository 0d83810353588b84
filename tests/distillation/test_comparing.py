"""How near one pass comes to draws: known differences, what is kept, and what is warned of."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.distillation import comparing
from pocketbayes.distillation.comparing import apart
from pocketbayes.layers import comparison_in_words, describe, head_of
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.prediction import summarised

INPUTS = 4


def batches(count=8, size=32, seed=0, scale=1.0):
    """Three classes, told by the largest of three inputs."""
    generator = torch.Generator().manual_seed(seed)
    found = [scale * torch.randn(size, INPUTS, generator=generator) for _ in range(count)]
    return [(x, x[:, :3].argmax(1)) for x in found]


def network():
    return nn.Sequential(nn.Linear(INPUTS, 16), nn.ReLU(), nn.Linear(16, 3))


def untrained(std=0.05):
    torch.manual_seed(0)
    return pb.bayesianize_(network(), std_init=std, estimator="weight")


@pytest.fixture(scope="module")
def trained():
    model = untrained()
    pb.fit(model, batches(), pb.MeanField(lr=0.03), epochs=15, progress=False, device="cpu")
    return model


@pytest.fixture(scope="module")
def taught(trained):
    return pb.distill_(copy.deepcopy(trained), batches(), 20)


def told_by(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in found]


def prediction(name, outputs, **learned):
    """Of draws (S, N, K)."""
    return summarised(LIKELIHOODS[name], outputs, learned, None, "probs", False)


def test_differences_of_known_size():
    half, third = (torch.tensor([[[p, 1 - p]]]).log().expand(2, 1, 2) for p in (1 / 2, 1 / 3))
    one, other = (prediction("categorical", logits) for logits in (half, third))
    assert apart(one, other)["probs"] == pytest.approx(1 / 6)
    logits = torch.tensor([[[0.0, 100.0]], [[0.0, 100.0]]])
    one, other = prediction("bernoulli", logits), prediction("bernoulli", -logits)
    assert apart(one, other)["probs"] == pytest.approx(1 / 2)  # the first label is the same
    noise = {"noise_log_std": torch.tensor([0.0]), "dummy": torch.zeros(1)}
    flat, spread = torch.zeros(2, 5, 1), torch.tensor([-1.5, 1.5]).view(2, 1, 1).expand(2, 5, 1)
    draws = prediction("gaussian", spread, **noise)  # variance 1 + 4.5
    found = apart(prediction("gaussian", flat + 3, **noise), draws)
    std = 5.5**0.5
    assert found["mean"] == pytest.approx(3 / std)
    assert found["std"] == pytest.approx((std - 1) / std)


def test_a_trained_model_is_near_and_that_is_kept(taught, tmp_path):
    """The same numbers by `predict` and `evaluate`; 400 draws err by less than 0.01 here."""
    found = pb.audit(taught).one_pass
    assert found == describe(taught).one_pass["compared"] == head_of(taught).compared
    assert (found["examples"], found["draws"]) == (256, 64)
    x, y = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    one, many = pb.predict(taught, x), pb.predict(taught, x, 400, estimator="weight")
    assert one.estimator == "one_pass"
    assert found["probs"] == pytest.approx(apart(one, many)["probs"], abs=0.01)
    nll = [pb.evaluate(taught, [(x, y)], 400, estimator=e).nll for e in ("one_pass", "weight")]
    assert found["nll"] == pytest.approx(nll[0] - nll[1], abs=0.01)
    line = comparison_in_words(found)
    assert line.startswith("one pass against 64 draws, on 256 inputs: probabilities ")
    assert line in str(pb.audit(taught))
    pb.save(taught, tmp_path / "m.pocket")
    assert line in str(pb.inspect(tmp_path / "m.pocket"))
    again = pb.load(tmp_path / "m.pocket", network())
    assert pb.audit(again).one_pass == found


def test_a_head_that_is_thrown_off_is_taught_anew(trained):
    """At a rate of 1 it ends worse than it began: probabilities are 0.4 from those of draws."""
    model = copy.deepcopy(trained)
    assert told_by(lambda: pb.distill_(model, batches(), 20, lr=1.0)) == []
    assert pb.audit(model).one_pass["probs"] < 0.1


def test_a_head_that_did_not_learn_is_pointed_out(trained, monkeypatch):
    """Far away before it learns, and never better."""
    from pocketbayes.distillation import teaching

    def learn(numbers, *_):
        numbers.outer_bias[-3:] += 9.0

    monkeypatch.setattr(teaching, "_learn_", learn)
    monkeypatch.setattr(teaching, "_mean_loss", lambda numbers, *_: -float(numbers.outer_bias[-1]))
    model = copy.deepcopy(trained)
    (told,) = told_by(lambda: pb.distill_(model, batches(), 20))
    assert "did not learn what draws say: one pass against 64 draws" in told
    assert 'estimator="weight"' in told
    assert pb.predict(model, batches(1)[0][0]).estimator == "one_pass"


@pytest.mark.parametrize("with_targets", [True, False])
def test_a_model_that_nobody_trained_is_pointed_out(with_targets):
    data = batches() if with_targets else [x for x, _ in batches()]
    (told,) = told_by(lambda: pb.distill_(untrained(), data, 2))
    assert "ever trained" in told


def test_a_loop_of_ones_own_is_believed_where_targets_show_it(trained):
    model = untrained()
    state = {n: v for n, v in trained.state_dict().items() if "description" not in n}
    model.load_state_dict(state, strict=False)
    assert describe(model).training is None
    assert told_by(lambda: pb.distill_(model, batches(), 10)) == []
    assert len(told_by(lambda: pb.distill_(model, [x for x, _ in batches()], 10))) == 1


def test_a_loader_of_strange_inputs_is_pointed_out(trained):
    """Large inputs and labels that have nothing to do with them."""
    strange = [(x, y.flip(0)) for x, y in batches(scale=10.0, seed=5)]
    told = told_by(lambda: pb.distill_(copy.deepcopy(trained), strange, 10))
    assert any("no better than chance" in words for words in told)


def test_a_model_that_is_too_sure_is_not_taken_for_one_that_guesses(trained):
    """A third of the labels is wrong: an NLL of more than log 3, and an accuracy of 2 / 3."""
    model = copy.deepcopy(trained)
    with torch.no_grad():
        for _, posterior in pb.named_posteriors(model):
            posterior.mean.mul_(10)
    data = [(x, torch.where(torch.arange(len(y)) % 3 == 0, (y + 1) % 3, y)) for x, y in batches()]
    assert pb.evaluate(model, data).nll > 1.2
    assert told_by(lambda: pb.distill_(model, data, 20)) == []


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_values_are_judged_by_their_own_spread(scale):
    torch.manual_seed(0)
    x = torch.randn(256, INPUTS)
    y = scale * (x[:, :1] + 0.1 * torch.randn(256, 1))
    net = nn.Linear(INPUTS, 1)
    net.weight.data.copy_(scale * torch.eye(INPUTS)[:1])
    model = pb.bayesianize_(net, std_init=0.05 * scale, estimator="weight")
    pb.fit(model, [(x, y)], pb.MeanField(), epochs=0, likelihood="gaussian", progress=False)
    assert told_by(lambda: pb.distill_(model, [(x, y)] * 4, 5)) == []
    assert pb.audit(model).one_pass.keys() == {"examples", "draws", "mean", "std", "nll"}
    (told,) = told_by(lambda: pb.distill_(model, [(x, -y)] * 4, 5))
    assert "no better than chance" in told


def test_draws_that_do_not_differ_are_pointed_out(trained):
    model = copy.deepcopy(trained)
    with torch.no_grad():
        for _, posterior in pb.named_posteriors(model):
            posterior.log_std.fill_(-40.0)
    told = told_by(lambda: pb.distill_(model, batches(), 2))
    assert any("do not differ" in words for words in told)


@pytest.mark.parametrize(
    "target",
    [None, "cat", torch.zeros(32, 5), torch.full((32,), 7), torch.zeros(31).long(),
     torch.tensor(1), np.array(["a"] * 32), np.full(32, np.nan), [1] * 32, object()],
)  # fmt: skip
def test_targets_that_are_none_are_passed_over(trained, target):
    """They were never needed: there is a comparison, without an NLL."""
    model = copy.deepcopy(trained)
    pb.distill_(model, [(x, target) for x, _ in batches(2)], 10)
    assert pb.audit(model).one_pass.keys() == {"examples", "draws", "probs"}


def test_what_is_not_finite_can_be_stored():
    facts = comparing._as_json(
        {"draws": 64, "nll": float("nan"), "std": float("-inf"), "mean": 2 / 3}
    )
    assert facts == {"draws": 64, "nll": 1e9, "std": -1e9, "mean": 0.6667}


@pytest.mark.parametrize(
    ("size", "batch", "expected"), [(300, 300, 256), (400, 10, 80), (40, 16, 40)]
)
def test_it_takes_some_of_the_loader(taught, size, batch, expected, monkeypatch):
    """And no more draws at once than of a whole batch in teaching."""
    seen = []
    monkeypatch.setattr(comparing, "draws_of", lambda nets, x: seen.append(len(nets) * len(x))
                        or torch.randn(len(nets), len(x), 3))  # fmt: skip
    data = torch.randn(size, INPUTS).split(batch)
    found = comparing.compared(taught, list(data), LIKELIHOODS["categorical"], None, 8)
    assert found.facts["examples"] == expected
    assert max(seen) <= max(8 * batch, 64)


def test_labels_of_any_integers_are_compared(trained):
    data = [(x, y.to(torch.uint16)) for x, y in batches()]
    model = pb.distill_(copy.deepcopy(trained), data, 5)
    assert "nll" in pb.audit(model).one_pass


def test_masked_labels_are_left_out_of_the_comparison(trained):
    data = [(x, torch.where(torch.arange(len(y)) % 3 == 0, y, -100)) for x, y in batches(8, 8)]
    model = pb.distill_(copy.deepcopy(trained), data, 5)
    assert "nll" in pb.audit(model).one_pass


def test_draws_that_overflow_late_are_an_error(trained):
    data = batches(24)
    data[20] = (torch.full_like(data[20][0], 3e38), data[20][1])
    with pytest.raises(pb.TrainingError, match="not finite"):
        pb.distill_(copy.deepcopy(trained), data, 2)


def test_a_head_that_cannot_learn_stays_as_it_began(trained, monkeypatch):
    from pocketbayes.distillation import teaching

    def learn(numbers, *_):
        numbers.outer_bias[-3:] += 9.0

    monkeypatch.setattr(teaching, "_learn_", learn)
    model = copy.deepcopy(trained)
    assert told_by(lambda: pb.distill_(model, batches(), 5)) == []
    assert pb.audit(model).one_pass["probs"] < 0.1
