"""Class frequencies of everything seen are exact, and probabilities can be corrected by them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olss import Sketch, correct_priors
from olss.errors import InputError
from olss.files import compress
from olss.memory.policies import POLICIES
from olss.sketch import state_of


def class_counts(sketch):
    found = state_of(sketch).class_counts
    return {json.loads(key)[0]: count for key, count in found.items()}


@pytest.mark.parametrize("policy", POLICIES)
def test_class_counts_are_exact_under_every_policy(policy, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b", "c"], 3_000, p=[0.9, 0.09, 0.01])
    x = rng.standard_normal((3_000, 2))
    truth = {name: float((y == name).sum()) for name in "abc"}
    sketch = Sketch(60, policy, seed=0)
    for part in np.array_split(np.arange(3_000), 3):
        sketch.update(x[part], y[part])
    assert class_counts(sketch) == truth
    table = pa.table({"x0": x[:, 0], "x1": x[:, 1], "y": y})
    pq.write_table(table.slice(0, 2_000), tmp_path / "0.parquet")
    pq.write_table(table.slice(2_000), tmp_path / "1.parquet")
    out = tmp_path / "out.parquet"
    compress(tmp_path / "0.parquet", into=out, size=60, target="y", policy=policy, seed=0)
    compress(tmp_path / "1.parquet", into=out)
    assert class_counts(Sketch.load(out)) == truth


def test_class_counts_decay_merge_and_lose_removed_rows():
    x, y = np.arange(200.0)[:, None], np.arange(200) % 4
    decayed = Sketch(20, half_life=50, seed=0)
    for part in np.array_split(np.arange(200), 4):
        decayed.update(x[part], y[part])
    age = 2.0 ** (-np.arange(200)[::-1] / 50)
    assert class_counts(decayed) == pytest.approx({k: age[y == k].sum() for k in range(4)})
    one, two = (Sketch(20, seed=seed).update(x + 1, y) for seed in (0, 1))
    one.merge(two)
    assert class_counts(one) == {k: 100 for k in range(4)}
    held = np.bincount(one.y, minlength=4)
    gone = one.remove(where={"y": 1})
    assert gone == held[1]
    assert class_counts(one) == {0: 100, 2: 100, 3: 100}
    whole = Sketch(500).update(x, y)
    whole.remove(index=[0, 4])
    assert class_counts(whole) == {0: 48, 1: 50, 2: 50, 3: 50}


def test_corrected_probabilities_are_those_of_bayes_rule():
    # With known densities the posterior under each prior is known, too.
    rng = np.random.default_rng(0)
    y = (rng.random(50_000) < 0.02).astype(int)
    x = rng.standard_normal(50_000) + 2 * y
    sketch = Sketch(1_000, "reservoir", strata="y", seed=0).update(x[:, None], y)
    grid = np.linspace(-2, 4, 13)

    def posterior(prior):
        likelihood = np.exp(-0.5 * (grid[:, None] - [0, 2]) ** 2)
        return likelihood * prior / (likelihood * prior).sum(axis=1, keepdims=True)

    fitted = np.bincount(sketch.y) / len(sketch)
    assert fitted[1] > 0.2
    pi = np.bincount(y) / len(y)
    found = correct_priors(posterior(fitted), sketch)
    assert np.allclose(found, posterior(pi))
    assert np.allclose(correct_priors(posterior(fitted)[:, 1], sketch), posterior(pi)[:, 1])
    shares = np.bincount(sketch.y, sketch.weight) / sketch.weight.sum()
    assert np.allclose(correct_priors(posterior(shares), sketch, fitted="weight"), posterior(pi))
    flipped = correct_priors(posterior(fitted)[:, ::-1], sketch, classes=[1, 0])
    assert np.allclose(flipped[:, ::-1], posterior(pi))
    equal = correct_priors(posterior([0.5, 0.5]), sketch, fitted=[1, 1])
    assert np.allclose(equal, posterior(pi))


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [0.0, 1.0]])
def test_labels_of_any_kind(labels):
    y = np.array(labels)[(np.arange(1_000) % 10 == 0).astype(int)]
    sketch = Sketch(100, "balanced", seed=0).update(np.arange(1_000.0)[:, None], y)
    found = correct_priors([[0.5, 0.5]], sketch, classes=np.unique(sketch.y))
    assert np.allclose(found, [[0.9, 0.1]])


def test_bad_input_is_refused():
    x = np.arange(100.0)[:, None]
    sketch = Sketch(50, seed=0).update(x, np.arange(100) % 3)
    for proba in ([[0.5, 0.5]], [0.5], [[0.5, np.nan, 0.5]], [[-1, 1, 1]], [[0, 2, 0]]):
        with pytest.raises(InputError, match="proba"):
            correct_priors(proba, sketch)
    with pytest.raises(InputError, match="classes"):
        correct_priors([[0.5, 0.5]], sketch, classes=[0, 7])
    for fitted in ("all", [1, 1], [-1, 1, 1]):
        with pytest.raises(InputError, match="fitted"):
            correct_priors([[0.2, 0.3, 0.5]], sketch, fitted=fitted)
    for y in (x[:, 0] + 0.5, None):
        with pytest.raises(InputError, match="class"):
            correct_priors([[0.5, 0.5]], Sketch(10).update(x, y))
    with pytest.raises(InputError, match="sketch"):
        correct_priors(sketch, [[0.2, 0.3, 0.5]])
