"""The engine: how new rows become part of a sketch.

`step` is the one place where held rows are combined with new ones; `olss.Sketch.update`,
`olss.Sketch.merge` and `olss.compress` all call it. Every function takes a state and returns a new
one: a call that raises leaves the state unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from olss.core.novelty import NoveltyScorer
from olss.errors import InputError, OlssWarning
from olss.memory.config import Config
from olss.memory.decay import current_time, decay_held, decay_new
from olss.memory.encoder import Encoder
from olss.memory.intake import (
    conform_store,
    is_missing,
    read_array,
    read_rows,
    read_table,
    read_tasks,
    read_weights,
)
from olss.memory.moments import SeenMoments
from olss.memory.pool import Choice, Pool, Scorer
from olss.memory.rows import EXTRA, ORIGIN, Array, RowStore, length_of, take
from olss.memory.state import State, restore_generator
from olss.tables.class_labels import is_class_target

__all__ = ["flush", "keeps_moments", "merge", "remove", "shrink", "step", "target_kind", "update"]

# Rows that come a few at a time are buffered until there are so many, or so many bytes of them: a
# draw looks at all rows held, so it pays to make it for many new ones.
BUFFER_ROWS = 1024
BUFFER_BYTES = 16_000_000
FALSE_ALARM_RATE = 1e-3  # of updates without a change that begin a task under task="auto"


def update(
    config: Config,
    state: State,
    rows: Any,
    y: Any = None,
    task: Any = None,
    weight: Any = None,
    extra: Mapping[str, Any] | None = None,
) -> State:
    """Return the state after an update with rows, as `olss.Sketch.update` describes it."""
    detect_task = isinstance(task, str) and task == "auto"
    if detect_task:
        state = flush(config, state)
    columns, table = read_rows(config, state.template_rows, state.table, rows, y, extra)
    if table is not None:
        state = _conform_state(state, columns).replace(table=table)
    n = length_of(columns["X"])
    if detect_task:
        task = detect(config, state, columns["X"])
    weights = read_weights(weight, n)
    new = RowStore(
        columns
        | {
            "task": read_tasks(state.task if task is None else task, n, state.template_rows),
            "weight": weights,
            "initial_weight": weights,
            "index": np.arange(state.seen, state.seen + n),
            "priority": np.full(n, np.nan),
        }
        | {name: np.full(n, -1) for name in ORIGIN if name in state.template_rows}
    )
    if config.missing_target == "drop" and "y" in new:
        new = _drop_missing_targets(state, new)
        if not len(new):
            return state
    # What could not be scored or dated later is refused now.
    if table is not None and needs_encoder(config, state):
        pending = [part["X"] for part in state.pending]
        state.encoder.check(new["X"], pending, config.columns, config.exclude)
    if config.forgets:
        current_time(config, state, new)
    if should_buffer(config, state, new):
        return _enqueue(state, new)
    if state.pending:
        return flush(config, _enqueue(state, new))
    return _apply_update(config, state, new)


def flush(config: Config, state: State) -> State:
    """Return the state in which no rows are pending."""
    if not state.pending:
        return state
    new = RowStore.concat(state.pending)
    return _apply_update(config, state.replace(pending=(), seen=state.seen - len(new)), new)


def step(
    config: Config,
    state: State,
    new: RowStore,
    size: int,
    *,
    scorer: Scorer | None = None,
    rng: np.random.Generator | None = None,
    keep_priorities: bool = False,
) -> State:
    """Return the state with what the policy chooses of the rows held and the new ones.

    What is known of the new rows beside themselves (moments, time, rows seen) is in the state
    already.

    Parameters
    ----------
    config : Config
    state : State
    new : RowStore
    size : int
        Rows to keep.
    scorer : Scorer, optional
        Leverage scores in everything; by default those of the state's moments.
    rng : numpy.random.Generator, optional
        Random numbers; by default those of the state, which has moved on afterwards.
    keep_priorities : bool
        Whether priorities stay valid between steps, as during one run over files, where they
        were computed from the same moments.
    """
    policy, held, own = config.policy, state.rows, rng is None
    rng = restore_generator(state.generator) if rng is None else rng
    resets = policy.resets_priority and not keep_priorities
    total = len(held) + len(new)
    choice = Choice(np.arange(total))
    if total > size:
        if resets and len(held):
            held = held.with_columns({"priority": np.full(len(held), np.nan)})
        pool = _create_pool(config, state.replace(rows=held), new, size, rng, scorer)
        choice = policy.choose(pool, rng)
        if not isinstance(choice, Choice):
            raise InputError(f"policy must return an olss.memory.Choice, found {choice!r}.")
        choice = choice.check(total, size)
    kept = choice.rows[choice.rows < len(held)]
    rows = held.take_concat(kept, new, choice.rows[len(kept) :] - len(held))
    changed: dict[str, Array] = {}
    if choice.weight is not None:
        changed["weight"] = choice.weight
    if resets:
        changed["priority"] = np.full(len(rows), np.nan)
    elif choice.priority is not None:
        changed["priority"] = choice.priority
    state = state.replace(rows=rows.with_columns(changed))
    return state.replace(generator=dict(rng.bit_generator.state)) if own else state


def merge(config: Config, state: State, other: State) -> State:
    """Return the state with the rows of another sketch, whose history comes after."""
    state = flush(config, state)
    known_files = len(state.files)
    entries = tuple(entry | {"run": entry["run"] + state.runs} for entry in other.files)
    state = state.replace(
        files=(*state.files, *entries),
        runs=state.runs + other.runs,
        removed=state.removed + other.removed,
    )
    if not len(other.rows):
        known = state.moments if other.seen == other.removed else None
        return state.replace(seen=state.seen + other.seen, moments=known)
    state, new = _adopt_rows(config, state, other, known_files)
    now = state.now + other.now if config.time is None else max(state.now, other.now)
    if not state.seen:  # no row has set the time yet
        now = other.now
    held, moments = decay_held(config, state, now)
    their_moments = other.moments
    if config.time is not None:  # by rows, they are as old as they were
        new, their_moments = decay_held(config, other.replace(rows=new), now)
    encoder = state.encoder.adopt(other.encoder, first=not (state.seen or len(held)))
    if needs_encoder(config, state) and len(new):
        encoder = encoder.fit(held.get("X"), new["X"], config.columns, config.exclude)
    both = None
    if keeps_moments(config, state) and not encoder.has_no_features:
        both = _merge_moments(state.replace(moments=moments), other, their_moments, new, encoder)
        if both is None and (moments is not None or not state.seen):
            warnings.warn(
                "other keeps no moments, or its first rows had other strings or missing values, "
                "so the moments of both are not known exactly and are dropped: error() is not "
                "available. Start sketches to be merged with some of the same rows.",
                OlssWarning,
                stacklevel=4,
            )
    state = state.replace(
        rows=held,
        now=now,
        encoder=encoder,
        moments=both,
        has_classes=other.has_classes if state.has_classes is None else state.has_classes,
        task=other.task,
    )
    size = max(len(held), len(new)) if config.size == "task" else config.size
    return step(config, state, new, size).replace(seen=state.seen + other.seen)


def remove(config: Config, state: State, gone: np.ndarray[Any, np.dtype[np.bool_]]) -> State:
    """Return the state, in which nothing is pending, without the rows marked by `gone`."""
    if not gone.any():
        return state
    rest, moments = state.rows.take(np.flatnonzero(~gone)), state.moments
    if moments is not None:
        removed = state.rows.take(np.flatnonzero(gone))
        moments = _subtract(moments, state.encoder, removed, rest)
    count = int(np.count_nonzero(gone))
    return state.replace(rows=rest, moments=moments, removed=state.removed + count)


def shrink(config: Config, state: State) -> State:
    """Return the state, in which nothing is pending, with no more rows than its size allows."""
    if config.size == "task" or len(state.rows) <= config.size:
        return state
    return step(config, state.replace(rows=RowStore()), state.rows, config.size)


def keeps_moments(config: Config, state: State) -> bool:
    """Return whether a sketch keeps the moments of everything seen.

    It does where its policy scores by them, or on request; but not of a feature map, which may
    change, nor with a window, whose rows cannot be subtracted any more once they are gone.
    """
    if config.features is not None or config.window is not None:
        return False
    if config.moments is None:
        return state.moments is not None or config.policy.leverage_scope == "seen"
    return config.moments


def needs_encoder(config: Config, state: State) -> bool:
    """Return whether rows are encoded at all."""
    return config.policy.uses_features or keeps_moments(config, state)


def should_buffer(config: Config, state: State, new: RowStore) -> bool:
    """Return whether these rows may wait for more: the law must not depend on how rows are cut."""
    if config.size == "task" or not config.policy.can_buffer or config.features:
        return False
    return len(new) < buffer_room(state, new)


def buffer_room(state: State, like: RowStore) -> int:
    """Return how many more rows like these may be pending, plus one."""
    row_bytes = max(1, like.nbytes // max(1, len(like)))
    return min(BUFFER_ROWS, BUFFER_BYTES // row_bytes) - state.pending_rows


def target_kind(config: Config, state: State) -> Literal["class", "number"] | None:
    """Return the kind of target that scores use, if they use any."""
    if not config.uses_target:
        return None
    return "class" if state.has_classes and config.scores == "target" else "number"


def detect(config: Config, state: State, X: Array) -> int | str:
    """Return the current task, or the next one if rows are unlike those held of the current."""
    if isinstance(state.task, str):
        raise InputError(f"task='auto' numbers tasks, but the last task is {state.task!r}.")
    if not len(state.rows) or not (state.rows["task"] == state.task).any():
        return state.task
    encoder = comparison_encoder(config, state)
    scorer = fit_novelty(state, state.task, encoder)
    if scorer.chance(scorer.novelty(encoder.encode(X))) >= FALSE_ALARM_RATE:
        return state.task
    return max(state.task, int(state.rows["task"].max())) + 1


def comparison_encoder(config: Config, state: State) -> Encoder:
    """Return the encoder by which new rows are compared with those held."""
    if needs_encoder(config, state):
        return state.encoder
    return state.encoder.fit(None, state.rows["X"], config.columns, config.exclude)


def fit_novelty(state: State, task: int | str | None, encoder: Encoder) -> NoveltyScorer:
    """Return a scorer of how unlike the rows held, or those of one task, new rows are."""
    X, weight = state.rows["X"], state.rows["weight"]
    if task is not None:
        rows = np.flatnonzero(state.rows["task"] == task)
        if not len(rows):
            raise InputError(f"task: no row of task {task!r} is held.")
        X, weight = take(X, rows), weight[rows]
    return NoveltyScorer.fit(encoder.encode(X), weight)


def read_new(config: Config, state: State, rows: Any) -> Array:
    """Return rows to be compared with those held."""
    if state.table is None:
        return read_array(rows, held=state.rows, pad=config.pad)
    return read_table(rows, held=state.rows, known=state.table)


def _apply_update(config: Config, state: State, new: RowStore) -> State:
    """Return the state after the policy chose among the rows held and the new rows."""
    n, task = len(new), new["task"][-1].item()
    encoder = state.encoder
    if needs_encoder(config, state):
        encoder = encoder.fit(state.rows.get("X"), new["X"], config.columns, config.exclude)
    held, moments, now = state.rows, state.moments, float(state.seen + n)
    if config.forgets:
        now = current_time(config, state, new)
        new = decay_new(config, new, now)
        held, moments = decay_held(config, state, now)
    if keeps_moments(config, state) and not encoder.has_no_features:
        if moments is None and not state.seen:
            moments = SeenMoments()
        if moments is not None:  # once unknown, the moments of everything seen stay unknown
            moments = encoder.accumulate(moments, new["X"], new["initial_weight"])
    chosen = config.target_is_class(state.table.target if state.table else None)
    has_classes = state.has_classes if chosen is None else chosen
    if chosen is None and "y" in new and len(new):
        matters = config.policy.by_class or config.scores == "target"
        has_classes = is_class_target(new["y"], has_classes, matters=matters)
    state = state.replace(
        rows=held, now=now, encoder=encoder, moments=moments, has_classes=has_classes, task=task
    )
    size = n if config.size == "task" else config.size
    return step(config, state, new, size).replace(seen=state.seen + n)


def _enqueue(state: State, new: RowStore) -> State:
    """Return the state in which copies of these rows are pending, too."""
    return state.replace(
        pending=(*state.pending, new.take(np.arange(len(new)))),
        seen=state.seen + len(new),
        task=new["task"][-1].item(),
    )


def _conform_state(state: State, columns: Mapping[str, Array]) -> State:
    """Return the state whose rows have the columns and types of newer tables."""
    return state.replace(
        rows=conform_store(state.rows, columns),
        pending=tuple(conform_store(part, columns) for part in state.pending),
    )


def _drop_missing_targets(state: State, new: RowStore) -> RowStore:
    there = np.flatnonzero(~is_missing(new["y"]))
    if len(there) == len(new):
        return new
    index = np.arange(state.seen, state.seen + len(there))
    return new.take(there).with_columns({"index": index})


def _create_pool(
    config: Config,
    state: State,
    new: RowStore,
    size: int,
    rng: np.random.Generator,
    scorer: Scorer | None,
) -> Pool:
    encoder, scope, scores = state.encoder, config.policy.leverage_scope, config.leverage
    if scope == "pool" and scores == "auto":
        scores = "exact"
    known = state.moments if scope == "seen" else None
    if scorer is None and known is not None and encoder.can_score(known):
        scorer = encoder.scorer(known, scores, size, rng)
    return Pool(
        state.rows,
        new,
        size=size,
        encode=encoder.encode,
        scores=scores,
        scorer=scorer,
        has_classes=bool(state.has_classes),
        target=target_kind(config, state),
        rng=rng,
    )


def _adopt_rows(
    config: Config, state: State, other: State, known_files: int
) -> tuple[State, RowStore]:
    """Return the rows of another sketch in the columns of this one, and the state with room."""
    X, y = other.rows["X"], other.rows.get("y")
    if other.table is not None:
        X = other.table.frame(X)
        y = None if y is None else other.table.targets(y)  # by its name
    extra = {k.removeprefix(EXTRA): other.rows[k] for k in other.rows if k.startswith(EXTRA)}
    columns, table = read_rows(config, state.rows, state.table, X, y, extra)
    if table is not None:
        if state.table is None and other.table is not None:
            table = replace(table, task=other.table.task)
        state = _conform_state(state, columns).replace(table=table)
    own: dict[str, Array] = {
        "task": read_tasks(other.rows["task"], len(other.rows), state.rows),
        "index": other.rows["index"] + state.seen,
    }
    own |= {name: other.rows[name] for name in ("weight", "initial_weight", "priority")}
    if "source" in other.rows or "source" in state.rows:
        own |= _origins(other.rows, known_files)
        if "X" in state.rows:
            state = state.replace(rows=state.rows.with_columns(_origins(state.rows, 0)))
    return state, RowStore(columns | own)


def _merge_moments(
    state: State, other: State, theirs: SeenMoments | None, new: RowStore, encoder: Encoder
) -> SeenMoments | None:
    """Return the moments of both histories, or None if they are not known exactly."""
    mine = state.moments if state.moments is not None or state.seen else SeenMoments()
    if mine is None:
        return None
    if len(new) == other.seen and np.array_equal(new["weight"], new["initial_weight"]):
        return encoder.accumulate(mine, new["X"], new["initial_weight"])  # all rows are there
    if theirs is None:
        return None
    converted = encoder.convert(theirs, other.encoder, new["X"])
    return None if converted is None else mine.merged(converted)


def _subtract(
    moments: SeenMoments, encoder: Encoder, removed: RowStore, rest: RowStore
) -> SeenMoments:
    """Return the moments of everything seen but some rows; those of the rest, if all are held."""
    weight = removed["initial_weight"]
    left = moments.minus(encoder.rows(removed["X"], weight, careful=True))
    all_held = left.rows == len(rest) and np.array_equal(rest["weight"], rest["initial_weight"])
    if left.lost and all_held:
        return encoder.accumulate(SeenMoments(), rest["X"], rest["initial_weight"])
    return left


def _origins(rows: RowStore, files: int) -> dict[str, Array]:
    """Return the files rows came from, numbered from `files` on, and their rows there."""
    source, row = (rows[name] if name in rows else np.full(len(rows), -1) for name in ORIGIN)
    return {"source": np.where(source < 0, -1, source + files), "row": row}
