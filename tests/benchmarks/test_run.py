"""The benchmark runner: what counts as done, and that its plans can be run."""

import json
import re
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import plans  # noqa: E402
import run  # noqa: E402


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Writes rows as if scripts had been run; nothing else is there."""
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    monkeypatch.setenv("POCKETBAYES_RESULTS", str(tmp_path))

    def write(*rows):
        (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    return write


def job(command, rows=1, seed=0):
    return plans.Job(tuple(command.split()), "t", rows, seed, 10)


def test_a_job_is_done_when_all_rows_of_its_seed_are_there(results):
    made = {"command": "python x.py --root DATA --seeds 0 1 2 --beta 0.1 --lr 1"}
    first, second = made | {"seed": 0, "stage": "a"}, made | {"seed": 0, "stage": "b"}
    results(first, second, made | {"seed": 1}, made | {"seed": 1})
    wanted = "x.py --beta 0.1 --root DATA --lr 1 --seeds"
    assert run.is_done(job(f"{wanted} 0", rows=2))
    assert not run.is_done(job(f"{wanted} 1", rows=2, seed=1))
    assert not run.is_done(job(f"{wanted} 2", rows=1, seed=2))
    assert not run.is_done(job("x.py --beta 0.2 --root DATA --lr 1 --seeds 0"))
    assert not run.is_done(job("y.py --beta 0.1 --root DATA --lr 1 --seeds 0"))


def test_parts_of_a_job_add_up_by_what_tells_their_rows_apart(results):
    def rows(words, **known):
        return {"command": f"python x.py --sets a b {words}", "row": "r", "set": "a"} | known

    wanted = job("x.py --sets a", rows=3)
    first, second = rows("--splits 2", split=0), rows("--splits 2", split=1)
    third = rows("--from-split 2 --splits 3 --families f", split=2)
    results(first, second, second)
    assert not run.is_done(wanted)
    results(first, second, third)
    assert run.is_done(wanted)
    assert not run.is_done(job("x.py --sets b", rows=3))


def test_rows_that_only_their_settings_tell_apart_all_count(results):
    made = {"command": "python x.py --vary growth=a growth=b", "seed": 0}
    first, second = ({**made, "settings": {"growth": growth}} for growth in "ab")
    wanted = job("x.py --vary growth=a growth=b", rows=2)
    later = {**made, "settings": {"growth": "a", "std_init": 0.001}}
    results(first, first, later)
    assert not run.is_done(wanted)
    results(first, second)
    assert run.is_done(wanted)


def test_a_row_that_was_repeated_with_newer_settings_counts_once(results):
    made = {"command": "python x.py --lr 1", "seed": 0}
    older = made | {"method": {"method": "Sharing"}, "settings": {}}
    newer = {"method": {"method": "Sharing", "draw": "shared"}, "settings": {"std_init": 0.001}}
    results(older, made | newer)
    assert not run.is_done(job("x.py --lr 1", rows=2))
    results(older, made | {"method": {"method": "RigL"}})
    assert run.is_done(job("x.py --lr 1", rows=2))


def test_libraries_count_by_their_names(results):
    made = {"command": "python peers/compare.py --lr 1 --rows a b c", "seed": 0}
    results(made | {"row": "b"}, made | {"row": "c"})
    assert run.is_done(job("peers/compare.py --lr 1 --rows b c", rows=2))
    assert not run.is_done(job("peers/compare.py --lr 1 --rows a", rows=1))
    assert not run.is_done(job("peers/compare.py --lr 1", rows=3))
    for planned in plans.TABLES["peers"].jobs:
        words = planned.words
        if "--rows" in words:
            named = words[words.index("--rows") + 1 : words.index("--seed")]
            assert len(named) == planned.rows


def test_densities_are_told_by_the_rows_where_all_methods_are(results):
    made = {"command": "python side_by_side.py --lr 1 --density 0.05 --families subspace"}
    results(made | {"row": "a"}, {"command": "python side_by_side.py --lr 1", "row": "b"})
    assert run.is_done(job("side_by_side.py --lr 1", rows=2))
    assert not run.is_done(job("side_by_side.py --lr 2", rows=1))
    results({"command": "python subspace.py --density 0.05", "row": "a"})
    assert not run.is_done(job("subspace.py --density 0.1"))


def test_models_are_known_by_name_wherever_they_lie(results):
    results({"command": "python x.py --compress DATA/a-0.pocket", "seed": 0})
    assert run.is_done(job("x.py --compress FILES/a-0.pocket"))
    assert not run.is_done(job("x.py --compress FILES/a-1.pocket"))


def test_a_job_of_some_families_asks_for_rows_of_these(results):
    made = {"command": "python side_by_side.py --lr 1 --families a b"}
    results(*(made | {"family": name, "row": row} for name, row in ("ax", "ay", "bz")))
    assert run.is_done(job("side_by_side.py --lr 1 --families a", rows=2))
    assert run.is_done(job("side_by_side.py --lr 1 --families a b", rows=3))
    assert not run.is_done(job("side_by_side.py --lr 1 --families b", rows=2))
    assert not run.is_done(job("side_by_side.py --lr 1 --families c"))
    assert run.is_done(job("side_by_side.py --lr 1", rows=3))


def test_corrupted_files_count_one_by_one(results):
    made = {"command": "python corruptions.py --root DATA --files DATA/a-0.pocket DATA/b-0.pocket"}
    rows = [made | {"file": "a-0.pocket", "severity": severity} for severity in (0, 1)]
    results(*rows, made | {"file": "b-0.pocket", "severity": 0})
    wanted = "corruptions.py --root DATA --files FILES"
    assert run.is_done(job(f"{wanted}/a-0.pocket", rows=2))
    assert not run.is_done(job(f"{wanted}/b-0.pocket", rows=2))
    assert not run.is_done(job(f"{wanted}/c-0.pocket"))


def test_files_have_the_names_that_rows_tell():
    files = {row["file"] for row in run.rows_of("side_by_side") if "file" in row}
    names = [name for family in plans.FAMILIES.values() for name in family.files]
    assert {f"resnet18-cifar10-{name}-0.pocket" for name in names} <= files


def test_only_what_is_missing_is_run(results, monkeypatch, capsys, tmp_path):
    results({"command": "python x.py --lr 1", "seed": 0})
    ran = []

    def pretend(words, **_):
        ran.append(words[1:])
        return type("Done", (), {"returncode": 1})

    monkeypatch.setattr(run.subprocess, "run", pretend)
    folders = {"DATA": tmp_path, "FILES": tmp_path}
    (tmp_path / "a.pocket").touch()
    todo = [job("x.py --lr 1"), job("x.py --root DATA --compress FILES/a.pocket"), job("z.py")]
    todo.append(job("x.py --compress FILES/b.pocket"))
    assert run.run(todo, folders, seconds=15, dry=False) == 3  # two fail, one lacks a file
    place = str(tmp_path)
    assert ran == [["x.py", "--root", place, "--compress", f"{place}/a.pocket"], ["z.py"]]
    assert "FILES/b.pocket is not there" in capsys.readouterr().err
    ran.clear()
    assert run.run(todo[:3], folders, seconds=5, dry=False) == 0
    assert ran == []
    assert "no time for" in capsys.readouterr().err
    assert run.run(todo[:3], folders, seconds=15, dry=True) == 0
    assert ran == []
    assert "no time for: python z.py" in capsys.readouterr().err


def test_what_is_complete_is_run_once_more_into_a_folder_of_ones_own(
    results, monkeypatch, capsys, tmp_path
):
    made = {"command": "python x.py --lr 1", "seed": 0}
    results(made)
    mine = tmp_path / "mine"
    monkeypatch.setattr(run, "TABLES", {"mine": plans.Table("all", (job("x.py --lr 1"),))})
    monkeypatch.delenv(run.AFRESH, raising=False)  # what main sets is taken back

    def said(*words):
        monkeypatch.setattr(sys, "argv", ["run.py", "mine", "--root", str(tmp_path), *words])
        with pytest.raises(SystemExit, match="0"):
            run.main()
        return capsys.readouterr()

    assert "nothing is missing" in said().err
    assert said("--into", str(mine), "--dry-run").out == "python x.py --lr 1\n"
    went = []

    def pretend(words, env, **_):
        went.append(env)
        mine.mkdir()
        (mine / "t.jsonl").write_text(json.dumps(made) + "\n")
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(run.subprocess, "run", pretend)
    said("--into", str(mine))
    assert [(env["POCKETBAYES_RESULTS"], env[run.AFRESH]) for env in went] == [(str(mine), "1")]
    assert "nothing is missing" in said("--into", str(mine)).err


def test_what_made_a_file_that_is_needed_and_lost_is_run_again(results, tmp_path):
    parent = replace(job("x.py --lr 1"), makes=("FILES/a.pocket",))
    child = job("y.py --compress FILES/a.pocket")
    folders = {"DATA": tmp_path, "FILES": tmp_path}
    results({"command": "python x.py --lr 1", "seed": 0})
    assert run.missing([parent, child], folders) == [parent, child]
    (tmp_path / "a.pocket").touch()
    assert run.missing([parent, child], folders) == [child]
    made = {"command": "python y.py --compress DATA/a.pocket", "seed": 0}
    results({"command": "python x.py --lr 1", "seed": 0}, made)
    (tmp_path / "a.pocket").unlink()
    assert run.missing([parent, child], folders) == []


def test_jobs_of_several_tables_come_once():
    jobs = list(run.wanted(list(plans.TABLES), None))
    assert len(jobs) == len({job.words for job in jobs})
    assert {j.seed for j in run.wanted(["chain"], [1])} == {1}


def options_of(script):
    """Those it names, and those of modules that it imports."""
    text = script.read_text()
    modules = re.findall(r"^from (cifar|families) import", text, re.M)
    known = text + "".join((BENCHMARKS / f"{name}.py").read_text() for name in modules)
    return set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', known))


@pytest.mark.parametrize("name", plans.TABLES)
def test_plans_name_scripts_and_options_that_exist(name):
    for planned in plans.TABLES[name].jobs:
        options = options_of(BENCHMARKS / planned.words[0])
        assert {word for word in planned.words if word.startswith("--")} <= options
        table = re.search(r"--table (\S+)", " ".join(planned.words))
        assert table is None or table[1] == planned.table


@pytest.mark.parametrize("name", plans.TABLES)
def test_files_that_a_job_starts_from_are_made_before(name):
    made = set()
    for planned in plans.TABLES[name].jobs:
        assert set(planned.needs) <= made, planned.words
        made.update(planned.makes)


def test_the_list_shows_every_table(capsys, monkeypatch):
    monkeypatch.setattr(run, "is_done", cache(run.is_done))  # asked twice for each job
    monkeypatch.setattr(run.shlex, "split", cache(run.shlex.split))  # of each row for each job
    monkeypatch.setattr(run, "rows_of", cache(lambda table, read=run.rows_of: list(read(table))))
    run.show(list(plans.TABLES))
    shown = capsys.readouterr().out
    assert all(re.search(rf"^{name} +\d+ of \d+", shown, re.M) for name in plans.TABLES)
