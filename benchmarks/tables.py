"""Writes docs/results.md and its picture from the JSON lines under benchmarks/results/.

python benchmarks/tables.py
"""

from pathlib import Path

from pages.common import known
from pages.costs import (
    costs,
    data_speed,
    exchange,
    inference,
    mixture,
    stage_two,
    switch_update,
)
from pages.files import fuzz, pocket_file, rate_curve, sizes
from pages.others import corruptions, peers
from pages.pruning import pruning
from pages.sharing import sharing
from pages.spike_slab import exact_inclusion, selection
from pages.subspace import subspace
from pages.training import baselines, defaults, demo, dense_vi, regressions
from pages.uci import uci
from size_figure import write_figure

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
NOTE = "<!-- Written by benchmarks/tables.py; do not edit. -->"

# In the order of the page; a part whose results file is missing is left out.
PARTS = (
    demo, baselines, peers, subspace, corruptions, sharing, selection, exact_inclusion, pruning,
    uci, switch_update, dense_vi, pocket_file, sizes, rate_curve, fuzz, exchange, mixture,
    stage_two, costs, data_speed, inference, defaults, regressions,
)  # fmt: skip


def main() -> None:
    """Writes the page and its picture, and shows the page."""
    write_figure()
    about = "Commands are run in `benchmarks/`; `a|b` in one stands for a run with each."
    PAGE.write_text(f"# Results\n\n{NOTE}\n\n{about}\n\n" + "\n".join(known(*PARTS)))
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
