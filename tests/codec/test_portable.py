"""The section `program` in files: kept, checked, written anew, never believed."""

import copy
import hashlib
import io
import json
import warnings

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from program_models import GOLDEN, KNOWN, MLP, NAMES, Residual, example, network
from torch import nn
from traced import mean_outputs

import pocketbayes as pb
from pocketbayes.codec.container import unpacked
from pocketbayes.codec.contents import contents_of
from pocketbayes.codec.header import header_of
from pocketbayes.codec.portable import portable_in
from pocketbayes.codec.sections import posteriors_in
from pocketbayes.layers import members_of, noting
from pocketbayes.models import build_network
from pocketbayes.programs import decoded, encoded, run, weight_names

X = example("mean-field")


def fresh():
    torch.manual_seed(0)
    return pb.bayesianize_(build_network("mlp", **MLP))


def read_without_network(data):
    """Program, numbers of weights and outputs for each member, by the sections alone."""
    file = unpacked(io.BytesIO(data))
    contents = contents_of(file)
    header = header_of(contents)
    means = {n: q.expectation().detach() for n, q in posteriors_in(contents, header)}
    found = portable_in(contents, header, {n: m.shape for n, m in means.items()})
    means |= {name: contents.take(f"state/{name}") for name in header.state}
    names = weight_names(header.posteriors, header.state, header.members)
    prefixes = [f"members.{k}." for k in range(header.members)] if header.members > 1 else [""]
    arrays = [
        {i: means[prefix + name].float().numpy() for i, name in enumerate(names)}
        for prefix in prefixes
    ]
    return found.program, arrays


@pytest.mark.parametrize("name", NAMES)
def test_golden_files_are_read_without_their_network(name):
    """Nothing of torch's layers is used: sections, program and the reference suffice."""
    known = json.loads(KNOWN.read_text())[name]
    program, arrays = read_without_network((GOLDEN / f"program-{name}.pocket").read_bytes())
    inputs = np.array(known["input"], np.float32)
    given = [[run(program, member, x).output for x in inputs] for member in arrays]
    np.testing.assert_allclose(given, known["mean_outputs"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_golden_files_load_and_are_written_the_same_for_ever(name, tmp_path):
    known = json.loads(KNOWN.read_text())[name]
    path = GOLDEN / f"program-{name}.pocket"
    assert pb.inspect(path).sha256 == known["sha256"]
    model = pb.load(path, network(name))
    x = torch.tensor(known["input"])
    given = torch.stack([mean_outputs(member, x) for member in members_of(model)])
    torch.testing.assert_close(given, torch.tensor(known["mean_outputs"]))
    pb.save(model, tmp_path / "again.pocket", tolerance=1e-3)
    assert (tmp_path / "again.pocket").read_bytes() == path.read_bytes()


def test_every_golden_file_is_known():
    there = {path.name for path in GOLDEN.glob("program-*.pocket")}
    assert there == {f"program-{name}.pocket" for name in json.loads(KNOWN.read_text())}


@pytest.mark.parametrize("lossless", [True, False])
def test_the_reference_gives_the_mean_prediction(lossless, tmp_path):
    model = pb.load(GOLDEN / "program-spike-slab.pocket")
    pb.save(model, tmp_path / "m.pocket", example=X[:1], lossless=lossless)
    program, (arrays,) = read_without_network((tmp_path / "m.pocket").read_bytes())
    logits = torch.tensor(np.stack([run(program, arrays, x).output for x in X.numpy()]))
    expected = pb.predict(pb.load(tmp_path / "m.pocket"), X, 1, estimator="mean")
    torch.testing.assert_close(logits.softmax(1), expected.probs, rtol=0, atol=1e-5)


def test_a_program_changes_nothing_else(tmp_path):
    model = fresh()
    plain = pb.save(model, tmp_path / "plain.pocket")
    size = pb.save(model, tmp_path / "m.pocket", example=X)
    assert plain.program is None
    assert size.program == pb.inspect(tmp_path / "m.pocket").program
    assert 0 < size.bytes - plain.bytes < 120
    assert size.program["inputs"] == [[6]]
    assert size.program["output"] == [3]
    assert size.program["operations"] == 5
    assert "5 operations, 24 bytes, for inputs of 6" in str(size)
    assert "program          -" in str(plain)
    first, second = (pb.load(tmp_path / f"{name}.pocket") for name in ("plain", "m"))
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))
    with safetensors.safe_open(tmp_path / "m.pocket", "pt") as file:
        data = file.get_tensor("program").numpy().tobytes()
    assert encoded(decoded(data)) == data
    assert len(data) == 24


def test_a_model_without_a_program_stays_without(tmp_path):
    pb.save(fresh(), tmp_path / "m.pocket")
    assert pb.save(pb.load(tmp_path / "m.pocket"), tmp_path / "n.pocket").program is None


def test_a_changed_network_gets_a_program_of_its_own(tmp_path):
    """Shrinking takes channels away, of shortcuts too, whose numbers stand in the program."""
    torch.manual_seed(0)
    net = Residual()
    net.padded.conv2.weight.data[4:] = 0  # channels that only the padding of the shortcut feeds
    net.padded.bn2.bias.data[4:] = 0
    x = example("residual")
    pb.save(pb.bayesianize_(net, exclude="padded.*"), tmp_path / "m.pocket", example=x)
    model = pb.load(tmp_path / "m.pocket", Residual())
    small = pb.shrink(model, x)
    size = pb.save(small, tmp_path / "n.pocket")
    before, after = (
        read_without_network((tmp_path / f"{name}.pocket").read_bytes()) for name in "mn"
    )
    assert before[0] != after[0]
    assert size.program["products"] < pb.inspect(tmp_path / "m.pocket").program["products"]
    given = np.stack([run(after[0], after[1][0], one).output for one in x.numpy()])
    np.testing.assert_allclose(given, mean_outputs(small, x).numpy(), atol=1e-2)


def test_another_activation_is_never_forgotten(tmp_path):
    path = GOLDEN / "program-mean-field.pocket"
    model = pb.load(path)
    pb.save(model, tmp_path / "m.pocket")
    name = next(n for n, m in model.named_modules() if isinstance(m, nn.ReLU))
    setattr(model, name, nn.Tanh())
    pb.save(model, tmp_path / "n.pocket")
    program, _ = read_without_network((tmp_path / "n.pocket").read_bytes())
    assert "tanh" in [step.name for step in program.operations]


def test_a_network_that_has_no_program_any_more_is_written_without(tmp_path):
    model = pb.load(GOLDEN / "program-mean-field.pocket")
    name = next(n for n, m in model.named_modules() if isinstance(m, nn.ReLU))

    class Strange(nn.Module):
        def forward(self, x):
            return x.cumsum(1)

    setattr(model, name, Strange())
    with pytest.warns(UserWarning, match=r"without the program.*'cumsum'"):
        size = pb.save(model, tmp_path / "m.pocket")
    assert size.program is None
    with pytest.raises(pb.ProgramError, match="'cumsum'"):
        pb.save(model, tmp_path / "n.pocket", example=X)
    assert not (tmp_path / "n.pocket").exists()


def test_copies_and_pickles_keep_it(tmp_path):
    model = copy.deepcopy(pb.load(GOLDEN / "program-mean-field.pocket"))
    assert pb.save(model, tmp_path / "m.pocket").program is not None


def test_a_network_of_ones_own_forgets_the_program_of_an_earlier_file(tmp_path):
    net = Residual()
    pb.save(pb.bayesianize_(Residual()), tmp_path / "m.pocket")
    model = pb.load(tmp_path / "m.pocket", net)
    assert pb.save(model, tmp_path / "n.pocket").program is None


def test_places_are_what_a_head_reads():
    path = GOLDEN / "program-head.pocket"
    model = pb.load(path)
    program, (arrays,) = read_without_network(path.read_bytes())
    with noting() as notes:
        mean_outputs(model, X)
    assert len(program.places) == len(notes) > 0
    for place, expected in enumerate(notes.values()):
        given = np.stack([run(program, arrays, x).places[place] for x in X.numpy()])
        np.testing.assert_allclose(given, expected.numpy(), atol=1e-5)


def test_a_stale_head_has_no_places(tmp_path):
    model = pb.load(GOLDEN / "program-head.pocket")
    with torch.no_grad():
        next(model.parameters()).add_(0.1)
    with pytest.warns(UserWarning, match="have changed since distill_"):
        pb.save(model, tmp_path / "m.pocket")
    program, _ = read_without_network((tmp_path / "m.pocket").read_bytes())
    assert program.places == ()


def test_a_wrapped_model_has_the_program_of_what_is_inside(tmp_path):
    model = nn.DataParallel(fresh())
    assert pb.save(model, tmp_path / "m.pocket", example=X).program["operations"] == 5


def with_program(data, program):
    """The file with another program and a right checksum."""
    tensors = safetensors.torch.load(data)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    said = json.loads(header["__metadata__"]["pocketbayes"]) | {"sha256": "0" * 64}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    tensors["program"] = torch.tensor(list(program), dtype=torch.uint8)
    made = safetensors.torch.save(tensors, {"pocketbayes": text})
    return made.replace(b"0" * 64, hashlib.sha256(made).hexdigest().encode(), 1)


HEAD = (GOLDEN / "program-head.pocket").read_bytes()
PROGRAM = safetensors.torch.load(HEAD)["program"].numpy().tobytes()


def refused(data, path):
    path.write_bytes(data)
    for read in (pb.load, pb.inspect):
        with pytest.raises(pb.FormatError, match=r"m\.pocket.*section program") as caught:
            read(path)
    return str(caught.value)


def test_the_forger_himself_is_right(tmp_path):
    (tmp_path / "m.pocket").write_bytes(with_program(HEAD, PROGRAM))
    assert pb.inspect(tmp_path / "m.pocket").program["operations"] == 5


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"", "cut short"),
        (PROGRAM[:-1], "cut short"),
        (PROGRAM + b"\0", "follows"),
        (b"\2" + PROGRAM[1:], "version"),
        (PROGRAM.replace(b"\1\6", b"\1\7", 1), r"operation 0 \(linear\)"),
        (PROGRAM[:-5] + b"\0", "places|output"),
        (b"\1" * 70_000, "65,536"),
    ],
)
def test_forged_programs_are_refused(program, message, tmp_path):
    found = refused(with_program(HEAD, program), tmp_path / "m.pocket")
    assert any(part.replace("\\", "") in found for part in message.split("|"))


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, len(PROGRAM) - 1), value=st.integers(0, 255))
def test_forged_bytes_are_refused_or_change_no_prediction(place, value, tmp_path_factory):
    """`load` builds its own network: whatever the program says, it predicts as before."""
    path = tmp_path_factory.mktemp("forged") / "m.pocket"
    path.write_bytes(with_program(HEAD, PROGRAM[:place] + bytes([value]) + PROGRAM[place + 1 :]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = pb.load(path)
    except pb.FormatError as error:
        assert "section program" in str(error)  # noqa: PT017
    else:
        expected = torch.tensor(json.loads(KNOWN.read_text())["head"]["mean_outputs"][0])
        torch.testing.assert_close(mean_outputs(model, X), expected)


def test_the_checksum_covers_the_program(tmp_path):
    place = HEAD.index(PROGRAM)
    for byte in (place, place + len(PROGRAM) - 1):
        harmed = HEAD[:byte] + bytes([HEAD[byte] ^ 4]) + HEAD[byte + 1 :]
        (tmp_path / "m.pocket").write_bytes(harmed)
        with pytest.raises(pb.FormatError, match="checksum"):
            pb.load(tmp_path / "m.pocket")
