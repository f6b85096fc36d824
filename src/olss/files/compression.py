"""One call of `compress`: what is there, what is asked, the passes, the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from olss.errors import DataError, FormatError, InputError

if TYPE_CHECKING:
    from olss.files.inputs import Piece
    from olss.files.parts import Job
    from olss.files.source import Source
    from olss.files.table_file import State
    from olss.files.varopt import Rows
    from olss.tables.plan import Plan

__all__ = ["Progress", "Run", "Summary"]

Progress = Callable[[str, int, int], None]

# Text needs more places than numbers to show its values.
SAMPLE_ROWS = 16_384
SAMPLE_PIECES, SAMPLE_PIECES_TEXT = 4, 16
CLASSES = 32  # a target of at most so many different whole numbers is a class
THREADS = 4


@dataclass
class Summary:
    """What `compress` did; its `str` is a text to read.

    Attributes
    ----------
    path : Path
    rows, seen, new : int
        Rows held, rows seen in all runs, rows seen in this one.
    notes : list of str
        What one should know: files passed over, all rows kept.
    columns : list of (name, use, reason)
    """

    path: Path
    rows: int
    seen: int
    new: int
    notes: list[str] = field(default_factory=list)
    columns: list[tuple[str, str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.rows:,} rows of {self.seen:,} seen, {self.new:,} of them new"]
        lines += [f"note: {note}" for note in self.notes]
        width = max((len(name) for name, _, _ in self.columns), default=0)
        for name, use, why in self.columns:
            lines.append(f"  {name:{width}}  {use}{f' ({why})' if why else ''}")
        return "\n".join(lines)


class Run:
    """One call of `compress`."""

    def __init__(
        self,
        path: Path,
        asked: dict[str, Any],
        seed: int | None,
        skip_bad: bool,
        progress: Progress,
    ) -> None:
        self.path = path
        self.asked = asked
        self.seed = seed
        self.skip_bad = skip_bad
        self.progress = progress
        self.notes: list[str] = []
        self.held: Any = None
        self.schema: Any = None
        self.state: State
        self.pieces: list[Piece] = []

    def start(self) -> None:
        """Begin a new file."""
        from olss.files.table_file import State

        defaults = {"policy": "weighted", "scores": "auto", "exclude": [], "intercept": False}
        settings = self.asked | {
            name: value for name, value in defaults.items() if self.asked[name] is None
        }
        if settings["size"] is None:
            raise InputError(
                "size, the number of rows to keep, must be given to start a new file: "
                f"{self.path} does not exist or is to be replaced."
            )
        entropy = np.random.SeedSequence(self.seed).entropy
        self.state = State(settings, None, None, int(str(entropy)), False)

    def go_on(self) -> None:
        """Take over rows and settings of the file to be continued."""
        from olss.files.table_file import ORIGIN, read

        self.held, self.state = read(self.path)
        self.schema = self.held.drop_columns(list(ORIGIN)).schema
        settings = self.state.settings
        for name, value in self.asked.items():
            if value is None or name == "size" or value == settings[name]:
                continue
            raise InputError(
                f"{name} was {settings[name]!r} when {self.path} was made, found {value!r}. Leave "
                "the option out to go on as before, or start over with --fresh (fresh=True)."
            )
        settings["size"] = self.asked["size"] or settings["size"]

    def survey(self, inputs: Sequence[Any]) -> None:
        """Find the files, and look at the schema of those not taken in before."""
        from olss.files.inputs import find

        known = {line["fingerprint"] for line in self.state.history}
        addresses = {line["address"] for line in self.state.history}
        for source in find(inputs):
            if "://" not in source.address and _same_file(source.address, self.path):
                continue
            fingerprint = self._try(source.fingerprint)
            if fingerprint is None:
                continue
            if fingerprint in known:
                self.notes.append(f"{source.address} has been taken in already; passed over")
                continue
            if source.address in addresses:
                self.notes.append(
                    f"{source.address} has changed since it was taken in; its rows count as new"
                )
            if not self._try(partial(self._survey, source)):
                continue
            known.add(fingerprint)
            self.state.history.append(
                {
                    "address": source.address,
                    "bytes": source.bytes,
                    "fingerprint": fingerprint,
                    "rows": self._rows_of(source),
                    "run": self.state.runs,
                }
            )
        if self.schema is None:
            raise DataError("none of the files can be read, so there is nothing to compress.")
        if self.pieces:
            self._check_columns()
            self._promote_held()

    def _survey(self, source: Source) -> bool:
        from olss.files.inputs import survey

        schema, pieces = survey(source, len(self.pieces), self.schema)
        if self.skip_bad:
            pieces = [p for p in pieces if self._try(partial(_readable, p, schema))]
            if not pieces:
                return False
        self.schema = schema
        self.pieces += pieces
        return True

    def _rows_of(self, source: Source) -> int | None:
        counts = [piece.rows for piece in self.pieces if piece.source == source]
        return None if None in counts else sum(count or 0 for count in counts)

    def _try(self, action: Callable[[], Any]) -> Any:
        """Do it; if that fails on a bad file and those are to be skipped, note it."""
        if not self.skip_bad:
            return action()
        try:
            return action()
        except (DataError, FormatError, OSError) as error:
            self.notes.append(f"skipped: {error}")
            return None

    def _check_columns(self) -> None:
        from olss.files.table_file import ORIGIN

        names = self.schema.names
        for option in ("target", "task", "columns", "exclude"):
            given = self.state.settings[option] or []
            for name in [given] if isinstance(given, str) else given:
                if name not in names:
                    raise InputError(
                        f"{option}: there is no column {name!r}; found {', '.join(names[:20])}."
                    )
        for name in ORIGIN:
            if name in names:
                raise InputError(
                    f"the input has a column {name!r}, a name the result needs for itself: it may "
                    "be a compressed table already. Rename the column."
                )

    def _promote_held(self) -> None:
        """Bring the rows held into the types that they and the new ones have in common."""
        import pyarrow as pa

        from olss.tables.schemas import conform

        if self.held is not None:
            names = set(self.schema.names)
            added = [field for field in self.held.schema if field.name not in names]
            schema = pa.schema([*self.schema, *added])
            self.held = conform(self.held, schema, place=str(self.path))

    def work(self, scheduler: str | None, workers: int | None) -> Summary:
        """Read the input once or twice, draw, write."""
        from olss.files.parts import Job, parts_of
        from olss.files.varopt import ONE_PASS, cut, union
        from olss.tables.plan import Plan
        from olss.tables.scoring import make_scorer

        settings, state = self.state.settings, self.state
        scored = settings["policy"] not in ONE_PASS
        if not state.runs:
            self._decide(scored)
        plan = Plan.from_json(state.plan) if state.plan else None
        job = Job(
            schema=self.schema,
            columns=tuple(c.name for c in plan.used) if plan else (),
            task=settings["task"],
            policy=settings["policy"],
            size=settings["size"],
            strata=("olss_task", settings["target"]) if state.classes else ("olss_task",),
            seed=(state.seed, state.runs),
        )
        parts = parts_of(self.pieces)
        with self._engine(scheduler, workers, 2 if scored else 1) as engine:
            scorer = None
            if plan is not None:
                gram = engine.gram(job, plan, parts)
                pool = self._pool_gram(plan, gram)
                scorer = make_scorer(
                    plan,
                    pool,
                    intercept=settings["intercept"],
                    scores=settings["scores"],
                    size=settings["size"],
                )
                state.gram = gram if state.gram is None else state.gram.merge(gram)
            drawn = engine.rows(job, scorer, parts)
        if drawn is None:
            raise DataError("the input holds no rows.")
        new = drawn.seen
        if self.held is not None:
            held = self._held_rows(job, scorer)
            both = union([held, drawn])
            drawn = cut(both, job.policy, job.size, job.strata, job.rng(len(parts), 0, 0))
        return self._finish(drawn, new, job)

    def _decide(self, scored: bool) -> None:
        """Look at sample rows to say what columns are used for."""
        from olss.tables.plan import plan_columns

        settings = self.state.settings
        target = settings["target"]
        if not scored and target is None:
            return
        sample = _sample(self.pieces, self.schema, None if scored else [target])
        if target is not None:
            self.state.classes = _is_class(sample.column(target))
        if not scored:
            return
        apart = [name for name in (target, settings["task"]) if name is not None]
        plan = plan_columns(
            sample, columns=settings["columns"], exclude=settings["exclude"], apart=apart
        )
        if not plan.width:
            raise DataError(
                "no column can be scored: none holds numbers, dates or a few different texts. "
                "Use the policy 'reservoir', which needs no scores."
            )
        self.state.plan = plan.to_json()

    def _pool_gram(self, plan: Plan, gram: Any) -> Any:
        """Return the Gram matrix rows are scored by: of everything, or of the paper's pool."""
        from olss.core.gram import Gram
        from olss.tables.scoring import one_batch, weighted_gram

        if self.held is None or self.state.gram is None:
            return gram
        if self.state.settings["policy"] == "paper":
            ones = np.ones(self.held.num_rows)
            return weighted_gram(plan, one_batch(self.held), ones).merge(gram)
        return Gram().merge(self.state.gram).merge(gram)

    def _held_rows(self, job: Job, scorer: Any) -> Rows:
        """Return the rows of the file to be continued, scored like the new ones."""
        from olss.files.parts import WEIGHT, scores
        from olss.files.varopt import Rows
        from olss.tables.scoring import one_batch

        weight = self.held.column(WEIGHT).to_numpy().astype(np.float64)
        order = np.arange(-len(weight), 0)
        leverage = None
        if scorer is not None:
            leverage = scorer(one_batch(self.held), str(self.path), 0)
        score = scores(job.policy, leverage, scorer, order, job.rng(0, 0, 0))
        return Rows(self.held.drop_columns([WEIGHT]), weight, score, order, self.state.seen)

    def _engine(self, scheduler: str | None, workers: int | None, passes: int) -> Any:
        total = passes * sum(piece.bytes for piece in self.pieces)
        done = 0

        def tick(size: int) -> None:
            nonlocal done
            done += size
            what = "drawing" if passes == 1 or done > total // 2 else "measuring"
            self.progress(what, min(done, total), total)

        if scheduler is not None or workers is not None:
            from olss.files.dask_engine import on_cluster

            return on_cluster(scheduler, workers, tick)
        from olss.files.parts import Threads

        return nullcontext(Threads(min(THREADS, _cores()), tick))

    def _finish(self, drawn: Rows, new: int, job: Job) -> Summary:
        import pyarrow as pa

        from olss.files.parts import WEIGHT
        from olss.files.table_file import write

        state = self.state
        state.seen += new
        state.runs += 1
        if state.seen <= job.size:
            self.notes.append(f"size is {job.size:,}, of {state.seen:,} rows seen all are kept")
        drawn = drawn.take(np.argsort(drawn.order, kind="stable"))
        at = len(self.schema.names)
        table = drawn.table.add_column(at, WEIGHT, pa.array(drawn.weight)).combine_chunks()
        write(self.path, table, state)
        return self.summary(new, table.num_rows)

    def summary(self, new: int, rows: int | None = None) -> Summary:
        """Say what was done."""
        if rows is None:
            rows = 0 if self.held is None else self.held.num_rows
            self.notes.append("nothing new; the file is as it was")
        return Summary(self.path, rows, self.state.seen, new, self.notes, self.state.uses())


def _sample(pieces: Sequence[Piece], schema: Any, columns: list[str] | None) -> Any:
    """Return sample rows: the first of a few pieces, spread evenly over the input."""
    import pyarrow as pa
    import pyarrow.types as kinds

    text = any(not kinds.is_primitive(field.type) for field in schema)
    count = min(len(pieces), SAMPLE_PIECES_TEXT if text else SAMPLE_PIECES)
    share = SAMPLE_ROWS // count
    batches = []
    for at in np.linspace(0, len(pieces) - 1, count).astype(int):
        got = 0
        for _, batch in pieces[at].read(schema, columns):
            batches.append(batch.slice(0, share - got))
            got += batches[-1].num_rows
            if got >= share:
                break
    return pa.Table.from_batches(batches, schema=batches[0].schema)


def _is_class(column: Any) -> bool:
    """Whether a target says a class: text, booleans, or a few different whole numbers."""
    import pyarrow.types as kinds

    kind = column.type
    if not (kinds.is_integer(kind) or kinds.is_floating(kind)):
        return not (kinds.is_nested(kind) or kinds.is_temporal(kind) or kinds.is_decimal(kind))
    values = column.unique().drop_null().to_numpy()
    values = values[~np.isnan(values)]
    return len(values) <= CLASSES and bool((values == np.floor(values)).all())


def _readable(piece: Piece, schema: Any) -> bool:
    for _ in piece.read(schema):
        pass
    return True


def _same_file(address: str, path: Path) -> bool:
    return path.exists() and os.path.samefile(address, path)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
