"""Records of runs that never were: plausible, and decided by their arguments alone."""

import zlib
from pathlib import Path

import numpy as np

from olss.learn import Record

# Score when learned, share of it lost for each task since, seconds a task relative to SGD.
METHODS = {
    "sgd": (0.93, 0.10, 1.0),
    "ewc": (0.90, 0.055, 6.0),
    "gem": (0.91, 0.012, 40.0),
    "er": (0.92, 0.016, 2.2),
    "olss": (0.915, 0.010, 3.0),
    "balanced": (0.925, 0.006, 3.2),
}
LEARNERS = {
    "sgd": {"recipe": "sgd", "regime": "task"},
    "ewc": {"recipe": "ewc", "regime": "task", "ewc_strength": 100.0},
    "gem": {"recipe": "gem", "gem_rows": 256, "regime": "task", "gem_margin": 0.5},
    "er": {"recipe": "er", "size": 1000, "policy": "reservoir", "regime": "replay", "share": 0.5},
    "olss": {"recipe": "olss", "size": "task", "policy": "paper", "regime": "sketch", "share": 0.5},
    "balanced": {
        "recipe": "olss", "label": "olss-balanced", "size": 1000, "policy": "balanced",
        "regime": "replay", "share": 0.5,
    },
}  # fmt: skip


def stream_config(name="permuted", tasks=8, seed=0, **options):
    return {"name": name, "dataset": "digits", "tasks": tasks, "seed": seed} | options


def made(method, seed=0, *, stream="permuted", tasks=8, done=None, head="seen", **changes):
    """Make a record of `done` tasks of a stream of so many."""
    learned, loss, cost = METHODS[method]
    done = tasks if done is None else done
    rng = np.random.default_rng([seed, zlib.crc32(f"{method} {stream}".encode())])
    shared = np.random.default_rng([seed, zlib.crc32(stream.encode())])
    i, j = np.indices((done, done))
    ease = shared.normal(0, 0.015, done)
    accuracy = learned * np.exp(-loss * (i - j) / (1 + 0.08 * (i - j).clip(0))) + ease[j]
    accuracy += rng.normal(0, 0.004, (done, done))
    accuracy = np.where(j <= i, accuracy.clip(0.08, 1), np.nan)
    size = LEARNERS[method].get("size", 0)
    size = 1438 if size == "task" else size
    rows = np.where(j <= i, size // (i + 1), 0)
    if method == "gem":
        rows = np.where(j <= i, 256, 0)
    seconds = 0.2 * cost * shared.uniform(0.9, 1.1) * rng.uniform(0.97, 1.03, done)
    config = {
        "stream": stream_config(stream, tasks, seed),
        "learner": dict(LEARNERS[method]),
        "net": "mlp-100-100",
        "training": {"lr": 0.1, "epochs": 5, "batch": 20, "optimizer": "sgd", "head": head},
    }
    values = {
        "accuracy": accuracy,
        "ahead": np.full(done, 0.12) + rng.normal(0, 0.02, done),
        "initial": np.full(done, 0.10),
        "memory_rows": rows,
        "stored_examples": rows.sum(1),
        "stored_bytes": rows.sum(1) * 88,
        "steps": np.full(done, 360),
        "tasks": [f"permutation {k + 1}" for k in range(done)],
        "seed": seed,
        "config": config,
        "versions": {"olss": "0.1.0"},
        "task_seconds": {
            "select": seconds * (0.3 if size else 0),
            "train": seconds * (0.7 if size else 1),
            "evaluate": np.full(done, 0.05),
        },
        "peak_memory": 300_000_000,
    }
    return Record(**(values | changes))


def saved(folder, method, seed=0, **options):
    """Save a made record where the laboratory would."""
    label = LEARNERS[method].get("label", method)
    stream = options.get("stream", "permuted")
    place = Path(folder) / stream / label / f"seed-{seed}"
    made(method, seed, **options).save(place)
    return place
