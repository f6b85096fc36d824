"""Reports: what records say, as a page, figures, tables and checked claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["write_report"]


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Write the report of all records below some folders.

    Parameters
    ----------
    runs : sequence of Path
        Folders; every ``record.json`` below them is read.
    out : Path
        Folder to write ``index.html``, ``report.json``, ``tables`` and ``figures`` into; made
        if it is not there. The page needs none of the other files.

    Returns
    -------
    Path
        The page.
    """
    from olss.lab.report.collect import collect
    from olss.lab.report.page import write

    return write(collect([Path(folder) for folder in runs]), Path(out))
