"""A model in long use: many predictions, many threads, many processes."""

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from seeded_answers import answer, asked
from small_models import classifier


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells memory elsewhere")
def test_thousands_of_predictions_by_eight_threads_keep_no_memory():
    """Less than 1 MB for the last 3,000; benchmarks/torture.py makes 100,000."""
    model = classifier()
    alone = [answer(model, seed) for seed in range(8)]

    def right(number):
        return torch.equal(answer(model, number % 8), alone[number % 8])

    held = []
    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            assert all(list(pool.map(right, range(250))))
            held.append(resident())
    assert held[-1] - held[7] < 1 << 20


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_model_is_shared_by_the_workers_of_a_pool(way):
    """By fork as it lies in memory, by spawn pickled: each answers as the parent does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = classifier()
        wanted = [answer(model, seed).tolist() for seed in range(6)]
        with ProcessPoolExecutor(2, multiprocessing.get_context(way)) as pool:
            found = list(pool.map(asked, [model] * 6, range(6), timeout=120))
        assert found == wanted
        assert asked(model, 0) == wanted[0]
    finally:
        torch.set_num_threads(threads)


def test_a_forked_worker_answers_by_the_model_it_inherited():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = classifier()
    wanted = answer(model, 3).tolist()
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    worker = context.Process(target=lambda: theirs.send(answer(model, 3).tolist()))
    worker.start()
    assert mine.poll(60)
    assert mine.recv() == wanted
    worker.join(60)
    assert worker.exitcode == 0
    torch.set_num_threads(threads)
