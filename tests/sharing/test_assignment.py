"""The plan of sharing: who stands out, what an entry is, how many bytes it takes."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

import pocketbayes as pb
from pocketbayes.errors import PocketBayesError
from pocketbayes.sharing import assignment
from pocketbayes.sharing.assignment import planned_mixture
from pocketbayes.sharing.codebooks import (
    coded_bits,
    coded_bytes,
    nearest_entries,
    outlier_bits,
    planned_codebook,
    planned_to_fit,
)
from pocketbayes.sharing.mixture import Mixture
from pocketbayes.sharing.rate_distortion import CodebookEntries


def cloud(n=20_000, seed=0):
    """Weights of a trained layer: most at the prior, some learned."""
    generator = torch.Generator().manual_seed(seed)
    normal = torch.randn(3, n, generator=generator)
    learned = torch.rand(n, generator=generator) < 0.3
    mean = torch.where(learned, 0.06, 0.004) * normal[0]
    std = torch.where(learned, 0.01, 0.05) * (0.2 * normal[1]).exp()
    return mean, std, (normal[2].abs() * mean.abs())


def planned(mean, std, gradient=None, **options):
    return pb.Sharing(**options).planned(mean, std, gradient)


def is_plain(plan):
    plain = torch.ones(len(plan.label), dtype=torch.bool)
    plain[plan.outlier] = False
    plain[plan.blend] = False
    return plain


def test_large_means_and_steep_gradients_are_outliers():
    mean, std, gradient = cloud()
    plan = planned(mean, std, gradient, components=50, outlier_mean=0.1, least_members=1)
    large, count = mean.abs() > 0.1, len(mean) // 100
    steep = torch.zeros_like(large)
    steep[gradient.topk(count).indices] = True
    assert torch.equal(plan.outlier, (large | steep).nonzero().flatten())
    only = planned(mean, std, None, components=50, outlier_mean=None, least_members=1)
    assert len(only.outlier) == 0


def test_a_gradient_of_nothing_makes_no_outlier():
    mean, std, _ = cloud(2000)
    plan = planned(mean, std, torch.zeros(2000), components=5, outlier_mean=None, least_members=1)
    assert len(plan.outlier) == 0


def test_ties_do_not_make_more_outliers_than_asked_for():
    mean, std, _ = cloud(1000)
    gradient = torch.zeros(1000)
    gradient[:300] = 1.0
    plan = planned(mean, std, gradient, components=5, outlier_mean=None, least_members=1)
    assert len(plan.outlier) == 10


@pytest.mark.parametrize("components", range(60, 130, 7))
def test_components_that_get_lost_on_the_way(components):
    """Few distinct stds, or equal ones up to rounding: some components end up empty."""
    mean, _, _ = cloud(8000)
    generator = torch.Generator().manual_seed(components)
    few = torch.tensor([0.01, 0.02, 0.03, 0.05])[torch.randint(4, (8000,), generator=generator)]
    equal = 1e-3 * (1 + 1e-7 * torch.randn(8000, generator=generator))
    for std in (few, equal):
        plan = planned(mean.round(decimals=2), std, components=components, least_members=2)
        assert int(plan.label.max()) < len(plan.mean)


def test_members_of_small_clusters_are_outliers():
    mean, std, _ = cloud()
    mean[:10], std[:10] = 0.19, 0.2  # ten weights far from all others
    plan = planned(mean, std, None, components=100, outlier_gradient=0)
    assert set(range(10)) <= set(plan.outlier.tolist())
    sizes = torch.bincount(plan.label[is_plain(plan) | _at(plan.blend, 20_000)].long())
    assert sizes[sizes > 0].min() >= 20


def _at(places, number):
    marked = torch.zeros(number, dtype=torch.bool)
    marked[places] = True
    return marked


def test_an_entry_has_the_moments_of_its_members():
    mean, std, gradient = cloud()
    plan = planned(mean, std, gradient, components=40)
    plain = is_plain(plan)
    for k in range(len(plan.mean)):
        mu, s = (t[plain & (plan.label == k)].double() for t in (mean, std))
        assert plan.mean[k] == pytest.approx(float(mu.mean()), abs=1e-9)
        variance = float((s.square() + mu.square()).mean() - mu.mean().square())
        assert plan.std[k] == pytest.approx(variance**0.5, rel=1e-6)


def test_more_entries_lie_closer():
    mean, std, _ = cloud()
    errors = []
    for components in (4, 32, 256):
        plan = planned(mean, std, components=components, outlier_gradient=0, least_members=1,
                       merge="none", blend_beyond=None)  # fmt: skip
        assert len(plan.mean) <= components
        entry, plain = torch.from_numpy(plan.mean)[plan.label.long()], is_plain(plan)
        errors.append(float(((mean - entry) / std)[plain].square().mean()))
    assert errors[0] > 4 * errors[1] > 16 * errors[2]


def test_blends_are_the_far_ones_and_their_shares_follow_the_density():
    mean, std, _ = cloud()
    options = {"components": 30, "outlier_gradient": 0, "merge": "none"}
    far = planned(mean, std, **options)
    none = planned(mean, std, blend_beyond=None, **options)
    nearly_all = planned(mean, std, blend_beyond=1e-3, **options)
    assert len(none.blend) == 0 < len(far.blend) < len(nearly_all.blend)
    assert 0.01 < len(far.blend) / len(mean) < 0.15
    assert len(nearly_all.blend) > 0.95 * (len(mean) - len(nearly_all.outlier))
    share, pair = far.blend_share, far.blend_label
    assert ((share >= 0.5) & (share <= 1)).all()
    assert (pair[:, 0] != pair[:, 1]).all()
    mixture = far.mixture
    place = far.blend[0]
    point = np.array([mean[place], std[place]], dtype=np.float64)
    density = []
    for k in pair[0].tolist():
        xx, xy, yy = mixture.covariance[k]
        matrix, apart = np.array([[xx, xy], [xy, yy]]), point - mixture.mean[k]
        exponent = -apart @ np.linalg.solve(matrix, apart) / 2
        density.append(np.exp(exponent) / np.sqrt(np.linalg.det(matrix)))
    assert float(share[0]) == pytest.approx(density[0] / sum(density), rel=1e-4)


def test_merging_leaves_fewer_entries_and_the_papers_equation_inflates():
    mean, std, gradient = cloud()
    options = {"components": 300, "least_members": 1, "merge_below": 2e-5}
    plans = {how: planned(mean, std, gradient, merge=how, **options)
             for how in ("none", "moments", "paper")}  # fmt: skip
    sizes = {how: len(plan.mean) for how, plan in plans.items()}
    assert sizes["moments"] < sizes["none"]
    assert sizes["paper"] < sizes["none"]
    calm = planned(mean, std, gradient, merge="moments", merge_gradient=0.2, **options)
    still = planned(mean, std, gradient, merge="moments", merge_variance=0.2, **options)
    assert sizes["moments"] < len(calm.mean) < sizes["none"]
    assert sizes["moments"] < len(still.mean) < sizes["none"]

    def spread(plan):  # mean variance of a weight, which merging by moments keeps
        shared = is_plain(plan)
        return float(np.square(plan.std)[plan.label[shared].numpy()].mean())

    assert spread(plans["paper"]) > spread(plans["moments"])


@pytest.mark.parametrize("n", [1, 2, 7, 50])
@pytest.mark.parametrize("equal", [True, False], ids=["equal stds", "other stds"])
@pytest.mark.parametrize("objective", ["mixture", "rate_distortion"])
def test_the_smallest_networks_and_untrained_stds(n, equal, objective):
    mean, std, gradient = cloud(n)
    std = torch.full_like(std, 1e-3) if equal else std
    plan = planned(mean, std, gradient, objective=objective)
    assert np.isfinite(plan.mean).all()
    assert (plan.std > 0).all()
    assert int(plan.label.max()) < len(plan.mean)
    if equal and objective == "mixture":
        spread = (plan.std**2 - 1e-6).clip(0) ** 0.5
        assert (spread <= float(mean.abs().max()) + 1e-6).all()


def test_one_number_for_all_weights():
    plan = planned(torch.full((500,), 0.1), torch.full((500,), 1e-3), None, least_members=1)
    assert plan.mean == pytest.approx(0.1, abs=1e-6)
    assert plan.std == pytest.approx(1e-3, rel=1e-2)


def test_when_all_stand_out_it_says_so():
    with pytest.raises(PocketBayesError, match="outlier_mean"):
        planned(torch.ones(100), torch.ones(100))


def test_rate_trades_bits_for_nats():
    mean, std, _ = cloud()
    bits, lost, entries = [], [], []
    for rate in (0.003, 0.03, 0.3):
        plan = planned_codebook(mean, std, 200, rate)
        lost.append(nats(mean, std, plan))
        bits.append(coded_bits(plan.label[is_plain(plan)], 200))
        entries.append(len(plan.mean))
    assert bits[0] > bits[1] > bits[2]
    assert lost[0] < lost[1] < lost[2]
    assert entries[0] > entries[1] > entries[2]


def test_what_is_rare_in_the_network_may_be_cheap_in_one_tensor():
    """Two tensors, one quiet: nats + rate x nats of labels, coded by tensor, are fewer."""
    generator = torch.Generator().manual_seed(0)
    parts, rate = (slice(0, 20_000), slice(20_000, 25_000)), 0.1
    std = torch.cat([torch.full((20_000,), 0.05), torch.full((5_000,), 0.033)])
    std = std * (1 + 0.3 * torch.rand(len(std), generator=generator))
    mean = std * torch.randn(len(std), generator=generator)
    mean[:20_000] *= 0.3
    mean[20_000:] *= 2
    one, two = (planned_codebook(mean, std, 64, rate, p) for p in ((), parts))

    def cost(plan):
        return nats(mean, std, plan) + rate * 8 * math.log(2) * coded_bytes(plan, parts)

    assert cost(two) < 0.95 * cost(one)


def test_a_weight_too_dear_for_any_entry_is_an_outlier():
    mean, std, _ = cloud()
    mean[5:25], std[5:25] = torch.linspace(-0.9, 0.9, 20), 1e-5
    plan = planned_codebook(mean, std, 50, 0.02)
    label = plan.label[5:25].long()
    q = Normal(mean[5:25].double(), std[5:25].double())
    entry = Normal(torch.from_numpy(plan.mean)[label], torch.from_numpy(plan.std)[label])
    is_whole = torch.isin(torch.arange(5, 25), plan.outlier)
    limit = 0.02 * math.log(2) * outlier_bits(len(mean))
    assert is_whole.sum() > 10  # the others have an entry for themselves, or nearly
    assert (is_whole | (kl_divergence(entry, q) < limit)).all()
    assert len(plan.outlier) < 200


@pytest.mark.parametrize("target", [800, 5000])
def test_a_size_is_used_and_kept(target):
    mean, std, _ = cloud()
    plan = planned(mean, std, components=200, objective="rate_distortion", target_bytes=target)
    labels = coded_bits(plan.label[is_plain(plan)], len(plan.mean)) / 8
    assert coded_bytes(plan) >= labels + 8 * len(plan.mean)
    assert 0.8 * target < coded_bytes(plan) <= target


@pytest.mark.parametrize("log_std", [-3.9, -40.0])
def test_a_size_is_used_however_well_weights_are_known(log_std):
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(2, 5000, generator=generator)
    mean, std = 0.3 * normal[0], (0.3 * normal[1] + log_std).exp()
    plan = planned(mean, std, components=200, objective="rate_distortion", target_bytes=1000)
    assert 700 < coded_bytes(plan) <= 1000
    assert nats(mean, std, plan) < 0.8 * nats(mean, std, planned_codebook(mean, std, 1, 1e60))


def two_kinds(tensors=6, each=4000):
    """Tensors in which a fifth of the weights knows something: sizes jump where that is dropped."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(2, tensors * each, generator=generator)
    known = torch.rand(tensors * each, generator=generator) < 0.2
    mean = torch.where(known, 0.02, 0.003) * normal[0]
    std = torch.where(known, 0.01, 0.045) * (0.3 * normal[1]).exp()
    return mean, std, [slice(each * t, each * (t + 1)) for t in range(tensors)]


def test_a_size_between_two_sides_of_a_jump_is_used():
    mean, std, parts = two_kinds()
    rates = np.geomspace(0.9, 1.5, 12)
    plans = [planned_codebook(mean, std, 50, rate, parts) for rate in rates]
    sizes = [coded_bytes(plan, parts) for plan in plans]
    jump = int(np.argmin(np.diff(sizes)))
    large, small = plans[jump], plans[jump + 1]
    assert sizes[jump + 1] < 0.6 * sizes[jump]
    target = round(0.3 * sizes[jump] + 0.7 * sizes[jump + 1])
    plan = planned_to_fit(mean, std, 50, target, parts)
    assert 0.85 * target < coded_bytes(plan, parts) <= target
    spared = nats(mean, std, small) - nats(mean, std, plan)
    assert spared > 0.15 * (nats(mean, std, small) - nats(mean, std, large))


def test_outliers_count_in_a_size():
    mean, std, _ = cloud(3000)
    std[::20] *= 1e-6 * torch.arange(1, 151)
    plan = planned_to_fit(mean, std, 40, 2000)
    assert len(plan.outlier) * outlier_bits(3000) / 8 > 500
    assert 0.8 * 2000 < coded_bytes(plan) <= 2000


def test_an_empty_tensor_has_no_labels():
    mean, std, _ = cloud(2000)
    parts = [slice(0, 1200), slice(1200, 1200), slice(1200, 2000)]
    plan = planned_codebook(mean, std, 50, 0.1, parts)
    assert len(plan.label) == 2000
    assert coded_bytes(planned_to_fit(mean, std, 50, 500, parts), parts) <= 500


@pytest.mark.parametrize("weights", [50, 300, 3000])
def test_a_codebook_larger_than_the_network_does_not_exceed_a_size(weights):
    mean, std, _ = cloud(weights)
    target = 3 * weights if weights < 1000 else weights
    plan = planned_to_fit(mean, std, 2000, target)
    fewer = planned_to_fit(mean, std, max(1, target // 16), target)
    assert coded_bytes(plan) <= target
    assert nats(mean, std, plan) <= 1.01 * nats(mean, std, fewer)
    assert nats(mean, std, plan) < 0.3 * nats(mean, std, planned_codebook(mean, std, 1, 1e60))


def test_a_size_is_used_where_many_weights_are_outliers():
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(3, 6500, generator=generator)
    mean, std = 0.05 * normal[0] / normal[1].abs(), (normal[2] * normal[1].abs() - 4).exp()
    plan = planned_to_fit(mean, std, 300, 20_000)
    assert len(plan.outlier) > 300
    assert 0.93 * 20_000 < coded_bytes(plan) <= 20_000


def test_a_plan_is_not_made_twice(monkeypatch):
    from pocketbayes.sharing import codebooks

    made = []
    planned = codebooks._planned
    monkeypatch.setattr(
        codebooks, "_planned", lambda p, t, r: made.append((t, r)) or planned(p, t, r)
    )
    mean, std, _ = cloud(3000)
    mean[7] = 1e4
    planned_to_fit(mean, std, 100, 450)
    assert len({(id(codebooks), rate) for codebooks, rate in made}) == len(made)


def test_no_weights_have_no_entries():
    codebook = CodebookEntries(np.zeros(1), np.ones(1), np.ones(1))
    assert len(nearest_entries(torch.empty(0), torch.empty(0), codebook, 0.1)) == 0


def test_a_std_of_zero_is_a_very_small_one():
    mean, std, _ = cloud(2000)
    std[:3] = 0
    plan = planned_codebook(mean, std, 50, 0.02)
    assert np.isfinite(plan.mean).all()
    assert np.isfinite(plan.std).all()
    has_own = torch.from_numpy(plan.std)[plan.label[:3].long()] < 1e-30
    assert (has_own | torch.isin(torch.arange(3), plan.outlier)).all()


def nats(mean, std, plan):
    """KL(entry || q), summed over all weights that share."""
    m, s = (torch.from_numpy(a)[plan.label.long()] for a in (plan.mean, plan.std))
    plain = is_plain(plan)
    return float(kl_divergence(Normal(m, s), Normal(mean.double(), std.double()))[plain].sum())


def test_a_size_below_the_smallest_codebook_is_refused():
    mean, std, _ = cloud()
    with pytest.raises(PocketBayesError, match="target_bytes=3"):
        planned_to_fit(mean, std, 200, 3)


def test_the_entropy_of_labels():
    label = torch.tensor([0, 0, 1, 1, 2, 3], dtype=torch.uint8)
    assert coded_bits(label[:4], 4) == pytest.approx(4)
    assert coded_bits(label[:2], 4) == 0


def test_nearest_entries_are_those_of_least_kl():
    mean, std, _ = cloud(3000)
    generator = np.random.default_rng(0)
    codebook = CodebookEntries(generator.normal(0, 0.05, 30), generator.uniform(1e-5, 2e-3, 30),
                     generator.dirichlet(np.ones(30)))  # fmt: skip
    for rate in (0.0, 0.5):
        m, v = torch.from_numpy(codebook.mean), torch.from_numpy(codebook.variance)
        s2 = std.double().square()[:, None]
        apart = (mean.double()[:, None] - m).square()
        cost = ((v + apart) / s2 - 1 - (v / s2).log()) / 2 - rate * torch.from_numpy(
            codebook.share
        ).log()
        got = nearest_entries(mean, std, codebook, rate).long()
        best = cost.min(1).values
        chosen = cost.gather(1, got[:, None])[:, 0]
        assert ((chosen - best) < 1e-4 * (1 + best.abs())).float().mean() > 0.99


def test_rules_are_the_configs():
    mean, std, gradient = cloud(2000)
    one = planned(mean, std, gradient)
    other = planned_mixture(mean, std, gradient, pb.Sharing().rules())
    assert torch.equal(one.label, other.label)


def merged_pairs(gradients, variances, **options):
    """Three pairs of close components: for each, whether it becomes one."""
    mean = np.stack([[0, 1e-3, 1, 1.001, 2, 2.001], np.ones(6)], 1)
    covariance = np.stack([variances, np.zeros(6), variances], 1)
    mixture = Mixture(np.full(6, 1 / 6), mean, covariance)
    rules = pb.Sharing(merge_below=1e-5, **options).rules()
    gradient = torch.tensor(gradients, dtype=torch.float64)
    _, number = assignment._merged(mixture, torch.arange(6), gradient, rules)
    return [int(number[i]) == int(number[i + 1]) for i in (0, 2, 4)]


def test_by_the_paper_a_pair_merges_that_is_alike_and_else_one_that_is_small():
    same, gradients = [1e-8] * 6, [9.0, 9, 0, 9, 0, 0]
    assert merged_pairs(gradients, same, merge_gradient=0.5) == [False, False, True]
    assert merged_pairs(gradients, same, merge_gradient=0.5, paper=True) == [True, False, True]
    flat, variances = [0.0] * 6, [1e-6, 1e-6, 1e-8, 1e-6, 1e-8, 1e-8]
    assert merged_pairs(flat, variances, merge_variance=0.5) == [False, False, True]
    assert merged_pairs(flat, variances, merge_variance=0.5, paper=True) == [True, False, True]


def test_without_merging_the_orders_agree():
    mean, std, gradient = cloud()
    ours, paper = (
        planned(mean, std, gradient, components=40, merge="none", paper=paper)
        for paper in (False, True)
    )
    assert len(ours.blend) > 100
    for one, other in zip(ours[:7], paper[:7], strict=True):
        assert np.array_equal(one, other)


def test_by_the_paper_blends_are_those_from_before_components_merged():
    """What became of components is read off plain weights; pairs that became one are plain, too."""
    mean, std, gradient = cloud()
    before, ours, paper = (
        planned(mean, std, gradient, components=40, merge_below=4e-5, **options)
        for options in ({"merge": "none"}, {}, {"paper": True})
    )
    assert len(paper.mean) < len(before.mean)
    plain = is_plain(before)
    number = torch.full((len(before.mean),), -1)
    number[before.label[plain].long()] = paper.label[plain].long()
    assert torch.equal(number[before.label[plain].long()], paper.label[plain].long())
    pair = number[before.blend_label]
    apart = pair[:, 0] != pair[:, 1]
    assert 0 < int(apart.sum()) < len(apart)
    assert torch.equal(paper.blend, before.blend[apart])
    assert torch.equal(paper.blend_label, pair[apart])
    assert torch.equal(paper.blend_share, before.blend_share[apart])
    assert torch.equal(paper.label[before.blend[~apart]].long(), pair[~apart, 0])
    assert not torch.equal(ours.blend, paper.blend)
