from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from olss.adapters.sklearn import ContinualClassifier, ContinualRegressor, LeverageSampler
from olss.errors import DataError, InputError, OlssWarning
from olss.memory.config import settings
from olss.sketch import Sketch


def known_to_fail(estimator):
    """Whatever is of SVC itself: scikit-learn lists it, too."""
    if "SVC()" not in repr(estimator):
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "SVC alone fails it"}


@parametrize_with_checks(
    [
        ContinualClassifier(LogisticRegression()),
        ContinualClassifier(DecisionTreeClassifier(random_state=0), policy="balanced"),
        ContinualClassifier(make_pipeline(StandardScaler(), SVC())),
        ContinualRegressor(Ridge()),
        ContinualRegressor(DecisionTreeRegressor(random_state=0), use_weights=True),
        ContinualClassifier(
            make_pipeline(StandardScaler(), DecisionTreeClassifier(random_state=0))
        ),
        LeverageSampler(),
    ],
    expected_failed_checks=known_to_fail,
)
def test_scikit_learn_has_no_objection(estimator, check):
    check(estimator)


X, y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 1_400), slice(1_400, None)


DIGITS = np.arange(10)


def by_class(model, names=DIGITS):
    """Learn the digits two classes after two."""
    for pair in range(5):
        rows = np.flatnonzero(y[TRAIN] // 2 == pair)
        model.partial_fit(X[rows], names[y[rows]], task=pair)
    return model


@pytest.mark.parametrize(
    ("estimator", "floor"),
    [
        (HistGradientBoostingClassifier(max_iter=10, random_state=0), 0.7),
        (RandomForestClassifier(30, random_state=0), 0.85),
        (SVC(), 0.9),
        (make_pipeline(StandardScaler(), LogisticRegression()), 0.8),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_estimator_learns_classes_that_come_one_after_the_other(estimator, floor):
    model = ContinualClassifier(
        estimator, size=400, policy="balanced", random_state=0, correct_priors=False
    )
    with threadpool_limits(1):  # OpenMP threads that wait for a busy core take minutes
        by_class(model)
        by_hand = clone(estimator).fit(model.sketch_.X, model.sketch_.y)
    assert len(model.sketch_) == 400
    assert model.sketch_.seen == 1_400
    assert model.score(X[TEST], y[TEST]) > floor
    # The same rows, fitted by hand, give the same answers: nothing else is in the model.
    np.testing.assert_array_equal(model.predict(X[TEST]), by_hand.predict(X[TEST]))


def test_rows_are_those_a_sketch_of_the_same_seed_keeps():
    model = by_class(ContinualClassifier(SVC(), size=100, random_state=7))
    seed = np.random.RandomState(7).randint(np.iinfo(np.int32).max)
    sketch = Sketch(100, seed=seed)
    for pair in range(5):
        rows = np.flatnonzero(y[TRAIN] // 2 == pair)
        sketch.update(X[rows], y[rows], task=pair)
        assert len(sketch) == 100  # looked at after each update, as the model does
    np.testing.assert_array_equal(model.sketch_.index, sketch.index)
    np.testing.assert_array_equal(model.sketch_.task, sketch.task)


NAMES = np.array(["nought", *"abcdefghi"], dtype=object)


def test_classes_found_as_they_come_are_text_as_well_as_numbers():
    model = by_class(ContinualClassifier(SVC(), size=300, policy="balanced"), NAMES)
    assert model.classes_.tolist() == sorted(NAMES)
    assert set(model.predict(X[TEST])) <= set(NAMES)
    assert model.score(X[TEST], NAMES[y[TEST]]) > 0.85


def test_classes_given_are_all_there_may_be():
    model = ContinualClassifier(LogisticRegression(max_iter=1_000), size=100)
    first = np.flatnonzero(y < 3)[:60]
    model.partial_fit(X[first], y[first], classes=range(5))
    chances = model.predict_proba(X[:20])
    assert chances.shape == (20, 5)
    np.testing.assert_array_equal(chances[:, 3:], 0)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert np.isneginf(model.predict_log_proba(X[:20])[:, 3:]).all()
    assert (model.decision_function(X[:20]).argmax(axis=1) == model.predict(X[:20])).all()
    with pytest.raises(InputError, match=r"only the classes given.*found \[7\]"):
        model.partial_fit(X[y == 7], y[y == 7])
    with pytest.raises(InputError, match="classes must be those of the first call"):
        model.partial_fit(X[first], y[first], classes=range(6))
    model.partial_fit(X[y == 4], y[y == 4], classes=range(5))
    assert model.sketch_.seen == 60 + (y == 4).sum()


def test_one_class_is_answered_until_there_are_two():
    model = ContinualClassifier(SVC(), size=50).partial_fit(X[y == 3], y[y == 3])
    assert (model.predict(X) == 3).all()
    assert model.decision_function(X[:5]).shape == (5, 1)
    model.partial_fit(X[y == 8], y[y == 8])
    two = X[(y == 3) | (y == 8)]
    assert model.decision_function(two).shape == (len(two),)
    assert model.score(two, y[(y == 3) | (y == 8)]) > 0.9


def test_a_class_that_left_the_sketch_stays_a_class():
    model = ContinualClassifier(SVC(), size=20, policy="recent")
    for digit in range(3):
        model.partial_fit(X[y == digit], y[y == digit])
    assert set(model.sketch_.y) == {2}
    rows = np.flatnonzero((y == 1) | (y == 2))[-20:]
    model.partial_fit(X[rows], y[rows])
    decision = model.decision_function(X[rows])
    assert decision.shape == (20, 3)
    assert (decision[:, 0] == np.finfo(np.float64).min).all()
    np.testing.assert_array_equal(model.classes_[decision.argmax(axis=1)], model.predict(X[rows]))


def test_fit_forgets_and_partial_fit_does_not():
    model = by_class(ContinualClassifier(SVC(), size=100))
    model.fit(X[:30], y[:30])
    assert model.sketch_.seen == 30
    assert model.partial_fit(X[30:60], y[30:60]).sketch_.seen == 60


def test_a_call_that_raises_changes_nothing():
    class Picky(LogisticRegression):
        def fit(self, X, y):
            if len(X) > 40:
                raise ValueError("too much")
            return super().fit(X, y)

    model = ContinualClassifier(Picky(max_iter=1_000), size=100).fit(X[:40], y[:40] > 4)
    before, answers = model.sketch_.index.copy(), model.predict(X)
    with pytest.raises(ValueError, match="too much"):
        model.partial_fit(X[40:60], y[40:60] > 4)
    with pytest.raises(ValueError, match="65 features"):
        model.partial_fit(np.ones((3, 65)), [0, 1, 0])
    with pytest.raises(ValueError, match="too much"):
        model.fit(X[:60], y[:60] > 4)
    np.testing.assert_array_equal(model.sketch_.index, before)
    np.testing.assert_array_equal(model.predict(X), answers)


def test_a_first_fit_that_raises_leaves_the_model_unfitted():
    model = ContinualClassifier(SVC(C=-1.0))
    with pytest.raises(ValueError, match="'C' parameter"):
        model.fit(X, y)
    assert not hasattr(model, "n_features_in_")
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_clone_set_params_and_pickle():
    model = by_class(ContinualClassifier(SVC(), size=100, random_state=1))
    again = pickle.loads(pickle.dumps(model))
    for one in (model, again):
        one.partial_fit(X[TEST], y[TEST])
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    blank = clone(model)
    assert not hasattr(blank, "sketch_")
    assert blank.get_params()["estimator__C"] == 1.0
    assert blank.set_params(estimator__C=3.0, size=7).fit(X, y).estimator_.C == 3.0
    assert len(blank.sketch_) == 7
    assert model.estimator.C == 1.0


def test_size_may_be_set_between_calls():
    model = by_class(ContinualClassifier(SVC(), size=100))
    assert len(model.set_params(size=60).partial_fit(X[TEST], y[TEST]).sketch_) == 60
    with pytest.raises(InputError, match="size must be"):
        model.set_params(size=-1).partial_fit(X[TEST], y[TEST])
    assert len(model.sketch_) == 60


def test_grid_search_chooses_settings_of_both():
    pipeline = make_pipeline(StandardScaler(), ContinualClassifier(SVC(), random_state=0))
    grid = {
        "continualclassifier__size": [20, 200],
        "continualclassifier__estimator__C": [1e-6, 1.0],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(X[:600], y[:600])
    assert search.best_params_ == {
        "continualclassifier__size": 200,
        "continualclassifier__estimator__C": 1.0,
    }


def test_later_batches_take_the_precision_of_the_first():
    model = ContinualClassifier(SVC(), size=50).partial_fit(X[:60].astype(np.float32), y[:60])
    model.partial_fit(X[60:90].astype(int), y[60:90].astype(np.int8))
    assert model.sketch_.X.dtype == np.float32
    assert model.sketch_.y.dtype == np.int64


def test_whole_numbers_as_floats_are_labels():
    model = ContinualClassifier(SVC(), size=100, policy="balanced").fit(X, y.astype(float))
    assert np.bincount(model.sketch_.y).tolist() == [10] * 10


def test_real_targets_are_no_labels():
    with pytest.raises(ValueError, match="Unknown label type"):
        ContinualClassifier(SVC()).fit(X, y + 0.5)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (ContinualClassifier(Ridge()), "found Ridge, a regressor; use ContinualRegressor"),
        (
            ContinualClassifier(make_pipeline(StandardScaler(), Ridge())),
            "found Pipeline.*regressor",
        ),
        (ContinualClassifier(KMeans()), "be a classifier, found KMeans, a clusterer"),
        (ContinualRegressor(SVC()), "found SVC, a classifier; use ContinualClassifier"),
    ],
)
def test_an_estimator_of_another_kind_is_refused(model, words):
    with pytest.raises(InputError, match=words):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_labels_are_those_of_the_fit_whatever_happens_to_the_sketch():
    model = by_class(ContinualClassifier(SVC(), size=200, policy="balanced", random_state=0))
    answers, decision = model.predict(X), model.decision_function(X)
    model.sketch_.remove(where={"y": [0, 3]})
    np.testing.assert_array_equal(model.predict(X), answers)
    np.testing.assert_array_equal(model.decision_function(X), decision)


def test_rows_removed_are_forgotten_by_the_estimator_too():
    model = ContinualClassifier(KNeighborsClassifier(1), size=2_000)
    person = np.arange(len(X)) % 7
    model.fit(X, y, extra={"person": person})
    assert model.remove(where={"person": 3}) == (person == 3).sum()
    assert model.estimator_.n_samples_fit_ == (person != 3).sum() == len(model.sketch_)
    stay = KNeighborsClassifier(1).fit(X[person != 3], y[person != 3])
    np.testing.assert_array_equal(model.predict(X), stay.predict(X))
    assert model.remove([0, 1, 3]) == 2  # person 3 is not there any more
    with pytest.raises(DataError, match="person"):
        model.partial_fit(X, y)
    with pytest.raises(NotFittedError):
        clone(model).remove(0)


def test_nothing_is_fitted_while_no_row_is_left():
    model = ContinualClassifier(SVC()).fit(X[:50], y[:50])
    assert model.remove(where={"task": 0}) == 50
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[50:90], y[50:90])
    assert model.sketch_.seen == 90
    assert model.score(X[50:90], y[50:90]) > 0.9


def test_a_removal_whose_refit_fails_changes_nothing():
    class Many(LogisticRegression):
        def fit(self, X, y):
            if len(X) < 40:
                raise ValueError("too few")
            return super().fit(X, y)

    model = ContinualClassifier(Many(max_iter=1_000), size=100).fit(X[:40], y[:40])
    rows, answers = model.sketch_.X.copy(), model.predict(X)
    with pytest.raises(ValueError, match="too few"):
        model.remove(3)
    assert len(model.sketch_) == 40
    np.testing.assert_array_equal(model.predict(X), answers)
    np.testing.assert_array_equal(model.sketch_.X, rows)


def test_weights_reach_the_estimator():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((2_000, 3)) * [1.0, 1.0, 9.0]
    target = A @ [1.0, 2.0, 3.0] + 0.1 * A[:, 0] ** 2
    model = ContinualRegressor(LinearRegression(), size=200, use_weights=True, random_state=0)
    for part in range(4):
        model.partial_fit(A[part::4], target[part::4])
    held = model.sketch_
    assert np.ptp(held.weight) > 1
    by_hand = LinearRegression().fit(held.X, held.y, sample_weight=held.weight)
    np.testing.assert_allclose(model.estimator_.coef_, by_hand.coef_)
    inside = make_pipeline(StandardScaler(), LinearRegression())
    again = clone(model).set_params(estimator=inside).fit(A, target)
    plain = clone(again).set_params(use_weights=False).fit(A, target)
    assert not np.allclose(again.estimator_[-1].coef_, plain.estimator_[-1].coef_)


def test_weights_that_come_in_are_carried():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((3_000, 3))
    target = A @ [1.0, 2.0, 3.0] + A[:, 0] ** 2
    counts = rng.integers(0, 4, len(A))
    model = ContinualRegressor(LinearRegression(), size=400, random_state=0)
    for part in range(3):
        model.partial_fit(A[part::3], target[part::3], counts[part::3])
    # A row counts as often as its weight says, and one of weight 0 does not count.
    assert model.sketch_.seen == (counts > 0).sum()
    assert abs(model.sketch_.weight.sum() / counts.sum() - 1) < 0.15
    by_hand = LinearRegression().fit(
        model.sketch_.X, model.sketch_.y, sample_weight=model.sketch_.weight
    )
    np.testing.assert_allclose(model.estimator_.coef_, by_hand.coef_)
    # As when all rows come as often: known after further rows without a weight, too.
    model.partial_fit(A, target)
    assert np.ptp(model.sketch_.weight) > 0
    whole = LinearRegression().fit(A, target, sample_weight=counts + 1)
    np.testing.assert_allclose(model.estimator_.coef_, whole.coef_, atol=0.5)


def test_weights_of_zero_take_tasks_and_columns_with_them():
    weight = np.r_[np.zeros(5), np.full(35, 2.0)]
    model = ContinualClassifier(LogisticRegression(max_iter=1_000))
    model.fit(X[:40], y[:40], weight, task=np.arange(40), extra={"id": np.arange(40) + 100})
    assert model.sketch_.task.tolist() == list(range(5, 40))
    assert model.sketch_.extra["id"].tolist() == list(range(105, 140))
    with pytest.raises(ValueError, match="zero"):
        model.fit(X[:40], y[:40], np.zeros(40))
    with pytest.raises(InputError, match="negative"):
        model.fit(X[:40], y[:40], np.full(40, -1.0))


def test_weights_for_an_estimator_that_takes_none():
    model = ContinualClassifier(KNeighborsClassifier(), use_weights=True)
    words = r"takes sample_weight, found KNeighborsClassifier"
    with pytest.raises(InputError, match=words):
        model.fit(X, y)
    with pytest.raises(InputError, match=words):
        model.set_params(use_weights=False).fit(X, y, np.ones(len(y)))
    searching = GridSearchCV(LogisticRegression(max_iter=2_000), {"C": [1.0]}, cv=2)
    ContinualClassifier(searching, size=100, use_weights=True).fit(X, y)


def test_regression_of_several_targets():
    target = np.column_stack([X.sum(axis=1), X[:, 10]])
    model = ContinualRegressor(Ridge(), size=300, random_state=0)
    for part in range(3):
        model.partial_fit(X[part::3], target[part::3])
    assert model.sketch_.y.shape == (300, 2)
    assert model.score(X, target) > 0.99


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 0}, "size must be"),
        ({"policy": "best"}, "policy must be one of"),
        ({"scores": "good"}, "scores must be one of"),
    ],
)
def test_bad_settings_are_told_when_data_come(settings, words):
    for model in (ContinualClassifier(SVC()), LeverageSampler()):
        with pytest.raises(InputError, match=words):
            model.set_params(**settings).fit(X, y)


class TestSampler:
    def test_gives_the_rows_it_says_as_they_came(self):
        frame = pd.DataFrame(X.astype(int))
        sampler = LeverageSampler(150, random_state=0)
        rows, kept = sampler.fit_resample(frame, pd.Series(y))
        chosen = sampler.sample_indices_
        assert len(chosen) == 150
        assert (np.diff(chosen) > 0).all()
        pd.testing.assert_frame_equal(rows, frame.iloc[chosen])
        assert kept.tolist() == y[chosen].tolist()

    def test_weights_stand_for_all_rows(self):
        # The draw is of fixed size: total weight is near the row count, not equal to it.
        totals = [LeverageSampler(200, random_state=s).fit(X).weights_.sum() for s in range(30)]
        error = np.std(totals) / np.sqrt(30)
        assert abs(np.mean(totals) - len(X)) < 4 * error + 1e-9

    def test_rows_of_no_weight_are_not_chosen(self):
        weight = np.tile([0.0, 1.0, 5.0], len(X))[: len(X)]
        sampler = LeverageSampler(200, random_state=0).fit(X, y, weight)
        assert (weight[sampler.sample_indices_] > 0).all()
        assert abs(sampler.weights_.sum() / weight.sum() - 1) < 0.2

    def test_real_targets_and_none(self):
        rows, target = LeverageSampler(30).fit_resample(X, X[:, :2] / 3)
        assert rows.shape == (30, 64)
        assert target.shape == (30, 2)
        assert LeverageSampler(30).fit_resample(X).shape == (30, 64)

    def test_a_sketch_decides_what_whole_floats_are(self):
        sampler = LeverageSampler(100, policy="balanced", random_state=0)
        with pytest.warns(OlssWarning, match="numbers to predict"):
            sampler.fit(np.ones((300, 2)), np.arange(300.0))

    def test_it_fits_into_a_pipeline_of_imbalanced_learn(self):
        make = pytest.importorskip("imblearn.pipeline").make_pipeline
        sampler = LeverageSampler(200, policy="balanced", random_state=0)
        pipeline = make(sampler, SVC()).fit(X[TRAIN], y[TRAIN])
        assert pipeline[-1].shape_fit_ == (200, 64)
        assert pipeline.score(X[TEST], y[TEST]) > 0.8

    def test_few_rows_all_stay(self):
        rows, _ = LeverageSampler(30).fit_resample(X[:9], y[:9])
        np.testing.assert_array_equal(rows, X[:9])


def test_every_setting_of_a_sketch_is_offered_or_left_out_on_purpose():
    # Estimators never see rows without a target, know neither shapes of rows nor an index, and
    # write no file for others to read.
    without = {
        "features",
        "glm",
        "keep_index",
        "missing_target",
        "moments",
        "near_duplicates",
        "pad",
        "pad_y",
        "replicates",
    }
    known = {setting.name for setting in settings()}
    offered = set(ContinualClassifier(SVC()).get_params(deep=False))
    assert known - offered == without
    own = {"estimator", "use_weights", "random_state", "correct_priors"}
    assert offered - known == own | {"early_stopping", "param_grid", "calibrate"}


def test_settings_reach_the_sketch():
    frame = pd.DataFrame({"x": np.arange(300.0), "z": np.arange(300.0) % 7, "day": np.arange(300)})
    target = np.arange(300) % 2
    settings = {"half_life": 50, "time": "day", "intercept": True, "exclude": ["z"]}
    model = ContinualClassifier(LogisticRegression(), size=100, random_state=0, **settings)
    by_hand = Sketch(100, **settings, seed=np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    for part in (slice(0, 200), slice(200, 300)):
        model.partial_fit(frame[part], target[part])
        by_hand.update(frame[part].reset_index(drop=True), pd.Series(target[part], name="y"))
        np.testing.assert_array_equal(model.sketch_.index, by_hand.index)
        np.testing.assert_array_equal(model.sketch_.weight, by_hand.weight)
    recent = clone(model).set_params(half_life=None, window=80, exclude=(), columns=["x", "day"])
    recent.fit(frame, target)
    assert recent.sketch_.X["day"].min() == 220


def test_time_may_be_an_extra_column():
    model = ContinualRegressor(Ridge(), size=50, window="10d", time="day", random_state=0)
    days = np.datetime64("2026-01-01") + np.arange(40)
    model.fit(X[:40], y[:40].astype(float), extra={"day": days})
    assert len(model.sketch_) == 10


@pytest.fixture
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_metadata_is_routed_through_a_pipeline_outside():
    weight = np.where(y < 5, 1.0, 2.0)
    model = ContinualClassifier(LogisticRegression(max_iter=500), size=300, random_state=0)
    model.set_fit_request(sample_weight=True, task=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    whole = make_pipeline(scaler, model).fit(X, y, sample_weight=weight, task=y)
    assert set(whole[-1].sketch_.task) == set(y)
    by_hand = clone(model).fit(StandardScaler().fit_transform(X), y, weight, task=y)
    np.testing.assert_allclose(whole[-1].estimator_.coef_, by_hand.estimator_.coef_)
    model.set_score_request(sample_weight=True)
    params = {"sample_weight": weight, "task": y}
    scores = cross_val_score(make_pipeline(scaler, model), X, y, params=params, cv=2)
    assert scores.min() > 0.8


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize(
    "inside",
    [
        make_pipeline(StandardScaler(), LinearRegression()),
        make_pipeline(make_column_transformer((StandardScaler(), [0, 1, 2])), LinearRegression()),
        GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1.0]}, cv=2),
        LinearRegression(),
    ],
    ids=["pipeline", "columns", "search", "plain"],
)
def test_weights_are_routed_to_all_components_inside(inside):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1_000, 3))
    target = A @ [1.0, 2.0, 3.0] + A[:, 0] ** 2
    weight = rng.integers(1, 4, len(A)).astype(float)
    model = ContinualRegressor(inside, size=2_000).fit(A, target, sample_weight=weight)
    with config_context(enable_metadata_routing=False):
        repeated = np.repeat(np.arange(len(A)), weight.astype(int))
        expected = clone(inside).fit(A[repeated], target[repeated])
    np.testing.assert_allclose(model.predict(A), expected.predict(A), atol=1e-2)


@pytest.mark.usefixtures("routing")
def test_a_component_told_not_to_take_weights_gets_none():
    A = (
        np.random.default_rng(0).standard_normal((400, 2))
        + np.r_[np.zeros(200), np.ones(200)][:, None]
    )
    weight = np.r_[np.full(200, 9.0), np.ones(200)]
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    model = ContinualRegressor(make_pipeline(scaler, Ridge()), size=500)
    model.fit(A, A[:, 0], sample_weight=weight)
    np.testing.assert_allclose(model.estimator_[0].mean_, A.mean(axis=0))
