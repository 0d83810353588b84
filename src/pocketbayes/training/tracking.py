"""The rows of a run's history in an experiment tracker: once each, from the first process."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from numbers import Real
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pocketbayes.errors import PocketBayesError, require_choice, warn
from pocketbayes.training.checkpoints import write_note
from pocketbayes.training.environment import fabric_module

# What each name needs beside this library: all groups of modules, of which any one will do.
_NEEDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "csv": (),
    "tensorboard": (("tensorboard", "tensorboardX"),),
    "mlflow": (("mlflow",), ("lightning", "pytorch_lightning")),
}
LOGGERS = tuple(_NEEDED)
_NOTE, _FOLDER = "logger.json", "logs"


def require_logger(logger: object, has_directory: bool) -> None:
    """An error unless rows can be given to this logger."""
    if logger is None:
        return
    if not isinstance(logger, str):
        if isinstance(logger, type) or not callable(getattr(logger, "log_metrics", None)):
            raise PocketBayesError(
                f"logger must be one of {', '.join(LOGGERS)}, or a Fabric logger such as "
                f"CSVLogger('logs'); got {logger!r}"
            )
        return
    require_choice(logger, "logger", LOGGERS)
    missing = [anyone[0] for anyone in _NEEDED[logger] if not any(map(_is_installed, anyone))]
    if missing:
        raise PocketBayesError(
            f"logger={logger!r} needs {' and '.join(missing)}, which is not installed: pip install "
            f"{' '.join(missing)}"
        )
    if not has_directory:
        raise PocketBayesError(
            f"logger={logger!r} writes into the directory of the run: pass out=, or a Fabric "
            "logger that has a place of its own"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # loaded without a spec
        return True


class Within:
    """A logger for one of several runs: names of its metrics begin with that of the run."""

    def __init__(self, logger: Any, name: str) -> None:
        self._logger, self._name = logger, name

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """The same, with longer names."""
        self._logger.log_metrics({f"{self._name}/{n}": v for n, v in metrics.items()}, step)

    def save(self) -> None:
        """Writes what waits."""
        self._logger.save()


def within(logger: Any, name: str) -> Any:
    """The logger of a part of a run; one known by name has a directory of its own there."""
    return logger if logger is None or isinstance(logger, str) else Within(logger, name)


def begun_tracker(
    logger: Any, directory: Path | None, settings: Mapping[str, Any], resume: bool
) -> "Tracker | None":
    """The tracker of a run, or of what is left of it; None: nothing is logged."""
    if directory is not None and not resume:
        (directory / _NOTE).unlink(missing_ok=True)
    return None if logger is None else Tracker(logger, directory, settings, resume)


class Tracker:
    """Gives rows to a logger, each step once, also where a run is resumed.

    A note beside the checkpoint says up to which step; it is written before the row is given, so
    that none is given twice. What fails here is warned of, and training goes on. A logger made
    here, by its name, is also closed here.
    """

    def __init__(
        self, logger: Any, directory: Path | None, settings: Mapping[str, Any], resume: bool
    ) -> None:
        self._directory, self._is_own = directory, isinstance(logger, str)
        name = logger if self._is_own else type(logger).__name__
        self._note: dict[str, Any] = {"logger": name, "step": 0}
        if resume and directory is not None:
            self._note |= _known(directory / _NOTE, name)
        self._logger = logger
        if isinstance(logger, str) and directory is not None:
            if logger == "csv" or self._note["step"] == 0:
                self._note["step"] = 0  # a table is written anew, from its first row on
                _clear(directory / _FOLDER)
            self._logger = _made(logger, directory, self._note)
        if self._note["step"] == 0:
            self._tried(partial(_say_settings, self._logger, settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_own:
            self._tried(partial(self._logger.finalize, "success" if kind is None else "failed"))

    def log(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Gives the rows that were not given yet."""
        for row in rows:
            step = int(row["step"])
            if step <= self._note["step"]:
                continue
            self._note["step"] = step
            if self._directory is not None:
                write_note(self._directory / _NOTE, self._note)
            self._tried(partial(self._give, row, step))

    def _give(self, row: Mapping[str, Any], step: int) -> None:
        numbers = {
            name: float(value)
            for name, value in row.items()
            if name != "step" and isinstance(value, Real) and not isinstance(value, bool)
        }
        self._logger.log_metrics(numbers, step)
        if callable(getattr(self._logger, "save", None)):
            self._logger.save()

    def _tried(self, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:
            warn(f"the logger failed, and training goes on: {type(error).__name__}: {error}")


def _known(path: Path, name: str) -> dict[str, Any]:
    """What an earlier part of the run noted for a logger of this name."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    good = isinstance(found, dict) and found.get("logger") == name
    return found if good and type(found.get("step")) is int else {}


def _clear(folder: Path) -> None:
    """Takes away what an earlier run logged into this directory."""
    for pattern in ("metrics.csv", "events.out.tfevents.*"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _made(name: str, directory: Path, note: dict[str, Any]) -> Any:
    """The logger of this name; of MLflow the run that was noted, or a new one."""
    try:
        if name == "mlflow":
            return _mlflow(directory, note)
        loggers = fabric_module("loggers")
        kind = loggers.CSVLogger if name == "csv" else loggers.TensorBoardLogger
        return kind(str(directory), name="", version=_FOLDER)
    except Exception as error:  # whatever a server, a database or an old version says
        raise PocketBayesError(
            f"logger={name!r} cannot be started: {type(error).__name__}: {error}"
        ) from error


def _mlflow(directory: Path, note: dict[str, Any]) -> Any:
    home = directory.absolute()
    place = "lightning.pytorch" if _is_installed("lightning") else "pytorch_lightning"
    made = import_module(f"{place}.loggers").MLFlowLogger(
        experiment_name="pocketbayes",
        run_name=home.name,
        tracking_uri=os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home / 'mlflow.db'}",
        artifact_location=(home / "mlruns").as_uri(),
        run_id=note.get("run"),
    )
    note["run"] = made.run_id
    return made


def _say_settings(logger: Any, settings: Mapping[str, Any]) -> None:
    if callable(getattr(logger, "log_hyperparams", None)):
        try:
            logger.log_hyperparams(dict(settings))
        except NotImplementedError:  # a table has no place for them
            return
