"""Pages that ask a model: what is in them, and what they tell in a browser."""

import re

import numpy as np
import pytest
import torch
from chromium import Browser, found
from table_files import write_csv
from torch import nn

import pocketbayes as pb
from pocketbayes.codec import as_stored
from pocketbayes.data import MemoryLoader, open_dataset
from pocketbayes.deploy.web_examples import facts_of_pictures

SEVEN = [(0.3, 0.2), (0.5, 0.2), (0.7, 0.2), (0.6, 0.45), (0.5, 0.65), (0.45, 0.85)]
SEEN = """(() => { const seen = document.getElementById("seen");
const data = seen.getContext("2d").getImageData(0, 0, seen.width, seen.height).data;
return [...data].filter((_, i) => i % 4 === 0); })()"""
PROBS = "[...document.querySelectorAll('[data-p]')].map(e => Number(e.dataset.p))"
TEXT = "document.getElementById('{}').textContent"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A network that knows digits, and its file."""
    torch.manual_seed(0)
    train = open_dataset("digits", "train")
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    model = pb.bayesianize_(net, estimator="weight")
    loader = MemoryLoader(train, 100, shuffle=True)
    pb.fit(model, loader, pb.MeanField(lr=0.01), epochs=6, progress=False)
    path = tmp_path_factory.mktemp("web") / "digits.pocket"
    pb.save(model, path, example=train.batch([0])[0])
    return path, net


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if found() is None:
        pytest.skip("there is no Chromium")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


def test_a_drawn_digit_is_told_as_predict_tells_it(digits, browser, tmp_path):
    path, net = digits
    x = open_dataset("digits", "test").batch(range(64))[0]
    made = pb.export(path, tmp_path / "p.html", "web", example=x, estimator="moments")
    browser.complaints.clear()
    browser.open(made.path, 360)
    browser.draw(SEVEN)
    pixels = np.array(browser.run(SEEN), dtype=np.uint8).reshape(1, 1, 8, 8)
    assert pixels.max() > 60
    form = open_dataset("digits", "test").preprocess
    inputs = (torch.from_numpy(pixels).float() / 255 - form["mean"][0]) / form["std"][0]
    expected = pb.predict(as_stored(net)[0], inputs, 30, estimator="moments")
    np.testing.assert_allclose(browser.run(PROBS), expected.probs[0].numpy(), atol=1e-3)
    assert browser.run(TEXT.format("head")) == "7"
    assert f"aleatoric {float(expected.aleatoric[0]):.3f}" in browser.run(TEXT.format("doubt"))
    assert browser.run("document.documentElement.scrollWidth") <= 360
    assert browser.complaints == []
    assert {url for url in browser.requests if not url.startswith("data:")} == {made.path.as_uri()}


def test_what_is_clicked_typed_and_dropped(digits, browser, tmp_path):
    x, labels = open_dataset("digits", "test").batch(range(8))
    made = pb.export(digits[0], tmp_path, "web", example=x, estimator="mean")
    browser.complaints.clear()
    browser.open(made.path, 1200, scheme="dark")
    tiles = browser.run("[...document.querySelectorAll('.tiles button')].map(b => b.ariaLabel)")
    assert tiles == [f"Sample {i}" for i in range(1, 9)] + ["noise", "a letter", "blank"]
    browser.run("document.querySelectorAll('.tiles button')[3].click()")
    browser.settled()
    form = open_dataset("digits", "test").preprocess
    pixels = np.array(browser.run(SEEN)).reshape(8, 8) / 255
    np.testing.assert_allclose(pixels, x[3, 0] * form["std"][0] + form["mean"][0], atol=1e-6)
    assert browser.run(TEXT.format("head")) == str(int(labels[3]))
    for key in (" ", *["ArrowDown"] * 4):
        browser.run(
            f"document.getElementById('pad').onkeydown(new KeyboardEvent('k', {{key: '{key}'}}))"
        )
    browser.settled()
    assert max(browser.run(SEEN)) > 60
    browser.run("""(async () => {
        const canvas = Object.assign(document.createElement("canvas"), { width: 40, height: 20 });
        const pen = canvas.getContext("2d");
        pen.fillStyle = "#fff"; pen.fillRect(15, 0, 10, 20);
        const blob = await new Promise(r => canvas.toBlob(r)), files = new DataTransfer();
        files.items.add(new File([blob], "a.png"));
        document.ondrop(new DragEvent("drop", { dataTransfer: files })); })()""")
    browser.until(f"{SEEN}.every(level => level === 255)")  # what is transparent is white
    named = "[...document.querySelectorAll('canvas:not([aria-hidden]), input, select')]"
    named += ".every(e => e.ariaLabel || e.labels?.length)"
    assert browser.run(named)
    assert browser.complaints == []


def test_rows_of_a_table_are_told_as_predict_tells_them(browser, tmp_path):
    rng = np.random.default_rng(0)
    area, quarter = rng.uniform(30, 200, 120), rng.choice(["north", "south"], 120)
    days = [
        f"20{y}-0{m}-1{m}"
        for y, m in zip(rng.integers(10, 20, 120), rng.integers(1, 9, 120), strict=True)
    ]
    rooms = [None if i % 9 == 0 else i % 5 for i in range(120)]
    price = 2 * area + 30 * (quarter == "south") + rng.normal(0, 9, 120)
    columns = {
        "area": area.round(1),
        "rooms": rooms,
        "quarter": quarter,
        "sold": days,
        "price": price,
    }
    file = write_csv(tmp_path / "h.csv", columns)
    train, test = (open_dataset("csv", s, file=file, target="price") for s in ("train", "test"))
    x = test.batch(range(4))[0]
    net = pb.bayesianize_(nn.Sequential(nn.Linear(x.shape[1], 16), nn.ReLU(), nn.Linear(16, 1)))
    pb.fit(
        net, MemoryLoader(train, 40, shuffle=True), epochs=4, likelihood="gaussian", progress=False
    )  # fmt: skip
    made = pb.export(net, tmp_path / "page.html", "web", example=x)
    pred = pb.predict(as_stored(net)[0], x, 30)
    assert pred.estimator == "moments"
    browser.complaints.clear()
    browser.open(made.path, 360)
    for row in range(4):
        browser.run(f"document.querySelectorAll('.tiles button')[{row + 1}].click()")
        browser.settled()
        told = float(browser.run("document.querySelector('[data-mean]').dataset.mean"))
        assert told == pytest.approx(float(pred.mean[row, 0]), abs=1e-3)
    browser.run(
        "document.querySelector('input').value = '900'; document.querySelector('input').oninput()"
    )
    browser.settled()
    assert "Unfamiliar: area = 900." in browser.run(TEXT.format("why"))
    assert browser.complaints == []


def test_a_page_is_one_small_file_and_repeats(digits, tmp_path, capsys):
    path = digits[0]
    main_says(["export", str(path), str(tmp_path / "a"), "--to", "web", "--data", "digits"])
    assert "are the engine and the page" in capsys.readouterr().out
    again = pb.export(path, tmp_path / "b.html", "web")
    page = (tmp_path / "a" / "index.html").read_text()
    assert len(page) < 200_000
    assert not re.search("https?:", page.lower())  # base64 has no colon
    assert pb.export(path, tmp_path / "c.html", "web").path.read_text() == again.path.read_text()
    assert again.outputs == ("probs", "entropy", "aleatoric", "epistemic", "label")


def main_says(words):
    from typer.testing import CliRunner

    from pocketbayes.cli import app

    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    print(done.output)


def test_names_cannot_leave_their_place(digits, tmp_path):
    net = pb.load(
        digits[0], nn.Sequential(nn.Flatten(), nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    )
    form = {
        "kind": "table",
        "columns": [{"name": "</script><b>", "mean": 0, "std": 1}],
        "target": {"name": "<i>\x1b[31m"},
    }
    pb.layers.update_description(net, preprocess=form)
    page = pb.export(net, tmp_path / "p.html", "web", example=torch.zeros(2, 64)).path.read_text()
    assert "<i>" not in page
    assert "\x1b" not in page
    assert "</script><b>" not in page


def test_what_cannot_be_a_page_is_refused(digits, tmp_path):
    plain = pb.bayesianize_(nn.Linear(3, 2))
    with pytest.raises(pb.PocketBayesError, match="does not say how its inputs are prepared"):
        pb.export(plain, tmp_path / "p.html", "web", example=torch.zeros(1, 3))
    with pytest.raises(pb.PocketBayesError, match="pass example=x"):
        pb.export(plain, tmp_path / "p.html", "web")
    with pytest.raises(pb.PocketBayesError, match="estimator must be"):
        pb.export(digits[0], tmp_path / "p.html", "web", estimator="lrt")
    with pytest.raises(pb.PocketBayesError, match="a page runs the"):
        pb.export(digits[0], tmp_path / "p.html", "web", int8=True)
    wrong = torch.zeros(2, 3, 8, 8)
    with pytest.raises(pb.PocketBayesError, match=r"has the shape \(2, 3, 8, 8\); .* \[1, 8, 8\]"):
        pb.export(digits[0], tmp_path / "a", "web", example=wrong)
    assert list(tmp_path.iterdir()) == []


def test_lines_are_measured_and_photographs_are_not():
    lines = np.zeros((5, 1, 28, 28), np.uint8)
    lines[:, :, 4:24, 12:15] = 255
    facts = facts_of_pictures(lines, {"mean": [0.1]})
    assert facts["stroke"] == pytest.approx(3, rel=0.3)
    assert facts["fit"] == pytest.approx(20 / 28, abs=1e-3)
    dark = facts_of_pictures(255 - lines, {"mean": [0.9]})
    assert (dark["stroke"], dark["fit"]) == (facts["stroke"], facts["fit"])
    noise = np.random.default_rng(0).integers(0, 256, (4, 3, 8, 8)).astype(np.uint8)
    assert list(facts_of_pictures(noise, {"mean": [0.5] * 3})) == ["samples"]
