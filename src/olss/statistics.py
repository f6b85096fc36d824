"""Error bars for any statistic: built-in statistics, and what `Sketch.estimate` returns of them.

A statistic is a function of rows and weights. Computed with the weights of a sketch it estimates
the statistic of everything seen; computed again with each of the replicate weights
(`olss.core.estimation.replicate_weights`) it varies as if the rows had been sampled again.

>>> import numpy as np, olss
>>> from olss.statistics import quantile
>>> rng = np.random.default_rng(0)
>>> delay = rng.exponential(10, 20_000)
>>> sketch = olss.Sketch(size=1_000, seed=0).update({"delay": delay, "hour": rng.random(20_000)})
>>> found = sketch.estimate(statistic=quantile("delay", 0.9))
>>> low, high = found.interval()
>>> bool(low < np.quantile(delay, 0.9) < high)
True
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import to_numpy
from olss.core.estimation import DAMPING
from olss.diagnostics.estimates import LEAST_ROWS, SHOWN, ByGroup
from olss.diagnostics.select import find_matches
from olss.errors import InputError, MissingExtraError
from olss.tables.frames import is_table, to_arrow
from olss.tables.schema import as_numbers
from olss.util import checks
from olss.util.text import align_columns

__all__ = [
    "StatisticEstimate",
    "StatisticEstimates",
    "correlation",
    "difference",
    "median",
    "quantile",
    "ratio",
]

Floats: TypeAlias = NDArray[np.float64]
Column: TypeAlias = str | int | Callable[[Any], Any]
Ends: TypeAlias = Callable[[float], tuple[Any, Any]]
Condition: TypeAlias = Mapping[str, Any] | Callable[[Any], Any]


@dataclass(frozen=True, repr=False)
class Statistic:
    """A built-in statistic: a function of rows and weights that reads its columns once.

    Attributes
    ----------
    name : str
    bind : callable
        A function of rows that returns a function of weights.
    ends : callable, optional
        A function of rows, weights and replicates that returns one of t, Student's quantile, which
        returns the ends of an interval, where better ones than value ± t se are known.
    """

    name: str
    bind: Callable[[Any], Callable[[Floats], Any]]
    ends: Callable[[Any, Floats, Floats], Ends] | None = None

    def __call__(self, rows: Any, weights: Any) -> Any:
        """Return the statistic of rows with these weights."""
        return self.bind(rows)(np.asarray(weights, dtype=np.float64))

    def __repr__(self) -> str:
        return self.name


def quantile(column: Column, q: float | Sequence[float]) -> Statistic:
    """Return the statistic "quantile of a column", or several quantiles as an array.

    Weights are centred on their rows, and values between rows interpolated: with equal weights the
    definition of Hazen. Rows whose value is missing are left out. The interval is Woodruff's
    (1952): the values at either end of an interval of the share of rows below the quantile.

    Parameters
    ----------
    column : str, int or callable
        The name of a column, its number (arrays), or a function of the rows that returns it.
    q : float from 0 to 1, or several

    Examples
    --------
    >>> quantile("x", 0.5)({"x": [1.0, 2.0, 10.0]}, [1, 1, 2])
    4.666666666666666
    """
    levels = np.asarray(q)
    if (
        levels.dtype.kind not in "iuf"
        or levels.size == 0
        or not ((levels >= 0) & (levels <= 1)).all()
    ):
        raise InputError(f"q must be from 0 to 1, found {q!r}.")

    def bind(rows: Any) -> Callable[[Floats], Any]:
        places, x = _sort_rows(rows, column)
        return lambda weights: _quantile(x, weights[places], levels)

    def ends(rows: Any, weights: Floats, replicates: Floats) -> Ends:
        places, x = _sort_rows(rows, column)
        w = weights[places]
        value = _quantile(x, w, levels)
        below = np.interp(value, x, _shares(w))  # of equal values, the share before one of them
        each = np.array([np.interp(value, x, _shares(column)) for column in replicates[places].T])
        se = DAMPING * np.sqrt(np.mean((each - below) ** 2, axis=0))
        return lambda t: (_quantile(x, w, levels - t * se), _quantile(x, w, levels + t * se))

    return Statistic(f"quantile({_name(column)}, {q})", bind, ends)


def _sort_rows(rows: Any, column: Column) -> tuple[NDArray[np.int64], Floats]:
    """Return the places of the rows that have a value, in the order of these, and the values."""
    (x,), there = _read(rows, column)
    order = np.argsort(x, kind="stable")
    return np.flatnonzero(there)[order], x[order]


def _shares(weights: Floats) -> Floats:
    """Return the share of the weights before the middle of each."""
    return np.asarray((np.cumsum(weights) - weights / 2) / weights.sum())


def _quantile(x: Floats, weights: Floats, levels: Floats) -> Any:
    if not len(x):
        return np.full(levels.shape, np.nan)[()]
    found = np.interp(levels, _shares(weights), x)
    return found if levels.ndim else float(found)


def median(column: Column) -> Statistic:
    """Return the statistic "median of a column"; see `quantile`.

    Examples
    --------
    >>> median("x")({"x": [1.0, 2.0, 10.0]}, [1, 1, 1])
    2.0
    """
    return replace(quantile(column, 0.5), name=f"median({_name(column)})")


def ratio(numerator: Column, denominator: Column) -> Statistic:
    """Return the statistic "total of one column over the total of another".

    Rows in which either is missing are left out.

    Examples
    --------
    >>> ratio("late", "flights")({"late": [1, 2], "flights": [10, 10]}, [3, 1])
    0.125
    """

    def bind(rows: Any) -> Callable[[Floats], Any]:
        (x, y), there = _read(rows, numerator, denominator)

        def compute(weights: Floats) -> float:
            w = weights[there]
            below = float(w @ y)
            return float(w @ x) / below if below else np.nan

        return compute

    return Statistic(f"ratio({_name(numerator)}, {_name(denominator)})", bind)


def correlation(first: Column, second: Column) -> Statistic:
    """Return the statistic "Pearson correlation of two columns".

    Rows in which either is missing are left out. It is undefined for a constant column.

    Examples
    --------
    >>> round(correlation("a", "b")({"a": [1, 2, 3], "b": [1, 2, 4]}, [1, 1, 1]), 4)
    0.982
    """

    def bind(rows: Any) -> Callable[[Floats], Any]:
        pair, there = _read(rows, first, second)

        def compute(weights: Floats) -> float:
            w = weights[there]
            if not len(w):
                return np.nan
            centred = pair - (pair @ w / w.sum())[:, None]
            (a, c), (_, b) = (centred * w) @ centred.T
            sizes = np.abs(pair).max(axis=1) ** 2 * w.sum()
            if a <= 1e-24 * sizes[0] or b <= 1e-24 * sizes[1]:
                return np.nan
            return float(c / np.sqrt(a * b))

        return compute

    return Statistic(f"correlation({_name(first)}, {_name(second)})", bind)


def difference(
    of: Column | Callable[[Any, Any], Any], first: Condition, second: Condition
) -> Statistic:
    """Return the statistic "difference between two groups of rows", first minus second.

    Parameters
    ----------
    of : str, int or statistic
        A column, whose means are compared, or a statistic such as ``median("delay")``.
    first, second : mapping of str to value, or callable
        Which rows are in each group: columns and their values, as `where` of `Sketch.estimate`,
        or a function of the rows that returns True or False for each.

    Examples
    --------
    >>> rows = {"delay": [5.0, 7.0, 1.0], "carrier": ["UA", "UA", "AA"]}
    >>> difference("delay", {"carrier": "UA"}, {"carrier": "AA"})(rows, [1, 1, 1])
    5.0
    """
    inner = of if callable(of) and not isinstance(of, str | int) else _mean(of)

    def bind(rows: Any) -> Callable[[Floats], Any]:
        sides = []
        for name, condition in (("first", first), ("second", second)):
            places = np.flatnonzero(_matches(rows, condition, name))
            sides.append((places, _bind(inner, _take(rows, places))))

        def compute(weights: Floats) -> Any:
            (a, one), (b, other) = sides
            if not len(a) or not len(b):
                return np.nan
            return one(weights[a]) - other(weights[b])

        return compute

    shown = repr(of) if isinstance(of, Statistic) else _name(of)
    return Statistic(f"difference({shown}, {_condition(first)}, {_condition(second)})", bind)


@dataclass(frozen=True, repr=False)
class StatisticEstimate:
    """A statistic of everything seen, with its standard error; its `str` is to be read.

    Attributes
    ----------
    value : float, array or dict of these
        The statistic of the rows kept with their weights.
    se : the same shape
        Its standard error.
    rows : int
        Rows kept that it is computed from.
    replicates : array (R, ...) or dict of these
        The statistic with each of the replicate weights. The standard error is twice their root
        mean square distance from `value` (of a quantile, a quarter of the length of its interval).
    too_few : bool
        Whether these rows are too few for an interval.
    """

    value: Any
    se: Any
    rows: int
    replicates: Any
    too_few: bool
    _freedom: float
    _ends: Ends | None = None

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of an interval that holds the true statistic; NaN with too few rows.

        It is value ± t se, t being the quantile of Student's distribution with as many degrees of
        freedom as there are replicates or effective rows, less one. The intervals of quantiles, and
        of scores on a hold-out, need not be symmetric.
        """
        level = checks.number("level", level, above=0, below=1)
        from scipy.special import stdtrit  # slow to load

        t = np.nan if self.too_few else float(stdtrit(self._freedom, 0.5 + level / 2))
        if self._ends is not None and not self.too_few:
            return self._ends(t)
        low = _map(lambda value, se: value - t * se, self.value, self.se)
        return low, _map(lambda value, se: value + t * se, self.value, self.se)

    def lines(self, level: float = 0.95) -> Iterator[tuple[str, str, str]]:
        """Yield the name of each number ("" if there is one), the number, and its interval."""
        value, low, high = (
            part if isinstance(part, dict) else {"": part}
            for part in (self.value, *self.interval(level))
        )
        for key, number in value.items():
            ends = zip(np.ravel(number), np.ravel(low[key]), np.ravel(high[key]), strict=True)
            for place, (middle, a, b) in enumerate(ends):
                index = f"[{place}]" if np.ndim(number) else ""
                between = "exact" if a == b else f"{a:.4g} to {b:.4g}"
                between = "too few rows" if self.too_few else between
                yield f"{key}{index}", f"{middle:.4g}", between

    def __str__(self) -> str:
        shown = list(self.lines())
        lines = align_columns([["", "estimate", "95%"], *map(list, shown[:SHOWN])], left=1)
        more = f", {len(shown) - SHOWN:,} numbers more" if len(shown) > SHOWN else ""
        return "\n".join([*lines, f"from {self.rows:,} rows kept{more}"])

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class StatisticEstimates(ByGroup[StatisticEstimate]):
    """A statistic by group; its `str` is a table to read.

    ``estimates["Ulm"]`` is the `StatisticEstimate` of one group; iteration gives pairs of name and
    `StatisticEstimate`.

    Attributes
    ----------
    groups : dict of str to array
        The columns that name a group, each with a value a group.
    estimates : list of StatisticEstimate
        One a group. Where the statistic is undefined (NaN) with all rows, it has no interval.
    """

    groups: dict[str, NDArray[Any]]
    estimates: list[StatisticEstimate]

    @property
    def value(self) -> Any:
        """The statistic of each group, as an array with a row a group, or a dict of these."""
        return _stack([one.value for one in self.estimates])

    @property
    def se(self) -> Any:
        """The standard errors, as `value`."""
        return _stack([one.se for one in self.estimates])

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows kept of each group."""
        return np.array([one.rows for one in self.estimates])

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of the intervals of all groups, each as `value`."""
        ends = [one.interval(level) for one in self.estimates]
        return _stack([low for low, _ in ends]), _stack([high for _, high in ends])

    def at(self, group: int) -> StatisticEstimate:
        """Return the estimate of one group, by its place."""
        return self.estimates[group]

    def __str__(self) -> str:
        table = [[*self.groups, "rows", "", "estimate", "95%"]]
        for group, one in enumerate(self.estimates[:SHOWN]):
            table += [[*self.labels(group), f"{one.rows:,}", *line] for line in one.lines()]
        lines = align_columns(table, left=len(self.groups))
        if len(self) > SHOWN:
            lines.append(f"the first {SHOWN} of {len(self):,} groups")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def evaluate_groups(
    statistic: Callable[..., Any],
    take: Callable[[NDArray[np.int64]], tuple[Any, Any]],
    weight: Floats,
    replicates: Floats,
    drawn: NDArray[np.bool_],
    groups: dict[str, NDArray[Any]],
    code: NDArray[np.int64],
) -> StatisticEstimates:
    """Return a statistic of each group of rows; see `evaluate`.

    Parameters
    ----------
    take : callable
        A function of places that returns these rows and their targets.
    groups : dict of str to (g,) array
        What the groups are called.
    code : (n,) int array
        The group of each row, -1 for none.
    """
    found = StatisticEstimates(groups, [])
    for number in range(len(found)):
        at = np.flatnonzero(code == number)
        name = ", ".join(map(" ".join, zip(groups, found.labels(number), strict=True)))
        rows, y = take(at)
        place = f" of the rows with {name}"
        one = evaluate(statistic, rows, y, weight[at], replicates[at], drawn[at], place)
        if number and _shape(found.at(0).value) != _shape(one.value):
            raise InputError(
                f"statistic{place} returned {_shape(one.value)}, and "
                f"{_shape(found.at(0).value)} for the first group. It must return the same for all."
            )
        found.estimates.append(one)
    return found


def evaluate(
    statistic: Callable[..., Any],
    rows: Any,
    y: Any,
    weight: Floats,
    replicates: Floats,
    drawn: NDArray[np.bool_],
    place: str = "",
) -> StatisticEstimate:
    """Return a statistic of rows, computed with their weights and with all replicates of these.

    Parameters
    ----------
    statistic : callable
        A function of (rows, weights), or of (rows, y, weights).
    rows, y : the rows, and their targets
    weight : (n,) array
    replicates : (n, R) array
    drawn : (n,) bool array
        Which rows might have been missed.
    place : str
        What the rows are, for messages.
    """
    compute = _bind(statistic, rows, y)
    value = _result(compute(weight), f"statistic{place}")
    undefined = _has_nan(value)
    if undefined and not place:
        why = "statistic returned NaN for the rows kept; leave out rows with missing values, or "
        if isinstance(statistic, Statistic):
            why = (
                f"statistic {statistic!r} is undefined (NaN) for the rows kept: a column is "
                "constant, or no row kept has its values or is in its groups; "
            )
        raise InputError(f"{why}choose with where= rows for which it is defined.")
    several = []
    for number, column in enumerate(replicates.T if not undefined else (), start=1):
        where = (
            f"statistic{place}, with replicate {number} of {replicates.shape[1]} of the weights,"
        )
        try:
            one = _result(compute(np.ascontiguousarray(column)), where)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{where} raised {type(error).__name__}: {error}. It must be defined for any "
                "positive weights."
            ) from error
        if _shape(one) != _shape(value):
            raise InputError(
                f"{where} returned {_shape(one)}, and {_shape(value)} with the weights of the "
                "sketch. It must return the same numbers for any weights; fix what it depends on."
            )
        if _has_nan(one):
            raise InputError(f"{where} returned NaN. It must be defined for any positive weights.")
        several.append(one)
    spread = _stack(several or [_map(lambda v: np.full(np.shape(v), np.nan), value)])
    se = _map(lambda v, r: DAMPING * np.sqrt(np.mean((r - v) ** 2, axis=0))[()], value, spread)
    effective = _effective(weight[drawn])
    few = undefined or len(weight) < LEAST_ROWS or effective < LEAST_ROWS - 1e-9
    freedom = max(1.0, min(replicates.shape[1], effective) - 1)
    ends = statistic.ends if isinstance(statistic, Statistic) else None
    better = None if ends is None or undefined else ends(rows, weight, replicates)
    if better is not None:
        low, high = better(1.96)
        se = (high - low) / (2 * 1.96)
    return StatisticEstimate(value, se, len(weight), spread, bool(few), freedom, better)


def _effective(weight: Floats) -> float:
    """Return how many rows of equal weight are as good as these."""
    return float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else np.inf


def adjust_for_units(
    found: StatisticEstimate, weight: Floats, replicates: Floats, units: NDArray[np.int64]
) -> StatisticEstimate:
    """Return an estimate whose interval counts what was sampled independently: units of rows.

    With c_k what unit k contributes to the error, V = sum_k c_k^2 and K units, the freedom of t is
    that of Satterthwaite (1946), 2 / (sum_k c_k^4 / V^2 - 1 / K), and both ends move by
    (1 + 2 t^2) / 6 sum_k c_k^3 / V^1.5 standard errors, as unequal contributions make the estimate
    small where its error is small (Johnson 1978). c_k is the covariance of the replicates with
    the weight of the unit in them, whose noise is subtracted. More units than replicates are
    taken together; with fewer than 100 replicates, or several numbers, ends are symmetric.

    Parameters
    ----------
    units : (n,) int array
        The unit of each row, 0 to K - 1, in random order.
    """
    effective = _effective(np.bincount(units, weight).astype(np.float64))
    few = found.too_few or effective < LEAST_ROWS - 1e-9
    count = replicates.shape[1]
    freedom = max(1.0, min(count, effective) - 1)
    if count < 100 or np.ndim(found.replicates) != 1 or few:
        return replace(found, too_few=few, _freedom=freedom)
    errors = DAMPING * (found.replicates - found.value)
    codes = units % count
    order = np.argsort(codes)
    varied = np.add.reduceat(replicates[order], np.flatnonzero(np.diff(codes[order], prepend=-1)))
    varied -= varied.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.mean(varied**2, axis=1))
    size = np.sqrt(np.mean(errors**2)) or 1.0
    c = varied @ errors / count / np.where(spread > 0, spread, 1) / size  # over the root of V
    noise = 1 / count  # of each c^2
    square = (c**2).sum() - len(c) * noise
    fourth = (c**4).sum() - 6 * noise * square - 3 * len(c) * noise**2
    freedom = max(1.0, min(freedom, 2 / max(fourth - square**2 / len(c), 2 / count)))
    skew = float((c**3).sum())

    def ends(t: float) -> tuple[float, float]:
        shift = np.clip((1 + 2 * t**2) / 6 * skew, -t / 2, t / 2)  # the estimate stays inside
        middle = found.value + shift * found.se
        return middle - t * found.se, middle + t * found.se

    return replace(found, _freedom=freedom, _ends=ends)


def bind_metric(
    model: Any, metric: str | Callable[..., float], rows: Any, y: Any
) -> Callable[[Floats], float]:
    """Return the score of a model on these rows as a function of their weights; it predicts once.

    Parameters
    ----------
    model : estimator or callable
        What has ``predict``, or a function of rows that returns predictions.
    metric : str or callable
        The name of a scorer of scikit-learn, or a function (y, predictions, sample_weight=...).
    """
    if isinstance(metric, str):
        try:
            from sklearn.metrics import get_scorer
            from sklearn.utils.validation import check_is_fitted
        except ModuleNotFoundError as error:
            raise MissingExtraError("scikit-learn", "sklearn", f"metric={metric!r}") from error
        try:
            scorer = get_scorer(metric)
        except ValueError as error:
            raise InputError(
                f"metric must be a scorer of scikit-learn, listed by "
                f"sklearn.metrics.get_scorer_names(), or a function, found {metric!r}."
            ) from error
        if not hasattr(model, "predict"):
            raise InputError(
                f"model must be an estimator for metric={metric!r}, found {type(model).__name__}."
            )
        check_is_fitted(model)
        known = _Predictions(model, rows)
        return lambda weights: float(scorer(known, rows, y, sample_weight=weights))
    if not callable(metric):
        raise InputError(
            f"metric must be the name of a scorer, or a function (y, predictions, "
            f"sample_weight=...), found {metric!r}."
        )
    if not _takes_sample_weight(metric):
        raise InputError(
            "metric must be a function (y, predictions, sample_weight=...), because rows stand for "
            f"different numbers of rows; {getattr(metric, '__name__', metric)} takes no "
            "sample_weight."
        )
    predict = model.predict if hasattr(model, "predict") else model
    if not callable(predict):
        raise InputError(f"model must have predict, or be a function of rows, found {model!r}.")
    predictions = predict(rows)
    return lambda weights: metric(y, predictions, sample_weight=weights)


def _takes_sample_weight(metric: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(metric).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have none
        return True
    return any(p.name == "sample_weight" or p.kind is p.VAR_KEYWORD for p in parameters)


class _Predictions:
    """An estimator that has predicted these rows already, each by what was asked of it."""

    def __init__(self, model: Any, rows: Any) -> None:
        self._model, self._rows = model, rows
        self._known: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        if name not in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
            return found

        def answer(rows: Any) -> Any:
            if rows is not self._rows:
                return found(rows)
            if name not in self._known:
                self._known[name] = found(rows)
            return self._known[name]

        answer.__name__ = name  # scikit-learn asks what it was given
        return answer


def _bind(statistic: Callable[..., Any], rows: Any, y: Any = None) -> Callable[[Floats], Any]:
    """Return the statistic of these rows as a function of their weights."""
    if isinstance(statistic, Statistic):
        return statistic.bind(rows)
    return (
        (lambda weights: statistic(rows, y, weights))
        if takes_target(statistic)
        else (lambda weights: statistic(rows, weights))
    )


def takes_target(statistic: Callable[..., Any]) -> bool:
    """Return whether a statistic is a function of (rows, y, weights); else of (rows, weights)."""
    try:
        signature = inspect.signature(statistic)
    except (TypeError, ValueError):  # some built-in functions have none
        return False
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = signature.parameters.values()
    needed = sum(p.kind in plain and p.default is p.empty for p in parameters)
    try:
        signature.bind(*range(3 if needed == 3 else 2))
    except TypeError:
        raise InputError(
            "statistic must be a function of (rows, weights), or of (rows, y, weights), found "
            f"{getattr(statistic, '__name__', 'one')}{signature}."
        ) from None
    return needed == 3


def _mean(column: Any) -> Statistic:
    def bind(rows: Any) -> Callable[[Floats], Any]:
        (x,), there = _read(rows, column)

        def compute(weights: Floats) -> float:
            w = weights[there]
            return float(w @ x / w.sum()) if len(w) else np.nan

        return compute

    return Statistic(f"mean({_name(column)})", bind)


def _read(rows: Any, *columns: Column) -> tuple[Floats, NDArray[np.bool_]]:
    """Return columns as numbers, (columns, n), of the rows that have all, and which these are."""
    numbers = np.array([_numbers(rows, column) for column in columns])
    there = ~np.isnan(numbers).any(axis=0)
    return numbers[:, there], there


def _numbers(rows: Any, column: Column) -> Floats:
    values: Any
    if callable(column):
        values = column(rows)
    elif is_table(rows):
        checks.column("column", column, _names(rows))
        values = as_numbers(_arrow_column(rows, str(column)))
    elif isinstance(column, int) and np.ndim(rows) == 2 and -rows.shape[1] <= column:
        checks.integer("column", column, minimum=-rows.shape[1], maximum=rows.shape[1] - 1)
        values = rows[:, [column]].toarray()[:, 0] if hasattr(rows, "toarray") else rows[:, column]
    else:
        raise InputError(
            f"column must be the number of a column of X, or a function of X, found {column!r}."
        )
    array = np.empty(0, dtype=object) if values is None else to_numpy(np.asarray(values))
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise InputError(f"column {_name(column)} must hold one number a row.")
    return array.astype(np.float64)


def _names(rows: Any) -> list[str]:
    if isinstance(rows, Mapping):
        return list(rows)
    return list(rows.column_names if hasattr(rows, "column_names") else rows.columns)


def _arrow_column(rows: Any, name: str) -> Any:
    """Return one column of a table of any kind."""
    if isinstance(rows, Mapping):
        table, _ = to_arrow({name: rows[name]})
    else:
        table, _ = to_arrow(rows.select([name]) if hasattr(rows, "select") else rows[[name]])
    return table.column(name)


def _take(rows: Any, places: NDArray[np.int64]) -> Any:
    """Return some rows of a table or an array of any kind."""
    if isinstance(rows, Mapping):
        return {name: np.asarray(column)[places] for name, column in rows.items()}
    if hasattr(rows, "iloc"):
        return rows.iloc[places]
    if hasattr(rows, "take") and is_table(rows):
        return rows.take(places)
    return rows[places]


def _matches(rows: Any, condition: Condition, name: str) -> NDArray[np.bool_]:
    if callable(condition):
        found = np.asarray(condition(rows))
        if found.dtype != np.bool_ or found.ndim != 1:
            raise InputError(
                f"{name} must return True or False for each row, found shape {found.shape} of "
                f"dtype {found.dtype}."
            )
        return found
    if not isinstance(condition, Mapping) or not condition or not is_table(rows):
        raise InputError(
            f"{name} must be a mapping of columns to values (tables), or a function of the rows, "
            f"found {condition!r}."
        )
    flags = []
    for column, wanted in condition.items():
        checks.column(name, column, _names(rows))
        flags.append(find_matches(column, _arrow_column(rows, column), wanted))
    matches: NDArray[np.bool_] = np.all(flags, axis=0)
    return matches


def _result(value: Any, where: str) -> Any:
    """Return what a statistic returned as a float, an array or a dict of these, or raise."""
    if isinstance(value, Mapping) and value:
        return {key: _to_numbers(entry, where) for key, entry in value.items()}
    return _to_numbers(value, where)


def _to_numbers(value: Any, where: str) -> Any:
    try:
        array = np.asarray(to_numpy(value) if hasattr(value, "detach") else value)
    except ValueError:  # a list of lists of different lengths
        array = np.empty(0)
    if array.dtype.kind not in "biuf" or not array.size:
        raise InputError(
            f"{where} must return a number, an array of numbers or a dict of these, found "
            f"{type(value).__name__} {str(value)[:60]!r}."
        )
    array = array.astype(np.float64)
    return array if array.ndim else float(array)


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict of {', '.join(f'{key}: {_shape(entry)}' for key, entry in value.items())}"
    return f"an array of shape {np.shape(value)}" if np.ndim(value) else "a number"


def _has_nan(value: Any) -> bool:
    entries = value.values() if isinstance(value, dict) else [value]
    return not all(np.isfinite(entry).all() for entry in entries)


def _map(change: Callable[..., Any], *values: Any) -> Any:
    """Return a function of numbers, or of each entry of dicts of them."""
    if isinstance(values[0], dict):
        return {key: change(*(value[key] for value in values)) for key in values[0]}
    return change(*values)


def _stack(values: Sequence[Any]) -> Any:
    return _map(lambda *entries: np.array(entries), *values)


def _name(column: Any) -> str:
    if isinstance(column, str | int):
        return repr(column)
    return str(getattr(column, "__name__", "function"))


def _condition(condition: Any) -> str:
    return _name(condition) if callable(condition) else repr(dict(condition))
