"""The pages of results: what is written is what the JSON lines say, and stays short."""

import json
import re
import sys
from functools import cache
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import tables  # noqa: E402
from pages import headline, render, themes  # noqa: E402
from pages.render import Column, Line, Table  # noqa: E402

README = BENCHMARKS.parent / "README.md"
PAGES = [tables.DOCS / "results.md", *sorted((tables.DOCS / "results").glob("*.md"))]
by_name = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)


@cache
def written():
    """What the results say, by page."""
    return tables.written()


def prose(words):
    """What is neither heading, table, command, list, picture nor comment."""
    kept = re.sub(r"<details>.*?</details>", "", words, flags=re.S)
    lines = [line for line in kept.splitlines() if line and line[0] not in "#|<!-"]
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(lines))


@pytest.mark.parametrize("path", [README, *PAGES], ids=lambda path: path.stem)
def test_what_is_written_is_what_the_results_say(path):
    assert path.read_text() == written()[path], "run python benchmarks/tables.py"


def test_no_other_page_lies_beside_them():
    folder = tables.DOCS / "results"
    assert set(folder.iterdir()) == {path for path in written() if path.parent == folder}
    assert {README, *PAGES} == set(written())


@by_name
def test_a_page_has_at_most_three_sentences_of_notes(path):
    found = prose(written()[path])
    assert found.endswith("."), "a page has notes"
    sentences = re.split(r"(?<=[.!?]) +(?=[A-Z`\[])", found.replace("et al. ", "et al "))
    assert len(sentences) <= 3, sentences


def test_sentences_of_a_page_are_counted():
    assert prose("# A\n\n<!-- x. -->\n\nOne. Two.\n\n| a |\n| --- |\n\n- b\n") == "One. Two."


def test_the_first_page_is_one_screen_that_links_to_all_others():
    words = written()[tables.DOCS / "results.md"]
    assert len(words.splitlines()) <= 60
    links = re.findall(r"\]\((results/[^)]*)\)", words)
    assert sorted(links) == sorted(f"results/{page.name}.md" for page in themes.PAGES)


@by_name
def test_tables_are_narrow_and_whole(path):
    found = re.findall(r"(?:^\|.*\n)+", written()[path], flags=re.M)
    assert found
    for table in found:
        (pipes,) = {line.count("|") for line in table.splitlines()}
        assert pipes - 1 <= 10


@by_name
def test_links_lead_to_files(path):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", written()[path])
    assert all((path.parent / target).exists() for target in targets)


@by_name
def test_pages_do_not_tell_history(path):
    assert not re.search(r"\+changes|\(plain\)|again/|older format|\(of \d", written()[path])


def test_every_results_file_is_shown_or_a_search():
    declared = [table for page in themes.PAGES for table in page.tables]
    shown = {name for table in (*declared, *headline.GLANCE) for name in table.source}
    shown |= {line.source for table in (*declared, *headline.GLANCE) for line in table.lines}
    there = {path.stem for path in render.RESULTS.glob("*.jsonl")}
    assert there - shown == {name for name in there if name.endswith("_search")}


def test_every_headline_row_has_its_seeds_and_scores():
    for line in (*headline.RESNET_18, *headline.RESNET_20):
        found = render.rows_of(line)
        if line.source == "joined":
            assert len(found) == 1
            continue
        seeds = sorted(row["seed"] for row in found)
        if line.source == "ladder":
            assert len(seeds) == len(set(seeds)) == 3, line.words
            assert min(seeds) >= 100
            assert not any(row["validation"] for row in found)
        else:
            assert seeds == [0, 1, 2], line.words
        assert {row.get("measured_on", "test") for row in found} == {"test"}
        assert not any(row["settings"].get("limit") for row in found)
        for score in ("accuracy", "nll", "ece"):
            assert all(0 < row[score] < 1 for row in found), (line.words, score)


def test_the_readme_has_a_row_for_each_way():
    words = tables.README.read_text().split(tables.BEGIN)[1].split(tables.END)[0]
    lines = [line for line in words.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 8
    assert lines[0] == "| ResNet-18, CIFAR-10 | accuracy | NLL | ECE | file, bytes |"


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Writes results of one's own; nothing else is there."""
    monkeypatch.setattr(render, "RESULTS", tmp_path)

    def write(name, *found):
        common = {"command": "python x.py", "commit": "c", "hardware": "a machine"}
        lines = (json.dumps(common | row) + "\n" for row in found)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
        render._read.cache_clear()

    yield write
    render._read.cache_clear()


ACCURACY = Column("accuracy", "accuracy", render.percent)
SIMPLE = Table("T", (Column("method", "row", render.text), ACCURACY), source=("t",), by=("row",))


def row(accuracy, seed=0, **others):
    return {"row": "a", "seed": seed, "accuracy": accuracy, "estimator": "lrt"} | others


def test_means_and_standard_errors_are_over_seeds(results):
    results("t", row(0.9), row(0.92, seed=1), row(0.94, seed=2), row(0.5, row="b"))
    assert render.cells(SIMPLE) == [["a", "92.00 ± 1.15"], ["b", "50.00"]]


def test_of_a_run_that_was_repeated_the_last_counts(results):
    results("t", row(0.1), row(0.92, seed=1), row(0.9))
    assert render.cells(SIMPLE) == [["a", "91.00 ± 1.00"]]


def test_a_figure_that_some_runs_lack_is_the_mean_of_the_others(results):
    table = Table("T", (headline.BYTES,), source=("t",), by=("row",))
    results("t", row(0.9, file_bytes=1000), row(0.9, seed=1), row(0.9, row="b"))
    assert render.cells(table) == [["1,000"], [""]]


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"row": "a"}, ["90.00"]),
        ({"row": ("a", "b")}, ["90.00", "80.00"]),
        ({"settings.beta": 0.3}, ["80.00"]),
        ({"settings.beta": lambda beta: beta is None}, ["90.00"]),
        (lambda row: row["accuracy"] > 0.85, ["90.00"]),
        ({"row": "c"}, []),
    ],
)
def test_only_rows_that_are_wanted_count(results, where, wanted):
    results("t", row(0.9), row(0.8, row="b", settings={"beta": 0.3}))
    table = Table("T", (ACCURACY,), source=("t",), by=("row",), where=where)
    assert [line[0] for line in render.cells(table)] == wanted


def test_a_column_may_be_of_some_runs_only(results):
    columns = tuple(Column(str(n), "accuracy", render.percent, {"severity": n}) for n in (0, 1, 2))
    results("t", row(0.9, severity=0), row(0.8, severity=1))
    table = Table("T", columns, source=("t",), by=("row",))
    assert render.cells(table) == [["90.00", "80.00", ""]]


def test_commands_commits_and_machines_stand_under_a_table():
    options = ["--seeds 0 1 --lr 1", "--seeds 2 --lr 1", "--seeds 0 --lr 2",
               "--vary 'a b' --sets u", "--vary 'a b' --sets v", "--lr 1"]  # fmt: skip
    known = {"commit": "c", "hardware": "a machine"}
    found = [known | {"command": f"python x.py {words}"} for words in options]
    assert render.origins([*found, found[0]]).splitlines() == [
        f"<details><summary>a machine: {render.COMMANDS}</summary>",
        "",
        "    python x.py --seeds 0 1|2 --lr 1 (c)",
        "    python x.py --seeds 0 --lr 2 (c)",
        "    python x.py --vary 'a b' --sets u|v (c)",
        "    python x.py --lr 1 (c)",
        "",
        "</details>",
    ]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, "yes"),
        ({"accuracy": 0.9}, "no: accuracy"),
        ({"nll": 0.4}, "no: NLL 0.4000"),
        ({"auroc_entropy": 0.8}, "no: AUROC 0.8000"),
        ({"nll": None}, "no: NLL not measured"),
        ({"accuracy": 0.9, "nll": 0.4}, "no: accuracy, NLL 0.4000"),
    ],
)
def test_what_a_paper_has_and_we_have_not_is_said(results, figures, said):
    claim = headline.Claim(95.0, {"nll": 0.3, "auroc_entropy": 0.9}, "Table 1")
    results("t", row(0.95) | {"nll": 0.3, "auroc_entropy": 0.9} | figures)
    table = Table("T", headline.COLUMNS[-2:], lines=(Line((), "t", {}, claim),))
    assert render.cells(table) == [["95.00, NLL 0.3, AUROC 0.9 (Table 1)", said]]


def test_methods_on_regressions_are_ranked_set_by_set(results):
    def scored(method, where, nll, split=0):
        known = {"row": method, "set": where, "split": split, "nll": nll, "estimator": "none"}
        return known | {"family": "deterministic"}

    results(
        "side_by_side_uci",
        scored("a", "u", 1.0), scored("a", "u", 3.0, split=1), scored("b", "u", 1.5),
        scored("a", "v", 1.0), scored("b", "v", 1.0), scored("on some sets only", "u", 0.5),
    )  # fmt: skip
    assert themes.ranks("nll", "side_by_side_uci") == {
        ("u", "a"): 2,
        ("u", "b"): 1,
        ("v", "a"): 1.5,
        ("v", "b"): 1.5,
    }
    known = {"where": themes.is_ranked, "source": ("side_by_side_uci",), "by": ("row",)}
    table = Table("T", (themes.rank("nll"),), **known)
    assert render.cells(table) == [["1.8"], ["1.2"]]


def test_files_are_named_by_the_method_that_made_them(results):
    results("side_by_side", row(0.9, file="x-0.pocket", family="rigl", active_weights=5))
    assert themes.method_of({"file": "x-0.pocket"}) == "a"
    assert themes.by_method({"file": "x-0.pocket"}) < themes.by_method({"file": "y-0.pocket"})


def test_costs_at_every_batch_size_are_shown():
    """Rows of one command that differ in the batch alone are no repetitions of each other."""
    lines = (tables.DOCS / "results" / "one-pass.md").read_text().splitlines()
    for row in render.results("passes"):
        (line,) = (
            text for text in lines if text.startswith(f"| {row['network']} | {row['row']} |")
        )
        assert line.split(" | ")[{1: 2, 256: 3}[row["batch"]]].strip(" |")
