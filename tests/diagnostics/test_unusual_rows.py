from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from olss import Sketch
from olss.errors import InputError


def test_leverage_is_that_of_everything_seen_and_its_parts_sum_to_it():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3_000, 5)) @ rng.standard_normal((5, 5))
    X[17] *= 30
    sketch = Sketch(200, seed=0)
    for part in np.array_split(X, 3):
        sketch.update(part)
    inverse = np.linalg.inv(X.T @ X)
    h = np.einsum("ij,jk,ik->i", X, inverse, X)
    found = sketch.unusual(20)
    assert sketch.index[found[0].row] == 17
    for one in found:
        x = X[sketch.index[one.row]]
        assert one.leverage == pytest.approx(h[sketch.index[one.row]], rel=1e-6)
        assert one.times == pytest.approx(one.leverage / (5 / 3_000), rel=1e-6)
        terms = x * (inverse @ x) / one.leverage
        expected = {f"column {j}": terms[j] for j in range(5)}
        assert dict(one.parts) == pytest.approx(expected, abs=1e-6)
        assert sum(share for _, share in one.parts) == pytest.approx(1)
        assert [s for _, s in one.parts] == sorted((s for _, s in one.parts), reverse=True)


def test_of_a_table_the_odd_column_is_named():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.standard_normal((4_000, 3)) + 1_000, columns=list("abc"))
    frame["kind"] = rng.choice(["x", "y"], 4_000)
    frame.loc[5, "b"] = 1_100.0
    frame.loc[6, "kind"] = "rare"
    sketch = Sketch(300, seed=0, intercept=True).update(frame)
    by_row = {int(sketch.index[one.row]): one for one in sketch.unusual(5)}
    assert by_row[5].parts[0][0] == "b"
    assert by_row[5].parts[0][1] > 0.9
    assert by_row[6].parts[0][0] == "kind"


@pytest.mark.parametrize("kind", ["images", "sparse", "many columns"])
def test_other_rows(kind):
    rng = np.random.default_rng(2)
    if kind == "images":
        X = rng.random((500, 3, 4)).astype(np.float32)
    elif kind == "sparse":
        X = sp.random_array((500, 30), density=0.1, rng=rng, format="csr")
    else:
        X = rng.standard_normal((300, 4_200))
    found = Sketch(200, seed=0).update(X).unusual(3)
    assert len(found) == 3
    for one in found:
        assert sum(share for _, share in one.parts) == pytest.approx(1)
    if kind == "images":
        assert found[0].parts[0][0].startswith("column (")


def test_without_a_spectrum_it_says_so():
    with pytest.raises(InputError, match="unusual"):
        Sketch(5, "reservoir").update(np.eye(3)).unusual()
    with pytest.raises(InputError):
        Sketch(5).unusual()
