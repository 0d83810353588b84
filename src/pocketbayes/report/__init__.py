"""What people look at: the HTML page, plots, the feature report, tables in the terminal."""

from pocketbayes.report.features import FeatureReport, feature_report
from pocketbayes.report.figures import RandomWeights, weight_figures
from pocketbayes.report.findings import Findings, answers_of
from pocketbayes.report.page import report_page
from pocketbayes.report.plots import (
    Numbers,
    draw_entropies,
    draw_reliability,
    draw_sizes,
    new_figure,
    save_figure,
)
from pocketbayes.report.tables import as_cell, console, facts_table, rows_table, show
from pocketbayes.report.tried import tried_in

__all__ = [
    "FeatureReport",
    "Findings",
    "Numbers",
    "RandomWeights",
    "answers_of",
    "as_cell",
    "console",
    "draw_entropies",
    "draw_reliability",
    "draw_sizes",
    "facts_table",
    "feature_report",
    "new_figure",
    "report_page",
    "rows_table",
    "save_figure",
    "show",
    "tried_in",
    "weight_figures",
]
