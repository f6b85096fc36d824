"""The command ``olss report``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from olss.util.terminal import echo, report_errors
from olss.util.text import explain_spread

__all__ = ["register"]


EXAMPLES = """\
**Examples**

`olss report runs/NAME`  one experiment; the page is report/index.html

`olss report runs --out all`  everything below runs, grouped by stream and protocol

Records made in Python (`olss.learn.run(...).save("runs/mine/seed-0")`) are read like any other.
"""


def register(app: typer.Typer) -> None:
    """Register ``olss report``."""
    app.command(epilog=EXAMPLES)(report)


@report_errors
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders with records.")],
    out: Annotated[Path, typer.Option(help="Folder to write the report into.")] = Path("report"),
) -> None:
    """Make a page, figures, tables and checked claims from the records of runs."""
    from olss.lab.report import write_report

    page = write_report(runs, out)
    content = json.loads((out / "report.json").read_text(encoding="utf-8"))
    winners = [stream["winner"] for stream in content["streams"]]
    for winner in winners:
        echo(winner)
    if meaning := explain_spread(" ".join(winners)):
        echo(f"({meaning})")
    echo(f"The report is in {page}")
