"""The steps of `compress`, in their order; each takes what is known and returns more of it.

continued or begun -> surveyed -> decided -> measured -> (draw) -> finished
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from olss.errors import DataError, FormatError, InputError
from olss.files.compress_summary import Summary
from olss.files.engines import Engine
from olss.files.parts import Part, parts_of
from olss.files.work import PIECE_STEP, Drawn, Measured, Work
from olss.memory import sketch_file
from olss.memory.absorbing import keeps_spectrum, united
from olss.memory.forgetting import faded, forgets
from olss.memory.intake import task_column
from olss.memory.numbers import NOTHING_TO_SCORE, Numbers, SeenScorer
from olss.memory.own_columns import EXTRA, OWN
from olss.memory.policies import name_of, named, says
from olss.memory.settings import checked_settings
from olss.memory.spectrum import Spectrum
from olss.memory.state import Settings, State, generator, new_generator
from olss.memory.store import RowStore
from olss.memory.table_intake import TableKind, with_schemas
from olss.tables.class_labels import classify_target
from olss.tables.encoder import fit_encoder
from olss.tables.frames import FrameKind
from olss.tables.readers import Piece, survey
from olss.tables.sources import Source, find
from olss.util import checks

__all__ = ["Job", "begun", "continued", "decided", "finished", "measured", "surveyed"]

# Text needs more places than numbers to show its values.
SAMPLE_ROWS = 16_384
SAMPLE_PIECES, SAMPLE_PIECES_TEXT = 4, 16
DEFAULTS = {"policy": "weighted", "scores": "auto", "exclude": (), "intercept": False}


@dataclass(frozen=True)
class Job:
    """What is known of one call of `compress`.

    Attributes
    ----------
    path : Path
        The file to make or to continue.
    settings, state : Settings, State
        Of the sketch in it.
    target, task : str or None
        Columns.
    schema : pyarrow.Schema or None
        In which all rows can be read.
    sources, pieces, parts
        The files to take in, and how they are read.
    work : Work
        What every part needs to know.
    scorer : SeenScorer or None
        Leverage in everything.
    new : int
        Rows read.
    notes : list of str
    """

    path: Path
    settings: Settings
    state: State
    target: str | None
    task: str | None
    schema: Any = None
    sources: tuple[tuple[Source, str], ...] = ()
    pieces: tuple[Piece, ...] = ()
    parts: tuple[Part, ...] = ()
    measures: bool = False
    work: Work = None  # type: ignore[assignment]  # known once it is decided
    scorer: SeenScorer | None = None
    new: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def passes(self) -> int:
        """How many times the input is read."""
        return 2 if self.measures else 1

    def note(self, text: str) -> None:
        """Say something in the summary, once."""
        if text not in self.notes:
            self.notes.append(text)

    def summary(self, new: int) -> Summary:
        """Return what was done, in words."""
        state, plan = self.state, self.state.numbers.plan
        if not new:
            self.note("nothing new; the file is as it was")
        uses = []
        if plan is not None and state.spectrum is not None:
            uses = plan.uses(state.numbers.varying(state.spectrum))
        return Summary(self.path, len(state.rows), state.seen, new, self.notes, uses)


def begun(
    path: Path, asked: dict[str, Any], target: str | None, task: str | None, seed: int | None
) -> Job:
    """Return the job of a new file."""
    if asked["size"] is not None:
        checks.integer("size", asked["size"])
    else:
        raise InputError(
            "size, the number of rows to keep, must be given to start a new file: "
            f"{path} does not exist or is to be replaced."
        )
    given: dict[str, Any] = {k: DEFAULTS.get(k) if v is None else v for k, v in asked.items()}
    settings = checked_settings(**given | {"policy": named(given["policy"])})
    _check_scores(settings)
    numbers = Numbers(intercept=settings.intercept)
    state = State(new_generator(seed), numbers=numbers)
    return Job(
        path,
        settings,
        state,
        checks.optional_column("target", target),
        checks.optional_column("task", task),
    )


def continued(path: Path, asked: dict[str, Any], target: str | None, task: str | None) -> Job:
    """Return the job of going on with a file, by the settings it was made with."""
    policy = None if asked["policy"] is None else named(asked["policy"])
    state, settings = sketch_file.read(path, policy if callable(asked["policy"]) else None)
    if state.table is None and "X" in state.rows:
        raise InputError(
            f"{path} is a sketch of arrays, which goes on with olss.Sketch.load and update; files "
            "are taken in by sketches of tables."
        )
    known = state.table
    before = {
        "target": None if known is None else known.target,
        "task": None if known is None else known.task,
    }
    given = {k: v for k, v in asked.items() if v is not None and k != "policy"}
    wanted = checked_settings(settings, **given)
    _check_scores(wanted)
    pairs = [(name, getattr(settings, name), getattr(wanted, name)) for name in given]
    pairs += [("target", before["target"], target), ("task", before["task"], task)]
    if policy is not None and policy != settings.policy:
        pairs.append(("policy", name_of(settings.policy), name_of(policy)))
    for name, was, now in pairs:
        if name != "size" and now is not None and now != was:
            raise InputError(
                f"{name} was {was!r} when {path} was made, found {now!r}. Leave the option out to "
                "go on as before, or start over with --fresh (fresh=True)."
            )
    if wanted.size == "task":
        raise InputError(f"{path} keeps as many rows as each task has; give a size.")
    for name in state.rows:
        if name.startswith(EXTRA):
            raise InputError(
                f"{path} has a column {name.removeprefix(EXTRA)!r} that rode along with its rows, "
                "which files do not have; go on with olss.Sketch.load and update."
            )
    schema = _schema_of(state) if "X" in state.rows else None
    return Job(path, wanted, state, before["target"], before["task"], schema)


def _check_scores(settings: Settings) -> None:
    if settings.knows_target:
        raise InputError(
            f"scores={settings.scores!r} is not for files: rows are drawn from block by block, by "
            "one law for all, and a model of the target would have to be fitted to all of them "
            "before. Give tables to olss.Sketch(...).update, part by part, or use scores='auto'."
        )


def surveyed(job: Job, inputs: Sequence[str | Source], skip_bad: bool) -> Job:
    """Return the job with the files that have not been taken in before, and their schema."""
    known = {line["fingerprint"]: line for line in job.state.files}
    addresses = {line["address"]: line for line in job.state.files}
    sources: list[tuple[Source, str]] = []
    pieces: list[Piece] = []
    schema = job.schema
    tables = _tables(addresses)
    for source in find(inputs):
        if "://" not in source.place and _same_file(source.place, job.path):
            continue
        if source.given:
            tables += 1
            source = replace(source, address=f"table-{tables}")
        before = addresses.get(source.address)
        if before is not None and _looks_the_same(before, source):
            job.note(f"{source.address} has been taken in already; passed over")
            continue
        fingerprint = _tried(job, skip_bad, source.fingerprint)
        if fingerprint is None:
            continue
        if fingerprint in known:
            job.note(f"{source.address} has been taken in already; passed over")
            continue
        if before is not None:
            job.note(f"{source.address} has changed since it was taken in; its rows count as new")
        source = replace(source, number=len(job.state.files) + len(sources))
        found = _tried(job, skip_bad, partial(survey, source, len(pieces), schema))
        if found is None:
            continue
        wider, its = found
        if skip_bad:
            its = [piece for piece in its if _tried(job, True, partial(_readable, piece, wider))]
            its = [replace(piece, number=len(pieces) + i) for i, piece in enumerate(its)]
            if not its:
                continue
        schema = wider
        known[fingerprint] = {}
        sources.append((source, fingerprint))
        pieces += its
    if schema is None:
        raise DataError("none of the files can be read, so there is nothing to compress.")
    if pieces:
        _check_columns(job, schema)
    return replace(job, schema=schema, sources=tuple(sources), pieces=tuple(pieces))


def decided(job: Job) -> Job:
    """Return the job with what is scored, whether targets say a class, and how rows are read."""
    settings, state, policy = job.settings, job.state, job.settings.policy
    numbers, classes = state.numbers, state.classes
    scored, spectrum = says(policy, "scored"), keeps_spectrum(settings, state)
    looks = says(policy, "looks") is not False or spectrum or scored is not None
    if (numbers.plan is None and looks) or (classes is None and job.target is not None):
        sample = _sample(job.pieces, job.schema, None if looks else [job.target])
        if job.target is not None and classes is None:
            verdict = classify_target(sample.column(job.target), job.target)
            classes = verdict.is_class
            if verdict.note:
                job.note(verdict.note)
        if looks and numbers.plan is None:
            apart = [name for name in (job.target, job.task) if name is not None]
            numbers = replace(
                numbers,
                plan=fit_encoder(
                    sample, columns=settings.columns, exclude=settings.exclude, apart=apart
                ),
            )
            if (scored or spectrum) and not numbers.plan.width:  # type: ignore[union-attr]
                raise DataError(NOTHING_TO_SCORE)
    rng = generator(state.generator)
    work = Work(
        schema=job.schema,
        settings=settings,
        numbers=numbers,
        target=job.target,
        task=job.task,
        classes=bool(classes),
        spectrum=bool(scored or spectrum),
        seed=tuple(int(word) for word in rng.integers(0, 2**32, size=4)),
        seen=state.seen,
    )
    # A policy that neither says how blocks are united nor what rows stand for goes block by block.
    whole = says(policy, "thin") is None and not says(policy, "mergeable")
    uncounted = any(piece.rows is None for piece in job.pieces)
    return replace(
        job,
        state=state.with_(
            numbers=numbers, classes=classes, generator=dict(rng.bit_generator.state)
        ),
        parts=tuple(parts_of(job.pieces, one=whole)),
        work=work,
        measures=work.spectrum or (forgets(settings) and (bool(settings.time) or uncounted)),
    )


def measured(job: Job, engine: Engine) -> Job:
    """Return the job with the spectrum of everything, what time it is, and leverage by them."""
    settings, state, work = job.settings, job.state, job.work
    if job.measures:
        found = engine.measure(work, job.parts)
    else:
        found = Measured({piece.number: piece.rows or 0 for piece in job.pieces}, None, 0.0)
        if not forgets(settings):
            return job
    now = state.seen + sum(found.rows.values()) if settings.time is None else found.now
    if settings.time is not None and state.seen and found.now < state.now:
        raise DataError(
            f"time runs backwards: the newest row of these files is {state.now - found.now:,.6g} "
            f"older than the newest row seen. Take files in by the order of their time."
        )
    held, spectrum = faded(settings, state, float(now))
    everything = found.spectrum
    if everything is not None and spectrum is not None:
        everything = spectrum.merged(everything)
    scorer = None
    if says(settings.policy, "scored") is not None and everything is not None:
        pool = everything
        if says(settings.policy, "scored") == "pool":
            pool = _pool_spectrum(work.numbers, state.rows, found.spectrum or Spectrum())
        elif spectrum is None and len(held):  # what was seen before is known by the rows held
            pool = work.numbers.added(everything, held["X"], held["weight"])
        scores = settings.scores
        if scores == "auto" and says(settings.policy, "scored") == "pool":
            scores = "exact"
        scorer = work.numbers.scorer(pool, scores, work.size, work.rng(0, 0, 0))
    state = state.with_(rows=held, now=float(now), spectrum=everything)
    starts = _starts(job.pieces, found.rows)
    return replace(
        job,
        state=state,
        scorer=scorer,
        work=replace(work, starts=starts, now=float(now)),
    )


def finished(job: Job, drawn: Drawn) -> Job:
    """Return the job with the file written: what was held and what was drawn, united."""
    for source, _ in job.sources:
        source.check_unchanged()
    if drawn.kept is None:
        raise DataError("the input holds no rows.")
    counted = _starts(job.pieces, drawn.rows)
    if job.work.starts is not None and counted != job.work.starts:
        raise DataError("the input has changed between two readings, so nothing was written.")
    new = sum(drawn.rows.values())
    state = _with_files(job, drawn.rows)
    kept = _placed(job, drawn.kept, counted, state)
    kept = kept.take(np.argsort(kept["index"], kind="stable"))
    rows = state.rows
    if "X" in rows:
        task_column(kept["task"], len(kept), rows)  # numbers or text, as before
        rows = with_schemas(rows, {name: kept[name] for name in ("X", "y") if name in kept})
        missing = [name for name in ("source", "row") if name not in rows]
        rows = rows.with_columns({name: np.full(len(rows), -1) for name in missing})
    now = state.now if forgets(job.settings) else float(state.seen + new)
    state = state.with_(rows=rows, task=kept["task"][-1].item(), now=now, runs=state.runs + 1)
    state = united(job.settings, state, kept, job.work.size, job.scorer)
    state = state.with_(seen=state.seen + new)
    if state.seen <= job.work.size:
        job.note(f"size is {job.work.size:,}, of {state.seen:,} rows seen all are kept")
    # Rows may have been scored by a spectrum that is not to be kept; the summary still needs it.
    bare = state.with_(spectrum=None)
    sketch_file.write(job.path, state if keeps_spectrum(job.settings, bare) else bare, job.settings)
    return replace(job, state=state, new=new)


def _with_files(job: Job, rows: dict[int, int]) -> State:
    """Return the state with a line for each file taken in, and what their tables are."""
    state, lines = job.state, []
    for source, fingerprint in job.sources:
        its = [piece.number for piece in job.pieces if piece.source == source]
        lines.append(
            {
                "address": source.address,
                "fingerprint": fingerprint,
                "bytes": source.bytes,
                "modified": source.modified,
                "inode": source.inode,
                "rows": sum(rows.get(number, 0) for number in its),
                "run": state.runs,
            }
        )
    kind = FrameKind("pyarrow", job.schema)
    if state.table is not None:
        kind = state.table.rows.joined(kind, job.schema)
    y = None if job.target is None else kind
    table = TableKind(kind, y, job.target, job.task)
    return state.with_(files=(*state.files, *lines), table=table)


def _placed(job: Job, kept: RowStore, starts: dict[int, int], state: State) -> RowStore:
    """Return rows with their places in the stream and, where files are tasks, their tasks."""
    index = kept["index"]
    if job.work.starts is None:
        number, row = np.divmod(index - job.work.seen, PIECE_STEP)
        start = np.array([starts[piece.number] - piece.start for piece in job.pieces])
        index = job.work.seen + start[number] + row
    changed = {"index": index}
    if job.task is None:
        before = job.state.rows.get("task")
        if before is not None and before.dtype.kind == "i":  # tasks were numbered: go on
            first = len(job.state.files)
            changed["task"] = kept["source"] - first + int(before.max(initial=-1)) + 1
        else:
            addresses = np.array([line["address"] for line in state.files])
            changed["task"] = addresses[kept["source"]]
    return kept.with_columns(changed)


def _starts(pieces: Sequence[Piece], rows: dict[int, int]) -> dict[int, int]:
    """Return how many rows come before each piece."""
    starts, total = {}, 0
    for piece in pieces:
        starts[piece.number] = total
        total += rows.get(piece.number, 0)
    return starts


def _pool_spectrum(numbers: Numbers, held: RowStore, new: Spectrum) -> Spectrum:
    """Return the spectrum of the pool of the paper: rows held and new, each counting for one."""
    if not len(held):
        return new
    return numbers.added(Spectrum(), held["X"], np.ones(len(held))).merged(new)


def _schema_of(state: State) -> Any:
    """Return the schema of the rows held, the target among the columns."""
    import pyarrow as pa

    fields = [
        field for name in ("X", "y") if name in state.rows for field in state.rows[name].schema
    ]
    order = (
        {} if state.table is None else {n: i for i, n in enumerate(state.table.rows.schema.names)}
    )
    return pa.schema(sorted(fields, key=lambda field: order.get(field.name, len(order))))


def _check_columns(job: Job, schema: Any) -> None:
    names = schema.names
    wanted = {
        "target": job.target,
        "task": job.task,
        "time": job.settings.time,
        "columns": job.settings.columns,
        "exclude": job.settings.exclude,
    }
    for option, given in wanted.items():
        for name in [given] if isinstance(given, str) else given or ():
            checks.column(option, name, names)
    for name in OWN.values():
        if name in names:
            raise InputError(
                f"the input has a column {name!r}, a name the result needs for itself: it may "
                "be a sketch already. Rename the column."
            )
    if job.task is not None and _is_nested(schema.field(job.task).type):
        raise InputError(f"task: the column {job.task!r} holds lists, which cannot name a task.")


def _is_nested(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_nested(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _tried(job: Job, skip_bad: bool, action: Callable[[], Any]) -> Any:
    """Do it; if that fails on a bad file and those are to be skipped, note it."""
    if not skip_bad:
        return action()
    try:
        return action()
    except (DataError, FormatError, OSError) as error:
        job.note(f"skipped: {error}")
        return None


def _sample(pieces: Sequence[Piece], schema: Any, columns: list[Any] | None) -> Any:
    """Return sample rows: the first of a few pieces, spread evenly over the input."""
    import pyarrow as pa
    import pyarrow.types as kinds

    text = any(not kinds.is_primitive(field.type) for field in schema)
    count = min(len(pieces), SAMPLE_PIECES_TEXT if text else SAMPLE_PIECES)
    share = SAMPLE_ROWS // count
    batches = []
    for at in np.linspace(0, len(pieces) - 1, count).astype(int):
        got = 0
        for _, batch in pieces[at].read(schema, columns, share):
            batches.append(batch.slice(0, share - got))
            got += batches[-1].num_rows
            if got >= share:
                break
    if not batches:
        raise DataError("the input holds no rows.")
    return pa.Table.from_batches(batches, schema=batches[0].schema)


def _readable(piece: Piece, schema: Any) -> bool:
    for _ in piece.read(schema):
        pass
    return True


def _tables(addresses: Iterable[str]) -> int:
    """Return the highest number of a table taken in; those to come are counted on from it."""
    numbers = [re.fullmatch(r"table-(\d+)", address) for address in addresses]
    return max((int(found[1]) for found in numbers if found), default=0)


def _looks_the_same(line: dict[str, Any], source: Source) -> bool:
    """Whether a file is as it was when it was taken in, as far as one can see from outside."""
    known = (line["bytes"], line["modified"], line["inode"])
    return bool(source.modified) and known == (source.bytes, source.modified, source.inode)


def _same_file(address: str, path: Path) -> bool:
    return path.exists() and Path(address).samefile(path)
