"""Data sets by name: what they are, where their files are looked for, reading them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, InputError, MissingExtraError
from olss.streams.content_hash import sha256
from olss.streams.dataset_formats import PIXELS, open_members, read_cifar, read_idx
from olss.streams.dataset_registry import DATASETS, DatasetEntry
from olss.streams.dataset_sums import check_md5, check_records, check_unpacked, once
from olss.streams.stream_draws import stratified, task_generator
from olss.util import checks
from olss.util.checks import nearest

__all__ = ["Dataset", "cache_folder", "data_folders", "entry_of", "find_dataset", "load_dataset"]

Array = NDArray[Any]

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test rows to make a stream of.

    Parameters
    ----------
    name : str
        What it is called.
    X, y, X_test, y_test : array
        Inputs (n, ...) and whole-number labels (n,).
    scale : float
        Inputs divided by this lie in a range fit for a network.
    class_names : tuple of str, optional
        What the labels 0, 1, ... mean.

    Examples
    --------
    >>> load_dataset("digits")
    Dataset('digits', 1438 training and 359 test rows of shape (8, 8), 10 classes)
    """

    name: str
    X: Array
    y: Array
    X_test: Array
    y_test: Array
    scale: float = 1.0
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for part, X, y in (("", self.X, self.y), ("_test", self.X_test, self.y_test)):
            if y.ndim != 1 or len(X) != len(y) or not np.issubdtype(y.dtype, np.integer):
                raise DataError(
                    f"y{part} must hold one whole-number label for each of the {len(X)} rows of "
                    f"X{part}, found shape {y.shape} of {y.dtype}."
                )
        if self.X.shape[1:] != self.X_test.shape[1:]:
            raise DataError(
                f"X and X_test must have rows of one shape, found {self.X.shape[1:]} and "
                f"{self.X_test.shape[1:]}."
            )

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels of the training rows, sorted."""
        return tuple(int(label) for label in np.unique(self.y))

    def hold_out(self, share: float, seed: int) -> Dataset:
        """Return a data set whose test rows are held-out training rows, by class."""
        size = max(1, round(checks.number("share", share, above=0, most=0.9) * len(self.y)))
        rows = np.arange(len(self.y))
        held = stratified(self.y, rows, size, task_generator(seed, "validation"))
        kept = np.delete(rows, held)
        return replace(
            self, X=self.X[kept], y=self.y[kept], X_test=self.X[held], y_test=self.y[held]
        )

    def digest(self) -> str:
        """Return a hash of the rows."""
        return sha256(self.X, self.y, self.X_test, self.y_test)

    def __repr__(self) -> str:
        rows = f"{len(self.X)} training and {len(self.X_test)} test rows"
        shape = f"of shape {self.X.shape[1:]}, {len(self.classes)} classes"
        return f"Dataset({self.name!r}, {rows} {shape})"


def cache_folder() -> Path:
    """Return the folder olss keeps downloads in: `OLSS_CACHE`, or the platform's own."""
    if chosen := os.environ.get("OLSS_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "olss/Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/olss"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "olss"


def data_folders() -> list[Path]:
    """Return the folders data sets are looked for in: `OLSS_DATA`, then the cache folder."""
    chosen = os.environ.get("OLSS_DATA")
    return [*([Path(chosen).expanduser()] if chosen else []), cache_folder()]


def entry_of(name: str) -> DatasetEntry:
    """Return what is known of a data set, or an error offering the nearest name."""
    if name in DATASETS:
        return DATASETS[name]
    raise InputError(f"there is no dataset {name!r}. {nearest(str(name), DATASETS)}")


def find_dataset(name: str) -> list[Path] | None:
    """Return the files (idx), the folder or the archive (CIFAR) found, or None."""
    entry = entry_of(name)
    for root in data_folders():
        for folder in (root / sub for sub in entry.folders):
            if found := _files_in(folder, entry):
                return found
        if entry.members:
            stem = next(iter(entry.files)).removesuffix(".gz")
            places = [*root.glob(f"{stem}*"), *(root / entry.folders[0]).glob(f"{stem}*")]
            if archives := sorted(place for place in places if place.is_file()):
                return archives[:1]
    return None


def _files_in(folder: Path, entry: DatasetEntry) -> list[Path] | None:
    if entry.members:
        whole = all((folder / member).is_file() for member in entry.members)
        return [folder] if whole else None
    found = []
    for name in IDX_FILES:
        # Some copies are called train-images.idx3-ubyte.
        spellings = [folder / spelling for spelling in (name, name.replace("-idx", ".idx"))]
        packed = [place.with_name(f"{place.name}.gz") for place in spellings]
        present = [place for place in (*spellings, *packed) if place.is_file()]
        if not present:
            return None
        found.append(present[0])
    return found


def load_dataset(name: str) -> Dataset:
    """Return a data set by name; nothing is downloaded (see `fetch`).

    Files are looked for in the folder `OLSS_DATA` names, then in the cache folder; digits
    is inside scikit-learn and needs none. Read once in a process; the arrays are read-only.

    On first use the files are checked against their published md5 sums, and copies of MNIST and
    CIFAR-100 that are unpacked or packed anew against sums of what is inside; the cache remembers
    what was right. A packed copy of Fashion-MNIST or CIFAR-10 that is not the published file is
    checked by its own checksum only, an unpacked one not at all.

    Parameters
    ----------
    name : {"digits", "mnist", "fashion-mnist", "cifar10", "cifar100"}
        digits has no official test rows: a fixed fifth of each class is set aside.

    Returns
    -------
    Dataset
        Images are uint8: (n, 8, 8) from 0 to 16 for digits, (n, 28, 28) for the MNISTs,
        (n, 3, 32, 32) for the CIFARs.
    """
    entry_of(name)
    if name == "digits":
        return _digits()
    found = find_dataset(name)
    if found is None:
        raise DataError(_missing(name))
    return _read(name, tuple(found), tuple(path.stat().st_mtime_ns for path in found))


def _missing(name: str) -> str:
    entry = DATASETS[name]
    root = data_folders()[0]
    place = root if entry.members else root / entry.folders[0]
    looked = " or ".join(str(folder) for folder in data_folders())
    return (
        f"the data set {name} was not found in {looked}. Fetch it with `olss data get {name}`; "
        f"without a network, get {', '.join(entry.files)} from {' or '.join(entry.mirrors)} on "
        f"another machine and put them into {place}, or set OLSS_DATA to a folder that has them."
    )


@lru_cache(maxsize=2)
def _read(name: str, found: tuple[Path, ...], _times: tuple[int, ...]) -> Dataset:
    entry, cache = DATASETS[name], cache_folder()
    for path in found:
        if path.name in entry.files:
            md5 = entry.files[path.name]
            once([path], md5, cache, partial(check_md5, path, md5))
    if entry.members:
        files = open_members(found[0], entry.members, cache / "unpacked")
        if found[0].name not in entry.files:
            _check_members(entry, files, found[0])
        contents = [files[member] for member in entry.members]
        X, y = read_cifar(contents[:-1], entry.label_bytes, entry.classes, found[0])
        X_test, y_test = read_cifar(contents[-1:], entry.label_bytes, entry.classes, found[0])
    else:
        _check_unpacked(entry, found)
        X, y, X_test, y_test = (read_idx(path) for path in found)
        y, y_test = y.astype(np.int64), y_test.astype(np.int64)
    return _frozen(Dataset(name, X, y, X_test, y_test, 255.0, entry.class_names))


def _check_members(entry: DatasetEntry, files: dict[str, NDArray[np.uint8]], where: Path) -> None:
    """Check records that came in another package than the published one, where sums are known."""
    kept = [where] if where.is_file() else [where / member for member in entry.members]
    for member, wanted in entry.contents.items():
        width = entry.label_bytes + PIXELS
        check = partial(check_records, files[member], width, wanted, where)
        once(kept, wanted, cache_folder(), check)


def _check_unpacked(entry: DatasetEntry, found: Sequence[Path]) -> None:
    """Check idx files that are not packed as they were published, where sums are known."""
    for path in found:
        wanted = entry.contents.get(path.name.removesuffix(".gz").replace(".idx", "-idx"))
        if wanted is not None and path.name not in entry.files:
            once([path], wanted, cache_folder(), partial(check_unpacked, path, wanted))


@lru_cache(maxsize=1)
def _digits() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "lab", "the data set digits") from error
    images, labels = load_digits().images.astype(np.uint8), load_digits().target.astype(np.int64)
    whole = Dataset("digits", images, labels, images[:0], labels[:0], 16.0)
    return _frozen(whole.hold_out(0.2, seed=1797))


def _frozen(data: Dataset) -> Dataset:
    """Make the arrays read-only, as all streams of the process share them."""
    for array in (data.X, data.y, data.X_test, data.y_test):
        array.flags.writeable = False
    return data
