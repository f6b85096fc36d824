"""Reports: what records say, as a page, figures, tables and checked claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

__all__ = ["write_report"]


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Write the report of all records below `runs` into `out`; give the page's path."""
    raise NotImplementedError
