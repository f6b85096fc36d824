from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from olss.memory.store import Rows, copy_rows, overlap, take


def rows_of(values):
    rows = Rows()
    rows.replace(np.arange(0), {"x": values}, np.arange(len(values)))
    return rows


@given(st.data())
def test_replace_keeps_what_is_kept_and_takes_what_is_chosen(data):
    held = data.draw(st.integers(0, 12))
    arriving = data.draw(st.integers(0, 12))
    keep = sorted(data.draw(st.sets(st.integers(0, max(0, held - 1)), max_size=held)))
    keep = np.array([k for k in keep if k < held], dtype=np.int64)
    chosen = sorted(data.draw(st.sets(st.integers(0, max(0, arriving - 1)), max_size=arriving)))
    chosen = np.array([c for c in chosen if c < arriving], dtype=np.int64)
    old, new = np.arange(held), 100 + np.arange(arriving)
    rows = rows_of(old)
    slots = rows.replace(keep, {"x": new}, chosen)
    wanted = np.concatenate([old[keep], new[chosen]])
    assert len(rows) == len(wanted)
    np.testing.assert_array_equal(rows["x"][slots], wanted)
    staying = keep[keep < len(rows)]
    np.testing.assert_array_equal(rows["x"][staying], old[staying])


def test_a_full_buffer_is_written_in_place():
    rows = rows_of(np.arange(10))
    before = rows["x"]
    rows.replace(np.arange(5), {"x": np.arange(5) + 50}, np.arange(5))
    assert np.shares_memory(before, rows["x"])


def test_memory_that_is_no_longer_needed_is_given_back():
    rows = rows_of(np.arange(100))
    rows.replace(np.arange(90, 100), {"x": np.arange(1)}, np.arange(1))
    np.testing.assert_array_equal(np.sort(rows["x"]), [0, *range(90, 100)])
    assert len(rows._buffers["x"]) < 50


def test_text_columns_widen():
    rows = rows_of(np.array(["a", "b"]))
    rows.replace(np.array([1]), {"x": np.array(["longer"])}, np.array([0]))
    assert rows["x"].tolist() == ["longer", "b"]
    rows.replace(np.array([0, 1]), {"x": np.array(["c"])}, np.array([0]))
    assert rows["x"].tolist() == ["longer", "b", "c"]


@pytest.mark.parametrize("values", [np.arange(6.0), torch.arange(6.0), np.array(list("abcdef"))])
def test_dropped_rows_are_erased(values):
    rows = rows_of(values)
    rows.drop(np.array([0, 2, 3, 5]))
    assert len(rows) == 4
    assert sorted(np.asarray(rows["x"]).tolist()) == sorted(
        np.asarray(values)[[0, 2, 3, 5]].tolist()
    )
    behind = np.asarray(rows._buffers["x"][4:])
    assert (behind == np.zeros((), behind.dtype)).all()


def test_blocks_of_copy_rows_cover_everything(monkeypatch):
    monkeypatch.setattr("olss.memory.store.BLOCK_BYTES", 24)
    source, target = np.arange(40.0).reshape(20, 2), np.zeros((30, 2))
    copy_rows(target, np.arange(5, 25), source, np.arange(20)[::-1].copy())
    np.testing.assert_array_equal(target[5:25], source[::-1])


def test_overlap_is_seen_in_both_kinds():
    a, t = np.zeros((4, 2)), torch.zeros((4, 2))
    assert overlap(a, a[1:])
    assert not overlap(a, a.copy())
    assert overlap(t, t[1:])
    assert not overlap(t, t.clone())


def test_take_copies():
    a = np.arange(3)
    take(a, np.array([0]))[0] = 9
    assert a[0] == 0
