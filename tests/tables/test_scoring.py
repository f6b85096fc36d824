"""Tables scored block by block, against the same rows put together and scored by themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from olss.core.leverage import Projected
from olss.errors import DataError
from olss.memory.moments import SeenMoments
from olss.tables import scoring
from olss.tables.encoder import fit_encoder

ROWS = 3_000


def mixed(dtype: type) -> pa.Table:
    rng = np.random.default_rng(0)
    values = {f"x{j}": rng.standard_normal(ROWS).astype(dtype) for j in range(5)}
    return pa.table(values | {"kind": rng.choice(["a", "b", "c"], ROWS)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("projected", [False, True])
def test_scores_are_those_of_the_rows_put_together(
    dtype: type, projected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "STEP", 256)  # several blocks, the last one shorter
    table = mixed(dtype)
    plan = fit_encoder(table)
    rows = scoring.matrix(plan, table)
    factor = SeenMoments().update(scoring.TableRows(plan, table)).factor()
    scorer = Projected.of(factor, np.random.default_rng(1)) if projected else factor
    scores = scoring.leverage_and_products(plan, table, scorer, None)[0]
    expected = np.sum((rows.astype(np.float64) @ scorer.right) ** 2, axis=1)
    # float32 rounds a sum of ten products to about 1e-6 of it.
    assert np.allclose(scores, expected, rtol=1e-5)
    assert np.allclose(scores, scorer(rows), rtol=1e-5)
    assert projected or np.isclose(scores.sum(), factor.dimension, rtol=1e-5)


def test_nan_is_a_gap_and_an_infinite_value_is_named() -> None:
    table = mixed(np.float64)
    plan = fit_encoder(table)
    factor = SeenMoments().update(scoring.TableRows(plan, table)).factor()
    x = table["x1"].to_numpy().copy()
    x[7] = np.nan
    with_gap = table.set_column(1, "x1", pa.array(x))
    scores = scoring.leverage_and_products(plan, with_gap, factor, None)[0]
    assert np.allclose(scores, factor(scoring.matrix(plan, with_gap)), rtol=1e-9)
    x[11] = np.inf
    infinite = table.set_column(1, "x1", pa.array(x))
    with pytest.raises(DataError, match=r"today: column 'x1' holds an infinite value in row 111"):
        scoring.leverage_and_products(plan, infinite, factor, None, "today", 100)
