"""Moments know the target: products of everything seen, however it came."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import olss
from olss.core.moments import Moments, one_hot
from olss.memory.moments import SeenMoments
from olss.sketch import state_of

N, D = 5_000, 6


def rows(seed=0, offset=3.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D)) @ rng.standard_normal((D, D)) + offset
    y = X @ rng.standard_normal(D) + rng.standard_normal(N) + 1e6
    label = np.digitize(X[:, 0] + rng.standard_normal(N), [0.0, 4.0])
    return X, y, label


def streamed(X, y, batches=100, **settings):
    sketch = olss.Sketch(200, seed=0, **settings)
    for part in np.array_split(np.arange(len(X)), batches):
        sketch.update(X[part], y[part])
    return sketch


def truth(X, y, weight=None):
    if y.dtype.kind == "f":
        return Moments.empty(X.shape[1], 1).update(X, y, weight)
    classes, codes = np.unique(y, return_inverse=True)
    k = len(classes)
    return Moments.empty(X.shape[1], k).update(X, one_hot(codes, k), weight)


def centred(sketch):
    return state_of(sketch).moments.centre()


def assert_same(found, wanted, rtol=1e-9):
    for name in ("weight", "mean", "scatter", "target_mean", "cross", "target_scatter"):
        a, b = getattr(found, name), np.asarray(getattr(wanted, name))
        assert_allclose(a, b, rtol=rtol, atol=rtol * abs(b).max(initial=1e-3), err_msg=name)
    assert found.count == pytest.approx(wanted.count)


@pytest.mark.parametrize("kind", ["number", "class"])
def test_updates_and_merges_add_up_to_all_rows(kind):
    X, y, label = rows()
    target = y if kind == "number" else label
    assert_same(centred(streamed(X, target)), truth(X, target))
    parts = [streamed(X[:2_000], target[:2_000]), streamed(X[2_000:], target[2_000:])]
    assert_same(centred(parts[0].merge(parts[1])), truth(X, target))


def test_classes_may_come_one_after_the_other():
    X, _, label = rows()
    order = np.argsort(label, kind="stable")
    X, names = X[order], np.array(["high", "low", "mid"])[label[order]]
    sketch = streamed(X, names)
    assert state_of(sketch).moments.target.classes == ("high", "low", "mid")
    assert_same(centred(sketch), truth(X, names))


def test_weights_and_a_half_life_count():
    X, y, _ = rows()
    w = np.random.default_rng(1).uniform(0.5, 2, N)
    sketch = olss.Sketch(100, seed=0)
    for part in np.array_split(np.arange(N), 7):
        sketch.update(X[part], y[part], weight=w[part])
    assert_same(centred(sketch), truth(X, y, w))
    fading = 0.5 ** (np.arange(N - 1, -1, -1) / 800)
    found, wanted = centred(streamed(X, y, half_life=800)), truth(X, y, fading)
    assert_allclose(found.scatter, wanted.scatter, rtol=1e-9, atol=1e-6)
    assert_allclose(found.cross, wanted.cross, rtol=1e-9, atol=1e-6)


def test_removed_rows_are_subtracted():
    X, y, label = rows()
    for target in (y, label):
        sketch = streamed(X, target)
        gone = sketch.index[:40]
        sketch.remove(index=gone)
        left = np.setdiff1d(np.arange(N), gone)
        assert_same(centred(sketch), truth(X[left], target[left]), rtol=1e-8)


def test_rows_without_a_target_count_for_the_columns_alone():
    X, y, _ = rows()
    y[np.random.default_rng(2).random(N) < 0.3] = np.nan
    there = np.isfinite(y)
    sketch = streamed(X, y, missing_target="keep")
    assert_same(centred(sketch), truth(X[there], y[there]))
    assert_allclose(state_of(sketch).moments.matrix, X.T @ X, rtol=1e-10)


def frame(seed=0):
    X, y, label = rows(seed)
    table = pd.DataFrame(X, columns=list("abcdef"))
    names = np.array(["low", "mid", "high"])[label]
    return table.assign(colour=np.where(X[:, 1] > 3, "red", "blue"), y=y, label=names)


@pytest.mark.parametrize("target", ["y", "label"])
def test_tables_files_and_updates_agree(target, tmp_path):
    table = frame().drop(columns={"y": "label", "label": "y"}[target])
    sketch = olss.Sketch(300, seed=0)
    paths = []
    for i, part in enumerate(np.array_split(np.arange(N), 4)):
        sketch.update(table.iloc[part], y=target)
        paths.append(str(tmp_path / f"{i}.parquet"))
        table.iloc[part].to_parquet(paths[-1])
    out = tmp_path / "out.parquet"
    olss.compress(paths[:3], into=out, size=300, target=target, seed=0)
    olss.compress(paths, into=out)
    assert state_of(olss.Sketch.load(out)).moments.target.rows == N
    plan = state_of(sketch).encoder
    Z = plan.encode(state_of(olss.Sketch(N, seed=0).update(table, y=target)).rows["X"])
    y = table[target].to_numpy()
    y = y if target == "y" else y.astype(str)
    assert_same(centred(sketch), truth(Z.astype(float), y))
    loaded = olss.Sketch.load(out)
    Z = state_of(loaded).encoder.encode(state_of(olss.Sketch(N).update(table, y=target)).rows["X"])
    assert_same(centred(loaded), truth(Z.astype(float), y))
    loaded.save(tmp_path / "again.parquet")
    again = olss.Sketch.load(tmp_path / "again.parquet")
    assert state_of(again).moments == state_of(loaded).moments


def test_float32_rows_far_from_zero_keep_their_digits():
    X, y, _ = rows(offset=1_000.0)
    X = X.astype(np.float32)
    found, wanted = centred(streamed(X, y, batches=5)), truth(X.astype(float), y)
    assert_allclose(found.scatter, wanted.scatter, rtol=1e-5, atol=1e-5 * wanted.scatter.max())
    plain = rows(offset=0.5)[0].astype(np.float32)
    found, wanted = centred(streamed(plain, y, batches=5)), truth(plain.astype(float), y)
    assert_allclose(found.scatter, wanted.scatter, rtol=1e-4, atol=1e-5 * wanted.scatter.max())
    assert_allclose(found.cross, wanted.cross, rtol=1e-3, atol=1e-4 * abs(wanted.cross).max())


def test_integers_that_turn_out_to_be_numbers():
    X, y, _ = rows()
    y = np.round(y - 1e6)
    y[:1_000] = y[:1_000] % 5
    y[3_000] = 0.5
    assert_same(centred(streamed(X, y, batches=5)), truth(X, y))


def test_targets_that_have_no_products_do_no_harm():
    X, _, _ = rows()
    pictures = np.zeros((N, 30, 30))
    sketch = olss.Sketch(50, seed=0).update(X, pictures)
    assert state_of(sketch).moments.target is None
    plain = SeenMoments().update(X)
    assert_allclose(state_of(sketch).moments.total, plain.total)
    assert_allclose(plain.total, X.sum(axis=0))
