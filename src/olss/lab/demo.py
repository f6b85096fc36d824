"""The demo: forgetting, and not forgetting, in under a minute and without a download."""

from __future__ import annotations

import contextlib
import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olss.lab.demo_picture import draw_demo
from olss.lab.experiment import Experiment, parse
from olss.lab.process_executor import ProcessExecutor
from olss.lab.progress import ExperimentProgress, said_score
from olss.lab.report import write_report
from olss.lab.run_experiment import run_experiment

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["demo", "demo_experiments"]

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
