from __future__ import annotations

import ctypes
import gc

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from olss.memory.sketch import Sketch
from olss.memory.store import RowStore, take

KINDS = {
    "numbers": np.arange(6.0),
    "matrix": np.arange(12.0).reshape(6, 2),
    "text": np.array(["a", "bb", "ccc", "d", "ee", "f"]),
    "tensor": torch.arange(12).reshape(6, 2),
    "table": pa.table({"n": [1, 2, None, 4, 5, 6], "t": list("abcdef")}),
    "categories": pa.table({"c": pa.array(["x", "y", None, "x", "z", "y"]).dictionary_encode()}),
    "sparse": sp.csr_array(np.eye(6)),
}


def plain(column):
    if isinstance(column, pa.Table):
        return column.to_pylist()
    return (column.toarray() if sp.issparse(column) else np.asarray(column)).tolist()


@given(st.data())
def test_gathered_is_what_was_kept_then_what_was_chosen(data):
    column = KINDS[data.draw(st.sampled_from(list(KINDS)))]
    some = st.lists(st.integers(0, 5), unique=True).map(lambda rows: np.array(rows, np.int64))
    kept, chosen = data.draw(some), data.draw(some)
    held, new = RowStore({"x": column}), RowStore({"x": take(column, np.arange(6)[::-1].copy())})
    wanted = plain(column)
    result = held.gathered(kept, new, chosen)
    assert len(result) == len(kept) + len(chosen)
    assert plain(result["x"]) == [wanted[i] for i in kept] + [wanted[5 - i] for i in chosen]


def test_text_is_as_wide_as_the_longest():
    held, new = RowStore({"x": np.array(["a"])}), RowStore({"x": np.array(["longer"])})
    assert held.gathered(np.array([0]), new, np.array([0]))["x"].tolist() == ["a", "longer"]


@pytest.mark.parametrize("kind", ["numbers", "text", "tensor"])
def test_what_a_caller_holds_stays_but_for_forgotten_rows(kind):
    column = take(KINDS[kind], np.arange(6))
    before = plain(column)
    store = RowStore({"x": column})
    del store
    gc.collect()
    assert plain(column) == before
    store = RowStore({"x": column})
    store.forget(np.array([1, 4]))
    del store
    gc.collect()
    for row, value in enumerate(plain(column)):
        assert (value == before[row]) == (row not in (1, 4))


@pytest.mark.parametrize("kind", ["numbers", "matrix", "text"])
def test_memory_nobody_sees_is_overwritten(kind):
    column = take(KINDS[kind], np.arange(6))
    looked_at = (ctypes.c_char * column.nbytes).from_address(column.ctypes.data)  # not held
    store = RowStore({"x": column})
    del column
    assert any(bytes(looked_at))
    del store
    assert not any(bytes(looked_at)[16:])  # the allocator may write a pointer into freed memory


def test_forgotten_rows_of_a_table_are_overwritten():
    secret = b"a secret nobody else has"
    table = take(pa.table({"t": [secret.decode()] * 4}), np.arange(4))
    buffer = table.column(0).chunk(0).buffers()[2]
    store = RowStore({"x": table})
    del table
    store.forget(np.array([0]))
    assert secret in buffer.to_pybytes()
    del store
    assert secret not in buffer.to_pybytes()


def test_taken_rows_are_copies():
    for column in (np.arange(3), torch.arange(3)):
        take(column, np.array([0]))[0] = 9
        assert column[0] == 0


def test_only_the_rows_removed_are_overwritten_in_sparse_ones():
    X = sp.csr_array(np.arange(1.0, 13.0).reshape(6, 2))
    sketch = Sketch(6, "reservoir").update(X)
    taken = sketch.X
    sketch.remove([3])
    wanted = X.toarray()
    wanted[3] = 0
    np.testing.assert_array_equal(taken.toarray(), wanted)
