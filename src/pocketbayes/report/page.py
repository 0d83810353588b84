"""The page: HTML that loads nothing, reads on a phone and prints."""

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pocketbayes.errors import printable
from pocketbayes.report.canvas import Chart
from pocketbayes.report.charts import charts_of
from pocketbayes.report.examples import Example, most_uncertain, surest_mistakes
from pocketbayes.report.findings import ClassAnswers, Findings
from pocketbayes.report.fronts import COLUMNS, front_rows
from pocketbayes.report.tables import as_text, flattened
from pocketbayes.report.words import bytes_in_words, comparison, verdict

# No script, no request: a browser refuses whatever else might get in.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light; --ink: #1c1c1c; --soft: #5a5a5a; --line: #d9d9d9; --wash: #f5f7fa; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1rem; color: var(--ink); background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
h3 { font-size: 1rem; margin: 0 0 .25rem; }
p { margin: .4rem 0; }
.soft, figcaption { color: var(--soft); font-size: .875rem; }
.cards, .grid { display: grid; gap: 1rem; }
.cards { grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); }
.grid { grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); }
.card { background: var(--wash); border-radius: .5rem; padding: .75rem 1rem; }
.card ul { margin: .25rem 0 0; padding-left: 1.1rem; }
.big { display: flex; flex-wrap: wrap; gap: 0 1.25rem; font-size: 1.35rem; font-weight: 600; }
figure { margin: 0; break-inside: avoid; }
figure img { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
.wide table { white-space: nowrap; }
.facts td { text-align: left; vertical-align: top; }
.examples { display: grid; gap: .75rem; padding: 0; list-style: none;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); }
.examples li { display: flex; gap: .75rem; font-size: .875rem; break-inside: avoid; }
.examples img { width: 4.5rem; height: 4.5rem; object-fit: contain; flex: none;
  image-rendering: pixelated; background: #eee; }
details { margin: .5rem 0; } summary { cursor: pointer; }
@media print { body { max-width: none; padding: 0; font-size: 11pt; }
  .card { border: 1px solid var(--line); } .wide { overflow: visible; }
  .grid { grid-template-columns: 1fr 1fr; } h2 { break-after: avoid; }
  details::details-content { content-visibility: visible; block-size: auto; } }
"""
_COLUMNS = {
    "accuracy": "accuracy", "rmse": "RMSE", "crps": "CRPS", "nll": "NLL", "ece": "ECE",
    "brier": "Brier", "aurc": "AURC", "coverage_50": "in 50%", "coverage_90": "in 90%",
    "auroc_entropy": "OOD AUROC",
}  # fmt: skip


def report_page(found: Sequence[Findings], title: str, facts: Mapping[str, Any]) -> str:
    """The whole page about these models, measured on one data set.

    Args:
        found: what is known of each, in the order of the page.
        title: of the page.
        facts: about the measurement, for the end of the page.
    """
    charts = charts_of(found)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">Measured on {escape(found[0].data)}, from the files.</p>',
        _verdicts(found),
        _table(found),
        _section("In pictures", '<div class="grid">' + "".join(map(_figure, charts)) + "</div>"),
        *(_examples(one, len(found) > 1) for one in found),
        *(_front(one) for one in found if one.tried),
        _facts(found, facts),
    ]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def escape(text: str) -> str:
    """Text that is no HTML and drives no terminal: names are those of files and data."""
    return html.escape(printable(text))


def _section(title: str, inner: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{inner}\n</section>"


def _verdicts(found: Sequence[Findings]) -> str:
    cards = "\n".join(_card(one) for one in found)
    winner = comparison(found)
    words = f"<p>{escape(winner)}</p>" if winner else ""
    return f'{words}<div class="cards">\n{cards}\n</div>'


def _card(found: Findings) -> str:
    numbers = found.numbers
    score = "accuracy" if "accuracy" in numbers else "rmse"
    sure = f"ECE {numbers['ece']:.3f}" if "ece" in numbers else (
        f"{100 * numbers['coverage_90']:.0f}% in 90%"
    )  # fmt: skip
    big = [bytes_in_words(found.file.bytes), _value(score, numbers[score]), sure]
    spans = "".join(f"<span>{escape(words)}</span>" for words in big)
    lines = "".join(f"<li>{escape(sentence)}</li>" for sentence in verdict(found))
    return (
        f'<article class="card"><h3>{escape(found.name)}</h3><div class="big">{spans}</div>'
        f"<ul>{lines}</ul></article>"
    )


def _value(name: str, value: float) -> str:
    return f"RMSE {value:.4g}" if name == "rmse" else as_text(name, value)


def _table(found: Sequence[Findings]) -> str:
    columns = [name for name in _COLUMNS if any(name in one.numbers for one in found)]
    timed = any(one.seconds is not None for one in found)
    head = ["model", "bytes", "weights left", *(_COLUMNS[name] for name in columns)]
    head += ["training, s"] if timed else []
    rows = [
        [one.name, f"{one.file.bytes:,}", f"{one.file.active_weights:,}"]
        + [as_text(name, one.numbers.get(name)) for name in columns]
        + ([as_text("seconds", one.seconds)] if timed else [])
        for one in found
    ]
    return _section("Numbers", f'<div class="wide">{_html_table(head, rows)}</div>')


def _front(found: Findings) -> str:
    table = _html_table(COLUMNS, front_rows(found.tried))
    return _section(f"{found.name}: what was tried", f'<div class="wide">{table}</div>')


def _html_table(head: Iterable[str], rows: Iterable[Iterable[str]], kind: str = "") -> str:
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "\n".join(
        "<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    named = f' class="{kind}"' if kind else ""
    return f"<table{named}>" + (f"<tr>{top}</tr>" if top else "") + f"{lines}</table>"


def _figure(chart: Chart) -> str:
    source = _data_uri("image/svg+xml", chart.svg.encode())
    return (
        f"<figure><h3>{escape(chart.title)}</h3>"
        f'<img src="{source}" alt="{escape(chart.alt)}">'
        f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _examples(found: Findings, several: bool) -> str:
    is_class = isinstance(found.answers, ClassAnswers)
    mistakes = "Its surest mistakes" if is_class else "Furthest outside of its 90% intervals"
    titles = ["What is it least sure about?", mistakes]
    if several:
        titles = [f"{found.name}: {t[0].lower()}{t[1:]}" for t in titles]
    groups = dict(zip(titles, (most_uncertain(found), surest_mistakes(found)), strict=True))
    return "\n".join(_section(title, _listed(items)) for title, items in groups.items() if items)


def _listed(examples: Sequence[Example]) -> str:
    return f'<ul class="examples">{"".join(map(_item, examples))}</ul>'


def _item(example: Example) -> str:
    lines = "".join(f'<div class="soft">{escape(line)}</div>' for line in example.lines)
    picture = ""
    if example.picture is not None:
        source = _data_uri("image/png", example.picture)
        picture = f'<img src="{source}" alt="{escape(example.head)}">'
    return f"<li>{picture}<div><strong>{escape(example.head)}</strong>{lines}</div></li>"


def _facts(found: Sequence[Findings], facts: Mapping[str, Any]) -> str:
    tables = [_details("How this was measured", flattened(facts))]
    for one in found:
        settings = [
            *((name, v) for name, v in one.file.facts() if one.file.kl > 0 or "limit" not in name),
            ("draws per prediction", one.numbers["num_samples"]),
            ("drawn by", one.numbers["estimator"]),
            *(("trained with " + name, v) for name, v in flattened(one.settings)),
        ]
        tables.append(_details(one.name, settings))
    return _section("Facts", "\n".join(tables))


def _details(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    shown = [[name, as_text(name, value)] for name, value in rows if value is not None]
    table = _html_table((), shown, "facts")
    return f"<details><summary>{escape(title)}</summary>{table}</details>"
