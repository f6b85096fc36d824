"""Tables handed over in Python are compressed like the same tables in files."""

from __future__ import annotations

import gzip
import io
import tempfile

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from olss import Sketch
from olss.errors import DataError, FormatError, InputError
from olss.files import compress

TABLE = pa.table({"a": np.random.default_rng(0).standard_normal(500), "t": ["x", "y"] * 250})


class DataSet:
    """As the data sets of Hugging Face hand out Arrow tables."""

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def iter(self, batch_size):
        for start in range(0, 500, batch_size):
            yield TABLE.slice(start, batch_size)


def reader():
    return pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=70))


GIVEN = {
    "table": lambda: TABLE,
    "pandas": lambda: TABLE.to_pandas(),
    "polars": lambda: pl.from_arrow(TABLE),
    "mapping": lambda: TABLE.to_pydict(),
    "reader": reader,
    "list of one": lambda: [TABLE.to_pandas()],
    "iterator": lambda: [TABLE.slice(start, 100) for start in range(0, 500, 100)].__iter__(),
    "data set": DataSet,
    "iterator in a list": lambda: [(TABLE.slice(s, 100) for s in range(0, 500, 100))],
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_rows_are_those_of_the_tables(kind, policy, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    out = tmp_path / "out.parquet"
    summary = compress(GIVEN[kind](), into=out, size=50, policy=policy, seed=0)
    assert (summary.rows, summary.seen) == (50, 500)
    kept = Sketch.load(out, frame="arrow")
    assert kept.X.column("a").to_pylist() == TABLE["a"].take(kept.index).to_pylist()
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_in_one_pass_tables_are_read_as_they_come(kind, policy, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("written to a temporary file")

    monkeypatch.setattr("olss.tables.sources._write", refuse)
    out = tmp_path / "out.parquet"
    options = {"size": 50, "policy": policy, "seed": 0, "passes": 1}
    assert compress(GIVEN[kind](), into=out, **options).new == 500
    sketch = Sketch.load(out, frame="arrow")
    np.testing.assert_array_equal(sketch.X["a"], TABLE["a"].to_numpy()[sketch.index])
    assert abs(sketch.weight.sum() - 500) < (1e-9 if policy == "reservoir" else 150)
    assert compress(GIVEN[kind](), into=out, passes=1).seen == 1_000  # a stream is always new
    assert set(Sketch.load(out).task) <= {"table-1", "table-2"}


def test_an_iterator_that_fails_is_reported_and_nothing_is_written(tmp_path):
    def batches():
        yield TABLE
        raise ConnectionError("the broker is gone")

    with pytest.raises(ConnectionError, match="broker"):
        compress(batches(), into=tmp_path / "out.parquet", size=50, passes=1)
    assert not (tmp_path / "out.parquet").exists()


def test_tables_are_called_by_their_places_and_give_the_same_bytes(tmp_path):
    """Where they were put to be read is nobody's business."""
    other = TABLE.set_column(0, "a", pa.array(np.arange(500.0)))
    pq.write_table(TABLE.slice(0, 100), tmp_path / "in.parquet")
    files = [tmp_path / f"{name}.parquet" for name in "xy"]
    for out in files:
        summary = compress([tmp_path / "in.parquet", TABLE, TABLE], into=out, size=50, seed=0)
        assert "1 file already ingested, 2 new" in str(summary)
        summary = compress(other, into=out)  # another one than any before
        assert (summary.new, summary.notes) == (500, [])
    names = ["table-1", "table-2"]
    assert files[0].read_bytes() == files[1].read_bytes()
    kept = pq.read_table(files[0])
    assert set(names) <= set(kept["olss_task"].to_pylist())
    assert [line["address"] for line in Sketch.load(files[0], frame="arrow")._state.files][
        1:
    ] == names
    wrong = TABLE.rename_columns(["a", "u"])
    with pytest.raises(DataError, match=r"^table-3 lacks the column 't'"):
        compress(wrong, into=files[0])


def test_a_file_is_continued_with_a_frame_and_a_saved_sketch_with_a_file(tmp_path):
    frame = TABLE.to_pandas()
    pq.write_table(TABLE, tmp_path / "in.parquet")
    sketch = Sketch(60, seed=0).update(frame)
    sketch.save(tmp_path / "sketch.parquet")
    summary = compress(tmp_path / "in.parquet", into=tmp_path / "sketch.parquet")
    assert (summary.rows, summary.seen) == (60, 1_000)
    loaded = Sketch.load(tmp_path / "sketch.parquet", frame="arrow")
    assert isinstance(loaded.X, pd.DataFrame)
    both = pd.concat([frame, frame], ignore_index=True)
    pd.testing.assert_frame_equal(loaded.X, both.iloc[loaded.index].reset_index(drop=True))
    loaded.update(frame.assign(a=frame["a"] + 1))
    assert loaded.seen == 1_500


@pytest.mark.parametrize("bad", [3, [3], [[3]], [], np.eye(3)])
def test_what_is_no_table_is_told(bad, tmp_path):
    with pytest.raises(InputError):
        compress(bad, into=tmp_path / "out.parquet", size=3)


def test_categories_that_differ_in_parts_of_a_table_are_united_and_in_an_iterator_told(tmp_path):
    first, second = (
        TABLE.append_column("c", pa.array([a, b] * (len(TABLE) // 2)).dictionary_encode())
        for a, b in ("xy", "zx")
    )
    both = pa.concat_tables([first, second])
    compress(both, into=tmp_path / "out.parquet", size=len(both), policy="reservoir")
    assert (
        Sketch.load(tmp_path / "out.parquet", frame="arrow").X["c"].to_pylist()
        == both["c"].to_pylist()
    )
    with pytest.raises(InputError, match="the same categories, in one order"):
        compress(iter([[first, second]]), into=tmp_path / "other.parquet", size=9)


def as_bytes(kind):
    out = io.BytesIO()
    if kind == "parquet":
        pq.write_table(TABLE, out)
    elif kind == "arrow":
        with pa.ipc.new_file(out, TABLE.schema) as writer:
            writer.write_table(TABLE)
    elif kind == "stream":
        with pa.ipc.new_stream(out, TABLE.schema) as writer:
            writer.write_table(TABLE)
    elif kind == "orc":
        pa.orc.write_table(TABLE, out)
    elif kind == "csv":
        out.write(TABLE.to_pandas().to_csv(index=False).encode())
    else:
        out.write(TABLE.to_pandas().to_json(orient="records", lines=True).encode())
    return out.getvalue()


def pipe(monkeypatch, content):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream", "orc", "csv", "json"])
@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_standard_input_is_read_like_a_table(tmp_path, monkeypatch, kind, packed, policy):
    content = as_bytes(kind)
    pipe(monkeypatch, gzip.compress(content) if packed else content)
    compress("-", into=tmp_path / "a.parquet", size=50, policy=policy, seed=0)
    compress(TABLE, into=tmp_path / "b.parquet", size=50, policy=policy, seed=0)
    piped, given = (Sketch.load(tmp_path / f"{name}.parquet") for name in "ab")
    if policy == "weighted":
        pd.testing.assert_frame_equal(piped.frame, given.frame, check_exact=False, rtol=1e-9)
        return
    # Where rows are counted before they are read, they are sampled by a threshold from the first
    # on: other random numbers, the same law.
    for sketch in (piped, given):
        assert sketch.weight.sum() == pytest.approx(500)
        np.testing.assert_allclose(sketch.X["a"], TABLE["a"].to_numpy()[sketch.index])


@pytest.mark.parametrize("kind", ["parquet", "stream", "csv"])
def test_standard_input_is_read_in_one_pass(tmp_path, monkeypatch, kind):
    pipe(monkeypatch, as_bytes(kind))
    if kind == "stream":  # the others cannot be read as they come
        monkeypatch.setattr("olss.tables.sources._spool_stdin", None)
    out = tmp_path / "out.parquet"
    assert compress("-", into=out, size=50, seed=0, passes=1).seen == 500
    sketch = Sketch.load(out, frame="arrow")
    np.testing.assert_allclose(sketch.X["a"], TABLE["a"].to_numpy()[sketch.index])


def test_standard_input_continues_and_is_known_when_it_comes_again(tmp_path, monkeypatch):
    out = tmp_path / "out.parquet"
    compress(TABLE, into=out, size=50, seed=0)
    more = as_bytes("csv").replace(b"x", b"z")
    for content, new in ((more, 500), (more, 0)):
        pipe(monkeypatch, content)
        assert compress("-", into=out).new == new


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"", DataError, "empty"),
        (b"\x00\x01\x02", FormatError, "unknown format"),
        (gzip.compress(b"a,b", mtime=0)[:9], FormatError, "gzip"),
        (as_bytes("stream")[:200], FormatError, "Arrow stream"),
    ],
)
def test_standard_input_that_cannot_be_read_is_refused(
    tmp_path, monkeypatch, content, error, words
):
    pipe(monkeypatch, content)
    with pytest.raises(error, match=words):
        compress("-", into=tmp_path / "out.parquet", size=5)
    assert not (tmp_path / "out.parquet").exists()
