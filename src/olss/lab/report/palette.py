"""Colours of methods and policies: the same in every report, figure and picture.

Okabe and Ito (2008), told apart by readers with any of the common colour deficiencies and in
grey by their lightness. A dash pattern is the second channel once the colours are used up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

__all__ = ["DASHES", "POLICIES", "Style", "line_of", "policy_style", "styles"]

GREY, ORANGE, SKY, GREEN = "#6b6b6b", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#C9B800", "#0072B2", "#D55E00", "#CC79A7"
# Okabe-Ito's yellow is darkened, since lines of it vanish on white paper; its black is grey,
# since black vanishes on a dark page.
PALETTE = (VERMILLION, BLUE, GREEN, ORANGE, PURPLE, SKY, GREY, YELLOW)
USUAL = {
    "sgd": GREY, "ewc": ORANGE, "online-ewc": ORANGE, "si": ORANGE, "gem": BLUE, "a-gem": BLUE,
    "icarl": PURPLE, "er": SKY, "er-ace": SKY, "der": SKY, "der++": SKY, "gdumb": PURPLE,
    "olss": VERMILLION, "olss-replay": GREEN, "joint": YELLOW,
}  # fmt: skip
POLICIES = {
    "paper": VERMILLION, "weighted": BLUE, "balanced": GREEN, "balanced-random": ORANGE,
    "balanced-leverage": PURPLE, "reservoir": GREY, "recent": YELLOW,
}  # fmt: skip
DASHES = ((), (6, 2.5), (1.5, 2), (7, 2, 1.5, 2))


class Style(NamedTuple):
    """How a method is drawn: colour, and lengths of dashes and gaps (none: a full line)."""

    colour: str
    dash: tuple[float, ...] = ()


def styles(methods: Iterable[tuple[str, str, str | None]]) -> dict[str, Style]:
    """Return a style for each label; `methods` are label, recipe and, if it has one, policy.

    Methods of a kind have one colour and are told apart by dashes, the first without, so that
    reports of different experiments look alike; where a kind has more methods than there are
    dashes (a sweep), all but its first take what is free.

    Examples
    --------
    >>> found = styles([("SGD", "sgd", None), ("mine", "olss", "balanced"), ("er", "er", None)])
    >>> found["mine"] == policy_style("balanced")
    True
    """
    wishes = {label: _usual(recipe, policy) for label, recipe, policy in methods}
    taken: dict[str, Style] = {}
    for colour in PALETTE:
        kind = [label for label, usual in wishes.items() if usual == colour]
        for label, dash in zip(
            kind[: 1 if len(kind) > len(DASHES) else None], DASHES, strict=False
        ):
            taken[label] = Style(colour, dash)
    order = [Style(colour, dash) for dash in DASHES for colour in PALETTE]
    free = [style for style in order if style not in taken.values()]
    rest = [label for label in wishes if label not in taken]
    for number, label in enumerate(rest):
        taken[label] = free[number % len(free)]
    return {label: taken[label] for label in wishes}


def _usual(recipe: str, policy: str | None) -> str | None:
    if recipe == "olss" and policy in POLICIES:
        return POLICIES[policy]
    return USUAL.get(recipe)


def policy_style(policy: str, *, features: bool = False) -> Style:
    """Return how a policy is drawn; dashed where it scores features instead of rows."""
    return Style(POLICIES[policy], DASHES[1] if features else ())


def line_of(style: Style) -> dict[str, Any]:
    """Return a style as matplotlib's `plot` takes it."""
    colour: dict[str, Any] = {"color": style.colour}
    return colour | ({"linestyle": (0, style.dash)} if style.dash else {})
