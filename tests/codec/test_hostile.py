"""Files that would load and then hurt are refused, by `load` and `inspect` alike."""

import os
import signal
import socket
import time
import warnings
from pathlib import Path

import pytest
import torch
from hostile_files import BEARABLE, HURTS, crafted, forged, made, of_shape, with_model
from torch import nn

import pocketbayes as pb
from pocketbayes.codec import described, sections
from pocketbayes.layers import Description, Ensemble, describe, update_description
from pocketbayes.models import build_network

GOLDEN = Path(__file__).parents[1] / "golden"
GOOD = {"lossless": "v3-mean-field-lossless", "sparse": "v3-subspace", "shared": "v3-sharing"}
READERS = (pb.load, pb.inspect)


@pytest.fixture(scope="module")
def good():
    return {key: (GOLDEN / f"{name}.pocket").read_bytes() for key, name in GOOD.items()}


@pytest.mark.parametrize("attack", HURTS)
@pytest.mark.parametrize("read", READERS)
def test_a_file_that_would_hurt_is_refused_at_once(attack, read, good, tmp_path):
    path = tmp_path / "m.pocket"
    path.write_bytes(made(HURTS[attack], good))
    begin = time.process_time()
    with pytest.raises(pb.FormatError, match=r"m\.pocket"):
        read(path)
    assert time.process_time() - begin < 2


@pytest.mark.parametrize("attack", BEARABLE)
def test_as_much_as_may_be_is_read(attack, good, tmp_path):
    path = tmp_path / "m.pocket"
    path.write_bytes(made(BEARABLE[attack], good))
    pb.inspect(path)


def test_the_caller_may_allow_more_weights_or_less(good, tmp_path):
    path = tmp_path / "m.pocket"
    path.write_bytes(forged(good["sparse"], of_shape(1 << 29)))
    with pytest.raises(pb.FormatError, match=r"more than 268,435,456 weights.*raise max_weights"):
        pb.inspect(path)
    assert pb.inspect(path, max_weights=1 << 30).weights > 1 << 29
    path.write_bytes(good["sparse"])
    weights = pb.inspect(path).weights
    assert pb.load(path, max_weights=weights)
    for read in READERS:
        with pytest.raises(pb.FormatError, match=f"more than {weights - 1:,} weights"):
            read(path, max_weights=weights - 1)
        with pytest.raises(pb.PocketBayesError, match="max_weights must be a whole number"):
            read(path, max_weights=0)


def test_save_warns_of_a_file_that_load_refuses(tmp_path, monkeypatch):
    model, path = pb.bayesianize_(nn.Linear(40, 30)), tmp_path / "m.pocket"
    monkeypatch.setattr(sections, "_WEIGHTS_PER_BYTE", 0)
    monkeypatch.setattr(sections, "_LEAST_WEIGHTS", 1199)
    with pytest.warns(UserWarning, match=r"1,200 weights.* take 1,199 .*max_weights=1200"):
        pb.save(model, path)
    with pytest.raises(pb.FormatError, match="more than 1,199 weights"):
        pb.load(path, nn.Linear(40, 30))
    assert pb.load(path, nn.Linear(40, 30), max_weights=1200)
    monkeypatch.setattr(sections, "_LEAST_WEIGHTS", 1200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pb.save(model, path)
    assert pb.load(path, nn.Linear(40, 30))


@pytest.mark.parametrize("weights", [124_439_808, 86_567_656], ids=["gpt2", "vit-b"])
def test_honest_big_models_are_small_enough(weights, good, tmp_path):
    (tmp_path / "m.pocket").write_bytes(forged(good["sparse"], of_shape(weights // 16, 16)))
    assert pb.inspect(tmp_path / "m.pocket").weights >= weights


@pytest.mark.parametrize(
    "role", ["label", "outlier", "outlier_mean", "blend", "blend_label", "blend_share", "index"]
)
def test_an_array_without_an_axis_is_refused(role, good, tmp_path):
    def change(description, arrays):
        name = next(name for name in arrays if name.endswith(f"/{role}"))
        arrays[name] = arrays[name].new_zeros(())

    (tmp_path / "m.pocket").write_bytes(forged(good["shared"], change))
    for read in READERS:
        with pytest.raises(pb.FormatError, match=r"m\.pocket"):
            read(tmp_path / "m.pocket")


def test_no_message_repeats_all_of_a_long_name(good, tmp_path):
    def change(description, sections):
        description["model"]["network"]["options"]["x" * 100_000] = 1

    (tmp_path / "m.pocket").write_bytes(crafted(good["lossless"], change))
    with pytest.raises(pb.FormatError) as caught:
        pb.load(tmp_path / "m.pocket")
    assert len(str(caught.value)) < 2000


def test_no_message_drives_a_terminal(good, tmp_path):
    def change(description, sections):
        description["posteriors"]["\x1b[31m"] = "red"

    (tmp_path / "m.pocket").write_bytes(crafted(good["lossless"], change))
    for read in READERS:
        with pytest.raises(pb.FormatError, match=r"posterior/\\x1b\[31m: no family is called"):
            read(tmp_path / "m.pocket")


@pytest.mark.parametrize("name", ["\ud800", "a\0"])
def test_names_that_no_reader_takes_are_not_written(name, tmp_path):
    model = pb.bayesianize_(nn.Linear(2, 2))
    pb.layers.description.update_description(model, class_names=(name, "b"))
    with pytest.raises(pb.FormatError, match="no text"):
        pb.save(model, tmp_path / "m.pocket")
    assert list(tmp_path.iterdir()) == []


def test_what_is_nested_too_deep_is_not_taken(tmp_path):
    deep = []
    for _ in range(2000):
        deep = [deep]
    model = pb.bayesianize_(nn.Linear(2, 2))
    with pytest.raises(pb.PocketBayesError, match="must be JSON"):
        pb.layers.description.update_description(model, preprocess={"a": deep})


@pytest.fixture
def soon():
    """Ends whatever waits."""

    def end(*_):
        raise TimeoutError("it blocks")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "directory", "link"])
def test_what_is_no_file_is_refused_and_does_not_block(kind, tmp_path, soon):
    path, words = tmp_path / "m.pocket", {"link": "pipe"}.get(kind, kind)
    listener = socket.socket(socket.AF_UNIX)
    if kind == "socket":
        listener.bind(str(path))
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path = Path("/dev/zero")
    else:
        os.mkfifo(tmp_path / "pipe" if kind == "link" else path)
    if kind == "link":
        path.symlink_to("pipe")
    for read in (*READERS, described):
        with pytest.raises(pb.FormatError, match=f"it is a {words}, not a file"):
            read(path)
    listener.close()


def test_a_link_to_a_file_is_read(good, tmp_path):
    (tmp_path / "m.pocket").write_bytes(good["lossless"])
    (tmp_path / "link").symlink_to("m.pocket")
    assert described(tmp_path / "link").network["name"] == "mlp"
    assert pb.load(tmp_path / "link")


def test_a_model_that_is_read_copes_with_what_it_says(good, tmp_path):
    """What `load` takes can be described, stored and told: as deep as it may be."""
    path = tmp_path / "m.pocket"
    path.write_bytes(made(BEARABLE["nested"], good))
    model = pb.load(path)
    pb.save(model, tmp_path / "n.pocket")
    assert str(pb.inspect(tmp_path / "n.pocket"))


def test_odd_numbers_of_training_are_refused_or_left_out(good, tmp_path):
    path = tmp_path / "m.pocket"
    path.write_bytes(crafted(good["lossless"], with_model(decay_std=1e308)))
    with pytest.raises(pb.FormatError, match="decay_std"):
        pb.inspect(path)
    training = {"method": "mean-field", "lr": None, "epochs": 3}
    path.write_bytes(crafted(good["lossless"], with_model(training=training)))
    assert "mean-field, epochs 3" in str(pb.inspect(path))


def test_what_a_file_says_is_not_copied_for_every_member(tmp_path):
    """100,000 names in a file of five members, in 3 seconds of the processor: 7 when copied."""
    x = torch.randn(8, 6)
    net = build_network("mlp", input_shape=(6,), num_outputs=2, hidden=(8,))
    method = pb.DeepEnsemble(members=5)
    data = [(x, (x[:, 0] > 0).long())]
    model = pb.fit(pb.bayesianize_(net), data, method, epochs=1, progress=False).model
    columns = [{"name": f"column {n}"} for n in range(100_000)]
    update_description(model, preprocess={"kind": "table", "columns": columns})
    pb.save(model, tmp_path / "m.pocket")
    begin = time.process_time()
    again = pb.load(tmp_path / "m.pocket")
    assert time.process_time() - begin < 3
    assert describe(again).preprocess["columns"][-1] == {"name": "column 99999"}


def test_what_a_file_says_is_not_written_out_for_every_member(tmp_path, monkeypatch):
    """40 members and 2 MB of class names took `load` 8 seconds, and 4,000 of them 1,000."""
    path, calls = tmp_path / "m.pocket", []
    to_json = Description.to_json
    monkeypatch.setattr(Description, "to_json", lambda self: calls.append(self) or to_json(self))
    counts = []
    for members in (2, 20):
        nets = [pb.bayesianize_(nn.Linear(1, 1)) for _ in range(members)]
        pb.save(Ensemble(nets), path)
        calls.clear()
        pb.load(path, nn.Linear(1, 1))
        counts.append(len(calls))
    assert counts[0] == counts[1] < 4
