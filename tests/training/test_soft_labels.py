"""Targets that are probabilities of classes, and loaders that take them from a teacher."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SubsetRandomSampler, TensorDataset

import pocketbayes as pb
from pocketbayes.layers import describe, set_estimator
from pocketbayes.likelihoods import MASKED, likelihood_of
from pocketbayes.training.batches import dataset_size_of, ordered_loader


def classifier(seed=0):
    torch.manual_seed(seed)
    return pb.bayesianize_(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)))


def examples(number=90):
    x = torch.randn(number, 4, generator=torch.Generator().manual_seed(0))
    return x, x[:, :3].argmax(1)


@pytest.fixture(scope="module")
def teacher():
    made = classifier()
    pb.fit(made, DataLoader(TensorDataset(*examples()), 30), epochs=60, progress=False)
    return made


def test_targets_are_a_mixture(teacher):
    x, y = examples(6)
    for share in (0.0, 0.3, 1.0):
        torch.manual_seed(1)
        ((again, mixed),) = pb.with_teacher([(x, y)], teacher, share)
        torch.manual_seed(1)
        (((_, said)),) = pb.with_teacher([(x, y)], teacher, 1.0)
        assert torch.equal(again, x)
        known = nn.functional.one_hot(y, 3).float()
        torch.testing.assert_close(mixed, (1 - share) * known + share * said)
        torch.testing.assert_close(mixed.sum(1), torch.ones(6))


def test_a_draw_for_each_batch_averages_to_the_prediction(teacher):
    x, y = examples(5)
    batches = pb.with_teacher([(x, y)] * 2000, teacher, 1.0)
    said = torch.stack([mixed for _, mixed in batches])
    expected = pb.predict(teacher, x, 4000).probs
    bound = 5 * said.std(0) * (1 / 2000 + 1 / 4000) ** 0.5 + 1e-4  # one in 10^5 goes beyond
    assert ((said.mean(0) - expected).abs() <= bound).all()


def test_a_compiled_teacher_says_the_same(teacher):
    """Of weights: draws by "lrt", the default here, run as they are, and say nothing of it."""
    batches = [examples(6)] * 3
    for estimator in ("weight", "lrt"):
        model = copy.deepcopy(teacher)
        set_estimator(model, estimator)
        found = []
        for wanted in (False, "eager"):
            torch.manual_seed(1)
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "nothing is compiled")
                found.append([said for _, said in pb.with_teacher(batches, model, 1.0, wanted)])
        for plain, compiled in zip(*found, strict=True):
            torch.testing.assert_close(plain, compiled)


def test_examples_are_counted_as_without_a_teacher(teacher):
    x, y = examples()
    data = TensorDataset(x, y)
    some = BatchSampler(SubsetRandomSampler(range(20)), 10, drop_last=False)
    for loader, number in (([(x[:30], y[:30]), (x[30:], y[30:])], 90), (DataLoader(data, 10), 90),
                           (DataLoader(data, batch_sampler=some), 20)):  # fmt: skip
        assert dataset_size_of(loader, None) == number
        assert dataset_size_of(pb.with_teacher(loader, teacher), None) == number


def test_without_a_share_it_trains_as_without_a_teacher(teacher):
    x, y = examples()
    batches = [(x[:45], y[:45]), (x[45:], y[45:])]
    one, two = classifier(3), classifier(3)
    pb.fit(one, batches, epochs=3, seed=1, progress=False, likelihood="categorical")
    taught = pb.with_teacher(batches, teacher, 0.0)
    history = pb.fit(two, taught, epochs=3, seed=1, progress=False).history
    assert history[-1]["kl"] > 0
    assert describe(two).beta == pytest.approx(describe(one).beta, rel=0.2)
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0.05, atol=0.02)


def test_the_seed_sets_the_order(teacher):
    loader = DataLoader(TensorDataset(*examples()), 10, shuffle=True)

    def first(seed):
        batches = ordered_loader(pb.with_teacher(loader, teacher), seed, 0, 1)
        return next(iter(batches))[0]

    assert torch.equal(first(0), first(0))
    assert not torch.equal(first(0), first(1))


def test_what_has_no_label_does_not_count(teacher):
    x, y = examples(8)
    masked = y.clone()
    masked[3] = MASKED
    ((_, mixed),) = pb.with_teacher([(x, masked)], teacher)
    assert mixed[3].eq(0).all()
    kind = likelihood_of(teacher, None)
    output = torch.randn(8, 3)
    loss, accuracy = kind.nll(output, mixed, {})
    rest = [i for i in range(8) if i != 3]
    without, agree = kind.nll(output[rest], mixed[rest], {})
    assert float(loss * 8) == pytest.approx(float(without * 7), rel=1e-5)
    assert float(accuracy) == pytest.approx(float(agree))
    assert kind.num_targets(mixed) == 7
    constants = kind.constant(output, mixed), kind.constant(output[rest], mixed[rest])
    torch.testing.assert_close(*constants)


def test_what_is_no_teacher_is_refused(teacher):
    x, y = examples(6)
    with pytest.raises(pb.PocketBayesError, match="no posterior"):
        pb.with_teacher([(x, y)], nn.Linear(4, 3))
    with pytest.raises(pb.PocketBayesError, match="share"):
        pb.with_teacher([(x, y)], teacher, 1.5)
    values = pb.bayesianize_(nn.Linear(4, 1))
    pb.fit(values, [(x, x[:, :1])], epochs=1, likelihood="gaussian", progress=False)
    with pytest.raises(pb.PocketBayesError, match="probabilities of classes"):
        pb.with_teacher([(x, y)], values)
