"""What each learner costs, as a ratio to a plain PyTorch loop timed in the same run.

    python benchmarks/learners.py            # 5 permuted tasks of 10,000 rows, one epoch
    python benchmarks/learners.py --full     # the paper's rotated MNIST: 60,000 rows, 5 epochs
    python benchmarks/learners.py --threads 1    # CPU seconds: for a machine with other work
    python benchmarks/learners.py --icarl    # iCaRL against SGD on incremental CIFAR-100
    python benchmarks/learners.py --patches  # CIFAR-100 through a dictionary of 800 patches

Needs MNIST (and CIFAR-100): ``olss data get mnist``, or OLSS_DATA. The loop is what a reader
would write by hand: floats ready in memory, shuffled indices, torch.optim.SGD. A learner's time
is its selection and training; evaluation is in neither. Rounds alternate between all learners,
and each task counts with its fastest round, since other work on the machine only adds time.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

# As in the laboratory's own processes: idle BLAS threads sleep instead of slowing torch's.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import nn

from olss.learn import recipe
from olss.learn.features import Patches
from olss.streams import incremental, permuted, rotated

clock = time.perf_counter
SMALL = [
    ("sgd", 1.1, {}),
    ("ewc", 1.4, {"fisher_rows": 1_000}),
    ("si", 1.4, {}),
    ("er", 2.2, {"size": 2_000}),
    ("gem", 4.3, {"gem_rows": 256}),
    ("olss", 1.9, {}),
    ("olss, sketched scores", 1.4, {"scores": "sketched"}),
    ("online-ewc", None, {}),
    ("a-gem", None, {}),
    ("der++", None, {"size": 2_000}),
    ("olss, weighted", None, {"policy": "weighted"}),
    ("olss, mix", None, {"policy": "reservoir", "regime": "mix"}),
    ("olss, penultimate features", None, {"features": "penultimate"}),
]
FULL = [
    ("sgd", 1.1, {}),
    ("olss", 1.2, {}),
    ("olss, sketched scores", 1.08, {"scores": "sketched"}),
    ("ewc", 1.3, {"fisher_rows": 1_000}),
]


def plain_loop(tasks: list[Any], epochs: int, batch: int) -> list[float]:
    """Seconds of each task in a loop written by hand."""
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(),
        nn.Linear(400, 10),
    )  # fmt: skip
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    seconds = []
    for task in tasks:
        X, y = torch.tensor(task.X, dtype=torch.float32) / 255, torch.tensor(task.y)
        begin = clock()
        for _ in range(epochs):
            for rows in torch.randperm(len(X)).split(batch):
                optimiser.zero_grad()
                nn.functional.cross_entropy(net(X[rows]), y[rows]).backward()
                optimiser.step()
        seconds.append(clock() - begin)
    return seconds


def learner_loop(name: str, tasks: list[Any], **settings: Any) -> tuple[list[float], list[float]]:
    """Seconds of each task, and those of them spent in selection."""
    learner = recipe(name.split(",")[0], lr=0.1, **settings)
    learner.start(range(10))
    learner.model.check_task(tasks[0], tasks[0].X[:2], tasks[0].y[:2], "")  # makes the net
    seconds, select = [], []
    for task in tasks:
        begin = clock()
        cost = learner.fit_task(task)
        seconds.append(clock() - begin)
        select.append(cost.seconds["select"])
    return seconds, select


def compare(methods: list[Any], tasks: list[Any], rounds: int, epochs: int, skip: int = 0) -> None:
    """Print a table of ratios; `skip` leaves the first tasks out of the sums."""
    if not methods:
        return
    plain: list[list[float]] = []
    times: dict[str, list[list[float]]] = {name: [] for name, _, _ in methods}
    selects: dict[str, list[list[float]]] = {name: [] for name, _, _ in methods}
    for _ in range(rounds):
        for name, _, settings in methods:
            plain.append(plain_loop(tasks, epochs, 200))
            seconds, select = learner_loop(name, tasks, epochs=epochs, batch=200, **settings)
            times[name].append(seconds)
            selects[name].append(select)

    def best(runs: list[list[float]]) -> float:
        return float(np.min(runs, axis=0)[skip:].sum())

    print(f"plain loop: {best(plain):.2f} s\n")
    print("| learner | ratio | of it selection | target |\n|---|---|---|---|")
    for name, target, _ in methods:
        goal = "" if target is None else f"{target}"
        ratio, part = best(times[name]) / best(plain), best(selects[name]) / best(plain)
        print(f"| {name} | {ratio:.2f} | {part:.2f} | {goal} |")
    print(flush=True)


def time_patches(rounds: int, images: int = 1_000) -> None:
    """Print seconds of 60,000 images through 800 centres, and as a ratio to the bare product."""
    X = torch.tensor(np.array(incremental("cifar100", tasks=20)[0].X[:images])) / 255
    print(
        "| precision | 60,000 images, s | of it the product of patches and centres |\n|---|---|---|"
    )
    for precision in ("float32", "bfloat16"):
        map_ = Patches(centres=800, precision=precision)
        map_.fit(X, 0)
        dtype = getattr(torch, precision)
        patches, centres = (
            torch.randn(27 * 27, 109, dtype=dtype),
            torch.randn(109, 800, dtype=dtype),
        )
        whole, product = [], []
        for _ in range(rounds):
            begin = clock()
            map_(X)
            whole.append(clock() - begin)
            begin = clock()
            for _ in range(images):
                patches @ centres
            product.append(clock() - begin)
        seconds = 60_000 / images * min(whole)
        print(f"| {precision} | {seconds:.0f} | {min(product) / min(whole):.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--icarl", action="store_true")
    parser.add_argument("--patches", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="1 counts CPU seconds")
    parser.add_argument("--only", default="", help="names to measure, separated by ;")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    threadpool_limits(options.threads, user_api="blas")
    if options.threads == 1:
        # What other work on the machine does not touch.
        global clock
        clock = time.process_time

    def chosen(methods: list[Any]) -> list[Any]:
        wanted = [part.strip() for part in options.only.split(";") if part.strip()]
        return [m for m in methods if not wanted or m[0] in wanted]

    if options.patches:
        time_patches(options.rounds)
        return
    if options.icarl:
        tasks = list(incremental("cifar100", tasks=20))[:3]
        seconds = {}
        for name in ("sgd", "icarl"):
            learner = recipe(name, net="resnet18", lr=0.01, batch=100, epochs=1)
            learner.start(range(100))
            seconds[name] = [learner.fit_task(task) for task in tasks]
        for name, costs in seconds.items():
            parts = ", ".join(f"{sum(e.seconds.values()):.1f} s" for e in costs)
            print(f"{name}: {parts}")
        ratios = [
            sum(b.seconds.values()) / sum(a.seconds.values())
            for a, b in zip(*seconds.values(), strict=True)
        ]
        print("icarl / sgd by task:", [f"{r:.2f}" for r in ratios], "target 2.2 in all")
        return
    if options.full:
        print("## Rotated MNIST, 60,000 rows a task, 5 epochs: tasks 2 and 3 (a full pool)\n")
        tasks = [task for task, _ in zip(rotated("mnist", tasks=20), range(3), strict=False)]
        compare(chosen(FULL), tasks, options.rounds, epochs=5, skip=1)
        print("## GEM through 20 tasks (2,000 rows each, as its ratio does not depend on them)\n")
        tasks = list(rotated("mnist", tasks=20, train_rows=2_000))
        compare(chosen([("gem", 16, {"gem_rows": 256})]), tasks, 1, epochs=1)
        return
    print("## 5 permuted tasks of 10,000 rows, batch 200, one epoch, 784-400-400-10\n")
    tasks = list(permuted("mnist", tasks=5, train_rows=10_000))
    compare(chosen(SMALL), tasks, options.rounds, epochs=1)


if __name__ == "__main__":
    main()
