"""What is usual: how much past batches differed from what was remembered."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from olss import Sketch
from olss.files import compress, inspect
from olss.memory.novelty import (
    FIRST,
    History,
    compare_numbers,
    standardized_difference,
    stratified_sample,
)
from olss.util.serialize import to_json


def seasonal(rng, n, d=4, between=0.7):
    """A batch whose column means vary from batch to batch."""
    return rng.standard_normal((n, d)) + between * rng.standard_normal(d)


def history(sketch):
    return sketch._state.history


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_usual_differences_raise_no_alarm_and_larger_ones_do(policy):
    # Each sketch asks 20 times at 1 in 100: 40 batches in all, 4 or more alarms once in 1,000.
    alarms = differences = found = 0
    for seed in range(2):
        rng = np.random.default_rng([0, seed])
        sketch = Sketch(500, policy, seed=seed)
        for number in range(40):
            batch = seasonal(rng, 200)
            if number >= 20:
                answer = sketch.drift(batch)
                alarms += bool(answer)
                differences += answer.p <= 0.01
                found += bool(sketch.drift(batch + np.array([0, 0, 0, 6.0])))
            sketch.update(batch)
    assert differences > 36  # rows are not exchangeable, and the test says so
    assert alarms < 4
    assert found == 40


def test_false_alarms_of_batches_that_bring_no_change():
    # 200 batches at 1 in 100: 8 or more have a chance of 1 in 1,000.
    rng = np.random.default_rng(1)
    alarms, sketch = 0, Sketch(300, seed=0)
    for number in range(200):
        batch = rng.standard_normal((60, 3))
        if number > 2:
            alarms += bool(sketch.drift(batch))
        sketch.update(batch)
    assert alarms < 8


def test_what_is_kept_is_what_the_formula_says():
    rng = np.random.default_rng(2)
    batches = [rng.standard_normal((100, 2)) + shift for shift in (0.0, 0.5, -0.5, 1.0)]
    sketch = Sketch(1_000, "reservoir", seed=0)  # holds all rows, so what is remembered is known
    excess, noises = np.zeros(12), 0.0
    for number, batch in enumerate(batches):
        sketch.update(batch).flush()
        if number:
            before = np.concatenate(batches[:number])
            some = before[stratified_sample(np.ones(len(before)), 256)]
            e, _ = standardized_difference(*compare_numbers(some, batch))
            noise = 1 / len(some) + 1 / 100
            excess, noises = excess + e**2 - noise, noises + noise
    kept = history(sketch)
    np.testing.assert_allclose(kept.excess, excess, rtol=1e-9)
    assert kept.noise == pytest.approx(noises)
    assert kept.recorded == 3
    assert len(kept.surprises) == 1
    # e itself, of one column, by hand
    old, new = batches[0][:, 0], batches[1][:, 0]
    z_old, z_new = (np.clip((x - old.mean()) / old.std(), -5, 5) for x in (old, new))
    first, _ = standardized_difference(*compare_numbers(batches[0], batches[1]))
    assert first[0] == pytest.approx((z_new.mean() - z_old.mean()) / z_old.std())


def test_a_batch_is_an_update_and_a_few_rows_count_together():
    rng = np.random.default_rng(3)
    weekly = Sketch(500, seed=0)
    for _ in range(12):
        weekly.update(rng.standard_normal((168, 3)))
    assert history(weekly).recorded == 11
    by_row = Sketch(500, seed=0)
    for row in rng.standard_normal((5_000, 3)):
        by_row.update(row[None])
    assert 3 <= history(by_row).recorded <= 5  # about a thousand rows each
    assert history(Sketch(500).update(np.eye(3)).update(np.eye(3))).recorded == 0


def test_later_batches_are_recorded_less_often():
    kept, recorded = History(), []
    for number in range(5_000):
        if kept.is_due:
            recorded.append(number)
            kept = kept.update(np.eye(3), np.eye(3))
        else:
            kept = History(**vars(kept) | {"batches": kept.batches + 1})
    assert recorded[:FIRST] == list(range(FIRST))
    assert np.diff(recorded[-10:]).tolist() == [64] * 9
    assert len(kept.surprises) == 100


def table(rng, n, shift=0.0):
    return pd.DataFrame(
        {"x": rng.standard_normal(n) + shift, "kind": rng.choice(["a", "b", "c"], n)}
    )


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
@pytest.mark.parametrize("setting", [{}, {"half_life": 400}, {"window": 700}])
def test_a_saved_sketch_goes_on_as_if_it_had_not_been_saved(policy, setting, tmp_path):
    rng = np.random.default_rng(4)
    batches = [table(rng, n, rng.standard_normal()) for n in (300, 5, 40, 200, 25, 1_200, 60, 90)]
    one, two = (Sketch(200, policy, seed=0, **setting) for _ in range(2))
    for batch in batches:
        one.update(batch)
        two.update(batch)
        two.save(tmp_path / "s.parquet")
        two = Sketch.load(tmp_path / "s.parquet")
        assert len(two) == len(one)
    assert to_json(history(one)) == to_json(history(two))
    assert history(one).recorded >= (2 if "window" in setting else 5)
    assert one.drift(batches[0]).to_dict() == two.drift(batches[0]).to_dict()


def test_looking_changes_nothing():
    rng = np.random.default_rng(5)
    looked, left = Sketch(200, seed=0), Sketch(200, seed=0)
    for _ in range(9):
        batch = seasonal(rng, 120)
        for sketch in (looked, left):
            sketch.update(batch)
        looked.drift(batch)
        len(looked)
    assert to_json(history(looked)) == to_json(history(left))


def test_histories_are_merged_and_survive_removal():
    rng = np.random.default_rng(6)
    first, second = Sketch(200, seed=0), Sketch(200, seed=1)
    for _ in range(5):
        first.update(seasonal(rng, 300))
        second.update(seasonal(rng, 300))
    excess = history(first).excess + history(second).excess
    first.merge(second)
    assert history(first).recorded == 8
    np.testing.assert_allclose(history(first).excess, excess)
    first.remove(index=first.index[:10])
    assert history(first).recorded == 8
    empty = Sketch(200, seed=2).merge(second)
    assert to_json(history(empty)) == to_json(history(second))
    other = Sketch(200, seed=0).update(table(rng, 300)).update(table(rng, 300))
    names = Sketch(200, seed=1).update(table(rng, 300).rename(columns={"x": "z"}))
    assert history(names.merge(Sketch(200, seed=3))).recorded == 0
    assert history(other).recorded == 1


def test_nothing_is_kept_where_nothing_can_be_compared():
    rng = np.random.default_rng(7)
    for sketch in (
        Sketch(100, "balanced", seed=0),
        Sketch(100, features=lambda X: X[:, :2], seed=0),
        Sketch(100, "reservoir", seed=0),
    ):
        X = rng.standard_normal((1_500, 3))
        text = {"note": [f"note {i}" for i in range(1_500)]}
        rows = text if sketch.policy.name == "reservoir" else X
        sketch.update(rows, y=np.arange(1_500) % 2).update(rows, y=np.arange(1_500) % 2)
        assert history(sketch).recorded == 0


@pytest.mark.parametrize("policy", ["weighted", "reservoir"])
def test_files_are_batches_and_inspect_uses_their_history(policy, tmp_path):
    rng = np.random.default_rng(8)
    for number in range(14):
        table(rng, 400, rng.standard_normal()).to_csv(tmp_path / f"{number:02}.csv", index=False)
    out = tmp_path / "out.parquet"
    compress([tmp_path / f"{n:02}.csv" for n in range(10)], into=out, size=1_000, policy=policy)
    assert history(Sketch.load(out)).recorded == 9
    for number in range(10, 14):
        compress(tmp_path / f"{number:02}.csv", into=out)
    assert history(Sketch.load(out)).recorded == 13
    table(rng, 400, 0.3).to_csv(tmp_path / "usual.csv", index=False)
    table(rng, 400, 9.0).to_csv(tmp_path / "new.csv", index=False)
    usual, new = (inspect(out, against=tmp_path / f"{name}.csv").drift for name in ("usual", "new"))
    assert usual.past == 13
    assert usual.usual[usual.names.index("x")] == pytest.approx(1, abs=0.7)  # and 1/k for k batches
    assert not usual
    assert new


def test_wide_and_sparse_rows_are_compared():
    import scipy.sparse as sp

    rng = np.random.default_rng(9)
    wide = Sketch(50, "reservoir", seed=0)
    for _ in range(3):
        wide.update(sp.random(1_100, 3_000, 0.01, format="csr", rng=rng))
    assert history(wide).recorded == 2
    assert len(history(wide).excess) == 2 * 1_024 + 8
    images = Sketch(50, "reservoir", seed=0)
    for _ in range(3):
        images.update(rng.integers(0, 255, (1_100, 8, 8), dtype=np.uint8))
    assert len(history(images).excess) == 2 * 64 + 8
    assert images.drift(rng.integers(0, 255, (50, 8, 8), dtype=np.uint8)).past == 2


def test_rows_are_taken_in_proportion_to_their_weights():
    weight = np.array([1.0, 3.0, 1.0, 5.0, 2.0, 4.0, 4.0])
    assert len(stratified_sample(weight, 100)) == 4  # 20 / 5
    chosen = stratified_sample(np.tile(weight, 300), 400)
    share = np.bincount(chosen % 7, minlength=7) / 400
    np.testing.assert_allclose(share, weight / 20, atol=0.06)  # 3 standard errors at 1/4
    assert len(np.unique(chosen)) > 350
