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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, matmul, multiply_blocks, to_numpy
from olss.core.gram import gram_of
from olss.core.running_directions import DirectionSum
from olss.core.running_gram import GramSum, RowSum
from olss.errors import DataError, InputError
from olss.memory.spectrum import Spectrum, row_count
from olss.util import checks

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

__all__ = ["Certificate", "certify"]

Floats = NDArray[np.float64]
Interval = tuple[float, float]

_WIDE = np.dtype(np.float64)
# A direction with less than this of what it should have is missing: float32 rounding is below.
MISSING = 1e-6


@dataclass(frozen=True)
class Certificate:
    """What can be promised of a sketch; made by `certify`.

    Attributes
    ----------
    relative : float
        The smallest e with (1 - e) G <= Ĝ <= (1 + e) G in the directions seen; infinite where
        the sketch has nothing in a direction seen.
    spectral : float
        ||G - Ĝ||_2 / ||G||_2, the paper's ||A'A - Â'Â|| in parts of ||A||^2.
    relative_interval, spectral_interval : (float, float)
        Where these are known between bounds only, as for rows of more than 4,096 columns, the
        bounds; `relative` and `spectral` are then the upper ones, and both matrices are taken
        with a ridge of what the bounds leave open.
    least, most : float
        What the sketch has of the squares of a direction, at the least and at the most, in parts
        of what everything seen has: the outermost eigenvalues h. 0 is a direction missing.
    scale : float
        What Ĝ was multiplied with: 1, or the best factor for sketches without weights.
    rows, seen : int
        Rows of the sketch and of everything seen.
    directions : float
        Independent directions among everything seen.
    ridge : float
        0, or the ridge above.
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

    @property
    def law(self) -> float:
        """The error 2 sqrt(d/l) + d/l that rows drawn by leverage have, of d directions."""
        share = self.directions / self.rows
        return 2 * math.sqrt(share) + share

    def rows_for(self, error: float) -> int:
        """Return how many rows would give this relative error, at most those seen.

        By the law, in which d is what the error found says it is: a sketch that is better or worse
        than the law stays so at other sizes.
        """
        error = checks.number("error", error, above=0)
        directions = self.directions
        if 0 < self.relative < math.inf and self.rows < self.seen:
            directions = self.rows * (math.sqrt(1 + self.relative) - 1) ** 2
        return min(math.ceil(directions / (math.sqrt(1 + error) - 1) ** 2), self.seen)

    @property
    def promise(self) -> str:
        """What the relative error means for least squares, in words."""
        e = self.relative
        of = f"plus {self.ridge:.3g} times its squared length " if self.ridge else ""
        if math.isinf(e):
            return (
                "A direction seen is missing from the sketch: a model fitted to it says nothing "
                "there. Keep more rows."
            )
        squares = (
            f"The sum of squares of any linear function of a row {of}is right within {_share(e)}"
        )
        if e >= 1:
            return (
                f"{squares} at worst, which promises nothing for least squares in the worst "
                "direction. Keep more rows."
            )
        return (
            f"{squares} at worst. Least squares of one scored column on others, fitted to the "
            f"sketch, has at most {(1 + e) / (1 - e):.3g} times the squared error of the best fit "
            "to everything seen."
        )

    @property
    def verdict(self) -> str:
        """Whether the error is good for this size and number of columns, in words."""
        if self.rows >= self.seen and self.relative < 1e-3:
            return "Every row seen is in the sketch."
        law = f"Rows drawn by leverage have about {self.law:.2g} at this size"
        if self.rows < self.directions:
            return (
                f"{self.rows:,} rows cannot span {self.directions:,.0f} directions: at least twice "
                "as many rows as directions are needed to say much."
            )
        if self.relative <= 1.25 * self.law:
            return f"{law}: this is as good as can be expected."
        return f"{law}: this is worse than a draw by leverage (policy 'weighted') would be."

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows for {self.seen:,} seen, {self.directions:,.0f} directions",
            f"relative error {_known(self.relative, self.relative_interval)}, "
            f"spectral error {_known(self.spectral, self.spectral_interval)}"
            + (f" (at the best scale, {self.scale:.4g})" if self.scale != 1 else ""),
            self.promise,
            self.verdict,
        ]
        if self.rows < self.seen:
            sizes = ", ".join(f"{error}: {self.rows_for(error):,}" for error in (0.5, 0.2, 0.1))
            lines.append(f"Rows for a relative error of {sizes}.")
        return "\n".join(lines)

    __repr__ = __str__


def certify(
    spectrum: Spectrum,
    parts: Sequence[Any],
    weights: Sequence[Any] | None = None,
    *,
    up_to_scale: bool = False,
) -> Certificate:
    """Compare a sketch with everything seen.

    Parameters
    ----------
    spectrum : Spectrum
        Of everything seen.
    parts : sequence of arrays (n, ...)
        The rows of the sketch.
    weights : sequence of arrays (n,), optional
        Their weights, a part each; 1 if not given.
    up_to_scale : bool
        Whether the sketch may be multiplied by the factor that makes it look best, as for policies
        whose rows do not say what they stand for.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((20_000, 10))
    >>> certify(Spectrum().plus(X), [X[:2_000]], [np.full(2_000, 10.0)])
    2,000 rows for 20,000 seen, 10 directions
    relative error 0.128, spectral error 0.122
    The sum of squares of any linear function of a row is right within 13% at worst. Least squares \
of one scored column on others, fitted to the sketch, has at most 1.29 times the squared error of \
the best fit to everything seen.
    Rows drawn by leverage have about 0.15 at this size: this is as good as can be expected.
    Rows for a relative error of 0.5: 154, 0.2: 850, 0.1: 3,248.
    """
    given = [None] * len(parts) if weights is None else weights
    blocks = [Blocks(x, w, name="X") for x, w in zip(parts, given, strict=True) if row_count(x)]
    if not blocks or spectrum.sum is None:
        raise InputError("the sketch is empty: give it rows before asking how good it is.")
    for b in blocks:
        if b.columns != spectrum.columns:
            raise DataError(f"X must have {spectrum.columns} columns, found {b.columns}.")
        b.check_finite()
    if isinstance(spectrum.sum, DirectionSum):
        found = _between_bounds(spectrum.sum, blocks, up_to_scale)
    else:
        found = _exactly(spectrum.sum, blocks, up_to_scale)
    relative, spectral, (least, most), scale, directions, ridge = found
    return Certificate(
        relative[1],
        spectral[1],
        relative,
        spectral,
        least,
        most,
        scale,
        sum(b.rows for b in blocks),
        spectrum.rows,
        directions,
        ridge,
    )


# Relative and spectral error, least and most, scale, directions, ridge.
_Found = tuple[Interval, Interval, Interval, float, float, float]


def _exactly(known: GramSum | RowSum, blocks: list[Blocks], up_to_scale: bool) -> _Found:
    factor = known.exact
    rank = int(factor.kept.sum())
    H = np.zeros((rank, rank))
    for b in blocks:
        dtype = factor.work_dtype(b.dtype)
        for part, product, _ in multiply_blocks(b, dtype, factor.W)(b.pieces(dtype)):
            Y = product[:, factor.kept].astype(np.float64)
            H += (Y if b.weights is None else Y * b.weights[part, None]).T @ Y
    h: Floats = np.asarray(np.linalg.eigvalsh(H) if rank else np.ones(1), dtype=np.float64)
    scale, relative, share = _relative(h, up_to_scale)
    G, sketch = _in_units(known, blocks)
    spectral = _spectral(G, sketch, scale, up_to_scale)
    return (relative, relative), (spectral, spectral), share, scale, float(rank), 0.0


def _relative(h: Floats, up_to_scale: bool) -> tuple[float, float, Interval]:
    """Return the scale, and at that scale the error and the range of the eigenvalues h."""
    low, high = max(float(h[0]), 0.0), max(float(h[-1]), 0.0)
    scale = 2 / (low + high) if up_to_scale and high > 0 else 1.0
    if low <= MISSING * max(high, 1.0):
        return scale, math.inf, (0.0, scale * high)
    return scale, max(scale * high - 1, 1 - scale * low), (scale * low, scale * high)


def _in_units(known: GramSum | RowSum, blocks: list[Blocks]) -> tuple[Floats, Floats]:
    """Return G and Ĝ, in units in which squares neither overflow nor vanish."""
    top = float(known.norms.max())
    if isinstance(known, GramSum) or not top:
        return known.matrix, gram_of(blocks, _WIDE)
    unit = 2.0 ** -round(math.log2(top))
    for b in blocks:
        b.scale = np.full(b.columns, unit)
    rows = known.basis * unit
    return rows.T @ rows, gram_of(blocks, _WIDE)


def _spectral(G: Floats, sketch: Floats, scale: float, up_to_scale: bool) -> float:
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


def _between_bounds(known: DirectionSum, blocks: list[Blocks], up_to_scale: bool) -> _Found:
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
        scale, relative, share = _relative(h, up_to_scale)
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


def _share(e: float) -> str:
    e = max(e, 1e-6)
    return f"{100 * e:.2g}%" if e < 1 else f"{100 * e:,.0f}%"


def _known(value: float, interval: Interval) -> str:
    low, high = (f"{max(bound, 1e-6):.3g}" for bound in interval)
    if low != high:
        return f"between {low} and {high}"
    return high if value > 1e-6 else f"below {high}"
