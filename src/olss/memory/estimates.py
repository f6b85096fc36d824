"""Counts, totals and means of everything seen, from the rows kept, with standard errors.

The mathematics is in `olss.core.estimation`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olss.common.checks import known_name
from olss.core.estimation import Calibration, Draw, Figure
from olss.errors import InputError, MissingExtraError

__all__ = ["Estimate", "Estimates", "estimate"]

Floats: TypeAlias = NDArray[np.float64]
What: TypeAlias = Literal["count", "total", "mean"]

# Rows an interval needs, of those that might have been missed and in effect. With fewer, 95%
# intervals of means miss in more than 7 of 100 cases even for values without a long tail.
LEAST_ROWS = 10

# A calibrated estimate looks at all rows for each group.
CALIBRATED_GROUPS = 1_000

SHOWN = 20  # groups a printed table shows


@dataclass(frozen=True, repr=False)
class _Numbers:
    """What the estimate of one group and that of many have in common."""

    figures: dict[str, Figure]
    rows: Any
    too_few: Any
    missing: int

    count = property(lambda self: self._figure("count").value, doc="Rows seen, by their weights.")
    count_se = property(lambda self: self._figure("count").se, doc="Standard error of `count`.")
    total = property(lambda self: self._figure("total").value, doc="Sum of the values.")
    total_se = property(lambda self: self._figure("total").se, doc="Standard error of `total`.")
    mean = property(lambda self: self._figure("mean").value, doc="Mean of the values.")
    mean_se = property(lambda self: self._figure("mean").se, doc="Standard error of `mean`.")

    def interval(self, what: What, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of an interval that holds the true "count", "total" or "mean".

        Both are NaN where there are too few rows to say (`too_few`).
        """
        figure = self._figure(what)
        if not (isinstance(level, int | float) and 0 < level < 1):
            raise InputError(f"level must be a number between 0 and 1, found {level!r}.")
        low, high = figure.interval(level)
        nothing = np.where(self.too_few, np.nan, 0.0)
        return low + nothing, high + nothing

    def _figure(self, what: str) -> Figure:
        known_name("what", what, ("count", "total", "mean"))
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
        Whether these are too few for an interval.
    missing : int
        Rows kept that are left out since their value is missing (NaN).

    Examples
    --------
    >>> estimate(np.repeat([20.0, 2.0], 30), np.arange(60) % 7)
    count  660   95%: 557.3 to 781.7
    total  1,878   95%: 1,407 to 2,506
    mean   2.845   95%: 2.177 to 3.531
    from 60 rows kept
    """

    def __str__(self) -> str:
        lines = []
        for what, number, between in self._texts():
            lines.append(f"{what:<5}  {number}" + ("" if self.too_few else f"   95%: {between}"))
        few = "; too few for an interval" if self.too_few else ""
        return "\n".join([*lines, f"from {self.rows:,} rows kept{few}{_left_out(self.missing)}"])

    def _texts(self) -> Iterator[tuple[str, str, str]]:
        """Yield the name of each number, the number, and its interval."""
        for what, figure in self.figures.items():
            low, high = self.interval(what)  # type: ignore[arg-type]
            between = "too few rows" if self.too_few else f"{_text(low)} to {_text(high)}"
            yield what, _text(float(figure.value)), between


@dataclass(frozen=True, repr=False)
class Estimates(_Numbers):
    """Counts, totals and means of everything seen by group; its `str` is a table to read.

    ``estimates["Ulm"]`` is the `Estimate` of one group; iteration gives pairs of name and
    `Estimate`.

    Attributes
    ----------
    groups : dict of str to array
        The columns that name a group, each with a value a group.
    count, count_se, total, total_se, mean, mean_se, rows, too_few : arrays, a value a group
        As in `Estimate`.
    missing : int
        Rows kept that are left out since their value is missing (NaN).

    Examples
    --------
    >>> city = np.repeat(["Bonn", "Ulm", "Jena"], [30, 26, 4])
    >>> estimate(np.repeat([20.0, 2.0], 30), groups={"city": city})
    city  rows  count             95%
    Bonn    30    600  487.9 to 737.9
    Jena     4      8    too few rows
    Ulm     26     52   41.3 to 65.47
    """

    groups: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, Estimate]]:
        columns = [column.tolist() for column in self.groups.values()]
        for number, names in enumerate(zip(*columns, strict=True)):
            yield names[0] if len(names) == 1 else names, self._at(number)

    def __getitem__(self, group: Any) -> Estimate:
        names = group if isinstance(group, tuple) else (group,)
        if len(names) == len(self.groups):
            same = [
                column == name for column, name in zip(self.groups.values(), names, strict=True)
            ]
            found = np.flatnonzero(np.logical_and.reduce(same))
            if len(found):
                return self._at(int(found[0]))
        raise InputError(f"no row kept has {', '.join(self.groups)} {group!r}.")

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
        known_name("library", library, ("pandas", "polars", "pyarrow"))
        try:
            module = importlib.import_module(library)
        except ImportError as error:
            raise MissingExtraError(library, library, f"a frame of {library}") from error
        return (module.table if library == "pyarrow" else module.DataFrame)(self.to_dict(level))

    def __str__(self) -> str:
        shown = np.sort(np.argsort(-self.count, kind="stable")[:SHOWN])
        head = [*self.groups, "rows"]
        for what in self.figures:
            head += [what, "95%"]
        table = [head]
        for group in shown:
            one = self._at(int(group))
            names = [str(labels[group]) for labels in self.groups.values()]
            numbers = [text for _, *pair in one._texts() for text in pair]
            table.append([*names, f"{one.rows:,}", *numbers])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        sides = [str.ljust] * len(self.groups) + [str.rjust] * (len(head) - len(self.groups))
        lines = [
            "  ".join(
                side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True)
            )
            for line in table
        ]
        if len(self) > SHOWN:
            lines.append(f"the {SHOWN} largest of {len(self):,} groups; to_frame() has all")
        return "\n".join(lines) + _left_out(self.missing, "\n")

    def _at(self, group: int) -> Estimate:
        figures = {what: figure.at(group) for what, figure in self.figures.items()}
        return Estimate(figures, int(self.rows[group]), bool(self.too_few[group]), 0)


def estimate(
    weight: ArrayLike,
    values: ArrayLike | None = None,
    *,
    groups: ArrayLike | Mapping[str, ArrayLike] | None = None,
    where: ArrayLike | None = None,
    pi: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    calibrate: tuple[ArrayLike, ArrayLike] | None = None,
) -> Any:
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
    calibrate : pair of arrays (n, p) and (p,), optional
        Columns of the rows kept and their totals over everything seen, which are known: weights
        are moved so that these come out right (see `olss.core.estimation.Calibration`). It helps
        where values go with those columns, and does little where they do not.

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
        f = _column("values", values, len(w), gaps=True)
        gaps = np.isnan(f)
        missing, inside = int(np.count_nonzero(gaps & inside)), inside & ~gaps
        f = np.where(gaps, 0.0, f)
    names, code = _coded(groups, inside)
    count = len(next(iter(names.values()))) if names else 1
    if strata is not None:
        (strata,) = _coded({"strata": strata}, np.ones(len(w), dtype=bool))[1:]
    draw = Draw(w, p, code, count, strata, _calibration(calibrate, w, p, count))
    figures = {"count": draw.total(np.ones(len(w)))}
    if values is not None:
        figures |= {"total": draw.total(f), "mean": draw.mean(f)}
    # Of a group all of whose rows were certain to be kept nothing was missed, or no row of the
    # others' kind was seen; which of the two, some rows must tell.
    few = (draw.rows < LEAST_ROWS) | ((draw.drawn > 0) & (draw.effective < LEAST_ROWS - 1e-9))
    result = Estimates(figures, draw.rows, few & bool((p < 1).any()), missing, names)
    return result if names else replace(result._at(0), missing=missing)


def _column(name: str, values: ArrayLike, rows: int | None = None, gaps: bool = False) -> Floats:
    """Return (n,) finite numbers, NaN being one where there may be gaps."""
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
    bad = np.isinf(column) if gaps else ~np.isfinite(column)
    if bad.any():
        raise InputError(
            f"{name} must be finite, found {column[bad][0]} in {np.count_nonzero(bad)} rows; "
            "leave them out."
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


def _coded(
    groups: ArrayLike | Mapping[str, ArrayLike] | None, inside: NDArray[np.bool_]
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
    known: tuple[ArrayLike, ArrayLike] | None, weight: Floats, pi: Floats, groups: int
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


def _left_out(missing: int, between: str = "; ") -> str:
    return f"{between}{missing:,} rows without a value left out" if missing else ""


def _text(value: float) -> str:
    """Say a number with about four digits, whole ones from 1,000 on."""
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e15 else f"{value:.4g}"
