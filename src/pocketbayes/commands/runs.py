"""The run directory: config, history, checkpoint, model, metrics."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from pocketbayes.codec import prepare_directory, regular, write_atomically
from pocketbayes.commands.yaml_files import YamlError, read_yaml
from pocketbayes.errors import PocketBayesError
from pocketbayes.training import LOCK, checkpoints_in, only_writer

CONFIG, MODEL, METRICS = "config.yaml", "model.pocket", "metrics.json"


def new_directory(out: Path) -> Path:
    """Makes the directory of a new run; one that holds the work of another is left be."""
    directory = prepare_directory(out)
    if (directory / MODEL).exists() or has_checkpoint(directory):
        raise PocketBayesError(
            f"{directory} already holds a run: go on with --resume {directory}, or choose another "
            "--out"
        )
    return directory


@contextmanager
def only_in(out: Path) -> Iterator[None]:
    """A run's directory, which nobody else writes into.

    Directories made for a run that was refused before it had trained go away.
    """
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    with only_writer(prepare_directory(out)):
        try:
            yield
        except Exception:
            if missing:
                _take_away(out, missing)
            raise


def _take_away(out: Path, folders: list[Path]) -> None:
    """The directory of a run and those around it, unless somebody has put anything there."""
    with suppress(OSError):
        if {path.name for path in out.iterdir()} <= {LOCK, CONFIG}:
            for path in out.iterdir():
                path.unlink()
            for folder in folders:
                folder.rmdir()


def resumable_directory(directory: Path) -> Path:
    """The same; a finished run without a checkpoint, which would be overwritten, is refused."""
    if (directory / MODEL).exists() and not has_checkpoint(directory):
        raise PocketBayesError(
            f"{directory} is finished and holds no checkpoint to go on from, as what compress "
            f"writes: train it on in a new run, by --parent {directory}"
        )
    return directory


def beside(target: Path, what: str) -> Path:
    """RUN-what beside RUN, or FILE-what.pocket beside FILE.pocket."""
    named = target if target.name not in ("", "..") else target.resolve()
    suffix = "" if target.is_dir() else named.suffix
    return named.with_name(f"{named.name.removesuffix(suffix)}-{what}{suffix}")


def require_free(out: Path) -> None:
    """An error if something that would be overwritten has this name."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PocketBayesError(f"{out} is there already: choose another --out")


@contextmanager
def hidden_folder(out: Path) -> Iterator[Path]:
    """A folder beside the run to be, gone afterwards: what is not finished never has its name."""
    parent = prepare_directory(out.resolve().parent)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=parent) as name:
        yield Path(name)


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Writes the run's config."""
    write_text(directory / CONFIG, yaml.safe_dump(plain(config), sort_keys=False))


def has_checkpoint(directory: Path) -> bool:
    """Whether training has left something to go on from, in any of its stages or members."""
    return bool(checkpoints_in(directory))


def read_run_config(directory: Path) -> dict[str, Any]:
    """The config of a run, which may come from anywhere."""
    path = directory / CONFIG
    try:
        with regular(path) as file:
            found = read_yaml(file)
    except (OSError, YamlError) as error:
        raise PocketBayesError(f"{directory} is not a run: cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise PocketBayesError(f"{path} is not the config of a run")
    return found


def write_metrics(directory: Path, metrics: Mapping[str, Any]) -> None:
    """Replaces the run's metrics."""
    write_text(directory / METRICS, json.dumps(plain(metrics), indent=2) + "\n")


def read_metrics(directory: Path) -> dict[str, Any]:
    """The run's metrics; none if there are none yet, or they are none."""
    try:
        with regular(directory / METRICS) as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Puts text under this name, whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))


def plain(value: Any) -> Any:
    """The same value in types that YAML and JSON have; a path that exists becomes absolute."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value.absolute() if value.exists() else value)
    return value
