"""Turn $...$ and $$...$$ into MathML when the pages are built, so that no script is needed."""

import re

from latex2mathml.converter import convert

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
BLOCK = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
INLINE = re.compile(r"\$((?:[^$\n]|\n(?!\n))+)\$")  # within a paragraph


def on_page_markdown(markdown, **_):
    """Replace formulas outside of code."""
    parts = CODE.split(markdown)
    parts[::2] = [_formulas(part) for part in parts[::2]]
    return "".join(parts)


def _formulas(text):
    text = BLOCK.sub(lambda found: convert(found[1].strip(), display="block"), text)
    # In a span, since Markdown takes a line that begins with <math> for a block of its own.
    return INLINE.sub(lambda found: f"<span>{convert(found[1])}</span>", text)
