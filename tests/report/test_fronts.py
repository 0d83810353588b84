"""What a compression tried: the rows of a run's metrics, as a table and as a picture."""

import math

import pytest

from pocketbayes.report import tried_in
from pocketbayes.report.fronts import front_chart, front_rows

ROW = {"what": "as it is", "bytes": 2000, "multiplications": 10, "milliseconds": 0.5, "nll": 0.2,
       "accuracy": 0.9, "chosen": False}  # fmt: skip


def metrics(*rows):
    return {"compression": {"candidates": list(rows)}}


def test_candidates_from_the_smallest_to_the_largest():
    found = tried_in(metrics(ROW, ROW | {"bytes": 900, "what": "pruned", "chosen": True}))
    assert [one.bytes for one in found] == [900, 2000]
    assert front_rows(found)[0] == ["pruned (chosen)", "900", "10", "0.5", "0.2", "90.00%"]
    chart = front_chart("a", found)
    assert "2 candidates" in chart.alt
    assert "chosen" in chart.svg
    assert "multiplications of a pass" in chart.svg


def test_values_and_what_is_not_known():
    value = {k: v for k, v in ROW.items() if k not in ("accuracy", "multiplications")}
    (found,) = tried_in(metrics(value | {"rmse": 1.25, "milliseconds": None}))
    assert front_rows([found])[0] == ["as it is", "2,000", "", "", "0.2", "RMSE 1.25"]
    assert "multiplications" not in front_chart("a", [found]).svg


@pytest.mark.parametrize(
    "strange",
    [{}, {"compression": None}, {"compression": {"candidates": "x"}}, metrics(1, None, []),
     metrics(ROW | {"bytes": "many"}), metrics(ROW | {"bytes": 0}), metrics(ROW | {"nll": None}),
     metrics(ROW | {"nll": math.nan}), metrics(ROW | {"bytes": True})],
)  # fmt: skip
def test_metrics_of_others_are_passed_over(strange):
    assert tried_in(strange) == []
