"""The picture of forgetting, and of not forgetting: ten permutations of the digits in a row.

    python examples/forgetting.py [PICTURE [SEEDS [TASKS]]]

Plain SGD learns each task and loses the ones before. With a memory of constant size, the same net
keeps them. Writes PICTURE (forgetting.png) and prints the numbers it shows.
"""

import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from olss.learn import recipe, run
from olss.streams import permuted

PICTURE = sys.argv[1] if len(sys.argv) > 1 else "forgetting.png"
SEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
TASKS = int(sys.argv[3]) if len(sys.argv) > 3 else 10

TRAINING = {"net": "mlp-100-100", "lr": 0.1, "batch": 20, "epochs": 10}
MEMORY = {"size": 500, **TRAINING}  # rows remembered, of 14,380 that ten tasks bring
LEARNERS = {
    "the newest task only (SGD)": recipe("sgd", **TRAINING),
    "the paper's sketch": recipe("olss", policy="paper", **MEMORY),
    "newest task + uniform memory": recipe("er", policy="reservoir", **MEMORY),
    "newest task + balanced memory": recipe("er", policy="balanced", **MEMORY),
    "all rows of all tasks so far": recipe("joint", **TRAINING),
}
COLOURS = ["#c1272d", "#e8a33d", "#3a9d5d", "#1b6ca8", "#8a8a8a"]

figure, (first, average) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
tasks = np.arange(1, TASKS + 1)
print(f"{'trained on':30s} {'task 1 at the end':>18s} {'average at the end':>19s}")
for (name, learner), colour in zip(LEARNERS.items(), COLOURS, strict=True):
    records = [
        run(permuted("digits", tasks=TASKS, seed=seed), learner, seed=seed) for seed in range(SEEDS)
    ]
    curves = {
        first: np.array([100 * record.accuracy[:, 0] for record in records]),
        average: np.array([100 * record.average_accuracy for record in records]),
    }
    for axes, values in curves.items():
        axes.plot(tasks, values.mean(axis=0), color=colour, label=name, lw=2)
        axes.fill_between(tasks, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15)
    ends = [f"{values[:, -1].mean():.1f}" for values in curves.values()]
    print(f"{name:30s} {ends[0]:>18s} {ends[1]:>19s}")

first.set(title="The first task", ylabel="test accuracy, %", ylim=(0, 100))
average.set(title="All tasks so far")
for axes in (first, average):
    axes.set_xlabel("tasks learned")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
figure.legend(
    *first.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False
)
figure.savefig(PICTURE, dpi=150)
print(f"mean of {SEEDS} seeds; written to {PICTURE}")
