"""The `olss` command: a thin shell over the package.

Each part brings its own commands (`add_to`); their modules import what is heavy only when a
command runs, so that ``olss --help`` is immediate.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

import olss

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Keep a constant-size training set of everything seen so far, and train on it.",
)

for _part in ("olss.lab.commands", "olss.lab.report.command", "olss.files.commands"):
    import_module(_part).add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"olss {olss.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Keep a constant-size training set of everything seen so far, and train on it."""
