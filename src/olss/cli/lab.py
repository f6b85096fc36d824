"""The commands of the laboratory: demo, run, tune, report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from olss.util.files import write_atomic
from olss.util.terminal import Interrupted, echo, report_errors
from olss.util.text import explain_spread

if TYPE_CHECKING:
    from olss.lab.experiment import Experiment
    from olss.lab.runner import ExperimentProgress

EXAMPLES = """\
**First steps**

`olss demo`  see what a net forgets, and how a memory prevents it, in under a minute

`olss run FILE.toml`  run an experiment, or resume it; `olss report runs/NAME`  a page of it

`olss compress big.parquet --into small.parquet --size 10000`  a training set that fits

`olss list recipes`  what to choose from: policies, recipes, streams, datasets

`olss COMMAND --help`  a command's options, with examples
"""

RUN_EXAMPLES = """\
**Examples**

`olss run experiments/digits-paper-permuted.toml`  seconds, no download

`olss run FILE --jobs 2 --seeds 0-4`  two runs at a time, five seeds

`olss run FILE --only olss --only sgd --set train.epochs=1`  two learners, one epoch

`olss run FILE --set learner.olss.lr=0.3 --set name=try`  a variant, in its own folder

`olss run FILE --tensorboard`  log scores; `tensorboard --logdir runs` shows them

`olss --verbose run FILE`  log what happens

The same command resumes: finished runs are kept, a killed one continues after its last task
and ends with the same record.
"""

DEMO_EXAMPLES = """\
**Examples**

`olss demo`  results, picture and page go to olss-demo

`olss demo --into /tmp/demo`  another folder
"""

TUNE_EXAMPLES = """\
**Examples**

`olss tune FILE --jobs 2`  every learner, the grid of learning rates of the paper

`olss tune FILE --only ewc --set tune.tasks=3 --write tuned.toml`  on three tasks; write the choice

`olss tune FILE --set tune.method=tpe --set tune.trials=40`  let Optuna propose

Trials are scored on held-out training rows; test rows are never used. The same command resumes.
The search space is in the file's `[tune]` table.
"""

REPORT_EXAMPLES = """\
**Examples**

`olss report runs/NAME`  one experiment; the page is report/index.html

`olss report runs --out all`  everything below runs, grouped by stream and protocol

Records made in Python (`olss.learn.run(...).save("runs/mine/seed-0")`) are read like any other.
"""

STOPPED = "Stopped. Every task learned is saved: the same command resumes."
STOPPED_THERE = "Stopped. Finished runs are saved: the same command runs the others."

File = Annotated[Path, typer.Argument(help="Experiment file (.toml).", show_default=False)]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Run this learner only, or all of its sweep; may be repeated.", show_default=False
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value: train.epochs=1, learner.olss.lr=0.3."),
]
Into = Annotated[Path, typer.Option("--into", help="Folder of results.")]
Jobs = Annotated[
    int, typer.Option(min=0, help="Number of runs at a time; 0: as many as the cores allow.")
]


def register(app: typer.Typer) -> None:
    """Register the commands on the main application."""
    app.info.epilog = EXAMPLES
    app.command(epilog=DEMO_EXAMPLES)(demo)
    app.command(epilog=RUN_EXAMPLES)(run)
    app.command(epilog=TUNE_EXAMPLES)(tune)
    app.command(epilog=REPORT_EXAMPLES)(report)


@report_errors
def demo(
    into: Annotated[Path, typer.Option("--into", help="Folder of results.")] = Path("olss-demo"),
) -> None:
    """See what a net forgets, and how a memory prevents it: under a minute, no download."""
    from olss.lab.demo import demo as show

    try:
        whole = show(into, _console())
    except KeyboardInterrupt:
        raise Interrupted(STOPPED) from None
    if not whole:
        raise typer.Exit(1)


@report_errors
def run(
    file: File,
    jobs: Jobs = 1,
    only: Only = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds to use instead of the file's: 3, 0-4 or 0,2,5-7.")
    ] = None,
    changes: Set = None,
    device: Annotated[
        str | None, typer.Option(help="Device to train on: cpu, cuda, cuda:1.")
    ] = None,
    into: Into = Path("runs"),
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on the cluster of this Dask scheduler."),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Log for TensorBoard, beside the results.")
    ] = False,
) -> None:
    """Run an experiment, or resume it."""
    from olss.lab.experiment import load, safe_name
    from olss.lab.runner import TensorBoardLog, run_experiment

    overrides = [*(changes or []), *([f"seeds={seeds!r}"] if seeds else [])]
    overrides += [f"device={device!r}"] if device else []
    experiment = load(file, overrides)
    out = _console()
    out.print(experiment.name, style="bold", end="  ", markup=False, highlight=False)
    words = " · ".join(experiment.describe_protocol())
    out.print(words, style="dim", markup=False, highlight=False, soft_wrap=True)
    folder = into / safe_name(experiment.name)
    try:
        progress = run_experiment(
            experiment,
            into,
            out,
            only=only or (),
            jobs=_processes(jobs, experiment),
            scheduler=scheduler,
            watchers=[TensorBoardLog(into)] if tensorboard else [],
        )
    except KeyboardInterrupt:
        raise Interrupted(STOPPED_THERE if scheduler else STOPPED) from None
    _print_results(progress, folder)
    if progress.failed_runs():
        raise typer.Exit(1)


@report_errors
def tune(
    file: File,
    jobs: Jobs = 1,
    only: Only = None,
    changes: Set = None,
    into: Into = Path("runs"),
    write: Annotated[
        Path | None,
        typer.Option(help="Write an experiment file with the chosen settings.", show_default=False),
    ] = None,
) -> None:
    """Choose settings on held-out training rows, with Optuna."""
    from olss.lab.experiment import load, safe_name
    from olss.lab.tune import format_tuned
    from olss.lab.tune import tune as search

    experiment = load(file, changes or [])
    experiment = experiment.only(only) if only else experiment
    out = _console()
    try:
        content = search(experiment, into, out, _processes(jobs, experiment))
    except KeyboardInterrupt:
        raise Interrupted("Stopped. Every trial is saved: the same command resumes.") from None
    out.print()
    out.print(_choice_table(content))
    out.print()
    for text in _describe_edges(experiment, content):
        out.print(text, style="yellow", soft_wrap=True, highlight=False, markup=False)
    folder = into / f"{safe_name(experiment.name)}-tune"
    out.print(f"Every trial is in {folder / 'tune.json'}", soft_wrap=True, highlight=False)
    failed = sum(trial["state"] == "fail" for one in content.values() for trial in one["trials"])
    if failed:
        echo(f"{failed} of the trials failed; the same command tries them again.", err=True)
    none = [name for name, one in content.items() if not one["chosen"]]
    if none:
        echo(f"Nothing was chosen for {', '.join(none)}.", err=True)
    if write is not None and len(none) < len(content):
        write_atomic(write, format_tuned(experiment, content).encode())
        out.print(f"The choice is in {write}: olss run {write}", soft_wrap=True, highlight=False)
    if failed or none:
        raise typer.Exit(1)


@report_errors
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders with records.")],
    out: Annotated[Path, typer.Option(help="Folder to write the report into.")] = Path("report"),
) -> None:
    """Make a page, figures, tables and checked claims from the records of runs."""
    from olss.lab.report import write_report

    page = write_report(runs, out)
    content = json.loads((out / "report.json").read_text(encoding="utf-8"))
    winners = [stream["winner"] for stream in content["streams"]]
    for winner in winners:
        echo(winner)
    if meaning := explain_spread(" ".join(winners)):
        echo(f"({meaning})")
    echo(f"The report is in {page}")


def _describe_edges(experiment: Experiment, content: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each choice that lies at the edge of what was tried."""
    for learner in experiment.learners:
        one = content[learner.name]
        for key, edge in one["edges"].items():
            value = f"{key}={one['chosen']['settings'][key]} of {learner.name}"
            own = key in learner.tune
            place = f"learner.{learner.name}.tune.{key}" if own else f"tune.space.{key}"
            yield (
                f"{value} is the {edge} value tried: a better one may lie beyond. Widen the search "
                f"(--set '{place}=[...]')."
            )


def _choice_table(content: dict[str, Any]) -> Any:
    from rich.table import Table

    from olss.util.text import format_score

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("learner", "chosen", "on validation rows", "trials"):
        table.add_column(heading)
    for name, search in content.items():
        chosen = search["chosen"]
        values = ", ".join(f"{k}={v}" for k, v in chosen["settings"].items()) if chosen else "none"
        metric = next((t["metric"] for t in search["trials"] if "metric" in t), "accuracy")
        reached = format_score({"mean": chosen["score"]}, metric) if chosen else ""
        table.add_row(name, values, reached, str(len(search["trials"])))
    return table


def _print_results(progress: ExperimentProgress, folder: Path) -> None:
    out = _console()
    out.print()
    out.print(progress.table(now=False))
    out.print()
    if progress.finished_records():
        text = f"Results are in {folder}; for a page of them: olss report {folder}"
        out.print(text, soft_wrap=True)
    if failed := len(progress.failed_runs()):
        echo(f"{failed} of the runs failed; the same command tries them again.", err=True)


def _processes(jobs: int, experiment: Experiment) -> int:
    """Return the number of runs at a time; warn if more were requested than cores allow."""
    settings = [{**experiment.train, **learner.settings} for learner in experiment.learners]
    asked = [setting.get("threads", 1) for setting in settings]
    threads = max([1, *(count for count in asked if isinstance(count, int))])
    cores = os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count()
    fitting = max(1, (cores or 1) // threads)
    if jobs > fitting:
        echo(
            f"{jobs} runs of {threads} thread(s) on {cores} cores slow each other down.",
            err=True,
        )
    return jobs or fitting


def _console() -> Any:
    from rich.console import Console

    return Console()
