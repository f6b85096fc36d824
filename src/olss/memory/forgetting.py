"""Forgetting at a chosen rate: rows count 2^(-age / half_life), or not at all beyond a window.

Ages are the rows' own: in rows of the stream, or by a column that says their time. So it does not
matter how a stream is cut into updates. A sketch with such weights is one of the decayed stream:
its total weight, its Gram matrix and its estimates are, without bias, those of
sum_i 2^(-age_i / half_life) f(x_i).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from olss.core.blocks import to_numpy
from olss.errors import DataError, InputError
from olss.memory.own_columns import EXTRA
from olss.memory.pool import Floats
from olss.memory.spectrum import Spectrum
from olss.memory.state import Settings, State
from olss.memory.store import RowStore, is_arrow
from olss.util.text import format_duration

__all__ = ["aged", "faded", "faded_spectrum", "forgets", "time_after", "times_of", "within"]


def forgets(settings: Settings) -> bool:
    """Whether age matters at all."""
    return settings.half_life is not None or settings.last is not None


def time_after(settings: Settings, state: State, new: RowStore, seen: int) -> float:
    """Return what time it is after new rows: rows seen, or the latest time of a row."""
    if settings.time is None:
        return float(state.seen + seen)
    times = times_of(settings, new)
    latest = float(times.max())
    if state.seen == state.waiting_rows:  # no row has said what time it is
        return latest
    if latest < state.now:
        raise DataError(
            "time runs backwards: the newest row given is "
            f"{_age(settings, new, state.now - latest)} older than the newest row seen. Give rows "
            "in the order of their time, or merge a sketch of the late ones."
        )
    return latest


def aged(settings: Settings, new: RowStore, now: float) -> RowStore:
    """Return new rows that count for less by their ages, those beyond the window left out."""
    times = new["index"] + 1.0 if settings.time is None else times_of(settings, new)
    age = now - times
    if settings.last is not None:
        new, age = new.take(np.flatnonzero(age < settings.last)), age[age < settings.last]
    if settings.half_life is None:
        return new
    return _counting(new, np.exp2(-age / settings.half_life))


def faded(settings: Settings, state: State, now: float) -> tuple[RowStore, Spectrum | None]:
    """Return rows held and spectrum as they count at a later time, within the window."""
    held, spectrum, elapsed = state.rows, state.spectrum, now - state.now
    if settings.half_life is not None and len(held):
        held = _counting(held, float(np.exp2(-elapsed / settings.half_life)))
    if settings.half_life is not None and spectrum is not None:
        spectrum = faded_spectrum(spectrum, elapsed, settings.half_life)
    return within(settings, held, now), spectrum


def _counting(rows: RowStore, share: Floats | float) -> RowStore:
    """Return rows that count for a share of what they did, those that count nothing left out."""
    less = {name: rows[name] * share for name in ("weight", "base")}
    rows, left = rows.with_columns(less), (less["weight"] > 0) & (less["base"] > 0)
    return rows if left.all() else rows.take(np.flatnonzero(left))


def faded_spectrum(spectrum: Spectrum, elapsed: float, half_life: float) -> Spectrum:
    """Return a spectrum as it counts after a time; nothing, where nothing is left of it."""
    share = float(np.exp2(-elapsed / half_life))
    return spectrum.scaled(share) if share > 0 else Spectrum()


def within(settings: Settings, held: RowStore, now: float) -> RowStore:
    """Return the rows held that are not beyond the window."""
    if settings.last is None or not len(held):
        return held
    times = held["index"] + 1.0 if settings.time is None else times_of(settings, held)
    return held.take(np.flatnonzero(now - times < settings.last))


def times_of(settings: Settings, rows: RowStore) -> Floats:
    """Return the time of each row: seconds for dates, numbers as they are."""
    values = _time_values(settings, rows)
    dates = values.dtype.kind == "M"
    if dates:
        values = (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    if values.dtype.kind not in "biuf":
        raise InputError(
            f"time: the column {settings.time!r} must hold dates or numbers, found {values.dtype}."
        )
    if settings.by_dates and not dates:
        raise InputError(
            f"time: the column {settings.time!r} holds numbers, and half_life or last is a length "
            "of time; give it in the column's own units, or make the column dates."
        )
    times: Floats = values.astype(np.float64)
    if not np.isfinite(times).all():
        row = int(np.flatnonzero(~np.isfinite(times))[0])
        raise DataError(
            f"time: the column {settings.time!r} must say the time of every row, found none in "
            f"row {row}."
        )
    return times


def _time_values(settings: Settings, rows: RowStore) -> Any:
    name = settings.time
    assert name is not None
    if is_arrow(rows["X"]) and name in rows["X"].schema.names:
        column = rows["X"].column(name)
        return column.to_numpy()
    if EXTRA + name in rows:
        return to_numpy(rows[EXTRA + name])
    raise InputError(
        f"time: there is no column {name!r}. It must be a column of the table, or one that rides "
        f"along: update(X, extra={{{name!r}: ...}})."
    )


def _age(settings: Settings, rows: RowStore, age: float) -> str:
    """Return a difference of times in words: seconds to days for dates, otherwise a number."""
    is_date = _time_values(settings, rows).dtype.kind == "M"
    return format_duration(age) if is_date else f"{age:,.6g} units"
