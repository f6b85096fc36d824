from __future__ import annotations

import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from olss.errors import DataError, FormatError, InputError
from olss.memory import sketch_file
from olss.sketch import Sketch
from olss.util.files import CHECKSUM_BLANK, CHECKSUM_KEY, ChecksumWriter
from tests.sketches import fed, fingerprint, stream

OWN = ["olss_task", "olss_weight", "olss_index"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "memory.parquet"


@pytest.fixture
def sketch():
    return fed(Sketch(40, "balanced", seed=0), stream())


def with_metadata(path, change):
    """Rewrite the file with other sketch metadata, as somebody would who knows how to seal it."""
    table = pq.read_table(path)
    state = json.loads(table.schema.metadata[b"olss"])
    change(state)
    sealed(path, table.replace_schema_metadata({b"olss": json.dumps(state)}))


def sealed(path, table):
    with path.open("wb") as file:
        checksummed = ChecksumWriter(file)
        with pq.ParquetWriter(pa.PythonFile(checksummed, mode="w"), table.schema) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({CHECKSUM_KEY: CHECKSUM_BLANK})
        checksummed.finish()


def test_pandas_polars_and_duckdb_open_it_as_a_table(sketch, path):
    import duckdb
    import pandas as pd
    import polars as pl

    sketch.save(path)
    frames = {
        "pandas": pd.read_parquet(path),
        "polars": pl.read_parquet(path).to_pandas(),
        "duckdb": duckdb.sql(f"select * from read_parquet('{path}')").df(),
    }
    for name, frame in frames.items():
        assert list(frame.columns) == ["X", "y", "id", *OWN[:3], "olss_priority"], name
        np.testing.assert_array_equal(np.stack(frame["X"]), sketch.X.reshape(40, -1))
        np.testing.assert_array_equal(frame["y"], sketch.y)
        for column in ("task", "weight", "index"):
            np.testing.assert_array_equal(frame[f"olss_{column}"], getattr(sketch, column))
        np.testing.assert_array_equal(frame["id"], sketch.extra["id"])


TARGETS = {
    "text": np.array(["cat", "a dog", "ü"] * 20),
    "bool": np.arange(60) % 2 == 0,
    "one-hot": np.eye(3)[np.arange(60) % 3],
    "images": np.random.default_rng(0).standard_normal((60, 2, 3)),
    "none": None,
    "small": np.arange(60, dtype=np.uint8) % 9,
    "half": np.arange(60, dtype=np.float16) % 9,
    "tensor": torch.arange(60) % 9,
    "tensor of bools": torch.arange(60) % 2 == 0,
}


@pytest.mark.parametrize("y", TARGETS.values(), ids=TARGETS)
def test_every_kind_of_column_comes_back(y, path):
    X = np.random.default_rng(0).standard_normal((60, 2, 2)).astype(np.float32)
    extra = {"when": np.arange(60).astype("M8[s]"), "who": ["ann", "bob"] * 30}
    sketch = Sketch(30, "weighted", seed=0).update(X, y, task="first", extra=extra)
    sketch.save(path)
    loaded = Sketch.load(path)
    assert fingerprint(loaded) == fingerprint(sketch)
    assert type(loaded.y) is type(sketch.y)


def test_an_empty_sketch_and_its_settings_come_back(path):
    Sketch("task", "paper", scores=0.5, pad=(3, 4), pad_y=(2,), seed=7).save(path)
    loaded = Sketch.load(path)
    assert (loaded.size, loaded.scores, loaded._config.pad, loaded._config.pad_y) == (
        "task",
        0.5,
        (3, 4),
        (2,),
    )
    again = Sketch("task", "paper", scores=0.5, pad=(3, 4), pad_y=(2,), seed=7)
    X, y = np.random.default_rng(0).standard_normal((50, 3, 4)), np.ones((50, 1))
    for other in (loaded, again):
        other.update(X, y).update(X[:20], y[:20])
    assert fingerprint(loaded) == fingerprint(again)


def test_numpy_numbers_are_numbers(path):
    sketch = Sketch(10, pad=(np.int64(3),), seed=0).update(np.eye(3))
    sketch.size = np.int64(4)
    sketch.save(path)
    loaded = Sketch.load(path)
    assert (loaded.size, loaded._config.pad) == (4, (3,))


def test_own_policies_and_feature_maps_must_be_given_again(path):
    def features(X):
        return X[:, :2]

    X = np.random.default_rng(0).standard_normal((50, 4))
    sketch = Sketch(20, "weighted", features=features, seed=0).update(X)
    sketch.save(path)
    bare = Sketch.load(path)
    np.testing.assert_array_equal(bare.X, sketch.X)
    with pytest.raises(InputError, match=r"load\(path, features=...\)"):
        bare.update(X)
    loaded = Sketch.load(path, features=features)
    assert fingerprint(loaded.update(X)) == fingerprint(sketch.update(X))

    def own(pool, rng):
        raise AssertionError

    Sketch(60, own).update(X).save(path)
    with pytest.raises(InputError, match=r"load\(path, policy=...\)"):
        Sketch.load(path).update(X)
    assert Sketch.load(path, policy="recent").update(X).seen == 100
    with pytest.raises(InputError, match="policy must be one of"):
        Sketch.load(path, policy="resent")


def test_a_failed_save_leaves_the_old_file_and_nothing_else(sketch, path, monkeypatch):
    sketch.save(path)
    before = path.read_bytes()

    def fails(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="no space"):
        sketch.update(**stream()[0]).save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_save_replaces_and_leaves_one_file(sketch, path):
    for _ in range(2):
        sketch.save(path)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_truncated_files_are_told(sketch, path, share):
    sketch.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FormatError, match=r"is"):
        Sketch.load(path)


def test_a_flipped_bit_anywhere_is_found(sketch, path):
    sketch.save(path)
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(FormatError):
            Sketch.load(path)


def test_foreign_files_are_told(path):
    path.write_text("id,age\n1,2\n")
    with pytest.raises(FormatError, match="is"):
        Sketch.load(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(FormatError, match="not a sketch"):
        Sketch.load(path)
    with pytest.raises(FileNotFoundError, match="no sketch file"):
        Sketch.load(path.with_name("elsewhere"))


def test_newer_and_changed_files_are_told(sketch, path):
    sketch.save(path)
    with_metadata(path, lambda state: state.update(format=sketch_file.FORMAT + 1))
    with pytest.raises(FormatError, match="has"):
        Sketch.load(path)
    for change in (
        lambda state: state["state"].pop("generator"),
        lambda state: state["state"].update(generator={"state": "x", "inc": "y"}),
        lambda state: state["config"].update(size=-1),
        lambda state: state["config"].update(policy={"name": "best", "with": {}}),
        lambda state: state["config"].update(pad=[-1]),
        lambda state: state["state"].update(seen=3),
        lambda state: state["state"].update(seen=1e300),
        lambda state: state["state"].update(task=None),
        lambda state: state["state"].update(buckets="AAAA"),
        lambda state: state["state"].update(files=[{"address": 3}]),
        lambda state: state["config"].update(half_life=-1),
        lambda state: state["columns"]["X"].update(dtype="<U100000000"),
        lambda state: state["columns"].pop("weight"),
        lambda state: state.update(format="x"),
        lambda state: state["columns"].update(Z={"library": "numpy", "dtype": "f8", "shape": []}),
        lambda state: state["columns"]["X"].update(shape=[5]),
        lambda state: state["columns"]["X"].update(dtype="object_"),
    ):
        sketch.save(path)
        with_metadata(path, change)
        with pytest.raises(FormatError):
            Sketch.load(path)


def test_equal_sketches_give_equal_files(sketch, path):
    sketch.save(path)
    other = path.with_name("other.parquet")
    sketch.copy().save(other)
    assert path.read_bytes() == other.read_bytes()


def test_what_parquet_does_not_hold_is_told_and_leaves_the_file_as_it_was(tmp_path):
    path, rows = tmp_path / "sketch.parquet", {"x": [1.0, 2.0], "more": [{}, {}]}
    Sketch(5, "reservoir").update({"x": [1.0]}).save(path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"cannot"):
        Sketch(5, "reservoir").update(rows).save(path)
    assert path.read_bytes() == before
