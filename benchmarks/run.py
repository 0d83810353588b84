"""One command per table: runs what is missing, and leaves what is there.

    python benchmarks/run.py --list
    python benchmarks/run.py ssvi-1 chain --root DATA --files FOLDER
    python benchmarks/run.py headline --root DATA --files FOLDER --seconds 540

A job is one script with one seed. It is done when benchmarks/results/ (or $POCKETBAYES_RESULTS)
holds all rows of that script, those arguments and that seed, whichever command line made them; so
a run that was cut off goes on where it stopped. `--seconds` starts nothing that would, by its time
on one H200, end later. FOLDER keeps the models that later jobs start from.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plans import TABLES, Job
from record import RESULTS

Arguments = frozenset[tuple[str, tuple[str, ...]]]


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("tables", nargs="*", metavar="TABLE", choices=[*TABLES, []])
    made.add_argument("--root", type=Path, help="folder of the data")
    made.add_argument("--files", type=Path, help="folder of models; default ROOT/files")
    made.add_argument("--seeds", nargs="+", type=int, help="only these")
    made.add_argument("--seconds", type=float, default=float("inf"))
    made.add_argument("--list", action="store_true", help="show all tables and what is done")
    made.add_argument("--dry-run", action="store_true", help="show the commands")
    a = made.parse_args()
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
    """Runs the jobs that are not done; the number of those that failed."""
    begin, failed = time.monotonic(), 0
    for job in jobs:
        if is_done(job):
            continue
        words = [sys.executable, *placed(job, folders)]
        if time.monotonic() - begin + job.seconds > seconds:
            print(f"no time for: {shlex.join(words[1:])}", file=sys.stderr)
            continue
        print(shlex.join(["python", *words[1:]]), flush=True)
        if not dry:
            done = subprocess.run(words, cwd=Path(__file__).parent, stdout=subprocess.DEVNULL)
            failed += done.returncode != 0
    return failed


def placed(job: Job, folders: dict[str, Path]) -> list[str]:
    """The job's words with real folders."""

    def real(word: str) -> str:
        first, slash, rest = word.partition("/")
        return f"{folders[first]}{slash}{rest}" if first in folders else word

    return [real(word) for word in job.words]


def is_done(job: Job) -> bool:
    """Whether all its rows are there."""
    script, arguments = understood(job.words)
    found = 0
    for row in rows_of(job.table):
        made_by, others = understood(shlex.split(row["command"])[1:])
        is_same = (made_by, others) == (script, arguments)
        seed = row.get("seed", row.get("settings", {}).get("seed", 0))
        found += is_same and seed == job.seed
    return found >= job.rows


def rows_of(table: str) -> Iterator[dict[str, Any]]:
    """All rows of a table, wherever results are kept."""
    for folder in {RESULTS, Path(os.environ.get("POCKETBAYES_RESULTS", RESULTS))}:
        path = folder / f"{table}.jsonl"
        if path.exists():
            yield from map(json.loads, path.read_text().splitlines())


def understood(words: Sequence[str]) -> tuple[str, Arguments]:
    """Script and arguments in no order, without seeds; folders are all DATA."""
    groups: list[list[str]] = []
    for word in words[1:]:
        if word.startswith("--"):
            groups.append([word])
        else:
            groups[-1].append(_anywhere(word))
    kept = (g for g in groups if g[0] not in ("--seeds", "--seed"))
    return Path(words[0]).name, frozenset((g[0], tuple(g[1:])) for g in kept)


def _anywhere(word: str) -> str:
    first, slash, rest = word.partition("/")
    if first not in ("DATA", "FILES"):
        return word
    return f"DATA/{Path(rest).name}" if slash else "DATA"


if __name__ == "__main__":
    main()
