"""Rows out of a file for good, what remains of them, and going on after."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from olss import Sketch
from olss.errors import InputError, OlssError
from olss.files import compress, forget
from olss.memory import sketch_file
from olss.memory.sketch_file import lock
from olss.util.files import file_lock


def table(rows=3_000, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "person": [f"person-{n}" for n in rng.integers(0, 40, rows)],
            "age": rng.integers(18, 90, rows),
            "x": rng.standard_normal(rows),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 5, rows), "D"),
        }
    )


@pytest.fixture(params=["weighted", "reservoir"])
def made(tmp_path, request):
    table().to_parquet(tmp_path / "one.parquet")
    out = tmp_path / "out.parquet"
    compress(tmp_path / "one.parquet", into=out, size=600, policy=request.param, seed=0)
    return out


def test_rows_go_and_all_others_stay_as_they_are(made):
    before = pd.read_parquet(made)
    found = forget(made, {"person": "person-7"})
    after = pd.read_parquet(made)
    gone = before["person"] == "person-7"
    assert found.removed == gone.sum() > 0
    assert (found.rows, found.seen) == (len(after), 3_000)
    pd.testing.assert_frame_equal(after, before[~gone].reset_index(drop=True))


def test_the_spectrum_is_left_without_their_own_part(tmp_path):
    """Of everything seen but the rows taken out, computed apart."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 4))
    who = rng.integers(0, 10, 2_000)
    path = tmp_path / "s.parquet"
    Sketch(500, seed=0).update(X, extra={"who": who}).save(path)
    held = Sketch.load(path, frame="arrow")
    gone = held.index[held.extra["who"] == 3]
    assert forget(path, {"who": "3"}).removed == len(gone)
    rest = np.delete(X, gone, axis=0)
    after = Sketch.load(path, frame="arrow")._state.moments
    np.testing.assert_allclose(after.matrix, rest.T @ rest, rtol=1e-6, atol=1e-6)
    assert after.rows == len(rest)


def test_the_text_says_what_remains(made):
    kept = Sketch.load(made, frame="arrow")._state.moments is not None
    rows = pd.read_parquet(made)
    one = rows[rows["person"].isin(["person-1", "person-2"])].iloc[0]
    match = rows["person"].isin(["person-1", "person-2"]) & (rows["age"] == one["age"])
    text = str(forget(made, {"person": ["person-1", "person-2"], "age": str(one["age"])}))
    went = "1 row" if match.sum() == 1 else f"{match.sum()} rows"
    assert f"{went} removed, {600 - match.sum()} of 3,000 seen are left." in text
    text = str(forget(made, {"person": "person-3"}))
    assert text.startswith(f"{made}: ")
    assert "rows removed" in text
    assert ("are subtracted from the Gram matrix" in text) == kept
    assert ("No Gram matrix is kept" in text) != kept
    assert str(forget(made, {"person": "person-3"})).endswith("the file is unchanged.")


def test_a_value_that_stays_known_is_said(tmp_path):
    """The column plan knows the values of text by name, and a column of categories its own."""
    path = tmp_path / "s.parquet"
    frame = pd.DataFrame({"who": ["ann", "bob"] * 50, "x": np.arange(100.0)})
    for given, policy in ((frame, "weighted"), (frame.astype({"who": "category"}), "reservoir")):
        Sketch(80, policy, seed=0).update(given).save(path)
        text = str(forget(path, {"who": "ann"}))
        assert "The value 'ann' stays listed among the values of column 'who'." in text
    Sketch(80, "reservoir").update(frame).save(path)
    assert "stays listed" not in str(forget(path, {"who": "ann"}))
    assert "ann" not in pq.read_table(path)["who"].to_pylist()


def test_the_file_goes_on_after(made, tmp_path):
    forget(made, {"day": "2026-01-03"})
    left = len(Sketch.load(made, frame="arrow"))
    table(2_000, seed=1).to_parquet(tmp_path / "two.parquet")
    summary = compress([tmp_path / "one.parquet", tmp_path / "two.parquet"], into=made)
    assert (summary.seen, summary.new) == (5_000, 2_000)
    assert summary.rows == 600 > left
    kept = pd.read_parquet(made)
    # Rows of that day in the first file are not taken in again: its content is known.
    first = kept["olss_source"].str.endswith("one.parquet")
    assert first.any()
    assert not (first & (kept["day"] == "2026-01-03")).any()


def test_weights_stay_unbiased_for_the_rest():
    """The mean over draws of the weights left is the number of rows left, within 4 errors."""
    X = np.random.default_rng(0).standard_normal((400, 3)) * np.linspace(1, 4, 400)[:, None]
    group = np.arange(400) % 4
    totals = []
    for seed in range(200):
        sketch = Sketch(60, seed=seed).update(X, extra={"group": group})
        sketch.remove(where={"group": "1"})
        totals.append(sketch.weight.sum())
    assert abs(np.mean(totals) - 300) < 4 * np.std(totals) / np.sqrt(200)


def test_everything_may_go(made):
    found = forget(made, {"task": Sketch.load(made, frame="arrow").task[0]})
    assert (found.rows, found.removed) == (0, 600)
    assert len(Sketch.load(made, frame="arrow")) == 0


def test_a_link_to_a_file_being_written_is_held_as_the_file_is(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    path, link = tmp_path / "out.parquet", tmp_path / "elsewhere" / "link.parquet"
    Sketch(10).update({"x": [1.0, 2.0]}).save(path)
    link.symlink_to(path)
    for held, other in ((path, link), (link, path)):
        with lock(held), pytest.raises(OlssError, match=f"{other.name} is being written"):
            forget(other, {"x": 1.0})
    assert forget(link, {"x": 1.0}).removed == 1
    assert link.is_symlink()
    assert len(Sketch.load(path, frame="arrow")) == 1


def test_what_fails_leaves_the_file_as_it_was(made, monkeypatch):
    before = made.read_bytes()
    for where in ({"nobody": 1}, {"age": "old"}, {}, None, "person=7"):
        with pytest.raises(InputError):
            forget(made, where)
    monkeypatch.setattr(sketch_file, "to_table", lambda state: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        forget(made, {"person": "person-7"})
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        forget(made.with_name("none.parquet"), {"person": "person-7"})
    with (
        file_lock(made.with_name(f".{made.name}.lock")),
        pytest.raises(OlssError, match="is being written by process"),
    ):
        forget(made, {"person": "person-7"})
    assert made.read_bytes() == before
    left = {p.name for p in made.parent.iterdir()} - {f".{made.name}.lock"}
    assert left == {"out.parquet", "one.parquet"}


def test_a_dry_run_counts_and_leaves_the_file(made):
    before = made.read_bytes()
    planned = forget(made, {"age": ("<", 30)}, dry_run=True)
    assert made.read_bytes() == before
    done = forget(made, {"age": ("<", 30)})
    assert (planned.removed, planned.rows) == (done.removed, done.rows)
    assert "would" in str(planned)


def test_values_of_a_range_that_stay_listed_are_named(tmp_path):
    path = tmp_path / "out.parquet"
    data = pd.DataFrame({"kind": ["a", "b", "c"] * 50, "x": np.arange(150.0)})
    compress(data, into=path, size=100, seed=0)
    text = str(forget(path, {"kind": (">=", "b")}))
    assert "'b'" in text
    assert "'c'" in text
    assert "'a'" not in text
