"""However many threads share the work of a call, it answers with the same bits."""

import importlib
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from program_models import GOLDEN, KNOWN, NAMES, json

import pocketbayes as pb
from pocketbayes.models import build_network

INPUTS = json.loads(KNOWN.read_text())
FIELDS = ("probs", "entropy", "aleatoric", "epistemic", "label", "mean", "std")


@pytest.fixture
def parts(lite, monkeypatch):
    """Every thread is worth it."""
    found = importlib.import_module(lite.__name__ + ".parts")
    monkeypatch.setattr(found, "WORTH_A_THREAD", 1e-3)
    return found


def told(model, x, estimator):
    pred = model.predict(x, estimator, 7, 3)
    known = [getattr(pred, name) for name in FIELDS if hasattr(pred, name)]
    assert len(known) >= 4
    return [*known, model.samples(x, estimator, 7, 3)]


def same(a, b):
    return all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))


def estimators(model):
    return ["mean", "moments", "weight"] + ["one_pass"] * bool(model.facts.get("one_pass"))


@pytest.mark.parametrize("rows", [1, 2, 35])
@pytest.mark.parametrize("name", NAMES)
def test_golden_files(lite, parts, monkeypatch, name, rows):
    one, *others = (lite.load(GOLDEN / f"program-{name}.pocket", n) for n in (1, 2, 3))
    x = np.resize(np.array(INPUTS[name]["input"]), (rows, *one.input_shapes[0]))
    for estimator in estimators(one):
        expected = told(one, x, estimator)
        assert all(same(told(other, x, estimator), expected) for other in others)
        with monkeypatch.context() as cut:  # draws of weights block by block, too
            cut.setattr(parts, "MOST_KEPT", 0)
            assert same(told(others[1], x, estimator), expected)


def test_a_network_whose_rows_go_one_by_one(lite, parts, tmp_path):
    torch.manual_seed(0)
    net = build_network("resnet18", num_outputs=3, width=0.25).eval()
    model, x = pb.bayesianize_(net, std_init=0.05), torch.randn(5, 3, 32, 32)
    pb.save(model, tmp_path / "m.pocket", example=x[:1])
    one, *others = (lite.load(tmp_path / "m.pocket", n) for n in (1, 2, 3))
    assert one._handles.together == 1
    for estimator in ("mean", "moments", "weight"):
        expected = told(one, x.numpy(), estimator)
        assert all(same(told(other, x.numpy(), estimator), expected) for other in others)


def test_eight_callers_of_one_model(lite, parts):
    """1,000 calls each, of all estimators in turn, which share handles as they come."""
    model = lite.load(GOLDEN / "program-mean-field.pocket", 2)
    x = np.resize(np.array(INPUTS["mean-field"]["input"]), (20, 6)).astype(np.float32)
    asked = [(by, n) for by in estimators(model) for n in (3, 40)]
    expected = [model.predict(x, by, n).probs for by, n in asked]

    def calls(caller):
        order = np.random.default_rng(caller).integers(len(asked), size=1000)
        return all(np.array_equal(model.predict(x, *asked[k]).probs, expected[k]) for k in order)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(calls, range(8)))


@pytest.mark.parametrize("threads", [1, 2])
def test_handles_of_many_callers_are_closed(lite, parts, threads):
    """Twelve callers at once, all of whose work meets; what remains is for so many threads."""
    model = lite.load(GOLDEN / "program-mean-field.pocket", threads)
    handles = model._handles
    model.predict(np.ones((20, 6)), "moments")
    first = [h for h in handles._free if h.owns]
    for kind in ((30, False, True), (30, False, False), (30, True, False)):
        with ExitStack() as callers:
            taken = [callers.enter_context(handles.one(*kind)) for _ in range(12)]
            assert len({h.pointer for h in taken}) == 12
    model.predict(np.ones((20, 6)), "weight", 60)
    kinds = Counter((h.moments, h.whole) for h in handles._free)
    assert max(kinds.values()) <= threads
    assert len(first) == 2
    assert all(h in handles._free for h in first)


@pytest.mark.parametrize("estimator", ["mean", "weight"])
def test_what_a_part_refuses_is_an_error_of_the_call(lite, parts, estimator):
    model = lite.load(GOLDEN / "program-mean-field.pocket", 3)
    x = np.zeros((50, 6), np.float32)
    x[-1, -1] = np.nan
    with pytest.raises(lite.LiteError, match="NaN"):
        model.predict(x, estimator)
    assert np.isfinite(model.predict(x[:-1], estimator).probs).all()


@pytest.fixture
def steep(lite, tmp_path):
    """The path of a file; row 17 of the inputs, and all from row 30 on, are too large."""
    torch.manual_seed(0)
    net = pb.bayesianize_(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)))
    for name, parameter in net.named_parameters():
        if name.endswith("mean"):
            parameter.data.mul_(1000)
    pb.save(net, tmp_path / "m.pocket", example=torch.zeros(1, 4))
    x = np.zeros((70, 4), np.float32)
    x[17], x[30:] = 3e38, 3e38
    return tmp_path / "m.pocket", x


@pytest.mark.parametrize("most_kept", [0, 2**24])
@pytest.mark.parametrize("estimator", ["mean", "moments", "weight"])
def test_the_first_row_that_is_not_finite_is_told_of(
    lite, parts, steep, monkeypatch, estimator, most_kept
):
    monkeypatch.setattr(parts, "MOST_KEPT", most_kept)
    path, x = steep
    for threads in (1, 2, 5) * 3:
        model = lite.load(path, threads)
        for ask in (model.samples, model.predict):
            assert ask(x[:17], estimator, 7) is not None
            with pytest.raises(lite.LiteError, match="answer to row 17 is not finite"):
                ask(x, estimator, 7)
            with pytest.raises(lite.LiteError, match="answer to row 0 is not finite"):
                ask(x[17], estimator, 7)
            with pytest.raises(lite.LiteError, match="NaN or infinite"):
                ask(np.vstack([x, x * np.nan]), estimator, 7)


@pytest.mark.parametrize("most", [0, 2])
def test_threads_that_cannot_be_started_are_done_without(lite, parts, monkeypatch, most):
    path, x, started = GOLDEN / "program-mean-field.pocket", np.ones((200, 6)), []

    class Few(parts.Thread):
        def start(self):
            if len(started) == most:
                raise RuntimeError("can't start new thread")
            started.append(self)
            super().start()

    expected = lite.load(path, 1).predict(x).probs
    monkeypatch.setattr(parts, "Thread", Few)
    assert (lite.load(path, 5).predict(x).probs == expected).all()
    assert len(started) == most


@pytest.mark.parametrize("where", ["start", "join"])
def test_after_an_interruption_no_thread_goes_on(lite, parts, monkeypatch, where):
    """As Ctrl-C, which comes while the second thread starts or the first is waited for."""
    threads, done, lock = [], [], threading.Lock()

    class Interrupted(parts.Thread):
        def start(self):
            threads.append(self)
            super().start()
            self.interrupt("start", len(threads) == 2)

        def join(self):
            self.interrupt("join", self is threads[0])
            super().join()

        def interrupt(self, here, now):
            if here == where and now and not hasattr(threads[0], "was"):
                threads[0].was = True
                raise KeyboardInterrupt

    def slow(handle, *_):
        time.sleep(0.05)
        with lock:
            done.append(handle)
        return 0

    monkeypatch.setattr(parts, "Thread", Interrupted)
    model = lite.load(GOLDEN / "program-mean-field.pocket", 3)
    monkeypatch.setattr(parts, "library", lambda: SimpleNamespace(pocket_rows=slow))
    with pytest.raises(KeyboardInterrupt):
        model.predict(np.ones((1600, 6)), "mean")
    assert not any(thread.is_alive() for thread in threads)
    assert len(done) in ([12] if where == "join" else [0, 1, 2])  # of 12 parts


def test_how_many_by_default(lite, monkeypatch):
    path = GOLDEN / "program-mean-field.pocket"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert lite.load(path).threads == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert lite.load(path).threads == len(os.sched_getaffinity(0))
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(lite.LiteError, match="threads must be"):
            lite.load(path, wrong)


def test_a_small_call_starts_no_thread(lite, monkeypatch):
    found = importlib.import_module(lite.__name__ + ".parts")
    monkeypatch.setattr(found, "Thread", None)
    model = lite.load(GOLDEN / "program-mean-field.pocket", 8)
    model.predict(np.zeros((200, 6)), "mean")


def test_predict_by_the_engine_uses_the_threads_of_torch(lite, parts):
    model = pb.load(GOLDEN / "program-mean-field.pocket")
    x, kept = torch.randn(40, 6), torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(pb.predict(model, x, estimator="moments", backend="engine").probs)
    torch.set_num_threads(kept)
    assert found[0].equal(found[1])
