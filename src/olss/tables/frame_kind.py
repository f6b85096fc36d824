"""What a table was before it became Arrow columns, so that rows can be handed out as they came in.

A `FrameKind` says which library's frame it was and, for each column, its Arrow type and the
library's own type where that says more (pandas: nullable or not, text in Python or Arrow,
categories and their order). It is JSON in a sketch file; reading it back checks all of it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from olss.errors import DataError, InputError
from olss.tables.arrow_types import as_type, have_same_keys, plain_type, value_type
from olss.util import checks

__all__ = ["LIBRARIES", "OBJECT_NAN", "Categories", "FrameKind"]

OBJECT_NAN = "object[nan]"  # pandas' objects whose gaps are NaN, and not None
LIBRARIES = ("pyarrow", "pandas", "polars", "mapping")


@dataclass(frozen=True)
class Categories:
    """The categories of a pandas column, in their order, used or not.

    Attributes
    ----------
    values : pyarrow.Array
    dtype : str or None
        Of the values, in pandas; None: what pandas makes of them.
    ordered : bool
    """

    values: Any
    dtype: str | None
    ordered: bool

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Categories)
            and (self.dtype, self.ordered) == (other.dtype, other.ordered)
            and bool(self.values.equals(other.values))
        )

    __hash__ = None  # type: ignore[assignment]

    def joined(self, other: Categories, kind: Any) -> Categories:
        """Return those of both, of an Arrow type; ordered if both are, and alike."""
        if self == other:
            return self
        both = self.widened(as_type(other.values, kind))
        return replace(both, ordered=both.ordered and other.ordered)

    def widened(self, values: Any) -> Categories:
        """Return these and then others, of the type of the others; ordered if there is no other."""
        import pyarrow as pa

        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        mine = as_type(self.values, values.type)
        both = pa.concat_arrays([mine, *chunks]).unique().drop_null()
        dtype = self.dtype if mine.type == self.values.type else None
        return Categories(both, dtype, self.ordered and both.equals(mine))

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads: values as an Arrow stream, in base64."""
        import pyarrow as pa

        batch = pa.record_batch({"values": self.values})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        text = base64.b64encode(sink.getvalue()).decode()
        return {"values": text, "dtype": self.dtype, "ordered": self.ordered}

    @classmethod
    def from_json(cls, state: Any) -> Categories:
        """Return the categories that `to_json` wrote, or raise `ValueError`."""
        import pyarrow as pa

        if not isinstance(state, dict) or not isinstance(state.get("ordered"), bool):
            raise InputError(f"categories must say whether they are ordered, found {state!r:.80}.")
        data = _bytes("values", state.get("values"))
        try:
            with pa.ipc.open_stream(data) as reader:
                batches = list(reader)
            table = pa.Table.from_batches(batches, schema=reader.schema)
            table.validate(full=True)
            values = table.column("values").combine_chunks()
        except (pa.ArrowException, OSError, KeyError) as error:
            raise InputError(f"values of categories cannot be read ({error}).") from error
        dtype = state.get("dtype")
        return cls(values, dtype if dtype is None else _text("dtype", dtype), state["ordered"])


@dataclass(frozen=True)
class FrameKind:
    """Which library a table came from, and the types its columns had there.

    Attributes
    ----------
    library : {"pyarrow", "pandas", "polars", "mapping"}
    schema : pyarrow.Schema
        Names, Arrow types and metadata as they came.
    dtypes : dict of str to str
        Types in the library's own words, where Arrow's do not say all.
    categories : dict of str to Categories
    whole_names : frozenset of str
        Columns that pandas calls by whole numbers; here and in files they are text.
    index : tuple of (str, str or None)
        Columns that were the index of a pandas frame, and their names there.
    """

    library: str
    schema: Any
    dtypes: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, Categories] = field(default_factory=dict)
    whole_names: frozenset[str] = frozenset()
    index: tuple[tuple[str, str | None], ...] = ()

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The Arrow fields by their names."""
        return dict(zip(self.schema.names, self.schema, strict=True))

    def knows(self, name: str, kind: Any) -> bool:
        """Whether a column of a plain Arrow type is what this kind remembers of it."""
        return name in self.fields and plain_type(self.fields[name].type) == kind

    def remembered(self, schema: Any) -> Any:
        """Return a plain schema with the fields as they came in place of those known here."""
        import pyarrow as pa

        fields = [self.fields[f.name] if self.knows(f.name, f.type) else f for f in schema]
        return pa.schema(fields, metadata=self.schema.metadata)

    def joined(self, other: FrameKind, schema: Any) -> FrameKind:
        """Return the kind of what two tables hold together.

        Parameters
        ----------
        other : FrameKind
            Of the table that comes later: a column whose type was promoted is what it is there.
        schema : pyarrow.Schema
            The plain one of both, see `olss.tables.schema.unify_schemas`.
        """
        import pyarrow as pa

        fields, dtypes, categories = [], {}, dict[str, Categories]()
        for column in schema:
            name = column.name
            self._check_keys(other, name)
            source = self if self.knows(name, column.type) else other
            if not source.knows(name, column.type):
                fields.append(column)
                continue
            found = source.fields[name]
            if (
                self.library == "polars"
                and found.metadata != other.fields.get(name, found).metadata
            ):
                found = found.remove_metadata()  # polars' Enum holds no values but its own
            fields.append(found)
            if name in source.dtypes and source.library == self.library:
                dtypes[name] = source.dtypes[name]
                if dtypes[name] == "object" and other.dtypes.get(name) == OBJECT_NAN:
                    dtypes[name] = OBJECT_NAN  # there may have been no gap yet
            mine, yours = self.categories.get(name), other.categories.get(name)
            if name in source.categories:
                categories[name] = source.categories[name]
                if mine and yours:
                    categories[name] = mine.joined(yours, value_type(column.type))
        names = self.whole_names | (other.whole_names - set(self.fields))
        return FrameKind(
            self.library,
            pa.schema(fields, metadata=self.schema.metadata),
            dtypes,
            categories,
            names,
            self.index,
        )

    def _check_keys(self, other: FrameKind, name: str) -> None:
        """Raise `DataError` if dicts of either table would gain keys that only the other's have."""
        objects = self.library in ("pandas", "mapping") and "object" in self.dtypes.get(
            name, "object"
        )
        if not objects or name not in self.fields or name not in other.fields:
            return
        mine, yours = self.fields[name].type, other.fields[name].type
        if not have_same_keys(mine, yours):
            raise DataError(
                f"column {name!r} holds dicts of other keys than before, {yours} after {mine}, and "
                "cannot be kept as it is. Make them text, e.g. with json.dumps."
            )

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {
            "library": self.library,
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "dtypes": dict(self.dtypes),
            "categories": {name: found.to_json() for name, found in self.categories.items()},
            "whole_names": sorted(self.whole_names),
            "index": [list(level) for level in self.index],
        }

    @classmethod
    def from_json(cls, state: Any) -> FrameKind:
        """Return the kind that `to_json` wrote; `ValueError` says what is wrong with another."""
        import pyarrow as pa

        if not isinstance(state, dict):
            raise InputError(f"the kind of a table must be a JSON object, found {state!r:.80}.")
        library = checks.choice("library", state.get("library"), LIBRARIES)
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(_bytes("schema", state.get("schema"))))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"the schema of a table cannot be read ({error}).") from error
        names = set(schema.names)
        if len(names) < len(schema.names):
            raise InputError("the schema of a table must name each column once.")
        dtypes = _by_column("dtypes", state.get("dtypes"), names)
        categories = _by_column("categories", state.get("categories"), names)
        whole_names = _list("whole_names", state.get("whole_names"))
        if not all(isinstance(name, str) and _is_whole(name) for name in whole_names):
            raise InputError(f"whole_names must be whole numbers, found {whole_names!r:.80}.")
        return cls(
            library,
            schema,
            {name: _text("dtype", dtype) for name, dtype in dtypes.items()},
            {name: Categories.from_json(found) for name, found in categories.items()},
            frozenset(whole_names),
            tuple(_level(level, names) for level in _list("index", state.get("index"))),
        )


def _level(level: Any, names: set[str]) -> tuple[str, str | None]:
    if isinstance(level, list) and len(level) == 2:
        column, name = level
        if column in names and (name is None or isinstance(name, str)):
            return column, name
    raise InputError(f"index must name columns and what they are called, found {level!r:.80}.")


def _is_whole(name: str) -> bool:
    """Whether a text is how Python writes some whole number of reasonable length."""
    return name.removeprefix("-").isdecimal() and len(name) < 20 and str(int(name)) == name


def _by_column(what: str, value: Any, names: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(value) <= names:
        raise InputError(f"{what} must be an object by column, found {value!r:.80}.")
    return value


def _list(what: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{what} must be a list, found {value!r:.80}.")
    return value


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{what} must be a text, found {value!r:.80}.")
    return value


def _bytes(what: str, value: Any) -> bytes:
    return base64.b64decode(_text(what, value), validate=True)  # binascii.Error is a ValueError
