"""Files in object storage (S3 and what speaks its protocol), through fsspec.

An object is replaced in one request, whole or not at all. Where an object was read before, the
request is conditional: if someone else has written it in between, nothing is written.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from olss.errors import InputError, MissingExtraError, OlssError

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
