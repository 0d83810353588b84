"""The command line: `pocketbayes demo | train | compress | distill | evaluate | predict | ...`.

Options of methods, networks and data sets are read off their signatures (see `flags`). Results go
to stdout, all else to stderr; the exit code is 0, 1 (failed), 2 (called wrongly) or 130 (Ctrl-C).
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from pocketbayes import __version__, codec
from pocketbayes.commands.bench import BenchOptions, run_bench
from pocketbayes.commands.compress import CompressOptions, compress_flags, run_compression
from pocketbayes.commands.compressed_runs import before_and_after
from pocketbayes.commands.demo import DemoOptions, run_demo
from pocketbayes.commands.distill import compared, distill_flags, run_distillation
from pocketbayes.commands.evaluate import evaluate_flags, run_evaluation
from pocketbayes.commands.export import ExportOptions, run_export
from pocketbayes.commands.features import FeatureOptions, run_features
from pocketbayes.commands.figures import figure_flags, run_figures
from pocketbayes.commands.flags import add_flags, given_options, options_in
from pocketbayes.commands.messages import plain_messages
from pocketbayes.commands.planning import plan_of, train_flags
from pocketbayes.commands.predict import PredictOptions, how_predicted, run_prediction
from pocketbayes.commands.processes import launched_processes
from pocketbayes.commands.report import report_flags, run_report
from pocketbayes.commands.runs import MODEL
from pocketbayes.commands.train import run_training
from pocketbayes.report import facts_table, rows_table, show

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Small Bayesian neural networks: train, measure, predict with uncertainty, one safe file.",
)
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="YAML file with `option: value` lines; flags win.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Target = Annotated[
    Path, typer.Argument(metavar="RUN_OR_FILE", help="A run directory or a .pocket file.")
]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs or .pocket files.")]
TRAIN, EVALUATE = train_flags(), evaluate_flags()
COMPRESS, DISTILL = compress_flags(), distill_flags()
EXPORT, BENCH = options_in(ExportOptions), options_in(BenchOptions)
PREDICT, DEMO = options_in(PredictOptions), options_in(DemoOptions)
FIGURES, FEATURES = figure_flags(), options_in(FeatureOptions)
REPORT = report_flags()


def train(
    config: ConfigFile = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this directory.")
    ] = None,
    json: Json = False,
    **values: Any,
) -> None:
    """Train a network and write a run directory.

    It will hold config.yaml, history.jsonl, checkpoint.pt, model.pocket and metrics.json. The
    numbers printed are those of the validation part of the training data.

    [bold]Examples[/bold]

      pocketbayes train --data digits --model mlp

      pocketbayes train --data cifar10 --root DATA --model resnet18 --optimizer sgd --lr 0.2

      pocketbayes train --data csv --file house.csv --target price --model mlp --hidden 64,64

      pocketbayes train --resume runs/second
    """
    given = given_options(values, config, TRAIN)
    plan = plan_of(resume, given, TRAIN)
    code = launched_processes(plan, given)
    if code is not None:
        raise typer.Exit(code)
    report = run_training(plan, resume is not None)
    if report:
        show(report, json, facts_table(f"run {report['run']}", report))


def compress(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run.")],
    config: ConfigFile = None,
    json: Json = False,
    **values: Any,
) -> None:
    """Make a run's file fit a size, a cost or a quality, and write a new run directory.

    The network is pruned step by step, and trained on after each step. What comes of it is stored
    at several tolerances, with [bold]--components[/bold] by a codebook too, and measured on the
    validation part. The best that fits is written, or the command fails and says how small it
    gets. The test set is never looked at.

    [bold]Examples[/bold]

      pocketbayes compress runs/digits-mlp-mean-field --target-bytes 12kB

      pocketbayes compress runs/a --target-bytes 0.5MB --epochs 10 --out runs/small
    """
    options = CompressOptions(**given_options(values, config, COMPRESS))
    report = run_compression(run, options)
    title = f"{report['run']}, on its {report['after']['num_examples']} validation examples"
    show(report, json, rows_table(title, before_and_after(report)))


def distill(
    run_or_file: Target, config: ConfigFile = None, json: Json = False, **values: Any
) -> None:
    """Teach a model to tell from one pass what its draws say, and write a new run or file.

    The data is the training data, prepared and augmented as the run did. One pass and draws are
    compared on the validation part.

    [bold]Examples[/bold]

      pocketbayes distill runs/digits-mlp-mean-field
    """
    report = run_distillation(run_or_file, given_options(values, config, DISTILL), DISTILL)
    title = f"{report['out']}, {report['bytes']:,} bytes, before {report['bytes_before']:,}"
    show(report, json, rows_table(title, compared(report)))


def evaluate(
    run_or_file: Target, config: ConfigFile = None, json: Json = False, **values: Any
) -> None:
    """Measure a model: accuracy, likelihood, calibration, out-of-distribution detection.

    [bold]Examples[/bold]

      pocketbayes evaluate runs/digits-mlp-mean-field --ood photo-patches

      pocketbayes evaluate model.pocket --data cifar10 --root DATA --ood svhn --json

      pocketbayes evaluate r20.safetensors --model resnet20 --data cifar10 --normalize imagenet
    """
    result = run_evaluation(run_or_file, given_options(values, config, EVALUATE), EVALUATE)
    show(result, json, facts_table(str(run_or_file), result))


def predict(
    run_or_file: Target,
    inputs: Annotated[
        list[Path], typer.Argument(help="Images, folders of images, or CSV/Parquet files.")
    ],
    config: ConfigFile = None,
    json: Json = False,
    **values: Any,
) -> None:
    """Predict for images or table rows: the answer, how sure, and why not.

    Doubt is [bold]aleatoric[/bold] (the network's draws agree that the input is ambiguous) or
    [bold]epistemic[/bold] (the draws disagree). By one pass or moments nothing is drawn: then
    this is what draws would do.

    [bold]Examples[/bold]

      pocketbayes predict runs/digits-mlp-mean-field seven.png one.png

      pocketbayes predict house.pocket new_houses.csv --json
    """
    options = PredictOptions(**given_options(values, config, PREDICT))
    result = run_prediction(run_or_file, inputs, options)
    title = f"{run_or_file}, {how_predicted(result, options)}"
    show(result, json, rows_table(title, result["predictions"]))


def export(
    run_or_file: Target, out: Out, config: ConfigFile = None, json: Json = False, **values: Any
) -> None:
    """Write a model for other runtimes: answers and doubts without torch or this library.

    [bold]Examples[/bold]

      pocketbayes export model.pocket model.onnx --estimator mean --int8 --data digits

      pocketbayes export model.pocket firmware/digits.c --to c --data digits
      pocketbayes export model.pocket page --to web --data digits
    """
    made = run_export(run_or_file, out, ExportOptions(**given_options(values, config, EXPORT)))
    show(made.facts(), json, str(made))


def bench(
    run_or_file: Target, config: ConfigFile = None, json: Json = False, **values: Any
) -> None:
    """Measure what an answer costs: load time, memory, milliseconds, through each runtime.

    [bold]Examples[/bold]

      pocketbayes bench runs/a --estimator mean --runtimes torch,engine --batch-sizes 1,16,256
    """
    by, found = run_bench(run_or_file, BenchOptions(**given_options(values, config, BENCH)))
    result = {"estimator": by, "runtimes": [timing.facts() for timing in found]}
    ran = ", ".join(dict.fromkeys(timing.estimator for timing in found))
    show(result, json, rows_table(f"answers by {ran}", [timing.row() for timing in found]))


def figures(
    run_or_file: Target, config: ConfigFile = None, json: Json = False, **values: Any
) -> None:
    """Draw a model's weights: mean and std, which share, densities by layer, confidence by class.

    [bold]Examples[/bold]

      pocketbayes figures runs/digits-mlp-mean-field --components 40 --out pictures
    """
    drawn = run_figures(run_or_file, given_options(values, config, FIGURES), FIGURES)
    show({"figures": drawn}, json, "\n".join(drawn))


def features(
    run_or_file: Target, config: ConfigFile = None, json: Json = False, **values: Any
) -> None:
    """Show how likely each input is used, by a model that can tell.

    It can if it was trained by [bold]--method spike-slab --granularity input[/bold].

    [bold]Examples[/bold]

      pocketbayes train --data csv --file house.csv --target price --model mlp
      --method spike-slab --granularity input --layers first --out runs/house

      pocketbayes features runs/house --plot features.png
    """
    report = run_features(run_or_file, FeatureOptions(**given_options(values, config, FEATURES)))
    show(report.to_dict(), json, str(report))


def report(runs: Runs, config: ConfigFile = None, json: Json = False, **values: Any) -> None:
    """Write one page about models: how big, how accurate, how sure, and where not.

    The page holds its pictures and loads nothing: it can be mailed, printed and read on a phone.

    [bold]Examples[/bold]

      pocketbayes report runs/a runs/a-compressed --ood photo-patches

      pocketbayes report model.pocket --data cifar10 --root DATA --ood svhn --out page.html
    """
    result = run_report(runs, given_options(values, config, REPORT), REPORT)
    show(result, json, f"wrote {result['page']}, {result['bytes']:,} bytes")


def inspect(run_or_file: Target, json: Json = False) -> None:
    """Show what a file holds: network, posteriors, sections and bytes.

    [bold]Examples[/bold]

      pocketbayes inspect runs/digits-mlp-mean-field --json
    """
    summary = codec.inspect(run_or_file / MODEL if run_or_file.is_dir() else run_or_file)
    show(summary.to_dict(), json, str(summary))


def demo(config: ConfigFile = None, json: Json = False, **values: Any) -> None:
    """Train, measure, store and use small networks on embedded digits; no download.

    [bold]Examples[/bold]

      pocketbayes demo
    """
    run_demo(DemoOptions(**given_options(values, config, DEMO)), json)


for command, flags in (
    (demo, DEMO), (train, TRAIN), (compress, COMPRESS), (distill, DISTILL), (evaluate, EVALUATE),
    (predict, PREDICT), (export, EXPORT), (bench, BENCH), (figures, FIGURES), (features, FEATURES),
    (report, REPORT),
):  # fmt: skip
    app.command()(add_flags(command, flags))
app.command()(inspect)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Runs the command line; errors become a message on stderr and an exit code."""
    with plain_messages():
        app()
