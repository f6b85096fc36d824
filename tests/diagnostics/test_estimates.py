from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import hypergeom

from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.diagnostics.estimates import LEAST_ROWS, estimate
from olss.errors import InputError
from olss.files import compress
from olss.sketch import Sketch
from tests.repeated import repeated


def allowed(repetitions):
    """Return four standard errors of a share of 95%."""
    return 4 * np.sqrt(0.95 * 0.05 / repetitions)


def remembered(X, updates, size, rng):
    """Rows and weights of the policy "weighted" over several updates, in plain NumPy.

    Leverage of the pool, a quarter uniform, and rows shuffled before each draw.
    """
    rows, weight = np.arange(0), np.ones(0)
    for new in np.array_split(np.arange(len(X)), updates):
        rows, weight = np.append(rows, new), np.append(weight, np.ones(len(new)))
        if len(rows) <= size:
            continue
        A = X[rows]
        inverse = np.linalg.inv((A.T * weight) @ A)
        q = weight * np.einsum("ij,jk,ik->i", A, inverse, A)
        line = rng.permutation(len(rows))
        pi = inclusion_probabilities(
            (0.75 * q / q.sum() + 0.25 * weight / weight.sum())[line], size
        )
        kept = pivotal_sample(pi, rng)
        rows, weight = rows[line[kept]], weight[line[kept]] / pi[kept]
    return rows, weight


@repeated(300, 1_000)
@pytest.mark.parametrize(("updates", "calibrated"), [(1, False), (8, False), (4, True)])
def test_intervals_hold_as_often_as_they_say(updates, calibrated, repetitions):
    rng = np.random.default_rng([1, updates])
    N = 4_000
    levels = rng.choice(3, N, p=[0.7, 0.28, 0.02])
    X = np.column_stack([np.eye(3)[levels], rng.standard_t(4, (N, 3))])
    value = X @ [1, 2, 3, 1, 1, 1] + rng.standard_normal(N)
    other = rng.choice(2, N, p=[0.85, 0.15])  # what leverage does not know of
    hits = {}
    for _ in range(repetitions):
        rows, weight = remembered(X, updates, 300, rng)
        known = (X[rows], X.sum(axis=0)) if calibrated else None
        for name, labels in (("all", np.zeros(N)), ("level", levels), ("other", other)):
            result = estimate(weight, value[rows], groups=labels[rows], calibrate=known)
            for group, one in result:
                part = value[labels == group]
                truth = {"count": len(part), "total": part.sum(), "mean": part.mean()}
                for what, true in truth.items():
                    low, high = one.interval(what)
                    hits.setdefault((name, group, what), []).append(
                        low <= true + 1e-6 <= high + 2e-6
                    )
    for key, held in hits.items():
        exact = calibrated and key[2] == "count" and key[0] in ("all", "level")
        share = np.mean(held)
        assert share == 1 if exact else abs(share - 0.95) < allowed(repetitions), key


@pytest.mark.parametrize("rows", [LEAST_ROWS, 15, 30])
def test_few_rows_are_enough_from_ten_on(rows):
    # Counts, totals and means of a part of a simple random sample that has about so many rows.
    rng = np.random.default_rng([2, rows])
    N, n = 20_000, 400
    hits = {"count": [], "total": [], "mean": []}
    given = []
    for _ in range(2_000):
        value = rng.standard_normal(N) + 3
        part = rng.random(N) < rows / n
        kept = rng.choice(N, n, replace=False)
        one = estimate(np.full(n, N / n), value[kept], where=part[kept])
        given.append(not one.too_few)
        truth = {"count": part.sum(), "total": value[part].sum(), "mean": value[part].mean()}
        for what, held in hits.items():
            low, high = one.interval(what)
            if not one.too_few:
                held.append(low <= truth[what] <= high)
    assert np.mean(given) > 0.5
    for what, held in hits.items():
        # That an interval is given at all tells that rows are not few, which moves counts.
        assert 0.92 < np.mean(held) < 0.985, what


def test_calibration_helps_where_values_go_with_the_known_columns():
    rng = np.random.default_rng(3)
    N = 4_000
    X = np.column_stack([np.ones(N), rng.standard_t(4, (N, 3)), rng.random(N) < 0.01])
    near, far = X.sum(axis=1) + 0.5 * rng.standard_normal(N), rng.standard_normal(N)
    off = []
    for _ in range(200):
        rows, weight = remembered(X, 2, 300, rng)
        known = X[rows], X.sum(axis=0)
        rare = X[rows, 4] == 1
        off.append(
            [
                estimate(weight, f[rows], where=where, calibrate=calibrate).total
                for f in (near, far)
                for where in (None, rare)
                for calibrate in (None, known)
            ]
        )
    spread = np.std(off, axis=0).reshape(2, 2, 2)  # values, of all or rare, without and with
    gain = spread[..., 1] / spread[..., 0]
    assert gain[0, 0] < 0.5  # near, all
    assert gain[1, 0] < 1.1  # far, all
    assert (gain[:, 1] < 1.1).all()  # the rare group is not hurt


def test_where_missing_values_and_several_columns_of_groups():
    weight = np.full(60, 5.0)
    value = np.arange(60.0)
    value[:5] = np.nan
    colour, size = np.tile(["red", "blue"], 30), np.repeat([1, 2, 3], 20)
    result = estimate(weight, value, groups={"colour": colour, "size": size})
    assert len(result) == 6
    assert result.missing == 5
    assert "5 rows without a value" in str(result)
    one = result["red", 2]
    part = (colour == "red") & (size == 2)
    assert one.total == pytest.approx(5 * value[part].sum())
    assert one.count == pytest.approx(50)
    alone = estimate(weight, value, where=part)
    assert alone.mean_se == pytest.approx(one.mean_se)
    assert alone.interval("mean") == pytest.approx(one.interval("mean"))
    # A row without a value counts neither in the count nor in the mean.
    assert estimate(weight, value).count == pytest.approx(275)
    assert estimate(weight, value).missing == 5
    assert dict(result)["blue", 3].rows == 10


def test_too_few_rows_are_said_to_be_so():
    weight, group = np.full(100, 3.0), np.repeat(["many", "few"], [95, 5])
    result = estimate(weight, np.arange(100), groups=group)
    assert result.too_few.tolist() == [True, False]
    assert np.isnan(result["few"].interval("mean")).all()
    assert result["few"].mean == pytest.approx(97)
    assert "too few" in str(result)
    assert "too few" in str(result["few"])
    # Where no row was ever left out, one row is enough.
    exact = estimate(np.ones(100), np.arange(100), groups=group)["few"]
    assert exact.interval("mean") == (97, 97)


def test_frames_and_printing():
    result = estimate(np.full(50, 2.0), np.arange(50), groups={"day": np.arange(50) % 25})
    for library in ("pandas", "polars", "pyarrow"):
        frame = result.to_frame(library)
        assert list(getattr(frame, "column_names", getattr(frame, "columns", None)))[:3] == [
            "day", "rows", "count",
        ]  # fmt: skip
        assert len(frame) == 25
    assert "20 largest of 25 groups" in str(result)
    assert len(str(result).splitlines()) == 22
    gaps = estimate(np.full(4, 2.0), groups=np.array(["a", None, 3, float("nan")], dtype=object))
    assert gaps.groups["group"].tolist() == [3, "a", None]


def test_a_million_groups_take_seconds_of_the_processor():
    weight = np.full(1_000_000, 2.0)
    start = time.process_time()
    result = estimate(weight, np.ones(1_000_000), groups=np.arange(1_000_000))
    text = str(result)
    assert time.process_time() - start < 20
    assert "1,000,000 groups" in text
    assert result.too_few.all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weight": [1.0, -2.0]}, "weight must be positive, found -2"),
        ({"weight": []}, "weight must be a column of numbers, found shape"),
        ({"values": ["a", "b"]}, "values must be a column of numbers"),
        ({"values": [1.0]}, "values must have a value for each of the 2 rows, found 1"),
        ({"values": [1.0, np.inf]}, "values must be finite, found inf"),
        ({"where": [0, 1]}, "where must be True or False for each of the 2 rows"),
        ({"where": [True]}, "where must be True or False for each of the 2 rows"),
        ({"groups": ["a"]}, "groups must have a value for each of the 2 rows"),
        ({"groups": ["a", "b"], "where": [False, False]}, "no row to make groups of"),
        ({"pi": [0.5, 2.0]}, "pi must be above 0 and at most 1"),
        ({"calibrate": ([[1.0], [1.0]], [1.0, 2.0])}, "calibrate must be columns"),
    ],
)
def test_bad_input_is_told(given, message):
    with pytest.raises(InputError, match=message):
        estimate(**{"weight": [2.0, 2.0], **given})


def test_what_is_asked_for_must_exist():
    one = estimate(np.full(20, 2.0))
    with pytest.raises(InputError, match="no mean without values"):
        one.interval("mean")
    with pytest.raises(InputError, match="there is no 'median'"):
        one.interval("median")
    with pytest.raises(InputError, match="level must be a number above 0 and below 1, found 95"):
        one.interval("count", level=95)
    with pytest.raises(InputError, match="no row kept has group 'z'"):
        estimate(np.full(2, 2.0), groups=["a", "b"])["z"]
    nothing = estimate(np.full(20, 2.0), np.ones(20), where=np.zeros(20, dtype=bool))
    assert nothing.rows == 0
    assert nothing.count == 0
    assert nothing.too_few
    weight, known = np.full(2_000, 2.0), (np.ones((2_000, 1)), [1.0])
    with pytest.raises(InputError, match="at most 1,000 groups"):
        estimate(weight, groups=np.arange(2_000), calibrate=known)


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
@pytest.mark.parametrize("way", ["remove", "window"])
def test_intervals_hold_when_rows_of_the_draw_are_gone(policy, way):
    # 120 streams: a true 95% falls below 0.88 in one of a thousand such tests.
    held = {"count": 0, "total": 0, "mean": 0}
    for seed in range(120):
        rng = np.random.default_rng(seed)
        table = pd.DataFrame({"p": np.arange(3000) % 20, "x": rng.standard_normal(3000) + 3})
        if way == "remove":
            sketch = Sketch(200, policy, seed=seed, exclude=["p"]).update(table)
            sketch.remove(where={"p": list(range(10))})
            left = table.x[table.p >= 10]
        else:
            sketch = Sketch(200, policy, seed=seed, exclude=["p"], window=1000)
            for start in range(0, 3000, 500):
                sketch.update(table[start : start + 500])
            left = table.x[2000:]
        found = sketch.estimate("x")
        for name, truth in {"count": len(left), "total": left.sum(), "mean": left.mean()}.items():
            low, high = found.interval(name)
            held[name] += low <= truth <= high
    assert all(number >= 0.88 * 120 for number in held.values()), held


def test_totals_are_not_known_after_rows_were_removed(tmp_path):
    table = pd.DataFrame({"p": np.arange(3000) % 20, "x": np.arange(3000.0)})
    sketch = Sketch(200, seed=0).update(table)
    assert sketch.estimate("x", calibrate=True).total == pytest.approx(table.x.sum())
    sketch.remove(where={"p": 3})
    sketch.save(tmp_path / "s.parquet")
    for after in (sketch, Sketch.load(tmp_path / "s.parquet"), Sketch(200, seed=0).merge(sketch)):
        with pytest.raises(InputError, match="after remove"):
            after.estimate("x", calibrate=True)


def test_infinite_values_matter_only_where_they_count():
    table = pd.DataFrame({"x": np.arange(100.0), "p": np.arange(100) % 2})
    table.loc[table["p"] == 1, "x"] = np.inf
    sketch = Sketch(100, "reservoir").update(table)
    assert sketch.estimate("x", where={"p": 0}).mean == table["x"][::2].mean()
    with pytest.raises(InputError, match="values must be finite, found inf in 50 rows; exclude"):
        sketch.estimate("x", by="p")


def test_columns_of_lists_and_fields_name_no_groups():
    table = pa.table({"x": np.arange(9.0), "s": [{"a": 1}] * 9, "l": [[1]] * 9})
    sketch = Sketch(9, "reservoir").update(table)
    for name, kind in {"s": "struct", "l": "list"}.items():
        with pytest.raises(InputError, match=f"by: the column '{name}' holds {kind}"):
            sketch.estimate(by=name)


def test_groups_are_called_by_the_values_of_their_column():
    """True, a date, a whole number beside gaps: what a user would look a group up by."""
    n = 600
    days = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(n) % 3, unit="D")
    table = pd.DataFrame(
        {
            "flag": np.arange(n) % 4 == 0,
            "day": days,
            "date": pd.Series(days.date),
            "wait": pd.to_timedelta(np.arange(n) % 2, unit="h"),
            "stops": pd.array(np.arange(n) % 3, dtype="Int64"),
            "fare": pd.Categorical(np.where(np.arange(n) % 5, "cheap", "dear")),
            "zone": pd.Series(days).dt.tz_localize("Europe/Berlin"),
            "x": np.arange(n, dtype=float),
        }
    )
    table.loc[table["stops"] == 2, "stops"] = None
    sketch = Sketch(n, "reservoir").update(table)
    for name in table.columns.drop("x"):
        found, truth = sketch.estimate("x", by=name), table.groupby(name, observed=True)["x"].sum()
        for value, total in truth.items():
            assert found[value].total == pytest.approx(total), (name, value)
        assert len(found) == len(truth) + (name == "stops")
    gap = sketch.estimate("x", by="stops")
    assert gap[None].rows == n // 3
    assert "(missing)" in str(gap)
    with pytest.raises(InputError, match=r"no row kept has flag 'yes'; groups are called False, T"):
        sketch.estimate(by="flag")["yes"]


def test_times_finer_than_python_has_them_stay_apart():
    table = pd.DataFrame({"at": pd.to_datetime(np.arange(4) // 2, unit="ns"), "x": np.ones(4)})
    found = Sketch(4, "reservoir").update(table).estimate("x", by="at")
    assert [one.rows for _, one in found] == [2, 2]


def test_groups_by_several_columns():
    table = pd.DataFrame({"a": np.arange(90) % 2, "b": np.arange(90) % 3 > 0, "x": np.ones(90)})
    found = Sketch(90, "reservoir").update(table).estimate("x", by=("a", "b"))
    assert found[1, True].rows == ((table["a"] == 1) & table["b"]).sum()
    assert len(found) == 4


@pytest.mark.parametrize("kind", [float, bool])
@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_intervals_of_rare_values_hold_or_are_not_given(kind, policy):
    rng, held = np.random.default_rng(40), {"total": [], "mean": []}
    x = rng.standard_normal((6_000, 1)) + 5
    for seed in range(100):
        rare = np.zeros(6_000, dtype=kind)
        rare[rng.choice(6_000, 25, replace=False)] = True
        for flip in (False, True):  # most are zeros, or most are ones
            value = (1 - rare).astype(kind) if flip else rare
            sketch = Sketch(150, policy, seed=seed).update(x, extra={"rare": value})
            one = sketch.estimate("rare")
            truth = {"total": value.sum(), "mean": value.mean()}
            for what, hits in held.items():
                low, high = one.interval(what)
                if np.isnan(low):
                    assert one.too_few
                    assert "too few" in str(one)
                else:
                    hits.append(low <= truth[what] <= high)
    for hits in held.values():
        assert not len(hits) or np.mean(hits) > 0.95 - 4 * np.sqrt(0.05 * 0.95 / len(hits))
    # Of what is true or false, there is a bound where nothing true was kept: in half of the draws.
    assert (len(held["mean"]) > 20) == (kind is bool)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_what_was_never_kept_has_an_upper_bound(level):
    N, n = 3_000, 200
    nothing = estimate(np.full(n, N / n), where=np.zeros(n, dtype=bool))
    low, high = nothing.interval("count", level)
    assert low == 0
    assert not nothing.too_few
    # With more rows of a kind than the bound, a draw with none of them is as rare as it says.
    assert hypergeom.pmf(0, N, int(np.ceil(high)), n) <= 1 - level
    assert hypergeom.pmf(0, N, int(high * 0.9), n) > 1 - level
    flags = estimate(np.full(n, N / n), np.zeros(n, dtype=bool))
    assert flags.interval("total", level) == (low, high)
    assert flags.interval("mean", level) == pytest.approx((0, high / N))
    # Nothing is unknown where every row was kept.
    assert estimate(np.ones(n), np.zeros(n)).interval("total", level) == (0, 0)


def test_class_totals_of_a_reservoir_of_weighted_rows_vary_as_they_say():
    found, rng = [], np.random.default_rng(50)
    weight, label = rng.uniform(1, 3, 2_000), rng.integers(0, 4, 2_000)
    for seed in range(200):
        sketch = Sketch(200, "reservoir", seed=seed)
        for part in np.array_split(np.arange(2_000), 2):
            sketch.update(np.ones((len(part), 1)), label[part], weight=weight[part])
        one = sketch.estimate(by=sketch.y)[0]
        found.append((one.count, one.count_se))
    count, se = np.array(found).T
    # A standard deviation of 200 repetitions is right to 5%.
    assert 0.8 < se.mean() / count.std() < 1.25


def rare_kinds(rows=3_000, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.choice(["b", "a", "c"], rows, p=[0.7, 0.298, 0.002])
    kind[:3] = ["a", "b", "c"]
    return pd.DataFrame({"kind": kind, "x": rng.standard_normal(rows)})


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
@pytest.mark.parametrize("route", ["update", "compress", "merge"])
def test_counts_of_one_hot_groups_are_exact(tmp_path, policy, route):
    frames = [rare_kinds(), rare_kinds(seed=1)]
    truth = pd.concat(frames)["kind"].value_counts()
    path = tmp_path / "out.parquet"
    if route == "compress":
        compress(frames, into=path, size=200, seed=0, policy=policy, moments=True)
        sketch = Sketch.load(path)
    else:
        sketch = Sketch(200, policy, moments=True, seed=0).update(frames[0])
        if route == "update":
            sketch.update(frames[1])
        else:
            sketch.merge(Sketch(200, policy, moments=True, seed=1).update(frames[1]))
    found = sketch.estimate(by="kind")
    for kind, one in found:
        assert one.count == truth[kind]
        assert one.interval("count") == (truth[kind], truth[kind])
        assert not one.too_few
    assert list(found.groups["kind"]) == sorted(found.groups["kind"])
    assert sketch.estimate().count == 6_000
    assert sketch.estimate(where={"kind": ["a", "c"]}).count == truth["a"] + truth["c"]
    assert sketch.remove(where={"kind": "b"})
    assert sketch.estimate(by="kind")["a"].count_se > 0  # no longer known


def test_counts_by_file_are_exact(tmp_path):
    frames = [rare_kinds(2_000), rare_kinds(50)]
    for name, frame in zip("xy", frames, strict=True):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    out = tmp_path / "out.parquet"
    compress(tmp_path / "*.csv", into=out, size=60, policy="reservoir", seed=0)
    sketch = Sketch.load(out)
    assert sketch.estimate(by="task").count.tolist() == [2_000, 50]
    assert sketch.describe().task_weight.tolist() == [2_000, 50]
    assert str(sketch.estimate()).startswith("count  2,050   exact")


def test_a_column_called_task_is_not_taken_for_the_files(tmp_path):
    """Its values are named like the files, whose rows are counted."""
    frame = rare_kinds(1_000)
    frame["task"] = np.where(frame["kind"] == "b", "table-1", "table-2")
    out = tmp_path / "out.parquet"
    compress([frame, frame[:100]], into=out, size=100, seed=0)
    both = pd.concat([frame, frame[:100]])["task"].value_counts()
    found = Sketch.load(out).estimate(by="task")
    assert {name: one.count for name, one in found} == both.to_dict()


def test_known_counts_follow_weights_and_age():
    frame = rare_kinds(400)
    weight = np.random.default_rng(1).integers(1, 5, 400).astype(float)
    sketch = Sketch(50, seed=0).update(frame, weight=weight)
    assert sketch.estimate().count == pytest.approx(weight.sum(), rel=1e-12)
    known = sketch.estimate(by="kind")["a"].count
    assert known == pytest.approx(weight[frame["kind"] == "a"].sum(), rel=1e-9)
    decayed = Sketch(50, half_life=100, seed=0).update(frame)
    age = 0.5 ** (np.arange(400)[::-1] / 100)
    assert decayed.estimate(by="kind")["a"].count == pytest.approx(
        age[frame["kind"] == "a"].sum(), rel=1e-9
    )
    window = Sketch(50, window=100, seed=0).update(frame)
    assert window.estimate(by="kind")["b"].count_se > 0
