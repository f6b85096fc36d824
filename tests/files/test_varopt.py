from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from olss.core.sampling import inclusion
from olss.files.varopt import Draw, Rows, cut, union

REPEATS = 2000


def rows_of(score, start=0, weight=None, task=None):
    n = len(score)
    table = pa.table({"id": np.arange(start, start + n), "task": task or ["a"] * n})
    weight = np.ones(n) if weight is None else weight
    return Rows(table, weight, np.asarray(score, dtype=float), np.arange(start, start + n), n)


def stream(policy, score, size, rng, block=7, task=None):
    """Draw from rows that come in blocks."""
    draw = Draw(policy, size, ("task",), rng)
    for start in range(0, len(score), block):
        part = score[start : start + block]
        chosen, weight = draw.offer(part)
        labels = [task[start + i] for i in chosen] if task else ["a"] * len(chosen)
        if len(chosen):
            table = pa.table({"id": chosen + start, "task": labels})
            draw.hold(Rows(table, weight, part[chosen], chosen + start, 0))
    return draw.finish()


def ids(rows):
    return rows.table.column("id").to_numpy()


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_rows_of_a_stream_have_the_probabilities_of_a_single_draw(policy):
    rng = np.random.default_rng(1)
    n, size = 60, 8
    score = rng.exponential(size=n) ** 2 if policy == "weighted" else np.ones(n)
    pi, counts = inclusion(score, size), np.zeros(n)
    for _ in range(REPEATS):
        kept = stream(policy, score, size, rng)
        assert len(kept) == size
        counts[ids(kept)] += 1
        # The sum of q is kept, by thinning too, so that t and the weights are not random.
        np.testing.assert_allclose(kept.weight, 1 / pi[ids(kept)])
    # Five standard errors of a frequency. Weights 1 / pi are then unbiased.
    assert np.all(np.abs(counts / REPEATS - pi) < 5 * np.sqrt(pi * (1 - pi) / REPEATS) + 1e-9)


def test_united_draws_have_the_probabilities_of_a_single_draw():
    rng = np.random.default_rng(2)
    score = rng.exponential(size=40) ** 2
    totals, counts = np.zeros(40), np.zeros(40)
    for _ in range(REPEATS):
        halves = [
            cut(rows_of(part, start), "weighted", 6, ("task",), rng)
            for part, start in ((score[:25], 0), (score[25:], 25))
        ]
        kept = cut(union(halves), "weighted", 6, ("task",), rng)
        counts[ids(kept)] += 1
        totals[ids(kept)] += kept.weight
        # The sum of q is kept by every draw.
        assert (kept.weight * kept.score).sum() == pytest.approx(score.sum())
    pi = inclusion(score, 6)
    assert np.all(np.abs(counts / REPEATS - pi) < 5 * np.sqrt(pi * (1 - pi) / REPEATS) + 1e-9)
    assert np.all(np.abs(totals / REPEATS - 1) < 5 * np.sqrt((1 / pi - 1) / REPEATS) + 1e-9)


def test_smallest_keys_are_successive_draws():
    rng = np.random.default_rng(3)
    leverage = np.array([0.5, 0.3, 0.1, 0.05, 0.05])
    expected = {}
    for a, b in permutations(range(5), 2):
        chance = leverage[a] * leverage[b] / (1 - leverage[a])
        expected[frozenset((a, b))] = expected.get(frozenset((a, b)), 0) + chance
    found = dict.fromkeys(expected, 0)
    for _ in range(REPEATS):
        key = np.log(rng.standard_exponential(5)) - np.log(leverage)
        found[frozenset(ids(stream("paper", key, 2, rng, block=2)).tolist())] += 1
    for pair, p in expected.items():
        assert abs(found[pair] / REPEATS - p) < 5 * np.sqrt(p * (1 - p) / REPEATS)


def test_balanced_gives_each_stratum_the_same_and_stands_for_all_of_it():
    rng = np.random.default_rng(4)
    task = ["a"] * 500 + ["b"] * 100 + ["c"] * 3
    order = rng.permutation(len(task))
    task = [task[i] for i in order]
    kept = stream("balanced", np.ones(len(task)), 43, rng, block=50, task=task)
    names = kept.table.column("task").to_pylist()
    assert {t: names.count(t) for t in "abc"} == {"a": 20, "b": 20, "c": 3}
    for name, total in (("a", 500), ("b", 100), ("c", 3)):
        mine = [w for w, t in zip(kept.weight, names, strict=True) if t == name]
        assert sum(mine) == pytest.approx(total)
        assert max(mine) == pytest.approx(min(mine))


def test_balanced_rows_of_a_stratum_are_equally_likely():
    rng = np.random.default_rng(5)
    counts = np.zeros(30)
    for _ in range(REPEATS):
        kept = stream("balanced", np.ones(30), 6, rng, task=["a", "b"] * 15)
        counts[ids(kept)] += 1
    assert np.all(np.abs(counts / REPEATS - 0.2) < 5 * np.sqrt(0.16 / REPEATS))


def test_recent_keeps_the_last():
    kept = stream("recent", -np.arange(50.0), 5, np.random.default_rng(0))
    assert sorted(ids(kept)) == [45, 46, 47, 48, 49]


def test_fewer_rows_than_size_are_all_kept_with_weight_one():
    for policy in ("weighted", "reservoir", "balanced", "paper", "recent"):
        kept = stream(policy, np.ones(10), 100, np.random.default_rng(0))
        assert sorted(ids(kept)) == list(range(10))
        assert np.all(kept.weight == 1)


def test_strata_get_their_share_within_a_row():
    rng = np.random.default_rng(6)
    rows = rows_of(np.ones(1000), task=[f"t{i % 10}" for i in range(1000)])
    kept = cut(rows, "weighted", 100, ("task",), rng)
    counts = np.unique(kept.table.column("task").to_pylist(), return_counts=True)[1]
    # Pairs meet across the borders of strata, so that each of the two borders can move one row.
    assert len(counts) == 10
    assert counts.min() >= 8
    assert counts.max() <= 12
