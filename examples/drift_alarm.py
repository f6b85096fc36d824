"""A drift alarm that can be left on: it is wrong at most once in a hundred lifetimes.

    python examples/drift_alarm.py [PICTURE]

A sketch of 600 digits is the reference. Then batches of 40 come; from batch 16 on they are turned
by 10 degrees. Writes PICTURE (drift.png): the evidence of a change after each batch.
"""

import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from olss import Sketch
from olss.streams import rotated

PICTURE = sys.argv[1] if len(sys.argv) > 1 else "drift.png"
upright, turned = rotated("digits", tasks=2, angles=[0, 10], seed=0)
# In the file the digits come writer by writer, and each writer is a small change of its own.
order = np.random.default_rng(0).permutation(len(upright.X))
batches = [upright.X[rows] for rows in np.array_split(order[600:1_200], 15)]
batches += [turned.X[rows] for rows in np.array_split(order[:400], 10)]

sketch = Sketch(size=300, seed=0).update(upright.X[order[:600]])
monitor = sketch.monitor(alpha=0.01)
evidence, alarms = [], []
for number, batch in enumerate(batches, start=1):
    if monitor.update(batch):
        alarms.append(number)
    evidence.append(monitor.evidence)

figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.semilogy(np.arange(1, 26), evidence, "o-", color="#1b6ca8")
axes.axhline(100, color="#c1272d", lw=1, ls="--")
axes.annotate("alarm: 1 / alpha", (1, 100), (0, 4), textcoords="offset points", color="#c1272d")
axes.axvline(15.5, color="#8a8a8a", lw=1, ls=":")
axes.set(
    xlabel="batch",
    ylabel="evidence of a change",
    title="Digits, then digits turned by 10° from batch 16 on",
)
axes.spines[["top", "right"]].set_visible(False)
figure.savefig(PICTURE, dpi=150)
print(f"alarm from batch {alarms[0]} on" if alarms else "no alarm")
print(f"written to {PICTURE}")
