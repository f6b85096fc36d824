"""Encoded tables in blocks: matrices, leverage scores, and the map that undoes the shift.

A row is z = ((x - shift) / scale, 1), see `olss.tables.encoder`. The matrix kept, sum z z',
determines that of x with and without an intercept: x / scale = T z for a matrix T, so that leverage
of x is ||W'T z||^2 with W the factor of T (sum z z') T'.

Indicators of text are mostly zero: where they are many, products with them are look-ups by the
place of the one that is 1 (`SplitRows`), else all of a row is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, Products, is_sparse
from olss.core.gram import Factor
from olss.core.leverage import Projected
from olss.errors import DataError
from olss.tables.columns import Text
from olss.tables.encoder import LARGEST, Encoded, TableEncoder
from olss.util import sparse as sp
from olss.util.threads import call_with_one_blas_thread, ordered_map

Floats = NDArray[np.float64]

# Rows that are encoded and multiplied at a time: 65 columns of float32 stay in a core's cache.
STEP = 8192
SPLIT_BYTES = 1_000_000  # of the numbers of split rows at a time
# A look-up takes as long as so many multiplications.
LOOKUP = 20
# Beyond it, squares of scores as sums of products would lose more digits than scores may.
LARGEST_GROWTH = 1e4


@dataclass(frozen=True)
class SplitRows:
    """Encoded rows z as numbers, and as places of indicators that are 1.

    Attributes
    ----------
    encoder : TableEncoder
    numbers : Encoded
        The encoded columns that are not text.
    at : (p,) int array
        Where numbers, and the constant, stand in z.
    texts : list of slice
        Where the indicators of each text column stand in z.
    places : (n, c) int array
        Which of them are 1, as places in z.
    """

    encoder: TableEncoder
    numbers: Encoded
    at: NDArray[np.intp]
    texts: list[slice]
    places: NDArray[np.int32]

    @classmethod
    def of(cls, encoder: TableEncoder, encoded: Encoded, rows: int) -> Self | None:
        """Return encoded rows split, or None if to multiply all of z takes no longer."""
        numbers: Encoded = []
        texts: list[slice] = []
        codes: list[NDArray[np.intp]] = []
        at: list[int] = []
        start = 0
        for column, values in encoded:
            stop = start + column.width
            if isinstance(column, Text):
                texts.append(slice(start, stop))
                codes.append(values)
            else:
                numbers.append((column, values))
                at.extend(range(start, stop))
            start = stop
        p, c, d = len(at) + 1, len(texts), start + 1
        if rows < d or 2 * (p * p + LOOKUP * c * (p + 2 * c)) > d * d:
            return None
        places = np.empty((rows, c), dtype=np.int32)
        for k, where in enumerate(texts):
            np.add(codes[k], where.start, out=places[:, k], casting="unsafe")
        return cls(encoder, numbers, np.array([*at, start]), texts, places)

    def pieces(self) -> list[slice]:
        """Return all rows as slices, so long that products take longer than adding them up."""
        step = max(256, self.encoder.width // 2, SPLIT_BYTES // (8 * len(self.at)))
        rows = len(self.places)
        return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]

    def read(self, parts: Iterable[slice], beside: Floats) -> Iterator[tuple[slice, Floats, Any]]:
        """Yield (rows, their numbers, the constant, and those beside, indicators as CSR).

        The numbers are overwritten by the next.
        """
        p, c, d = len(self.at), len(self.texts), self.encoder.width + 1
        ones, numbers = np.ones(0), np.empty((0, p + beside.shape[1]))
        for part, Z in _fill_blocks(self.encoder, self.numbers, parts, np.float64):
            rows = Z.shape[1]
            if len(ones) < rows * c:
                ones = np.ones(rows * c)
            ends = np.arange(0, rows * c + 1, c, dtype=np.int32)
            places = self.places[part].ravel()
            if len(numbers) < rows:
                numbers = np.empty((rows, p + beside.shape[1]))
            X = numbers[:rows]
            X[:, :p], X[:, p:] = Z.T, beside[part]
            yield part, X, sp.csr_array((ones[: rows * c], places, ends), shape=(rows, d))

    def pairs(self, part: slice) -> Iterator[tuple[slice, NDArray[np.intp]]]:
        """Yield (where a text column is, cells) for all of its pairs with later ones.

        Of each row, cells (k, rows) are those of the pairs of indicators that are 1, counted along
        the rows of a (d, d) matrix in which the column is.
        """
        d, places = self.encoder.width + 1, self.places[part].T.astype(np.intp, order="C")
        for k, where in enumerate(self.texts[:-1], 1):
            yield where, (places[k - 1] - where.start) * d + places[k:]

    def products(
        self, weights: Floats | None, beside: Floats, parts: Iterable[slice]
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yield sum w z z' of each part, and sum w z v' for numbers v beside the rows."""
        d, p, at = self.encoder.width + 1, len(self.at), self.at
        indicators = np.setdiff1d(np.arange(d), at)
        for part, X, S in self.read(parts, beside):
            w = None if weights is None else weights[part]
            right = X if w is None else X * w[:, None]
            Z = X[:, :p] if w is None else X[:, :p] * np.sqrt(w)[:, None]
            sums: Floats = S.T @ right
            sums[at, :p], sums[at, p:] = Z.T @ Z, X[:, :p].T @ right[:, p:]
            product = np.zeros((d, d))
            for where, cells in self.pairs(part):
                some = None if w is None else np.tile(w, len(cells))
                counts = np.bincount(cells.ravel(), some, product[where].size)
                product[where] = counts.reshape(-1, d)
            product += product.T
            product[:, at] = sums[:, :p]
            product[at] = sums[:, :p].T
            product[indicators, indicators] = sums[indicators, p - 1]
            yield product, sums[:, p:]

    def leverage(self, right: Floats, V: Floats) -> tuple[Floats, Floats]:
        """Return ||z M||^2 of each row, M being `right`, and z V.

        z M M' z' is the sum of the numbers of M M' at any two places of z.
        """
        p, at = len(self.at), self.at
        square = call_with_one_blas_thread(lambda: right @ right.T, columns=len(right))
        twice = 2 * square
        table = twice[:, at]
        table[:, p - 1] += square.diagonal()  # of indicators beside the constant 1
        table = np.hstack([table, V])
        own = np.hstack([square[np.ix_(at, at)], V[at]])
        n = len(self.places)
        scores, products = np.empty(n), np.empty((V.shape[1], n))

        def work(parts: Iterator[slice]) -> Iterator[None]:
            for part, Z, S in self.read(parts, np.empty((n, 0))):
                found = Z @ own
                found += S @ table
                some = np.einsum("ij,ij->i", Z, found[:, :p])
                for where, cells in self.pairs(part):
                    some += twice[where].ravel().take(cells).sum(axis=0)
                scores[part] = np.maximum(some, 0)
                products[:, part] = found[:, p:].T
                yield

        ordered_map(self.pieces(), work)
        return scores, products


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
    width = sum(column.width for column, _ in encoded)
    out = np.empty((width + 1, 0), dtype=dtype or encoder.dtype)
    # The result is checked for infinite values.
    with np.errstate(over="ignore", invalid="ignore"):
        for part in pieces:
            rows = part.stop - part.start
            if out.shape[1] < rows:
                out = np.empty((width + 1, rows), dtype=out.dtype)
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
        self._encoder, self._start, self._find_nan = encoder, start, find_nan
        self._encoded = encoder.encode(self._batch, find_nan=find_nan)
        self.name, self.rows, self.columns = place, self._batch.num_rows, encoder.width + 1
        self.dtype, self.weights = np.dtype(np.float64), weight
        self.sparse = self.remote = self.plain = False
        self.scale = self.noise = None
        self.dependent = encoder.dependent
        self._split = SplitRows.of(encoder, self._encoded, self.rows)

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

    def products(self, beside: Any) -> Products | None:
        """Return parts, and what yields their products, if rows are split; see `SplitRows`."""
        split = self._split
        if split is None or self.scale is not None or is_sparse(beside):
            return None
        beside = np.empty((self.rows, 0)) if beside is None else beside
        return split.pieces(), partial(split.products, self.weights, beside)

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
        self, factor: Factor | Projected, V: Floats | None
    ) -> tuple[Floats, Floats]:
        """Return the leverage score of each row z, and z V for a few columns V, (k, n).

        Blocks are multiplied as they are encoded; the whole matrix is never formed.

        Raises `DataError` with the first infinite value.
        """
        encoder, split = self._encoder, self._split
        with np.errstate(over="ignore", invalid="ignore"):
            if split is None or _growth_of(factor) > LARGEST_GROWTH:
                pieces = _cut_pieces(encoder, self._batch)
                scores, products = _leverage(encoder, self._encoded, pieces, factor, V)
            else:
                nothing = np.zeros((encoder.width + 1, 0))
                scores, products = split.leverage(factor.right, nothing if V is None else V)
        if np.isfinite(scores).all():
            return scores, products
        if self._find_nan:
            raise encoder.explain_not_finite(self._batch, self.name, self._start)
        again = TableRows(encoder, self._batch, None, self.name, self._start, find_nan=True)
        return again.leverage_and_products(factor, V)


def _leverage(
    encoder: TableEncoder,
    encoded: Encoded,
    pieces: list[slice],
    factor: Factor | Projected,
    V: Floats | None,
) -> tuple[Floats, Floats]:
    dtype = factor.work_dtype(np.dtype(encoder.dtype))
    right = factor.right if V is None else np.hstack([factor.right, V])
    left, k = right.T.astype(dtype), factor.right.shape[1]
    # A factor is triangular: multiplied in bands, most of its zeros are skipped.
    ends = np.linspace(0, k, 5 if isinstance(factor, Factor) else 2).astype(int)
    bands = [(low, high, high) for low, high in pairwise(ends)]
    bands[-1] = (ends[-2], len(left), left.shape[1])  # and the products with V
    scores = np.empty(pieces[-1].stop if pieces else 0)
    products = np.empty((len(left) - k, len(scores)))

    def work(mine: Iterator[slice]) -> Iterator[None]:
        product = np.empty((len(left), 0), dtype=dtype)
        for part, Z in _fill_blocks(encoder, encoded, mine, dtype):
            if product.shape[1] != Z.shape[1]:
                product = np.empty((len(left), Z.shape[1]), dtype=dtype)
            for low, high, known in bands:
                np.matmul(left[low:high, :known], Z[:known], out=product[low:high])
            scores[part] = np.einsum("ij,ij->j", product[:k], product[:k])
            products[:, part] = product[k:]
            yield

    ordered_map(pieces, work)
    return scores, products


def _growth_of(factor: Factor | Projected) -> float:
    return factor.growth if isinstance(factor, Factor) else factor.factor.growth


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
