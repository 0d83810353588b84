"""Deterministic networks, MC dropout and deep ensembles, which go the way of Bayesian ones."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.description import describe, noise_log_std
from pocketbayes.layers.ensembles import Ensemble, members_of
from pocketbayes.methods.base import make_points_
from pocketbayes.methods.deep_ensemble import restart_
from pocketbayes.posteriors import Gaussian, Point

X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 1).long()


def loader(targets=Y):
    return DataLoader(TensorDataset(X, targets), batch_size=20, shuffle=True)


def net(dropout=0.0, outputs=3):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, outputs)]
    return nn.Sequential(*layers[:3], *([nn.Dropout(dropout)] if dropout else []), layers[3])


def fit(model, method, targets=Y, **options):
    options = {"epochs": 3, "progress": False, "device": "cpu"} | options
    return pb.fit(model, loader(targets), method, **options).model


def draw_count(model):
    pred = pb.predict(model, X, num_samples=7, keep_samples=True)
    return pred.num_samples, len(pred.samples)


def test_deterministic_training_is_plain_training():
    """Step by step as AdamW on the plain network, whatever the estimator."""
    data = [(X[:30], Y[:30]), (X[30:], Y[30:])]
    for estimator in ("lrt", "weight", "flipout"):
        plain = net()
        model = pb.bayesianize_(copy.deepcopy(plain), estimator=estimator)
        method = pb.Deterministic(lr=1e-2, lr_warmup=0.0, weight_decay=0.1)
        pb.fit(model, data, method, epochs=1, progress=False, device="cpu")
        weights = [plain[0].weight, plain[3].weight]
        rest = [p for p in plain.parameters() if all(p is not w for w in weights)]
        groups = [{"params": weights}, {"params": rest, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1)
        for scale, (x, y) in zip((1.0, 0.5), data, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * scale
            optimizer.zero_grad()
            F.cross_entropy(plain(x), y).backward()
            optimizer.step()
        # As in training, where the norm takes the bias before it away: that has no gradient but
        # rounding, of which AdamW makes steps.
        torch.testing.assert_close(model.train()(X), plain.train()(X))


def test_a_deterministic_model_is_run_once_and_has_no_epistemic_doubt():
    model = fit(pb.bayesianize_(net()), pb.Deterministic())
    assert all(isinstance(q, Point) for _, q in pb.named_posteriors(model))
    assert draw_count(model) == (1, 1)
    pred = pb.predict(model, X)
    assert not pred.epistemic.any()
    torch.testing.assert_close(pred.probs, model.eval()(X).softmax(1))
    assert pb.kl(model) == 0
    assert pb.evaluate(model, loader(), num_samples=30).num_samples == 1


def test_from_deterministic_to_mean_field_and_back():
    model = fit(pb.bayesianize_(net(), prior_std=0.3), pb.Deterministic())
    before = pb.predict(model, X).probs
    fit(model, pb.MeanField(std_init=0.01, lr=0, std_lr=0))
    posteriors = dict(pb.named_posteriors(model))
    assert all(isinstance(q, Gaussian) for q in posteriors.values())
    assert all(math.isclose(q.prior_std, 0.3, rel_tol=1e-6) for q in posteriors.values())
    torch.testing.assert_close(posteriors["0.weight"].std, torch.full((16, 4), 0.01))
    make_points_(model)
    model.load_state_dict(model.state_dict())
    assert pb.predict(model, X).probs.shape == before.shape


def test_mc_dropout_keeps_dropping_until_another_method_comes():
    model = fit(pb.bayesianize_(net(dropout=0.5)), pb.MCDropout())
    assert draw_count(model) == (7, 7)
    pred = pb.predict(model, X, keep_samples=True)
    assert pred.epistemic.min() > 0
    assert not torch.equal(pred.samples[0], pred.samples[1])
    assert all(not m.training for m in model.eval().modules())
    pb.predict(model, X)
    assert all(not m.training for m in model.modules())
    twin = pb.bayesianize_(net(dropout=0.5))
    make_points_(twin)
    twin.load_state_dict(model.state_dict())
    assert describe(twin).keeps_dropout
    fit(model, pb.Deterministic())
    assert draw_count(model) == (1, 1)


def test_mc_dropout_averages_over_masks():
    """Mean of 4,000 masks of a linear layer; false alarm 120 entries * 5.7e-7 = 7e-5."""
    model = pb.bayesianize_(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2, bias=False)))
    fit(model, pb.MCDropout(lr=0, std_lr=0), torch.randn(60, 2), likelihood="gaussian")
    pred = pb.predict(model, X, 4000, generator=torch.Generator().manual_seed(1))
    weight = model[1]._posteriors["weight"].mean.detach()
    z = (pred.mean - X @ weight.T) / (pred.epistemic / 4000).sqrt()
    assert z.abs().max() < 5


@pytest.mark.parametrize(
    "module",
    [nn.Linear(4, 3), nn.Sequential(nn.Dropout(0.0), nn.Linear(4, 3)), nn.LSTM(4, 3, 2)],
    ids=["none", "zero", "lstm"],
)
def test_mc_dropout_without_dropout_says_what_to_add(module):
    with pytest.raises(pb.PocketBayesError, match=r"add nn\.Dropout\(0\.1\)"):
        pb.fit(pb.bayesianize_(module), loader(), pb.MCDropout(), epochs=1, progress=False)


@pytest.mark.parametrize(("make", "sizes"), [(nn.MultiheadAttention, (4, 2)), (nn.LSTM, (4, 3, 2))])
def test_attention_and_recurrent_layers_drop_too(make, sizes):
    pb.MCDropout().start(pb.bayesianize_(make(*sizes, dropout=0.5)))
    with pytest.raises(pb.PocketBayesError, match="add nn"):
        pb.MCDropout().start(pb.bayesianize_(make(*sizes)))


def test_an_ensemble_is_the_average_of_different_members():
    given = pb.bayesianize_(net())
    before = copy.deepcopy(given.state_dict())
    model = fit(given, pb.DeepEnsemble(members=3))
    assert isinstance(model, Ensemble)
    assert all(
        torch.equal(a, b) for a, b in zip(before.values(), given.state_dict().values(), strict=True)
    )
    pred = pb.predict(model, X)
    members = [pb.predict(m, X).probs for m in model.members]
    torch.testing.assert_close(pred.probs, torch.stack(members).mean(0))
    assert draw_count(model) == (3, 3)
    starts = [fit(copy.deepcopy(given), pb.Deterministic(lr=0, std_lr=0))[0] for _ in range(2)]
    assert torch.equal(starts[0]._posteriors["weight"].mean, starts[1]._posteriors["weight"].mean)
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert all(not torch.allclose(members[a], members[b], atol=1e-3) for a, b in pairs)
    assert pb.evaluate(model, loader()).accuracy > 0.4
    single = model(X)
    assert any(torch.allclose(single, m(X)) for m in model.members)


def test_an_ensemble_repeats_by_its_seed_and_resumes(tmp_path):
    method = pb.DeepEnsemble(members=2)
    whole = fit(pb.bayesianize_(net()), method, out=tmp_path / "whole")
    again = fit(pb.bayesianize_(net()), method)
    other = fit(pb.bayesianize_(net()), method, seed=1)
    assert torch.equal(pb.predict(whole, X).probs, pb.predict(again, X).probs)
    assert not torch.equal(pb.predict(whole, X).probs, pb.predict(other, X).probs)
    (tmp_path / "whole" / "member-1" / "checkpoint.pt").unlink()
    resumed = fit(pb.bayesianize_(net()), method, out=tmp_path / "whole", resume=True)
    assert torch.equal(pb.predict(whole, X).probs, pb.predict(resumed, X).probs)
    assert len((tmp_path / "whole" / "history.jsonl").read_text().splitlines()) == 6


def test_a_regression_ensemble_averages_the_noise():
    y = X[:, :1] + 0.1
    model = fit(
        pb.bayesianize_(net(outputs=1)), pb.DeepEnsemble(members=2), y, likelihood="gaussian"
    )
    noises = torch.stack([noise_log_std(m).detach() for m in model.members])
    pred = pb.predict(model, X)
    torch.testing.assert_close(pred.aleatoric[0], (2 * noises).exp().mean(0))
    assert (pred.epistemic > 0).any()


def test_restarting_draws_every_weight_anew_from_the_same_law():
    model = pb.bayesianize_(
        nn.Sequential(nn.Linear(50, 200), nn.BatchNorm1d(200), nn.LSTM(200, 20)), bias=True
    )
    model[1].running_mean.fill_(3.0)
    before = {name: q.expectation().detach().clone() for name, q in pb.named_posteriors(model)}
    torch.manual_seed(7)
    restart_(model)
    for name, q in pb.named_posteriors(model):
        if name != "1.bias":
            assert not torch.equal(q.expectation(), before[name])
            assert 0.7 < q.expectation().std() / before[name].std() < 1.4
    assert not model[1].running_mean.any()


def test_frozen_weights_stay_as_they_are():
    plain = net()
    plain[0].weight.requires_grad_(False)
    plain[0].bias.requires_grad_(False)
    weight, bias = plain[0].weight.clone(), plain[0].bias.clone()
    for method in (pb.Deterministic(), pb.MeanField(), pb.DeepEnsemble(members=2)):
        model = fit(pb.bayesianize_(copy.deepcopy(plain)), method)
        for member in members_of(model):
            assert torch.equal(member[0].weight, weight)
            assert torch.equal(member[0].bias, bias)
            assert not torch.equal(member[3]._posteriors["weight"].expectation(), plain[3].weight)


def test_an_embedding_with_padding_restarts_too():
    model = pb.bayesianize_(nn.Embedding(9, 4, padding_idx=0))
    before = model._posteriors["weight"].mean.detach().clone()
    restart_(model)
    after = model._posteriors["weight"].expectation()
    assert (after[1:] != before[1:]).all()
    assert not after[0].any()


def test_the_mean_of_an_mc_dropout_network_drops_nothing():
    model = fit(pb.bayesianize_(net(dropout=0.5)), pb.MCDropout())
    one, other = (pb.predict(model, X, estimator="mean") for _ in range(2))
    assert torch.equal(one.probs, other.probs)
    assert not one.epistemic.any()
    assert one.num_samples == 1


def test_members_are_drawn_equally_often():
    model = Ensemble([fit(pb.bayesianize_(net(dropout=0.5)), pb.MCDropout()) for _ in range(3)])
    assert draw_count(model) == (9, 9)
    with pytest.raises(pb.PocketBayesError, match="trained already"):
        fit(model, pb.MeanField())


def test_audits_and_records_do_not_call_points_bayesian():
    model = fit(pb.bayesianize_(net()), pb.Deterministic())
    rows = {row.name: row for row in pb.audit(model)}
    assert rows["0"].status == "deterministic"
    assert (rows["0"].weights, rows["0"].deterministic) == (0, 16 * 4 + 16)
    assert pb.evaluate(model, loader()).estimator == "none"


def test_what_cannot_be_restarted_is_named():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * self.scale

    model = pb.bayesianize_(nn.Sequential(Own(), nn.Linear(4, 3)))
    with pytest.raises(pb.PocketBayesError, match=r"0 \(Own\) has no reset_parameters"):
        fit(model, pb.DeepEnsemble())


def test_one_member_is_no_ensemble():
    with pytest.raises(pb.PocketBayesError, match="members"):
        pb.DeepEnsemble(members=1)
