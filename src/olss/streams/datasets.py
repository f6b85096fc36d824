"""Data sets by name: MNIST's idx files and CIFAR's binary records. Nothing is unpickled."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, FormatError, MissingExtraError
from olss.streams.downloads import (
    DATASETS,
    DatasetEntry,
    cache_folder,
    check_md5,
    check_records,
    check_unpacked,
    data_folders,
    entry_of,
    find_dataset,
    once,
    sha256_of,
)
from olss.streams.stream import hash_arrays, sample_stratified, task_generator
from olss.util import checks

__all__ = ["PIXELS", "Dataset", "load_dataset", "open_members", "read_cifar", "read_idx"]


Array = NDArray[Any]


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


IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
PIXELS = 3 * 32 * 32
SUMS = "sums.json"  # beside what was unpacked: what each file hashes to


def read_idx(path: Path) -> NDArray[Any]:
    """Return the array of an idx file, gzipped or not: the format of MNIST (LeCun, Cortes, Burges).

    Two zero bytes, one byte for the type, one for the number of axes, a four-byte length for
    each axis, then the numbers; all big-endian.
    """
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:
            raise FormatError(
                f"{path} is cut short or damaged: {error}. Fetch it again."
            ) from error
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in IDX_TYPES:
        raise FormatError(f"{path} is not an idx file: it starts with {raw[:4]!r}.")
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise FormatError(f"{path} is cut short: {len(raw)} bytes. Fetch it again.")
    shape = tuple(int(size) for size in np.frombuffer(raw[4:start], ">u4"))
    kind = np.dtype(IDX_TYPES[raw[2]])
    expected = math.prod(shape) * kind.itemsize
    if len(raw) - start != expected:
        raise FormatError(
            f"{path} should hold {shape} numbers in {expected} bytes, found {len(raw) - start}. "
            "Fetch it again."
        )
    return np.frombuffer(raw, kind, offset=start).reshape(shape)


def read_cifar(
    files: Sequence[NDArray[np.uint8]], label_bytes: int, classes: int, where: Path
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return CIFAR's images and labels; a record is label bytes, then 32 x 32 of each colour.

    Parameters
    ----------
    files : sequence of arrays of bytes
        Contents of the record files, put one after the other. A single one is not copied.
    label_bytes : int
        1 for CIFAR-10; 2 for CIFAR-100, whose second is the fine label.
    classes : int
        Labels must be below this.
    where : Path
        Folder or archive the files are from, for messages.

    Returns
    -------
    images (n, 3, 32, 32) uint8, labels (n,) int64
    """
    width = label_bytes + PIXELS
    for content in files:
        if content.size == 0 or content.size % width:
            raise FormatError(
                f"a file of {where} should hold records of {width} bytes, found {content.size}: "
                "it is cut short or another file. Fetch it again."
            )
    records = (files[0] if len(files) == 1 else np.concatenate(files)).reshape(-1, width)
    labels = records[:, label_bytes - 1].astype(np.int64)
    if labels.max() >= classes:
        raise FormatError(
            f"a file of {where} has the label {labels.max()}, but there are {classes} classes: "
            "it is another file or damaged. Fetch it again."
        )
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), labels


def open_members(path: Path, members: Sequence[str], cache: Path) -> dict[str, NDArray[np.uint8]]:
    """Return the bytes of the named files in a folder or a tar archive of any compression.

    Files in a folder are mapped, not read. An archive is unpacked once into a folder under
    `cache` whose name carries the archive's size and time, since unpacking CIFAR-100 takes
    8 seconds and mapping it none; where `cache` cannot be written to, that is left out. What was
    unpacked and has changed since is unpacked again.
    """
    if path.is_dir():
        return {name: _mapped(path / name) for name in members}
    state = path.stat()
    unpacked = cache / f"{path.name.split('.')[0]}-{state.st_size}-{state.st_mtime_ns}"
    if not _as_written(unpacked, members, cache):
        shutil.rmtree(unpacked, ignore_errors=True)
        contents = _unpack(path, members)
        try:
            _write_folder(unpacked, contents)
        except OSError:
            return {name: np.frombuffer(raw, np.uint8) for name, raw in contents.items()}
    return open_members(unpacked, members, cache)


def _as_written(folder: Path, members: Sequence[str], cache: Path) -> bool:
    """Tell whether unpacked files still are what was written."""
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
        for name in members:
            once([folder / name], sums[name], cache, partial(_check, folder / name, sums[name]))
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return True


def _check(path: Path, sha256: str) -> None:
    if sha256_of(path.read_bytes()) != sha256:
        raise FormatError(f"{path} has changed since it was unpacked.")


def _mapped(path: Path) -> NDArray[np.uint8]:
    # An empty file cannot be mapped.
    empty = path.stat().st_size == 0
    return np.empty(0, np.uint8) if empty else np.memmap(path, np.uint8, mode="r")


def _unpack(archive: Path, members: Sequence[str]) -> dict[str, bytes]:
    """Return the members by their own name, whatever folder of the archive they are in.

    The archive is read to its end, where its own checksum is.
    """
    contents = {}
    try:
        with _decompressed(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as opened:
            for entry in opened:
                name = Path(entry.name).name
                stored = opened.extractfile(entry) if name in members else None
                if stored is not None:
                    contents[name] = stored.read()
            while stream.read(1 << 20):
                pass
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise FormatError(f"{archive} is cut short or damaged: {error}. Fetch it again.") from error
    missing = [name for name in members if name not in contents]
    if missing:
        raise FormatError(f"{archive} has no {missing[0]}: it is another archive or damaged.")
    return contents


def _decompressed(archive: Path) -> IO[bytes]:
    """Open an archive of any compression, known by its first bytes."""
    with archive.open("rb") as file:
        start = file.read(6)
    kinds: dict[bytes, Callable[..., Any]] = {
        b"\x1f\x8b": gzip.open,
        b"BZh": bz2.open,
        b"\xfd7zXZ": lzma.open,
    }
    opener = next((kinds[magic] for magic in kinds if start.startswith(magic)), open)
    opened: IO[bytes] = opener(archive, "rb")
    return opened


def _write_folder(folder: Path, contents: dict[str, bytes]) -> None:
    """Write the files so that the folder appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=folder.parent))
    try:
        for name, raw in contents.items():
            (beside / name).write_bytes(raw)
        sums = {name: sha256_of(raw) for name, raw in contents.items()}
        (beside / SUMS).write_text(json.dumps(sums), encoding="utf-8")
        # Another process may have been faster; its folder holds the same bytes.
        with suppress(OSError):
            beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    if not folder.is_dir():
        raise OSError(f"{folder} was not written")
