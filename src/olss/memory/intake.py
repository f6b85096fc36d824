"""What a sketch is given, checked and brought into aligned columns before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.blocks import Blocks, check_weights, dense_array, to_numpy
from olss.errors import DataError, InputError
from olss.memory.own_columns import EXTRA, RESERVED
from olss.memory.store import Array, RowStore, is_arrow

__all__ = [
    "SingleRows",
    "incoming",
    "incoming_rows",
    "incoming_weight",
    "is_like",
    "task_column",
]

Shape = tuple[int, ...]
SingleRows = tuple[NDArray[Any], NDArray[Any] | None]  # rows and their targets
FEW_ROWS = 16
TaskIds = NDArray[np.int64] | NDArray[np.str_]


def incoming(
    X: Any,
    y: Any,
    extra: Mapping[str, Any] | None,
    *,
    held: RowStore,
    pad: Shape | None = None,
    pad_y: Shape | None = None,
    rows: int | None = None,
) -> dict[str, Array]:
    """Return the columns of an update, or raise `DataError` if they do not fit those held.

    Where X and y are a table, looked at elsewhere, `rows` says how many rows there are.
    """
    for name in RESERVED.intersection(extra or ()):
        raise InputError(f"extra must not be called {name!r}, which the sketch uses itself.")
    given = {"y": y} | {EXTRA + name: values for name, values in (extra or {}).items()}
    columns = {} if rows is not None else {"X": incoming_rows(X, held=held, pad=pad)}
    columns |= {name: _array(name, values) for name, values in given.items() if values is not None}
    n = columns["X"].shape[0] if rows is None else rows
    for name, column in columns.items():
        if len(column.shape) == 0 or column.shape[0] != n:
            raise DataError(
                f"{_told(name)} must have one entry for each of the {n} rows, "
                f"found shape {tuple(column.shape)}."
            )
    if "y" in columns:
        columns["y"] = _padded("y", columns["y"], pad_y)
        _check_finite("y", columns["y"])
    if "X" not in held:
        return columns
    _check_names(columns, held, ("X", "y") if rows is None else ())
    return {name: _matched(name, column, held[name]) for name, column in columns.items()}


def incoming_rows(X: Any, *, held: RowStore, pad: Shape | None) -> Array:
    """Return rows as an array, or raise `DataError` if they are not like those held."""
    if X is None:
        raise DataError("X must be an array of rows, found None.")
    X = _padded("X", _array("X", X), pad)
    Blocks(X, name="X")  # says what is wrong with its shape or dtype
    if "X" in held:
        X = _matched("X", X, held["X"])
    _check_no_infinity(X)
    return X


def is_like(new: NDArray[Any] | None, held: Array | None) -> bool:
    """Whether a few rows can be taken in without a further look, being just like those held."""
    if new is None or held is None:
        return new is held
    if type(held) is not np.ndarray or new.dtype != held.dtype or new.dtype.kind not in "biuf":
        return False
    few = 0 < len(new) <= FEW_ROWS if new.ndim else False
    return few and new.shape[1:] == held.shape[1:] and bool(np.isfinite(new).all())


def task_column(task: Any, n: int, held: RowStore) -> TaskIds:
    """Return one task id a row: whole numbers or text, of the kind used so far."""
    ids = to_numpy(dense_array(task, "task"))
    if ids.dtype.kind not in "iuU":
        raise InputError(
            f"task must be a whole number or a string, or one of them a row, found {task!r}."
        )
    if ids.ndim and ids.shape != (n,):
        raise InputError(
            f"task must be one id, or one for each of the {n} rows, found shape {ids.shape}."
        )
    if ids.dtype.kind != "U":
        if ids.size and ids.max() > np.iinfo(np.int64).max:
            raise InputError(f"task must be below 2^63, found {int(ids.max())}.")
        ids = ids.astype(np.int64)
    if "task" in held and ids.dtype.kind != held["task"].dtype.kind:
        before, now = ("text", "numbers") if ids.dtype.kind == "i" else ("numbers", "text")
        raise InputError(
            f"task ids were {before} so far and are {now} now (found {task!r}); "
            "use one kind throughout."
        )
    return np.broadcast_to(ids, (n,))


def incoming_weight(weight: Any, n: int) -> NDArray[np.float64]:
    """Return what each of n rows counts for, 1 if nothing is said, or raise `InputError`."""
    if weight is None:
        return np.ones(n)
    weights = check_weights(np.broadcast_to(weight, (n,)) if np.ndim(weight) == 0 else weight, n)
    if not (weights > 0).all():
        raise InputError("weight must be above zero, found 0: leave such rows out.")
    return weights


def _array(name: str, value: Any) -> Array:
    if sp.issparse(value) and name == "X":
        return sp.csr_array(value)
    array = dense_array(value, _told(name))
    if is_torch_array(array):
        return array.detach()
    array = np.asarray(array)
    if array.dtype.kind == "O" and all(isinstance(entry, str) for entry in array.flat):
        array = array.astype(np.str_)
    if array.dtype.kind in "OVSc" or array.dtype == np.longdouble:
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


def _check_names(columns: Mapping[str, Array], held: RowStore, main: tuple[str, ...]) -> None:
    before = {name for name in held if name in main or name.startswith(EXTRA)}
    for name in sorted(before ^ set(columns)):
        was, now = ("with", "without") if name in before else ("without", "with")
        raise DataError(
            f"the rows seen so far came {was} {_told(name)}, these come {now} it; "
            "every update must bring the same columns."
        )


def _matched(name: str, new: Array, held: Array) -> Array:
    """Return `new` in the dtype of the column held, or raise if it is another kind of thing."""
    told = _told(name)
    if _library(new) != _library(held):
        raise DataError(
            f"{told} was {_library(held)} so far and is {_library(new)} now; use one kind "
            "throughout."
        )
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
    return new


def _library(array: Array) -> str:
    if is_arrow(array):
        return "a table"
    if sp.issparse(array):
        return "sparse rows"
    return "a torch tensor" if is_torch_array(array) else "a NumPy array"


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


def _check_no_infinity(X: Array) -> None:
    """Raise `DataError` naming row and column of an infinite value; NaN is a gap and may stay."""
    if sp.issparse(X):
        _check_finite("X", X)
        return
    if not (X.is_floating_point() if is_torch_array(X) else X.dtype.kind == "f"):
        return
    blocks = Blocks(X, name="X")
    if blocks.has_finite_sum():
        return
    for part, block in blocks.read(blocks.dtype):
        values = to_numpy(block)
        if not np.isinf(values).any():
            continue
        row, column = (int(at[0]) for at in np.nonzero(np.isinf(values)))
        place = np.unravel_index(column, tuple(X.shape[1:]))
        at = ", ".join(map(str, map(int, place)))
        raise DataError(
            f"X holds an infinite value in row {part.start + row}, column {at}. Mend it, or make "
            "it NaN, which counts as missing."
        )


def _check_finite(name: str, array: Array) -> None:
    is_float = array.is_floating_point() if is_torch_array(array) else array.dtype.kind == "f"
    if is_float and not sp.issparse(array):
        array = array.reshape(len(array), -1)
    if is_float and array.shape[1]:
        Blocks(array, name=name).check_finite()
