from __future__ import annotations

import numpy as np

from olss.sketch import Sketch


def test_it_counts_rows_and_adds_weights():
    y = np.repeat([0, 1], [60, 40])
    sketch = Sketch(30, "reservoir", seed=0)
    X = np.random.default_rng(0).standard_normal((100, 3))
    sketch.update(X, y, task=5).update(X, y + 1, task=6)
    found = sketch.describe()
    assert (found.rows, found.seen, found.tasks, found.classes) == (30, 200, [5, 6], [0, 1, 2])
    for i, task in enumerate(found.tasks):
        here = sketch.task == task
        np.testing.assert_array_equal(found.counts[i], np.bincount(sketch.y[here], minlength=3))
        np.testing.assert_allclose(found.task_weight[i], sketch.weight[here].sum())
    np.testing.assert_allclose(found.effective_rows, 30)


def test_its_text_fits_many_tasks_and_classes():
    X = np.random.default_rng(0).standard_normal((600, 2))
    sketch = Sketch(600).update(X, np.arange(600) % 30, task=np.arange(600) % 50)
    text = str(sketch.describe())
    assert "the newest 40 of 50 tasks" in text
    table = text.splitlines()[5:]
    assert table[0].split()[:4] == ["task", "rows", "stand", "for"]
    assert len({len(line) for line in table}) == 1
    assert max(map(len, text.splitlines())) < 100
    found = sketch.describe()
    assert repr(found) == str(found)


def test_real_targets_have_no_classes():
    sketch = Sketch(10).update(np.eye(4), np.linspace(0, 1, 4))
    assert sketch.describe().classes is None
    assert sketch.describe().counts.shape == (1, 1)
