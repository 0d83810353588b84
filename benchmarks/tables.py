"""Writes docs/results.md, docs/results/, their picture and the README's table from the JSON lines.

    python benchmarks/tables.py

What is written is declared in pages/headline.py and pages/themes.py.
"""

from pathlib import Path

from pages.headline import front_page, in_short
from pages.render import page
from pages.themes import PAGES
from rank_figure import write_figure as write_ranks
from size_figure import write_figure

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
BEGIN, END = "<!-- From here on written by benchmarks/tables.py -->", "<!-- to here -->"


def main() -> None:
    """Writes everything."""
    write_figure()
    write_ranks()
    for path, words in written().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(words)
        print(path.relative_to(ROOT))


def written() -> dict[Path, str]:
    """All pages, and the README with today's table."""
    pages = {DOCS / "results" / f"{declared.name}.md": page(declared) for declared in PAGES}
    readme = with_numbers(README.read_text())
    return {DOCS / "results.md": front_page(PAGES), **pages, README: readme}


def with_numbers(readme: str) -> str:
    """The README with the numbers that are there now."""
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{in_short()}\n{END}{after}"


if __name__ == "__main__":
    main()
