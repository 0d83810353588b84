"""The common step of rounded numbers, and files of points that are multiples of one."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import pocketbayes as pb
from pocketbayes.codec.multiples import common_step


def multiples(step, k, dtype=np.float32):
    return (np.asarray(k, np.float64) * step).astype(dtype)


@pytest.mark.parametrize(
    ("step", "k"),
    [
        (0.0625, [1, -3, 7]),
        (0.09375, [2, 4, -10]),  # the step found is twice as large
        (3.0, [5]),
        (2.0**-20 * 33, [0, 1, 4096]),
    ],
)
def test_known_steps(step, k):
    expected = step * int(np.gcd.reduce(np.array(k)))
    assert common_step([multiples(step, k)]) == expected
    assert common_step([multiples(step, k, np.float64)]) == expected
    assert common_step([multiples(step, [n]) for n in k]) == expected


@given(
    st.integers(32, 63),
    st.integers(-20, -5),
    st.lists(st.lists(st.integers(-200, 200), min_size=1, max_size=30), min_size=1, max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_all_are_multiples_of_it_and_of_none_larger(bits, exponent, rows):
    step = bits * 2.0**exponent
    found = common_step([multiples(step, row) for row in rows])
    divisor = int(np.gcd.reduce(np.concatenate(rows)))
    assert found == (step * divisor if divisor else None)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.0, 0.0],
        [np.nan, 1.0],
        [np.inf],
        [0.1, 0.3],  # no multiples of anything near
        [1.0, 2.0**-40],
        [2.0**-140, 2.0**100],  # too different to compare
        [1e-44],
        [1e30],  # the step would be larger than a file may say
        [900.0],  # no weight that a file codes in steps
    ],
)
def test_what_has_no_coarse_step(values):
    assert common_step([np.array(values, np.float32)]) is None


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 5))


@pytest.fixture(scope="module")
def rounded():
    model = pb.bayesianize_(plain())
    loader = [(torch.randn(8, 40), torch.arange(8) % 5)]
    model = pb.fit(model, loader, pb.Deterministic(), epochs=1, progress=False).model
    for number, (_, q) in enumerate(pb.named_posteriors(model)):
        step = 0.046875 / 2**number  # other tensors, other steps
        q.mean.data.copy_((q.mean.data / step).round() * step)
    return model


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exact_state": True}])
def test_points_that_are_multiples_are_stored_exactly_and_small(rounded, options, tmp_path):
    path = tmp_path / "rounded.pocket"
    size = pb.save(rounded, path, **options)
    coded = {section.name: section.coding for section in size.sections}
    assert coded["point/mean"] == "steps"
    loose = copy.deepcopy(rounded)
    for _, q in pb.named_posteriors(loose):
        q.mean.data.add_(torch.rand_like(q.mean) / 100)
    assert size.bytes < 0.6 * pb.save(loose, tmp_path / "loose.pocket").bytes
    back = pb.load(path, plain())
    pairs = zip(pb.named_posteriors(rounded), pb.named_posteriors(back), strict=True)
    assert all(torch.equal(a.mean, b.mean) for (_, a), (_, b) in pairs)
    again = tmp_path / "again.pocket"
    assert pb.save(back, again, **options).bytes == size.bytes


def test_sparse_points_too(rounded, tmp_path):
    model = pb.prune_(copy.deepcopy(rounded), 0.3, by="magnitude")
    size = pb.save(model, tmp_path / "sparse.pocket", exact_state=True)
    assert {s.name: s.coding for s in size.sections}["sparse_point/mean"] == "steps"
    back = pb.load(tmp_path / "sparse.pocket", plain())
    x = torch.randn(4, 40)
    assert torch.equal(
        pb.predict(model, x, estimator="mean").probs, pb.predict(back, x, estimator="mean").probs
    )
