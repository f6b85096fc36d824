"""The pictures of the page "How it works".

    python examples/pictures.py [FOLDER]

Writes leverage.png, draw.png and shares.png into FOLDER (here).
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from olss import Sketch, leverage_scores

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
BLUE, RED, GREY, GOLD = "#1b6ca8", "#c1272d", "#8a8a8a", "#e8a33d"
rng = np.random.default_rng(4)


def save(figure, name):
    figure.savefig(FOLDER / name, dpi=150)
    print(f"{FOLDER / name}: {(FOLDER / name).stat().st_size / 1e3:.0f} kB")


def bare(axes, title):
    axes.set(title=title, xticks=[], yticks=[])
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.margins(0.12)


# 1. Leverage: rows in directions, or at distances, that few others have.
crowd = rng.standard_normal((200, 2)) @ [[2.0, 0.9], [0.0, 0.35]]
lonely = np.array([[-1.6, 2.4], [2.2, -1.4], [6.5, 3.2]])
points = np.vstack([crowd, lonely])
scores = leverage_scores(points)
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
shown = axes.scatter(*points.T, s=15 + 900 * scores, c=scores, cmap="viridis_r", alpha=0.85, lw=0)
axes.axhline(0, color=GREY, lw=0.5)
axes.axvline(0, color=GREY, lw=0.5)
figure.colorbar(shown, label="leverage score")
bare(axes, f"203 rows; the scores sum to {scores.sum():.0f}, the number of directions")
save(figure, "leverage.png")

# 2. One update: the pool, its scores, the draw, the sketch.
figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.2), layout="constrained")
old = rng.standard_normal((12, 2)) * [1.6, 0.4]
new = rng.standard_normal((30, 2)) * [0.4, 1.6]
pool = np.vstack([old, new])
scores = leverage_scores(pool)
colours = np.array([BLUE] * len(old) + [GOLD] * len(new))
sketch = Sketch(size=12, seed=1).update(pool)
kept = np.isin(np.arange(len(pool)), sketch.index)
weight = np.zeros(len(pool))
weight[sketch.index] = sketch.weight
panels[0].scatter(*pool.T, c=colours, s=35)
bare(panels[0], "the pool: 12 rows held (blue)\nand 30 new ones")
panels[1].scatter(*pool.T, c=colours, s=15 + 1_000 * scores)
bare(panels[1], "score: how much does each\nrow say that others do not?")
panels[2].scatter(*pool[~kept].T, c="#e4e4e4", s=20)
panels[2].scatter(*pool[kept].T, c=colours[kept], s=15 + 20 * weight[kept])
bare(panels[2], "draw: 12 stay; a row less likely\nto stay now stands for more")
save(figure, "draw.png")

# 3. What is left of each task, under three policies.
TASKS, ROWS, SIZE, WIDE = 12, 400, 400, 10
figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.2), sharey=True, layout="constrained")
for axes, policy in zip(panels, ("paper", "weighted", "recent"), strict=True):
    sketch = Sketch(size=SIZE, policy=policy, seed=0)
    held = np.zeros((TASKS, TASKS))
    for task in range(TASKS):
        X = rng.standard_normal((ROWS, WIDE)) + 2 * rng.standard_normal(WIDE)
        sketch.update(X, task=task)
        held[task] = np.bincount(sketch.task, minlength=TASKS)
    shades = plt.get_cmap("viridis")(np.linspace(0.05, 0.95, TASKS))
    axes.stackplot(np.arange(1, TASKS + 1), held.T, colors=shades, lw=0.5, edgecolor="white")
    axes.set(title=f'policy="{policy}"', xlabel="tasks seen", xlim=(1, TASKS), ylim=(0, SIZE))
panels[0].set_ylabel("rows held; oldest task lowest")
save(figure, "shares.png")
