"""Exchanges of weights: laws that hold for every tensor, and a brute-force twin."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketbayes import exchange as exchange_module
from pocketbayes.exchange import (
    exchanged,
    largest_outside,
    merged_sorted,
    positions_in,
    repacked,
)


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


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 2000))
def test_the_estimated_threshold_changes_nothing(seed, count):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(70_000, generator=generator) ** 3
    taken = torch.randperm(70_000, generator=generator)[:5000].sort().values
    found = largest_outside(values, taken, count)
    masked = values.index_fill(0, taken, -1.0)
    assert found.tolist() == masked.topk(count).indices.sort().values.tolist()


def test_a_threshold_that_was_too_high_is_noticed():
    values = torch.zeros(70_000)
    values[:: exchange_module._STRIDE] = 1.0  # all that the sample sees is large
    found = largest_outside(values, torch.tensor([1]), 3000)
    assert len(found.unique()) == 3000
    assert values[found].sum() == values.sum()


@given(st.sets(st.integers(0, 200)), st.sets(st.integers(0, 200)))
def test_merging_and_looking_up(one, other):
    one, other = sorted(one), sorted(other - one)
    merged = merged_sorted(
        torch.tensor(one, dtype=torch.int64), torch.tensor(other, dtype=torch.int64)
    )
    assert merged.tolist() == sorted([*one, *other])
    if one:
        positions = positions_in(torch.tensor(one), merged).tolist()
        assert positions == [one.index(p) if p in one else -1 for p in merged.tolist()]


def test_repacking_keeps_survivors_and_fills_newcomers():
    values = torch.tensor([1.0, 2.0, 3.0])
    assert repacked(values, torch.tensor([2, -1, 0]), 9.0).tolist() == [3.0, 9.0, 1.0]
