"""Streams of a user's own files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from olss.errors import DataError, FormatError, InputError
from olss.streams.own_rows import TaskRows, own_stream
from olss.streams.stream import Stream
from olss.streams.table_rows import PERIODS, FileTable
from olss.util.files import DAMAGED_ARRAYS

__all__ = ["from_files"]


def from_files(
    paths: str | Path | Sequence[str | Path],
    target: str | Sequence[str] | None = None,
    *,
    by: str | None = None,
    every: str | None = None,
    features: Sequence[str] | None = None,
    test: float = 0.2,
    kind: str = "auto",
    pad: bool | int = False,
    scale: float | None = None,
    seed: int = 0,
    sha256: Sequence[str] | None = None,
) -> Stream:
    r"""Return a stream of files: a task for each file or for each value of a column.

    Parquet, CSV (also .gz), Arrow/Feather, JSON lines, ORC, .npy with named columns, and .npz.
    Only the rows of the task asked for are kept in memory.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, in the order of the tasks. A path with ``*`` stands for the files it matches,
        sorted. npz files hold arrays X and y, and may hold X_test and y_test.
    target : str or sequence of str
        Column of the target, or several for several real targets. Not for npz.
    by : str, optional
        Column that says the task of each row (a date, a site): the files are one table
        then. Tasks come in sorted order.
    every : {"day", "week", "month", "year"}, optional
        With a date in `by`: a task for each period instead of each value.
    features : sequence of str, optional
        Columns to learn from; all others by default.
    test : float
        Share of rows to set aside for testing, the same share of each class.
    kind : {"auto", "classes", "values"}
        Whether the target is a label or a real number; see `from_arrays`.
    pad : bool or int
        Files may have different numbers of columns; see `from_arrays`.
    scale : float, optional
        What a network should divide inputs by; 255 for uint8 and 1 otherwise by default.
    seed : int
        Seed of the split.
    sha256 : sequence of str, optional
        What the files must hash to, as `Stream.config` says; an error if one has changed.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = Path(folder.name, "visits.csv")
    >>> lines = [f"2024-0{m}-1{d},{d},{m * d},{'ill' if d > 4 else 'well'}"
    ...          for m in (1, 2, 3) for d in range(10)]
    >>> _ = table.write_text("\n".join(["day,age,dose,state", *lines]))
    >>> stream = from_files(table, "state", by="day", every="month")
    >>> for task in stream:
    ...     print(task)
    Task('2024-01', 8 training and 2 test rows of shape (2,), 2 classes)
    Task('2024-02', 8 training and 2 test rows of shape (2,), 2 classes)
    Task('2024-03', 8 training and 2 test rows of shape (2,), 2 classes)
    >>> folder.cleanup()
    """
    files = _files(paths)
    config = {
        "name": "files",
        "paths": [str(path) for path in files],
        "target": target,
        "by": by,
        "every": every,
        "features": features,
        "test": test,
        "kind": kind,
        "pad": pad,
        "scale": scale,
        "seed": seed,
        "sha256": [_sha256_of_file(path) for path in files],
    }
    if sha256 is not None and list(sha256) != config["sha256"]:
        raise DataError("sha256 does not fit: a file has changed since it was written down.")
    if every is not None and (by is None or every not in PERIODS):
        raise InputError(
            f"every must be one of {', '.join(PERIODS)} and needs by=, found {every!r}."
        )
    if any(path.suffix == ".npz" for path in files):
        if target or by or features or any(path.suffix != ".npz" for path in files):
            raise InputError(
                "npz files hold X and y; they go with no target, by, features or other files."
            )
        return _of_npz(files, config)
    targets = [target] if isinstance(target, str) else target
    if not targets or not all(isinstance(name, str) and name for name in targets):
        raise InputError(f"target must name the column to learn, found {target!r}.")
    return _of_tables(files, config)


def _of_npz(files: list[Path], config: dict[str, Any]) -> Stream:
    shapes, targets = [], []
    for path in files:
        rows = _read_npz(path)
        shapes.append(rows.X.shape[1:])
        targets += rows.targets()
    names = [path.stem for path in files]
    return own_stream(partial(_load_npz, files), names, config, shapes, targets)


def _load_npz(files: list[Path], number: int) -> TaskRows:
    return _read_npz(files[number])


def _read_npz(path: Path) -> TaskRows:
    try:
        with path.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            if isinstance(stored, np.ndarray):
                raise ValueError("it holds a single array without a name")
            names = ("X", "y", "X_test", "y_test")
            return TaskRows(*(stored[name] for name in names[: 4 if "X_test" in stored else 2]))
    except KeyError as error:
        raise FormatError(f"{path} must hold X and y, and y_test with X_test: {error}.") from error
    except DAMAGED_ARRAYS as error:
        raise FormatError(f"{path} is not an npz file of plain arrays: {error}.") from error


def _of_tables(files: list[Path], config: dict[str, Any]) -> Stream:
    target, by, features = config["target"], config["by"], config["features"]
    targets = [target] if isinstance(target, str) else list(target)
    if by is None:
        # The first file says which columns there are, unless each may have its own.
        first = FileTable([files[0]], targets, features).features
        tables = [
            FileTable([file], targets, features if config["pad"] else first) for file in files
        ]
        names = [path.stem for path in files]
        ys = [table.read_targets() for table in tables]
    else:
        whole = FileTable(files, targets, features, by, config["every"])
        tables = whole.split()
        names = [str(table.value.as_py()) for table in tables]
        ys = [whole.read_targets()]
    shapes = [(len(table.features),) for table in tables]
    return own_stream(partial(_load_table, tables), names, config, shapes, ys)


def _load_table(tables: list[FileTable], number: int) -> TaskRows:
    return tables[number].read()


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    given = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(given, Sequence) or not all(isinstance(path, str | Path) for path in given):
        raise InputError(f"paths must name one or more files, found {paths!r}.")
    found: list[Path] = []
    for path in map(str, given):
        matches = sorted(glob(path)) if "*" in path else [path]
        missing = [match for match in matches if not Path(match).is_file()]
        if not matches or missing:
            raise InputError(f"paths must name files that are there, found {path!r}.")
        found += map(Path, matches)
    if not found:
        raise InputError("paths must name at least one file, found none.")
    return found


def _sha256_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
