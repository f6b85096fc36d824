"""A forest that learns on: digits come class after class, and it may keep 300 rows.

    python examples/sklearn_digits.py

Ends with a table: accuracy on all ten classes after each pair of classes has come.
"""

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from olss.adapters.sklearn import ContinualClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=400, stratify=y, random_state=0)
batches = [np.flatnonzero(y // 2 == pair) for pair in range(5)]
forest = RandomForestClassifier(50, random_state=0)


def newest(seen):
    """Refit on the newest batch alone, which is what an estimator without memory can do."""
    return clone(forest).fit(X[batches[seen]], y[batches[seen]])


def everything(seen):
    """Refit on all rows so far: the upper bound, whose cost grows with the stream."""
    rows = np.concatenate(batches[: seen + 1])
    return clone(forest).fit(X[rows], y[rows])


rows = {"newest batch": newest, "all rows so far": everything}
table = {name: [fit(i).score(X_test, y_test) for i in range(5)] for name, fit in rows.items()}

for policy in ("recent", "reservoir", "paper", "weighted", "balanced"):
    model = ContinualClassifier(forest, size=300, policy=policy, random_state=0)
    scores = []
    for pair, batch in enumerate(batches):
        model.partial_fit(X[batch], y[batch], task=pair)
        scores.append(model.score(X_test, y_test))
    table[f"300 rows, {policy}"] = scores

print("accuracy on all ten classes, %")
print(f"{'trained on':20s}" + "".join(f"{2 * i:>6d} cl." for i in range(1, 6)))
for name, scores in sorted(table.items(), key=lambda item: item[1][-1]):
    print(f"{name:20s}" + "".join(f"{100 * score:10.1f}" for score in scores))
