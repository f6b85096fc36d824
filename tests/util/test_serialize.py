from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from olss.errors import FormatError
from olss.util.serialize import from_json, to_json


@dataclass(frozen=True)
class Shape:
    name: str


@dataclass(frozen=True)
class Circle(Shape):
    radius: float


class Entry(TypedDict):
    rows: int


class Note(Entry, total=False):
    text: str


@dataclass(frozen=True, eq=False)
class Everything:
    shapes: tuple[Shape, ...]
    pair: tuple[int, str]
    names: frozenset[str]
    mode: Literal["a", "b"]
    either: Circle | int | None
    notes: list[Note]
    matrix: NDArray[np.float64] = field(metadata={"symmetric": True})
    holes: NDArray[np.float64] = field(metadata={"finite": False})
    flags: NDArray[np.bool_]
    table: Any
    own: object = field(default=None, metadata={"saved": False})


def everything():
    square = np.array([[1.0, 0.1], [0.1, 3.0]])
    return Everything(
        (Shape("s"), Circle("c", 2.0)),
        (1, "x"),
        frozenset({"b", "a"}),
        "b",
        None,
        [{"rows": 3}, {"rows": 4, "text": "t"}],
        square,
        np.array([np.nan, 1.0]),
        np.array([True, False]),
        pa.table({"x": [1, 2]}),
        lambda: 0,
    )


def through_json(value, kind):
    return from_json(kind, json.loads(json.dumps(to_json(value))), "a.parquet")


def test_everything_comes_back():
    before = everything()
    after = through_json(before, Everything)
    for name in ("shapes", "pair", "names", "mode", "either", "notes"):
        assert getattr(after, name) == getattr(before, name)
    for name in ("matrix", "holes", "flags"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert after.table.equals(before.table)
    assert after.own is None


def test_schemas_and_arrays_of_arrow_come_back_as_a_part_of_anything():
    schema, array = pa.schema({"x": pa.date32()}), pa.array(["a", None])
    found = through_json({"schema": schema, "arrays": [array]}, dict[str, Any])
    assert found["schema"].equals(schema)
    assert found["arrays"][0].equals(array)


def test_names_of_columns_are_never_taken_for_classes():
    names = {"class": 1.0, "dtype": 2.0}
    assert through_json(names, dict[str, float]) == through_json(names, Any) == names


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (int, [True, 1.0, "1", 2**63, None]),
        (float, [True, "1", None, 10**400, float("nan"), float("inf")]),
        (bool, [0, "true", None]),
        (str, [1, None, []]),
        (list[int], [{}, "ab", None, [1, "2"]]),
        (tuple[int, str], [[1], [1, "x", 2], ["x", 1]]),
        (dict[str, int], [[], "ab", {"a": "b"}]),
        (Literal["a"], ["b", 1, None]),
        (int | str, [None, 0.5]),
        (Note, [{}, {"rows": "3"}, []]),
        (Circle, [None, {}, {"class": "Shape", "name": "s"}, {"class": "Circle", "name": "c"}]),
        (NDArray[np.float64], [None, [1.0], {"__array__": "<f8"}, {"__array__": "|O"}]),
    ],
)
def test_an_entry_of_a_wrong_type_is_named(kind, bad):
    for value in bad:
        with pytest.raises(FormatError, match=r"a\.parquet has damaged metadata: \.?entry"):
            from_json(dict[str, kind], {"entry": value}, "a.parquet")


def test_numbers_that_are_not_finite_are_refused():
    with pytest.raises(FormatError, match="finite"):
        through_json(np.array([1.0, np.inf]), NDArray[np.float64])
