import pytest
import torch
from benchmarks.peers.torchvision_operators import declare_operators

declare_operators()


@pytest.fixture(autouse=True)
def one_thread():
    """Small nets on a busy machine are many times slower with threads that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
