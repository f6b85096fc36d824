"""The `olss` command: a thin shell over the package.

Each part brings its own commands (`add_to`); their modules import what is heavy only when a
command runs, so that ``olss --help`` is immediate.
"""

from __future__ import annotations

from typing import Annotated

import typer

import olss
from olss.cli import catalog, compress, lab, report, sketches
from olss.util.terminal import echo, log_to_stderr

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Keep a constant-size training set of everything seen so far, and train on it.",
)

for part in (lab, report, compress, sketches, catalog):
    part.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"olss {olss.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on stderr what happens inside.")
    ] = False,
) -> None:
    """Keep a constant-size training set of everything seen so far, and train on it."""
    if verbose:
        log_to_stderr()
