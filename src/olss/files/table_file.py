"""The result as one Parquet file: a table for everybody, with the state to go on with.

The table has the original columns and types, and `olss_weight`, `olss_task`, `olss_source` and
`olss_row`. The state is JSON under the key ``olss_table`` of the file's metadata; the Gram matrix
is in it as text. Nothing in the file is ever executed.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from olss.common.whole_file import whole_file
from olss.core.gram import Gram
from olss.errors import FormatError
from olss.files.parts import ROW, SOURCE, TASK, WEIGHT

__all__ = ["FORMAT", "KEY", "ORIGIN", "TASK", "WEIGHT", "State", "is_sketch", "read", "write"]

FORMAT = 1
KEY = b"olss_table"
ORIGIN = (WEIGHT, TASK, SOURCE, ROW)


@dataclass
class State:
    """What is known of a result besides its rows.

    Attributes
    ----------
    settings : dict
        policy, scores, size, target, task, columns, exclude, intercept.
    plan : dict or None
        See `olss.tables.plan.Plan`; None for policies without scores.
    gram : Gram or None
        Of everything seen.
    seed : int
    classes : bool
        Whether the target is a class.
    history : list of dict
        A line a file taken in: address, bytes, fingerprint, rows, run.
    seen, runs : int
    """

    settings: dict[str, Any]
    plan: dict[str, Any] | None
    gram: Gram | None
    seed: int
    classes: bool
    history: list[dict[str, Any]] = field(default_factory=list)
    seen: int = 0
    runs: int = 0

    def uses(self) -> list[tuple[str, str, str]]:
        """Return (name, use, reason) for each column; nothing if none is scored."""
        from olss.tables.plan import Plan
        from olss.tables.scoring import variable

        if self.plan is None or self.gram is None:
            return []
        plan = Plan.from_json(self.plan)
        return plan.uses(variable(plan, self.gram))


def write(path: Path, table: Any, state: State) -> None:
    """Write the file whole or not at all: beside its place, then moved there in one step."""
    import pyarrow.parquet as pq

    content = {
        "format": FORMAT,
        **{name: value for name, value in vars(state).items() if name != "gram"},
        "gram": None if state.gram is None else _pack(state.gram),
    }
    table = table.replace_schema_metadata({KEY: json.dumps(content)})
    with whole_file(path) as file:
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def read(path: Path) -> tuple[Any, State]:
    """Return the table, without its metadata, and the state."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise FileNotFoundError(2, "there is no such file", str(path))
    try:
        table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(
            f"{path} is not a whole Parquet file ({str(error).splitlines()[0]}); it is damaged, "
            "truncated or of another kind. Choose another name, or start over with --fresh."
        ) from error
    metadata = table.schema.metadata or {}
    if KEY not in metadata:
        raise FormatError(
            f"{path} is a Parquet file, but not one that olss compress made. Choose another name "
            "for the result, or start over with --fresh, which replaces it."
        )
    state = _state(path, metadata[KEY])
    for name in ORIGIN:
        if name not in table.schema.names:
            raise FormatError(f"{path} lacks its column {name}: another program has changed it.")
    return table.replace_schema_metadata(None), state


def is_sketch(path: Path) -> bool:
    """Whether a file is one of `olss.Sketch.save`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return b"olss" in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False


def _state(path: Path, text: bytes) -> State:
    try:
        content: dict[str, Any] = json.loads(text)
        version = int(content.pop("format"))
        if version > FORMAT:
            raise FormatError(
                f"{path} is of format {version}, this olss reads up to {FORMAT}; "
                "install a newer olss: pip install --upgrade olss"
            )
        packed = content.pop("gram")
        return State(**content, gram=None if packed is None else _unpack(packed))
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path} has damaged metadata ({error!r}).") from error


def _pack(gram: Gram) -> dict[str, Any]:
    """Return a Gram matrix as JSON: its upper triangle, compressed, as text."""
    triangle = gram.matrix[np.triu_indices(gram.columns)].astype("<f8")
    text = base64.b64encode(zlib.compress(triangle.tobytes())).decode()
    return {"columns": gram.columns, "rows": gram.rows, "triangle": text}


def _unpack(packed: dict[str, Any]) -> Gram:
    d = int(packed["columns"])
    values = np.frombuffer(zlib.decompress(base64.b64decode(packed["triangle"])), "<f8")
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = values
    gram = Gram()
    gram.matrix = matrix + np.triu(matrix, 1).T
    gram.rows = int(packed["rows"])
    gram.weight = float(gram.rows)
    return gram
