"""The files data sets come in: idx (MNIST) and CIFAR's binary records. No pickle."""

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
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import FormatError
from olss.streams.dataset_sums import once, sha256_of

__all__ = ["PIXELS", "open_members", "read_cifar", "read_idx"]

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
