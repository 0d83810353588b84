"""The engine, compiled once.

POCKET_ENGINE_FLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all" compiles it so;
AddressSanitizer also wants LD_PRELOAD=$(cc -print-file-name=libasan.so) and
ASAN_OPTIONS=detect_leaks=0.
"""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `built` is not a test

from built import compiled


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    flags = os.environ.get("POCKET_ENGINE_FLAGS", "").split()
    return compiled(tmp_path_factory.mktemp("engine"), *flags)
