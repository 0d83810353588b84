"""Which inputs matter: names, order, and a regression whose answer is known."""

import io
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.layers.description import update_description
from pocketbayes.report.features import FeatureReport, input_names
from pocketbayes.report.planes import draw_confidences
from pocketbayes.report.plots import new_figure


def model(inputs=5):
    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 1)))
    data = [(torch.randn(20, inputs), torch.randn(20, 1))]
    options = {"likelihood": "gaussian", "progress": False, "dataset_size": 20, "epochs": 0}
    pb.fit(net, data, pb.SpikeSlab(granularity="input"), **options)
    return net


COLUMNS = [
    {"name": "age", "mean": 0.0, "std": 1.0},
    {"name": "town", "values": ["a", "b", "c"]},
    {"name": "rooms", "mean": 0.0, "std": 1.0},
]


def test_columns_of_words_count_by_their_likeliest_value():
    net = model()
    update_description(net, preprocess={"kind": "table", "columns": COLUMNS})
    with torch.no_grad():
        net[0]._posteriors["weight"].log_odds.copy_(torch.tensor([-1.0, -3, 2, -3, 0.5]))
    report = pb.feature_report(net)
    assert list(report.probabilities) == ["town", "rooms", "age"]
    assert report.probabilities["town"] == pytest.approx(torch.sigmoid(torch.tensor(2.0)).item())
    assert report.chosen() == ["town", "rooms"]
    assert json.loads(json.dumps(report.to_dict()))["chosen"] == ["town", "rooms"]
    assert str(report).splitlines()[0].startswith("town")
    _, (axes,) = new_figure(1)
    report.draw(axes, most=2)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["rooms", "town"]


def test_without_names_inputs_have_numbers():
    assert input_names(None, 2) == ["input 0", "input 1"]
    assert input_names({"columns": COLUMNS}, 5) == ["age", "town", "town", "town", "rooms"]
    whole = [{"name": "age", "empty": True}, {"name": "town", "values": ["Rome"], "other": True},
             {"name": "born", "date": "day", "empty": True}]  # fmt: skip
    assert input_names({"columns": whole}, 10) == [
        "age", "age is empty", "town", "town", *["born"] * 5, "born is empty",
    ]  # fmt: skip
    with pytest.raises(pb.PocketBayesError, match="4 inputs and the table 5"):
        input_names({"columns": COLUMNS}, 4)
    assert "input 4" in pb.feature_report(model()).probabilities


@pytest.mark.parametrize(
    "names",
    [list("abcde"), tuple("abcde"), iter("abcde"), np.array(list("abcde")), dict.fromkeys("abcde")],
)
def test_a_network_of_ones_own_has_the_names_that_are_given(names):
    net = model()
    with torch.no_grad():
        net[0]._posteriors["weight"].log_odds.copy_(torch.tensor([-1.0, -3, 2, -4, 0.5]))
    report = pb.feature_report(net, names=names)
    assert list(report.probabilities) == ["c", "e", "a", "b", "d"]
    assert str(report).splitlines()[0].startswith("c ")


def test_given_names_go_before_those_of_the_table_and_equal_ones_are_one_feature():
    net = model()
    update_description(net, preprocess={"kind": "table", "columns": COLUMNS})
    with torch.no_grad():
        net[0]._posteriors["weight"].log_odds.copy_(torch.tensor([-1.0, -3, 2, -4, 0.5]))
    report = pb.feature_report(net, ["x", 7, "x", 7, 8])
    assert list(report.probabilities) == ["x", "8", "7"]
    assert report.probabilities["x"] == pytest.approx(torch.sigmoid(torch.tensor(2.0)).item())


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a", "b"], "2 names and the first layer has 5 inputs"),
        ([], "0 names"),
        (list("abcdef"), "6 names"),
        ("abcde", "the text 'abcde'"),
        (5, "names= is a int"),
    ],
)
def test_a_wrong_number_of_names_is_an_error(names, words):
    with pytest.raises(pb.PocketBayesError, match=words):
        pb.feature_report(model(), names)


def test_other_models_are_refused():
    net = pb.bayesianize_(nn.Linear(4, 2))
    with pytest.raises(pb.PocketBayesError, match="gates of inputs"):
        pb.feature_report(net)


def started(net, x, **fields):
    target = torch.randint(2, (len(x),))
    method = pb.SpikeSlab(granularity="input", **fields)
    pb.fit(net, [(x, target)], method, epochs=0, progress=False, dataset_size=len(x))
    return net


def layers(*others):
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2), *others)


@pytest.mark.parametrize("fields", [{}, {"layers": "first"}])
def test_a_layer_without_posterior_before_the_inclusion_variables_is_no_report(fields):
    net = started(pb.bayesianize_(layers(), exclude="0"), torch.randn(6, 5), **fields)
    with pytest.raises(pb.PocketBayesError, match="0 comes before 2"):
        pb.feature_report(net)


def test_a_norm_of_the_inputs_may_come_first():
    for bias in (False, True):
        net = pb.bayesianize_(nn.Sequential(nn.BatchNorm1d(5), layers()), bias=bias)
        started(net, torch.randn(6, 5), layers="first")
        assert len(pb.feature_report(net).probabilities) == 5


def test_groups_that_share_inclusion_variables_are_no_report():
    net = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 2))
    started(pb.bayesianize_(net), torch.randn(6, 4, 3, 3))
    with pytest.raises(pb.PocketBayesError, match="0 has groups"):
        pb.feature_report(net)


def test_the_inputs_of_an_embedding_are_its_rows():
    net = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 2))
    started(pb.bayesianize_(net), torch.randint(7, (6, 2)), beta=1.0)
    q = net[0]._posteriors["weight"]
    with torch.no_grad():
        q.log_odds.copy_(torch.tensor([-50.0, 50, -50, -50, 50, -50, -50]))
        rows = net[0](torch.arange(7))
    assert (rows != 0).any(1).tolist() == [False, True, False, False, True, False, False]
    assert sorted(pb.feature_report(net).chosen()) == ["input 1", "input 4"]


def test_the_relevant_inputs_of_a_linear_model_are_found():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 20, generator=generator)
    y = x[:, 2] - 0.7 * x[:, 11] + 0.5 * x[:, 17] + 0.3 * torch.randn(300, generator=generator)
    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Linear(20, 1), prior_std=0.5)
    loader = DataLoader(TensorDataset(x, y[:, None]), 100, shuffle=True)
    rates = {"lr": 2e-2, "std_lr": 2e-2, "warmup": 0.2}
    method = pb.SpikeSlab(granularity="input", inclusion=0.1, beta=1.0, **rates)
    pb.fit(net, loader, method, epochs=100, likelihood="gaussian", progress=False)
    assert sorted(pb.feature_report(net).chosen()) == ["input 11", "input 17", "input 2"]


def test_names_with_dollars_are_no_formulas():
    report = FeatureReport({"a$b^{$": 0.9, "US$ per EU$": 0.8, "c\\$": 0.7})
    figure, (axes,) = new_figure(1)
    report.draw(axes)
    figure.savefig(io.BytesIO())
    shown = [t.get_text() for t in axes.get_yticklabels()]
    assert shown == [r"c\\$", r"US\$ per EU\$", r"a\$b^{\$"]


def test_classes_with_dollars_are_no_formulas():
    figure, (axes,) = new_figure(1)
    confidence, labels = np.array([0.5, 0.6, 0.7, 0.8]), np.array([0, 0, 1, 1])
    draw_confidences(axes, confidence, labels, ["$^{$", "b"])
    figure.savefig(io.BytesIO())


def test_long_names_stay_apart():
    for other in ("x" * 79 + "y", "x" * 39 + "y" + "x" * 40, "y" + "x" * 79):
        lines = str(FeatureReport({"x" * 80: 0.9, other: 0.9, "short": 0.1})).splitlines()
        names = [line.split()[0] for line in lines]
        assert len(set(names)) == 3
        assert len({line.index("0.") for line in lines}) == 1
    assert max(map(len, str(FeatureReport({"x" * 90: 0.0, "b": 0.0})).splitlines())) == 48


def test_names_that_are_alike_when_cut_have_bars_of_their_own():
    long = "a_very_long_name_that_begins_alike_{}_and_goes_on_alike_until_its_end"
    report = FeatureReport({long.format(k): 1 - k / 10 for k in range(3)})
    _, (axes,) = new_figure(1)
    report.draw(axes)
    assert sorted(bar.get_width() for bar in axes.patches) == pytest.approx([0.8, 0.9, 1.0])
    assert len({bar.get_y() for bar in axes.patches}) == 3
    assert len(axes.get_yticklabels()) == 3


def test_only_networks_have_reports():
    with pytest.raises(pb.PocketBayesError, match=r"torch\.nn\.Module, not int"):
        pb.feature_report(3)
