import pytest
import torch
from hypothesis import settings

settings.register_profile("torch", deadline=None, derandomize=True)
settings.load_profile("torch")


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
