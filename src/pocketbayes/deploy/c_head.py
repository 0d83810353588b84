"""A one-pass head in C: its numbers as tables, its features as they come by in the pass."""

import numpy as np

from pocketbayes.deploy.c_memory import At
from pocketbayes.deploy.c_passes import Pass
from pocketbayes.deploy.c_tables import Row
from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import Numbers, home, numbers_in, tensors_at
from pocketbayes.programs import FIRST, Buffer


class Head:
    """What a pass with a head needs beside the pass itself.

    Attributes:
        constants: names of C and their values.
    """

    def __init__(self, body: Pass) -> None:
        source, self._body = body.source, body
        assert source.head is not None
        numbers = numbers_in(tensors_at(home(source.model)), source.head.gone is not None)
        outputs = len(numbers.slope)
        self._widths = source.head.widths(outputs)
        places, hidden = len(self._widths) - 1, len(numbers.inner)
        last = len(source.program.operations)
        self._features = body.memory.slot(sum(self._widths), 0, last)
        known = hidden + 2 * places + 2
        self._known = body.memory.slot(known + 2 * outputs + 1, last, last)
        self.mean, self.variance = (body.memory.slot(outputs, last, last) for _ in "mv")
        self.constants = {
            "FEATURES": sum(self._widths), "HIDDEN": hidden, "PLACES": places,
            "KNOWS_LAST": int(source.last_layer is not None),
        }  # fmt: skip
        self._tables(numbers)

    def _tables(self, numbers: Numbers) -> None:
        tables, head = self._body.tables, self._body.source.head
        assert head is not None
        center, scale, counts, inner, bias, outer, outer_bias, slope = (
            t.detach().double().numpy() for t in numbers
        )
        tables.weights("head_inner", Row(inner, None, bias), may_be_sparse=False)
        tables.weights("head_outer", Row(outer, None, outer_bias), may_be_sparse=False)
        ends = np.cumsum(self._widths)
        parts = [slice(e - w, e) for e, w in zip(ends, self._widths, strict=True)]
        varying = [max(1, int((scale[p] > 0).sum())) for p in parts]
        gone = np.zeros((len(parts) - 1, 2)) if not head.gone else np.array(head.gone, float)
        total = [max(1.0, counts[p].sum() + g) for p, g in zip(parts[:-1], gone[:, 0], strict=True)]
        unit = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 1)[-len(slope) :]
        for name, values in {
            "feature_center": center, "feature_scale": scale, "place_varying": np.array(varying),
            "place_total": np.array(total), "place_lost": gone[:, 1], "head_unit": unit,
            "head_slope": slope,
        }.items():  # fmt: skip
            tables.floats(name, values)
        tables.integers("feature_counts", "uint8_t", counts.astype(int), 1)
        tables.integers("place_width", "int", np.array(self._widths), 4)

    def read(self, buffer: int) -> None:
        """Notes the features of the places that read this buffer, now that it is there."""
        source, offset = self._body.source, 0
        for place, width in zip(source.program.places, self._widths, strict=False):
            if not isinstance(place.operand, Buffer):
                raise PocketBayesError("a one-pass head that reads weights is not exported to C")
            if place.operand.number == buffer:
                value = self._body.values[buffer]
                positions = value.size // width
                steps = (
                    (positions, positions, 1) if place.channels == FIRST else (1, positions, width)
                )
                to = At(self._features, offset)
                self._body.call("features", value.mean, to, width, *steps)
            offset += width

    def finish(self, output: object) -> None:
        """The last calls: outputs among the features, variances of the last layer, the spread."""
        body, widths = self._body, self._widths
        body.call("copy", output, At(self._features, sum(widths[:-1])), widths[-1])
        if body.source.last_layer is not None:
            name, sparse = body.rows[body.source.last_layer.number]
            kind = "last_sparse" if sparse else "last_dense"
            features = At(self._features, sum(widths[:-2]))
            body.call(kind, f"&{name}", features, self.variance, widths[-2], widths[-1])
        body.call("spread", self._features, self._known, self.mean, self.variance)
