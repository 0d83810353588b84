"""Exchanges of weights: laws that hold for every tensor, and a brute-force twin."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketbayes.sparsity import exchange as exchange_module
from pocketbayes.sparsity.exchange import exchanged, largest_of_all, lowest, places_of, repacked


@st.composite
def cases(draw):
    size = draw(st.integers(2, 60))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    active = draw(st.integers(1, size - 1))
    index = torch.randperm(size, generator=generator)[:active].sort().values
    score, growth = torch.rand(active, generator=generator), torch.rand(size, generator=generator)
    return index, score, growth, draw(st.integers(0, active))


def by_hand(index, score, growth, count):
    order = sorted(range(len(index)), key=lambda i: float(score[i]))
    kept = {int(index[i]) for i in order[count:]}
    free = sorted(set(range(len(growth))) - kept, key=lambda i: -float(growth[i]))
    return sorted(kept | set(free[:count]))


@given(cases())
def test_it_is_what_one_would_do_by_hand(case):
    index, source = exchanged(*case)
    assert index.tolist() == by_hand(*case)
    old = case[0].tolist()
    for place, position in zip(index.tolist(), source.tolist(), strict=True):
        assert (position == -1) == (place not in old)
        assert position == -1 or old[position] == place


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8000), st.sampled_from([1, 3, 30]))
def test_samples_and_bounds_change_nothing(seed, count, power):
    """Tensors large enough for every short cut, against sorting; no two values are equal."""
    generator = torch.Generator().manual_seed(seed)
    size, active = 80_000, 20_000
    growth = torch.randperm(size, generator=generator).double() ** power
    index = torch.randperm(size, generator=generator)[:active].sort().values
    score = torch.randperm(active, generator=generator).double()
    got = exchanged(index, score, growth, count)
    kept = index[score.argsort()[count:]]
    rest = growth.index_fill(0, kept, -1.0)
    wanted = torch.cat([kept, rest.argsort(descending=True)[:count]]).sort().values
    assert torch.equal(got.places, wanted)
    is_old = torch.isin(got.places, index)
    assert torch.equal(got.source >= 0, is_old)
    assert torch.equal(index[got.source[is_old]], got.places[is_old])


def test_a_threshold_that_was_too_high_is_noticed():
    growth = torch.zeros(70_000)
    growth[:: exchange_module._STRIDE] = 1.0  # all that the sample sees is large
    index = torch.arange(5, 25_000, 5)
    got = exchanged(index, torch.rand(len(index)), growth, 2000)
    assert len(got.places.unique()) == len(index)
    left = growth.index_fill(0, got.places, 0.0)
    assert int((got.source < 0).sum()) > 900
    assert int(left.sum()) == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 1), st.booleans(), st.sampled_from([50, 40_000]))
def test_the_lowest_are_the_lowest(seed, share, with_ties, size):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(size, generator=generator)
    values = (values * 3).round() if with_ties else values
    values[:3] = torch.tensor([torch.inf, -torch.inf, 0.0])
    count = int(share * size)
    marked = lowest(values, count)
    assert int(marked.sum()) == count
    assert torch.equal(values[marked].sort().values, values.sort().values[:count])


@given(st.lists(st.booleans(), max_size=70))
def test_places_of_a_mask(entries):
    mask = torch.tensor(entries, dtype=torch.bool)
    assert places_of(mask).tolist() == [i for i, entry in enumerate(entries) if entry]


@given(cases(), st.integers(1, 5))
def test_no_output_loses_its_last_weight(case, rows):
    index, score, growth, count = case
    borders = torch.linspace(0, len(growth), rows + 1).long()
    places, source = exchanged(index, score, growth, count, borders)
    outputs, after = (torch.bucketize(p, borders, right=True) - 1 for p in (index, places))
    assert len(places) == len(index)
    kept = index[source[source >= 0]]
    came_back = len(kept) - (len(index) - count)
    assert came_back >= 0
    assert set(outputs.tolist()) <= set(after.tolist())


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 9))
def test_the_largest_reach_every_output(seed, rows, columns):
    generator = torch.Generator().manual_seed(seed)
    score = torch.rand(rows * columns, generator=generator)
    outputs = torch.arange(rows).repeat_interleave(columns)
    count = int(torch.randint(rows, rows * columns + 1, (), generator=generator))
    places = largest_of_all(score, count, outputs)
    assert len(places.unique()) == count
    assert outputs[places].unique().tolist() == list(range(rows))
    best = score.view(rows, columns).argmax(1) + columns * torch.arange(rows)
    others = [p for p in places.tolist() if p not in best.tolist()]
    left = [i for i in range(len(score)) if i not in places.tolist()]
    assert not others or not left or min(score[others]) >= max(score[left])


def test_repacking_keeps_survivors_and_fills_newcomers():
    values = torch.tensor([1.0, 2.0, 3.0])
    source, fresh = torch.tensor([2, 0, 0]), torch.tensor([1])
    assert repacked(values, source, fresh, 9.0).tolist() == [3.0, 9.0, 1.0]
    rows = torch.stack([values, -values], 1)
    assert repacked(rows, source, fresh, 9.0).tolist() == [[3, -3], [9, 9], [1, -1]]


def test_a_gradient_that_is_not_a_number_does_not_break_the_count():
    growth = torch.full((100,), torch.nan)
    growth[3] = 1.0
    index = torch.arange(0, 100, 5)
    places, _ = exchanged(index, torch.rand(20), growth, 6)
    assert len(places.unique()) == 20
    assert 3 in places


def test_half_precision_gradients_choose_too():
    growth = torch.randn(40_000, generator=torch.Generator().manual_seed(0)).bfloat16()
    index = torch.arange(0, 40_000, 40)
    places, source = exchanged(index, torch.rand(1000).bfloat16(), growth, 300)
    assert len(places.unique()) == 1000
    left = growth.abs().float().index_fill(0, places, 0.0)
    assert left.max() <= growth[places[source < 0]].abs().min()
