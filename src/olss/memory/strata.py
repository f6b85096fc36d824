"""Strata: groups of rows, each of which keeps its share of a sketch, and how often each was seen.

A stratum is a combination of values of the columns named by ``strata``; a missing value is a value
of its own. With N_g the rows seen of stratum g, by their weights, and K strata, a stratified draw
takes a row of stratum g in proportion to 1 / (K N_g). Mixed into the priorities of a policy, in a
share s of the draw, that is a congressional sample (Acharya, Gibbons & Poosala 2000):

    priority_i = (1 - s) p_i + s / (K N_g(i)),        sum over everything seen = 1.

A draw of `size` rows keeps a row with probability min(1, priority / t), t <= 1 / size. So a row of
stratum g stays with probability min(1, s size / (K N_g)) or more: at least k rows of each stratum
are expected where s >= k K / size, and that is how ``min_rows`` is met.

A stratum is known by its key, its values as JSON. Keys are the same for arrays, frames and files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np

from olss.core.blocks import is_arrow, to_numpy
from olss.core.sampling import code_values, combine_codes, rows_of_codes
from olss.errors import DataError, InputError
from olss.memory.rows import EXTRA, Floats, Indices, RowStore
from olss.tables.class_labels import class_labels
from olss.tables.schema import as_numbers, dictionary_codes, to_microseconds
from olss.util import checks

Counts: TypeAlias = dict[str, float]  # rows seen, by their weights, under the key of a stratum
Coded: TypeAlias = tuple[Indices, list[str]]  # the number of each row's key, and the keys
Columns: TypeAlias = Callable[[str], Any]

STRATA_LIMIT = 200_000  # counts are kept of all strata, so there must be a bound
CLASS_LIMIT = 10_000  # beyond so many classes their counts are not kept


class Settings(Protocol):
    """The settings of a sketch about strata; an `olss.memory.config.Config`."""

    @property
    def strata(self) -> tuple[str, ...] | None:
        """Columns of the strata."""

    @property
    def strata_share(self) -> float:
        """Share of the draw that is stratified."""

    @property
    def min_rows(self) -> int:
        """Rows of each stratum to keep."""

    @property
    def bins(self) -> int | dict[str, int | tuple[float, ...]] | None:
        """How numbers are cut."""

    @property
    def half_life(self) -> float | None:
        """When a row counts half."""


@dataclass(frozen=True)
class Strata:
    """The strata of everything seen: their counts and edges.

    Attributes
    ----------
    counts : dict of str to float, or None
        Rows seen of each stratum, by their weights; None where that is not known: with a window.
    edges : dict of str to tuple of float
        Columns of numbers that are cut into bins, and where; decided by the first rows.
    """

    counts: Counts | None = field(default_factory=dict)
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StratumShares:
    """The part of the strata in the priorities of some rows.

    Attributes
    ----------
    codes : (n,) int array
        Number of each row's stratum.
    priority : (n,) float array
        1 / (K N_g).
    share : float
        The share of the draw that is stratified.
    total : float
        The weight of everything seen.
    count : int
        Number of strata, K.
    min_rows : int
        Rows of each stratum that were asked for.
    """

    codes: Indices
    priority: Floats
    share: float
    total: float
    count: int
    min_rows: int

    def mix(self, priority: Floats) -> Floats:
        """Return priorities, of sum 1 over everything seen, with the strata's part mixed in."""
        return (1 - self.share) * priority + self.share * self.priority


def stratum_shares(
    config: Settings, strata: Strata, coded: Coded, weight: Floats, size: int
) -> StratumShares:
    """Return the part of the strata in the priorities of rows.

    Where the counts of everything seen are not known, those of the rows, by their weights, serve.
    """
    codes, keys = coded
    if strata.counts is None:
        counts = np.bincount(codes, weight, len(keys))
        seen = counts
    else:
        counts = np.array([strata.counts.get(key, 0.0) for key in keys])
        seen = np.array(list(strata.counts.values()))
    total = float(seen.sum())
    if config.half_life is not None:  # what has faded to less than a row loses its share
        counts, seen = np.maximum(counts, 1.0), seen[seen >= 1]
    count = max(1, len(seen))
    share = min(1.0, max(config.strata_share, count * config.min_rows / size))
    with np.errstate(divide="ignore", over="ignore"):
        each = np.minimum(1 / (count * counts), np.finfo(np.float64).max / 4)
    return StratumShares(codes, each[codes], share, total, count, config.min_rows)


def fit_edges(config: Settings, column: Columns) -> dict[str, tuple[float, ...]]:
    """Return where the columns of numbers among the strata are cut into bins, if they are.

    A number of bins is cut at quantiles. It does not apply to columns that are not numbers, nor to
    integers that have no more values than that.
    """
    edges: dict[str, tuple[float, ...]] = {}
    for name in config.strata or ():
        bins = config.bins.get(name) if isinstance(config.bins, Mapping) else config.bins
        if bins is None:
            continue
        numbers = _numbers(column(name))
        if isinstance(bins, tuple):
            edges[name] = bins
        elif numbers is not None:
            found = np.unique(numbers[np.isfinite(numbers)])
            if len(found) > bins or (found % 1 != 0).any():
                cuts = np.linspace(0, 1, bins + 1)[1:-1]
                cut = np.quantile(numbers[np.isfinite(numbers)], cuts) if len(found) else ()
                edges[name] = tuple(np.unique(cut).tolist())
        if isinstance(config.bins, Mapping) and numbers is None:
            raise InputError(f"bins: the stratum column {name!r} must hold numbers to be binned.")
    return edges


def stratum_keys(
    config: Settings, edges: Mapping[str, tuple[float, ...]], column: Columns
) -> Coded:
    """Return the stratum of each row, given a function that returns a column by its name."""
    names = config.strata or ()
    parts = []
    for name in names:
        values = column(name)
        parts.append(_code_bins(values, edges[name]) if name in edges else _code(values, name))
    codes = parts[0][0]
    for more, _ in parts[1:]:
        codes = combine_codes(codes, more)
    first = rows_of_codes(codes)
    rows = zip(*([labels[code] for code in found[first]] for found, labels in parts), strict=True)
    return _unify(codes, [json.dumps(list(row)) for row in rows])


def class_keys(y: Any) -> Coded:
    """Return the class of each row of a target that is a class, as a stratum of one value."""
    codes, labels = _code(y.column(0) if is_arrow(y) else class_labels([y]), "y", real=True)
    return _unify(codes, [json.dumps([label]) for label in labels])


def rows_column(rows: RowStore, argument: str = "strata") -> Columns:
    """Return a function that returns a column of rows by its name: of a table, extra, "y", "task".

    "y" is the target, whatever its name, unless a column is called so. For a name that there is
    not, it raises `InputError` that names the argument.
    """

    def column(name: str) -> Any:
        for part in ("X", "y"):
            if part in rows and is_arrow(rows[part]) and name in rows[part].schema.names:
                return rows[part].column(name)
        if EXTRA + name in rows:
            return to_numpy(rows[EXTRA + name])
        if name == "y" and "y" in rows:
            return rows["y"].column(0) if is_arrow(rows["y"]) else class_labels([rows["y"]])
        if name == "task":
            return rows["task"]
        known = [c.removeprefix(EXTRA) for c in rows if c in ("y", "task") or c.startswith(EXTRA)]
        for part in ("X", "y"):
            known += rows[part].schema.names if part in rows and is_arrow(rows[part]) else []
        return checks.column(argument, name, known)  # raises

    return column


def keys_of(config: Settings, strata: Strata, parts: Sequence[RowStore]) -> Coded:
    """Return the stratum of each row of several stores, one after the other."""
    coded = [stratum_keys(config, strata.edges, rows_column(part)) for part in parts if len(part)]
    place: dict[str, int] = {}
    codes = []
    for found, keys in coded:
        numbers = np.array([place.setdefault(key, len(place)) for key in keys], dtype=np.int64)
        codes.append(numbers[found])
    return np.concatenate(codes), list(place)


def accumulate_strata(
    config: Settings, strata: Strata, column: Columns, weight: Floats, *, first: bool
) -> Strata:
    """Return the strata with rows added; the first ones decide where numbers are cut."""
    edges = fit_edges(config, column) if first else strata.edges
    new = count_rows(stratum_keys(config, edges, column), weight)
    return Strata(None if strata.counts is None else add_counts(strata.counts, new), edges)


def merge_strata(mine: Strata, theirs: Strata) -> Strata:
    """Return the strata of two histories, cut alike, or raise `InputError`."""
    if mine.edges != theirs.edges:
        raise InputError(
            "other must have its strata cut into the same bins, and the first rows decide where "
            "numbers are cut; give both sketches the edges, bins={'column': [10, 100]}."
        )
    if mine.counts is None or theirs.counts is None:
        return Strata(None, mine.edges)
    return Strata(add_counts(mine.counts, theirs.counts), mine.edges)


def count_rows(coded: Coded, weight: Floats) -> Counts:
    """Return the weight of the rows under each key."""
    codes, keys = coded
    return dict(zip(keys, np.bincount(codes, weight, len(keys)).tolist(), strict=True))


def add_counts(a: Counts, b: Counts) -> Counts:
    """Return the sum of two counts, or raise `DataError` if there are too many keys."""
    found = dict(a)
    for key, count in b.items():
        found[key] = found.get(key, 0.0) + count
    if len(found) > STRATA_LIMIT:
        raise DataError(
            f"strata: there are more than {STRATA_LIMIT:,} strata, and a count is kept of each. "
            "Name columns with fewer different values, or cut numbers into bins=10."
        )
    return found


def add_class_counts(known: Counts | None, new: Counts | None) -> Counts | None:
    """Return the sum of class counts; None if one is not known, or there are too many classes."""
    if known is None or new is None or len(known.keys() | new.keys()) > CLASS_LIMIT:
        return None
    return add_counts(known, new)


def scale_counts(counts: Counts | None, share: float) -> Counts | None:
    """Return counts multiplied by a share, if known; those that vanish are dropped."""
    if counts is None:
        return None
    return {key: count * share for key, count in counts.items() if count * share > 0}


def subtract_counts(counts: Counts, gone: Counts, left: Counts) -> Counts:
    """Return counts without rows that are removed.

    A stratum of which no row is left is dropped with its count.
    """
    return {
        key: max(count - gone.get(key, 0.0), left.get(key, 0.0))
        for key, count in counts.items()
        if key not in gone or key in left
    }


def marginal_counts(counts: Counts, places: Sequence[int]) -> dict[tuple[Any, ...], float]:
    """Return counts by the values at some places of the keys."""
    found: dict[tuple[Any, ...], float] = {}
    for key, count in counts.items():
        values = json.loads(key)
        some = tuple(values[place] for place in places)
        found[some] = found.get(some, 0.0) + count
    return found


def value_key(value: Any) -> Any:
    """Return a value as it stands in keys: None if missing, integers as such, else text.

    The text of a time does not depend on its unit; at midnight, without a zone, it is the date.
    """
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype(f"{value.dtype.kind}8[us]")
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value != value:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return str(value.astimezone(UTC))
        return str(value if value.time() != time() else value.date())
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, bool | int | float | str) else str(value)


def _code(column: Any, name: str, *, real: bool = False) -> tuple[Indices, list[Any]]:
    """Return the number of each row's value, and the values as they stand in keys.

    Raises `InputError` if they are real numbers, unless these are allowed.
    """
    if isinstance(column, np.ndarray):
        if column.ndim != 1:
            raise InputError(
                f"strata: column {name!r} must hold one value a row, found shape {column.shape}."
            )
        codes = code_values(column)
        first = column[rows_of_codes(codes)]
        values: Sequence[Any] = list(first) if first.dtype.kind in "mM" else first.tolist()
    else:
        codes, values = _code_arrow(column, name)
    for value in () if real else values:
        if isinstance(value, float) and np.isfinite(value) and not value.is_integer():
            raise InputError(
                f"strata: column {name!r} holds real numbers such as {value:g}, hardly two of "
                "which are alike; cut them into bins=10, or name another column."
            )
    return codes, [value_key(value) for value in values]


def _code_arrow(column: Any, name: str) -> tuple[Indices, Sequence[Any]]:
    import pyarrow as pa
    import pyarrow.types as kinds

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if kinds.is_nested(column.type):
        raise InputError(f"strata: column {name!r} must hold one value a row, found {column.type}.")
    coded = column if kinds.is_dictionary(column.type) else column.dictionary_encode()
    values = coded.dictionary
    if kinds.is_temporal(values.type):
        values = to_microseconds(values)
    codes = dictionary_codes(coded) + 1
    return codes, [None, *values.to_pylist()]


def _code_bins(column: Any, edges: tuple[float, ...]) -> tuple[Indices, list[Any]]:
    numbers = _numbers(column)
    if numbers is None:
        raise InputError("bins: a stratum column that held numbers holds something else now.")
    ends = [-np.inf, *edges, np.inf]
    labels = [None, *(f"[{a:.12g}, {b:.12g})" for a, b in pairwise(ends))]
    codes = np.searchsorted(edges, numbers, side="right") + 1
    return np.where(np.isnan(numbers), 0, codes), labels


def _numbers(column: Any) -> Floats | None:
    """Return a column as floats, NaN where missing; None for other columns, and booleans."""
    if not isinstance(column, np.ndarray):
        return None if str(column.type) == "bool" else as_numbers(column)
    is_number = column.ndim == 1 and column.dtype.kind in "iuf"
    return column.astype(np.float64) if is_number else None


def _unify(codes: Indices, keys: list[str]) -> Coded:
    """Return codes and keys without keys that are there twice, or that no row has."""
    used = np.bincount(codes, minlength=len(keys)) > 0
    place: dict[str, int] = {}
    numbers = [
        place.setdefault(key, len(place)) if there else 0
        for key, there in zip(keys, used, strict=True)
    ]
    return np.array(numbers, dtype=np.int64)[codes], list(place)
