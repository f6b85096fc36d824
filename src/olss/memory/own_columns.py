"""The names of a sketch's own columns, in memory and in its file."""

from __future__ import annotations

__all__ = ["EXTRA", "ORIGIN", "OWN", "RESERVED"]

EXTRA = "extra:"  # prefix of the columns that ride along

# In memory, and what each is called in the file, where it stands beside the caller's columns.
OWN = {
    "weight": "olss_weight",
    "task": "olss_task",
    "index": "olss_index",
    "order": "olss_order",
    "base": "olss_base",
    "source": "olss_source",
    "row": "olss_row",
}
ORIGIN = ("source", "row")  # where rows of files came from; -1 for rows that came otherwise
RESERVED = frozenset({"X", "y", *OWN})
