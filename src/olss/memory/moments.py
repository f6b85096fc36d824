"""What is known of all rows seen, kept or not: their Gram matrix, or Frequent Directions.

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

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks
from olss.core.frequent_directions import DirectionsFactor, SketchedGram
from olss.core.gram import COLUMN_LIMIT, Factor, RidgeRule
from olss.core.leverage import Projected, warn_uninformative
from olss.core.running_gram import DenseGram, FactoredGram
from olss.errors import DataError, FormatError, InputError
from olss.util import checks
from olss.util.threads import call_with_one_blas_thread

__all__ = ["SeenMoments", "ridge_rule", "row_count"]

Floats = NDArray[np.float64]

_SUMS: dict[str, type[DenseGram | FactoredGram | SketchedGram]] = {
    "gram": DenseGram,
    "rows": FactoredGram,
    "directions": SketchedGram,
}


@dataclass(frozen=True, eq=False)
class SeenMoments:
    """The Gram matrix of everything seen, as a value: what changes it returns a new one.

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

    Examples
    --------
    >>> import numpy as np, olss
    >>> A = np.random.default_rng(0).standard_normal((1_000, 5))
    >>> seen = SeenMoments().plus(A[:400]).plus(A[400:])
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

    def __repr__(self) -> str:
        return f"SeenMoments(rows={self.rows:,}, columns={self.columns:,})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeenMoments) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        """Bytes it takes to hold."""
        return 0 if self.sum is None else self.sum.nbytes

    @property
    def matrix(self) -> Floats:
        """(d, d) G; for more than 4,096 columns there is none."""
        if not isinstance(self.sum, DenseGram | FactoredGram):
            raise InputError(f"there is no Gram matrix of {self.columns:,} columns.")
        return self.sum.matrix

    @property
    def lost(self) -> int:
        """Directions of which, after `minus`, nobody knows whether anything is left."""
        return 0 if isinstance(self.sum, SketchedGram) or self.sum is None else self.sum.lost

    def plus(self, rows: Any, weights: Any = None) -> SeenMoments:
        """Return the moments with rows (n, ...), or blocks of rows, in it, optionally weighted."""
        blocks = self._blocks(rows, weights)
        known = self.sum or _nothing(blocks.columns)
        known = call_with_one_blas_thread(partial(known.plus, blocks), columns=blocks.columns)
        return SeenMoments(
            self.rows + blocks.rows, self.weight + _total(blocks), blocks.columns, known
        )

    def merged(self, other: SeenMoments) -> SeenMoments:
        """Return the moments of what both have seen."""
        if other.sum is None or self.sum is None:
            return self if other.sum is None else other
        if other.columns != self.columns:
            raise InputError(f"other must have {self.columns} columns, found {other.columns}.")
        merge = partial(self.sum.merged, other.sum)  # type: ignore[arg-type]  # of the same columns
        both = call_with_one_blas_thread(merge, columns=self.columns)
        return SeenMoments(self.rows + other.rows, self.weight + other.weight, self.columns, both)

    def minus(self, rows: Any, weights: Any = None) -> SeenMoments:
        """Return the moments without rows that are in it.

        Take each row off with the weight it came with (1, or what `scaled` has left of it), not
        with the weight it has in a sketch: the result is then the moments of all rows seen but
        these. Rows that are not held any more cannot be taken off; nobody has them.

        What is left is right up to the rounding of what was there before, and never negative. A
        direction of which less than that rounding is left counts as gone, and as `lost`: it cannot
        be known. A warning says so where removal costs digits of what is left.
        """
        if self.sum is None:
            raise InputError("nothing has been seen, so no rows can be removed.")
        blocks = self._blocks(rows, weights)
        blocks.check_finite()
        if blocks.rows > self.rows:
            raise InputError(f"rows must be among the {self.rows:,} seen, found {blocks.rows:,}.")
        if blocks.rows == self.rows:
            return SeenMoments()
        return SeenMoments(
            self.rows - blocks.rows,
            max(self.weight - _total(blocks), 0.0),
            self.columns,
            self.sum.minus(blocks),
        )

    def scaled(self, factor: float) -> SeenMoments:
        """Return the moments with all weights multiplied, as by the decay of a half-life."""
        factor = checks.number("factor", factor, above=0)
        left = None if self.sum is None else self.sum.scaled(factor)
        return SeenMoments(self.rows, self.weight * factor, self.columns, left)

    def mapped(self, A: Floats) -> SeenMoments:
        """Return the moments of rows A z, for a (k, d) matrix A, z being the rows seen."""
        if isinstance(self.sum, SketchedGram):
            raise InputError(f"there is no Gram matrix of {self.columns:,} columns.")
        mapped = None if self.sum is None else self.sum.mapped(A)
        return SeenMoments(self.rows, self.weight, 0 if mapped is None else len(A), mapped)

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

    def to_bytes(self) -> bytes:
        """Return it as bytes: a line of JSON, then numbers in float64, lowest byte first."""
        head: dict[str, Any] = {"rows": self.rows, "weight": self.weight, "columns": self.columns}
        array = np.zeros((0, 0))
        if self.sum is not None:
            head["kind"] = next(kind for kind, cls in _SUMS.items() if isinstance(self.sum, cls))
            head["state"], array = self.sum.state()
        head["shape"] = array.shape
        return json.dumps(head).encode() + b"\n" + array.astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> SeenMoments:
        """Return what `to_bytes` wrote, or raise `FormatError`."""
        try:
            line, _, rest = data.partition(b"\n")
            head = json.loads(line)
            rows = checks.integer("rows", head["rows"], minimum=0)
            weight = checks.number("weight", head["weight"], minimum=0)
            columns = checks.integer("columns", head["columns"], minimum=0)
            height, width = (checks.integer("shape", n, minimum=0) for n in head["shape"])
            if 8 * height * width != len(rest):
                raise ValueError(f"{len(rest)} bytes are not {height} x {width} numbers")
            array = np.frombuffer(rest, dtype="<f8").reshape(height, width).astype(np.float64)
            if not np.isfinite(array).all():
                raise ValueError("numbers that are not finite")
            if "kind" not in head:
                return cls()
            known = _SUMS[head["kind"]].from_state(head["state"], array)
            if known.columns != columns or (columns > COLUMN_LIMIT) != isinstance(
                known, SketchedGram
            ):
                raise ValueError(f"{head['kind']} of {known.columns} columns, not {columns}")
        except (InputError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(f"moments are damaged ({error}).") from error
        return cls(rows, weight, columns, known)

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
    checks.choice("scores", scores, ["exact", "ridge", "sketched"])
    return RidgeRule("auto" if scores == "ridge" else None, size)


def row_count(part: Any) -> int:
    """Return the rows of an array of any kind, sparse ones too."""
    return int(part.shape[0]) if hasattr(part, "shape") else len(part)


def _nothing(columns: int) -> DenseGram | SketchedGram:
    if columns > COLUMN_LIMIT:
        return SketchedGram.empty(columns)
    return DenseGram(np.zeros((columns, columns)))


def _total(blocks: Blocks) -> float:
    return float(blocks.rows if blocks.weights is None else blocks.weights.sum())
