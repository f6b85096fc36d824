from __future__ import annotations

import array
import copy
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from threadpoolctl import threadpool_limits

from olss.errors import InputError
from olss.memory.engine import BUFFER_ROWS
from olss.memory.policies import POLICIES
from olss.sketch import Sketch, config_of
from tests.sketches import fed, fingerprint, stream


def test_everything_stays_with_weight_one_while_there_is_room():
    X = np.random.default_rng(0).standard_normal((30, 3))
    sketch = Sketch(50).update(X[:20]).update(X[20:])
    np.testing.assert_array_equal(sketch.X, X)
    assert (sketch.weight == 1).all()
    assert sketch.index.tolist() == list(range(30))


def test_an_empty_sketch_says_so():
    sketch = Sketch(5)
    assert len(sketch) == sketch.seen == 0
    assert sketch.y is None
    assert repr(sketch) == "Sketch(size=5, policy='weighted': 0 rows of 0 seen, 0 tasks)"
    for use in (lambda: sketch.X, sketch.describe, lambda: sketch.novelty(np.eye(3))):
        with pytest.raises(InputError, match="the sketch is empty"):
            use()


def test_without_tasks_a_stream_is_one_task_and_a_task_goes_on():
    sketch = Sketch(50).update(np.eye(3)).update(np.eye(3))
    assert set(sketch.task) == {0}
    sketch.update(np.eye(3), task=4).update(np.eye(3))
    assert sketch.task[-3:].tolist() == [4, 4, 4]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.uint8, bool])
def test_rows_keep_their_dtype_and_shape(dtype):
    X = (np.random.default_rng(0).random((60, 2, 3, 2)) * 9).astype(dtype)
    sketch = Sketch(20, seed=0).update(X).update(X)
    assert sketch.X.dtype == dtype
    assert sketch.X.shape == (20, 2, 3, 2)


def test_bfloat16_tensors_are_kept_scored_and_saved(tmp_path):
    X = torch.randn((60, 4), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    for policy in POLICIES:
        sketch = Sketch(20, policy, seed=0).update(X, X[:, 0])
        assert sketch.X.dtype == torch.bfloat16
        sketch.save(tmp_path / "half.parquet")
        loaded = Sketch.load(tmp_path / "half.parquet")
        assert loaded.X.dtype == torch.bfloat16
        assert torch.equal(loaded.X, sketch.X)


def test_memory_maps_are_read_without_being_loaded_whole(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(0).standard_normal((500, 4)))
    sketch = Sketch(50, seed=0).update(np.load(path, mmap_mode="r"))
    again = Sketch(50, seed=0).update(np.load(path))
    assert fingerprint(sketch) == fingerprint(again)
    assert type(sketch.X) is np.ndarray


def test_what_was_given_is_never_written_to(tmp_path):
    path, numbers = tmp_path / "rows.npy", np.arange(1.0, 41.0).reshape(10, 4)
    np.save(path, numbers)
    np.save(tmp_path / "y.npy", np.arange(1, 11))
    for rows in (slice(None), slice(0, 5)):
        given, y = (np.load(tmp_path / f, mmap_mode="r+")[rows] for f in ("rows.npy", "y.npy"))
        Sketch(3, seed=0).update(given, y)
        del given, y
        np.testing.assert_array_equal(np.load(path), numbers)
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.arange(1, 11))
    y, extra = array.array("d", range(1, 11)), np.arange(1, 11)
    masked = np.ma.array(numbers.copy())
    Sketch(3, seed=0).update(masked, y, extra={"e": memoryview(extra)})
    np.testing.assert_array_equal(masked, numbers)
    assert list(y) == list(extra) == list(range(1, 11))


def test_a_copy_is_independent_of_what_is_removed_from_the_other():
    sketch = Sketch(50, seed=0).update(np.ones((20, 3)))
    other = sketch.copy()
    taken = other.X
    sketch.remove(range(10))
    other.update(np.ones((100, 3)))
    assert (taken == 1).all()
    assert len(sketch) == 10


def test_attributes_are_the_rows_and_batches_are_copies():
    sketch = Sketch(6, "recent").update(np.arange(6.0).reshape(6, 1), np.arange(6))
    assert np.shares_memory(sketch.X, sketch.X)
    batches = list(sketch.batches(4, seed=0))
    assert [len(X) for X, _ in batches] == [4, 2]
    assert sorted(np.concatenate([y for _, y in batches])) == list(range(6))
    for X, y in batches:
        np.testing.assert_array_equal(X[:, 0], y)
        assert not np.shares_memory(X, sketch.X)
    in_order = np.concatenate([y for _, y in sketch.batches(4, shuffle=False)])
    np.testing.assert_array_equal(in_order, sketch.y)
    state = sketch._state.generator
    assert [y for _, y in Sketch(6).update(np.eye(3)).batches(2)] == [None, None]
    assert sketch._state.generator == state
    with pytest.raises(InputError, match="size must be a positive"):
        next(sketch.batches(0))


def test_batches_of_a_table_are_frames():
    table = pd.DataFrame({"n": np.arange(6.0), "t": list("abcabc")})
    sketch = Sketch(6, "recent").update(table, pd.Series(np.arange(6), name="y"))
    (X, y), (rest, _) = sketch.batches(4, shuffle=False)
    pd.testing.assert_frame_equal(X, sketch.X[:4])
    pd.testing.assert_series_equal(y, sketch.y[:4])
    assert rest["t"].tolist() == ["b", "c"]


def test_the_size_may_be_changed_between_updates():
    X = np.random.default_rng(0).standard_normal((100, 3))
    sketch = Sketch(40, "weighted", seed=0).update(X)
    held = set(sketch.index.tolist())
    sketch.size = 60
    assert len(sketch.update(X[:10])) == 50
    assert held < set(sketch.index.tolist())
    sketch.size = 15
    assert len(sketch.update(X[:1])) == 15
    with pytest.raises(InputError, match="size must be"):
        sketch.size = 0
    assert sketch.size == 15


def test_merge_takes_in_a_history_and_leaves_the_other_alone():
    a, b = fed(Sketch(40, seed=0), stream()), fed(Sketch(40, seed=1), stream(seed=9))
    before, seen = fingerprint(b), a.seen
    assert a.merge(b) is a
    assert fingerprint(b) == before
    assert a.seen == seen + b.seen
    assert len(a) == 40
    from_b = a.index >= seen
    assert from_b.any()
    assert not from_b.all()
    place = {index: i for i, index in enumerate(b.index + seen)}
    for i in np.flatnonzero(from_b):
        np.testing.assert_array_equal(a.X[i], b.X[place[a.index[i]]])


def test_merge_with_empty_sketches_and_with_itself():
    full = fed(Sketch(40, seed=0), stream())
    merged = Sketch(40, seed=1).merge(full)
    np.testing.assert_array_equal(merged.index, full.index)
    merged.merge(Sketch(40))
    assert merged.seen == full.seen
    twice = full.copy().merge(full)
    assert twice.seen == 2 * full.seen
    assert len(full.copy().merge(full.copy())) == 40
    alone = full.copy()
    alone.merge(alone)
    assert fingerprint(alone) == fingerprint(twice)


@pytest.mark.parametrize("policy", ["paper", "recent", lambda pool, rng: None])
def test_policies_without_account_do_not_merge(policy):
    a, b = (Sketch(9, policy).update(np.eye(3)) for _ in range(2))
    with pytest.raises(InputError, match="cannot be merged; use 'weighted'"):
        a.merge(b)


def test_only_like_sketches_merge():
    a = Sketch(9, "weighted").update(np.eye(3))
    with pytest.raises(InputError, match="other"):
        a.merge(Sketch(9, "reservoir").update(np.eye(3)))
    with pytest.raises(InputError, match="rows of shape"):
        a.merge(Sketch(9, "weighted").update(np.eye(4)))
    with pytest.raises(InputError, match="other must be a Sketch, found list"):
        a.merge([])
    assert len(a) == a.seen == 3


def test_removed_rows_are_gone_and_the_rest_is_as_it_was():
    sketch = fed(Sketch(40, seed=0), stream())
    before = {
        i: (x.tobytes(), w) for i, x, w in zip(sketch.index, sketch.X, sketch.weight, strict=True)
    }
    gone = sketch.index[[0, 7, 39]].copy()
    assert sketch.remove(gone) == 3
    assert sketch.remove(gone) == 0
    assert len(sketch) == 37
    after = {
        i: (x.tobytes(), w) for i, x, w in zip(sketch.index, sketch.X, sketch.weight, strict=True)
    }
    assert after == {i: v for i, v in before.items() if i not in gone}
    sketch.update(**stream()[0])
    assert len(sketch) == 40
    assert sketch.remove(sketch.index.copy()) == 40
    assert len(sketch) == 0
    assert len(sketch.update(**stream()[0])) == 40


@pytest.mark.parametrize("index", [-1, 10**6, 1.5, "a", [0, 10**6]])
def test_remove_wants_positions_of_the_stream(index):
    with pytest.raises(InputError, match="index must be"):
        Sketch(5).update(np.eye(3)).remove(index)


def test_weighted_stays_unbiased_for_the_rest_after_removal():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((300, 3)) * np.exp(rng.standard_normal((300, 1)))
    wanted = np.flatnonzero(X[:200, 0] > 0.5)  # many, and not at random
    rest = np.setdiff1d(np.arange(300), wanted)
    samples = []
    for seed in range(200):
        sketch = Sketch(40, "weighted", seed=seed)
        sketch.update(X[:100]).update(X[100:200])
        sketch.remove(wanted)
        sketch.update(X[200:250]).update(X[250:])
        gram = (sketch.X.T * sketch.weight) @ sketch.X
        samples.append([*gram[np.triu_indices(3)], sketch.weight.sum()])
    truth = [*(X[rest].T @ X[rest])[np.triu_indices(3)], len(rest)]
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(200)
    assert np.abs((np.mean(samples, axis=0) - truth) / error).max() < 4.5


def test_no_copy_of_the_pool_is_made():
    rng = np.random.default_rng(0)
    sketch = Sketch(20_000, "weighted", seed=0)
    sketch.update(rng.standard_normal((20_000, 200), dtype=np.float32))
    X = rng.standard_normal((20_000, 200), dtype=np.float32)
    tracemalloc.start()
    sketch.update(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The rows that will be held, blocks of 12 MB, and a dozen vectors.
    assert peak < X.nbytes + 3.5 * 12e6 + 20_000 * 2 * 8 * 12


def test_many_tasks_cost_no_memory_beyond_the_rows():
    sketch = Sketch(20, "weighted", seed=0)
    rng = np.random.default_rng(0)
    for task in range(60):
        sketch.update(rng.standard_normal((5, 2)), task=f"task {task}")
    assert sketch._buffered.pending_rows < BUFFER_ROWS
    sketch.flush()
    assert len(pickle.dumps(sketch)) < 5_000


def test_importing_sketch_loads_nothing_heavy():
    code = (
        "import sys, olss.sketch; heavy = {'torch', 'sklearn', 'pandas', 'matplotlib', "
        "'pyarrow', 'scipy.stats'}; sys.exit(len(heavy & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("policy", ["weighted", "paper"])
@pytest.mark.parametrize("scores", ["exact", "sketched", "ridge"])
def test_the_same_rows_are_kept_on_any_number_of_threads(policy, scores, monkeypatch):
    monkeypatch.setattr("olss.core.blocks.PIECE_BYTES", 20_000)
    monkeypatch.setattr("olss.memory.rows.COPY_BYTES", 5_000)
    rng = np.random.default_rng(0)
    updates = [{"rows": rng.standard_normal((2_000, 30), dtype=np.float32)} for _ in range(3)]
    found = []
    for threads in (1, 2, 3):
        with threadpool_limits(threads, user_api="blas"):
            sketch = fed(Sketch(600, policy, scores=scores, seed=0), updates)
            found.append(fingerprint(sketch))
    assert found[0] == found[1] == found[2]


def test_a_shallow_copy_is_a_copy():
    X = np.arange(1.0, 301.0).reshape(-1, 1)
    sketch = Sketch(300, "reservoir", seed=0).update(X)
    twin = copy.copy(sketch)
    assert sketch.remove(where=np.arange(300) % 2 == 0) == 150
    np.testing.assert_array_equal(twin.X, X)


def test_what_a_sketch_returns_cannot_change_it():
    sketch = Sketch(50, seed=0).update(np.ones((2_000, 2)), y=np.arange(2_000) % 3)
    before = fingerprint(sketch)
    with pytest.raises(ValueError, match="read-only"):
        sketch.X[0] = 9
    for column in (sketch.y, sketch.weight, sketch.task, sketch.index):
        column[:] = 7
    assert fingerprint(sketch) == before


def test_columns_can_be_overruled_the_target_too(tmp_path):
    rating = np.arange(400) % 5
    table = {"id": [f"u{i % 8}" for i in range(400)], "x": np.arange(400.0), "rating": rating}
    auto = Sketch(100, "balanced", seed=0).update(table, y="rating")
    assert np.bincount(np.array(auto.y)).tolist() == [20] * 5
    kinds = {"id": "ignore", "rating": "number"}
    numbers = Sketch(100, "balanced", seed=0, columns=kinds).update(table, y="rating")
    assert "id" not in numbers.describe().scored.split(";")[0]
    assert numbers.describe().classes is None
    numbers.save(tmp_path / "s.parquet")
    assert config_of(Sketch.load(tmp_path / "s.parquet")).columns == kinds
    with pytest.raises(InputError, match="columns"):
        Sketch(10, columns={"id": "identifier"})


def test_after_a_flush_rows_only_leave():
    sketch = Sketch(100, seed=0).update(np.arange(400.0).reshape(-1, 1)).flush()
    for part in range(1, 5):
        held = set(sketch.index.tolist())
        sketch.update(np.arange(400.0).reshape(-1, 1)).flush()
        assert {i for i in sketch.index.tolist() if i < 400 * part} <= held
