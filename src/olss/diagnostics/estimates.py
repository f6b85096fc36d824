"""Counts, totals and means of everything seen, from the rows kept, with standard errors.

The mathematics is in `olss.core.estimation`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olss.core.blocks import is_arrow, is_sparse, to_numpy
from olss.core.estimation import Calibration, GroupEstimates, PostStratification, WeightedSample
from olss.diagnostics.select import known_count, known_counts, known_stratum_counts
from olss.errors import InputError
from olss.memory import engine
from olss.memory.config import Config
from olss.memory.state import State
from olss.memory.strata import value_key
from olss.util import checks
from olss.util.text import align_columns

__all__ = ["Estimate", "Estimates", "TypicalError"]

What: TypeAlias = Literal["count", "total", "mean"]

SHOWN = 20  # groups a printed table shows


@dataclass(frozen=True, repr=False)
class _Numbers:
    """What the estimate of one group and that of many have in common."""

    figures: dict[str, GroupEstimates]
    rows: Any
    missing: int

    count = property(lambda self: self._figure("count").value, doc="Rows seen, by their weights.")
    count_se = property(lambda self: self._figure("count").se, doc="Standard error of `count`.")
    total = property(lambda self: self._figure("total").value, doc="Sum of the values.")
    total_se = property(lambda self: self._figure("total").se, doc="Standard error of `total`.")
    mean = property(lambda self: self._figure("mean").value, doc="Mean of the values.")
    mean_se = property(lambda self: self._figure("mean").se, doc="Standard error of `mean`.")

    @property
    def too_few(self) -> Any:
        """Whether too few rows were kept for an interval of one of the numbers, or more."""
        found = np.logical_or.reduce([figure.too_few for figure in self.figures.values()])
        return found if found.ndim else bool(found)

    def interval(self, what: What, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of an interval that holds the true "count", "total" or "mean".

        Both are NaN where there are too few rows to say: of a total, rows whose value is not zero;
        of a mean, rows whose value is not that of most. Where no row was kept that counts, the
        upper end is a bound that the number is below with probability `level`.
        """
        return self._figure(what).interval(checks.number("level", level, above=0, below=1))

    def _figure(self, what: str) -> GroupEstimates:
        checks.choice("what", what, ("count", "total", "mean"))
        if what not in self.figures:
            raise InputError(f"there is no {what} without values; give the values to take it of.")
        return self.figures[what]

    def __repr__(self) -> str:
        return str(self)


class Estimate(_Numbers):
    """A count, total and mean of everything seen; its `str` is to be read.

    Attributes
    ----------
    count, count_se, total, total_se, mean, mean_se : float
        The numbers and their standard errors. A count is of rows, by the weights they came with;
        there are a total and a mean if values were given.
    rows : int
        Rows kept that it is estimated from.
    too_few : bool
        Whether these are too few for an interval of some number, or too few of them differ.
    missing : int
        Rows kept that are left out since their value is missing (NaN).

    Examples
    --------
    >>> from olss.diagnostics.estimates import estimate
    >>> estimate(np.repeat([20.0, 2.0], 30), np.arange(60) % 7)
    count  660   95%: 557.3 to 781.7
    total  1,878   95%: 1,407 to 2,506
    mean   2.845   95%: 2.177 to 3.531
    from 60 rows kept
    """

    def __str__(self) -> str:
        lines = []
        for what, number, between in self.texts():
            few = self.figures[what].too_few
            plain = few or between == "exact"
            lines.append(f"{what:<5}  {number}   {between if plain else f'95%: {between}'}")
        return "\n".join([*lines, f"from {self.rows:,} rows kept{_left_out(self.missing)}"])

    def texts(self, level: float = 0.95) -> Iterator[tuple[str, str, str]]:
        """Yield "count", "total" or "mean", the number, and its interval, as texts to read."""
        for what, figure in self.figures.items():
            low, high = self.interval(what, level)  # type: ignore[arg-type]
            between = "exact" if low == high else f"{_text(low)} to {_text(high)}"
            if figure.too_few:
                alone = what == "count" or self.figures["count"].too_few
                between = "too few rows" if alone else "too few values differ"
            yield what, _text(float(figure.value)), between


T = TypeVar("T")


class ByGroup(Generic[T]):
    """Answers by group, of which `groups` has the names: columns with a value a group."""

    groups: dict[str, NDArray[Any]]

    def at(self, group: int) -> T:
        """Return the answer for one group, by its place."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(next(iter(self.groups.values())))

    def __iter__(self) -> Iterator[tuple[Any, T]]:
        columns = [column.tolist() for column in self.groups.values()]
        for number, names in enumerate(zip(*columns, strict=True)):
            yield names[0] if len(names) == 1 else names, self.at(number)

    def __getitem__(self, group: Any) -> T:
        names = group if isinstance(group, tuple) else (group,)
        if len(names) == len(self.groups):
            same = [
                column == name for column, name in zip(self.groups.values(), names, strict=True)
            ]
            found = np.flatnonzero(np.logical_and.reduce(same))
            if len(found):
                return self.at(int(found[0]))
        known = ", ".join(repr(name) for name, _ in islice(self, 3))
        raise InputError(
            f"no row kept has {', '.join(self.groups)} {group!r}; groups are called {known}"
            f"{' and so on' if len(self) > 3 else ''}."
        )

    def labels(self, group: int) -> list[str]:
        """Return what a group is called, to be read: a missing value is called that."""
        return [label_text(column[group]) for column in self.groups.values()]


@dataclass(frozen=True, repr=False)
class Estimates(ByGroup["Estimate"], _Numbers):
    """Counts, totals and means of everything seen by group; its `str` is a table to read.

    ``estimates["Ulm"]`` is the `Estimate` of one group; iteration gives pairs of name and
    `Estimate`.

    Attributes
    ----------
    groups : dict of str to array
        The columns that name a group, each with a value a group: as Python or NumPy has it, None
        for rows whose value is missing.
    count, count_se, total, total_se, mean, mean_se, rows, too_few : arrays, a value a group
        As in `Estimate`.
    missing : int
        Rows kept that are left out since their value is missing (NaN).

    Examples
    --------
    >>> from olss.diagnostics.estimates import estimate
    >>> city = np.repeat(["Bonn", "Ulm", "Jena"], [30, 26, 4])
    >>> estimate(np.repeat([20.0, 2.0], 30), groups={"city": city})
    city  rows  count             95%
    Bonn    30    600  487.9 to 737.9
    Jena     4      8    too few rows
    Ulm     26     52   41.3 to 65.47
    """

    groups: dict[str, NDArray[Any]]

    def to_dict(self, level: float = 0.95) -> dict[str, NDArray[Any]]:
        """Return columns: those of `groups`, ``rows``, and ``mean, mean_se, mean_low, mean_high``.

        So too for count and total.
        """
        columns: dict[str, NDArray[Any]] = {**self.groups, "rows": self.rows}
        for what, figure in self.figures.items():
            low, high = self.interval(what, level)  # type: ignore[arg-type]
            columns |= {what: figure.value, f"{what}_se": figure.se}
            columns |= {f"{what}_low": low, f"{what}_high": high}
        return columns

    def to_frame(self, library: str = "pandas", level: float = 0.95) -> Any:
        """Return the columns of `to_dict` as a frame of "pandas" or "polars", or of "pyarrow"."""
        checks.choice("library", library, ("pandas", "polars", "pyarrow"))
        try:
            module = importlib.import_module(library)
        except ImportError as error:
            raise InputError(
                f"library={library!r} is not installed: pip install {library}, or take to_dict()."
            ) from error
        return (module.table if library == "pyarrow" else module.DataFrame)(self.to_dict(level))

    def __str__(self) -> str:
        shown = np.sort(np.argsort(-self.count, kind="stable")[:SHOWN])
        head = [*self.groups, "rows"]
        for what in self.figures:
            head += [what, "95%"]
        table = [head]
        for group in shown:
            one = self.at(int(group))
            numbers = [text for _, *pair in one.texts() for text in pair]
            table.append([*self.labels(int(group)), f"{one.rows:,}", *numbers])
        lines = align_columns(table, left=len(self.groups))
        if len(self) > SHOWN:
            lines.append(f"the {SHOWN} largest of {len(self):,} groups; to_frame() has all")
        return "\n".join(lines) + _left_out(self.missing, "\n")

    def at(self, group: int) -> Estimate:
        """Return the estimate of one group, by its place."""
        figures = {what: figure.at(group) for what, figure in self.figures.items()}
        return Estimate(figures, int(self.rows[group]), 0)


def label_text(label: Any) -> str:
    """Return what a group is called, to be read; a gap, None or NaN, is called that."""
    return "(missing)" if label is None or label != label else str(label)


def _left_out(missing: int, between: str = "; ") -> str:
    return f"{between}{missing:,} rows without a value left out" if missing else ""


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):,g}%"


def _text(value: float) -> str:
    """Return a number with about four digits, whole ones from 1,000 on."""
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e15 else f"{value:.4g}"


Floats: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = ArrayLike | Mapping[str, ArrayLike]
Known: TypeAlias = tuple[ArrayLike, ArrayLike]
KnownStrata: TypeAlias = tuple[NDArray[np.int64], Floats, float]

# Rows an interval needs, of those that might have been missed and in effect. With fewer, 95%
# intervals of means miss in more than 7 of 100 cases even for values without a long tail.
LEAST_ROWS = 10

# Typical errors are of groups with one in so many of the rows, and of at most so many columns.
GROUPS, COLUMNS = 100, 40

# A calibrated estimate looks at all rows for each group.
CALIBRATED_GROUPS = 1_000


def estimate(
    weight: ArrayLike,
    values: ArrayLike | None = None,
    *,
    groups: Groups | None = None,
    where: ArrayLike | None = None,
    pi: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    known_strata: KnownStrata | None = None,
    blocks: NDArray[np.int64] | None = None,
    calibrate: Known | None = None,
    complete: bool = True,
) -> Estimate | Estimates:
    """Return the count, and the total and mean of values, of everything the rows kept stand for.

    Parameters
    ----------
    weight : (n,) array of positive numbers
        How many of the rows seen each row kept stands for.
    values : (n,) array of numbers, optional
        Of the rows kept. Rows where it is NaN are left out, of the count too.
    groups : (n,) array, or mapping of str to such, optional
        What group each row belongs to; with several columns, each combination is a group.
    where : (n,) bool array, optional
        The rows to look at; all by default.
    pi : (n,) array of numbers above 0, at most 1, optional
        The probability with which each row was kept. By default 1 / weight, as for rows that
        counted 1 when they came; rows that came with a weight of their own, or count less with
        age, need it.
    strata : (n,) array, optional
        What the draw kept apart, if anything: rows of a stratum competed with each other first.
    known_strata : triple of int array (n,), array (H,) and float, optional
        Strata of which it is known how many rows were seen: the number of each row's, the rows seen
        of each, and of those of which no row was kept. Weights are adjusted to them (see
        `olss.core.estimation.PostStratification`), unless `calibrate` is given.
    blocks : (n,) int array, optional
        Rows that competed with each other first inside strata; see `local_blocks`.
    calibrate : pair of arrays (n, p) and (p,), optional
        Columns of the rows kept and their totals over everything seen, which are known: weights
        are moved so that these come out right (see `olss.core.estimation.Calibration`). It helps
        where values go with those columns, and does little where they do not.
    complete : bool
        Whether all rows kept are there. If some were removed afterwards, intervals are wider.

    Returns
    -------
    Estimate, or Estimates if there are groups
    """
    w = _column("weight", weight)
    if not (w > 0).all():
        raise InputError(f"weight must be positive, found {w.min()}.")
    p = np.minimum(1 / w, 1) if pi is None else _column("pi", pi, len(w))
    if not ((p > 0) & (p <= 1)).all():
        raise InputError(f"pi must be above 0 and at most 1, found {p.min()} to {p.max()}.")
    inside = np.ones(len(w), dtype=bool) if where is None else _flags(where, len(w))
    f, missing = np.ones(len(w)), 0
    if values is not None:
        f = _column("values", values, len(w), among=inside)
        gaps = np.isnan(f)
        missing, inside = int(np.count_nonzero(gaps & inside)), inside & ~gaps
        f = np.where(inside, f, 0.0)
    names, code = code_groups(groups, inside)
    count = len(next(iter(names.values()))) if names else 1
    if strata is not None:
        (strata,) = code_groups({"strata": strata}, np.ones(len(w), dtype=bool))[1:]
    known: Calibration | PostStratification | None = _calibration(calibrate, w, p, count)
    if known is None and known_strata is not None and count <= CALIBRATED_GROUPS:
        known = PostStratification(*known_strata, w)
    draw = WeightedSample(w, p, code, count, strata, known, complete, blocks)
    figures = {"count": draw.total(np.ones(len(w)))}
    if values is not None:
        figures |= {"total": draw.total(f), "mean": draw.mean(f)}
    if (p < 1).any():
        is_flag = np.asarray(values).dtype == np.bool_
        figures = _with_support(figures, draw, f, is_flag, float(w[p < 1].max()))
    result = Estimates(figures, draw.rows, missing, names)
    return result if names else replace(result.at(0), missing=missing)


@dataclass(frozen=True)
class TypicalError:
    """How far estimates from a sketch are off, as standard errors; its `str` is a sentence to read.

    Attributes
    ----------
    rows : int
        Rows of the sketch.
    totals : float or None
        Of totals, relative to the total: the median over columns of numbers of one sign. Of other
        columns the total may be close to zero, and any error many times as large. None if there
        are no such columns.
    groups : float
        Of the count of a group with 1% of the rows, whatever their columns, relative to the count.
    rows_to_halve : int
        Rows that would halve these, about.
    """

    rows: int
    totals: float | None
    groups: float
    rows_to_halve: int

    def __str__(self) -> str:
        off = f"groups of {1 / GROUPS:.0%} by {_percent(self.groups)}"
        if self.totals is None:
            off = off.replace(" by", " are typically off by")
        else:
            off = f"totals are typically off by {_percent(self.totals)}, {off}"
        halve = int(float(f"{self.rows_to_halve:.3g}"))
        return f"With {self.rows:,} rows {off}; about {halve:,} rows halve that."


def typical_error(config: Config, state: State) -> TypicalError | None:
    """Return how far totals and counts are off; None if that is not known, or they are exact.

    The standard errors are those of `estimate`. For the groups, rows are dealt to 100 of them at
    random: the squares of their errors have the mean they have for all groups that size. Errors
    fall as sqrt(1 / n - 1 / N) with n of N rows, which is halved by 4 n N / (N + 3 n) rows.
    """
    if not config.policy.knows_probabilities or not len(state.rows):
        return None
    design = engine.sampling_design(config, state)
    w, pi, strata = design.weight, design.pi, design.strata
    if (pi == 1).all():
        return None
    n, seen = len(w), float((1 / pi).sum())
    code = np.random.default_rng(0).permutation(n) % GROUPS
    dealt = WeightedSample(w, pi, code, GROUPS, strata, None, design.complete, design.blocks)
    groups = GROUPS * np.sqrt(np.mean(dealt.total(np.ones(n)).se ** 2)) / w.sum()
    known = None if design.known_strata is None else PostStratification(*design.known_strata, w)
    everything = np.zeros(n, np.int64)
    draw = WeightedSample(w, pi, everything, 1, strata, known, design.complete, design.blocks)
    found = [draw.total(np.nan_to_num(f)) for f in _numeric_columns(state)]
    totals = [float(t.se[0] / abs(t.value[0])) for t in found if t.one_sign[0] and t.value[0]]
    return TypicalError(
        n,
        float(np.median(totals)) if totals else None,
        float(groups),
        math.ceil(4 * n * seen / (seen + 3 * n)),
    )


def _numeric_columns(state: State) -> Iterator[Floats]:
    """Yield columns of finite numbers of the rows held, evenly spaced if there are many."""
    X, plan = state.rows["X"], state.encoder.plan
    if is_arrow(X):
        from olss.tables.schema import as_numbers

        names = [c.name for c in plan.used if c.use == "number"] if plan else X.schema.names
        columns = (as_numbers(X.column(name)) for name in _space_out(names))
    elif X.ndim == 2 and not is_sparse(X):
        numbers = to_numpy(X)
        columns = (numbers[:, j].astype(np.float64) for j in _space_out(range(X.shape[1])))
    else:
        return
    yield from (f for f in columns if f is not None and not np.isinf(f).any())


def _space_out(names: Sequence[Any]) -> list[Any]:
    places = np.linspace(0, len(names) - 1, min(COLUMNS, len(names)))
    return [names[int(place)] for place in places]


def add_known_counts(
    found: Estimate | Estimates, config: Config, state: State, by: Any, where: Any
) -> Estimate | Estimates:
    """Return the estimates with the counts that are known exactly in place of estimated ones.

    They are known of everything, of the groups of one column, and of values of one column.
    """
    counts: list[float | None] = [None] * np.size(found.rows)
    if isinstance(found, Estimates):
        names = (by,) if isinstance(by, str) else by
        if where is None and isinstance(names, tuple):
            known = known_counts(config, state, names[0]) if len(names) == 1 else {}
            strata = known_stratum_counts(config, state, names) or {}
            labels = zip(*(found.groups[name].tolist() for name in names), strict=True)
            counts = [
                strata.get(tuple(map(value_key, label)), known.get(label[0])) for label in labels
            ]
    elif where is None:
        counts = [known_count(config, state)]
    elif isinstance(where, Mapping) and len(where) == 1:
        ((name, wanted),) = where.items()
        known = known_counts(config, state, name)
        values = wanted if isinstance(wanted, list) else [wanted]
        plain = all(isinstance(value, str | int | float | np.generic) for value in values)
        values = [value_key(value) for value in values] if plain else []
        if values and all(value in known for value in values):
            counts = [sum(known[value] for value in dict.fromkeys(values))]
    figure = found.figures["count"]
    exact = np.array([count is not None for count in counts]).reshape(np.shape(figure.value))
    value = np.array([count or 0.0 for count in counts]).reshape(np.shape(figure.value))
    count = GroupEstimates(
        value=np.where(exact, value, figure.value)[()],
        se=np.where(exact, 0.0, figure.se)[()],
        skewness=np.where(exact, 0.0, figure.skewness)[()],
        freedom=figure.freedom,
        one_sign=(figure.one_sign | exact)[()],
        too_few=(figure.too_few & ~exact)[()],
        unseen=np.where(exact, 0.0, figure.unseen)[()],
    )
    return replace(found, figures=found.figures | {"count": count})


def _with_support(
    figures: dict[str, GroupEstimates],
    draw: WeightedSample,
    f: Floats,
    is_flag: bool,
    largest: float,
) -> dict[str, GroupEstimates]:
    """Return the figures with what is said where few rows, or none, tell of them.

    A count rests on the rows of its group; a total on those whose value differs from zero; a mean
    on those whose value differs from that of most, and so does a total of which the count is known.
    Of a group all of whose rows were certain to be kept nothing was missed, or no row of the
    others' kind was seen; which of the two, some rows must tell.
    """
    count, few = figures["count"], _is_too_few(draw.rows, draw.drawn, draw.effective)
    unseen = np.where(draw.rows == 0, largest, 0.0)
    found = {"count": replace(count, too_few=few & (unseen == 0), unseen=unseen)}
    if "total" not in figures:
        return found
    nonzero = draw.support(f != 0)
    alike = few | ((draw.drawn > 0) & (draw.differing(f) < LEAST_ROWS - 1))
    zeros = few | ((draw.drawn > 0) & _is_too_few(*nonzero))
    zeros |= alike & (count.se <= 1e-12 * np.abs(count.value))
    # Of a number of rows, those that are true, there is a bound where none was kept.
    bounded = (nonzero[0] == 0) & (draw.drawn > 0) & is_flag
    unseen = np.where(bounded, largest, 0.0)
    share = unseen / np.where(bounded, count.value, 1.0)
    total, mean = figures["total"], figures["mean"]
    found["total"] = replace(total, too_few=zeros & ~bounded, unseen=unseen)
    found["mean"] = replace(mean, too_few=alike & ~bounded, unseen=share)
    return found


def _is_too_few(rows: NDArray[np.int64], drawn: Floats, effective: Floats) -> NDArray[np.bool_]:
    return (rows < LEAST_ROWS) | ((drawn > 0) & (effective < LEAST_ROWS - 1e-9))


def _column(
    name: str,
    values: ArrayLike,
    rows: int | None = None,
    among: NDArray[np.bool_] | None = None,
) -> Floats:
    """Return (n,) finite numbers; with `among`, those are to be finite, and may be missing."""
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind not in "biuf" or array.ndim != 1 or array.size == 0:
        raise InputError(
            f"{name} must be a column of numbers, found shape {array.shape} of dtype {array.dtype}."
        )
    if rows is not None and len(array) != rows:
        raise InputError(
            f"{name} must have a value for each of the {rows} rows, found {len(array)}."
        )
    column = array.astype(np.float64)
    bad = ~np.isfinite(column) if among is None else np.isinf(column) & among
    if bad.any():
        raise InputError(
            f"{name} must be finite, found {column[bad][0]} in {np.count_nonzero(bad)} rows; "
            "exclude them, for instance with where."
        )
    return column


def _flags(where: ArrayLike, rows: int) -> NDArray[np.bool_]:
    flags = np.asarray(where)
    if flags.dtype != np.bool_ or flags.shape != (rows,):
        raise InputError(
            f"where must be True or False for each of the {rows} rows, found shape {flags.shape} "
            f"of dtype {flags.dtype}."
        )
    return flags


def code_groups(
    groups: Groups | None, inside: NDArray[np.bool_]
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Return the columns that name each group and the number of each row's group, -1 for none."""
    code = np.where(inside, 0, -1)
    if groups is None:
        return {}, code
    columns = groups if isinstance(groups, Mapping) else {"group": groups}
    labels, parts = {}, []
    for name, column in columns.items():
        array = np.asarray(column)
        if array.shape != inside.shape:
            raise InputError(
                f"groups must have a value for each of the {len(inside)} rows, found shape "
                f"{array.shape} for {name!r}."
            )
        if not inside.any():
            raise InputError("there is no row to make groups of; all are left out.")
        labels[name], part = _labels(array[inside])
        parts.append(part)
    together, code[inside] = np.unique(np.column_stack(parts), axis=0, return_inverse=True)
    return {
        name: labels[name][numbers] for name, numbers in zip(labels, together.T, strict=True)
    }, code


def _labels(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the different values of a column and the number of each row's."""
    if column.dtype != object:
        return np.unique(column, return_inverse=True)
    # Values of several kinds do not compare; None and NaN are the same gap.
    keys = [None if value is None or value != value else value for value in column]
    different = sorted(set(keys), key=lambda value: (value is None, type(value).__name__, value))
    number = {value: place for place, value in enumerate(different)}
    found = np.empty(len(different), dtype=object)
    found[:] = different
    return found, np.array([number[value] for value in keys])


def _calibration(
    known: Known | None, weight: Floats, pi: Floats, groups: int
) -> Calibration | None:
    if known is None:
        return None
    x, totals = (np.asarray(part, dtype=np.float64) for part in known)
    if x.ndim != 2 or x.shape[0] != len(weight) or totals.shape != x.shape[1:]:
        raise InputError(
            f"calibrate must be columns ({len(weight)}, p) and their p totals, found shapes "
            f"{x.shape} and {totals.shape}."
        )
    if groups > CALIBRATED_GROUPS:
        raise InputError(
            f"calibrate takes at most {CALIBRATED_GROUPS:,} groups, found {groups:,}; ask for "
            "fewer groups or leave it out."
        )
    return Calibration(x, totals, weight, pi)
