"""From the bytes of a file to an open model: facts, defaults and refusals."""

import ctypes as ct
import json

import pytest
import torch
from built import COptions
from program_models import GOLDEN

import pocketbayes as pb
from pocketbayes.codec.files import described

FILES = sorted(p.name for p in GOLDEN.glob("program-*.pocket"))


class Loaded:
    def __init__(self, library, data, draws=10):
        error = ct.create_string_buffer(256)
        library.pocket_load.restype = library.pocket_again.restype = ct.c_void_p
        library.pocket_fact.restype = ct.c_size_t
        options = COptions(draws, 0)
        self.library = library
        self.handle = library.pocket_load(data, ct.c_size_t(len(data)), ct.byref(options), error)
        self.error = error.value.decode()

    def __del__(self):
        self.library.pocket_close(self.handle)

    def fact(self, name=None):
        ask = ct.c_void_p(self.handle), None if name is None else name.encode()
        size = self.library.pocket_fact(*ask, None, ct.c_size_t(0))
        text = ct.create_string_buffer(size + 1)
        assert self.library.pocket_fact(*ask, text, ct.c_size_t(size + 1)) == size
        assert len(text.value) == size
        return json.loads(text.value)


@pytest.mark.parametrize("name", FILES)
def test_facts_of_golden_files(library, name):
    model = Loaded(library, (GOLDEN / name).read_bytes())
    assert model.handle, model.error
    known = described(GOLDEN / name).to_facts()
    assert {k: v for k, v in model.fact().items() if v is not None} == {
        k: list(v) if isinstance(v, tuple) else v for k, v in known.items() if v is not None
    }
    assert model.fact("likelihood") == known["likelihood"]
    assert model.fact("nothing") is None
    assert library.pocket_members(ct.c_void_p(model.handle)) == (5 if "ensemble" in name else 1)
    default = library.pocket_default(ct.c_void_p(model.handle))
    other = {"head": 1, "ensemble": 0, "program-gaussian.pocket": 2}
    assert default == next((code for part, code in other.items() if part in name), 3)


def test_texts_with_quotes_and_letters_of_all_kinds(library, tmp_path):
    model = pb.bayesianize_(pb.models.build_network("mlp", input_shape=(3,), num_outputs=2))
    names = ('a "quote"', "tab\t\\ äöü 漢字 \U0001f600")
    pb.layers.update_description(model, class_names=names, preprocess={"mean": [0.1, 1e-300, -3]})
    pb.save(model, tmp_path / "m.pocket", example=torch.zeros(1, 3))
    found = Loaded(library, (tmp_path / "m.pocket").read_bytes())
    assert tuple(found.fact("class_names")) == names
    assert found.fact("preprocess") == {"mean": [0.1, 1e-300, -3]}


def test_a_file_without_a_program_says_how_to_get_one(library):
    found = Loaded(library, (GOLDEN / "v3-mean-field.pocket").read_bytes())
    assert not found.handle
    assert "pb.save(model, path, example=x)" in found.error


def test_cut_files_are_refused(library):
    data = (GOLDEN / "program-head.pocket").read_bytes()
    for size in range(0, len(data), 97):
        found = Loaded(library, data[:size])
        assert not found.handle
        assert found.error
