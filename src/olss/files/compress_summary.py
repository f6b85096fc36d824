"""What a call of `compress` did, in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Summary"]


@dataclass
class Summary:
    """What `compress` did; its `str` is a text to read.

    Attributes
    ----------
    path : Path
    rows, seen, new : int
        Rows held, rows seen in all runs, rows seen in this one.
    notes : list of str
        What one should know: files passed over, all rows kept.
    columns : list of (name, use, reason)
    """

    path: Path
    rows: int
    seen: int
    new: int
    notes: list[str] = field(default_factory=list)
    columns: list[tuple[str, str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.rows:,} rows of {self.seen:,} seen, {self.new:,} of them new"]
        lines += [f"note: {note}" for note in self.notes]
        width = max((len(name) for name, _, _ in self.columns), default=0)
        for name, use, why in self.columns:
            lines.append(f"  {name:{width}}  {use}{f' ({why})' if why else ''}")
        return "\n".join(lines)
