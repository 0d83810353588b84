"""Builds what a browser runs: the engine as WebAssembly, and TypeScript as JavaScript.

python web/build.py [FOLDER]: into src/pocketbayes/deploy/web, or another folder. It needs ziglang,
and npm's binaryen and typescript beside (npm ci --prefix web). Equal sources give equal bytes.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "src/pocketbayes/deploy/web"
MODULES = ("pocketbayes", "pictures", "columns", "page")  # of the page, in order
# Small first: little speed is lost, for the engine's loops are vectors by themselves. Without the
# strength reduction of loops (LSR) it is 3% smaller and as fast.
FLAGS = [
    "--target=wasm32-wasi", "-nostdlib", "-std=c99", "-Oz", "-Xclang", "-Oz", "-msimd128",
    "-mbulk-memory", "-fno-math-errno", "-fno-trapping-math", "-fno-builtin-strlen",
    "-fno-builtin-memcmp", "-fno-builtin-fma", "-fno-builtin-malloc", "-w",
    "-mllvm", "-disable-lsr", "-Wl,--no-entry", "-Wl,--gc-sections", "-Wl,--strip-all", "-s",
    "-Wl,-z,stack-size=262144",
]  # fmt: skip
FEATURES = ("simd", "bulk-memory", "sign-ext", "mutable-globals", "nontrapping-float-to-int")


def build_engine(folder: Path) -> Path:
    """Compiles engine/*.c, with the headers of a C library and without that library."""
    import ziglang

    headers = Path(ziglang.__file__).parent / "lib/libc/include"
    sources = [*sorted((ROOT / "engine").glob("*.c")), ROOT / "web/glue.c", ROOT / "web/libc.c"]
    to = folder / "pocketbayes.wasm"
    command = [
        sys.executable, "-m", "ziglang", "cc", *FLAGS, "-Iengine",
        "-isystem", str(headers / "wasm-wasi-musl"), "-isystem", str(headers / "generic-musl"),
        "-o", str(to), *(str(path.relative_to(ROOT)) for path in sources),
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True)
    enabled = [f"--enable-{name}" for name in FEATURES]
    shrink = [node(), tool("binaryen/bin/wasm-opt"), "-Oz", "--converge", *enabled, to, "-o", to]
    subprocess.run(shrink, check=True)
    to.chmod(0o644)
    return to


def build_script(folder: Path) -> list[Path]:
    """Runs tsc, which checks the types as well; the page's modules become one script."""
    tsc = tool("typescript/bin/tsc")
    with tempfile.TemporaryDirectory() as made:
        subprocess.run([node(), tsc, "-p", ROOT / "web", "--outDir", made], check=True)
        modules = {path.stem: path.read_text() for path in Path(made).glob("*.js")}
    library, page = folder / "pocketbayes.js", folder / "page.js"
    library.write_text(modules["pocketbayes"])
    page.write_text("".join(map(_bare, map(modules.get, MODULES))))
    return [library, page]


def tool(name: str) -> Path:
    """A program that npm has put beside."""
    path = ROOT / "web/node_modules" / name
    if not path.is_file():
        raise SystemExit(f"there is no {name}: run npm ci --prefix web")
    return path


def node() -> str:
    """The command that runs JavaScript."""
    return shutil.which("node") or "node"


def _bare(module: str) -> str:
    """Without imports and exports, and without indentation, which is a tenth of what is loaded."""
    text = re.sub(r"^(import .*|export \{.*)\n", "", module, flags=re.MULTILINE)
    return re.sub(r"^(export )?\s*", "", text, flags=re.MULTILINE)


if __name__ == "__main__":
    goal = Path(sys.argv[1]).resolve() if sys.argv[1:] else DATA
    goal.mkdir(parents=True, exist_ok=True)
    for made in (build_engine(goal), *build_script(goal)):
        print(f"{made}: {made.stat().st_size:,} bytes")
