"""Choose rows by the values of their columns."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import dense_array, is_arrow, to_numpy
from olss.core.frequent_directions import SketchedGram
from olss.errors import InputError
from olss.memory.config import Config
from olss.memory.rows import EXTRA
from olss.memory.state import State
from olss.memory.strata import marginal_counts
from olss.tables.columns import OneHot
from olss.util import checks

RANGES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
TRUTH = {"true": True, "1": True, "false": False, "0": False}


def chosen_rows(state: State, where: Any) -> NDArray[np.bool_]:
    """Return which rows held a condition chooses: a boolean array, or a mapping of columns.

    A column has a value, a list of values any of which matches, a range such as ``("<", 5)``, or a
    list of ranges all of which match. A missing value is in no range.
    """
    rows = len(state.rows)
    if not isinstance(where, Mapping):
        flags = to_numpy(where) if where is not None else np.ones(rows, dtype=bool)
        if flags.dtype != np.bool_ or flags.shape != (rows,):
            raise InputError(
                f"where must be true or false for each of the {rows} rows held, or a mapping of "
                f"columns to values, found shape {flags.shape} and dtype {flags.dtype}."
            )
        return flags
    if not where:
        raise InputError("where must name at least one column, found an empty mapping.")
    chosen = np.ones(rows, dtype=bool)
    for name, wanted in where.items():
        chosen &= find_matches(name, column_of(state, name, "where"), wanted)
    return chosen


def names_of(state: State) -> list[str]:
    """Return the columns by which rows can be chosen."""
    rows, names = state.rows, ["task"]
    for name in ("X", "y"):
        if name in rows and is_arrow(rows[name]):
            names += rows[name].schema.names
        elif name == "y" and name in rows and rows[name].ndim == 1:
            names.append("y")
    return names + [name.removeprefix(EXTRA) for name in rows if name.startswith(EXTRA)]


def rows_at(state: State, index: Any) -> NDArray[np.bool_]:
    """Return which rows held are at these positions of the stream."""
    positions = np.atleast_1d(to_numpy(dense_array(index, "index")))
    if positions.size and positions.dtype.kind not in "iu":
        raise InputError(f"index must be integers, found {index!r}.")
    if positions.size and not (positions.min() >= 0 and positions.max() < state.seen):
        raise InputError(
            f"index must be positions in the stream, 0 to {state.seen - 1}, found {index!r}."
        )
    if not len(state.rows):
        return np.zeros(0, dtype=bool)
    return np.isin(state.rows["index"], positions)


def column_of(state: State, name: Any, what: str) -> Any:
    """Return a column of the rows held, an Arrow column or an array; or say which there are."""
    rows = state.rows
    name = checks.column(what, name, names_of(state))
    for part in ("X", "y"):
        if part in rows and is_arrow(rows[part]) and name in rows[part].schema.names:
            return rows[part].column(name)
    return to_numpy(rows[name if name in ("task", "y") else EXTRA + name])


def numbers_of(state: State, name: str, what: str) -> NDArray[Any]:
    """Return a column of numbers, NaN where it is missing, or of true and false."""
    column = column_of(state, name, what)
    if str(getattr(column, "type", "")) == "bool" and not column.null_count:
        column = column.to_numpy()
    if not isinstance(column, np.ndarray):
        from olss.tables.schema import as_numbers

        column = as_numbers(column)
    if column is None or column.ndim != 1 or column.dtype.kind not in "biuf":
        raise InputError(f"{what}: the column {name!r} must hold numbers.")
    numbers: NDArray[Any] = column if column.dtype == np.bool_ else column.astype(np.float64)
    return numbers


def labels_of(state: State, name: str, what: str) -> NDArray[Any]:
    """Return a column as labels: its values as Python has them, None where they are missing."""
    column = column_of(state, name, what)
    if isinstance(column, np.ndarray):
        return column
    import pyarrow.types as kinds

    from olss.tables.schema import (
        as_type,
        is_number,
        is_text,
        numpy_array,
        to_microseconds,
        value_type,
    )

    kind = value_type(column.type)
    if kinds.is_nested(kind):
        raise InputError(
            f"{what}: the column {name!r} holds {kind}, which cannot be used for groups."
        )
    column = as_type(column, kind)
    if not column.null_count and is_number(kind):
        return numpy_array(column)
    values = to_microseconds(column).to_pylist()
    if not column.null_count and is_text(kind):
        return np.asarray(values, dtype=np.str_)  # faster to sort
    labels = np.empty(len(values), dtype=object)
    labels[:] = values
    return labels


def group_labels(state: State, by: Any) -> Any:
    """Return the labels of groups by the names of columns, or labels as they are given."""
    names = (by,) if isinstance(by, str) else by if isinstance(by, tuple) else ()
    return {name: labels_of(state, name, "by") for name in names} or by


def known_totals(state: State) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return numbers of the rows held whose totals over everything seen are known, and these."""
    if state.moments is None or state.encoder.plan is None:
        raise InputError(
            "calibrate=True needs exact totals of the scored columns: a sketch of tables that "
            "keeps its moments, and was not merged with one that encoded columns differently."
        )
    if state.buckets is not None and state.buckets.window is not None:
        raise InputError(
            "calibrate needs exact totals; with window= they include up to a sixteenth more than "
            "the window. Use half_life=, or leave out calibrate."
        )
    if state.removed:
        raise InputError(
            "calibrate is not supported after remove: the known totals still include rows that "
            "were dropped before."
        )
    totals: NDArray[np.float64] = state.moments.matrix[-1]  # each number times the constant
    return state.encoder.encode(state.rows["X"]), totals


def known_count(config: Config, state: State) -> float | None:
    """Return the number of rows seen, by their weights, if it is known exactly."""
    if state.removed or config.window is not None:
        return None
    if state.moments is not None and state.moments.rows == state.seen:
        return state.moments.weight
    return float(state.seen) if _all_from_files(config, state) else None


def known_counts(config: Config, state: State, name: str) -> dict[Any, float]:
    """Return the number of rows seen, by their weights, of the values for which it is exact.

    These are strata, classes, tasks that are files, and values of one-hot encoded columns: the
    product of their indicator and the constant is in the Gram matrix.
    """
    if state.removed or config.window is not None:
        return {}
    strata = known_stratum_counts(config, state, (name,))
    if strata is not None:
        return {value: count for (value,), count in strata.items()}
    counts: dict[Any, float] = {}
    if name == "task" and isinstance(column_of(state, name, "by"), np.ndarray):  # no such column
        if state.table is None or state.table.task is not None:
            return {}
        if _all_from_files(config, state) and state.rows["task"].dtype.kind == "U":
            for entry in state.files:
                counts[entry["address"]] = counts.get(entry["address"], 0.0) + entry["rows"]
        return counts
    moments, plan = state.moments, state.encoder.plan
    if (
        moments is None
        or plan is None
        or moments.rows != state.seen
        or moments.columns != plan.width + 1
        or isinstance(moments.sum, SketchedGram)
    ):
        return {}
    totals = moments.matrix[-1]
    start = 0
    for column in plan.used:
        if isinstance(column, OneHot) and column.name == name:
            own = totals[start : start + len(column.values)]
            if moments.weight == moments.rows:  # each row counts 1: undo rounding
                own = np.where(np.abs(own - np.round(own)) < 1e-3, np.round(own), own)
            return dict(zip(column.values, own.tolist(), strict=True))
        start += column.width
    return {}


def known_stratum_counts(
    config: Config, state: State, names: Sequence[str]
) -> dict[tuple[Any, ...], float] | None:
    """Return the rows seen of each combination of values, if these columns are among the strata.

    Of the target, the classes of everything seen are known, too.
    """
    if state.removed or config.window is not None:
        return None
    strata, counts = config.strata or (), state.strata.counts
    if (
        counts is not None
        and set(names) <= set(strata)
        and not set(names) & set(state.strata.edges)
    ):
        return marginal_counts(counts, [strata.index(name) for name in names])
    target = "y" if state.table is None else state.table.target
    if state.class_counts is not None and list(names) == [target]:
        return marginal_counts(state.class_counts, [0])
    return None


def _all_from_files(config: Config, state: State) -> bool:
    """Return whether all rows came from files, in which each counts 1 and is counted."""
    return not config.forgets and sum(entry["rows"] for entry in state.files) == state.seen


def find_matches(name: str, column: Any, wanted: Any) -> NDArray[np.bool_]:
    """Return which entries of a column, an array or an Arrow column, meet a condition."""
    if isinstance(wanted, Mapping):
        raise InputError(
            f"where: {name!r} must have a value, a list of values or a range, found a mapping."
        )
    if _is_range(wanted):
        return _match_range(name, column, *wanted)
    several = isinstance(wanted, Iterable) and not isinstance(wanted, str | bytes)
    items = list(wanted) if several else [wanted]
    if any(map(_is_range, items)):
        if not all(map(_is_range, items)):
            raise InputError(f"where: {name!r} must have values or ranges, found both: {items!r}.")
        inside: NDArray[np.bool_] = np.all([_match_range(name, column, *r) for r in items], axis=0)
        return inside
    values = [_plain(value) for value in items]
    if isinstance(column, np.ndarray):
        return _match_array(name, column, values)
    return _match_arrow(name, column, values)


def _is_range(wanted: Any) -> bool:
    return (
        isinstance(wanted, tuple)
        and len(wanted) == 2
        and isinstance(wanted[0], str)
        and wanted[0] in RANGES
    )


def _match_range(name: str, column: Any, sign: str, bound: Any) -> NDArray[np.bool_]:
    """Return which entries are on one side of a bound; a missing one is on neither."""
    bound = _plain(bound)
    if bound is None or bound == "":
        raise InputError(f"where: {name!r} {sign} needs a value to compare with, found none.")
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "iu":
            return _match_integer_range(name, column.tolist(), sign, bound)
        found: NDArray[np.bool_] = RANGES[sign](column, _array_values(name, column, [bound])[0])
        return found
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type) and column.type.ordered:
        raise InputError(f"where: {name!r} holds ordered categories; list the values instead.")
    column = _decode_categories(column)
    if kinds.is_integer(column.type):
        return _match_integer_range(name, column.to_pylist(), sign, bound)
    functions = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
    return _as_flags(functions[sign](column, _arrow_values(name, column.type, [bound])[0]))


def _match_integer_range(
    name: str, entries: list[int | None], sign: str, bound: Any
) -> NDArray[np.bool_]:
    """Compare in Python, where integers and floats of any size compare exactly."""
    try:
        number = _read_number(bound)
    except (ValueError, TypeError) as error:
        raise _no_such_value(name, "integers", [bound]) from error
    inside = RANGES[sign]
    return np.array([entry is not None and inside(entry, number) for entry in entries], dtype=bool)


def _read_number(value: Any) -> int | float:
    if isinstance(value, float | np.floating):
        return float(value)
    if not isinstance(value, str):
        return operator.index(value)
    try:
        return int(value)
    except ValueError:
        return float(value)


def _no_such_value(name: str, kind: object, values: list[Any]) -> InputError:
    return InputError(f"where: the column {name!r} holds {kind}, and {values!r} is no such value.")


def _plain(value: Any) -> Any:
    """Return a value of any library as Python or NumPy has it, None for any kind of missing one."""
    value = value.as_py() if hasattr(value, "as_py") else value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.datetime64) and np.datetime_data(value.dtype)[0] in "YMWD":
        value = value.astype("M8[s]")
    is_number = isinstance(value, float | np.floating | np.datetime64 | np.timedelta64)
    return None if is_number and value != value else value


def _match_array(name: str, column: NDArray[Any], values: list[Any]) -> NDArray[np.bool_]:
    """Return which entries are among some values."""
    given = [value for value in values if value is not None]
    kind = column.dtype.kind
    if kind == "U" and len(given) < len(values):
        raise InputError(f"where: the column {name!r} holds text, found {values!r}.")
    found: NDArray[np.bool_] = np.zeros(column.shape, dtype=bool)
    if given:
        found = np.isin(column, _array_values(name, column, given))
    if len(given) < len(values) and kind in "fmM":
        found = found | (np.isnat(column) if kind in "mM" else np.isnan(column))
    return found


def _array_values(name: str, column: NDArray[Any], given: list[Any]) -> NDArray[Any]:
    """Return values as an array compares with them; text is read as what the column holds."""
    kind = column.dtype.kind
    if kind == "U" and not all(isinstance(value, str) for value in given):
        raise InputError(f"where: the column {name!r} holds text, found {given!r}.")
    values = _check_exact(name, given, column.dtype)
    try:
        if kind != "U" and any(isinstance(value, str) for value in values):
            values = [_read(value, column.dtype) for value in values]
        if kind in "mM":
            return _to_times(values, kind)
        if kind in "iu":  # of one dtype: NumPy compares int64 with uint64 as floats
            return np.array([_to_integer(value) for value in values], dtype=column.dtype)
        wanted = np.asarray(values)
    except (ValueError, KeyError, OverflowError, TypeError) as error:
        raise _no_such_value(name, column.dtype, given) from error
    # 0.1 is another number in float32.
    return wanted.astype(column.dtype) if kind == wanted.dtype.kind == "f" else wanted


def _check_exact(name: str, given: list[Any], dtype: np.dtype[Any]) -> list[Any]:
    """Return the values, each of which can be compared with integers or floats exactly."""
    for value in given:
        if (
            dtype.kind in "iu"
            and isinstance(value, float | np.floating)
            and abs(float(value)) > 2**53
        ):
            raise InputError(
                f"where: {name!r} holds integers, and the float {value!r} may be a rounded one; "
                "give it as an integer."
            )
        if dtype.kind == "f" and isinstance(value, int | np.integer):
            with np.errstate(over="ignore"):
                rounded = float(dtype.type(value))
            if rounded != int(value):
                raise InputError(
                    f"where: {name!r} holds {dtype}, which cannot represent {value!r}; the nearest "
                    f"value is {rounded!r}."
                )
    return given


def _to_integer(value: Any) -> int:
    """Return a number as the integer it is, or raise `ValueError`."""
    whole = int(value)
    if whole != value:
        raise ValueError(f"{value!r} is no integer")
    return whole


def _to_times(given: list[Any], kind: str) -> NDArray[Any]:
    """Return dates, or lengths of time, of any library as NumPy has them, in one unit."""
    values = [value.to_numpy() if hasattr(value, "to_numpy") else value for value in given]
    return np.asarray(values, dtype=kind)


def _read(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value that may be a text, such as one of the command line, as the dtype has it."""
    if not isinstance(value, str):
        return value
    if dtype.kind == "b":
        return TRUTH[value.strip().lower()]
    if dtype.kind in "iu":
        return int(value)
    return float(value) if dtype.kind == "f" else np.array(value).astype(dtype)[()]


def _match_arrow(name: str, column: Any, values: list[Any]) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    column = _decode_categories(column)
    given = [value for value in values if value is not None]
    found = pc.is_in(column, value_set=_arrow_values(name, column.type, given))
    if len(given) < len(values):
        found = pc.or_(found, pc.is_null(column, nan_is_null=True))
    return _as_flags(found)


def _decode_categories(column: Any) -> Any:
    """Return a column with its values in place of categories, of a type that Arrow compares."""
    import pyarrow as pa

    from olss.tables.schema import as_type, value_type

    column = as_type(column, value_type(column.type))
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


def _as_flags(found: Any) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False))
    return flags.astype(bool)


def _arrow_values(name: str, kind: Any, given: list[Any]) -> Any:
    """Return values as an Arrow array of the type of a column, none of them cut off to fit."""
    import pyarrow as pa

    try:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            dtype = np.dtype(kind.to_pandas_dtype())
            given = _check_exact(name, given, dtype)
            if dtype.kind != "f":
                return pa.array([_to_integer(_read(value, dtype)) for value in given], kind)
        try:
            return pa.array(given).cast(kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            if not all(isinstance(v, str | int | float | np.number) for v in given):
                raise
            return pa.array([str(v) for v in given]).cast(kind)
    except InputError:
        raise
    except (pa.ArrowException, KeyError, TypeError, ValueError, OverflowError) as error:
        raise _no_such_value(name, kind, given) from error
