"""Columns written together are those written one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from olss.tables.number_block import NumberBlock
from olss.tables.plan import plan_columns
from olss.tables.scoring import blocks

ROWS = 1_000


def columns_of(names, dtype, rng):
    return {name: pa.array((5 + rng.standard_normal(ROWS)).astype(dtype)) for name in names}


def table(rng):
    floats = columns_of("abc", np.float32, rng)
    mixed = {"n": pa.array(np.arange(ROWS)), "kind": pa.array(["x", "y"] * (ROWS // 2))}
    return pa.table(floats | mixed | columns_of("de", np.float64, rng))


def numbers(plan, batch, careful, dtype):
    parts = [Z.copy() for _, Z in blocks(plan, batch, careful=careful, dtype=np.dtype(dtype))]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gaps", [False, True])
def test_they_are_what_they_are_one_by_one(dtype, gaps):
    rng = np.random.default_rng(0)
    plan = plan_columns(table(rng))
    new = table(rng)
    if gaps:  # where the sample had none
        new = new.set_column(1, "b", pa.array([*range(9), None, *range(ROWS - 10)], pa.float32()))
    batch = new.combine_chunks().to_batches()[0].slice(3, 500)
    together = [isinstance(column, NumberBlock) for column, _ in plan.encode(batch)]
    assert sum(together) == (1 if gaps else 2)
    # One by one is how it is done with care.
    np.testing.assert_array_equal(
        numbers(plan, batch, False, dtype), numbers(plan, batch, True, dtype)
    )


def test_a_gap_is_the_median_wherever_it_is():
    rng = np.random.default_rng(0)
    plan = plan_columns(table(rng).select(["a", "b", "c"]))
    new = pa.table(columns_of("abc", np.float32, rng))
    holes = np.where(np.arange(ROWS) % 7, new.column("b").to_numpy(), np.nan)
    new = new.set_column(1, "b", pa.array(holes.astype(np.float32)))
    found = numbers(plan, new.to_batches()[0], True, "float32")
    assert (found[1, ::7] == 0).all()
    assert np.isfinite(found).all()
