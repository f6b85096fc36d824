"""Next month's data come, in a new process: load the memory, take them in, train again.

    python examples/next_month.py

Ends with a table: what is in the memory after each month, and the model's error on all of them.
"""

from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from olss import Sketch

MEMORY = Path("memory.parquet")
rng = np.random.default_rng(0)


def sales(month, rows=2_000):
    """Make a month's rows: sales go by temperature, which goes by the month, and by price."""
    temperature = 10 - 10 * np.cos(2 * np.pi * month / 12) + 3 * rng.standard_normal(rows)
    price = rng.uniform(1, 2, rows)
    return np.column_stack([temperature, price]), np.sqrt(np.abs(temperature)) / price


def one_month(month):
    """All that a nightly job has to do: nothing but the file is carried over."""
    sketch = Sketch.load(MEMORY) if MEMORY.exists() else Sketch(size=500, seed=0)
    sketch.update(*sales(month), task=month)
    sketch.save(MEMORY)
    return RandomForestRegressor(30, random_state=0).fit(sketch.X, sketch.y), sketch


MEMORY.unlink(missing_ok=True)
print(f"{'month':>5s} {'rows':>5s} {'of':>6s} {'kB':>4s}   mean absolute error, months so far")
for month in range(1, 7):
    model, sketch = one_month(month)
    tests = [sales(past) for past in range(1, month + 1)]
    errors = [np.abs(model.predict(X) - y).mean() for X, y in tests]
    size = MEMORY.stat().st_size / 1e3
    print(f"{month:5d} {len(sketch):5d} {sketch.seen:6d} {size:4.0f}   "
          + " ".join(f"{error:.3f}" for error in errors))  # fmt: skip
