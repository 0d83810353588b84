import random

import numpy as np
import torch
from scipy import stats

from pocketbayes.posteriors.randomness import (
    isolated_randomness,
    mixed_seed,
    normal_like,
    seed_everything,
)


def test_large_tensors_are_standard_normal():
    """Kolmogorov-Smirnov on 400,000 numbers from the threaded path; false alarm 1e-6."""
    numbers = normal_like(torch.empty(400_000)).numpy()
    assert stats.kstest(numbers, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 5 / np.sqrt(400_000)


def test_no_part_repeats_another():
    numbers = normal_like(torch.empty(1 << 19))
    assert numbers.unique().numel() > 0.9 * numbers.numel()


def test_the_result_depends_on_the_seed_and_not_on_the_threads():
    threads = torch.get_num_threads()
    reference = torch.empty(200_000)
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            torch.manual_seed(3)
            results.append(normal_like(reference))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)
    assert not torch.equal(results[0], normal_like(reference))


def test_layout_and_dtype_are_those_of_the_reference():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        reference = torch.empty(16, 8, 32, 32, dtype=dtype).to(memory_format=torch.channels_last)
        noise = normal_like(reference)
        assert noise.stride() == reference.stride()
        assert noise.dtype == dtype
    assert normal_like(torch.empty(400, 300).T).shape == (300, 400)
    assert normal_like(torch.empty(1, 1).expand(300, 300)).unique().numel() > 80_000


def test_seeds_mix_without_collisions():
    seeds = {mixed_seed(a, b, c) for a in range(20) for b in range(20) for c in range(20)}
    assert len(seeds) == 8000
    assert mixed_seed(1, 0) != mixed_seed(0, 1)
    assert 0 <= mixed_seed(-5) < 2**64


def test_isolation_restores_every_generator():
    def draw():
        return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()

    seed_everything(11, torch.device("cpu"))
    expected = draw()
    seed_everything(11, torch.device("cpu"))
    with isolated_randomness(torch.device("cpu")):
        seed_everything(5, torch.device("cpu"))
        draw()
    assert draw() == expected
