import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest

from olss.errors import DataError, FormatError, InputError
from olss.streams import from_files
from olss.streams.file_batches import ENDINGS, batches, column_names

TABLE = pa.table(
    {"a": np.arange(20.0), "b": np.arange(20) % 3, "site": ["Bern", "Oslo"] * 10, "y": [0, 1] * 10}
)


def write(path: Path, table: pa.Table = TABLE) -> Path:
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
    path = write(tmp_path / f"table{ending}")
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
    path = write(tmp_path / "table.parquet")
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
    path = write(tmp_path / f"table{ending}")
    code = (
        "import sys; from olss.streams import from_files\n"
        "[task for task in from_files(sys.argv[1], 'y', by='site')]\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)


def test_no_damage_of_an_arrow_file_crashes(tmp_path: Path) -> None:
    whole = write(tmp_path / "table.arrow").read_bytes()
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
