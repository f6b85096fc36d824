"""New files against a sketch."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from olss import Sketch
from olss.errors import DataError, InputError
from olss.files import compress, inspect
from olss.files.inspect import SAMPLE_ROWS, sample_new_rows


def table(rows, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3)) + np.array([0, shift, 0])
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["kind"] = rng.choice(["x", "y", "z"], rows)
    frame["code"] = rng.choice(["1", "2", "three"], rows)
    return frame.assign(label=rng.choice(["no", "yes"], rows))


@pytest.fixture
def made(tmp_path):
    table(5_000, 0).to_csv(tmp_path / "old.csv", index=False)
    out = tmp_path / "out.parquet"
    compress(tmp_path / "old.csv", into=out, size=800, target="label", seed=0)
    return out


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "orc", "feather"])
def test_a_shift_is_seen_in_files_of_any_kind(made, tmp_path, ending):
    writers = {
        "csv": lambda f, p: f.to_csv(p, index=False),
        "jsonl": lambda f, p: f.to_json(p, orient="records", lines=True),
    }
    write = writers.get(ending) or (lambda f, p: getattr(f, f"to_{ending}")(p))
    write(table(2_000, 1, shift=0.5), tmp_path / f"new.{ending}")
    found = inspect(made, against=[tmp_path / f"new.{ending}"])
    assert found.drift
    assert found.drift.names[0] == "b"
    assert found.drift.rows == 2_000
    assert "drift alarm: " in str(found)
    assert "larger than usual?" in str(found)


def test_rows_without_change_raise_no_alarm_more_often_than_stated(made, tmp_path):
    alarms = 0
    for seed in range(40):
        table(300, 100 + seed).to_csv(tmp_path / "new.csv", index=False)
        alarms += bool(inspect(made, against=[str(tmp_path / "new.csv")]).drift)
    assert alarms <= 3  # 0.4 expected; more than 3 once in 1,000 times


def test_columns_are_read_by_the_types_known_and_a_target_may_be_missing(made, tmp_path):
    """A text column that looks like numbers in the new file."""
    new = table(500, 3).drop(columns="label").assign(code="1")
    new.sample(frac=1, axis=1, random_state=0).to_csv(tmp_path / "new.csv", index=False)
    assert inspect(made, against=[tmp_path / "new.csv"]).drift.names[0] == "code = '1'"


def test_one_path_or_table_is_enough(made, tmp_path):
    new = table(500, 6, shift=0.5)
    new.to_csv(tmp_path / "new.csv", index=False)
    found = [inspect(made, against=given).drift for given in (tmp_path / "new.csv", new)]
    found.append(inspect(made, against=f"{tmp_path}/new.*").drift)
    assert [drift.names[0] for drift in found] == ["b", "b", "b"]


def test_the_sample_is_bounded_and_uniform(made, tmp_path):
    rows = 3 * SAMPLE_ROWS
    frame = pd.concat([table(rows, 4)])
    frame["a"] = np.arange(rows) / rows
    frame.to_parquet(tmp_path / "large.parquet", row_group_size=7_000)
    sample = sample_new_rows(Sketch.load(made, frame="arrow"), [tmp_path / "large.parquet"])
    assert sample.num_rows == SAMPLE_ROWS
    mean = np.mean(sample["a"].to_numpy())
    assert abs(mean - 0.5) < 4 * np.sqrt(1 / 12 / SAMPLE_ROWS)


def test_what_does_not_fit_is_said(made, tmp_path):
    table(50, 5).drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(InputError, match="'b'"):
        inspect(made, against=[tmp_path / "less.csv"])
    table(50, 5).assign(b="text").to_csv(tmp_path / "text.csv", index=False)
    with pytest.raises(InputError, match="'b'"):
        inspect(made, against=[tmp_path / "text.csv"])
    with pytest.raises(InputError, match="no such file"):
        inspect(made, against=[tmp_path / "none.csv"])


def test_sketches_of_arrays_are_compared_with_array_files(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "s.parquet"
    Sketch(400, seed=0).update(rng.standard_normal((3_000, 2, 3))).save(path)
    np.save(tmp_path / "same.npy", rng.standard_normal((500, 2, 3)))
    np.save(tmp_path / "moved.npy", rng.standard_normal((500, 2, 3)) + 1)
    np.save(tmp_path / "other.npy", rng.standard_normal((500, 4)))
    assert inspect(path, against=[tmp_path / "same.npy"]).drift.p > 1e-4
    assert inspect(path, against=[tmp_path / "moved.npy"]).drift
    with pytest.raises(DataError, match="rows of shape \\(2, 3\\)"):
        inspect(path, against=[tmp_path / "other.npy"])
