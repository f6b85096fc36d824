"""What an estimate answers: numbers with standard errors and intervals, for one group or many."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from olss.core.estimation import GroupEstimates
from olss.errors import InputError
from olss.util import checks
from olss.util.text import align_columns

__all__ = ["Estimate", "Estimates", "label_text"]

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
        figure = self._figure(what)
        if not (isinstance(level, int | float) and 0 < level < 1):
            raise InputError(f"level must be a number between 0 and 1, found {level!r}.")
        return figure.interval(level)

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


@dataclass(frozen=True, repr=False)
class Estimates(_Numbers):
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

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[Any, Estimate]]:
        columns = [column.tolist() for column in self.groups.values()]
        for number, names in enumerate(zip(*columns, strict=True)):
            yield names[0] if len(names) == 1 else names, self.at(number)

    def __getitem__(self, group: Any) -> Estimate:
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
            names = [label_text(labels[group]) for labels in self.groups.values()]
            numbers = [text for _, *pair in one.texts() for text in pair]
            table.append([*names, f"{one.rows:,}", *numbers])
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


def _text(value: float) -> str:
    """Return a number with about four digits, whole ones from 1,000 on."""
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e15 else f"{value:.4g}"
