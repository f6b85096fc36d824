"""Pieces of HTML that can be trusted whatever text is in them."""

from __future__ import annotations

import html
from collections.abc import Sequence

from olss.common.terminal import printable

__all__ = ["bar", "escaped", "table"]


def escaped(text: object) -> str:
    """Return a text as HTML shows it; what would steer a terminal, or turn letters, written out.

    Examples
    --------
    >>> escaped("<b>&")
    '&lt;b&gt;&amp;'
    """
    return html.escape(printable(str(text)))


def bar(share: float, colour: str = "#0072B2") -> str:
    """Return a bar as long as this share of its place."""
    return (
        f'<span style="display:block;height:.75em;border-radius:2px;min-width:2px;'
        f'background:{escaped(colour)};width:{100 * min(max(share, 0.0), 1.0):.1f}%"></span>'
    )


def table(
    head: Sequence[object], rows: Sequence[Sequence[str]], *, left: int = 1, style: str = ""
) -> str:
    """Return a table; the head is text, cells are HTML. The first `left` columns are to the left.

    Nothing but the alignment is styled: colours are those of the page around it.
    """

    def cell(tag: str, content: str, place: int) -> str:
        side = "left" if place < left else "right"
        scope = ' scope="col"' if tag == "th" else ""
        return f'<{tag}{scope} style="text-align:{side};{style}">{content}</{tag}>'

    top = "".join(cell("th", escaped(name), place) for place, name in enumerate(head))
    lines = [
        "<tr>" + "".join(cell("td", content, place) for place, content in enumerate(row)) + "</tr>"
        for row in rows
    ]
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
