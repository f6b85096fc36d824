"""Our recipes on DER's protocol, beside the published numbers."""

from __future__ import annotations

from typing import Any

from . import pages
from .gather import Row, load, mean_of
from .pages import STREAMS, plain, table

# Buzzega et al. (2020), table 2.
PUBLISHED = {
    ("permuted", "er"): (72.4, 80.6, 89.9),
    ("permuted", "der++"): (83.6, 88.2, 92.3),
    ("rotated", "er"): (85.0, 88.9, 93.5),
    ("rotated", "der++"): (90.4, 92.8, 94.7),
}

DER: dict[str, dict[str, Any]] = {
    "balanced, distillation, weak EWC": {"recipe": "olss+der+++online-ewc"},
    "balanced, distillation": {"recipe": "olss+der++", "policy": "balanced"},
    "balanced at random, distillation": {"recipe": "olss+der++", "policy": "balanced-random"},
    "DER++": {"recipe": "der++"},
    "ER": {"recipe": "er"},
}
SIZES = (200, 500, 5120)
PULL = 870  # rows that take as many bytes as the pull towards old weights


def make() -> None:
    """Our recipes beside the published numbers."""
    rows = load("der-protocol")
    if not rows:
        return
    columns = ["", *(f"{s}, {size:,} rows" for s in STREAMS for size in SIZES)]
    lines = []
    shown = [(name, 0) for name in DER]
    shown += [(name, PULL) for name in ("balanced, distillation", "DER++")]
    for name, extra in shown:
        cells = [plain(of(rows, s, size + extra, name)) for s in STREAMS for size in SIZES]
        lines.append([f"{name}, {extra} rows more" if extra else name, *cells])
    for method in ("der++", "er"):
        values = [value for stream in STREAMS for value in PUBLISHED[stream, method]]
        lines.append([f"*{method.upper()}, published*", *(f"{value:.1f}" for value in values)])
    pages.fill("der-protocol", table(columns, lines))
    before = load("der-protocol", "as-published.csv")
    forms = [
        [f"{name}, {words}", *(plain(of(form, s, size, name)) for s in STREAMS for size in SIZES)]
        for name in ("balanced, distillation", "DER++")
        for words, form in (("the default", rows), ("as published", before))
    ]
    pages.fill("der-forms", table(columns, forms))


def of(rows: list[Row], stream: str, size: int, name: str) -> Any:
    """Return the average of a recipe with a memory of a size, over seeds."""
    return mean_of(rows, stream=stream, memory=size, **DER[name])
