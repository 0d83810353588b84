import gc

import pytest
import torch
from hypothesis import settings

settings.register_profile("torch", deadline=None, derandomize=True)
settings.load_profile("torch")


def pytest_collection_finish():
    """What is there by now stays to the end: nobody need ask again whether it is garbage."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
