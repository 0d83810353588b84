"""Numbers to bytes and back: exact, close to the entropy, within the tolerance, and suspicious."""

import decimal
import math
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pocketbayes as pb
from pocketbayes.codec.adaptive import Statistics, apportioned, coded_integers, decoded_integers
from pocketbayes.codec.arrays import Spec, flat, spec_in, spec_of, tensor_of
from pocketbayes.codec.codings import CODINGS
from pocketbayes.codec.frequencies import entropy_bytes
from pocketbayes.codec.jobs import Job, Steps
from pocketbayes.codec.layout import Options, Packer
from pocketbayes.codec.rans import TOTAL
from pocketbayes.codec.steps import (
    _exp,
    from_steps,
    log_odds_step,
    log_std_step,
    log_std_steps,
    mean_step,
    stds,
    to_steps,
)
from pocketbayes.codec.tokens import joined, largest, narrow, split, tokens_of
from pocketbayes.codec.varints import varints, varints_in
from pocketbayes.errors import FormatError

LARGE = 1 << 51
RNG = np.random.default_rng(0)


def integers(most=LARGE):
    return st.lists(st.integers(-most, most) | st.integers(-3, 3), max_size=300).map(
        lambda values: np.array(values, np.int64)
    )


def again(runs, smooth):
    data = coded_integers(runs, smooth).data
    return list(decoded_integers(data, [len(run) for run in runs], smooth))


@given(integers((1 << 63) - 1))
def test_varints_come_back(values):
    np.testing.assert_array_equal(varints_in(varints(values)), values)


@pytest.mark.parametrize("data", [b"\x80", b"\x01\x80", b"\xff" * 12 + b"\x01"])
def test_broken_varints_are_refused(data):
    with pytest.raises(FormatError):
        varints_in(data)


@given(integers())
def test_tokens_and_their_bits_come_back(values):
    tokens, data = split(values)
    assert 8 * len(data) - int(tokens_of(values).width.sum()) in range(8)
    back, rest = joined(tokens, memoryview(data + b"rest"))
    np.testing.assert_array_equal(back, values)
    assert bytes(rest) == b"rest"


def test_tokens_of_a_long_run_come_back():
    values = np.random.default_rng(7).integers(-(1 << 20), 1 << 20, 200_000)
    tokens, data = split(values)
    back, rest = joined(tokens, memoryview(data))
    np.testing.assert_array_equal(back, values)
    assert not rest


@given(integers((1 << 63) - 1))
def test_narrow_integers_are_the_same_integers(values):
    np.testing.assert_array_equal(narrow(values), values)
    assert largest(values) == max((abs(int(v)) for v in values), default=0)
    assert largest(np.array([-128], np.int8)) == 128


def test_tokens_grow_with_the_numbers_and_stay_few():
    values = np.arange(1, 1 << 16)
    token = tokens_of(values).token
    assert (np.diff(token) >= 0).all()
    assert token.max() < 16 + 8 * 12
    np.testing.assert_array_equal(token[:15], values[:15])


@settings(deadline=None)
@given(st.lists(integers(), max_size=4), st.booleans())
def test_any_runs_come_back(runs, smooth):
    for run, back in zip(runs, again(runs, smooth), strict=True):
        np.testing.assert_array_equal(back, run)


@pytest.mark.parametrize("smooth", [True, False])
def test_numbers_that_never_come_twice_come_back(smooth):
    runs = [np.random.default_rng(5).permutation(300_000) - 150_000, np.arange(70_000) << 30]
    for run, back in zip(runs, again(runs, smooth), strict=True):
        np.testing.assert_array_equal(back, run)


DISTRIBUTIONS = {
    "normal": [np.rint(RNG.normal(0, 9, n)) for n in (300, 50_000, 200_000)],
    "heavy tails": [np.rint(9 * RNG.standard_t(2, n)) for n in (20_000, 300_000)],
    "gaps": [RNG.geometric(p, 100_000) - 1 for p in (0.05, 0.01, 0.3)],
    "nearly constant": [RNG.random(2_000_000) < 0.02],
    "labels": [RNG.integers(0, 2000, 400_000) for _ in range(2)],
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_codes_are_within_one_percent_of_the_entropy(name):
    runs = [run.astype(np.int64) for run in DISTRIBUTIONS[name]]
    made = coded_integers(runs, smooth=name != "labels")
    assert made.bound == pytest.approx(sum(map(entropy_bytes, runs)))
    assert len(made.data) < 1.01 * made.bound


def test_the_entropy_is_that_of_the_definition():
    assert entropy_bytes(np.array([5] * 8)) == 0
    assert entropy_bytes(np.repeat([1, 2, 3, 4], 16)) == pytest.approx(64 * 2 / 8)
    assert entropy_bytes(np.empty(0, np.int64)) == 0


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=500))
def test_shares_are_whole_and_fair(weights):
    weight = np.array(weights, np.int64)
    share = apportioned(weight)
    assert share.sum() == TOTAL
    assert share.min() >= 1
    exact = weight / weight.sum() * TOTAL
    assert (share - exact).max() <= 1 + 1e-6  # who gets more than his due gets the least there is


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_harmed_codes_are_refused_or_what_they_were(data):
    runs = [np.rint(np.random.default_rng(1).normal(0, 5, 400)).astype(np.int64)]
    good = coded_integers(runs).data
    place = data.draw(st.integers(0, len(good) - 1))
    harm = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    bad = {
        "flip": good[:place]
        + bytes([good[place] ^ data.draw(st.integers(1, 255))])
        + good[place + 1 :],
        "cut": good[:place],
        "insert": good[:place] + b"\x00" + good[place:],
    }[harm]
    try:
        found = list(decoded_integers(bad, [400]))
    except FormatError:
        return
    assert harm == "flip"  # of a bit that only a literal or an open bit holds
    assert len(found[0]) == 400


def test_more_symbols_than_the_lanes_may_hold_are_refused_at_once():
    data = coded_integers([np.zeros(10, np.int64)]).data
    with pytest.raises(FormatError, match="as many as it says"):
        list(decoded_integers(data, [10**12]))


@pytest.mark.parametrize("value", [1 << 52, -(1 << 52), -(1 << 63)])
def test_literals_that_no_writer_makes_are_refused(value):
    good = coded_integers([np.array([7])], smooth=False).data
    size, literal = len(varints(np.array([7]))), varints(np.array([value]))
    head = np.frombuffer(good[:12], "<u4").copy()
    head[2] = len(literal)
    with pytest.raises(FormatError, match="too large"):
        list(decoded_integers(head.tobytes() + good[12:-size] + literal, [1], smooth=False))


@pytest.mark.parametrize("tolerance", [1e-6, 1e-3, 0.1])
def test_no_weight_changes_by_more_than_the_tolerance(tolerance):
    """KL(N(m, s^2) || N(m', s'^2)) by its definition, at a million weights of every size."""
    rng = np.random.default_rng(2)
    log_std = rng.uniform(-18, 4, 10**6)
    mean = rng.standard_t(1, 10**6) * np.exp(log_std)
    a, b = log_std_steps(tolerance)[0], mean_step(tolerance)
    k = to_steps(log_std, a)
    std = stds(k, a)
    moved = from_steps(to_steps(mean, std * b), std * b)
    d = np.log(std) - log_std
    kl = d + np.expm1(-2 * d) / 2 + ((mean - moved) / std) ** 2 / 2
    assert kl.max() <= tolerance * (1 + 1e-6)
    assert kl.max() > 0.9 * tolerance  # and no bit more than that is kept
    np.testing.assert_allclose(np.log(std), from_steps(k, a), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tolerance", [1e-6, 1e-3])
def test_no_inclusion_variable_changes_by_more_than_the_tolerance(tolerance):
    odds = np.random.default_rng(3).uniform(-12, 12, 10**5)
    moved = from_steps(to_steps(odds, log_odds_step(tolerance)), log_odds_step(tolerance))
    p, q = (1 / (1 + np.exp(-x)) for x in (odds, moved))
    kl = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert kl.max() <= tolerance * 1.01


def test_stds_that_are_all_alike_lie_on_a_multiple():
    """Those of a prior, say: any step within the tolerance will do, so one that hits them does."""
    for log_std in np.random.default_rng(4).uniform(-9, -1, 50).astype(np.float32):
        rows = [np.full(1000, log_std)]
        step = log_std_step(rows, 0.1)
        error = np.abs(from_steps(to_steps(rows[0], step), step) - log_std).max()
        assert error < step / 6
        assert 2 / 3 * log_std_steps(0.1)[1] < step <= log_std_steps(0.1)[1]


def test_stds_that_are_evenly_spread_get_the_largest_step():
    rows = [np.random.default_rng(5).uniform(-20, 0, 10**5)]
    assert log_std_step(rows, 0.1) >= log_std_steps(0.1)[2]


@pytest.mark.parametrize("width", [1e-4, 0.1, 3.0])
@pytest.mark.parametrize("centre", [-4.0, -0.05, 1e-3])
def test_stds_keep_the_step_that_they_have(width, centre):
    values = np.random.default_rng(6).normal(centre, width, 1000).astype(np.float32)
    step = log_std_step([values], 0.1)
    stored = from_steps(to_steps(values, step), step).astype(np.float32)
    assert log_std_step([stored], 0.1) == step
    oldest = log_std_steps(0.1)[0]
    old = from_steps(to_steps(values, oldest), oldest).astype(np.float32)
    assert log_std_step([old], 0.1) == oldest


@pytest.mark.parametrize("value", [np.nan, np.inf, -3e38])
def test_stds_that_are_no_multiples_get_some_step(value):
    assert log_std_step([np.array([-3, value], np.float32)], 0.1) == log_std_steps(0.1)[1]


def test_stds_do_not_depend_on_the_callers_decimals():
    integers = np.arange(-300, 100)
    good = stds(integers, 0.043)
    _exp.cache_clear()
    with decimal.localcontext() as context:
        context.prec, context.traps[decimal.Inexact] = 3, True
        np.testing.assert_array_equal(stds(integers, 0.043), good)


def test_integers_that_have_no_magnitude_of_their_type_are_kept():
    """-2^63, whose `abs` is itself: a coding must keep it or refuse it."""
    array = np.random.default_rng(8).choice([-(1 << 63), 0, 5], 1000)
    job = Job([Spec("int64", (1000,))])
    for coding in ("integers", "exceptions", "planes"):
        made = CODINGS[coding].encode([array], job)
        if made is not None:
            (back,) = CODINGS[coding].decode(made.data, job)
            np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e300])
def test_what_has_no_multiple_is_not_rounded(value):
    assert to_steps(np.array([0.5, value]), 0.1) is None


TENSORS = {
    "float32": torch.randn(7, 5),
    "float64": torch.randn(3, dtype=torch.float64),
    "float16": torch.randn(4).half(),
    "bfloat16": torch.randn(2, 2).bfloat16(),
    "int64": torch.tensor([1, -5, 1 << 40]),
    "uint8": torch.arange(256, dtype=torch.uint8),
    "bool": torch.tensor([True, False]),
    "complex64": torch.randn(3, dtype=torch.complex64),
    "scalar": torch.tensor(3.0),
    "empty": torch.empty(0, 4),
    "strange": torch.tensor([math.nan, math.inf, -0.0, 1e-40]),
}


@pytest.mark.parametrize("coding", ["raw", "planes", "integers", "rising", "exceptions"])
@pytest.mark.parametrize("name", TENSORS)
def test_lossless_codings_keep_every_bit_or_refuse(coding, name):
    tensor = TENSORS[name]
    spec = spec_of(tensor)
    assert spec_in(spec.word()) == spec
    job = Job([spec, spec])
    made = CODINGS[coding].encode([flat(tensor), flat(tensor)], job)
    if made is None:
        assert coding in ("integers", "rising", "exceptions")
        return
    for found in CODINGS[coding].decode(made.data, job):
        back = tensor_of(found, spec)
        assert back.dtype == tensor.dtype
        assert back.shape == tensor.shape
        assert flat(back).tobytes() == flat(tensor).tobytes()


def test_exceptions_cost_their_entropy_and_come_back():
    rng = np.random.default_rng(6)
    arrays = [
        np.where(rng.random(n) < 0.03, rng.integers(0, 12, n), most).astype(np.uint8)
        for n, most in ((500_000, 4), (300_000, 0), (0, 0), (7, 9))
    ]
    job = Job([Spec("uint8", (len(a),)) for a in arrays])
    made = CODINGS["exceptions"].encode(arrays, job)
    for array, back in zip(arrays, CODINGS["exceptions"].decode(made.data, job), strict=True):
        np.testing.assert_array_equal(back, array)
    assert len(made.data) < 1.01 * made.bound
    assert (
        CODINGS["exceptions"].encode([rng.integers(0, 3, 99)], Job([Spec("int64", (99,))])) is None
    )


@pytest.mark.parametrize(
    "words", [[4, 5, 4, 5], [4, -1], [4, 11], [4], [300, 3], [-1, 3], [4, 6]], ids=str
)
def test_exceptions_that_cannot_be_are_refused(words):
    head = varints(np.array(words))
    gaps, values = (
        coded_integers([np.array(v)], s).data for v, s in (([0, 1, 2], True), ([1, 2, 3], False))
    )
    data = np.array([len(head), len(gaps)], "<u4").tobytes() + head + gaps + values
    with pytest.raises(FormatError):
        list(CODINGS["exceptions"].decode(data, Job([Spec("uint8", (10,))])))


def hungry(coding, count):
    """Bytes for as many numbers of one byte that would be far wider on the way."""
    if coding == "integers":
        wide = np.append(np.zeros(count - 1, np.int8), np.int64(1 << 50))
        return coded_integers([wide], smooth=False).data
    if coding == "rising":
        return coded_integers([np.zeros(count, np.int8)]).data
    gaps = np.append(np.zeros(count // 2 - 1, np.int8), np.int64(count // 2))
    head = varints(np.array([0, count // 2]))
    parts = (head, coded_integers([gaps]).data)
    values = coded_integers([np.ones(count // 2, np.int8)], smooth=False).data
    return np.array([*map(len, parts)], "<u4").tobytes() + b"".join(parts) + values


@pytest.mark.parametrize(
    ("coding", "count"), [("integers", 3 << 20), ("rising", 1 << 21), ("exceptions", 1 << 22)]
)
def test_decoding_takes_little_more_memory_than_its_arrays(coding, count):
    data, job = hungry(coding, count), Job([Spec("int8", (count,))])
    tracemalloc.start()
    try:
        if coding == "exceptions":
            assert sum(map(len, CODINGS[coding].decode(data, job))) == count
        else:
            with pytest.raises(FormatError):
                list(CODINGS[coding].decode(data, job))
        assert tracemalloc.get_traced_memory()[1] < 5 * count
    finally:
        tracemalloc.stop()


def test_float16_takes_only_what_it_can_hold():
    half = CODINGS["half"]
    job = Job([Spec("float32", (3,))])
    good = np.array([0.1, -3.5, 6e4], np.float32)
    (back,) = half.decode(half.encode([good], job).data, job)
    np.testing.assert_allclose(back, good, rtol=2.0**-11)
    assert half.encode([np.array([1e-8, 0, 1.0], np.float32)], job) is not None
    for lost in ([1e5, 0, 0], [1e-6, 1e-6, 1e-6], [1e-20, 0, 0], [3e-8, 1e-4, 0]):
        assert half.encode([np.array(lost, np.float32)], job) is None
    assert half.encode([np.array([math.nan, 0, 0], np.float32)], job) is None


def test_means_follow_the_stds_that_were_stored():
    rng = np.random.default_rng(4)
    spec = Spec("float32", (5000,))
    logs = Steps([to_steps(rng.normal(-5, 1, 5000), 0.05)], 0.05)
    mean = (rng.normal(0, 2, 5000) * stds(logs.integers[0], 0.05)).astype(np.float32)
    job = Job([spec], 0.06, logs)
    (back,) = CODINGS["relative"].decode(CODINGS["relative"].encode([mean], job).data, job)
    assert (np.abs(back - mean) <= 0.0301 * stds(logs.integers[0], 0.05)).all()
    assert CODINGS["relative"].encode([mean], Job([spec], 0.06)) is None


@pytest.mark.parametrize("tolerance", [1e-7, 1e-5, 1e-3, 1e-1])
@pytest.mark.parametrize("std", [1e-8, 1e-6, 1e-5, 1e-4, 1e-2])
def test_a_stored_gaussian_is_as_near_as_was_asked_for(tmp_path, tolerance, std):
    """Means of one, whose float32 neighbours lie 1.2e-7 apart: too far for the smallest steps."""
    torch.manual_seed(0)
    model = pb.bayesianize_(torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False)))
    posterior = model[0]._posteriors["weight"]
    with torch.no_grad():
        posterior.mean.copy_(torch.rand(64, 64) + 1)
        posterior.log_std.copy_(math.log(std) + torch.rand(64, 64))
    pb.save(model, tmp_path / "m.pocket", tolerance=tolerance)
    stored = pb.load(
        tmp_path / "m.pocket", torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False))
    )
    p, q = (
        torch.distributions.Normal(g.mean.double(), g.log_std.double().exp())
        for g in (posterior, stored[0]._posteriors["weight"])
    )
    nats = torch.distributions.kl_divergence(p, q)
    assert nats.max() <= 1.03 * tolerance


def test_means_whose_multiples_would_be_infinite_are_kept_whole(tmp_path):
    model = pb.bayesianize_(torch.nn.Linear(3, 2))
    with torch.no_grad():
        model._posteriors["weight"].mean.fill_(3.4e38)
        model._posteriors["weight"].log_std.copy_(torch.linspace(80, 90, 6).view(2, 3))
    pb.save(model, tmp_path / "m.pocket")
    again = pb.load(tmp_path / "m.pocket", torch.nn.Linear(3, 2))
    assert torch.equal(again._posteriors["weight"].mean, model._posteriors["weight"].mean)


@pytest.mark.parametrize(("share", "coding"), [(0.3, "half"), (0.99995, "raw"), (1e-9, "raw")])
def test_shares_of_a_blend_keep_to_the_tolerance(share, coding):
    """float16 has no number between 0.9995 and 1: a blend must not lose one of its two."""
    made = Packer(Options(1e-3)).section("shared/blend_share", [torch.tensor([share, 0.5])])
    assert made.coding == coding


def test_the_bytes_do_not_depend_on_threads(tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 5)))
    before, found = torch.get_num_threads(), set()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            pb.save(model, tmp_path / "m.pocket")
            found.add((tmp_path / "m.pocket").read_bytes())
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


class Documented:
    """The frequencies of docs/format.md, word by word, in plain Python."""

    def __init__(self):
        self.count, self.new, self.size = {}, 1, 1

    def begin_run(self):
        total = sum(self.count.values())
        if total > 1 << 8:
            scaled = {value: (n << 8) // total for value, n in self.count.items()}
            self.count = {value: n for value, n in scaled.items() if n}

    def frequencies(self):
        counts = [self.count[value] for value in sorted(self.count)]
        weight = [*counts, 1 + self.new * sum(counts) // (2 * self.size)]
        total = sum(weight)
        f = [max(1, (w << 16) // total) for w in weight]
        missing = (1 << 16) - sum(f)
        if missing > 0:
            rest = sorted(range(len(f)), key=lambda i: f[i] * total - (weight[i] << 16))
            for i in rest[:missing]:
                f[i] += 1
        while missing < 0:
            order = sorted((i for i in range(len(f)) if f[i] > 1), key=lambda i: -f[i])[:-missing]
            for i in order:
                f[i] -= 1
            missing += len(order)
        return f

    def learn(self, values):
        self.new, self.size = len(set(values) - self.count.keys()), len(values)
        for value in values:
            self.count[value] = self.count.get(value, 0) + 1
        kept = sorted(self.count, key=lambda value: (-self.count[value], value))[: 1 << 13]
        self.count = {value: self.count[value] for value in kept}


@pytest.mark.parametrize("scale", [2, 300, 30_000])
def test_frequencies_are_those_of_the_documentation(scale):
    rng = np.random.default_rng(scale)
    ours, documented = Statistics(), Documented()
    for length in (3, 50, 20_000, 7):
        ours.begin_run()
        documented.begin_run()
        for size in (16, 24, 40_000):
            assert ours.shares().tolist() == documented.frequencies()
            block = np.rint(rng.standard_cauchy(min(size, length)) * scale).astype(np.int64)
            ours.learn(block)
            documented.learn(block.tolist())
            assert ours.known.tolist() == sorted(documented.count)
