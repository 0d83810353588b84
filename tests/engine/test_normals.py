"""Numbers that stand for a Gaussian: the library's own, without torch."""

import ctypes as ct

import numpy as np
import pytest

from pocketbayes.prediction.gaussian_outputs import spread_normals


def spread(library, number, dimensions):
    library.normals_room.restype = ct.c_size_t
    made = np.zeros((number, dimensions), np.float32)
    work = np.full(library.normals_room(number, dimensions) + 1, 7.0)
    library.spread_normals(
        made.ctypes.data_as(ct.c_void_p), number, dimensions, work.ctypes.data_as(ct.c_void_p)
    )
    assert work[-1] == 7
    return made


@pytest.mark.parametrize(("number", "dimensions", "apart"), [
    (1, 4, 0), (2, 3, 1e-6), (7, 3, 1e-6), (8, 3, 1e-6), (9, 3, 1e-6),
    (30, 1, 1e-6), (30, 10, 1e-6), (30, 14, 1e-6),
    (31, 15, 1e-6), (30, 128, 1e-6), (100, 49, 1e-5), (960, 20, 1e-4)])  # fmt: skip
def test_they_are_those_of_the_library(library, number, dimensions, apart):
    expected = spread_normals(number, dimensions).numpy()
    assert np.abs(spread(library, number, dimensions) - expected).max() <= apart


@pytest.mark.parametrize(("number", "dimensions"), [(30, 129), (2050, 2)])
def test_beyond_the_table_they_are_spread_plainly(library, number, dimensions):
    made = spread(library, number, dimensions).astype(np.float64)
    np.testing.assert_allclose(made.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(made.std(0, ddof=1), 1, atol=1e-4)


def test_draws_are_normal_and_independent(library):
    """4 seeds of 10^6: moments, neighbours, another stream; a false alarm once in 10^4."""
    fill = library.normals_at
    fill.argtypes = [ct.c_void_p, ct.c_uint64, ct.c_uint64, ct.c_void_p, ct.c_uint32, ct.c_int]
    fill.restype = None
    count = 10**6
    z, other = (np.empty(count, np.float32) for _ in "ab")
    for seed in range(4):
        fill(z.ctypes.data, seed, 5, None, 0, count)
        fill(other.ctypes.data, seed, 6, None, 0, count)
        x, y = z.astype(float), other.astype(float)
        found = [
            x.mean(),
            (np.square(x).mean() - 1) / 2**0.5,
            (x**4).mean() / 96**0.5 - 3 / 96**0.5,
        ]
        found += [(x[:-1] * x[1:]).mean(), (x * y).mean(), (x[:-64] * x[64:]).mean()]
        assert np.abs(found).max() * count**0.5 < 4.8
        places = np.array([9, 4, 4, 999_999], np.uint32)
        some = np.empty(4, np.float32)
        fill(some.ctypes.data, seed, 5, places.ctypes.data, 0, 4)
        np.testing.assert_allclose(some, z[places], rtol=1e-5)
