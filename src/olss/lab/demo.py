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
from olss.lab.report.figures import assign_styles, line_kwargs, space_labels
from olss.lab.runner import ExperimentProgress, format_seeds, run_experiment
from olss.streams.record import Record
from olss.util.files import open_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
EMPHASIZED = ("olss", "balanced")
INK, FAINT = "#27272a", "#e4e4e7"
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
    if any(progress.failed() for progress in by_stream.values()):
        return False
    console.print(_summarize(by_stream), highlight=False)
    console.print()
    picture = root / "demo.png"
    draw_demo({name: progress.finished() for name, progress in by_stream.items()}, picture)
    page = write_report([root], root / "report")
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
                    for record in progress.finished()
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


def draw_demo(records: Mapping[str, Sequence[Record]], path: Path) -> None:
    """Draw a row of plots for each stream: average accuracy on the left, task 1 on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.4 * len(records) + 0.5), dpi=150)
    figure.set_layout_engine("constrained", h_pad=0.12, w_pad=0.12)
    parts = figure.subfigures(len(records), 1, squeeze=False)[:, 0]
    for part, (name, runs) in zip(parts, records.items(), strict=True):
        part.suptitle(STREAMS[name], x=0.012, ha="left", fontsize=11.5, weight="bold", color=INK)
        left, right = part.subplots(1, 2, sharey=True)
        _plot(left, runs, "average accuracy on the tasks so far, %")
        _plot(right, runs, "accuracy on task 1, %", first=True)
    with open_atomic(path) as file:
        figure.savefig(file, format="png", facecolor="white")


def _plot(axes: Axes, records: Sequence[Record], title: str, *, first: bool = False) -> None:
    curves: dict[str, list[Any]] = {}
    methods = []
    for record in records:
        learner = record.config["learner"]
        curve = record.accuracy[:, 0] if first else record.average_accuracy
        curves.setdefault(learner["label"], []).append(100 * curve)
        methods.append((learner["label"], learner["recipe"], learner.get("policy")))
    styles = {label: line_kwargs(style) for label, style in assign_styles(methods).items()}
    means = {label: np.mean(seeds, axis=0) for label, seeds in curves.items()}
    tasks = np.arange(1, len(next(iter(means.values()))) + 1)
    # Names are seven per cent high.
    places = space_labels([float(mean[-1]) for mean in means.values()], 7.0, 0.0, 104.5)
    for (label, mean), place in zip(means.items(), places, strict=True):
        width, weight = (2.6, "bold") if label in EMPHASIZED else (1.7, "normal")
        axes.plot(tasks, mean, solid_capstyle="round", linewidth=width, **styles[label])
        for seed in curves[label] if len(curves[label]) > 1 else ():
            axes.plot(tasks, seed, linewidth=0.6, alpha=0.55, **styles[label])
        colour = styles[label]["color"]
        text = {"color": colour, "weight": weight, "va": "center", "fontsize": 9.5}
        axes.text(tasks[-1] + 0.25, place, label, clip_on=False, **text)
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.set(xlim=(1, tasks[-1]), ylim=(0, 101), xticks=tasks, yticks=range(0, 101, 20))
    axes.set_xlabel("tasks learned", color=INK, fontsize=9)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=INK, labelsize=8.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#a1a1aa")
