"""The fuzzer: what it forges is forged well, and what hurts is found."""

import os
import random
import sys
import time
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent / "benchmarks")]

import bounded  # noqa: E402
import forging  # noqa: E402
import fuzz  # noqa: E402
from good_files import own_network, taken_apart  # noqa: E402

import pocketbayes as pb  # noqa: E402
from pocketbayes.codec import files, json_texts, sections  # noqa: E402

GOLDEN = TESTS / "golden"
NAMES = ("v3-mean-field", "v3-subspace", "v3-sharing", "v3-mean-field-lossless")


@pytest.fixture(scope="module")
def good():
    return [taken_apart((GOLDEN / f"{name}.pocket").read_bytes()) for name in NAMES]


def test_what_is_sealed_again_is_read(good, tmp_path):
    for parts in good:
        description = forging.json.loads(parts.description)
        (tmp_path / "m").write_bytes(forging.sealed(description, parts.sections))
        assert pb.load(tmp_path / "m")
        raw = forging.stored_raw(description, parts.arrays)
        (tmp_path / "m").write_bytes(forging.sealed(description, raw))
        assert pb.load(tmp_path / "m")


def test_a_number_has_one_file_and_most_pass_the_checksum(good, tmp_path):
    said = []
    for number in range(300):
        made = forging.mutated(good[number % 4], random.Random(f"0-{number}"))
        assert made == forging.mutated(good[number % 4], random.Random(f"0-{number}"))
        (tmp_path / "m").write_bytes(made)
        try:
            pb.inspect(tmp_path / "m")
            said.append("")
        except pb.FormatError as error:
            said.append(str(error))
    assert sum("safetensors" in words or "checksum" in words for words in said) < 60
    assert sum(not words for words in said) > 10


def test_what_is_repeated_stays_short():
    old = "x" * 100_000
    made = [forging._json(forging._strange(old, random.Random(n))) for n in range(200)]
    assert 10 * len(old) < max(map(len, made)) < 2 * forging._LONGEST


def test_a_network_that_a_refused_file_changed_is_told(monkeypatch, tmp_path, good):
    def load(path, net=None, **options):
        if net is not None:
            net.output.weight.data[0, 0] += 1
        raise pb.FormatError("no")

    assert not fuzz.same(own_network(), torch.nn.Linear(6, 2))
    monkeypatch.setattr(pb, "load", load)
    found = fuzz.tried(good[0].data, tmp_path, "n", (fuzz.used,))
    assert found == "finding: AssertionError"


def first_finding(good, tmp_path, most=6000):
    """What the first finding is, as long as one has to look for it."""
    for number in range(most):
        made = forging.mutated(good[number % 4], random.Random(f"1-{number}"))
        found = fuzz.tried(made, tmp_path / "findings", str(number), fuzz.READERS)
        if found.startswith("finding"):
            assert (tmp_path / "findings" / f"{number}.pocket").read_bytes() == made
            return found
    return None


@pytest.mark.parametrize(
    ("module", "name", "value", "kinds", "finding"),
    [
        (json_texts, "_require_sound", lambda *_: None, (forging._nest, forging._alter), "Error"),
        (sections, "_LEAST_WEIGHTS", 1 << 60, ("arrays",), "MemoryError"),
        (files, "require_head", lambda *_: None, (forging._claim,), "KeyError"),
    ],
    ids=["nesting and text", "weights", "heads"],
)
def test_a_hole_is_found(module, name, value, kinds, finding, good, tmp_path, monkeypatch):
    """Each bound, taken away, is missed; by changes of some kinds, for others take as long."""
    monkeypatch.setattr(forging, "_KINDS", kinds)
    bounded.end_on_alarm()
    monkeypatch.setattr(module, name, value)
    found = first_finding(good, tmp_path)
    assert found is not None
    assert finding in found


def test_what_ends_the_process_or_takes_too_much_is_known(monkeypatch):
    def work(number):
        if number == 3:
            os.kill(os.getpid(), 9)
        return f"{number}"

    assert bounded.in_a_child(work, 0, 9) == ["0", "1", "2"]
    assert bounded.in_a_child(lambda n: str(n), 4, 2) == ["4", "5"]
    monkeypatch.setattr(bounded, "ROOM", 1 << 28)
    assert bounded.in_a_child(lambda _: str(len(bytearray(1 << 30))), 0, 1) == []


def test_what_hangs_is_killed(monkeypatch):
    monkeypatch.setattr(bounded, "DEAD", 1)
    assert bounded.in_a_child(lambda n: "a" if n == 0 else time.sleep(100), 0, 2) == ["a"]


def test_what_waits_is_a_finding(monkeypatch, tmp_path):
    bounded.end_on_alarm()
    monkeypatch.setattr(fuzz, "_HANGS", 1)
    assert fuzz.tried(b"", tmp_path, "n", (lambda _: time.sleep(50),)) == "finding: TooLong"
