"""The encoder: rows as the numeric matrix that is scored.

The identity for arrays (with missing values filled), one column class a kind of column for tables,
or the user's feature map.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.blocks import Blocks, is_arrow, is_sparse, matmul, to_numpy
from olss.core.frequent_directions import SketchedGram
from olss.core.gradient_trace import GlmRows
from olss.core.sampling import principal_directions
from olss.errors import DataError, InputError, OlssWarning
from olss.memory.intake import is_missing
from olss.memory.moments import MOST_CLASSES, MOST_TARGETS, SeenMoments, Target
from olss.memory.rows import Array, Floats, RowStore, length_of, take
from olss.tables.class_labels import code_classes
from olss.tables.columns import center
from olss.tables.encoder import TableEncoder, fit_encoder
from olss.tables.schema import as_numbers
from olss.tables.scoring import (
    TableRows,
    check_squares,
    matrix,
    row_map,
    variable,
)
from olss.util.threads import call_with_one_blas_thread

FEATURE_BLOCK = 4096  # rows a feature map gets at a time
SAMPLE_ROWS = 16_384  # to which column kinds and medians are fitted
SAMPLE_NUMBERS = 1 << 20  # of an array, at most
FEWEST_ROWS = 32  # that tell whether no column can be scored
DIRECTIONS = 4  # along which a sample is spread, beside the scores
AGREE = 1e-3  # numbers, in units of their spread, that are nearer to each other are the same
NOTHING_TO_SCORE = (
    "No column can be scored: none holds numbers, dates, or strings of few distinct values. Use "
    "policy='reservoir' or 'balanced-random', which need no scores, or name columns= to score."
)


class LastTable:
    """The table accumulated last, encoded: an update then scores the same rows.

    It is kept until it is scored, and no longer than the table itself.
    """

    def __init__(self) -> None:
        self._known: tuple[weakref.ref[Any], TableRows] | None = None

    def put(self, table: Any, rows: TableRows) -> None:
        """Remember the rows of a table."""
        self._known = weakref.ref(table, self._forget), rows

    def pop(self, table: Any) -> TableRows | None:
        """Return the rows of this table, which are then forgotten, if they are known."""
        known = self._known
        if known is None or known[0]() is not table:
            return None
        self._known = None
        return known[1]

    def _forget(self, gone: weakref.ref[Any]) -> None:
        if self._known is not None and self._known[0] is gone:
            self._known = None

    def __reduce__(self) -> tuple[type[LastTable], tuple[()]]:
        return LastTable, ()


@dataclass(frozen=True)
class Encoder:
    """How rows become the numbers that are scored; fitted to the first rows.

    Attributes
    ----------
    features : callable or None
        A feature map, which may change at any time.
    plan : TableEncoder or None
        How the columns of a table are encoded.
    missing : MissingIndicator or None
        How missing values of an array are filled; None while there are none.
    intercept : bool
        Whether rows of a table are scored with a constant added.
    """

    features: Callable[[Array], Array] | None = field(default=None, metadata={"saved": False})
    plan: TableEncoder | None = None
    missing: MissingIndicator | None = None
    intercept: bool = False
    _last: LastTable = field(
        default_factory=LastTable, repr=False, compare=False, metadata={"saved": False}
    )

    @property
    def has_no_features(self) -> bool:
        """Whether no column of a table can be scored: all rows then score alike."""
        return self.plan is not None and not self.plan.width

    @property
    def labels(self) -> list[str] | None:
        """Names of the encoded columns, if they have any."""
        return None if self.plan is None else [*self.plan.labels(), "(constant)"]

    def fit(
        self,
        held: Array | None,
        new: Array,
        columns: Collection[str] | Mapping[str, str] | None,
        exclude: Collection[str],
    ) -> Encoder:
        """Return the encoder fitted to new rows, as far as earlier rows have not done that."""
        if self.features is not None:
            return self
        if is_arrow(new):
            if self.plan is not None:
                return self
            every = np.linspace(0, length_of(new) - 1, min(SAMPLE_ROWS, length_of(new)))
            sample = take(new, every.astype(np.int64))
            found = replace(self, plan=fit_encoder(sample, columns=columns, exclude=exclude))
            if found.has_no_features:
                warnings.warn(
                    f"{NOTHING_TO_SCORE} Until then all rows score alike.",
                    OlssWarning,
                    stacklevel=2,
                )
            return found
        if self.missing is None and not is_sparse(new) and _has_nan(new):
            if held is None:
                return replace(self, missing=MissingIndicator.fit(to_numpy(new)))
            # Without indicator columns: the first rows were scored without them.
            rule = MissingIndicator.fit(to_numpy(held if len(held) else new))
            return replace(self, missing=replace(rule, marked=np.zeros(0, np.int64)))
        return self

    def adopt(self, other: Encoder, *, first: bool) -> Encoder:
        """Return the encoder for the rows of another sketch too; `first` if there are none yet."""
        plan, missing = self.plan or other.plan, self.missing
        if missing is None and other.missing is not None:
            # No value was missing here, so any filling will do, without indicator columns.
            missing = (
                other.missing if first else replace(other.missing, marked=np.zeros(0, np.int64))
            )
        return replace(self, plan=plan, missing=missing)

    def convert(self, moments: SeenMoments, other: Encoder, X: Array) -> SeenMoments | None:
        """Return moments that another encoder accumulated, as those of this one.

        None if that is not exact: for a string that only this encoder has an indicator for, or a
        missing value that only this one marks; X, rows the other has seen, tells. Raises
        `InputError` naming the column if the encoders have nothing in common.
        """
        A = self._from_numbers_of(other)
        if A is None:
            return moments
        mine, theirs = (
            to_numpy(encoder.encode(X)).reshape(length_of(X), -1) for encoder in (self, other)
        )
        exact = np.allclose(mine, theirs @ A.T, rtol=AGREE, atol=AGREE)
        return moments.transform(A) if exact else None

    def differs_from(self, other: Encoder) -> bool:
        """Return whether rows encoded by another sketch are other numbers."""
        return self._from_numbers_of(other) is not None

    def _from_numbers_of(self, other: Encoder) -> Floats | None:
        """Return A with z = A z' for a row encoded here, z, and by another sketch, z'.

        None where they are the same.
        """
        if self.plan is not None and other.plan is not None:
            return None if self.plan == other.plan else self.plan.map_from(other.plan)
        if self.missing is not None and self.missing is not other.missing:
            return self.missing.map_from(other.missing)
        return None

    def check(
        self,
        X: Any,
        pending: Sequence[Any],
        columns: Collection[str] | Mapping[str, str] | None,
        exclude: Collection[str],
    ) -> None:
        """Raise `DataError` if rows of a table could not be scored later, beside those pending."""
        plan = self.plan
        if plan is None:
            plan = fit_encoder(X, columns=columns, exclude=exclude)
            if plan.may_grow and pending:
                import pyarrow as pa

                fit_encoder(pa.concat_tables([*pending, X]), columns=columns, exclude=exclude)
            if not plan.width and X.num_rows >= FEWEST_ROWS:
                raise DataError(NOTHING_TO_SCORE)
        if plan.width and X.num_rows < FEWEST_ROWS**2:  # more are scored, and looked at, at once
            check_squares(plan, X)

    def encode(self, X: Array, place: str = "rows", start: int = 0) -> Array:
        """Return what is scored, one row of numbers a row.

        Errors name the `place` rows are from, and the number of the first row there.
        """
        if self.features is not None:
            return self._map_features(X)
        if is_arrow(X):
            if self.has_no_features:
                return np.zeros((length_of(X), 1))
            return matrix(self._plan(), X, place, start)
        if self.missing is not None:
            return self.missing.transform(to_numpy(X))
        return X

    def accumulate(
        self,
        moments: SeenMoments,
        X: Array,
        weight: Floats,
        place: str = "rows",
        start: int = 0,
        *,
        target: Target | None = None,
    ) -> SeenMoments:
        """Return the moments with rows of a table or an array added, and their targets."""
        some = None if (weight == 1).all() else weight
        without = self._without_target(X, weight, target)
        rows = self.rows(X, some, place, start)
        try:
            moments = moments.update(rows, None, target, without)
        except DataError:
            if not is_arrow(X):
                raise
            # A missing number may be NaN; what is wrong even so is named.
            rows = self.rows(X, some, place, start, find_nan=True)
            moments = moments.update(rows, None, target, without)
        if isinstance(rows, TableRows):
            self._last.put(X, rows)
        return moments

    def subtract(
        self, moments: SeenMoments, X: Array, weight: Floats, target: Target | None
    ) -> SeenMoments:
        """Return the moments without rows that are in it."""
        without = self._without_target(X, weight, target)
        return moments.subtract(self.rows(X, weight, find_nan=True), None, target, without)

    def _without_target(self, X: Array, weight: Floats, target: Target | None) -> Blocks | None:
        """Return the rows that have no target, though others have."""
        if target is None or target.present.all():
            return None
        gone = np.flatnonzero(~target.present)
        return self.rows(take(X, gone), weight[gone], find_nan=True)

    def rows(
        self,
        X: Array,
        weight: Floats | None = None,
        place: str = "rows",
        start: int = 0,
        *,
        find_nan: bool = False,
    ) -> Blocks:
        """Return encoded rows as moments take them; those of a table in float64."""
        if is_arrow(X):
            return TableRows(self._plan(), X, weight, place, start, find_nan=find_nan)
        return Blocks(self.encode(X), weight, name="X")

    def table_rows(self, X: Array, place: str = "rows", start: int = 0) -> TableRows:
        """Return the encoded rows of a table, those that were accumulated last as they are."""
        return self._last.pop(X) or TableRows(self._plan(), X, None, place, start)

    def columns(self, X: Array) -> Iterator[tuple[slice, Floats]]:
        """Yield (slice of rows, encoded columns but the constant), dense, in float64."""
        blocks = self.rows(X, find_nan=True)
        last = blocks.columns - (self.plan is not None)
        for part, block in blocks.read(np.dtype(np.float64)):
            dense = block.toarray() if blocks.sparse else to_numpy(block)
            yield part, dense[:, :last].copy()

    def can_score(self, moments: SeenMoments) -> bool:
        """Return whether any number varies over everything seen; else all rows score alike."""
        return self.plan is None or bool(self.varying(moments).any())

    def scorer(
        self,
        moments: SeenMoments,
        scores: str | float,
        size: int,
        seed: Any,
        *,
        spread: bool = False,
    ) -> SeenScorer:
        """Return leverage scores in everything the moments cover, and coordinates to spread by."""
        T = None
        if self.plan is not None:
            T = row_map(self._plan(), self.varying(moments), intercept=self.intercept)
        width = moments.columns if T is None else len(T)
        if scores == "auto":
            scores = "exact" if size >= 2 * width else "ridge"
        factor = moments.factor(scores, size=size, map=T, seed=seed)
        directions = self.directions(moments) if spread else None
        return SeenScorer(self, factor, float(factor.dimension), moments.weight, directions)

    def directions(self, moments: SeenMoments) -> Directions | None:
        """Return the directions along which a sample is spread; None where there are none.

        There are none for a feature map, which may change, and beyond 4,096 columns.
        """
        if self.features is not None or isinstance(moments.sum, SketchedGram | None):
            return None
        known = (moments.matrix, moments.total, moments.weight, DIRECTIONS)
        return call_with_one_blas_thread(
            lambda: Directions(*principal_directions(*known)), columns=moments.columns
        )

    def project(self, X: Array, directions: Directions) -> Floats:
        """Return the coordinates of rows along directions, (k, n)."""
        blocks = self.rows(X)
        found = np.empty((directions.matrix.shape[1], blocks.rows))
        with np.errstate(over="ignore", invalid="ignore"):
            for part, block in blocks.read(np.dtype(np.float64)):
                found[:, part] = to_numpy(matmul(block, directions.matrix)).T
        return found - directions.mean[:, None]

    def varying(self, moments: SeenMoments) -> NDArray[np.bool_]:
        """(width,) which encoded columns of a table vary over everything seen."""
        return variable(self._plan(), moments.matrix.diagonal(), moments.weight)

    def _plan(self) -> TableEncoder:
        if self.plan is None or not self.plan.width:
            raise DataError(NOTHING_TO_SCORE)
        return self.plan

    def _map_features(self, X: Array) -> NDArray[Any]:
        assert self.features is not None
        n = length_of(X)
        blocks = [
            to_numpy(self.features(X[start : start + FEATURE_BLOCK]))
            for start in range(0, n, FEATURE_BLOCK)
        ]
        mapped = np.concatenate(blocks) if blocks else np.empty((0, 1))
        if mapped.ndim < 2 or len(mapped) != n:
            raise InputError(
                f"features must return one row for each of the {n} it gets, shape (n, k), "
                f"found shape {mapped.shape}."
            )
        return mapped


@dataclass(frozen=True)
class Directions:
    """A few principal directions of everything seen: (d, k), and the mean along each, (k,)."""

    matrix: Floats
    mean: Floats


@dataclass(frozen=True)
class SeenScorer:
    """Leverage scores in everything seen; a `olss.memory.pool.Scorer`."""

    encoder: Encoder
    factor: Any
    dimension: float
    total: float
    directions: Directions | None

    def __call__(
        self, rows: Array, place: str = "rows", start: int = 0
    ) -> tuple[Floats, Floats | None]:
        """Return the leverage of each row, and its coordinates along `directions`, if any."""
        known = self.directions
        V = None if known is None else known.matrix
        if is_arrow(rows):
            encoded = self.encoder.table_rows(rows, place, start)
            scores, products = encoded.leverage_and_products(self.factor, V)
        elif V is None:
            return self.factor(self.encoder.encode(rows)), None
        else:
            scores, products = self.factor.score_and_multiply(self.encoder.encode(rows), V)
        if known is None:
            return scores, None
        products -= known.mean[:, None]
        return scores, products


def read_target(y: Array | None, *, is_class: bool) -> Target | None:
    """Return targets as moments take them; None if there are none, or no products are kept.

    They are kept of up to 4,096 classes, and of up to 256 numbers a row.
    """
    if y is None or not length_of(y):
        return None
    present = ~is_missing(y)
    if is_class:
        classes, codes = code_classes(y if present.all() else take(y, np.flatnonzero(present)))
        places = np.zeros((len(present), 1))
        places[present, 0] = codes
        return Target(present, places, classes) if len(classes) <= MOST_CLASSES else None
    numbers = as_numbers(y.column(0)) if is_arrow(y) else to_numpy(y)
    if numbers is None or numbers.dtype.kind not in "biuf":
        return None
    values = numbers.reshape(len(present), -1).astype(np.float64)
    finite = bool(np.isfinite(values[present]).all())
    return Target(present, values) if finite and values.shape[1] <= MOST_TARGETS else None


def glm_rows(
    encoder: Encoder, rows: RowStore, classes: tuple[Any, ...], *, weight: str = "weight"
) -> Iterator[GlmRows]:
    """Yield rows and targets as a gradient trace takes them, a block at a time.

    Rows without a target have no weight; `classes` has all there are, or None for counts.
    """
    is_class = classes != (None,)
    target = read_target(rows.get("y"), is_class=is_class)
    if target is None or not len(rows):
        return
    w = np.where(target.present, rows[weight], 0.0)
    y = np.where(target.present[:, None], target.values, 0.0)
    if is_class:
        place = np.array([classes.index(label) for label in target.classes or ()], np.int64)
        y = np.zeros((len(w), len(classes)))
        there = np.flatnonzero(target.present)
        y[there, place[target.values[there, 0].astype(np.int64)]] = 1
    for part, X in encoder.columns(rows["X"]):
        yield GlmRows(X, y[part], w[part], rows["index"][part])


def all_glm_rows(encoder: Encoder, rows: RowStore, classes: tuple[Any, ...], d: int) -> GlmRows:
    """Return all kept rows at once, as `glm_rows` yields them."""
    parts = list(glm_rows(encoder, rows, classes))
    if not parts:
        k = len(classes)
        return GlmRows(np.zeros((0, d)), np.zeros((0, k)), np.zeros(0), np.zeros(0, np.int64))
    return GlmRows.concat(parts)


def _has_nan(X: Array) -> bool:
    if is_torch_array(X):
        return bool(X.is_floating_point() and X.isnan().any())
    return X.dtype.kind == "f" and not Blocks(X).has_finite_sum() and bool(np.isnan(X).any())


@dataclass(frozen=True, eq=False)
class MissingIndicator:
    """Fill and indicate the missing values of an array.

    A missing value counts as the median of its column in the first rows. Columns with missing
    values in the first rows get an indicator of them. The rows kept stay as they are.

    Attributes
    ----------
    fill : (d,) float64
        The number that replaces a missing one, by column.
    marked : (k,) int64
        The columns with an indicator of missing values.

    Examples
    --------
    >>> X = np.array([[1.0, 5.0], [np.nan, 6.0], [3.0, 9.0], [4.0, 7.0]])
    >>> missing = MissingIndicator.fit(X)
    >>> missing.transform(np.array([[np.nan, np.nan], [8.0, 2.0]]))
    array([[3., 7., 1.],
           [8., 2., 0.]])
    """

    fill: Floats
    marked: NDArray[np.int64]

    @classmethod
    def fit(cls, rows: NDArray[Any]) -> MissingIndicator:
        """Fit to the first rows of an array, (n, ...)."""
        A = rows.reshape(len(rows), -1)
        gone = np.isnan(A).any(axis=0) if A.dtype.kind == "f" else np.zeros(A.shape[1], bool)
        size = max(64, SAMPLE_NUMBERS // max(1, A.shape[1]))
        sample = np.ascontiguousarray(A[: min(SAMPLE_ROWS, size)].T, dtype=np.float64)
        fill = [center(column)[0] for column in sample]
        return cls(np.asarray(fill, dtype=np.float64), np.flatnonzero(gone))

    @property
    def columns(self) -> int:
        """Number of columns of the array, d."""
        return len(self.fill)

    @property
    def width(self) -> int:
        """Numbers per row that are scored, d + k."""
        return len(self.fill) + len(self.marked)

    def transform(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows, (n, ...), as (n, d + k) numbers; the same array if there is nothing to do.

        Infinite values were refused when the rows came (`olss.memory.intake`).
        """
        A = rows.reshape(len(rows), -1)
        if A.shape[1] != self.columns:
            raise DataError(
                f"X must have {self.columns:,} numbers per row, as before, found {A.shape[1]:,}."
            )
        gone = np.isnan(A) if A.dtype.kind == "f" else np.zeros(A.shape, bool)
        if gone.any():
            A = np.where(gone, self.fill.astype(A.dtype), A)
        if not len(self.marked):
            return A
        return np.concatenate([A, gone[:, self.marked].astype(A.dtype)], axis=1)

    def map_from(self, other: MissingIndicator | None) -> Floats:
        """Return A with z = A z' for the numbers z' of another fit."""
        d, theirs = self.columns, np.zeros(0, np.int64) if other is None else other.marked
        A = np.eye(self.width, d + len(theirs))
        A[d:] = 0
        for place, column in enumerate(theirs):
            assert other is not None
            A[column, d + place] = self.fill[column] - other.fill[column]
            A[d:, d + place] = self.marked == column
        return A
