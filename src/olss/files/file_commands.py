"""The commands `olss compress` and `olss inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from olss.common.terminal import Interrupted, plain_errors, say

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("compress")(plain_errors(_compress))
    app.command("inspect")(plain_errors(_inspect))


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
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from olss.files import compress

    console = Console(stderr=True)
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )
    try:
        with shown:
            line = shown.add_task("looking", total=None)
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
                seed=seed,
                fresh=fresh,
                skip_bad=skip_bad,
                scheduler=scheduler,
                workers=workers,
                progress=lambda what, done, total: shown.update(
                    line, description=what, completed=done, total=total
                ),
            )
    except KeyboardInterrupt as stop:
        raise Interrupted(
            f"Stopped. {into} is as it was before; the same command starts again."
        ) from stop
    if not quiet:
        say(summary)


def _inspect(path: Annotated[Path, typer.Argument(help="A file made by compress.")]) -> None:
    """Say what a compressed table holds and how good it is."""
    from olss.files import inspect

    say(inspect(path))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _number_or_name(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text
