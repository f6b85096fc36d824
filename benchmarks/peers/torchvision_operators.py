"""Lets Avalanche be imported beside a CPU build of torch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

_declared: list[Any] = []  # operators are declared as long as their library lives


def declare_operators() -> None:
    """Declare what torchvision, which Avalanche imports, registers kernels for.

    Two operators are not declared where torchvision's own library does not load: beside a CPU
    build of torch.
    """
    if _declared or not find_spec("torchvision") or torch.version.cuda is not None:
        return
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float limit) -> Tensor")
    _declared.append(library)
