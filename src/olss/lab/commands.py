"""The commands of the laboratory: run, tune, demo, data."""

from __future__ import annotations

from typing import Annotated

import typer

from olss.terminal import plain_errors

__all__ = ["add_to"]

data = typer.Typer(no_args_is_help=True, help="Data sets: where they are, fetch them.")


def add_to(app: typer.Typer) -> None:
    """Register the commands on the main application."""
    app.add_typer(data, name="data")


@data.command("list")
@plain_errors
def data_list() -> None:
    """Say which data sets olss knows and where each was found."""
    from rich.console import Console
    from rich.table import Table

    from olss.streams import list_datasets

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "what", "where"):
        table.add_column(heading, overflow="fold")
    for status in list_datasets():
        table.add_row(status.name, status.what, status.where or f"olss data get {status.name}")
    Console().print(table)


@data.command("get")
@plain_errors
def data_get(
    name: Annotated[str, typer.Argument(help="As `olss data list` names it.")],
) -> None:
    """Fetch a data set into the cache folder; each file is checked against its sum."""
    from olss.streams import fetch

    typer.echo(f"{name} is in {fetch(name)}")
