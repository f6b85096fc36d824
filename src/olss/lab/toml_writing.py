"""Writing TOML: what an experiment file needs of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["dumps"]


def dumps(content: Mapping[str, Any]) -> str:
    """Return a TOML text: values first, then tables, then lists of tables.

    Examples
    --------
    >>> print(dumps({"name": "try", "train": {"lr": 0.1}, "learner": [{"name": "sgd"}]}))
    name = "try"
    <BLANKLINE>
    [train]
    lr = 0.1
    <BLANKLINE>
    [[learner]]
    name = "sgd"
    <BLANKLINE>
    """
    values = {key: value for key, value in content.items() if not _is_table(value)}
    tables = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    lists = {key: value for key, value in content.items() if key not in {**values, **tables}}
    parts = [_lines(values)]
    parts += [f"[{_key(key)}]\n{_lines(table)}" for key, table in tables.items()]
    parts += [f"[[{_key(key)}]]\n{_lines(table)}" for key, rows in lists.items() for table in rows]
    return "\n".join(parts)


def _is_table(value: Any) -> bool:
    rows = isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)
    return isinstance(value, Mapping) or rows


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, float):
        return repr(value)  # inf and nan are TOML, too
    # JSON's strings are TOML's, but for one character that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
