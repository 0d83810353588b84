"""`pocketbayes features`: how likely each input is used, as a table, JSON and a picture."""

from dataclasses import dataclass
from pathlib import Path

from pocketbayes.commands.evaluate import require_target
from pocketbayes.commands.opening import opened_model
from pocketbayes.report import FeatureReport, feature_report, new_figure, save_figure


@dataclass(frozen=True)
class FeatureOptions:
    """Options of `features`.

    Attributes:
        model: network of your own as package.module:factory.
        plot: file for a picture of the likeliest features.
    """

    model: str | None = None
    plot: Path | None = None


def run_features(target: Path, options: FeatureOptions) -> FeatureReport:
    """The report on a run or a file, drawn too if asked for."""
    require_target(target)
    report = feature_report(opened_model(target, options.model))
    if options.plot is not None:
        figure, axes = new_figure(1)
        report.draw(axes[0])
        figure.set_figheight(max(figure.get_figheight(), 1.2 + 0.22 * len(axes[0].get_yticks())))
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        save_figure(figure, options.plot)
    return report
