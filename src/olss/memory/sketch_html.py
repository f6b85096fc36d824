"""A sketch and its description in a notebook: small, whatever the theme, whatever the names."""

from __future__ import annotations

from olss.common.html_text import bar, escaped, table
from olss.memory.description import TASKS, Description

__all__ = ["description_html", "sketch_html"]

CELL = "padding:1px 10px;border:0;background:none;"


def sketch_html(title: str, found: Description | None) -> str:
    """Return what a notebook shows of a sketch; of an empty one there is no description."""
    return f"<div>{_title(title)}{'' if found is None else description_html(found)}</div>"


def description_html(found: Description) -> str:
    """Return what a notebook shows of a description."""
    low, mean, high = found.weight
    head, *lines = found.table()
    most = max(int(counts.sum()) for counts in found.counts)
    rows = []
    for line, counts in zip(lines, found.counts, strict=False):
        length = f'<div style="width:8em">{bar(counts.sum() / most)}</div>'
        rows.append([escaped(line[0]), length, *map(escaped, line[1:])])
    words = [
        f"{found.rows:,} rows of {found.seen:,} seen",
        f"weights {low:.4g} to {high:.4g}, mean {mean:.4g}; worth {found.effective_rows:,.0f} rows "
        "of equal weight",
        f"scored: {found.scored}",
        found.memory,
    ]
    if len(found.tasks) > TASKS:
        words.append(f"the first {TASKS} of {len(found.tasks):,} tasks:")
    said = "".join(f"<div>{escaped(text)}</div>" for text in words)
    shown = table([head[0], "", *head[1:]], rows, left=2, style=CELL)
    return f'<div style="max-width:60em;line-height:1.5">{said}</div>{shown}'


def _title(text: str) -> str:
    return f'<div style="font-weight:600;font-family:monospace">{escaped(text)}</div>'
