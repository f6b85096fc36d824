"""Values as JSON and back: dataclasses, arrays and Arrow data, by the types of their fields."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
from numpy.typing import NDArray

from olss.errors import FormatError

MAX_ITEMS = 10_000_000  # longer than any list olss writes
# What damaged JSON raises where it is decoded; an error of Arrow is one of these.
DECODE_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    OverflowError,
    OSError,
    NotImplementedError,
    RecursionError,
)
CLASS = "class"  # the entry with the name of a class
ARRAY, ARROW = "__array__", "__arrow__"  # and those with the dtype of an array, and what Arrow is


def to_json(value: Any) -> Any:
    """Return a value as JSON, from which `from_json` restores it.

    Dataclasses become objects; arrays and Arrow data are written in base64. Metadata of a field say
    what its type does not: ``saved=False`` (not written), ``symmetric=True`` (of a matrix, one
    triangle is written), ``finite=False`` (an array may hold NaN), and of Arrow data ``arrow=`` one
    of "schema", "table", "array". An object of another class has methods `state`, which returns a
    dictionary, and `from_state`.

    Examples
    --------
    >>> content = to_json({"edges": (1.5, 2.5), "counts": np.array([3, 4])})
    >>> found = from_json(dict[str, Any], content)
    >>> found["edges"], found["counts"]
    ([1.5, 2.5], array([3, 4]))
    """
    if hasattr(value, "from_state"):
        return {CLASS: type(value).__name__, "state": to_json(value.state())}
    if is_dataclass(value):
        content = {CLASS: type(value).__name__}
        for entry in _saved_fields(value.__class__):
            part = getattr(value, entry.name)
            if entry.metadata.get("symmetric"):
                part = part[np.tril_indices(len(part))]
            content[entry.name] = to_json(part)
        return content
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).data).decode()
        return {ARRAY: value.dtype.str, "shape": list(value.shape), "data": data}
    if type(value).__module__.startswith("pyarrow"):
        return _arrow_to_json(value)
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return value.item() if isinstance(value, np.generic) else value


def from_json(kind: Any, content: Any, place: str = "it") -> Any:
    """Return the value of a type that `to_json` wrote, or raise `FormatError` naming the entry.

    Types and sizes are checked, and numbers must be finite. `place` is the file, for messages.

    Examples
    --------
    >>> from_json(tuple[int, ...], [1, 2.5], "a.parquet")
    Traceback (most recent call last):
    olss.errors.FormatError: a.parquet has damaged metadata: [1] must be int, found 2.5. Restore the
    file from a copy, or create it again.
    """
    try:
        return _decode(kind, content, "")
    except FormatError:
        raise
    except DECODE_ERRORS as error:
        raise damage_error(place, error) from error


def damage_error(place: object, reason: object) -> FormatError:
    """Return the error to raise for damaged metadata."""
    return FormatError(
        f"{place} has damaged metadata: {reason}. Restore the file from a copy, or create it again."
    )


def _decode(kind: Any, content: Any, name: str) -> Any:
    if kind is Any:
        return _decode_any(content)
    origin, args = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        if content is None and NoneType in args:
            return None
        kinds = [arg for arg in args if arg is not NoneType]
        for arg in kinds[:-1]:
            with suppress(*DECODE_ERRORS):
                return _decode(arg, content, name)
        return _decode(kinds[-1], content, name)
    if origin is np.ndarray:
        return _decode_array(content, name)
    if origin in (dict, Mapping) and isinstance(content, dict):
        return {key: _decode(args[1], item, f"{name}.{key}") for key, item in content.items()}
    if is_dataclass(origin) or (isinstance(content, dict) and CLASS in content):
        return _decode_object(origin, content, name)
    if is_typeddict(kind) and isinstance(content, dict):
        here = {key: hint for key, hint in _hints(kind).items() if key in content}
        if not here.keys() >= kind.__required_keys__:
            raise ValueError(f"{name.lstrip('.')} lacks one of {', '.join(_hints(kind))}")
        return {key: _decode(hint, content[key], f"{name}.{key}") for key, hint in here.items()}
    if origin in (tuple, list, frozenset) and _is_list(content):
        same = origin is not tuple or args[-1] is ...
        kinds = [args[0]] * len(content) if same else list(args)
        if len(kinds) != len(content):
            raise ValueError(f"{name.lstrip('.')} must have {len(kinds)} entries")
        pairs = enumerate(zip(kinds, content, strict=True))
        return origin(_decode(arg, item, f"{name}[{i}]") for i, (arg, item) in pairs)
    if origin is Literal and isinstance(content, str) and content in args:
        return content
    if origin is float and type(content) in (int, float) and abs(content) <= sys.float_info.max:
        return float(content)
    if origin in (bool, str) and type(content) is origin:
        return content
    if origin is int and type(content) is int and abs(content) < 2**63:
        return content
    wanted = " or ".join(map(repr, args)) if origin is Literal else getattr(kind, "__name__", kind)
    raise ValueError(f"{name.lstrip('.')} must be {wanted}, found {_shorten(content)}")


def _decode_object(kind: Any, content: Any, name: str) -> Any:
    """Return an object of a class, or of one of its subclasses."""
    found = _subclasses(kind).get(content.get(CLASS, "")) if isinstance(content, dict) else None
    if found is None:
        raise ValueError(f"{name.lstrip('.')} must be {kind.__name__}, found {_shorten(content)}")
    if hasattr(found, "from_state"):
        return found.from_state(_decode(dict[str, Any], content["state"], name))
    values = {}
    for entry in _saved_fields(found):
        place = f"{name}.{entry.name}"
        if entry.name not in content:
            raise ValueError(f"{place.lstrip('.')} is missing")
        value = content[entry.name]
        if "finite" in entry.metadata:
            value = _decode_array(value, place, finite=entry.metadata["finite"])
        elif "arrow" in entry.metadata and not (value is None is entry.default):
            if not isinstance(value, dict) or value.get(ARROW) != entry.metadata["arrow"]:
                raise ValueError(f"{place.lstrip('.')} must be Arrow data, found {_shorten(value)}")
            value = _arrow_from_json(value)
        else:
            value = _decode(_hints(found)[entry.name], value, place)
        values[entry.name] = _to_symmetric(value) if "symmetric" in entry.metadata else value
    return found(**values)


def _decode_any(content: Any) -> Any:
    if isinstance(content, list):
        return [_decode_any(item) for item in content]
    if not isinstance(content, dict):
        return content
    if ARROW in content:
        return _arrow_from_json(content)
    if ARRAY in content:
        return _decode_array(content, "array")
    return {key: _decode_any(item) for key, item in content.items()}


def _decode_array(content: Any, name: str, *, finite: bool = True) -> NDArray[Any]:
    if (
        not isinstance(content, dict)
        or not content.keys() >= {ARRAY, "shape", "data"}
        or content[ARRAY] not in ("<f8", "<f4", "<i8", "|b1")
    ):
        raise ValueError(f"{name.lstrip('.')} must be an array, found {_shorten(content)}")
    data = base64.b64decode(content["data"], validate=True)
    array = np.frombuffer(data, content[ARRAY]).reshape(content["shape"]).copy()
    if finite and not np.isfinite(array).all():
        raise ValueError(f"{name.lstrip('.')} holds numbers that are not finite")
    return array


def _to_symmetric(triangle: NDArray[Any]) -> NDArray[Any]:
    """Return the matrix whose lower triangle, row by row, is given."""
    n = int(np.sqrt(2 * triangle.size))
    matrix = np.zeros((n, n))
    matrix[np.tril_indices(n)] = triangle
    return matrix + np.tril(matrix, -1).T


def _arrow_to_json(value: Any) -> dict[str, str]:
    """Return a schema, a table or an array of Arrow in base64, as an Arrow stream."""
    import pyarrow as pa

    if isinstance(value, pa.Schema):
        return {ARROW: "schema", "data": base64.b64encode(value.serialize()).decode()}
    kind = "table" if isinstance(value, pa.Table) else "array"
    table = value if kind == "table" else pa.table({"values": value})
    sink, options = pa.BufferOutputStream(), pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return {ARROW: kind, "data": base64.b64encode(sink.getvalue()).decode()}


def _arrow_from_json(content: Any) -> Any:
    import pyarrow as pa

    data = base64.b64decode(content["data"], validate=True)
    if content[ARROW] == "schema":
        return pa.ipc.read_schema(pa.py_buffer(data))
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table if content[ARROW] == "table" else table.column("values").combine_chunks()


@cache
def _saved_fields(kind: type) -> tuple[Field[Any], ...]:
    return tuple(entry for entry in fields(kind) if entry.metadata.get("saved", True))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _subclasses(kind: type[Any]) -> dict[str, type]:
    found = {kind.__name__: kind}
    for sub in kind.__subclasses__():
        found |= _subclasses(sub)
    return found


def _is_list(content: Any) -> bool:
    return isinstance(content, list) and len(content) <= MAX_ITEMS


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
