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
import torch
from scipy import sparse

from olss.errors import DataError, FormatError, InputError, OlssError
from olss.streams import from_arrays, from_config, from_files
from olss.streams.file_batches import ENDINGS, batches, column_names
from olss.streams.own_data import LabelCodes, TaskRows, own_stream, target_kind
from olss.streams.table_rows import FileTable

RNG = np.random.default_rng(0)
X = np.arange(90.0)[:, None] + np.zeros(3)
Y = np.arange(90) % 3


def rows(*arrays: np.ndarray) -> list[int]:
    return sorted(int(value) for array in arrays for value in array[:, 0])


def test_a_list_of_pairs_is_split_by_class() -> None:
    stream = from_arrays([(X[:30], Y[:30]), (X[30:], Y[30:])], test=0.3)
    assert stream.names == ("task 1", "task 2")
    assert stream.classes == (0, 1, 2)
    first, second = stream
    assert rows(first.X, first.X_test) == list(range(30))
    assert rows(second.X, second.X_test) == list(range(30, 90))
    assert np.bincount(first.y_test).tolist() == [3, 3, 3]
    assert np.bincount(second.y_test).tolist() == [6, 6, 6]
    assert [int(x) % 3 for x in first.X[:, 0]] == first.y.tolist()


def test_given_test_rows_are_kept_apart() -> None:
    task = from_arrays([(X[:40], Y[:40], X[40:50], Y[40:50])])[0]
    assert (rows(task.X), rows(task.X_test)) == (list(range(40)), list(range(40, 50)))


def test_one_table_is_split_by_a_column() -> None:
    month = np.array(["2024-03", "2024-01", "2024-02"])[Y]
    stream = from_arrays(X, Y % 2, by=month)
    assert stream.names == ("2024-01", "2024-02", "2024-03")
    assert rows(stream[0].X, stream[0].X_test) == list(range(1, 90, 3))


def test_data_frames_and_tensors_are_read() -> None:
    torch = pytest.importorskip("torch")
    frame = pd.DataFrame({"a": X[:, 0], "b": 1.0, "state": np.array(["well", "ill", "ill"])[Y]})
    stream = from_arrays([(frame[["a", "b"]], frame["state"]), (frame[["a", "b"]], frame["state"])])
    assert stream.class_names == ("ill", "well")
    by_row = {int(x): label for x, label in zip(X[:, 0], Y, strict=True)}
    task = stream[1]
    assert all(
        (label == 1) == (by_row[int(x)] == 0) for x, label in zip(task.X[:, 0], task.y, strict=True)
    )
    tensors = from_arrays([(torch.tensor(X), torch.tensor(Y))])
    assert isinstance(tensors[0].X, np.ndarray)


@pytest.mark.parametrize(
    ("labels", "names"), [(Y - 1, ("-1", "0", "1")), (Y > 0, ("False", "True")), (Y + 4, None)]
)
def test_labels_become_numbers_from_0_up(labels: np.ndarray, names: tuple[str, ...] | None) -> None:
    stream = from_arrays([(X, labels), (X, labels)])
    assert stream.class_names == names
    assert stream[0].y.dtype == np.int64
    if names is None:
        assert stream.classes == (4, 5, 6)
    else:
        assert stream.classes == tuple(range(len(names)))


def test_labels_are_the_same_numbers_in_tasks_that_miss_some() -> None:
    stream = from_arrays([(X[:20], np.full(20, "b")), (X[20:40], np.repeat(["a", "c"], 10))])
    assert stream.class_names == ("a", "b", "c")
    assert [task.classes for task in stream] == [(1,), (0, 2)]


def test_targets_are_told_from_labels() -> None:
    assert from_arrays([(X, Y / 2)]).classes is None
    assert from_arrays([(X, Y.astype(float))]).classes is None
    assert from_arrays([(X, Y.astype(float))], kind="classes").classes == (0, 1, 2)
    assert from_arrays([(X, Y)], kind="values")[0].y.dtype == np.float64
    both = from_arrays([(X, np.stack([Y, Y + 1], axis=1))])
    assert (both.classes, both[0].y.shape) == (None, (72, 2))


def test_tasks_of_different_width_are_padded_on_request() -> None:
    parts = [(X[:, :2], X[:, :1]), (X, X)]
    stream = from_arrays(parts, pad=True)
    assert [task.X.shape[1] for task in stream] == [3, 3]
    assert [task.y.shape[1] for task in stream] == [3, 3]
    assert (stream[0].X[:, 2] == 0).all()
    assert (stream[0].X[:, 1] == stream[0].X[:, 0]).all()
    assert from_arrays(parts, pad=10)[0].X_test.shape[1] == 10
    with pytest.raises(DataError, match=r"task 2 has rows of shape .* pass pad=True"):
        from_arrays(parts)
    with pytest.raises(DataError, match="cannot be filled up to 2 columns"):
        from_arrays(parts, pad=2)[1]


def test_validation_holds_out_training_rows() -> None:
    stream = from_arrays([(X, Y)] * 2, seed=3)
    for task, tuning in zip(stream, stream.validation(0.25), strict=True):
        assert rows(tuning.X, tuning.X_test) == rows(task.X)
        assert np.bincount(tuning.y_test).tolist() == [6, 6, 6]


def test_validation_seed_decides_the_rows_held_out() -> None:
    stream = from_arrays([(X, Y)])
    held = [rows(stream.validation(0.25, seed=seed)[0].X_test) for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]


def test_seed_decides_the_split() -> None:
    splits = [rows(from_arrays([(X, Y)], seed=seed)[0].X_test) for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]


def test_images_are_scaled_by_255_and_config_has_a_hash() -> None:
    images = RNG.integers(0, 256, (20, 4, 4), dtype=np.uint8)
    stream = from_arrays([(images, Y[:20])])
    assert stream.scale == stream[0].scale == 255
    assert from_arrays([(images, Y[:20])], scale=2.0)[0].scale == 2
    assert stream.config["sha256"] != from_arrays([(images // 2, Y[:20])]).config["sha256"]


def nan_at(row: int) -> np.ndarray:
    bad = X.copy()
    bad[row, 1] = np.nan
    return bad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((X, Y),), "task 1 must be"),
        ((X,), "takes a list of .* found ndarray without y"),
        (([],), "takes a list"),
        ((X, Y), "by must say the task of each row"),
        (([(X, Y[:-1])],), "task 1: y must have an entry for each of the 90 rows of X"),
        (([(X[:0], Y[:0])],), "there are no rows"),
        (([(nan_at(7), Y)],), "task 1: X is not finite in 1 rows, the first is row 7"),
        (([(X, nan_at(7)[:, 1])],), "task 1: y is not finite"),
        (([(X.astype(str), Y)],), "X must hold numbers"),
        (([(X, np.array(["a", None] * 45, dtype=object))],), "task 1: y has missing values"),
        (([(X[:, 0], Y)],), "X must have rows and columns"),
        (([(X[:1], Y[:1])],), "has 1 row: a split"),
        (
            ([([[1, 2], [3]], [0, 1])],),
            "task 1: X must be an array, found rows of",
        ),
        (([(sparse.csr_array(X), Y)],), "task 1: X must be dense, found a sparse csr_array"),
        (([(torch.tensor(X).to_sparse(), Y)],), "task 1: X must be dense, found a sparse Tensor"),
        (([(X.astype(np.longdouble), Y)],), "X must hold numbers of 64 bits at most"),
        (([(X.astype(complex), Y)],), "X must hold numbers"),
        (([(np.ma.masked_less(X, 5), Y)],), "task 1: X has masked values"),
        (([(X, np.array([2**70] * 90, dtype=object))],), "y holds numbers of more than 64 bits"),
        (([(X, np.array([{}] * 90))],), "y must hold numbers or text, found dict"),
        (([(X, np.int64(3))],), "task 1: y must have an entry for each"),
        (([(X, Y.astype(str)), (X, Y)],), "y holds text in some tasks and numbers in others"),
        ((X, Y, np.full(90, np.nan)), "by has missing values"),
        ((X, Y, [[1], [2, 3]]), "by must be an array"),
        (([(X, Y, X[:, :2], Y)],), r"rows of one shape, found \(3,\) and \(2,\)"),
    ],
)
def test_bad_data_are_named(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(*arguments[:2], **({"by": arguments[2]} if len(arguments) > 2 else {}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 0}, "test must be a number above 0 and at most 0.9"),
        ({"kind": "labels"}, "kind: there is no 'labels'"),
        ({"names": ["a", "b"]}, "names must hold 1 names, found 2"),
        ({"seed": "x"}, "seed must be"),
        ({"seed": -1}, "seed must be"),
        ({"names": "a"}, "names must hold a name for each task"),
        ({"pad": -2}, "pad must be"),
        ({"scale": 0}, "scale must be a number above 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays([(X, Y)], **options)  # type: ignore[arg-type]


def test_fractions_are_no_classes() -> None:
    with pytest.raises(DataError, match="kind='classes' needs one label a row"):
        from_arrays([(X, Y / 2)], kind="classes")


def test_by_of_another_length_is_named() -> None:
    with pytest.raises(DataError, match="must have a row each"):
        from_arrays(X, Y, by=Y[:5])


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
    with pytest.raises(DataError, match="a file has changed"):
        from_config(stream.config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": None}, "target must name the column to learn"),
        ({"target": "stat"}, "has no column 'stat'; it has day, site"),
        ({"by": "sites"}, "has no column 'sites'"),
        ({"features": ["rows"]}, "has no column 'rows'"),
        ({"features": ["row", "state"]}, "must not hold the target or by, found 'state'"),
        ({"every": "month"}, "every must be one of day, week, month, year and needs by="),
        ({"by": "day", "every": "hour"}, "found 'hour'"),
        ({}, "the column 'day' holds date32.*, not numbers; encode it or leave it out"),
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
    with pytest.raises(DataError, match=f"the column '{column}' is empty in 1 rows"):
        from_files(path, "state", by=by, features=COLUMNS)[0]


def test_files_that_are_not_there_or_not_readable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="paths must name files that are there, found"):
        from_files(tmp_path / "none.csv", "y")
    with pytest.raises(InputError, match="paths must name files that are there"):
        from_files(str(tmp_path / "*.csv"), "y")
    with pytest.raises(InputError, match="at least one file"):
        from_files([], "y")
    for name in ("broken.parquet", "broken.npz"):
        (tmp_path / name).write_bytes(b"no such format")
    with pytest.raises(FormatError, match="cannot be read"):
        from_files(tmp_path / "broken.parquet", "y")
    with pytest.raises(FormatError, match="not an npz file"):
        from_files(tmp_path / "broken.npz")
    (tmp_path / "x.xlsx").write_text("{}")
    with pytest.raises(InputError, match=r"known by their ending \(\.parquet, .*found x\.xlsx"):
        from_files(tmp_path / "x.xlsx", "y")
    for bad in (5, [5], None):
        with pytest.raises(InputError, match="paths must name one or more files, found"):
            from_files(bad, "y")  # type: ignore[arg-type]
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(FormatError, match="must hold X and y"):
        from_files(tmp_path / "other.npz")
    with pytest.raises(InputError, match="npz files hold X and y; they go with no target"):
        from_files(tmp_path / "other.npz", "y")


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", X=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(FormatError, match="plain arrays"):
        from_files(tmp_path / "objects.npz")


def test_a_single_array_called_npz_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    with pytest.raises(FormatError, match="a single array without a name"):
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


OPTIONS = {"test": 0.2, "kind": "auto", "pad": False, "scale": None, "seed": 0}


def test_labels_of_all_tasks_are_numbered_together() -> None:
    labels = LabelCodes.of([np.array(["b", "c"]), np.array(["aa", "b"])])
    assert labels.names == ("aa", "b", "c")
    assert labels.encode(np.array(["c", "aa", "b"])).tolist() == [2, 0, 1]


def test_whole_numbers_stay() -> None:
    labels = LabelCodes.of([np.array([7, 3], np.uint8), np.array([3, 9])])
    assert (labels.classes, labels.names) == ((3, 7, 9), None)
    assert labels.encode(np.array([9, 3])).tolist() == [9, 3]


def test_labels_of_2_to_the_63_and_more_do_not_wrap() -> None:
    y = np.array([2**63 + 1, 3, 2**64 - 1], np.uint64)
    labels = LabelCodes.of([y, np.array([3])])
    assert labels.names == ("3", "9223372036854775809", "18446744073709551615")
    assert labels.encode(y).tolist() == [1, 0, 2]


def test_large_labels_of_several_kinds_keep_all_their_digits() -> None:
    labels = LabelCodes.of([np.array([2**53 + 1], np.uint64), np.array([2**53])])
    assert labels.classes == (2**53, 2**53 + 1)


def test_a_label_nobody_saw_is_an_error() -> None:
    labels = LabelCodes.of([np.array([7, 3])])
    with pytest.raises(DataError, match=r"Oslo has the label 5, .* data have changed"):
        labels.encode(np.array([3, 5]), "Oslo")


@pytest.mark.parametrize(
    ("targets", "kind"),
    [
        ([np.arange(3)], "classes"),
        ([np.array(["a"])], "classes"),
        ([np.arange(3), np.arange(3.0)], "values"),
        ([np.zeros((3, 2), int)], "values"),
    ],
)
def test_kind_of_target(targets: list[np.ndarray], kind: str) -> None:
    assert target_kind("auto", targets) == kind


def test_tasks_are_loaded_when_asked_for() -> None:
    X, y = np.zeros((10, 2), np.float32), np.arange(10) % 2
    loaded: list[int] = []

    def load(number: int) -> TaskRows:
        loaded.append(number)
        return TaskRows(X + number, y)

    config = {"name": "test", **OPTIONS, "scale": 1.0}
    stream = own_stream(load, ["a", "b"], config, [(2,), (2,)], [y, y])
    assert loaded == []
    assert stream[1].X[0, 0] == 1
    assert loaded == [1]


def test_no_task_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="there are no rows"):
        own_stream(lambda number: None, [], OPTIONS, [], [])  # type: ignore[arg-type, return-value]


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
        rows = part.read()[0][:, 0].astype(int)
        assert {wanted[row] for row in rows} == {part.value.as_py()}
        assert len(rows) == wanted.count(part.value.as_py())


def test_kinds_of_columns(path: Path) -> None:
    X, y = FileTable([path], ["kind"], ["row", "flag"]).read()
    assert X.dtype == np.float32
    np.testing.assert_array_equal(X[:, 1], np.arange(30) % 5 == 0)
    assert y.tolist() == ["x", "y", "z"] * 10


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
    kind = ENDINGS[path.name.removeprefix("table")]
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
        path.write_text("\n".join(rows))
    else:
        kinds = [("a", float), ("b", int), ("site", "U9"), ("y", int)]
        np.save(path, np.array([tuple(row.values()) for row in table.to_pylist()], kinds))
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_stream(ending: str, tmp_path: Path) -> None:
    path = write_table(tmp_path / f"table{ending}")
    assert column_names(path) == ["a", "b", "site", "y"]
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
    with pytest.raises(InputError, match="has no column 'c'; it has a, b, site, y"):
        list(batches(path, ["c"]))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FormatError, match=r"table\.parquet cannot be read"):
        list(batches(path, ["a"]))
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n")[:-9])
    with pytest.raises(FormatError, match="cannot be read"):
        list(batches(tmp_path / "table.csv.gz", ["a"]))


def test_an_array_without_names_has_no_target(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"save X and y together with numpy\.savez"):
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
