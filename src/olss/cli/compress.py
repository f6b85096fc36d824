"""The command ``olss compress``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from olss.util.terminal import Interrupted, echo, report_errors

if TYPE_CHECKING:
    from olss.files.compress import Progress

__all__ = ["register"]

COMPRESS_EXAMPLES = """\
**Examples**

`olss compress logs/*.parquet --into small.parquet --size 100000 --target label --seed 0`

`olss compress logs/ --into small.parquet`  goes on: takes in the files that are new

`olss compress a.csv b.jsonl.gz c.orc --into small.parquet --size 5000 --policy reservoir`

`olss compress logs/ --into small.parquet --size 5000 --half-life 30d --time date`

Then: `olss inspect`, `olss estimate`, `olss forget`; policies: `olss list policies`
"""


def register(app: typer.Typer) -> None:
    """Register ``olss compress``."""
    app.command("compress", epilog=COMPRESS_EXAMPLES)(report_errors(_compress))


def _compress(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="IN...",
            help="Parquet, CSV, JSON lines, ORC, Arrow, npy, npz: files, folders, globs, URLs.",
        ),
    ],
    into: Annotated[
        Path, typer.Option(metavar="OUT.parquet", help="The file to make or to continue.")
    ],
    size: Annotated[
        int | None, typer.Option(help="Rows to keep. Needed for a new file only.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="COL", help="The column to be predicted.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="COL", help="The column that says the task. Default: the file."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="weighted (default), paper, reservoir, balanced or recent."),
    ] = None,
    scores: Annotated[
        str | None, typer.Option(help="auto (default), exact, ridge, or a number: the ridge.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns to score. Default: all.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns not to score.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Where the randomness comes from.")] = None,
    intercept: Annotated[
        bool | None,
        typer.Option("--intercept/--no-intercept", help="Score rows with a constant added."),
    ] = None,
    half_life: Annotated[
        str | None,
        typer.Option(
            "--half-life",
            metavar="ROWS|TIME",
            help="Rows count half after so many rows or, with --time, after so long (30d, 12h).",
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option(
            "--last",
            metavar="ROWS|TIME",
            help="Forget all that is older than so many rows, or so long.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="COL", help="The column that says how old a row is."),
    ] = None,
    spectrum: Annotated[
        bool | None,
        typer.Option(
            "--spectrum/--no-spectrum",
            help="Keep what says how good the result is, whatever the policy.",
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over if OUT exists.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Pass over what cannot be read, and say so.")
    ] = False,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDR", help="Work on this Dask cluster.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Start so many Dask workers here and work on them.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
) -> None:
    """Compress tables to a few rows that stand for all of them, or go on with new ones.

    Files already taken in are passed over, so the same command with tomorrow's file in the folder
    takes in that file alone. Stopped at any moment, OUT is as it was before.
    """
    from olss.files import compress

    try:
        with _shown(quiet) as progress:
            summary = compress(
                inputs,
                into=into,
                size=size,
                target=target,
                task=task,
                policy=policy,
                scores=_number_or_name(scores),
                columns=_names(columns),
                exclude=_names(exclude),
                intercept=intercept,
                half_life=_number_or_name(half_life),
                last=_number_or_name(last),
                time=time,
                spectrum=spectrum,
                seed=seed,
                fresh=fresh,
                skip_bad=skip_bad,
                scheduler=scheduler,
                workers=workers,
                progress=progress,
            )
    except KeyboardInterrupt as stop:
        raise Interrupted(
            f"Stopped. {into} is as it was before; the same command starts again."
        ) from stop
    if not quiet:
        echo(summary)


@contextmanager
def _shown(quiet: bool) -> Iterator[Progress | None]:
    """Show on a terminal how far the work is; where nobody looks, load nothing for it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    shown = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with shown:
        line = shown.add_task("looking", total=None)
        yield lambda what, done, total: shown.update(
            line, description=what, completed=done, total=total
        )


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _number_or_name(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
