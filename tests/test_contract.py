"""What every policy must do, NumPy or torch."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pyarrow as pa
import pytest
import torch

from olss.cli.compress import PYTHON_ONLY, _setting_options
from olss.memory.config import settings
from olss.memory.engine import BUFFER_ROWS
from olss.memory.policies import POLICIES
from olss.sketch import Sketch
from tests.sketches import as_torch, fed, fingerprint, stream

SIZE = 50
KIND = {"numpy": lambda update: update, "torch": as_torch}

every_policy = pytest.mark.parametrize("policy", POLICIES)
every_kind = pytest.mark.parametrize("kind", KIND)


def updates(kind="numpy", **options):
    return [KIND[kind](update) for update in stream(**options)]


def by_index(sketch, column):
    return np.asarray(column)[np.argsort(sketch.index)]


@every_policy
@every_kind
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(policy, kind):
    first, second, other = (
        fed(Sketch(SIZE, policy, seed=seed), updates(kind)) for seed in (1, 1, 2)
    )
    assert fingerprint(first) == fingerprint(second)
    if policy != "recent":
        assert sorted(first.index) != sorted(other.index)


@every_policy
@every_kind
def test_columns_stay_aligned_with_the_stream(policy, kind):
    data = updates(kind)
    sketch = fed(Sketch(SIZE, policy, seed=0), data)
    whole = {
        name: np.concatenate([np.asarray(update[name]) for update in data])
        for name in ("rows", "y")
    }
    task = np.concatenate([np.full(len(update["y"]), update["task"]) for update in data])
    ids = np.concatenate([update["extra"]["id"] for update in data])
    assert len(set(sketch.index.tolist())) == len(sketch)
    np.testing.assert_array_equal(np.asarray(sketch.X), whole["rows"][sketch.index])
    np.testing.assert_array_equal(np.asarray(sketch.y), whole["y"][sketch.index])
    np.testing.assert_array_equal(sketch.task, task[sketch.index])
    np.testing.assert_array_equal(sketch.extra["id"], ids[sketch.index])
    assert sketch.seen == len(ids)


@every_policy
@every_kind
def test_never_more_rows_than_size_and_never_fewer_than_there_are(policy, kind):
    sketch = Sketch(SIZE, policy, seed=0)
    for update in updates(kind, rows=20):
        sketch.update(**update)
        assert len(sketch) == min(SIZE, sketch.seen)
        assert np.isfinite(sketch.weight).all()
        assert (sketch.weight >= 1 - 1e-12).all()


@every_policy
def test_memory_is_bounded_by_the_size(policy):
    sketch = fed(Sketch(SIZE, policy, seed=0), updates(tasks=15))
    rows = sketch._state.rows
    assert all(len(rows[name]) == SIZE for name in rows)
    assert sketch._buffered.pending_rows < BUFFER_ROWS


@every_policy
def test_numpy_and_torch_choose_the_same_rows(policy):
    a, b = (fed(Sketch(SIZE, policy, seed=0), updates(kind)) for kind in KIND)
    np.testing.assert_array_equal(a.index, b.index)
    np.testing.assert_allclose(a.weight, b.weight, rtol=1e-5)
    assert isinstance(b.X, torch.Tensor)
    assert b.X.dtype == torch.uint8
    assert a.X.dtype == np.uint8


@every_policy
@every_kind
def test_a_copy_goes_on_alike_and_by_itself(policy, kind):
    *before, last = updates(kind)
    sketch = fed(Sketch(SIZE, policy, seed=0), before)
    start = fingerprint(sketch)
    copy = sketch.copy()
    copy.update(**last)
    assert fingerprint(sketch) == start
    sketch.update(**last)
    assert fingerprint(sketch) == fingerprint(copy)


@every_policy
def test_it_can_be_pickled(policy):
    *before, last = updates()
    sketch = fed(Sketch(SIZE, policy, seed=0), before)
    other = pickle.loads(pickle.dumps(sketch))
    assert fingerprint(other.update(**last)) == fingerprint(sketch.update(**last))


@every_policy
@every_kind
def test_saved_and_loaded_it_goes_on_as_if_nothing_had_been(policy, kind, tmp_path):
    data = updates(kind)
    sketch = fed(Sketch(SIZE, policy, seed=0), data[:3])
    sketch.save(tmp_path / "sketch.parquet")
    loaded = Sketch.load(tmp_path / "sketch.parquet")
    assert fingerprint(loaded) == fingerprint(sketch)
    assert type(loaded.X) is type(sketch.X)
    assert fingerprint(fed(loaded, data[3:])) == fingerprint(fed(sketch, data[3:]))


@pytest.mark.parametrize("policy", ["recent", "balanced-random"])
def test_chunks_do_not_matter_where_the_policy_promises_it(policy):
    data = [update | {"y": None} for update in updates(tasks=1, rows=90)]
    whole = fed(Sketch(SIZE, policy, seed=0), data)
    chunked = Sketch(SIZE, policy, seed=0)
    for update in data:
        for part in (slice(0, 33), slice(33, 40), slice(40, None)):
            ids = {"id": update["extra"]["id"][part]}
            chunked.update(update["rows"][part], task=update["task"], extra=ids)
    np.testing.assert_array_equal(np.sort(whole.index), np.sort(chunked.index))
    np.testing.assert_allclose(by_index(whole, whole.weight), by_index(chunked, chunked.weight))


@every_policy
def test_a_feature_map_is_what_is_scored(policy):
    def features(X):
        return X.reshape(len(X), -1)[:, :2].astype(float)

    def kept(data, **options):
        sketch = Sketch(SIZE, policy, seed=0, **options)
        for update in data:
            assert len(sketch.update(**update)) == min(SIZE, sketch.seen)
            sketch.flush()  # rows with a feature map are never pending
        return sketch.index

    mapped = kept(updates(), features=features)
    # The same rows stay as if the features had been the rows, if rows are looked at.
    alone = [update | {"rows": features(update["rows"])} for update in updates()]
    exact = {"scores": "exact"} if policy in ("weighted", "paper") else {}
    if policy != "weighted":  # which scores rows by everything seen, features by the pool
        np.testing.assert_array_equal(mapped, kept(alone, **exact))
    looks = policy in ("paper", "weighted", "balanced", "balanced-leverage")
    assert np.array_equal(mapped, kept(updates())) == (not looks)


@every_policy
@pytest.mark.parametrize("scores", ["exact", "ridge", "sketched", 0.5])
def test_every_score_counts_in_policies_that_score_and_in_no_other(policy, scores):
    kept = [
        fed(Sketch(SIZE, policy, scores=how, seed=0), updates()).index.tolist()
        for how in (scores, 1e9)  # a ridge by which rows count by their lengths alone
    ]
    assert len(kept[0]) == SIZE
    scored = policy in ("paper", "weighted", "balanced-leverage")
    assert (kept[0] != kept[1]) == scored


@every_policy
def test_size_task_follows_the_task(policy):
    sketch = Sketch("task", policy, seed=0)
    for n in (30, 10, 40, 40, 1):
        X = np.random.default_rng(n).standard_normal((n, 3))
        held = len(sketch)
        sketch.update(X)
        assert len(sketch) == min(n, held + n)


@every_policy
def test_one_row_at_a_time(policy):
    sketch = Sketch(5, policy, seed=0)
    rows = np.random.default_rng(0).standard_normal((20, 1, 3))
    for i, row in enumerate(rows):
        sketch.update(row, y=[i % 2], task=i // 10)
    assert (len(sketch), sketch.seen) == (5, 20)
    np.testing.assert_array_equal(sketch.X, rows[sketch.index, 0])
    np.testing.assert_array_equal(sketch.y, sketch.index % 2)
    np.testing.assert_array_equal(sketch.task, sketch.index // 10)


@every_policy
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::olss.errors.OlssWarning")  # tiny sizes, on purpose
def test_columns_stay_aligned_whatever_is_called_in_whatever_order(policy, seed):
    rng = np.random.default_rng(seed)
    sketch = Sketch(30, policy, seed=seed)
    rows = {}

    def update():
        n = int(rng.integers(1, 60))
        X = rng.integers(-3, 4, (n, 3)).astype(float) * (rng.random((n, 1)) < 0.8)
        rows.update(zip(range(sketch.seen, sketch.seen + n), X, strict=True))
        sketch.update(X, rng.integers(0, 3, n), task=int(rng.integers(0, 4)))

    def remove():
        sketch.remove(rng.choice(sketch.index, len(sketch) // 3, replace=False))

    def resize():
        sketch.size = int(rng.integers(1, 50))

    def merge():
        if getattr(sketch.policy, "mergeable", False):
            other = sketch.copy()
            rows.update({sketch.seen + i: rows[i] for i in other.index.tolist()})
            sketch.merge(other)

    update()
    for _ in range(15):
        rng.choice([update, update, remove, resize, merge])()
        wanted = np.array([rows[i] for i in sketch.index.tolist()]).reshape(-1, 3)
        np.testing.assert_array_equal(sketch.X, wanted)
        assert len(set(sketch.index.tolist())) == len(sketch)
    update()
    assert len(sketch) <= sketch.size


LOOKS = {
    "length": len,
    "rows": lambda sketch: sketch.X,
    "text": repr,
    "description": lambda sketch: str(sketch.describe()),
    "copy": lambda sketch: sketch.copy(),
}


def in_pieces(updates, rows):
    """Cut updates into small ones, so that rows are pending in between."""
    for update in updates:
        n = len(update["rows"])
        for start in range(0, n, rows):
            at = slice(start, start + rows)
            extra = {name: values[at] for name, values in update["extra"].items()}
            yield update | {"rows": update["rows"][at], "y": update["y"][at], "extra": extra}


@every_policy
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("rows", [1, 37, 2_000])
def test_looking_changes_nothing(policy, look, rows):
    unseen, seen = Sketch(SIZE, policy, seed=0), Sketch(SIZE, policy, seed=0)
    for number, update in enumerate(in_pieces(stream(tasks=3, rows=700), rows)):
        unseen.update(**update)
        seen.update(**update)
        if rows > 1 or number % 97 == 0:
            LOOKS[look](seen)
    assert fingerprint(seen) == fingerprint(unseen)


@every_policy
@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_saved_sketch_continues_as_if_it_had_not_been_saved(policy, kind, tmp_path):
    path = tmp_path / "sketch.parquet"
    options = {"seed": 0} if kind == "array" else {"seed": 0, "exclude": ["label"]}
    unsaved, saved = Sketch(SIZE, policy, **options), Sketch(SIZE, policy, **options)
    pending = candidates = 0
    for number, update in enumerate(in_pieces(stream(tasks=3, rows=3_000), 130)):
        if kind == "table":
            rows = update["rows"].reshape(len(update["rows"]), -1).astype(float)
            table = {f"x{j}": rows[:, j] for j in range(rows.shape[1])}
            update = {"rows": pa.table(table | {"label": update["y"]}), "task": update["task"]}
        unsaved.update(**update)
        saved.update(**update)
        if number % 3 == 1:
            pending += saved._buffered.pending_rows
            candidates += len(saved._buffered.candidates)
            saved.save(path)
            saved = Sketch.load(path)
            assert fingerprint(saved) == fingerprint(unsaved)
    assert fingerprint(saved) == fingerprint(unsaved)
    assert pending or not POLICIES[policy].can_buffer
    assert bool(candidates) == (policy == "weighted")
    unsaved.save(tmp_path / "unsaved.parquet")
    saved.save(path)
    assert path.read_bytes() == (tmp_path / "unsaved.parquet").read_bytes()


def test_every_setting_is_offered_wherever_settings_are():
    declared = {entry.name: entry.default for entry in settings()}
    signature = inspect.signature(Sketch).parameters
    offered = {name: given.default for name, given in signature.items() if name != "seed"}
    assert list(offered) == list(declared)
    assert {k: v for k, v in offered.items() if k != "size"} == {
        k: v for k, v in declared.items() if k != "size"
    }
    options = {parameter.name for parameter in _setting_options()}
    assert options == set(declared) - set(PYTHON_ONLY)
