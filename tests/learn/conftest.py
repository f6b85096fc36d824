import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Nets this small only wait for each other on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
