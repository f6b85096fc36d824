"""The hold-out: rows set aside for judging models, to which none is ever fitted.

A row's side is decided by a hash of its contents, or of its group, and by nothing else. So it is
the same in every update, file, run and machine, and rows that are alike are on one side. With
`Config.holdout` = s, rows whose key is below s 2^63 are held out. Each side is then sampled by
itself (`olss.memory.engine.step`): the rows to train on by the policy, the hold-out uniformly or,
if there are strata, by them.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.core.blocks import Blocks, is_arrow, to_numpy
from olss.core.estimation import DAMPING, LEAST_FACTOR
from olss.core.sampling import code_values, combine_codes
from olss.errors import InputError
from olss.memory.config import Config
from olss.memory.policies import Reservoir
from olss.memory.rows import Floats, Indices, RowStore
from olss.memory.state import State
from olss.memory.strata import rows_column, scale_counts
from olss.tables.schema import arrow_array, numpy_array, value_type

Hashes = NDArray[np.uint64]

KEYS = 2**63  # keys are integers from 0 on, below this
MISSING = np.uint64(0x9E3779B97F4A7C15)  # of an array; in a table a missing value adds nothing


def with_keys(config: Config, rows: RowStore) -> RowStore:
    """Return rows with the column "key", by which their side is known."""
    if config.holdout is None:
        return rows
    keys = _hash_rows(rows["X"])
    if config.group is not None:
        groups = _hash_groups(rows_column(rows, "group")(config.group), config.group)
        keys = np.where(groups == 0, keys, groups)  # no group: a row by itself
    return rows.with_columns({"key": (_mix(keys + MISSING) >> np.uint64(1)).astype(np.int64)})


def is_held_out(config: Config, rows: RowStore) -> NDArray[np.bool_]:
    """Return which rows are held out."""
    if config.holdout is None or "key" not in rows:
        return np.zeros(len(rows), dtype=bool)
    out: NDArray[np.bool_] = rows["key"] < int(config.holdout * KEYS)
    return out


def training_rows(config: Config, rows: RowStore) -> RowStore:
    """Return the rows that are not held out; of a sketch without a hold-out, the store itself."""
    return rows if config.holdout is None else _take_side(config, rows, held_out=False)


def take_side(config: Config, state: State, *, held_out: bool) -> State:
    """Return the state with the rows of one side only."""
    if config.holdout is None:
        return state
    return state.replace(rows=_take_side(config, state.rows, held_out=held_out))


def sides(
    config: Config, state: State, new: RowStore, size: int
) -> list[tuple[Config, State, RowStore, int]]:
    """Return what a draw needs for each side: settings, held rows, new rows, and how many to keep.

    The hold-out has its share of the size, and what it does not fill is left to the other rows.
    """
    assert config.holdout is not None
    rows, rows_out = (take_side(config, state, held_out=out) for out in (False, True))
    new_out = _take_side(config, new, held_out=True)
    room = min(holdout_size(config, size), len(rows_out.rows) + len(new_out))
    train = replace(config, holdout=None)
    return [
        (train, _scale_strata(rows, 1 - config.holdout), training_rows(config, new), size - room),
        (judge_config(config), _scale_strata(rows_out, config.holdout), new_out, room),
    ]


def judge_config(config: Config) -> Config:
    """Return the settings by which the hold-out is drawn from its side of the stream."""
    return replace(config, policy=Reservoir(), scores="auto", holdout=None)


def holdout_size(config: Config, size: int) -> int:
    """Return how many of `size` rows are for the hold-out: one at least, and not all."""
    assert config.holdout is not None
    return min(max(round(config.holdout * size), 1), size - 1)


def replicate_factors(
    config: Config, rows: RowStore, pi: Floats, drawn: Floats, rng: np.random.Generator
) -> Floats:
    """Return (n, R) factors by which weights of the hold-out vary if it were chosen anew.

    Two things are random: which keys are below the share (all rows of a key are in or out), and
    which rows of these were drawn, with probability pi; for the latter, `drawn` has the factors
    1 + a_ir / 2. With share s and independent signs e_k of the keys, the factors are

        1 + (sqrt((1 - s) pi_i) e_k + a_ir) / 2            for a key with one row here,
        1 + (sqrt(1 - s) e_k + sqrt(s) a_ir) / 2           for one with several.

    The former has the variance (1 - s) pi w^2 + V, V being that of the draw; the sum of squares
    over whole keys, the latter, has a share 1 - s of V in it already. As in
    `olss.core.estimation.replicate_weights`, factors are halved to stay positive.
    """
    assert config.holdout is not None
    _, key, count = np.unique(rows["key"], return_inverse=True, return_counts=True)
    several = (count > 1)[key][:, None]
    signs = rng.integers(0, 2, (len(count), drawn.shape[1]))[key] * 2.0 - 1
    centred = len(count) / max(len(count) - 1, 1)  # scores vary about their own mean
    spread = np.sqrt((1 - config.holdout) * centred) * signs / DAMPING
    single = np.sqrt(pi)[:, None] * spread + drawn - 1
    several_rows = spread + np.sqrt(config.holdout) * (drawn - 1)
    factors: Floats = 1 + np.where(several, several_rows, single)
    return np.maximum(factors, LEAST_FACTOR)


def side_cells(config: Config, rows: RowStore, cells: Indices | None) -> Indices | None:
    """Return what the draws kept apart, the sides among it."""
    if config.holdout is None:
        return cells
    side = is_held_out(config, rows).astype(np.int64)
    return side if cells is None else code_values(combine_codes(side, cells))


def _scale_strata(state: State, share: float) -> State:
    """Return the state with the counts of strata that are expected on a side with this share."""
    counts = scale_counts(state.strata.counts, share)
    return state.replace(strata=replace(state.strata, counts=counts))


def _take_side(config: Config, rows: RowStore, *, held_out: bool) -> RowStore:
    if not len(rows):
        return rows
    return rows.take(np.flatnonzero(is_held_out(config, rows) == held_out))


def _hash_rows(X: Any) -> Hashes:
    """Return a hash of the contents of each row, which does not depend on how they are stored.

    Numbers are equal in any dtype, columns of a table may come in any order, and one without a
    value, or a zero, is as good as none.
    """
    if is_arrow(X):
        total = np.zeros(X.num_rows, dtype=np.uint64)
        for name in X.schema.names:
            total += _mix(_hash_values(X.column(name)) * _factor(name.encode()))
        return total
    blocks = Blocks(X, name="X")
    total = np.zeros(blocks.rows, dtype=np.uint64)
    factors = _mix(np.arange(1, blocks.columns + 1, dtype=np.uint64)) | np.uint64(1)
    for part, block in blocks.read(np.dtype(np.float64)):
        if hasattr(block, "indptr"):
            each = np.append(_mix(_bits(block.data) * factors[block.indices]), np.uint64(0))
            sums = np.add.reduceat(each, block.indptr[:-1])
            total[part] = np.where(np.diff(block.indptr) > 0, sums, np.uint64(0))
        else:
            total[part] = _mix(_bits(to_numpy(block)) * factors).sum(axis=1, dtype=np.uint64)
    return total


def _hash_groups(column: Any, name: str) -> Hashes:
    """Return a hash of each value of the column of groups, 0 where it is missing."""
    if not hasattr(column, "type"):
        values = to_numpy(column)
        if values.ndim != 1:
            raise InputError(
                f"group: column {name!r} must hold one value a row, found shape {values.shape}."
            )
        column = arrow_array(values)
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    if kinds.is_nested(column.type):
        raise InputError(f"group: column {name!r} must hold one value a row, found {column.type}.")
    found = _hash_values(column)
    found = _mix(found + np.uint64(1)) | np.uint64(1)
    missing = np.asarray(pc.is_null(column, nan_is_null=True), dtype=bool)
    return np.where(missing, np.uint64(0), found).astype(np.uint64)


def _hash_values(column: Any) -> Hashes:
    """Return 64 bits for each value of an Arrow column, 0 where it is missing."""
    import pyarrow as pa
    import pyarrow.types as kinds

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = value_type(column.type)
    if kinds.is_dictionary(column.type):
        codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return _take_hashes(_hash_values(column.dictionary), codes)
    if kinds.is_date(kind) or kinds.is_timestamp(kind):
        zone = kind.tz if kinds.is_timestamp(kind) else None
        column = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
    if kinds.is_boolean(kind):
        column = column.cast(pa.uint8())
    if kinds.is_integer(column.type) or kinds.is_floating(column.type):
        numbers = numpy_array(column)
        return np.where(numbers == numbers, _bits(numbers), np.uint64(0)).astype(np.uint64)
    if not kinds.is_nested(kind):
        coded = column.dictionary_encode()
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        column = coded.dictionary
    else:
        codes = np.arange(len(column))
    found = [0 if value is None else _digest(_to_bytes(value)) for value in column.to_pylist()]
    return _take_hashes(np.array(found, dtype=np.uint64), codes)


def _take_hashes(hashes: Hashes, codes: Indices) -> Hashes:
    """Return the hash of each code, 0 for -1."""
    found: Hashes = np.append(hashes, np.uint64(0))[codes]
    return found


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else repr(value)).encode()


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _factor(name: bytes) -> np.uint64:
    return np.uint64(_digest(name) | 1)


def _bits(numbers: NDArray[Any]) -> Hashes:
    """Return the bits of numbers as floats; -0 is 0, and one NaN is like another."""
    floats = np.asarray(numbers, dtype=np.float64) + 0.0
    return np.where(floats == floats, floats.view(np.uint64), MISSING)


def _mix(values: Hashes) -> Hashes:
    """Return 64-bit integers scrambled one to one, 0 as 0 (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
