from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olss.errors import InputError
from olss.streams import from_files
from olss.streams.table_rows import FileTable

TIMES = [datetime(2024, 12, 23, 8) + timedelta(hours=13 * n) for n in range(30)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    columns = {
        "time": pa.array(TIMES, pa.timestamp("us")),
        "row": pa.array(range(30), pa.float32()),
        "flag": [n % 5 == 0 for n in range(30)],
        "kind": pa.array(["x", "y", "z"] * 10).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


@pytest.mark.parametrize(
    ("every", "pattern"),
    [("day", "%Y-%m-%d"), ("week", "%G-W%V"), ("month", "%Y-%m"), ("year", "%Y")],
)
def test_periods_of_times_follow_the_calendar(every: str, pattern: str, path: Path) -> None:
    parts = FileTable([path], ["kind"], ["row"], "time", every).split()
    wanted = [time.strftime(pattern) for time in TIMES]
    assert [part.value.as_py() for part in parts] == sorted(set(wanted))
    for part in parts:
        rows = part.read().X[:, 0].astype(int)
        assert {wanted[row] for row in rows} == {part.value.as_py()}
        assert len(rows) == wanted.count(part.value.as_py())


def test_kinds_of_columns(path: Path) -> None:
    rows = FileTable([path], ["kind"], ["row", "flag"]).read()
    assert rows.X.dtype == np.float32
    np.testing.assert_array_equal(rows.X[:, 1], np.arange(30) % 5 == 0)
    assert rows.y.tolist() == ["x", "y", "z"] * 10


def test_a_bool_or_number_can_tell_tasks_apart(path: Path) -> None:
    stream = from_files(path, "kind", by="flag", features=["row"])
    assert stream.names == ("False", "True")
    assert [len(task.X) + len(task.X_test) for task in stream] == [24, 6]


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("a,b,site\n")
    with pytest.raises(InputError, match=r"empty\.csv has no rows"):
        from_files(tmp_path / "empty.csv", "b", by="site")
    with pytest.raises(InputError, match=r"empty\.csv has no rows"):
        from_files(tmp_path / "empty.csv", "b", features=["a"])
