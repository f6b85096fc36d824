"""Any statistic with error bars: built-ins, replicate weights, coverage, bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import olss
from olss.core.estimation import WeightedSample, replicate_weights
from olss.errors import InputError
from olss.files import compress
from olss.sketch import Sketch
from olss.statistics import correlation, difference, median, quantile, ratio
from tests.repeated import repeated


def people(n=5_000, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    x = rng.standard_normal(n) + (group == "b")
    return pd.DataFrame(
        {"x": x, "y": 2 * x + rng.standard_normal(n), "size": rng.gamma(4, 1, n), "group": group}
    )


def test_built_ins_with_integer_weights_are_those_of_repeated_rows():
    frame = people(300)
    w = np.random.default_rng(1).integers(1, 5, 300)
    x, y, group = (np.repeat(frame[c].to_numpy(), w) for c in ("x", "y", "group"))
    assert correlation("x", "y")(frame, w) == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert ratio("x", "size")(frame, w) == pytest.approx(x.sum() / (frame["size"] * w).sum())
    a_minus_b = difference("x", {"group": "a"}, {"group": "b"})(frame, w)
    assert a_minus_b == pytest.approx(x[group == "a"].mean() - x[group == "b"].mean())
    ones = np.ones(300)
    levels = [0.1, 0.5, 0.9]
    found = quantile("x", levels)(frame, ones)
    assert found == pytest.approx(np.quantile(frame["x"], levels, method="hazen"))
    # Weights are those of repeated rows up to the distance between neighbours.
    assert abs(median("x")(frame, w) - np.median(x)) < 0.05
    medians = difference(median("x"), {"group": "a"}, {"group": ["b", "c"]})(frame, ones)
    is_a = frame["group"] == "a"
    assert medians == pytest.approx(frame["x"][is_a].median() - frame["x"][~is_a].median())


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "mapping"])
def test_built_ins_read_frames_of_any_kind_and_leave_out_missing_values(kind):
    columns = {"x": [1.0, None, 3.0, 8.0], "n": [1, 2, 3, 4], "g": ["u", "v", "v", None]}
    rows = {
        "pandas": lambda: pd.DataFrame(columns),
        "polars": lambda: pl.DataFrame(columns),
        "arrow": lambda: pa.table(columns),
        "mapping": lambda: columns,
    }[kind]()
    w = np.ones(4)
    assert median("x")(rows, w) == 3.0
    assert ratio("x", "n")(rows, w) == 12 / 8
    assert difference("n", {"g": "v"}, {"g": "u"})(rows, w) == 1.5
    assert np.isnan(difference("n", {"g": "v"}, {"g": "none"})(rows, w))
    with pytest.raises(InputError, match="column"):
        median("z")(rows, w)
    with pytest.raises(InputError, match="'g'"):
        median("g")(rows, w)


@pytest.mark.parametrize("strata", [None, 4])
@pytest.mark.parametrize("complete", [True, False])
def test_replicates_of_totals_have_the_variance_that_estimates_have(strata, complete):
    rng = np.random.default_rng(0)
    n, count = 200, 20_000
    pi = rng.uniform(0.05, 1, n)
    pi[:20] = 1
    weight, f = 1 / pi, rng.lognormal(size=n)
    stratum = None if strata is None else rng.integers(0, strata, n)
    columns = replicate_weights(weight, pi, count, rng, stratum, complete)
    assert (columns > 0).all()
    assert (columns[:20] == 1).all()
    sample = WeightedSample(weight, pi, np.zeros(n, dtype=np.int64), 1, stratum, complete=complete)
    off = f @ columns - f @ weight
    # The relative standard error of a variance from so many normal draws is 1%.
    assert 2 * np.sqrt(np.mean(off**2)) == pytest.approx(sample.total(f).se[0], rel=0.03)
    assert abs(off.mean()) < 4 * off.std() / np.sqrt(count)


def test_replicate_weights_are_the_same_for_the_same_seed_and_change_nothing():
    sketch = Sketch(300, seed=0).update(people())
    before = sketch.weight
    one, same, other = (sketch.replicate_weights(10, seed=s) for s in (0, 0, 1))
    assert one.shape == (300, 10)
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert np.array_equal(before, sketch.weight)
    # A sketch that holds every row has nothing to be uncertain of.
    whole = Sketch(5_000, seed=0).update(people())
    assert (whole.replicate_weights(3) == 1).all()
    found = whole.estimate(statistic=median("x"))
    assert found.interval() == (found.value, found.value)
    assert found.se == 0


def test_any_shape_comes_back_with_errors_of_the_same_shape():
    sketch = Sketch(400, seed=0).update(people(), y="y")
    one = sketch.estimate(statistic=lambda rows, w: np.average(rows["x"], weights=w))
    several = sketch.estimate(statistic=quantile("x", [0.25, 0.5, 0.75]))
    named = sketch.estimate(
        statistic=lambda rows, w: {"mean": np.average(rows["x"], weights=w), "pair": np.ones(2)}
    )
    assert one.se > 0
    assert one.replicates.shape == (200,)
    assert several.value.shape == several.se.shape == (3,)
    low, high = several.interval(0.9)
    assert (low < several.value).all()
    assert (several.value < high).all()
    assert named.value["mean"] == one.value
    assert named.se["mean"] == one.se
    assert (named.se["pair"] == 0).all()
    assert named.interval()[0]["mean"] == one.interval()[0]
    # A mean by its own formula and by replicates: the error of a standard error from 200 is 5%.
    assert one.se == pytest.approx(sketch.estimate("x").mean_se, rel=0.2)
    for text in (str(one), str(several), str(named)):
        assert "from 400 rows kept" in text


def test_a_statistic_may_take_the_target():
    frame = people()

    def slope(X, y, w):
        return np.polyfit(X["x"], y, 1, w=np.sqrt(w))[0]

    table = Sketch(400, seed=0).update(frame, y="y").estimate(statistic=slope)
    assert abs(table.value - 2) < 5 * table.se < 1

    def array_slope(X, y, w):
        return np.polyfit(X[:, 0], y, 1, w=np.sqrt(w))[0]

    X = frame[["x", "size"]].to_numpy()
    array = Sketch(400, seed=0).update(X, frame["y"].to_numpy()).estimate(statistic=array_slope)
    assert abs(array.value - 2) < 5 * array.se < 1


def test_by_and_where_choose_rows():
    sketch = Sketch(400, seed=0).update(people())
    found = sketch.estimate(statistic=median("x"), by="group")
    assert list(found.groups["group"]) == ["a", "b", "c"]
    assert len(found) == 3
    frame = sketch.frame
    for name, one in found:
        rows = (frame["group"] == name).to_numpy()
        assert one.value == median("x")(frame[rows], sketch.weight[rows])
        alone = sketch.estimate(statistic=median("x"), where={"group": name})
        assert (alone.value, alone.se, alone.rows) == (one.value, one.se, one.rows)
    assert np.array_equal(found.value, [one.value for _, one in found])
    assert (found.interval()[0] < found.value).all()
    assert found["b"].value > found["a"].value + 0.5
    assert "group" in str(found)
    two = sketch.estimate(statistic=median("x"), by=("group", "group"))
    assert len(two) == 3
    with pytest.raises(InputError, match="'zz'"):
        found["zz"]


def test_few_rows_have_no_interval():
    sketch = Sketch(400, seed=0).update(people())
    some = np.zeros(400, dtype=bool)
    some[np.argsort(-sketch.weight)[:5]] = True
    found = sketch.estimate(statistic=median("x"), where=some)
    assert found.too_few
    assert np.isnan(found.interval()[0])
    assert "too few rows" in str(found)


@pytest.mark.parametrize(
    ("statistic", "message"),
    [
        (lambda rows, w: np.nan, "NaN for the rows kept"),
        (lambda rows, w: "x", "must return a number"),
        (lambda rows, w: {}, "must return a number"),
        (lambda rows, w: [[1], [1, 2]], "must return a number"),
        (lambda rows, w: np.nan if w[0] != round(w[0] * 2**40) / 2**40 else 1, "NaN"),
        (lambda rows, w: np.ones(1 + int(w.sum()) % 7), "returned an array of shape"),
        (correlation("x", "constant"), "NaN"),
        ("median", "statistic must be a function"),
        (lambda rows: 1.0, "statistic must be a function"),
        (lambda rows, y, w, more: 1.0, "statistic must be a function"),
    ],
)
def test_statistics_that_fail_are_refused_with_a_reason(statistic, message):
    sketch = Sketch(100, seed=0).update(people(1_000).assign(constant=1.0))
    with pytest.raises(InputError, match=message):
        sketch.estimate(statistic=statistic)


def test_a_statistic_that_fails_on_a_replicate_is_named_with_its_error():
    sketch = Sketch(100, seed=0).update(people(1_000))
    first = sketch.weight

    def fails(rows, w):
        if not np.array_equal(w, first):
            raise ZeroDivisionError("no")
        return 1.0

    with pytest.raises(InputError, match=r"replicate 1 of 200.*ZeroDivisionError: no"):
        sketch.estimate(statistic=fails)
    # What a statistic raises of the rows themselves is its own affair.
    with pytest.raises(KeyError):
        sketch.estimate(statistic=lambda rows, w: rows["nothing"])
    with pytest.raises(InputError, match="values is not supported"):
        sketch.estimate("x", statistic=median("x"))
    with pytest.raises(InputError, match="calibrate is not supported"):
        sketch.estimate(statistic=median("x"), calibrate=True)
    with pytest.raises(InputError, match="no row kept matches"):
        sketch.estimate(statistic=median("x"), where={"group": "z"})
    with pytest.raises(InputError, match="empty"):
        Sketch(10).estimate(statistic=median("x"))
    with pytest.raises(InputError, match="inclusion probabilities"):
        Sketch(10, "paper").update(people(100)).estimate(statistic=median("x"))
    # In a group where it is undefined there is no interval, and the others have theirs.
    constant = people(1_000).assign(z=lambda t: np.where(t["group"] == "a", 1.0, t["x"]))
    found = (
        Sketch(200, seed=0).update(constant).estimate(statistic=correlation("x", "z"), by="group")
    )
    assert np.isnan(found["a"].value)
    assert found["b"].value == pytest.approx(1)


def test_replicates_in_a_file_are_columns_that_other_programs_read(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    people().to_parquet(tmp_path / "in.parquet")
    path = tmp_path / "out.parquet"
    compress(tmp_path / "in.parquet", into=path, size=300, seed=0, replicates=20)
    names = pq.read_schema(path).names
    assert [n for n in names if n.startswith("olss_rep_")] == [
        f"olss_rep_{i:03}" for i in range(1, 21)
    ]
    sketch = Sketch.load(path)
    assert not any(name.startswith("olss_rep") for name in sketch.frame.columns)
    weights = sketch.replicate_weights(20)
    assert np.array_equal(pq.read_table(path)["olss_rep_007"].to_numpy(), weights[:, 6])
    sums = ", ".join(f"sum(x * olss_rep_{i:03})" for i in range(1, 21))
    total, *each = duckdb.sql(f"select sum(x * olss_weight), {sums} from '{path}'").fetchall()[0]
    se = 2 * np.sqrt(np.mean((np.array(each) - total) ** 2))
    found = sketch.estimate(statistic=lambda rows, w: w @ rows["x"].to_numpy(), replicates=20)
    assert (total, se) == pytest.approx((found.value, found.se))

    # The file is continued with replicates of the rows it then holds.
    people(seed=1).to_parquet(tmp_path / "more.parquet")
    compress(tmp_path / "more.parquet", into=path)
    table = pq.read_table(path)
    assert np.array_equal(table["olss_rep_001"], Sketch.load(path).replicate_weights(20)[:, 0])
    assert len([n for n in table.column_names if n.startswith("olss_rep_")]) == 20
    # Their number can be changed, even if no file is new, and they can be left out again.
    summary = compress(tmp_path / "more.parquet", into=path, replicates=3)
    assert "replicate weights have changed" in str(summary)
    assert sum(n.startswith("olss_rep_") for n in pq.read_schema(path).names) == 3
    compress(tmp_path / "more.parquet", into=path, replicates=0)
    assert not any(n.startswith("olss_rep_") for n in pq.read_schema(path).names)
    # They are no data: a sketch is not ingested as rows, with or without them.
    compress(tmp_path / "more.parquet", into=path, replicates=3)
    with pytest.raises(InputError, match="olss_"):
        compress(path, into=tmp_path / "again.parquet", size=10)
    with pytest.raises(InputError, match="olss_rep_001"):
        Sketch(10).update(pd.DataFrame({"x": [1.0], "olss_rep_001": [1.0]}))
    with pytest.raises(InputError, match="replicates needs known inclusion probabilities"):
        Sketch(10, "balanced", replicates=80)


def test_replicates_are_saved_with_arrays_and_after_remove(tmp_path):
    X = people()[["x", "size"]].to_numpy()
    sketch = Sketch(200, "reservoir", replicates=5, seed=0).update(X)
    sketch.remove(sketch.index[:50])
    sketch.save(tmp_path / "s.parquet")
    loaded = Sketch.load(tmp_path / "s.parquet")
    assert np.array_equal(loaded.X, sketch.X)
    stored = pq.read_table(tmp_path / "s.parquet")["olss_rep_005"].to_numpy()
    assert np.array_equal(stored, loaded.replicate_weights(5)[:, 4])
    Sketch(10, replicates=5).save(tmp_path / "empty.parquet")
    assert len(Sketch.load(tmp_path / "empty.parquet")) == 0


@repeated(150, 500)
@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_intervals_of_built_ins_hold_as_often_as_they_say(policy, repetitions):
    frame = people(4_000)
    ones = np.ones(len(frame))
    statistics = {
        "median": median("x"),
        "quantile": quantile("size", 0.9),
        "ratio": ratio("y", "size"),
        "difference": difference("y", {"group": "a"}, {"group": "b"}),
        "correlation": correlation("x", "y"),
    }
    truth = {name: one(frame, ones) for name, one in statistics.items()}
    hits = dict.fromkeys(statistics, 0)
    for seed in range(repetitions):
        sketch = olss.Sketch(300, policy, seed=seed)
        for part in np.array_split(np.arange(len(frame)), 4):
            sketch.update(frame.iloc[part])
        for name, one in statistics.items():
            low, high = sketch.estimate(statistic=one, replicates=100, seed=seed).interval()
            hits[name] += bool(low <= truth[name] <= high)
    shares = {name: count / repetitions for name, count in hits.items()}
    error = 4 * np.sqrt(0.95 * 0.05 / repetitions)
    assert all(abs(share - 0.95) < error for share in shares.values()), shares
