"""The commands `olss compress` and `olss inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("compress")(_compress)
    app.command("inspect")(_inspect)


def _compress(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders, globs, addresses.")],
    into: Annotated[Path, typer.Option(help="The Parquet file to make or continue.")],
) -> None:
    """Compress tables to a few rows that stand for all of them."""
    from olss.files import compress

    compress(inputs, into=into)


def _inspect(path: Annotated[Path, typer.Argument(help="A file made by compress.")]) -> None:
    """Say what a compressed table holds and how good it is."""
    from olss.files import inspect

    typer.echo(inspect(path))
