"""Compare logistic models from a sketch with the fit to all rows, on real tables in several orders.

Tables of `experiments.leverage_pays`, streamed in twenty updates as they are, sorted by the column
that predicts best, and sorted by class. `rows` is the weighted fit to the kept rows, `moments` the
one corrected by the moments, `gradient` the one of a sketch with glm="logistic". Excess log loss on
rows held out, over the fit to all others, in percent: median and worst over seeds. `seconds` are
CPU seconds of all updates over those of a sketch without glm.

    python -m experiments.followed_logistic [SEEDS]     # about ten minutes with 3
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from experiments.leverage_pays.tables import TABLES, Floats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from olss import Sketch

HERE = Path(__file__).parent / "results" / "analytic" / "followed_logistic.csv"
ROWS, UPDATES, COLUMNS = 60_000, 20, 40
SIZES = (1_000, 5_000)


def problems() -> dict[str, tuple[Floats, Any]]:
    """Return tables and classes: common ones, and two that are rare."""
    found = {}
    for name in ("flights", "diamonds", "mothers", "visits"):
        table = TABLES[name]()
        common = table.label == (2 if name == "diamonds" else 1)
        varied = np.argsort(-(table.X[:, 1:] != 0).mean(axis=0), kind="stable")
        X = table.X[:, 1:][:, np.sort(varied[:COLUMNS])]
        found[name] = (X, common)
        if name in ("flights", "diamonds"):
            found[f"{name}, rare"] = (X, table.y > np.quantile(table.y, 0.995))
    return found


def main(seeds: int) -> None:
    """Write a line for each problem, order, size and method."""
    warnings.simplefilter("ignore")
    lines: list[list[Any]] = []
    for name, (X, y) in problems().items():
        some = np.sort(np.random.default_rng(0).permutation(len(X))[: ROWS + ROWS // 3])
        held_out = np.arange(len(some)) % 4 == 3
        new, new_y = X[some[held_out]], y[some[held_out]]
        X, y = X[some[~held_out]], y[some[~held_out]]
        full = LogisticRegression(tol=1e-6, max_iter=5_000).fit(X, y)
        least = log_loss(new_y, full.predict_proba(new)[:, 1])
        best = np.argmax([abs(np.corrcoef(column, y)[0, 1]) for column in X.T])
        orders = {
            "as it is": np.arange(len(X)),
            "by the best column": np.argsort(X[:, best], kind="stable"),
            "by class": np.argsort(y, kind="stable"),
        }
        for order, rank in orders.items():
            for size in SIZES:
                excess: dict[str, list[float]] = {}
                ratio = []
                for seed in range(seeds):
                    losses, seconds = run(X[rank], y[rank], new, new_y, size, seed)
                    ratio.append(seconds)
                    for method, loss in losses.items():
                        excess.setdefault(method, []).append(100 * (loss / least - 1))
                for method, found in excess.items():
                    cost = f"{np.median(ratio):.2f}" if method == "gradient" else ""
                    line = [name, f"{y.mean():.4f}", order, size, method]
                    lines.append([*line, f"{np.median(found):.2f}", f"{max(found):.2f}", cost])
                    print(*lines[-1], flush=True)
        with HERE.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(
                ["table", "share", "order", "size", "method", "median", "worst", "seconds"]
            )
            writer.writerows(lines)


def run(
    X: Floats, y: Any, new: Floats, new_y: Any, size: int, seed: int
) -> tuple[dict[str, float], float]:
    """Return the loss of each method, and what following the gradient costs."""
    sketches, seconds = [], []
    for glm in (None, "logistic"):
        sketch, start = Sketch(size, seed=seed, glm=glm), time.process_time()
        for part in np.array_split(np.arange(len(X)), UPDATES):
            sketch.update(X[part], y[part])
        seconds.append(time.process_time() - start)
        sketches.append(sketch)
    plain = LogisticRegression(tol=1e-6, max_iter=5_000)
    plain.fit(sketches[0].X, sketches[0].y, sample_weight=sketches[0].weight)
    found = {"rows": plain.predict_proba(new)[:, 1]}
    for name, sketch in zip(("moments", "gradient"), sketches, strict=True):
        found[name] = sketch.linear_model().predict_proba(new)[:, 1]
    return {name: log_loss(new_y, p) for name, p in found.items()}, seconds[1] / seconds[0]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
