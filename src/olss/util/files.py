"""Files and objects in buckets: written atomically, locked, and verified by checksums inside them.

A JSON file holds the SHA-256 of its other entries under ``sha256``. A Parquet file holds, once, the
key ``olss_sha256`` followed by the SHA-256 of all its bytes, these 64 digits taken as zeros.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import stat
import sys
import tempfile
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from olss.errors import FormatError, InputError, MissingExtraError, OlssError

# What NumPy and zipfile raise for a damaged .npy or .npz file.
ARRAY_FILE_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    EOFError,
    OSError,
    MemoryError,
    NotImplementedError,  # an unknown compression method
    RuntimeError,  # a file marked as encrypted
    SyntaxError,  # a header that is not a dictionary
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
POLL_SECONDS = 0.2


@contextmanager
def open_atomic(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file for writing bytes; it replaces `path` in one step at the end.

    After an error `path` is unchanged. If `path` is a symbolic link, the file it points to is
    replaced. An existing file passes on its mode and, where the system permits it, its owner. A
    process killed while writing leaves a hidden file that ends in ``.part``.

    Raises
    ------
    InputError
        If `path` is a folder, a device or a pipe, which are left alone.
    OSError
        If it cannot be written; the error names `path`.
    """
    target, existing = _resolve(path)
    partial = target.with_name(f".{target.name[:40]}.{uuid.uuid4().hex}.part")
    try:
        with _create(partial, existing, path) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(target.parent)


def write_atomic(path: Path, content: bytes) -> None:
    """Write bytes to a file, completely or not at all."""
    with open_atomic(path) as file:
        file.write(content)


def resolve_output(path: str | os.PathLike[str]) -> Path:
    """Return the file that writing to `path` would replace, with symbolic links resolved.

    Call it before long work, so that an unusable path is refused at once.

    Examples
    --------
    >>> resolve_output("/dev/null")
    Traceback (most recent call last):
    olss.errors.InputError: /dev/null is a device; give the path of a file.
    """
    return _resolve(path)[0]


def _resolve(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """Return the path with links resolved, and the state of the file there if there is one."""
    try:
        target = Path(os.path.realpath(path))
        state = target.stat()
    except FileNotFoundError:
        return target, None
    except NotADirectoryError as error:
        raise InputError(f"{path} is inside something that is not a folder.") from error
    except ValueError as error:  # a null character
        raise InputError(f"{os.fspath(path)!r} cannot be the path of a file: {error}.") from error
    if not stat.S_ISREG(state.st_mode):
        kind = KINDS.get(stat.S_IFMT(state.st_mode), "not a file")
        raise InputError(f"{path} is {kind}; give the path of a file.")
    return target, state


def _create(
    partial: Path, existing: os.stat_result | None, path: str | os.PathLike[str]
) -> BinaryIO:
    """Open a new file with the mode and owner of the one it will replace."""
    # A replacement stays private until it has the mode of the file it replaces.
    mode = 0o666 if existing is None else 0o600
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(partial, flags, mode)
    except OSError as error:
        reason = error.strerror
        if isinstance(error, FileNotFoundError):
            reason = f"there is no folder {partial.parent}; create it first"
        raise type(error)(error.errno, reason, str(path)) from error
    if existing is not None and hasattr(os, "fchown"):
        with suppress(PermissionError):  # only root can give files away
            os.fchown(descriptor, existing.st_uid, existing.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))
    return os.fdopen(descriptor, "r+b")


def _sync_folder(folder: Path) -> None:
    """Make the new directory entry survive a power cut, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_file(path: Path) -> bool:
    """Return whether there is a file; False for a name that no file can have."""
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


@contextmanager
def file_lock(path: Path, *, wait: bool | float = False, remove: bool = False) -> Iterator[bool]:
    """Hold a lock inside the block; yields whether it was acquired.

    The operating system releases the lock when the process ends, however it ends.

    Parameters
    ----------
    path : Path
        The lock's own file, created if necessary. It names its holder; see `lock_holder`.
    wait : bool or float
        Whether to wait for another holder; a number is the longest time to wait, in seconds.
    remove : bool
        Whether to delete the lock's file at the end.
    """
    from filelock import FileLock, Timeout

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=-1 if wait is True else float(wait), thread_local=False)
    try:
        lock.acquire(poll_interval=POLL_SECONDS)
    except Timeout:
        acquired = False
    else:
        acquired = True
    try:
        if acquired:
            now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            _write_holder(path, f"process {os.getpid()} on {socket.gethostname()}, since {now}")
        yield acquired
    finally:
        if acquired:
            _write_holder(path, "")
            if remove:
                with suppress(OSError):  # Windows does not delete open files
                    path.unlink(missing_ok=True)
            lock.release()


def lock_holder(path: Path) -> str:
    """Return who holds a lock that was not acquired, for a message: process, machine and time."""
    try:
        text = path.read_text(encoding="utf-8")[:200].strip()
    except (OSError, ValueError):
        text = ""
    return text or "another process"


def _write_holder(path: Path, text: str) -> None:
    with suppress(OSError):  # a full disk is no reason to refuse the lock
        path.write_text(text, encoding="utf-8")


JSON_KEY = "sha256"
CHECKSUM_KEY = "olss_sha256"
CHECKSUM_BLANK = "0" * 64
# Between key and value Parquet's footer has two bytes: the field's type and the value's length.
PATTERN = re.compile(CHECKSUM_KEY.encode() + rb".{2}([0-9a-f]{64})", re.DOTALL)
CHUNK = 1 << 20


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, with sorted keys, so that equal content gives equal bytes."""
    write_atomic(path, _encode(content))


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is damaged ({error}); delete it and run again.") from error


def add_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content with its checksum as a further entry.

    Examples
    --------
    >>> add_checksum({"a": 1})["sha256"][:8]
    'b606a40d'
    """
    return {**content, JSON_KEY: hashlib.sha256(_encode(content)).hexdigest()}


def verify_checksum(content: dict[str, Any], source: object, *, since: int = 0) -> dict[str, Any]:
    """Return the content without its checksum, or raise `FormatError` if it does not match.

    A "version" before `since` may have none.
    """
    content = dict(content)
    found, version = content.pop(JSON_KEY, None), content.get("version")
    if found is None and type(version) is int and version < since:
        return content
    try:
        matches = found == add_checksum(content)[JSON_KEY]
    except ValueError:  # NaN, which olss never writes
        matches = False
    if not matches:
        raise FormatError(
            f"{source} is damaged or was edited: its checksum does not match. Run it again."
        )
    return content


def _encode(content: Any) -> bytes:
    return (json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


class ChecksumWriter:
    """A file to write to that computes the checksum on the way.

    Write the key and `CHECKSUM_BLANK` once, in one call, then the rest; then call `finish`.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sum = hashlib.sha256()
        self._size = 0
        self._position: int | None = None

    def write(self, data: bytes) -> int:
        """Write bytes."""
        data = bytes(data)
        self._sum.update(data)
        match = PATTERN.search(data)
        if match:
            self._position = self._size + match.start(1)
        self._file.write(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: `open_atomic` flushes the complete file."""

    def close(self) -> None:
        """Do nothing: `open_atomic` closes the complete file."""

    def finish(self) -> None:
        """Put the checksum in its place."""
        if self._position is None:
            raise ValueError(f"{CHECKSUM_KEY} was not written.")
        self._file.seek(self._position)
        self._file.write(self._sum.hexdigest().encode())


def has_checksum(path: Path) -> bool:
    """Return whether a file contains a checksum, right or wrong."""
    return _find_checksum(path) is not None


def verify_file(path: Path) -> None:
    """Raise `FormatError` unless a file is byte for byte what was written."""
    found = _find_checksum(path)
    if found is None:
        raise FormatError(f"{path} has no checksum: it is damaged, truncated or of another kind.")
    position, expected = found
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(min(CHUNK, position - file.tell()) or CHUNK):
            total.update(chunk)
            if file.tell() == position:
                file.seek(len(CHECKSUM_BLANK), 1)
                total.update(CHECKSUM_BLANK.encode())
                position = sys.maxsize
    if total.hexdigest() != expected:
        raise FormatError(
            f"{path} is damaged: its checksum does not match. Restore it from a copy, or create it "
            "again."
        )


def _find_checksum(path: Path) -> tuple[int, str] | None:
    """Return the position and the digits of the last checksum in a file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        reach = 4096
        while True:
            start = max(0, size - reach)
            file.seek(start)
            matches = list(PATTERN.finditer(file.read()))
            if matches:
                return start + matches[-1].start(1), matches[-1][1].decode()
            if start == 0:
                return None
            reach *= 16


# ------------------------------------------------------------------ object storage
# An object is replaced in one request, whole or not at all. Where an object was read before, the
# request is conditional: if someone else has written it in between, nothing is written.

PROTOCOLS = ("s3", "s3a")  # stores with a conditional put


def is_address(path: object) -> bool:
    """Return whether a path is the address of an object, as in ``s3://bucket/name``.

    Examples
    --------
    >>> is_address("s3://bucket/small.parquet"), is_address("small.parquet")
    (True, False)
    """
    return isinstance(path, str) and "://" in path


@contextmanager
def local_copy(address: str, *, changes: bool = True) -> Iterator[Path]:
    """Give a local file with the content of an object, if there is one.

    If the file has changed when the block ends, the object is replaced by it, unless another
    writer has changed the object meanwhile: then `OlssError` is raised. Errors inside the block
    that name the local file name the object instead.

    Parameters
    ----------
    address : str
        As in ``s3://bucket/folder/name``.
    changes : bool
        Whether the file may be changed; otherwise it must exist, and is only read.
    """
    if changes:
        _check_protocol(address)
    fs, path = file_system(address)
    with tempfile.TemporaryDirectory(prefix="olss-") as folder:
        local = Path(folder) / Path(path).name
        tag = _download(fs, path, local, address)
        if tag is None and not changes:
            raise FileNotFoundError(2, "there is no sketch file", address)
        before = _state(local)
        try:
            yield local
        except (OlssError, OSError) as error:
            error.args = tuple(
                arg.replace(str(local), address) if isinstance(arg, str) else arg
                for arg in error.args
            )
            if isinstance(error, OSError) and error.filename == str(local):
                error.filename = address
            raise
        if changes and _state(local) != before:
            unchanged = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
            _upload(fs, path, local, address, unchanged)


def read_tag(address: str) -> str | None:
    """Return the tag of an object, which changes whenever it is written; None if there is none."""
    fs, path = file_system(address)
    with _explain(address):
        fs.invalidate_cache()
        try:
            return str(fs.info(path).get("ETag", ""))
        except FileNotFoundError:
            return None


def put(address: str, local: Path, tag: str | None = None) -> str:
    """Replace an object by the content of a file, and return its new tag.

    With a tag, nothing is written if the object has another one by now.
    """
    _check_protocol(address)
    fs, path = file_system(address)
    return _upload(fs, path, local, address, {} if tag is None else {"IfMatch": tag})


def _download(fs: Any, path: str, local: Path, address: str) -> str | None:
    """Copy an object to a file and return its tag, or None if there is no such object."""
    with _explain(address):
        fs.invalidate_cache()
        try:
            tag = read_tag(address)
            fs.get_file(path, str(local))
        except FileNotFoundError:
            return None
        return tag


def _upload(fs: Any, path: str, local: Path, address: str, condition: dict[str, str]) -> str:
    bucket, key, _ = fs.split_path(path)
    with _explain(address), local.open("rb") as file:
        answer = fs.call_s3("put_object", Bucket=bucket, Key=key, Body=file, **condition)
    return str(answer["ETag"])


def _check_protocol(address: str) -> None:
    if address.partition("://")[0].lower() not in PROTOCOLS:
        raise InputError(
            f"{address}: only {' and '.join(f'{name}://' for name in PROTOCOLS)} can be written, "
            "because other stores offer no way to notice a second writer. Write a local file and "
            "copy it."
        )


def _state(path: Path) -> tuple[int, ...] | None:
    if not path.exists():
        return None
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def file_system(address: str) -> tuple[Any, str]:
    """Return the fsspec file system of an address, and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError("fsspec", "s3", "reading from an address") from error
    try:
        return fsspec.core.url_to_fs(address)  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:  # a further package is needed; no such protocol
        if isinstance(error, ImportError) and address.startswith(("s3:", "s3a:")):
            raise MissingExtraError("s3fs", "s3", "object storage") from error
        raise InputError(f"{address}: cannot be opened ({error}).") from error


@contextmanager
def _explain(address: str) -> Iterator[None]:
    """Raise what a store refuses as one line that names the object."""
    try:
        yield
    except OSError as error:
        reason = " ".join(str(error).split())
        code = _error_code(error)
        if code in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409"):
            raise OlssError(
                f"{address} was written by someone else in the meantime, so nothing was written. "
                "Start from what is there now: run the command again, or load, update and save."
            ) from None
        raise OlssError(f"{address}: the store refused the request ({reason:.300}).") from error


def _error_code(error: BaseException | None) -> str:
    """Return the code of the service's answer behind an error, or ''."""
    while error is not None:
        answer = getattr(error, "response", None)
        if isinstance(answer, dict):
            return str(answer.get("Error", {}).get("Code", ""))
        error = error.__cause__ or error.__context__
    return ""
