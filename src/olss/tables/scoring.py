"""Tables as numbers in blocks, and the map that takes back how they were shifted.

A row is z = ((x - shift) / scale, 1), see `olss.tables.encoder`. The matrix kept, sum z z', holds
that of x with and without an intercept: x / scale = T z for a matrix T, so that leverage of x is
||W'T z||^2 with W the factor of T (sum z z') T'.
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

__all__ = [
    "TableRows",
    "blocks",
    "check_squares",
    "leverage",
    "matrix",
    "one_batch",
    "row_map",
    "variable",
]

Floats = NDArray[np.float64]

# Rows that are encoded and multiplied at a time: 65 columns of float32 stay in a core's cache.
STEP = 8192


def blocks(
    plan: TableEncoder, batch: Any, *, careful: bool = False, dtype: Any = None
) -> Iterator[tuple[slice, Any]]:
    """Yield (rows, Z), Z (width + 1, rows), of the plan's dtype or another, reused by the next."""
    yield from _filled(plan, plan.encode(batch, careful=careful), _pieces(plan, batch), dtype)


def _pieces(plan: TableEncoder, batch: Any) -> list[slice]:
    step = min(STEP, max(256, 4_000_000 // (4 * plan.width + 4)))
    rows = batch.num_rows
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _filled(
    plan: TableEncoder, encoded: Encoded, pieces: Iterable[slice], dtype: Any
) -> Iterator[tuple[slice, Any]]:
    """Yield (rows, Z) of some rows of an encoded batch; see `blocks`."""
    out = np.empty((plan.width + 1, 0), dtype=dtype or plan.dtype)
    # Infinite values are looked for in what comes out.
    with np.errstate(over="ignore", invalid="ignore"):
        for part in pieces:
            rows = part.stop - part.start
            if out.shape[1] < rows:
                out = np.empty((plan.width + 1, rows), dtype=out.dtype)
            Z = out[:, :rows]
            plan.fill(encoded, part, Z)
            yield part, Z


def matrix(plan: TableEncoder, table: Any, place: str = "rows", start: int = 0) -> NDArray[Any]:
    """Return the rows of a table, or of a record batch, as (n, width + 1) numbers z.

    Raises `DataError` that names the first infinite value.
    """
    import pyarrow as pa

    batch = table if isinstance(table, pa.RecordBatch) else one_batch(table)
    numbers = np.empty((batch.num_rows, plan.width + 1), dtype=plan.dtype)
    for careful in (False, True):
        for part, Z in blocks(plan, batch, careful=careful):
            numbers[part] = Z.T
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.sum(numbers)) or np.isfinite(numbers).all():
                return numbers
    raise plan.explain_not_finite(batch, place, start)


def check_squares(plan: TableEncoder, table: Any) -> None:
    """Raise `DataError` that names the first value that is infinite or too large to square."""
    batch = one_batch(table)
    matrix(plan, batch)
    if plan.row_beyond(batch, LARGEST) is not None:
        raise plan.explain_not_finite(batch, "rows", 0)


class TableRows(Blocks):
    """The numbers z of the rows of a table, in float64, made a block at a time.

    Whatever the plan's dtype: rows are gone when their sum is used, and digits that float32 loses
    could not be had back.

    Parameters
    ----------
    plan : TableEncoder
    table : pyarrow.Table or RecordBatch
    weight : (n,) array, optional
    place, start : what messages call the rows, and the number of the first
    careful : bool
        Whether NaN is looked for, as `TableEncoder.encode` has it.
    """

    def __init__(
        self,
        plan: TableEncoder,
        table: Any,
        weight: Floats | None = None,
        place: str = "rows",
        start: int = 0,
        *,
        careful: bool = False,
    ) -> None:
        import pyarrow as pa

        self._batch = table if isinstance(table, pa.RecordBatch) else one_batch(table)
        self._plan, self._start = plan, start
        self._encoded = plan.encode(self._batch, careful=careful)
        self.name, self.rows, self.columns = place, self._batch.num_rows, plan.width + 1
        self.dtype, self.weights = np.dtype(np.float64), weight
        self.sparse = self.remote = self.integers = False
        self.scale = self.noise = None

    def _converts(self, dtype: np.dtype[Any]) -> bool:
        return False

    def pieces(self, dtype: np.dtype[Any], size: int | None = None) -> list[slice]:
        """Return all rows as parts, of any `size`, that are encoded at a time."""
        return _pieces(self._plan, self._batch)

    def _parts(self, dtype: np.dtype[Any]) -> Iterator[slice]:
        yield from self.pieces(dtype)

    def read(
        self, dtype: np.dtype[Any], parts: Iterable[slice] | None = None
    ) -> Iterator[tuple[slice, Any]]:
        """Yield (slice of rows, block), overwritten by the next; see `Blocks.read`."""
        wanted = self.pieces(dtype) if parts is None else parts
        for part, Z in _filled(self._plan, self._encoded, wanted, dtype):
            yield part, Z.T if self.scale is None else Z.T * self.scale

    def _block(self, part: slice, dtype: np.dtype[Any]) -> Any:
        ((_, block),) = self.read(dtype, [part])
        return block

    def check_finite(self) -> None:
        """Raise `DataError` that names the first value that is infinite or too large to square."""
        with np.errstate(over="ignore", invalid="ignore"):
            if all(np.isfinite(np.vdot(Z, Z)) for _, Z in self.read(self.dtype)):
                return
        raise self._plan.explain_not_finite(self._batch, self.name, self._start)


def leverage(
    plan: TableEncoder, table: Any, factor: Factor | Projected, place: str = "rows", start: int = 0
) -> Floats:
    """Return the score of each row of a table by a factor of rows z.

    Numbers are multiplied as they are made, column by column; rows are never put together.

    Raises `DataError` that names the first infinite value.
    """
    import pyarrow as pa

    batch = table if isinstance(table, pa.RecordBatch) else one_batch(table)
    for careful in (False, True):
        scores = _leverage(plan, plan.encode(batch, careful=careful), _pieces(plan, batch), factor)
        if np.isfinite(scores).all():
            return scores
    raise plan.explain_not_finite(batch, place, start)


def _leverage(
    plan: TableEncoder, encoded: Encoded, pieces: list[slice], factor: Factor | Projected
) -> Floats:
    dtype = factor.work_dtype(np.dtype(plan.dtype))
    left = factor.right.T.astype(dtype)
    # A factor is triangular: in stretches, most of the zeros are not multiplied.
    ends = np.linspace(0, len(left), 5 if isinstance(factor, Factor) else 2).astype(int)
    scores = np.empty(pieces[-1].stop if pieces else 0)

    def work(mine: Iterator[slice]) -> Iterator[None]:
        product = np.empty((len(left), 0), dtype=dtype)
        for part, Z in _filled(plan, encoded, mine, dtype):
            if product.shape[1] != Z.shape[1]:
                product = np.empty((len(left), Z.shape[1]), dtype=dtype)
            for low, high in pairwise(ends):
                known = high if len(ends) > 2 else len(Z)
                np.matmul(left[low:high, :known], Z[:known], out=product[low:high])
            scores[part] = np.einsum("ij,ij->j", product, product)
            yield

    with np.errstate(over="ignore", invalid="ignore"):
        ordered_map(pieces, work)
    return scores


def variable(plan: TableEncoder, diagonal: Floats, total: float) -> NDArray[np.bool_]:
    """(width,) which numbers vary over rows: a constant one is all shift, or all ones.

    Parameters
    ----------
    plan
    diagonal : (width + 1,) of the Gram matrix of z
    total : weight of all rows
    """
    squares = diagonal[:-1]
    always_one = np.isclose(squares, total, rtol=1e-12, atol=0)
    varies: NDArray[np.bool_] = (squares > 0) & ~(plan.is_indicator & always_one)
    return varies


def row_map(plan: TableEncoder, varies: NDArray[np.bool_], *, intercept: bool) -> Floats:
    """Return T, (k, width + 1), with x / scale = T z for the k numbers that vary.

    With an intercept, x has a further one; where its zero is then does not matter, and the shift
    is left as it is.
    """
    live = np.flatnonzero(varies)
    if not len(live):
        raise DataError(
            "no column can be scored: none holds numbers, dates or a few different texts that "
            "vary. Use the policy 'reservoir', which needs no scores."
        )
    T = np.zeros((len(live) + intercept, plan.width + 1))
    T[np.arange(len(live)), live] = 1
    if intercept:
        T[-1, -1] = 1
    else:
        T[: len(live), -1] = plan.offsets[live]
    return T


def one_batch(table: Any) -> Any:
    """Return a table as a single record batch."""
    import pyarrow as pa

    columns = [
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)
