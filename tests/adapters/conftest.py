from importlib.util import find_spec

import pytest
import torch

if find_spec("torchvision") and torch.version.cuda is None:
    # torchvision, which Avalanche imports, registers kernels for two operators that are not
    # declared where its own library does not load: beside a CPU build of torch.
    TORCHVISION = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        TORCHVISION.define(f"{operator}(Tensor dets, Tensor scores, float limit) -> Tensor")


@pytest.fixture(autouse=True)
def one_thread():
    """Small nets on a busy machine are many times slower with threads that wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
