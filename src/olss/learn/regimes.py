"""Which rows a task is trained on, given what is remembered."""

from __future__ import annotations

import numpy as np

from olss.errors import InputError
from olss.learn.batch import Examples, as_tensor

__all__ = ["REGIMES", "Regime", "mix_counts"]

REGIMES = ("task", "sketch", "mix", "replay", "union")


class Regime:
    """How a task's own rows and the remembered rows become a training set.

    Parameters
    ----------
    regime : str
        "sketch": the memory alone, after it took the task in (the paper). "mix": a constant
        number of rows, part from the task and part from the memory of earlier tasks.
        "replay": the task's rows, and at every step as many remembered rows beside them.
        Also "task" (its own rows alone) and "union" (its own and the remembered rows).
    share : float
        With "mix", the part that comes from the current task.
    """

    def __init__(self, regime: str = "task", share: float = 0.5) -> None:
        if regime not in REGIMES:
            raise InputError(f"regime must be one of {', '.join(REGIMES)}, found {regime!r}.")
        if not 0 < share <= 1:
            raise InputError(f"share must be above 0 and at most 1, found {share!r}.")
        self.regime, self.share = regime, share

    @property
    def takes_in_first(self) -> bool:
        """Whether the memory takes a task in before it is trained on."""
        return self.regime == "sketch"

    def rows(
        self, current: Examples, held: Examples | None, size: int | str, rng: np.random.Generator
    ) -> tuple[Examples, Examples | None]:
        """Give the training set, and what to replay beside it at every step."""
        if self.regime == "sketch" and held is not None:
            return held, None
        if self.regime == "replay":
            return current, held
        if self.regime == "union" and held is not None:
            return current.join(held), None
        if self.regime == "mix":
            rows = len(current) if size == "task" else int(size)
            return self._mixed(current, held, rows, rng), None
        return current, None

    def _mixed(
        self, current: Examples, held: Examples | None, size: int, rng: np.random.Generator
    ) -> Examples:
        past = 0 if held is None else len(held)
        own, remembered = mix_counts(size, self.share, len(current), past)
        rows = current.take(as_tensor(_draw(len(current), own, rng), current.y.device))
        if held is None or remembered == 0:
            return rows
        return rows.join(held.take(as_tensor(_draw(past, remembered, rng), current.y.device)))


def mix_counts(size: int, share: float, current: int, past: int) -> tuple[int, int]:
    """Say how many rows of a mix come from the current task and how many from the memory.

    Their sum is `size` wherever there are that many rows: what one side cannot give, the
    other does.

    Examples
    --------
    >>> mix_counts(1000, 0.5, current=5000, past=1000)
    (500, 500)
    >>> mix_counts(1000, 0.5, current=200, past=1000)
    (200, 800)
    >>> mix_counts(1000, 0.5, current=5000, past=0)
    (1000, 0)
    """
    remembered = min(size - min(round(share * size), current), past)
    return min(size - remembered, current), remembered


def _draw(
    rows: int, size: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return rng.permutation(rows)[:size]
