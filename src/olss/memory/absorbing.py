"""How new rows become part of what a sketch holds. The state before is never changed."""

from __future__ import annotations

import numpy as np

from olss.core.row_blocks import to_numpy
from olss.errors import InputError
from olss.memory.labels import says_class
from olss.memory.policies import says
from olss.memory.pool import Choice, Pool, checked
from olss.memory.state import Settings, State, generator
from olss.memory.store import Array, RowStore

__all__ = ["absorbed", "features_of", "may_wait", "settled", "waited"]

FEATURE_BLOCK = 4096  # rows a feature map gets at a time

# Rows that come a few at a time wait until there are so many, or so many bytes of them: a draw
# looks at all rows held, so it pays to make it for many new ones.
WAITING_ROWS = 1024
WAITING_BYTES = 16_000_000


def may_wait(settings: Settings, state: State, new: RowStore) -> bool:
    """Whether these rows may wait for others: the law must not depend on how rows are cut up."""
    if not says(settings.policy, "waits") or settings.features is not None:
        return False
    rows = state.waiting_rows + len(new)
    return rows < WAITING_ROWS and rows * max(1, new.nbytes // len(new)) < WAITING_BYTES


def waited(state: State, new: RowStore) -> State:
    """Return the state in which copies of these rows, too, wait to be drawn from."""
    return state.with_(
        waiting=(*state.waiting, new.take(np.arange(len(new)))),
        waiting_rows=state.waiting_rows + len(new),
        seen=state.seen + len(new),
        task=new["task"][-1].item(),
    )


def settled(settings: Settings, state: State, size: int) -> State:
    """Return the state in which no rows wait."""
    if not state.waiting:
        return state
    new = together(state.waiting)
    before = state.with_(waiting=(), waiting_rows=0, seen=state.seen - len(new))
    return absorbed(settings, before, new, size, seen=len(new), task=state.task)


def together(parts: tuple[RowStore, ...]) -> RowStore:
    """Return the rows of several stores as one; neighbours are united first, to copy little."""
    line = list(parts)
    while len(line) > 1:
        pairs = zip(line[::2], line[1::2], strict=False)
        united = [a.gathered(np.arange(len(a)), b, np.arange(len(b))) for a, b in pairs]
        line = united + line[len(line) - len(line) % 2 :]
    return line[0]


def absorbed(
    settings: Settings, state: State, new: RowStore, size: int, *, seen: int, task: int | str
) -> State:
    """Return the state after the policy chose among the rows held and `new`.

    The new rows stand for `seen` rows of the stream, the last of them of this `task`.
    """
    rng = generator(state.generator)
    policy, held, classes = settings.policy, state.rows, state.classes
    if classes is None and "y" in new:
        classes = says_class(new["y"])
    total = len(held) + len(new)
    choice = Choice(np.arange(total))
    if total > size:
        if len(held) and says(policy, "renews"):
            held = held.with_columns({"order": np.full(len(held), np.nan)})
        pool = Pool(
            held,
            new,
            size=size,
            scores=settings.scores,
            auto="exact" if says(policy, "scored") == "pool" else None,
            features=lambda X: features_of(settings, X),
            classes=bool(classes),
            rng=rng,
        )
        choice = checked(policy(pool, rng), total, size)
    kept = choice.rows[choice.rows < len(held)]
    chosen = choice.rows[choice.rows >= len(held)] - len(held)
    changed: dict[str, Array] = {}
    if choice.weight is not None:
        changed["weight"] = choice.weight
    if says(policy, "renews"):
        changed["order"] = np.full(len(choice.rows), np.nan)
    elif choice.order is not None:
        changed["order"] = choice.order
    return state.with_(
        rows=held.gathered(kept, new, chosen).with_columns(changed),
        seen=state.seen + seen,
        task=task,
        generator=dict(rng.bit_generator.state),
        classes=classes,
    )


def features_of(settings: Settings, X: Array) -> Array:
    """Return what scores are taken of, computed a block at a time."""
    if settings.features is None:
        return X
    blocks = [
        to_numpy(settings.features(X[start : start + FEATURE_BLOCK]))
        for start in range(0, len(X), FEATURE_BLOCK)
    ]
    mapped = np.concatenate(blocks) if blocks else np.empty((0, 1))
    if mapped.ndim < 2 or len(mapped) != len(X):
        raise InputError(
            f"features must return one row for each of the {len(X)} it gets, shape (n, k), "
            f"found shape {mapped.shape}."
        )
    return mapped
