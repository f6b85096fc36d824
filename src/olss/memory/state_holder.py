"""What a sketch holds, and how it comes to hold something else: whole, in one step, or not at all.

The state is a value that is never changed. An operation builds the state that will be beside the
one that is, and then points to it; whatever interrupts, and whenever, finds one or the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from olss.errors import InputError
from olss.memory.absorbing import absorbed, may_wait, merged, scores, settled, waited
from olss.memory.forgetting import forgets, time_after
from olss.memory.intake import (
    SingleRows,
    incoming,
    incoming_rows,
    incoming_weight,
    is_like,
    task_column,
)
from olss.memory.novelty import Familiar
from olss.memory.numbers import Numbers
from olss.memory.own_columns import EXTRA, ORIGIN
from olss.memory.state import Settings, State
from olss.memory.store import Array, RowStore, length_of, take
from olss.memory.surprise import check_target
from olss.memory.table_intake import incoming_table, with_schemas
from olss.tables.frames import is_table
from olss.util import checks

__all__ = ["StateHolder", "settings_of", "state_of"]

WORKED_OUT = ("_lock", "_familiar")  # of no account in copies
SINGLES = 256  # updates of a row or a few that are taken together
FALSE_ALARMS = 1e-3  # share of updates without a change that begin a task under task="auto"


class StateHolder:
    """Holds the state of a sketch, and rows that came singly since; see `olss.Sketch`."""

    _settings: Settings
    _now: tuple[State, tuple[SingleRows, ...]]

    def _forget_what_was_worked_out(self) -> None:
        self._lock = threading.RLock()
        self._familiar: tuple[State, Any, Familiar] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in WORKED_OUT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget_what_was_worked_out()

    @property
    def _state(self) -> State:
        """What the sketch holds, rows that came singly among those that wait."""
        if self._now[1]:
            self._change(lambda state: state)
        return self._now[0]

    @property
    def _settled(self) -> State:
        """The state, in which no rows wait any more."""
        if self._state.waiting:
            self._change(lambda state: settled(self._settings, state))
        return self._now[0]

    def _change(self, change: Callable[[State], State]) -> None:
        """Put another state in the place of this one, in one step, or leave this one."""
        before = after = None

        def undo() -> None:
            if before is not None:
                self._now = before
                before[0].rows.forget(None)

        try:
            with self._lock:
                before = self._now
                try:
                    after = (change(self._with_singles(*before)), ())
                    self._familiar = None
                    self._now = after
                except BaseException:
                    undo()
                    raise
        except BaseException:
            with self._lock:  # what interrupts may come right behind that step
                if after is not None and self._now is after:
                    undo()
            raise

    def _took_single(self, rows: Any, y: Any) -> bool:
        """Take in a few rows that are just like those that wait, at little cost, if they are."""
        with self._lock:
            state, singles = self._now
            if not state.waiting or type(rows) is not np.ndarray or len(singles) >= SINGLES:
                return False
            like = state.waiting[0]
            if any(name.startswith(EXTRA) for name in like) or isinstance(y, np.ma.MaskedArray):
                return False  # these come with more, or with less, than rows and targets
            target = None if y is None else np.array(y)
            if not (is_like(rows, like.get("X")) and is_like(target, like.get("y"))):
                return False
            if target is not None and len(target) != len(rows):
                return False
            self._now = (state, (*singles, (rows.copy(), target)))
            return True

    def _with_singles(self, state: State, singles: tuple[SingleRows, ...]) -> State:
        """Return the state in which rows that came singly wait like others."""
        if not singles:
            return state
        rows = np.concatenate([rows for rows, _ in singles])
        targets = [y for _, y in singles if y is not None]
        y = np.concatenate(targets) if targets else None
        return self._updated(state, rows, y, None, None, None)

    def _updated(
        self, state: State, rows: Any, y: Any, task: Any, weight: Any, extra: Any
    ) -> State:
        settings = self._settings
        if isinstance(task, str) and task == "auto":
            state = settled(settings, state)
        state, new = self._columns(state, rows, y, extra)
        check_target(settings, new)
        n = length_of(new["X"])
        if task is None:
            task = state.task
        elif isinstance(task, str) and task == "auto":
            task = self._detected_task(state, new["X"])
        base = incoming_weight(weight, n)
        own: dict[str, Array] = {
            "task": task_column(task, n, state.like),
            "weight": base,
            "base": base,
            "index": np.arange(state.seen, state.seen + n),
            "order": np.full(n, np.nan),
        }
        own |= {name: np.full(n, -1) for name in ORIGIN if name in state.like}
        store = RowStore(new | own)
        # What could not be drawn from later is refused now.
        if state.table is not None and scores(settings, state):
            waiting = [part["X"] for part in state.waiting]
            state.numbers.check(store["X"], waiting, settings.columns, settings.exclude)
        if forgets(settings):
            time_after(settings, state, store, n)
        if may_wait(settings, state, store):
            return waited(state, store)
        if state.waiting:
            return settled(settings, waited(state, store))
        return absorbed(settings, state, store)

    def _columns(
        self, state: State, rows: Any, y: Any, extra: Any
    ) -> tuple[State, dict[str, Array]]:
        """Return the columns of an update, and the state with room for them."""
        settings, held = self._settings, state.like
        if not is_table(rows):
            if state.table is not None:
                raise InputError(
                    "rows were a table so far and are an array now; use one kind throughout."
                )
            return state, incoming(
                rows, y, extra, held=held, pad=settings.pad, pad_y=settings.pad_y
            )
        parts, table = incoming_table(
            rows,
            y,
            held=held,
            known=state.table,
            new_columns=settings.new_columns,
            keep_index=settings.keep_index,
        )
        names = [name for part in parts.values() for name in part.schema.names]
        for name in set(extra or ()) & set(names):
            raise InputError(f"extra: {name!r} is a column of the table already.")
        if state.table is None:
            for option in ("columns", "exclude"):
                for name in getattr(settings, option) or ():
                    checks.column(option, name, names)
        columns = parts | incoming(None, None, extra, held=held, rows=parts["X"].num_rows)
        if "X" in held:
            state = state.with_(
                rows=with_schemas(state.rows, parts) if "X" in state.rows else state.rows,
                waiting=tuple(with_schemas(part, parts) for part in state.waiting),
            )
        return state.with_(table=table), columns

    def _merged(self, state: State, other: State) -> State:
        state = settled(self._settings, state)
        known = len(state.files)
        theirs = tuple(line | {"run": line["run"] + state.runs} for line in other.files)
        state = state.with_(files=(*state.files, *theirs), runs=state.runs + other.runs)
        if not len(other.rows):
            removed = state.removed + other.removed
            return state.with_(seen=state.seen + other.seen, removed=removed)
        first = state.table is None
        rows, y = other.rows["X"], other.rows.get("y")
        if other.table is not None:
            rows = other.table.frame(rows)
            y = None if y is None else other.table.targets(y)  # by its name
        extra = {k.removeprefix(EXTRA): other.rows[k] for k in other.rows if k.startswith(EXTRA)}
        state, new = self._columns(state, rows, y, extra)
        check_target(self._settings, new)
        own = {
            "task": task_column(other.rows["task"], len(other.rows), state.rows),
            "index": other.rows["index"] + state.seen,
        }
        own |= {name: other.rows[name] for name in ("weight", "base", "order")}
        if "source" in other.rows or "source" in state.rows:
            own |= _origins(other.rows, known)
            if "X" in state.rows:
                state = state.with_(rows=state.rows.with_columns(_origins(state.rows, 0)))
        if first and state.table is not None and other.table is not None:
            state = state.with_(table=replace(state.table, task=other.table.task))
        return merged(self._settings, state, other, RowStore(new | own))

    def _like_before(self, state: State, rows: Any) -> Array:
        """Return rows to be compared with those held."""
        if state.table is None:
            return incoming_rows(rows, held=state.rows, pad=self._settings.pad)
        parts, _ = incoming_table(rows, None, held=state.rows, known=state.table, only_rows=True)
        return parts["X"]

    def _compared(self, state: State) -> Numbers:
        """Return what rows are compared by with those held: what is, or would be, scored."""
        settings = self._settings
        if scores(settings, state):
            return state.numbers
        return state.numbers.decided(None, state.rows["X"], settings.columns, settings.exclude)

    def _detected_task(self, state: State, X: Array) -> int | str:
        """Return the current task, or the next one if the rows are unlike those held of it."""
        if isinstance(state.task, str):
            raise InputError(
                f"task='auto' numbers tasks, but the last one is called {state.task!r}; "
                "use numbers throughout."
            )
        if not len(state.rows) or not (state.rows["task"] == state.task).any():
            return state.task
        numbers = self._compared(state)
        familiar = self._familiar_rows(state, state.task, numbers)
        if familiar.chance(familiar.novelty(numbers.of(X))) >= FALSE_ALARMS:
            return state.task
        return max(state.task, int(state.rows["task"].max())) + 1

    def _familiar_rows(self, state: State, task: int | str | None, numbers: Numbers) -> Familiar:
        """Return what the rows held, or those of a task, look like; worked out once."""
        known = self._familiar
        if known is not None and known[0] is state and known[1] == task:
            return known[2]
        X, weight = state.rows["X"], state.rows["weight"]
        if task is not None:
            rows = np.flatnonzero(state.rows["task"] == task)
            if not len(rows):
                raise InputError(f"no row of task {task!r} is held.")
            X, weight = take(X, rows), weight[rows]
        familiar = Familiar.of(numbers.of(X), weight)
        if numbers.stay:
            self._familiar = (state, task, familiar)
        return familiar


def state_of(sketch: StateHolder) -> State:
    """Return what a sketch holds, no rows waiting, for other floors to look at."""
    return sketch._settled


def settings_of(sketch: StateHolder) -> Settings:
    """Return how a sketch was made."""
    return sketch._settings


def _origins(rows: RowStore, files: int) -> dict[str, Array]:
    """Return the files rows came from, numbered from `files` on, and their rows there."""
    source, row = (rows[name] if name in rows else np.full(len(rows), -1) for name in ORIGIN)
    return {"source": np.where(source < 0, -1, source + files), "row": row}
