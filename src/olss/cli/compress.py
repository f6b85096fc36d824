"""The command ``olss compress``; its options for settings come from `olss.memory.config`."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from olss.util.terminal import Interrupted, echo, report_errors

if TYPE_CHECKING:
    from olss.files.compress import Progress

COMPRESS_EXAMPLES = """\
**Examples**

`olss compress logs/*.parquet --into small.parquet --size 100000 --target label --seed 0`

`olss compress logs/ --into small.parquet`  continues: ingests the files that are new

`olss compress a.csv b.jsonl.gz c.orc --into small.parquet --size 5000 --policy reservoir`

`olss compress logs/ --into small.parquet --size 5000 --half-life 30d --time date`

`olss compress postgresql://host/shop --query "select * from orders" --into small.parquet`

`zcat today.csv.gz | olss compress - --into small.parquet`  reads standard input

Then: `olss inspect`, `olss estimate`, `olss forget`; policies: `olss list policies`

Exit codes: 0 done; 1 failed, nothing was written; 3 written, but --skip-bad skipped something.
"""
SKIPPED = 3  # exit code when bad files were skipped
PYTHON_ONLY = ("size", "features", "keep_index", "pad", "pad_y")


def register(app: typer.Typer) -> None:
    """Register ``olss compress``."""
    parameters = [
        parameter
        for parameter in inspect.signature(_compress, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]

    def command(**options: Any) -> None:
        _compress(**options)

    command.__doc__ = _compress.__doc__
    signature = inspect.Signature([*parameters, *_setting_options()])
    command.__signature__ = signature  # type: ignore[attr-defined]
    app.command("compress", epilog=COMPRESS_EXAMPLES)(report_errors(command))


def _setting_options() -> Iterator[inspect.Parameter]:
    """Yield an option for each setting that can be given on the command line."""
    from olss.memory.config import settings

    for setting in settings():
        if setting.name in PYTHON_ONLY:
            continue
        name = setting.name.replace("_", "-")
        is_flag = str(setting.type).startswith("bool")
        declared = f"--{name}/--no-{name}" if is_flag else f"--{name}"
        option = typer.Option(
            declared,
            metavar=setting.metadata["metavar"] or None,
            help=setting.metadata["help"],
        )
        is_count = setting.type == "int"
        kind: Any = bool | None if is_flag else int | None if is_count else str | None
        yield inspect.Parameter(
            setting.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind, option],
        )


def _compress(
    *,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="IN...",
            help="Parquet, CSV, JSON lines, ORC, Arrow, npy, npz: files, folders, globs, URLs; "
            "- is standard input.",
        ),
    ],
    into: Annotated[
        str,
        typer.Option(
            metavar="OUT.parquet", help="The file to create or to continue; also s3://..."
        ),
    ],
    size: Annotated[int | None, typer.Option(help="Rows to keep. Required for a new file.")] = None,
    target: Annotated[str | None, typer.Option(metavar="COL", help="The target column.")] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="COL", help="The column with the task. Default: each file is one."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random numbers.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over if OUT exists.")] = False,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Skip what cannot be read, report it, and exit with 3."),
    ] = False,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDR", help="Work on this Dask cluster.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Start this many Dask workers here and work on them.")
    ] = None,
    passes: Annotated[
        int | None,
        typer.Option(
            help="Passes over the input. With 2, rows are scored against everything; with 1, "
            "against what was read so far. Default: 2; 1 for a query."
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Read the result of this query of the database IN."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Read rows with larger values of COL than before."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
    **settings: Any,
) -> None:
    """Compress tables to a few rows that stand for all of them, or continue with new ones.

    Files ingested before are skipped, so tomorrow the same command ingests only the new files. If
    the command is stopped, OUT is unchanged.
    """
    from olss.files.compress import compress

    numbers = ("scores", "half_life", "window", "strata_share", "bins", "holdout")
    for name in (*numbers, "near_duplicates"):
        settings[name] = _parse_number(settings[name])
    settings["columns"] = _parse_columns(settings["columns"])
    for name in ("exclude", "strata"):
        settings[name] = _parse_names(settings[name])
    try:
        with _show_progress(quiet) as progress:
            summary = compress(
                inputs,
                into=into,
                size=size,
                target=target,
                task=task,
                seed=seed,
                fresh=fresh,
                skip_bad=skip_bad,
                scheduler=scheduler,
                workers=workers,
                passes=passes,
                query=query,
                since=since,
                progress=progress,
                **settings,
            )
    except KeyboardInterrupt as stop:
        raise Interrupted(f"Stopped. {into} is unchanged; the same command starts again.") from stop
    if as_json:
        echo(json.dumps(asdict(summary) | {"path": str(summary.path)}))
    elif not quiet:
        echo(summary)
    if summary.skipped:
        raise typer.Exit(SKIPPED)


@contextmanager
def _show_progress(quiet: bool) -> Iterator[Progress | None]:
    """Show a progress bar on a terminal; elsewhere load nothing for it."""
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
        line = shown.add_task("scanning", total=None)
        yield lambda what, done, total: shown.update(
            line, description=what, completed=done, total=total
        )


def _parse_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _parse_columns(text: str | None) -> list[str] | dict[str, str] | None:
    """Return names, or what each column is, of texts A,B or A=KIND,B=KIND."""
    names = _parse_names(text)
    if names is None or not all("=" in name for name in names):
        return names
    return dict((name.rpartition("=")[0], name.rpartition("=")[2]) for name in names)


def _parse_number(text: str | None) -> str | float | None:
    try:
        return None if text is None else int(text) if text.isdecimal() else float(text)
    except ValueError:
        return text
