"""The engine, compiled once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `built` is not a test

from built import compiled  # noqa: E402


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("engine"))
