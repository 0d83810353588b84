"""The page about models: what it says, that it loads nothing, and that a browser shows it."""

import base64
import json
import re
import shutil
import subprocess
import warnings
from dataclasses import replace
from html import escape, unescape
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pocketbayes as pb
from pocketbayes.cli import app
from pocketbayes.codec import inspect
from pocketbayes.commands.flags import UsageError
from pocketbayes.commands.report import distinct_names
from pocketbayes.data import MemoryLoader, open_dataset
from pocketbayes.models import build_network
from pocketbayes.prediction.evaluation import answered, record_of
from pocketbayes.report import Findings, answers_of, report_page
from pocketbayes.report.charts import _classes as class_chart
from pocketbayes.report.charts import _reliability as reliability_chart
from pocketbayes.report.charts import _risk_coverage as risk_chart
from pocketbayes.report.charts import _sizes as size_chart
from pocketbayes.report.charts import byte_shares, charts_of, risk_coverage
from pocketbayes.report.examples import as_png, most_uncertain, surest_mistakes, unusual_columns
from pocketbayes.report.figures import RandomWeights
from pocketbayes.report.findings import ClassAnswers
from pocketbayes.report.words import bytes_in_words, comparison, verdict

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HOSTILE = '<script>alert("1")</script>&amp;'
ESCAPE = "\x1b[31mred\x07\x9b0m\x00"


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> Findings:
    """What is found of a small network that learned some digits."""
    torch.manual_seed(0)
    digits = open_dataset("digits", "train")
    test = open_dataset("digits", "test").fitted(digits.preprocess)
    net = build_network("mlp", input_shape=(1, 8, 8), num_outputs=10, hidden=(32,))
    model = pb.bayesianize_(net)
    pb.fit(model, MemoryLoader(digits, 64, shuffle=True), epochs=6, progress=False, seed=0)
    path = tmp_path_factory.mktemp("model") / "digits.pocket"
    pb.save(model, path)
    noise = [torch.randn(200, 1, 8, 8)]
    found = answered(model, MemoryLoader(test, 200), 10, noise)
    inside, outside = answers_of(found, (0.0, 1.0))
    return Findings(
        "small", "the test set of digits", "noise", record_of(found).to_dict(), inspect(path),
        RandomWeights.of(model), inside, outside, test, test.classes, {"method": "mean-field"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(classifier) -> str:
    return report_page([classifier, replace(classifier, name="twin")], "Two", {"seed": 0})


def answers(confidence, right):
    """A classifier of two classes that always says the first."""
    confidence = np.asarray(confidence, dtype=float)
    probs = np.stack([confidence, 1 - confidence], 1)
    truth = np.where(right, 0, 1)
    zero = np.zeros(len(confidence))
    return ClassAnswers(probs, zero, zero, zero, truth, 5)


def test_answers_are_those_of_the_record(classifier):
    assert classifier.answers.right.mean() == pytest.approx(classifier.numbers["accuracy"])
    assert classifier.answers.confidence.mean() == pytest.approx(classifier.numbers["confidence"])
    assert len(classifier.outside.entropy) == 200
    coverage, risk = risk_coverage(classifier.answers)
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx(1 - classifier.numbers["accuracy"])
    assert risk.mean() == pytest.approx(classifier.numbers["aurc"])


def test_risk_against_coverage_of_a_known_case():
    coverage, risk = risk_coverage(answers([0.6, 0.9, 0.8, 0.7], [False, True, True, False]))
    np.testing.assert_allclose(coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(risk, [0, 0, 1 / 3, 0.5])


@pytest.mark.parametrize(
    ("confidence", "judgement"),
    [(0.90, "within chance"), (0.97, "too sure of itself"), (0.83, "too modest")],
)
def test_the_verdict_on_confidence_allows_for_chance(classifier, confidence, judgement):
    numbers = {"accuracy": 0.9, "confidence": confidence, "ece": 0.01, "num_examples": 1000}
    said = " ".join(verdict(replace(classifier, numbers=numbers, outside=None)))
    assert judgement in said
    assert "90.00% of 1,000 right (± 0.95 by chance)" in said


def test_few_examples_say_little(classifier):
    numbers = {"accuracy": 1.0, "confidence": 0.9, "ece": 0.1, "num_examples": 4}
    said = " ".join(verdict(replace(classifier, numbers=numbers, outside=None)))
    assert "too few examples" in said
    assert "± 0.00" not in said


def test_one_example_and_no_other_data_make_a_page(classifier):
    kept = classifier.answers
    fields = ("probs", "entropy", "aleatoric", "epistemic", "truth")
    one = replace(kept, **{name: getattr(kept, name)[:1] for name in fields})
    found = replace(classifier, answers=one, dataset=classifier.dataset.subset([0]), outside=None)
    assert "<figure>" in report_page([found], "t", {})


def test_answers_of_one_example_are_arrays(classifier):
    torch.manual_seed(0)
    model = pb.bayesianize_(torch.nn.Linear(3, 2))
    found = answered(model, [(torch.randn(1, 3), torch.zeros(1))], 5, likelihood="heteroscedastic")
    values, _ = answers_of(found, (1.0, 2.0))
    assert values.mean.shape == values.low.shape == values.rank.shape == values.truth.shape == (1,)
    assert values.truth == pytest.approx([1.0])


def test_more_models_than_colours_are_all_drawn(classifier):
    many = [replace(classifier, name=f"model-{i}", outside=None) for i in range(9)]
    answers = {one.name: one.answers for one in many}
    for drawn in (size_chart(many), reliability_chart(answers), risk_chart(answers)):
        assert all(one.name in drawn.svg for one in many), drawn.title


def test_plain_sizes_are_shown_only_where_they_are_one(classifier):
    larger = replace(classifier, file=replace(classifier.file, weights=10**6))
    assert "float32" in size_chart([classifier]).svg
    assert "float32" not in size_chart([classifier, larger]).svg


STRANGE = ["_hidden", "a\x07b", "x" * 150, "$\\frac{$"]


@pytest.mark.parametrize("name", [*STRANGE, "".join(STRANGE)])
def test_strange_names_make_sound_pictures(classifier, name):
    """Those that show a name, and all of them with a name that is strange in every way."""
    names = (name, *map(str, range(9)))
    found = replace(classifier, name=name, classes=names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = {name: found.answers}
        shown = [size_chart([found]), reliability_chart(answers), risk_chart(answers)]
        shown += [class_chart(found)]
        for chart in shown if name in STRANGE else charts_of([found]):
            ElementTree.fromstring(chart.svg)
    shown = reliability_chart({name: found.answers, "other": found.answers}).svg
    assert shown.count("<text") > 2
    if name == "_hidden":
        assert "_hidden" in shown


def test_bytes_are_written_with_three_digits():
    said = [bytes_in_words(size) for size in (0, 999, 999.6, 12_345, 999_600, 44_700_000)]
    assert said == ["0 bytes", "999 bytes", "1 kB", "12.3 kB", "1 MB", "44.7 MB"]


def test_several_models_are_compared(classifier):
    assert comparison([classifier]) is None
    smaller = replace(classifier, name="half", file=replace(classifier.file, bytes=100))
    worse = replace(smaller, numbers=dict(classifier.numbers) | {"nll": 9.0})
    assert "no other has a better likelihood" in comparison([classifier, worse])
    truth = (classifier.answers.truth + 1) % 10
    worse = replace(worse, answers=replace(classifier.answers, truth=truth))
    assert comparison([classifier, worse]).startswith("half is the smallest; small has the best")
    better = replace(smaller, numbers=dict(classifier.numbers) | {"nll": 0.0})
    assert comparison([classifier, better]).startswith("half is the smallest and has the best")


def test_all_bytes_of_the_file_are_shown(classifier):
    assert sum(size for _, size in byte_shares(classifier)) == classifier.file.bytes
    assert sum(size for _, size in byte_shares(classifier, most=1)) == classifier.file.bytes


def test_examples_are_the_least_sure_and_the_surest_mistakes(classifier):
    chosen = np.argsort(-classifier.answers.entropy, kind="stable")[:12]
    pictures = [as_png(classifier.dataset.images[int(i)]) for i in chosen]
    assert [e.picture for e in most_uncertain(classifier)] == pictures
    wrong = [e.head for e in surest_mistakes(classifier)]
    assert wrong
    assert all(re.match(r"(\d) \(", head)[1] != head[-1] for head in wrong)


def test_examples_do_not_speak_of_draws_where_none_were_made(classifier):
    taught = replace(classifier, numbers={**classifier.numbers, "estimator": "one_pass"})
    assert all("its draws" in example.lines[0] for example in most_uncertain(classifier))
    assert all("by one pass, draws would" in e.lines[0] for e in most_uncertain(taught))


def test_a_model_without_mistakes_has_no_such_section(classifier):
    found = replace(classifier, answers=replace(classifier.answers, truth=classifier.answers.label))
    assert surest_mistakes(found) == []
    assert "mistakes" not in report_page([found], "t", {})


def test_images_of_any_number_of_channels_become_pictures():
    from io import BytesIO

    from PIL import Image

    for channels, mode in ((1, "L"), (2, "L"), (3, "RGB"), (4, "L")):
        opened = Image.open(BytesIO(as_png(torch.zeros(channels, 5, 7, dtype=torch.uint8))))
        assert (opened.mode, opened.size) == (mode, (7, 5))


def test_the_page_loads_nothing_and_runs_nothing(page):
    assert "<script" not in page
    assert "default-src 'none'" in page
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(sources) > 20
    assert all(source.startswith("data:") for source in sources)
    assert "url(" not in page
    assert "@import" not in page
    for source in sources:
        kind, _, content = source.partition(";base64,")
        if kind == "data:image/svg+xml":
            drawn = base64.b64decode(content).decode()
            assert "<script" not in drawn
            links = re.findall(r'href="([^"]*)"', drawn)
            assert all(link.startswith(("#", "data:")) for link in links)


def test_every_picture_has_words_beside_it(page):
    assert page.count("<img ") == len(re.findall(r'<img [^>]*alt="[^"]+"', page))


def test_names_from_elsewhere_are_text(classifier):
    names = (HOSTILE, "$x_1$", *map(str, range(8)))
    found = replace(classifier, name=HOSTILE, classes=names, settings={HOSTILE: HOSTILE})
    made = report_page([found], HOSTILE, {HOSTILE: HOSTILE})
    assert "<script" not in made
    assert escape(HOSTILE) in made
    assert HOSTILE in unescape(made)


def test_no_name_brings_control_characters_into_the_page(classifier):
    names = (ESCAPE, *map(str, range(9)))
    found = replace(classifier, name=ESCAPE, data=ESCAPE, classes=names, settings={ESCAPE: ESCAPE})
    made = report_page([found], ESCAPE, {ESCAPE: ESCAPE})
    pictures = [
        base64.b64decode(p) for p in re.findall(r"data:image/svg\+xml;base64,([^\"]+)", made)
    ]
    assert pictures
    for text in (made, *(picture.decode() for picture in pictures)):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert "\\x1b[31mred" in made


def test_the_same_findings_make_the_same_page(classifier, page):
    both = [classifier, replace(classifier, name="twin")]
    assert report_page(both, "Two", {"seed": 0}) == page


def test_names_are_as_short_as_they_can_be(tmp_path):
    assert distinct_names([Path("runs/a"), Path("runs/b.pocket")]) == ["a", "b"]
    assert distinct_names([Path("x/a"), Path("y/a")]) == ["x/a", "y/a"]
    assert distinct_names([Path("x/a"), Path("x/a.pocket")]) == ["a", "a.pocket"]
    with pytest.raises(UsageError, match="twice"):
        distinct_names([Path("x/a"), Path("x/../x/a")])


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=True)


@pytest.fixture(scope="module")
def regression_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 2))
    y = 50 + 10 * x[:, 0] + generator.normal(size=300)
    lines = [
        f"{a:.4f},{'red' if b > 0 else 'blue'},{c:.3f}" for (a, b), c in zip(x, y, strict=True)
    ]
    (folder / "t.csv").write_text("\n".join(["width,<b>colour</b>,price", *lines]) + "\n")
    done = run(
        "train", "--data", "csv", "--file", folder / "t.csv", "--target", "price", "--model",
        "mlp", "--hidden", "16", "--epochs", "20", "--out", folder / "run", "--device", "cpu",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_a_page_of_a_regression_from_the_command_line(regression_run, tmp_path):
    done = run("report", regression_run, "--out", tmp_path / "sub" / "r.html", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout[done.stdout.index("{") :])
    numbers = result["models"]["run"]
    made = (tmp_path / "sub" / "r.html").read_text()
    assert f"RMSE {numbers['rmse']:.4g}" in made
    assert "Do the intervals hold what they promise?" in made
    assert 0.5 < numbers["rmse"] < 10
    assert "<b>colour" not in made
    spent = json.loads((regression_run / "metrics.json").read_text())["seconds"]
    assert numbers["train_seconds"] == spent > 0
    assert '<th scope="col">training, s</th>' in made
    assert f"<td>{spent:.4g}</td></tr>" in made
    for name, value in {"lr": "0.01", "beta": "1", "prior": "learned", "epochs": "20"}.items():
        assert f"<td>trained with {name}</td><td>{value}</td>" in made  # nobody said so
    assert re.search(r"width -?[\d.]+ \([+-][\d.]+ std\)", made)


def test_a_file_alone_does_not_tell_how_long_it_took(regression_run, tmp_path):
    source = ["--data", "csv", "--file", regression_run.parent / "t.csv", "--target", "price"]
    for metrics in (None, "{", "[]", '{"seconds": "many"}'):
        copy = tmp_path / f"run{len(str(metrics))}"
        shutil.copytree(regression_run, copy)
        (copy / "metrics.json").unlink()
        if metrics is not None:
            (copy / "metrics.json").write_text(metrics)
    words = ["report", regression_run / "model.pocket", *sorted(tmp_path.glob("run*")), *source]
    done = run(*words, "--out", tmp_path / "p.html", "--json")
    assert done.exit_code == 0, done.output
    models = json.loads(done.stdout[done.stdout.index("{") :])["models"]
    assert len(models) == 5
    assert {numbers["train_seconds"] for numbers in models.values()} == {None}
    assert "training, s" not in (tmp_path / "p.html").read_text()


def test_models_of_different_data_are_not_compared(regression_run, tmp_path):
    lines = (regression_run.parent / "t.csv").read_text().splitlines()
    other = tmp_path / "other.csv"
    other.write_text("\n".join([lines[0], *lines[40:]]) + "\n")
    words = ["--data", "csv", "--file", other, "--target", "price", "--model", "mlp"]
    done = run("train", *words, "--hidden", "4", "--epochs", "1", "--out", tmp_path / "b")
    assert done.exit_code == 0, done.output
    done = run("report", regression_run, tmp_path / "b", "--out", tmp_path / "p.html")
    assert "not measured on the same examples" in str(done.exception)
    assert "other.csv" in str(done.exception)
    done = run("report", regression_run, tmp_path / "b", "--data", "csv", "--file", other,
               "--out", tmp_path / "p.html")  # fmt: skip
    assert done.exit_code == 0, done.output
    page = (tmp_path / "p.html").read_text()
    assert "other.csv, target price" in page
    assert str(tmp_path) not in page


def test_unusual_columns_name_the_furthest_first():
    from pocketbayes.data import TableSet

    columns = [{"name": "a", "mean": 0.0, "std": 1.0}, {"name": "k", "values": ["u", "v"]},
               {"name": "b", "mean": 5.0, "std": 2.0}]  # fmt: skip
    preprocess = {"kind": "table", "columns": columns, "target": {"name": "y"}}
    table = TableSet(
        torch.tensor([[0.5, 1, 0, 11.0]]).double(), torch.zeros(1).double(), preprocess
    )
    assert unusual_columns(table, 0) == ["b 11 (+3.0 std)", "a 0.5 (+0.5 std)"]
    columns[0] |= {"fill": 0.0, "empty": True}
    columns[1] |= {"other": True}
    rows = torch.tensor([[float("nan"), 1, 0, 0, 1, 11.0]]).double()
    odd = TableSet(rows, torch.zeros(1).double(), preprocess, unfamiliar=("k=w",))
    assert unusual_columns(odd, 0) == ["k=w", "b 11 (+3.0 std)"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "there is no run or file"),
        (["{run}", "--out", "."], "is a folder"),
        (["{run}", "{run}"], "named twice"),
        (["{run}", "--ood", "digits"], "takes tables"),
    ],
)
def test_calls_that_cannot_work_say_why(regression_run, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("report", *(word.format(run=regression_run) for word in words))
    assert done.exit_code != 0
    assert message in str(done.exception)
    assert not (tmp_path / "report.html").exists()


def shown_in_browser(page: str, folder: Path, width: int) -> dict[str, int]:
    """What Chromium says of the page in a window of this width: widths, pictures, complaints."""
    script = """onload = () => {
      const inner = document.getElementById("page").contentDocument;
      const images = [...inner.images];
      document.body.dataset.found = JSON.stringify({
        width: inner.documentElement.scrollWidth, images: images.length,
        broken: images.filter(i => !i.complete || i.naturalWidth === 0).length,
        sections: inner.querySelectorAll("h2").length });
    }"""
    frame = (
        f'<iframe id="page" style="width:{width}px;height:900px;border:0" srcdoc="{escape(page)}">'
    )
    path = folder / f"outer-{width}.html"
    path.write_text(f"<!doctype html><body>{frame}</iframe><script>{script}</script></body>")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command += [f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found, done.stderr
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(unescape(found[1])) | {"complaints": complaints}


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [360, 1100])
def test_a_browser_shows_it_without_complaint_or_sideways_scrolling(page, tmp_path, width):
    found = shown_in_browser(page, tmp_path, width)
    assert found["complaints"] == []
    assert found["width"] <= width
    assert found["images"] > 20
    assert found["broken"] == 0
    assert found["sections"] == 7


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_the_browser_test_sees_what_is_wrong(tmp_path):
    wide = '<h2>x</h2><div style="width:700px">x</div><img src="data:image/png;base64,AA">'
    found = shown_in_browser(wide + "<script>console.error(1)</script>", tmp_path, 360)
    assert found["width"] > 360
    assert found["broken"] == 1
    assert found["complaints"]
