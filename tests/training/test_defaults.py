"""What `fit` chooses where nothing is said."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.likelihoods import LIKELIHOODS
from pocketbayes.methods import Sharing
from pocketbayes.training.defaults import default_epochs, fits_already, with_defaults


def mlp(outputs: int = 1, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return pb.bayesianize_(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, outputs)))


def convolutional() -> nn.Module:
    return pb.bayesianize_(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)))


def line(rows: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))
    return x, x @ torch.tensor([[1.0], [-1.0], [0.5]])


def loader(x: torch.Tensor, y: torch.Tensor) -> DataLoader:
    return DataLoader(TensorDataset(x, y), 16)


class LoRA(nn.Module):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, 2, bias=False)
        self.up = nn.Linear(2, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.up(self.down(x))


def adapted() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(LoRA(nn.Linear(3, 8)), nn.ReLU(), LoRA(nn.Linear(8, 1)))
    return pb.bayesianize_(net)


@pytest.mark.parametrize(
    ("model", "method", "likelihood", "expected"),
    [
        (adapted(), pb.MeanField(), "gaussian", (0.1, "fixed", 3e-3, 0.5)),
        (adapted(), pb.MeanField(), "categorical", (0.01, "fixed", 3e-3, 0.5)),
        (mlp(), pb.MeanField(), "gaussian", (1.0, "learned", 1e-2, 0.9)),
        (mlp(), pb.MeanField(), "poisson", (1.0, "learned", 1e-2, 0.9)),
        (mlp(2), pb.MeanField(), "categorical", (0.3, "learned", 3e-3, 0.5)),
        (mlp(2), pb.MeanField(), "bernoulli", (0.1, "learned", 3e-3, 0.5)),
        (mlp(2), pb.SpikeSlab(), "categorical", (1.0, "learned", 3e-3, 0.5)),
        (mlp(), pb.SpikeSlab(), "gaussian", (1.0, "learned", 3e-3, 0.5)),
        (convolutional(), pb.MeanField(), "categorical", (0.01, "fixed", 3e-3, 0.5)),
        (convolutional(), pb.MeanField(), "gaussian", (0.1, "learned", 3e-3, 0.5)),
        (mlp(), Sharing(), "gaussian", (1.0, "learned", 1e-4, 0.0)),
    ],
)
def test_choices_follow_likelihood_and_network(model, method, likelihood, expected):
    chosen = with_defaults(method, model, likelihood, fits=False)
    assert (chosen.beta, chosen.prior, chosen.lr, chosen.warmup) == expected


def test_adapters_keep_a_bold_learning_rate_on_a_base_that_fits():
    assert with_defaults(pb.MeanField(), adapted(), "gaussian", fits=True).lr == 3e-3


def test_adapters_do_not_stay_at_zero():
    model, (x, y) = adapted(), line(200)
    method = pb.MeanField(lr=1e-2)
    pb.fit(model, loader(x, y), method, epochs=12, likelihood="gaussian", progress=False, seed=0)
    error = (pb.predict(model, x).mean - y).square().mean()
    assert error < 0.2 * y.var()


def test_what_was_said_stays():
    said = pb.MeanField(beta=0.3, prior="fixed", lr=0.5, warmup=0.1)
    assert with_defaults(said, mlp(), "gaussian", fits=True) == said


def test_a_prior_that_was_named_stays_fixed():
    model = pb.bayesianize_(nn.Linear(3, 1), prior_std=0.3)
    assert with_defaults(pb.MeanField(), model, "gaussian", fits=False).prior == "fixed"
    pb.fit(model, loader(*line()), epochs=2, likelihood="gaussian", progress=False)
    assert all(q.prior_std == torch.tensor(0.3) for _, q in pb.named_posteriors(model))
    learned = pb.MeanField(prior="learned")
    pb.fit(model, loader(*line()), learned, epochs=2, likelihood="gaussian", progress=False)
    assert all(q.prior_std != torch.tensor(0.3) for _, q in pb.named_posteriors(model))


def test_small_data_gets_enough_steps():
    x, y = line(64)  # 4 batches
    assert default_epochs(mlp(), loader(x, y), "gaussian") == 2500
    assert default_epochs(mlp(2), loader(x, y), "categorical") == 500
    assert default_epochs(convolutional(), loader(x, y), "categorical") == 100
    assert default_epochs(mlp(), iter([(x, y)]), "gaussian") == 100
    large = loader(*line(16 * 200))
    assert default_epochs(mlp(), large, "gaussian") == 100


def test_a_network_that_fits_already_is_told_from_a_fresh_one():
    data = loader(*line())
    assert not fits_already(mlp(), data, "gaussian", pb.MeanField())
    trained = pb.fit(
        mlp(), data, pb.Deterministic(lr=0.02), epochs=60, likelihood="gaussian", progress=False
    ).model
    assert fits_already(trained, data, "gaussian", pb.MeanField())
    assert not fits_already(trained, data, "gaussian", pb.MeanField(lr=0.1))
    result = pb.fit(trained, data, epochs=1, likelihood="gaussian", progress=False)
    assert result.method.lr == 3e-4


def test_a_trained_classifier_keeps_its_accuracy_from_the_first_epoch():
    x, y = line(200)
    data = loader(x, (y[:, 0] > 0).long())
    trained = pb.fit(mlp(2), data, pb.Deterministic(), epochs=40, progress=False).model
    before = pb.evaluate(trained, data).accuracy
    assert before > 0.95
    result = pb.fit(trained, data, epochs=1, progress=False)
    after = pb.evaluate(result.model, data, generator=torch.Generator().manual_seed(0))
    assert after.accuracy > before - 0.02
    pred = pb.predict(result.model, x, generator=torch.Generator().manual_seed(0))
    assert pred.epistemic.mean() > 1e-4  # draws differ enough to say something


def test_draws_of_a_converted_network_differ():
    for _, q in pb.named_posteriors(mlp(2)):
        mean, std = q.mean.detach(), q.std.detach()
        assert float(std.max() / mean.square().mean().sqrt()) == pytest.approx(0.1)


def test_the_result_the_file_and_the_audit_say_what_was_chosen(tmp_path):
    model = mlp(2)
    x, y = line()
    data = loader(x, (y[:, 0] > 0).long())
    method = pb.MeanField(optimizer="sgd", lr=0.01, weight_decay=1e-3, beta=0.1)
    result = pb.fit(model, data, method, epochs=2, progress=False)
    assert (result.method.beta, result.method.prior) == (0.1, "learned")
    summary = pb.save(model, tmp_path / "a.pocket")
    again = pb.inspect(tmp_path / "a.pocket")
    assert (again.prior, again.beta) == ("learned", 0.1)
    assert again.decay_std == pytest.approx((0.1 / (64 * 1e-3)) ** 0.5)
    assert "beta 0.1, tempered" in str(again)
    assert "second prior on the means, of std 1.2" in str(again)
    assert "learned, a std for each tensor" in str(pb.audit(model))
    with torch.no_grad():
        without = sum(float(q.kl()) for _, q in pb.named_posteriors(model))
        means = sum(float(q.mean.square().sum()) for _, q in pb.named_posteriors(model))
        expected = without + means / (2 * again.decay_std**2)
        assert float(pb.kl(model)) == pytest.approx(expected, rel=1e-5)
    assert summary.kl == pytest.approx(expected, rel=1e-3)


def test_narrow_posteriors_warn_where_they_promise_a_probability():
    model = mlp()
    cold = pb.MeanField(beta=0.01)
    pb.fit(model, loader(*line()), cold, epochs=2, likelihood="gaussian", progress=False)
    with pytest.warns(UserWarning, match=r"beta 0.01: it is narrower"):
        pb.predict(model, line()[0]).interval(0.9)
    gated = pb.SpikeSlab(granularity="input", beta=0.1)
    model = mlp()
    pb.fit(model, loader(*line()), gated, epochs=2, likelihood="gaussian", progress=False)
    with pytest.warns(UserWarning, match=r"trained with beta 0.1"):
        pb.feature_report(model)


def test_a_resumed_run_keeps_what_was_chosen(tmp_path):
    """Also on the half-trained network itself, and in a run of old."""
    data = loader(*line())
    model = mlp()
    options = {"likelihood": "gaussian", "progress": False, "out": tmp_path}
    first = pb.fit(model, data, pb.MeanField(), epochs=30, **options)
    again = pb.fit(model, data, epochs=None, resume=True, **options)
    assert again.method == first.method
    assert len(again.history) == 30
    path = tmp_path / "checkpoint.pt"
    state = torch.load(path, weights_only=False)
    del state["settings"]["prior"], state["settings"]["flatness"]  # which were no settings once
    torch.save(state, path)
    with pytest.raises(pb.TrainingError, match="prior='fixed'"):
        pb.fit(model, data, pb.MeanField(prior="learned"), epochs=30, resume=True, **options)
    assert pb.fit(model, data, epochs=30, resume=True, **options).method.prior == "fixed"


def test_methods_without_a_prior_of_their_own_claim_none():
    x, y = line()
    data = loader(x, (y[:, 0] > 0).long())
    model = mlp(2)
    sgd = pb.MeanField(beta=0.1, optimizer="sgd", lr=0.01, weight_decay=0.1)
    pb.fit(model, data, sgd, epochs=1, progress=False)
    assert "second prior" in str(pb.audit(model))
    pb.fit(model, data, pb.Deterministic(), epochs=1, progress=False)
    assert pb.audit(model).notes[1:] == ("prior: fixed",)
    adam = pb.MeanField(weight_decay=0.1)
    pb.fit(model, data, adam, epochs=1, progress=False)
    assert "second prior" not in str(pb.audit(model))
    pb.fit(model, data, pb.VariationalDropout(), epochs=1, progress=False)
    assert "learned" not in str(pb.audit(model))


def test_sorted_classes_do_not_hide_that_a_network_fits():
    x, y = line(96)
    labels = (y[:, 0] > 0).long()
    order = labels.argsort()
    fresh = mlp(2)
    trained = pb.fit(
        fresh, loader(x, labels), pb.Deterministic(lr=0.02), epochs=60, progress=False
    ).model
    data = DataLoader(TensorDataset(x[order], labels[order]), 32)
    assert fits_already(trained, data, "categorical", pb.MeanField())


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial", "gaussian", "bernoulli"])
def test_a_fresh_network_is_not_taken_for_a_trained_one(likelihood):
    """Whatever the size of counts, the number of outputs and the scale of inputs."""
    outputs = 1 if likelihood in ("poisson", "negative-binomial") else 8
    for seed in range(12):
        torch.manual_seed(seed)
        x = 10 * torch.randn(100, 3)
        if outputs == 1:
            y = torch.poisson((3 + 0.03 * x[:, 0]).exp())
        else:
            y = x[:, :1] + torch.randn(100, outputs)
            y = y / 10 if likelihood == "gaussian" else (y > 0).float()
        model = mlp(outputs, seed)
        assert not fits_already(model, [(x, y)], likelihood, pb.MeanField())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_best_constant_is_best(name):
    """No other constant, of 40 beside it, has a smaller NLL by more than 0.01."""
    kind, generator = LIKELIHOODS[name], torch.Generator().manual_seed(0)
    if kind.kind == "classes":
        y, output = torch.tensor([0, 0, 0, 1, -100, 2]), torch.zeros(6, 3)
    elif kind.kind == "labels":
        y, output = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]), torch.zeros(3, 2)
    else:
        y = torch.poisson(torch.full((200, 2), 4.0), generator=generator)
        output = torch.zeros(200, 2 * kind.outputs_per_target)
    constant = kind.constant(output, y)
    learned = kind.start(constant.expand(output.shape), y)

    def nll(shift):
        return float(kind.nll((constant + shift).expand(output.shape), y, learned)[0])

    others = [nll(0.3 * torch.randn(constant.shape, generator=generator)) for _ in range(40)]
    assert nll(0.0) <= min(others) + 0.01


def test_a_network_that_knows_rare_cases_fits():
    rare = (torch.arange(200) % 25 == 0).long()
    x = torch.nn.functional.one_hot(rare, 2).float() * 20
    points = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        points.weight.copy_(torch.eye(2))
    model = pb.bayesianize_(points)
    assert fits_already(model, [(x, rare)], "categorical", pb.MeanField())
    masked = torch.where(torch.arange(200) % 10 == 0, rare, -100)
    assert fits_already(model, [(x, masked)], "categorical", pb.MeanField())


def test_a_stream_keeps_its_first_batches():
    class Stream:
        def __init__(self):
            self.served = 0

        def __iter__(self):
            for _ in range(3):
                self.served += 1
                yield line(16)

    stream = Stream()
    assert not fits_already(mlp(), stream, "gaussian", pb.MeanField())
    assert stream.served == 0
