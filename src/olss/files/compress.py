"""Compress tables larger than memory to a few rows that stand for all of them."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from olss.errors import InputError, OlssWarning
from olss.files.compress_summary import Summary
from olss.files.result_lock import written_alone
from olss.memory.pool import Policy
from olss.util import checks

__all__ = ["Progress", "Summary", "compress"]

Progress = Callable[[str, int, int], None]

log = logging.getLogger(__name__)


def compress(
    inputs: Any,
    *,
    into: str | os.PathLike[str],
    size: int | None = None,
    target: str | None = None,
    task: str | None = None,
    policy: str | Policy | None = None,
    scores: str | float | None = None,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    intercept: bool | None = None,
    half_life: Any = None,
    last: Any = None,
    time: str | None = None,
    spectrum: bool | None = None,
    seed: int | None = None,
    fresh: bool = False,
    skip_bad: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Compress tables to `size` rows that stand for all of them, or go on with new ones.

    If `into` exists, it and the new input are one pool, and files that it has taken in already
    are passed over. Settings not given are then those of before. The file is replaced whole, at
    the end; until then it is as it was. It is a sketch: `olss.Sketch.load` opens it and goes on,
    and what `olss.Sketch.save` wrote of tables can be continued here.

    Parameters
    ----------
    inputs : one or more paths or tables
        Parquet, CSV and JSON lines (also .gz), ORC, Arrow/Feather, .npy and .npz: files, folders,
        globs, or fsspec addresses. From Python also frames of pandas, polars or Arrow, iterators
        of them, and data sets of Hugging Face. Columns may come in any order; types are promoted
        where nothing is lost.
    into : path
        The Parquet file to make or to continue. It holds the original columns and types, and
        ``olss_weight`` (how many rows a row stands for), ``olss_task``, ``olss_index``,
        ``olss_source`` and ``olss_row`` (where it comes from).
    size : int
        Rows to keep.
    target : str, optional
        The column to be predicted. It is not scored. If it is a class (see
        `olss.tables.class_labels`), the draw spreads evenly over tasks and classes.
    task : str, optional
        The column that says the task; by default each file is a task, and each table that is
        given, by the names ``table-1``, ``table-2`` and so on.
    policy : str or callable
        As for `olss.Sketch`; "weighted" is the default. It and "paper" take two passes over the
        input, the others one. "balanced" and policies of your own take rows block by block, each
        block as an update of a sketch; a policy that is not mergeable, in one thread.
    scores : {"auto", "exact", "ridge", "sketched"} or float
        As for `olss.Sketch`.
    columns, exclude : sequence of str, optional
        Columns to score, columns not to. All are carried along. See `olss.tables.encoder` for what
        is made of dates, text and missing values.
    intercept : bool
        Whether rows are scored with a constant added, so that it does not matter where the zero
        of a column is. The default is not to.
    half_life, last, time, spectrum
        As for `olss.Sketch`.
    seed : int, optional
        Where the randomness comes from, at the start of a file.
    fresh : bool
        Start over, even if `into` exists.
    skip_bad : bool
        Pass over files and row groups that cannot be read. They are looked for in a pass before
        all others.
    scheduler : str, optional
        Address of a Dask scheduler to work on; see docs/cluster.md.
    workers : int, optional
        Start so many Dask workers on this machine and work on them.
    progress : callable, optional
        Called as ``progress(what, bytes_done, bytes_in_all)``.

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
    from olss.files.engines import engine_for
    from olss.files.given_tables import as_paths
    from olss.files.steps import begun, continued, decided, finished, measured, surveyed

    path = _checked_path(into)
    if seed is not None:
        checks.seed(seed)
    if workers is not None:
        checks.integer("workers", workers)
        if scheduler is not None:
            raise InputError("give either scheduler or workers: the scheduler has its workers.")
    asked = {
        "size": size,
        "policy": policy,
        "scores": scores,
        "columns": columns,
        "exclude": exclude,
        "intercept": intercept,
        "half_life": half_life,
        "last": last,
        "time": time,
        "spectrum": spectrum,
    }
    with written_alone(path), as_paths(inputs) as given:
        if path.exists() and not fresh:
            log.info("%s is continued", path)
            job = continued(path, asked, target, task)
        else:
            job = begun(path, asked, target, task, seed)
        tick = _Ticker(progress)
        with engine_for(scheduler, workers, tick) as engine:
            job = surveyed(job, given, skip_bad)
            if not job.pieces:
                return job.summary(0)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always", OlssWarning)
                job = decided(job)
                size_in_all = sum(piece.bytes for piece in job.pieces)
                log.info(
                    "%d pieces of input, %s bytes, read in %d passes",
                    len(job.pieces), f"{size_in_all:,}", job.passes,
                )  # fmt: skip
                tick.expect(size_in_all, job.passes)
                job = measured(job, engine)
                log.info("rows are measured; they are drawn in %d parts", len(job.parts))
                job = finished(job, engine.draw(job.work, job.scorer, job.parts))
        for warning in told:
            if issubclass(warning.category, OlssWarning):
                job.note(str(warning.message))
            else:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
        return job.summary(job.new)


class _Ticker:
    """Says how far the work is; how much there is, is known once the input has been seen."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = self._total = self._measuring = 0

    def expect(self, size: int, passes: int) -> None:
        """Expect so many bytes, in one pass or in two, of which the first measures."""
        self._total, self._measuring = passes * size, (passes - 1) * size

    def __call__(self, size: int) -> None:
        self._done += size
        what = "drawing" if self._done >= self._measuring else "measuring"
        if self._progress is not None:
            self._progress(what, min(self._done, self._total), self._total)


def _checked_path(into: str | os.PathLike[str]) -> Path:
    path = Path(into)
    if path.is_dir():
        raise InputError(f"into must be a file, found the folder {path}.")
    if path.suffix.lower() not in (".parquet", ".pq"):
        raise InputError(
            f"into must end in .parquet, found {path.name!r}: the result is a Parquet file, "
            "whatever the input is."
        )
    if not path.parent.is_dir():
        raise InputError(f"into: there is no folder {path.parent}. Make it first.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(
            13, "Permission denied: the result cannot be written there", str(path)
        )
    return path
