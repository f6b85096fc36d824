"""Moments of all rows seen, kept or not: their Gram matrix, or Frequent Directions.

Beside the Gram matrix stand the sums of the rows and their products with the target (`TargetSums`):
with them, linear models of everything seen are exact (`olss.diagnostics.linear_models`). Scores use
the Gram matrix alone.

Rows are scored by leverage in everything seen, x' (G + ridge I)^+ x with G = sum w x x', and a
sketch is compared with everything seen (`olss.diagnostics.certificate`). G is held whole for up to
4,096 columns, with the digits scores need (`olss.core.running_gram`). For more columns it is
held between two bounds by Frequent Directions, whose shrinkage is then the ridge
(`olss.core.frequent_directions`).

SeenMoments are right for one way of making numbers of rows. Where a feature map may change, what
was added before was of other features: keep none, and score the pool by itself
(`olss.core.leverage.pool_scores`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks
from olss.core.frequent_directions import DirectionsFactor, SketchedGram
from olss.core.gram import Factor, RidgeRule, column_limit, gram_of
from olss.core.leverage import Projected, warn_uninformative
from olss.core.moments import Moments, one_hot
from olss.core.running_gram import DenseGram, FactoredGram
from olss.errors import DataError, InputError
from olss.util import checks
from olss.util.serialize import to_json
from olss.util.threads import call_with_one_blas_thread

Floats = NDArray[np.float64]

# One-hot rows of so few classes are multiplied fastest as dense ones.
DENSE_CLASSES = 16
MOST_CLASSES = 4096  # whose sums are kept
MOST_TARGETS = 256  # numbers of a target whose sums are kept
# Centred sums of float32 products are right to 1e-4 if a constant is no more than this by the rows.
CONSTANT_SHARE = 0.99


@dataclass(frozen=True, eq=False)
class Target:
    """The targets of some rows: numbers, or classes.

    Attributes
    ----------
    present : (n,) bool array
        Which rows have a target.
    values : (n, t) float array
        Numbers; of classes, one column with the place of each in `classes`. Anything where there
        is none.
    classes : sequence, optional
        The different classes, sorted; None of numbers.
    """

    present: NDArray[np.bool_]
    values: Floats
    classes: tuple[Any, ...] | None = None

    @property
    def width(self) -> int:
        """Numbers of a target, or classes."""
        return self.values.shape[1] if self.classes is None else len(self.classes)

    def shift_like(self, known: TargetSums | None) -> Floats:
        """Return what to subtract from numbers: as known, else their mean; of classes, nothing."""
        if self.classes is not None or not self.present.any():
            return np.zeros(self.width)
        if known is not None and known.classes is None and len(known.shift) == self.width:
            return known.shift
        mean: Floats = self.values[self.present].mean(axis=0)
        return mean

    def beside(self, shift: Floats) -> Any:
        """Return (n, k) numbers whose products with rows make `TargetSums`.

        They are: 1 if there is no target, 1 if there is one, and its numbers less `shift`; of
        classes the first, and an indicator of each class.
        """
        gone = ~self.present
        if self.classes is None:
            values = np.where(gone[:, None], 0.0, self.values - shift)
            return np.column_stack([gone, self.present, values]).astype(np.float64)
        codes = np.where(gone, 0, self.values[:, 0] + 1).astype(np.int64)
        if len(self.classes) > DENSE_CLASSES:
            return one_hot(codes, 1 + len(self.classes))
        return np.eye(1 + len(self.classes), dtype=np.float32).take(codes, axis=0)


@dataclass(frozen=True, eq=False)
class TargetSums:
    """Sums over all rows seen that have a target; every method returns a new value.

    Attributes
    ----------
    rows, weight : int, float
        Rows with a target, and the sum of their weights.
    total : (d,) array
        sum w x.
    shift : (t,) array
        What is subtracted from numbers, set by the first rows, so that they keep their digits.
    sums, squares : (t,), (t, t) arrays
        sum w y and sum w y y', y less the shift; of classes, one-hot.
    cross : (d, t) array
        sum w x y'.
    classes : tuple or None
        In the order of the columns of y; None of numbers.
    without : (d, d) array or None
        sum w x x' of the rows without a target, if there are any.
    """

    rows: int
    weight: float
    total: Floats
    shift: Floats
    sums: Floats
    squares: Floats
    cross: Floats
    classes: tuple[Any, ...] | None = None
    without: Floats | None = None

    @classmethod
    def of(cls, target: Target, shift: Floats, cross: Floats, weights: Floats | None) -> TargetSums:
        """Return the sums of some rows, given the products of rows with `Target.beside`."""
        w = np.where(target.present, 1.0 if weights is None else weights, 0.0)
        rows, weight = int(target.present.sum()), float(w.sum())
        if target.classes is None:
            y = np.where(target.present[:, None], target.values - shift, 0.0)
            weighted = w[:, None] * y
            # A threaded product of so few columns would cost more than all the rest.
            sums, squares = weighted.sum(axis=0), np.einsum("ni,nj->ij", weighted, y)
            return cls(rows, weight, cross[:, 1], shift, sums, squares, cross[:, 2:])
        codes = target.values[target.present, 0].astype(np.int64)
        sums = np.bincount(codes, w[target.present], minlength=target.width).astype(np.float64)
        by_class = cross[:, 1:]
        return cls(
            rows, weight, by_class.sum(axis=1), shift, sums, np.diag(sums), by_class, target.classes
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self._arrays())

    def _arrays(self) -> list[Floats]:
        """Return all arrays, each as a matrix."""
        rows = [self.total[None], self.shift[None], self.sums[None], self.squares, self.cross]
        return rows if self.without is None else [*rows, self.without]

    def as_numbers(self) -> TargetSums | None:
        """Return the sums of classes that are numbers after all; None if they are not."""
        if self.classes is None:
            return self
        if not all(isinstance(label, int | float) for label in self.classes):
            return None
        values = np.array([self.classes], dtype=np.float64)
        return replace(
            self,
            shift=np.zeros(1),
            sums=values @ self.sums,
            squares=(values * self.sums) @ values.T,
            cross=self.cross @ values.T,
            classes=None,
        )

    def recenter(self, shift: Floats) -> TargetSums:
        """Return the sums of numbers less another shift."""
        by = self.shift - shift
        inner = np.outer(self.sums, by)
        return replace(
            self,
            shift=shift,
            sums=self.sums + self.weight * by,
            squares=self.squares + inner + inner.T + self.weight * np.outer(by, by),
            cross=self.cross + np.outer(self.total, by),
        )

    def arrange(self, classes: tuple[Any, ...]) -> TargetSums:
        """Return the sums with these classes, among which are those it has."""
        if classes == self.classes:
            return self
        place = {label: k for k, label in enumerate(classes)}
        at = [place[label] for label in self.classes or ()]
        t = len(classes)
        sums, cross = np.zeros(t), np.zeros((len(self.total), t))
        sums[at], cross[:, at] = self.sums, self.cross
        return replace(
            self, shift=np.zeros(t), sums=sums, squares=np.diag(sums), cross=cross, classes=classes
        )

    def combine(self, other: TargetSums, sign: float = 1.0) -> TargetSums | None:
        """Return the sums of both, or those without the other; None if they are too different."""
        a, b = self, other
        if (a.classes is None) != (b.classes is None):
            numbers = a.as_numbers(), b.as_numbers()
            if None in numbers:
                return None
            a, b = numbers  # type: ignore[assignment]
        if a.classes is not None and b.classes is not None:
            if {type(label) for label in a.classes + b.classes} - {bool, int, float} and not all(
                isinstance(label, str) for label in a.classes + b.classes
            ):
                return None
            classes = tuple(sorted({*a.classes, *b.classes}))
            if len(classes) > MOST_CLASSES:
                return None
            a, b = a.arrange(classes), b.arrange(classes)
        elif len(a.shift) != len(b.shift):
            return None
        else:
            b = b.recenter(a.shift)
        without = a.without
        if b.without is not None:
            without = sign * b.without + (0.0 if without is None else without)
        return replace(
            a,
            rows=a.rows + int(sign) * b.rows,
            weight=max(a.weight + sign * b.weight, 0.0),
            total=a.total + sign * b.total,
            sums=a.sums + sign * b.sums,
            squares=a.squares + sign * b.squares,
            cross=a.cross + sign * b.cross,
            without=without,
        )

    def scale(self, factor: float) -> TargetSums:
        """Return the sums with all weights multiplied."""
        return replace(
            self,
            weight=self.weight * factor,
            total=self.total * factor,
            sums=self.sums * factor,
            squares=self.squares * factor,
            cross=self.cross * factor,
            without=None if self.without is None else self.without * factor,
        )

    def transform(self, A: Floats) -> TargetSums:
        """Return the sums of rows A x."""
        without = None if self.without is None else A @ self.without @ A.T
        return replace(self, total=A @ self.total, cross=A @ self.cross, without=without)


@dataclass(frozen=True, eq=False)
class SeenMoments:
    """The moments of everything seen, as a value: what changes it returns a new one.

    Attributes
    ----------
    rows : int
        Rows seen.
    weight : float
        The sum of their weights: that of the decayed stream, if weights were scaled.
    columns : int
        Numbers in a row; 0 before the first.
    sum : DenseGram, FactoredGram, SketchedGram or None
        How G is held; None before the first row.
    total : (d,) array or None
        sum w x; None for more than 4,096 columns.
    target : TargetSums or None
        Products with the target; None if there is none, or none whose products are kept.

    Examples
    --------
    >>> import numpy as np, olss
    >>> A = np.random.default_rng(0).standard_normal((1_000, 5))
    >>> seen = SeenMoments().update(A[:400]).update(A[400:])
    >>> seen
    SeenMoments(rows=1,000, columns=5)
    >>> scores, = seen.leverage([A[:10]], scores="exact")
    >>> bool(np.allclose(scores, olss.leverage_scores(A)[:10]))
    True
    """

    rows: int = 0
    weight: float = 0.0
    columns: int = 0
    sum: DenseGram | FactoredGram | SketchedGram | None = None
    total: Floats | None = None
    target: TargetSums | None = None

    def __repr__(self) -> str:
        return f"SeenMoments(rows={self.rows:,}, columns={self.columns:,})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeenMoments) and to_json(self) == to_json(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        """Bytes it takes to hold."""
        held = 0 if self.sum is None else self.sum.nbytes
        return held + (0 if self.target is None else self.target.nbytes)

    @property
    def matrix(self) -> Floats:
        """(d, d) G; for more than 4,096 columns there is none."""
        if not isinstance(self.sum, DenseGram | FactoredGram):
            raise InputError(f"there is no Gram matrix of {self.columns:,} columns.")
        return self.sum.matrix

    @property
    def lost(self) -> int:
        """Directions in which, after `subtract`, rounding hides what is left."""
        return 0 if isinstance(self.sum, SketchedGram) or self.sum is None else self.sum.lost

    def update(
        self,
        rows: Any,
        weights: Any = None,
        target: Target | None = None,
        without: Blocks | None = None,
    ) -> SeenMoments:
        """Return the moments with rows (n, ...), or blocks of rows, in it, optionally weighted.

        Parameters
        ----------
        rows : array (n, ...), or Blocks
        weights : array (n,), optional
        target : Target, optional
            If rows come without, products with the target are not known any more.
        without : Blocks, optional
            Those of the rows that have no target, if any.
        """
        blocks = self._blocks(rows, weights)
        count, weight = self.rows + blocks.rows, self.weight + _total(blocks)
        known, run = self.sum or _empty_sum(blocks.columns), call_with_one_blas_thread
        if isinstance(known, SketchedGram):
            both = run(partial(known.update, blocks), columns=blocks.columns)
            return SeenMoments(count, weight, blocks.columns, both)
        if self.rows and self.target is None:
            target = None
        shift = np.zeros(0) if target is None else target.shift_like(self.target)
        beside = np.ones((blocks.rows, 1)) if target is None else target.beside(shift)

        for single in (not blocks.single or self._constant_share() < CONSTANT_SHARE, False):
            add_rows = partial(known.update, blocks, beside, single=single)
            after, cross = run(add_rows, columns=blocks.columns)
            total = _total_of(cross, target) + (0.0 if self.total is None else self.total)
            new = None
            if target is not None:
                new = TargetSums.of(target, shift, cross, blocks.weights)
                new = new if self.target is None else self.target.combine(new)
            seen = SeenMoments(count, weight, blocks.columns, after, total, new)
            if not (blocks.single and seen._has_single):
                break
            if seen._constant_share() < CONSTANT_SHARE:
                break
        if without is not None and seen.target is not None:
            squares = gram_of([without], np.dtype(np.float64))
            before = seen.target.without
            squares = squares if before is None else squares + before
            seen = replace(seen, target=replace(seen.target, without=squares))
        return seen

    @property
    def _has_single(self) -> bool:
        return isinstance(self.sum, DenseGram) and self.sum.single

    def _constant_share(self) -> float:
        """Return how much of a constant is a linear function of the rows, 0 to 1.

        Near 1 centred sums are small differences of large ones.
        """
        total, known = self.total, self.sum
        if total is None or not isinstance(known, DenseGram):
            return 0.0
        scaled = call_with_one_blas_thread(lambda: total @ known.exact.W, columns=self.columns)
        return float(np.sum(scaled**2)) / self.weight

    def merge(self, other: SeenMoments) -> SeenMoments:
        """Return the moments of what both have seen."""
        if other.sum is None or self.sum is None:
            return self if other.sum is None else other
        if other.columns != self.columns:
            raise InputError(f"other must have {self.columns} columns, found {other.columns}.")
        merge = partial(self.sum.merge, other.sum)  # type: ignore[arg-type]  # of the same columns
        both = call_with_one_blas_thread(merge, columns=self.columns)
        target = None
        if self.target is not None and other.target is not None:
            target = self.target.combine(other.target)
        return SeenMoments(
            self.rows + other.rows,
            self.weight + other.weight,
            self.columns,
            both,
            None if self.total is None or other.total is None else self.total + other.total,
            target,
        )

    def subtract(
        self,
        rows: Any,
        weights: Any = None,
        target: Target | None = None,
        without: Blocks | None = None,
    ) -> SeenMoments:
        """Return the moments without rows that are in it.

        Take each row off with the weight it came with (1, or what `scale` has left of it), not
        with the weight it has in a sketch: the result is then the moments of all rows seen but
        these. Rows that are no longer held cannot be subtracted.

        What is left is right up to the rounding of what was there before, and never negative. A
        direction of which less than that rounding is left counts as gone, and as `lost`: it cannot
        be known. A warning says so where removal costs digits of what is left. Arguments are those
        of `update`.
        """
        if self.sum is None:
            raise InputError("nothing has been seen, so no rows can be removed.")
        blocks = self._blocks(rows, weights)
        blocks.check_finite()
        if blocks.rows > self.rows:
            raise InputError(f"rows must be among the {self.rows:,} seen, found {blocks.rows:,}.")
        if blocks.rows == self.rows:
            return SeenMoments()
        left = SeenMoments(
            self.rows - blocks.rows,
            max(self.weight - _total(blocks), 0.0),
            self.columns,
            self.sum.subtract(blocks),
        )
        if self.total is None:
            return left
        gone = SeenMoments().update(blocks, target=target, without=without)
        assert gone.total is not None
        kept = None
        if self.target is not None and gone.target is not None:
            kept = self.target.combine(gone.target, sign=-1.0)
        return replace(left, total=self.total - gone.total, target=kept)

    def scale(self, factor: float) -> SeenMoments:
        """Return the moments with all weights multiplied, as by the decay of a half-life."""
        factor = checks.number("factor", factor, above=0)
        return SeenMoments(
            self.rows,
            self.weight * factor,
            self.columns,
            None if self.sum is None else self.sum.scale(factor),
            None if self.total is None else self.total * factor,
            None if self.target is None else self.target.scale(factor),
        )

    def transform(self, A: Floats) -> SeenMoments:
        """Return the moments of rows A z, for a (k, d) matrix A, z being the rows seen."""
        if isinstance(self.sum, SketchedGram):
            raise InputError(f"there is no Gram matrix of {self.columns:,} columns.")
        mapped = None if self.sum is None else self.sum.transform(A)
        return SeenMoments(
            self.rows,
            self.weight,
            0 if mapped is None else len(A),
            mapped,
            None if self.total is None else A @ self.total,
            None if self.target is None else self.target.transform(A),
        )

    def with_target(self, target: TargetSums | None) -> SeenMoments:
        """Return the moments with other products with the target, or without."""
        return replace(self, target=target)

    def centre(self) -> Moments:
        """Return the moments about the mean; of the rows that have a target, if there is one.

        Raises `InputError` for more than 4,096 columns.
        """
        G, total, weight, target = self.matrix, self.total, self.weight, self.target
        assert total is not None
        rows = self.rows
        if target is not None:
            rows, weight, total = target.rows, target.weight, target.total
            if target.without is not None:
                G = G - target.without
        if not rows or not weight > 0:
            raise InputError("no row with a target has been seen, so there is nothing to fit.")
        rounding = 16 * float(np.finfo(np.float32 if self._has_single else np.float64).eps)
        mean = total / weight
        scatter = G - np.outer(total, mean)
        empty = np.zeros(0)
        sums = empty if target is None else target.sums
        shift = empty if target is None else target.shift
        cross = np.zeros((len(G), 0)) if target is None else target.cross
        squares = np.zeros((0, 0)) if target is None else target.squares
        return Moments(
            count=float(rows),
            weight=weight,
            mean=mean,
            scatter=(scatter + scatter.T) / 2,
            target_mean=shift + sums / weight,
            cross=cross - np.outer(mean, sums),
            target_scatter=squares - np.outer(sums, sums) / weight,
            noise=rounding * G.diagonal(),
        )

    def factor(
        self,
        scores: str | float = "exact",
        *,
        size: int | None = None,
        map: Any = None,
        seed: int | np.random.Generator | None = None,
    ) -> Factor | Projected | DirectionsFactor:
        """Return a function from rows (n, ...) to their leverage in everything seen.

        Parameters
        ----------
        scores : {"exact", "ridge", "sketched"} or float
            ``"ridge"`` chooses a ridge that leaves an effective dimension of size/20; a number
            is a ridge of that value; ``"sketched"`` takes norms by a random projection.
        size : int, optional
            Rows to be kept, for ``"ridge"``.
        map : (k, d) array T, optional
            Scores are those of x = T z, the rows being z: a ridge is then one of T G T'.
        seed : int or numpy.random.Generator, optional
            For ``"sketched"``.
        """
        if self.sum is None:
            raise InputError("nothing has been seen, so no row can be scored; add rows first.")
        rule = ridge_rule(scores, size)
        T = None if map is None else np.asarray(map, dtype=np.float64)
        if T is not None and (T.ndim != 2 or T.shape[1] != self.columns):
            raise InputError(f"map must have shape (k, {self.columns}), found {T.shape}.")
        columns = self.columns if T is None else len(T)
        if self.rows <= columns:
            warn_uninformative(self.rows, columns, rule)
        known = self.sum

        def factor() -> Factor | Projected | DirectionsFactor:
            found = known.factor(rule, T)
            if scores == "sketched" and isinstance(found, Factor) and self.rows > 8 * columns:
                return Projected.of(found, np.random.default_rng(seed))
            return found

        return call_with_one_blas_thread(factor, columns=columns)

    def leverage(
        self,
        parts: Sequence[Any],
        *,
        scores: str | float = "exact",
        size: int | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> list[Floats]:
        """Return the leverage x' (G + ridge I)^+ x of the rows of each part.

        The rows should be among those seen, else a direction they alone have counts for nothing.
        For rows that came with weight 1 scores are at most 1, up to rounding.
        """
        factor = self.factor(scores, size=size, seed=seed)
        return [factor(part) if row_count(part) else np.zeros(0) for part in parts]

    def _blocks(self, rows: Any, weights: Any) -> Blocks:
        blocks = rows if isinstance(rows, Blocks) else Blocks(rows, weights, name="X")
        if self.columns not in (0, blocks.columns):
            raise DataError(
                f"X must have {self.columns} columns as before, found {blocks.columns}."
            )
        return blocks


def ridge_rule(scores: str | float, size: int | None) -> RidgeRule:
    """Return how the ridge is set for "exact", "sketched", "ridge" or a number."""
    if not isinstance(scores, str):
        return RidgeRule(scores)
    if scores in ("exact", "sketched"):
        return RidgeRule()
    checks.choice("scores", scores, ["exact", "ridge", "sketched"])
    return RidgeRule("auto", size)


def row_count(part: Any) -> int:
    """Return the rows of an array of any kind, sparse ones too."""
    return int(part.shape[0]) if hasattr(part, "shape") else len(part)


def _empty_sum(columns: int) -> DenseGram | SketchedGram:
    if columns > column_limit():
        return SketchedGram.empty(columns)
    return DenseGram(np.zeros((columns, columns)))


def _total_of(cross: Floats, target: Target | None) -> Floats:
    """Return sum w x from the products of rows with what stood beside them."""
    numbers = target is not None and target.classes is None
    total: Floats = (cross[:, :2] if numbers else cross).sum(axis=1)
    return total


def _total(blocks: Blocks) -> float:
    return float(blocks.rows if blocks.weights is None else blocks.weights.sum())
