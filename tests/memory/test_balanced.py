from __future__ import annotations

import numpy as np
import pytest

from olss.errors import InputError, OlssWarning
from olss.memory.policies import Balanced
from olss.sketch import Sketch

ORDERS = ("herding", "leverage", "random")
every_order = pytest.mark.parametrize("order", ORDERS)


def task(number, rows, classes=3, seed=0, shift=0.0):
    rng = np.random.default_rng([seed, number])
    y = rng.integers(0, classes, rows)
    return rng.standard_normal((rows, 4)) + y[:, None] + shift, y


def shares(sketch):
    pairs = np.stack([sketch.task, sketch.y], axis=1)
    return {tuple(p): c for p, c in zip(*np.unique(pairs, axis=0, return_counts=True), strict=True)}


@every_order
def test_quotas_are_exact_to_one_row(order):
    sketch = Sketch(100, Balanced(order), seed=0)
    for t in range(7):
        sketch.update(*task(t, 200), task=t)
        counts = np.array(list(shares(sketch).values()))
        assert len(counts) == 3 * (t + 1)
        assert np.ptp(counts) <= 1
        assert counts.sum() == 100


@every_order
def test_a_small_stratum_keeps_all_and_the_others_share_the_rest(order):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [1_000, 4, 200])
    sketch = Sketch(60, Balanced(order), seed=0).update(rng.standard_normal((1204, 3)), y)
    assert shares(sketch) == {(0, 0): 28, (0, 1): 4, (0, 2): 28}
    np.testing.assert_allclose(np.bincount(sketch.y, sketch.weight), [1_000, 4, 200])


@every_order
def test_shrinking_keeps_a_prefix(order):
    sketch = Sketch(120, Balanced(order), seed=0)
    kept = {}
    for t in range(6):
        sketch.update(*task(t, 1_200), task=t)
        for key in shares(sketch):
            here = (sketch.task == key[0]) & (sketch.y == key[1])
            rank = dict(zip(sketch.index[here], sketch._state.rows["priority"][here], strict=True))
            if key in kept:
                before = sorted(kept[key], key=kept[key].get)
                assert sorted(rank, key=rank.get) == before[: len(rank)]
            kept[key] = rank


@every_order
def test_weights_say_how_many_rows_were_seen(order):
    sketch = Sketch(50, Balanced(order), seed=0)
    for t, rows in enumerate((40, 300, 80)):
        sketch.update(*task(t, rows), task=t)
    np.testing.assert_allclose(np.bincount(sketch.task, sketch.weight), [40, 300, 80])


@pytest.mark.parametrize("order", ["herding", "leverage"])
def test_no_row_is_scored_twice(order):
    scored = []

    def features(X):
        scored.extend(X[:, 0].astype(int).tolist())
        return X[:, 1:]

    sketch = Sketch(60, Balanced(order), features=features, seed=0)
    first = 0
    for t in range(5):
        X, y = task(t, 40 + 10 * t)
        X[:, 0] = np.arange(first, first + len(X))
        first += len(X)
        sketch.update(X, y, task=t)
    assert len(scored) == first
    assert len(set(scored)) == first


def test_mini_batches_of_one_task_share_its_quota_evenly():
    sketch = Sketch(200, Balanced("herding"), seed=0)
    X, y = task(0, 2_000, classes=1)
    for start in range(0, 2_000, 50):
        sketch.update(X[start : start + 50], y[start : start + 50])
    quarters = np.bincount(sketch.index // 500)
    # Uniform would give 50 each with a standard deviation of 6.
    assert (np.abs(quarters - 50) < 5 * 6).all()


def test_classes_that_come_late_and_tasks_that_come_back():
    sketch = Sketch(30, Balanced("random"), seed=0)
    X, y = task(0, 100, classes=2)
    sketch.update(X, y, task=0)
    sketch.update(X, y + 5, task=1)
    sketch.update(X, y, task=0)
    sketch.update(X[:1], [9], task=7)
    counts = shares(sketch)
    assert counts[7, 9] == 1
    assert sorted(counts.values())[1:] == [7, 7, 7, 8]


@pytest.mark.parametrize("y", [None, np.linspace(0, 1, 200), np.ones((200, 2, 2))])
def test_without_classes_tasks_alone_are_balanced(y):
    X = np.random.default_rng(1).standard_normal((200, 3))
    sketch = Sketch(40, Balanced("random"), seed=0)
    sketch.update(X, y, task="a").update(X[:30], None if y is None else y[:30], task="b")
    assert np.unique(sketch.task, return_counts=True)[1].tolist() == [20, 20]


@every_order
def test_more_strata_than_rows_is_said_and_survived(order):
    sketch = Sketch(5, Balanced(order), seed=0)
    X = np.random.default_rng(0).standard_normal((40, 3))
    sketch.update(X, np.arange(40) % 8)
    with pytest.warns(OlssWarning, match="size=5 is smaller than the 8 strata"):
        assert len(sketch) == 5
    assert len(np.unique(sketch.y)) == 5


@every_order
def test_merged_shares_are_balanced_and_weights_add_up(order):
    a, b = Sketch(60, Balanced(order), seed=0), Sketch(60, Balanced(order), seed=1)
    for t in range(2):
        a.update(*task(t, 100), task=t)
        b.update(*task(t + 1, 130), task=t + 1)
    a.merge(b)
    counts = np.array(list(shares(a).values()))
    assert len(counts) == 9
    assert np.ptp(counts) <= 1
    np.testing.assert_allclose(np.bincount(a.task, a.weight), [100, 230, 130])


def test_herding_prefixes_are_closer_to_the_task_than_random_ones():
    X, _ = task(0, 3_000, classes=1)
    distance = {}
    for order in ("herding", "random"):
        kept = [Sketch(40, Balanced(order), seed=s).update(X).X for s in range(10)]
        means = [[np.mean(f(k) - f(X), axis=None) for f in MOMENTS] for k in kept]
        distance[order] = np.sqrt(np.mean(np.square(means)))
    assert distance["herding"] < 0.5 * distance["random"]


MOMENTS = (
    lambda X: X.mean(axis=0),
    lambda X: np.cos(X).mean(axis=0),
    lambda X: np.sin(2 * X).mean(axis=0),
)


def test_unknown_orders_are_named():
    with pytest.raises(InputError, match=r"order"):
        Balanced("herd")
