"""The demo: forgetting, and how a memory prevents it, in under a minute and without a download."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from olss.errors import MissingExtraError
from olss.lab.executors import ProcessExecutor
from olss.lab.experiment import Experiment, parse
from olss.lab.report import write_report
from olss.lab.report.figures import LOOK, draw_curves
from olss.lab.runner import ExperimentProgress, format_seeds, run_experiment
from olss.util.files import open_atomic, read_json

if TYPE_CHECKING:
    from rich.console import Console

PACKAGES = {"torch": "torch", "sklearn": "scikit-learn", "matplotlib": "matplotlib"}
TASKS, ROWS = 10, 1_000
STREAMS = {
    "rotated": "Rotated digits: every task turns them a little further",
    "permuted": "Permuted digits: every task shuffles the pixels anew",
}
LEARNERS: list[dict[str, Any]] = [
    {"name": "sgd", "recipe": "sgd"},
    {"name": "olss", "recipe": "olss"},
    {"name": "reservoir", "recipe": "olss", "policy": "reservoir"},
    {"name": "balanced", "recipe": "olss", "policy": "balanced"},
    {"name": "joint", "recipe": "joint"},
]
INTRODUCTION = f"""\
A net learns {TASKS} tasks one after the other, {ROWS:,} handwritten digits each.
What it learns last overwrites what it learned first, unless it also trains
on a memory:

  [bold]sgd[/]        no memory
  [bold]olss[/]       a sketch of all tasks so far: {ROWS:,} rows sampled by leverage
             scores, as in the paper
  [bold]reservoir[/]  as many rows, sampled uniformly
  [bold]balanced[/]   as many rows, the same number for each task and digit
  [bold]joint[/]      keeps everything, at a cost that grows with each task

The tables have the accuracy on test digits after the last task, in %:
averaged over all tasks, on task 1 and on the newest task.
"""


def demo(root: Path, console: Console, seeds: str = "0-2", tasks: int = TASKS) -> bool:
    """Run the demo and show the results; return whether every run succeeded."""
    for module, package in PACKAGES.items():
        if find_spec(module) is None:
            raise MissingExtraError(package, "lab", "olss demo")
    console.print(INTRODUCTION, highlight=False)
    by_stream: dict[str, ExperimentProgress] = {}
    processes = min(2, os.cpu_count() or 1)
    with contextlib.closing(ProcessExecutor(root, processes)) as executor:
        for experiment in demo_experiments(seeds, tasks):
            console.print(f"[bold]{STREAMS[experiment.name]}[/]")
            progress = run_experiment(experiment, root, console, jobs=processes, executor=executor)
            by_stream[experiment.name] = progress
            console.print(progress.table(now=False))
            console.print()
    if any(progress.failed_runs() for progress in by_stream.values()):
        return False
    console.print(_summarize(by_stream), highlight=False)
    console.print()
    picture, page = (
        root / "demo.png",
        write_report([root / name for name in STREAMS], root / "report"),
    )
    draw_demo(read_json(root / "report" / "report.json")["streams"], picture)
    console.print(f"Picture  {picture}\nPage     {page}", highlight=False, soft_wrap=True)
    return True


def demo_experiments(seeds: str = "0-2", tasks: int = TASKS) -> list[Experiment]:
    """Return the demo's two experiments."""
    shared = {"seeds": seeds, "net": "mlp-100-100", "learner": LEARNERS} | {
        "protocol": f"{tasks} tasks x {ROWS:,} rows, 5 epochs, batch 20, 64-100-100-10",
        "train": {"lr": 0.1, "epochs": 5, "batch": 20},
    }
    data = {"dataset": "digits", "tasks": tasks, "train_rows": ROWS}
    return [parse({"name": name, "stream": {"name": name, **data}, **shared}) for name in STREAMS]


def _summarize(by_stream: Mapping[str, ExperimentProgress]) -> str:
    """Return in words what is left of the first task, whatever the numbers are."""

    def task_one(learner: str) -> str:
        means = [
            np.mean(
                [
                    record.accuracy[-1, 0]
                    for record in progress.finished_records()
                    if record.config["learner"]["label"] == learner
                ]
            )
            for progress in by_stream.values()
        ]
        return " and ".join(format_seeds([float(mean)]) for mean in means) + " %"

    return (
        f"Accuracy on the very first task ({' and '.join(by_stream)}) at the end: sgd\n"
        f"{task_one('sgd')}, olss {task_one('olss')}, reservoir {task_one('reservoir')},\n"
        f"balanced {task_one('balanced')}, and the net that keeps everything\n{task_one('joint')}."
    )


def draw_demo(streams: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw a row of plots for each stream of a report: the average on the left, task 1 right."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(LOOK), open_atomic(path) as file:
        figure = Figure(figsize=(9.6, 3.4 * len(streams) + 0.5), dpi=150)
        figure.set_layout_engine("constrained", h_pad=0.12, w_pad=0.12)
        parts = figure.subfigures(len(streams), 1, squeeze=False)[:, 0]
        for part, stream in zip(parts, streams, strict=True):
            title = STREAMS[stream["stream"]["name"]]
            part.suptitle(title, x=0.012, ha="left", fontsize=11.5, weight="bold")
            left, right = part.subplots(1, 2, sharey=True)
            left.set_ylim(0, 101)  # first, since labels are spaced by it
            draw_curves(left, stream, "average")
            draw_curves(right, stream, "first")
            left.set(title="average accuracy on the tasks so far, %", xlabel="tasks learned")
            right.set(title="accuracy on task 1, %", xlabel="tasks learned")
        figure.savefig(file, format="png", facecolor="white")
