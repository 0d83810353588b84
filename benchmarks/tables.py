"""Writes docs/results.md, its picture and the README's numbers from benchmarks/results/*.jsonl.

python benchmarks/tables.py
"""

from pathlib import Path

from pages.common import anchor, known
from pages.corruptions import corruptions
from pages.costs import (
    costs,
    data_speed,
    exchange,
    inference,
    mixture,
    prediction,
    stage_two,
    switch_update,
)
from pages.files import fuzz, pocket_file, rate_curve, sizes
from pages.headline import headline, in_short
from pages.papers import papers_tables
from pages.peers import peers
from pages.pruning import pruning
from pages.sharing import sharing
from pages.side_by_side import side_by_side
from pages.side_by_side_uci import side_by_side_uci
from pages.spike_slab import exact_inclusion, selection
from pages.subspace import subspace
from pages.training import baselines, defaults, demo, dense_vi, regressions
from pages.uci import uci
from size_figure import write_figure

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
NOTE = "<!-- Written by benchmarks/tables.py; do not edit. -->"
BEGIN, END = "<!-- From here on written by benchmarks/tables.py -->", "<!-- to here -->"

# In the order of the page; a part whose results file is missing is left out.
PARTS = (
    demo, side_by_side, side_by_side_uci, baselines, peers, subspace, corruptions, sharing,
    selection, exact_inclusion, pruning, uci, switch_update, dense_vi, pocket_file, sizes,
    rate_curve, fuzz, exchange, mixture, stage_two, costs, data_speed, inference, prediction,
    defaults, regressions,
)  # fmt: skip


def main() -> None:
    """Writes the page, its picture and the numbers in the README, and shows the page."""
    write_figure()
    PAGE.write_text(page())
    README.write_text(with_numbers(README.read_text()))
    print(PAGE.read_text())


def page() -> str:
    """All results, as they are written to docs/results.md."""
    about = (
        "Commands are run in `benchmarks/` (older ones in the folder above); `a|b` in one stands "
        "for a run with each, `+changes` behind a commit for changes on top of it. Times with a * "
        "were taken beside other work on the same machine, or on the host of a virtual one, where "
        "that was recorded. Of the two ways to draw, `lrt` draws outputs and `weight` whole "
        "weights (Bayes by Backprop; [mean-field.md](mean-field.md)); a network is trained with "
        "one and may predict with the other. Versions, settings and peak memory are in the lines "
        "of benchmarks/results (memory not in older ones of weight sharing, pruning, UCI and other "
        "libraries)."
    )
    parts = "\n".join([headline(), papers_tables(), *known(*PARTS)])
    return f"# Results\n\n{NOTE}\n\n{about}\n\n{contents(parts)}\n{parts}"


def contents(text: str) -> str:
    """Links to all parts."""
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    return "".join(f"- [{title}](#{anchor(title)})\n" for title in titles)


def with_numbers(readme: str) -> str:
    """The README with the numbers that are there now."""
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{in_short()}\n{END}{after}"


if __name__ == "__main__":
    main()
