import numpy as np
import torch

from olss.learn.training import Examples, as_tensor


def make(rows, start=0, **columns):
    index = torch.arange(start, start + rows)
    return Examples(index[:, None].float(), index % 2, index * 0, index, **columns)


def test_taking_keeps_columns_together():
    rows = make(5, weight=torch.arange(5.0)).take(torch.tensor([3, 1]))
    assert rows.index.tolist() == rows.X[:, 0].tolist() == rows.weight.tolist() == [3, 1]
    assert rows.outputs is None


def test_joining_fills_what_one_side_lacks():
    weighted = make(2, weight=torch.tensor([5.0, 6.0]))
    remembered = make(2, start=2, outputs=torch.ones(2, 3))
    both = weighted.join(remembered)
    assert both.index.tolist() == [0, 1, 2, 3]
    assert both.weight.tolist() == [5, 6, 1, 1]
    assert both.outputs.isnan().all(1).tolist() == [True, True, False, False]
    assert weighted.join(None) is weighted


def test_bytes_are_those_of_all_columns():
    assert make(10).nbytes == 10 * (4 + 3 * 8)
    assert make(10, outputs=torch.ones(10, 3)).nbytes == 10 * (4 + 3 * 8 + 3 * 4)


def test_a_read_only_array_becomes_a_tensor_without_a_copy():
    array = np.arange(6, dtype=np.uint8)
    array.flags.writeable = False
    assert as_tensor(array).data_ptr() == array.ctypes.data


def test_reversed_and_foreign_byte_order_arrays_become_tensors():
    assert as_tensor(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
    assert as_tensor(np.arange(4, dtype=">f4")).tolist() == [0, 1, 2, 3]
