"""The table and the picture of `pocketbayes demo`, kept for the README.

python benchmarks/demo.py
"""

import json
import shutil
import tempfile
import time
from pathlib import Path

from record import append_result

from pocketbayes.commands.demo import DemoOptions, run_demo

PICTURE = Path(__file__).parents[1] / "docs" / "demo.png"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = DemoOptions(out=Path(folder))
        begin = time.perf_counter()
        run_demo(options, as_json=False)
        seconds = time.perf_counter() - begin
        shutil.copy(options.out / "demo.png", PICTURE)
        rows = json.loads((options.out / "table.json").read_text())["rows"]
    for row in rows:
        append_result("demo", epochs=options.epochs, seed=0, demo_seconds=seconds, **row)


if __name__ == "__main__":
    main()
