"""Colours of methods: the same for a method in every figure, table and chart.

Okabe and Ito (2008), told apart by readers with any of the common colour deficiencies and in
grey by their lightness. A dash pattern is the second channel once the colours are used up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["DASHES", "Style", "styles"]

GREY, ORANGE, SKY, GREEN = "#6b6b6b", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#C9B800", "#0072B2", "#D55E00", "#CC79A7"
# Okabe-Ito's yellow is darkened, since lines of it vanish on white paper; its black is grey,
# since black vanishes on a dark page.
PALETTE = (VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY, GREY, YELLOW)
USUAL = {
    "sgd": GREY, "ewc": ORANGE, "gem": BLUE, "icarl": PURPLE, "er": SKY, "olss": VERMILLION,
    "joint": YELLOW,
}  # fmt: skip
DASHES = ((), (6, 2.5), (1.5, 2), (7, 2, 1.5, 2))


class Style(NamedTuple):
    """How a method is drawn: colour, and lengths of dashes and gaps (none: a full line)."""

    colour: str
    dash: tuple[float, ...]


def styles(methods: Iterable[tuple[str, str]]) -> dict[str, Style]:
    """Return each label a style; `methods` are pairs of label and recipe.

    A recipe's usual colour goes to the first method that asks for it, so that reports of
    different experiments look alike.

    Examples
    --------
    >>> styles([("SGD", "sgd"), ("mine", "olss"), ("other", "olss")])["mine"].colour
    '#D55E00'
    """
    pairs = list(dict(methods).items())
    taken: dict[str, Style] = {}
    for label, recipe in pairs:
        usual = USUAL.get(recipe)
        if usual and all(usual != style.colour for style in taken.values()):
            taken[label] = Style(usual, ())
    order = [Style(colour, dash) for dash in DASHES for colour in PALETTE]
    free = [style for style in order if style not in taken.values()]
    rest = [label for label, _ in pairs if label not in taken]
    for number, label in enumerate(rest):
        taken[label] = free[number % len(free)]
    return {label: taken[label] for label, _ in pairs}
