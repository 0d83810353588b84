"""Compiles the C engine into the wheel; on x86-64 also for newer processors, chosen at import."""

import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = [
    "-std=c99", "-O3", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
]  # fmt: skip
# What `level` in library.py asks for: file name, and what its processors can do.
NEWER = {"engine-avx2.so": "x86-64-v3", "engine-avx512.so": "x86-64-v4"}


class CompiledEngine(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the engine, and says for which platform the wheel is.

    With POCKETBAYES_LITE_NATIVE=1 it is compiled once, for this very processor.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel is put together."""
        if version == "editable":
            raise RuntimeError("pocketbayes-lite cannot be editable: pip install ./lite")
        self.folder, here = Path(tempfile.mkdtemp()), Path(self.root)
        if not (here / "LICENSE").is_file():  # in a checkout, whose licence lies at its root
            build_data["force_include"][str(here.parent / "LICENSE")] = "pocketbayes_lite/LICENSE"
        levels = {"engine.so": ""}
        if os.environ.get("POCKETBAYES_LITE_NATIVE") == "1":
            levels = {"engine.so": "native"}
        elif platform.machine().lower() in ("x86_64", "amd64"):
            levels |= NEWER
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for name, level in levels.items():
                self._compile(pool, self.folder / name, [f"-march={level}"] if level else [])
                build_data["force_include"][str(self.folder / name)] = f"pocketbayes_lite/{name}"
        tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"], build_data["tag"] = False, f"py3-none-{tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Afterwards."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _compile(self, pool: ThreadPoolExecutor, library: Path, more: list[str]) -> None:
        here = Path(self.root)
        engine = next(p for p in (here / "engine", here.parent / "engine") if p.is_dir())
        compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise RuntimeError("pocketbayes-lite is compiled: install gcc or clang, or set CC")

        def made(source: Path) -> str:
            target = str(library.with_name(f"{library.stem}-{source.stem}.o"))
            command = [*compiler.split(), *FLAGS, *more, "-c", "-o", target, str(source)]
            subprocess.run(command, check=True)
            return target

        objects = list(pool.map(made, sorted(engine.glob("*.c"))))
        link = [*compiler.split(), "-shared", "-s", "-o", str(library), *objects, "-lm"]
        subprocess.run(link, check=True)
