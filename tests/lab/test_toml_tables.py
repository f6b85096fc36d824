from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from olss.errors import InputError
from olss.lab.toml_tables import checked_space, dumps, tune_spec


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "must be a list of values or a table"),
        (0.1, "must be a list of values or a table"),
        ({"low": 1}, "must have low below high, found 1 and None"),
        ({"low": 2, "high": 1}, "must have low below high, found 2 and 1"),
        ({"low": 0, "high": 1, "log": True}, "with log must begin above 0, found 0"),
        ({"low": 0, "high": 1, "lgo": True}, "no 'lgo'. Did you mean"),
        ({"low": 1, "high": 2, "log": "yes"}, "log of lr must be true or false, found 'yes'"),
        ({"low": 1, "high": 2, "step": 0}, "step of lr must be a number above 0, found 0"),
        ({"low": 1, "high": 9, "log": True, "step": 2}, "log or step, not both"),
    ],
)
def test_mistakes_in_a_space_are_named(values: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        checked_space({"lr": values}, "the file")


@pytest.mark.parametrize("share", [0, 1, "half"])
def test_some_rows_are_held_out_and_some_are_not(share: Any) -> None:
    with pytest.raises(InputError, match=r"tune.share must be a number above 0 and below 1"):
        tune_spec({"share": share}, "the file")


# TOML has no null, and forbids lone surrogates.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(text, values, max_size=5))
def test_what_is_written_is_read_back(content: dict[str, Any]) -> None:
    assert tomllib.loads(dumps(content)) == content
