"""Prepare rows, targets and weights of scikit-learn estimators for a sketch, and back.

Frames are passed through: only their column names are checked. Arrays and sparse rows are
validated as everywhere in scikit-learn.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    check_consistent_length,
    validate_data,
)

from olss.core.blocks import dense_array, is_sparse, to_numpy
from olss.errors import DataError, InputError
from olss.memory.kept_rows import KeptRows
from olss.sketch import Sketch
from olss.tables.frames import is_table

Array = NDArray[Any]

FLOATS = (np.float64, np.float32)  # what scikit-learn converts other numbers to


@dataclass(frozen=True)
class RowBatch:
    """The rows of one call, with their targets and other columns."""

    X: Any
    y: Array | None
    weight: Array | None = None
    task: Any = None
    extra: Mapping[str, Any] | None = None
    name: str = "y"  # name of the target in a sketch of frames

    def update(self, sketch: Sketch) -> None:
        """Update a sketch with these rows."""
        rows, y = self.X, self.y
        target: Any = y
        if is_frame(rows):
            # Estimators do not use the index, and a sketch would warn that it is dropped.
            rows = rows.reset_index(drop=True) if hasattr(rows, "reset_index") else rows
            target = None if y is None else _NamedTarget(self.name, y)
        elif sketch.seen:
            rows = rows.astype(getattr(sketch.X, "dtype", rows.dtype), copy=False)
        sketch.update(rows, target, self.task, self.weight, self.extra)

    def without_zero_weights(self) -> RowBatch:
        """Return the batch without rows of weight zero."""
        if self.weight is None or self.weight.all():
            return self
        extra = dict(self.extra or {})
        tasks = None if np.ndim(self.task) == 0 else np.asarray(self.task)
        check_consistent_length(self.X, self.y, self.weight, tasks, *extra.values())
        kept = np.flatnonzero(self.weight)
        if not len(kept):
            raise InputError("sample_weight must not be zero for all rows.")
        return replace(
            self,
            X=_safe_indexing(self.X, kept),
            y=None if self.y is None else self.y[kept],
            weight=self.weight[kept],
            task=self.task if tasks is None else tasks[kept],
            extra={name: _safe_indexing(values, kept) for name, values in extra.items()},
        )


@dataclass(frozen=True)
class _NamedTarget:
    """A target beside a table, with a name that no column of the table has, like a series."""

    name: str
    values: Array

    def to_frame(self, name: str) -> dict[str, Array]:
        return {name: self.values}


def check_rows(model: BaseEstimator, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Validate rows, and targets if given, as scikit-learn does; `first` resets the columns."""
    first = options.pop("first", False)
    if is_frame(X):
        return validate_data(model, _check_collected(X), reset=first, skip_check_array=True)
    allowed = get_tags(model).input_tags
    try:
        return validate_data(
            model,
            _to_array(X),
            y,
            reset=first,
            dtype=FLOATS,
            accept_sparse="csr" if allowed.sparse else False,
            ensure_all_finite="allow-nan" if allowed.allow_nan else True,
            **options,
        )
    except OverflowError as error:
        raise DataError(f"X and y must hold numbers that fit into a float: {error}.") from error


def check_pair(
    model: Any, X: Any, y: Any, *, first: bool, numeric: bool = False, multi_output: bool = False
) -> tuple[Any, Array]:
    """Return rows and targets to learn, or raise if they do not match earlier ones."""
    y = _to_array(y)
    _check_no_missing(y)
    options = {"multi_output": multi_output, "y_numeric": numeric}
    if not is_frame(X):
        rows, y = check_rows(model, X, y, first=first, **options)
        return rows, y
    target = _check_y(y, **options, estimator=model)
    if first or model.new_columns != "keep":
        X = X if first else _align_columns(model, X)
        return check_rows(model, X, first=first), target
    return _check_collected(X), target


def rows_to_predict(model: Any, X: Any) -> Any:
    """Return rows for the fitted estimator; other columns than learned are left to it."""
    if is_frame(X):
        return _align_columns(model, _check_collected(X))
    return _as_matrix(check_rows(model, X))


def rows_to_fit(model: Any, sketch: Sketch) -> Any:
    """Return the rows of a sketch to fit, and record their columns on the model.

    An estimator may write into what it gets, so these are copies.
    """
    X = sketch.X
    if not is_frame(X):
        return _as_matrix(X.copy())
    return validate_data(model, X, reset=True, skip_check_array=True)  # frames are copies


def rows_of(kept: KeptRows) -> Any:
    """Return rows kept as an estimator takes them."""
    X = kept.X
    return X if is_frame(X) else _as_matrix(X.copy())


def log_loss(proba: Array, places: Array, weight: Array) -> float:
    """Return the weighted mean of -log of the probability of each row's class."""
    found = np.clip(proba[np.arange(len(proba)), places], 1e-12, 1)
    return float(np.average(-np.log(found), weights=weight))


def raise_to_power(proba: Array, power: float) -> Array:
    """Return probabilities raised to a power and scaled to sum to one."""
    if power == 1:
        return proba
    raised = (proba / proba.max(axis=1, keepdims=True)) ** power
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def fit_power(proba: Array, places: Array, weight: Array) -> float:
    """Return the power, from 1/20 to 20, of the least log loss."""
    from scipy.optimize import minimize_scalar

    def loss(log_power: float) -> float:
        return log_loss(raise_to_power(proba, float(np.exp(log_power))), places, weight)

    return float(np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x))


def validation_arguments(estimator: Any, X: Any, y: Array, weight: Array) -> dict[str, Any]:
    """Return the arguments that hand rows to stop by to `fit`, whatever it calls them."""
    known = inspect.signature(estimator.fit).parameters
    quiet = {"verbose": False} if "verbose" in known else {}
    for names, values in (
        (("X_val", "y_val", "sample_weight_val"), (X, y, weight)),
        (("eval_X", "eval_y", "eval_sample_weight"), (X, y, [weight])),
        (("eval_set", "eval_sample_weight"), ([(X, y)], [weight])),
        (("eval_set", "sample_weight_eval_set"), ([(X, y)], [weight])),
    ):
        if set(names) <= set(known):
            return dict(zip(names, values, strict=True)) | quiet
    raise InputError(
        "early_stopping needs an estimator whose fit takes rows to stop by, X_val or eval_set with "
        f"their weights, found {type(estimator).__name__}."
    )


def check_weight(sample_weight: Any, y: Array) -> Array | None:
    """Return weights as float64, or None if there are none."""
    if sample_weight is None:
        return None
    weight: Array = _check_sample_weight(sample_weight, y, dtype=np.float64)
    return weight


def to_labels(y: Array) -> Array:
    """Return labels in one dtype for all batches: numbers as int64, objects as what they hold."""
    if y.dtype.kind == "O":
        y = np.array(y.tolist())
    if y.dtype.kind in "iuf":
        if y.size and y.max() >= 2**63:
            raise DataError(f"y must hold labels below 2^63, found {y.max()}.")
        return y.astype(np.int64)
    if y.dtype.kind not in "Ub":
        raise DataError(f"y must hold numbers or strings as labels, found dtype {y.dtype}.")
    return y


def name_target(X: Any, y: Any) -> str:
    """Return a name for the target: its own, changed if a column has it, or "y"."""
    name = getattr(y, "name", None)
    name = name if isinstance(name, str) and name else "y"
    taken = set(map(str, _column_names(X))) if is_frame(X) else set()
    while name in taken:
        name += "_"
    return name


def is_frame(X: Any) -> bool:
    """Return whether rows are a frame, which is passed through."""
    return is_table(X) and not isinstance(X, Mapping)


def _column_names(X: Any) -> list[Any]:
    return list(X.column_names if hasattr(X, "column_names") else X.columns)


def _align_columns(model: Any, X: Any) -> Any:
    """Return a frame with its columns in the order learned; new ones dropped if asked for."""
    names = getattr(model, "feature_names_in_", None)  # scikit-learn's, if all are strings
    if names is None and len(model.sketch_) and is_frame(learned := model.sketch_.X):
        names = _column_names(learned)
    found = _column_names(X)
    if names is None or found == list(names):
        return X
    missing, new = set(names) - set(found), set(found) - set(names)
    if missing or (new and model.new_columns != "ignore"):
        return X
    return X.select(list(names)) if hasattr(X, "select") else X[list(names)]


def _check_collected(X: Any) -> Any:
    if not hasattr(X, "shape"):
        raise DataError(f"X must hold its rows, found a {type(X).__name__}; collect it first.")
    return X


def _check_no_missing(y: Any) -> None:
    """Raise `DataError` if objects are missing, whichever library's marker is used."""
    values = np.asarray(y) if hasattr(y, "__array__") or isinstance(y, list) else None
    if values is None or values.dtype != object or values.ndim != 1:
        return
    missing = [v is None or type(v).__name__ in ("NAType", "NaTType") or v != v for v in values]
    if count := sum(map(bool, missing)):
        raise DataError(f"y has {count} missing values in {len(values)} rows; fill or drop them.")


def _to_array(values: Any) -> Any:
    """Return a tensor as an array, without its gradient; anything else unchanged."""
    return to_numpy(dense_array(values, "X and y")) if hasattr(values, "detach") else values


def _as_matrix(X: Any) -> Any:
    """Return sparse arrays as matrices, since LightGBM does not know SciPy's arrays."""
    return sp.csr_matrix(X) if is_sparse(X) else X


def accepts_sparse(estimator: Any) -> bool:
    """Return whether an estimator, or the first step of a pipeline, accepts sparse rows."""
    first = next(iter(_steps(estimator)), None)
    return first is not None and bool(get_tags(first).input_tags.sparse)


def accepts_nan(estimator: Any) -> bool:
    """Return whether an estimator accepts NaN, as far as its tags tell.

    In a pipeline all steps must, up to one that may impute; a search, or another estimator that
    wraps one, does if the wrapped one does.
    """
    for step in _steps(estimator):
        imputes = type(step).__module__.startswith("sklearn.impute")
        if imputes or isinstance(step, ColumnTransformer):
            return True
        tags, inner = get_tags(step), getattr(step, "estimator", None)
        inside = inner is not None and accepts_nan(inner)
        if not (tags.input_tags.allow_nan or tags.no_validation or inside):
            return False
    return True


def _steps(estimator: Any) -> list[Any]:
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
    return [inner for step in steps for inner in _steps(step)]


def last_step(estimator: Any) -> Any:
    """Return the estimator itself, or the last step of a pipeline."""
    return _steps(estimator)[-1]


def fit_arguments(estimator: Any, weight: Array) -> dict[str, Array]:
    """Return the arguments that hand weights to `fit`, for every step that takes them."""
    if not _takes_weights(_steps(estimator)[-1], or_anything=True):
        raise InputError(
            "weights (use_weights=True, or sample_weight) need an estimator whose fit takes "
            f"sample_weight, found {type(_steps(estimator)[-1]).__name__}; choose another, or "
            "leave weights out."
        )
    if get_config()["enable_metadata_routing"]:
        _request_weights(estimator)
        return {"sample_weight": weight}
    return {name: weight for name in _weight_names(estimator)}


def _weight_names(estimator: Any) -> list[str]:
    """Return the names of `fit` arguments for weights without metadata routing."""
    if not isinstance(estimator, Pipeline):
        return ["sample_weight"]
    name, last = estimator.steps[-1]
    before = [
        f"{step}__sample_weight"
        for step, transformer in estimator.steps[:-1]
        if hasattr(transformer, "fit") and _takes_weights(transformer)
    ]
    return before + [f"{name}__{argument}" for argument in _weight_names(last)]


def _request_weights(estimator: Any) -> None:
    """Let every component request sample weights, unless it was told whether to."""
    for part in [estimator, *estimator.get_params(deep=True).values()]:
        if not isinstance(part, BaseEstimator):
            continue
        routing = part.get_metadata_routing()
        if not isinstance(routing, MetadataRequest):  # it only passes them on
            continue
        if routing.fit.requests.get("sample_weight", False) is None:
            part.set_fit_request(sample_weight=True)
        if routing.score.requests.get("sample_weight", False) is None:
            part.set_score_request(sample_weight=True)


def _takes_weights(estimator: Any, *, or_anything: bool = False) -> bool:
    parameters = inspect.signature(estimator.fit).parameters.values()
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    return (or_anything and anything) or any(p.name == "sample_weight" for p in parameters)
