"""Gather the folder of runs that is given, if any; then make all tables and figures."""

from __future__ import annotations

import sys
from pathlib import Path

from . import class_incremental, der, gather, headline, leverage, memory, noise, paper, peers


def make() -> None:
    """Make every table and figure there are results for."""
    for part in (headline, paper, memory, der, noise, leverage, class_incremental, peers):
        part.make()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gather.gather(Path(sys.argv[1]))
    make()
    paper.report()
