import gzip
import subprocess
import sys
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest

from olss.errors import DataError, FormatError, InputError, OlssError
from olss.streams import from_config, from_files
from olss.tables.sources import FORMATS
from tests.streams.conftest import rows

DAYS = [date(2024, 1, 1) + timedelta(days=3 * n) for n in range(60)]
FRAME = pd.DataFrame(
    {
        "day": DAYS,
        "site": np.array(["Oslo", "Bern", "Rome"])[np.arange(60) % 3],
        "row": np.arange(60.0),
        "dose": np.arange(60) % 7,
        "state": np.array(["well", "ill"])[np.arange(60) % 2],
        "score": np.arange(60) / 7,
    }
)
COLUMNS = ["row", "dose"]


def write(path: Path, frame: pd.DataFrame) -> Path:
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_task_for_each_site(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"visits{suffix}", FRAME)
    stream = from_files(path, "state", by="site", features=COLUMNS)
    assert stream.names == ("Bern", "Oslo", "Rome")
    assert stream.class_names == ("ill", "well")
    for task, first in zip(stream, (1, 0, 2), strict=True):
        assert rows(task.X, task.X_test) == list(range(first, 60, 3))
        assert [int(row) % 2 == 0 for row in task.X[:, 0]] == (task.y == 1).tolist()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("every", "names"),
    [
        ("month", ("2024-01", "2024-02", "2024-03", "2024-04", "2024-05", "2024-06")),
        ("year", ("2024",)),
    ],
)
def test_a_task_for_each_month(
    suffix: str, every: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    path = write(tmp_path / f"visits{suffix}", FRAME)
    stream = from_files(path, "score", by="day", every=every, features=COLUMNS)
    assert stream.names == names
    assert stream.classes is None
    expected = [n for n, day in enumerate(DAYS) if day.strftime("%Y-%m").startswith(names[0])]
    assert rows(stream[0].X, stream[0].X_test) == expected


def test_several_files_are_one_table_when_split_by_a_column(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", FRAME[:30])
    write(tmp_path / "b.parquet", FRAME[30:])
    stream = from_files(str(tmp_path / "*.parquet"), "state", by="site", features=COLUMNS)
    assert rows(stream[1].X, stream[1].X_test) == list(range(0, 60, 3))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_task_for_each_file(suffix: str, tmp_path: Path) -> None:
    frame = FRAME[[*COLUMNS, "state"]].assign(row2=FRAME["row"])
    paths = [write(tmp_path / f"{name}{suffix}", part) for name, part in
             (("second", frame[40:]), ("first", frame[:40]))]  # fmt: skip
    stream = from_files(paths, "state")
    assert stream.names == ("second", "first")
    assert rows(stream[1].X, stream[1].X_test) == list(range(40))
    several = from_files(paths, ["row", "dose"], features=["row2"])
    assert several[0].y.shape == (16, 2)


def test_columns_in_another_order_mean_the_same(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", FRAME[["row", "dose", "state"]])
    write(tmp_path / "2.csv", FRAME[["state", "dose", "row"]])
    stream = from_files([tmp_path / "1.csv", tmp_path / "2.csv"], "state")
    assert rows(stream[1].X, stream[1].X_test) == list(range(60))


def test_files_of_different_width_are_padded_on_request(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "1.csv", FRAME[["row", "state"]]),
        write(tmp_path / "2.csv", FRAME[["row", "dose", "score", "state"]]),
    ]
    assert [task.X.shape[1] for task in from_files(paths, "state", pad=True)] == [3, 3]
    with pytest.raises(InputError, match="no column"):
        from_files(paths[::-1], "state")


def test_npz_files_hold_x_and_y(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 5, 5), dtype=np.uint8)
    labels = np.arange(20) % 4
    np.savez(tmp_path / "one.npz", X=images, y=labels)
    np.savez(
        tmp_path / "two.npz",
        X=images[:15],
        y=labels[:15],
        X_test=images[15:],
        y_test=labels[15:] + 1,
    )
    stream = from_files([tmp_path / "one.npz", tmp_path / "two.npz"])
    assert (stream.names, stream.scale, stream.classes) == (("one", "two"), 255, (0, 1, 2, 3, 4))
    np.testing.assert_array_equal(stream[1].X_test, images[15:])
    assert len(stream[0].X_test) == 4


def test_config_brings_the_stream_back_unless_a_file_changed(tmp_path: Path) -> None:
    path = write(tmp_path / "visits.csv", FRAME)
    stream = from_files(path, "state", by="site", features=COLUMNS, seed=4)
    again = from_config(stream.config)
    assert again.config == stream.config
    np.testing.assert_array_equal(again[2].X, stream[2].X)
    write(path, FRAME[:-1])
    with pytest.raises(DataError, match="sha256"):
        from_config(stream.config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": None}, "target"),
        ({"target": "stat"}, "no column 'stat'"),
        ({"by": "sites"}, "no column 'sites'"),
        ({"features": ["rows"]}, "no column 'rows'"),
        ({"features": ["row", "state"]}, "features.*'state'"),
        ({"every": "month"}, "every"),
        ({"by": "day", "every": "hour"}, "every.*'hour'"),
        ({}, "column 'day' holds date32"),
    ],
)
def test_bad_options_of_files_are_named(
    options: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "visits.csv", FRAME)
    with pytest.raises(InputError, match=message):
        from_files(path, **{"target": "state", **options})[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(("column", "by"), [("dose", None), ("state", None), ("site", "site")])
def test_missing_values_are_named(column: str, by: str | None, tmp_path: Path) -> None:
    frame = FRAME[["row", "dose", "state", "site"]].copy()
    frame[column] = frame[column].where(frame.index != 5)
    path = write(tmp_path / "visits.parquet", frame)
    with pytest.raises(DataError, match=f"column '{column}' has 1 missing"):
        from_files(path, "state", by=by, features=COLUMNS)[0]


def test_files_that_are_not_there_or_not_readable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        from_files(tmp_path / "none.csv", "y")
    with pytest.raises(InputError, match="no file"):
        from_files(str(tmp_path / "*.csv"), "y")
    with pytest.raises(InputError, match="paths"):
        from_files([], "y")
    for name in ("broken.parquet", "broken.npz"):
        (tmp_path / name).write_bytes(b"no such format")
    with pytest.raises(FormatError, match="cannot be read"):
        from_files(tmp_path / "broken.parquet", "y")
    with pytest.raises(FormatError, match="npz"):
        from_files(tmp_path / "broken.npz")
    (tmp_path / "x.xlsx").write_text("{}")
    with pytest.raises(InputError, match=r"x\.xlsx.*\.parquet"):
        from_files(tmp_path / "x.xlsx", "y")
    for bad in (5, [5], None):
        with pytest.raises(InputError, match="paths"):
            from_files(bad, "y")  # type: ignore[arg-type]
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(FormatError, match="X and y"):
        from_files(tmp_path / "other.npz")
    with pytest.raises(InputError, match=r"npz.*target"):
        from_files(tmp_path / "other.npz", "y")


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", X=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(FormatError, match="plain arrays"):
        from_files(tmp_path / "objects.npz")


def test_a_single_array_called_npz_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    with pytest.raises(FormatError, match="single array"):
        from_files(tmp_path / "x.npz")


def test_flipped_bits_of_an_npz_file_are_told_by_our_own_errors(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, X=np.arange(60.0).reshape(20, 3), y=np.arange(20) % 2)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        flipped = bytearray(whole)
        for bit in rng.integers(8 * len(whole), size=20).tolist():
            flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            list(from_files(path))
        except OlssError:
            refused += 1
    assert refused > 300  # what is left are bits that zip neither uses nor sums


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
    wanted = [time.strftime(pattern) for time in TIMES]
    sizes = [wanted.count(name) for name in sorted(set(wanted))]
    if min(sizes) < 2:  # a split needs two rows
        path = _twice(path)
        sizes = [2 * size for size in sizes]
    stream = from_files(path, "kind", by="time", every=every, features=["row"])
    assert stream.names == tuple(sorted(set(wanted)))
    for task, size in zip(stream, sizes, strict=True):
        found = rows(task.X, task.X_test)
        assert {wanted[row] for row in found} == {task.name}
        assert len(found) == size


def _twice(path: Path) -> Path:
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table]), path)
    return path


def test_kinds_of_columns(path: Path) -> None:
    stream = from_files(path, "kind", features=["row", "flag"])
    X = np.concatenate([stream[0].X, stream[0].X_test])
    y = np.concatenate([stream[0].y, stream[0].y_test])
    assert X.dtype == np.float32
    np.testing.assert_array_equal(X[:, 1], X[:, 0] % 5 == 0)
    assert stream.class_names == ("x", "y", "z")
    np.testing.assert_array_equal(y, X[:, 0] % 3)


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


TABLE = pa.table(
    {"a": np.arange(20.0), "b": np.arange(20) % 3, "site": ["Bern", "Oslo"] * 10, "y": [0, 1] * 10}
)


def write_table(path: Path, table: pa.Table = TABLE) -> Path:
    """Write a table in the format its ending says."""
    kind = FORMATS[path.name.removeprefix("table")]
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    elif kind == "csv":
        pyarrow.csv.write_csv(table, pa.CompressedOutputStream(str(path), "gzip")) if (
            path.suffix == ".gz"
        ) else pyarrow.csv.write_csv(table, path)
    elif kind == "arrow":
        pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
    elif kind == "orc":
        pyarrow.orc.write_table(table, path)
    elif kind == "json":
        rows = (str(row).replace("'", '"') for row in table.to_pylist())
        text = "\n".join(rows).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    else:  # npy
        kinds = [("a", float), ("b", int), ("site", "U9"), ("y", int)]
        np.save(path, np.array([tuple(row.values()) for row in table.to_pylist()], kinds))
    return path


@pytest.mark.parametrize("ending", [ending for ending in FORMATS if ending != ".npz"])
def test_every_format_gives_the_same_stream(ending: str, tmp_path: Path) -> None:
    path = write_table(tmp_path / f"table{ending}")
    stream = from_files(path, "y", by="site")
    assert stream.names == ("Bern", "Oslo")
    for start, task in enumerate(stream):
        found = np.concatenate([task.X, task.X_test])
        wanted = np.column_stack([np.arange(20.0), np.arange(20) % 3])[start::2]
        np.testing.assert_array_equal(found[np.argsort(found[:, 0])], wanted)


def test_views_of_text_as_polars_writes_them(tmp_path: Path) -> None:
    views = TABLE.set_column(2, "site", TABLE["site"].cast(pa.string_view()))
    with pa.ipc.new_file(tmp_path / "table.arrow", views.schema) as writer:
        writer.write_table(views)
    assert from_files(tmp_path / "table.arrow", "y", by="site").names == ("Bern", "Oslo")


def test_a_missing_column_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "table.parquet")
    with pytest.raises(InputError, match="no column 'c'"):
        from_files(path, "c")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FormatError, match=r"table\.parquet"):
        from_files(path, "y")
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n")[:-9])
    with pytest.raises(FormatError, match=r"table\.csv\.gz"):
        from_files(tmp_path / "table.csv.gz", "y")


def test_an_array_without_names_has_no_target(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(InputError, match=r"numpy\.savez"):
        from_files(tmp_path / "x.npy", "y")


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".arrow", ".jsonl", ".orc"])
def test_pandas_is_not_loaded(ending: str, tmp_path: Path) -> None:
    path = write_table(tmp_path / f"table{ending}")
    code = (
        "import sys; from olss.streams import from_files\n"
        "[task for task in from_files(sys.argv[1], 'y', by='site')]\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)


def test_no_damage_of_an_arrow_file_crashes(tmp_path: Path) -> None:
    whole = write_table(tmp_path / "table.arrow").read_bytes()
    code = (
        "import sys; from olss.streams import from_files; from olss.errors import OlssError\n"
        "for path in sys.argv[1:]:\n"
        "    try: list(from_files(path, 'y', by='site'))\n"
        "    except OlssError: pass\n"
    )
    rng = np.random.default_rng(0)
    for number in range(40):
        place = int(rng.integers(len(whole)))
        damage = whole[:place] + rng.bytes(8) + whole[place + 8 * (number % 2) :]
        (tmp_path / f"damaged-{number}.arrow").write_bytes(damage)
    paths = sorted(tmp_path.glob("damaged-*"))
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
