"""Fetching data sets: several mirrors, checked sums, nothing half-written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olss.errors import DataError, MissingExtraError
from olss.streams.dataset_registry import DATASETS
from olss.streams.datasets import cache_folder, entry_of, find_dataset

__all__ = ["DatasetStatus", "fetch", "list_datasets"]


@dataclass(frozen=True)
class DatasetStatus:
    """Where a data set is.

    Attributes
    ----------
    name, what : str
        Its name, and one line for people.
    where : str or None
        File or folder, None if it was not found.
    bytes : int
        Size of the files found.
    """

    name: str
    what: str
    where: str | None
    bytes: int


def list_datasets() -> list[DatasetStatus]:
    """Return where each data set was found.

    Examples
    --------
    >>> list_datasets()[0].where
    'inside scikit-learn'
    """
    return [_status(name) for name in DATASETS]


def _status(name: str) -> DatasetStatus:
    what = DATASETS[name].what
    if name == "digits":
        return DatasetStatus(name, what, "inside scikit-learn", 0)
    found = find_dataset(name)
    if found is None:
        return DatasetStatus(name, what, None, 0)
    files = list(found[0].iterdir()) if found[0].is_dir() else found
    where = found[0] if len(found) == 1 else found[0].parent
    return DatasetStatus(name, what, str(where), sum(path.stat().st_size for path in files))


def fetch(name: str, folder: str | Path | None = None, *, progress: bool = True) -> Path:
    """Return the folder of a data set, downloaded unless its files are there.

    Each file is checked against its published md5 sum, and gets its name only when it is whole and
    right, so a download that was cut off leaves nothing behind.

    Parameters
    ----------
    name : str
        See `load_dataset`.
    folder : path, optional
        Data folder to put the files into: the cache folder by default, where they are found
        again. Another folder must be named by `OLSS_DATA` to be found.
    progress : bool
        Show a bar.

    Returns
    -------
    Path
        Folder with the files; where they were found, if outside the cache folder.

    Raises
    ------
    DataError
        When no mirror gives the right file: says what was tried and what to do offline.
    """
    entry = entry_of(name)
    root = cache_folder() if folder is None else Path(folder).expanduser()
    if not entry.files:
        return root
    found = find_dataset(name)
    if folder is None and found and root not in found[0].parents:
        return found[0].parent
    place = root / entry.folders[0]
    for file, md5 in entry.files.items():
        _fetch_file(name, file, md5, entry.mirrors, place, progress)
    return place


def _fetch_file(
    name: str, file: str, md5: str, mirrors: tuple[str, ...], place: Path, progress: bool
) -> None:
    try:
        import pooch
    except ImportError as error:
        raise MissingExtraError("pooch", "lab", f"fetching {name}") from error
    failures = []
    for mirror in mirrors:
        address = mirror + file
        try:
            with _quiet(pooch.get_logger()), _bar(file, progress) as bar:
                loader = pooch.HTTPDownloader(progressbar=bar, chunk_size=2**18, timeout=30)
                pooch.retrieve(address, f"md5:{md5}", file, place, downloader=loader)
            return
        # Network errors of requests are OSErrors; a wrong sum is a ValueError.
        except (OSError, ValueError) as error:
            failures.append(f"  {address}: {str(error).splitlines()[0]}")
    raise DataError(
        f"{file} of the data set {name} could not be fetched:\n"
        + "\n".join(failures)
        + f"\nWithout a network, get it from one of these addresses on another machine (md5 {md5}) "
        f"and put it into {place}."
    )


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Let the progress bar speak for the download."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _bar(file: str, shown: bool) -> Iterator[Any]:
    """Yield what pooch takes as a progress bar, drawn by rich; False for none."""
    if not shown:
        yield False
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns) as progress:
        yield _Bar(progress, progress.add_task(file, total=None))


class _Bar:
    """The four things pooch does with a progress bar."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task
        self.total = 0

    def update(self, amount: int) -> None:
        self._progress.update(self._task, advance=amount, total=self.total or None)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop_task(self._task)
