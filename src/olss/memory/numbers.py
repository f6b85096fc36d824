"""What is scored: rows as they are, with gaps filled, by a table's columns, or by a feature map."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import is_torch_array
from numpy.typing import NDArray

from olss.core.blocks import Blocks, to_numpy
from olss.errors import DataError, InputError, OlssWarning
from olss.memory.pool import Floats
from olss.memory.spectrum import Spectrum
from olss.memory.store import Array, is_arrow, length_of, take
from olss.tables.encoder import TableEncoder, fit_encoder
from olss.tables.missing_values import MissingIndicator
from olss.tables.scoring import TableRows, check_squares, leverage, matrix, row_map, variable

__all__ = ["NOTHING_TO_SCORE", "Numbers", "SeenScorer"]

FEATURE_BLOCK = 4096  # rows a feature map gets at a time
SAMPLE_ROWS = 16_384  # by which it is decided what columns are used for
FEWEST_ROWS = 32  # that tell whether no column can be scored
AGREE = 1e-3  # numbers, in units of their spread, that are nearer to each other are the same
NOTHING_TO_SCORE = (
    "no column can be scored: none holds numbers, dates or a few different texts. Use the policy "
    "'reservoir' or 'balanced-random', which need no scores, or name columns to score."
)


@dataclass(frozen=True)
class Numbers:
    """How rows become the numbers that are scored; decided by the first rows.

    Attributes
    ----------
    features : callable or None
        A feature map, which may change at any time.
    plan : TableEncoder or None
        What the columns of a table are used for.
    gaps : MissingIndicator or None
        What stands for missing numbers in an array; None while there are none.
    intercept : bool
        Whether rows of a table are scored with a constant added.
    """

    features: Callable[[Array], Array] | None = None
    plan: TableEncoder | None = None
    gaps: MissingIndicator | None = None
    intercept: bool = False

    @property
    def stay(self) -> bool:
        """Whether the same rows will always be the same numbers."""
        return self.features is None

    @property
    def blind(self) -> bool:
        """Whether no column of a table can be scored: rows are then drawn from alike."""
        return self.plan is not None and not self.plan.width

    @property
    def labels(self) -> list[str] | None:
        """What to call the numbers of a row, if they have names."""
        return None if self.plan is None else [*self.plan.labels(), "(constant)"]

    def decided(
        self, held: Array | None, new: Array, columns: Collection[str] | None, exclude: Any
    ) -> Numbers:
        """Return the numbers with what the first rows decide."""
        if self.features is not None:
            return self
        if is_arrow(new):
            if self.plan is not None:
                return self
            every = np.linspace(0, length_of(new) - 1, min(SAMPLE_ROWS, length_of(new)))
            sample = take(new, every.astype(np.int64))
            found = replace(self, plan=fit_encoder(sample, columns=columns, exclude=exclude))
            if found.blind:
                warnings.warn(
                    f"{NOTHING_TO_SCORE} Until then all rows count alike.",
                    OlssWarning,
                    stacklevel=2,
                )
            return found
        if self.gaps is None and not sp.issparse(new) and _has_gaps(new):
            if held is None:
                return replace(self, gaps=MissingIndicator.fit(to_numpy(new)))
            # No column says where: there was none when the first rows, which may all have been
            # removed since, were scored.
            rule = MissingIndicator.fit(to_numpy(held if len(held) else new))
            return replace(self, gaps=replace(rule, marked=np.zeros(0, np.int64)))
        return self

    def with_(self, other: Numbers, *, first: bool) -> Numbers:
        """Return the numbers for rows of another sketch, too; `first` if there are none so far."""
        plan, gaps = self.plan or other.plan, self.gaps
        if gaps is None and other.gaps is not None:
            # No row seen here had a gap, so anything may stand for it; no column says where.
            gaps = other.gaps if first else replace(other.gaps, marked=np.zeros(0, np.int64))
        return replace(self, plan=plan, gaps=gaps)

    def taken_over(self, spectrum: Spectrum, other: Numbers) -> Spectrum:
        """Return the spectrum of the rows another sketch saw, its numbers being others.

        Raises `InputError` that names the column if that cannot be said.
        """
        A = self._from_numbers_of(other)
        return spectrum if A is None else spectrum.mapped(A)

    def told_apart_by(self, other: Numbers, X: Array) -> bool:
        """Whether the numbers of some rows by another sketch's rule say what they are by this one.

        They do not for a text that only this one knows by its value, nor for a gap that only this
        one marks: the other began with rows that had none.
        """
        A = self._from_numbers_of(other)
        if A is None:
            return True
        mine, theirs = (
            to_numpy(numbers.of(X)).reshape(length_of(X), -1) for numbers in (self, other)
        )
        return bool(np.allclose(mine, theirs @ A.T, rtol=AGREE, atol=AGREE))

    def _from_numbers_of(self, other: Numbers) -> Floats | None:
        """Return A with z = A z' for the numbers of a row and those, z', of another sketch.

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
        waiting: Sequence[Any],
        columns: Collection[str] | None,
        exclude: Collection[str],
    ) -> None:
        """Raise `DataError` if rows of a table could not be scored later, beside those waiting."""
        plan = self.plan
        if plan is None:
            plan = fit_encoder(X, columns=columns, exclude=exclude)
            if plan.may_grow and waiting:
                import pyarrow as pa

                fit_encoder(pa.concat_tables([*waiting, X]), columns=columns, exclude=exclude)
            if not plan.width and X.num_rows >= FEWEST_ROWS:
                raise DataError(NOTHING_TO_SCORE)
        if plan.width and X.num_rows < FEWEST_ROWS**2:  # more are scored, and looked at, at once
            check_squares(plan, X)

    def of(self, X: Array, place: str = "rows", start: int = 0) -> Array:
        """Return what scores are taken of, one row of numbers a row.

        Messages name the `place` rows are from, and the first row's number there.
        """
        if self.features is not None:
            return self._mapped(X)
        if is_arrow(X):
            if self.blind:
                return np.zeros((length_of(X), 1))
            return matrix(self._plan(), X, place, start)
        if self.gaps is not None:
            return self.gaps.transform(to_numpy(X))
        return X

    def added(
        self, spectrum: Spectrum, X: Array, weight: Floats, place: str = "rows", start: int = 0
    ) -> Spectrum:
        """Return a spectrum with rows of a table or an array in it."""
        some = None if (weight == 1).all() else weight
        try:
            return spectrum.plus(self.rows(X, some, place, start))
        except DataError:
            if not is_arrow(X):
                raise
        # Missing numbers may be NaN; what is wrong even so is named.
        return spectrum.plus(self.rows(X, some, place, start, careful=True))

    def rows(
        self,
        X: Array,
        weight: Floats | None = None,
        place: str = "rows",
        start: int = 0,
        *,
        careful: bool = False,
    ) -> Blocks:
        """Return what a spectrum is made of and compared with: those of a table in float64."""
        if is_arrow(X):
            return TableRows(self._plan(), X, weight, place, start, careful=careful)
        return Blocks(self.of(X), weight, name="X")

    def tells_apart(self, spectrum: Spectrum) -> bool:
        """Whether any number varies over everything seen; else all rows count alike."""
        return self.plan is None or bool(self.varying(spectrum).any())

    def scorer(self, spectrum: Spectrum, scores: str | float, size: int, seed: Any) -> SeenScorer:
        """Return leverage in everything a spectrum has seen."""
        T = None
        if self.plan is not None:
            T = row_map(self._plan(), self.varying(spectrum), intercept=self.intercept)
        width = spectrum.columns if T is None else len(T)
        if scores == "auto":
            scores = "exact" if size >= 2 * width else "ridge"
        factor = spectrum.factor(scores, size=size, map=T, seed=seed)
        return SeenScorer(self, factor, float(factor.dimension), spectrum.weight)

    def leverage(self, table: Array, factor: Any, place: str, start: int) -> Floats:
        """Return the scores of the rows of a table by a factor of their numbers."""
        return leverage(self._plan(), table, factor, place, start)

    def varying(self, spectrum: Spectrum) -> NDArray[np.bool_]:
        """(width,) which numbers of a table vary over everything seen."""
        return variable(self._plan(), spectrum.matrix.diagonal(), spectrum.weight)

    def _plan(self) -> TableEncoder:
        if self.plan is None or not self.plan.width:
            raise DataError(NOTHING_TO_SCORE)
        return self.plan

    def _mapped(self, X: Array) -> NDArray[Any]:
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
    """Leverage in everything seen; see `olss.memory.pool.Scorer`."""

    numbers: Numbers
    factor: Callable[[Any], Floats]
    dimension: float
    total: float

    def __call__(self, rows: Array, place: str = "rows", start: int = 0) -> Floats:
        """Return the leverage of each row."""
        if not is_arrow(rows):
            return self.factor(self.numbers.of(rows))
        return self.numbers.leverage(rows, self.factor, place, start)


def _has_gaps(X: Array) -> bool:
    if is_torch_array(X):
        return bool(X.is_floating_point() and X.isnan().any())
    return X.dtype.kind == "f" and not Blocks(X).has_finite_sum() and bool(np.isnan(X).any())
