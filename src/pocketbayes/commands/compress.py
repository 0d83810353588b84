"""`pocketbayes compress`: a run made to fit a size, chosen by its validation part."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from pocketbayes.commands.candidates import Candidate, CandidateMaker, TooLarge, traits_of, words_of
from pocketbayes.commands.compressed_runs import (
    candidate_rows,
    compression_report,
    write_compressed_run,
)
from pocketbayes.commands.flags import Flag, UsageError, as_usage_error, options_in, with_choices
from pocketbayes.commands.opening import (
    chosen_device,
    in_units,
    opened_data,
    opened_model,
    prepared_alike,
)
from pocketbayes.commands.planning import Plan, resumed, train_flags
from pocketbayes.commands.retaught import (
    fate_of_head,
    has_lost_head,
    retaught,
    room_for_head_,
    without_head_,
)
from pocketbayes.commands.runs import MODEL, beside, hidden_folder, require_free
from pocketbayes.commands.train import opened_parts
from pocketbayes.compression import Recipe, Traits, ranked_scores, recipes_for
from pocketbayes.data import DATASETS, MemoryLoader
from pocketbayes.errors import PocketBayesError, require_count, require_number
from pocketbayes.layers import describe, head_of
from pocketbayes.report import as_text

_MUCH_WORSE = 0.1  # nats per example


@dataclass(frozen=True)
class CompressOptions:
    """Options of `compress`.

    Attributes:
        target_bytes: most bytes of the new file, as 500000, 500kB, 0.5MB or 1MiB.
        out: directory of the new run; default RUN-compressed.
        epochs: passes over the training data for each of the best candidates; 0: none.
        finalists: how many candidates are fine-tuned.
        lr: peak learning rate of that.
        components: entries of a shared codebook at most.
        ood: another data set, which the model should be unsure about; measured before and after.
        ood_root: folder that holds it; else as root.
        root: folder that holds the run's data, if it has moved; else as in the run.
        model: network of your own as package.module:factory.
        num_samples: draws per prediction; default as in the run.
        seed: of training and draws; default as in the run.
        device: auto, cpu or cuda; default as in the run.
    """

    target_bytes: int | None = None
    out: Path | None = None
    epochs: int = 5
    finalists: int = 2
    lr: float = 3e-3
    components: int = 256
    ood: str | None = None
    ood_root: Path | None = None
    root: Path | None = None
    model: str | None = None
    num_samples: int | None = None
    seed: int | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if self.target_bytes is None:
            raise UsageError("say --target-bytes, the most that the new file may have: 500kB")
        with as_usage_error():
            require_count(self.target_bytes, "--target-bytes")
            for name in ("epochs", "finalists"):
                require_count(getattr(self, name), f"--{name}", least=0)
            require_number(self.lr, "--lr", least=0)
            require_count(self.components, "--components", least=2)
            for name in ("num_samples", "seed"):
                if getattr(self, name) is not None:
                    least = 0 if name == "seed" else 1
                    require_count(getattr(self, name), f"--{name.replace('_', '-')}", least=least)


def compress_flags() -> dict[str, Flag]:
    """Every option of `compress`."""
    found = options_in(CompressOptions)
    return found | {"ood": with_choices(found["ood"], DATASETS)}


def run_compression(run: Path, options: CompressOptions) -> dict[str, Any]:
    """Tries, trains, chooses and writes a run directory; the report says what was found."""
    begin = time.monotonic()
    plan = _plan_of(run, options)
    out = options.out or beside(run, "compressed")
    require_free(out)
    with hidden_folder(out) as folder:
        maker = _candidate_maker(run, plan, options, folder)
        outside = _outside(maker, options)
        before = maker.as_stored()
        _say_start(run, before.size, maker.target)
        found, missed, best, chosen = _chosen(maker, before, options)
        report = compression_report(run, out, maker, (before, chosen), outside)
        report |= fate_of_head(maker, chosen, out)
        report["candidates"] = candidate_rows(maker, found, missed, best)
        report["seconds"] = time.monotonic() - begin
        write_compressed_run(folder / "run", out, maker, chosen, run, report)
    if "one_pass" in report:
        _say(f"the one-pass head was {report['one_pass']}")
    _say_end(out, options.model, maker.traits, (before, chosen))
    return report


def _plan_of(run: Path, options: CompressOptions) -> Plan:
    """The plan of the run, with what may be said anew."""
    if not run.is_dir():
        raise UsageError(
            f"{run} is not a run directory: compress needs the run's data and settings, so give "
            "the folder that train wrote"
        )
    names = ("root", "model", "num_samples", "device")
    said = {n: getattr(options, n) for n in names if getattr(options, n) is not None}
    plan = resumed(run, said, train_flags())
    if plan.options.validation == 0:
        raise UsageError(
            f"{run} held nothing back (validation: 0), and candidates are chosen by the validation "
            "part: train it with --validation 0.1"
        )
    seed = plan.options.seed if options.seed is None else options.seed
    return replace(plan, options=replace(plan.options, seed=seed))


def _candidate_maker(
    run: Path, plan: Plan, options: CompressOptions, folder: Path
) -> CandidateMaker:
    device = chosen_device(plan.options.device)
    model = opened_model(run, options.model).to(device)
    train, validation = opened_parts(plan, device, run)
    assert validation is not None
    known = describe(model)
    if not prepared_alike(known, train):
        raise PocketBayesError(
            f"the data is not what {run} was trained on: its preparation has other numbers; "
            "restore it, or say --root where it is"
        )
    if known.class_names and known.class_names != train.classes:
        raise PocketBayesError(
            f"the data is not what {run} was trained on: its classes were "
            f"{_listed(known.class_names)}, and are {_listed(train.classes)}; restore it, or say "
            "--root where it is"
        )
    (folder / "files").mkdir()
    target = cast(int, options.target_bytes)
    return CandidateMaker(
        model, run / MODEL, plan, train, validation, folder / "files", target, traits_of(model),
        options.lr, room_for_head_(model, folder / "files", target),
    )  # fmt: skip


def _chosen(
    maker: CandidateMaker, before: Candidate, options: CompressOptions
) -> tuple[list[Candidate], list[TooLarge], Candidate, Candidate]:
    """What fits, what does not, the best, and that with its head.

    If the head does not fit after all, the choice is made again without room for one.
    """
    found, missed = _tried(maker, before, options)
    if found:
        best = _best(found, maker.limit)[0]
        chosen = retaught(maker, best)
        if not has_lost_head(maker, chosen):
            return found, missed, best, chosen
    elif not maker.head_bytes:
        raise PocketBayesError(_unreachable(maker.target, min(missed, key=lambda m: m.size)))
    _say("with a one-pass head it does not fit: chosen again without one")
    return _chosen(without_head_(maker), before, options)


def _tried(
    maker: CandidateMaker, before: Candidate, options: CompressOptions
) -> tuple[list[Candidate], list[TooLarge]]:
    """What fits and what does not: first all without training, then the best ones fine-tuned."""
    found, missed = list[Candidate](), list[TooLarge]()
    for recipe in recipes_for(maker.traits, options.components):
        attempt = _attempted(maker, recipe, before)
        if isinstance(attempt, Candidate):
            found.append(attempt)
        elif attempt is not None:
            missed.append(attempt)
    if found and options.epochs and not maker.traits.is_ensemble:
        changed = [c for c in _best(found, maker.limit) if not c.recipe.is_untouched]
        for finalist in changed[: options.finalists]:
            attempt = _trained_on(maker, finalist.recipe, options.epochs)
            if attempt is not None:
                found.append(attempt)
    return found, missed


def _best(found: list[Candidate], target: int) -> list[Candidate]:
    """The candidates by their quality, those without finite numbers left out."""
    order = ranked_scores([c.score() for c in found], target)
    if not order:
        raise PocketBayesError(
            "no candidate has a finite likelihood on the validation part: is the run itself good? "
            "see pocketbayes evaluate"
        )
    return [found[number] for number in order]


def _trained_on(maker: CandidateMaker, recipe: Recipe, epochs: int) -> Candidate | None:
    """The recipe with training; None: that failed, or the file does not fit any more."""
    try:
        outcome = maker.finished(recipe, epochs)
    except PocketBayesError as error:
        _say(f"  {words_of(recipe, epochs)}: not possible: {error}")
        return None
    if isinstance(outcome, Candidate):
        _say(_line(maker, outcome))
        return outcome
    _say(f"  {words_of(recipe, epochs)}: {outcome.size:,} bytes, no longer fits")
    return None


def _attempted(
    maker: CandidateMaker, recipe: Recipe, before: Candidate
) -> Candidate | TooLarge | None:
    """The candidate, or how large it came out; None: not possible for this model."""
    try:
        as_it_is = recipe == before.recipe and maker.had_head == (head_of(maker.model) is not None)
        outcome = before if as_it_is else maker.fitted(recipe)
    except PocketBayesError as error:
        _say(f"  {recipe.words()}: not possible: {error}")
        return None
    if isinstance(outcome, Candidate) and outcome.size <= maker.limit:
        _say(_line(maker, outcome))
        return outcome
    _say(f"  {outcome.recipe.words()}: {outcome.size:,} bytes, does not fit")
    return TooLarge(outcome.recipe, outcome.size)


def _unreachable(target: int, smallest: TooLarge) -> str:
    return (
        f"no way was found to {target:,} bytes: the smallest file was {smallest.size:,} "
        f"({smallest.recipe.words()}); ask for more, such as --target-bytes "
        f"{round(1.05 * smallest.size) + 1}, or train a smaller --model"
    )


def _line(maker: CandidateMaker, candidate: Candidate) -> str:
    numbers = in_units(candidate.record.to_dict(), maker.train.preprocess)
    score = "rmse" if "rmse" in numbers else "accuracy"
    quality = f"nll {numbers['nll']:.4g}, {score} {as_text(score, numbers[score])}"
    return f"  {candidate.words()}: {candidate.size:,} bytes, {quality}"


def _say_start(run: Path, size: int, target: int) -> None:
    fits = "which fits already; is there better, no larger?" if size <= target else "too large"
    _say(f"{run} has {size:,} bytes of {target:,}, {fits}")


def _say_end(
    out: Path, own_model: str | None, model: Traits, ends: tuple[Candidate, Candidate]
) -> None:
    before, after = (candidate.record.nll for candidate in ends)
    if after > before + _MUCH_WORSE:
        helps = "a larger --target-bytes" + ("" if model.is_ensemble else " or more --epochs")
        _say(
            f"note: the negative log-likelihood rose by {after - before:.2g} nats; "
            f"{helps} would keep more"
        )
    network = f" --model {own_model}" if own_model else ""
    _say(f"wrote {out}; for the test set: pocketbayes evaluate {out}{network}")


def _listed(names: Sequence[str], most: int = 4) -> str:
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _outside(maker: CandidateMaker, options: CompressOptions) -> MemoryLoader | None:
    """The data set that the model should be unsure about."""
    if options.ood is None:
        return None
    root = options.ood_root or maker.plan.options.root
    unlabelled = replace(describe(maker.model), class_names=None)
    found = opened_data(options.ood, "test", root, {}, unlabelled).to(maker.train.device)
    return MemoryLoader(found, 500)
