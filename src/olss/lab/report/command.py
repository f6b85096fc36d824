"""The command ``olss report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Register ``olss report``."""
    app.command()(report)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that hold records.")],
    out: Annotated[Path, typer.Option(help="Folder to write the report into.")] = Path("report"),
) -> None:
    """Make a page, figures, tables and checked claims from the records of runs."""
    from olss.lab.report import write_report

    typer.echo(write_report(runs, out))
