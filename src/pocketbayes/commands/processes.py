"""Several processes of one command on this machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from pocketbayes.commands.flags import UsageError
from pocketbayes.commands.opening import own_factory
from pocketbayes.commands.planning import Plan


def launched_processes(plan: Plan, given: Mapping[str, Any]) -> int | None:
    """Starts this very command in several processes; None in one of them, or if there is one.

    A directory or config from elsewhere must not choose how many are started here: of a run that
    is resumed the number must be given again, and more than there are cores must be typed.
    """
    count = plan.options.processes
    if count == 1 or "WORLD_SIZE" in os.environ:
        return None
    typed = any(word.startswith("--processes") for word in sys.argv)
    if "processes" not in given:
        raise UsageError(
            f"{plan.options.out} was begun by {count} processes: say --processes {count}"
        )
    if count > (os.cpu_count() or 1) and not typed:
        raise UsageError(
            f"the config asks for {count} processes, this machine has {os.cpu_count()} cores: say "
            f"--processes {count} if you mean it"
        )
    if ":" in plan.options.model:
        own_factory(plan.options.model)  # a wrong name is said once, not by every process
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = [f"--nproc-per-node={count}", "-m", "pocketbayes", *sys.argv[1:]]
    return _outlived([*launcher, *program])


def _outlived(command: list[str]) -> int:
    """Runs a command to its end, whatever signals come, and returns its exit code.

    The processes write a checkpoint after a signal, which takes them a moment. A terminal sends
    Ctrl-C to them by itself, SIGTERM has to be passed on.
    """
    got: list[int] = []
    child = subprocess.Popen(command)

    def handle(number: int, frame: FrameType | None) -> None:
        got.append(number)
        if number == signal.SIGTERM:
            child.terminate()

    known = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in known}
    try:
        code = child.wait()
    finally:
        for number, old in before.items():
            signal.signal(number, old)
    return 128 + got[0] if got and code else code
