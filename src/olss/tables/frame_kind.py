"""What a table was before it became Arrow columns, so that rows can be handed out as they came in.

A `FrameKind` records the library of a frame and, for each column, its Arrow type and the library's
own type where that holds more (pandas: nullable or not, strings in Python or Arrow, categories and
their order). It is stored as JSON in a sketch file.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from olss.errors import DataError, InputError
from olss.tables.schema import as_type, check_names, have_same_keys, plain_type, value_type
from olss.util import checks

OBJECT_NAN = "object[nan]"  # pandas' objects whose missing values are NaN, not None
LIBRARIES = ("pyarrow", "pandas", "polars", "mapping")


@dataclass(frozen=True)
class Categories:
    """The categories of a pandas column, in their order, used or not.

    Attributes
    ----------
    values : pyarrow.Array
    dtype : str or None
        Of the values, in pandas; None for what pandas makes of them.
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

    def merge(self, other: Categories, kind: Any) -> Categories:
        """Return the categories of both, of an Arrow type; ordered if both are, and equal."""
        if self == other:
            return self
        both = self.extend(as_type(other.values, kind))
        return replace(both, ordered=both.ordered and other.ordered)

    def extend(self, values: Any) -> Categories:
        """Append further categories, of their type; ordered if there are no new ones."""
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
        """Return the categories that `to_json` wrote; see `FrameKind.from_json`."""
        import pyarrow as pa

        with pa.ipc.open_stream(_decode(state["values"])) as reader:
            table = reader.read_all()
        table.validate(full=True)
        dtype = state["dtype"]
        values = table.column("values").combine_chunks()
        return cls(values, None if dtype is None else str(dtype), bool(state["ordered"]))


@dataclass(frozen=True)
class FrameKind:
    """Which library a table came from, and the types its columns had there.

    Attributes
    ----------
    library : {"pyarrow", "pandas", "polars", "mapping"}
    schema : pyarrow.Schema
        Names, Arrow types and metadata as they came.
    dtypes : dict of str to str
        Types as the library calls them, where Arrow's are not enough.
    categories : dict of str to Categories
    whole_names : frozenset of str
        Columns with integer names in pandas; here and in files they are strings.
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
        """The Arrow fields by name."""
        return dict(zip(self.schema.names, self.schema, strict=True))

    def to_library(self, library: str, table: Any) -> FrameKind:
        """Return the kind of frames of another library that lose nothing of a table's values."""
        import pyarrow.compute as pc
        import pyarrow.types as kinds

        if library == self.library:
            return self
        dtypes = {}
        for name in table.schema.names if library == "pandas" and table is not None else ():
            column = table.column(name)
            if kinds.is_integer(column.type) and column.null_count:
                bounds = pc.min_max(column).as_py()  # floats, which pandas uses, end at 2^53
                if bounds["max"] is not None and max(-bounds["min"], bounds["max"]) > 2**53:
                    dtypes[name] = "UInt64" if kinds.is_uint64(column.type) else "Int64"
        return FrameKind(library, self.schema, dtypes)

    def knows(self, name: str, kind: Any) -> bool:
        """Whether a column has the plain form of the type it came with."""
        return name in self.fields and plain_type(self.fields[name].type) == kind

    def original_schema(self, schema: Any) -> Any:
        """Return a plain schema with the fields as they came, where they are known."""
        import pyarrow as pa

        fields = [self.fields[f.name] if self.knows(f.name, f.type) else f for f in schema]
        return pa.schema(fields, metadata=self.schema.metadata)

    def merge(self, other: FrameKind, schema: Any) -> FrameKind:
        """Return the kind of two tables together.

        Parameters
        ----------
        other : FrameKind
            Of the later table, which decides the type of columns that were promoted.
        schema : pyarrow.Schema
            Their common plain schema, see `olss.tables.schema.unify_schemas`.
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
                    dtypes[name] = OBJECT_NAN  # nothing may have been missing yet
            mine, yours = self.categories.get(name), other.categories.get(name)
            if name in source.categories:
                categories[name] = source.categories[name]
                if mine and yours:
                    categories[name] = mine.merge(yours, value_type(column.type))
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
        """Return the kind that `to_json` wrote, or raise `InputError`."""
        import pyarrow as pa

        try:
            schema = pa.ipc.read_schema(pa.py_buffer(_decode(state["schema"])))
            check_names(schema.names, "the table")
            whole_names = [str(int(name)) for name in state["whole_names"]]
            if whole_names != state["whole_names"]:
                raise ValueError("whole_names must be integers")
            return cls(
                checks.choice("library", state["library"], LIBRARIES),
                schema,
                {name: str(dtype) for name, dtype in state["dtypes"].items()},
                {name: Categories.from_json(c) for name, c in state["categories"].items()},
                frozenset(whole_names),
                tuple((str(c), None if n is None else str(n)) for c, n in state["index"]),
            )
        except (
            KeyError, TypeError, AttributeError, ValueError, OSError, pa.ArrowException,
        ) as error:  # fmt: skip
            raise InputError(f"the kind of a table cannot be read ({error!r:.80}).") from error


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
