"""Encode tables as numbers to score.

The encoder is fitted once, to a sample of rows, and stored with the result, so that later rows are
encoded in the same way.

- Numbers and booleans are used as they are, dates and times as numbers, vectors (lists of one
  fixed length) as that many numbers. Each is shifted by its median and divided by its spread in
  the sample; without an intercept the scores undo the shift.
- A missing value (null or NaN) counts as the median. If there were some in the sample, a further
  number indicates them.
- Text of at most 32 distinct values in the sample is one-hot encoded, with one more indicator for
  all other values and missing ones. Text of at most 1,000 values is hashed to 32 indicators.
  In either case there must be at least five rows per value, on average; two, if there are at
  most eight values.
- Everything else is passed through and not scored: other text, nested and binary columns, and
  columns that are constant over the whole input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.gram import column_limit
from olss.errors import DataError, InputError
from olss.tables.columns import (
    MAX_ONE_HOT,
    MAX_WIDTH,
    Column,
    Date,
    Floats,
    Hashed,
    Number,
    OneHot,
    Passthrough,
    Text,
    Vector,
    decode,
    fit_category,
)
from olss.tables.schema import value_type
from olss.util import checks
from olss.util.threads import cached_property, ordered_map

MANY_ROWS = 32_768  # whose columns are encoded in several threads
LARGEST = 1e100  # beyond it, squares of values in units of a small scale may overflow
Encoded: TypeAlias = "list[tuple[Column | NumberBlock, Any]]"


@dataclass(frozen=True)
class TableEncoder:
    """The encoding of every column of a table, made by `fit_encoder`.

    Attributes
    ----------
    columns : tuple of Column
    dtype : {"float32", "float64"}
        Precision of the numbers.
    """

    columns: tuple[Column, ...]
    dtype: Literal["float32", "float64"]

    @cached_property
    def used(self) -> list[Column]:
        """The columns that are scored."""
        return [column for column in self.columns if column.width]

    @cached_property
    def width(self) -> int:
        """Numbers per row, without the one for the intercept."""
        return sum(column.width for column in self.columns)

    @cached_property
    def offsets(self) -> Floats:
        """(width,) what was subtracted from each number, in units of its scale."""
        return np.concatenate([np.zeros(0), *(column.offset for column in self.used)])

    @cached_property
    def is_indicator(self) -> NDArray[np.bool_]:
        """(width,) which numbers are 0 or 1 by construction."""
        return np.concatenate([np.zeros(0, bool), *(c.is_indicator for c in self.used)])

    @cached_property
    def dependent(self) -> int:
        """How many numbers depend on the others in any row: the indicators of a column sum to 1."""
        return sum(isinstance(column, Text) for column in self.used)

    def owners(self) -> list[str]:
        """Return the name of the column behind each number."""
        return [column.name for column in self.used for _ in range(column.width)]

    def labels(self) -> list[str]:
        """Return a name for each number: a column, one of its values, a place in it."""
        return [label for column in self.used for label in column.labels]

    def uses(self, varies: NDArray[np.bool_]) -> list[tuple[str, str, str]]:
        """Return (name, use, reason) for each column; `varies` is (width,).

        A column none of whose numbers varies over the rows seen is passed through, in effect.
        """
        live = dict.fromkeys(self.owners(), False)
        for name, moves in zip(self.owners(), varies, strict=True):
            live[name] |= bool(moves)
        return [
            (c.name, c.use, c.why)
            if live.get(c.name, True)
            else (c.name, Passthrough.use, "constant")
            for c in self.columns
        ]

    def __post_init__(self) -> None:
        if len({column.name for column in self.columns}) < len(self.columns):
            raise InputError("columns of an encoder must have different names.")
        checks.integer("width", self.width, 0, maximum=MAX_WIDTH)

    @cached_property
    def _groups(self) -> list[tuple[NumberBlock | None, list[Column]]]:
        """The columns that are scored, grouped where they can be written together."""
        return _group_columns(self.used)

    def encode(self, batch: Any, *, find_nan: bool = False) -> Encoded:
        """Return the scored columns of a record batch, ready for `fill`.

        NaN is looked for only if `find_nan`: it takes time, and clean data do not need it.
        """
        place = {name: i for i, name in enumerate(batch.schema.names)}
        parts: Encoded = []
        for block, columns in self._groups:
            arrays = [batch.column(place[column.name]) for column in columns]
            together = None if block is None or find_nan else block.encode(arrays)
            if block is not None and together is not None:
                parts.append((block, together))
            else:
                parts.extend(zip(columns, arrays, strict=True))

        def work(some: Iterator[tuple[Column | NumberBlock, Any]]) -> Iterator[Any]:
            for column, values in some:
                if isinstance(column, Column):
                    values = column.encode(values, find_nan)
                yield column, values

        if batch.num_rows < MANY_ROWS:  # starting threads would take longer
            return list(work(iter(parts)))
        encoded: Encoded = []
        ordered_map(parts, work, encoded.append)
        return encoded

    def fill(self, encoded: Encoded, part: slice, out: NDArray[Any]) -> None:
        """Write some rows of an encoded batch into `out`, (width + 1, rows); the last is ones."""
        at = 0
        for column, values in encoded:
            column.fill(values, part, out[at : at + column.width])
            at += column.width
        out[at] = 1

    def map_from(self, other: TableEncoder) -> Floats:
        """Return A with (z, 1) = A (z', 1) for the numbers z' of another encoder.

        Raises `InputError` that names a column for which there is no such map.
        """
        ends = np.cumsum([column.width for column in other.used])
        theirs = {c.name: (c, end) for c, end in zip(other.used, ends, strict=True)}
        A = np.zeros((self.width + 1, other.width + 1))
        A[-1, -1], at = 1, 0
        for column in self.used:
            found, end = theirs.get(column.name, (None, 0))
            taken = None if found is None else column.map_from(found)
            if found is None or taken is None:
                raise InputError(
                    f"column {column.name!r} is encoded as {column.use} here and "
                    f"{'not at all' if found is None else 'as ' + found.use} in the other. Leave "
                    "it out of both with exclude=, or update one sketch with all rows."
                )
            rows = slice(at, at + column.width)
            A[rows, end - found.width : end], A[rows, -1] = taken[:, :-1], taken[:, -1]
            at += column.width
        return A

    @cached_property
    def may_grow(self) -> bool:
        """Whether an encoder fitted to other rows could exceed the limit of columns."""
        most = (2 if isinstance(c, Number) else max(c.width, MAX_ONE_HOT + 1) for c in self.columns)
        return sum(most) >= column_limit()

    def row_beyond(self, batch: Any, limit: float) -> tuple[str, int] | None:
        """Return (column, row) of the first absolute value of at least `limit`, or None."""
        for column in self.used:
            encoded = column.encode(batch.column(column.name), find_nan=True)
            row = column.row_beyond(encoded, limit)
            if row is not None:
                return column.name, row
        return None

    def explain_not_finite(self, batch: Any, place: str, start: int) -> DataError:
        """Return an error that names the first infinite or too large value of a batch."""
        remedy = "leave the column out with exclude="
        kinds = {np.inf: "an infinite value", LARGEST: "a value too large to square"}
        for limit, what in kinds.items():
            found = self.row_beyond(batch, limit)
            if found is not None:
                name, row = found
                return DataError(
                    f"{place}: column {name!r} holds {what} in row {start + row}. Repair it, or "
                    f"{remedy}."
                )
        return DataError(
            f"{place}: values after row {start} are too large to square. Rescale the columns, or "
            f"{remedy}."
        )


def fit_encoder(
    sample: Any,
    *,
    columns: Collection[str] | Mapping[str, str] | None = None,
    exclude: Collection[str] = (),
    apart: Collection[str] = (),
) -> TableEncoder:
    """Fit an encoder to a table of sample rows.

    Parameters
    ----------
    sample : pyarrow.Table
    columns, exclude : collection of str
        Columns to score, columns not to score. Or `columns` maps some to "ignore", "number" or
        "category", and the others are decided by the sample.
    apart : collection of str
        Target and task, which are not scored.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"x": [1.0, None, 3.0, 5.0], "colour": ["red", "red", "blue", "blue"]})
    >>> [(column.name, column.use, column.width) for column in fit_encoder(table).columns]
    [('x', 'number', 2), ('colour', 'one-hot', 3)]
    """
    kinds = columns if isinstance(columns, Mapping) else {}
    chosen = None if columns is None or isinstance(columns, Mapping) else set(columns)
    exclude, apart = set(exclude), set(apart)
    fitted: list[Column] = []
    small = True
    for name, column in zip(sample.schema.names, sample.columns, strict=True):
        if name in apart:
            fitted.append(Passthrough(name, str(column.type), "target or task"))
        elif name in exclude or (chosen is not None and name not in chosen):
            fitted.append(Passthrough(name, str(column.type), "not asked for"))
        else:
            fitted.append(_fit_as(kinds.get(name), name, column))
            small &= fitted[-1].fits_float32(value_type(column.type))
    encoder = TableEncoder(tuple(fitted), "float32" if small else "float64")
    if encoder.width > (limit := column_limit() - 1):
        raise InputError(
            f"columns= makes {encoder.width:,} numbers per row, at most {limit:,} are scored. Name "
            "the important columns with columns=, or leave some out with exclude=."
        )
    return encoder


def _fit_as(kind: str | None, name: str, column: Any) -> Column:
    """Fit a column as what the user says it is, or else by the sample."""
    if kind == "ignore":
        return Passthrough(name, str(column.type), "ignored by choice")
    if kind == "category":
        return fit_category(name, decode(column))
    fitted = fit_column(name, column)
    if kind == "number" and not isinstance(fitted, Number):
        raise InputError(
            f"columns: {name!r} must hold numbers or dates to be a number, found {column.type}."
        )
    return fitted


KINDS: dict[str, type[Column]] = {
    kind.use: kind for kind in (Number, Date, Vector, OneHot, Hashed, Passthrough)
}


def fit_column(name: str, column: Any) -> Column:
    """Fit the first kind of column that accepts the sample.

    If only `Passthrough` does, its reason is the last one given by the others.

    Examples
    --------
    >>> import pyarrow as pa
    >>> fit_column("colour", pa.chunked_array([["red", "red", "blue", "blue"]])).width
    3
    >>> fit_column("note", pa.chunked_array([["a", "b", "c"]])).why
    'text, 3 values in 3'
    """
    column, text, reason = decode(column), str(column.type), ""
    for kind in KINDS.values():
        found = kind.fit(name, column)
        if isinstance(found, str):
            reason = found or reason
            continue
        why = reason if isinstance(found, Passthrough) and reason else found.why
        return replace(found, type=text, why=why)
    raise AssertionError("Passthrough accepts every column")


FLOATS = ("float", "double")  # as Arrow writes float32 and float64


@dataclass(frozen=True)
class NumberBlock:
    """Neighbouring float columns, encoded as `Number` does but in one step.

    Column by column, threads would wait for each other before each of them, and two threads would
    be slower than one.

    Attributes
    ----------
    columns : tuple of Number
        Without indicators of missing values.
    shift, scale : (k, 1) float arrays
    """

    columns: tuple[Number, ...]
    shift: Floats
    scale: Floats

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.columns)

    def encode(self, arrays: Sequence[Any]) -> Any:
        """Return the columns as a record batch, or None if they are not floats without null."""
        import pyarrow as pa

        kinds = {str(array.type) for array in arrays}
        if len(kinds) > 1 or kinds.isdisjoint(FLOATS) or any(a.null_count for a in arrays):
            return None
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in self.columns])

    def fill(self, encoded: Any, part: slice, out: NDArray[Any]) -> None:
        """Write z of some rows into `out`, (k, rows)."""
        rows = encoded.slice(part.start, part.stop - part.start).to_tensor(row_major=False)
        numbers = rows.to_numpy().T
        np.subtract(numbers, self.shift.astype(numbers.dtype), out=out, casting="unsafe")
        out *= (1 / self.scale).astype(out.dtype)


def _group_columns(columns: Sequence[Column]) -> list[tuple[NumberBlock | None, list[Column]]]:
    """Return columns in groups, in order, each with its block if it can be one."""
    groups: list[tuple[NumberBlock | None, list[Column]]] = []
    for kind, members in groupby(columns, _block_type):
        group = list(members)
        numbers = tuple(column for column in group if isinstance(column, Number))
        block = None
        if kind is not None and len(group) > 1:
            shift = np.array([[column.shift] for column in numbers])
            scale = np.array([[column.scale] for column in numbers])
            block = NumberBlock(numbers, shift, scale)
        groups.append((block, group))
    return groups


def _block_type(column: Column) -> str | None:
    """Return the type of a column that can be part of a block, else None."""
    plain = type(column) is Number and not column.missing and column.type in FLOATS
    return column.type if plain else None
