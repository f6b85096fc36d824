"""Near-duplicates are merged into weights: no two rows held are alike, and counts stay right."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import olss
from olss.cli import app
from olss.memory.near_duplicates import find_leaders

KINDS, DIMENSION, ROWS = 300, 16, 3_000


@pytest.fixture(scope="module")
def stream():
    """(vectors, number of the text each is a copy of): few texts come often, most come rarely."""
    rng = np.random.default_rng(0)
    texts = rng.standard_normal((KINDS, DIMENSION))
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    often = 1 / np.arange(1, KINDS + 1)
    kind = rng.choice(KINDS, ROWS, p=often / often.sum())
    return texts[kind] + 0.01 * rng.standard_normal((ROWS, DIMENSION)), kind


def follow(stream, size=60, step=500, **settings):
    X, kind = stream
    sketch = olss.Sketch(size, near_duplicates=0.97, **settings)
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        sketch.update(X[rows], extra={"kind": kind[rows]})
    return sketch


def largest_cosine(X):
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    return (unit @ unit.T - 2 * np.eye(len(X))).max()


@pytest.mark.parametrize("held", [0, 7])
def test_leaders_are_those_found_one_by_one(held, monkeypatch):
    monkeypatch.setattr("olss.memory.near_duplicates.COMPARISONS", 500)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 2)).astype(np.float32)  # in a plane, many are near
    X[5] = 0
    group = rng.integers(0, 2, len(X))
    expected = []
    for i, x in enumerate(X):
        near = [
            j
            for j in range(i if i >= held else 0)
            if expected[j] == j
            and group[i] == group[j]
            and x @ X[j] >= 0.9 * np.linalg.norm(x) * np.linalg.norm(X[j]) > 0
        ]
        expected.append(near[0] if near else i)
    found = find_leaders(X, 0.9, group, held)
    assert found.tolist() == expected
    assert 10 < len(np.unique(found)) < 60


@pytest.mark.parametrize("policy", ["weighted", "reservoir", "balanced-random", "paper", "recent"])
@pytest.mark.parametrize("step", [170, ROWS])
def test_no_two_rows_held_are_near_duplicates(stream, policy, step):
    sketch = follow(stream, policy=policy, step=step, seed=0)
    assert len(sketch) == 60
    assert sketch.seen == ROWS
    assert largest_cosine(sketch.X) < 0.97
    assert len(set(sketch.extra["kind"])) == 60
    if policy in ("reservoir", "balanced-random"):
        assert sketch.weight.sum() == pytest.approx(ROWS)


def test_where_all_texts_fit_weights_count_them(stream):
    sketch = follow(stream, size=KINDS, seed=0)
    _, kind = stream
    there = np.unique(kind)
    assert sorted(sketch.extra["kind"]) == there.tolist()
    np.testing.assert_allclose(sketch.weight, np.bincount(kind)[sketch.extra["kind"]])


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_weights_are_unbiased(stream, policy, count):
    _, kind = stream
    seeds = range(count)
    found = np.zeros((len(seeds), KINDS))
    for seed in seeds:
        sketch = follow(stream, policy=policy, seed=seed)
        found[seed] = np.bincount(sketch.extra["kind"], sketch.weight, KINDS)
    counts = np.bincount(kind, minlength=KINDS)
    for some in (slice(0, 1), slice(1, 10), slice(10, 100), slice(100, None)):
        mine = found[:, some].sum(axis=1)
        error = mine.std(ddof=1) / np.sqrt(len(seeds))
        assert abs(mine.mean() - counts[some].sum()) <= 4 * error + 1e-9


def test_many_rows_at_once_are_thinned_first(stream, monkeypatch):
    monkeypatch.setattr("olss.memory.engine.MOST_COMPARED", 100)
    sketch = follow(stream, step=ROWS, policy="reservoir", seed=0)
    assert largest_cosine(sketch.X) < 0.97
    assert sketch.weight.sum() == pytest.approx(ROWS)


def test_only_rows_of_one_task_target_and_stratum_are_merged(stream):
    X, _ = stream
    same = np.repeat(X[:5], 40, axis=0)
    sketch = olss.Sketch(500, near_duplicates=0.97, strata="channel", seed=0)
    y, channel = np.tile([0.5, 1.5], 100), np.repeat(["mail", "chat"], 100)
    sketch.update(same, y=y, task=1, extra={"channel": channel})
    sketch.update(same, y=y, task=2, extra={"channel": channel})
    groups = list(zip(sketch.task, sketch.y, sketch.extra["channel"], strict=True))
    assert len(sketch) == 24  # 5 texts, the third in two channels; 2 targets, 2 tasks
    assert largest_cosine(sketch.X) > 0.999
    assert len(set(groups)) == 8
    assert sketch.weight.sum() == pytest.approx(400)
    assert sketch.estimate(by="channel").count.tolist() == [200, 200]


def test_sketches_are_merged_saved_and_continued(stream, tmp_path):
    X, kind = stream
    half = ROWS // 2
    a = follow((X[:half], kind[:half]), seed=0)
    b = follow((X[half:], kind[half:]), seed=1)
    a.merge(b)
    assert largest_cosine(a.X) < 0.97
    a.save(tmp_path / "a.parquet")
    again = olss.Sketch.load(tmp_path / "a.parquet")
    again.update(X, extra={"kind": kind})
    assert largest_cosine(again.X) < 0.97
    assert again.seen == 2 * ROWS


@pytest.mark.parametrize("passes", [1, 2])
def test_files_of_embeddings(stream, passes, tmp_path):
    X, kind = stream
    table = pa.table({"kind": kind, "vector": list(X)})
    pq.write_table(table, tmp_path / "texts.parquet", row_group_size=500)
    out = tmp_path / "out.parquet"
    options = {"size": 60, "columns": ["vector"], "near_duplicates": 0.97, "seed": 0}
    summary = olss.compress(tmp_path / "texts.parquet", into=out, passes=passes, **options)
    assert (summary.rows, summary.seen) == (60, ROWS)
    sketch = olss.Sketch.load(out, frame="arrow")
    assert largest_cosine(np.stack(sketch.X["vector"].to_numpy())) < 0.97
    assert len(set(sketch.X["kind"].to_pylist())) == 60
    assert abs(sketch.weight.sum() / ROWS - 1) < 0.25
    command = ["compress", str(tmp_path / "texts.parquet"), "--into", str(tmp_path / "b.parquet")]
    command += ["--size", "60", "--columns", "vector", "--near-duplicates", "0.97", "--seed", "0"]
    assert CliRunner().invoke(app, [*command, "--passes", str(passes)]).exit_code == 0
    assert np.array_equal(olss.Sketch.load(tmp_path / "b.parquet").index, sketch.index)
    frame = olss.Sketch(60, "reservoir", columns=["vector"], near_duplicates=0.97, seed=0)
    frame.update(table)
    assert len(set(frame.X["kind"].to_pylist())) == 60


def test_settings_that_do_not_go_together(stream):
    for value in (0, -1, 1.5, "near"):
        with pytest.raises(olss.InputError, match="near_duplicates"):
            olss.Sketch(5, near_duplicates=value)
    with pytest.raises(olss.InputError, match=r"near_duplicates.*window"):
        olss.Sketch(5, near_duplicates=0.9, window=100)
