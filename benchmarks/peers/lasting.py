"""What was kept of two halves of a stream: merged into one, or the first continued with the second.

Each function is given the halves, how many rows to keep and a folder, and returns what is kept of
both. A method that is not listed has no way to do it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import methods
from .problems import Kept, Source

Lasting = Callable[[Source, Source, int, Path], Kept]


def olss(policy: str, scores: str = "auto") -> dict[str, Lasting]:
    """Return how sketches are merged, where the policy can be, and continued from their file."""

    def updated(sketch: Any, source: Source) -> Any:
        for X, y in source.blocks():
            sketch.update(X, y)
        return sketch

    def new(size: int, seed: int) -> Any:
        from olss import Sketch

        return Sketch(size, policy=policy, scores=scores, seed=seed)

    def merged(first: Source, second: Source, size: int, folder: Path) -> Kept:
        one = updated(new(size, 0), first).merge(updated(new(size, 1), second))
        return Kept(one.X, one.weight)

    def continued(first: Source, second: Source, size: int, folder: Path) -> Kept:
        from olss import Sketch

        updated(new(size, 0), first).save(folder / "sketch.parquet")
        sketch = updated(Sketch.load(folder / "sketch.parquet"), second)
        return Kept(sketch.X, sketch.weight)

    if policy == "paper":  # says so when asked to merge
        return {"continued": continued}
    return {"merged": merged, "continued": continued}


def pandas_merged(first: Source, second: Source, size: int, folder: Path) -> Kept:
    """Unite two reservoirs: the rows of the smallest numbers of both."""
    import pandas as pd

    parts = [methods.pandas_frame(half, size, seed) for seed, half in enumerate((first, second))]
    return Kept(pd.concat(parts).nsmallest(size, "key").drop(columns="key").to_numpy())


def pandas_continued(first: Source, second: Source, size: int, folder: Path) -> Kept:
    """Write the first reservoir with its numbers, and read it again."""
    import pandas as pd

    methods.pandas_frame(first, size, 0).to_parquet(folder / "kept.parquet")
    again = methods.pandas_frame(second, size, 1)
    parts = [pd.read_parquet(folder / "kept.parquet"), again]
    return Kept(pd.concat(parts).nsmallest(size, "key").drop(columns="key").to_numpy())


def varopt_merged(first: Source, second: Source, size: int, folder: Path) -> Kept:
    """Unite two VarOpt sketches."""
    return _united(*(methods.varopt_sketch(half, size) for half in (first, second)))


def _united(one: Any, two: Any) -> Kept:
    from datasketches import var_opt_union

    union = var_opt_union(one.k)
    union.update(one)
    union.update(two)
    return methods.varopt_rows(union.get_result())


def varopt_continued(first: Source, second: Source, size: int, folder: Path) -> Kept:
    """Write a VarOpt sketch, read it again and unite it with one of the rest.

    An update of a sketch that was read fails in 5.2.0: "invariant violated when growing candidate
    set", whatever the items.
    """
    from datasketches import PyObjectSerDe, var_opt_sketch

    class Rows(PyObjectSerDe):  # type: ignore[misc]
        """Rows as JSON, after their length."""

        def to_bytes(self, item: list[float]) -> bytes:
            text = json.dumps(item).encode()
            return len(text).to_bytes(4, "little") + text

        def get_size(self, item: list[float]) -> int:
            return len(self.to_bytes(item))

        def from_bytes(self, data: bytes, offset: int) -> tuple[list[float], int]:
            end = offset + 4 + int.from_bytes(data[offset : offset + 4], "little")
            return json.loads(data[offset + 4 : end]), end - offset

    (folder / "sketch").write_bytes(methods.varopt_sketch(first, size).serialize(Rows()))
    sketch = var_opt_sketch.deserialize((folder / "sketch").read_bytes(), Rows())
    return _united(sketch, methods.varopt_sketch(second, size))


def avalanche(kind: str) -> dict[str, Lasting]:
    """Return how a buffer is continued: pickled, as in Avalanche's checkpoints."""

    def continued(first: Source, second: Source, size: int, folder: Path) -> Kept:
        import dill

        from .avalanche_buffers import buffer_of, rows_of, updated

        path = folder / "buffer"
        path.write_bytes(dill.dumps(updated(buffer_of(kind, size, 0), first)))
        return rows_of(updated(dill.loads(path.read_bytes()), second))

    return {"continued": continued}


LASTING: dict[str, dict[str, Lasting]] = {
    "olss reservoir": olss("reservoir"),
    "olss weighted, exact": olss("weighted", "exact"),
    "olss weighted, sketched": olss("weighted", "sketched"),
    "olss paper": olss("paper"),
    "olss balanced": olss("balanced"),
    "pandas, three lines": {"merged": pandas_merged, "continued": pandas_continued},
    "DataSketches VarOpt": {"merged": varopt_merged, "continued": varopt_continued},
    "Avalanche reservoir": avalanche("reservoir"),
    "Avalanche class-balanced": avalanche("class-balanced"),
    "Avalanche herding": avalanche("herding"),
}
