"""Tables in, tables out: every cell of a kept row is what it was."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import olss
from olss.errors import DataError, InputError, OlssWarning
from olss.files import compress
from olss.memory.policies import POLICIES
from olss.sketch import Sketch

ROWS = 90


def mixed(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "number": rng.standard_normal(rows),
            "whole": pd.array(rng.integers(0, 99, rows), dtype="Int64"),
            "flag": rng.random(rows) < 0.5,
            "text": rng.choice(["a", "bb", "ccc"], rows),
            "kind": pd.Categorical(rng.choice(["lo", "hi"], rows), ["lo", "mid", "hi"], True),
            "when": pd.Timestamp("2026-01-01", tz="Europe/Paris")
            + pd.to_timedelta(rng.integers(0, 10**6, rows), "s"),
            "tags": [["x"] * int(k) for k in rng.integers(0, 3, rows)],
            "late": rng.choice(["no", "yes"], rows),
        }
    )
    frame.loc[::7, "number"] = np.nan
    frame.loc[1::9, "whole"] = pd.NA
    frame.loc[2::11, "text"] = None
    return frame


def same(sketch, whole):
    """The rows of a sketch are those of the stream at their places, cell by cell."""
    wanted = whole.drop(columns="late").iloc[sketch.index].reset_index(drop=True)
    pd.testing.assert_frame_equal(sketch.X, wanted)
    pd.testing.assert_series_equal(
        sketch.y, whole["late"].iloc[sketch.index].reset_index(drop=True)
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_come_back_as_they_were_through_everything(policy, tmp_path):
    parts = [mixed(seed=seed) for seed in range(3)]
    whole = pd.concat(parts, ignore_index=True)
    sketch = Sketch(40, policy, seed=0)
    for task, part in enumerate(parts):
        sketch.update(part.sample(frac=1, axis=1, random_state=task), y="late", task=task)
        assert len(sketch) == 40
    # A frame whose columns came in another order: those of the first are kept.
    order = [name for name in sketch.X.columns]
    whole = whole[[*order, "late"]]
    same(sketch, whole)
    sketch.save(tmp_path / "sketch.parquet")
    loaded = Sketch.load(tmp_path / "sketch.parquet")
    same(loaded, whole)
    again = mixed(seed=9)[whole.columns]
    whole = pd.concat([whole, again], ignore_index=True)
    same(loaded.update(again, y="late", task=3), whole)
    if getattr(sketch.policy, "mergeable", False):
        other = Sketch(40, policy, seed=1).update(mixed(seed=8), y="late", task=4)
        both = pd.concat([whole, mixed(seed=8)[whole.columns]], ignore_index=True)
        same(loaded.merge(other), both)


ARROW = {
    "int": st.integers(-(2**62), 2**62),
    "float": st.floats(allow_infinity=False),
    "text": st.text(max_size=5),
    "bool": st.booleans(),
    "date": st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
    "time": st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1)),
    "bytes": st.binary(max_size=4),
    "list": st.lists(st.integers(0, 9), max_size=3),
}
TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "time": pa.timestamp("us"),
    "bytes": pa.binary(),
    "list": pa.list_(pa.int64()),
}


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(ARROW)), min_size=1, max_size=5))
    rows = draw(st.integers(1, 30))
    columns = {
        f"{kind}{i}": pa.array(
            draw(st.lists(st.none() | ARROW[kind], min_size=rows, max_size=rows)), TYPES[kind]
        )
        for i, kind in enumerate(kinds)
    }
    return pa.table(columns)


def cells(rows):
    table = rows if isinstance(rows, pa.Table) else pa.table(rows)
    return [
        [None if isinstance(v, float) and v != v else v for v in column.to_pylist()]
        for column in table.columns
    ]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(table=tables(), library=st.sampled_from(["pyarrow", "polars", "mapping"]))
def test_any_schema_comes_back_through_update_save_load_and_compress(table, library, tmp_path):
    given_rows = {
        "pyarrow": lambda: table,
        "polars": lambda: pl.from_arrow(table),
        "mapping": lambda: {name: table[name].to_pylist() for name in table.schema.names},
    }[library]()
    sketch = Sketch(10, "reservoir", seed=0).update(given_rows)
    wanted = [[column[i] for i in sketch.index] for column in cells(table)]
    path = tmp_path / "any.parquet"
    sketch.save(path)
    for found in (sketch, Sketch.load(path)):
        assert type(found.X) is type(given_rows)
        if library != "mapping":
            back = found.X if library == "pyarrow" else found.X.to_arrow()
            assert cells(back) == wanted
    if library == "pyarrow":
        assert Sketch.load(path).X.schema.equals(table.schema)
    pq.write_table(table, tmp_path / "in.parquet")
    compress(tmp_path / "in.parquet", into=path, size=10, policy="reservoir", fresh=True, seed=1)
    loaded = Sketch.load(path)
    assert cells(loaded.X) == [[column[i] for i in loaded.index] for column in cells(table)]


def test_the_first_use_is_three_lines():
    sketch = olss.Sketch(30, seed=0)
    for seed in range(3):
        sketch.update(mixed(seed=seed), y="late")
    assert isinstance(sketch.X, pd.DataFrame)
    assert isinstance(sketch.frame, pd.DataFrame)
    assert {"olss_weight", "olss_task", "olss_index", "late"} <= set(sketch.frame.columns)


def test_what_is_scored_is_what_compress_scores(tmp_path):
    frame = mixed(400)
    frame.to_parquet(tmp_path / "in.parquet", index=False)
    compress(tmp_path / "in.parquet", into=tmp_path / "o.parquet", size=60, target="late", seed=0)
    files = Sketch.load(tmp_path / "o.parquet")._state
    memory = Sketch(60, seed=0).update(frame, y="late")._state
    names = [(c.name, c.use, c.width) for c in memory.encoder.plan.columns]
    files_names = [(c.name, c.use, c.width) for c in files.encoder.plan.columns]
    assert names == [entry for entry in files_names if entry[0] != "late"]
    np.testing.assert_allclose(files.moments.matrix, memory.moments.matrix, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.drop(columns="text"), "lacks the column 'text'"),
        (lambda f: f.assign(new=1), "has the column 'new'"),
        (lambda f: f.assign(number="x"), "column 'number' is .*string.*double"),
        (lambda f: f.rename(columns={"number": "numbr"}), "Did you mean 'number'"),
        (lambda f: f.assign(late=None), "target 'late' has 90 missing"),
        (lambda f: f.iloc[:0], "at least one row"),
        (lambda f: pd.concat([f, f[["text"]]], axis=1), "two columns named 'text'"),
        (lambda f: f.assign(number=[object()] * len(f)), "number"),
        (lambda f: f.assign(number=np.inf), "column 'number' holds an infinite value in row 0"),
        (lambda f: f.assign(olss_weight=1.0), "rows"),
        (lambda f: f.to_numpy()[:, :1].astype(float), "rows"),
        (lambda f: pl.from_pandas(f).lazy(), "LazyFrame.*collect"),
    ],
)
def test_bad_tables_are_told_and_change_nothing(change, says):
    sketch = Sketch(40, seed=0).update(mixed(1200), y="late")
    before = sketch.frame
    bad = change(mixed(seed=1))
    with pytest.raises(InputError, match=says):
        sketch.update(bad, y="late" if not isinstance(bad, np.ndarray) else None)
    assert sketch.seen == 1200
    pd.testing.assert_frame_equal(sketch.frame, before)


def test_a_table_of_carried_columns_says_what_to_do():
    notes = {"note": [f"row {i}" for i in range(50)]}
    with pytest.raises(DataError, match=r"No column can be"):
        Sketch(10, seed=0).update(notes)
    assert len(Sketch(10, "reservoir", seed=0).update(notes)) == 10


def test_types_are_promoted_where_nothing_is_lost(tmp_path):
    months = [
        pa.table({"n": pa.array([1, 2], pa.int32()), "t": pa.array(["a", "b"])}),
        pa.table({"n": pa.array([3, None], pa.int64()), "t": pa.array(["a", None])}),
        pa.table({"n": pa.array([0.5, 4.0]), "t": pa.array(["c", "b"]).dictionary_encode()}),
        pa.table({"t": pa.nulls(2), "n": pa.nulls(2)}),
    ]
    sketch = Sketch(20, "reservoir")
    for number, month in enumerate(months):
        sketch.update(month)
        pq.write_table(month, tmp_path / f"{number}.parquet")
    wanted = [[1, 2, 3, None, 0.5, 4.0, None, None], ["a", "b", "a", None, "c", "b", None, None]]
    assert cells(sketch.X) == wanted
    out = tmp_path / "out.parquet"
    compress(sorted(tmp_path.glob("?.parquet")), into=out, size=20, policy="reservoir")
    assert cells(Sketch.load(out).X) == wanted


def test_new_columns_on_request_are_missing_in_rows_before():
    first, second = pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"b": ["x"], "a": [3.0]})
    sketch = Sketch(10, new_columns="keep").update(first).update(second)
    assert sketch.X["b"].isna().tolist() == [True, True, False]
    assert sketch.X["a"].tolist() == [1.0, 2.0, 3.0]


def test_an_index_that_matters_is_said_or_kept():
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index(["x", "y"], name="id"))
    with pytest.warns(OlssWarning, match="index"):
        Sketch(10).update(frame)
    kept = Sketch(10, keep_index=True).update(frame).X
    assert kept.index.tolist() == ["x", "y"] or kept["id"].tolist() == ["x", "y"]


def test_y_may_be_a_column_of_its_own():
    frame = mixed().drop(columns="late")
    y = mixed()["late"].sample(frac=1, random_state=0)  # its index says nothing
    sketch = Sketch(500).update(frame, y=y)
    assert sketch.y.tolist() == y.tolist()
    assert sketch.y.name == "late"
    plain = Sketch(500).update(frame, y=np.arange(ROWS) % 3)
    assert plain.y.tolist() == (np.arange(ROWS) % 3).tolist()
    with pytest.raises(DataError, match="one entry for each of the 90 rows, found 3"):
        Sketch(9).update(frame, y=[1, 2, 3])


def test_gaps_in_arrays_are_kept_and_scored_as_medians():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    sketch = Sketch(200, seed=0).update(X[:1_100]).update(X[1_100:])
    np.testing.assert_array_equal(sketch.X, X[sketch.index])
    assert sketch.error().relative < 1
    later = Sketch(200, seed=0).update(np.nan_to_num(X)[:1_100])
    later.update(X[1_100:])
    np.testing.assert_array_equal(
        later.X[later.index >= 1_100], X[later.index[later.index >= 1_100]]
    )


def test_sparse_rows_stay_sparse(tmp_path):
    import scipy.sparse as sp

    X = sp.random(3_000, 50, density=0.1, random_state=0, format="csr")
    sketch = Sketch(300, seed=0).update(X[:1_500]).update(X[1_500:])
    assert sp.issparse(sketch.X)
    np.testing.assert_array_equal(sketch.X.toarray(), X[sketch.index].toarray())
    sketch.save(tmp_path / "s.parquet")
    np.testing.assert_array_equal(
        Sketch.load(tmp_path / "s.parquet").X.toarray(), sketch.X.toarray()
    )


def waiting(tables):
    sketch = Sketch(100, seed=0)
    for table in tables:
        sketch.update(table)
    return sketch


def test_what_could_not_be_scored_with_the_rows_that_wait_is_refused_at_once():
    rng = np.random.default_rng(0)
    sketch = waiting(pd.DataFrame({"a": rng.random(50), "b": rng.random(50)}) for _ in range(5))
    with pytest.raises(DataError, match="column 'b' holds a value too large to square in row 0"):
        sketch.update(pd.DataFrame({"a": [1.0], "b": [1e200]}))
    assert sketch.seen == 250
    assert sketch.X.shape == (100, 2)
    wide = [
        pd.DataFrame({f"t{i}": [f"{day} {j % 4}" for j in range(20)] for i in range(150)})
        for day in range(7)
    ]
    with pytest.raises(InputError, match=r"columns=.*4,095"):
        waiting(wide)
    assert waiting(wide[:5]).X.shape == (100, 150)


def test_constant_rows_count_alike_until_some_vary():
    table = pd.DataFrame({"a": np.ones(20), "b": ["x"] * 20})
    sketch = waiting([table] * 10)
    assert len(sketch.X) == 100
    assert sketch.weight.sum() == pytest.approx(200)
    sketch.update(pd.DataFrame({"a": np.arange(2000.0), "b": ["x"] * 2000}))
    assert len(sketch) == 100


def columns_of(frame):
    return {name: frame[name].tolist() for name in frame}


KINDS = {"pandas": pd.DataFrame, "polars": pl.from_pandas, "arrow": pa.table, "mapping": columns_of}


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_of_one_column_is_a_target(kind):
    rows, target = mixed()[["number"]].fillna(0), mixed()[["late"]]
    made = KINDS[kind]
    beside = Sketch(40, seed=0).update(made(rows), made(target))
    named = Sketch(40, seed=0).update(made(rows.assign(late=target["late"])), y="late")
    assert str(beside.frame) == str(named.frame)
    assert str(beside.y) == str(named.y)
    with pytest.raises(DataError, match="y must be one column, found a table of 2"):
        beside.update(made(rows), made(mixed()[["late", "flag"]]))
    with pytest.raises(DataError, match="y"):
        beside.update(made(rows), made(mixed()[["flag"]]))
    gaps = pd.DataFrame({"late": ["no", None] * (ROWS // 2)}, dtype=object)
    with pytest.raises(DataError, match="target 'late' has 45 missing"):
        beside.update(made(rows), made(gaps))
    assert beside.seen == ROWS


def test_the_target_of_a_frame_with_whole_numbers_for_names_comes_back():
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((ROWS, 3)))
    sketch = Sketch(40, seed=0).update(frame, y="2")
    pd.testing.assert_series_equal(sketch.y, frame[2].iloc[sketch.index].reset_index(drop=True))


def test_values_that_come_after_categories_are_kept():
    """Text, or other categories, after a pandas category or a polars Enum."""
    first = pd.DataFrame({"c": pd.Categorical(["a", "b"], ordered=True), "x": [1.0, 2.0]})
    for later in (pd.DataFrame, pl.DataFrame):
        sketch = Sketch(9, "reservoir").update(first)
        assert sketch.X["c"].cat.ordered
        sketch.update(later({"c": ["a", "new"], "x": [1.0, 2.0]}))
        assert sketch.X["c"].tolist() == ["a", "b", "a", "new"]
        assert not sketch.X["c"].cat.ordered
        merged = Sketch(9, "reservoir").update(first).merge(sketch)
        assert merged.estimate(by="c")["new"].rows == 1
    enums = Sketch(9, "reservoir")
    for values in (["a", "b"], ["z", "b"]):
        column = pl.Series(values, dtype=pl.Enum(values))
        enums.update(pl.DataFrame({"c": column, "x": [1.0, 2.0]}))
    assert enums.X["c"].to_list() == ["a", "b", "z", "b"]


def test_categories_of_whole_numbers_become_those_of_fractions(tmp_path):
    sketch = Sketch(9, "reservoir")
    for values in ([1, 2], [1.5, None]):
        sketch.update(pd.DataFrame({"c": pd.Categorical(values), "x": [1.0, 2.0]}))
    sketch.save(tmp_path / "s.parquet")
    for held in (sketch, Sketch.load(tmp_path / "s.parquet")):
        assert held.X["c"].cat.categories.tolist() == [1.0, 2.0, 1.5]
        assert held.X["c"].isna().tolist() == [False, False, False, True]


def test_dicts_of_later_rows_have_the_same_keys_or_are_refused():
    first, same = {"d": [{"a": 1}, None]}, {"d": [{"a": 2}]}
    for make in (pd.DataFrame, dict):
        sketch = Sketch(9, "reservoir").update(make({"d": [None, None]}))
        sketch.update(make(first)).update(make(same))
        with pytest.raises(DataError, match="column 'd'"):
            sketch.update(make({"d": [{"a": 1, "b": 2}]}))
        assert list(sketch.frame["d"]) == [None, None, {"a": 1}, None, {"a": 2}]
    arrow = Sketch(9, "reservoir").update(pa.table(first)).update(pa.table({"d": [{"b": 1}]}))
    assert arrow.frame["d"].to_pylist()[2] == {"a": None, "b": 1}


@pytest.mark.parametrize("kind", ["table", "array"])
@pytest.mark.parametrize("rows", [60, 3_000], ids=["pending rows", "rows sampled at once"])
def test_rows_without_target_are_refused_dropped_or_kept(kind, rows):
    x, y = np.arange(float(rows)), np.arange(float(rows)) % 7
    y[[3, 7]] = np.nan

    def updated(**options):
        sketch = Sketch(10_000, seed=0, **options)
        if kind == "table":
            return sketch.update(pd.DataFrame({"x": x, "y": y}), y="y")
        return sketch.update(x.reshape(-1, 1), y, extra={"x": x})

    with pytest.raises(DataError, match="y"):
        updated()
    dropped = updated(missing_target="drop")
    assert dropped.seen == len(dropped) == rows - 2
    np.testing.assert_array_equal(dropped.index, np.arange(rows - 2))
    found = dropped.X["x"] if kind == "table" else dropped.extra["x"]
    np.testing.assert_array_equal(found, np.delete(x, [3, 7]))
    assert np.isnan(np.asarray(updated(missing_target="keep").y)).sum() == 2
