"""How new rows become part of what a sketch holds. The state before is never changed."""

from __future__ import annotations

from typing import Literal

import numpy as np

from olss.errors import InputError
from olss.memory.forgetting import aged, faded, forgets, time_after
from olss.memory.policies import says
from olss.memory.pool import Choice, Floats, Pool, Scorer, checked
from olss.memory.spectrum import Spectrum
from olss.memory.state import Settings, State, generator
from olss.memory.store import Array, RowStore
from olss.memory.target_classes import say_classes

__all__ = [
    "absorbed",
    "keeps_spectrum",
    "may_wait",
    "merged",
    "pool_of",
    "scores",
    "settled",
    "target_of",
    "together",
    "united",
    "waited",
]

# Rows that come a few at a time wait until there are so many, or so many bytes of them: a draw
# looks at all rows held, so it pays to make it for many new ones.
WAITING_ROWS = 1024
WAITING_BYTES = 16_000_000


def may_wait(settings: Settings, state: State, new: RowStore) -> bool:
    """Whether these rows may wait for others: the law must not depend on how rows are cut up."""
    if settings.size == "task" or not says(settings.policy, "waits") or settings.features:
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


def settled(settings: Settings, state: State) -> State:
    """Return the state in which no rows wait."""
    if not state.waiting:
        return state
    new = together(state.waiting)
    before = state.with_(waiting=(), waiting_rows=0, seen=state.seen - len(new))
    return absorbed(settings, before, new)


def together(parts: tuple[RowStore, ...]) -> RowStore:
    """Return the rows of several stores as one; neighbours are united first, to copy little."""
    line = list(parts)
    while len(line) > 1:
        pairs = zip(line[::2], line[1::2], strict=False)
        united = [a.gathered(np.arange(len(a)), b, np.arange(len(b))) for a, b in pairs]
        line = united + line[len(line) - len(line) % 2 :]
    return line[0]


def keeps_spectrum(settings: Settings, state: State) -> bool:
    """Whether a sketch keeps the spectrum of everything seen.

    It does where its policy scores by it, or where it was asked to; but not where rows are scored
    by a feature map, which may change, nor with a window, whose rows cannot be taken off any more
    once they are gone.
    """
    if settings.features is not None or settings.last is not None:
        return False
    if settings.spectrum is None:
        return state.spectrum is not None or says(settings.policy, "scored") == "seen"
    return settings.spectrum


def scores(settings: Settings, state: State) -> bool:
    """Whether rows are looked at as numbers."""
    return says(settings.policy, "looks") is not False or keeps_spectrum(settings, state)


def absorbed(settings: Settings, state: State, new: RowStore) -> State:
    """Return the state after the policy chose among the rows held and the new rows of an update."""
    n, task = len(new), new["task"][-1].item()
    numbers = state.numbers
    if scores(settings, state):
        numbers = numbers.decided(state.rows.get("X"), new["X"], settings.columns, settings.exclude)
    held, spectrum, now = state.rows, state.spectrum, float(state.seen + n)
    if forgets(settings):
        now = time_after(settings, state, new, n)
        new = aged(settings, new, now)
        held, spectrum = faded(settings, state, now)
    if keeps_spectrum(settings, state) and not numbers.blind:
        spectrum = numbers.added(spectrum or Spectrum(), new["X"], new["base"])
    classes = state.classes
    if "y" in new and len(new):
        matters = bool(says(settings.policy, "by_class")) or settings.scores == "target"
        classes = say_classes(new["y"], classes, matters=matters)
    state = state.with_(
        rows=held, now=now, numbers=numbers, spectrum=spectrum, classes=classes, task=task
    )
    size = n if settings.size == "task" else settings.size
    return united(settings, state, new, size).with_(seen=state.seen + n)


def merged(settings: Settings, state: State, other: State, new: RowStore) -> State:
    """Return the state with the rows of another sketch, `new`, whose history comes after."""
    now = state.now + other.now if settings.time is None else max(state.now, other.now)
    if not state.seen:  # no row has said what time it is
        now = other.now
    held, spectrum = faded(settings, state, now)
    late, theirs = faded(settings, other.with_(rows=new), now)
    if settings.time is None:  # they are as old as they were
        late, theirs = new, other.spectrum
    classes = state.classes if state.classes is not None else other.classes
    numbers = state.numbers.with_(other.numbers, first=not (state.seen or len(held)))
    if scores(settings, state) and len(late):
        numbers = numbers.decided(held.get("X"), late["X"], settings.columns, settings.exclude)
    known, blurred = None, state.blurred or other.blurred
    if keeps_spectrum(settings, state) and not numbers.blind:
        before = spectrum or Spectrum()
        if len(late) == other.seen and np.array_equal(late["weight"], late["base"]):
            known = numbers.added(before, late["X"], late["base"])  # all are there
        elif theirs is None:
            raise InputError(
                "other keeps no spectrum of everything it has seen, as this sketch does; make "
                "both with the same spectrum."
            )
        else:
            known = before.merged(numbers.taken_over(theirs, other.numbers))
            # Rows that are gone cannot be asked; those held stand for them.
            blurred |= not numbers.told_apart_by(other.numbers, late["X"])
    state = state.with_(
        rows=held,
        now=now,
        numbers=numbers,
        spectrum=known,
        blurred=blurred,
        classes=classes,
        task=other.task,
        removed=state.removed + other.removed,
    )
    size = max(len(held), len(late)) if settings.size == "task" else settings.size
    return united(settings, state, late, size).with_(seen=state.seen + other.seen)


def united(
    settings: Settings, state: State, new: RowStore, size: int, scorer: Scorer | None = None
) -> State:
    """Return the state with what the policy chooses of the rows held and the new ones.

    What is known of the new rows beside themselves (the rows seen, the spectrum, the time) is in
    the state already; a scorer is one of everything that is at hand.
    """
    policy, held, rng = settings.policy, state.rows, generator(state.generator)
    total = len(held) + len(new)
    choice = Choice(np.arange(total))
    if total > size:
        pool = pool_of(settings, state, new, size, rng, scorer)
        choice = checked(policy(pool, rng), total, size)
    kept = choice.rows[choice.rows < len(held)]
    chosen = choice.rows[choice.rows >= len(held)] - len(held)
    rows = held.gathered(kept, new, chosen)
    changed: dict[str, Array] = {}
    if choice.weight is not None:
        changed["weight"] = choice.weight
    if says(policy, "renews"):
        changed["order"] = _nothing(len(rows))
    elif choice.order is not None:
        changed["order"] = choice.order
    return state.with_(rows=rows.with_columns(changed), generator=dict(rng.bit_generator.state))


def pool_of(
    settings: Settings,
    state: State,
    new: RowStore,
    size: int,
    rng: np.random.Generator,
    scorer: Scorer | None = None,
    *,
    renew: bool = True,
) -> Pool:
    """Return the pool of rows held and new ones."""
    held, policy, numbers = state.rows, settings.policy, state.numbers
    if renew and len(held) and says(policy, "renews"):
        held = held.with_columns({"order": _nothing(len(held))})
    seen = state.spectrum if says(policy, "scored") == "seen" else None
    if scorer is None and seen is not None and numbers.tells_apart(seen):
        scorer = numbers.scorer(seen, settings.leverage, size, rng)
    return Pool(
        held,
        new,
        size=size,
        features=numbers.of,
        scores=settings.leverage,
        auto="exact" if says(policy, "scored") == "pool" else None,
        scorer=scorer,
        classes=bool(state.classes),
        target=target_of(settings, state.classes),
        rng=rng,
    )


def target_of(settings: Settings, classes: bool | None) -> Literal["class", "number"] | None:
    """Return what the targets are that scores should know, if they should know any."""
    if not settings.knows_target:
        return None
    return "class" if classes and settings.scores == "target" else "number"


def _nothing(rows: int) -> Floats:
    return np.full(rows, np.nan)
