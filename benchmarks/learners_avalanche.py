"""Learners of olss beside Avalanche's: seconds for the same work, and accuracy.

    python benchmarks/learners_avalanche.py             # some minutes on one core
    python benchmarks/learners_avalanche.py --most 5    # go on with what is not measured yet
    python benchmarks/learners_avalanche.py --again     # measure everything anew

The first time avalanche-lib is installed from the package index into a virtual environment of its
own below ``~/.cache/olss/peers`` (or ``--cache``; 1.5 GB). Each measurement is a process of its
own. One after the other, with the same stream and seed: a plain PyTorch loop, olss, Avalanche;
same net, batch, epochs, memory and threads. Time is that of training and remembering; what is read
before, and the test at the end, are in none. A seed changes the stream and the learner. Needs
MNIST: ``olss data get mnist`` or OLSS_DATA.

Adds to ``experiments/results/learners-avalanche/runs.csv``; ``python -m experiments.evidence``
makes the tables and the figure of docs/comparison-learners.md of it.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# As in the laboratory's own processes: idle BLAS threads sleep instead of slowing torch's.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import learners
import numpy as np
import torch
from avalanche_strategies import (
    ALPHA,
    BATCH,
    BETA,
    CLASSES,
    DAMPING,
    GEM_ROWS,
    MARGIN,
    MEMORY,
    RATE,
    STRENGTH,
    Clock,
    Task,
    serve,
    write_stream,
)
from peers.environments import python_of

from olss.learn import recipe
from olss.streams import incremental, permuted

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "experiments" / "results" / "learners-avalanche" / "runs.csv"
CACHE = Path.home() / ".cache" / "olss" / "peers"
SEEDS = range(3)
ROWS = 10_000
STREAMS = {
    "permuted": lambda seed: permuted("mnist", tasks=5, train_rows=ROWS, seed=seed),
    "split": lambda seed: incremental("mnist", tasks=5, train_rows=ROWS, seed=seed),
}
METHODS = {
    "permuted": ("sgd", "ewc", "si", "er", "gem", "der++", "der++, equal steps"),
    "split": ("sgd", "er", "der++", "der++, equal steps", "icarl"),
}
DISTILLED = {"size": MEMORY, "alpha": ALPHA, "beta": BETA}
# What a recipe needs beside the rate and the batch; its own defaults otherwise.
SETTINGS: dict[str, dict[str, Any]] = {
    "ewc": {"ewc_strength": STRENGTH["ewc"], "fisher_rows": ROWS},
    "si": {"si_strength": STRENGTH["si"], "si_damping": DAMPING},
    "er": {"size": MEMORY},
    "gem": {"gem_rows": GEM_ROWS, "gem_margin": MARGIN},
    "der++": DISTILLED,
    "der++, equal steps": DISTILLED | {"lr": RATE * (1 + ALPHA + BETA)},
    "icarl": {"size": MEMORY},
}
COLUMNS = [
    "stream", "method", "seed", "threads", "plain_seconds", "olss_seconds", "avalanche_seconds",
    "olss_accuracy", "avalanche_accuracy", "torch", "avalanche",
]  # fmt: skip


def measure_plain(tasks: list[Task], method: str, seed: int, clock: Clock) -> dict[str, Any]:
    """Train in the loop a reader would write by hand."""
    learners.clock = clock
    torch.manual_seed(seed)
    return {"seconds": sum(learners.plain_loop(tasks, epochs=1, batch=BATCH))}


def measure_olss(tasks: list[Task], method: str, seed: int, clock: Clock) -> dict[str, Any]:
    """Train our learner on each task, and test it on all of them at the end."""
    # As in Avalanche, all outputs compete from the start; iCaRL answers by nearest means.
    settings = SETTINGS.get(method, {}) | ({} if method == "icarl" else {"head": "all"})
    settings = {"net": "mlp", "lr": RATE, "batch": BATCH, "epochs": 1} | settings
    learner = recipe(method.split(",")[0], **settings)
    learner.start(range(CLASSES), seed)
    learner.model.check_task(tasks[0], tasks[0].X[:2], tasks[0].y[:2], "")  # makes the net
    seconds = 0.0
    for task in tasks:
        begin = clock()
        learner.fit_task(task)
        seconds += clock() - begin
    scores = [learner.score(task.X_test, task.y_test) for task in tasks]
    return {"seconds": seconds, "accuracy": float(np.mean(scores))}


SIDES = {"plain": measure_plain, "olss": measure_olss}


class Server:
    """A process that measures what it is asked for, each time in a process of its own."""

    def __init__(self, *command: Any) -> None:
        words = [str(word) for word in command]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()  # that it is ready

    def __call__(self, *job: Any) -> dict[str, Any]:
        """Return what was measured of a side, a stream's file, a method and a seed."""
        assert self.process.stdin is not None
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise SystemExit("the measurement failed; what is above tells why.")


def measure(
    ask: list[Server], cache: Path, stream: str, method: str, seed: int, threads: int
) -> dict[str, Any]:
    """Measure the loop, olss and Avalanche, one after the other."""
    path = cache / f"{stream}-mnist-{seed}.npz"
    if not path.exists():
        write_stream(path, list(STREAMS[stream](seed)))
    plain = ask[0]("plain", str(path), method, seed)
    ours = ask[0]("olss", str(path), method, seed)
    theirs = ask[1]("avalanche", str(path), method, seed)
    versions = theirs["versions"]
    if versions["torch"] != torch.__version__:
        raise SystemExit(f"torch must be the same, found {torch.__version__} and {versions}.")
    return {
        "stream": stream, "method": method, "seed": seed, "threads": threads,
        "plain_seconds": round(plain["seconds"], 4),
        "olss_seconds": round(ours["seconds"], 4),
        "avalanche_seconds": round(theirs["seconds"], 4),
        "olss_accuracy": round(ours["accuracy"], 5),
        "avalanche_accuracy": round(theirs["accuracy"], 5),
        "torch": versions["torch"], "avalanche": versions["avalanche-lib"],
    }  # fmt: skip


def read_runs(path: Path) -> list[dict[str, str]]:
    """Return what was measured before."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_runs(path: Path, runs: list[dict[str, Any]]) -> None:
    """Write what was measured, in the order of the streams and methods."""
    line = [(stream, method) for stream in STREAMS for method in METHODS[stream]]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            sorted(runs, key=lambda r: (line.index((r["stream"], r["method"])), int(r["seed"])))
        )


def show(run: dict[str, Any]) -> None:
    """Print a measurement as a line."""
    plain = float(run["plain_seconds"])
    print(
        f"| {run['stream']} | {run['method']} | {run['seed']} | {plain:.2f} "
        f"| {float(run['olss_seconds']) / plain:.2f} "
        f"| {float(run['avalanche_seconds']) / plain:.2f} "
        f"| {100 * float(run['olss_accuracy']):.1f} "
        f"| {100 * float(run['avalanche_accuracy']):.1f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=CACHE, help="where Avalanche is installed")
    parser.add_argument("--into", type=Path, default=RESULTS)
    parser.add_argument("--threads", type=int, default=1, help="1 counts CPU seconds")
    parser.add_argument("--only", default="", help="methods to measure, separated by ;")
    parser.add_argument("--most", type=int, default=1000, help="measurements to add at most")
    parser.add_argument("--again", action="store_true", help="forget what was measured")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    print("Avalanche is installed first, where it is not: some minutes", flush=True)
    python, why_not = python_of("avalanche", options.cache)
    if why_not:
        sys.exit(f"Avalanche {why_not}")
    sides = [
        (sys.executable, __file__, "--serve"),
        (python, HERE / "avalanche_strategies.py"),
    ]
    servers = [Server(*side, options.threads) for side in sides]
    wanted = [part.strip() for part in options.only.split(";") if part.strip()]
    runs: list[dict[str, Any]] = [] if options.again else list(read_runs(options.into))
    print("| stream | method | seed | plain loop, s | olss | Avalanche | olss, % | Avalanche, % |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for run in runs:
        show(run)
    done = {(run["stream"], run["method"], int(run["seed"])) for run in runs}
    for seed in SEEDS:
        for stream, methods in METHODS.items():
            for method in methods:
                new = (stream, method, seed) not in done and (not wanted or method in wanted)
                if not new or not options.most:
                    continue
                options.most -= 1
                run = measure(servers, options.cache, stream, method, seed, options.threads)
                runs.append(run)
                show(run)
                write_runs(options.into, runs)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), SIDES)
    else:
        main()
