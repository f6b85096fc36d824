"""Compress tables larger than memory to a few rows that stand for all of them.

`compress` reads top to bottom: open or create the sketch, scan the inputs, fit the encoder,
accumulate moments, sample every partition, merge, write.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from olss.errors import DataError, InputError, OlssWarning
from olss.files.chunks import (
    PIECE_STEP,
    ChunkContext,
    Partition,
    own_column,
    partition_pieces,
)
from olss.files.engines import Engine, create_engine
from olss.files.inputs import Inputs, open_inputs, read_sample, scan_inputs
from olss.files.passes import (
    ChunkSample,
    ChunkStats,
    accumulate_partition,
    merge_samples,
    merge_stats,
    sample_partition,
)
from olss.memory import engine, sketch_file
from olss.memory.buckets import MomentBuckets
from olss.memory.config import Config, settings
from olss.memory.encoder import NOTHING_TO_SCORE, Encoder
from olss.memory.holdout import training_rows
from olss.memory.intake import TableKind, conform_store, read_tasks
from olss.memory.moments import SeenMoments
from olss.memory.novelty import History, record_batches
from olss.memory.policies import ThresholdPolicy, resolve_policy
from olss.memory.rows import EXTRA, FILE_NAMES, HOLDOUT, ORIGIN, REPLICATE, RowStore
from olss.memory.state import (
    State,
    create_generator,
    decay,
    restore_generator,
)
from olss.memory.strata import Strata, add_class_counts, add_counts, fit_edges
from olss.memory.totals import keeps_moments
from olss.tables.class_labels import classify_target
from olss.tables.encoder import fit_encoder
from olss.tables.frames import FrameKind
from olss.util import checks
from olss.util.files import is_address, local_copy

__all__ = ["Progress", "Summary", "compress"]

Progress = Callable[[str, int, int], None]


CHANGEABLE = ("size", "new_columns", "missing_target", "replicates")  # settings, later
INPUTS_CHANGED = "inputs changed between two passes, so nothing was written. Try again."

log = logging.getLogger(__name__)


@dataclass
class Summary:
    """What `compress` did; its `str` is a text to read.

    Attributes
    ----------
    path : Path, or str in object storage
    rows, seen, new : int
        Rows held, rows seen in all runs, rows seen in this one.
    files, known : int
        Files ingested in this run, and files skipped because they had been ingested before.
    skipped : list of str
        Files and row groups that could not be read, with the reason (``skip_bad``).
    notes : list of str
        Anything else worth knowing.
    columns : list of (name, use, reason)
        How each column is used.
    """

    path: Path | str
    rows: int
    seen: int
    new: int
    files: int = 0
    known: int = 0
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    columns: list[tuple[str, str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.rows:,} rows of {self.seen:,} seen, {self.new:,} of them new"]
        if self.known:
            lines.append(
                f"{self.known:,} file{_s(self.known)} already ingested, {self.files:,} new"
            )
        lines += [f"skipped: {reason}" for reason in self.skipped]
        lines += [f"note: {note}" for note in self.notes]
        width = max((len(name) for name, _, _ in self.columns), default=0)
        for name, use, why in self.columns:
            lines.append(f"  {name:{width}}  {use}{f' ({why})' if why else ''}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Job:
    """The sketch file to create or to continue.

    Attributes
    ----------
    config, state : Config, State
    target, task : str or None
        Columns.
    schema : pyarrow.Schema or None
        Schema of the rows held.
    rewrites : bool
        Whether the file is to be written again even if there are no new rows.
    notes : list of str
        For the summary.
    """

    path: Path
    config: Config
    state: State
    target: str | None
    task: str | None
    schema: Any = None
    rewrites: bool = False
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a line to the summary, once."""
        if text not in self.notes:
            self.notes.append(text)


def compress(
    inputs: Any,
    *,
    into: str | os.PathLike[str],
    size: int | None = None,
    target: str | None = None,
    task: str | None = None,
    seed: int | None = None,
    fresh: bool = False,
    skip_bad: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    passes: int | None = None,
    query: str | None = None,
    since: str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Summary:
    """Compress tables to `size` rows that stand for all of them, or continue with new ones.

    If `into` exists, it is continued: files it has ingested before are skipped, and settings not
    given are those it was created with. The file is replaced whole, at the end; until then it is
    unchanged. It is a sketch: `olss.Sketch.load` opens it, and what `olss.Sketch.save` wrote of
    tables can be continued here.

    Parameters
    ----------
    inputs : one or more paths or tables
        Parquet, CSV and JSON lines (also .gz), ORC, Arrow/Feather, .npy and .npz: files, folders,
        globs, fsspec addresses, or "-" for standard input. From Python also frames of pandas,
        polars or Arrow, iterators of them, and Hugging Face data sets. Columns may come in any
        order; types are promoted where nothing is lost.
    into : path
        The Parquet file to create or to continue, local or in object storage (``s3://...``). It
        holds the original columns and types, and ``olss_weight`` (how many rows a row stands for),
        ``olss_task``, ``olss_index``, ``olss_source`` and ``olss_row`` (where it comes from).
    size : int
        Rows to keep. Required for a new file.
    target : str, optional
        The target column. It is not scored. If it is a class (see `olss.tables.class_labels`), the
        sample is spread evenly over tasks and classes.
    task : str, optional
        The column with the task; by default each file is a task, and each table, by the names
        ``table-1``, ``table-2`` and so on.
    seed : int, optional
        Seed of the random numbers, for a new file.
    fresh : bool
        Start over, even if `into` exists.
    skip_bad : bool
        Skip files and row groups that cannot be read, and list them in the summary. They are found
        in an extra pass before all others.
    scheduler : str, optional
        Address of a Dask scheduler to work on; see docs/cluster.md.
    workers : int, optional
        Start this many Dask workers on this machine and work on them.
    passes : {2, 1}
        How often policies that score by leverage read the input; by default twice, the result of
        a query once. In two passes, rows are scored against everything; in one, against what has
        been read so far. Weights are right either way: only which rows are preferred depends on
        scores. In one pass, tables, iterators, Arrow readers and an Arrow stream on standard
        input are read as they come; in two, they are written to temporary files first.
    query : str, optional
        Read the result of this query; `inputs` is then one database: the address of a PostgreSQL
        server, or a file of SQLite or DuckDB. See docs/databases.md.
    since : str, optional
        A column of the query's result: only rows are read whose value is larger than the largest
        that earlier runs have read.
    progress : callable, optional
        Called as ``progress(what, bytes_done, bytes_in_all)``.
    **settings
        Any other setting of `olss.Sketch`: ``policy``, ``scores``, ``columns``, ``exclude``,
        ``intercept``, ``half_life``, ``window``, ``time``, ``new_columns``, ``missing_target``,
        ``moments``, ``replicates``. Only "weighted", the default policy, and "paper" need two
        passes. "balanced" and custom policies take rows chunk by chunk, each as an update of a
        sketch; a policy that is not mergeable, in one thread.

    Returns
    -------
    Summary

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = tempfile.mkdtemp()
    >>> X = np.random.default_rng(0).standard_normal((5_000, 3))
    >>> np.save(f"{folder}/monday.npy", X)
    >>> summary = compress(f"{folder}/monday.npy", into=f"{folder}/out.parquet", size=50, seed=0)
    >>> np.save(f"{folder}/tuesday.npy", X + 1)
    >>> summary = compress(f"{folder}/*day.npy", into=f"{folder}/out.parquet")
    >>> summary.rows, summary.seen, summary.new
    (50, 10000, 5000)
    """
    if seed is not None:
        checks.seed(seed)
    if workers is not None:
        checks.integer("workers", workers)
        if scheduler is not None:
            raise InputError("workers cannot be used with scheduler, which has its own workers.")
    passes = checks.integer("passes", passes or (2 if query is None else 1), maximum=2)
    given = _check_settings(settings | {"size": size})
    ticker = Ticker(progress)
    once = passes == 1 and scheduler is None and workers is None  # workers read files
    with _open_output(into) as path, sketch_file.lock(path):
        if path.exists() and not fresh:
            job = _continue_job(path, given, target, task)
        else:
            job = create_job(path, given, target, task, seed)
        files = job.state.files
        with (
            open_inputs(inputs, query, since, known=files, note=job.note, once=once) as paths,
            create_engine(scheduler, workers, ticker) as runner,
        ):
            found = scan_inputs(
                paths,
                known=files,
                own=path,
                schema=job.schema,
                new_columns=job.config.new_columns,
                skip_bad=skip_bad,
                note=job.note,
            )
            if not found.pieces:
                if job.rewrites:
                    sketch_file.write(path, job.config, job.state, job.state)
                what = "replicate weights have " if job.rewrites else "the file is un"
                job.note(f"nothing new; {what}changed")
                return _summarize(into, job, job.state, found, 0)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", OlssWarning)
                state = sample_inputs(job, found, runner, ticker, passes)
                _write_result(job, state)
        _note_warnings(job, caught)
        return _summarize(into, job, state, found, state.seen - job.state.seen)


def sample_inputs(
    job: Job, found: Inputs, runner: Engine, ticker: Ticker, passes: int = 2
) -> State:
    """Return the state after one or two passes over the inputs, run by an engine.

    Its moments are those that rows were scored by, even where none are to be kept.
    """
    _check_columns(job, found.schema)
    job, context, partitions = _fit_encoder(job, found)
    two_passes = _needs_first_pass(context, found)
    if two_passes and passes == 1:
        context, two_passes = _score_as_read(job, context), False
    ticker.expect(found.bytes, passes=2 if two_passes else 1)
    log.info("%d pieces of input, %s bytes", len(found.pieces), f"{found.bytes:,}")
    if context.one_pass:
        if _is_counted(context, found):
            rows = sum(piece.rows or 0 for piece in found.pieces)
            context = replace(context, threshold=_least_threshold(context, rows))
        sample = runner.reduce(sample_partition, merge_samples, context, partitions)
        job, known = _use_stats(job, context, found, sample.stats)
        context = replace(context, scorer=known.scorer)
    else:
        stats = ChunkStats({piece.number: piece.rows or 0 for piece in found.pieces})
        if two_passes:
            stats = runner.reduce(accumulate_partition, merge_stats, context, partitions)
        job, context = _use_stats(job, context, found, stats)
        if two_passes or _is_counted(context, found):
            context = replace(
                context, threshold=_least_threshold(context, sum(stats.rows.values()))
            )
        sample = runner.reduce(sample_partition, merge_samples, context, partitions)
        if two_passes and sum(stats.rows.values()) != sum(sample.rows.values()):
            raise DataError(INPUTS_CHANGED)
    for source, _ in found.sources:
        source.check_unchanged()
    return _merge_sample(job, context, found, sample)


def _check_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given, or raise if there is one that files do not have."""
    known = [entry.name for entry in settings()]
    for name, value in given.items():
        checks.choice("settings", name, known)
        if value is not None and name in ("features", "keep_index", "glm", "pad", "pad_y"):
            raise InputError(f"{name} is not supported for files; use olss.Sketch(...).update.")
    return {name: value for name, value in given.items() if value is not None}


@contextmanager
def _open_output(into: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the file to write; of an object, a local copy that replaces it at the end."""
    if is_address(into):
        with local_copy(os.fspath(into)) as path:
            yield _check_path(path)
    else:
        yield _check_path(into)


def _check_path(into: str | os.PathLike[str]) -> Path:
    path = Path(into)
    if path.is_dir():
        raise InputError(f"into must be a file, found the folder {path}.")
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise InputError(f"into must end in .parquet, found {path.name!r}.")
    if not path.parent.is_dir():
        raise InputError(f"into: there is no folder {path.parent}. Create it first.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(13, "Permission denied: cannot write there", str(path))
    return path


def create_job(
    path: Path, given: dict[str, Any], target: str | None, task: str | None, seed: int | None
) -> Job:
    if "size" not in given:
        raise InputError(
            f"size, the number of rows to keep, is required for a new file: {path} does not exist "
            "or is to be replaced."
        )
    checks.integer("size", given["size"])
    config = _check_scores(Config.create(**given))
    state = State(create_generator(seed), encoder=Encoder(intercept=config.intercept))
    target = checks.optional_column("target", target)
    return Job(path, config, state, target, checks.optional_column("task", task))


def _continue_job(path: Path, given: dict[str, Any], target: str | None, task: str | None) -> Job:
    """Open a sketch file, to continue with the settings it was created with."""
    log.info("continuing %s", path)
    policy = given.pop("policy", None)
    custom = None if policy is None or isinstance(policy, str) else resolve_policy(policy)
    config, state = sketch_file.read(path, custom)
    state = engine.flush(config, state)
    if state.table is None and "X" in state.rows:
        raise InputError(
            f"{path} is a sketch of arrays, and files need one of tables; continue it with "
            "olss.Sketch.load and update."
        )
    kind = state.table or TableKind(FrameKind("pyarrow", None))
    wanted = _check_scores(config.replace(**given))
    pairs = [(name, getattr(config, name), getattr(wanted, name)) for name in given]
    pairs += [("target", kind.target, target), ("task", kind.task, task)]
    if policy is not None and resolve_policy(policy) != config.policy:
        pairs.append(("policy", config.policy.name, resolve_policy(policy).name))
    for name, was, now in pairs:
        if name not in CHANGEABLE and now not in (None, was):
            raise InputError(
                f"{name} was {was!r} when {path} was created, found {now!r}. Leave it out to "
                "continue as before, or start over with --fresh (fresh=True)."
            )
    if wanted.size == "task":
        raise InputError(f"size: {path} keeps as many rows as each task has; give a number.")
    for name in state.rows:
        if name.startswith(EXTRA):
            raise InputError(
                f"{path} has an extra column {name.removeprefix(EXTRA)!r}, which files do not "
                "have; continue it with olss.Sketch.load and update."
            )
    schema = _schema_of(state) if "X" in state.rows else None
    rewrites = wanted.replicates != config.replicates
    return Job(path, wanted, state, kind.target, kind.task, schema, rewrites)


def _check_scores(config: Config) -> Config:
    if config.uses_target:
        raise InputError(
            f"scores={config.scores!r} is not supported for files, because it needs a model of "
            "the target fitted to all rows first. Use scores='auto', or olss.Sketch.update."
        )
    return config


def _fit_encoder(job: Job, found: Inputs) -> tuple[Job, ChunkContext, list[Partition]]:
    """Fit the encoder to a sample, decide whether the target is a class, and cut the input."""
    config, state, policy = job.config, job.state, job.config.policy
    encoder, has_classes = state.encoder, config.target_is_class(job.target)
    if has_classes is None:
        has_classes = state.has_classes
    needs_moments = policy.leverage_scope is not None or keeps_moments(config, state)
    uses_features = needs_moments or engine.needs_encoder(config, state)
    fits = encoder.plan is None and uses_features
    cuts = config.bins is not None and not state.seen
    if fits or cuts or (has_classes is None and job.target is not None):
        sample = read_sample(found, None if uses_features or cuts else [job.target])
        if job.target is not None and has_classes is None:
            verdict = classify_target(sample.column(job.target), job.target)
            has_classes = verdict.is_class
            if verdict.note:
                job.note(verdict.note)
        if fits:
            apart = [name for name in (job.target, job.task) if name is not None]
            plan = fit_encoder(sample, columns=config.columns, exclude=config.exclude, apart=apart)
            encoder = replace(encoder, plan=plan)
            if needs_moments and not plan.width:
                raise DataError(NOTHING_TO_SCORE)
    rng = restore_generator(state.generator)
    strata = state.strata
    if cuts:
        names = _own_columns(job, found.schema, config.strata or ())
        strata = Strata(edges=fit_edges(config, lambda name: sample.column(names[name])))
    context = ChunkContext(
        schema=found.schema,
        config=config,
        encoder=encoder,
        target=job.target,
        task=job.task,
        has_classes=bool(has_classes),
        needs_moments=needs_moments,
        seed=tuple(int(word) for word in rng.integers(0, 2**32, size=4)),
        seen=state.seen,
        strata=strata,
    )
    state = state.replace(
        strata=strata,
        encoder=encoder,
        has_classes=has_classes,
        generator=dict(rng.bit_generator.state),
    )
    # Only a policy that has a threshold, or weights, can take partitions apart.
    in_order = not isinstance(policy, ThresholdPolicy) and not policy.mergeable
    return replace(job, state=state), context, partition_pieces(found.pieces, single=in_order)


def _needs_first_pass(context: ChunkContext, found: Inputs) -> bool:
    """Return whether rows must be read once before they can be sampled."""
    config = context.config
    uncounted = config.time is not None or not _is_counted(context, found)
    return context.needs_moments or (config.forgets and uncounted) or config.strata is not None


def _is_counted(context: ChunkContext, found: Inputs) -> bool:
    """Return whether it is known before reading how many rows there are."""
    drops = context.target is not None and context.config.missing_target == "drop"
    return not drops and all(piece.rows is not None for piece in found.pieces)


def _least_threshold(context: ChunkContext, rows: int) -> float | None:
    """Return a threshold above one that is below that of the draw, if there is one.

    A draw of k rows has sum min(1, q / t) = k. Of new rows, n of weight 1, q is at least the least
    priority p, so that t is at least n p / k. By half of that, more than k rows remain to draw.
    """
    config, policy = context.config, context.config.policy
    if not isinstance(policy, ThresholdPolicy) or config.strata is not None:
        return None
    bound = policy.least_priority * rows / (2 * context.size)
    return bound if bound > 1 else None


def _score_as_read(job: Job, context: ChunkContext) -> ChunkContext:
    """Return the context of a single pass, or raise `InputError` if it does not do."""
    config, policy = context.config, context.config.policy
    reason = None
    if policy.leverage_scope == "pool":
        reason = f"policy={policy.name!r}, which draws by the leverage in all rows at once"
    elif config.forgets:
        reason = "half_life or window here: the age of a row is known when all have been read"
    elif config.strata is not None:
        reason = "strata=: the rows of each are counted when all have been read"
    if reason is not None:
        raise InputError(f"passes=1 is not supported with {reason}. Use passes=2.")
    return replace(context, one_pass=True, known=job.state.buckets)


def _use_stats(
    job: Job, context: ChunkContext, found: Inputs, stats: ChunkStats
) -> tuple[Job, ChunkContext]:
    """Return the state with the moments and the time of everything, and the context to sample."""
    config, state, encoder = job.config, job.state, context.encoder
    if not (context.needs_moments or config.forgets or config.strata is not None):
        return job, context
    now = state.seen + sum(stats.rows.values()) if config.time is None else stats.now
    if config.time is not None and state.seen and stats.now < state.now:
        raise DataError(
            f"time: the newest row of these files is {state.now - stats.now:,.6g} older than the "
            "newest row seen. Compress files in the order of their time."
        )
    faded, new = decay(config, state, float(now)), stats.buckets
    if new is not None and config.time is None:
        new = new.shift(state.seen)
    everything = new
    if faded.buckets is not None:
        everything = faded.buckets.merge(new or MomentBuckets(config.window)).drop(faded.now)
    scope, scorer = config.policy.leverage_scope, None
    if scope is not None and new is not None and everything is not None:
        pool, scores = everything.total, config.scores
        if scope == "pool":
            pool = _pool_moments(encoder, training_rows(config, state.rows), new.total)
            scores = "exact" if scores == "auto" else scores
        elif faded.buckets is None and len(faded.rows):  # these stand for what was seen before
            own = training_rows(config, faded.rows)
            pool = encoder.accumulate(pool, own["X"], own["weight"])
        scorer = encoder.scorer(
            pool, scores, context.size, context.rng(0, 0, 0), spread=engine.spreads(context.config)
        )
    strata = faded.strata
    if strata.counts is not None:
        strata = replace(strata, counts=add_counts(strata.counts, stats.strata))
    # Without the moments of what was seen before, those of everything are not known.
    known = everything if faded.buckets is not None or not state.seen else None
    state = faded.replace(buckets=known, strata=strata)
    # With a window, strata go by everything in the files.
    known_strata = strata if strata.counts is not None else replace(strata, counts=stats.strata)
    starts = _count_before(stats.rows) if found.ordered else None
    context = replace(context, starts=starts, now=faded.now, strata=known_strata, scorer=scorer)
    return replace(job, state=state), context


def _merge_sample(job: Job, context: ChunkContext, found: Inputs, sample: ChunkSample) -> State:
    """Return the state with what the policy keeps of the rows held and of those sampled."""
    config = job.config
    if sample.kept is None:
        raise DataError("inputs hold no rows.")
    starts = _count_before(sample.rows)
    if context.starts is not None and starts != context.starts:
        raise DataError(INPUTS_CHANGED)
    new = sum(sample.rows.values())
    state = _add_files(job, found, sample.rows)
    kept = _place_rows(job, context, found, sample.kept, starts, state)
    kept = kept.take(np.argsort(kept["index"], kind="stable"))
    rows = state.rows
    if "X" in rows:
        read_tasks(kept["task"], len(kept), rows)  # integers or strings, as before
        rows = conform_store(rows, {name: kept[name] for name in ("X", "y") if name in kept})
        missing = [name for name in ORIGIN if name not in rows]
        rows = rows.with_columns({name: np.full(len(rows), -1) for name in missing})
    now = state.now if config.forgets else float(state.seen + new)
    known = {} if not state.seen else state.class_counts
    classes = add_class_counts(known, sample.classes) if config.window is None else None
    state = state.replace(
        rows=rows,
        task=kept["task"][-1].item(),
        now=now,
        runs=state.runs + 1,
        history=_record_files(config, context, state.history, rows, kept),
        class_counts=classes,
        trace=None,  # not followed in files, so not known from here on
    )
    state = engine.step(config, state, kept, context.size, scorer=context.scorer)
    state = state.replace(seen=state.seen + new)
    if state.seen <= context.size:
        job.note(f"size is {context.size:,}, so all {state.seen:,} rows seen are kept")
    return state


def _write_result(job: Job, state: State) -> None:
    """Write the file, without moments that are not to be kept."""
    bare = state.replace(buckets=None)
    written = state if keeps_moments(job.config, bare) else bare
    sketch_file.write(job.path, job.config, written, written)


def _record_files(
    config: Config, context: ChunkContext, history: History, held: RowStore, kept: RowStore
) -> History:
    """Return the history with each file as a batch, small ones together with the next."""
    scored = config.policy.uses_features or context.needs_moments
    return record_batches(
        config,
        history,
        context.encoder if scored else None,
        (held.get("X"), held["weight"] if len(held) else np.zeros(0)),
        (kept["X"], kept["weight"]),
        (np.flatnonzero(np.diff(kept["source"], append=-2)) + 1).tolist(),
    )


def _summarize(
    into: str | os.PathLike[str], job: Job, state: State, found: Inputs, new: int
) -> Summary:
    plan, uses = state.encoder.plan, []
    if plan is not None and state.moments is not None:
        uses = plan.uses(state.encoder.varying(state.moments))
    return Summary(
        into if isinstance(into, str) and is_address(into) else job.path,
        len(state.rows),
        state.seen,
        new,
        len(found.sources),
        found.known,
        found.skipped,
        job.notes,
        uses,
    )


class Ticker:
    """Reports how far the work is; how much there is, is known once the input was scanned."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = self._total = self._first_pass = 0

    def expect(self, size: int, passes: int) -> None:
        """Expect this many bytes in each pass; the first of two accumulates moments."""
        self._total, self._first_pass = passes * size, (passes - 1) * size

    def __call__(self, size: int) -> None:
        self._done += size
        what = "sampling" if self._done >= self._first_pass else "measuring"
        if self._progress is not None:
            self._progress(what, min(self._done, self._total), self._total)


def _note_warnings(job: Job, caught: Iterable[warnings.WarningMessage]) -> None:
    for warning in caught:
        if issubclass(warning.category, OlssWarning):
            job.note(str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _add_files(job: Job, found: Inputs, rows: dict[int, int]) -> State:
    """Return the state with an entry for each file ingested, and the kind of their tables."""
    state, entries = job.state, []
    counts: dict[int, int] = {}
    for piece in found.pieces:
        number = piece.source.number
        counts[number] = counts.get(number, 0) + rows.get(piece.number, 0)
    for source, fingerprint in found.sources:
        entries.append(
            {
                "address": source.address,
                "fingerprint": fingerprint,
                "bytes": source.bytes,
                "modified": source.modified,
                "inode": source.inode,
                "rows": counts.get(source.number, 0),
                "run": state.runs,
            }
            | ({} if source.stream is None else source.stream.remembers())
        )
    kind = FrameKind("pyarrow", found.schema)
    if state.table is not None:
        kind = state.table.rows.merge(kind, found.schema)
    table = TableKind(kind, None if job.target is None else kind, job.target, job.task)
    return state.replace(files=(*state.files, *entries), table=table)


def _place_rows(
    job: Job,
    context: ChunkContext,
    found: Inputs,
    kept: RowStore,
    starts: dict[int, int],
    state: State,
) -> RowStore:
    """Return rows with their positions in the stream and, where files are tasks, their tasks."""
    index = kept["index"]
    if context.starts is None:
        number, offset = np.divmod(index - context.seen, PIECE_STEP)
        start = np.zeros(max(starts) + 1, dtype=np.int64)
        start[list(starts)] = list(starts.values())
        index = context.seen + start[number] + offset
    changed = {"index": index}
    if job.task is None:
        before = job.state.rows.get("task")
        if before is not None and before.dtype.kind == "i":  # tasks were numbered: continue
            first = len(job.state.files)
            changed["task"] = kept["source"] - first + int(before.max(initial=-1)) + 1
        else:
            addresses = np.array([entry["address"] for entry in state.files])
            changed["task"] = addresses[kept["source"]]
    return kept.with_columns(changed)


def _count_before(rows: dict[int, int]) -> dict[int, int]:
    """Return how many rows come before each piece that has any."""
    starts, total = {}, 0
    for number in sorted(number for number in rows if rows[number]):
        starts[number] = total
        total += rows[number]
    return starts


def _pool_moments(encoder: Encoder, held: RowStore, new: SeenMoments) -> SeenMoments:
    """Return the moments of the paper's pool: rows held and new, each counting for one."""
    if not len(held):
        return new
    return encoder.accumulate(SeenMoments(), held["X"], np.ones(len(held))).merge(new)


def _schema_of(state: State) -> Any:
    """Return the schema of the rows held, the target among the columns."""
    import pyarrow as pa

    parts = [state.rows[name] for name in ("X", "y") if name in state.rows]
    fields = [entry for part in parts for entry in part.schema]
    names = [] if state.table is None else state.table.rows.schema.names
    order = {name: i for i, name in enumerate(names)}
    return pa.schema(sorted(fields, key=lambda entry: order.get(entry.name, len(order))))


def _check_columns(job: Job, schema: Any) -> None:
    """Raise if a column that settings name is not in the input, or a reserved name is."""
    import pyarrow.types as kinds

    wanted = {
        "target": job.target,
        "task": job.task,
        "time": job.config.time,
        "group": tuple(_own_columns(job, schema, [job.config.group]).values()),
        "strata": tuple(_own_columns(job, schema, job.config.strata or ()).values()),
        "columns": job.config.columns,
        "exclude": job.config.exclude,
    }
    for option, given in wanted.items():
        for name in [given] if isinstance(given, str) else given or ():
            checks.column(option, name, schema.names)
    for name in schema.names:
        if name in (*FILE_NAMES.values(), HOLDOUT) or name.startswith(REPLICATE):
            raise InputError(
                f"inputs have a column {name!r}, a name reserved for the sketch; they may be a "
                "sketch file already. Rename the column."
            )
    kind = None if job.task is None else schema.field(job.task).type
    if kind is not None and (kinds.is_nested(kind) or kinds.is_binary(kind)):
        raise InputError(f"task: column {job.task!r} must hold integers or strings, found {kind}.")


def _own_columns(job: Job, schema: Any, names: Iterable[str | None]) -> dict[str, str]:
    """Return columns that settings name, and their names in the input."""
    given = [name for name in names if name is not None]
    return {name: own_column(name, schema.names, job.target, job.task) for name in given}


def _s(count: int) -> str:
    return "" if count == 1 else "s"
