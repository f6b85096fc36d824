from __future__ import annotations

import gzip
import hashlib
import time
import tracemalloc
import zlib

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from olss.errors import DataError, FormatError, InputError
from olss.tables import sources
from olss.tables.readers import survey
from olss.tables.sources import find


@pytest.fixture
def frame():
    return pd.DataFrame({"x": np.arange(50) / 4, "name": [f"n{i % 3}" for i in range(50)]})


def write(frame, path):
    kind = path.name.partition(".")[2]
    if kind == "parquet":
        frame.to_parquet(path, row_group_size=20)
    elif kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    elif kind in ("feather", "arrow"):
        feather.write_feather(frame, path)
    elif kind == "orc":
        orc.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    elif kind in ("jsonl", "ndjson"):
        frame.to_json(path, orient="records", lines=True)
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(frame.to_json(orient="records", lines=True).encode()))
    elif kind == "npz":
        np.savez_compressed(path, x=frame["x"].to_numpy(), name=frame["name"].to_numpy(str))
    elif kind == "npy":
        np.save(path, frame.to_records(index=False, column_dtypes={"name": "U4"}))
    return path


def read_all(path):
    schema, pieces = survey(find([path])[0], 0)
    return [block for piece in pieces for block in piece.read(schema)]


KINDS = ["parquet", "csv", "csv.gz", "feather", "arrow", "npz", "npy"]
KINDS += ["orc", "jsonl", "ndjson", "jsonl.gz"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("remote", [False, True])
def test_every_format_is_read_back(tmp_path, frame, kind, remote):
    path = write(frame, tmp_path / f"a.{kind}")
    (source,) = find([f"file://{path}" if remote else path])
    schema, pieces = survey(source, 5)
    assert pieces[0].number == 5
    assert len(pieces) == (3 if kind == "parquet" else 1)
    blocks = [block for piece in pieces for block in piece.read(schema)]
    assert [start for start, _ in blocks] == ([0, 20, 40] if kind == "parquet" else [0])
    table = pa.Table.from_batches([batch for _, batch in blocks]).to_pandas()
    np.testing.assert_array_equal(table["x"], frame["x"])
    assert list(table["name"]) == list(frame["name"])
    only = pa.Table.from_batches([b for p in pieces for _, b in p.read(schema, ["x"])])
    assert only.schema.names == ["x"]


def test_arrays_of_several_dimensions_are_vectors(tmp_path):
    X = np.arange(5 * 2 * 3, dtype=np.uint8).reshape(5, 2, 3)
    np.save(tmp_path / "x.npy", X)
    schema, (piece,) = survey(find([tmp_path / "x.npy"])[0], 0)
    assert str(schema.field("X").type) == "fixed_size_list<item: uint8>[6]"
    ((_, batch),) = piece.read(schema)
    np.testing.assert_array_equal(np.stack(batch.column("X").to_pylist()), X.reshape(5, 6))


def test_blocks_are_bounded(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((200_000, 20)))
    schema, (piece,) = survey(find([tmp_path / "x.npy"])[0], 0)
    blocks = [batch for _, batch in piece.read(schema)]
    assert max(batch.nbytes for batch in blocks) <= 16_000_000
    assert sum(batch.num_rows for batch in blocks) == 200_000


def test_folders_globs_and_what_is_left_out(tmp_path, frame):
    (tmp_path / "day=1").mkdir()
    for name in ("b.parquet", "a.parquet", "day=1/c.csv", "_SUCCESS", ".hidden.csv", "notes.txt"):
        (tmp_path / name).write_text("x\n1\n")
    names = [source.address.removeprefix(f"{tmp_path}/") for source in find([tmp_path])]
    assert names == ["a.parquet", "b.parquet", "day=1/c.csv"]
    assert len(find([f"{tmp_path}/*.parquet", tmp_path / "a.parquet"])) == 2
    assert len(find([f"file://{tmp_path}/*.parquet"])) == 2
    assert len(find([f"file://{tmp_path}"])) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [("none.csv", "no such file"), ("*.nothing", "no file"), ("a.txt", "unknown file format")],
)
def test_what_cannot_be_found_is_said(tmp_path, name, message):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=message):
        find([tmp_path / name])
    with pytest.raises(InputError, match="inputs"):
        find([])


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_and_empty_files_are_named(tmp_path, frame, kind):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=rf"a\.{kind} is empty"):
        survey(find([path])[0], 0)
    write(frame, path)
    if kind == "csv":  # has no structure to be damaged
        path.write_text("x,name\n1,a\n2\n")
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises((FormatError, DataError), match=rf"a\.{kind}.*cannot be read"):
        read_all(path)


def test_a_damaged_row_group_is_named(tmp_path, frame):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=20, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    offset = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    middle = offset + column.total_compressed_size // 2
    data[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(data)
    schema, pieces = survey(find([path])[0], 0)
    list(pieces[0].read(schema))
    with pytest.raises(FormatError, match=r"a\.parquet, row group 1: cannot be read"):
        list(pieces[1].read(schema))


def test_files_without_rows_are_named(tmp_path, frame):
    for kind in ("parquet", "csv", "feather"):
        path = write(frame[:0], tmp_path / f"a.{kind}")
        with pytest.raises(DataError, match="has no rows"):
            survey(find([path])[0], 0)


def test_a_changed_schema_is_named(tmp_path, frame):
    write(frame, tmp_path / "a.parquet")
    known, _ = survey(find([tmp_path / "a.parquet"])[0], 0)

    def changed(other):
        path = write(other, tmp_path / "b.parquet")
        return lambda: survey(find([path])[0], 0, known)

    with pytest.raises(DataError, match=r"b\.parquet lacks the column 'x'"):
        changed(frame[["name"]])()
    with pytest.raises(DataError, match=r"b\.parquet: column 'x' is large_string, .* double"):
        changed(frame.assign(x="1"))()
    with pytest.raises(DataError, match=r"b\.parquet has the column 'z'"):
        changed(frame.assign(z=1))()
    schema, (piece, *_) = changed(frame[["name", "x"]])()
    assert schema.names == ["x", "name"]
    assert next(piece.read(schema))[1].schema.names == ["x", "name"]


def test_a_csv_column_keeps_the_type_of_the_first_file(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1.5\n")
    (tmp_path / "b.csv").write_text("x\n2\n")
    schema, _ = survey(find([tmp_path / "a.csv"])[0], 0)
    _, (piece,) = survey(find([tmp_path / "b.csv"])[0], 1, schema)
    assert str(next(piece.read(schema))[1].schema.field("x").type) == "double"


def test_line_breaks_inside_quotes_are_part_of_the_text(tmp_path):
    """Also where a block ends."""
    path, rows = tmp_path / "a.csv", 70_000
    text = "\n".join(["Dear all,", "z, " * 20, "and so on, "]) * 2
    pd.DataFrame({"key": range(rows), "note": text}).to_csv(path, index=False)
    table = pa.Table.from_batches([batch for _, batch in read_all(path)])
    assert table["key"].to_pylist() == list(range(rows))
    assert table["note"].unique().to_pylist() == [text]


def test_what_a_csv_file_leaves_empty_is_missing(tmp_path):
    """As in the same table as Parquet; the text NA is text."""
    path = tmp_path / "a.csv"
    path.write_text('n,carrier\n1,UA\n,\n3,""\nNA,NA\n')
    wanted = {"n": [1, None, 3, None], "carrier": ["UA", None, None, "NA"]}
    ((_, batch),) = read_all(path)
    assert batch.to_pydict() == wanted
    known = pa.schema({"n": pa.int64(), "carrier": pa.dictionary(pa.int32(), pa.large_string())})
    schema, (piece,) = survey(find([path])[0], 0, known)
    ((_, batch),) = piece.read(schema)
    assert batch.to_pydict() == wanted


def test_bad_arrays_are_refused(tmp_path):
    def check(message, **arrays):
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises((DataError, FormatError), match=message):
            survey(find([tmp_path / "a.npz"])[0], 0)

    check("same number of rows", x=np.zeros(3), y=np.zeros(4))
    check("single number", x=np.float64(3))
    check("complex", x=np.zeros(3, complex))
    check("Fortran", x=np.asfortranarray(np.zeros((3, 2))))


def test_fingerprints_tell_contents_apart(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n1\n")
    (tmp_path / "c.csv").write_text("x\n2\n")
    a, b, c = (source.fingerprint() for source in find([tmp_path]))
    assert a == b != c


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,x\n1,2\n")
    with pytest.raises(DataError, match="two columns named 'x'"):
        survey(find([tmp_path / "a.csv"])[0], 0)


def test_text_by_views_is_read(tmp_path):
    table = pa.table({"s": pa.array(["a", None, "b"], pa.string_view()), "x": [1, 2, 3]})
    for name in ("a.arrow", "b.feather"):
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
        ((_, batch),) = read_all(tmp_path / name)
        assert batch.schema.field("s").type == pa.large_string()
        assert batch.take(pa.array([2, 0])).column("s").to_pylist() == ["b", "a"]


def test_the_text_of_polars_files_is_read(tmp_path):
    frame = pl.DataFrame(
        {"s": ["a", None, "b"], "c": pl.Series(["x", "y", "x"], dtype=pl.Categorical)}
    )
    frame.write_ipc(tmp_path / "a.arrow")
    ((_, batch),) = read_all(tmp_path / "a.arrow")
    assert batch.take(pa.array([2, 1])).to_pydict() == frame[[2, 1]].to_dict(as_series=False)


def test_a_csv_file_in_another_encoding_is_said_to_be(tmp_path):
    (tmp_path / "a.csv").write_bytes("größe,x\n1,2\n".encode("latin-1"))
    with pytest.raises(FormatError, match=r"a\.csv: .*not UTF-8.*iconv"):
        survey(find([tmp_path / "a.csv"])[0], 0)


def test_an_arrow_file_of_one_batch_is_read_in_slices(tmp_path):
    batch = pa.record_batch({f"x{i}": np.zeros(500_000) for i in range(20)})  # 80 MB
    with pa.ipc.new_file(tmp_path / "a.arrow", batch.schema) as writer:
        writer.write_batch(batch)
    del batch
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    schema, (piece,) = survey(find([tmp_path / "a.arrow"])[0], 0)
    most, rows = 0, 0
    for _, block in piece.read(schema):
        python = tracemalloc.get_traced_memory()[1]
        most = max(most, python + pa.total_allocated_bytes() - before)
        rows += block.num_rows
    tracemalloc.stop()
    assert rows == 500_000
    assert most < 32_000_000


def test_a_column_may_be_nullable_in_one_file_and_not_in_another(tmp_path):
    strict = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    pq.write_table(pa.table([[1, 2]], schema=strict), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [3, None]}), tmp_path / "b.parquet")
    for first, second in (("a", "b"), ("b", "a")):
        known, one = survey(find([tmp_path / f"{first}.parquet"])[0], 0)
        schema, two = survey(find([tmp_path / f"{second}.parquet"])[0], 1, known)
        batches = [batch for piece in one + two for _, batch in piece.read(schema)]
        values = pa.Table.from_batches(batches).column("x").to_pylist()
        assert sorted(values, key=str) == [1, 2, 3, None]


def test_types_are_promoted_over_files(tmp_path):
    pq.write_table(pa.table({"n": [1, 2], "gone": pa.nulls(2)}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("n,gone\n1.5,x\n,y\n")
    (tmp_path / "c.jsonl").write_text('{"gone": "z", "n": 7}\n{"n": null}\n')
    schema, pieces = None, []
    for source in find([tmp_path]):
        schema, more = survey(source, len(pieces), schema)
        pieces += more
    batches = [batch for piece in pieces for _, batch in piece.read(schema)]
    assert pa.Table.from_batches(batches).to_pydict() == {
        "n": [1.0, 2.0, 1.5, None, 7.0, None],
        "gone": [None, None, "x", "y", "z", None],
    }


def test_a_value_too_large_for_the_promoted_type_is_named(tmp_path):
    pq.write_table(pa.table({"n": [2**60 + 1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [0.5]}), tmp_path / "b.parquet")
    known, (piece,) = survey(find([tmp_path / "a.parquet"])[0], 0)
    schema, _ = survey(find([tmp_path / "b.parquet"])[0], 1, known)
    with pytest.raises(DataError, match=r"a\.parquet, row group 0: column 'n' .* without loss"):
        list(piece.read(schema))


def test_long_json_lines_and_unexpected_fields(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"x": {i}, "s": "{"é" * 200}"}}\n' for i in range(60_000)))
    blocks = read_all(path)
    assert len(blocks) > 1
    assert [x for _, block in blocks for x in block.column("x").to_pylist()] == list(range(60_000))
    with path.open("a") as file:
        file.write('{"x": 1, "s": "", "new": 1}\n')
    with pytest.raises(DataError, match=r"a\.jsonl: some lines have .*'new'"):
        read_all(path)


def test_a_missing_package_for_an_address_is_said(monkeypatch):
    from fsspec.registry import known_implementations

    entry = {"class": "not_there.FileSystem", "err": "Install not_there to access that"}
    monkeypatch.setitem(known_implementations, "elsewhere", entry)
    with pytest.raises(InputError, match=r"elsewhere://x/a\.csv.*Install not_there"):
        find(["elsewhere://x/a.csv"])
    with pytest.raises(InputError, match=r"nowhere://x/a\.csv.*nowhere"):
        find(["nowhere://x/a.csv"])


def test_time_grows_with_the_number_of_columns_not_its_square(tmp_path):
    def seconds(n):
        path = tmp_path / f"{n}.arrow"
        table = pa.table({f"c{i}": np.zeros(2) for i in range(n)})
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        known = pa.schema([(name, pa.float64()) for name in reversed(table.schema.names)])
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            schema, (piece,) = survey(find([path])[0], 0, known)
            list(piece.read(schema))
            best = min(best, time.perf_counter() - start)
        return best

    # Ten times the columns; what is quadratic would take a hundred times as long.
    assert seconds(10_000) < 40 * seconds(1_000)


@pytest.mark.parametrize(
    ("place", "value"), [(10, 99), (8, 1)], ids=["unknown compression", "a password"]
)
def test_archives_that_zipfile_cannot_open_are_named(tmp_path, place, value):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.ones((5, 2)))
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + place] = value
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"a\.npz: cannot be read"):
        survey(find([path])[0], 0)


def test_a_fingerprint_is_that_of_the_blocks_in_their_order(tmp_path, monkeypatch):
    """However many stretches are read at the same time."""
    monkeypatch.setattr(sources, "FINGERPRINT_BLOCK", 100)
    path = tmp_path / "a.csv"
    data = np.random.default_rng(0).bytes(2_345)
    path.write_bytes(data)
    blocks = [data[i : i + 100] for i in range(0, len(data), 100)]
    digest = hashlib.blake2b(b"2345", digest_size=16)
    for block in blocks:
        digest.update(zlib.crc32(block).to_bytes(4, "little"))
    for stretch in (100, 700, 10_000):
        monkeypatch.setattr(sources, "FINGERPRINT_STRETCH", stretch)
        assert sources.Source.local(str(path), "csv").fingerprint() == digest.hexdigest()
