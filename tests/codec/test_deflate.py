"""The description as DEFLATE: any reader's, and always the same bytes."""

import hashlib
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pocketbayes as pb
from pocketbayes.codec.deflate import (
    MOST,
    MOST_ANYWAY,
    MOST_PER_BYTE,
    deflated,
    inflated,
    most_text,
)

NAMES = b"".join(
    b'"layer%d.conv%d.weight":{"mean":"64x64x3x3"},' % (k // 2, k % 2) for k in range(40)
)


def by_zlib(text):
    made = zlib.compressobj(9, wbits=-15)
    return made.compress(text) + made.flush()


@given(st.one_of(st.binary(max_size=600), st.text("ab{", max_size=900).map(str.encode)))
def test_any_text_comes_back(text):
    data = deflated(text)
    assert zlib.decompress(data, -15) == text
    assert inflated(data) == text
    assert inflated(by_zlib(text)) == text


@pytest.mark.parametrize(
    "text", [bytes(random.Random(k).choices(b"abcd", k=n)) for k, n in enumerate((9**5, 40_000))]
)
def test_long_texts_come_back(text):
    assert zlib.decompress(deflated(text), -15) == text


def test_every_length_and_distance_comes_back():
    noise = random.Random(0).randbytes(2**15)
    for length in range(3, 300):
        text = noise[:300] + noise[:length]
        assert zlib.decompress(deflated(text), -15) == text


@pytest.mark.parametrize("distance", [300, 2**12, 2**13 + 1, 2**14 - 1, 2**15 - 1, 2**15])
def test_what_comes_again_is_found_as_far_back_as_a_reader_looks(distance):
    noise = random.Random(0).randbytes(distance)
    text = noise + noise[:250]
    assert zlib.decompress(deflated(text), -15) == text
    assert len(deflated(text)) < len(deflated(noise)) + 9


def test_what_is_farther_away_is_not_found():
    noise = random.Random(0).randbytes(2**15 + 1)
    text = noise + noise[:250]
    assert zlib.decompress(deflated(text), -15) == text
    assert len(deflated(text)) > len(deflated(noise)) + 250


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (b"", "0300"),
        (b"a", "4b0400"),
        (b"aaaaaaaaaa", "4b840300"),
        (b"abcabcabcabcabcabc", "4b4c4a464300"),
        (bytes([200, 200]), "3b710200"),
        (b"abcdefgh-abcdefgh-xabcdefgh", "4b4c4a4e494d4bcfd085332a602c00"),
    ],
)
def test_the_bytes_are_those_of_the_document(text, data):
    assert zlib.decompress(bytes.fromhex(data), -15) == text
    assert deflated(text).hex() == data


def texts():
    """Long ones, in which a writer has to choose: ties, many places, long matches, wide bytes."""
    chance = random.Random(14)
    noise = chance.randbytes(258)
    yield "letters", bytes(chance.choices(b"abcd", k=4000))
    yield "names", NAMES + NAMES[500:] + NAMES[::-1]
    yield "wide bytes", bytes(chance.choices([7, 150, 200, 255], k=2000))
    yield "beginnings", b"".join(noise[: chance.randint(3, 258)] for _ in range(200))
    yield "one letter", b"a" * 200_000


PINNED = {
    "letters": (1861, "8b310594e3d54648"),
    "names": (385, "789ccc4f598ea384"),
    "wide bytes": (993, "7f15d97639f8c837"),
    "beginnings": (846, "37ce99b2be481991"),
    "one letter": (12_504, "dbfd9a180adfa3ee"),
}


@pytest.mark.parametrize(("name", "text"), list(texts()), ids=list(PINNED))
def test_the_bytes_are_the_same_for_ever(name, text):
    data = deflated(text)
    assert zlib.decompress(data, -15) == text
    assert (len(data), hashlib.sha256(data).hexdigest()[:16]) == PINNED[name]


def test_names_shrink_as_far_as_with_zlib():
    assert len(deflated(NAMES)) < 1.25 * len(by_zlib(NAMES))
    assert len(deflated(NAMES)) < len(NAMES) / 6


@pytest.mark.parametrize("count", [MOST_ANYWAY, MOST_ANYWAY + 1, 3 * MOST_ANYWAY + 7])
def test_what_shrinks_too_far_is_filled_up(count):
    data = deflated(b"a" * count)
    assert inflated(data) == b"a" * count
    least = count / MOST_PER_BYTE if count > MOST_ANYWAY else 0
    assert least <= len(data) < max(least + 5, 1000)


def test_no_text_is_longer_than_its_data_allow():
    assert most_text(0) == most_text(MOST_ANYWAY // MOST_PER_BYTE) == MOST_ANYWAY
    assert most_text(10**5) == 16 * 10**5
    assert most_text(10**9) == MOST == 16 * 10**6
    assert inflated(by_zlib(b"a" * MOST_ANYWAY)) == b"a" * MOST_ANYWAY
    with pytest.raises(pb.FormatError, match="longer than 65,536 bytes"):
        inflated(by_zlib(b"a" * (MOST_ANYWAY + 1)))
    with pytest.raises(pb.FormatError, match="longer than"):
        inflated(by_zlib(b"a" * 10**8))


@pytest.mark.parametrize(
    "harm",
    [lambda d: d[:-1], lambda d: d + b"0", lambda d: b"\xff" + d, lambda d: b"", lambda d: d[1:]],
)
def test_harmed_data_are_refused(harm):
    with pytest.raises(pb.FormatError):
        inflated(harm(deflated(NAMES)))
