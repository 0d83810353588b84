"""Parts of a prediction: those that there are, and an error for any other."""

import ctypes as ct

import numpy as np
import pytest
import torch
from built import CAnswer, CAsk, engine_of
from torch import nn
from traced import traced

import pocketbayes as pb
from pocketbayes.programs import encoded

ROWS, DRAWS, MOST = 40, 4, 2**31 - 1
SMALL = (nn.Linear(6, 3), (6,))
LARGE = (nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.AdaptiveAvgPool2d(1)), (1, 32, 32))


class Cut:
    """An open model, and room for its answers."""

    def __init__(self, library, net, shape):
        torch.manual_seed(0)
        x = torch.randn(ROWS, *shape)
        model = pb.bayesianize_(net).eval()
        self.engine = engine_of(library, model, encoded(traced(model, x)), "gaussian", draws=DRAWS)
        self.library, self.handle = library, ct.c_void_p(self.engine.handle)
        self.x = np.ascontiguousarray(x.numpy())
        self.made = np.full((DRAWS, ROWS, *self.engine.shape()), 7, np.float32)
        self.together = library.pocket_together(self.handle)

    def rows(self, first, count):
        answer = CAnswer(outputs=self.made.ctypes.data)
        return self._said("rows", 0, first, count, ct.byref(answer))

    def draws(self, first, count):
        return self._said("draws", 3, first, count, ct.c_void_p(self.made.ctypes.data))

    def _said(self, of, estimator, first, count, to):
        given, ask = (ct.c_void_p * 1)(self.x.ctypes.data), CAsk(estimator, DRAWS, 0, 0.9)
        call = getattr(self.library, f"pocket_{of}")
        if not call(self.handle, given, ROWS, first, count, ct.byref(ask), to):
            return ""
        return self.library.pocket_error(self.handle).decode()


@pytest.mark.parametrize(("net", "together"), [(SMALL, 16), (LARGE, 1)], ids=["small", "large"])
def test_a_part_that_is_none_is_an_error(library, net, together):
    """Rows begin at a multiple of those that go together, and none is beyond the last."""
    model = Cut(library, *net)
    assert model.together == together
    wrong = [(0, 41), (48, 1), (40, 1), (32, 9), (-16, 8), (16, MOST), (MOST - 15, 16)]
    for part in wrong + [(8, 8)] * (together > 1):
        assert model.rows(*part) == "there is no such part", part
    for part in ((0, 5), (4, 1), (-1, 2), (2, MOST)):
        assert model.draws(*part) == "there is no such part", part
    for part in ((0, 0), (0, -16)):
        assert model.rows(*part) == "there is nothing to predict"
    assert (model.made == 7).all()
    assert [model.rows(*part) for part in ((0, 16), (16, 16), (32, 8), (0, 40))] == [""] * 4
    assert [model.draws(*part) for part in ((0, 4), (3, 1))] == [""] * 2
    assert (model.made != 7).any()
