"""Avalanche's strategies on a stream read from a file: what `learners_avalanche.py` starts.

Runs in an environment with avalanche-lib and without olss. What both sides share, the work, how a
stream is read and how a measurement is asked for, is here too and needs torch alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peers.torchvision_operators import declare_operators
from torch import Tensor, nn
from torch.utils.data import TensorDataset

BATCH, RATE, MEMORY, GEM_ROWS, CLASSES = 100, 0.1, 2_000, 256, 10
STRENGTH = {"ewc": 1.0, "si": 10.0}  # as olss counts it, see `strategy`
ALPHA, BETA, MARGIN, DAMPING = 0.5, 0.5, 0.5, 0.1


Clock = Callable[[], float]
Measure = Callable[..., dict[str, Any]]


def clock_of(threads: int) -> Clock:
    """Return seconds of the processor for one thread, which other work hardly touches."""
    return time.process_time if threads == 1 else time.perf_counter


@dataclass(frozen=True)
class Task:
    """Images of bytes (n, 28, 28) and labels (n,), to train on and to test on."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    scale: float = 255.0


def read_stream(path: Path) -> list[Task]:
    """Return the tasks of a file that `write_stream` made."""
    with np.load(path) as file:
        names = ("X", "y", "X_test", "y_test")
        count = len(file.files) // len(names)
        return [Task(*(file[f"{name}.{i}"] for name in names)) for i in range(count)]


def write_stream(path: Path, tasks: list[Any]) -> None:
    """Write tasks for another process."""
    names = ("X", "y", "X_test", "y_test")
    np.savez(
        path, **{f"{name}.{i}": getattr(t, name) for i, t in enumerate(tasks) for name in names}
    )


def floats(X: Any) -> Tensor:
    """Return images as the net takes them."""
    return torch.tensor(X, dtype=torch.float32).flatten(1) / Task.scale


def warm_up() -> None:
    """Train a net of the size for a few steps: the first steps of a process take longer."""
    net = nn.Sequential(body(), layer(400, CLASSES))
    optimiser = torch.optim.SGD(net.parameters(), lr=RATE)
    for _ in range(10):
        optimiser.zero_grad()
        net(torch.zeros(2 * BATCH, 784)).square().sum().backward()
        optimiser.step()


def layer(inputs: int, outputs: int) -> nn.Linear:
    """Return a layer with first weights as those of olss's net: Xavier-uniform, zero biases."""
    linear = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def body() -> nn.Sequential:
    """Return the net without its last layer."""
    return nn.Sequential(layer(784, 400), nn.ReLU(), layer(400, 400), nn.ReLU())


def strategy(method: str) -> Any:
    """Return Avalanche's strategy, as its documentation makes it; nothing is logged.

    The numbers are those given to olss, where they mean the same. Where not:

    - EWC: both add ``strength * sum F (t - t_old)^2`` for each past task. F here is the mean over
      batches of the squared gradient of a batch, which is the squared gradient of a row over
      the rows of a batch, but for the squared mean: the strength is multiplied by them.
    - SI: half the strength is used here, and importance is cut off at 0.001.
    - DER++: the loss here is the sum of three terms, olss takes their mean. "der++, equal steps" is
      the same here, with olss's rate multiplied by the sum of the terms' weights.
    - iCaRL: the loss here is the mean over all outputs, the paper's is their sum: the rate is
      multiplied by their number.
    """
    from avalanche.training.supervised import (
        DER,
        EWC,
        GEM,
        ICaRL,
        Naive,
        Replay,
        SynapticIntelligence,
    )

    features, classifier = body(), layer(400, CLASSES)
    net = nn.Sequential(features, classifier)
    rate = RATE * CLASSES if method == "icarl" else RATE
    given = {
        "optimizer": torch.optim.SGD(net.parameters(), lr=rate),
        "train_mb_size": BATCH,
        "train_epochs": 1,
        "evaluator": None,
    }
    if method == "icarl":
        return ICaRL(
            feature_extractor=features, classifier=classifier, memory_size=MEMORY,
            buffer_transform=None, fixed_memory=True, eval_mb_size=1000, **given,
        )  # fmt: skip
    given |= {"model": net, "criterion": nn.CrossEntropyLoss()}
    if method == "ewc":
        return EWC(ewc_lambda=STRENGTH["ewc"] * BATCH, **given)
    if method == "si":
        return SynapticIntelligence(si_lambda=2 * STRENGTH["si"], eps=DAMPING, **given)
    if method == "er":
        return Replay(mem_size=MEMORY, **given)
    if method == "gem":
        return GEM(patterns_per_exp=GEM_ROWS, memory_strength=MARGIN, **given)
    if method.startswith("der++"):
        return DER(mem_size=MEMORY, alpha=ALPHA, beta=BETA, **given)
    return Naive(**given)


def as_benchmark(tasks: list[Task]) -> Any:
    """Return the tasks as Avalanche has them, with all images ready in memory as floats."""
    from avalanche.benchmarks import nc_benchmark, tensors_benchmark

    train = [(floats(task.X), torch.tensor(task.y)) for task in tasks]
    test = [(floats(task.X_test), torch.tensor(task.y_test)) for task in tasks]
    order = [int(label) for task in tasks for label in np.unique(task.y)]
    if len(order) > len(set(order)):
        return tensors_benchmark(
            train_tensors=train, test_tensors=test, task_labels=[0] * len(tasks),
            complete_test_set_only=False,
        )  # fmt: skip
    # Each task brings classes of its own: iCaRL asks the benchmark for their order.
    whole = [TensorDataset(*map(torch.cat, zip(*part, strict=True))) for part in (train, test)]
    return nc_benchmark(*whole, len(tasks), task_labels=False, fixed_class_order=order)


def measure(tasks: list[Task], method: str, seed: int, clock: Clock) -> dict[str, Any]:
    """Train on each task, and test on all of them at the end."""
    benchmark = as_benchmark(tasks)
    torch.manual_seed(seed)
    learner, seconds = strategy(method), 0.0
    for experience in benchmark.train_stream:
        begin = clock()
        learner.train(experience)
        seconds += clock() - begin
    learner.model.eval()
    with torch.no_grad():
        right = [
            learner.model(floats(task.X_test)).argmax(1) == torch.tensor(task.y_test)
            for task in tasks
        ]
    return {
        "seconds": seconds,
        "accuracy": float(np.mean([r.double().mean() for r in right])),
        "versions": {name: version(name) for name in ("avalanche-lib", "torch")},
    }


def serve(threads: int, sides: dict[str, Measure]) -> None:
    """Measure what each line of the input asks for, in a process of its own, and print it.

    The process is forked from this one, which has imported all it needs and computed nothing.
    """
    print("{}", flush=True)  # ready
    for line in sys.stdin:
        side, path, method, seed = json.loads(line)
        child = os.fork()
        if child == 0:
            torch.set_num_threads(threads)
            warm_up()
            found = sides[side](read_stream(Path(path)), method, seed, clock_of(threads))
            print(json.dumps(found), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            raise SystemExit(f"{side}, {method} on {path} failed.")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    declare_operators()
    import avalanche.benchmarks
    import avalanche.training.supervised  # noqa: F401  before the forks

    serve(int(sys.argv[1]), {"avalanche": measure})
