"""The input in parts, read apart, and the tree that unites what they bring.

What is done to a part knows nothing of the others: so it is done here, in threads, or on a cluster.
What parts bring is united two by two, in a tree whose shape depends on the number of parts alone;
with one generator for each part and each union, the same seed gives the same rows wherever they
are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from olss.tables.readers import Piece

__all__ = ["Part", "fold", "parts_of"]

R = TypeVar("R")

# An input is cut into about eight parts, so that there is work for some threads, but into more if
# they would be larger than a worker may be made to read twice for another one's death.
PARTS, SMALL_PART_BYTES, PART_BYTES = 8, 32_000_000, 512_000_000


@dataclass(frozen=True)
class Part:
    """Pieces that are read one after the other."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """Share of the input."""
        return sum(piece.bytes for piece in self.pieces)


def parts_of(pieces: Sequence[Piece], *, one: bool = False) -> list[Part]:
    """Return pieces gathered into parts of about the same size, at most about `PART_BYTES`.

    With `one`, all are one part: for a law that takes rows in their order.
    """
    if one:
        return [Part(0, tuple(pieces))]
    total = sum(piece.bytes for piece in pieces)
    enough = min(max(total // PARTS, SMALL_PART_BYTES), PART_BYTES)
    parts: list[Part] = []
    waiting: list[Piece] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += piece.bytes
        if size >= enough:
            parts.append(Part(len(parts), tuple(waiting)))
            waiting, size = [], 0
    if waiting:
        parts.append(Part(len(parts), tuple(waiting)))
    return parts


def fold(values: Iterable[R], unite: Callable[[tuple[int, int], R, R], R]) -> R:
    """Return values united two by two as they come, holding no more than log2 of them.

    `unite` gets the numbers of the first value and of the one after the last that go into a union.
    """
    waiting: list[tuple[int, int, R]] = []

    def join() -> None:
        (low, _, a), (_, high, b) = waiting[-2:]
        waiting[-2:] = [(low, high, unite((low, high), a, b))]

    for number, value in enumerate(values):
        waiting.append((number, number + 1, value))
        while len(waiting) > 1 and _span(waiting[-2]) == _span(waiting[-1]):
            join()
    while len(waiting) > 1:
        join()
    return waiting[0][2]


def _span(entry: tuple[int, int, Any]) -> int:
    return entry[1] - entry[0]
