import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pocketbayes as pb
from pocketbayes.models import build_network
from pocketbayes.sparsity.allocation import ALLOCATIONS, allocated, least_active

RESNET = {
    name: tuple(p.shape) for name, p in build_network("resnet20").named_parameters() if p.dim() > 1
}
shapes = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.one_of(
        st.tuples(st.integers(1, 40), st.integers(1, 60)),
        st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=6,
)


@given(shapes, st.floats(0.001, 1), st.sampled_from(ALLOCATIONS))
def test_the_total_is_exact_and_every_tensor_within_bounds(tensors, density, allocation):
    counts = allocated(tensors, density, allocation)
    sizes = {name: math.prod(shape) for name, shape in tensors.items()}
    least = {name: min(least_active(s), sizes[name]) for name, s in tensors.items()}
    assert all(least[n] <= counts[n] <= sizes[n] for n in sizes)
    assert sum(counts.values()) == max(round(density * sum(sizes.values())), sum(least.values()))


def test_density_one_keeps_everything():
    for allocation in ALLOCATIONS:
        counts = allocated(RESNET, 1.0, allocation)
        assert counts == {name: math.prod(shape) for name, shape in RESNET.items()}


def test_uniform_is_uniform_and_erk_follows_its_formula():
    uniform = allocated(RESNET, 0.1, "uniform")
    for name, shape in RESNET.items():
        assert abs(uniform[name] - 0.1 * math.prod(shape)) <= 1 or uniform[name] == shape[0]
    erk = allocated(RESNET, 0.05, "erk")
    inner = [n for n, s in RESNET.items() if s[0] < erk[n] < math.prod(s)]
    factors = [erk[n] / sum(RESNET[n]) for n in inner]
    assert max(factors) / min(factors) < 1.02
    densities = {n: erk[n] / math.prod(RESNET[n]) for n in inner}
    largest = max(inner, key=lambda n: math.prod(RESNET[n]))
    assert densities[largest] == min(densities.values())


def test_dense_tensors_and_a_table_of_densities_count_toward_the_total():
    first, *_, last = RESNET
    counts = allocated(RESNET, 0.05, "uniform", dense=[first], table={last: 0.5})
    total = sum(map(math.prod, RESNET.values()))
    assert counts[first] == math.prod(RESNET[first])
    assert counts[last] == 320
    assert sum(counts.values()) == round(0.05 * total)


def test_too_little_for_everyone_leaves_one_weight_per_output():
    counts = allocated({"a": (10, 100), "b": (5, 10)}, 0.001)
    assert counts == {"a": 10, "b": 5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"density": 0.0}, "density"),
        ({"density": 1.1}, "density"),
        ({"density": 0.1, "allocation": "fair"}, "one of uniform, erk, global"),
        ({"density": 0.1, "dense": ["conv1.weights"]}, "did you mean 'conv1.weight'"),
        ({"density": 0.1, "table": {"conv1.weight": 2.0}}, "density of conv1.weight"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(pb.PocketBayesError, match=message):
        allocated(RESNET, **options)
