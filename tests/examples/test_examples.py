"""The scripts in `examples/` do what they say, with few epochs."""

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Loads an example by name, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def loaded(name: str):
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.fixture
def _their_warnings():
    """Other libraries warn of workers, devices and deprecations of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_a_plain_loop(example):
    record = example("plain_loop").main(epochs=4)
    assert record.accuracy > 0.85
    assert Path("plain_loop.pocket").stat().st_size < 20_000


@pytest.mark.usefixtures("_their_warnings")
def test_a_lightning_trainer(example):
    pytest.importorskip("lightning.pytorch")
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    metrics = example("lightning_trainer").main(epochs=4, **quiet, enable_model_summary=False)
    assert metrics["test_accuracy"] > 0.7
    assert Path("lightning.pocket").stat().st_size < 8_000


@pytest.mark.usefixtures("_their_warnings")
def test_a_trainer_of_hugging_face(example):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    record = example("hugging_face").main(epochs=4)
    assert record.accuracy > 0.8
    assert Path("bert.pocket").exists()


def test_shards(example, monkeypatch):
    module = example("shards")
    torch.manual_seed(0)
    result = module.main(epochs=6, shards=4, rows=50)
    assert result.steps == 6 * 4
    assert result.history[-1]["nll"] < result.history[0]["nll"] - 0.05
    files = module.write_shards(Path("some"), 4, 5)
    whole = module.Shards(files, 20)
    assert len({tuple(x.tolist()) for x, _ in whole}) == 20
    read = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        read.append({tuple(x.tolist()) for x, _ in whole})
    assert [len(part) for part in read] == [10, 10]
    assert not read[0] & read[1]


def test_every_example_is_tested_and_named_in_the_guide():
    text = Path(__file__).read_text()
    guide = "".join(page.read_text() for page in (EXAMPLES.parent / "docs").glob("*.md"))
    for path in EXAMPLES.glob("*.py"):
        assert f'example("{path.stem}")' in text
        assert f"examples/{path.name}" in guide
