"""Bad input: a clear message, and the sketch is as it was."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from olss.errors import DataError, InputError
from olss.sketch import Sketch
from tests.sketches import fingerprint

X = np.random.default_rng(0).standard_normal((30, 4))
Y = np.arange(30) % 3
IDS = {"id": np.arange(30)}


def with_value(array, value):
    array = array.copy()
    array[7, 1] = value
    return array


BAD = {
    "infinity in X": ({"rows": with_value(X, np.inf)}, "infinite value in row 7, column 1"),
    "no rows": ({"rows": X[:0], "y": Y[:0], "extra": {"id": []}}, "at least one row"),
    "one dimension": ({"rows": X[:, 0]}, "found shape \\(30,\\).*reshape"),
    "no X": ({"rows": None}, "X must be an array of rows"),
    "words in X": ({"rows": [["a"]] * 30}, "real numbers"),
    "complex X": ({"rows": X * 1j}, "must hold numbers"),
    "sparse X": ({"rows": sp.csr_array(X)}, "X"),
    "torch after NumPy": ({"rows": torch.tensor(X)}, "X"),
    "another shape": ({"rows": X[:, :3]}, "shape \\(4,\\) as before, found \\(3,\\).*pad="),
    "another dtype": ({"rows": X.astype(np.float32)}, "dtype float64 as before, found float32"),
    "y missing": ({"y": None}, "y"),
    "y too short": ({"y": Y[:29]}, "y must have one entry for each of the 30 rows"),
    "y a number": ({"y": 3}, "y must have one entry"),
    "y of another shape": ({"y": np.eye(3)[Y]}, "shape \\(\\) as before, found \\(3,\\).*pad_y"),
    "y of another kind": ({"y": Y + 0.5}, "y"),
    "y of objects": ({"y": [object()] * 30}, "y"),
    "extra missing": ({"extra": None}, r"extra\['id'\]"),
    "extra new": ({"extra": IDS | {"age": Y}}, r"extra\['age'\]"),
    "extra too short": ({"extra": {"id": [1]}}, "extra\\['id'\\] must have one entry"),
    "reserved extra": ({"extra": {"weight": Y}}, "extra"),
    "task a float": ({"task": 1.5}, "task"),
    "task a bool": ({"task": True}, "task"),
    "task a tuple": ({"task": (1, 2)}, "one for each of the 30 rows"),
    "task of another kind": ({"task": "three"}, "task"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("policy", ["weighted", "balanced"])
def test_bad_input_is_told_and_changes_nothing(case, policy):
    change, says = BAD[case]
    sketch = Sketch(20, policy, seed=0).update(X, Y, task=1, extra=IDS)
    before = fingerprint(sketch)
    with pytest.raises(InputError, match=says):
        sketch.update(**({"rows": X, "y": Y, "task": 2, "extra": IDS} | change))
    assert fingerprint(sketch) == before


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_targets_must_be_finite(value):
    sketch = Sketch(20).update(X, X[:, 0])
    before = fingerprint(sketch)
    with pytest.raises(InputError, match="y must be finite"):
        sketch.update(X, np.where(Y == 0, value, 0.0))
    assert fingerprint(sketch) == before


def test_a_failing_feature_map_or_policy_changes_nothing():
    def fails_later(rows):
        if len(rows) == 21:
            raise RuntimeError("out of luck")
        return rows

    sketch = Sketch(20, "weighted", features=fails_later, scores="sketched", seed=0).update(X)
    before = fingerprint(sketch)
    with pytest.raises(RuntimeError, match="out of luck"):
        sketch.update(X[:21])
    assert fingerprint(sketch) == before
    sketch.features = lambda rows: rows[:, 0]
    with pytest.raises(InputError, match="features must return one row for each"):
        sketch.update(X)
    assert fingerprint(sketch) == before


def test_padding_is_on_request():
    sketch = Sketch(100, pad=(2, 3), pad_y=(4,))
    sketch.update(np.ones((2, 2, 2)), np.ones((2, 3)))
    sketch.update(np.ones((2, 2, 3)), np.ones((2, 4)))
    np.testing.assert_array_equal(sketch.X[0], [[1, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(sketch.y, [[1, 1, 1, 0]] * 2 + [[1, 1, 1, 1]] * 2)
    before = fingerprint(sketch)
    with pytest.raises(InputError, match=r"X"):
        sketch.update(np.ones((2, 2, 4)), np.ones((2, 4)))
    assert fingerprint(sketch) == before


def test_padding_of_tensors_stays_torch():
    sketch = Sketch(100, pad=(5,)).update(torch.ones((3, 2), dtype=torch.uint8))
    assert sketch.X.dtype == torch.uint8
    assert sketch.X.sum(dim=0).tolist() == [3, 3, 0, 0, 0]


def test_labels_may_change_within_what_the_column_holds():
    sketch = Sketch(100).update(X, Y).update(X, Y.astype(np.int8))
    assert sketch.y.dtype == np.int64
    names = Sketch(100).update(X, np.array(["a"] * 30)).update(X, np.array(["long"] * 30))
    assert set(names.y) == {"a", "long"}


def test_tasks_may_be_given_row_by_row():
    sketch = Sketch(100).update(X, task=Y).update(X)
    assert sketch.task.tolist() == [*Y, *[Y[-1]] * 30]
    assert Sketch(100).update(X, task=torch.tensor(Y)).task.tolist() == Y.tolist()


def test_big_endian_and_tensors_with_gradient_are_taken_as_they_mean():
    assert Sketch(100).update(X.astype(">f8")).X.dtype == np.float64
    sketch = Sketch(100).update(torch.tensor(X, requires_grad=True))
    assert not sketch.X.requires_grad


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_rows_of_the_sketch_itself_can_be_given_back(kind):
    sketch = Sketch(20, "recent").update(kind(X))
    wanted = np.asarray(sketch.X)[::-1].copy()
    reverse = sketch.X[::-1] if kind is np.asarray else sketch.X
    sketch.update(reverse)
    found = np.asarray(sketch.X)[np.argsort(sketch.index)]
    np.testing.assert_array_equal(found, wanted if kind is np.asarray else wanted[::-1])


@pytest.mark.parametrize("size", [0, -3, 2.5, True, "all", None])
def test_size_must_be_a_number_of_rows(size):
    with pytest.raises(InputError, match="size must be"):
        Sketch(size)


@pytest.mark.parametrize("scores", ["exakt", -1.0, None, float("nan")])
def test_scores_must_be_known(scores):
    with pytest.raises(InputError, match="scores"):
        Sketch(10, scores=scores)


def test_a_few_rows_that_lack_what_came_before_are_refused_at_once():
    sketch = Sketch(10, seed=0).update(np.ones((2, 3)), extra={"id": [1, 2]})
    with pytest.raises(DataError, match=r"extra\['id'\]"):
        sketch.update(np.ones((2, 3)))
    assert len(sketch.update(np.ones((2, 3)), extra={"id": [3, 4]})) == 4
    labelled = Sketch(10, seed=0).update(np.ones((2, 3)), [1.0, 2.0])
    with pytest.raises(DataError, match="masked"):
        labelled.update(np.ones((2, 3)), np.ma.array([1.0, 99.0], mask=[0, 1]))
    assert labelled.y.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("saved", [False, True])
def test_a_first_missing_value_may_come_when_all_rows_were_removed(tmp_path, saved):
    rng = np.random.default_rng(0)
    sketch = Sketch(20, seed=0).update(rng.standard_normal((3_000, 3)))
    sketch.remove(index=sketch.index)
    if saved:
        sketch.save(tmp_path / "empty.parquet")
        sketch = Sketch.load(tmp_path / "empty.parquet")
    X = rng.standard_normal((3_000, 3))
    X[5, 1] = np.nan
    sketch.update(X)
    assert len(sketch) == 20
    assert sketch.X.shape == (20, 3)
