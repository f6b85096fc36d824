"""Forgetting at a chosen rate: rows count 2^(-age / half_life), or nothing beyond a window.

Ages are those of the rows: in rows of the stream, or by a time column. So it does not matter how a
stream is cut into updates. A sketch with such weights is one of the decayed stream: its total
weight, its Gram matrix and its estimates are, without bias, those of
sum_i 2^(-age_i / half_life) f(x_i).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from olss.core.blocks import to_numpy
from olss.errors import DataError, InputError
from olss.memory.config import Config
from olss.memory.moments import SeenMoments
from olss.memory.rows import EXTRA, Floats, RowStore
from olss.memory.state import State
from olss.tables.schema import is_arrow
from olss.util.text import format_duration

__all__ = ["current_time", "decay_held", "decay_moments", "decay_new", "times_of"]


def current_time(config: Config, state: State, new: RowStore) -> float:
    """Return the time after new rows: rows seen, or the latest time of a row."""
    if config.time is None:
        return float(state.seen + len(new))
    latest = float(times_of(config, new).max())
    if state.seen == state.pending_rows:  # no row has set the time yet
        return latest
    if latest < state.now:
        age = state.now - latest
        is_date = _time_values(config, new).dtype.kind == "M"
        late = format_duration(age) if is_date else f"{age:,.6g} units"
        raise DataError(
            f"time: the newest row given is {late} older than the newest row seen. Pass rows in "
            "the order of their time, or merge a sketch of the late ones."
        )
    return latest


def decay_new(config: Config, new: RowStore, now: float) -> RowStore:
    """Return new rows with weights decayed by age, without those beyond the window."""
    age = now - _row_times(config, new)
    if config.window is not None:
        new, age = new.take(np.flatnonzero(age < config.window)), age[age < config.window]
    return new if config.half_life is None else _scale(new, np.exp2(-age / config.half_life))


def decay_held(config: Config, state: State, now: float) -> tuple[RowStore, SeenMoments | None]:
    """Return the rows held and the moments as they count at a later time, within the window."""
    held, moments, elapsed = state.rows, state.moments, now - state.now
    if config.half_life is not None:
        if len(held):
            held = _scale(held, float(np.exp2(-elapsed / config.half_life)))
        if moments is not None:
            moments = decay_moments(moments, elapsed, config.half_life)
    if config.window is not None and len(held):
        held = held.take(np.flatnonzero(now - _row_times(config, held) < config.window))
    return held, moments


def decay_moments(moments: SeenMoments, elapsed: float, half_life: float) -> SeenMoments:
    """Return moments as they count after some time; empty ones, where nothing is left."""
    share = float(np.exp2(-elapsed / half_life))
    return moments.scaled(share) if share > 0 else SeenMoments()


def times_of(config: Config, rows: RowStore) -> Floats:
    """Return the time of each row: seconds for dates, numbers as they are."""
    values = _time_values(config, rows)
    is_date = values.dtype.kind == "M"
    if is_date:
        values = (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    if values.dtype.kind not in "biuf":
        raise InputError(
            f"time: column {config.time!r} must hold dates or numbers, found {values.dtype}."
        )
    if config.uses_dates and not is_date:
        raise InputError(
            f"time: column {config.time!r} holds numbers, but half_life or window is a length of "
            "time. Give it in the units of the column, or convert the column to dates."
        )
    times: Floats = values.astype(np.float64)
    if not np.isfinite(times).all():
        row = int(np.flatnonzero(~np.isfinite(times))[0])
        raise DataError(f"time: column {config.time!r} has no value in row {row}.")
    return times


def _row_times(config: Config, rows: RowStore) -> Floats:
    return rows["index"] + 1.0 if config.time is None else times_of(config, rows)


def _scale(rows: RowStore, share: Floats | float) -> RowStore:
    """Return rows with all weights multiplied, without those whose weight vanishes."""
    less = {name: rows[name] * share for name in ("weight", "initial_weight")}
    rows, left = rows.with_columns(less), (less["weight"] > 0) & (less["initial_weight"] > 0)
    return rows if left.all() else rows.take(np.flatnonzero(left))


def _time_values(config: Config, rows: RowStore) -> Any:
    name = config.time
    assert name is not None
    if is_arrow(rows["X"]) and name in rows["X"].schema.names:
        return rows["X"].column(name).to_numpy()
    if EXTRA + name in rows:
        return to_numpy(rows[EXTRA + name])
    raise InputError(
        f"time: there is no column {name!r}. Add it to the table, or pass it as "
        f"update(X, extra={{{name!r}: ...}})."
    )
