"""Time and memory of `Sketch.update`, in units of one matrix product taken in the same run.

The unit is a (120,000 x 784) by (784 x 784) product in float32. An update brings 60,000 rows of
784 numbers to a full sketch of 60,000. Memory is the highest resident size during the update over
that before it, taken in a process of its own.

    python benchmarks/sketch.py
    python benchmarks/sketch.py --only weighted     # one policy, without the 200 tasks
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from olss.sketch import Sketch

ROWS, COLUMNS, CLASSES = 60_000, 784, 10
CASES = [
    # policy, scores, units allowed by the project's own targets
    ("paper", "auto", 1.6),
    ("weighted", "auto", 1.0),
    ("weighted", "sketched", 0.5),
    ("reservoir", "auto", 0.15),
    ("recent", "auto", 0.15),
    ("balanced", "auto", 3.0),
    ("balanced-leverage", "auto", 3.0),
    ("balanced-random", "auto", 3.0),
]
MEGABYTES = 150


def unit(rng: np.random.Generator) -> float:
    A = rng.standard_normal((2 * ROWS, COLUMNS), dtype=np.float32)
    B = rng.standard_normal((COLUMNS, COLUMNS), dtype=np.float32)
    return min(_seconds(lambda: A @ B) for _ in range(3))


def task(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ten classes, each with its mean."""
    y = rng.integers(CLASSES, size=ROWS)
    X = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    X += rng.standard_normal((CLASSES, COLUMNS), dtype=np.float32)[y]
    return X, y


def case(policy: str, scores: str) -> None:
    """Print seconds of an update, units and extra megabytes for one case."""
    rng = np.random.default_rng(0)
    sketch = Sketch(ROWS, policy, scores=scores, seed=0)
    updates, units, extras = [], [], []
    for number in range(5):
        X, y = task(rng)
        before, peak = resident(), Peak()
        updates.append(_seconds(lambda X=X, y=y, number=number: sketch.update(X, y, task=number)))
        extras.append(peak.stop() - before)
        del X, y
        units.append(unit(rng))
    # The first update only fills the sketch. The best of each, for others use the machine too.
    seconds, one = min(updates[1:]), min(units)
    print(f"{seconds:.3f} {seconds / one:.3f} {max(extras[1:]):.0f}")


class Peak:
    """The highest resident size, looked at every two milliseconds."""

    def __init__(self) -> None:
        self.highest, self._running = 0.0, True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while self._running:
            self.highest = max(self.highest, resident())
            time.sleep(0.002)

    def stop(self) -> float:
        """Return it."""
        self._running = False
        self._thread.join()
        return self.highest


def resident() -> float:
    """Return the resident size in megabytes (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def flatness(policy: str) -> None:
    """Print how the cost of an update changes over 200 tasks."""
    rng = np.random.default_rng(0)
    sketch = Sketch(2_000, policy, seed=0)
    times = []
    for number in range(200):
        X = rng.standard_normal((2_000, 64), dtype=np.float32)
        y = rng.integers(CLASSES, size=2_000)
        times.append(_seconds(lambda X=X, y=y, number=number: sketch.update(X, y, task=number)))
    early, late = np.quantile(times[5:55], 0.1), np.quantile(times[-50:], 0.1)
    print(f"{policy:18s} {early * 1e3:10.1f} {late * 1e3:10.1f} {late / early:8.2f}")


def _seconds(action) -> float:  # type: ignore[no-untyped-def]
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main(only: str | None) -> None:
    print(
        f"{'policy':18s} {'scores':9s} {'seconds':>8s} {'units':>6s} {'goal':>5s} {'extra MB':>9s}"
    )
    for policy, scores, goal in CASES:
        if only not in (None, policy):
            continue
        command = [sys.executable, __file__, "--case", policy, scores]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds, units, extra = map(float, out.split())
        verdict = "" if units <= goal and extra <= MEGABYTES else "  above the goal"
        line = f"{policy:18s} {scores:9s} {seconds:8.2f} {units:6.2f} {goal:5.2f} {extra:9.0f}"
        print(line + verdict)
    if only is not None:
        return
    print(f"\n{'200 tasks':18s} {'early ms':>10s} {'late ms':>10s} {'ratio':>8s}")
    for policy in ("paper", "weighted", "reservoir", "balanced-random", "balanced"):
        flatness(policy)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted({policy for policy, _, _ in CASES}))
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        case(*options.case)
    else:
        main(options.only)
