"""The best units that cost no more than is allowed, beside all choices that there are."""

from itertools import combinations

import pytest
import torch

import pocketbayes as pb
from pocketbayes.sparsity import affordable_units, best_units, ranked

PRICES = [1024.0, 256.0, 0.0, 16.0]


def some(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(length, generator=generator) ** 3 for length in lengths]


def cost_of(masks, prices, sizes=None):
    each = zip(masks, prices, sizes or [1] * len(masks), strict=True)
    return sum(int(mask.sum()) * size * price for mask, price, size in each)


def number_in(masks, sizes=None):
    return cost_of(masks, sizes or [1] * len(masks))


def value_of(masks, scores):
    return sum(float(score[mask].double().sum()) for mask, score in zip(masks, scores, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_no_choice_that_costs_no_more_is_better(seed):
    scores, prices, number = some(4, 5, 3, seed=seed), [7.0, 3.0, 1.0], 5
    owner = [tensor for tensor, score in enumerate(scores) for _ in score]
    every = torch.cat(scores).double().tolist()
    choices = [c for c in combinations(range(12), number) if len({owner[i] for i in c}) == 3]
    known = [(sum(prices[owner[i]] for i in c), sum(every[i] for i in c)) for c in choices]
    for most in range(15, 32):
        masks = affordable_units(scores, [1] * 3, prices, number, most)
        cost = cost_of(masks, prices)
        assert number_in(masks) == number
        assert cost <= most
        best = max(value for price, value in known if price <= cost)
        assert value_of(masks, scores) == pytest.approx(best, abs=1e-9)


def test_what_is_cheap_enough_stays_as_it_was():
    scores, sizes = some(50, 60, 10, 40), [1] * 4
    masks = best_units(ranked(scores, sizes), 30)
    for most in (cost_of(masks, PRICES), 1e9):
        found = affordable_units(scores, sizes, PRICES, 30, most)
        assert all(torch.equal(one, other) for one, other in zip(found, masks, strict=True))


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2, 0.05])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_of_many_units_the_cost_comes_near_the_limit(share, scale):
    scores = [scale * score for score in some(4000, 9000, 500, 7000)]
    usual = cost_of(best_units(ranked(scores, [1] * 4), 2000), PRICES)
    masks = affordable_units(scores, [1] * 4, PRICES, 2000, share * usual)
    assert number_in(masks) == 2000
    assert 0.995 * share * usual - max(PRICES) <= cost_of(masks, PRICES) <= share * usual
    for score, mask in zip(scores, masks, strict=True):
        assert score[mask].min() >= score[~mask].max()  # a price is one for all of a tensor


def test_the_cheapest_choice_can_be_had_and_nothing_below():
    scores = some(40, 40, 20, 30)
    cheapest = 1024 + 256 + 20 * 0 + 28 * 16
    masks = affordable_units(scores, [1] * 4, PRICES, 50, cheapest)
    assert [int(mask.sum()) for mask in masks] == [1, 1, 20, 28]
    assert all(mask[score.argmax()] for mask, score in zip(masks, scores, strict=True))
    with pytest.raises(pb.PocketBayesError, match="50 weights cost 1,728 at least, not 1,727"):
        affordable_units(scores, [1] * 4, PRICES, 50, cheapest - 1)
    with pytest.raises(pb.PocketBayesError, match="20 weights cost 60 at least, not 59"):
        affordable_units(scores[:2], [1, 1], [3.0, 3.0], 20, 59)


def test_units_of_several_weights_are_kept_whole():
    scores, sizes = some(30, 300, 60, 40), [9, 1, 5, 2]
    usual = cost_of(best_units(ranked(scores, sizes), 200), PRICES, sizes)
    masks = affordable_units(scores, sizes, PRICES, 200, usual / 2)
    assert cost_of(masks, PRICES, sizes) <= usual / 2
    assert 191 < number_in(masks, sizes) <= 200


def test_infinite_scores_and_equal_ones_come_to_an_end():
    scores = some(20, 30)
    scores[0][:5], scores[1][:5] = torch.inf, -torch.inf
    for given in (scores, [torch.ones(20), torch.ones(30)]):
        masks = affordable_units(given, [1, 1], [100.0, 1.0], 10, 350)
        assert [int(mask.sum()) for mask in masks] == [1, 9]  # what is equal goes at once
