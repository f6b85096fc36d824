"""Rows chosen by text, as on a command line, whatever the column holds."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from olss import Sketch
from olss.errors import InputError

N = 12
DAY = np.datetime64("2026-01-01")
COLUMNS = {
    "whole": (np.arange(N) % 4, "3", 3),
    "small": ((np.arange(N) % 4).astype(np.uint8), "3", 3),
    "real": ((np.arange(N) % 4) / 2, "1.50", 1.5),
    "flag": (np.arange(N) % 3 == 0, "TRUE", True),
    "text": (np.array(list("abcabcabcabc")), "b", "b"),
    "day": (DAY + np.arange(N) % 4, "2026-01-04", DAY + np.timedelta64(3, "D")),
}


@pytest.fixture
def sketch():
    extra = {name: column for name, (column, _, _) in COLUMNS.items()}
    return Sketch(N, "reservoir").update(np.eye(N), task=np.arange(N) % 2, extra=extra)


@pytest.mark.parametrize("name", COLUMNS)
def test_text_is_read_as_what_an_array_holds(sketch, name):
    column, text, value = COLUMNS[name]
    wanted = int((column == value).sum())
    assert wanted
    assert sketch.estimate(where={name: text}).rows == wanted
    assert sketch.estimate(where={name: [value]}).rows == wanted
    assert sketch.remove(where={name: text}) == wanted
    assert not (sketch.extra[name] == value).any()


def test_tasks_and_missing_numbers_too(sketch):
    assert sketch.estimate(where={"task": "1"}).rows == N // 2
    gaps = Sketch(5, "reservoir").update(np.eye(3), extra={"x": [1.0, np.nan, 3.0]})
    assert gaps.remove(where={"x": None}) == 1
    assert gaps.extra["x"].tolist() == [1.0, 3.0]
    assert gaps.estimate(where={"x": [None, "3"]}).rows == 1


@pytest.mark.parametrize(
    ("name", "text"), [("whole", "3.5"), ("flag", "perhaps"), ("real", "b"), ("day", "yesterday")]
)
def test_text_that_is_no_such_value_is_said(sketch, name, text):
    with pytest.raises(InputError, match=f"'{name}' holds .* is no such value"):
        sketch.remove(where={name: text})
    assert len(sketch) == N


def test_a_column_that_there_is_not_is_said_with_near_ones(sketch):
    with pytest.raises(InputError, match=r"where: there is no column 'reel'\. Did you mean 'real'"):
        sketch.remove(where={"reel": 1})
    for option in ("columns", "exclude"):
        with pytest.raises(InputError, match=f"{option}: there is no column 'prise'.*'price'"):
            Sketch(5, **{option: ["prise"]}).update({"price": [1.0], "colour": ["red"]})
    # The target is a column, too.
    Sketch(5, exclude=["colour"]).update({"price": [1.0], "colour": ["red"]}, y="colour")


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(["ann", "bob"]),
        pd.Series(["ann", "bob"]).unique(),
        pd.Index(["ann", "bob"]),
        pa.array(["ann", "bob"]),
        frozenset({"ann", "bob"}),
        {"ann": 1, "bob": 2}.keys(),
    ],
    ids=lambda values: type(values).__name__,
)
def test_values_may_come_in_any_kind_of_list(values):
    table = pd.DataFrame({"person": ["ann", "bob", "cat"] * 20, "x": np.arange(60.0)})
    assert Sketch(60, seed=0).update(table).remove(where={"person": values}) == 40
    array = Sketch(60, seed=0).update(np.eye(60), extra={"person": list(table.person)})
    assert array.remove(where={"person": values}) == 40


def test_every_kind_of_missing_value_is_one_and_no_value_is_cut_off_to_fit():
    table = pd.DataFrame(
        {
            "x": [np.nan, *np.arange(5.0)],
            "n": np.arange(6),
            "t": ["nan", None, "b", "b", "b", "b"],
            "day": pd.date_range("2026-01-01", periods=6),
        }
    )
    sketch = Sketch(6, "reservoir").update(table)

    def matches(**where):
        return sketch.copy().remove(where=where)

    for missing in (None, np.nan, pd.NA, pd.NaT):
        assert matches(x=missing) == matches(t=missing) == 1
    assert matches(t="nan") == 1
    assert matches(n=2.0) == matches(n=np.int8(2)) == matches(n="2") == 1
    with pytest.raises(InputError, match=r"holds int64, and \[1.9\] is no such value"):
        matches(n=1.9)
    assert matches(day=pd.Timestamp("2026-01-03")) == matches(day=np.datetime64("2026-01-03")) == 1
    assert matches(day=pd.Timestamp("2026-01-03 15:00")) == 0


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_dates_of_any_library_choose_rows_of_an_array(unit):
    day = (DAY + np.arange(N)).astype(f"M8[{unit}]")
    wait = np.arange(N).astype("m8[h]").astype("m8[ns]")
    sketch = Sketch(N, "reservoir").update(np.eye(N), extra={"day": day, "wait": wait})
    third = dt.date(2026, 1, 3)
    noon = dt.datetime(2026, 1, 3)
    for value in (third, noon, pd.Timestamp(noon), pa.scalar(third), "2026-01-03"):
        assert sketch.estimate(where={"day": value}).count == 1
    several = [third, pd.Timestamp("2026-01-04"), np.datetime64("2026-01-05"), None]
    for values in (several, pd.to_datetime(["2026-01-03", "2026-01-04", "2026-01-05"])):
        assert sketch.estimate(where={"day": values}).count == 3
    assert sketch.estimate(where={"day": pd.Timestamp("2026-01-03 15:00")}).count == 0
    for value in (dt.timedelta(hours=2), pd.Timedelta("2h"), np.timedelta64(2, "h")):
        assert sketch.estimate(where={"wait": value}).count == 1
    with pytest.raises(InputError, match=r"'day' holds datetime64.*is no such value"):
        sketch.estimate(where={"day": 5})


def test_half_precision_columns_choose_rows_and_are_scored_without_a_warning():
    half = pa.array(np.arange(90, dtype=np.float16) % 3)
    sketch = Sketch(45, seed=0).update(pa.table({"x": np.arange(90.0), "half": half}))
    held = np.asarray(sketch.frame["half"])
    assert 0 < sketch.estimate(where={"half": 1.0}).rows == np.count_nonzero(held == 1)


def test_a_number_is_looked_up_as_the_column_holds_it():
    rides_along = {"p": np.full(5, 0.1, np.float32)}
    sketch = Sketch(9, "reservoir").update(np.eye(5), extra=rides_along)
    assert sketch.remove(where={"p": 0.1}) == 5


def test_an_empty_selector_is_refused():
    sketch = Sketch(9, "reservoir").update(np.eye(5))
    with pytest.raises(InputError, match="where must name at least one"):
        sketch.remove(where={})
    assert len(sketch) == 5


@pytest.mark.parametrize("kind", ["array", "table"])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_are_compared_as_integers(kind, dtype):
    ids = (2**60 + np.arange(400)).astype(dtype)
    sketch = Sketch(500, "reservoir")
    if kind == "table":
        sketch.update(pd.DataFrame({"id": ids, "x": 1.0}))
    else:
        sketch.update(np.ones((400, 1)), extra={"id": ids})
    for value in (2**60 + 7, np.int64(2**60 + 7), np.uint64(2**60 + 7), str(2**60 + 7)):
        assert sketch.copy().remove(where={"id": value}) == 1
    assert sketch.copy().remove(where={"id": [np.uint64(2**60), np.int64(2**60 + 399), 1.0]}) == 2
    for value in (float(2**60), [2**60, 2**64 + 1], 0.5, np.inf, "many"):
        with pytest.raises(InputError, match=r"where.*'id'"):
            sketch.remove(where={"id": value})
    assert len(sketch) == 400


@pytest.mark.parametrize("kind", ["array", "table"])
def test_an_integer_that_floats_do_not_have_is_refused(kind):
    x = np.float64(2**53) + np.arange(0, 8, 2)
    sketch = Sketch(9, "reservoir")
    sketch.update(pd.DataFrame({"id": x})) if kind == "table" else sketch.update(
        np.eye(4), extra={"id": x}
    )
    with pytest.raises(InputError, match=r"'id' holds .*cannot represent 9007199254740993"):
        sketch.remove(where={"id": 2**53 + 1})
    assert sketch.remove(where={"id": 2**53 + 2}) == 1


SIGNS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "flag"])
@pytest.mark.parametrize("kind", ["array", "table"])
def test_ranges_are_those_of_numpy(sketch, name, sign, kind):
    column, text, value = COLUMNS[name]
    if kind == "table":
        data = {"x": np.arange(N), name: column}
        sketch = Sketch(N, "reservoir").update(pd.DataFrame(data))
    wanted = int(SIGNS[sign](column, value).sum())
    assert sketch.estimate(where={name: (sign, text)}).rows == wanted
    assert sketch.estimate(where={name: (sign, value)}).rows == wanted
    if wanted:
        assert sketch.remove(where={name: (sign, value)}) == wanted


def test_ranges_of_a_column_must_all_match(sketch):
    assert sketch.estimate(where={"whole": [(">=", 1), ("<", "2.5")]}).rows == 6
    assert sketch.estimate(where={"whole": [("<", 2.5), (">", 2.5)]}).rows == 0
    assert sketch.estimate(where={"text": ["<", "b"]}).rows == 4  # values: a list, not a pair
    with pytest.raises(InputError, match="'whole'"):
        sketch.estimate(where={"whole": [1, ("<", 3)]})
    with pytest.raises(InputError, match="'whole'"):
        sketch.estimate(where={"whole": ("<", None)})


def test_integers_of_any_size_are_in_the_right_range():
    """Through float64, 2**60 + 1 equals 2**60."""
    ids = 2**60 + np.arange(6)
    for sketch in (
        Sketch(9, "reservoir").update(np.eye(6), extra={"id": ids}),
        Sketch(9, "reservoir").update(pd.DataFrame({"id": ids})),
    ):
        assert sketch.estimate(where={"id": (">", 2**60 + 2)}).rows == 3
        assert sketch.estimate(where={"id": ("<=", str(2**60 + 2))}).rows == 3
        assert sketch.estimate(where={"id": ("<", 2**70)}).rows == 6
        assert sketch.estimate(where={"id": (">", float("inf"))}).rows == 0


def test_missing_values_are_in_no_range():
    frame = pd.DataFrame({"x": [1.0, np.nan, 3.0], "t": ["a", None, "c"]})
    frame["n"] = pd.array([1, None, 3], dtype="Int64")
    sketch = Sketch(9, "reservoir").update(frame, extra={"e": frame["x"].to_numpy()})
    for name, bound in {"x": 2, "t": "b", "n": 2, "e": 2}.items():
        assert sketch.estimate(where={name: ("<", bound)}).rows == 1
        assert sketch.estimate(where={name: (">=", bound)}).rows == 1


def test_ordered_categories_have_an_order_of_their_own():
    sizes = pd.Categorical(["small", "large"], ["small", "large"], ordered=True)
    sketch = Sketch(9, "reservoir").update(pd.DataFrame({"size": sizes, "x": [1.0, 2.0]}))
    with pytest.raises(InputError, match="'size'"):
        sketch.remove(where={"size": ("<", "large")})
