"""`pocketbayes export` and `bench` of files that stand alone."""

import pytest
import torch
from program_models import GOLDEN

import pocketbayes as pb
from pocketbayes.commands.bench import BenchOptions, run_bench
from pocketbayes.commands.export import ExportOptions, run_export
from pocketbayes.commands.flags import UsageError
from pocketbayes.data import table_from_file
from pocketbayes.deploy import c_exporting
from pocketbayes.layers import update_description
from pocketbayes.models import build_network

TABLE = {"kind": "table", "target": {"name": "y", "mean": 5.0, "std": 2.0}, "columns": [
    {"name": "size", "mean": 2.0, "std": 3.0}, {"name": "kind", "values": ["a", "b"]}]}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    torch.manual_seed(0)
    model = pb.bayesianize_(build_network("mlp", input_shape=(3,), num_outputs=1, hidden=(4,)))
    update_description(model, likelihood="gaussian", preprocess=TABLE)
    pb.save(model, tmp_path / "m.pocket")
    (tmp_path / "rows.csv").write_text("kind,size\na,1\nb,7\n")  # no target
    return tmp_path / "m.pocket"


def test_rows_of_a_file_are_the_examples(file, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(c_exporting, "measured", lambda *_: None)
    monkeypatch.setattr(c_exporting, "compared", lambda *given: seen.append(given[2].example))
    for data in (None, "csv"):
        options = ExportOptions(to="c", data=data, file=tmp_path / "rows.csv", estimator="mean")
        with pytest.warns(UserWarning, match="noise_log_std"):
            run_export(file, tmp_path / "m.c", options)
    expected = table_from_file(tmp_path / "rows.csv", TABLE).inputs
    assert all(x.equal(expected) for x in seen)
    assert len(seen) == 2


def test_a_bare_file_says_that_it_needs_its_table(file, tmp_path):
    match = r"m\.pocket does not tell which table .* say --file TABLE.* directory of its run"
    with pytest.raises(UsageError, match=match):
        run_export(file, tmp_path / "m.c", ExportOptions(to="c", data="csv"))
    with pytest.raises(UsageError, match=match):
        run_export(file, tmp_path / "page", ExportOptions(to="web", data="csv"))
    with pytest.raises(UsageError, match=match):
        run_bench(file, BenchOptions(data="csv"))
    wrong = ExportOptions(to="c", data="digits", file=tmp_path / "rows.csv")
    with pytest.raises(UsageError, match="--data is digits"):
        run_export(file, tmp_path / "m.c", wrong)
    other = ExportOptions(to="c", file=tmp_path / "rows.csv")
    with pytest.raises(UsageError, match="for a model of rows; this model has others"):
        run_export(GOLDEN / "program-head.pocket", tmp_path / "m.c", other)


@pytest.mark.parametrize("to", ["onnx", "c"])
def test_a_program_alone_is_not_enough_for_onnx_and_c(tmp_path, to):
    x = torch.randn(2, 2, 8, 8)
    with pytest.raises(pb.PocketBayesError, match=r"carries a program .* pb\.load\(path, net\)"):
        pb.export(GOLDEN / "program-residual.pocket", tmp_path / "m", to=to, example=x)
