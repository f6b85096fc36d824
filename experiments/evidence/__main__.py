"""Gather the folder of runs that is given, if any; then make all tables and figures."""

from __future__ import annotations

import sys
from pathlib import Path

from . import (
    class_incremental,
    combinations,
    der,
    gather,
    headline,
    learners,
    leverage,
    memory,
    noise,
    paper,
    peers,
    rare_classes,
    reproduced,
    space,
    spread,
    texts,
)

PARTS = (
    headline, paper, memory, der, noise, leverage, rare_classes, class_incremental, combinations,
    space, reproduced, learners, peers, texts, spread,
)  # fmt: skip


def make() -> None:
    """Make every table and figure there are results for."""
    for part in PARTS:
        part.make()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gather.gather(Path(sys.argv[1]))
    make()
    paper.report()
