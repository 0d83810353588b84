"""Faults on purpose, in short: benchmarks/torture.py makes hundreds of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "torture.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks a process with torch")
def test_nothing_is_lost_by_kills_full_disks_and_jumping_clocks(tmp_path):
    faults = {"kill": 5, "disk": 3, "clock": 3, "kill two": 2}
    for fault, number in faults.items():
        words = ["--fault", fault, "--kills", str(number), "--runs", str(number), "--seconds", "60"]
        environment = os.environ | {"POCKETBAYES_RESULTS": str(tmp_path), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, SCRIPT, *words], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr[-4000:]
    rows = [json.loads(line) for line in (tmp_path / "torture.jsonl").read_text().splitlines()]
    assert {row["fault"] for row in rows} == faults.keys()
    assert all(row["equal"] == row["runs"] > 0 for row in rows)
    assert sum(row["faults"] for row in rows) > 0
