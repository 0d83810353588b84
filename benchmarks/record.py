"""Results as JSON lines, each with all that is needed to judge or repeat it."""

import json
import os
import platform
import resource
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def commit() -> str:
    """The commit of this checkout, marked if there are changes on top."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=RESULTS.parent, capture_output=True, text=True)
        return done.stdout.strip()

    if "POCKETBAYES_COMMIT" in os.environ:  # a copy of the tree without its history
        return os.environ["POCKETBAYES_COMMIT"]
    changed = git("status", "--porcelain", "--", "../src", ".").splitlines()
    dirty = any(not line.endswith(".jsonl") for line in changed)
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+changes" if dirty else "")


def processor() -> str:
    """The name of the CPU or, if there is one, of the GPU."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    found = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    names = [line.split(":", 1)[1] for line in found.splitlines() if line.startswith("Model name")]
    return f"{names[0].strip() if names else platform.machine()}, {os.cpu_count()} cores"


def command() -> str:
    """How this run was started, from this folder; folders of one's own are DATA."""
    script, *words = sys.argv
    path, here = Path(script).resolve(), RESULTS.parent.resolve()
    script = str(path.relative_to(here)) if path.is_relative_to(here) else path.name
    words = [f"DATA/{Path(w).name}" if w[:1] == "/" and Path(w).is_file() else w for w in words]
    words = ["DATA" if w[:1] == "/" else w for w in words]
    return shlex.join(["python", script, *words])


def peak_memory() -> dict[str, int]:
    """The most bytes that this process, and torch on its GPU since a reset, have held so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    found = {"peak_bytes": unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    if torch.cuda.is_available():
        found["peak_gpu_bytes"] = torch.cuda.max_memory_allocated()
    return found


def append_result(table: str, **values: Any) -> None:
    """Adds one line to results/<table>.jsonl and shows it."""
    import pocketbayes

    line = (
        peak_memory()
        | values
        | {
            "command": command(),
            "commit": commit(),
            "hardware": processor(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "pocketbayes": pocketbayes.__version__,
            "python": platform.python_version(),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        }
    )
    directory = Path(os.environ.get("POCKETBAYES_RESULTS", RESULTS))
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / f"{table}.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}
    print(json.dumps(shown), flush=True)
