"""The reading half of the C engine: the same weights as the library, and the same refusals."""

import io
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from compiled import ENGINE, Engine, built, sanitised
from hostile_files import (
    BEARABLE,
    HURTS,
    accepts,
    flipped,
    known_attacks,
    made,
    mended,
    same,
    verdicts,
)

from pocketbayes.codec.codings import CODINGS
from pocketbayes.codec.container import packed, unpacked
from pocketbayes.codec.contents import coded, contents_of
from pocketbayes.codec.header import header_of
from pocketbayes.codec.layout import Options
from pocketbayes.codec.sections import codebooks_of, posteriors_in
from pocketbayes.posteriors import (
    FAMILIES,
    Blends,
    Codebook,
    Gaussian,
    LogUniform,
    NarrowSpike,
    Outliers,
    Point,
    Shared,
    Sparse,
    SparsePoint,
    SpikeSlab,
    Support,
    to_units,
)

GOLDEN = Path(__file__).parents[1] / "golden"
OLD = sorted(p.name for p in GOLDEN.glob("v[12]-*.pocket"))
NEW = sorted(p.name for p in GOLDEN.glob("*.pocket") if p.name not in OLD)
CERTAIN, NORMAL, SPIKE_SLAB = range(3)


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    return Engine(built(tmp_path_factory.mktemp("c") / "reader.so", "-O2", "-shared", "-fPIC"))


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """A program of its own, which ends at the first thing that C does not define."""
    more = (Path(__file__).with_name("verdicts.c"),)
    return built(tmp_path_factory.mktemp("c") / "verdicts", *sanitised(), more=more)


def parts_of(data):
    """Posteriors, state and number of members, by the library's own reader."""
    contents = contents_of(unpacked(io.BytesIO(data)))
    header = header_of(contents)
    posteriors = {name: q.requires_grad_(False) for name, q in posteriors_in(contents, header)}
    return posteriors, {n: contents.take(f"state/{n}") for n in header.state}, header.members


def assert_same(weight, q):
    """Numbers of the file equally; stds and inclusions, of an exponential, within one float."""
    assert weight.shape == tuple(q.shape)
    assert weight.spike_std == (float(q.spike_std) if isinstance(q, NarrowSpike) else 0)
    is_gated = isinstance(q, SpikeSlab) and not isinstance(q, NarrowSpike)
    assert weight.kind == (SPIKE_SLAB if is_gated else NORMAL if q.is_random else CERTAIN)
    if isinstance(q, Shared):
        return assert_same_shared(weight, q)
    assert same(
        weight.placed(weight.mean), q.placed(q.mean) if weight.index is not None else q.mean
    )
    assert (weight.label is None, weight.codebook, weight.draws_once) == (True, -1, False)
    if weight.std is None:
        assert not q.is_random
        return None
    std = q.log_std.double().exp().float()
    assert same(weight.placed(weight.std), q.placed(std) if weight.index is not None else std, 1)
    if is_gated:
        assert weight.group == (["weight", "input", "output"].index(q.granularity), q.axis)
        inclusion = q.each(q.log_odds.double().sigmoid()).expand(q.shape)
        assert same(weight.inclusion.reshape(q.shape), inclusion, 1)
    else:
        assert (weight.inclusion, weight.group) == (None, (0, 0))
    return None


def assert_same_shared(weight, q):
    """Blends go through other roundings than in torch: they are as near as their terms are."""
    book = q.codebook
    label = q.label.long()
    mean, std = book.mean.double()[label], book.log_std.double().exp()[label]
    share, (one, other) = q.blend_share.double(), q.blend_label.long().t()
    mean[q.outlier], std[q.outlier] = q.outlier_mean.double(), q.outlier_log_std.double().exp()
    m, n = book.mean.double()[one], book.mean.double()[other]
    v, u = ((2 * book.log_std.double()).exp()[k] for k in (one, other))
    mean[q.blend] = share * m + (1 - share) * n
    std[q.blend] = (share * v + (1 - share) * u + share * (1 - share) * (m - n) ** 2).sqrt()
    assert same(weight.placed(weight.mean), q.placed(mean), 1)
    assert same(weight.placed(weight.std), q.placed(std), 1)
    expected, variance = q.moments()
    np.testing.assert_allclose(weight.placed(weight.mean), expected.detach(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        weight.placed(weight.std) ** 2, variance.detach(), rtol=1e-5, atol=1e-12
    )
    own = torch.zeros(len(label), dtype=torch.bool)
    own[torch.cat([q.outlier, q.blend])] = True
    apart = q.placed(own.double() + 1).flatten() == 2
    labels = weight.placed(weight.label).reshape(-1)
    assert np.array_equal(labels[~apart], q.placed(label).flatten()[~apart])
    assert (labels[apart] >= len(book)).all()
    assert len(set(labels[apart].tolist())) == int(own.sum())
    assert weight.draws_once == (book.draw == "shared")


def assert_same_file(engine, data):
    posteriors, state, members = parts_of(data)
    found = engine.read(data)
    assert not isinstance(found, str), found
    assert (found.members, found.program) == (members, unpacked(io.BytesIO(data)).program)
    assert found.weights.keys() == posteriors.keys() | state.keys()
    for name, q in posteriors.items():
        assert_same(found.weights[name], q)
    for name, tensor in state.items():
        weight = found.weights[name]
        assert weight.shape == tuple(tensor.shape)
        assert (weight.kind, weight.index, weight.std) == (CERTAIN, None, None)
        assert same(weight.mean.reshape(weight.shape), tensor.float())


@pytest.mark.parametrize("name", NEW)
def test_golden_files_are_read_like_the_library_reads_them(engine, name):
    assert_same_file(engine, (GOLDEN / name).read_bytes())


@pytest.mark.parametrize("name", OLD)
def test_older_versions_are_refused_in_plain_words(engine, name):
    assert f"version {name[1]}, which only the library" in engine.read((GOLDEN / name).read_bytes())


def file_of(posteriors, state=None, options=None, members=1):
    """The bytes of a file with these posteriors, whatever network they are for."""
    arrays = {f"posterior/{n}/{a}": t for n, q in posteriors.items() for a, t in q.arrays().items()}
    codebooks, numbers = codebooks_of(posteriors)
    for k, codebook in enumerate(codebooks):
        arrays |= {f"table/{k}/{a}": t for a, t in codebook.arrays().items()}
    arrays |= {f"state/{name}": tensor for name, tensor in (state or {}).items()}
    family = {kind: name for name, kind in FAMILIES.items()}
    families = {name: family[type(q)] for name, q in posteriors.items()}
    made = coded(arrays, families, options or Options(1e-3), io.BytesIO())
    said = {"model": {}, "members": members, "posteriors": families} | made.description
    pieces, _ = packed(said | ({"tables": numbers} if numbers else {}), made.sections)
    return b"".join(bytes(piece.read()) for piece in pieces), {p.coding for p in made.parts}


def gaussians(*shape, kind=Gaussian, dtype=torch.float32, spread=1.0):
    mean, log_std = torch.randn(shape), torch.randn(shape) * spread - 4
    return kind(mean.to(dtype), log_std.to(dtype), 0.5)


def sparse(shape, structure, keep=0.4, kind=Sparse):
    units = to_units(torch.randn(shape), structure)
    index = torch.nonzero(torch.rand(len(units)) < keep).flatten()
    index = index if len(index) else torch.tensor([0])
    mean = units[index].clone()
    if kind is SparsePoint:
        return SparsePoint(index, mean, shape, 0.3, structure)
    return Sparse(index, mean, torch.randn_like(mean) - 3, shape, 0.3, structure)


def spikes(shape, granularity="weight", axis=0, spike_std=None):
    mean, log_std = torch.randn(shape), torch.randn(shape) - 3
    odds = torch.randn(shape if granularity == "weight" else shape[axis]) * 4
    more = (0.5, torch.tensor(-1.0), granularity, axis)
    if spike_std is None:
        return SpikeSlab(mean, log_std, odds, *more)
    return NarrowSpike(mean, log_std, odds, *more, spike_std=spike_std)


def shared(codebook, shape, support=None, stored=None, special=0):
    count = stored or int(np.prod(shape))
    label = torch.randint(len(codebook), (count,))
    places = torch.randperm(count)[: 2 * special]
    out, blend = places[:special].sort().values, places[special:].sort().values
    outliers = Outliers(out, torch.randn(len(out)), torch.randn(len(out)) - 3)
    pairs = torch.randint(len(codebook), (len(blend), 2))
    blends = Blends(blend, pairs, torch.rand(len(blend)))
    return Shared(codebook, label, shape, 0.4, outliers, blends, support)


def codebook(entries, draw="independent"):
    return Codebook(torch.randn(entries), torch.randn(entries) - 3, draw)


def every_file():
    """Files that have every family, structure and type; and every coding."""
    first, once = codebook(7), codebook(300, "shared")
    state = {
        "a.running_mean": torch.randn(50), "b.count": torch.tensor(3), "mask": torch.rand(9) > 0.5,
        "a.steps": torch.tensor([-(2**40), 5]), "c/d.short": torch.tensor([-3, 9]).short(),
        "tiny": torch.tensor([-128, 127]).char(), "byte": torch.arange(200).byte(),
        "": torch.ones(2),
        "e.half": torch.tensor([1e-7, -2.5, 65504.0]).half(), "e.wide": torch.randn(5).double(),
        "e.brain": torch.randn(4).bfloat16(), "none": torch.ones(0, 3), "one": torch.tensor(2.5),
        "rare": (torch.rand(4000) > 0.99).int() * 77, "exact": torch.tensor([1.1e-30, 3e38]),
    }  # fmt: skip
    dense = {
        "a.w": gaussians(30, 40), "a.b": gaussians(5), "b.w": gaussians(64, 3, 3, 3, spread=0.01),
        "flat": gaussians(90, kind=LogUniform), "p": Point(torch.randn(4, 5), 1.0),
        "big.mean": gaussians(3000, spread=3.0), "a-b": gaussians(3), "a/b": gaussians(2, 2),
    }  # fmt: skip
    packs = {
        f"{structure}.{k}": sparse(shape, structure, kind=kind)
        for structure in ("none", "block16", "channel")
        for kind in (Sparse, SparsePoint)
        for k, shape in enumerate([(48, 10), (36, 4, 3, 3), (7, 5), (40,)])
    }
    packs |= {"swapped": sparse((8, 6, 3), "transposed"), "large": sparse((300, 200), "none", 0.1)}
    gated = {
        "w": spikes((20, 30)), "in": spikes((6, 5, 3, 3), "input", 1),
        "out": spikes((9, 4), "output"),
        "narrow": spikes((8, 7), spike_std=1e-3), "first": spikes((5, 6), "input", 0, 0.01),
        "one": spikes((1,)),
    }  # fmt: skip
    index = torch.nonzero(torch.rand(100) < 0.5).flatten()
    rows = torch.tensor([0, 3, 4])
    books = {
        "a": shared(first, (40, 50), special=9), "b": shared(first, (10,)),
        "c": shared(once, (30, 30), special=20),
        "d": shared(first, (10, 10), Support(index, "none"), len(index)),
        "e": shared(once, (32, 6), Support(torch.tensor([1, 5, 9]), "block16"), 48, special=3),
        "f": shared(first, (4, 6, 2), Support(rows, "channel"), 24, special=2),
        "g": shared(first, (4, 6, 2), Support(rows, "transposed"), 3),
    }  # fmt: skip
    wide = {"w": gaussians(30, 20, dtype=torch.float64), "v": gaussians(9, dtype=torch.float16)}
    wide["u"] = gaussians(8, 9, dtype=torch.bfloat16)
    members = {f"members.{k}.w": gaussians(6, 7) for k in range(3)}
    for options in (Options(1e-3), Options(0.1), Options(1e-6), Options(1e-3, lossless=True)):
        yield file_of(dense, state, options)
        yield file_of(packs, None, options)
        yield file_of(gated, {"z": torch.ones(1)}, options)
        yield file_of(books, state, options)
        yield file_of(wide, None, options)
        yield file_of(members, {f"members.{k}.b": torch.randn(5) for k in range(3)}, options, 3)


def test_every_family_type_and_coding_is_read_alike(engine):
    codings = set()
    for data, used in every_file():
        assert_same_file(engine, data)
        codings |= used
    assert codings == CODINGS.keys()


def test_facts_and_names_of_any_script(engine):
    """Names are sorted by bytes, also beyond the characters of two bytes."""
    names = ["\ue000", "\U0001f600", "é\n", 'a"\\', "z" * 300]
    assert_same_file(engine, file_of({name: gaussians(3) for name in names})[0])


def assert_same_verdicts(program, files, share=1.0):
    """All files go through the engine; some of them through the library, too."""
    chance = random.Random(0)
    for data, verdict in zip(files, verdicts(program, files), strict=True):
        if chance.random() < share:
            assert accepts(data) == (verdict == "read"), verdict


def golden(name):
    return (GOLDEN / f"{name}.pocket").read_bytes()


def test_a_file_that_is_cut_short_is_refused(program):
    data = golden("v3-mean-field")
    files = [data[:size] for size in range(len(data))]
    assert "read" not in verdicts(program, files)
    assert_same_verdicts(program, [mended(part) for part in files], 0.1)


def test_no_flipped_bit_does_harm(program):
    """With the checksum mended some give other numbers, as in the library."""
    data = golden("v3-mean-field")
    assert_same_verdicts(program, list(flipped(data)), 0.1)
    wrong = [data[:k] + bytes([data[k] ^ 1]) + data[k + 1 :] for k in range(len(data))]
    assert "read" not in verdicts(program, wrong)


def test_attacks_on_the_library_fail_here_too(program):
    good = {"lossless": "v3-mean-field-lossless", "small": "v3-mean-field", "shared": "v3-sharing"}
    files = list(known_attacks({key: golden(name) for key, name in good.items()}))
    assert len(files) > 120
    assert_same_verdicts(program, files)


def test_what_would_hurt_is_refused_here_too_and_as_much_as_may_be_is_read(program):
    good = {key: golden(name) for key, name in {"lossless": "v3-mean-field-lossless",
            "sparse": "v3-subspace"}.items()}  # fmt: skip
    for attacks, is_read in ((HURTS, False), (BEARABLE, True)):
        found = verdicts(program, [made(attack, good) for attack in attacks.values()])
        said = dict(zip(attacks, found, strict=True))
        assert [name for name in attacks if (said[name] == "read") != is_read] == [], said


def test_files_are_short():
    for path in [*ENGINE.glob("*.c"), *ENGINE.glob("*.h")]:
        lines = path.read_text().splitlines()
        assert len(lines) <= 400, path.name
        for begin in (k for k, line in enumerate(lines) if re.match(r"[a-z].*\) {$", line)):
            assert lines.index("}", begin) - begin <= 51, f"{path.name}:{begin}"
