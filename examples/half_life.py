"""Forgetting at a chosen rate against the paper's fading, on a stream that drifts.

    python examples/half_life.py [PICTURE [SEEDS]]

Rows have five numbers and a target, a linear function of them plus noise of variance 1. The
function wanders. Either all rows come from one source and it wanders fast, or four sources deliver
in turn, 500 rows each, and the function of each wanders slowly. Before each update, least squares
on the rows kept of its source, of 300 in all, predicts it. Prints the squared error above the
noise, mean over the seeds ± half a 95% interval, and writes PICTURE (half-life.png).
"""

import sys

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import t

from olss import Sketch

PICTURE = sys.argv[1] if len(sys.argv) > 1 else "half-life.png"
SEEDS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
SIZE, ROWS, UPDATES, COLUMNS = 300, 500, 40, 5
# Sources, and how far a coefficient wanders in 500 rows, as a standard deviation.
STREAMS = {"one source, fast drift": (1, 0.2), "four sources in turn, slow drift": (4, 0.05)}
HALF_LIVES = [125, 250, 500, 1_000, 2_000, 4_000, 8_000]
ONE, TEN = "one update of 500", "ten of 50"
OTHERS = {
    f"paper, {ONE}": ({"policy": "paper"}, 1),
    f"paper, {TEN}": ({"policy": "paper"}, 10),
    "recent, the last 300": ({"policy": "recent"}, 1),
    "weighted, nothing forgotten": ({}, 1),
}
WAYS = {f"half-life {h:,}": ({"half_life": h}, 1) for h in HALF_LIVES}
WAYS[f"half-life 500, {TEN}"] = ({"half_life": 500}, 10)
WAYS |= OTHERS


def stream(sources, step, seed):
    """Yield updates (X, y, source)."""
    rng = np.random.default_rng(seed)
    functions = rng.standard_normal((sources, COLUMNS))
    for update in range(UPDATES):
        source = update % sources
        X = rng.standard_normal((ROWS, COLUMNS))
        steps = step / np.sqrt(ROWS) * rng.standard_normal((ROWS, sources, COLUMNS))
        paths = functions + np.cumsum(steps, axis=0)
        functions = paths[-1]
        yield X, (X * paths[:, source]).sum(axis=1) + rng.standard_normal(ROWS), source


def fitted(sketch, source):
    """Return least squares on the rows of a source; on all, if it has hardly any."""
    mine = sketch.extra["origin"] == source
    rows = mine if mine.sum() >= 2 * COLUMNS else np.ones(len(sketch), dtype=bool)
    w = np.sqrt(sketch.weight[rows])
    return np.linalg.lstsq(sketch.X[rows] * w[:, None], sketch.y[rows] * w, rcond=None)[0]


def tried(settings, cuts, sources, step, seed):
    """Return the mean squared error above the noise in the second half, and the sketch."""
    sketch, errors = Sketch(size=SIZE, seed=seed, **settings), []
    for X, y, source in stream(sources, step, seed):
        if sketch.seen >= ROWS * UPDATES // 2:
            errors.append(np.mean((y - X @ fitted(sketch, source)) ** 2) - 1)
        for rows, targets in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
            sketch.update(rows, targets, extra={"origin": np.full(len(rows), source)})
    return np.mean(errors), sketch


def half_interval(values):
    """Return half the 95% confidence interval of a mean."""
    n = len(values)
    return t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan


found, ages = {}, {}
for name, (settings, cuts) in WAYS.items():
    for drift, (sources, step) in STREAMS.items():
        runs = [tried(settings, cuts, sources, step, seed) for seed in range(SEEDS)]
        errors = np.array([error for error, _ in runs])
        found[name, drift] = errors.mean(), half_interval(errors)
        ages[name] = np.concatenate([s.seen - 1 - s.index for _, s in runs])

print(f"{'squared error above the noise':34s}" + "".join(f"{drift:>34s}" for drift in STREAMS))
for name in WAYS:
    cells = [f"{found[name, drift][0]:.3f} ± {found[name, drift][1]:.3f}" for drift in STREAMS]
    print(f"{name:34s}" + "".join(f"{cell:>34s}" for cell in cells))
print("half of the rows kept are younger than")
for name in WAYS:
    print(f"{name:34s}{np.median(ages[name]):8,.0f} rows")

colours = dict(zip(OTHERS, ["#c1272d", "#e8871e", "#8a8a8a", "#4b4b4b"], strict=True))
figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
for axes, drift in zip(panels, STREAMS, strict=False):
    curve = [found[f"half-life {h:,}", drift] for h in HALF_LIVES]
    mean, error = np.transpose(curve)
    axes.errorbar(HALF_LIVES, mean, error, fmt="o-", color="#1b6ca8", label="a half-life")
    for name, colour in colours.items():
        axes.axhline(found[name, drift][0], color=colour, ls="--", label=name)
    axes.set(title=drift, xscale="log", yscale="log", xlabel="half-life, rows")
    axes.set_xticks(HALF_LIVES, [f"{h:,}" for h in HALF_LIVES], fontsize=8)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in (0.1, 0.2, 0.5, 1, 2, 5, 10) if low < tick < high])
panels[0].set_ylabel("squared error above the noise")
bins = np.linspace(0, 3_000, 31)
for name, colour in [
    ("half-life 500", "#1b6ca8"),
    (f"half-life 500, {TEN}", "#6fb1dd"),
    (f"paper, {ONE}", "#c1272d"),
    (f"paper, {TEN}", "#e8871e"),
]:
    kept = np.histogram(ages[name], bins)[0] / len(ages[name])
    panels[2].stairs(100 * kept, bins, color=colour, label=name, lw=1.5)
panels[2].set(title="How old are the rows kept?", xlabel="age, rows", ylabel="% of the rows kept")
panels[2].legend(frameon=False, fontsize=8)
for axes in panels:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
figure.legend(
    *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False
)
figure.savefig(PICTURE, dpi=120)
print(f"{SEEDS} seeds; written to {PICTURE}")
