from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from olss.memory.rows import RowStore, take
from olss.sketch import Sketch

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
def test_take_concat_is_what_was_kept_then_what_was_chosen(data):
    column = KINDS[data.draw(st.sampled_from(list(KINDS)))]
    some = st.lists(st.integers(0, 5), unique=True).map(lambda rows: np.array(rows, np.int64))
    kept, chosen = data.draw(some), data.draw(some)
    held, new = RowStore({"x": column}), RowStore({"x": take(column, np.arange(6)[::-1].copy())})
    wanted = plain(column)
    result = held.take_concat(kept, new, chosen)
    assert len(result) == len(kept) + len(chosen)
    assert plain(result["x"]) == [wanted[i] for i in kept] + [wanted[5 - i] for i in chosen]


def test_text_is_as_wide_as_the_longest():
    held, new = RowStore({"x": np.array(["a"])}), RowStore({"x": np.array(["longer"])})
    assert held.take_concat(np.array([0]), new, np.array([0]))["x"].tolist() == ["a", "longer"]


@pytest.mark.parametrize("kind", ["numbers", "matrix", "text", "tensor", "sparse"])
def test_wiping_overwrites_the_rows_named_and_no_others(kind):
    column = take(KINDS[kind], np.arange(6))
    before = plain(column)
    RowStore({"x": column}).wipe(np.array([1, 4]))
    empty = (
        plain(np.zeros_like(column[:1]))[0] if kind in ("numbers", "text") else [0] * len(before[0])
    )
    for row, value in enumerate(plain(column)):
        assert value == (empty if row in (1, 4) else before[row])


def test_wiping_overwrites_all_of_a_table():
    secret = b"a secret nobody else has"
    table = take(pa.table({"t": [secret.decode()] * 4}), np.arange(4))
    buffer = table.column(0).chunk(0).buffers()[2]
    assert secret in buffer.to_pybytes()
    RowStore({"x": table}).wipe(np.array([0]))
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
