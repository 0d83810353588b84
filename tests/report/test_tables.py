"""Numbers of tables as a person reads them."""

import pytest

from pocketbayes.report.tables import as_text


@pytest.mark.parametrize(
    ("value", "text"),
    [(16823.4, "16823"), (1.23456789e8, "123460000"), (-1682.34, "-1682.3"), (12.3456, "12.35"),
     (0.00012, "0.00012"), (999999.9, "1000000"), (3e12, "3e+12"), (float("inf"), "inf")],
)  # fmt: skip
def test_plain_numbers_have_no_exponent(value, text):
    assert as_text("value", value) == text
