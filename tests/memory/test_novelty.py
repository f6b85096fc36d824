from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import betabinom, kstest

from olss.errors import InputError
from olss.memory.novelty import NoveltyScorer, _beta_binomial_tail
from olss.sketch import Sketch


def rows(rng, n, d=8):
    return rng.standard_normal((n, d)) * np.geomspace(2, 0.5, d) + 1


def test_scores_are_those_of_the_rows_left_out():
    rng = np.random.default_rng(0)
    X, w = rows(rng, 40), rng.uniform(1, 5, 40)
    familiar = NoveltyScorer.fit(X, w)
    ridge = familiar.factor.ridge * np.eye(8)
    left_out = []
    for i, x in enumerate(X):
        others = np.arange(40) != i
        G = (X[others].T * w[others]) @ X[others] + ridge
        left_out.append(x @ np.linalg.solve(G, x))
    np.testing.assert_allclose(familiar.scores, np.sort(left_out), rtol=1e-9)


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_fresh_rows_of_the_same_kind_are_uniform(policy):
    values = []
    for seed in range(40):
        rng = np.random.default_rng([1, seed])
        sketch = Sketch(400, policy, seed=seed)
        for _ in range(4):
            sketch.update(rows(rng, 600))
        values.append(sketch.novelty(rows(rng, 50)))
    # Each sketch's quantiles are off by some 0.5/sqrt(400); 40 sketches average to 0.004, and
    # 2,000 rows to a Kolmogorov distance below 0.04 in 997 of 1,000 cases.
    assert kstest(np.concatenate(values), "uniform").statistic < 0.05
    tail = np.mean(np.concatenate(values) > 0.95)
    assert abs(tail - 0.05) < 4 * np.sqrt(0.05 * 0.95 * (1 / 2_000 + 1 / (40 * 300)))


@pytest.mark.parametrize("change", ["scale", "new direction", "rotation"])
def test_other_rows_are_novel(change):
    rng = np.random.default_rng(2)
    X, fresh = rows(rng, 4_000), rows(rng, 300)
    X[:, -1] = fresh[:, -1] = 0
    if change == "scale":
        fresh = 2 * fresh
    elif change == "new direction":
        fresh[:, -1] = 0.3
    else:
        fresh = fresh[:, ::-1]
    sketch = Sketch(500, seed=0).update(X)
    assert np.mean(sketch.novelty(fresh) > 0.95) > 0.5


def test_novelty_of_wide_rows_and_of_more_columns_than_rows():
    rng = np.random.default_rng(3)
    sketch = Sketch(200, "reservoir", seed=0).update(rng.standard_normal((400, 1_000)))
    same, other = rng.standard_normal((50, 1_000)), 1.2 * rng.standard_normal((50, 1_000))
    assert abs(np.median(sketch.novelty(same)) - 0.5) < 0.2
    assert np.median(sketch.novelty(other)) > 0.95


def test_novelty_can_be_asked_of_one_task_and_uses_features():
    rng = np.random.default_rng(4)
    sketch = Sketch(200, "reservoir", features=lambda X: X[:, :2], seed=0)
    sketch.update(rows(rng, 500), task=0).update(10 * rows(rng, 500), task=1)
    fresh = 10 * rows(rng, 100)
    assert np.median(sketch.novelty(fresh, task=0)) == 1
    assert abs(np.median(sketch.novelty(fresh, task=1)) - 0.5) < 0.25
    with pytest.raises(InputError, match="no row of task 7"):
        sketch.novelty(fresh, task=7)


def test_novelty_follows_updates_and_checks_rows():
    rng = np.random.default_rng(5)
    sketch = Sketch(100, "reservoir", window=100).update(rows(rng, 100))
    fresh = 20 * rows(rng, 100)
    assert np.mean(sketch.novelty(fresh)) > 0.9
    sketch.update(fresh)
    assert np.mean(sketch.novelty(fresh)) < 0.8
    with pytest.raises(InputError, match="rows of shape"):
        sketch.novelty(fresh[:, :3])
    with pytest.raises(InputError, match="NaN"):
        sketch.novelty(np.full((2, 8), np.nan))


def test_rows_of_zeros_are_nothing_to_be_surprised_by():
    sketch = Sketch(10).update(np.zeros((20, 3)))
    np.testing.assert_array_equal(sketch.novelty(np.zeros((2, 3))), 0)
    np.testing.assert_array_equal(sketch.novelty(np.ones((2, 3))), 1)


def test_a_stream_without_boundaries_is_cut_where_it_changes():
    rng = np.random.default_rng(6)
    sketch = Sketch(600, "weighted", seed=0)
    found = []
    for _ in range(4):
        rotation = np.linalg.qr(rng.standard_normal((8, 8)))[0]
        for _ in range(10):
            X = (rng.standard_normal((100, 8)) * np.geomspace(3, 0.1, 8)) @ rotation
            sketch.update(X, task="auto")
            found.append(sketch._state.task)
    assert found == [regime for regime in range(4) for _ in range(10)]


def test_false_alarms_are_as_rare_as_stated():
    # 300 updates without a change at one in a thousand: 4 or more have a chance of 3e-4.
    alarms = 0
    for seed in range(10):
        rng = np.random.default_rng([7, seed])
        sketch = Sketch(200, "weighted", seed=seed)
        for _ in range(30):
            sketch.update(rows(rng, 40), task="auto")
        alarms += sketch._state.task
    assert alarms < 4


@pytest.mark.parametrize(("n", "a", "b"), [(1, 1.0, 30.0), (40, 2.5, 48.5), (5_000, 15.0, 290.0)])
def test_the_law_of_the_number_of_novel_rows(n, a, b):
    for least in (0, 1, n // 10, n // 2, n):
        np.testing.assert_allclose(
            _beta_binomial_tail(least, n, a, b), betabinom.sf(least - 1, n, a, b), atol=1e-9
        )


def test_auto_numbers_tasks():
    sketch = Sketch(10).update(np.eye(3), task="named")
    with pytest.raises(InputError, match="task='auto' numbers tasks"):
        sketch.update(np.eye(3), task="auto")


def table(rng, n):
    return pd.DataFrame({"x": rng.standard_normal(n), "kind": rng.choice(["a", "b"], n)})


def gaps(rng, n):
    X = rows(rng, n)
    X[::6, 2] = np.nan
    return X


@pytest.mark.parametrize("policy", ["weighted", "reservoir", "recent", "balanced-random"])
@pytest.mark.parametrize(("first", "then"), [(table, table), (gaps, gaps), (gaps, rows)])
def test_tables_and_gaps_are_compared_whatever_the_policy(policy, first, then):
    rng = np.random.default_rng(3)
    sketch = Sketch(400, policy, seed=0).update(first(rng, 2_000), task="auto")
    new = then(rng, 300)
    if policy in ("weighted", "reservoir"):
        assert 0.3 < sketch.novelty(new).mean() < 0.7  # 0.5 expected, within 0.02 and that of 400
        assert sketch.drift(new).p > 1e-3
    sketch.update(new, task="auto")
    assert set(sketch.task) == {0}
