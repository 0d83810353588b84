"""The Laplace approximation: against exact posteriors and brute force, and what it leaves alone."""

import copy
import math

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

import pocketbayes as pb
from pocketbayes.layers import describe, noise_log_std
from pocketbayes.likelihoods.curvature import curvature_root, directions
from pocketbayes.methods.base import make_points_
from pocketbayes.methods.laplace import best_factor, evidence_precision
from pocketbayes.posteriors import Gaussian, Point, Sparse
from pocketbayes.training.curvature import curvatures

EVIDENCE = pb.Laplace(prior_by="evidence")
ALL = pb.Laplace(subset="all", prior_by="evidence")


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def fit(model, data, method=EVIDENCE, **options):
    return pb.fit(model, data, method, progress=False, device="cpu", **options)


def mlp(inputs=4, outputs=3, **options):
    torch.manual_seed(1)
    layers = [nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5)]
    return pb.bayesianize_(nn.Sequential(*layers, nn.Linear(8, outputs)), **options)


def classes(number=60, seed=0):
    x = torch.randn(number, 4, generator=seeded(seed))
    return [(x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long())]


def test_a_conjugate_regression_is_solved_exactly():
    """Orthogonal design: prior, variance and noise are those of exact Bayesian regression."""
    number, width = 40, 6
    x = torch.linalg.qr(torch.randn(number, width, generator=seeded()).double())[0]
    x *= torch.tensor([1.0, 2, 3, 4, 5, 6])
    true = 0.7 * torch.randn(width, 1, generator=seeded(1)).double()
    y = x @ true + 0.3 * torch.randn(number, 1, generator=seeded(2)).double()
    square = x.T @ x

    def log_evidence(log_precision, noise):
        covariance = noise * torch.eye(number) + x @ x.T / math.exp(log_precision)
        zero = torch.zeros(number, dtype=torch.float64)
        return float(torch.distributions.MultivariateNormal(zero, covariance).log_prob(y.flatten()))

    weight, noise, precision = true, torch.tensor(1.0), 1.0
    for _ in range(12):  # the noise is that of the weights, these those of the best prior
        noise = (y - x @ weight).square().mean()
        found = minimize_scalar(lambda d, noise=noise: -log_evidence(d, noise), (-2, 2), tol=1e-10)
        precision = math.exp(found.x)
        weight = torch.linalg.solve(square / noise + precision * torch.eye(width), x.T @ y / noise)
    net = nn.Linear(width, 1, bias=False).double()
    net.weight.data.copy_(weight.T)
    model = pb.bayesianize_(net)
    result = fit(model, [(x[:25], y[:25]), (x[25:], y[25:])], likelihood="gaussian")
    ((_, q),) = pb.named_posteriors(model)
    assert result.history == []
    assert float(q.prior_std) == pytest.approx(precision**-0.5, rel=1e-5)
    assert float(noise_log_std(model).detach()) == pytest.approx(float(noise.log() / 2), rel=1e-5)
    covariance = torch.linalg.inv(square / noise + precision * torch.eye(width))
    torch.testing.assert_close(q.std.detach()[0], covariance.diagonal().sqrt(), rtol=1e-5, atol=0)
    torch.testing.assert_close(q.mean.detach(), weight.T)


def brute_force(model, x, likelihood, names):
    """diag(J^T H J), one gradient for each example and output."""
    known = dict(pb.named_posteriors(model))
    means = [known[name].mean for name in names]
    totals = [torch.zeros_like(mean) for mean in means]
    for one in x:
        output = model(one.unsqueeze(0))[0]
        if likelihood == "categorical":
            p = output.softmax(0).detach()
            h = torch.diag(p) - p.outer(p)
        else:
            h = torch.diag((-2 * noise_log_std(model)).exp().detach())
        rows = [torch.autograd.grad(f, means, retain_graph=True, allow_unused=True) for f in output]
        for place, total in enumerate(totals):
            jacobian = torch.stack([row[place].flatten() for row in rows])
            total += torch.einsum("ai,ab,bi->i", jacobian, h, jacobian).view_as(total) / len(x)
    return dict(zip(names, totals, strict=True))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.head = nn.Linear(4, 3)  # made first, runs last
        self.body = kind(3, 4, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.head(self.body(x)[0][:, -1])


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 4)
        self.head = nn.Linear(4, 3, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(self.table(x).mean(1))


class Unvectorised(nn.Module):
    """Looks at a number, which no vectorised map can."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x if float(x.detach().sum()) > 0 else -x)


NETS = {
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)
        ),
        torch.randn(5, 1, 5, 5, generator=seeded()),
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), torch.randn(5, 6, 3, generator=seeded())),
    "gru": (lambda: Recurrent(nn.GRU), torch.randn(5, 6, 3, generator=seeded())),
    "attention": (Attentive, torch.randn(5, 6, 4, generator=seeded())),
    "tied": (Tied, torch.tensor([[0, 1], [2, 2], [1, 0]])),
    "one by one": (Unvectorised, torch.randn(5, 4, generator=seeded())),
}


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("likelihood", ["categorical", "gaussian"])
@pytest.mark.parametrize("kind", NETS)
def test_the_diagonal_is_that_of_brute_force(kind, likelihood):
    make, x = NETS[kind]
    torch.manual_seed(2)
    model = pb.bayesianize_(make(), estimator="weight")
    y = torch.randint(3, (len(x),), generator=seeded())
    target = y if likelihood == "categorical" else torch.randn(len(x), 3, generator=seeded())
    fit(model, [(x, target)], pb.Deterministic(), epochs=0, likelihood=likelihood)
    model.train()
    before = copy.deepcopy(model.state_dict())
    found = curvatures(model, likelihood, [(x[:2], target[:2]), (x[2:], target[2:])], False, 3)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(m.training for m in model.modules())
    with torch.backends.mkldnn.flags(enabled=False):
        expected = brute_force(model.eval(), x, likelihood, list(found))
    for name, curvature in found.items():
        torch.testing.assert_close(curvature.float(), expected[name], rtol=1e-3, atol=1e-6)
    last = curvatures(model, likelihood, [(x, target)], True, 3)
    ((name, curvature),) = last.items()
    assert name == {"tied": "table.weight", "convolution": "4.weight"}.get(kind, "head.weight")
    torch.testing.assert_close(curvature, found[name])


def test_random_signs_are_unbiased():
    """2,000 estimates from 2 directions for 5 outputs; 25 z-tests at 5 sigma: 1.5e-5."""
    output = torch.randn(5, dtype=torch.float64, generator=seeded())
    p = output.softmax(0)
    torch.manual_seed(0)
    roots = torch.stack([
        torch.stack([curvature_root("categorical", output, v, None) for v in directions(output, 2)])
        for _ in range(2000)
    ])  # fmt: skip
    estimates = torch.einsum("rka,rkb->rab", roots, roots)
    error = estimates.std(0) / 2000**0.5
    assert ((estimates.mean(0) - (torch.diag(p) - p.outer(p))).abs() < 5 * error).all()
    assert torch.equal(directions(output, 5), torch.eye(5, dtype=torch.float64))


def test_the_evidence_has_its_maximum_there():
    mean = torch.randn(50, generator=seeded())
    curvature = 10 * torch.rand(50, generator=seeded(1)).double()

    def log_evidence(log_precision):
        d = math.exp(log_precision)
        return float(
            (50 * log_precision - d * mean.square().sum() - (curvature + d).log().sum()) / 2
        )

    best = minimize_scalar(lambda d: -log_evidence(d), (-2, 2), tol=1e-10).x
    assert math.log(evidence_precision(mean, curvature)) == pytest.approx(best, abs=1e-3)
    assert 0 < evidence_precision(torch.zeros(3), torch.ones(3)) < math.inf
    assert 0 < evidence_precision(torch.ones(3), torch.zeros(3)) < math.inf


def test_means_norms_and_the_mean_network_stay_bit_for_bit():
    model, (x, y) = mlp(), classes()[0]
    before = {name: q.mean.clone() for name, q in pb.named_posteriors(model)}
    norm = copy.deepcopy(model[1].state_dict())
    probs = pb.predict(model, x, estimator="mean").probs
    result = fit(model, [(x, y)], val_loader=classes(40, 1))
    assert result.history == []
    for name, q in pb.named_posteriors(model):
        assert torch.equal(q.mean, before[name])
        assert type(q) is (Gaussian if name == "4.weight" else Point)
    assert all(torch.equal(norm[k], v) for k, v in model[1].state_dict().items())
    assert torch.equal(pb.predict(model, x, estimator="mean").probs, probs)


def test_draws_of_the_last_layer_are_the_gaussian_over_its_outputs():
    """Variances of 3 outputs of 5 inputs from 1,000 draws; 15 tests at 5 sigma: 1e-5."""
    model = mlp()
    fit(model, classes())
    model.eval()
    x = classes()[0][0][:5]
    hidden = model[:4](x)
    q = dict(pb.named_posteriors(model))["4.weight"]
    expected = hidden.square() @ q.std.square().T
    torch.manual_seed(0)
    with torch.no_grad():
        draws = torch.stack([model(x) for _ in range(1000)])
    ratio = draws.var(0) / expected
    assert ((ratio - 1).abs() < 5 * math.sqrt(2 / 1000)).all()


def test_the_prior_is_chosen_on_validation_data():
    train, validation = classes(), classes(200, 1)
    model = mlp()
    fit(model, train, pb.Deterministic(lr=0.05), epochs=60)
    plain = pb.evaluate(model, validation).nll
    losses = {}
    for method in (pb.Laplace(), EVIDENCE, pb.Laplace(subset="all")):
        random = copy.deepcopy(model)
        fit(random, train, method, val_loader=validation)
        losses[method] = pb.evaluate(random, validation, generator=seeded()).nll
    assert losses[pb.Laplace()] < min(plain + 0.003, losses[EVIDENCE])
    assert losses[pb.Laplace(subset="all")] < plain + 0.003


def test_the_best_factor_is_found_and_broken_ones_are_passed_over():
    def loss(factor):
        return math.nan if factor > 1 else (math.log2(factor) + 3.4) ** 2

    assert best_factor(loss) == pytest.approx(2**-3.5)
    with pytest.raises(pb.DataError, match="not finite"):
        best_factor(lambda factor: math.inf)


def test_of_factors_that_are_as_good_the_widest_counts():
    """But none beyond 1, and none behind a step that is worse."""
    assert best_factor(lambda factor: 1.0 + 1e-4 * math.log2(factor)) == 1.0
    assert best_factor(lambda factor: 1.0 + (factor > 0.3)) == pytest.approx(0.25)
    assert best_factor(lambda factor: 1.0 + 0.8 * (0.1 < factor < 0.4)) == pytest.approx(2**-3.5)
    assert best_factor(lambda factor: 1.0 - 0.1 * (factor == 4.0)) == pytest.approx(4.0)


def test_a_fixed_prior_stays():
    model = mlp(prior_std=0.2)
    fit(model, classes(), pb.Laplace(subset="all", prior_by="fixed"))
    for _, q in pb.named_posteriors(model):
        assert float(q.prior_std) == pytest.approx(0.2)
        assert (q.std <= 0.2 * (1 + 1e-6)).all()


def test_sparse_and_shared_posteriors_keep_their_zeros():
    model = mlp()
    fit(model, classes(), pb.Subspace(density=0.5), epochs=1)
    zeros = {name: q.expectation() == 0 for name, q in pb.named_posteriors(model)}
    fit(model, classes(), ALL)
    for name, q in pb.named_posteriors(model):
        assert type(q) is Sparse
        assert torch.equal(q.expectation() == 0, zeros[name])
    fit(model, classes(), pb.Sharing(least_members=1, components=8), epochs=0)
    fit(model, classes(), ALL)
    assert {type(q) for _, q in pb.named_posteriors(model)} == {Sparse}


def test_the_noise_of_a_regression_is_the_error_on_held_out_data():
    x = torch.randn(50, 4, generator=seeded())
    y, other = x[:, :1] * 2, (x + 0.1, x[:, :1] - 1)
    model = mlp(outputs=1)
    fit(model, [(x, y)], likelihood="gaussian", val_loader=[other])
    error = pb.predict(model, other[0], estimator="mean").mean - other[1]
    assert float(noise_log_std(model).detach()) == pytest.approx(
        float(error.square().mean().log() / 2)
    )
    frozen = mlp(outputs=1)
    fit(frozen, [(x, y)], pb.Deterministic(), epochs=0, likelihood="gaussian")
    noise_log_std(frozen).requires_grad_(False).fill_(-1.0)
    fit(frozen, [(x, y)], likelihood="gaussian")
    assert float(noise_log_std(frozen)) == -1.0


def test_equal_seeds_give_equal_stds_also_from_random_directions():
    first, second = mlp(), mlp()
    for model in (first, second):
        fit(model, classes(), pb.Laplace(directions=1, prior_by="evidence"))
    for (_, a), (_, b) in zip(pb.named_posteriors(first), pb.named_posteriors(second), strict=True):
        assert all(torch.equal(a.arrays()[key], b.arrays()[key]) for key in a.arrays())


def test_wrong_use_is_explained():
    with pytest.warns(UserWarning, match="pass fit"):
        fit(mlp(), classes(), pb.Laplace())
    with pytest.raises(pb.PocketBayesError, match="needs fit"):
        fit(mlp(), classes(), pb.Laplace(prior_by="validation"))
    x, y = classes()[0]
    with pytest.raises(pb.DataError, match=r"curvature at 4\.weight"):
        fit(mlp(), [(x * math.nan, y)])
    model = mlp()
    fit(model, classes(), pb.SpikeSlab(), epochs=0)
    with pytest.raises(pb.PocketBayesError, match="have inclusion variables"):
        fit(model, classes())
    with pytest.raises(pb.DataError, match="empty"):
        fit(mlp(), [], dataset_size=5)
    for wrong in ({"subset": "first"}, {"prior_by": "magic"}, {"directions": 0}):
        with pytest.raises(pb.PocketBayesError, match=f"Laplace.{next(iter(wrong))}"):
            pb.Laplace(**wrong)


def test_points_stay_points_for_as_long_as_nothing_is_random():
    model = mlp()
    make_points_(model)
    found = curvatures(model, "categorical", classes(), True, 3)
    assert list(found) == ["4.weight"]
    assert (found["4.weight"] >= 0).all()


class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(2, 3)

    def forward(self, a, b):
        return {"logits": self.layer(a + 2 * b)}


def test_batches_may_have_several_inputs_or_names():
    """Each is the same network of a + 2 b: all have the stds of that."""
    a, b = (torch.randn(30, 2, generator=seeded(s)) for s in (0, 1))
    y = (a[:, 0] > 0).long()
    found = []
    for batch in ((a, b, y), {"a": a, "b": b, "labels": y}, (a + 2 * b, torch.zeros_like(b), y)):
        model = pb.bayesianize_(Summed())
        fit(model, [batch])
        found.append(torch.cat([q.std.detach().flatten() for _, q in pb.named_posteriors(model)]))
    torch.testing.assert_close(found[0], found[2])
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize("likelihood", ["student-t", "poisson", "bernoulli", "heteroscedastic"])
def test_other_likelihoods_are_refused(likelihood):
    x = torch.randn(30, 4, generator=seeded())
    outputs = 2 if likelihood == "heteroscedastic" else 1
    with pytest.raises(pb.PocketBayesError, match="Laplace knows the likelihoods"):
        fit(mlp(outputs=outputs), [(x, (x[:, :1] > 0).float())], likelihood=likelihood)


def test_there_is_no_best_epoch_without_epochs():
    result = fit(mlp(), classes(), pb.Laplace(), val_loader=classes(60, 1), keep_best=True)
    assert (result.history, result.best_epoch) == ([], None)


@pytest.mark.parametrize("prior_by", ["validation", "evidence", "fixed"])
def test_the_file_tells_the_prior_and_what_is_random(prior_by, tmp_path):
    model, subset = mlp(), "all" if prior_by == "evidence" else "last-layer"
    held_out = {"val_loader": classes()} if prior_by == "validation" else {}
    fit(model, classes(), pb.Laplace(prior_by=prior_by, subset=subset), **held_out)
    pb.save(model, tmp_path / "a.pocket")
    found = pb.inspect(tmp_path / "a.pocket")
    assert (found.training["method"], found.training["subset"]) == ("Laplace", subset)
    low, high = found.training["prior_std"]
    assert 0 < low <= high
    shown = str(found)
    where = "of all weights" if subset == "all" else "of the last layer"
    assert f"Laplace, diagonal, {where}" in shown
    how = "fixed, std" if prior_by == "fixed" else f"chosen by {prior_by}, std"
    assert f"{how} {low:.3g}" in shown
    assert how in str(pb.audit(model))


def test_the_prior_that_is_told_is_the_one_that_gave_the_variances():
    """1 / var = h + 1 / prior_std^2, with the same h whatever the prior."""
    found = {}
    for prior_by, extra in (("evidence", {}), ("validation", {"val_loader": classes(seed=5)})):
        model = mlp(prior_std=0.3)
        fit(model, classes(), pb.Laplace(prior_by=prior_by, subset="all"), **extra)
        random = [q for _, q in pb.named_posteriors(model) if q.is_random]
        precisions = torch.stack([1 / q.std.flatten()[0].double() ** 2 for q in random])
        found[prior_by] = precisions, describe(model).training["prior_std"]
        if prior_by == "evidence":
            priors = torch.stack([q.prior_std for q in random]).double()
            curvature = precisions - priors**-2
            assert found[prior_by][1] == pytest.approx(priors.sort()[0].tolist(), rel=1e-3)
    precisions, told = found["validation"]
    stds = (precisions - curvature) ** -0.5
    assert told == pytest.approx(stds.sort()[0].tolist(), rel=1e-2)
    assert told != found["evidence"][1]


def test_a_network_that_is_trained_on_is_no_longer_of_laplace():
    model = mlp()
    fit(model, classes(), pb.Laplace(prior_by="fixed"))
    pb.fit(model, classes(), epochs=1, progress=False, device="cpu")
    assert describe(model).training["method"] == "MeanField"
    assert "chosen by" not in str(pb.audit(model))
