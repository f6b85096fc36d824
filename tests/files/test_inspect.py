from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olss import Sketch
from olss.errors import FormatError, InputError
from olss.files import compress, inspect
from olss.util.serialize import from_json


@pytest.fixture
def made(tmp_path):
    rng = np.random.default_rng(0)
    A = rng.standard_t(4, (4000, 5))
    frame = pd.DataFrame(A, columns=list("abcde"))
    frame["y"] = rng.choice(["no", "yes"], 4000)
    frame[:2500].to_csv(tmp_path / "one.csv", index=False)
    frame[2500:].to_csv(tmp_path / "two.csv", index=False)
    compress(tmp_path.glob("*.csv"), into=tmp_path / "o.parquet", size=500, target="y", seed=0)
    return A, tmp_path / "o.parquet"


def test_the_spectral_error_is_that_of_the_definition(made):
    A, path = made
    A = np.column_stack([A, np.ones(len(A))])  # a constant belongs to what is compared
    kept = pd.read_parquet(path)
    X = np.column_stack([kept[list("abcde")].to_numpy(), np.ones(len(kept))])
    G, H = A.T @ A, (X * kept["olss_weight"].to_numpy()[:, None]).T @ X
    root = np.linalg.cholesky(np.linalg.inv(G))
    expected = np.abs(np.linalg.eigvalsh(root.T @ (H - G) @ root)).max()
    found = inspect(path).error.relative
    assert found == pytest.approx(expected, rel=1e-6)
    assert found < 2 * np.sqrt(6 / 500) + 6 / 500 + 0.1


def test_the_error_is_zero_if_all_rows_are_kept(tmp_path, made):
    compress(tmp_path / "one.csv", into=tmp_path / "all.parquet", size=10**4, target="y")
    assert inspect(tmp_path / "all.parquet").error.relative < 1e-9


def test_the_text_says_what_is_there(made):
    text = str(inspect(made[1]))
    for words in (
        "500 rows of 4,000 seen",
        "relative error 0.",
        "rows by task",
        "one.csv",
        "rows by class",
        "yes",
        "rows by weight",
        "█",
        "y  passthrough (target or task)",
        "run 1:",
    ):
        assert words in text


def test_without_a_gram_it_says_so(tmp_path, made):
    into = tmp_path / "r.parquet"
    compress(tmp_path / "one.csv", into=into, size=100, policy="reservoir")
    assert inspect(into).error is None
    assert "not known" in str(inspect(into))


def test_other_files_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match="but not a sketch"):
        inspect(tmp_path / "a.parquet")
    with pytest.raises(FileNotFoundError):
        inspect(tmp_path / "none.parquet")


@pytest.mark.parametrize("text", ["1" + 400 * "0", "-1" + 400 * "0", "1e400", "NaN", "true"])
def test_numbers_of_a_file_that_are_none_are_refused(text):
    assert from_json(dict[str, float], json.loads('{"then": 1e300}')) == {"then": 1e300}
    with pytest.raises(FormatError, match="now"):
        from_json(dict[str, float], json.loads(f'{{"now": {text}}}'))


def test_a_large_foreign_file_is_not_read_to_be_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.random.default_rng(0).standard_normal(500_000)}), path)
    tracemalloc.start()
    with pytest.raises(FormatError, match="but not a sketch"):
        inspect(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1_000_000 < path.stat().st_size


def test_a_sketch_opens_it_and_goes_on(made):
    sketch = Sketch.load(made[1], frame="arrow")
    assert (len(sketch), sketch.seen) == (500, 4000)
    more = pd.DataFrame(np.ones((2_000, 5)), columns=list("edcba")).assign(y="no")
    sketch.update(more, y="y")
    assert sketch.seen == 6_000
    assert list(sketch.X.columns) == list("abcde")
    assert abs(sketch.weight.sum() - 6_000) < 1_500


def test_a_saved_sketch_is_described_too(tmp_path):
    X = np.random.default_rng(0).standard_normal((300, 2))
    sketch = Sketch(50, seed=0).update(X, y=X[:, 0] > 0)
    sketch.save(tmp_path / "sketch.parquet")
    found = inspect(tmp_path / "sketch.parquet")
    assert found.description.counts.tolist() == sketch.describe().counts.tolist()
    assert "50 rows of 300 seen" in str(found)
    assert "policy weighted" in str(found)


def test_a_file_whose_rows_are_all_forgotten_says_so(tmp_path):
    path = tmp_path / "s.parquet"
    sketch = Sketch(9, "reservoir").update({"who": ["ann"] * 20, "x": np.arange(20.0)})
    assert sketch.remove(where={"who": "ann"}) == 9
    sketch.save(path)
    with pytest.raises(InputError, match="none of the 20 rows seen: all were removed"):
        inspect(path)
