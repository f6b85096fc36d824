"""Sample rows without replacement.

`successive_sample` follows the law of NumPy's ``choice(replace=False, p=...)`` and of the paper's
Algorithm 1; its inclusion probabilities have no closed form. `inclusion_probabilities` with
`pivotal_sample` draws a fixed number of rows with known inclusion probabilities, which is what a
weight of 1 / probability needs. `threshold_sample` thins a stream at a fixed weight. In the order
of `hilbert_places` rows that are alike compete, so that a sample is spread over feature space.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olss.core.blocks import dense_array, to_numpy
from olss.errors import InputError
from olss.util import checks

__all__ = ["inclusion_probabilities", "pivotal_sample", "successive_sample", "threshold_sample"]

Floats = NDArray[np.float64]

HILBERT_BITS = 3  # of each coordinate
HILBERT_EDGES = [s / np.sqrt(1 - s * s) for s in np.linspace(-0.75, 0.75, 7)]
SUBSPACE_ROUNDS = 3  # of the iteration for principal directions, of which none need be precise


def successive_sample(weights: ArrayLike, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw rows one after the other, each with probability proportional to the weights left.

    Row i gets the key E_i / w_i with E_i ~ Exp(1); the rows with the smallest keys follow that law
    (Efraimidis & Spirakis 2006). Keys are compared as logarithms, so that weights may span the
    whole range of float64. The cost is O(N).

    If `size` exceeds the number of non-zero weights, all of those are taken, then rows of weight
    zero, uniformly, until `size` or all rows are drawn.

    Parameters
    ----------
    weights : (N,) array of non-negative numbers, not all zero
        They need not sum to one.
    size : int
        Number of rows to draw.
    rng : numpy.random.Generator

    Returns
    -------
    (min(size, N),) int64 array
        The rows drawn, in ascending order.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> successive_sample([0.0, 1.0, 0.0, 5.0], 2, rng)
    array([1, 3])
    >>> len(successive_sample(np.arange(1000), 10, rng))
    10
    """
    w = _weights(weights)
    size = checks.integer("size", size)
    _check_generator(rng)
    if size >= w.size:
        return np.arange(w.size, dtype=np.int64)
    positive = w > 0
    first, room = np.flatnonzero(positive), size - np.count_nonzero(positive)
    if room >= 0:
        blank = np.flatnonzero(~positive)
        return np.sort(np.concatenate([first, rng.choice(blank, room, replace=False)]))
    draws = rng.standard_exponential(first.size)
    # A draw of zero is possible, once in 2^53; the logarithm is that of the smallest float.
    keys = np.log(np.maximum(draws, np.finfo(np.float64).tiny)) - np.log(w[first])
    return np.sort(first[np.argpartition(keys, size - 1)[:size]])


def inclusion_probabilities(weights: ArrayLike, size: int) -> NDArray[np.float64]:
    """Return inclusion probabilities proportional to the weights, capped at one.

    pi = min(1, c w) with the one c that gives sum(pi) = `size`. With the weights in descending
    order and S_k the sum of all but the k largest, c = (size - k) / S_k for the smallest k that
    leaves no probability above one. One sort finds it.

    Parameters
    ----------
    weights : (N,) array of non-negative numbers, not all zero
        They need not sum to one.
    size : int
        Their sum. If it exceeds the number of non-zero weights, those all get one and the sum is
        their number: rows of weight zero keep probability zero.

    Returns
    -------
    (N,) float64 array
        The probabilities; their sum is an integer up to rounding, as `pivotal_sample` requires.

    Examples
    --------
    >>> inclusion_probabilities([1, 1, 2, 96], 2)
    array([0.25, 0.25, 0.5 , 1.  ])
    """
    w = _weights(weights)
    size = checks.integer("size", size)
    if size >= np.count_nonzero(w):
        return (w > 0).astype(np.float64)
    limits = np.finfo(np.float64)
    terms = 2 * w.size  # and not w.size: sums may be rounded up
    if w.max() > limits.max / terms:  # sums would overflow; non-zero weights must stay non-zero
        w = np.maximum(w / terms, np.where(w > 0, limits.smallest_subnormal, 0))
    ascending = np.sort(w)
    sums = np.cumsum(ascending)
    # Entry k of these has the k largest weights capped; fewer than `size` can be.
    largest, rest = ascending[: -size - 1 : -1], sums[: -size - 1 : -1]
    capped = int(np.argmax(np.arange(size, 0, -1) * largest <= rest))
    below = ascending[: w.size - capped]
    # Division comes first: the factor c alone overflows for the smallest weights. The sum is taken
    # again because NumPy's `sum` is more accurate than a running one.
    with np.errstate(over="ignore"):
        pi: NDArray[np.float64] = np.minimum(1.0, w / below.sum() * (size - capped))
    return pi


def pivotal_sample(pi: ArrayLike, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return exactly sum(pi) rows, row i with probability pi[i].

    Pivotal sampling (Deville & Tillé 1998) as a tournament. Two rows with probabilities a and b
    meet: if a + b < 1, one of them takes the sum and the other is out, the first staying with
    probability a / (a + b); else one of them is drawn and the other continues with a + b - 1, the
    first being drawn with probability (1 - b) / (2 - a - b). Each keeps its probability on
    average. All pairs of a round meet at once: log2 N rounds of array operations and O(N) work.

    Neighbours meet first, so the sample is spread evenly over the order of the rows: among the
    first 2^j, the second 2^j, ... of those with 0 < pi < 1, as many are drawn as their
    probabilities sum to, within one. In the order of arrival, each task gets its share with little
    noise. In return, two neighbours may never be drawn together; shuffle the rows first if
    variances are to be estimated, which requires every pair to be possible.

    Parameters
    ----------
    pi : (N,) array of numbers from 0 to 1
        Their sum must be an integer, within 1e-6 + 1e-8 N.
    rng : numpy.random.Generator

    Returns
    -------
    int64 array
        The rows drawn, in ascending order.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> pi = inclusion_probabilities([1, 1, 2, 96], 2)
    >>> draws = [pivotal_sample(pi, rng) for _ in range(1000)]
    >>> {len(rows) for rows in draws}, all(3 in rows for rows in draws)
    ({2}, True)
    """
    p = _vector("pi", pi)
    _check_generator(rng)
    if p.max() > 1:
        raise InputError(f"pi must be probabilities from 0 to 1, found {p.max():.6g}.")
    total = p.sum()
    if abs(total - round(total)) > 1e-6 + 1e-8 * p.size:
        raise InputError(
            f"pi must sum to an integer, found {total:.9g}; "
            "inclusion_probabilities(weights, size) gives probabilities that do."
        )
    drawn = p == 1
    rows = np.flatnonzero((p > 0) & (p < 1))
    p = p[rows]
    while rows.size > 1:
        odd = rows.size % 2
        a, b = p[: p.size - odd : 2], p[1::2]
        left, right = rows[: rows.size - odd : 2], rows[1::2]
        both = a + b
        full = both >= 1  # the winner is drawn; otherwise the winner takes all
        bound = np.where(full, 2 - both, both)
        first = rng.random(a.size) * bound < np.where(full, 1 - b, a)
        drawn[np.where(first, left, right)[full]] = True
        stay = np.where(first ^ full, left, right)
        rows = np.concatenate([stay, rows[rows.size - odd :]])
        p = np.concatenate([both - full, p[p.size - odd :]])
    # The last probability is 0 or 1 up to rounding.
    drawn[rows[p > 0.5]] = True
    return np.flatnonzero(drawn)


def threshold_sample(
    weights: NDArray[np.float64],
    threshold: float,
    rng: np.random.Generator,
    strata: NDArray[np.int64] | None = None,
    places: NDArray[np.uint16] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Sample rows with weights below a threshold, so that the chosen have that weight.

    In random order, or shuffled inside strata, the weights laid end to end are cut into intervals
    of length `threshold` and a last, shorter one. In each, at the same relative place, a row is
    picked, whose weight becomes the interval's length: each weight is right on average, and their
    sum is unchanged. Rows with weights at or above the threshold stay as they are.

    Parameters
    ----------
    weights : (N,) array of positive numbers
    threshold : float
    rng : numpy.random.Generator
    strata : (N,) int array, optional
        Number of each row's stratum, of which each gets its share within a row.
    places : (N,) uint16 array, optional
        Where rows stand on a curve (`hilbert_places`), by which they are ordered inside strata.

    Returns
    -------
    rows : int64 array
        Rows that stay, each once.
    growth : float64 array
        The factors by which their weights grow.

    Examples
    --------
    >>> rows, growth = threshold_sample(np.ones(1000), 10.0, np.random.default_rng(0))
    >>> len(rows), set(growth.tolist())
    (100, {10.0})
    """
    large = np.flatnonzero(weights >= threshold)
    line = rng.permutation(np.flatnonzero(weights < threshold))
    line = sort_line(line, strata, places)
    if not len(line):
        return large, np.ones(len(large))
    ends = np.cumsum(weights[line]) / threshold
    full, rest = divmod(float(ends[-1]), 1)
    length = np.append(np.ones(int(full)), rest)
    length = length[length > 0]
    picked = np.searchsorted(ends, np.arange(len(length)) + rng.random() * length, side="right")
    picked = np.minimum(picked, len(line) - 1)
    first = np.flatnonzero(np.diff(picked, prepend=-1))  # a row may be picked twice
    rows = line[picked[first]]
    growth = threshold * np.add.reduceat(length, first) / weights[rows]
    return np.concatenate([large, rows]), np.concatenate([np.ones(len(large)), growth])


def hilbert_places(coordinates: Sequence[Floats] | Floats) -> NDArray[np.uint16]:
    """Return where points stand on a Hilbert curve: points near each other on it are alike.

    Each coordinate is cut into 8 intervals, equal ones of x / sqrt(1 + x^2). A draw by
    `pivotal_sample` in this order keeps every probability and is spread over the space, as the
    local pivotal method is (Grafström, Lundström & Schelin 2012).

    Parameters
    ----------
    coordinates : up to five (n,) arrays
        One for each direction; centred, the first with a spread of about one.

    Examples
    --------
    >>> hilbert_places([np.linspace(-2, 2, 6)]).tolist()
    [0, 0, 2, 5, 7, 7]
    """
    codes = np.zeros(len(coordinates[0]), dtype=np.uint16)
    for along in coordinates:
        cell = np.zeros(len(codes), dtype=np.uint8)
        for edge in HILBERT_EDGES:
            cell += (along > edge).view(np.uint8)
        codes <<= HILBERT_BITS
        codes |= cell
    return _hilbert_curve(len(coordinates))[codes]


@lru_cache(maxsize=8)
def _hilbert_curve(k: int) -> NDArray[np.uint16]:
    """Return the place of each cell of a cube on the curve, (8^k,): Skilling's (2004) transform.

    The number of a cell has the bits of its first coordinate, then those of the second, and so on.
    """
    shifts = HILBERT_BITS * np.arange(k - 1, -1, -1)
    side = 1 << HILBERT_BITS
    axes = (np.arange(side**k) >> shifts[:, None]) & (side - 1)
    bits = range(HILBERT_BITS - 1, 0, -1)
    for bit in bits:
        low = (1 << bit) - 1
        for axis in axes:
            mask = -((axis >> bit) & 1) & low  # lower bits, where it is set
            swap = (axes[0] ^ axis) & (mask ^ low)
            axes[0] ^= mask ^ swap
            axis ^= swap
    for i in range(1, k):
        axes[i] ^= axes[i - 1]
    flip = np.zeros_like(axes[0])
    for bit in bits:
        flip ^= -((axes[k - 1] >> bit) & 1) & ((1 << bit) - 1)
    axes ^= flip
    places = np.zeros_like(axes[0])
    for bit in range(HILBERT_BITS - 1, -1, -1):  # from the highest bits, of all axes, to the lowest
        for axis in axes:
            places = (places << 1) | ((axis >> bit) & 1)
    found: NDArray[np.uint16] = places.astype(np.uint16)
    return found


def sort_line(
    line: NDArray[np.int64], strata: NDArray[np.int64] | None, places: NDArray[np.uint16] | None
) -> NDArray[np.int64]:
    """Return rows in the order of their strata, and inside these of their places."""
    if places is not None:
        line = line[np.argsort(places[line], kind="stable")]  # 16 bits are sorted in linear time
    if strata is not None and strata.any():
        short = strata.astype(np.min_scalar_type(strata.max(initial=0)))  # these sort fast
        line = line[np.argsort(short[line], kind="stable")]
    return line


def draw_cells(
    tasks: NDArray[np.int64] | None, strata: NDArray[np.int64] | None
) -> NDArray[np.int64] | None:
    """Return what a draw keeps apart, if anything, given numbers of tasks and classes, and strata.

    Rows of a cell compete with each other first, then with those of the next cell; so strata come
    first.
    """
    if tasks is None or strata is None:
        return strata if tasks is None else tasks
    return combine_codes(strata, tasks)


def combine_codes(a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each pair of codes, ordered by the first, then the second."""
    return code_values(a * (int(b.max(initial=0)) + 1) + b)


def code_values(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each value among the distinct ones, in their order."""
    if len(values) and values.dtype.kind in "iu" and np.can_cast(values.dtype, np.int64):
        least, most = int(values.min()), int(values.max())
        if most - least < 4 * len(values):  # a table of all possible values, instead of sorting
            at = values.astype(np.int64) - least
            there = np.zeros(most - least + 1, dtype=np.int64)
            there[at] = 1
            return np.asarray((np.cumsum(there) - 1)[at])
    if len(values) and values.dtype.kind == "U" and values.ndim == 1:
        letters = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), -1).T
        return reduce(combine_codes, map(code_values, letters))  # faster than to compare strings
    codes: NDArray[np.int64] = np.unique(values, return_inverse=True)[1]
    return codes


def rows_of_codes(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a row of each code, in the order of the codes, which have no gaps."""
    rows = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
    rows[codes] = np.arange(len(codes))
    return rows


def principal_directions(
    gram: NDArray[np.float64], total: NDArray[np.float64] | None, weight: float, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return directions P, (d, count), and the mean of x P, of rows with this Gram matrix.

    They are about the leading eigenvectors of the correlation matrix, by subspace iteration, for
    columns scaled to a variance of 1; all are divided by the spread along the first, so that the
    largest variance of (x - mean) P is 1. Later columns count very slightly more, and signs are
    fixed: indicators of equally frequent values have equal eigenvalues, whose eigenvectors would be
    a matter of rounding.
    """
    d = len(gram)
    count = min(count, d)
    mean = np.zeros(d) if total is None else total / weight
    square = gram.diagonal() / weight
    variance = np.maximum(square - mean**2, 0)
    is_live = variance > 1e-12 * np.maximum(square, 1e-300)
    scale = np.where(is_live, 1 / np.sqrt(np.where(is_live, variance, 1)), 0)
    scale *= np.linspace(1, 1.0001, d)
    rng = np.random.default_rng(0)

    def correlate(some: Floats) -> Floats:  # the matrix itself would cost more than its products
        scaled = scale[:, None] * some
        centred: Floats = gram @ scaled / weight - mean[:, None] * (mean @ scaled)
        return scale[:, None] * centred

    basis = np.eye(d)
    if d > count + 4:
        basis = rng.standard_normal((d, count + 4))
        for _ in range(SUBSPACE_ROUNDS):
            basis = correlate(basis)
        basis = np.linalg.qr(basis)[0]
    values, turn = np.linalg.eigh(basis.T @ correlate(basis))
    leading = (basis @ turn)[:, ::-1][:, :count]
    leading[:, values[::-1][:count] <= 1e-9 * values[-1]] = 0  # where rows differ by rounding alone
    leading *= np.where(rng.standard_normal(d) @ leading < 0, -1, 1)
    directions = scale[:, None] * leading / np.sqrt(max(float(values[-1]), 1e-300))
    return directions, mean @ directions


def _weights(weights: ArrayLike) -> NDArray[np.float64]:
    w = _vector("weights", weights)
    if not w.any():
        raise InputError("weights are all zero; give equal weights for a uniform sample.")
    return w


def _vector(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return non-negative finite numbers in one dimension, as float64."""
    array = to_numpy(dense_array(values, name))
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be real numbers, found dtype {array.dtype}.")
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} must be a non-empty vector, found shape {array.shape}.")
    vector = array.astype(np.float64, copy=False)
    low, high = vector.min(), vector.max()  # a NaN anywhere makes both NaN
    if not (low >= 0 and high < np.inf):
        bad = np.flatnonzero(~((vector >= 0) & (vector < np.inf)))
        raise InputError(
            f"{name} must be finite and not negative, found {vector[bad[0]]} at row {bad[0]} "
            f"({bad.size} such of {vector.size}); replace or drop those rows."
        )
    return vector


def _check_generator(rng: np.random.Generator) -> None:
    if not isinstance(rng, np.random.Generator):
        raise InputError(
            f"rng must be a numpy Generator, found {rng!r}; make one with "
            "numpy.random.default_rng(seed)."
        )
