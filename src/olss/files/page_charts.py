"""Charts of the page of a sketch, drawn as SVG; colours are those of its style sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from olss.diagnostics.describe import Stretches
from olss.util.text import escape_html

__all__ = ["histogram", "stream_chart"]

WIDTH = 1000


def stream_chart(found: Stretches, starts: Sequence[int] | Any = (), *, weighs: bool = True) -> str:
    """Return what is kept of stretches of the stream and, if it `weighs`, stands for them.

    The positions in `starts` are marked.
    """
    height, bottom, left = 200, 170, 44
    kept, stands = found.kept / found.seen, found.stands / found.seen
    top = 1.1 * max(float(kept.max()), float(stands.max()), 1.0)
    end = float(found.edges[-1])

    def x(position: float) -> float:
        return left + (WIDTH - left - 10) * position / end

    def y(value: float) -> float:
        return bottom - (bottom - 10) * value / top

    places = [(x(a), x(b)) for a, b in zip(found.edges[:-1], found.edges[1:], strict=True)]
    bars = "".join(
        f'<rect class="kept" x="{a:.1f}" y="{y(k):.1f}" width="{b - a:.1f}" '
        f'height="{bottom - y(k):.1f}"/>'
        for (a, b), k in zip(places, kept, strict=True)
    )
    line = " ".join(
        f"{a:.1f},{y(s):.1f} {b:.1f},{y(s):.1f}" for (a, b), s in zip(places, stands, strict=True)
    )
    stands_for = f'<polyline class="stands" points="{line}"/>' if weighs else ""
    marks = "".join(
        f'<path class="axis" d="M{x(s):.1f} {bottom}v6"/>' for s in starts[:400] if 0 < s < end
    )
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="What is kept of '
        f'each part of the stream, and what it stands for">{bars}'
        f'<path class="axis" d="M{left} {bottom}H{WIDTH - 10}"/>{marks}'
        f'<path class="seen" d="M{left} {y(1):.1f}H{WIDTH - 10}"/>{stands_for}'
        f'<text x="{left - 8}" y="{y(1) + 4:.1f}" text-anchor="end">1</text>'
        f'<text x="{left - 8}" y="{bottom + 4}" text-anchor="end">0</text>'
        f'<text x="{left}" y="{height - 8}">row 0</text>'
        f'<text x="{WIDTH - 10}" y="{height - 8}" text-anchor="end">{end:,.0f}</text></svg>'
    )


def histogram(names: Sequence[str], counts: Sequence[int]) -> str:
    """Return bars under each other, with their names and numbers."""
    step, left, width = 26, 130, 460
    top = max(*counts, 1)
    lines = []
    for place, (name, count) in enumerate(zip(names, counts, strict=True)):
        y = place * step
        length = max((width - left - 60) * count / top, 1 if count else 0)
        lines.append(
            f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{escape_html(name)}</text>'
            f'<rect class="bar" x="{left}" y="{y + 4}" width="{length:.1f}" '
            f'height="{step - 9}" rx="2"/>'
            f'<text x="{left + length + 6:.1f}" y="{y + 16}">{count:,}</text>'
        )
    return (
        f'<svg class="chart" viewBox="0 0 {width} {step * len(names)}" role="img" '
        f'aria-label="Rows kept by weight">{"".join(lines)}</svg>'
    )
