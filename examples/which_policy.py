"""Which rows should a small memory hold? All policies at equal size, on two streams.

    python examples/which_policy.py [SEEDS [TASKS [POLICY ...]]]

Each cell is the average accuracy over all tasks after the last one: mean over the seeds ± half a
95% interval. "replay": a step sees 20 rows of the task and 20 of the memory. "sketch": the net
is trained on the memory alone, which has taken the task in before.
"""

import sys

import numpy as np
from scipy.stats import t

from olss.learn import recipe, run
from olss.streams import permuted, rotated

SEEDS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
TASKS = int(sys.argv[2]) if len(sys.argv) > 2 else 10
POLICIES = sys.argv[3:] or [
    "recent",
    "paper",
    "reservoir",
    "weighted",
    "balanced-random",
    "balanced",
]
STREAMS = {"permuted": permuted, "rotated": rotated}
CELLS = [(name, regime, size) for name in STREAMS for regime in ("replay", "sketch")
         for size in (100, 300)]  # fmt: skip

print(f"8x8 digits, {TASKS} tasks x 500 rows, 64-100-100-10, 5 epochs, lr 0.1, {SEEDS} seeds")
print(f"{'':16s}" + "".join(f"{name:>16s}" for name, _, _ in CELLS))
print(f"{'':16s}" + "".join(f"{f'{regime} {size}':>16s}" for _, regime, size in CELLS))
for policy in POLICIES:
    line = f"{policy:16s}"
    for name, regime, size in CELLS:
        learner = recipe(
            "olss",
            policy=policy,
            regime=regime,
            size=size,
            net="mlp-100-100",
            lr=0.1,
            epochs=5,
            batch=20,
        )
        ends = [
            100
            * run(
                STREAMS[name]("digits", tasks=TASKS, train_rows=500, seed=seed), learner, seed=seed
            ).average_accuracy[-1]
            for seed in range(SEEDS)
        ]
        error = np.std(ends, ddof=1) / np.sqrt(SEEDS) if SEEDS > 1 else np.nan
        line += f"{f'{np.mean(ends):.1f} ± {t.ppf(0.975, SEEDS - 1) * error:.1f}':>16s}"
    print(line, flush=True)
