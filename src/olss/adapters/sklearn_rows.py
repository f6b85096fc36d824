"""Rows, targets and weights as scikit-learn's estimators are given them, made fit for a sketch.

Frames are handed through as they are: only their names are looked at. Arrays and sparse rows are
checked as everywhere in scikit-learn.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    validate_data,
)

from olss.core.blocks import dense_array, to_numpy
from olss.errors import DataError, InputError
from olss.memory.sketch import Sketch
from olss.tables.frames import is_table

__all__ = [
    "Array",
    "Batch",
    "checked_pair",
    "checked_rows",
    "checked_weight",
    "column_names",
    "is_frame",
    "labels",
    "takes_gaps",
    "takes_sparse",
    "target_name",
    "to_fit",
    "weights_for",
]

Array = NDArray[Any]

FLOATS = (np.float64, np.float32)  # what scikit-learn is asked to turn other numbers into


@dataclass(frozen=True)
class Batch:
    """What one call brings: rows, their targets, and what goes with them.

    Attributes
    ----------
    X : array, sparse rows or frame
    y : array or None
    weight : array (n,) or None
        What each row counts for.
    task : int, str, array of them or None
    extra : mapping of str to array, or None
    name : str
        What the target is called in a sketch of frames.
    """

    X: Any
    y: Array | None
    weight: Array | None = None
    task: Any = None
    extra: Mapping[str, Any] | None = None
    name: str = "y"

    def into(self, sketch: Sketch) -> None:
        """Update a sketch with these rows."""
        rows, y = self.X, self.y
        target: Any = y
        if is_frame(rows):
            # Row labels say nothing to estimators, and a sketch would speak of their loss.
            rows = rows.reset_index(drop=True) if hasattr(rows, "reset_index") else rows
            target = None if y is None else _NamedTarget(self.name, y)
        elif sketch.seen:
            rows = rows.astype(getattr(sketch.X, "dtype", rows.dtype), copy=False)
        sketch.update(rows, target, self.task, self.weight, self.extra)

    def counted(self) -> Batch:
        """Return the rows that count for something: those of weight 0 are as if not there."""
        if self.weight is None or self.weight.all():
            return self
        extra = dict(self.extra or {})
        tasks = None if np.ndim(self.task) == 0 else np.asarray(self.task)
        check_consistent_length(self.X, self.y, self.weight, tasks, *extra.values())
        there = np.flatnonzero(self.weight)
        if not len(there):
            raise InputError("sample_weight must not be zero for all rows.")
        return replace(
            self,
            X=_safe_indexing(self.X, there),
            y=None if self.y is None else self.y[there],
            weight=self.weight[there],
            task=self.task if tasks is None else tasks[there],
            extra={name: _safe_indexing(values, there) for name, values in extra.items()},
        )


@dataclass(frozen=True)
class _NamedTarget:
    """A target beside a table, under a name that no column of the table has, like a series."""

    name: str
    values: Array

    def to_frame(self, name: str) -> dict[str, Array]:
        return {name: self.values}


def checked_rows(model: Any, X: Any, *, first: bool = False) -> Any:
    """Return rows alone, unless the first like those before: columns are put in their order."""
    return _as_estimators_take(_rows(model, X, "no_validation", first=first))


def checked_pair(
    model: Any, X: Any, y: Any, *, first: bool, numeric: bool = False, several: bool = False
) -> tuple[Any, Array]:
    """Return rows and targets to learn, or raise if they are not like those before.

    Parameters
    ----------
    model : estimator
        Whose tags say whether NaN and sparse rows may come; gets `n_features_in_`.
    X, y : rows and targets
    first : bool
        Whether there were none before.
    numeric, several : bool
        Whether targets are numbers, and may be several a row.
    """
    y = detached(y)
    _check_present(y)
    if not is_frame(X):
        rows, y = _rows(model, X, y, first=first, y_numeric=numeric, multi_output=several)
        return rows, y
    rows = _rows(model, X, "no_validation", first=first)
    return rows, _check_y(y, multi_output=several, y_numeric=numeric, estimator=model)


def _check_present(y: Any) -> None:
    """Raise `DataError` if targets of Python objects are missing, in whatever library's words."""
    values = np.asarray(y) if hasattr(y, "__array__") or isinstance(y, list) else None
    if values is None or values.dtype != object or values.ndim != 1:
        return
    gaps = [v is None or type(v).__name__ in ("NAType", "NaTType") or v != v for v in values]
    if any(map(bool, gaps)):
        raise DataError(
            f"y: the target is missing in {sum(gaps)} of {len(gaps)} rows; fill or drop them."
        )


def _rows(model: Any, X: Any, y: Any, *, first: bool, **of_target: bool) -> Any:
    if is_frame(X):
        if not hasattr(X, "shape"):
            raise DataError(
                f"X must hold all its rows, found a {type(X).__name__}; collect them, or give them "
                "in batches, first."
            )
        X = X if first else _in_order(X, _known_names(model))
        return validate_data(model, X, reset=first, skip_check_array=True)
    allowed = get_tags(model).input_tags
    try:
        return validate_data(
            model,
            detached(X),
            y,
            reset=first,
            dtype=FLOATS,
            accept_sparse="csr" if allowed.sparse else False,
            ensure_all_finite="allow-nan" if allowed.allow_nan else True,
            **of_target,
        )
    except OverflowError as error:
        raise DataError(f"X and y must hold numbers that fit into a float: {error}.") from error


def _as_estimators_take(X: Any) -> Any:
    """Return rows as they are, sparse ones as a matrix: LightGBM does not know SciPy's arrays."""
    return sp.csr_matrix(X) if sp.issparse(X) else X


def to_fit(sketch: Sketch) -> tuple[Any, Array, Array]:
    """Return copies of rows, targets and weights: an estimator may write into what it gets."""
    X = sketch.X
    rows = X if is_frame(X) else _as_estimators_take(X.copy())  # frames are copies
    return rows, np.array(sketch.y), sketch.weight.copy()


def is_frame(X: Any) -> bool:
    """Whether rows are a frame of some library, to be handed through."""
    return is_table(X) and not isinstance(X, Mapping)


def column_names(X: Any) -> list[Any]:
    """Return the names of a frame's columns."""
    return list(X.column_names if hasattr(X, "column_names") else X.columns)


def _known_names(model: Any) -> Sequence[Any] | None:
    """Return the names of the columns learned, if they have any."""
    names = getattr(model, "feature_names_in_", None)  # scikit-learn's, if all are text
    if names is not None:
        return list(names)
    held = getattr(model, "sketch_", None)
    X = held.X if held is not None and len(held) else None  # a copy, if it is a frame
    return column_names(X) if is_frame(X) else None


def _in_order(X: Any, names: Sequence[Any] | None) -> Any:
    """Return a frame with its columns in the order of the first, if they are the same."""
    if names is None or column_names(X) == list(names) or set(column_names(X)) != set(names):
        return X
    return X.select(list(names)) if hasattr(X, "select") else X[list(names)]


def target_name(X: Any, y: Any) -> str:
    """Return what to call the target beside rows: as it is called, if no column is."""
    name = getattr(y, "name", None)
    name = name if isinstance(name, str) and name else "y"
    taken = set(map(str, column_names(X))) if is_frame(X) else set()
    while name in taken:
        name += "_"
    return name


def detached(values: Any) -> Any:
    """Return a tensor as an array, without its gradient; anything else as it is."""
    return to_numpy(dense_array(values, "X and y")) if hasattr(values, "detach") else values


def checked_weight(sample_weight: Any, y: Array) -> Array | None:
    """Return what each row counts for, or None if nothing is said."""
    if sample_weight is None:
        return None
    weight: Array = _check_sample_weight(sample_weight, y, dtype=np.float64)
    return weight


def labels(y: Array) -> Array:
    """Return labels in one dtype for all batches: whole numbers as int64, objects as they are."""
    if y.dtype.kind == "O":
        y = np.array(y.tolist())
    if y.dtype.kind in "iuf":
        if y.size and y.max() >= 2**63:
            raise DataError(f"y must hold labels below 2^63, found {y.max()}.")
        return y.astype(np.int64)
    if y.dtype.kind not in "Ub":
        raise DataError(f"y must hold numbers or text as labels, found dtype {y.dtype}.")
    return y


def takes_sparse(estimator: Any) -> bool:
    """Say whether an estimator takes sparse rows; of a pipeline, its first step."""
    first = next(iter(_steps(estimator)), None)
    return first is not None and bool(get_tags(first).input_tags.sparse)


def takes_gaps(estimator: Any) -> bool:
    """Say whether an estimator takes rows with NaN, as far as its tags tell.

    Of a pipeline, all steps must up to one that may fill gaps; a search, or whatever else has an
    estimator inside, does if that one does.
    """
    for step in _steps(estimator):
        if isinstance(step, ColumnTransformer) or type(step).__module__.startswith(
            "sklearn.impute"
        ):
            return True
        tags, inner = get_tags(step), getattr(step, "estimator", None)
        inside = inner is not None and takes_gaps(inner)
        if not (tags.input_tags.allow_nan or tags.no_validation or inside):
            return False
    return True


def _steps(estimator: Any) -> list[Any]:
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
    return [inner for step in steps for inner in _steps(step)]


def weights_for(estimator: Any, weight: Array) -> dict[str, Array]:
    """Return the arguments of `fit` that sample weights go into: all steps that take them."""
    if not isinstance(estimator, Pipeline):
        if not _takes_weights(estimator, or_anything=True):
            raise InputError(
                "weights (use_weights=True, or sample_weight) need an estimator whose fit takes "
                f"sample_weight, found {type(estimator).__name__}; choose another, or leave "
                "weights out."
            )
        return {"sample_weight": weight}
    name, last = estimator.steps[-1]
    before = {
        f"{step}__sample_weight": weight
        for step, transformer in estimator.steps[:-1]
        if hasattr(transformer, "fit") and _takes_weights(transformer)
    }
    return before | {f"{name}__{key}": w for key, w in weights_for(last, weight).items()}


def _takes_weights(estimator: Any, *, or_anything: bool = False) -> bool:
    parameters = inspect.signature(estimator.fit).parameters.values()
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    return (or_anything and anything) or any(p.name == "sample_weight" for p in parameters)
