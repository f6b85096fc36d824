from __future__ import annotations

import numpy as np
import pytest

from olss.core import herding as module
from olss.core.herding import herding_order


def slow_herding(X, count):
    """The definition, in float64, with the kernel between all rows."""
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.exp(-squares / squares.mean())
    taken = []
    for t in range(count):
        gain = K.mean(axis=1) - K[:, taken].sum(axis=1) / (t + 1)
        gain[taken] = -np.inf
        taken.append(int(gain.argmax()))
    return taken


def test_it_is_the_greedy_search_of_the_definition():
    X = np.random.default_rng(0).standard_normal((60, 5))
    assert herding_order(X.astype(np.float32), 25).tolist() == slow_herding(X, 25)


def test_the_error_of_a_prefix_falls_faster_than_that_of_random_rows():
    X = np.random.default_rng(1).standard_normal((900, 3)).astype(np.float32)
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.exp(-squares / squares.mean())

    def error(rows):
        return np.sqrt(K.mean() - 2 * K[rows].mean() + K[np.ix_(rows, rows)].mean())

    order = herding_order(X, 160)
    errors = [error(order[:m]) for m in (10, 40, 160)]
    # 1/m would be factors of 4, 1/sqrt(m) factors of 2; candidates are finite, so it is less.
    assert errors[0] / errors[1] > 2.5
    assert errors[1] / errors[2] > 2.5
    rng = np.random.default_rng(2)
    random = np.mean([error(rng.choice(900, 40, replace=False)) for _ in range(20)])
    assert errors[1] < random / 3


def test_candidates_bound_what_is_taken_and_blocks_do_not_matter(monkeypatch):
    X = np.random.default_rng(3).standard_normal((700, 4)).astype(np.float32)
    monkeypatch.setattr(module, "CANDIDATES", 128)
    whole = herding_order(X, 500)
    assert len(whole) == 128
    assert whole.max() < 128
    monkeypatch.setattr(module, "BLOCK", 50)
    np.testing.assert_array_equal(herding_order(X, 60), whole[:60])


@pytest.mark.parametrize("X", [np.zeros((5, 2)), np.ones((1, 3)), np.full((4, 2), 1e4)])
def test_equal_rows_are_all_taken(X):
    assert sorted(herding_order(X.astype(np.float32), 10)) == list(range(len(X)))
