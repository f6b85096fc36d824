"""GEM's protocol: our SGD, EWC and GEM beside what the published code of GEM gives.

20 tasks of MNIST, 1,000 training images each, one epoch in batches of ten, 784-100-100-10
(Lopez-Paz & Ranzato 2017). A seed changes the stream (permutations, angles, rows) and the
learner. Needs MNIST: ``olss data get mnist`` or OLSS_DATA.

    python benchmarks/gem_protocol.py            # about a quarter of an hour on one core
    python benchmarks/gem_protocol.py --table    # only the table of what was recorded

Results go to experiments/results/gem-protocol; runs already there are not repeated.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from olss.learn import recipe, run
from olss.streams import permuted, rotated
from olss.streams.record import write_json

SHOWN = ("average", "task 1", "backward transfer")
RESULTS = Path(__file__).parent.parent / "experiments" / "results" / "gem-protocol"
SEEDS = {"gem": 3, "ewc, 1,000 Fisher rows": 3, "ewc, strength 10": 3}  # ten otherwise
STREAMS = {
    "permutations": lambda seed: permuted("mnist", tasks=20, train_rows=1_000, seed=seed),
    "rotations": lambda seed: rotated(
        "mnist", tasks=20, angles="bins", resample="nearest", train_rows=1_000, seed=seed
    ),
}
# Learning rate, Fisher rows and strength are those of GEM's published settings.
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "permutations": {
        "sgd": {"lr": 0.03},
        "ewc, squared mean gradient": {
            "lr": 0.1, "ewc_strength": 3.0, "fisher_rows": 10, "fisher": "mean"
        },
        "ewc": {"lr": 0.1, "ewc_strength": 3.0, "fisher_rows": 10},
        "ewc, 1,000 Fisher rows": {"lr": 0.1, "ewc_strength": 3.0, "fisher_rows": 1_000},
        "gem": {"lr": 0.1, "gem_rows": 256, "gem_margin": 0.5},
    },
    "rotations": {
        "sgd": {"lr": 0.003},
        "gem": {"lr": 0.1, "gem_rows": 256, "gem_margin": 0.5},
        "ewc, squared mean gradient": {
            "lr": 0.01, "ewc_strength": 1_000.0, "fisher_rows": 1_000, "fisher": "mean"
        },
        "ewc": {"lr": 0.01, "ewc_strength": 1_000.0, "fisher_rows": 1_000},
        "ewc, strength 10": {"lr": 0.01, "ewc_strength": 10.0, "fisher_rows": 1_000},
    },
}  # fmt: skip
# Mean and standard deviation over three seeds of the published code, run with these settings:
# average accuracy, task 1 at the end, backward transfer.
PUBLISHED = {
    "permutations": {"sgd": "57.6 (0.6) | 38.9 | -23.4", "ewc": "59.6 (1.0) | 53.7 | -20.9",
                     "gem": "82.45 (0.04) | 80.0 | +3.3"},
    "rotations": {"sgd": "53.5 (0.4) | 24.7 | -5.6", "ewc": "53.5 (1.4) | 30.3 | -21.5",
                  "gem": "85.4 (2.9) | 77.1 | +0.6"},
}  # fmt: skip


def measure(stream: str, method: str, seed: int) -> dict[str, Any]:
    name = method.split(",")[0]
    settings = METHODS[stream][method]
    learner = recipe(name, net="mlp-100-100", batch=10, epochs=1, threads=1, **settings)
    try:
        record = run(STREAMS[stream](seed), learner, seed)
    except Exception as error:  # a strength too large for the learning rate diverges
        return {"seed": seed, "failed": str(error)}
    final, learned = record.accuracy[-1], record.accuracy.diagonal()
    return {
        "seed": seed,
        "average": float(final.mean()),
        "task 1": float(final[0]),
        "backward transfer": float((final - learned)[:-1].mean()),
        "train seconds": record.seconds["train"],
        "final": final.tolist(),
        "learned": learned.tolist(),
        "config": record.config,
        "versions": record.versions,
    }


def place(stream: str, method: str) -> Path:
    return RESULTS / f"{stream}-{method.replace(', ', '-').replace(',', '').replace(' ', '-')}.json"


def table() -> str:
    lines = [
        "# GEM's protocol on MNIST",
        "",
        "20 tasks, 1,000 training images a task, one epoch, batches of 10, 784-100-100-10;",
        "percent, mean and, in brackets, standard deviation over seeds after task 20. A seed",
        "changes the stream and the learner: streams alone differ by two points. All ten classes",
        "compete.",
        "`benchmarks/gem_protocol.py` makes this table. *Published code* is the code of",
        "Lopez-Paz & Ranzato (2017), run with the same settings, three seeds.",
        "",
        "| stream | method | seeds | average | task 1 | backward transfer | train seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for stream, methods in METHODS.items():
        for method in methods:
            path = place(stream, method)
            runs = json.loads(path.read_text()) if path.exists() else []
            good = [r for r in runs if "failed" not in r]
            if len(good) < len(runs):
                lines.append(f"| {stream} | {method} | {len(runs) - len(good)} | diverges | | | |")
            if good:
                cells = [
                    f"{100 * np.mean(v):.1f} ({100 * np.std(v, ddof=1) if len(v) > 1 else 0:.1f})"
                    for v in ([r[k] for r in good] for k in SHOWN)
                ]
                seconds = np.mean([r["train seconds"] for r in good])
                lines.append(
                    f"| {stream} | {method} | {len(good)} | {' | '.join(cells)} | {seconds:.1f} |"
                )
            if method in PUBLISHED[stream]:
                published = PUBLISHED[stream][method]
                lines.append(f"| {stream} | {method}, published code | 3 | {published} | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="only print what was recorded")
    parser.add_argument("--most", type=int, default=1000, help="runs to do at most")
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    todo = [
        (s, m, seed) for s, ms in METHODS.items() for m in ms for seed in range(SEEDS.get(m, 10))
    ]
    for stream, method, seed in todo:
        path = place(stream, method)
        runs = json.loads(path.read_text()) if path.exists() else []
        if options.table or options.most == 0 or any(r["seed"] == seed for r in runs):
            continue
        options.most -= 1
        runs.append(measure(stream, method, seed))
        write_json(path, runs)
        print(stream, method, seed, runs[-1].get("average", runs[-1].get("failed")), flush=True)
    (RESULTS / "README.md").write_text(table())
    print(table())


if __name__ == "__main__":
    main()
