"""Read any table of numbers as blocks of float rows, and multiply blocks by small matrices.

The rest of the core sees `Blocks`: rows and columns, read a block at a time as float32 or float64.
What is behind it (an array, a memory map, a tensor on any device, sparse rows), and the rows' own
shape and dtype, stay here. Nothing is copied as a whole.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
from array_api_compat import (
    array_namespace,
    is_array_api_obj,
    is_cupy_array,
    is_numpy_array,
    is_torch_array,
    to_device,
)
from array_api_compat import device as device_of
from numpy.typing import NDArray

from olss.errors import DataError, InputError, OlssWarning
from olss.util import sparse as sp
from olss.util.threads import ordered_map

Floats = NDArray[np.float64]
R = TypeVar("R")
# Slices of rows, and what yields products of each of those it is given.
Products: TypeAlias = tuple[
    list[slice], Callable[[Iterator[slice]], Iterator[tuple[Floats, Floats | None]]]
]

# Large enough for BLAS to run at full speed, small enough for memory not to matter.
BLOCK_BYTES = 24_000_000
PIECE_BYTES = 8_000_000  # the same for one of several threads


def to_numpy(array: Any) -> NDArray[Any]:
    """Return an array of any library as NumPy, without a copy where possible.

    Torch's bfloat16, which NumPy lacks, becomes float32.
    """
    if is_torch_array(array):
        if str(array.dtype) == "torch.bfloat16":
            array = array.float()
        return np.asarray(array.detach().cpu())
    if is_cupy_array(array):
        return np.asarray(to_device(array, "cpu"))
    return np.asarray(array)


def is_arrow(column: object) -> bool:
    """Return whether a column is an Arrow table, without importing pyarrow."""
    return type(column).__module__.startswith("pyarrow")


def is_sparse(array: object) -> bool:
    """Return whether an array is one of SciPy's sparse ones, without importing them."""
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and bool(loaded.issparse(array))


def is_masked(array: object) -> bool:
    """Return whether an array is one of NumPy's masked ones, without importing them."""
    loaded = sys.modules.get("numpy.ma")
    return loaded is not None and bool(loaded.isMaskedArray(array))


def dense_array(values: Any, name: str) -> Any:
    """Return an array of its own library, or else NumPy's, or raise `DataError`.

    Examples
    --------
    >>> dense_array([[1, 2], [3]], "X")
    Traceback (most recent call last):
    olss.errors.DataError: X must be an array, found rows of different lengths or kinds.
    """
    kind = type(values).__name__
    if hasattr(values, "toarray") or str(getattr(values, "layout", "")).startswith("torch.sparse"):
        raise DataError(f"{name} must be dense, found a sparse {kind}; make it dense first.")
    if str(getattr(values, "device", "")) == "meta":
        raise DataError(f"{name} must hold numbers, found a tensor on the meta device.")
    if is_masked(values):
        if np.ma.getmaskarray(values).any():
            raise DataError(f"{name} has masked values; fill or drop them first.")
        return np.ma.getdata(values)
    if is_array_api_obj(values):
        return values
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        ragged = isinstance(values, list | tuple)
        found = "rows of different lengths or kinds" if ragged else f"a {kind} ({error})"
        raise DataError(f"{name} must be an array, found {found}.") from error


class Blocks:
    """The rows of `source`, flattened, one block of floats at a time.

    Parameters
    ----------
    source : array-like of shape (n, ...), or SciPy sparse matrix of shape (n, d)
        NumPy array, memory map, torch tensor, any other array-API array, or anything
        `numpy.asarray` takes.
    weights : array-like of shape (n,), optional
        Row weights, finite and not negative.
    name : str
        The name of `source` in error messages.
    """

    # Columns that depend on the others in every row, however these were made.
    dependent = 0

    def __init__(self, source: Any, weights: Any = None, *, name: str = "A") -> None:
        self.name = name
        self.sparse = is_sparse(source)
        source = source.tocsr() if self.sparse else dense_array(source, name)
        self.source = source
        # A tensor on another device is processed there.
        self.remote = not (self.sparse or _on_host(source))
        _check_shape(source, name)
        self.rows = int(source.shape[0])
        self.columns = int(np.prod(source.shape[1:]))
        self.dtype: np.dtype[Any] = np.dtype(_work_dtype(source, name))
        self.weights = None if weights is None else check_weights(weights, self.rows)
        # Whether rows are read from a NumPy array as they are, but for the scale.
        self.plain = isinstance(source, np.ndarray)
        # Factors of the columns, for values too large or too small to be squared.
        self.scale: NDArray[np.float64] | None = None
        # Of rows that stand for others (see `from_gram_rows`): rounding, relative to column norms.
        self.noise: float | None = None

    @classmethod
    def from_gram_rows(cls, rows: NDArray[np.float64], noise: float) -> Blocks:
        """Return rows B that stand for all rows seen, B'B being their Gram matrix.

        An entry of theirs is known to `noise` times the norm of its *column* only: a small row of
        B tells nothing of which columns depend on each other, unlike a small row of the input.
        """
        blocks = cls(rows)
        blocks.noise = noise
        return blocks

    @property
    def integers(self) -> bool:
        """Whether the rows hold integers."""
        return "int" in str(self.source.dtype)

    @property
    def single(self) -> bool:
        """Whether products may be formed in float32, if a check finds that harmless."""
        return self.dtype == np.float32

    def read(
        self, dtype: np.dtype[Any], parts: Iterable[slice] | None = None
    ) -> Iterator[tuple[slice, Any]]:
        """Yield (slice of rows, block): C-ordered NumPy, CSR or on-device, of `dtype`.

        A block may be a view and is overwritten by the next: do not write to it or keep it.
        `parts` are some of `pieces`; default: all rows, in large blocks.
        """
        plain = self.plain and self.scale is None
        if plain and (self.source.dtype != dtype or not self.source.flags.c_contiguous):
            yield from self.read_copies(dtype, parts)  # one buffer is enough
            return
        for part in self._parts(dtype) if parts is None else parts:
            if plain:
                yield part, np.asarray(self.source[part]).reshape(-1, self.columns)
            else:
                yield part, self._block(part, dtype)

    def read_copies(
        self, dtype: np.dtype[Any], parts: Iterable[slice] | None = None, *, more: int = 0
    ) -> Iterator[tuple[slice, Any]]:
        """Yield (slice of rows, block): writable C-ordered NumPy, overwritten by the next.

        The block has `more` columns at the end, for the caller to fill. Conversion and copy are
        one step.
        """
        buffer = np.empty((0, self.columns + more), dtype=dtype)
        for part in self._parts(dtype) if parts is None else parts:
            rows = part.stop - part.start
            if len(buffer) < rows:
                buffer = np.empty((rows, self.columns + more), dtype=dtype)
            block = buffer[:rows]
            if self.plain and self.scale is None:  # assignment converts
                block[:, : self.columns] = self.source[part].reshape(rows, self.columns)
            else:
                block[:, : self.columns] = self._block(part, dtype)
            yield part, block

    def pieces(self, dtype: np.dtype[Any], size: int | None = None) -> list[slice]:
        """Return all rows as slices of similar size, for threads to read.

        They depend on the shape only. A slice has `size` bytes; by default so many rows that
        computing X'X takes longer than adding it up.
        """
        size = PIECE_BYTES if size is None else size
        most = max(64, self.columns // 4, size // (self.columns * dtype.itemsize))
        return self._cut(most)

    def products(self, beside: Any) -> Products | None:
        """Return parts, and a faster way to the products of each, where there is one.

        They are sum w x x' and sum w x v' for numbers v beside the rows; see `core.gram`.
        """
        return None

    def _cut(self, most: int) -> list[slice]:
        count = -(-self.rows // most)
        ends = [self.rows * k // count for k in range(count + 1)]
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def _parts(self, dtype: np.dtype[Any]) -> Iterator[slice]:
        step = max(64, BLOCK_BYTES // (self.columns * dtype.itemsize))
        for start in range(0, self.rows, step):
            yield slice(start, min(start + step, self.rows))

    def _block(self, part: slice, dtype: np.dtype[Any]) -> Any:
        if self.scale is None:
            return self._floats(self._slice(part), dtype)
        wide = self._floats(self._slice(part), np.dtype(np.float64))
        if self.sparse:
            return (wide @ sp.diags(self.scale)).astype(dtype).tocsr()
        return (to_numpy(wide) * self.scale).astype(dtype)

    def any_nonzero(self, columns: NDArray[np.intp]) -> bool:
        """Return whether any of these columns has a non-zero value."""
        if self.integers:  # their squares cannot underflow, and the caller found them zero
            return False
        for _, block in self.read(self.dtype):
            if self.remote and not isinstance(block, np.ndarray):
                xp = array_namespace(block)
                block = xp.take(block, xp.asarray(columns, device=device_of(block)), axis=1)
            else:
                block = block[:, columns]
            if block.nnz if self.sparse else to_numpy(block).any():
                return True
        return False

    def max_abs(self) -> NDArray[np.float64]:
        """Return the largest magnitude in each column."""
        top = np.zeros(self.columns)
        for _, block in self.read(np.dtype(np.float64)):
            size = abs(block if self.sparse else to_numpy(block)).max(axis=0)
            np.maximum(top, np.ravel(size.toarray() if self.sparse else size), out=top)
        return top

    def _slice(self, part: slice) -> Any:
        return self.source[part] if self.sparse else self.source[part, ...]

    def _floats(self, block: Any, dtype: np.dtype[Any]) -> Any:
        if self.sparse:
            return block.astype(dtype)
        xp = array_namespace(block)
        block = xp.reshape(block, (block.shape[0], self.columns))
        if self.remote:
            return xp.astype(block, getattr(xp, dtype.name))
        return np.ascontiguousarray(to_numpy(block), dtype=dtype)

    def like_source(self, scores: NDArray[Any]) -> Any:
        """Return `scores` as an array of the source's library, float family and device."""
        scores = scores.astype(self.dtype, copy=False)
        if self.sparse or is_numpy_array(self.source):
            return scores
        xp = array_namespace(self.source)
        return xp.asarray(scores, device=device_of(self.source))

    def has_finite_sum(self) -> bool:
        """Return whether the sum of all numbers is finite; if so, every number is."""
        total = 0.0

        def work(pieces: Iterator[slice]) -> Iterator[float]:
            for _, block in self.read(self.dtype, pieces):
                yield float(np.sum(block.data if self.sparse else to_numpy(block)))

        def add(some: float) -> None:
            nonlocal total
            total += some

        pieces = self.pieces(self.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            if len(pieces) > 1:
                ordered_map(pieces, work, add)
            else:  # starting threads would take longer than the sum
                total = sum(work(iter(pieces)))
        return bool(np.isfinite(total))

    def check_finite(self, *, allow_nan: bool = False) -> None:
        """Raise `DataError` naming row and column of the first infinity or, unless allowed, NaN."""
        for part, block in self.read(self.dtype):
            values = block.data if self.sparse else to_numpy(block)
            if np.isfinite(values).all() or (allow_nan and not np.isinf(values).any()):
                continue
            dense = block.toarray() if self.sparse else values
            row, column = np.argwhere(np.isinf(dense) if allow_nan else ~np.isfinite(dense))[0]
            what = "NaN" if np.isnan(dense[row, column]) else "an infinite value"
            at = np.unravel_index(column, tuple(self.source.shape[1:]))
            raise DataError(
                f"{self.name} must be finite, found {what} in row {part.start + row}, column "
                f"{', '.join(map(str, at))}. "
                + ("NaN counts as missing." if allow_nan else "Drop or fill such rows first.")
            )


def check_weights(weights: Any, rows: int) -> NDArray[np.float64]:
    """Return row weights as float64, or raise `InputError`."""
    w = to_numpy(weights)
    if w.dtype.kind not in "biuf" or w.shape != (rows,):
        raise InputError(
            f"weights must have one number per row, shape ({rows},), "
            f"found shape {w.shape} and dtype {w.dtype}."
        )
    w = w.astype(np.float64)
    if not np.isfinite(w).all() or (w < 0).any():
        bad = w[~(np.isfinite(w) & (w >= 0))][0]
        raise InputError(f"weights must be finite and not negative, found {bad}.")
    return w


def _on_host(source: Any) -> bool:
    return is_numpy_array(source) or (is_torch_array(source) and source.device.type == "cpu")


def _check_shape(source: Any, name: str) -> None:
    shape = tuple(source.shape)
    if len(shape) < 2:
        raise DataError(
            f"{name} must have one row per example, shape (n, ...) with two or more dimensions, "
            f"found shape {shape}. A single column is {name}.reshape(-1, 1), "
            f"a single row {name}.reshape(1, -1)."
        )
    if 0 in shape:
        raise DataError(f"{name} must hold at least one row and one column, found shape {shape}.")


def _work_dtype(source: Any, name: str) -> type:
    """Return float32 for dtypes that it holds well enough, else float64."""
    library: Any = type(source.dtype)
    found = _float_for(library, source.dtype)
    if found is None:
        raise DataError(
            f"{name} must hold real numbers, found dtype {source.dtype}. "
            "Encode text, categories, dates or complex values as numbers first."
        )
    return found


@cache  # the name of a dtype takes as long as a sum of a thousand numbers
def _float_for(library: type, dtype: Any) -> type | None:
    """Return the float type for numbers of this dtype, of any library; None if there is none.

    Dtypes of different libraries must not be compared, so their type comes first in the key.
    """
    name = str(dtype).rpartition(".")[2]
    if name in ("float32", "float16", "bfloat16", "uint8", "int8", "int16", "uint16", "bool"):
        return np.float32
    return np.float64 if name.startswith(("float", "int", "uint", "longdouble")) else None


WIDE_BYTES = 128_000_000  # of unprojected rows at a time


class _Narrow(Blocks):
    """Blocks of A S, with S a (d, k) matrix of one +1 or -1 per row."""

    def __init__(self, blocks: Blocks, S: sp.csr_array) -> None:
        super().__init__(blocks.source, blocks.weights, name=blocks.name)
        self._wide = blocks
        self._S = S
        self.columns = S.shape[1]
        self.sparse = self.remote = self.plain = False

    def pieces(self, dtype: np.dtype[Any], size: int | None = None) -> list[slice]:
        """Return all rows as slices whose unprojected float64 rows fit a thread."""
        return self._cut(int(np.clip(WIDE_BYTES // (8 * self._wide.columns), 64, 1024)))

    def _block(self, part: slice, dtype: np.dtype[Any]) -> Any:
        block = self._wide._block(part, np.dtype(np.float64))
        product = (block if is_sparse(block) else to_numpy(block)) @ self._S
        dense = product.toarray() if is_sparse(product) else product
        if self.scale is not None:
            dense = dense * self.scale
        return np.ascontiguousarray(dense, dtype=dtype)

    def check_finite(self, *, allow_nan: bool = False) -> None:
        """Raise `DataError` naming row and column before the projection."""
        self._wide.check_finite(allow_nan=allow_nan)


def project_columns(parts: list[Blocks], columns: int) -> list[Blocks]:
    """Hash the columns of all parts, with random signs, to `columns` many.

    The projection depends on the width alone, so that scores of different calls compare.
    """
    wide = parts[0].columns
    warnings.warn(
        f"rows of {wide:,} columns are scored on a random projection to {columns:,} columns, "
        "because a Gram matrix of that width would not fit; the rows are kept unchanged.",
        OlssWarning,
        stacklevel=5,
    )
    rng = np.random.default_rng(wide)
    bucket = rng.permutation(wide) % columns  # all of the same size
    sign = rng.choice([-1.0, 1.0], size=wide)
    S = sp.csr_array((sign, (np.arange(wide), bucket)), shape=(wide, columns))
    return [_Narrow(p, S) for p in parts]


def squared_norms(
    blocks: Blocks, dtype: np.dtype[Any], W: Floats, V: Floats
) -> tuple[Floats, Floats]:
    """Return ||x W||^2 of each row x, and sum w (x v)^2 over all rows for each column v of V."""
    scores = np.empty(blocks.rows)
    pieces = blocks.pieces(dtype)
    sums = np.zeros((len(pieces), V.shape[1]))
    number = {part.start: k for k, part in enumerate(pieces)}

    def use(part: slice, product: NDArray[Any], probes: NDArray[Any]) -> None:
        scores[part] = np.einsum("ij,ij->i", product, product)
        sums[number[part.start]] = sum_weighted_squares(probes, blocks, part)

    ordered_map(pieces, multiply_blocks(blocks, dtype, W, V, use))
    return scores, sums.sum(axis=0)


def sum_weighted_squares(probes: NDArray[Any], blocks: Blocks, part: slice) -> Floats:
    """Return sum w p^2 of each column of (rows, k) numbers p, w the weights of these rows."""
    wide = probes.astype(np.float64)
    w = wide if blocks.weights is None else wide * blocks.weights[part, None]
    sums: Floats = np.einsum("ij,ij->j", w, wide)
    return sums


def multiply_blocks(
    blocks: Blocks,
    dtype: np.dtype[Any],
    W: Floats,
    V: Floats | None,
    use: Callable[[slice, NDArray[Any], NDArray[Any]], R],
) -> Callable[[Iterable[slice]], Iterator[R]]:
    """Return a generator of use(slice, X W, X V) for pieces X.

    W is upper triangular, V a few columns. The arrays are overwritten by the next piece. In host
    memory, V is appended to the triangular product as further columns at hardly any cost.
    """
    d = len(W)
    V = np.zeros((d, 0)) if V is None else V
    more = V.shape[1]
    U = np.zeros((d + more, d + more), dtype=dtype)
    U[:d] = np.hstack([W, V])

    def elsewhere(pieces: Iterable[slice]) -> Iterator[R]:
        for part, block in blocks.read(dtype, pieces):
            product = to_numpy(matmul(block, U[:d]))
            yield use(part, product[:, :d], product[:, d:])

    def here(pieces: Iterable[slice]) -> Iterator[R]:
        for part, block in blocks.read_copies(dtype, pieces, more=more):
            block[:, d:] = 0
            multiply_triangular(block, U)
            yield use(part, block[:, :d], block[:, d:])

    return elsewhere if blocks.sparse or blocks.remote else here


def matmul(block: Any, right: NDArray[Any]) -> Any:
    """Return block @ right, computed on the block's device."""
    if is_sparse(block) or isinstance(block, np.ndarray):
        return block @ right
    xp = array_namespace(block)
    return block @ xp.asarray(right, dtype=block.dtype, device=device_of(block))


def multiply_triangular(X: NDArray[Any], U: NDArray[Any]) -> None:
    """Replace X by X U.

    SciPy's wrappers of BLAS hold Python's lock while they multiply, and NumPy has no triangular
    product. So BLAS is called through `ctypes`, which releases the lock, at the address that SciPy
    exports for compiled code.

    Parameters
    ----------
    X : (n, d) array, C-ordered, float32 or float64
    U : (d, d) array, C-ordered, of the same dtype, upper triangular
    """
    n, d = X.shape
    for name, array, shape in (("X", X, (n, d)), ("U", U, (d, d))):
        if not array.flags.c_contiguous or array.dtype != X.dtype or array.shape != shape:
            raise ValueError(f"{name}: {array.dtype} of shape {array.shape} is not supported")
    number = ctypes.c_float if X.dtype == np.float32 else ctypes.c_double
    rows, columns, one = ctypes.c_int(n), ctypes.c_int(d), number(1.0)
    # BLAS is column-major: it sees X' and U', which is lower triangular, X' <- U' X'.
    _trmm(X.dtype.char)(
        *(b"L", b"L", b"N", b"N", ctypes.byref(columns), ctypes.byref(rows)),
        *(ctypes.byref(one), U.ctypes.data, ctypes.byref(columns)),
        *(X.ctypes.data, ctypes.byref(columns)),
    )


@cache
def _trmm(kind: str) -> Callable[..., None]:
    """Return BLAS's strmm for "f" and dtrmm for "d", all of whose arguments are pointers."""
    from scipy.linalg import cython_blas

    python = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", python))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", python)
    )
    capsule = cython_blas.__pyx_capi__[{"f": "strmm", "d": "dtrmm"}[kind]]
    texts, pointers = [ctypes.c_char_p] * 4, [ctypes.c_void_p] * 7
    return ctypes.CFUNCTYPE(None, *texts, *pointers)(address_of(capsule, name_of(capsule)))
