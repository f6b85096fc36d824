"""The encoder: rows as the numeric matrix that is scored.

The identity for arrays (with missing values filled), one column class a kind of column for tables,
or the user's feature map.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.blocks import Blocks, to_numpy
from olss.errors import DataError, InputError, OlssWarning
from olss.memory.moments import SeenMoments
from olss.memory.rows import Array, Floats, length_of, take
from olss.tables.encoder import TableEncoder, fit_encoder
from olss.tables.missing_values import MissingIndicator
from olss.tables.schema import is_arrow
from olss.tables.scoring import TableRows, check_squares, leverage, matrix, row_map, variable

__all__ = ["NOTHING_TO_SCORE", "Encoder", "SeenScorer"]

FEATURE_BLOCK = 4096  # rows a feature map gets at a time
SAMPLE_ROWS = 16_384  # by which it is decided what columns are used for
FEWEST_ROWS = 32  # that tell whether no column can be scored
AGREE = 1e-3  # numbers, in units of their spread, that are nearer to each other are the same
NOTHING_TO_SCORE = (
    "No column can be scored: none holds numbers, dates, or strings of few distinct values. Use "
    "policy='reservoir' or 'balanced-random', which need no scores, or name columns= to score."
)


@dataclass(frozen=True)
class Encoder:
    """How rows become the numbers that are scored; fitted to the first rows.

    Attributes
    ----------
    features : callable or None
        A feature map, which may change at any time.
    plan : TableEncoder or None
        How the columns of a table are encoded.
    gaps : MissingIndicator or None
        How missing values of an array are filled; None while there are none.
    intercept : bool
        Whether rows of a table are scored with a constant added.
    """

    features: Callable[[Array], Array] | None = None
    plan: TableEncoder | None = None
    gaps: MissingIndicator | None = None
    intercept: bool = False

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
        if self.gaps is None and not sp.issparse(new) and _has_gaps(new):
            if held is None:
                return replace(self, gaps=MissingIndicator.fit(to_numpy(new)))
            # Without indicator columns: the first rows were scored without them.
            rule = MissingIndicator.fit(to_numpy(held if len(held) else new))
            return replace(self, gaps=replace(rule, marked=np.zeros(0, np.int64)))
        return self

    def adopt(self, other: Encoder, *, first: bool) -> Encoder:
        """Return the encoder for the rows of another sketch too; `first` if there are none yet."""
        plan, gaps = self.plan or other.plan, self.gaps
        if gaps is None and other.gaps is not None:
            # No value was missing here, so any filling will do, without indicator columns.
            gaps = other.gaps if first else replace(other.gaps, marked=np.zeros(0, np.int64))
        return replace(self, plan=plan, gaps=gaps)

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
        return moments.mapped(A) if exact else None

    def _from_numbers_of(self, other: Encoder) -> Floats | None:
        """Return A with z = A z' for a row encoded here, z, and by another sketch, z'.

        None where they are the same.
        """
        if self.plan is not None and other.plan is not None:
            return None if self.plan == other.plan else self.plan.map_from(other.plan)
        if self.gaps is not None and self.gaps is not other.gaps:
            return self.gaps.map_from(other.gaps)
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
        if self.gaps is not None:
            return self.gaps.transform(to_numpy(X))
        return X

    def accumulate(
        self, moments: SeenMoments, X: Array, weight: Floats, place: str = "rows", start: int = 0
    ) -> SeenMoments:
        """Return the moments with rows of a table or an array added."""
        some = None if (weight == 1).all() else weight
        try:
            return moments.plus(self.rows(X, some, place, start))
        except DataError:
            if not is_arrow(X):
                raise
        # A missing number may be NaN; what is wrong even so is named.
        return moments.plus(self.rows(X, some, place, start, careful=True))

    def rows(
        self,
        X: Array,
        weight: Floats | None = None,
        place: str = "rows",
        start: int = 0,
        *,
        careful: bool = False,
    ) -> Blocks:
        """Return encoded rows as moments take them; those of a table in float64."""
        if is_arrow(X):
            return TableRows(self._plan(), X, weight, place, start, careful=careful)
        return Blocks(self.encode(X), weight, name="X")

    def can_score(self, moments: SeenMoments) -> bool:
        """Return whether any number varies over everything seen; else all rows score alike."""
        return self.plan is None or bool(self.varying(moments).any())

    def scorer(self, moments: SeenMoments, scores: str | float, size: int, seed: Any) -> SeenScorer:
        """Return leverage scores in everything the moments cover."""
        T = None
        if self.plan is not None:
            T = row_map(self._plan(), self.varying(moments), intercept=self.intercept)
        width = moments.columns if T is None else len(T)
        if scores == "auto":
            scores = "exact" if size >= 2 * width else "ridge"
        factor = moments.factor(scores, size=size, map=T, seed=seed)
        return SeenScorer(self, factor, float(factor.dimension), moments.weight)

    def leverage(self, table: Array, factor: Any, place: str, start: int) -> Floats:
        """Return the scores of the rows of a table by a factor of the Gram matrix."""
        return leverage(self._plan(), table, factor, place, start)

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
class SeenScorer:
    """Leverage scores in everything seen; a `olss.memory.pool.Scorer`."""

    encoder: Encoder
    factor: Callable[[Any], Floats]
    dimension: float
    total: float

    def __call__(self, rows: Array, place: str = "rows", start: int = 0) -> Floats:
        """Return the leverage of each row."""
        if not is_arrow(rows):
            return self.factor(self.encoder.encode(rows))
        return self.encoder.leverage(rows, self.factor, place, start)


def _has_gaps(X: Array) -> bool:
    if is_torch_array(X):
        return bool(X.is_floating_point() and X.isnan().any())
    return X.dtype.kind == "f" and not Blocks(X).has_finite_sum() and bool(np.isnan(X).any())
