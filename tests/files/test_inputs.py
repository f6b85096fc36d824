from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from olss.errors import DataError, FormatError, InputError
from olss.files.inputs import find, survey


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
    elif kind == "npz":
        np.savez_compressed(path, x=frame["x"].to_numpy(), name=frame["name"].to_numpy(str))
    elif kind == "npy":
        np.save(path, frame.to_records(index=False, column_dtypes={"name": "U4"}))
    return path


def read_all(path):
    schema, pieces = survey(find([path])[0], 0)
    return [block for piece in pieces for block in piece.read(schema)]


KINDS = ["parquet", "csv", "csv.gz", "feather", "arrow", "npz", "npy"]


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
    [("none.csv", "no such file"), ("*.nothing", "no file there"), ("a.txt", "known by their")],
)
def test_what_cannot_be_found_is_said(tmp_path, name, message):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=message):
        find([tmp_path / name])
    with pytest.raises(InputError, match="no input"):
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
    with pytest.raises(DataError, match=r"b\.parquet: column 'x' is int64, .* double"):
        changed(frame.assign(x=1))()
    with pytest.raises(DataError, match=r"b\.parquet has a column 'z'"):
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


def test_bad_arrays_are_refused(tmp_path):
    def check(message, **arrays):
        np.savez(tmp_path / "a.npz", **arrays)
        with pytest.raises((DataError, FormatError), match=message):
            survey(find([tmp_path / "a.npz"])[0], 0)

    check("one row per example each", x=np.zeros(3), y=np.zeros(4))
    check("single number", x=np.float64(3))
    check("holds complex", x=np.zeros(3, complex))
    check("Fortran", x=np.asfortranarray(np.zeros((3, 2))))


def test_fingerprints_tell_contents_apart(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "b.csv").write_text("x\n1\n")
    (tmp_path / "c.csv").write_text("x\n2\n")
    a, b, c = (source.fingerprint() for source in find([tmp_path]))
    assert a == b != c


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,x\n1,2\n")
    with pytest.raises(DataError, match="two columns called 'x'"):
        survey(find([tmp_path / "a.csv"])[0], 0)
