"""Compress tables larger than memory to a few rows that stand for all of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from olss.common import checks
from olss.errors import InputError
from olss.files.compression import Progress, Run, Summary

__all__ = ["Summary", "compress"]


def compress(
    inputs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    into: str | os.PathLike[str],
    size: int | None = None,
    target: str | None = None,
    task: str | None = None,
    policy: str | None = None,
    scores: str | float | None = None,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    intercept: bool | None = None,
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
    the end; until then it is as it was.

    Parameters
    ----------
    inputs : one or more paths
        Parquet, CSV and JSON lines (also .gz), ORC, Arrow/Feather, .npy and .npz: files, folders,
        globs, or fsspec addresses. All must have the same columns.
    into : path
        The Parquet file to make or to continue. It holds the original columns and types, and
        ``olss_weight`` (how many rows a row stands for), ``olss_task``, ``olss_source`` and
        ``olss_row`` (where it comes from).
    size : int
        Rows to keep.
    target : str, optional
        The column to be predicted. It is not scored. If it is a class (text, booleans, at most 32
        different whole numbers), the draw spreads evenly over tasks and classes.
    task : str, optional
        The column that says the task; by default each file is a task.
    policy : {"weighted", "paper", "reservoir", "balanced", "recent"}
        As for `olss.Sketch`; "balanced" draws at random inside each task and class. "weighted" is
        the default. It and "paper" take two passes over the input, the others one.
    scores : {"auto", "exact", "ridge"} or float
        As for `olss.Sketch`.
    columns, exclude : sequence of str, optional
        Columns to score, columns not to. All are carried along. See `olss.tables.plan` for what
        is made of dates, text and missing values.
    intercept : bool
        Whether rows are scored with a constant added, so that it does not matter where the zero
        of a column is. The default is not to.
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
    items = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    asked = {
        "size": None if size is None else checks.whole("size", size),
        "policy": policy,
        "scores": scores,
        "target": target,
        "task": task,
        "columns": None if columns is None else list(columns),
        "exclude": None if exclude is None else list(exclude),
        "intercept": intercept,
    }
    path = Path(into)
    seed = None if seed is None else checks.seed(seed)
    _check(asked, path, workers, scheduler)
    run = Run(path, asked, seed, skip_bad, progress or (lambda what, done, total: None))
    if path.exists() and not fresh:
        run.go_on()
    else:
        run.start()
    run.survey(items)
    if not run.pieces:
        return run.summary(0)
    return run.work(scheduler, workers)


def _check(asked: dict[str, Any], path: Path, workers: Any, scheduler: str | None) -> None:
    from olss.files.varopt import POLICIES

    if asked["policy"] not in (None, *POLICIES):
        raise InputError(
            f"policy must be one of {', '.join(map(repr, POLICIES))}, found {asked['policy']!r}."
        )
    scores = asked["scores"]
    if isinstance(scores, str) and scores not in ("auto", "exact", "ridge"):
        raise InputError(f"scores must be 'auto', 'exact', 'ridge' or a number, found {scores!r}.")
    if not isinstance(scores, (str, type(None))):
        checks.number("scores", scores, least=0)
    if workers is not None:
        checks.whole("workers", workers)
        if scheduler is not None:
            raise InputError("give either scheduler or workers: the scheduler has its workers.")
    if path.is_dir():
        raise InputError(f"into must be a file, found the folder {path}.")
    if not path.parent.is_dir():
        raise InputError(f"into: there is no folder {path.parent}. Make it first.")
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(
            13, "Permission denied: the result cannot be written there", str(path)
        )
