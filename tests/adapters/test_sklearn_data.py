from __future__ import annotations

import importlib

import numpy as np
import pandas as pd
import polars as pl
import polars.testing
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from olss.adapters.sklearn import ContinualClassifier, ContinualRegressor, LeverageSampler
from olss.adapters.sklearn_data import accepts_nan, accepts_sparse
from olss.errors import DataError, InputError

CARRIERS = np.array(["UA", "AA", "DL", "B6"])


def flights(n, seed, text="str"):
    """Return a pandas frame of text, dates, categories and gaps, and whether flights were late.

    Three flights in four of the first carrier are late, and one in four of the others, so a model
    that reads the text is right about them three times in four.
    """
    rng = np.random.default_rng(seed)
    carrier = rng.integers(0, 4, n)
    late = rng.random(n) < np.where(carrier == 0, 0.75, 0.25)
    frame = pd.DataFrame(
        {
            "carrier": pd.Series(CARRIERS[carrier], dtype=text),
            "origin": pd.Categorical.from_codes(rng.integers(0, 3, n), ["EWR", "JFK", "LGA"]),
            "distance": rng.exponential(800, n),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n), unit="D"),
            "y": rng.integers(0, 100, n),  # a place on a map, not the target
        }
    )
    frame.loc[rng.random(n) < 0.05, "carrier"] = np.nan
    frame.loc[rng.random(n) < 0.1, "distance"] = np.nan
    return frame, np.where(late, "late", "on time")


def months(dates):
    return dates.apply(lambda column: column.dt.month)


def by_columns(last):
    """Return a pipeline that takes the columns of flights by their names."""
    fill = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    return make_pipeline(
        make_column_transformer(
            (fill, ["carrier"]),
            (OneHotEncoder(handle_unknown="ignore"), ["origin"]),
            (make_pipeline(SimpleImputer(), StandardScaler()), ["distance", "y"]),
            (FunctionTransformer(months), ["day"]),
        ),
        last,
    )


def learned(model, **text):
    for month in range(3):
        frame, late = flights(800, month, **text)
        model.partial_fit(frame, late, task=month)
    return model


@pytest.mark.parametrize("text", ["str", object])
@pytest.mark.parametrize("policy", ["weighted", "balanced", "reservoir"])
def test_a_pipeline_gets_the_rows_as_they_came(policy, text):
    pipeline = by_columns(LogisticRegression())
    settings = {"size": 300, "policy": policy, "random_state": 0, "correct_priors": False}
    model = learned(ContinualClassifier(pipeline, **settings), text=text)
    everything = pd.concat([flights(800, m, text)[0] for m in range(3)], ignore_index=True)
    kept = everything.iloc[model.sketch_.index].reset_index(drop=True)
    pd.testing.assert_frame_equal(model.sketch_.X, kept)
    frame, late = flights(2_000, 9, text)
    by_hand = clone(pipeline).fit(kept, model.sketch_.y)
    np.testing.assert_array_equal(model.predict(frame), by_hand.predict(frame))
    # Three in four can be known: four standard deviations of 2,000 tries and what 300 rows cost.
    assert model.score(frame, late) > 0.75 - 4 * np.sqrt(0.25 * 0.75 / 2_000) - 0.02


def test_columns_called_by_whole_numbers_are_put_right():
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((300, 2)))
    y = (X[0] > 0).astype(int)
    model = ContinualClassifier(LogisticRegression(), size=200, random_state=0).partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.predict(X[[1, 0]]))


def test_columns_in_another_order_are_put_right():
    first, late = flights(400, 0)
    second, later = flights(400, 1)
    turned = second[second.columns[::-1]]
    models = [
        ContinualClassifier(by_columns(LogisticRegression()), size=200, random_state=0)
        .partial_fit(first, late)
        .partial_fit(frame, later)
        for frame in (second, turned)
    ]
    pd.testing.assert_frame_equal(models[0].sketch_.X, models[1].sketch_.X)
    np.testing.assert_array_equal(models[0].predict(second), models[1].predict(turned))
    # Also by an estimator that goes by places and not by names.
    numbers = ["distance", "y"]
    model = ContinualClassifier(HistGradientBoostingClassifier(max_iter=5), size=200)
    model.fit(first[numbers], late)
    np.testing.assert_array_equal(
        model.predict(second[numbers]), model.predict(second[numbers[::-1]])
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.rename(columns={"day": "date"}), "unseen at fit time:\n- date"),
        (lambda f: f.drop(columns="day"), "now missing:\n- day"),
        (lambda f: f.assign(gate=1), "unseen at fit time:\n- gate"),
    ],
)
def test_other_columns_are_named(change, words):
    frame, late = flights(200, 0)
    model = ContinualClassifier(by_columns(LogisticRegression())).fit(frame, late)
    with pytest.raises(ValueError, match=words):
        model.partial_fit(change(frame), late)
    with pytest.raises(DataError, match="column 'distance' is"):
        model.partial_fit(frame.assign(distance="far"), late)
    assert model.sketch_.seen == 200


def test_other_columns_at_predict_are_left_to_the_estimator():
    frame, late = flights(200, 0)
    more, fewer = frame.assign(gate=1), frame.drop(columns="day")
    by_name = ContinualClassifier(by_columns(LogisticRegression())).fit(frame, late)
    np.testing.assert_array_equal(by_name.predict(more), by_name.predict(frame))
    with pytest.raises(ValueError, match="day"):
        by_name.predict(fewer)
    numbers = frame[["distance", "y"]]
    strict = ContinualClassifier(HistGradientBoostingClassifier(max_iter=5)).fit(numbers, late)
    with pytest.raises(ValueError, match="gate"):
        strict.predict(numbers.assign(gate=1))
    lenient = clone(strict).set_params(new_columns="ignore").fit(numbers, late)
    np.testing.assert_array_equal(lenient.predict(numbers.assign(gate=1)), strict.predict(numbers))


@pytest.mark.parametrize("learns", [True, False])
def test_new_columns_are_kept_or_ignored(learns):
    first, late = flights(200, 0)
    numbers = first[["distance", "y"]]
    model = ContinualClassifier(
        HistGradientBoostingClassifier(max_iter=5), new_columns="keep" if learns else "ignore"
    )
    model.fit(numbers, late).partial_fit(numbers.assign(gate=np.arange(200.0)), late)
    columns = ["distance", "y", "gate"] if learns else ["distance", "y"]
    assert list(model.sketch_.X.columns) == list(model.feature_names_in_) == columns
    assert model.n_features_in_ == len(columns)
    if learns:
        gates = model.sketch_.X["gate"].to_numpy(dtype=float)
        assert np.isnan(gates[:200]).all()
        assert sorted(gates[200:]) == list(range(200))
    assert len(model.predict(numbers.assign(gate=0.0))) == 200


def test_arrays_and_frames_do_not_mix():
    frame = pd.DataFrame(np.arange(40.0).reshape(20, 2), columns=["a", "b"])
    y = np.arange(20) % 2
    with pytest.warns(UserWarning, match="feature names"), pytest.raises(InputError, match="table"):
        ContinualClassifier(SVC()).fit(frame, y).partial_fit(frame.to_numpy(), y)
    with pytest.warns(UserWarning, match="feature names"), pytest.raises(DataError, match="array"):
        ContinualClassifier(SVC()).fit(frame.to_numpy(), y).partial_fit(frame, y)


def test_polars_frames_stay_polars_frames():
    frame = pl.from_pandas(flights(600, 0)[0])
    late = pl.Series("late", flights(600, 0)[1])
    transform = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["carrier", "origin"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["distance"]),
    )
    pipeline = make_pipeline(transform, LogisticRegression())
    model = ContinualClassifier(pipeline, size=300, random_state=0)
    model.partial_fit(frame[:300], late[:300])
    model.partial_fit(frame[300:].select(frame.columns[::-1]), late[300:])
    assert model.feature_names_in_.tolist() == frame.columns
    pl.testing.assert_frame_equal(model.sketch_.X, frame[model.sketch_.index])
    assert set(model.predict(frame)) == {"late", "on time"}
    assert model.sketch_.frame.columns[-4] == "late"


def test_a_target_is_called_as_it_is():
    frame, late = flights(50, 0)
    model = ContinualClassifier(by_columns(LogisticRegression()))
    model.fit(frame, pd.Series(late, name="late", index=range(50, 100)))
    assert model.sketch_.frame["late"].tolist() == late.tolist()
    # A column has the name a target without one gets.
    named = model.fit(frame, late).sketch_.frame
    assert named["y_"].tolist() == late.tolist()
    assert named["y"].tolist() == frame["y"].tolist()


def test_row_labels_are_passed_over_in_silence():
    frame, late = flights(60, 0)
    labelled = frame.set_index(pd.Index([f"flight {i}" for i in range(60)], name="flight"))
    model = ContinualClassifier(by_columns(LogisticRegression())).fit(labelled, late)
    pd.testing.assert_frame_equal(model.sketch_.X, frame)


def test_rows_go_by_their_columns():
    frame, late = flights(300, 0)
    model = ContinualClassifier(by_columns(LogisticRegression()), size=100, random_state=0)
    model.fit(frame, late, extra={"passenger": np.arange(300) // 3})
    held = model.sketch_.extra["passenger"]
    assert model.remove(where={"passenger": held[:2]}) == np.isin(held, held[:2]).sum()
    assert not np.isin(model.sketch_.extra["passenger"], held[:2]).any()
    assert model.remove(where={"origin": "JFK"}) > 0
    assert "JFK" not in set(model.sketch_.X["origin"])
    # A class that is gone is still known, and is not predicted.
    assert model.remove(where={"y_": "late"}) > 0
    assert set(model.predict(frame)) == {"on time"}
    assert model.classes_.tolist() == ["late", "on time"]


def test_weights_go_with_frames():
    frame, _ = flights(200, 0)
    frame, target = frame[["distance", "y"]].fillna(500.0), frame["y"] * 2.0 + 1
    weight = np.arange(200.0)
    model = ContinualRegressor(LinearRegression()).fit(frame, target, weight)
    np.testing.assert_array_equal(model.sketch_.weight, weight[1:])
    np.testing.assert_allclose(model.predict(frame), target)
    both = np.column_stack([target, -target])
    assert ContinualRegressor(Ridge(), size=50).fit(frame, both).predict(frame).shape == (200, 2)


@pytest.mark.parametrize("weight", [None, np.tile([0.0, 1.0], 30)])
def test_lengths_must_agree(weight):
    frame, late = flights(60, 0)
    model = ContinualClassifier(by_columns(LogisticRegression()))
    for X in (frame[:50], pd.concat([frame, frame])):
        with pytest.raises(ValueError, match=str(len(X))):
            model.fit(X, late, weight)
    for short in ({"extra": {"id": np.arange(59)}}, {"task": np.arange(59)}):
        with pytest.raises(ValueError, match="59"):
            model.fit(frame, late, weight, **short)


def boosted(package, categories=False):
    """Return a classifier of a library, of few trees and one thread."""
    if package == "xgboost":
        module = importlib.import_module("xgboost")
        return module.XGBClassifier(n_estimators=20, n_jobs=1, enable_categorical=True)
    if package == "lightgbm":
        module = importlib.import_module("lightgbm")
        return module.LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1)
    # A wheel of 97 MB, so not in the dev extra: install it to have this run. Names of columns are a
    # tuple: CatBoost keeps a copy of a list, which scikit-learn's clone takes for another.
    module = pytest.importorskip("catboost")
    names = ("carrier", "origin") if categories else None
    return module.CatBoostClassifier(
        n_estimators=20,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
        cat_features=names,
    )


@pytest.mark.parametrize("package", ["xgboost", "lightgbm", "catboost"])
class TestBoosting:
    def test_categories_and_gaps(self, package):
        def month(seed, n=800):
            frame, late = flights(n, seed)
            if package == "catboost":  # which takes text, but no gaps in it
                frame["carrier"] = frame["carrier"].fillna("none")
            else:
                frame["carrier"] = frame["carrier"].astype("category")
            return frame.drop(columns="day"), late

        estimator = boosted(package, categories=True)
        model = ContinualClassifier(estimator, size=500, random_state=0, correct_priors=False)
        for seed in range(3):
            model.partial_fit(*month(seed), task=seed)
        assert model.sketch_.X["distance"].isna().any()
        assert model.sketch_.X["origin"].dtype == "category"
        frame, late = month(9, 2_000)
        by_hand = clone(estimator).fit(model.sketch_.X, model.sketch_.y == "on time")
        agree = model.predict(frame) == np.where(by_hand.predict(frame), "on time", "late")
        assert agree.all()
        assert model.score(frame, late) > 0.65

    def test_arrays_with_gaps_weights_and_sparse_rows(self, package):
        rng = np.random.default_rng(0)
        A = rng.standard_normal((900, 4))
        y = (A[:, 0] > 0) + (A[:, 1] > 0)
        A[rng.random(A.shape) < 0.1] = np.nan
        model = ContinualClassifier(boosted(package), size=600, random_state=0)
        model.partial_fit(A[:500], y[:500], sample_weight=rng.random(500)).partial_fit(
            A[500:], y[500:]
        )
        assert np.isnan(model.sketch_.X).any()
        assert model.score(A, y) > 0.75
        rows = sp.csr_array(np.where(rng.random(A.shape) < 0.5, np.nan_to_num(A), 0))
        model.fit(rows, y)
        dense = clone(model).fit(rows.toarray(), y)
        assert sp.issparse(model.sketch_.X)
        np.testing.assert_array_equal(model.sketch_.index, dense.sketch_.index)
        # XGBoost takes what is not stored for missing, the others for zero.
        assert model.score(rows, y) > 0.5


@pytest.mark.parametrize(
    ("estimator", "gaps", "sparse"),
    [
        (LogisticRegression(), False, True),
        (HistGradientBoostingClassifier(), True, False),
        (DecisionTreeClassifier(), True, True),
        (make_pipeline(SimpleImputer(), LogisticRegression()), True, True),
        (make_pipeline(StandardScaler(), LogisticRegression()), False, False),
        (make_pipeline("passthrough", StandardScaler(), SimpleImputer(), SVC()), True, False),
        (make_pipeline(TruncatedSVD(2), HistGradientBoostingClassifier()), False, True),
        (make_pipeline(make_column_transformer((SimpleImputer(), [0])), SVC()), True, True),
        (GridSearchCV(HistGradientBoostingClassifier(), {"max_iter": [3]}), True, False),
        (GridSearchCV(SVC(), {"C": [1.0]}), False, True),
    ],
)
def test_arrays_are_taken_if_the_estimator_takes_them(estimator, gaps, sparse):
    assert accepts_nan(estimator) is gaps
    assert accepts_sparse(estimator) is sparse
    rng = np.random.default_rng(0)
    A = rng.standard_normal((120, 5))
    y = A[:, 0] > 0
    A[3, 4] = np.nan
    model = ContinualClassifier(estimator, size=100, random_state=0)
    if gaps:
        assert set(model.fit(A, y).predict(A)) <= {True, False}
    else:  # whether or not the row would have been kept
        with pytest.raises(ValueError, match="NaN"):
            model.fit(A, y)
    rows = sp.csr_array(np.where(np.abs(A) > 1, A, 0.0))
    if sparse:
        assert sp.issparse(model.fit(rows, y).sketch_.X)
    else:
        with pytest.raises(TypeError, match=r"Sparse data was passed.*toarray"):
            model.fit(rows, y)
    A[3, 4] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        model.fit(A, y)


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array, pd.DataFrame])
def test_an_estimator_that_writes_into_its_rows_does_not_change_what_is_remembered(wrap):
    rng = np.random.default_rng(0)
    A = np.abs(rng.standard_normal((60, 3)))
    careless = make_pipeline(StandardScaler(copy=False, with_mean=False), Ridge())
    model = ContinualRegressor(careless).fit(wrap(A), A[:, 0], A[:, 1])
    model.partial_fit(wrap(A[:20]), A[:20, 0])
    held = model.sketch_.X
    np.testing.assert_array_equal(
        held.toarray() if sp.issparse(held) else held, np.concatenate([A, A[:20]])
    )


def test_text_is_remembered_as_sparse_rows():
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(400)])
    y = np.arange(900) % 3
    texts = [
        " ".join(words[rng.integers(100 * label, 100 * label + 200, 12)]) for label in y.tolist()
    ]
    tfidf = TfidfVectorizer().fit(texts)
    model = ContinualClassifier(MultinomialNB(), size=200, policy="balanced", random_state=0)
    for start in range(0, 900, 300):
        part = slice(start, start + 300)
        model.partial_fit(tfidf.transform(texts[part]), y[part])
    held = model.sketch_.X
    assert isinstance(held, sp.csr_array)
    assert (held != tfidf.transform(texts)[model.sketch_.index]).nnz == 0
    assert model.score(tfidf.transform(texts), y) > 0.8
    with pytest.raises(DataError, match="X must be sparse rows"):
        model.partial_fit(tfidf.transform(texts[:9]).toarray(), y[:9])


def test_text_in_a_frame_is_kept_as_text():
    frame = pd.DataFrame({"review": ["good one", "bad one", "so good", "so bad"] * 10})
    model = ContinualClassifier(
        make_pipeline(make_column_transformer((TfidfVectorizer(), "review")), LogisticRegression()),
        size=20,
        policy="reservoir",
        random_state=0,
    ).fit(frame, ["+", "-"] * 20)
    assert model.score(frame, ["+", "-"] * 20) == 1.0


def test_a_lazy_query_is_no_rows():
    frame, late = flights(20, 0)
    model = ContinualClassifier(by_columns(SVC()))
    with pytest.raises(DataError, match=r"found a LazyFrame.*collect"):
        model.fit(pl.from_pandas(frame).lazy(), late)
    with pytest.raises(DataError, match=r"found a RecordBatchReader"):
        model.fit(pa.table({"a": [1.0, 2.0]}).to_reader(), [0, 1])


class TestSampler:
    def test_frames_come_back_as_they_were(self):
        frame, late = flights(400, 0)
        sampler = LeverageSampler(60, random_state=0)
        rows, labels = sampler.fit_resample(frame, late)
        pd.testing.assert_frame_equal(rows, frame.iloc[sampler.sample_indices_])
        rows, kept = sampler.fit_resample(pl.from_pandas(frame), pl.Series("late", late))
        pl.testing.assert_frame_equal(rows, pl.from_pandas(frame)[sampler.sample_indices_])
        assert kept.to_list() == labels.tolist()

    def test_gaps_sparse_rows_and_arrow(self):
        rng = np.random.default_rng(0)
        A = rng.standard_normal((100, 3))
        A[5, 1] = np.nan
        assert LeverageSampler(20).fit_resample(A).shape == (20, 3)
        assert LeverageSampler(20).fit_resample(sp.csr_array(np.nan_to_num(A))).shape == (20, 3)
        assert LeverageSampler(20).fit(pa.table({"a": A[:, 0]})).sample_indices_.shape == (20,)


@pytest.mark.parametrize("kind", ["objects", "pandas", "polars"])
def test_missing_labels_are_told(kind):
    labels = ["a", "b", None] * 10
    y = {
        "objects": np.array(labels, dtype=object),
        "pandas": pd.array(labels, dtype="string"),
        "polars": pl.Series(labels),
    }[kind]
    X = pd.DataFrame({"x": np.arange(30.0)})
    with pytest.raises(DataError, match="y has 10 missing values"):
        ContinualClassifier(LogisticRegression(), size=9).partial_fit(X, y)
