"""Encoded tables in blocks: matrices, leverage scores, and the map that undoes the shift.

A row is z = ((x - shift) / scale, 1), see `olss.tables.encoder`. The matrix kept, sum z z',
determines that of x with and without an intercept: x / scale = T z for a matrix T, so that leverage
of x is ||W'T z||^2 with W the factor of T (sum z z') T'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks
from olss.core.gram import Factor
from olss.core.leverage import Projected
from olss.errors import DataError
from olss.tables.encoder import LARGEST, Encoded, TableEncoder
from olss.util.threads import ordered_map

Floats = NDArray[np.float64]

# Rows that are encoded and multiplied at a time: 65 columns of float32 stay in a core's cache.
STEP = 8192


def blocks(
    encoder: TableEncoder, batch: Any, *, find_nan: bool = False, dtype: Any = None
) -> Iterator[tuple[slice, Any]]:
    """Yield (rows, Z), Z (width + 1, rows) in a buffer that the next block reuses."""
    yield from _fill_blocks(
        encoder, encoder.encode(batch, find_nan=find_nan), _cut_pieces(encoder, batch), dtype
    )


def _cut_pieces(encoder: TableEncoder, batch: Any) -> list[slice]:
    step = min(STEP, max(256, 4_000_000 // (4 * encoder.width + 4)))
    rows = batch.num_rows
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _fill_blocks(
    encoder: TableEncoder, encoded: Encoded, pieces: Iterable[slice], dtype: Any
) -> Iterator[tuple[slice, Any]]:
    """Yield (rows, Z) of some rows of an encoded batch; see `blocks`."""
    out = np.empty((encoder.width + 1, 0), dtype=dtype or encoder.dtype)
    # The result is checked for infinite values.
    with np.errstate(over="ignore", invalid="ignore"):
        for part in pieces:
            rows = part.stop - part.start
            if out.shape[1] < rows:
                out = np.empty((encoder.width + 1, rows), dtype=out.dtype)
            Z = out[:, :rows]
            encoder.fill(encoded, part, Z)
            yield part, Z


def matrix(encoder: TableEncoder, table: Any, place: str = "rows", start: int = 0) -> NDArray[Any]:
    """Return the rows of a table, or of a record batch, as (n, width + 1) numbers z.

    Raises `DataError` with the first infinite value.
    """
    batch = one_batch(table)
    numbers = np.empty((batch.num_rows, encoder.width + 1), dtype=encoder.dtype)
    for find_nan in (False, True):
        for part, Z in blocks(encoder, batch, find_nan=find_nan):
            numbers[part] = Z.T
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.sum(numbers)) or np.isfinite(numbers).all():
                return numbers
    raise encoder.explain_not_finite(batch, place, start)


def check_squares(encoder: TableEncoder, table: Any) -> None:
    """Raise `DataError` with the first value that is infinite or too large to square."""
    batch = one_batch(table)
    matrix(encoder, batch)
    if encoder.row_beyond(batch, LARGEST) is not None:
        raise encoder.explain_not_finite(batch, "rows", 0)


class TableRows(Blocks):
    """The rows z of a table, encoded a block at a time.

    In float64 whatever the encoder's dtype: rows are gone when their sum is used, and digits lost
    in float32 could not be restored.

    Parameters
    ----------
    encoder : TableEncoder
    table : pyarrow.Table or RecordBatch
    weight : (n,) array, optional
    place : str
        Name of the rows in messages.
    start : int
        Index of the first row.
    find_nan : bool
        See `TableEncoder.encode`.
    """

    def __init__(
        self,
        encoder: TableEncoder,
        table: Any,
        weight: Floats | None = None,
        place: str = "rows",
        start: int = 0,
        *,
        find_nan: bool = False,
    ) -> None:
        self._batch = one_batch(table)
        self._encoder, self._start = encoder, start
        self._encoded = encoder.encode(self._batch, find_nan=find_nan)
        self.name, self.rows, self.columns = place, self._batch.num_rows, encoder.width + 1
        self.dtype, self.weights = np.dtype(np.float64), weight
        self.sparse = self.remote = self.plain = False
        self.scale = self.noise = None
        self.dependent = encoder.dependent

    @property
    def integers(self) -> bool:
        """False: what is encoded are floats."""
        return False

    def pieces(self, dtype: np.dtype[Any], size: int | None = None) -> list[slice]:
        """Return the slices of rows that are encoded at a time, whatever `size`."""
        return _cut_pieces(self._encoder, self._batch)

    def _parts(self, dtype: np.dtype[Any]) -> Iterator[slice]:
        yield from self.pieces(dtype)

    def read(
        self, dtype: np.dtype[Any], parts: Iterable[slice] | None = None
    ) -> Iterator[tuple[slice, Any]]:
        """Yield (slice of rows, block), overwritten by the next; see `Blocks.read`."""
        wanted = self.pieces(dtype) if parts is None else parts
        for part, Z in _fill_blocks(self._encoder, self._encoded, wanted, dtype):
            yield part, Z.T if self.scale is None else Z.T * self.scale

    def any_nonzero(self, columns: NDArray[np.intp]) -> bool:
        """Return whether any of these columns has a non-zero value."""
        numbers = np.append(~self._encoder.is_indicator, False)  # squares of 1 cannot underflow
        columns = columns[numbers[columns]]
        return len(columns) > 0 and super().any_nonzero(columns)

    def _block(self, part: slice, dtype: np.dtype[Any]) -> Any:
        ((_, block),) = self.read(dtype, [part])
        return block

    def check_finite(self, *, allow_nan: bool = False) -> None:
        """Raise `DataError` with the first value that is infinite or too large to square."""
        with np.errstate(over="ignore", invalid="ignore"):
            if all(np.isfinite(np.vdot(Z, Z)) for _, Z in self.read(self.dtype)):
                return
        raise self._encoder.explain_not_finite(self._batch, self.name, self._start)


def leverage_and_products(
    encoder: TableEncoder,
    table: Any,
    factor: Factor | Projected,
    V: Floats | None,
    place: str = "rows",
    start: int = 0,
) -> tuple[Floats, Floats]:
    """Return the leverage score of each row z of a table, and z V for a few columns V.

    Blocks are multiplied as they are encoded; the whole matrix is never formed.

    Raises `DataError` with the first infinite value.
    """
    batch = one_batch(table)
    for find_nan in (False, True):
        encoded = encoder.encode(batch, find_nan=find_nan)
        scores, products = _leverage(encoder, encoded, _cut_pieces(encoder, batch), factor, V)
        if np.isfinite(scores).all():
            return scores, products
    raise encoder.explain_not_finite(batch, place, start)


def _leverage(
    encoder: TableEncoder,
    encoded: Encoded,
    pieces: list[slice],
    factor: Factor | Projected,
    V: Floats | None,
) -> tuple[Floats, Floats]:
    dtype = factor.work_dtype(np.dtype(encoder.dtype))
    left = factor.right.T.astype(dtype)
    # A factor is triangular: multiplied in bands, most of its zeros are skipped.
    ends = np.linspace(0, len(left), 5 if isinstance(factor, Factor) else 2).astype(int)
    scores = np.empty(pieces[-1].stop if pieces else 0)
    more = np.zeros((0, left.shape[1]), dtype=dtype) if V is None else V.T.astype(dtype)
    products = np.empty((len(scores), len(more)))

    def work(mine: Iterator[slice]) -> Iterator[None]:
        product = np.empty((len(left), 0), dtype=dtype)
        for part, Z in _fill_blocks(encoder, encoded, mine, dtype):
            if product.shape[1] != Z.shape[1]:
                product = np.empty((len(left), Z.shape[1]), dtype=dtype)
            for low, high in pairwise(ends):
                known = high if len(ends) > 2 else len(Z)
                np.matmul(left[low:high, :known], Z[:known], out=product[low:high])
            scores[part] = np.einsum("ij,ij->j", product, product)
            if len(more):
                products[part] = (more @ Z).T
            yield

    with np.errstate(over="ignore", invalid="ignore"):
        ordered_map(pieces, work)
    return scores, products


def variable(encoder: TableEncoder, diagonal: Floats, total: float) -> NDArray[np.bool_]:
    """Return which numbers vary over rows, (width,): constant ones are all zero or all one.

    Parameters
    ----------
    encoder : TableEncoder
    diagonal : (width + 1,) array
        Of the Gram matrix of z.
    total : float
        Weight of all rows.
    """
    squares = diagonal[:-1]
    always_one = np.isclose(squares, total, rtol=1e-12, atol=0)
    varies: NDArray[np.bool_] = (squares > 0) & ~(encoder.is_indicator & always_one)
    return varies


def row_map(encoder: TableEncoder, varies: NDArray[np.bool_], *, intercept: bool) -> Floats:
    """Return T, (k, width + 1), with x / scale = T z for the k numbers that vary.

    With an intercept, x has a further 1 and the shift does not matter, so it is not undone.
    """
    live = np.flatnonzero(varies)
    if not len(live):
        raise DataError(
            "no column can be scored: none holds numbers, dates or a few distinct strings that "
            "vary. Use policy='reservoir', which needs no scores."
        )
    T = np.zeros((len(live) + intercept, encoder.width + 1))
    T[np.arange(len(live)), live] = 1
    if intercept:
        T[-1, -1] = 1
    else:
        T[: len(live), -1] = encoder.offsets[live]
    return T


def one_batch(table: Any) -> Any:
    """Return a table as a single record batch; a record batch as it is."""
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        return table
    columns = [
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)
