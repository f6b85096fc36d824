"""Queries of real databases: a PostgreSQL server of this test's own, SQLite and DuckDB files."""

from __future__ import annotations

import glob
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from olss import Sketch, compress
from olss.errors import DataError, InputError
from olss.files import inspect
from olss.tables.databases import redact

ROWS = 3_000
PASSWORD = "tr0ub4dor%26three"  # of a character that must be quoted in an address
COLUMNS = "id integer, x double precision, kind text, label integer"


def rows(first=0, count=ROWS):
    rng = np.random.default_rng(first)
    numbers = range(first, first + count)
    return [
        (i, x, "abc"[i % 3], int(x > 0))
        for i, x in zip(numbers, rng.standard_normal(count).tolist(), strict=True)
    ]


def program(name):
    found = shutil.which(name) or next(iter(glob.glob(f"/usr/lib/postgresql/*/bin/{name}")), None)
    if found is None:
        pytest.skip(f"no PostgreSQL server is installed: {name} was not found")
    return found


@pytest.fixture(scope="module")
def server():
    """The address of a PostgreSQL server that asks for a password."""
    pytest.importorskip("adbc_driver_postgresql")
    initdb, postgres = program("initdb"), program("postgres")
    as_root = os.geteuid() == 0  # as which PostgreSQL does not run
    owner = {"user": "postgres", "group": "postgres"} if as_root else {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="olss-pg-"))
    secret = folder / "password"
    secret.write_text("tr0ub4dor&three")
    if as_root:
        shutil.chown(folder, "postgres", "postgres")
        shutil.chown(secret, "postgres", "postgres")
    data = str(folder / "data")
    create = [initdb, "-D", data, "-U", "ada", "-A", "scram-sha-256", f"--pwfile={secret}"]
    subprocess.run([*create, "--no-sync"], check=True, capture_output=True, cwd=folder, **owner)
    options = ["-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"]
    running = subprocess.Popen(
        [postgres, "-D", data, *options, "-c", "fsync=off"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        **owner,
    )
    for line in running.stderr:
        if "ready to accept connections" in line:
            break
    threading.Thread(target=running.stderr.read, daemon=True).start()
    yield f"postgresql://ada:{PASSWORD}@127.0.0.1:{port}/postgres"
    running.terminate()
    running.wait(20)
    running.stderr.close()
    shutil.rmtree(folder)


def fill_postgresql(address, values, create=True):
    import adbc_driver_postgresql.dbapi as driver

    with driver.connect(address) as connection, connection.cursor() as cursor:
        if create:
            cursor.execute("drop table if exists orders")
            cursor.execute(f"create table orders ({COLUMNS})")
        names = ("id", "x", "kind", "label")
        columns = dict(zip(names, zip(*values, strict=True), strict=True))
        table = pa.table({name: list(column) for name, column in columns.items()})
        for name in ("id", "label"):
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(pa.int32()))
        cursor.adbc_ingest("orders", table, mode="append")
        connection.commit()


def fill_sqlite(address, values, create=True):
    with sqlite3.connect(address) as connection:
        if create:
            connection.execute(f"create table orders ({COLUMNS})")
        connection.executemany("insert into orders values (?, ?, ?, ?)", values)
    connection.close()


def fill_duckdb(address, values, create=True):
    import duckdb

    with duckdb.connect(address) as connection:
        if create:
            connection.execute(f"create table orders ({COLUMNS})")
        connection.executemany("insert into orders values (?, ?, ?, ?)", values[:300])
        names = ["id", "x", "kind", "label"]
        rest = pa.table(dict(zip(names, map(list, zip(*values[300:], strict=True)), strict=True)))
        connection.register("rest", rest)
        connection.execute("insert into orders select * from rest")


FILL = {"postgresql": fill_postgresql, "sqlite": fill_sqlite, "duckdb": fill_duckdb}


@pytest.fixture(params=FILL)
def database(request, tmp_path):
    """(address, function that fills it) of a database of each kind, with a table `orders`."""
    kind = request.param
    if kind == "sqlite":
        pytest.importorskip("adbc_driver_sqlite")
    if kind == "postgresql":
        address = request.getfixturevalue("server")
    else:
        address = str(tmp_path / f"shop.{kind}")
    FILL[kind](address, rows())
    return address, FILL[kind]


@pytest.mark.parametrize("passes", [None, 2])
def test_a_query_is_compressed_like_a_table(database, passes, tmp_path):
    address, _ = database
    out = tmp_path / "out.parquet"
    query = "select * from orders order by id"
    options = {"size": 100, "target": "label", "exclude": ["id"], "seed": 0}
    summary = compress(address, query=query, into=out, passes=passes, **options)
    assert (summary.rows, summary.seen, summary.files) == (100, ROWS, 1)
    sketch = Sketch.load(out, frame="arrow")
    np.testing.assert_array_equal(sketch.X["id"], sketch.index)
    x = np.array([row[1] for row in rows()])
    np.testing.assert_array_equal(sketch.X["x"], x[sketch.index])
    assert abs(sketch.weight.sum() / ROWS - 1) < 0.2
    # Chunks come in other sizes than from a file, so that other rows are drawn; as many of each.
    assert sketch.error().relative < 0.5
    labels = np.array([row[3] for row in rows()])
    assert abs(sketch.weight @ np.asarray(sketch.y) / labels.sum() - 1) < 0.2


def test_later_runs_read_what_is_new_since(database, tmp_path):
    address, fill = database
    out = tmp_path / "out.parquet"
    query = "select id, x, kind from orders"

    def run(**options):
        return compress(address, query=query, since="id", into=out, **options)

    assert run(size=100, seed=0).new == ROWS
    before = out.read_bytes()
    assert run().new == 0
    assert out.read_bytes() == before
    fill(address, rows(ROWS, 400), create=False)
    assert run().new == 400
    sketch = Sketch.load(out, frame="arrow")
    assert sketch.seen == ROWS + 400
    assert max(sketch.X["id"].to_pylist()) >= ROWS  # 100 of 3,400: twelve are expected
    assert run().new == 0


def test_passwords_appear_nowhere(server, tmp_path, capfd, caplog):
    fill_postgresql(server, rows())
    out = tmp_path / "out.parquet"
    caplog.set_level("DEBUG")
    summary = compress(server, query="select * from orders", into=out, size=50, seed=0)
    texts = [str(summary), caplog.text, *capfd.readouterr(), str(inspect(out))]
    texts.append(out.read_bytes().decode("latin-1"))
    texts.append(json.dumps([str(task) for task in Sketch.load(out).task]))
    wrong = server.replace("tr0ub4dor", "tr0ub4dorx")
    for address, query in ((wrong, "select 1"), (server, "select nope"), (server, None)):
        with pytest.raises((DataError, InputError)) as error:
            compress(address, query=query, into=out)
        texts.append(repr(error.value) + str(error.value.__cause__))
    assert all("tr0ub4dor" not in text and "three" not in text for text in texts)
    assert any("ada@127.0.0.1" in text for text in texts)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("select nope from orders", "nope"),
        ("selec", "syntax"),
        ("select id, 1 / (id - 2900) as x from orders order by id", "division by zero"),
        ("select id, x::numeric from orders", "column 'x' has the type numeric.*Cast it"),
        ("select id, interval '1 day' as y from orders", "column 'y' has the type interval.*Cast"),
    ],
)
def test_a_query_that_fails_leaves_the_file_as_it_was(server, query, words, tmp_path):
    fill_postgresql(server, rows())
    out = tmp_path / "out.parquet"
    compress(server, query="select id, x from orders", into=out, size=50, seed=0)
    before = out.read_bytes()
    for passes in (1, 2):
        with pytest.raises(DataError, match=words):
            compress(server, query=query, into=out, passes=passes)
    assert out.read_bytes() == before


def test_arrays_of_numbers_are_vectors(server, tmp_path):
    fill_postgresql(server, rows())
    query = "select id, array[x, x * x]::real[] as vector from orders"
    summary = compress(
        server, query=query, into=tmp_path / "out.parquet", size=50, exclude=["id"], seed=0
    )
    assert summary.columns == [
        ("id", "passthrough", "not asked for"),
        ("vector", "vector", "2 numbers"),
    ]


def test_a_connection_lost_in_the_second_pass_leaves_nothing(server, tmp_path):
    import adbc_driver_postgresql.dbapi as driver

    fill_postgresql(server, rows())

    def disconnect(what, done, total):
        with (
            driver.connect(server, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where pid <> pg_backend_pid() and query like '%orders%'"
            )
            cursor.fetchall()

    out = tmp_path / "out.parquet"
    with pytest.raises(DataError, match=r"ada@127\.0\.0\.1.*the query failed"):
        compress(
            server, query="select * from orders", into=out, size=9, passes=2, progress=disconnect
        )
    assert not out.exists()


def test_two_passes_see_one_snapshot(server, tmp_path):
    fill_postgresql(server, rows())
    added = []

    def insert(what, done, total):
        if not added:
            added.append(True)
            fill_postgresql(server, rows(ROWS, 50), create=False)

    out = tmp_path / "out.parquet"
    summary = compress(
        server, query="select * from orders", into=out, size=9, passes=2, progress=insert
    )
    assert added
    assert summary.seen == ROWS


def test_a_server_side_cursor_is_read_as_it_comes(server, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    fill_postgresql(server, rows())
    sizes = []
    with psycopg.connect(server) as connection, connection.cursor(name="olss") as cursor:
        cursor.execute("select * from orders order by id")
        names = [column.name for column in cursor.description]

        def tables():
            while some := cursor.fetchmany(1_000):
                sizes.append(len(some))
                yield pa.table(dict(zip(names, zip(*some, strict=True), strict=True)))

        compress(tables(), into=tmp_path / "s.parquet", size=200, target="label", passes=1, seed=0)
    assert sizes == [1_000] * 3  # each row came once
    sketch = Sketch.load(tmp_path / "s.parquet", frame="arrow")
    assert sketch.seen == ROWS
    np.testing.assert_array_equal(sketch.X["id"], sketch.index)
    x = np.array([row[1] for row in rows()])
    np.testing.assert_array_equal(sketch.X["x"], x[sketch.index])


def test_a_reader_of_adbc_is_read_as_it_comes(server, tmp_path):
    import adbc_driver_postgresql.dbapi as driver

    fill_postgresql(server, rows())
    with driver.connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("select * from orders order by id")
        compress(cursor.fetch_record_batch(), into=tmp_path / "s.parquet", size=200, passes=1)
    sketch = Sketch.load(tmp_path / "s.parquet", frame="arrow")
    assert sketch.seen == ROWS
    np.testing.assert_array_equal(sketch.X["id"], sketch.index)


def test_what_is_no_database_is_told(tmp_path):
    out = tmp_path / "out.parquet"
    for inputs, query, words in (
        ("orders.csv", "select 1", "inputs must be one database"),
        ("host=a password=hidden", "select 1", r"password=\*\*\*"),
        (["a.db", "b.db"], "select 1", "inputs must be one database"),
        ("shop.duckdb", None, "say what to read.*--query"),
        ("shop.duckdb", " ", "query must be a statement"),
    ):
        with pytest.raises(InputError, match=words):
            compress(inputs, query=query, into=out, size=5)
    with pytest.raises(InputError, match="since= is for a database"):
        compress("a.csv", since="id", into=out, size=5)
    with pytest.raises(FileNotFoundError):
        compress(str(tmp_path / "none.sqlite"), query="select 1", into=out, size=5)
    with pytest.raises(DataError, match=r"none\.duckdb.*does not exist"):
        compress(str(tmp_path / "none.duckdb"), query="select 1", into=out, size=5)
    unreachable = "postgresql://ada:secret@127.0.0.1:9/shop"
    with pytest.raises(DataError, match=r"postgresql://ada@127\.0\.0\.1:9/shop.*refused"):
        compress(unreachable, query="select 1", into=out, size=5)
    assert not out.exists()


def test_addresses_are_shown_without_passwords():
    assert redact("postgresql://host/name") == "postgresql://host/name"
    assert redact("postgresql://ada:a@b:c@host/name") == "postgresql://ada@host/name"
    assert redact("postgresql://h/n?user=a&password=b") == "postgresql://h/n?user=a"
