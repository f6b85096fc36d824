"""What a sketch is given, checked and brought into aligned columns before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.common import checks
from olss.core.row_blocks import Blocks
from olss.errors import DataError, InputError
from olss.memory.store import Array, Rows, overlap

__all__ = [
    "EXTRA",
    "checked_scores",
    "checked_size",
    "incoming",
    "incoming_rows",
    "task_column",
]

EXTRA = "extra:"  # prefix of the columns that ride along

SCORES = ("auto", "exact", "ridge", "sketched")
RESERVED = frozenset({"X", "y", "task", "weight", "index", "order"})

Shape = tuple[int, ...]
TaskIds = NDArray[np.int64] | NDArray[np.str_]


def checked_size(size: Any) -> int:
    """Return a number of rows to keep, or raise `InputError`."""
    if isinstance(size, bool | np.bool_) or not isinstance(size, int | np.integer) or size < 1:
        raise InputError(f"size must be a positive whole number or 'task', found {size!r}.")
    return int(size)


def checked_scores(scores: Any) -> str | float:
    """Return the name of a way to score, or a ridge; or raise `InputError`."""
    if isinstance(scores, str) and scores in SCORES:
        return scores
    if isinstance(scores, int | float | np.number) and not isinstance(scores, bool):
        checks.number("scores, as a ridge,", scores, least=0)
        return float(scores)
    raise InputError(
        f"scores must be one of {', '.join(map(repr, SCORES))} or a number, the ridge, "
        f"found {scores!r}."
    )


def incoming(
    X: Any,
    y: Any,
    extra: Mapping[str, Any] | None,
    *,
    held: Rows,
    pad: Shape | None,
    pad_y: Shape | None,
) -> dict[str, Array]:
    """Return the columns of an update, or raise `DataError` if they do not fit those held."""
    for name in RESERVED.intersection(extra or ()):
        raise InputError(f"extra must not be called {name!r}, which the sketch uses itself.")
    given = {"y": y} | {EXTRA + name: values for name, values in (extra or {}).items()}
    columns = {"X": incoming_rows(X, held=held, pad=pad)}
    columns |= {name: _array(name, values) for name, values in given.items() if values is not None}
    n = len(columns["X"])
    for name, column in columns.items():
        if len(column.shape) == 0 or len(column) != n:
            raise DataError(
                f"{_told(name)} must have one entry for each of the {n} rows of X, "
                f"found shape {tuple(column.shape)}."
            )
    if "y" in columns:
        columns["y"] = _padded("y", columns["y"], pad_y)
        _check_finite("y", columns["y"])
    if "X" not in held:
        return columns
    _check_names(columns, held)
    return {name: _matched(name, column, held[name]) for name, column in columns.items()}


def incoming_rows(X: Any, *, held: Rows, pad: Shape | None) -> Array:
    """Return rows as an array, or raise `DataError` if they are not like those held."""
    if X is None:
        raise DataError("X must be an array of rows, found None.")
    X = _padded("X", _array("X", X), pad)
    Blocks(X, name="X")  # says what is wrong with its shape or dtype
    if "X" in held:
        X = _matched("X", X, held["X"])
    _check_finite("X", X)
    return X


def task_column(task: Any, n: int, held: Rows) -> TaskIds:
    """Return one task id a row: whole numbers or text, of the kind used so far."""
    ids = np.asarray(task.detach().cpu() if is_torch_array(task) else task)
    if ids.dtype.kind not in "iuU":
        raise InputError(
            f"task must be a whole number or a string, or one of them a row, found {task!r}."
        )
    if ids.ndim and ids.shape != (n,):
        raise InputError(
            f"task must be one id, or one for each of the {n} rows, found shape {ids.shape}."
        )
    if ids.dtype.kind != "U":
        ids = ids.astype(np.int64)
    if "task" in held and ids.dtype.kind != held["task"].dtype.kind:
        before, now = ("text", "numbers") if ids.dtype.kind == "i" else ("numbers", "text")
        raise InputError(
            f"task ids were {before} so far and are {now} now (found {task!r}); "
            "use one kind throughout."
        )
    return np.broadcast_to(ids, (n,))


def _array(name: str, value: Any) -> Array:
    if is_torch_array(value):
        return value.detach()
    if hasattr(value, "toarray"):
        raise DataError(
            f"{_told(name)} must be dense, found a sparse {type(value).__name__}; a sketch keeps "
            f"rows as they come, so pass {_told(name)}.toarray(), in parts if it is large."
        )
    array = np.asarray(value)
    if array.dtype.kind == "O" and all(isinstance(entry, str) for entry in array.flat):
        array = array.astype(np.str_)
    if array.dtype.kind in "OVSc":
        raise DataError(
            f"{_told(name)} must hold numbers{'' if name == 'X' else ', text or times'}, found "
            f"dtype {array.dtype}."
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array


def _padded(name: str, array: Array, shape: Shape | None) -> Array:
    """Zero-pad the rows to `shape`, at the end of each dimension."""
    if shape is None or array.shape[1:] == shape:
        return array
    row = tuple(array.shape[1:])
    if len(row) != len(shape) or any(a > b for a, b in zip(row, shape, strict=True)):
        option = "pad" if name == "X" else "pad_y"
        raise DataError(
            f"{name} has rows of shape {row}, which do not fit into {option}={shape}; "
            f"make the sketch with a larger {option}."
        )
    whole = (len(array), *shape)
    wide = array.new_zeros(whole) if is_torch_array(array) else np.zeros(whole, array.dtype)
    wide[tuple(slice(0, k) for k in array.shape)] = array
    return wide


def _check_names(columns: Mapping[str, Array], held: Rows) -> None:
    before = {name for name in held if name in ("X", "y") or name.startswith(EXTRA)}
    for name in sorted(before ^ set(columns)):
        was, now = ("with", "without") if name in before else ("without", "with")
        raise DataError(
            f"the rows seen so far came {was} {_told(name)}, these come {now} it; "
            "every update must bring the same columns."
        )


def _matched(name: str, new: Array, held: Array) -> Array:
    """Return `new` in the dtype of the column held, or raise if it is another kind of thing."""
    told = _told(name)
    if is_torch_array(new) != is_torch_array(held):
        kinds = ("a torch tensor", "a NumPy array")
        was, now = kinds if is_torch_array(held) else reversed(kinds)
        raise DataError(f"{told} was {was} so far and is {now} now; use one kind throughout.")
    if new.shape[1:] != held.shape[1:]:
        option = {"X": "pad", "y": "pad_y"}.get(name)
        remedy = (
            f" To pad rows with zeros up to a largest shape, make the sketch with {option}=(...)."
            if option
            else ""
        )
        raise DataError(
            f"{told} must have rows of shape {tuple(held.shape[1:])} as before, "
            f"found {tuple(new.shape[1:])}.{remedy}"
        )
    if is_torch_array(new) and new.device != held.device:
        raise DataError(f"{told} must be on {held.device} as before, found {new.device}.")
    if new.dtype != held.dtype:
        new = _converted(name, new, held)
    # Rows of the sketch itself given back to it would be overwritten while they are read.
    if overlap(new, held):
        return new.clone() if is_torch_array(new) else new.copy()
    return new


def _converted(name: str, new: Array, held: Array) -> Array:
    is_text = not is_torch_array(new) and new.dtype.kind == "U" == held.dtype.kind
    if is_text:
        return new
    if name != "X" and not is_torch_array(new) and np.can_cast(new.dtype, held.dtype, "safe"):
        return new.astype(held.dtype)
    raise DataError(
        f"{_told(name)} must be of dtype {held.dtype} as before, found {new.dtype}; convert it."
    )


def _told(name: str) -> str:
    return f"extra[{name.removeprefix(EXTRA)!r}]" if name.startswith(EXTRA) else name


def _check_finite(name: str, array: Array) -> None:
    is_torch = is_torch_array(array)
    if array.is_floating_point() if is_torch else array.dtype.kind == "f":
        Blocks(array.reshape(len(array), -1), name=name).check_finite()
