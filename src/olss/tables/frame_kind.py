"""What a table was before it became Arrow columns, so that rows can be handed out as they came in.

A `FrameKind` records the library of a frame and, for each column, its Arrow type and the library's
own type where that holds more (pandas: nullable or not, strings in Python or Arrow, categories and
their order). It is stored as JSON in a sketch file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from olss.errors import DataError, InputError
from olss.tables.schema import as_type, have_same_keys, plain_type, value_type

OBJECT_NAN = "object[nan]"  # pandas' objects whose missing values are NaN, not None


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

    values: Any = field(metadata={"arrow": "array"})
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

    library: Literal["pyarrow", "pandas", "polars", "mapping"]
    schema: Any = field(metadata={"arrow": "schema"})
    dtypes: Mapping[str, str] = field(default_factory=dict)
    categories: Mapping[str, Categories] = field(default_factory=dict)
    whole_names: frozenset[str] = frozenset()
    index: tuple[tuple[str, str | None], ...] = ()

    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if any(str(int(name)) != name for name in self.whole_names):
            raise InputError("whole_names must be integers.")

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The Arrow fields by name."""
        return dict(zip(self.schema.names, self.schema, strict=True))

    def to_library(self, library: Any, table: Any) -> FrameKind:
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
