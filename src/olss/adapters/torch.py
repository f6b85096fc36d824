"""A sketch as a PyTorch data set, and a loader that mixes current rows with replayed ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError, MissingExtraError
from olss.memory.rows import Indices, take
from olss.sketch import Sketch
from olss.util import checks

try:
    import torch
except ModuleNotFoundError as error:
    raise MissingExtraError("torch", "lab", "olss.adapters.torch") from error

from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate
from torch.utils.data import get_worker_info as worker_info

from olss.learn.training import as_tensor

__all__ = ["SketchDataset", "SketchStream", "replay_loader"]

BLOCK = 256  # rows that an endless stream draws at a time

Transform = Callable[[Any], Any]
Seed = int | np.random.Generator | None
Weights = Literal["sampler", "loss"] | None


class SketchDataset(Dataset[Any]):
    """The rows of a sketch, each as (x, y), (x, y, weight), or x if there is no y.

    It is a view of the sketch: after an update it has other rows.

    Parameters
    ----------
    sketch : Sketch
        Of NumPy arrays or tensors; rows are returned as tensors.
    transform : callable, optional
        Applied to each x, a tensor.
    weights : bool
        Whether to return each row's weight, a float32 that is 1 on average, for the loss.

    Examples
    --------
    >>> rows, labels = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6)
    >>> dataset = SketchDataset(Sketch(size=4, seed=0).update(rows, labels))
    >>> len(dataset), len(DataLoader(dataset, batch_size=3))
    (4, 2)
    >>> x, y = dataset[0]
    >>> x.shape, y.dtype
    (torch.Size([2]), torch.int64)
    """

    def __init__(
        self, sketch: Sketch, *, transform: Transform | None = None, weights: bool = False
    ) -> None:
        _check_sketch(sketch)
        self.sketch = sketch
        self.transform = transform
        self.weights = weights

    def __len__(self) -> int:
        return len(self.sketch)

    def __getitem__(self, row: int) -> Any:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a sketch of {len(self)} rows")
        return self.__getitems__([row % len(self)])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        """Return several rows at once; PyTorch uses this where it is defined."""
        columns = self._columns(np.asarray(rows, dtype=np.int64))
        return [row[0] if len(row) == 1 else row for row in zip(*columns, strict=True)]

    def _columns(self, rows: Indices) -> list[Any]:
        """Return copies of some rows as batched tensors: X, y if any, weights if wanted."""
        sketch = self.sketch
        columns = [_apply(_take_rows("X", sketch.X, rows), self.transform)]
        if sketch.y is not None:
            columns.append(_take_rows("y", sketch.y, rows))
        if self.weights:
            scaled = sketch.weight[rows] / sketch.weight.mean()
            columns.append(torch.from_numpy(scaled.astype(np.float32)))
        return columns


class SketchStream(IterableDataset[Any]):
    """An endless stream of rows of a sketch, drawn at random with replacement.

    Parameters
    ----------
    sketch : Sketch
    transform : callable, optional
        Applied to each x, a tensor.
    weighted : bool
        Whether rows are drawn in proportion to their weights, as they occurred in the stream.
    seed : int or numpy.random.Generator, optional
        Each pass continues with it. Workers, if any, are seeded by the DataLoader's generator.

    Examples
    --------
    >>> rows, labels = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6)
    >>> endless = SketchStream(Sketch(size=4, seed=0).update(rows, labels), seed=0)
    >>> batch, _ = next(iter(DataLoader(endless, batch_size=32)))
    >>> batch.shape
    torch.Size([32, 2])
    """

    def __init__(
        self,
        sketch: Sketch,
        *,
        transform: Transform | None = None,
        weighted: bool = False,
        seed: Seed = None,
    ) -> None:
        self.dataset = SketchDataset(sketch, transform=transform)
        self.weighted = weighted
        self._rng = checks.generator(seed)

    def __iter__(self) -> Iterator[Any]:
        worker = worker_info()
        rng = self._rng if worker is None else np.random.default_rng(worker.seed)
        while True:
            sketch = self.dataset.sketch
            if not len(sketch):
                raise InputError("the sketch is empty; call update(X, y) first.")
            yield from self.dataset.__getitems__(
                _sample_weighted(sketch, BLOCK, rng).tolist()
                if self.weighted
                else rng.integers(len(sketch), size=BLOCK).tolist()
            )


def replay_loader(
    current: Any,
    sketch: Sketch,
    batch_size: int,
    *,
    replay_fraction: float = 0.5,
    transform: Transform | None = None,
    weights: Weights = None,
    shuffle: bool = True,
    seed: Seed = None,
    **options: Any,
) -> DataLoader[Any]:
    """Return a DataLoader whose batches mix current rows with rows of a sketch.

    One pass yields each current row once. While the sketch is empty, batches are current rows
    alone. The order of rows depends on the seed alone, not on the number of workers.

    Parameters
    ----------
    current : (X, y), or a Dataset of (x, y)
        The rows of the current task: arrays or tensors, or a data set with a length.
    sketch : Sketch
        The rows to replay. Update it with the current rows after the pass, or before it to have
        them on both sides.
    batch_size : int
        Rows per batch, of both kinds together; the last batch may have fewer.
    replay_fraction : float
        The fraction of each batch that comes from the sketch, at least 0 and below 1.
    transform : callable, optional
        Applied to each x, a tensor, except those of a Dataset, which applies its own.
    weights : {None, "sampler", "loss"}
        How the weights of replayed rows are used. None: not at all; each row of the sketch comes
        as often as any other. "sampler": rows are drawn in proportion to their weights. "loss":
        batches are (X, y, weight), to multiply losses with: a current row's weight is 1, replayed
        rows' weights are 1 on average.
    shuffle : bool
        Whether current rows come in random order.
    seed : int or numpy.random.Generator, optional
        Each pass continues with it.
    **options
        Passed on to the DataLoader: `num_workers`, `pin_memory` and so on.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((300, 5)).astype(np.float32), rng.integers(2, size=300)
    >>> sketch = Sketch(size=50, seed=0).update(X[:200], y[:200])
    >>> current = X[200:], y[200:]
    >>> loader = replay_loader(current, sketch, batch_size=40, replay_fraction=0.25, seed=0)
    >>> [len(labels) for _, labels in loader]  # 30 + 10 rows, and at last 10 + 3
    [40, 40, 40, 13]
    """
    _check_sketch(sketch)
    if weights is not None:
        checks.choice("weights", weights, ("sampler", "loss"))
    past = SketchDataset(sketch, transform=transform, weights=weights == "loss")
    batches = _MixedBatchSampler(
        _length(current), sketch, batch_size, replay_fraction, weights == "sampler", shuffle, seed
    )
    mixed = _MixedDataset(current, past)
    # A batch is one item, so that rows are taken from arrays by one indexing operation.
    return DataLoader(mixed, sampler=batches, batch_size=None, **options)


class _MixedBatchSampler(Sampler[tuple[Indices, Indices]]):
    """Yield the indices of current and of replayed rows for each batch."""

    def __init__(
        self,
        rows: int,
        sketch: Sketch,
        batch_size: int,
        replay_fraction: float,
        weighted: bool,
        shuffle: bool,
        seed: Seed,
    ) -> None:
        self.rows, self.sketch = rows, sketch
        self.batch_size = checks.integer("batch_size", batch_size)
        self.fraction = checks.number("replay_fraction", replay_fraction, minimum=0, below=1)
        if self.fraction and not (self.batch_size > 1 and round(self.fraction * batch_size)):
            raise InputError(
                f"replay_fraction={replay_fraction:g} of batch_size={batch_size} is less than one "
                "row, so nothing would be replayed; increase either, or set replay_fraction=0."
            )
        self.weighted, self.shuffle = weighted, shuffle
        self._rng = checks.generator(seed)
        self._queue = np.empty(0, dtype=np.int64)

    @property
    def current_rows(self) -> int:
        """Current rows per batch."""
        if not len(self.sketch):
            return self.batch_size
        return max(1, self.batch_size - round(self.fraction * self.batch_size))

    def __len__(self) -> int:
        return math.ceil(self.rows / self.current_rows)

    def __iter__(self) -> Iterator[tuple[Indices, Indices]]:
        order = self._rng.permutation(self.rows) if self.shuffle else np.arange(self.rows)
        current = self.current_rows
        replayed = self.batch_size - current
        for start in range(0, self.rows, current):
            rows = order[start : start + current]
            yield rows, self._replay(round(replayed * len(rows) / current))

    def _replay(self, count: int) -> Indices:
        """Return rows of the sketch; without weights, none repeats before all have come."""
        if self.weighted and count:
            return _sample_weighted(self.sketch, count, self._rng)
        held = len(self.sketch)
        self._queue = self._queue[self._queue < held]  # the sketch may have lost rows
        while count > len(self._queue):
            self._queue = np.concatenate([self._queue, self._rng.permutation(held)])
        rows, self._queue = np.split(self._queue, [count])
        return rows


class _MixedDataset(Dataset[Any]):
    """Batches of current and replayed rows, indexed by the pair of their indices."""

    def __init__(self, current: Any, past: SketchDataset) -> None:
        self.current, self.past = current, past

    def __getitem__(self, batch: tuple[Indices, Indices]) -> Any:
        rows, past = batch
        columns = self._current(rows)
        if self.past.weights:
            columns.append(torch.ones(len(rows)))
        if len(past):
            replayed = self.past._columns(past)
            if len(columns) != len(replayed):
                raise DataError("current rows and the sketch must both have y, or neither.")
            columns = [_concatenate(a, b) for a, b in zip(columns, replayed, strict=True)]
        return columns[0] if len(columns) == 1 else columns

    def _current(self, rows: Indices) -> list[Any]:
        if isinstance(self.current, Dataset):
            batch = default_collate([self.current[int(row)] for row in rows])
            return list(batch) if isinstance(batch, (tuple, list)) else [batch]
        X, *rest = self.current
        columns = [_apply(_take_rows("X", X, rows), self.past.transform)]
        return columns + [_take_rows("y", y, rows) for y in rest if y is not None]


def _length(current: Any) -> int:
    if isinstance(current, Dataset):
        return len(current)  # type: ignore[arg-type]  # one with a length
    if not isinstance(current, (tuple, list)) or len(current) != 2:
        raise InputError(f"current must be (X, y) or a Dataset, found {type(current).__name__}.")
    X, y = current
    if y is not None and len(X) != len(y):
        raise DataError(f"current X and y must have the same length, found {len(X)} and {len(y)}.")
    return len(X)


def _check_sketch(sketch: Any) -> None:
    if not isinstance(sketch, Sketch):
        raise InputError(f"sketch must be an olss.Sketch, found {type(sketch).__name__}.")


def _sample_weighted(sketch: Sketch, count: int, rng: np.random.Generator) -> Indices:
    """Draw rows of a sketch in proportion to their weights, with replacement."""
    return rng.choice(len(sketch), count, p=sketch.weight / sketch.weight.sum())


def _take_rows(name: str, array: Any, rows: Indices) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        return array[torch.from_numpy(rows)]
    chosen: NDArray[Any] = take(np.asarray(array), rows)
    if chosen.dtype.kind not in "biuf":
        raise DataError(f"{name} must hold numbers to become a tensor, found {chosen.dtype}.")
    return as_tensor(chosen)


def _apply(X: torch.Tensor, transform: Transform | None) -> Any:
    return X if transform is None else default_collate([transform(x) for x in X])


def _concatenate(current: torch.Tensor, replayed: torch.Tensor) -> torch.Tensor:
    alike = current.shape[1:] == replayed.shape[1:]
    # Integers beside floats are pixels from 0 to 255 beside pixels from 0 to 1.
    if not alike or current.is_floating_point() != replayed.is_floating_point():
        raise DataError(
            "current rows and rows of the sketch must fit into one batch, found shape "
            f"{tuple(current.shape[1:])} of {current.dtype} and {tuple(replayed.shape[1:])} of "
            f"{replayed.dtype}; a transform can make them alike."
        )
    return torch.cat([current, replayed.to(current.dtype)])
