"""Placing labels so that none covers another."""

from __future__ import annotations

__all__ = ["apart", "clusters"]


def apart(values: list[float], gap: float, low: float, high: float) -> list[float]:
    """Move values apart to at least a gap, in their order, near their place, within bounds.

    Where there are too many for the bounds, they go beyond the upper one.
    """

    def start(run: list[int]) -> float:
        wanted = sum(values[i] for i in run) / len(run) - gap * len(run) / 2
        return max(low, min(high - gap * len(run), wanted))

    runs: list[list[int]] = []  # of labels that touch
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        runs.append([i])
        while len(runs) > 1 and start(runs[-1]) < start(runs[-2]) + gap * len(runs[-2]):
            last = runs.pop()
            runs[-1] += last
    places = {i: start(run) + gap * (k + 0.5) for run in runs for k, i in enumerate(run)}
    return [places[i] for i in range(len(values))]


def clusters(values: list[float], width: float) -> list[list[int]]:
    """Put together values so near each other that labels of a width might overlap."""
    found: list[list[int]] = []
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        if found and values[i] - values[found[-1][-1]] < width:
            found[-1].append(i)
        else:
            found.append([i])
    return found
