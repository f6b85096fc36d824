"""The hold-out: no row is ever on both sides, whichever way it came, and scores have intervals."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sparse
import torch

from olss import Sketch
from olss.errors import FormatError, InputError
from olss.files import compress, forget
from olss.memory.config import Config
from olss.memory.holdout import is_held_out, with_keys
from olss.memory.policies import POLICIES
from olss.memory.rows import RowStore
from olss.sketch import config_of, state_of
from tests.repeated import repeated

N, SIZE, SHARE = 4_000, 300, 0.25


def table(n=N, seed=0):
    """A table of numbers, strings, dates and missing values, twenty rows a customer."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    return pa.table(
        {
            "row": np.arange(n),
            "customer": [f"c{k}" for k in rng.integers(0, n // 20, n)],
            "x": np.where(rng.random(n) < 0.1, np.nan, x),
            "day": pa.array(np.arange(n) // 40, pa.int32()).cast(pa.date32()),
            "kind": pa.array(rng.choice(["a", "b", None], n)).dictionary_encode(),
            "label": (x + rng.standard_normal(n) > 2.5).astype(int),
        }
    )


def sides(sketch):
    """The rows on each side, by their number."""
    train, out = sketch.X["row"], sketch.holdout.X["row"]
    return set(map(int, train)), set(map(int, out))


def truth(rows, **settings):
    """The side of every row of a table, by the rule itself."""
    config = Config.create(size=SIZE, holdout=SHARE, **settings)
    store = RowStore({"X": rows.drop_columns(["label"]), "y": rows.select(["label"])})
    out = is_held_out(config, with_keys(config, store))
    return set(np.flatnonzero(~out).tolist()), set(np.flatnonzero(out).tolist())


def updates(rows, tmp_path, **settings):
    sketch = Sketch(SIZE, holdout=SHARE, seed=1, **settings)
    for start in range(0, len(rows), 700):
        sketch.update(rows.slice(start, 700), y="label")
    return sketch


def few_at_a_time(rows, tmp_path, **settings):
    sketch = Sketch(SIZE, holdout=SHARE, seed=2, **settings)
    for start in range(0, N, 90):
        sketch.update(rows.slice(start, 90).to_pandas(), y="label")
    return sketch


def other_columns(rows, tmp_path, **settings):
    """The same values in other types, in another order."""
    sketch = Sketch(SIZE, holdout=SHARE, seed=3, **settings)
    frame = rows.select(rows.column_names[::-1]).to_pandas()
    frame["row"] = frame["row"].astype("float64")
    frame["day"] = pd.to_datetime(frame["day"])
    return sketch.update(frame, y="label")


def merged(rows, tmp_path, **settings):
    parts = [Sketch(SIZE, holdout=SHARE, seed=k, **settings) for k in range(2)]
    for part, start in zip(parts, (0, N // 2), strict=True):
        part.update(rows.slice(start, N // 2), y="label")
    return parts[0].merge(parts[1])


def saved(rows, tmp_path, **settings):
    updates(rows.slice(0, N // 2), tmp_path, **settings).save(tmp_path / "a.parquet")
    sketch = Sketch.load(tmp_path / "a.parquet")
    return sketch.update(rows.slice(N // 2), y="label")


def smaller(rows, tmp_path, **settings):
    sketch = updates(rows, tmp_path, **settings)
    sketch.size = 100
    return sketch


def files(rows, tmp_path, passes=2, **settings):
    for k in range(4):
        pq.write_table(rows.slice(k * N // 4, N // 4), tmp_path / f"{k}.parquet", row_group_size=99)
    into = tmp_path / "out.parquet"
    options = {"into": into, "target": "label", "passes": passes}
    settings |= {"size": SIZE, "holdout": SHARE}
    compress([tmp_path / "0.parquet", tmp_path / "1.parquet"], seed=4, **options, **settings)
    compress(str(tmp_path / "[0-3].parquet"), **options)
    return Sketch.load(into)


def one_pass(rows, tmp_path, **settings):
    return files(rows, tmp_path, passes=1, **settings)


ROUTES = (updates, few_at_a_time, other_columns, merged, saved, smaller, files, one_pass)


@pytest.fixture
def small_parts(monkeypatch):
    """Cut even a small file into partitions."""
    monkeypatch.setattr("olss.files.chunks.SMALL_BYTES", 1)


def check_sides(sketch, rows, size=SIZE, **settings):
    train, out = sides(sketch)
    may_train, may_out = truth(rows, **settings)
    assert train <= may_train
    assert out <= may_out
    assert len(sketch) == len(train) == size - len(out)
    assert len(out) == round(SHARE * size)
    assert sketch.seen == N
    for kept in (sketch, sketch.holdout):  # each row is the one its position says
        np.testing.assert_array_equal(np.asarray(kept.X["row"]), kept.index)


@pytest.mark.parametrize("group", [None, "customer"])
@pytest.mark.parametrize("route", ROUTES)
def test_no_row_is_ever_on_both_sides(route, group, tmp_path, small_parts):
    rows = table()
    settings = {} if group is None else {"group": group}
    sketch = route(rows, tmp_path, **settings)
    check_sides(sketch, rows, 100 if route is smaller else SIZE, **settings)
    if group:
        customers = [set(kept.X["customer"]) for kept in (sketch, sketch.holdout)]
        assert not customers[0] & customers[1]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_keeps_to_its_side(policy, tmp_path):
    rows = table()
    for route in (updates, files):
        sketch = route(rows, tmp_path, policy=policy)
        check_sides(sketch, rows)
        # The hold-out is a uniform sample, whatever the policy.
        out = sketch.holdout
        assert out.weight.sum() == pytest.approx(len(truth(rows)[1]))
        assert np.ptp(out.weight) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"strata": "y"},
        {"policy": "reservoir", "strata": ("kind", "y"), "min_rows": 5},
        {"half_life": 1_000},
        {"half_life": 1_000, "strata": "y"},
        {"window": 2_000},
        {"half_life": "30d", "time": "day"},
    ],
)
def test_strata_and_forgetting_keep_to_the_sides(settings, tmp_path):
    rows = table()
    for route in (updates, files):
        check_sides(route(rows, tmp_path, **settings), rows, **settings)


@pytest.mark.slow
def test_a_cluster_keeps_to_the_sides(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("olss.files.chunks.LARGE_BYTES", 20_000)
    rows = table()
    pq.write_table(rows, tmp_path / "in.parquet", row_group_size=500)
    options = {"size": SIZE, "holdout": SHARE, "group": "customer", "strata": "label"}
    for into, workers in (("a.parquet", None), ("b.parquet", 2)):
        compress(
            tmp_path / "in.parquet", into=tmp_path / into, target="label", seed=0,
            workers=workers, **options,
        )  # fmt: skip
    here, there = (Sketch.load(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    check_sides(there, rows, group="customer")
    np.testing.assert_array_equal(here.holdout.index, there.holdout.index)
    np.testing.assert_array_equal(here.index, there.index)


def keys_of(X, **settings):
    config = Config.create(size=10, holdout=0.5, **settings)
    extra = {f"extra:{name}": column for name, column in settings.pop("extra", {}).items()}
    return with_keys(config, RowStore({"X": X} | extra))["key"]


def test_the_hash_is_of_the_values_however_they_are_stored():
    X = np.random.default_rng(0).integers(-3, 4, (50, 6))
    X[0], X[1] = 0, -1
    found = keys_of(X)
    assert len(np.unique(found)) == len(np.unique(X, axis=0))
    floats = X.astype(np.float32)
    floats[0] = -0.0
    for other in (
        floats,
        X.reshape(50, 3, 2),
        np.asfortranarray(X.astype(np.int8)),
        torch.tensor(X, dtype=torch.int16),
        sparse.csr_array(X.astype(float)),
    ):
        np.testing.assert_array_equal(keys_of(other), found)
    assert (keys_of(X[:, ::-1].copy())[2:] != found[2:]).mean() > 0.9
    gaps = np.where(X == 2, np.nan, X)
    np.testing.assert_array_equal(keys_of(gaps), keys_of(gaps.astype(np.float32)))


def test_columns_without_values_change_no_key():
    rows = table(200).drop_columns(["label"])
    wider = rows.append_column("new", pa.nulls(200, pa.float64()))
    np.testing.assert_array_equal(keys_of(rows), keys_of(wider))
    other = rows.append_column("new", pa.array(np.ones(200)))
    assert not (keys_of(rows) == keys_of(other)).any()


def test_a_row_without_a_group_is_by_itself():
    rows = pa.table({"row": np.arange(1_000), "who": pa.nulls(1_000, pa.string())})
    assert len(np.unique(keys_of(rows, group="who"))) == 1_000
    same = rows.set_column(1, "who", pa.array(["ann"] * 1_000))
    assert len(np.unique(keys_of(same, group="who"))) == 1


PROGRAM = """
import json, pyarrow as pa, numpy as np
from olss.memory.config import Config
from olss.memory.holdout import with_keys
from olss.memory.rows import RowStore
config = Config.create(size=10, holdout=0.5)
table = pa.table({"n": [1, 2, None], "x": [0.5, -2.0, 3.25], "s": ["a", None, "äöü"]})
tables = with_keys(config, RowStore({"X": table}))["key"].tolist()
arrays = with_keys(config, RowStore({"X": np.arange(6.0).reshape(3, 2)}))["key"].tolist()
grouped = with_keys(config.replace(group="s"), RowStore({"X": table}))["key"].tolist()
print(json.dumps([tables, arrays, grouped]))
"""
# Sides are for ever: these numbers must never change.
KEYS = [
    [2661944248626571881, 3784225277324763993, 1003590948072837774],
    [4014247081530394856, 9156022433538016189, 8533303473312188588],
    [5400487300224039781, 3784225277324763993, 2692080459520391599],
]


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_the_hash_is_the_same_in_every_process_and_for_ever(hash_seed):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout) == KEYS


def test_keys_are_spread_evenly():
    for X in (np.arange(100_000)[:, None], np.random.default_rng(0).random((100_000, 3))):
        counts = np.bincount((keys_of(X) / 2**63 * 100).astype(int), minlength=100)
        assert ((counts - 1_000) ** 2 / 1_000).sum() < 149  # 0.1% of a chi-square of 99


def test_weights_of_both_sides_add_up_and_estimates_are_of_everything(tmp_path):
    rows = table()
    for route in (updates, files):
        sketch = route(rows, tmp_path, policy="reservoir")
        assert sketch.weight.sum() + sketch.holdout.weight.sum() == pytest.approx(N)
        counts = sketch.estimate(by="label")
        label = np.asarray(rows["label"])
        np.testing.assert_array_equal(counts.count, np.bincount(label))
        mean = sketch.estimate("x", where={"x": (">", -100)})
        assert abs(mean.mean - np.nanmean(rows["x"])) < 4 * mean.mean_se
    frame = pq.read_table(tmp_path / "out.parquet").to_pandas()
    assert frame["olss_holdout"].sum() == len(sketch.holdout)
    assert frame["olss_weight"].sum() == pytest.approx(N)


@repeated(20, 1_000)
@pytest.mark.parametrize("strata", [None, "label"])
def test_totals_of_both_sides_are_unbiased_with_right_errors(strata, repetitions):
    rows = table(2_000)
    x, label = (np.asarray(rows[name]) for name in ("row", "label"))
    found = []
    for seed in range(repetitions):
        sketch = Sketch(200, "weighted", holdout=0.3, strata=strata, seed=seed, exclude=("row",))
        for start in range(0, 2_000, 500):
            sketch.update(rows.slice(start, 500), y="label")
        one = sketch.estimate("row", where={"label": 1})
        found.append((one.total - x[label == 1].sum(), one.total_se, one.count))
    error, se, count = np.array(found).T
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(repetitions)
    assert abs(np.sqrt((error**2).mean() / (se**2).mean()) - 1) < 0.1 + 2 / np.sqrt(repetitions)
    if strata:
        np.testing.assert_allclose(count, label.sum())


def test_no_model_has_seen_the_rows_held_out():
    X = np.random.default_rng(0).standard_normal((3_000, 2))
    sketch = Sketch(100, holdout=0.5, seed=0)
    config = Config.create(size=100, holdout=0.5)
    out = is_held_out(config, with_keys(config, RowStore({"X": X})))
    y = np.where(out, 1_000.0, X[:, 0])  # the target of rows held out would spoil any model
    for part in np.array_split(np.arange(3_000), 3):
        sketch.update(X[part], y[part])
    model = sketch.linear_model(kind="least-squares")
    assert model.r2 == pytest.approx(1)
    sketch.remove(index=sketch.holdout.index[:5])
    assert sketch.linear_model(kind="least-squares").r2 == pytest.approx(1)
    assert sketch.error().seen == (~out).sum()


def test_a_person_is_removed_from_both_sides(tmp_path):
    rows = table()
    sketch = files(rows, tmp_path)
    people = [kept.X["customer"].iloc[0] for kept in (sketch, sketch.holdout)]
    assert forget(tmp_path / "out.parquet", {"customer": people}).removed >= 2
    left = Sketch.load(tmp_path / "out.parquet")
    for kept in (left, left.holdout):
        assert not set(people) & set(kept.X["customer"])
    assert left.seen == N


def test_a_copy_and_a_pickle_have_the_same_sides():
    import pickle

    sketch = updates(table(), None)
    for other in (sketch.copy(), pickle.loads(pickle.dumps(sketch))):
        assert sides(other) == sides(sketch)


def accuracy(y, predicted, sample_weight=None):
    return np.average(y == predicted, weights=sample_weight)


def population(n, rng):
    """Rows with groups, a rare class, and a model that is right more often in some groups."""
    group = rng.integers(0, n // 25, n)
    effect = rng.standard_normal(n // 25)[group]
    x = rng.standard_normal(n)
    y = (x + effect + 0.5 * rng.standard_normal(n) > 1.8).astype(int)
    return np.column_stack([x, rng.standard_normal(n)]), y, group


def chance(X):
    return 1 / (1 + np.exp(-3 * (X[:, 0] - 1.6)))


def coverage(repetitions, metric, *, n=4_000, group=False, **settings):
    """Return in how many cases of 100 the interval has the score on all rows."""
    hits = 0
    for seed in range(repetitions):
        X, y, code = population(n, np.random.default_rng(seed))
        sketch = Sketch(
            600, "reservoir", holdout=0.4, seed=seed, group="who" if group else None, **settings
        )
        for part in np.array_split(np.arange(n), 4):
            sketch.update(X[part], y[part], extra={"who": code[part]})
        low, high = sketch.evaluate(chance, metric).interval()
        hits += low <= metric(y, chance(X), sample_weight=None) <= high
    return 100 * hits / repetitions


def brier(y, p, sample_weight=None):
    return np.average((y - p) ** 2, weights=sample_weight)


def auc(y, p, sample_weight=None):
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    order = np.argsort(p)
    rare, rest = (weight * y)[order], (weight * (1 - y))[order]
    return rare @ np.cumsum(rest) / (rare.sum() * rest.sum())


CASES = {
    "plain": {"metric": brier},
    "groups": {"metric": brier, "group": True, "n": 16_000},
    "few groups": {"metric": brier, "group": True},  # 64 held out
    "strata": {"metric": brier, "strata": "y"},
    "strata, auc": {"metric": auc, "strata": "y"},
}


@pytest.mark.parametrize("case", ["groups", "strata"])
def test_intervals_of_scores_hold(case):
    assert coverage(20, **CASES[case]) >= 80


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_intervals_of_scores_hold_95_times_in_100(case):
    # 1,000 streams: the standard error of a coverage is 0.7 points.
    assert 93 <= coverage(1_000, **CASES[case]) <= 97


def test_intervals_of_skewed_scores_reach_further_where_scores_are_missed_more_often():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20_000, 2)), np.exp(2 * rng.standard_normal(20_000))
    sketch = Sketch(300, "reservoir", holdout=0.3, seed=0).update(X, y)
    found = sketch.evaluate(lambda X: np.zeros(len(X)), mean_error)
    low, high = found.interval()
    assert low < found.value < high
    assert high - found.value > 1.2 * (found.value - low)


def mean_error(y, predicted, sample_weight=None):
    return np.average(y - predicted, weights=sample_weight)


def test_scorers_of_scikit_learn_by_name():
    from sklearn.linear_model import LogisticRegression

    X, y, _ = population(8_000, np.random.default_rng(0))
    sketch = Sketch(1_000, holdout=0.4, strata="y", seed=0).update(X, y)
    model = LogisticRegression().fit(sketch.X, sketch.y)
    calls, own = [], model.predict_proba
    model.predict_proba = lambda rows: calls.append(1) or own(rows)
    for name, least in (("neg_log_loss", -1.0), ("roc_auc", 0.5), ("accuracy", 0.5)):
        found = sketch.evaluate(model, name, replicates=20)
        assert least < found.value < found.interval()[1]
    assert len(calls) <= 2  # once a score, not once a replicate
    assert sketch.evaluate(model.predict, accuracy).value == sketch.evaluate(model, accuracy).value


def test_rows_without_a_target_are_left_out():
    X, y, _ = population(4_000, np.random.default_rng(0))
    y = np.where(np.arange(4_000) % 3 == 0, np.nan, y)
    sketch = Sketch(400, holdout=0.5, missing_target="keep", seed=0).update(X, y)
    assert np.isfinite(sketch.evaluate(chance, brier).value)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"holdout": 0}, "holdout"),
        ({"holdout": 1.0}, "holdout"),
        ({"holdout": "a fifth"}, "holdout"),
        ({"group": "who"}, "group"),
        ({"size": 1, "holdout": 0.2}, "holdout"),
        ({"size": "task", "holdout": 0.2}, "holdout"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, name):
    with pytest.raises(InputError, match=name):
        Sketch(**({"size": 100} | settings))


def test_questions_that_have_no_answer_are_refused(tmp_path):
    X, y, code = population(2_000, np.random.default_rng(0))
    plain = Sketch(100, seed=0).update(X, y)
    for ask in (lambda: plain.holdout, lambda: plain.evaluate(chance, brier)):
        with pytest.raises(InputError, match="create the sketch with"):
            ask()
    sketch = Sketch(100, holdout=0.2, seed=0)
    with pytest.raises(InputError, match="empty"):
        _ = sketch.holdout.X
    with pytest.raises(InputError, match="rows held out"):
        sketch.evaluate(chance, brier)
    sketch.update(X, y, extra={"who": code})
    with pytest.raises(InputError, match="holdout"):
        sketch.merge(plain)
    with pytest.raises(InputError, match="holdout"):
        sketch.merge(Sketch(100, holdout=0.3, seed=1).update(X, y, extra={"who": code}))
    for arguments in ({"values": X[:80, 0]}, {"by": y[:80]}, {"where": y[:80] == 1}):
        with pytest.raises(InputError, match=next(iter(arguments))):
            sketch.estimate(**arguments)
    with pytest.raises(InputError, match="where"):
        sketch.remove(where=np.zeros(80, dtype=bool))
    with pytest.raises(InputError, match="calibrate"):
        sketch.estimate(calibrate=True)
    for metric in ("no such score", 3, lambda y, p: 1.0, lambda y, p, sample_weight: np.nan):
        with pytest.raises(InputError, match="metric"):
            sketch.evaluate(chance, metric)
    for metric in (brier, "roc_auc"):
        with pytest.raises(InputError, match="model"):
            sketch.evaluate(3, metric)
    with pytest.raises(InputError, match="group: there is no column 'nobody'"):
        Sketch(100, holdout=0.2, group="nobody").update(X, y)
    with pytest.raises(InputError, match="group"):
        Sketch(100, holdout=0.2, group="two").update(X, y, extra={"two": X})
    rows = table(500)
    pq.write_table(rows, tmp_path / "in.parquet")
    into = tmp_path / "out.parquet"
    with pytest.raises(InputError, match="nobody"):
        compress(tmp_path / "in.parquet", into=into, size=50, holdout=0.2, group="nobody")
    compress(tmp_path / "in.parquet", into=into, size=50, holdout=0.2)
    for settings in ({"holdout": 0.3}, {"group": "customer"}):
        with pytest.raises(InputError, match=next(iter(settings))):
            compress(tmp_path / "in.parquet", into=into, **settings)
    assert config_of(Sketch.load(into)).holdout == 0.2
    assert state_of(sketch).seen == 2_000


def test_a_file_without_keys_is_refused(tmp_path, monkeypatch):
    sketch = updates(table(), None)
    rows = state_of(sketch).rows
    state = state_of(sketch).replace(
        rows=RowStore({name: rows[name] for name in rows if name != "key"})
    )
    from olss.memory import sketch_file

    sketch_file.write(tmp_path / "a.parquet", config_of(sketch), state, state)
    with pytest.raises(FormatError, match="key"):
        Sketch.load(tmp_path / "a.parquet")
