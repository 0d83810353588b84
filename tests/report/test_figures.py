"""The pictures: written for shared and other models, and drawn from the right numbers."""

import functools

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import pocketbayes as pb
from pocketbayes.report.planes import (
    draw_confidences,
    draw_plane,
    draw_weight_densities,
    draw_weight_shares,
)
from pocketbayes.report.plots import new_figure


def model(likelihood="categorical"):
    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 3)))
    y = torch.randn(40, 3) if likelihood == "gaussian" else torch.randint(3, (40,))
    data = [(torch.randn(40, 6), y)]
    options = {"epochs": 5, "dataset_size": 40, "progress": False, "likelihood": likelihood}
    pb.fit(net, data, pb.MeanField(), **options)
    return net, data, options


def test_any_model_has_pictures(tmp_path):
    net, data, options = model()
    method = pb.Sharing(components=10, least_members=2)
    for name in ("own", "shared"):
        paths = pb.weight_figures(net, tmp_path / name, data, method, num_samples=3)
        assert [p.name for p in paths] == ["plane.png", "densities.png", "confidence.png"]
        for path in paths:
            pixels = np.asarray(Image.open(path).convert("L"))
            assert pixels.std() > 10
        pb.fit(net, data, method, **options | {"epochs": 0})


@pytest.mark.parametrize("structure", ["none", "channel", "block16"])
def test_outliers_of_a_sparse_model_are_drawn_where_they_are(structure, tmp_path, monkeypatch):
    torch.manual_seed(0)
    net = pb.bayesianize_(nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 16)))
    data = [(torch.randn(40, 24), torch.randint(16, (40,)))]
    options = {"dataset_size": 40, "progress": False}
    method = pb.Subspace(density=0.5, structure=structure, allocation="uniform")
    pb.fit(net, data, method, epochs=5, **options)
    pb.fit(net, data, pb.Sharing(outlier_mean=0.1, outlier_gradient=0), epochs=0, **options)
    seen = {}

    def spy(axes, weights, outliers, blends, components):
        seen.update(mean=weights[0][outliers])

    monkeypatch.setattr("pocketbayes.report.figures.draw_plane", spy)
    pb.weight_figures(net, tmp_path)
    own = torch.cat([q.outlier_mean.detach() for _, q in pb.named_posteriors(net)])
    assert len(own) > 5
    np.testing.assert_allclose(seen["mean"], own.double().numpy())


def test_without_data_or_classes(tmp_path):
    net, data, _ = model("gaussian")
    assert len(pb.weight_figures(net, tmp_path)) == 2
    with pytest.raises(pb.PocketBayesError, match="classes"):
        pb.weight_figures(net, tmp_path, data)


def test_a_deterministic_model_is_refused(tmp_path):
    net, data, options = model()
    pb.fit(net, data, pb.Deterministic(), **options)
    with pytest.raises(pb.PocketBayesError, match="no random weights"):
        pb.weight_figures(net, tmp_path)


def test_the_plane_shows_every_kind_at_its_place():
    _, (axes,) = new_figure(1)
    mean, std = np.arange(6.0), np.arange(6.0) + 10
    centers, covariances = np.array([[1.0, 11.0]]), np.array([[4.0, 0.0, 1.0]])
    draw_plane(axes, (mean, std), [5], [0, 1], (centers, covariances))
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert lines["outliers: 1"].get_xdata() == [5]
    assert lines["blended: 2"].get_ydata().tolist() == [10, 11]
    assert lines["shared: 3"].get_xdata().tolist() == [2, 3, 4]
    one, two = axes.get_lines()[-2:]
    assert np.nanmax(one.get_xdata()) == pytest.approx(1 + 2, abs=0.01)
    assert np.nanmax(two.get_ydata()) == pytest.approx(11 + 2 * 1, abs=0.01)


def test_shared_weights_are_drawn_as_shares(tmp_path, monkeypatch):
    net, data, options = model()
    drawn = []
    for name in ("draw_weight_densities", "draw_weight_shares"):
        spy = functools.partial(lambda name, *_: drawn.append(name), name)
        monkeypatch.setattr(f"pocketbayes.report.figures.{name}", spy)
    for _ in range(2):
        pb.weight_figures(net, tmp_path)
        pb.fit(net, data, pb.Sharing(components=10, least_members=2), **options | {"epochs": 0})
    assert drawn == ["draw_weight_densities", "draw_weight_shares"]
    _, (axes,) = new_figure(1)
    draw_weight_shares(axes, {"a": np.array([2.0, -1.0, 2.0, 0.5]), "empty": np.array([])})
    x, y = axes.get_lines()[0].get_data()
    assert x.tolist() == [-1, 0.5, 2]
    assert y.tolist() == [0.25, 0.5, 1]
    assert axes.get_yscale() == "linear"


def test_densities_integrate_to_one_and_boxes_stand_by_class():
    _, (left, right) = new_figure(2)
    generator = np.random.default_rng(0)
    draw_weight_densities(left, {f"layer{i}": generator.normal(size=4000) for i in range(20)})
    assert len(left.get_lines()) == 7
    x, y = left.get_lines()[0].get_data()
    assert np.trapezoid(y, x) == pytest.approx(1, abs=0.03)
    labels = np.array([0, 0, 1, 1])
    draw_confidences(right, np.array([0.2, 0.4, 0.9, 0.7]), labels, ("a", "b"))
    assert [t.get_text() for t in right.texts] == ["0.30", "0.80"]
