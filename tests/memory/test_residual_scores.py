from __future__ import annotations

import datetime

import numpy as np
import pytest

from olss.errors import DataError, InputError, OlssWarning
from olss.files.compress import compress
from olss.memory.policies import Weighted
from olss.sketch import Sketch
from tests.repeated import repeated


def tasks(kind, seed=0):
    """Four unequal tasks of heavy-tailed rows, and a target."""
    rng = np.random.default_rng(seed)
    found = []
    for n in rng.integers(40, 160, 4):
        X = rng.standard_t(3, (n, 4))
        signal = X @ [1.0, -1.0, 0.5, 0.0] + rng.standard_normal(n)
        found.append((X, {"number": signal, "class": (signal > 1).astype(int)}[kind]))
    return found


def totals(sketch):
    """Weighted totals: rows, Gram matrix, products with the target, rows of a task."""
    X, y, w = sketch.X, sketch.y, sketch.weight
    gram = (X.T * w) @ X
    return np.concatenate(
        [
            [w.sum(), w @ y, w @ y**2],
            gram[np.triu_indices(4)],
            X.T @ (w * y),
            np.bincount(sketch.task, w, minlength=4),
        ]
    )


def truth_of(stream):
    everything = Sketch(10**6, "reservoir")
    for task, rows in enumerate(stream):
        everything.update(*rows, task=task)
    return totals(everything)


def assert_unbiased(samples, truth):
    """Each mean within 4 standard errors; with 21 means that fails by chance once in 750."""
    samples = np.array(samples)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    z = (samples.mean(axis=0) - truth) / np.maximum(error, 1e-9 * np.abs(truth) + 1e-12)
    assert np.abs(z).max() < 4, z


@repeated(60, 300)
@pytest.mark.parametrize("kind", ["number", "class"])
def test_it_is_unbiased_whatever_the_target(kind, repetitions):
    stream, samples = tasks(kind), []
    for seed in range(repetitions):
        sketch = Sketch(60, scores="target", seed=seed)
        for task, rows in enumerate(stream):
            sketch.update(*rows, task=task)
            sketch.weight  # noqa: B018  # so that rows do not wait: four draws
        samples.append(totals(sketch))
    assert_unbiased(samples, truth_of(stream))


@repeated(60, 500)
def test_merged_it_is_unbiased_and_goes_by_the_scores_of_the_sketch_merged_into(repetitions):
    stream, samples = tasks("number"), []
    for seed in range(repetitions):
        first, second = Sketch(60, scores="target", seed=seed), Sketch(60, seed=10_000 + seed)
        for task, rows in enumerate(stream):
            (first if task % 2 else second).update(*rows, task=task)
        samples.append(totals(first.merge(second)))
        assert first.scores == "target"
        assert len(first) == 60
    assert_unbiased(samples, truth_of(stream))


def test_rows_are_kept_by_what_a_fit_to_everything_gets_wrong():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3_000, 3))
    X[:, 0] = 1
    y = X @ [1.0, 2.0, -1.0] + np.where(np.arange(3_000) % 10 == 0, 5.0, 0.5) * rng.standard_normal(
        3_000
    )
    leverage = np.einsum("ij,jk,ik->i", X, np.linalg.inv(X.T @ X), X)
    off = np.abs(y - X @ np.linalg.lstsq(X, y, rcond=None)[0]) * np.sqrt(leverage)
    law = 0.375 * leverage / leverage.sum() + 0.375 * off / off.sum() + 0.25 / 3_000
    # In one draw a weight is the inverse of a probability, but for rows that are sure to stay.
    sketch = Sketch(300, scores="target", seed=1).update(X, y)
    drawn = sketch.weight > 1 + 1e-9
    ratio = (sketch.weight * law[sketch.index])[drawn]
    # The pilot has a ridge of 1%, which is up to a tenth of the smaller noise.
    assert np.ptp(ratio) / ratio.mean() < 0.1
    noisy = np.mean(sketch.index % 10 == 0)
    assert noisy > 0.2 > np.mean(Sketch(300, seed=1).update(X, y).index % 10 == 0)


def test_least_squares_and_logistic_regression_gain_where_noise_is_uneven():
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(20_000), rng.standard_normal((20_000, 5))])
    beta = np.arange(6.0)
    noise = np.where(rng.random(20_000) < 0.05, 10.0, 0.3)
    y = X @ beta + noise * rng.standard_normal(20_000)
    best = np.linalg.lstsq(X, y, rcond=None)[0]

    def error(scores, seed):
        sketch = Sketch(300, scores=scores, seed=seed).update(X, y)
        root = np.sqrt(sketch.weight)
        found = np.linalg.lstsq(sketch.X * root[:, None], sketch.y * root, rcond=None)[0]
        return np.mean((X @ (found - best)) ** 2)

    by_leverage, by_target = (
        np.mean([error(scores, seed) for seed in range(30)]) for scores in ("auto", "target")
    )
    assert by_target < by_leverage / 2


@pytest.mark.parametrize("kind", ["number", "class"])
def test_a_table_is_drawn_from_as_an_array_is(kind):
    (X, y), *_ = tasks(kind, seed=5)
    names = ["a", "b", "c", "d"]
    table = {name: X[:, j] for j, name in enumerate(names)} | {"y": y}
    sketch = Sketch(30, scores="target", seed=0).update(table, y="y")
    assert len(sketch) == 30
    assert sketch.weight.sum() > 0
    model = "logistic" if kind == "class" else "linear"
    assert f"a {model} model of the target" in " ".join(str(sketch.describe()).split())


def test_classes_by_name_and_one_hot_rows_are_the_same():
    (X, y), *_ = tasks("class")
    kinds = [y, y.astype(str), np.eye(2)[y], y.astype(bool)]
    first, *others = (Sketch(30, scores="target", seed=0).update(X, k).index for k in kinds)
    for index in others:
        np.testing.assert_array_equal(index, first)


def test_torch_sparse_and_feature_maps_are_drawn_from_too():
    import scipy.sparse as sp
    import torch

    (X, y), *_ = tasks("number")
    whole = Sketch(30, scores="target", seed=0).update(X, y)
    for rows, target in ((torch.tensor(X), torch.tensor(y)), (sp.csr_array(X), y)):
        again = Sketch(30, scores="target", seed=0).update(rows, target)
        np.testing.assert_array_equal(again.index, whole.index)
    mapped = Sketch(30, scores="target", features=lambda X: X[:, :2], seed=0).update(X, y)
    assert len(mapped) == 30
    assert mapped.scores == "target"


def test_saved_and_loaded_it_goes_on_as_if_nothing_had_been(tmp_path):
    first, second, *_ = tasks("number")
    sketch = Sketch(30, Weighted(0.5), scores="target", seed=0).update(*first)
    sketch.save(tmp_path / "memory.parquet")
    loaded = Sketch.load(tmp_path / "memory.parquet")
    assert loaded.scores == "target"
    assert loaded.policy == Weighted(0.5)
    np.testing.assert_array_equal(loaded.update(*second).index, sketch.update(*second).index)
    np.testing.assert_array_equal(loaded.weight, sketch.weight)


def test_it_forgets_at_a_chosen_rate():
    stream, samples = tasks("number"), []
    for seed in range(200):
        sketch = Sketch(60, scores="target", half_life=100, seed=seed)
        for rows in stream:
            sketch.update(*rows)
        samples.append([sketch.weight.sum()])
    ages = np.arange(sum(len(X) for X, _ in stream))
    assert_unbiased(samples, [np.exp2(-ages / 100).sum()])


def test_counts_are_classes_unless_they_are_said_to_be_numbers():
    (X, _), *_ = tasks("number")
    y = np.arange(len(X)) % 5
    assert "logistic" in str(Sketch(30, scores="target", seed=0).update(X, y).describe())
    assert "linear" in str(Sketch(30, scores="target-number", seed=0).update(X, y).describe())
    with pytest.warns(OlssWarning, match="taken as"):
        Sketch(30, scores="target").update(X, np.arange(len(X)) // 2).describe()


def test_a_target_that_surprises_nobody_leaves_leverage():
    (X, _), *_ = tasks("number")
    for y in (np.zeros(len(X)), np.full(len(X), 2.5), np.array(["a"] * len(X))):
        sketch = Sketch(30, scores="target", seed=0).update(X, y)
        assert len(sketch) == 30
        assert np.isfinite(sketch.weight).all()


def test_of_very_many_classes_the_rarest_are_taken_as_one():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((900, 3)), np.arange(900) % 300
    with pytest.warns(OlssWarning):
        assert len(Sketch(100, scores="target", seed=0).update(X, y)) == 100


def test_what_has_no_target_is_refused_and_nothing_changes():
    (X, y), *_ = tasks("number")
    sketch = Sketch(30, scores="target", seed=0)
    with pytest.raises(InputError, match="scores"):
        sketch.update(X)
    with pytest.raises(InputError, match="scores"):
        sketch.update({"a": X[:, 0]})
    with pytest.raises(InputError, match="scores"):
        sketch.merge(Sketch(30, seed=1).update(X))
    with pytest.raises(InputError, match="neither"):
        sketch.update(X, np.array(["2026-01-01"] * len(X), dtype="datetime64[D]"))
    days = [datetime.date(2026, 1, 1)] * len(X)
    with pytest.raises(InputError, match="neither"):
        sketch.update({"a": X[:, 0], "day": days}, y="day")
    with pytest.raises(InputError, match="neither"):
        Sketch(30, scores="target-number").update(X, np.array(["a", "b"] * len(X))[: len(X)])
    assert sketch.seen == 0
    assert len(sketch.update(X, y)) == 30


@pytest.mark.parametrize(
    "policy", ["reservoir", "paper", "balanced", "recent", lambda pool, rng: None]
)
def test_other_policies_refuse_it(policy):
    with pytest.raises(InputError, match="scores"):
        Sketch(30, policy, scores="target")


def test_more_columns_than_a_model_takes_are_refused():
    rows = np.ones((50, 5_000), dtype=np.uint8)
    with pytest.raises(InputError, match="scores"):
        Sketch(10, scores="target").update(rows, np.arange(50.0) / 3).weight  # noqa: B018


def test_files_refuse_it_and_say_why(tmp_path):
    (X, y), *_ = tasks("number")
    table = {"a": X[:, 0], "b": X[:, 1], "y": y}
    sketch = Sketch(30, scores="target", seed=0).update(table, y="y")
    sketch.save(tmp_path / "memory.parquet")
    import pandas as pd

    pd.DataFrame(table).to_csv(tmp_path / "rows.csv", index=False)
    for out in ("new.parquet", "memory.parquet"):
        given = {"scores": "target", "size": 10} if out == "new.parquet" else {}
        with pytest.raises(InputError, match="scores"):
            compress(tmp_path / "rows.csv", into=tmp_path / out, target="y", **given)


@pytest.mark.parametrize("rows", [20, 3_000], ids=["rows that wait", "rows drawn from at once"])
@pytest.mark.parametrize("scores", ["target", "target-number"])
def test_an_infinite_target_of_a_table_is_named_and_nothing_changes(rows, scores):
    table = {"x": np.arange(float(rows)), "y": np.arange(rows) % 2.0}
    sketch = Sketch(10, scores=scores, seed=0).update(table, y="y")
    bad = {**table, "y": np.where(np.arange(rows) == 7, np.inf, table["y"])}
    with pytest.raises(DataError, match="y"):
        sketch.update(bad)
    assert sketch.seen == rows
    assert len(sketch.update(table)) == 10
