"""Faults on purpose: what was trained is never lost, and a resumed run ends where a whole one does.

    python benchmarks/torture.py --kills 500
    python benchmarks/torture.py --fault disk --runs 40
    python benchmarks/torture.py --fault predictions --predictions 100000

Each run trains a tiny network by some method with a checkpoint after every step. It is killed
(`kill -9`), finds the disk full, or sees clocks jump, at random moments and up to four times; what
is left is resumed. In the end its weights and its history must be, bit for bit, those of a run
that nothing befell. Of two processes one or both are killed; what is left ends by itself or, while
torch still waits for the other to come, is told to, as torchrun does. A run is lost if it cannot
be resumed, different if it ends elsewhere, and hung if it does not end.

Children are forked from a process that has imported all it needs and has never computed.
"""

import argparse
import errno
import math
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import lightning_fabric  # noqa: F401  # loaded once, not by every child
import torch
from record import append_result
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pocketbayes as pb
from pocketbayes.codec import disk
from pocketbayes.methods import METHODS
from pocketbayes.training.run import Run  # noqa: F401

FAULTS = ("kill", "kill two", "disk", "clock", "predictions")
SENT_BY_CHILD = 17  # the exit code of a child that stopped at an error
MOST_FAULTS, TOLD = 4, 10.0
PATIENCE = 900.0  # by the clock: whoever is nice gets little of a busy machine
OWN: dict[str, dict[str, Any]] = {
    "rigl": {"density": 0.5, "update_every": 5},
    "subspace": {"density": 0.5, "update_every": 5},
    "sharing": {"components": 6, "least_members": 1, "pretrain_epochs": 2},
    "deep-ensemble": {"members": 2},
}
TIMES = ("seconds", "val_seconds", "examples_per_second")


class Case(NamedTuple):
    """What is trained."""

    method: str
    task: str
    processes: int

    def trained(self, out: Path, resume: bool) -> dict[str, Any]:
        """A run, or what is left of it: its weights and history."""
        draw = torch.Generator().manual_seed(1)
        x = torch.randn(40, 4, generator=draw)
        y = x[:, :3].argmax(1) if self.task == "classes" else x[:, :2].sin()
        torch.manual_seed(0)
        outputs = 3 if self.task == "classes" else 2
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, outputs))
        if self.method == "mc-dropout":
            net.insert(3, nn.Dropout(0.2))
        loader = DataLoader(TensorDataset(x, y), 8 // self.processes, shuffle=True)
        options: dict[str, Any] = {"val_loader": [(x, y)], "keep_best": True}
        result = pb.fit(
            pb.bayesianize_(net), loader, METHODS[self.method](**OWN.get(self.method, {})),
            epochs=5, likelihood="categorical" if self.task == "classes" else "gaussian",
            seed=3, out=out, resume=resume, progress=False, device="cpu",
            checkpoint_minutes=1e-9, **(options if self.method != "laplace" else {}),
        )  # fmt: skip
        history = [{k: v for k, v in row.items() if k not in TIMES} for row in result.history]
        return {"state": dict(result.model.state_dict()), "history": history}


CASES = [Case(m, task, n) for n in (1, 2) for task in ("classes", "values") for m in METHODS]


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--fault", choices=FAULTS, help="only this one")
    made.add_argument("--kills", type=int, default=500, help="of one process, then of two")
    made.add_argument("--runs", type=int, default=40, help="with other faults")
    made.add_argument("--predictions", type=int, default=100_000)
    made.add_argument("--seconds", type=float, default=math.inf, help="for each fault")
    made.add_argument("--seed", type=int, default=0)
    a = made.parse_args()
    torch.set_num_threads(1)
    lost = 0
    for fault in FAULTS if a.fault is None else (a.fault,):
        by_threads = fault == "predictions"
        row = predicted(a.predictions, a.seconds) if by_threads else tortured(fault, a)
        append_result("torture", fault=fault, seed=a.seed, **row)
        lost += row["failures"]
    sys.exit(1 if lost else 0)


def tortured(fault: str, a: argparse.Namespace) -> dict[str, Any]:
    """Runs with one kind of fault until there were enough of them."""
    chance, seen, begin = random.Random(f"{a.seed} {fault}"), Counter[str](), time.monotonic()
    cases = [case for case in CASES if case.processes == 1 + (fault == "kill two")]
    wholes: dict[Case, tuple[dict[str, Any], float]] = {}
    kill = fault.startswith("kill")
    with tempfile.TemporaryDirectory() as folder:
        while (seen["faults"] < a.kills if kill else seen["runs"] < a.runs) and (
            time.monotonic() - begin < a.seconds
        ):
            case = cases[seen["runs"] % len(cases)]
            if case not in wholes:
                wholes[case] = whole(case, Path(folder))
            out = Path(folder, "run")
            outcome, faults = survived(case, fault, out, *wholes[case], chance)
            seen[outcome] += 1
            seen["faults"] += faults
            seen["runs"] += 1
            if outcome != "equal":
                print(f"{outcome}: {case} {fault}\n{(out / 'log').read_text()}", file=sys.stderr)
            shutil.rmtree(out)
    names = ("runs", "faults", "equal", "different", "lost", "hung")
    failures = seen["runs"] - seen["equal"]
    seconds = time.monotonic() - begin
    return {name: seen[name] for name in names} | {
        "failures": failures, "methods": len({case.method for case in wholes}), "seconds": seconds,
    }  # fmt: skip


def whole(case: Case, folder: Path) -> tuple[dict[str, Any], float]:
    """What a run ends with that nothing befalls, and its seconds."""
    out = folder / "whole"
    begin = time.monotonic()
    children = started(case, out, lambda: None)
    if any(ended(children, PATIENCE)):
        raise SystemExit(f"{case} fails by itself:\n{(out / 'log').read_text()}")
    seconds = time.monotonic() - begin
    found = torch.load(out / "result", weights_only=True)
    shutil.rmtree(out)
    return found, seconds


def survived(
    case: Case, fault: str, out: Path, expected: Any, seconds: float, chance: random.Random
) -> tuple[str, int]:
    """How a run ends after up to four faults, and how many it had."""
    faults = 0
    for left in reversed(range(chance.randint(1, MOST_FAULTS) + 1)):
        own = chance.randrange(2**32)
        befall = {"disk": full_disk, "clock": jumping_clocks}.get(fault)
        inside = (lambda b=befall, s=own: b(random.Random(s), seconds)) if befall else lambda: None
        children = started(case, out, inside if left or fault == "clock" else lambda: None)
        if left and fault != "disk":
            time.sleep(chance.uniform(0.0, 1.1 * seconds))
            faults += killed(children[: chance.randint(1, len(children))])
        codes = ended(children, PATIENCE, told=left > 0 and fault == "kill two")
        if None in codes:
            return "hung", faults
        faults += fault == "disk" and SENT_BY_CHILD in codes
        if not any(codes):
            break
        if codes[0] == SENT_BY_CHILD and not left:
            return "lost", faults
    if any(codes):
        return "lost", faults
    found = torch.load(out / "result", weights_only=True)
    return ("equal" if same(found, expected) else "different"), faults


def started(case: Case, out: Path, befall: Callable[[], None]) -> list[int]:
    """Forks the processes of a run; each goes on from a checkpoint if there is one."""
    out.mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(case.processes):
        child = os.fork()
        if child:
            children.append(child)
            continue
        code = SENT_BY_CHILD
        try:
            log = os.open(out / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if case.processes > 1:
                join(rank, case.processes, port)
            befall()
            resume = any(out.glob("**/checkpoint.pt"))
            found = case.trained(out, resume)
            if rank == 0:
                torch.save(found, out / "result")
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return children


def join(rank: int, count: int, port: int) -> None:
    """As torchrun tells a process which one it is."""
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count),
        GROUP_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID=str(port), GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip


def killed(children: list[int]) -> int:
    """Kills some that are still at work, and says whether there were any."""
    alive = [
        c for c in children if os.waitid(os.P_PID, c, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ]
    for child in alive:
        os.kill(child, signal.SIGKILL)
    return int(bool(alive))


def ended(children: list[int], patience: float, told: bool = False) -> list[int | None]:
    """Exit codes, negative for signals; None of whoever had to be ended here."""
    codes: list[int | None] = []
    begin = time.monotonic()
    deadline = begin + patience
    for child in children:
        code: int | None = None
        while code is None and time.monotonic() < deadline:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                continue
            if told and time.monotonic() > begin + TOLD:
                os.kill(child, signal.SIGTERM)
                told = False
            time.sleep(0.002)
        if code is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        codes.append(code)
    return codes


def full_disk(chance: random.Random, seconds: float) -> None:
    """From some moment on no file may be longer than a few bytes, or no sync succeeds."""

    def fill() -> None:
        if chance.random() < 0.5:
            most = chance.randrange(20_000)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        else:
            disk.os = Refusing()  # type: ignore[attr-defined]

    threading.Timer(chance.uniform(0, seconds), fill).start()


class Refusing:
    """The module `os`, whose disk is full."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        """There is no room."""
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def jumping_clocks(chance: random.Random, seconds: float) -> None:
    """Time of day jumps by years and back; what only rises leaps ahead."""
    day, rising, leaps = time.time, time.monotonic, [0.0]

    def monotonic() -> float:
        leaps[0] += chance.choice((0.0, 0.0, 3600.0 * chance.random()))
        return rising() + leaps[0]

    time.time = lambda: day() + chance.uniform(-1e9, 1e9)
    time.monotonic = monotonic


def same(found: Any, expected: Any) -> bool:
    """Whether two results are, bit for bit."""
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[k], expected[k]) for k in found)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected or (found != found and expected != expected))


def predicted(count: int, limit: float) -> dict[str, Any]:
    """So many predictions by eight threads in one process: wrong answers, growth of memory."""
    torch.manual_seed(0)
    model = pb.bayesianize_(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    x, begin = torch.randn(3, 4), time.monotonic()

    def answer(seed: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(seed % 16)
        return pb.predict(model, x, 4, draw, likelihood="categorical").probs

    alone = [answer(seed) for seed in range(16)]
    wrong, done, held = 0, 0, list[int]()
    with ThreadPoolExecutor(8) as pool:
        while done < count and time.monotonic() - begin < limit:
            part = range(done, min(done + 1000, count))
            found = pool.map(answer, part)
            wrong += sum(
                not torch.equal(p, alone[n % 16]) for n, p in zip(part, found, strict=True)
            )
            done += len(part)
            held.append(resident())
    settled = held[min(len(held) - 1, len(held) // 10)]
    return {
        "predictions": done, "wrong": wrong, "growth_bytes": held[-1] - settled,
        "failures": wrong, "seconds": time.monotonic() - begin,
    }  # fmt: skip


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
