"""What each column of a table is used for, and tables as numbers to be scored.

The rule is applied once, to a sample of rows, and recorded with the result, so that whoever
continues it scores new rows in the same way.

- Numbers and booleans are used as they are, dates and times as numbers, vectors (lists of one
  fixed length) as that many numbers. Each is shifted by its median and divided by its spread in
  the sample; without an intercept the shift is taken back in the scores.
- A missing number (null or NaN) counts as the median. If numbers were missing in the sample, a
  further column says where.
- Text of at most 32 different values in the sample is one column per value, and one for all
  other values and missing ones. Text of at most 1,000 values is hashed to 32 columns.
  In either case there must be two rows or more per value, on average.
- Everything else is carried along and not scored: other text, nested and binary columns, and
  columns that are constant over the whole input.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.gram import COLUMN_LIMIT
from olss.errors import DataError, InputError
from olss.tables.arrow_types import value_type
from olss.tables.columns import WIDTH_LIMIT, Column, Date, Number, Passthrough, Vector, decoded
from olss.tables.missing_values import Floats
from olss.tables.text_columns import ONE_HOT, Hashed, OneHot
from olss.util import checks

__all__ = [
    "LARGEST",
    "Encoded",
    "NumberBlock",
    "TableEncoder",
    "column_from_json",
    "decide",
    "fit_encoder",
]


DTYPES = ("float32", "float64")
LARGEST = 1e100  # beyond it, squares of values in units of a small scale may overflow
Encoded: TypeAlias = "list[tuple[Column | NumberBlock, Any]]"


@dataclass(frozen=True)
class TableEncoder:
    """What all columns are used for, and how rows become columns of numbers.

    Attributes
    ----------
    columns : tuple of Column
    dtype : {"float32", "float64"}
        What numbers are scored in.
    """

    columns: tuple[Column, ...]
    dtype: str

    @cached_property
    def used(self) -> list[Column]:
        """The columns that are scored."""
        return [column for column in self.columns if column.width]

    @cached_property
    def width(self) -> int:
        """Numbers a row becomes, without the one for the intercept."""
        return sum(column.width for column in self.columns)

    @cached_property
    def offsets(self) -> Floats:
        """(width,) what was subtracted of each number, in units of its scale."""
        return np.concatenate([np.zeros(0), *(column.offset for column in self.used)])

    @cached_property
    def is_indicator(self) -> NDArray[np.bool_]:
        """(width,) which numbers are 0 or 1 by construction."""
        return np.concatenate([np.zeros(0, bool), *(c.is_indicator for c in self.used)])

    def owners(self) -> list[str]:
        """Return the name of the column behind each number."""
        return [column.name for column in self.used for _ in range(column.width)]

    def labels(self) -> list[str]:
        """Return what to call each number: a column, a value of it, a place in it."""
        return [label for column in self.used for label in column.labels]

    def uses(self, varies: NDArray[np.bool_]) -> list[tuple[str, str, str]]:
        """Return (name, use, reason) for each column, in words; `varies` is (width,).

        A column of which no number varies over the rows seen is carried, in effect.
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

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {"dtype": self.dtype, "columns": [column.to_json() for column in self.columns]}

    @classmethod
    def from_json(cls, state: Any) -> TableEncoder:
        """Return the plan that `to_json` wrote; `ValueError` says what is wrong with another."""
        if not isinstance(state, dict) or not isinstance(state.get("columns"), list):
            raise InputError(f"a plan must be a JSON object with columns, found {state!r:.80}.")
        if state.get("dtype") not in DTYPES:
            raise InputError(f"dtype must be one of {DTYPES}, found {state.get('dtype')!r:.80}.")
        plan = cls(tuple(column_from_json(column) for column in state["columns"]), state["dtype"])
        if len({column.name for column in plan.columns}) < len(plan.columns):
            raise InputError("a plan must name each column once.")
        if plan.width > WIDTH_LIMIT:
            raise InputError(
                f"a plan may make {WIDTH_LIMIT:,} numbers a row, found {plan.width:,}."
            )
        return plan

    @cached_property
    def _stretches(self) -> list[tuple[NumberBlock | None, list[Column]]]:
        """The columns that are scored, those together that can be written together."""
        return neighbours(self.used)

    def encode(self, batch: Any, *, careful: bool = False) -> Encoded:
        """Return the used columns of a record batch, each or some with what `fill` makes of them.

        With `careful` NaN is looked for; it takes time, and clean data need it not.
        """
        place = {name: i for i, name in enumerate(batch.schema.names)}
        encoded: Encoded = []
        for block, columns in self._stretches:
            arrays = [batch.column(place[column.name]) for column in columns]
            together = None if block is None or careful else block.encode(arrays)
            if block is not None and together is not None:
                encoded.append((block, together))
                continue
            for column, array in zip(columns, arrays, strict=True):
                encoded.append((column, column.encode(array, careful)))
        return encoded

    def fill(self, encoded: Encoded, part: slice, out: NDArray[Any]) -> None:
        """Write some rows of an encoded batch into `out`, (width + 1, rows); the last is ones."""
        at = 0
        for column, values in encoded:
            column.fill(values, part, out[at : at + column.width])
            at += column.width
        out[at] = 1

    def map_from(self, other: TableEncoder) -> Floats:
        """Return A with z = A z' for the numbers (z, 1) of a row and those (z', 1) by another plan.

        Raises `InputError` that names a column whose numbers the other plan does not say.
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
                    f"column {column.name!r} is scored as {column.use} here, and "
                    f"{'not at all' if found is None else 'as ' + found.use} in the other. Leave "
                    "it out of the scores of both with exclude, or update one with all rows."
                )
            rows = slice(at, at + column.width)
            A[rows, end - found.width : end], A[rows, -1] = taken[:, :-1], taken[:, -1]
            at += column.width
        return A

    @cached_property
    def may_grow(self) -> bool:
        """Whether other rows might make more numbers of the same columns than are scored."""
        most = (2 if isinstance(c, Number) else max(c.width, ONE_HOT + 1) for c in self.columns)
        return sum(most) >= COLUMN_LIMIT

    def row_beyond(self, batch: Any, limit: float) -> tuple[str, int] | None:
        """Return (column, row) of the first value of this size or more, or None."""
        for column in self.used:
            encoded = column.encode(batch.column(column.name), careful=True)
            row = column.row_beyond(encoded, limit)
            if row is not None:
                return column.name, row
        return None

    def explain_not_finite(self, batch: Any, place: str, start: int) -> DataError:
        """Return an error that names the first infinite value of a batch, or one too large."""
        remedy = "leave the column out of the scores with exclude"
        kinds = {np.inf: "an infinite value", LARGEST: "a value too large to square"}
        for limit, what in kinds.items():
            found = self.row_beyond(batch, limit)
            if found is not None:
                name, row = found
                return DataError(
                    f"{place}: column {name!r} holds {what} in row {start + row}. Mend it, or "
                    f"{remedy}."
                )
        return DataError(
            f"{place}: values after row {start} are too large to be squared. Rescale the columns, "
            f"or {remedy}."
        )


def fit_encoder(
    sample: Any,
    *,
    columns: Collection[str] | None = None,
    exclude: Collection[str] = (),
    apart: Collection[str] = (),
    limit: int | None = COLUMN_LIMIT - 1,
) -> TableEncoder:
    """Decide what columns are used for, from a table of sample rows.

    Parameters
    ----------
    sample : pyarrow.Table
    columns, exclude : names to use, names not to use
    apart : names of the target and task, which are not scored
    limit : the most numbers a row may become

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"x": [1.0, None, 3.0, 5.0], "colour": ["red", "red", "blue", "blue"]})
    >>> [(column.name, column.use, column.width) for column in fit_encoder(table).columns]
    [('x', 'number', 2), ('colour', 'one-hot', 3)]
    """
    chosen = None if columns is None else set(columns)
    exclude, apart = set(exclude), set(apart)
    plan: list[Column] = []
    small = True
    for name, column in zip(sample.schema.names, sample.columns, strict=True):
        if name in apart:
            plan.append(Passthrough(name, str(column.type), "target or task"))
        elif name in exclude or (chosen is not None and name not in chosen):
            plan.append(Passthrough(name, str(column.type), "not asked for"))
        else:
            plan.append(decide(name, column))
            small &= plan[-1].is_small(value_type(column.type))
    result = TableEncoder(tuple(plan), "float32" if small else "float64")
    if limit is not None and result.width > limit:
        raise InputError(
            f"the columns make {result.width:,} numbers a row, at most {limit:,} are "
            "scored. Name the important ones with columns, or leave some out with exclude."
        )
    return result


KINDS: dict[str, type[Column]] = {
    kind.use: kind for kind in (Number, Date, Vector, OneHot, Hashed, Passthrough)
}


def decide(name: str, column: Any) -> Column:
    """Return a column of sample rows as the first kind that takes it.

    If none but `Passthrough` does, the last reason given by the others says why.

    Examples
    --------
    >>> import pyarrow as pa
    >>> decide("colour", pa.chunked_array([["red", "red", "blue", "blue"]])).width
    3
    >>> decide("note", pa.chunked_array([["a", "b", "c"]])).why
    'text, 3 values in 3'
    """
    column, text, reason = decoded(column), str(column.type), ""
    for kind in KINDS.values():
        found = kind.decide(name, column)
        if isinstance(found, str):
            reason = found or reason
            continue
        why = reason if isinstance(found, Passthrough) and reason else found.why
        return replace(found, type=text, why=why)
    raise AssertionError("a column is carried if nothing else")


def column_from_json(state: Any) -> Column:
    """Return the column that `Column.to_json` wrote, or raise `ValueError`."""
    if not isinstance(state, dict):
        raise InputError(f"a column must be a JSON object, found {state!r:.80}.")
    return KINDS[checks.choice("use", state.get("use"), KINDS)].from_json(state)


FLOATS = ("float", "double")  # as Arrow writes float32 and float64


@dataclass(frozen=True)
class NumberBlock:
    """Columns of floats: z = (x - shift) / scale in each, as `Number` has it.

    Attributes
    ----------
    columns : tuple of Number
        None of them marks where values are missing.
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
        """Return the columns as a record batch, or None if they are not floats without gaps."""
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


def neighbours(columns: Sequence[Column]) -> list[tuple[NumberBlock | None, list[Column]]]:
    """Return columns in stretches, in their order, each with the block it is if it is one."""
    stretches: list[tuple[NumberBlock | None, list[Column]]] = []
    for kind, some in groupby(columns, _kind):
        stretch = list(some)
        numbers = tuple(column for column in stretch if isinstance(column, Number))
        block = None
        if kind is not None and len(stretch) > 1:
            shift, scale = ([getattr(c, name) for c in numbers] for name in ("shift", "scale"))
            block = NumberBlock(numbers, np.array(shift)[:, None], np.array(scale)[:, None])
        stretches.append((block, stretch))
    return stretches


def _kind(column: Column) -> str | None:
    """Return the type of a column that can be part of a block, else None."""
    plain = type(column) is Number and not column.missing and column.type in FLOATS
    return column.type if plain else None
