from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from olss.errors import InputError
from olss.memory.policies import POLICIES, resolve_policy
from olss.memory.pool import Choice, Pool
from olss.memory.rows import RowStore
from olss.sketch import Sketch
from tests.repeated import repeated

# Chance of a false alarm of one chi-square test; z-scores are bounded to match.
ALPHA = 1e-4


def pool_of(held, new, size, weight=None, scores="exact"):
    n, m = len(held), len(new)
    weight = np.ones(n + m) if weight is None else weight
    parts = [
        {
            "X": X,
            "weight": w,
            "priority": np.full(len(X), np.nan),
            "task": np.zeros(len(X), dtype=np.int64),
            "index": index,
        }
        for X, w, index in zip(
            (held, new),
            np.split(weight, [n]),
            (np.arange(n), np.arange(n, n + m)),
            strict=True,
        )
    ]
    rng = np.random.default_rng(0)
    parts = map(RowStore, parts)
    return Pool(*parts, size=size, scores=scores, encode=lambda X: X, rng=rng)


def svd_scores(A):
    return (np.linalg.svd(A, full_matrices=False)[0] ** 2).sum(axis=1)


def frequencies(draw, repetitions, rows, size):
    """Count how often each subset of `size` of `rows` comes out of draw(seed)."""
    subsets = {subset: i for i, subset in enumerate(combinations(range(rows), size))}
    counts = np.zeros(len(subsets))
    for seed in range(repetitions):
        counts[subsets[tuple(sorted(draw(seed)))]] += 1
    return counts, list(subsets)


# paper


def test_paper_scores_are_those_of_an_svd_of_the_concatenation():
    rng = np.random.default_rng(0)
    held = rng.standard_normal((80, 6)).astype(np.float32)
    new = (rng.standard_normal((50, 6)) * [1, 1, 1, 1, 1e-2, 0]).astype(np.float32)
    scores = pool_of(held, new, 40).leverage()
    np.testing.assert_allclose(scores, svd_scores(np.vstack([held, new]).astype(float)), rtol=1e-3)


def test_paper_keeps_sets_with_the_probabilities_of_sequential_draws():
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((2, 2)), rng.standard_normal((3, 2)) * [3, 0.3]
    p = svd_scores(np.vstack([first, second]))
    p /= p.sum()

    def draw(seed):
        return Sketch(2, "paper", seed=seed).update(first).update(second).index

    counts, subsets = frequencies(draw, 2_000, 5, 2)
    law = [p[i] * p[j] / (1 - p[i]) + p[j] * p[i] / (1 - p[j]) for i, j in subsets]
    assert chisquare(counts, 2_000 * np.array(law)).pvalue > ALPHA


def test_paper_with_rows_of_zeros_only_draws_uniformly():
    sketch = Sketch(3, "paper", scores="exact", seed=0).update(np.zeros((10, 2)))
    assert len(sketch) == 3


# weighted


def unequal_tasks(order_seed):
    """20 tasks of 5 to 80 rows, one row in five zero, three classes, in a random order."""
    rng = np.random.default_rng(11)
    tasks = []
    for task in range(20):
        n = int(rng.integers(5, 80))
        X = rng.standard_normal((n, 4)) * np.exp(rng.standard_normal(4))
        X[rng.random(n) < 0.2] = 0
        tasks.append((X, rng.integers(0, 3, n), task))
    return [tasks[i] for i in np.random.default_rng(order_seed).permutation(20)]


def statistics(sketch):
    """Weighted totals: Gram matrix, rows per task, rows per class."""
    w = sketch.weight
    gram = (sketch.X.T * w) @ sketch.X
    return np.concatenate(
        [
            gram[np.triu_indices(4)],
            np.bincount(sketch.task, w, minlength=20),
            np.bincount(sketch.y, w, minlength=3),
        ]
    )


def assert_unbiased(samples, truth):
    """Each mean within 4.5 standard errors; with 33 means that fails by chance once in 4,000."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    z = (samples.mean(axis=0) - truth) / np.maximum(error, 1e-9 * np.abs(truth) + 1e-12)
    assert np.abs(z).max() < 4.5, z


def truth_of(tasks):
    everything = Sketch(10**6, "reservoir")
    for task in tasks:
        everything.update(*task)
    return statistics(everything)


@pytest.mark.parametrize(("order_seed", "scores"), [(0, "exact"), (1, "ridge")])
def test_weighted_is_unbiased_over_20_unequal_tasks_in_any_order(order_seed, scores):
    tasks = unequal_tasks(order_seed)
    samples = []
    for seed in range(200):
        sketch = Sketch(60, "weighted", scores=scores, seed=seed)
        for task in tasks:
            sketch.update(*task)
        samples.append(statistics(sketch))
    samples = np.array(samples)
    assert_unbiased(samples, truth_of(tasks))
    total = samples[:, 10:30].sum(axis=1) / truth_of(tasks)[10:30].sum()
    assert total.std() < 0.15  # near what was seen, each time


@repeated(100, 1_000)
def test_weighted_merged_in_any_tree_is_unbiased(repetitions):
    tasks = unequal_tasks(0)
    tree = np.random.default_rng(5)
    samples = []
    for seed in range(repetitions):
        shards = [
            Sketch(60, "weighted", seed=1_000 * seed + i).update(*task)
            for i, task in enumerate(tasks)
        ]
        while len(shards) > 1:
            i, j = sorted(tree.choice(len(shards), 2, replace=False))
            shards[i].merge(shards.pop(j))
        assert len(shards[0]) == 60
        samples.append(statistics(shards[0]))
    assert_unbiased(np.array(samples), truth_of(tasks))


@repeated(150, 1_500)
def test_weighted_keeps_rows_of_a_long_stream_with_the_probabilities_of_one_draw(repetitions):
    # The same block, over and over: scores do not change, so that probabilities are known.
    rows = np.random.default_rng(7).standard_normal((60, 3)) * [1, 1, 4]
    block, blocks, size = np.tile(rows, (20, 1)), 30, 120
    priority = 0.75 * svd_scores(rows) / 3 * 60 + 0.25
    pi = priority * size / (len(block) * blocks)
    assert pi.max() < 1
    counts, drawn = np.zeros(60), 0
    for seed in range(repetitions):
        sketch = Sketch(size, "weighted", seed=seed)
        for _ in range(blocks):
            sketch.update(block)
            drawn += not sketch._buffered.candidates
        counts += np.bincount(sketch.index % 60, minlength=60)
        np.testing.assert_allclose(sketch.weight, 1 / pi[sketch.index % 60], rtol=0.02)
    assert drawn < 0.5 * blocks * repetitions  # most blocks are sampled without a draw
    n = repetitions * blocks * 20
    z = (counts - n * pi) / np.sqrt(n * pi * (1 - pi))
    assert np.abs(z).max() < 4.5, z


def test_candidates_are_few_and_no_part_of_what_users_see():
    rng = np.random.default_rng(0)
    sketch, most = Sketch(400, "weighted", seed=0), 0
    for _ in range(60):
        sketch.update(rng.standard_normal((2_000, 4)))
        most = max(most, sum(map(len, sketch._buffered.candidates)))
        assert len(sketch) == 400
    assert 0 < most <= 100
    sketch.flush()
    assert not sketch._buffered.candidates
    sketch.size = 500  # a larger sketch has room for every row
    sketch.update(np.full((100, 4), 0.1))
    assert np.isin(np.arange(120_000, 120_100), sketch.index).all()


def test_rows_unlike_all_before_are_drawn_from_at_once():
    rng = np.random.default_rng(0)
    sketch = Sketch(400, "weighted", seed=0)
    for _ in range(60):
        sketch.update(rng.standard_normal((2_000, 4)))
    sketch.update(100 * rng.standard_normal((1_500, 4)))
    assert not sketch._buffered.candidates
    # They have nearly all leverage, and so about 3/4 of the draw.
    assert abs((sketch.index >= 120_000).sum() - 300) < 40


def test_weighted_spectral_error_follows_its_law():
    rng = np.random.default_rng(2)
    d, size = 10, 300
    tasks = [
        rng.standard_normal((int(rng.integers(100, 600)), d)) * np.geomspace(1, 0.1, d)
        for _ in range(20)
    ]
    A = np.vstack(tasks)
    root = np.linalg.cholesky(np.linalg.inv(A.T @ A))
    errors = []
    for seed in range(10):
        sketch = Sketch(size, "weighted", seed=seed)
        for X in tasks:
            sketch.update(X)
        gram = (sketch.X.T * sketch.weight) @ sketch.X
        errors.append(np.abs(np.linalg.eigvalsh(root.T @ gram @ root) - 1).max())
    assert np.mean(errors) < 2 * np.sqrt(d / size) + d / size


def test_weighted_keeps_a_lone_direction_for_sure():
    X = np.zeros((500, 2))
    X[:, 0] = 1
    X[123] = [0, 1]
    for seed in range(20):
        assert 123 in Sketch(30, "weighted", seed=seed).update(X).index


def test_weighted_scores_a_small_sketch_with_a_ridge():
    X = np.random.default_rng(0).standard_normal((400, 50))
    X[:20] *= 10
    # Nothing warns of scores that are all alike, and long rows are preferred.
    kept = [Sketch(30, "weighted", seed=s).update(X).index for s in range(30)]
    assert np.mean(np.concatenate(kept) < 20) > 3 * 20 / 400


# reservoir


@pytest.mark.parametrize("blocks", [(6,), (1, 2, 3), (2, 2, 2), (4, 2), (3, 1, 1, 1)])
def test_reservoir_makes_all_subsets_equally_likely_whatever_the_blocks(blocks):
    X = np.arange(6.0).reshape(6, 1)

    def draw(seed):
        sketch = Sketch(3, "reservoir", seed=seed)
        for part in np.split(X, np.cumsum(blocks)[:-1]):
            sketch.update(part)
        assert np.allclose(sketch.weight, 2)
        return sketch.index

    counts, _ = frequencies(draw, 1_500, 6, 3)
    assert chisquare(counts).pvalue > ALPHA


def test_reservoirs_merged_are_a_reservoir_of_both():
    X = np.arange(7.0).reshape(7, 1)

    def draw(seed):
        a = Sketch(2, "reservoir", seed=2 * seed).update(X[:3])
        b = Sketch(2, "reservoir", seed=2 * seed + 1).update(X[3:])
        return a.merge(b).index

    counts, _ = frequencies(draw, 2_000, 7, 2)
    assert chisquare(counts).pvalue > ALPHA


def test_reservoir_that_grows_or_lost_rows_stays_unbiased_and_becomes_even_again():
    X = np.arange(60.0).reshape(60, 1)
    samples = []
    for seed in range(500):
        sketch = Sketch("task", "reservoir", seed=seed)
        sketch.update(X[:20]).update(X[20:25]).update(X[25:40])
        assert len(sketch) == 15
        sketch.remove([3, 30])
        for i in range(40, 60, 4):
            sketch.update(X[i : i + 4])
        assert np.ptp(sketch.weight) < 1e-9
        samples.append(np.bincount(sketch.index // 20, sketch.weight, minlength=3))
    error = np.std(samples, axis=0) / np.sqrt(500)
    z = (np.mean(samples, axis=0) - [19, 19, 20]) / error
    assert np.abs(z).max() < 4.5


# recent, and policies of one's own


def test_recent_keeps_the_last_rows():
    sketch = Sketch(5, "recent").update(np.eye(4)).update(np.eye(4)[:3])
    assert sorted(sketch.index) == [2, 3, 4, 5, 6]


def test_a_policy_of_ones_own_can_remember_numbers_and_weigh():
    def steady(pool, rng):
        order = np.where(np.isnan(pool.priority), pool.index % 7, pool.priority)
        rows = np.argsort(order, kind="stable")[: pool.size]
        return Choice(rows, np.full(len(rows), 2.0), order[rows])

    sketch = Sketch(4, steady).update(np.eye(10)).update(np.eye(10))
    assert sorted(sketch.index % 7) == [0, 0, 0, 1]
    assert (sketch.weight == 2).all()


def test_a_policy_of_ones_own_can_look_at_all_columns():
    def oldest(pool, rng):
        assert pool.column("y").shape == (len(pool), 2)
        return Choice(np.argsort(pool.column("age"))[-pool.size :])

    ages = np.random.default_rng(0).permutation(20)
    sketch = Sketch(4, oldest)
    for part in (slice(0, 3), slice(3, 9), slice(9, 20)):
        n = len(ages[part])
        sketch.update(np.ones((n, 2)), np.ones((n, 2)), extra={"age": ages[part]})
    assert sorted(sketch.extra["age"]) == [16, 17, 18, 19]
    with pytest.raises(InputError, match="no column 'hair'"):
        Sketch(1, lambda pool, rng: pool.column("hair")).update(np.eye(3))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (np.arange(3), "policy"),
        (Choice(np.arange(9)), "at most 3 different rows"),
        (Choice(np.array([1, 1])), "at most 3 different rows"),
        (Choice(np.array([-1])), "from 0 to 9"),
        (Choice(np.arange(2), weight=np.array([1.0])), "finite weight"),
        (Choice(np.arange(2), weight=np.array([1.0, np.nan])), "finite weight"),
    ],
)
def test_what_a_policy_must_not_answer(answer, says):
    sketch = Sketch(3, lambda pool, rng: answer)
    with pytest.raises(InputError, match=says):
        sketch.update(np.eye(10))
    assert sketch.seen == len(sketch) == 0


def test_unknown_policies_are_named():
    with pytest.raises(InputError, match="found 'wieghted'"):
        resolve_policy("wieghted")
    assert resolve_policy(POLICIES["paper"]) is POLICIES["paper"]
