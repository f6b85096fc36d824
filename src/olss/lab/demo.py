"""The demo: forgetting, and not forgetting, in under a minute and without a download."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from olss.errors import MissingExtraError
from olss.lab.executors import ProcessExecutor
from olss.lab.experiment import Experiment, parse
from olss.lab.progress import ExperimentProgress, said_score
from olss.lab.report import write_report
from olss.lab.report.figures import assign_styles, line_kwargs, space_labels
from olss.lab.runner import run_experiment
from olss.streams.record import Record
from olss.util.files import open_atomic

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["demo", "demo_experiments", "draw_demo"]


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
WHAT = f"""\
A net learns {TASKS} tasks one after the other, {ROWS:,} handwritten digits each.
What it learns last overwrites what it learned first, unless it also trains
on a memory:

  [bold]sgd[/]        no memory
  [bold]olss[/]       a sketch of all tasks so far, {ROWS:,} rows drawn by leverage scores:
             the paper's way
  [bold]reservoir[/]  as many rows, drawn evenly
  [bold]balanced[/]   as many rows, the same number for each task and digit
  [bold]joint[/]      keeps everything, at a cost that grows with each task

Below, in % of test digits read right after the last task: the average over
all tasks, task 1 and the newest task.
"""


def demo_experiments(seeds: str = "0-2", tasks: int = TASKS) -> list[Experiment]:
    """Return the demo's two experiments."""
    return [
        parse(
            {
                "name": name,
                "protocol": f"{tasks} tasks x {ROWS:,} rows, 5 epochs, batch 20, 64-100-100-10",
                "seeds": seeds,
                "net": "mlp-100-100",
                "stream": {"name": name, "dataset": "digits", "tasks": tasks, "train_rows": ROWS},
                "train": {"lr": 0.1, "epochs": 5, "batch": 20},
                "learner": LEARNERS,
            }
        )
        for name in STREAMS
    ]


def demo(root: Path, console: Console, seeds: str = "0-2", tasks: int = TASKS) -> bool:
    """Run the demo and show what came of it; return whether all went well.

    Parameters
    ----------
    root : Path
        Folder for results, picture and page.
    console : rich.console.Console
        Where to talk.
    seeds, tasks : str, int
        How much of it.
    """
    console.print(WHAT, highlight=False)
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
    console.print(_lesson(by_stream), highlight=False)
    console.print()
    picture = root / "demo.png"
    draw_demo({name: progress.finished() for name, progress in by_stream.items()}, STREAMS, picture)
    console.print(f"Picture  {picture}", highlight=False, soft_wrap=True)
    page = write_report([root], root / "report")
    console.print(f"Page     {page}", highlight=False, soft_wrap=True)
    return True


def _lesson(by_stream: dict[str, ExperimentProgress]) -> str:
    """Say in words what the numbers say, whatever they are."""

    def of_task_one(learner: str) -> str:
        scores = [
            statistics.fmean(
                float(record.accuracy[-1, 0])
                for record in progress.finished()
                if record.config["learner"]["label"] == learner
            )
            for progress in by_stream.values()
        ]
        return " and ".join(said_score([score]) for score in scores) + " %"

    return (
        f"Of the very first task ({' and '.join(by_stream)}), sgd still reads "
        f"{of_task_one('sgd')}\nat the end, olss {of_task_one('olss')}, a reservoir "
        f"{of_task_one('reservoir')},\na balanced memory {of_task_one('balanced')}, and the net "
        f"that keeps everything\n{of_task_one('joint')}."
    )


# ------------------------------------------------------------------ demo picture

STRONG = ("olss", "balanced")  # what the demo is about
INK, FAINT = "#27272a", "#e4e4e7"


def draw_demo(
    records: Mapping[str, Sequence[Record]], titles: Mapping[str, str], path: Path
) -> None:
    """Draw a row for each stream: average accuracy on the left, task 1 on the right.

    Parameters
    ----------
    records : mapping of str to records
        Of each stream; the learner's label is in each record.
    titles : mapping of str to str
        What each stream is.
    path : Path
        File to write.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "lab", "The picture") from error
    figure = Figure(figsize=(9.6, 3.4 * len(records) + 0.5), dpi=150)
    figure.set_layout_engine("constrained", h_pad=0.12, w_pad=0.12)
    parts = figure.subfigures(len(records), 1, squeeze=False)[:, 0]
    for part, (name, runs) in zip(parts, records.items(), strict=True):
        part.suptitle(titles[name], x=0.012, ha="left", fontsize=11.5, weight="bold", color=INK)
        left, right = part.subplots(1, 2, sharey=True)
        _draw(left, runs, "average accuracy on the tasks so far, %", 0)
        _draw(right, runs, "accuracy on task 1, %", 1)
    with open_atomic(path) as file:
        figure.savefig(file, format="png", facecolor="white")


def _draw(axes: Any, records: Sequence[Record], title: str, column: int) -> None:
    curves: dict[str, list[Any]] = {}
    methods = []
    for record in records:
        learner = record.config["learner"]
        curve = record.accuracy[:, 0] if column else record.average_accuracy
        curves.setdefault(learner["label"], []).append(100 * curve)
        methods.append((learner["label"], learner["recipe"], learner.get("policy")))
    looks = {label: line_kwargs(style) for label, style in assign_styles(methods).items()}
    means = {label: np.mean(several, axis=0) for label, several in curves.items()}
    tasks = np.arange(1, len(next(iter(means.values()))) + 1)
    for label, mean in means.items():
        width = 2.6 if label in STRONG else 1.7
        axes.plot(tasks, mean, solid_capstyle="round", linewidth=width, **looks[label])
        for single in curves[label] if len(curves[label]) > 1 else ():
            axes.plot(tasks, single, linewidth=0.6, alpha=0.55, **looks[label])
    # Names are seven per cent high.
    places = space_labels([float(mean[-1]) for mean in means.values()], 7.0, 0.0, 104.5)
    for label, place in zip(means, places, strict=True):
        text = {"color": looks[label]["color"], "va": "center", "fontsize": 9.5}
        weight = "bold" if label in STRONG else "normal"
        axes.text(tasks[-1] + 0.25, place, label, weight=weight, clip_on=False, **text)
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.set(xlim=(1, tasks[-1]), ylim=(0, 101), xticks=tasks, yticks=range(0, 101, 20))
    axes.set_xlabel("tasks learned", color=INK, fontsize=9)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=INK, labelsize=8.5)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#a1a1aa")
