"""The `olss` command: a thin shell over the package."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help=__doc__)


@app.callback()
def main() -> None:
    """Keep a constant-size training set of everything seen so far."""
