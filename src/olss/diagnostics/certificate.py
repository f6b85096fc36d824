"""How far the Gram matrix of a sketch is from that of everything seen.

With G = sum x x' over everything seen and Ĝ = sum w x x' over the sketch, and W'GW = I in the
directions seen, the eigenvalues h of W'ĜW lie in [1 - e, 1 + e] exactly if
(1 - e) G <= Ĝ <= (1 + e) G: for every linear function of a row, its sum of squares over the sketch
is then right within e. Rows drawn by leverage have e about 2 sqrt(d/l) + d/l, with l rows and d
directions: the law of Marchenko and Pastur for rows of equal leverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, matmul, multiply_blocks, to_numpy
from olss.core.frequent_directions import SketchedGram
from olss.core.gram import column_limit, gram_of
from olss.core.leverage import TOLERANCE
from olss.core.running_gram import DenseGram, FactoredGram
from olss.diagnostics.estimates import TypicalError
from olss.errors import DataError, InputError
from olss.memory.moments import SeenMoments, Target, row_count
from olss.util import checks
from olss.util.threads import call_with_one_blas_thread

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

__all__ = ["Certificate", "certify", "certify_target"]

Floats = NDArray[np.float64]
Interval = tuple[float, float]

_WIDE = np.dtype(np.float64)
# A direction with less than this of what it should have is missing: float32 rounding is below.
MISSING = 1e-6
# Columns that are named of a direction: so many, of at least this share of the largest part.
NAMED, PART = 5, 0.1


@dataclass(frozen=True)
class Certificate:
    """What can be promised of a sketch; made by `certify`.

    Attributes
    ----------
    relative : float
        The smallest e with (1 - e) G <= Ĝ <= (1 + e) G in the directions seen; infinite where
        the sketch has nothing in a direction seen.
    spectral : float
        ||G - Ĝ||_2 / ||G||_2, the paper's ||A'A - Â'Â|| relative to ||A||^2.
    relative_interval, spectral_interval : (float, float)
        Bounds, where the errors are only known to lie between them; `relative` and `spectral` are
        the upper ones. Above 4,096 columns both matrices get a ridge as large as the gap between
        the bounds on G; removing rows may make a direction uncertain, too.
    least, most : float
        Least and largest ratio of the sums of squares in a direction, of the sketch to everything
        seen: the outermost eigenvalues h. 0 means that a direction is missing.
    scale : float
        What Ĝ was multiplied by: 1, or the best factor for sketches without weights.
    rows, seen : int
        Rows of the sketch and of everything seen.
    directions : float
        Independent directions among everything seen.
    ridge : float
        0, or the ridge above.
    columns : tuple of str
        Where the error is 1 or more: the columns that span the worst direction, as far as known.
    lost : int
        Directions in which removed rows were nearly all there was: rounding hides what is left.
    hidden : bool
        Whether the sketch has rows in these directions, so that something is left: the error is
        then not known, and counts as infinite.
    target : str
        Name of the target, if the certificate covers it.
    target_relative : float or None
        The relative error with the target, a number or one-hot, beside the scored columns.
    is_window : bool
        Whether everything seen is the rows of a window, and up to a sixteenth of it more.
    typical : TypicalError or None
        How far totals and counts of groups are off, where inclusion probabilities are known.
    """

    relative: float
    spectral: float
    relative_interval: Interval
    spectral_interval: Interval
    least: float
    most: float
    scale: float
    rows: int
    seen: int
    directions: float
    ridge: float = 0.0
    columns: tuple[str, ...] = ()
    lost: int = 0
    hidden: bool = False
    target: str = ""
    target_relative: float | None = None
    is_window: bool = False
    typical: TypicalError | None = None

    @property
    def guaranteed(self) -> bool:
        """Whether anything is promised: whether the relative error is below 1."""
        return self.relative < 1

    @property
    def expected_error(self) -> float:
        """The error 2 sqrt(d/l) + d/l that rows drawn by leverage have, of d directions."""
        share = self.directions / self.rows
        return 2 * math.sqrt(share) + share

    def rows_for(self, error: float) -> int:
        """Return how many rows would give this relative error, at most those seen.

        By `expected_error`, with the d that the error found implies: a sketch that is better or
        worse than expected stays so at other sizes, down to two rows a direction.
        """
        error = checks.number("error", error, above=0)
        each = 1 / (math.sqrt(1 + error) - 1) ** 2  # rows for a direction
        rows = self.directions * each
        if 0 < self.relative < math.inf and self.rows < self.seen:
            found = self.rows * (math.sqrt(1 + self.relative) - 1) ** 2
            rows = max(found * each, self.directions * min(each, 2))
        return min(math.ceil(rows), self.seen)

    @property
    def promise(self) -> str:
        """What the relative error means for least squares, in words."""
        e = self.relative
        of = f"plus {self.ridge:.3g} times its squared length " if self.ridge else ""
        if not self.guaranteed:
            return self._no_promise
        return (
            f"The sum of squares of any linear function of a row {of}is right within "
            f"{_format_share(e)} at worst. Least squares of one scored column on others, fitted to "
            f"the sketch, has at most {(1 + e) / (1 - e):.3g} times the squared error of the best "
            "fit to everything seen."
        )

    @property
    def target_promise(self) -> str:
        """What holds for least squares of the target on scored columns, in words; maybe nothing."""
        e = self.target_relative
        if e is None:
            return ""
        what = "infinite, a class seen is missing" if math.isinf(e) else f"{e:.3g}"
        found = f"With the target {self.target!r} the relative error is {what}: "
        if not e < 1:
            return f"{found}no guarantee for its least squares fit to the sketch."
        return (
            f"{found}its least squares fit to the sketch has at most {(1 + e) / (1 - e):.3g} times "
            "the squared error of the best. Sketch.linear_model has the best one exactly."
        )

    @property
    def _no_promise(self) -> str:
        """Why there is no guarantee, in words."""
        spanned = f", spanned by {_join_names(self.columns)}" if self.columns else ""
        if self.hidden:
            return (
                f"No guarantee: rows removed were nearly all there was in a direction{spanned}, "
                "and rounding hides what is left there. Make a new sketch of the rows that remain."
            )
        if not self.least:
            return (
                f"No guarantee: a direction of the rows seen is missing from the sketch{spanned}. "
                "A model fitted to the sketch says nothing there. Keep more rows."
            )
        return (
            f"No guarantee: in the worst direction{spanned}, the sketch has "
            f"{self.most if self.most > 2 else self.least:.3g} times the squares of the rows seen. "
            "Keep more rows."
        )

    @property
    def verdict(self) -> str:
        """Whether the error is good for this size and number of columns, in words."""
        if self.rows >= self.seen and self.relative < 1e-3:
            return "Every row seen is in the sketch."
        expected = f"Rows drawn by leverage have about {self.expected_error:.2g} at this size"
        if self.rows < self.directions:
            return (
                f"{self.rows:,} rows cannot span {self.directions:,.0f} directions: at least twice "
                "as many rows as directions are needed to say much."
            )
        if self.relative < 0.75 * self.expected_error:
            return f"{expected}: this is better."
        if self.relative <= 1.25 * self.expected_error:
            return f"{expected}: this is as good as can be expected."
        return f"{expected}: this is worse than rows drawn by leverage alone would be."

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows for {self.seen:,} seen, {self.directions:,.0f} directions",
            f"relative error {_format_error(self.relative, self.relative_interval)}, "
            f"spectral error {_format_error(self.spectral, self.spectral_interval)}"
            + (f" (at the best scale, {self.scale:.4g})" if self.scale != 1 else ""),
            self.promise,
            *([self.target_promise] if self.target_relative is not None else []),
            self.verdict,
        ]
        if self.lost and not self.hidden:
            lines.append(
                f"Removed rows were all there was in {self.lost:,} directions, up to rounding; "
                "what may be left there is not counted."
            )
        if self.is_window:
            lines.append(
                "With a window, rows seen are those in it and up to a sixteenth of it more."
            )
        if self.rows < self.seen:
            sizes = ", ".join(f"{error}: {self.rows_for(error):,}" for error in (0.5, 0.2, 0.1))
            lines.append(f"Rows for a relative error of {sizes}.")
        if self.typical is not None:
            lines.append(str(self.typical))
        return "\n".join(lines)

    __repr__ = __str__


def certify(
    moments: SeenMoments,
    parts: Sequence[Any],
    weights: Sequence[Any] | None = None,
    *,
    up_to_scale: bool = False,
    names: Sequence[str] | None = None,
) -> Certificate:
    """Compare a sketch with everything seen.

    Parameters
    ----------
    moments : SeenMoments
        Of everything seen.
    parts : sequence of arrays (n, ...), or of `Blocks`
        The rows of the sketch.
    weights : sequence of arrays (n,), optional
        Their weights, a part each; 1 if not given.
    up_to_scale : bool
        Whether the sketch may be multiplied by the factor that makes it look best, as for policies
        whose rows do not say what they stand for.
    names : sequence of str, optional
        What to call the columns.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((20_000, 10))
    >>> certify(SeenMoments().update(X), [X[:2_000]], [np.full(2_000, 10.0)])
    2,000 rows for 20,000 seen, 10 directions
    relative error 0.128, spectral error 0.122
    The sum of squares of any linear function of a row is right within 13% at worst. Least squares \
of one scored column on others, fitted to the sketch, has at most 1.29 times the squared error of \
the best fit to everything seen.
    Rows drawn by leverage have about 0.15 at this size: this is as good as can be expected.
    Rows for a relative error of 0.5: 154, 0.2: 850, 0.1: 3,248.
    """
    given = [None] * len(parts) if weights is None else weights
    blocks = [
        x if isinstance(x, Blocks) else Blocks(x, w, name="X")
        for x, w in zip(parts, given, strict=True)
        if isinstance(x, Blocks) or row_count(x)
    ]
    if not blocks or moments.sum is None:
        raise InputError("the sketch is empty: give it rows before asking how good it is.")
    for b in blocks:
        if b.columns != moments.columns:
            raise DataError(f"X must have {moments.columns} columns, found {b.columns}.")
        b.check_finite()
    known = moments.sum
    worst, lost, hidden = np.zeros(0), 0, False
    if isinstance(known, SketchedGram):
        found = _compare_bounds(known, blocks, up_to_scale)
    else:
        exactly = partial(_compare_exactly, known, blocks, up_to_scale)
        found, worst = call_with_one_blas_thread(exactly, columns=known.columns)
        lost = known.lost + len(known.as_rows()) - int(known.exact.kept.sum())
        outside = _find_outside(known, blocks) if lost else np.zeros(0)
        hidden = bool(outside.any())
        worst = outside if hidden else worst
    relative, spectral, (least, most), scale, directions, ridge = found
    if hidden:
        relative = (0.0, math.inf)
    columns = _name_spanning(worst, names) if relative[1] >= 1 else ()
    return Certificate(
        relative[1],
        spectral[1],
        relative,
        spectral,
        least,
        most,
        scale,
        sum(b.rows for b in blocks),
        moments.rows,
        directions,
        ridge,
        columns,
        lost,
        hidden,
    )


def certify_target(
    moments: SeenMoments, blocks: Blocks, target: Target, *, up_to_scale: bool = False
) -> float | None:
    """Return the relative error with the target beside the columns; None if it is not known.

    It is not if some rows came without a target, or for more than 4,096 columns in all.
    """
    known = moments.target
    if known is None or known.without is not None or not target.present.all():
        return None
    if moments.columns + len(known.shift) > column_limit():
        return None
    Z = np.concatenate([_dense(blocks, block) for _, block in blocks.read(_WIDE)])
    shift = known.shift
    Y = target.values - shift if target.classes is None else np.zeros((len(Z), len(shift)))
    if target.classes is not None and known.classes is not None:
        place = {label: k for k, label in enumerate(known.classes)}
        codes = np.array([place[label] for label in target.classes])
        Y[np.arange(len(Y)), codes[target.values[:, 0].astype(np.int64)]] = 1
    whole = np.block([[moments.matrix, known.cross], [known.cross.T, known.squares]])
    everything = SeenMoments(moments.rows, moments.weight, len(whole), DenseGram(whole))
    found = certify(everything, [np.hstack([Z, Y])], [blocks.weights], up_to_scale=up_to_scale)
    return found.relative


def _dense(blocks: Blocks, block: Any) -> Floats:
    """Return a copy of a block as an array."""
    return np.array(block.toarray() if blocks.sparse else to_numpy(block))


def _name_spanning(worst: Floats, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the columns with the largest parts in a direction."""
    order = np.argsort(-worst, kind="stable")[:NAMED]
    some = order[worst[order] > PART * worst.max(initial=0.0)]
    return tuple(f"column {j}" if names is None else names[j] for j in some)


# Relative and spectral error, least and most, scale, directions, ridge.
_Found = tuple[Interval, Interval, Interval, float, float, float]


def _compare_exactly(
    known: DenseGram | FactoredGram, blocks: list[Blocks], up_to_scale: bool
) -> tuple[_Found, Floats]:
    """Return what was found, and the size of each column's part in the worst direction."""
    factor = known.exact
    rank = int(factor.kept.sum())
    H = np.zeros((rank, rank))
    for b in blocks:
        dtype = factor.work_dtype(b.dtype)
        kept = multiply_blocks(b, dtype, factor.W, None, lambda part, XW, _: (part, XW))
        for part, product in kept(b.pieces(dtype)):
            Y = product[:, factor.kept].astype(np.float64)
            H += (Y if b.weights is None else Y * b.weights[part, None]).T @ Y
    h, Q = np.linalg.eigh(H) if rank else (np.ones(1), np.ones((0, 1)))
    scale, relative, share = _relative_error(h, up_to_scale)
    # A linear function x b of rows, with b = W q: what it weighs a column with, beside its norm.
    q = Q[:, 0] if share[0] == 0 or 1 - share[0] >= share[1] - 1 else Q[:, -1]
    worst = abs(factor.W[:, factor.kept] @ q) * known.norms
    G, sketch = _scale_matrices(known, blocks)
    spectral = _spectral_error(G, sketch, scale, up_to_scale)
    interval = (relative, relative)
    if known.defect > TOLERANCE and math.isfinite(relative):  # after removals
        interval, share = _widen_error(share, known.defect)
    return (interval, (spectral, spectral), share, scale, float(rank), 0.0), worst


def _widen_error(share: Interval, defect: float) -> tuple[Interval, Interval]:
    """Return bounds of the error, and of the eigenvalues, where G is known to 1 ± defect only."""
    (low, high), least = share, 1 + defect
    most = 1 / (1 - defect) if defect < 1 else math.inf
    error = (
        max(high / least - 1, 1 - low * most, 0.0),
        max(high * most - 1, 1 - low / least),
    )
    return error, (low / least, high * most)


def _find_outside(known: DenseGram | FactoredGram, blocks: list[Blocks]) -> Floats:
    """(d,) how much of the rows of a sketch lies outside the directions of everything seen."""
    W = known.exact.W[:, known.exact.kept]
    rows = known.as_rows()
    R = W.T @ rows.T @ rows if isinstance(known, FactoredGram) else rows
    most = np.zeros(known.columns)
    for b in blocks:
        for _, block in b.read(_WIDE):
            X = block.toarray() if b.sparse else to_numpy(block)
            Y = X @ W
            out, room = abs(X - Y @ R), MISSING * (abs(X) + abs(Y) @ abs(R))
            most = np.maximum(most, np.where(out > room, out, 0.0).max(axis=0))
    return most


def _relative_error(h: Floats, up_to_scale: bool) -> tuple[float, float, Interval]:
    """Return the scale, and at that scale the error and the range of the eigenvalues h."""
    low, high = max(float(h[0]), 0.0), max(float(h[-1]), 0.0)
    scale = 2 / (low + high) if up_to_scale and high > 0 else 1.0
    if low <= MISSING * max(high, 1.0):
        return scale, math.inf, (0.0, scale * high)
    return scale, max(scale * high - 1, 1 - scale * low), (scale * low, scale * high)


def _scale_matrices(known: DenseGram | FactoredGram, blocks: list[Blocks]) -> tuple[Floats, Floats]:
    """Return G and Ĝ, in units in which squares neither overflow nor vanish."""
    top = float(known.norms.max())
    if isinstance(known, DenseGram) or not top:
        return known.matrix, gram_of(blocks, _WIDE)
    unit = 2.0 ** -round(math.log2(top))
    for b in blocks:
        b.scale = np.full(b.columns, unit)
    rows = known.basis * unit
    return rows.T @ rows, gram_of(blocks, _WIDE)


def _spectral_error(G: Floats, sketch: Floats, scale: float, up_to_scale: bool) -> float:
    whole = _norm(G)
    if not whole:
        return 0.0
    if not up_to_scale:
        return _norm(G - sketch) / whole
    from scipy.optimize import minimize_scalar  # slow to load, and seldom needed

    most = 2 * whole / max(_norm(sketch), 1e-300)
    best = minimize_scalar(
        lambda c: _norm(G - c * sketch), bounds=(0, most), method="bounded", options={"maxiter": 30}
    )
    return min(float(best.fun), _norm(G - scale * sketch)) / whole


def _norm(S: Floats) -> float:
    """Return the spectral norm of a symmetric matrix."""
    if len(S) <= 64:
        return float(abs(np.linalg.eigvalsh(S)).max())
    return abs(_outermost(S, "LM", 1e-6))


def _outermost(S: Floats | LinearOperator, which: str, tolerance: float = 1e-3) -> float:
    """Return the eigenvalue of largest size ("LM"), the largest or the smallest, by Lanczos."""
    from scipy.sparse.linalg import eigsh

    start = np.random.default_rng(0).standard_normal(S.shape[0])
    (value,) = eigsh(S, 1, which=which, v0=start, tol=tolerance, return_eigenvectors=False)
    return float(value)


def _compare_bounds(known: SketchedGram, blocks: list[Blocks], up_to_scale: bool) -> _Found:
    """Compare with B'B - over <= G <= B'B + shed.

    With the ridge r = shed + over, G + r for every possible G lies between M1 = B'B + r - over
    and M2 = B'B + r + shed. If h1 are the eigenvalues of Ĝ + r relative to M1 and h2 those relative
    to M2, those relative to G + r have their largest in [max h2, max h1] and their smallest in
    [min h2, min h1].
    """
    from scipy.sparse.linalg import LinearOperator

    factor = known.directions.scorer()
    V, s, shed, over = factor.V, factor.s, known.shed, known.over
    largest = float(s.max(initial=0.0))
    open_ = shed + over

    def sketch(y: Floats) -> Floats:
        total = np.zeros(len(V))
        for b in blocks:
            for part, block in b.read(_WIDE):
                z = to_numpy(matmul(block, y))
                total += to_numpy(matmul(block.T, z if b.weights is None else z * b.weights[part]))
        return total

    def operator(function: Any) -> LinearOperator:
        return LinearOperator((len(V), len(V)), lambda y: function(np.ravel(y)), dtype=_WIDE)

    if open_ <= 1e-12 * largest:  # all rows lie in the directions held: nothing is left open
        Y = V / np.sqrt(s)
        H = sum(
            (Z * (1.0 if b.weights is None else b.weights[part, None])).T @ Z
            for b in blocks
            for part, block in b.read(_WIDE)
            for Z in [to_numpy(matmul(block, Y))]
        )
        h = np.linalg.eigvalsh(H)
        scale, relative, share = _relative_error(h, up_to_scale)
        error, ridge, interval = 0.0, 0.0, (relative, relative)
    else:
        ridge, error = open_, max(shed, over)
        scale = 1.0

        def whitened(m: float) -> LinearOperator:
            rest, inside = 1 / math.sqrt(m), 1 / np.sqrt(s + m)

            def root(y: Floats) -> Floats:
                whole: Floats = rest * y + V @ ((inside - rest) * (V.T @ y))
                return whole

            return operator(lambda y: root(sketch(z := root(y)) + ridge * z))

        low = [_outermost(whitened(m), "SA") for m in (ridge + shed, ridge - over)]
        high = [_outermost(whitened(m), "LA") for m in (ridge + shed, ridge - over)]
        share = (low[0], high[1])
        interval = (
            max(high[0] - 1, 1 - low[1], 0.0),
            max(high[1] - 1, 1 - low[0], 0.0),
        )
    apart = operator(lambda y: scale * sketch(y) - V @ (s * (V.T @ y)))
    found = abs(_outermost(apart, "LM")) if largest else 0.0
    spectral = (
        max(found - error, 0.0) / (largest + shed) if largest else 0.0,
        (found + error) / (largest - over) if largest > over else math.inf if largest else 0.0,
    )
    return interval, spectral, share, scale, float((s / (s + ridge)).sum()), ridge


def _format_share(e: float) -> str:
    e = max(e, 1e-6)
    return f"{100 * e:.2g}%" if e < 0.99 else f"{100 * e:.6g}%"


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " * (len(names) > 1) + names[-1]


def _format_error(value: float, interval: Interval) -> str:
    low, high = (
        "infinite" if math.isinf(bound) else f"{max(bound, 1e-6):.3g}" for bound in interval
    )
    if low != high:
        return f"between {low} and {high}"
    return high if value > 1e-6 else f"below {high}"
