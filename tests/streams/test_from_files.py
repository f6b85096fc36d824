from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from olss.errors import DataError, FormatError, InputError, OlssError
from olss.streams import from_config, from_files

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


def rows(*arrays: np.ndarray) -> list[int]:
    return sorted(int(value) for array in arrays for value in array[:, 0])


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
def test_bad_options_are_named(options: dict[str, object], message: str, tmp_path: Path) -> None:
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
