"""Tables as lines of text, columns under each other."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned"]


def aligned(table: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    r"""Return a table as lines: its first `left` columns to the left, the others to the right.

    Examples
    --------
    >>> print(*aligned([["city", "rows"], ["Ulm", "4"]], left=1), sep="\n")
    city  rows
    Ulm      4
    """
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = [str.ljust if place < left else str.rjust for place in range(len(widths))]
    return [
        "  ".join(side(cell, width) for side, cell, width in zip(sides, line, widths, strict=True))
        for line in table
    ]
