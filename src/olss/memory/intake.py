"""What a sketch is given, checked and turned into aligned columns before anything changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.blocks import Blocks, check_weights, dense_array, is_arrow, is_sparse, to_numpy
from olss.errors import DataError, InputError
from olss.memory.config import Config
from olss.memory.rows import EXTRA, FILE_NAMES, REPLICATE, RESERVED, Array, RowStore, take
from olss.tables.class_labels import check_no_missing, is_class_target, target_numbers
from olss.tables.frames import FrameKind, from_arrow, is_table, to_arrow
from olss.tables.schema import as_numbers, conform, numpy_array, unify_schemas
from olss.util import checks
from olss.util import sparse as sp

Shape = tuple[int, ...]
TaskIds = NDArray[np.int64] | NDArray[np.str_]


@dataclass(frozen=True)
class TableKind:
    """What kind of tables a sketch is given.

    Attributes
    ----------
    rows, y : FrameKind
        Library and types of the rows, and of the target if there is one.
    target : str or None
        Name of the target column.
    task : str or None
        Of rows from files: name of the column with the task.
    """

    rows: FrameKind
    y: FrameKind | None = None
    target: str | None = None
    task: str | None = None

    def frame(self, table: Any) -> Any:
        """Return a copy of rows as a frame of the kind that came in."""
        return from_arrow(take(table, np.arange(table.num_rows)), self.rows)

    def targets(self, table: Any) -> Any:
        """Return targets as a frame of the kind that came in, with one column."""
        assert self.y is not None
        return from_arrow(take(table, np.arange(table.num_rows)), self.y)

    def column(self, table: Any) -> Any:
        """Return targets as a column of the kind that came in."""
        assert self.y is not None
        frame = self.targets(table)
        if self.y.library == "pyarrow":
            return frame.column(0)
        # A frame whose columns are named by integers names the target by one, too.
        return frame[next(iter(getattr(frame, "columns", frame)))]


def read_rows(
    config: Config, held: RowStore, known: TableKind | None, rows: Any, y: Any, extra: Any
) -> tuple[dict[str, Array], TableKind | None]:
    """Return the columns X, y and extra of an update, and the kind of its tables.

    Raises `DataError` or `InputError` if they do not fit the rows held.
    """
    if type(rows) is not np.ndarray and is_table(rows):
        parts, table = _read_tables(config, held, known, rows, y)
        names = [name for part in parts.values() for name in part.schema.names]
        for name in set(extra or ()) & set(names):
            raise InputError(f"extra: {name!r} is already a column of the table.")
        if known is None:
            for option, given in (("columns", config.columns), ("exclude", config.exclude)):
                for name in given or ():
                    checks.column(option, name, names)
        columns = parts | _read_extra(extra, held, parts["X"].num_rows)
    else:
        if known is not None:
            raise InputError("rows must be a table as before, found an array.")
        columns, table = _read_arrays(config, held, rows, y, extra), None
    _check_target(config, columns)
    return columns, table


def read_array(X: Any, *, held: RowStore, pad: Shape | None) -> Array:
    """Return rows as an array like those held, or raise `DataError`."""
    if X is None:
        raise DataError("X must be an array of rows, found None.")
    X = _pad("X", _to_array("X", X), pad)
    Blocks(X, name="X")  # raises if shape or dtype are wrong
    if "X" in held:
        X = _match("X", X, held["X"])
    _check_finite("X", X, allow_nan=True)
    return X


def read_table(
    rows: Any,
    *,
    held: RowStore,
    known: TableKind,
    new_columns: str = "error",
    only: Collection[str] | None = None,
) -> Any:
    """Return rows, with or without their target, as a table with the columns held.

    With `only`, no other columns are needed, or looked at; they are null.
    """
    import pyarrow as pa

    table, _ = to_arrow(rows)
    own = held["X"].schema
    wanted = set(own.names if only is None else only)
    dropped = {known.target} - wanted
    if only is not None or new_columns != "error":
        dropped |= set(table.schema.names) - wanted
    table = table.drop_columns([name for name in table.schema.names if name in dropped])
    some = pa.schema([entry for entry in own if entry.name in wanted])
    schema = unify_schemas(some, table.schema, place="rows")
    if only is not None:
        schema = pa.schema([schema.field(e.name) if e.name in wanted else e for e in own])
    return conform(table, schema, place="rows")


def conform_store(held: RowStore, columns: Mapping[str, Array]) -> RowStore:
    """Return the rows held with the columns and types of newer tables X and y."""
    parts = {name: columns[name] for name in ("X", "y") if is_arrow(columns.get(name))}
    if "X" not in held or all(held[k].schema.equals(part.schema) for k, part in parts.items()):
        return held
    return held.with_columns(
        {name: conform(held[name], part.schema, place="the sketch") for name, part in parts.items()}
    )


def read_tasks(task: Any, n: int, held: RowStore) -> TaskIds:
    """Return one task id a row: integers or strings, of the kind used so far."""
    ids = to_numpy(dense_array(task, "task"))
    if ids.dtype.kind not in "iuU":
        raise InputError(f"task must be an integer or a string, or one a row, found {task!r}.")
    if ids.ndim and ids.shape != (n,):
        raise InputError(
            f"task must be one id, or one for each of the {n} rows, found shape {ids.shape}."
        )
    if ids.dtype.kind != "U":
        if ids.size and ids.max() > np.iinfo(np.int64).max:
            raise InputError(f"task must be below 2^63, found {int(ids.max())}.")
        ids = ids.astype(np.int64)
    if "task" in held and ids.dtype.kind != held["task"].dtype.kind:
        before, now = ("strings", "integers") if ids.dtype.kind == "i" else ("integers", "strings")
        raise InputError(f"task must be {before} as before, found {now}.")
    return np.broadcast_to(ids, (n,))


def read_weights(weight: Any, n: int) -> NDArray[np.float64]:
    """Return the weight of each of n rows, 1 by default, or raise `InputError`."""
    if weight is None:
        return np.ones(n)
    weights = check_weights(np.broadcast_to(weight, (n,)) if np.ndim(weight) == 0 else weight, n)
    if not (weights > 0).all():
        raise InputError("weight must be above zero, found 0; leave such rows out.")
    return weights


def is_missing(y: Array) -> NDArray[np.bool_]:
    """Return which targets are missing."""
    if is_arrow(y):
        import pyarrow.compute as pc

        flags = pc.is_null(y.column(0), nan_is_null=True)
        return numpy_array(flags)
    values = to_numpy(y)
    if values.dtype.kind not in "fmM":
        return np.zeros(len(values), dtype=bool)
    missing: NDArray[np.bool_] = np.isnan(values).reshape(len(values), -1).any(axis=1)
    return missing


def _read_arrays(
    config: Config, held: RowStore, X: Any, y: Any, extra: Mapping[str, Any] | None
) -> dict[str, Array]:
    columns = {"X": read_array(X, held=held, pad=config.pad)}
    n = columns["X"].shape[0]
    if y is not None:
        columns["y"] = _pad("y", _check_length("y", _to_array("y", y), n), config.pad_y)
        if config.missing_target == "error":
            _check_finite("y", columns["y"])
    columns |= _read_extra(extra, held, n)
    if "X" in held:
        for name in ("X", "y"):
            _check_presence(name, name in held, name in columns)
        columns = {name: _match(name, column, held[name]) for name, column in columns.items()}
    return columns


def _read_extra(extra: Mapping[str, Any] | None, held: RowStore, n: int) -> dict[str, Array]:
    for name in RESERVED.intersection(extra or ()):
        raise InputError(f"extra: the name {name!r} is reserved for the sketch; rename the column.")
    columns = {
        EXTRA + name: _check_length(EXTRA + name, _to_array(EXTRA + name, values), n)
        for name, values in (extra or {}).items()
    }
    if "X" in held:
        before = {name for name in held if name.startswith(EXTRA)}
        for name in sorted(before ^ set(columns)):
            _check_presence(name, name in before, name in columns)
        columns = {name: _match(name, column, held[name]) for name, column in columns.items()}
    return columns


def _check_length(name: str, column: Array, n: int) -> Array:
    if len(column.shape) == 0 or column.shape[0] != n:
        raise DataError(
            f"{_label(name)} must have one entry for each of the {n} rows, found shape "
            f"{tuple(column.shape)}."
        )
    return column


def _check_presence(name: str, before: bool, now: bool) -> None:
    if before != now:
        was, found = ("with", "without") if before else ("without", "with")
        raise DataError(
            f"{_label(name)}: earlier rows came {was} it and these come {found} it; every update "
            "must bring the same columns."
        )


def _to_array(name: str, value: Any) -> Array:
    if is_sparse(value) and name == "X":
        return sp.csr_array(value)
    array = dense_array(value, _label(name))
    if is_torch_array(array):
        return array.detach()
    array = np.asarray(array)
    if array.dtype.kind == "O" and all(isinstance(entry, str) for entry in array.flat):
        array = array.astype(np.str_)
    if array.dtype.kind in "OVSc" or array.dtype == np.longdouble:
        raise DataError(
            f"{_label(name)} must hold numbers{'' if name == 'X' else ', strings or times'}, found "
            f"dtype {array.dtype}."
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _pad(name: str, array: Array, shape: Shape | None) -> Array:
    """Zero-pad the rows to `shape`, at the end of each dimension."""
    if shape is None or array.shape[1:] == shape:
        return array
    row = tuple(array.shape[1:])
    if len(row) != len(shape) or any(a > b for a, b in zip(row, shape, strict=True)):
        option = "pad" if name == "X" else "pad_y"
        raise DataError(
            f"{name} has rows of shape {row}, larger than {option}={shape}; use a larger {option}."
        )
    padded = (len(array), *shape)
    wide = array.new_zeros(padded) if is_torch_array(array) else np.zeros(padded, array.dtype)
    wide[tuple(slice(0, k) for k in array.shape)] = array
    return wide


def _match(name: str, new: Array, held: Array) -> Array:
    """Return `new` in the dtype of the column held, or raise if it is of another kind."""
    label = _label(name)
    if _library(new) != _library(held):
        raise DataError(f"{label} must be {_library(held)} as before, found {_library(new)}.")
    if new.shape[1:] != held.shape[1:]:
        option = {"X": "pad", "y": "pad_y"}.get(name)
        remedy = f" To zero-pad rows, create the sketch with {option}=(...)." if option else ""
        raise DataError(
            f"{label} must have rows of shape {tuple(held.shape[1:])} as before, "
            f"found {tuple(new.shape[1:])}.{remedy}"
        )
    if is_torch_array(new) and new.device != held.device:
        raise DataError(f"{label} must be on {held.device} as before, found {new.device}.")
    if new.dtype == held.dtype:
        return new
    if not is_torch_array(new):
        if new.dtype.kind == "U" == held.dtype.kind:
            return new
        if name != "X" and np.can_cast(new.dtype, held.dtype, "safe"):
            return new.astype(held.dtype)
    raise DataError(f"{label} must have dtype {held.dtype} as before, found {new.dtype}; cast it.")


def _library(array: Array) -> str:
    if is_arrow(array):
        return "a table"
    if is_sparse(array):
        return "sparse rows"
    return "a torch tensor" if is_torch_array(array) else "a NumPy array"


def _label(name: str) -> str:
    return f"extra[{name.removeprefix(EXTRA)!r}]" if name.startswith(EXTRA) else name


def _check_finite(name: str, array: Array, *, allow_nan: bool = False) -> None:
    """Raise `DataError` if an array of floats holds an infinity or, unless allowed, NaN."""
    if not (array.is_floating_point() if is_torch_array(array) else array.dtype.kind == "f"):
        return
    rows = array if is_sparse(array) or array.ndim > 1 else array.reshape(-1, 1)
    if 0 not in rows.shape:
        blocks = Blocks(rows, name=name)
        if not blocks.has_finite_sum():
            blocks.check_finite(allow_nan=allow_nan and not blocks.sparse)


def _check_target(config: Config, columns: Mapping[str, Array]) -> None:
    """Raise `InputError` if scores use the target and these rows have none that serves."""
    if not config.uses_target:
        return
    if "y" not in columns:
        raise InputError(f"scores={config.scores!r} needs y, the targets; or use scores='auto'.")
    y = columns["y"]
    numbers = as_numbers(y.column(0)) if is_arrow(y) else None
    if numbers is not None and not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(
            f"y: target {y.schema.names[0]!r} is not finite in row {row}. Replace it, or use "
            "scores='auto'."
        )
    first = take(y, np.zeros(1, dtype=np.int64))
    if config.scores == "target-number" or not is_class_target(first):
        target_numbers([first])


def _read_tables(
    config: Config, held: RowStore, known: TableKind | None, rows: Any, y: Any
) -> tuple[dict[str, Any], TableKind]:
    """Return X and y of an update as tables that hold what came before, too, and their kind."""
    if "X" in held and known is None:
        raise DataError("rows must be an array as before, found a table.")
    table, frame = to_arrow(rows, keep_index=config.keep_index)
    before = None if known is None else known.target
    if y is None or isinstance(y, str):
        target = y or before
        parts = {"X": table}
        if target is not None:
            checks.column("y", target, table.schema.names)
            parts = {"X": table.drop_columns([target]), "y": table.select([target])}
        y_frame = frame if target is not None else None
    else:
        parts, y_frame = _join_target(table, y, _name_of(y) or before or "y")
        target = parts["y"].schema.names[0]
    if "y" in parts and config.missing_target == "error":
        check_no_missing(str(target), parts["y"].column(0))
    if not table.num_rows:
        raise DataError("rows must hold at least one row, found an empty table.")
    if known is not None and before != target:
        raise DataError(f"y must be the column {before!r} as before, found {target!r}.")
    _check_column_names(parts["X"], target)
    if known is None:
        return parts, TableKind(frame, y_frame, target)
    for name, part in parts.items():
        parts[name] = _conform_part(part, held[name].schema, config, name)
    joined = _join_kinds(known.rows, frame, parts["X"].schema)
    if target is None or known.y is None or y_frame is None:
        return parts, TableKind(joined, task=known.task)
    y_kind = _join_kinds(known.y, y_frame, parts["y"].schema)
    return parts, TableKind(joined, y_kind, target, known.task)


def _conform_part(part: Any, known: Any, config: Config, name: str) -> Any:
    """Return X or y with the columns known, new ones kept, dropped or refused as configured."""
    if name == "X" and config.new_columns == "ignore":
        before = set(known.names)
        part = part.select([column for column in part.schema.names if column in before])
    keep = name == "X" and config.new_columns == "keep"
    schema = unify_schemas(known, part.schema, place="rows", allow_new=keep)
    return conform(part, schema, place="rows")


def _join_kinds(known: FrameKind, new: FrameKind, schema: Any) -> FrameKind:
    """Return the kind of both; plain Arrow, from files, gives way to what follows."""
    if known.library == "pyarrow" != new.library:
        return new.merge(known, schema)
    return known.merge(new, schema)


def _join_target(table: Any, y: Any, target: str) -> tuple[dict[str, Any], FrameKind]:
    """Return rows and a target given beside them; a frame of one column has its own name."""
    if is_table(y):
        frame = y
    elif hasattr(y, "to_frame"):
        frame = y.to_frame(target)
    else:
        frame = {target: to_numpy(dense_array(y, "y")) if hasattr(y, "detach") else y}
    if hasattr(frame, "reset_index"):  # the index does not matter here
        frame = frame.reset_index(drop=True)
    column, kind = to_arrow(frame, place="y")
    if column.num_columns != 1:
        raise DataError(
            f"y must be one column, found a table of {column.num_columns:,}. Pass the others as "
            "columns of the rows, or in extra."
        )
    (target,) = column.schema.names
    if target in table.schema.names:
        raise InputError(
            f"y is named {target!r}, and so is a column of the rows; pass y={target!r} if that "
            "is the target, else rename it."
        )
    if column.num_rows != table.num_rows:
        raise DataError(
            f"y must have one entry for each of the {table.num_rows} rows, found {column.num_rows}."
        )
    return {"X": table, "y": column}, kind


def _check_column_names(X: Any, target: str | None) -> None:
    if not X.num_columns:
        raise DataError(f"rows have no columns beside the target {target!r}.")
    for name in X.schema.names:
        if name in FILE_NAMES.values() or name.startswith(REPLICATE):
            raise InputError(
                f"rows have a column {name!r}, a name reserved for the sketch; they may come from "
                "a sketch file already. Rename the column, or drop it."
            )


def _name_of(y: Any) -> str | None:
    name = getattr(y, "name", None)
    return name if isinstance(name, str) and name else None
