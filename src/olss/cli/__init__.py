"""The `olss` command, one module for each group of commands.

Modules import heavy packages inside the commands, so that ``olss --help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

import olss
from olss.cli import catalog, compress, lab, sketches
from olss.util.terminal import echo, log_to_stderr

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Keep a constant-size training set of everything seen so far, and train on it.",
)

for group in (lab, compress, sketches, catalog):
    group.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        echo(f"olss {olss.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log progress to stderr.")
    ] = False,
) -> None:
    """Keep a constant-size training set of everything seen so far, and train on it."""
    if verbose:
        log_to_stderr()
