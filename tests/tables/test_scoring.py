"""Tables scored block by block, against the same rows put together and scored by themselves."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from olss.core.gram import sum_products
from olss.core.leverage import Projected
from olss.errors import DataError
from olss.memory.moments import SeenMoments
from olss.tables import scoring
from olss.tables.encoder import TableEncoder, fit_encoder

ROWS = 3_000


def mixed(dtype: type, texts: tuple[int, ...] = (3,)) -> pa.Table:
    """Return five numbers, and texts of so many values."""
    rng = np.random.default_rng(0)
    values = {f"x{j}": rng.standard_normal(ROWS).astype(dtype) for j in range(5)}
    words = {
        f"text of {k}": rng.choice([f"value {i}" for i in range(k)], ROWS).tolist() for k in texts
    }
    return pa.table(values | words)


MANY = (30, 4, 200)  # so many indicators that products with them are look-ups


def is_split(plan: TableEncoder, table: pa.Table) -> bool:
    encoded = plan.encode(scoring.one_batch(table))
    return scoring.SplitRows.of(plan, encoded, table.num_rows) is not None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("texts", [(3,), MANY])
def test_scores_are_those_of_the_rows_put_together(
    dtype: type, projected: bool, texts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "STEP", 256)  # several blocks, the last one shorter
    monkeypatch.setattr(scoring, "SPLIT_BYTES", 24_000)
    table = mixed(dtype, texts)
    plan = fit_encoder(table)
    assert is_split(plan, table) == (texts == MANY)
    rows = scoring.matrix(plan, table)
    factor = SeenMoments().update(scoring.TableRows(plan, table)).factor()
    scorer = Projected.of(factor, np.random.default_rng(1)) if projected else factor
    scores = scoring.TableRows(plan, table).leverage_and_products(scorer, None)[0]
    expected = np.sum((rows.astype(np.float64) @ scorer.right) ** 2, axis=1)
    # float32 rounds a sum of ten products to about 1e-6 of it.
    assert np.allclose(scores, expected, rtol=1e-5)
    assert np.allclose(scores, scorer(rows), rtol=1e-5)
    assert projected or np.isclose(scores.sum(), factor.dimension, rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("numbers", [0, 2])
def test_sums_by_look_ups_are_those_of_products(
    weighted: bool, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "SPLIT_BYTES", 24_000)  # several parts, the last one shorter
    table = mixed(np.float64, MANY)
    table = table.set_column(0, "x0", pc.if_else(pc.greater(table["x0"], 1.0), None, table["x0"]))
    rng = np.random.default_rng(1)
    plan, w = fit_encoder(table), rng.uniform(0.5, 2, ROWS) if weighted else None
    beside = rng.standard_normal((ROWS, numbers)) if numbers else None
    rows = scoring.TableRows(plan, table, w)
    assert is_split(plan, table)
    found, cross = sum_products(rows, np.dtype(np.float64), beside)
    Z = scoring.matrix(plan, table)
    wZ = Z if w is None else Z * w[:, None]
    assert np.array_equal(found, found.T)
    assert np.allclose(found, Z.T @ wZ, rtol=1e-12, atol=1e-9)
    assert np.allclose(cross, wZ.T @ (np.zeros((ROWS, 0)) if beside is None else beside))
    if w is None:  # counts are integers
        indicators = np.flatnonzero(plan.is_indicator)
        counts = found[np.ix_(indicators, indicators)]
        assert np.array_equal(counts, counts.round())


def test_nearly_dependent_numbers_are_multiplied_out() -> None:
    """A sum of products would lose the digits of the small difference of two columns."""
    rng = np.random.default_rng(1)
    table = mixed(np.float64, MANY)
    near = np.asarray(table["x0"]) + 1e-8 * rng.standard_normal(ROWS)
    table = table.append_column("near", pa.array(near))
    plan = fit_encoder(table)
    assert is_split(plan, table)
    factor = SeenMoments().update(scoring.TableRows(plan, table)).factor()
    scores, _ = scoring.TableRows(plan, table).leverage_and_products(factor, None)
    U = np.linalg.svd(scoring.matrix(plan, table), full_matrices=False)[0]
    U = U[:, : round(factor.dimension)]
    assert np.allclose(scores, (U**2).sum(axis=1), rtol=1e-3)


@pytest.mark.parametrize("texts", [(3,), MANY])
def test_nan_is_a_gap_and_an_infinite_value_is_named(texts: tuple[int, ...]) -> None:
    table = mixed(np.float64, texts)
    plan = fit_encoder(table)
    factor = SeenMoments().update(scoring.TableRows(plan, table)).factor()
    x = table["x1"].to_numpy().copy()
    x[7] = np.nan
    with_gap = table.set_column(1, "x1", pa.array(x))
    scores = scoring.TableRows(plan, with_gap).leverage_and_products(factor, None)[0]
    assert np.allclose(scores, factor(scoring.matrix(plan, with_gap)), rtol=1e-9)
    x[11] = np.inf
    infinite = table.set_column(1, "x1", pa.array(x))
    rows = scoring.TableRows(plan, infinite, None, "today", 100)
    with pytest.raises(DataError, match=r"today: column 'x1' holds an infinite value in row 111"):
        rows.leverage_and_products(factor, None)
