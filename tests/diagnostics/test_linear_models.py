"""Linear models from a sketch are those of all rows: exactly, or nearly."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
)
from sklearn.multiclass import OneVsRestClassifier

import olss
from olss.errors import InputError
from olss.memory.policies import Weighted
from olss.sketch import state_of

N, D = 6_000, 5


def rows(seed=0, n=N):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D)) @ np.random.default_rng(9).standard_normal((D, D)) + 2
    y = X @ np.arange(D) + rng.standard_normal(n) + 50
    label = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + rng.standard_normal(n), [0.0, 3.0])]
    return X, y, label


def sketch_of(X, y, batches=100, size=200, merged=True, **settings):
    """Return a sketch of rows that came in many updates, the last of them by a merge."""
    parts = [olss.Sketch(size, seed=seed, **settings) for seed in (0, 1)]
    for i, part in enumerate(np.array_split(np.arange(len(X)), batches)):
        parts[int(merged and i > 0.7 * batches)].update(X[part], y[part])
    return parts[0].merge(parts[1]) if merged else parts[0]


def test_least_squares_and_ridge_equal_scikit_learn_on_all_rows():
    X, y, _ = rows()
    sketch = sketch_of(X, y)
    for ridge in (0.0, 10.0):
        full = Ridge(alpha=ridge, solver="svd").fit(X, y)
        model = sketch.linear_model(kind="ridge", ridge=ridge)
        assert model.exact
        assert model.rows == N
        assert_allclose(model.coef[:, 0], full.coef_, rtol=1e-8)
        assert_allclose(model.intercept, full.intercept_, rtol=1e-8)
        assert model.r2 == pytest.approx(full.score(X, y), rel=1e-9)
        assert_allclose(model.predict(X[:9]), full.predict(X[:9]), rtol=1e-9)
        assert_allclose(model.to_sklearn().predict(X[:9]), full.predict(X[:9]), rtol=1e-9)
    assert sketch.linear_model().kind == "ridge"
    assert list(sketch.linear_model().coefficients) == [f"column {j}" for j in range(D)]


def test_standard_errors_are_those_of_the_textbook():
    X, y, _ = rows()
    Z = np.column_stack([X, np.ones(N)])
    _, rss, _, _ = np.linalg.lstsq(Z, y, rcond=None)
    errors = np.sqrt(rss / (N - D - 1) * np.linalg.inv(Z.T @ Z).diagonal())
    model = sketch_of(X, y).linear_model(kind="least-squares")
    assert_allclose(model.coef_error[:, 0], errors[:-1], rtol=1e-6)
    assert_allclose(model.intercept_error, errors[-1:], rtol=1e-6)
    assert model.standard_errors["column 0"] == pytest.approx(errors[0], rel=1e-6)


def test_classifiers_equal_scikit_learn_on_all_rows():
    X, _, label = rows()
    order = np.argsort(label, kind="stable")  # one class after the other
    sketch = sketch_of(X[order], label[order])
    full = LinearDiscriminantAnalysis(solver="lsqr").fit(X, label)
    model = sketch.linear_model(kind="discriminant")
    assert model.classes == ("a", "b", "c")
    assert_allclose(model.predict_proba(X[:50]), full.predict_proba(X[:50]), atol=1e-8)
    assert (model.predict(X) == full.predict(X)).all()
    assert_allclose(model.to_sklearn().predict_proba(X[:50]), full.predict_proba(X[:50]), atol=1e-8)
    ridge = RidgeClassifier(alpha=7.0).fit(X, label)
    found = sketch.linear_model(kind="ridge-classifier", ridge=7.0)
    assert (found.predict(X) == ridge.predict(X)).all()
    assert (found.to_sklearn().predict(X[:99]) == ridge.predict(X[:99])).mean() == 1
    with pytest.raises(InputError, match="predict_proba"):
        found.predict_proba(X)


def test_a_table_is_modelled_in_its_own_units(tmp_path):
    X, y, _ = rows()
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "year": rng.integers(1900, 2001, N),
            "x": 1e4 * X[:, 0],
            "colour": rng.choice(["red", "green"], N),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 99, N), "D"),
        }
    )
    red = (frame["colour"] == "red").to_numpy()
    days = (frame["day"] - frame["day"].min()).dt.days.to_numpy()
    frame["price"] = 1e-4 * frame["x"] + 0.5 * frame["year"] + 3 * red - days / 9 + y / 50
    files = []
    for i, part in enumerate(np.array_split(np.arange(N), 5)):
        files.append(tmp_path / f"{i}.parquet")
        frame.iloc[part].to_parquet(files[-1])
    olss.compress([str(f) for f in files], into=tmp_path / "out.parquet", size=100, target="price")
    sketch = olss.Sketch.load(tmp_path / "out.parquet")
    A = np.column_stack([frame["year"], frame["x"], red, days])
    full = LinearRegression().fit(A, frame["price"])
    model = sketch.linear_model(kind="least-squares")
    found = model.coefficients
    assert_allclose(
        [
            found["year"],
            found["x"],
            found["colour = 'red'"] - found["colour = 'green'"],
            found["day"],
        ],
        full.coef_,
        rtol=1e-8,
    )
    some = frame.drop(columns="price").assign(note="what comes in between").head(20)
    assert_allclose(model.predict(some), full.predict(A[:20]), rtol=1e-9)
    other = sketch.linear_model("x", kind="least-squares")
    truth = LinearRegression().fit(np.delete(A, 1, axis=1), frame["x"])
    assert_allclose(
        other.predict(frame.drop(columns="x").head(9)), truth.predict(np.delete(A[:9], 1, axis=1))
    )
    assert set(sketch.linear_model("colour").predict(frame.head(200))) <= {"red", "green"}
    moments = sketch.moments
    assert moments.mean["year"] == pytest.approx(frame["year"].mean(), rel=1e-12)
    pair = frame[["year", "x"]].to_numpy(float)
    assert_allclose(moments.covariance("year", "x"), np.cov(pair, rowvar=False), rtol=1e-9)
    assert_allclose(moments.correlation("x", "year")[0, 1], np.corrcoef(pair.T)[0, 1], rtol=1e-8)


def test_principal_components_equal_scikit_learn():
    X, y, _ = rows()
    full = PCA(3).fit(X)
    found = sketch_of(X, y).moments.pca(3)
    assert_allclose(found.variance, full.explained_variance_, rtol=1e-9)
    assert_allclose(abs(np.sum(found.components * full.components_, axis=1)), 1, rtol=1e-9)


def log_loss(model, X, y):
    p = model.predict_proba(X)
    codes = np.searchsorted(np.array(model.classes), y)
    return -np.mean(np.log(p[np.arange(len(y)), codes]))


@pytest.mark.parametrize("order", ["as drawn", "by a column", "by class"])
def test_logistic_regression_is_close_to_that_of_all_rows(order):
    """Excess log loss on new rows, 1,000 of 30,000 kept, in any order: below 10%."""
    X, y, _ = rows(n=30_000)
    new, new_y, _ = rows(seed=1, n=30_000)
    late, new_late = y > 62, new_y > 62
    sorting = {
        "as drawn": np.arange(len(X)),
        "by a column": np.argsort(X[:, 4]),
        "by class": np.argsort(late),
    }
    rank = sorting[order]
    sketch = sketch_of(X[rank, :4], late[rank], batches=20, size=1_000, merged=False)
    model = sketch.linear_model()
    full = LogisticRegression(tol=1e-8, max_iter=1_000).fit(X[:, :4], late)
    codes = new_late.astype(int)
    p = full.predict_proba(new[:, :4])
    least = -np.mean(np.log(p[np.arange(len(codes)), codes]))
    assert model.kind == "logistic"
    assert not model.exact
    assert log_loss(model, new[:, :4], new_late) < 1.1 * least
    assert "kept rows" in model.note
    assert "glm='logistic' comes closer" in model.note
    assert model.deviance == pytest.approx(2 * least, rel=0.3)
    assert_allclose(model.to_sklearn().predict_proba(new[:9, :4]), model.predict_proba(new[:9, :4]))


def test_three_classes_and_counts():
    X, _, label = rows(n=20_000)
    model = sketch_of(X, label, size=1_000, batches=10).linear_model()
    full = OneVsRestClassifier(LogisticRegression(max_iter=1_000)).fit(X, label)
    assert (model.predict(X) == full.predict(X)).mean() > 0.97
    rng = np.random.default_rng(5)
    z = X / 8
    count = rng.poisson(np.exp(z @ [0.5, -0.3, 0.2, 0.1, 0.3]))
    truth = PoissonRegressor(alpha=1e-8, tol=1e-8, max_iter=999).fit(z, count)
    poisson = sketch_of(z, count, size=1_000, batches=10).linear_model(kind="poisson", ridge=0.0)
    assert_allclose(poisson.predict(z), truth.predict(z), rtol=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (poisson.predict(z) > 0).all()


def test_what_cannot_be_fitted_says_why():
    X, y, label = rows(n=500)
    numbers = olss.Sketch(50, seed=0).update(X, y)
    with pytest.raises(InputError, match="kind='logistic'"):
        numbers.linear_model(kind="logistic")
    with pytest.raises(InputError, match="kind"):
        olss.Sketch(50, seed=0).update(X, label).linear_model(kind="ridge")
    with pytest.raises(InputError, match="target"):
        olss.Sketch(50, seed=0).update(X).linear_model()
    with pytest.raises(InputError, match="target"):
        numbers.linear_model("nothing")
    with pytest.raises(InputError, match="moments"):
        olss.Sketch(50, "reservoir", seed=0).update(X, y).linear_model()
    negative = olss.Sketch(50, seed=0).update(X, y - 100)
    with pytest.raises(InputError, match="poisson"):
        negative.linear_model(kind="poisson")
    wide = np.random.default_rng(0).standard_normal((60, 4_200))
    sketch = olss.Sketch(50, seed=0).update(wide, wide[:, 0])
    with pytest.raises(InputError, match="4,096"):
        sketch.linear_model()


def test_one_class_constant_columns_and_more_columns_than_rows():
    X, y, _ = rows(n=500)
    for kind in ("logistic", "discriminant", "ridge-classifier"):
        model = olss.Sketch(50, seed=0).update(X, np.full(500, "only")).linear_model(kind=kind)
        assert (model.predict(X[:3]) == "only").all()
    constant = np.column_stack([X, np.full(500, 7.0), np.zeros(500)])
    model = sketch_of(constant, y, batches=5).linear_model(kind="least-squares")
    full = LinearRegression().fit(X, y)
    assert_allclose(model.predict(constant), full.predict(X), rtol=1e-8)
    assert_allclose(model.coef[-2:], 0, atol=1e-12)
    rng = np.random.default_rng(0)
    wide, few = rng.standard_normal((30, 80)), rng.standard_normal(30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # every row has leverage 1
        sketch = olss.Sketch(30, seed=0).update(wide, few)
    assert_allclose(sketch.linear_model(kind="least-squares").predict(wide), few, atol=1e-6)
    assert np.isnan(sketch.linear_model(kind="least-squares").coef_error).all()


def test_separable_classes_have_a_finite_model():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5_000, 3))
    X[:, 0] += 5 * np.sign(X[:, 0])
    y = X[:, 0] > 0
    model = sketch_of(X, y, batches=10).linear_model()
    full = LogisticRegression(max_iter=999).fit(X, y)
    assert (model.predict(X) == y).all()
    assert np.isfinite(model.coef).all()
    assert log_loss(model, X, y) < 2 * log_loss_of(full, X, y) + 1e-3


def log_loss_of(full, X, y):
    return -np.mean(np.log(full.predict_proba(X)[np.arange(len(y)), y.astype(int)]))


def test_missing_values_weights_and_rows_without_target():
    X, y, _ = rows(n=3_000)
    rng = np.random.default_rng(1)
    X[rng.random(X.shape) < 0.05] = np.nan
    y[rng.random(len(y)) < 0.2] = np.nan
    weight = rng.integers(1, 4, len(y)).astype(float)
    sketch = olss.Sketch(200, seed=0, missing_target="keep")
    for part in np.array_split(np.arange(len(y)), 6):
        sketch.update(X[part], y[part], weight=weight[part])
    there = np.isfinite(y)
    median = np.array([np.sort(c[np.isfinite(c)])[np.isfinite(c).sum() // 2] for c in X[:500].T])
    Z = np.column_stack([np.where(np.isnan(X), median, X), np.isnan(X)])
    full = LinearRegression().fit(Z[there], y[there], weight[there])
    model = sketch.linear_model(kind="least-squares")
    assert model.rows == there.sum()
    assert_allclose(model.predict(X), full.predict(Z), rtol=1e-8)
    assert "column 0 is missing" in model.coefficients


@pytest.mark.parametrize("kind", ["graded", "collinear", "years", "offsets"])
def test_ugly_columns(kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3_000, 6))
    if kind == "graded":
        X *= 10.0 ** -np.arange(6)
    if kind == "collinear":
        X[:, 1] = X[:, 0] + 1e-4 * X[:, 1]
    if kind == "years":
        X[:, 0] = rng.integers(1900, 2001, 3_000)
        X[:, 1] = X[:, 0] ** 2
    if kind == "offsets":
        X += 10.0 ** np.arange(6)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = Z @ np.ones(6) + 0.1 * rng.standard_normal(3_000)
    full = LinearRegression().fit(Z, y)
    model = sketch_of(X, y, batches=30).linear_model(kind="least-squares")
    assert abs(model.predict(X) - full.predict(Z)).max() < 1e-4 * y.std()
    assert model.r2 == pytest.approx(full.score(Z, y), rel=1e-4)


def test_the_certificate_covers_the_target():
    X, y, _ = rows()
    sketch = sketch_of(X, y, size=1_000)
    found = sketch.error()
    assert found.target_relative >= found.relative - 1e-9
    assert "'y'" in str(found)
    e = found.target_relative
    b = np.linalg.lstsq(
        sketch.X * np.sqrt(sketch.weight)[:, None], sketch.y * np.sqrt(sketch.weight), rcond=None
    )[0]
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    ratio = np.sum((y - X @ b) ** 2) / np.sum((y - X @ best) ** 2)
    assert 1 <= ratio <= (1 + e) / (1 - e)


def test_models_of_frozen_features(tmp_path):
    X, y, _ = rows()
    W = np.random.default_rng(4).standard_normal((D, 40))

    def features(X):
        return np.maximum(X @ W, 0.0)

    Z = features(X)
    sketch = sketch_of(X, y, features=features, moments=True)
    full = LinearRegression().fit(Z, y)
    model = sketch.linear_model(kind="least-squares")
    assert_allclose(model.predict(X[:99]), full.predict(Z[:99]), rtol=1e-8)
    assert sketch.error().directions == 40
    sketch.save(tmp_path / "sketch.parquet")
    loaded = olss.Sketch.load(tmp_path / "sketch.parquet", features=features)
    assert_allclose(loaded.update(X, y).linear_model().r2, model.r2, rtol=1e-4)
    with pytest.raises(InputError, match="features"):
        loaded.features = None
    late = sketch_of(
        X, y > 60, size=1_000, batches=10, merged=False, features=features, moments=True
    )
    assert (late.linear_model().predict(X) == (y > 60)).mean() > 0.9
    with pytest.raises(InputError, match="moments"):
        olss.Sketch(50, features=features).update(X, y).linear_model()


def test_a_model_prints_and_becomes_json():
    X, y, _ = rows(n=500)
    model = olss.Sketch(50, seed=0).update(X, y).linear_model()
    for text in ("column 4", "std. error", "exact"):
        assert text in str(model)
    assert "<table>" in model._repr_html_()
    assert model.to_dict()["coef"][0] == model.coef[:, 0].tolist()


def followed(X, y, seed=0, batches=20, **settings):
    sketch = olss.Sketch(1_000, seed=seed, glm="logistic", **settings)
    for part in np.array_split(np.arange(len(X)), batches):
        sketch.update(X[part], y[part])
    return sketch


def test_a_followed_gradient_brings_logistic_regression_to_that_of_all_rows(tmp_path):
    """Excess log loss on new rows, 1,000 of 30,000 kept: below 0.3%, where rows alone have 1 to 5.

    After a merge, which sums two gradients, too, and after saving and loading.
    """
    X, y, _ = rows(n=30_000)
    new, new_y, _ = rows(seed=1, n=30_000)
    X, new, late, new_late = X[:, :4], new[:, :4], y > 62, new_y > 62
    full = LogisticRegression(tol=1e-8, max_iter=1_000).fit(X, late)
    least = log_loss_of(full, new, new_late)
    model = followed(X, late).linear_model()
    assert "exact gradient" in model.note
    assert log_loss(model, new, new_late) < 1.003 * least
    a, b = followed(X[:15_000], late[:15_000]), followed(X[15_000:], late[15_000:], seed=1)
    a.merge(b).save(tmp_path / "sketch.parquet")
    merged = olss.Sketch.load(tmp_path / "sketch.parquet").linear_model()
    assert "exact gradient" in merged.note
    assert log_loss(merged, new, new_late) < 1.005 * least


def test_a_rare_class_that_comes_last_is_followed_at_once():
    """All rows of a class of 0.5% are in the last of 40 updates."""
    X, y, _ = rows(n=40_000)
    new, new_y, _ = rows(seed=1, n=40_000)
    least = np.quantile(y, 0.995)
    rank = np.argsort(y, kind="stable")
    X, rare, new, new_rare = X[rank, :4], y[rank] > least, new[:, :4], new_y > least
    sketch = olss.Sketch(2_000, seed=0, glm="logistic")
    for part in np.array_split(np.arange(len(X)), 40):
        sketch.update(X[part], rare[part])
    assert np.isfinite(state_of(sketch).trace.models[-1]).all()
    model = sketch.linear_model()
    assert "exact gradient" in model.note
    full = LogisticRegression(tol=1e-8, max_iter=1_000).fit(X, rare)
    assert log_loss(model, new, new_rare) < 1.1 * log_loss_of(full, new, new_rare)


def test_what_is_followed_is_exact_where_the_models_were():
    """Gradient and curvature, and that which goes with it, also without rows that were removed."""
    X, y, _ = rows(n=4_000)
    label = np.digitize(y, [45.0, 60.0])
    sketch = followed(X, label, batches=4)
    gone, trace = sketch.index[:30], state_of(sketch).trace
    assert trace.classes == (0, 1, 2)
    sketch.remove(index=gone)
    left = np.setdiff1d(np.arange(4_000), gone)
    for found, some in ((trace, np.arange(4_000)), (state_of(sketch).trace, left)):
        Z, Y = np.column_stack([X, np.ones(4_000)])[some], np.eye(3)[label[some]]
        time = np.searchsorted(trace.starts, some, side="right") - 1
        t = np.einsum("nd,nkd->nk", Z, trace.models[time])
        p = 1 / (1 + np.exp(-t))
        assert_allclose(found.gradient, (p - Y).T @ Z, rtol=1e-8, atol=1e-6)
        assert_allclose(found.pull, (p * (1 - p) * t).T @ Z, rtol=1e-8, atol=1e-6)
        J = np.einsum("nk,ni,nj->kij", p * (1 - p), Z, Z)
        assert_allclose(found.curvature, J, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("order", ["as drawn", "by class"])
def test_a_rare_class_of_which_few_rows_are_kept_is_followed(order):
    """Of 150 rows of a class of 0.5% a sketch keeps about five; the worst of three seeds."""
    X, y, _ = rows(n=30_000)
    new, new_y, _ = rows(seed=1, n=40_000)
    least = np.quantile(y, 0.995)
    X, rare, new, new_rare = X[:, :4], y > least, new[:, :4], new_y > least
    rank = np.argsort(rare, kind="stable") if order == "by class" else np.arange(30_000)
    full = log_loss_of(LogisticRegression(tol=1e-8, max_iter=1_000).fit(X, rare), new, new_rare)
    for seed in range(3):
        sketch = olss.Sketch(500, seed=seed, glm="logistic")
        for part in np.array_split(rank, 20):
            sketch.update(X[part], rare[part])
        assert sketch.y.sum() < 20
        model = sketch.linear_model()
        assert "exact gradient" in model.note
        assert log_loss(model, new, new_rare) < (1.3 if order == "by class" else 1.05) * full


def test_following_counts_and_a_half_life():
    X, _, _ = rows(n=20_000)
    z = X / 8
    count = np.random.default_rng(5).poisson(np.exp(z @ [0.5, -0.3, 0.2, 0.1, 0.3]))
    fading = 0.5 ** (np.arange(len(z) - 1, -1, -1) / 5_000)
    truth = PoissonRegressor(alpha=1e-8, tol=1e-8, max_iter=999).fit(z, count, fading)
    sketch = olss.Sketch(1_000, seed=0, glm="poisson", half_life=5_000)
    for part in np.array_split(np.arange(len(z)), 20):
        sketch.update(z[part], count[part])
    model = sketch.linear_model(kind="poisson", ridge=0.0)
    assert "exact gradient" in model.note
    assert_allclose(model.predict(z), truth.predict(z), rtol=0.03)


def test_what_cannot_be_followed_says_why(tmp_path):
    X, y, _ = rows(n=500)
    for settings, told in (
        ({"window": 100}, "half_life"),
        ({"moments": False}, "moments=False"),
        ({"features": np.tanh}, "moments=True"),
        ({"policy": "recent"}, "recent"),
    ):
        with pytest.raises(InputError, match=f"glm.*{told}"):
            olss.Sketch(50, glm="logistic", **settings)
    for kind, target, told in (
        ("logistic", y, "numbers"),
        ("poisson", y - 100, "negative"),
        ("poisson", np.where(y > 50, "a", "b"), "classes"),
    ):
        with pytest.raises(InputError, match=f"glm='{kind}'.*{told}"):
            olss.Sketch(50, glm=kind).update(X, target).flush()
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match="glm"):
        olss.compress(str(tmp_path / "x.npy"), into=tmp_path / "o.parquet", size=5, glm="logistic")


@pytest.mark.parametrize("settings", [{}, {"strata": "y"}, {"glm": "logistic"}])
def test_standard_errors_of_a_corrected_model_include_what_the_kept_rows_estimate(settings):
    """20 streams of 5,000 rows, 300 kept: the rms of 80 errors in standard errors is near 1.

    Of samples that are not spread; spread ones have smaller errors than their standard errors.
    """
    coef = np.array([1.5, -1.0, 0.0, 0.5])
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((5_000, 4))
        y = (rng.random(5_000) < 1 / (1 + np.exp(2 - X @ coef))).astype(float)
        y[::50] = np.nan
        plain = Weighted(spread=False)
        sketch = olss.Sketch(300, plain, seed=seed, missing_target="keep", **settings)
        for part in np.array_split(np.arange(5_000), 5):
            sketch.update(X[part], y[part])
        model = sketch.linear_model(kind="logistic")
        errors.append((model.coef[:, 0] - coef) / model.coef_error[:, 0])
    # Without that part it is 1.7 to 3. Its own standard error is 0.08 for independent errors.
    assert 0.7 < np.sqrt(np.mean(np.square(errors))) < 1.3


@pytest.mark.parametrize(
    ("megabytes", "told"), [("1", "OLSS_GRAM_MB"), ("2", "exact"), ("two", "found 'two'")]
)
def test_the_columns_of_a_gram_matrix_are_limited_by_its_memory(megabytes, told, monkeypatch):
    monkeypatch.setenv("OLSS_GRAM_MB", megabytes)
    X = np.random.default_rng(0).standard_normal((600, 400))
    try:
        found = olss.Sketch(50, seed=0).update(X, X[:, 0]).linear_model(ridge=1.0).note
    except InputError as error:
        found = str(error)
    assert told in found
