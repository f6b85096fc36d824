"""How Avalanche's buffers keep rows; blocks come as experiences do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from .problems import Kept, Source
from .torchvision_operators import declare_operators

declare_operators()

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from avalanche.benchmarks.utils import AvalancheDataset, as_classification_dataset
    from avalanche.training import storage_policy


class Rows(torch.utils.data.TensorDataset):  # type: ignore[misc]
    """A block of rows with classes as Avalanche asks for them."""

    def __init__(self, X: Any, y: Any) -> None:
        super().__init__(torch.from_numpy(X), torch.from_numpy(y))
        self.targets = y.tolist()


def experiences(source: Source) -> Iterator[Any]:
    """Yield blocks as data sets of Avalanche."""
    for X, y in source.blocks():
        if y is None:
            yield AvalancheDataset([torch.utils.data.TensorDataset(torch.from_numpy(X))])
        else:
            yield as_classification_dataset(Rows(X, y))


def buffer_of(kind: str, size: int, seed: int) -> Any:
    """Return a buffer; herding looks at the rows themselves, as a model that changes nothing."""
    torch.manual_seed(seed)
    if kind == "reservoir":
        return storage_policy.ReservoirSamplingBuffer(size)
    if kind == "class-balanced":
        return storage_policy.ClassBalancedBuffer(size)
    model = torch.nn.Sequential(torch.nn.Identity())
    chosen = storage_policy.HerdingSelectionStrategy(model, "0")
    return storage_policy.ParametricBuffer(size, groupby="class", selection_strategy=chosen)


def updated(buffer: Any, source: Source) -> Any:
    """Return a buffer after the blocks came to it, each as an experience learned."""
    agent = SimpleNamespace(device="cpu", eval_mb_size=1_000)
    for dataset in experiences(source):
        buffer.post_adapt(agent, SimpleNamespace(dataset=dataset))
    return buffer


def rows_of(buffer: Any) -> Kept:
    """Return the rows of a buffer."""
    loader = torch.utils.data.DataLoader(buffer.buffer, batch_size=1_000)
    return Kept(np.concatenate([batch[0].numpy() for batch in loader]))
