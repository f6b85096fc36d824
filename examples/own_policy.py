"""A policy of your own in a few lines, beside those that are there.

    python examples/own_policy.py

Ends with a table: rows held per class when one class in ten is rare, and what a net learns.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from olss import Sketch
from olss.memory import Choice

X, y = load_digits(return_X_y=True)
X_test, y_test = X[1_200:], y[1_200:]
X, y = X[:1_200] / 16, y[:1_200]
common = np.flatnonzero((y != 9) | (np.arange(len(y)) % 8 == 0))  # nines are rare
X, y = X[common], y[common]


def rare_first(pool, rng):
    """Draw rows at random, a row of a class in proportion to 1 / (rows of that class)."""
    _, code, count = np.unique(pool.classes, return_inverse=True, return_counts=True)
    keys = rng.exponential(size=len(pool)) * count[code]
    return Choice(np.argsort(keys)[: pool.size])


print(f"{'policy':12s} {'rows per class, 0 to 9':42s} {'nines, %':>9s} {'all, %':>7s}")
for policy in ("reservoir", "weighted", "balanced", rare_first):
    sketch = Sketch(size=120, policy=policy, seed=0)
    for part in np.array_split(np.arange(len(y)), 6):
        sketch.update(X[part], y[part])
    model = LogisticRegression(max_iter=1_000).fit(sketch.X, sketch.y)
    right = model.predict(X_test / 16) == y_test
    name = policy if isinstance(policy, str) else policy.__name__
    counts = " ".join(f"{count:3d}" for count in np.bincount(sketch.y, minlength=10))
    print(
        f"{name:12s} {counts:42s} {100 * right[y_test == 9].mean():9.1f} {100 * right.mean():7.1f}"
    )
