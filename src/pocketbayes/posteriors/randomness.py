"""Random numbers: fast normal noise, and seeds that do not collide.

They come from the prediction that runs in this thread, without one from torch's default generator.
"""

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from math import prod

import numpy as np
import torch
from torch import Tensor

from pocketbayes.posteriors.drawing import Drawing, inside_vmap, source_of_numbers

_SMALLEST_PART, _MOST_PARTS = 1 << 15, 16
_pool: ThreadPoolExecutor | None = None


def normal_like(reference: Tensor) -> Tensor:
    """Standard normal numbers with the shape, dtype, device and layout of `reference`.

    Large CPU tensors are filled by numpy's ziggurat in as many threads as torch uses: torch's own
    generator is serial, and on ARM took 20 ns per number where this takes 5 (2 cores). The result
    does not depend on the threads.
    """
    drawing = source_of_numbers()
    if drawing is not None and _is_traced(drawing):
        return _numbers_later(drawing, reference, "normal")
    if drawing is not None:
        return _normal_of(drawing, reference)
    if not _can_fill_directly(reference):
        return torch.randn_like(reference)
    dtype = np.float32 if reference.dtype == torch.float32 else np.float64
    flat = np.empty(reference.numel(), dtype)
    _fill(flat, seed=int(torch.empty((), dtype=torch.int64).random_()))
    layout = torch.empty_like(reference, device="meta")
    return torch.from_numpy(flat).as_strided(layout.size(), layout.stride())


def _normal_of(drawing: Drawing, reference: Tensor) -> Tensor:
    """The same by a drawing, of which each may be one of many at once."""
    if not drawing.is_at_once:
        layout = torch.empty_like(reference, device="meta")
        flat = _flat_normal_of(drawing, layout.numel(), reference)
        return flat.as_strided(layout.size(), layout.stride())
    return drawing.in_each(
        reference.shape, lambda shape: _flat_normal_of(drawing, prod(shape), reference).view(shape)
    )


def _flat_normal_of(drawing: Drawing, count: int, like: Tensor) -> Tensor:
    if not _numpy_may_write(like):
        flat = torch.empty(count, dtype=like.dtype, device=like.device)
        return flat.normal_(generator=drawing.generator(like.device))
    made = np.empty(count, np.float32 if like.dtype == torch.float32 else np.float64)
    if count >= _SMALLEST_PART // 2:
        _fill(made, seed=int(drawing.numbers.integers(2**63)))
    else:
        drawing.numbers.standard_normal(out=made, dtype=made.dtype)  # type: ignore[arg-type]
    return torch.from_numpy(made)


def bernoulli(chances: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """1 with these chances, else 0."""
    drawing = source_of_numbers()
    if generator is not None or drawing is None:
        return torch.bernoulli(chances, generator=generator)
    if _is_traced(drawing):
        return _numbers_later(drawing, chances, "bernoulli")
    own = drawing.generator(chances.device)
    return drawing.in_each(
        chances.shape, lambda shape: torch.bernoulli(chances.expand(shape), generator=own)
    )


def uniform(count: int, device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """So many numbers between 0 and 1."""
    drawing = source_of_numbers()
    if generator is not None or drawing is None:
        return torch.rand(count, device=device, generator=generator)
    if _is_traced(drawing):
        return _numbers_later(drawing, torch.empty(count, device=device), "uniform")
    own = drawing.generator(device)
    return drawing.in_each((count,), lambda shape: torch.rand(shape, device=device, generator=own))


def signs_like(reference: Tensor) -> Tensor:
    """1 or -1, each as often."""
    drawing = source_of_numbers()
    if drawing is None:
        return torch.randint_like(reference, 2) * 2 - 1
    chances = torch.full(reference.shape, 0.5, dtype=reference.dtype, device=reference.device)
    return bernoulli(chances) * 2 - 1


def _uniform_like(reference: Tensor) -> Tensor:
    return uniform(reference.numel(), reference.device)


_KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": normal_like,
    "bernoulli": bernoulli,
    "uniform": _uniform_like,
}


def numbers_as_code_runs(like: Tensor, order: Tensor, kind: str) -> Tensor:
    """Numbers of this kind, laid out like that, by what this thread draws by."""
    made, layout = _KINDS[kind](like), torch.empty_like(like, device="meta")
    return made if made.stride() == layout.stride() else torch.empty_like(like).copy_(made)


def _is_traced(drawing: Drawing) -> bool:
    """Whether the code that draws is not run here, but looked at."""
    return drawing.order is not None or drawing.maker is not None


def _numbers_later(drawing: Drawing, like: Tensor, kind: str) -> Tensor:
    """What traced code draws by: the drawing's own maker, or this library when the code runs."""
    if drawing.maker is not None:
        return drawing.maker(like, kind)
    assert drawing.order is not None
    return numbers_later(like, drawing.order, kind)


def numbers_later(like: Tensor, order: Tensor, kind: str) -> Tensor:
    """The same in traced code: an operation that no compiler can look into.

    It seems to write to `order`, so that all of a pass keep their order, and none is taken for
    another.
    """
    found: Tensor = torch.ops.pocketbayes.numbers(like, order, kind)
    return found


@cache
def prepare_tracing() -> None:
    """Makes that operation known to torch, before code with it is traced."""
    schema = "(Tensor like, Tensor(a!) order, str kind) -> Tensor"
    operation = torch.library.custom_op(
        "pocketbayes::numbers", numbers_as_code_runs, mutates_args=("order",), schema=schema
    )
    operation.register_fake(lambda like, order, kind: torch.empty_like(like))


def _can_fill_directly(reference: Tensor) -> bool:
    """Whether numpy is faster here, and may write the numbers."""
    return (
        not torch.compiler.is_dynamo_compiling()
        and reference.numel() >= _SMALLEST_PART // 2
        and not inside_vmap()
        and _numpy_may_write(reference)
    )


def _numpy_may_write(reference: Tensor) -> bool:
    """Whether numbers like these lie where numpy can write, and nobody is tracing."""
    return (
        reference.device.type == "cpu"
        and reference.dtype in (torch.float32, torch.float64)
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    )


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
