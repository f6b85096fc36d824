"""What each column of a table is used for, and tables as numbers to be scored.

The rule is applied once, to a sample of rows spread over the input, and recorded with the result,
so that whoever continues it scores new rows in the same way.

- Numbers and booleans are used as they are, dates and times as numbers, vectors (lists of one
  fixed length) as that many numbers. Each is shifted by its median and divided by its spread in
  the sample; without an intercept the shift is taken back in the scores.
- A missing number (null or NaN) counts as the median. If numbers were missing in the sample, a
  further column says where.
- Text of at most `ONE_HOT` different values in the sample is one column per value, and one for all
  other values and missing ones. Text of at most `HASHED` values is hashed to `BUCKETS` columns.
  In either case there must be two rows or more per value, on average.
- Everything else is carried along and not scored: other text, nested and binary columns, and
  columns that are constant over the whole input.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.gram import COLUMN_LIMIT
from olss.errors import DataError, InputError

__all__ = ["Column", "Plan", "plan_columns"]

ONE_HOT = 32
HASHED = 1000
BUCKETS = 32
MISSING = "\0missing"


@dataclass(frozen=True)
class Column:
    """What one column is used for.

    Attributes
    ----------
    name, type : str
    use : {"number", "date", "vector", "one-hot", "hashed", "carried"}
    why : str
        In words, for the summary.
    shift, scale : float
        Of numbers and dates: z = (x - shift) / scale.
    missing : bool
        Whether a further column says where numbers are missing.
    values : tuple of str
        Of one-hot columns.
    width : int
        Columns that are scored in its place.
    """

    name: str
    type: str
    use: str
    why: str = ""
    shift: float = 0.0
    scale: float = 1.0
    missing: bool = False
    values: tuple[str, ...] = ()
    width: int = 0


@dataclass(frozen=True)
class Plan:
    """What all columns are used for, and how rows become columns of numbers."""

    columns: tuple[Column, ...]
    dtype: str

    @property
    def used(self) -> list[Column]:
        """The columns that are scored."""
        return [column for column in self.columns if column.width]

    @property
    def width(self) -> int:
        """Numbers a row becomes, without the one for the intercept."""
        return sum(column.width for column in self.columns)

    @property
    def offsets(self) -> NDArray[np.float64]:
        """(width,) what was subtracted of each number, in units of its scale."""
        return np.concatenate([_offset(column) for column in self.used] or [np.zeros(0)])

    @property
    def is_indicator(self) -> NDArray[np.bool_]:
        """(width,) which numbers are 0 or 1 by construction."""
        parts = [
            np.arange(c.width) > 0
            if c.use in ("number", "date")
            else np.full(c.width, c.use in ("one-hot", "hashed"))
            for c in self.used
        ]
        return np.concatenate([*parts, np.zeros(0, bool)])

    def owners(self) -> list[str]:
        """Return the name of the column behind each number."""
        return [column.name for column in self.used for _ in range(column.width)]

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {"dtype": self.dtype, "columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Plan:
        """Return the plan that `to_json` wrote."""
        columns = [Column(**{**c, "values": tuple(c["values"])}) for c in state["columns"]]
        return cls(tuple(columns), str(np.dtype(state["dtype"])))

    def encode(self, batch: Any, *, careful: bool = False) -> list[Any]:
        """Return the used columns of a record batch as NumPy arrays, one of `_fill`'s kinds each.

        With `careful` NaN is looked for; it takes time, and clean data need it not.
        """
        encoded: list[Any] = []
        for column in self.used:
            values = batch.column(column.name)
            if column.use in ("one-hot", "hashed"):
                encoded.append(_codes(column, values))
            elif column.use == "vector":
                encoded.append(_vectors(column, values, careful))
            else:
                encoded.append(_numbers(column, values, careful))
        return encoded

    def fill(self, encoded: Sequence[Any], part: slice, out: NDArray[Any]) -> None:
        """Write some rows of an encoded batch into `out`, (width + 1, rows); the last is ones."""
        at = 0
        for column, values in zip(self.used, encoded, strict=True):
            _fill(column, values, part, out[at : at + column.width])
            at += column.width
        out[at] = 1


def plan_columns(
    sample: Any, *, columns: Sequence[str] | None, exclude: Sequence[str], apart: Sequence[str]
) -> Plan:
    """Decide what columns are used for, from a table of sample rows.

    Parameters
    ----------
    sample : pyarrow.Table
    columns, exclude : names to use, names not to use
    apart : names of the target and task, which are not scored
    """
    names = sample.schema.names
    plan = []
    for name in names:
        kind = str(sample.schema.field(name).type)
        if name in apart:
            plan.append(Column(name, kind, "carried", "target or task"))
        elif name in exclude or (columns is not None and name not in columns):
            plan.append(Column(name, kind, "carried", "not asked for"))
        else:
            plan.append(_decide(name, sample.column(name)))
    small = ("float", "halffloat", "int8", "uint8", "int16", "uint16", "bool")
    narrow = all(
        c.use in ("one-hot", "hashed") or _item_type(c.type) in small for c in plan if c.width
    )
    result = Plan(tuple(plan), "float32" if narrow else "float64")
    if result.width >= COLUMN_LIMIT:
        raise InputError(
            f"the columns make {result.width:,} numbers a row, at most {COLUMN_LIMIT - 1:,} are "
            "scored. Name the important ones with columns, or leave some out with exclude."
        )
    return result


def _decide(name: str, column: Any) -> Column:
    import pyarrow as pa
    import pyarrow.types as kinds

    kind, text = column.type, str(column.type)
    if kinds.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if kinds.is_temporal(kind):
        return _number(name, text, "date", _ticks(column.combine_chunks()))
    if kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind):
        return _number(name, text, "number", _plain(column.combine_chunks()))
    if kinds.is_decimal(kind):
        return _number(name, text, "number", _plain(column.combine_chunks()))
    if kinds.is_fixed_size_list(kind) and (
        kinds.is_integer(kind.value_type) or kinds.is_floating(kind.value_type)
    ):
        return _vector(name, text, column)
    if not (kinds.is_string(kind) or kinds.is_large_string(kind)):
        return Column(name, text, "carried", "neither number, date nor text")
    values = column.drop_null().cast(pa.large_string())
    distinct = sorted(values.unique().to_pylist())
    if not distinct:
        return Column(name, text, "carried", "empty")
    if len(distinct) > HASHED or 2 * len(distinct) > max(len(values), 4):
        return Column(name, text, "carried", f"text, {len(distinct):,} values in {len(values):,}")
    if len(distinct) <= ONE_HOT:
        why = f"{len(distinct)} values, one column each and one for others"
        return Column(name, text, "one-hot", why, values=tuple(distinct), width=len(distinct) + 1)
    why = f"{len(distinct)} values, hashed to {BUCKETS} columns"
    return Column(name, text, "hashed", why, width=BUCKETS)


def _number(name: str, kind: str, use: str, values: NDArray[Any]) -> Column:
    floats = values.astype(np.float64)
    present = np.sort(floats[np.isfinite(floats)])
    shift = float(present[len(present) // 2]) if len(present) else 0.0
    scale = _spread(present - shift)
    missing = bool(np.isnan(floats).any())
    why = "missing ones marked" if missing else ""
    return Column(name, kind, use, why, shift, scale, missing, width=1 + missing)


def _vector(name: str, kind: str, column: Any) -> Column:
    k = column.type.list_size
    values = _flat(column.combine_chunks(), k)
    scale = _spread(values[np.isfinite(values)])
    return Column(name, kind, "vector", f"{k} numbers", scale=scale, width=k)


def _spread(values: NDArray[Any]) -> float:
    """Return the root mean square, or 1 if that is zero or no number."""
    with np.errstate(over="ignore", invalid="ignore"):
        root = float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if len(values) else 1.0
    return root if 0 < root < np.inf else 1.0


def _offset(column: Column) -> NDArray[np.float64]:
    offset = np.zeros(column.width)
    if column.use in ("number", "date"):
        # Dates have no natural zero: they count from their median on.
        offset[0] = column.shift / column.scale if column.use == "number" else 0.0
    return offset


def _plain(array: Any) -> NDArray[Any]:
    """Return numbers as NumPy, null as NaN."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_decimal(array.type):
        array = array.cast(pa.float64())
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    if values.dtype == object:  # booleans with nulls
        values = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _ticks(array: Any) -> NDArray[Any]:
    """Return dates and times as whole numbers of their unit; with missing ones, as floats."""
    import pyarrow as pa

    width = array.type.bit_width
    ticks = array.view(pa.int32() if width == 32 else pa.int64())
    values: NDArray[Any] = ticks.to_numpy(zero_copy_only=False)
    return values


def _numbers(column: Column, array: Any, careful: bool) -> tuple[NDArray[Any], Any]:
    """Return (values, where missing or None)."""
    import pyarrow.types as kinds

    if kinds.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if column.use == "date" and not array.null_count:
        ticks = _ticks(array).astype(np.int64)
        return ticks - int(column.shift), None  # as whole numbers, which lose no digits
    values = _ticks(array) - column.shift if column.use == "date" else _plain(array)
    if not (array.null_count or careful or column.missing):
        return values, None
    gone = np.isnan(values) if values.dtype.kind == "f" else None
    if gone is None or not gone.any():
        return values, None
    filler = 0.0 if column.use == "date" else column.shift
    return np.where(gone, values.dtype.type(filler), values), gone


def _flat(array: Any, k: int) -> NDArray[Any]:
    """Return an array of fixed-size lists as (n, k); a missing list is zeros."""
    if not array.null_count:
        flat = array.flatten()
        dense: NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(array), k)
        return dense
    values: NDArray[Any] = np.zeros((len(array), k))
    there = array.is_valid().to_numpy(zero_copy_only=False)
    values[there] = array.flatten().to_numpy(zero_copy_only=False).reshape(-1, k)
    return values


def _vectors(column: Column, array: Any, careful: bool) -> NDArray[Any]:
    values = _flat(array, column.width)
    if careful and values.dtype.kind == "f":
        return np.where(np.isnan(values), 0, values)
    return values


def _codes(column: Column, array: Any) -> NDArray[np.intp]:
    """Return the number of the scored column that is one in each row."""
    import pyarrow as pa
    import pyarrow.types as kinds

    if not kinds.is_dictionary(array.type):
        array = array.dictionary_encode()
    labels = array.dictionary.cast(pa.large_string()).to_pylist()
    if column.use == "one-hot":
        place = {value: i for i, value in enumerate(column.values)}
        table = [place.get(label, len(place)) for label in labels]
        none = len(place)
    else:
        table = [_bucket(label) for label in labels]
        none = _bucket(MISSING)
    codes = array.indices.fill_null(len(table)).to_numpy(zero_copy_only=False)
    numbers: NDArray[np.intp] = np.asarray([*table, none], dtype=np.intp)[codes]
    return numbers


def _bucket(label: str | None) -> int:
    return zlib.crc32((MISSING if label is None else label).encode()) % BUCKETS


def _fill(column: Column, values: Any, part: slice, out: NDArray[Any]) -> None:
    if column.use in ("one-hot", "hashed"):
        codes = values[part]
        out[:] = 0
        out[codes, np.arange(len(codes))] = 1
        return
    if column.use == "vector":
        np.multiply(values[part].T, 1 / column.scale, out=out, casting="unsafe")
        return
    numbers, gone = values
    shift = column.shift if column.use == "number" else 0.0
    if numbers.dtype == np.bool_:
        numbers = numbers.view(np.uint8)
    np.subtract(numbers[part], shift, out=out[0], casting="unsafe")
    out[0] *= 1 / column.scale
    if column.missing:
        out[1] = 0 if gone is None else gone[part]


def _item_type(kind: str) -> str:
    """Return the type of a column, or of the items of a vector, as Arrow writes it."""
    if kind.startswith("fixed_size_list<"):
        return kind.split(": ", 1)[1].split(">")[0].removesuffix(" not null")
    return kind


def check_finite(plan: Plan, batch: Any, place: str, start: int) -> None:
    """Raise `DataError` naming the first infinite value of a block, or one too large."""
    for column, values in zip(plan.used, plan.encode(batch, careful=True), strict=True):
        if column.use in ("one-hot", "hashed"):
            continue
        numbers = values if column.use == "vector" else values[0]
        if numbers.dtype.kind != "f":
            continue
        bad = ~np.isfinite(numbers).reshape(len(numbers), -1).all(axis=1)
        if bad.any():
            raise DataError(
                f"{place}: column {column.name!r} holds an infinite value in row "
                f"{start + int(bad.argmax())} of the file. Mend it, or leave the column out of "
                "the scores with exclude."
            )
    raise DataError(
        f"{place}: values after row {start} are too large to be squared. Rescale the columns, or "
        "leave them out of the scores with exclude."
    )
