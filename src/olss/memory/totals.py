"""Totals of everything seen, kept or not: sums that every update adds to.

They are the moments, the rows seen of each stratum and of each class, and the gradient of a model
that is followed. New rows are added, histories are merged, removed rows are subtracted
(`olss.memory.state.decay` is how they age). What has become unknown stays unknown: None.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from olss.core.gradient_trace import MOST_MODELS, GradientTrace
from olss.errors import InputError, OlssWarning
from olss.memory.buckets import MomentBuckets
from olss.memory.config import Config
from olss.memory.encoder import Encoder, all_glm_rows, glm_rows, read_target
from olss.memory.holdout import training_rows
from olss.memory.rows import RowStore
from olss.memory.state import State, row_times
from olss.memory.strata import (
    Counts,
    Strata,
    accumulate_strata,
    add_class_counts,
    class_keys,
    count_rows,
    keys_of,
    merge_strata,
    rows_column,
    subtract_counts,
)


def keeps_moments(config: Config, state: State) -> bool:
    """Return whether a sketch keeps the moments of everything seen.

    It does where its policy scores by them, or on request; of a feature map on request only,
    because it may change.
    """
    if config.features is not None:
        return bool(config.moments)
    if config.moments is None:
        wanted = config.policy.leverage_scope == "seen" or config.glm is not None
        return state.buckets is not None or wanted
    return config.moments


def add_rows(config: Config, state: State, new: RowStore) -> State:
    """Return the state whose sums have new rows in them; it has the encoder for them already."""
    strata, classes = state.strata, state.class_counts
    if config.strata is not None and len(new):
        strata = add_strata(config, strata, new, first=not state.seen)
    if not state.seen and config.window is None:
        classes = {}
    counted = "y" in new and state.has_classes
    classes = add_class_counts(classes, _count_classes(new)) if counted else None
    state = state.replace(strata=strata, class_counts=classes)
    if keeps_moments(config, state) and not state.encoder.has_no_features:
        known = _known_moments(config, state)
        if known is not None:
            known = accumulate(config, state.encoder, known, new, is_class=bool(state.has_classes))
        state = state.replace(buckets=known)
    return state.replace(trace=_follow_gradient(config, state, new)) if config.glm else state


def add_strata(config: Config, strata: Strata, new: RowStore, *, first: bool) -> Strata:
    """Return the strata with new rows added; the `first` rows decide where numbers are cut."""
    return accumulate_strata(config, strata, rows_column(new), new["initial_weight"], first=first)


def accumulate(
    config: Config,
    encoder: Encoder,
    known: MomentBuckets,
    rows: RowStore,
    *,
    is_class: bool,
    place: str = "rows",
    start: int = 0,
) -> MomentBuckets:
    """Return moments with rows added, but those of the hold-out: models are fitted by moments.

    Errors name the `place` rows are from, and the number of the first row there.
    """
    rows, changed = training_rows(config, rows), {}
    if not len(rows):
        return known
    for number, bucket, some in known.split(rows, row_times(config, rows)):
        weight, target = some["initial_weight"], read_target(some.get("y"), is_class=is_class)
        moments = encoder.accumulate(bucket.moments, some["X"], weight, place, start, target=target)
        changed[number] = replace(bucket, moments=moments)
    return known.put(changed)


def merge_totals(config: Config, state: State, other: State) -> State:
    """Return the state with the sums of another history, which comes after.

    Both are as of the same time. The rows of `other` have the columns of those of `state`, and the
    encoder of `state` is for both.
    """
    strata, classes = merge_counts(state, other)
    buckets = None
    if keeps_moments(config, state) and not state.encoder.has_no_features:
        buckets = _merge_moments(config, state, other)
        if buckets is None and (state.buckets is not None or not state.seen):
            warnings.warn(
                "other keeps no moments, or its first rows had other strings or missing values, "
                "so the moments of both are not known exactly and are dropped: error() is not "
                "available. Start sketches to be merged with some of the same rows.",
                OlssWarning,
                stacklevel=5,
            )
    return state.replace(
        strata=strata,
        class_counts=classes,
        buckets=None if buckets is None else buckets.drop(state.now),
        trace=_merge_traces(state, other) if config.glm else None,
    )


def merge_counts(state: State, other: State) -> tuple[Strata, Counts | None]:
    """Return the counts of the strata and classes of two histories."""
    if not (state.seen and other.seen):
        known = state if state.seen else other
        return known.strata, known.class_counts
    return (
        merge_strata(state.strata, other.strata),
        add_class_counts(state.class_counts, other.class_counts),
    )


def subtract_rows(config: Config, state: State, removed: RowStore, rest: RowStore) -> State:
    """Return the state whose sums are without some rows; `rest` are the others held."""
    strata, classes, trace = state.strata, state.class_counts, state.trace
    buckets, training = state.buckets, training_rows(config, removed)
    if trace is not None and len(training):
        for block in glm_rows(state.encoder, training, trace.classes, weight="initial_weight"):
            trace = trace.subtract(block)
    if buckets is not None and len(training):
        buckets = _subtract_moments(config, state, training, training_rows(config, rest))
    if strata.counts is not None and config.strata is not None:
        gone, left = (_count_strata(config, strata, part) for part in (removed, rest))
        strata = replace(strata, counts=subtract_counts(strata.counts, gone, left))
    if classes is not None:
        classes = subtract_counts(classes, _count_classes(removed), _count_classes(rest))
    return state.replace(buckets=buckets, trace=trace, strata=strata, class_counts=classes)


def _known_moments(config: Config, state: State) -> MomentBuckets | None:
    """Return the moments to which rows are added: None if those before are not known."""
    return state.buckets if state.seen else state.buckets or MomentBuckets(config.window)


def _merge_moments(config: Config, state: State, other: State) -> MomentBuckets | None:
    """Return the moments of both histories, or None if they are not known exactly."""
    new, encoder, mine = other.rows, state.encoder, _known_moments(config, state)
    if mine is None:
        return None
    if len(new) == other.seen and np.array_equal(new["weight"], new["initial_weight"]):
        return accumulate(config, encoder, mine, new, is_class=bool(state.has_classes))
    if other.buckets is None:
        return None
    theirs = other.buckets if config.time is not None else other.buckets.shift(state.seen)
    converted = theirs.convert(lambda m: encoder.convert(m, other.encoder, new["X"]))
    return None if converted is None else mine.merge(converted)


def _subtract_moments(
    config: Config, state: State, removed: RowStore, rest: RowStore
) -> MomentBuckets | None:
    """Return the moments of everything seen but some rows; those of the rest, if all are held."""
    assert state.buckets is not None

    encoder, is_class, changed = state.encoder, bool(state.has_classes), {}
    for number, bucket, some in state.buckets.find(removed, row_times(config, removed)):
        weight, target = some["initial_weight"], read_target(some.get("y"), is_class=is_class)
        moments = encoder.subtract(bucket.moments, some["X"], weight, target)
        changed[number] = replace(bucket, moments=moments)
    left = state.buckets.put(changed)
    all_held = left.total.rows == len(rest) and np.array_equal(
        rest["weight"], rest["initial_weight"]
    )
    if left.total.lost and all_held:
        return accumulate(config, encoder, MomentBuckets(config.window), rest, is_class=is_class)
    return left


def _follow_gradient(config: Config, state: State, new: RowStore) -> GradientTrace | None:
    """Return the gradient trace with new rows, which the moments have already."""
    trace, known = state.trace, state.moments
    if known is None or known.target is None or (trace is None and state.seen):
        return None
    if config.glm == "logistic" and not state.has_classes:
        raise InputError("glm='logistic' needs a target of classes, found numbers; use 'poisson'.")
    classes = (None,)
    if config.glm == "logistic":
        classes = known.target.classes or ()
    elif known.target.as_numbers() is None:
        raise InputError("glm='poisson' needs a target of counts, found classes; use 'logistic'.")
    if len(classes) > MOST_MODELS or known.total is None:
        return None
    d = known.columns - (state.encoder.plan is not None)
    if trace is None:
        trace = GradientTrace.empty("logistic" if config.glm == "logistic" else "poisson", d)
    new = training_rows(config, new)
    if not len(new):
        return trace
    blocks = list(glm_rows(state.encoder, new, classes, weight="initial_weight"))
    if not any(block.weight.any() for block in blocks):
        return trace
    if config.glm == "poisson" and min(block.y.min(initial=0.0) for block in blocks) < 0:
        raise InputError("glm='poisson' needs a target of counts, found a negative number.")
    moments = known.centre().select(np.arange(d), [])
    held = [part for part in (state.rows, *state.candidates) if len(part)]
    known_rows = training_rows(config, RowStore.concat(held or [RowStore()]))
    kept = all_glm_rows(state.encoder, known_rows, classes, d)
    return trace.arrange(classes).update(moments, kept, blocks)


def _merge_traces(state: State, other: State) -> GradientTrace | None:
    """Return the gradient trace of both histories, or None if it is not known."""
    if other.trace is None or state.encoder.differs_from(other.encoder):
        return None
    if state.trace is None:
        return None if state.seen else other.trace
    return state.trace.merge(other.trace, state.seen)


def _count_strata(config: Config, strata: Strata, rows: RowStore) -> Counts:
    if not len(rows):
        return {}
    return count_rows(keys_of(config, strata, [rows]), rows["initial_weight"])


def _count_classes(rows: RowStore) -> Counts:
    return count_rows(class_keys(rows["y"]), rows["initial_weight"]) if len(rows) else {}
