from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olss import Sketch
from olss.errors import FormatError
from olss.files import compress, inspect


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
    kept = pd.read_parquet(path)
    X = kept[list("abcde")].to_numpy()
    G, H = A.T @ A, (X * kept["olss_weight"].to_numpy()[:, None]).T @ X
    root = np.linalg.cholesky(np.linalg.inv(G))
    expected = np.abs(np.linalg.eigvalsh(root.T @ (H - G) @ root)).max()
    found = inspect(path).spectral_error
    assert found == pytest.approx(expected, rel=1e-6)
    assert found < 2 * np.sqrt(5 / 500) + 5 / 500 + 0.1


def test_the_error_is_zero_if_all_rows_are_kept(tmp_path, made):
    compress(tmp_path / "one.csv", into=tmp_path / "all.parquet", size=10**4, target="y")
    assert inspect(tmp_path / "all.parquet").spectral_error < 1e-9


def test_the_text_says_what_is_there(made):
    text = str(inspect(made[1]))
    for words in (
        "500 rows of 4,000 seen",
        "relative spectral error 0.",
        "rows by task",
        "one.csv",
        "rows by class",
        "yes",
        "rows by weight",
        "█",
        "y  carried (target or task)",
        "run 1:",
    ):
        assert words in text


def test_without_a_gram_it_says_so(tmp_path, made):
    into = tmp_path / "r.parquet"
    compress(tmp_path / "one.csv", into=into, size=100, policy="reservoir")
    assert inspect(into).spectral_error is None
    assert "not known" in str(inspect(into))


def test_other_files_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    with pytest.raises(FormatError, match="not one that olss compress made"):
        inspect(tmp_path / "a.parquet")
    with pytest.raises(FileNotFoundError):
        inspect(tmp_path / "none.parquet")


def test_a_sketch_does_not_open_it_and_says_why(made):
    with pytest.raises(FormatError, match="not one of a sketch"):
        Sketch.load(made[1])


def test_a_saved_sketch_is_described_too(tmp_path):
    X = np.random.default_rng(0).standard_normal((300, 2))
    sketch = Sketch(50, seed=0).update(X, y=X[:, 0] > 0)
    sketch.save(tmp_path / "sketch.parquet")
    found = inspect(tmp_path / "sketch.parquet")
    assert found.description.counts.tolist() == sketch.describe().counts.tolist()
    assert "50 rows of 300 seen" in str(found)
    assert "policy weighted" in str(found)


@pytest.mark.parametrize("change", ["format", "json", "gram"])
def test_damaged_metadata_is_named(made, change):
    path = made[1]
    table = pq.read_table(path)
    text = table.schema.metadata[b"olss_table"].decode()
    changed = {
        "format": text.replace('"format": 1', '"format": 99'),
        "json": text[:100],
        "gram": text.replace('"triangle": "', '"triangle": "AAAA'),
    }[change]
    pq.write_table(table.replace_schema_metadata({"olss_table": changed}), path)
    message = "install a newer olss" if change == "format" else "damaged metadata"
    with pytest.raises(FormatError, match=message):
        inspect(path)
