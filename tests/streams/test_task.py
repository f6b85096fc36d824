from dataclasses import FrozenInstanceError

import pytest

from olss.streams import from_arrays, load_dataset, permuted


def test_repr_says_what_it_is() -> None:
    assert "1438 training and 359 test rows of shape (8, 8), 10 classes" in repr(
        permuted("digits", tasks=1)[0]
    )
    X = load_dataset("digits").X.reshape(-1, 64)
    assert "real targets" in repr(from_arrays([(X, X[:, 20] / 16)])[0])


def test_a_task_cannot_be_rebound() -> None:
    task = permuted("digits", tasks=1)[0]
    with pytest.raises(FrozenInstanceError):
        task.name = "other"  # type: ignore[misc]
