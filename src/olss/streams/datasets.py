"""Load data sets by name: digits, MNIST's idx files, CIFAR's binary records. No pickle."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import math
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, FormatError, MissingExtraError
from olss.streams.downloads import (
    DATASETS,
    DatasetEntry,
    cache_folder,
    data_folders,
    find_dataset,
    get_entry,
)
from olss.streams.stream import hash_arrays, sample_stratified, task_generator
from olss.util import checks

__all__ = ["Dataset", "load_dataset"]

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
PIXELS = 3 * 32 * 32
SUMS = "sums.json"  # beside unpacked files: their sha256 sums


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test rows to make a stream of.

    Parameters
    ----------
    name : str
    X, y, X_test, y_test : array
        Inputs (n, ...) and integer labels (n,).
    scale : float
        Divide inputs by this before a network sees them.
    class_names : tuple of str, optional
        Names of the labels 0, 1, ...

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
        for suffix, X, y in (("", self.X, self.y), ("_test", self.X_test, self.y_test)):
            if y.ndim != 1 or len(X) != len(y) or not np.issubdtype(y.dtype, np.integer):
                raise DataError(
                    f"y{suffix} must hold one integer label for each of the {len(X)} rows of "
                    f"X{suffix}, found shape {y.shape} of {y.dtype}."
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
        """Return a data set whose test rows are held-out training rows, stratified by class."""
        size = max(1, round(checks.number("share", share, above=0, maximum=0.9) * len(self.y)))
        rows = np.arange(len(self.y))
        held = sample_stratified(self.y, rows, size, task_generator(seed, "validation"))
        kept = np.delete(rows, held)
        return replace(
            self, X=self.X[kept], y=self.y[kept], X_test=self.X[held], y_test=self.y[held]
        )

    def digest(self) -> str:
        """Return a hash of the rows."""
        return hash_arrays(self.X, self.y, self.X_test, self.y_test)

    def __repr__(self) -> str:
        rows = f"{len(self.X)} training and {len(self.X_test)} test rows"
        shape = f"of shape {self.X.shape[1:]}, {len(self.classes)} classes"
        return f"Dataset({self.name!r}, {rows} {shape})"


def load_dataset(name: str) -> Dataset:
    """Load a data set by name; nothing is downloaded (see `fetch`).

    Files are looked for in the folder `OLSS_DATA`, then in the cache folder; digits come with
    scikit-learn. They are read once per process, and the arrays are read-only.

    The contents are checked against published sums, however they are packed. There is no such sum
    for CIFAR-10: its official archive is checked, other copies are not.

    Parameters
    ----------
    name : {"digits", "mnist", "fashion-mnist", "cifar10", "cifar100"}
        digits has no official test rows: a fixed fifth of each class is held out.

    Returns
    -------
    Dataset
        Images are uint8: (n, 8, 8) from 0 to 16 for digits, (n, 28, 28) for the MNISTs,
        (n, 3, 32, 32) for the CIFARs.
    """
    entry = get_entry(name)
    if name == "digits":
        return _load_digits()
    found = find_dataset(name)
    if found is None:
        place = data_folders()[0] / ("" if entry.members else entry.folders[0])
        raise DataError(
            f"data set {name} was not found in {' or '.join(map(str, data_folders()))}. Run `olss "
            f"data get {name}`; offline, download {', '.join(entry.files)} from "
            f"{' or '.join(entry.mirrors)} on another machine and put them into {place}, or set "
            "OLSS_DATA to a folder that has them."
        )
    return _load_files(name, tuple(found), tuple(path.stat().st_mtime_ns for path in found))


@lru_cache(maxsize=2)
def _load_files(name: str, found: tuple[Path, ...], _times: tuple[int, ...]) -> Dataset:
    entry = DATASETS[name]
    if entry.members:
        X, y, X_test, y_test = _load_cifar(entry, found[0])
    else:
        X, y, X_test, y_test = (read_idx(path, _published_sum(path, entry)) for path in found)
        y, y_test = y.astype(np.int64), y_test.astype(np.int64)
    return _freeze(Dataset(name, X, y, X_test, y_test, 255.0, entry.class_names))


@lru_cache(maxsize=1)
def _load_digits() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "lab", "the data set digits") from error
    images, labels = load_digits().images.astype(np.uint8), load_digits().target.astype(np.int64)
    whole = Dataset("digits", images, labels, images[:0], labels[:0], 16.0)
    return _freeze(whole.hold_out(0.2, seed=1797))


def _freeze(data: Dataset) -> Dataset:
    """Make the arrays read-only: all streams of the process share them."""
    for array in (data.X, data.y, data.X_test, data.y_test):
        array.flags.writeable = False
    return data


def _damaged(where: Path, what: object) -> FormatError:
    return FormatError(f"{where} is damaged or another file: {what}. Download it again.")


def _check_sum(where: Path, kind: str, found: str, published: str | None) -> None:
    if published is not None and found != published:
        raise _damaged(where, f"its {kind} sum is {found} instead of the published {published}")


def _published_sum(path: Path, entry: DatasetEntry) -> str | None:
    return entry.contents.get(path.name.removesuffix(".gz").replace(".idx", "-idx"))


def read_idx(path: Path, sha256: str | None = None) -> Array:
    """Read an idx file, gzipped or not: the format of MNIST (LeCun, Cortes, Burges).

    Two zero bytes, one byte for the type, one for the number of axes, a four-byte length for
    each axis, then the numbers; all big-endian. `sha256` is the sum of the unpacked file.
    """
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise _damaged(path, error) from error
    _check_sum(path, "sha256", hashlib.sha256(raw).hexdigest(), sha256)
    start = 4 + 4 * raw[3] if len(raw) > 3 else 4
    if len(raw) < start or raw[:2] != b"\0\0" or raw[2] not in IDX_TYPES:
        raise _damaged(path, f"an idx file does not start with {raw[:4]!r}")
    shape = tuple(int(size) for size in np.frombuffer(raw[4:start], ">u4"))
    dtype = np.dtype(IDX_TYPES[raw[2]])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise _damaged(path, f"shape {shape} needs {expected} bytes, found {len(raw)}")
    return np.frombuffer(raw, dtype, offset=start).reshape(shape)


def _load_cifar(entry: DatasetEntry, path: Path) -> tuple[Array, Array, Array, Array]:
    files = open_members(path, entry.members, cache_folder() / "unpacked", entry.files)
    for member, published in entry.contents.items():
        found = hash_records(files[member], entry.label_bytes + PIXELS)
        _check_sum(path, "sha256", found, published)
    contents = [files[member] for member in entry.members]
    X, y = read_cifar(contents[:-1], entry.label_bytes, entry.classes, path)
    return X, y, *read_cifar(contents[-1:], entry.label_bytes, entry.classes, path)


def hash_records(content: Bytes, width: int) -> str:
    """Hash records of `width` bytes whatever their order, which differs between copies."""
    if content.size % width:
        return "unknown (incomplete records)"
    sums = sorted(hashlib.sha256(record.data).digest() for record in content.reshape(-1, width))
    return hashlib.sha256(b"".join(sums)).hexdigest()


def read_cifar(
    files: Sequence[Bytes], label_bytes: int, classes: int, where: Path
) -> tuple[Bytes, NDArray[np.int64]]:
    """Return the images (n, 3, 32, 32) and labels (n,) of CIFAR's record files.

    A record is one label byte for CIFAR-10, two for CIFAR-100 (the second is the fine label), then
    32 x 32 bytes of each colour. A single file is not copied.
    """
    width = label_bytes + PIXELS
    for content in files:
        if content.size == 0 or content.size % width:
            raise _damaged(where, f"{content.size} bytes are not records of {width} bytes")
    records = (files[0] if len(files) == 1 else np.concatenate(files)).reshape(-1, width)
    labels = records[:, label_bytes - 1].astype(np.int64)
    if labels.max() >= classes:
        raise _damaged(where, f"it has label {labels.max()}, but there are {classes} classes")
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), labels


def open_members(
    path: Path, members: Sequence[str], cache: Path, md5: dict[str, str] | None = None
) -> dict[str, Bytes]:
    """Return the bytes of files in a folder or in a tar archive of any compression.

    Files in a folder are memory-mapped. An archive is unpacked once into a folder under `cache`
    named after the archive's size and time: unpacking CIFAR-100 takes 8 seconds. Without a writable
    cache it is unpacked into memory. Unpacked files that have changed are unpacked again.
    """
    if path.is_dir():
        return {name: _map_file(path / name) for name in members}
    state = path.stat()
    unpacked = cache / f"{path.name.split('.')[0]}-{state.st_size}-{state.st_mtime_ns}"
    if not _is_intact(unpacked, members):
        shutil.rmtree(unpacked, ignore_errors=True)
        if md5 and path.name in md5:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "md5").hexdigest()
            _check_sum(path, "md5", found, md5[path.name])
        contents = _unpack(path, members)
        try:
            _write_folder(unpacked, contents)
        except OSError:
            return {name: np.frombuffer(raw, np.uint8) for name, raw in contents.items()}
    return open_members(unpacked, members, cache)


def _map_file(path: Path) -> Bytes:
    # An empty file cannot be mapped.
    empty = path.stat().st_size == 0
    return np.empty(0, np.uint8) if empty else np.memmap(path, np.uint8, mode="r")


def _is_intact(folder: Path, members: Sequence[str]) -> bool:
    """Whether unpacked files are as they were written."""
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
        return all(
            hashlib.sha256(_map_file(folder / name).data).hexdigest() == sums[name]
            for name in members
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _unpack(archive: Path, members: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of the members by name, whatever folder they are in.

    The archive is read to its end, where its own checksum is.
    """
    contents = {}
    try:
        with tarfile.open(archive) as opened:  # of any compression
            for entry in opened:
                name = Path(entry.name).name
                stored = opened.extractfile(entry) if name in members else None
                if stored is not None:
                    contents[name] = stored.read()
            while opened.fileobj is not None and opened.fileobj.read(1 << 20):
                pass
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise _damaged(archive, error) from error
    if missing := [name for name in members if name not in contents]:
        raise _damaged(archive, f"it has no {missing[0]}")
    return contents


def _write_folder(folder: Path, contents: dict[str, bytes]) -> None:
    """Write the files so that the folder appears complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    try:
        for name, raw in contents.items():
            (beside / name).write_bytes(raw)
        sums = {name: hashlib.sha256(raw).hexdigest() for name, raw in contents.items()}
        (beside / SUMS).write_text(json.dumps(sums), encoding="utf-8")
        # Another process may have been faster; its folder holds the same bytes.
        with suppress(OSError):
            beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    if not folder.is_dir():
        raise OSError(f"{folder} was not written")
