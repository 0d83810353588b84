import json
import math

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.description import add_noise_parameter, update_description
from pocketbayes.prediction import metrics


def loader(x, y, size=16):
    return DataLoader(TensorDataset(x, y), batch_size=size)


def seeded():
    return torch.Generator().manual_seed(0)


def test_a_classification_record_is_the_metrics_of_the_predictions():
    model = pb.bayesianize_(nn.Linear(4, 3), std_init=0.5)
    x, y = torch.randn(40, 4), torch.randint(3, (40,))
    record = pb.evaluate(model, loader(x, y, 40), num_samples=7, generator=seeded())
    probs = pb.predict(model, x, num_samples=7, generator=seeded()).probs
    assert record.accuracy == metrics.accuracy(probs, y)
    assert record.nll == metrics.negative_log_likelihood(probs, y)
    assert record.ece == metrics.expected_calibration_error(probs, y)
    assert record.confidence == pytest.approx(float(probs.amax(1).mean()))
    assert (record.num_examples, record.num_samples, record.estimator) == (40, 7, "lrt")
    assert record.rmse is None
    assert record.auroc_entropy is None
    assert json.loads(record.to_json()) == record.to_dict()
    with pytest.raises(AttributeError):
        record.accuracy = 1.0


def test_out_of_distribution_scores():
    model = pb.bayesianize_(nn.Sequential(nn.Linear(2, 2)), std_init=0.3)
    with torch.no_grad():
        model[0]._posteriors["weight"].mean.copy_(10 * torch.eye(2))
    x = torch.eye(2).repeat(30, 1) + 0.1 * torch.randn(60, 2)
    ood = [0.05 * torch.randn(25, 2)]
    record = pb.evaluate(
        model, loader(x, torch.arange(2).repeat(30)), ood_loader=ood, generator=seeded()
    )
    assert record.accuracy == 1
    assert record.num_ood == 25
    assert record.auroc_entropy > 0.95
    assert record.auroc_max_prob > 0.95
    fields = record.to_dict()
    for score in ("entropy", "epistemic", "max_prob"):
        for name in ("auroc", "aupr", "fpr85", "fpr95"):
            assert 0 <= fields[f"{name}_{score}"] <= 1


def test_a_regression_record_is_calibrated_for_its_own_samples():
    """Targets drawn from the predictive: coverage within 5 standard errors."""
    torch.manual_seed(2)
    model = pb.bayesianize_(nn.Linear(3, 2), std_init=0.2, estimator="weight")
    add_noise_parameter(model, (2,))
    model.noise_log_std.data.copy_(torch.tensor([0.3, 0.6]).log())
    update_description(model, likelihood="gaussian")
    x = torch.randn(4000, 3)
    with torch.no_grad():
        y = torch.cat([model(row) for row in x.split(1)])
        y += torch.randn_like(y) * torch.tensor([0.3, 0.6])
    record = pb.evaluate(model, loader(x, y, 500), num_samples=200, generator=seeded())
    for share in (50, 90, 95):
        p = share / 100
        got = getattr(record, f"coverage_{share}")
        assert abs(got - p) < 5 * math.sqrt(p * (1 - p) / 4000) + 0.005
    assert record.likelihood == "gaussian"
    assert record.accuracy is None
    assert record.rmse == pytest.approx(
        float((pb.predict(model, x, 200).mean - y).square().mean().sqrt()), rel=0.02
    )


def test_dense_predictions_count_every_position():
    model = pb.bayesianize_(nn.Conv2d(1, 3, 1))
    record = pb.evaluate(model, [(torch.randn(2, 1, 4, 4), torch.randint(3, (2, 4, 4)))])
    assert 0 <= record.accuracy <= 1


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "the loader is empty"),
        ([{"x": 1, "z": 2}], r"a dict with keys \['x', 'z'\]"),
        ([torch.zeros(2, 4)], "yields a Tensor"),
        ([(torch.zeros(2, 4), [1, 2])], "targets as a list"),
        (
            [(torch.zeros(2, 4), torch.tensor([0, 3]))],
            "label 3 is out of range: .* 0 to 2 .*count from 0",
        ),
        ([(torch.zeros(2, 4), torch.tensor([0, -1]))], "label -1 is out of range"),
        ([(torch.zeros(2, 4), torch.zeros(2))], "must be integers"),
        ([(torch.zeros(2, 4), torch.zeros(3, dtype=torch.long))], "2 inputs with 3 targets"),
    ],
)
def test_bad_loaders(batches, message):
    with pytest.raises(pb.DataError, match=message):
        pb.evaluate(pb.bayesianize_(nn.Linear(4, 3)), batches)


def test_a_regression_of_ones_own_loop_and_other_refusals():
    model = pb.bayesianize_(nn.Linear(4, 1), std_init=0.3)
    add_noise_parameter(model, (1,))
    data = [(torch.randn(5, 4), torch.randn(5))]
    assert pb.evaluate(model, data, likelihood="gaussian").rmse > 0
    broken = pb.bayesianize_(nn.Linear(4, 3))
    broken.bias.data[1] = float("nan")
    with pytest.raises(pb.DataError, match="a prediction is not finite"):
        pb.evaluate(broken, [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))])
    with pytest.raises(pb.DataError, match="the loader is a int"):
        pb.evaluate(model, 5)
