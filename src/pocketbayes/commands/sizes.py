"""Sizes as people write them: 500kB, 0.5MB, 1MiB."""

import re
from decimal import Decimal

from pocketbayes.errors import PocketBayesError

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "kb": 10**3, "mb": 10**6, "gb": 10**9,
          "kib": 2**10, "mib": 2**20, "gib": 2**30}  # fmt: skip


_SIZE = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)


def parsed_size(text: str) -> int:
    """The bytes that "500000", "500kB", "0.5MB" or "1MiB" says; capitals do not matter."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise PocketBayesError(
            f"{text!r} is not a size: write bytes as 500000, 500kB, 0.5MB or 1MiB "
            "(kB = 1000 bytes, KiB = 1024)"
        )
    size = Decimal(found[1].replace("_", "")) * _UNITS[found[2].lower()]
    if not 1 <= size < 2**63:
        raise PocketBayesError(f"{text!r} is not a size: it must be at least one byte")
    return int(size)
