"""The engine: how new rows become part of a sketch.

`step` is the one place where held rows are combined with new ones; `olss.Sketch.update`,
`olss.Sketch.merge` and `olss.compress` all call it. Every function takes a state and returns a new
one: a call that raises leaves the state unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from olss.core.estimation import local_blocks
from olss.core.estimation import replicate_weights as core_replicates
from olss.core.sampling import draw_cells
from olss.errors import InputError
from olss.memory.config import Config
from olss.memory.encoder import Encoder
from olss.memory.holdout import (
    is_held_out,
    judge_config,
    replicate_factors,
    side_cells,
    sides,
    with_keys,
)
from olss.memory.intake import (
    conform_store,
    is_missing,
    read_array,
    read_rows,
    read_table,
    read_tasks,
    read_weights,
)
from olss.memory.near_duplicates import merge_near_duplicates
from olss.memory.novelty import NoveltyScorer, record_batches
from olss.memory.policies import ThresholdPolicy, VarOptPolicy, Weighted, curve_places
from olss.memory.pool import Choice, Pool, Scorer, strata_of
from olss.memory.rows import EXTRA, ORIGIN, Array, Floats, Indices, RowStore, length_of, take
from olss.memory.state import (
    State,
    current_time,
    decay,
    decay_new,
    restore_generator,
)
from olss.memory.strata import StratumShares, keys_of, stratum_shares
from olss.memory.totals import (
    add_rows,
    add_strata,
    keeps_moments,
    merge_counts,
    merge_totals,
    subtract_rows,
)
from olss.tables.class_labels import is_class_target

# A draw scores and sorts all rows held, so it pays to make it for many new ones: until there are
# this many, as a share of the rows held, they are sampled against the threshold of the last draw.
CANDIDATE_SHARE = 0.25

# Rows that come a few at a time are buffered until there are so many, or so many bytes of them.
BUFFER_ROWS = 1024
BUFFER_BYTES = 16_000_000
MOST_COMPARED = 8192  # new rows that are looked through for near-duplicates, or twice the size
FALSE_ALARM_RATE = 1e-3  # of updates without a change that begin a task under task="auto"


@dataclass(frozen=True)
class Design:
    """How the rows held were sampled.

    Attributes
    ----------
    weight, pi : (n,) arrays
        Their weights, and the probability with which each was kept.
    strata : (n,) int array or None
        What the draw kept apart, if anything.
    blocks : (n,) int array or None
        Rows that competed with each other inside strata, if the sample is spread.
    complete : bool
        Whether all rows sampled are there.
    known_strata : triple of (n,) int array, (H,) array and float, or None
        The sketch's strata, if it is known how many rows were seen of them: the number of each
        row's stratum, the rows seen of each, and of those of which no row is held.
    """

    weight: Floats
    pi: Floats
    strata: Indices | None
    blocks: Indices | None
    complete: bool
    known_strata: tuple[Indices, Floats, float] | None = None


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
    new = with_keys(config, new)
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
        if config.strata is not None:
            add_strata(config, state.strata, new, first=state.seen == state.pending_rows)
        return _enqueue(state, new)
    if state.pending:
        return _apply_pending(config, _enqueue(state, new))
    return offer(config, *_ingest(config, state, new, [len(new)]))


def flush(config: Config, state: State) -> State:
    """Return the state in which no rows are pending, and none are candidates."""
    if state.pending:
        state = _apply_pending(config, state)
    if not state.candidates:
        return state
    assert config.size != "task"
    return step(
        config, state.replace(candidates=()), RowStore.concat(state.candidates), config.size
    )


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
    already. With a hold-out, rows of each side are chosen by themselves.

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
    own = rng is None
    rng = restore_generator(state.generator) if rng is None else rng
    draw = partial(step, scorer=scorer, rng=rng, keep_priorities=keep_priorities)
    policy, held, threshold = config.policy, state.rows, None
    if config.holdout is not None:
        parts = [draw(*side).rows for side in sides(config, state, new, size)]
        rows = RowStore.concat([part for part in parts if len(part)] or parts[:1])
        rows = rows.take(np.argsort(rows["index"], kind="stable"))
    else:
        resets = policy.resets_priority and not keep_priorities
        if config.near_duplicates is not None:
            if len(new) > (most := max(2 * size, MOST_COMPARED)):  # comparing all takes too long
                bare = config.replace(near_duplicates=None)
                new = draw(bare, state.replace(rows=RowStore()), new, most).rows
            held, new = merge_near_duplicates(config, state, held, new)
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
            if isinstance(policy, ThresholdPolicy) and choice.priority is not None:
                weight = pool.weight[choice.rows] if choice.weight is None else choice.weight
                threshold = policy.threshold(weight, choice.priority)
        rows = _take_choice(held, new, choice, resets=resets)
    state = state.replace(rows=rows, threshold=threshold)
    return state.replace(generator=dict(rng.bit_generator.state)) if own else state


def _take_choice(held: RowStore, new: RowStore, choice: Choice, *, resets: bool) -> RowStore:
    """Return the rows chosen, with their weights and priorities from now on."""
    kept = choice.rows[choice.rows < len(held)]
    rows = held.take_concat(kept, new, choice.rows[len(kept) :] - len(held))
    changed: dict[str, Array] = {}
    if choice.weight is not None:
        changed["weight"] = choice.weight
    if resets:
        changed["priority"] = np.full(len(rows), np.nan)
    elif choice.priority is not None:
        changed["priority"] = choice.priority
    return rows.with_columns(changed)


def merge(config: Config, state: State, other: State) -> State:
    """Return the state with the rows of another sketch, whose history comes after."""
    state = flush(config, state)
    known_files = len(state.files)
    entries = tuple({**entry, "run": entry["run"] + state.runs} for entry in other.files)
    state = state.replace(
        files=(*state.files, *entries),
        runs=state.runs + other.runs,
        removed=state.removed + other.removed,
        history=state.history.merge(
            other.history, same=_compared_labels(state) == _compared_labels(other)
        ),
    )
    if not len(other.rows):
        strata, classes = merge_counts(state, other)
        if other.seen != other.removed:
            state = state.replace(buckets=None)
        return state.replace(strata=strata, class_counts=classes, seen=state.seen + other.seen)
    state, new = _adopt_rows(config, state, other, known_files)
    now = state.now + other.now if config.time is None else max(state.now, other.now)
    if not state.seen:  # no row has set the time yet
        now = other.now
    mine, theirs = decay(config, state, now), other.replace(rows=new)
    if config.time is not None:  # by rows, they are as old as they were
        theirs = decay(config, theirs, now)
    held, new = mine.rows, theirs.rows
    encoder = state.encoder.adopt(other.encoder, first=not (state.seen or len(held)))
    if needs_encoder(config, state) and len(new):
        encoder = encoder.fit(held.get("X"), new["X"], config.columns, config.exclude)
    has_classes = other.has_classes if state.has_classes is None else state.has_classes
    mine = mine.replace(encoder=encoder, has_classes=has_classes)
    state = merge_totals(config, mine, theirs).replace(task=other.task)
    size = max(len(held), len(new)) if config.size == "task" else config.size
    return step(config, state, new, size).replace(seen=state.seen + other.seen)


def remove(config: Config, state: State, gone: np.ndarray[Any, np.dtype[np.bool_]]) -> State:
    """Return the state, in which nothing is pending, without the rows marked by `gone`."""
    if not gone.any():
        return state
    rest, removed = (state.rows.take(np.flatnonzero(some)) for some in (~gone, gone))
    state = subtract_rows(config, state, removed, rest)
    return state.replace(rows=rest, removed=state.removed + len(removed))


def shrink(config: Config, state: State) -> State:
    """Return the state, in which nothing is pending, with no more rows than its size allows."""
    if config.size == "task" or len(state.rows) <= config.size:
        return state
    return step(config, state.replace(rows=RowStore()), state.rows, config.size)


def needs_encoder(config: Config, state: State) -> bool:
    """Return whether rows are encoded at all."""
    return (
        config.policy.uses_features
        or config.near_duplicates is not None
        or keeps_moments(config, state)
    )


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
    if state.history.encoder is not None:
        return state.history.encoder
    return state.encoder.fit(None, state.rows["X"], config.columns, config.exclude)


def _compared_labels(state: State) -> list[str] | None:
    """Return the names of the numbers by which batches are compared, if they have any."""
    return (state.history.encoder or state.encoder).labels


def fit_novelty(state: State, task: int | str | None, encoder: Encoder) -> NoveltyScorer:
    """Return a scorer of how unlike the rows held, or those of one task, new rows are."""
    X, weight = state.rows["X"], state.rows["weight"]
    if task is not None:
        rows = np.flatnonzero(state.rows["task"] == task)
        if not len(rows):
            raise InputError(f"task: no row of task {task!r} is held.")
        X, weight = take(X, rows), weight[rows]
    return NoveltyScorer.fit(encoder.encode(X), weight)


def spreads(config: Config) -> bool:
    """Return whether rows that are alike compete with each other."""
    return isinstance(config.policy, Weighted) and config.policy.spread


def sampling_design(config: Config, state: State) -> Design:
    """Return how the rows held were sampled, as far as estimates need to know it."""
    rows = state.rows
    strata = None
    if config.policy.leverage_scope is not None:
        strata = strata_of(rows["task"], [rows["y"]] if state.has_classes and len(rows) else [])
        strata = np.where(is_held_out(config, rows), 0, strata)  # drawn without regard to them
    known = None
    if config.strata is not None:
        codes, keys = keys_of(config, state.strata, [rows])
        strata, counts = draw_cells(strata, codes), state.strata.counts
        if counts is not None and not state.removed:
            others = sum(counts[key] for key in counts.keys() - set(keys))
            known = codes, np.array([counts[key] for key in keys]), others
    strata = side_cells(config, rows, strata)
    pi = np.minimum(rows["initial_weight"] / rows["weight"], 1.0)
    blocks, moments = None, state.moments
    # The hold-out is not spread, so that the usual formula, an upper bound, has to do for both.
    if spreads(config) and moments is not None and config.holdout is None:
        directions = state.encoder.directions(moments) if (pi < 1).any() else None
        if directions is not None:
            # A row stays with probability priority * size / weight, the mean priority being 1.
            coordinates = state.encoder.project(rows["X"], directions)
            places = curve_places(pi * moments.weight / len(pi), coordinates)
            blocks = local_blocks(places, pi < 1, strata)
    return Design(
        weight=rows["weight"],
        pi=pi,
        strata=strata,
        blocks=blocks,
        complete=not state.removed and config.window is None,
        known_strata=known,
    )


def replicate_weights(config: Config, state: State, count: int, seed: int) -> Floats:
    """Return (n, count) replicate weights of the rows held; the same for the same seed."""
    design = sampling_design(config, state)
    return core_replicates(
        design.weight,
        design.pi,
        count,
        np.random.default_rng(seed),
        design.strata,
        design.complete,
        design.blocks,
    )


def holdout_weights(config: Config, state: State, count: int, seed: int) -> Floats:
    """Return (n, count) replicate weights of the rows held, those of a hold-out."""
    design = sampling_design(judge_config(config), state.replace(buckets=None))
    rng, weight = np.random.default_rng(seed), design.weight[:, None]
    drawn = core_replicates(design.weight, design.pi, count, rng, design.strata, design.complete)
    return weight * replicate_factors(config, state.rows, design.pi, drawn / weight, rng)


def read_new(config: Config, state: State, rows: Any, only: Collection[str] | None = None) -> Array:
    """Return rows like those held; of tables, `only` these columns need be there."""
    if state.table is None:
        return read_array(rows, held=state.rows, pad=config.pad)
    return read_table(
        rows, held=state.rows, known=state.table, new_columns=config.new_columns, only=only
    )


def _apply_pending(config: Config, state: State) -> State:
    """Return the state after an update with the rows that are pending."""
    new, ends = RowStore.concat(state.pending), np.cumsum([len(part) for part in state.pending])
    state = state.replace(pending=(), seen=state.seen - len(new))
    return offer(config, *_ingest(config, state, new, ends.tolist()))


def _ingest(
    config: Config, state: State, new: RowStore, ends: list[int]
) -> tuple[State, RowStore, int]:
    """Return what `offer` takes: a state that knows of the new rows, these, and the size.

    `ends` are where batches end among the new rows.
    """
    n, task = len(new), new["task"][-1].item()
    encoder = state.encoder
    if needs_encoder(config, state):
        encoder = encoder.fit(state.rows.get("X"), new["X"], config.columns, config.exclude)
    now = current_time(config, state, new) if config.forgets else float(state.seen + n)
    before, new = decay(config, state, now), decay_new(config, new, now)
    if config.window is not None:  # rows beyond it are gone
        ends = np.searchsorted(new["index"], state.seen + np.array(ends)).tolist()
    history = record_batches(
        config,
        state.history,
        encoder if needs_encoder(config, state) else None,
        (before.rows.get("X"), before.rows["weight"] if len(before.rows) else np.zeros(0)),
        (new["X"], new["weight"]),
        ends,
    )
    has_classes = state.has_classes
    if "y" in new:
        chosen = config.target_is_class(state.table.target if state.table else None)
        if chosen is not None:
            has_classes = chosen
        elif len(new):
            matters = config.policy.by_class or config.scores == "target"
            has_classes = is_class_target(new["y"], has_classes, matters=matters)
    before = before.replace(encoder=encoder, has_classes=has_classes, history=history)
    state = add_rows(config, before, new).replace(seen=state.seen + n, task=task)
    return state, new, n if config.size == "task" else config.size


def offer(config: Config, state: State, new: RowStore, size: int) -> State:
    """Return the state with candidates among the new rows, or after a draw if there are many.

    Whether a row is drawn at once, or sampled against the last threshold first, its probability
    is the same, because thresholds grow (`olss.memory.policies.VarOptPolicy`). As for `step`, what
    is known of the new rows beside themselves is in the state already.
    """
    waiting, room = [*state.candidates, new], int(CANDIDATE_SHARE * size)
    if _can_sample_candidates(config, state, new, size, room):
        rng = restore_generator(state.generator)
        some = _sample_candidates(config, state, new, size, rng)
        if len(some) <= room:  # else they are unlike the rows before, and a draw is due
            waiting[-1] = some
            state = state.replace(generator=dict(rng.bit_generator.state))
            if sum(map(len, waiting)) <= room:
                return state.replace(candidates=tuple(part for part in waiting if len(part)))
    return step(config, state.replace(candidates=()), RowStore.concat(waiting), size)


def _can_sample_candidates(
    config: Config, state: State, new: RowStore, size: int, room: int
) -> bool:
    """Return whether new rows can be sampled before a draw, and few are expected to remain."""
    policy, threshold, moments = config.policy, state.threshold, state.moments
    if not isinstance(policy, VarOptPolicy) or policy.leverage_scope != "seen":
        return False
    if config.forgets or config.uses_target or config.size == "task":
        return False
    if config.strata is not None or config.holdout is not None:
        return False
    if threshold is None or len(state.rows) < size:
        return False
    if moments is None or not state.encoder.can_score(moments):
        return False
    return bool(new["weight"].sum() < room * threshold)  # the mean priority is one


def _sample_candidates(
    config: Config, state: State, new: RowStore, size: int, rng: np.random.Generator
) -> RowStore:
    """Return new rows sampled against the threshold of the last draw, with their weights."""
    policy, threshold = config.policy, state.threshold
    assert isinstance(policy, ThresholdPolicy)
    assert threshold is not None
    pool = _create_pool(config, state.replace(rows=RowStore()), new, size, rng, None)
    priority = policy.priorities(pool, rng)
    rows, weight = policy.threshold_sample(
        pool.weight, priority, threshold, rng, pool.strata, policy.places(pool, priority)
    )
    order = np.argsort(rows)
    return new.take(rows[order]).with_columns({"weight": weight[order]})


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
        candidates=tuple(conform_store(part, columns) for part in state.candidates),
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
        scorer = encoder.scorer(known, scores, size, rng, spread=spreads(config))

    def shares(parts: list[RowStore], weight: Floats) -> StratumShares:
        coded = keys_of(config, state.strata, parts)
        return stratum_shares(config, state.strata, coded, weight, size)

    return Pool(
        state.rows,
        new,
        size=size,
        encode=encoder.encode,
        scores=scores,
        scorer=scorer,
        has_classes=bool(state.has_classes),
        target=target_kind(config, state),
        shares=None if config.strata is None else shares,
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
    own |= {"key": other.rows["key"]} if "key" in other.rows else {}
    if "source" in other.rows or "source" in state.rows:
        own |= _origins(other.rows, known_files)
        if "X" in state.rows:
            state = state.replace(rows=state.rows.with_columns(_origins(state.rows, 0)))
    return state, RowStore(columns | own)


def _origins(rows: RowStore, files: int) -> dict[str, Array]:
    """Return the files rows came from, numbered from `files` on, and their rows there."""
    source, row = (rows[name] if name in rows else np.full(len(rows), -1) for name in ORIGIN)
    return {"source": np.where(source < 0, -1, source + files), "row": row}
