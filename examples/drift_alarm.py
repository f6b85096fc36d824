"""An alarm when the data change: novelty of each batch against everything remembered.

    python examples/drift_alarm.py [PICTURE]

Digits come in batches of 50; from batch 21 on they are turned by 45 degrees. Writes PICTURE
(drift.png): novelty of each row, and where the alarm goes off.
"""

import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from olss import Sketch
from olss.streams import rotated

PICTURE = sys.argv[1] if len(sys.argv) > 1 else "drift.png"
upright, turned = rotated("digits", tasks=2, angles=[0, 45], seed=0)
# In the file the digits come writer by writer, and each writer is a small change of its own.
order = np.random.default_rng(0).permutation(len(upright.X))
batches = [upright.X[rows] for rows in np.array_split(order[:1_000], 20)]
batches += [turned.X[rows] for rows in np.array_split(order[:500], 10)]

sketch = Sketch(size=300, seed=0)
shares = []
for batch in batches:
    if sketch.seen >= 200:  # before that there is little to compare with
        shares.append(np.mean(sketch.novelty(batch) > 0.95))
    else:
        shares.append(np.nan)
    sketch.update(batch, task="auto")

limit = 0.05 + 4 * np.sqrt(0.05 * 0.95 / 50)  # four standard errors above what chance gives
alarms = [number for number, share in enumerate(shares, start=1) if share > limit]
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.plot(np.arange(1, 31), shares, "o-", color="#1b6ca8")
axes.axhline(0.05, color="#8a8a8a", lw=1, ls="--")
axes.axhline(limit, color="#c1272d", lw=1, ls="--")
axes.text(10, limit + 0.02, "alarm", color="#c1272d")
axes.text(30, 0.07, "expected", color="#8a8a8a", ha="right")
axes.set(xlabel="batch", ylabel="rows more novel\nthan 95% remembered", title="Digits, then digits "
         "turned by 45° from batch 21 on")  # fmt: skip
axes.spines[["top", "right"]].set_visible(False)
figure.savefig(PICTURE, dpi=150)
print(f"alarm at batches {alarms}; tasks the sketch found: {np.unique(sketch.task).tolist()}")
print(f"written to {PICTURE}")
