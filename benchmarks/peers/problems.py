"""The rows to keep some of, and how a library may take them: a file, a stream of blocks, at once.

Imported in the environment of every library: NumPy and PyArrow only, but where rows are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

COLUMNS = 20
ROW_GROUP = 250_000
READ_ROWS = 65_536


@dataclass(frozen=True)
class Problem:
    """So many rows to keep of so many.

    Attributes
    ----------
    rows, size : int
        Rows there are, rows to keep.
    file : str
        The file with the rows.
    block : int or None
        Rows of a block of the stream; None: to be read from the file.
    """

    rows: int
    size: int
    file: str
    block: int | None
    title: str


PROBLEMS = {
    "file": Problem(
        10_000_000, 10_000, "table.parquet", None,
        "10,000 of 10 million rows x 20 columns, from Parquet",
    ),
    "stream": Problem(
        10_000_000, 10_000, "table.parquet", 10_000,
        "the same rows as a stream of 1,000 blocks",
    ),
    "digits": Problem(60_000, 2_000, "digits.npz", 60_000, "2,000 of 60,000 rows x 784 columns"),
    "small": Problem(
        20_000, 200, "small.npz", 1_000, "200 of 20,000 rows x 20 columns, in 20 blocks"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """Rows kept, and how many rows each stands for, if the method says so."""

    rows: NDArray[Any]
    weight: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Source:
    """Rows as a library asks for them; each block is new, so that who holds it pays for it."""

    path: Path | None
    stored: list[tuple[NDArray[Any], NDArray[Any] | None]]

    def blocks(self) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
        """Yield blocks of rows, and their classes if they have any."""
        if self.path is not None:
            for batch in self.batches():
                yield np.column_stack([column.to_numpy() for column in batch.columns]), None
        for X, y in self.stored:
            yield X.copy(), None if y is None else y.copy()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield blocks of columns."""
        if self.path is not None:
            file = pq.ParquetFile(self.path, pre_buffer=False)  # is faster here, and holds less
            yield from file.iter_batches(batch_size=READ_ROWS)
        for X, _ in self.stored:
            columns = X.T.copy()
            yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names(len(columns)))

    def whole(self) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return all rows at once."""
        X, y = zip(*self.blocks(), strict=True)
        return np.concatenate(X), None if y[0] is None else np.concatenate(y)


def names(columns: int) -> list[str]:
    """Return the names of columns."""
    return [f"x{j:02d}" for j in range(columns)]


def source_of(problem: Problem, folder: Path, by_columns: bool) -> Source:
    """Return the rows of a problem; in memory, if they are a stream, in the order asked for."""
    path = folder / problem.file
    if problem.block is None:
        return Source(path, [])
    order = "F" if by_columns else "C"
    if path.suffix == ".npz":
        with np.load(path) as held:
            X, y = held["X"], held["y"]
        cuts = range(0, len(X), problem.block)
        blocks = [(X[i : i + problem.block], y[i : i + problem.block]) for i in cuts]
        return Source(None, [(np.asarray(b, order=order), c) for b, c in blocks])
    batches = pq.ParquetFile(path).iter_batches(batch_size=problem.block)
    columns = (np.stack([column.to_numpy() for column in batch.columns]) for batch in batches)
    return Source(None, [(np.asarray(block.T, order=order), None) for block in columns])


def amounts(
    rng: np.random.Generator, rows: int, mixing: NDArray[Any], scale: NDArray[Any] | float = 1.0
) -> NDArray[np.float32]:
    """Return rows of a table as tables are: some rows are much larger than others.

    The first column is an amount, of a lognormal law; the others are normal, depend on each other
    by `mixing`, and grow with the amount. Totals of the amount are what is estimated.
    """
    amount = rng.lognormal(size=(rows, 1)) * scale
    X = (amount * (rng.standard_normal((rows, len(mixing))) @ mixing)).astype(np.float32)
    X[:, :1] = amount
    return X


def make(name: str, folder: Path) -> None:
    """Make the file of a problem with its Gram matrix beside it, unless it is there."""
    problem, path = PROBLEMS[name], folder / PROBLEMS[name].file
    gram = path.with_suffix(".npy")
    if gram.exists():  # is written last
        return
    folder.mkdir(parents=True, exist_ok=True)
    mixing = np.random.default_rng(0).standard_normal((COLUMNS, COLUMNS))
    if path.suffix == ".parquet":
        np.save(gram, _write_table(path, problem.rows, mixing))
        return
    X, y = digits() if name == "digits" else _with_classes(problem.rows, mixing)
    np.savez(path, X=X, y=y)
    np.save(gram, _gram(X))


def _write_table(path: Path, rows: int, mixing: NDArray[Any]) -> NDArray[np.float64]:
    rng, gram = np.random.default_rng(1), np.zeros((COLUMNS, COLUMNS))
    schema = pa.schema([(name, pa.float32()) for name in names(COLUMNS)])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for start in range(0, rows, ROW_GROUP):
            X = amounts(rng, min(ROW_GROUP, rows - start), mixing)
            gram += _gram(X)
            writer.write_table(pa.table([pa.array(c) for c in X.T.copy()], schema=schema))
    return gram


def _with_classes(rows: int, mixing: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows of ten classes, the rarer the larger, so that balance is not without effect."""
    rng, share = np.random.default_rng(2), 1 / np.arange(1, 11)
    y = rng.choice(10, rows, p=share / share.sum())
    return amounts(rng, rows, mixing, 1 + y[:, None]), y


def _gram(X: NDArray[Any]) -> NDArray[np.float64]:
    X = X.astype(np.float64)
    return X.T @ X


def digits() -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the training images of MNIST, or as many rows made up where it is not at hand."""
    from olss.errors import OlssError
    from olss.streams import load_dataset

    try:
        data = load_dataset("mnist")
    except OlssError:
        rng = np.random.default_rng(3)
        y = rng.integers(0, 10, 60_000)
        centres = rng.standard_normal((10, 784), dtype=np.float32)
        X = np.abs(centres[y] + rng.standard_normal((60_000, 784), dtype=np.float32))
        return X, y
    return data.X.reshape(len(data.X), -1).astype(np.float32) / 255, data.y.astype(np.int64)


def error(kept: Kept, rows: int, gram: NDArray[np.float64]) -> float:
    """Return ||A'A - Â'Â||₂ / ||A||₂², the spectral error; unweighted rows stand for all alike."""
    weight = kept.weight
    if weight is None:
        weight = np.full(len(kept.rows), rows / max(1, len(kept.rows)))
    A = kept.rows.astype(np.float64)
    off = gram - (A * weight[:, None]).T @ A
    return float(np.linalg.norm(off, 2) / np.linalg.norm(gram, 2))
