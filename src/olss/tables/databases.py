"""Read the result of a query from a database, as record batches.

PostgreSQL and SQLite are read through ADBC drivers, DuckDB through its own Arrow reader. All
passes see one snapshot: they run in one transaction that only reads. A password in an address is
used to connect and appears nowhere else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from olss.errors import DataError, InputError, MissingExtraError
from olss.tables.sources import BatchStream, Source
from olss.util import checks

FILE_KINDS = {
    ".duckdb": "duckdb",
    ".ddb": "duckdb",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
}
SERVERS = {"postgresql": "postgresql", "postgres": "postgresql"}
BATCH_ROWS = 65_536
CONNECT_SECONDS = 30  # unless the address or PGCONNECT_TIMEOUT says otherwise
Read = Callable[[str], Any]  # returns the result of a query as a reader of record batches
SECRETS = ("password", "sslpassword", "passfile")  # parameters that may stand in an address


@dataclass
class Position:
    """How far a query was read: the largest value of a column.

    Attributes
    ----------
    column : str
    before : int, float, str or None
        The largest value that earlier runs have read.
    largest : object
        The largest value that this run has read so far.
    """

    column: str
    before: Any = None
    largest: Any = None

    def advance(self, batch: Any) -> None:
        """Take note of the values of a record batch."""
        import pyarrow.compute as pc

        found = pc.max(batch.column(self.column)).as_py()
        if found is not None:
            self.largest = found if self.largest is None else max(self.largest, found)

    def to_json(self) -> dict[str, Any]:
        """Return the column and the largest value of all runs, as a number or a string."""
        value = self.before if self.largest is None else self.largest
        if not isinstance(value, int | float | str | None):
            value = value.isoformat() if hasattr(value, "isoformat") else str(value)
        return {"column": self.column, "value": value}


def database_kind(address: Any) -> str | None:
    """Return the kind of database at an address or in a file, by its scheme or ending, or None."""
    if not isinstance(address, str | os.PathLike):
        return None
    text = os.fspath(address)
    scheme, found, _ = text.partition("://")
    return SERVERS.get(scheme.lower()) if found else FILE_KINDS.get(Path(text).suffix.lower())


def redact(address: str) -> str:
    """Return an address without passwords.

    Examples
    --------
    >>> redact("postgresql://ada:secret@db.example.com:5432/shop?sslpassword=x&sslmode=require")
    'postgresql://ada@db.example.com:5432/shop?sslmode=require'
    """
    if "://" not in address:
        return re.sub(r"(?i)(password\s*=\s*)('[^']*'|\S+)", r"\1***", address)
    parts = urlsplit(address)
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    options = [pair for pair in parse_qsl(parts.query) if pair[0].lower() not in SECRETS]
    return parts._replace(
        netloc=f"{name}@{host}" if name else host, query=urlencode(options)
    ).geturl()


@contextmanager
def open_query(
    inputs: Any, query: str, since: str | None, find_last: Callable[[str], Any]
) -> Iterator[Source]:
    """Connect, and give the result of a query as a source to read inside the context.

    Parameters
    ----------
    inputs : str or path
        Address of a PostgreSQL server, or a file of SQLite or DuckDB.
    query : str
        One statement that returns rows.
    since : str, optional
        A column of the result: rows are read whose value is larger than that of earlier runs.
    find_last : callable
        Returns the largest value that was read before of a query at an address, or None.
    """
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"query must be a statement that returns rows, found {query!r}.")
    address = inputs[0] if isinstance(inputs, list | tuple) and len(inputs) == 1 else inputs
    kind = database_kind(address)
    if kind is None:
        raise InputError(
            "query: inputs must be one database, postgresql://USER@HOST/NAME or a file that ends "
            f"in {', '.join(FILE_KINDS)}, found {redact(str(address)):.80}."
        )
    place, text = redact(os.fspath(address)), " ".join(query.split()).rstrip("; ")
    name = f"{place}: {text}"
    position = None if since is None else Position(since, find_last(name))
    if position is not None:
        text = f"select * from ({text}) as olss_rows"
        if position.before is not None:
            column = position.column.replace('"', '""')
            text += f' where "{column}" > {_literal(position.before)}'
    with _explain(place), OPEN[kind](os.fspath(address)) as read:

        def start() -> Iterator[Any]:
            with _explain(place):
                reader = read(text)
                _check_types(reader.schema, place)
                if position is not None:
                    checks.column("since", position.column, reader.schema.names)
                for batch in reader:
                    if position is not None:
                        position.advance(batch)
                    yield batch

        def remembers() -> dict[str, Any]:
            return {} if position is None else {"since": position.to_json()}

        stream = BatchStream(start, repeatable=True, remembers=remembers)
        yield Source(name, "stream", 0, stream=stream)


@contextmanager
def _open_adbc(module: str, package: str, address: str, begin: str) -> Iterator[Read]:
    """Begin a transaction that only reads, through an ADBC driver."""
    driver = _load(module, package)
    with driver.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(begin)

        def read(query: str) -> Any:
            cursor.execute(query)
            return cursor.fetch_record_batch()

        yield read


def _open_postgresql(address: str) -> AbstractContextManager[Read]:
    if "connect_timeout" not in address and "PGCONNECT_TIMEOUT" not in os.environ:
        address += f"{'&' if '?' in address else '?'}connect_timeout={CONNECT_SECONDS}"
    begin = "begin isolation level repeatable read read only"
    package = "adbc-driver-postgresql"
    return _open_adbc("adbc_driver_postgresql.dbapi", package, address, begin)


def _open_sqlite(path: str) -> AbstractContextManager[Read]:
    if not Path(path).is_file():  # the driver reports a lack of memory
        raise FileNotFoundError(2, "there is no database", path)
    address = f"file:{quote(path)}?mode=ro"
    return _open_adbc("adbc_driver_sqlite.dbapi", "adbc-driver-sqlite", address, "begin")


@contextmanager
def _open_duckdb(path: str) -> Iterator[Read]:
    """Begin a transaction that only reads a DuckDB file."""
    with _load("duckdb", "duckdb").connect(path, read_only=True) as connection:
        connection.begin()

        def read(query: str) -> Any:
            found = connection.sql(query)
            if found is None:
                raise InputError("query returns no rows; it must be a select.")
            is_new = hasattr(found, "to_arrow_reader")
            return (found.to_arrow_reader if is_new else found.fetch_arrow_reader)(BATCH_ROWS)

        yield read


OPEN = {"postgresql": _open_postgresql, "sqlite": _open_sqlite, "duckdb": _open_duckdb}


def _load(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(package, "databases", "reading this database") from error


def _literal(value: Any) -> str:
    """Return a number or a string as SQL."""
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value)


def _check_types(schema: Any, place: str) -> None:
    """Raise `DataError` with the first column of a type that cannot be read or kept."""
    import pyarrow.types as kinds

    for field in schema:
        unknown = re.search(r"arrow\.opaque\[.*?type_name=(\w+)", str(field.type))
        if unknown is not None or kinds.is_interval(field.type):
            name = "interval" if unknown is None else unknown[1]
            raise DataError(
                f"{place}: column {field.name!r} has the type {name}, which is not supported. Cast "
                f"it in the query, as in {field.name}::float8 or {field.name}::text, or leave it "
                "out."
            )


@contextmanager
def _explain(place: str) -> Iterator[None]:
    """Raise what a driver raises as `DataError`, in one line that begins with the place."""
    try:
        yield
    except Exception as error:
        root = type(error).__module__.partition(".")[0]
        from_arrow = isinstance(error, OSError) and error.errno is None  # in the middle of a result
        if root not in ("adbc_driver_manager", "_duckdb", "duckdb", "pyarrow") and not from_arrow:
            raise
        reason = " ".join(str(error).split())
        raise DataError(
            f"{place}: the query failed, so nothing was written ({reason:.300})."
        ) from None
