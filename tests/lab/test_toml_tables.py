from __future__ import annotations

from typing import Any

import pytest

from olss.errors import InputError
from olss.lab.experiment import check_space, parse_tune


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "must be a list of values or a table"),
        (0.1, "must be a list of values or a table"),
        ({"low": 1}, "high of lr"),
        ({"low": 2, "high": 1}, "low below high, found 2.* and 1"),
        ({"low": 0, "high": 1, "log": True}, "with log must begin above 0, found 0"),
        ({"low": 0, "high": 1, "lgo": True}, "'lgo'. Did you mean"),
        ({"low": 1, "high": 2, "log": "yes"}, "log of lr"),
        ({"low": 1, "high": 2, "step": 0}, "step of lr must be a number above 0"),
        ({"low": 1, "high": 9, "log": True, "step": 2}, "log and step"),
    ],
)
def test_mistakes_in_a_space_are_named(values: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_space({"lr": values}, "the file")


@pytest.mark.parametrize("share", [0, 1, "half"])
def test_some_rows_are_held_out_and_some_are_not(share: Any) -> None:
    with pytest.raises(InputError, match=r"tune.share must be a number above 0 and below 1"):
        parse_tune({"share": share}, "the file")
