"""Random numbers: fast normal noise from the default generator, and seeds that do not collide."""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

_SMALLEST_PART, _MOST_PARTS = 1 << 15, 16
_pool: ThreadPoolExecutor | None = None


def normal_like(reference: Tensor) -> Tensor:
    """Standard normal numbers with the shape, dtype, device and layout of `reference`.

    They are a function of torch's default generator. Large CPU tensors are filled by numpy's
    ziggurat in as many threads as torch uses: torch's own generator is serial, and on ARM took
    20 ns per number where this takes 5 (2 cores). The result does not depend on the threads.
    """
    if not _can_fill_directly(reference):
        return torch.randn_like(reference)
    dtype = np.float32 if reference.dtype == torch.float32 else np.float64
    flat = np.empty(reference.numel(), dtype)
    _fill(flat, seed=int(torch.empty((), dtype=torch.int64).random_()))
    layout = torch.empty_like(reference, device="meta")
    return torch.from_numpy(flat).as_strided(layout.size(), layout.stride())


def _can_fill_directly(reference: Tensor) -> bool:
    """Whether numpy may write the numbers: a large CPU tensor, and nobody is tracing."""
    return (
        not torch.compiler.is_compiling()
        and reference.numel() >= _SMALLEST_PART // 2
        and reference.device.type == "cpu"
        and reference.dtype in (torch.float32, torch.float64)
        and not inside_vmap()
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    )


def inside_vmap() -> bool:
    """Whether a `torch.func` transform runs the code at this moment."""
    return torch._C._functorch.maybe_current_level() is not None


def _fill(flat: np.ndarray, seed: int) -> None:
    """Fills parts in parallel, each from its own stream; their number depends on the size only."""
    parts = np.array_split(flat, min(_MOST_PARTS, max(1, flat.size // _SMALLEST_PART)))

    def fill_part(number: int) -> None:
        stream = np.random.SFC64(np.random.SeedSequence((seed, number)))
        part = parts[number]
        np.random.Generator(stream).standard_normal(out=part, dtype=part.dtype)

    if torch.get_num_threads() == 1 or len(parts) == 1:
        for number in range(len(parts)):
            fill_part(number)
    else:
        elsewhere = [_threads().submit(fill_part, number) for number in range(1, len(parts))]
        fill_part(0)
        for future in elsewhere:
            future.result()


def _threads() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="pocketbayes-noise")
    return _pool


def _forget_threads() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):  # a forked child has the pool, but none of its threads
    os.register_at_fork(after_in_child=_forget_threads)


def mixed_seed(*parts: int) -> int:
    """One 64-bit seed from several numbers; (1, 0) and (0, 1) give unrelated ones."""
    low, high = np.random.SeedSequence([part % 2**64 for part in parts]).generate_state(2)
    return int(low) | int(high) << 32


def seed_everything(seed: int, device: torch.device) -> None:
    """Seeds torch (CPU and `device`), numpy and `random`, for layers and augmentations alike."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def isolated_randomness(device: torch.device) -> Iterator[None]:
    """Whatever is drawn or seeded inside, the caller's generators go on as if it had not been."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
