"""Sketches of Spark DataFrames: partitions are read by Spark, and only samples reach the driver.

`sketch` runs the passes of `olss.compress` with an engine that works on the executors. Each
partition yields its moments, then its sample; both are merged in groups of partitions on the
executors and then on the driver, in an order and with random numbers that depend on the partitions'
numbers alone. A task that is retried, or run twice by speculation, therefore changes nothing.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from olss.errors import DataError, InputError
from olss.files.chunks import ChunkContext, Partition
from olss.files.compress import Ticker, create_job, sample_inputs
from olss.files.engines import Merge, fold
from olss.files.inputs import SAMPLE_ROWS, Inputs
from olss.memory.rows import ORIGIN, RowStore
from olss.sketch import Sketch, create_sketch
from olss.tables.readers import BLOCK_ROWS, RowGroup, conform_batch
from olss.tables.sources import Source
from olss.util.threads import call_with_one_blas_thread

__all__ = ["sketch"]

GROUP = 32  # partitions whose results are merged before they are sent to the driver
RESULT = "number long, value binary"
SOURCE = Source("spark", "spark", 0, given=True)

Join = Callable[[tuple[int, ...], Any, Any], Any]
R = TypeVar("R")


def sketch(
    df: Any,
    size: int,
    *,
    target: str | None = None,
    task: str | None = None,
    seed: int | None = None,
    **settings: Any,
) -> Sketch:
    """Return a sketch of all rows of a Spark DataFrame, on the driver.

    The rows are sampled by the same law as with `olss.compress`. ``"weighted"`` reads the
    DataFrame twice: `cache` it if it is expensive to compute, or not deterministic.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
    size : int
        Rows to keep.
    target, task : str, optional
        The target column, and the one with the task; without it all rows are task 0.
    seed : int, optional
        Seed of the random numbers. The same rows are kept whenever the partitions are the same.
    **settings
        Any other setting of `olss.compress`. Rows of a DataFrame have no order: policies must be
        mergeable, and `half_life` and `window` need `time`.

    Returns
    -------
    Sketch
        It can be saved, continued by `update`, and merged with that of another DataFrame.
    """
    if not (hasattr(df, "mapInArrow") and hasattr(df, "toArrow")):
        raise InputError(
            f"df must be a DataFrame of PySpark 4 or newer, found {type(df).__name__}."
        )
    job = create_job(Path("spark.parquet"), {"size": size} | settings, target, task, seed)
    config = job.config
    if not config.policy.mergeable:
        raise InputError(
            f"policy {config.policy.name!r} needs rows in their order, and a DataFrame has none; "
            "use 'weighted', 'reservoir' or 'balanced'."
        )
    if config.forgets and config.time is None:
        raise InputError("half_life and window count rows, and a DataFrame has no order: set time.")
    with _explain():
        schema = df.limit(0).toArrow().schema
        sample = _PartitionRows.of(0, _read_sample(df))
        found = Inputs(schema, ((SOURCE, ""),), (sample,), ordered=False)
        state = sample_inputs(job, found, _SparkEngine(df), Ticker(None))
    rows = RowStore({name: state.rows[name] for name in state.rows if name not in ORIGIN})
    if task is None:
        rows = rows.with_columns({"task": np.zeros(len(rows), dtype=np.int64)})
        state = state.replace(task=0)
    return create_sketch(config, state.replace(rows=rows, files=(), runs=0))


@contextmanager
def _explain() -> Iterator[None]:
    """Raise an error of ours from an executor, which Spark wraps in its own, as `DataError`."""
    try:
        yield
    except Exception as error:
        ours = re.search(r"^olss\.errors\.\w+: (.+)", str(error), re.MULTILINE)
        if ours is None:
            raise
        raise DataError(ours[1]) from error


@dataclass(frozen=True)
class _PartitionRows(RowGroup):
    """The rows of a partition of the DataFrame, which can be read once."""

    batches: Any = field(default=(), repr=False)

    @classmethod
    def of(cls, number: int, batches: Any) -> _PartitionRows:
        """Return the rows that Spark gives as record batches."""
        return cls(SOURCE, number, None, 0, None, 0, batches=batches)

    @property
    def place(self) -> str:
        """The partition, for messages."""
        return f"partition {self.number}"

    def read(
        self, schema: Any, columns: Sequence[str] | None = None, most: int = BLOCK_ROWS
    ) -> Iterator[tuple[int, Any]]:
        """Yield (first row, record batch of at most `most` rows)."""
        import pyarrow as pa

        wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        start = 0
        for batch in self.batches:
            for at in range(0, batch.num_rows, most):
                part = batch.slice(at, most)
                yield start, conform_batch(part, wanted, self.place)
                start += part.num_rows


class _SparkEngine:
    """Processes the partitions of a DataFrame on its executors; see `olss.files.engines.Engine`."""

    def __init__(self, df: Any) -> None:
        self._df = df

    def reduce(
        self,
        work: Callable[..., R],
        merge: Merge[R],
        context: ChunkContext,
        partitions: Sequence[Partition],
    ) -> R:
        """Return what `work` finds in each partition, merged; the partitions are Spark's own."""
        results = self._df.mapInArrow(partial(_run, partial(work, context)), RESULT)
        join: Join = partial(merge, context)
        if self._df.rdd.getNumPartitions() > GROUP:
            from pyspark.sql import functions

            group = functions.floor(functions.col("number") / GROUP)
            # Spark looks at the signature: a partial function would not do.
            results = results.groupBy(group).applyInArrow(lambda t: _merge_group(join, t), RESULT)
        values = _values(results.toArrow())
        if not values:
            raise DataError("df has no partitions, and so no rows.")
        found: R = fold(values, lambda place, a, b: join((1, *place), a, b))
        return found


def _run(work: Callable[[Partition], Any], batches: Iterator[Any]) -> Iterator[Any]:
    """Process one partition; on an executor."""
    from pyspark import TaskContext

    task: Any = TaskContext.get()
    number = task.partitionId()
    partition = Partition(number, (_PartitionRows.of(number, batches),))
    found = call_with_one_blas_thread(lambda: work(partition), most=1)
    yield from _result(number, found).to_batches()


def _merge_group(join: Join, table: Any) -> Any:
    """Merge the results of a group of partitions; on an executor."""
    first = min(table.column("number").to_pylist())
    merged = fold(_values(table), lambda place, a, b: join((0, first, *place), a, b))
    return _result(first, merged)


def _result(number: int, value: Any) -> Any:
    import pyarrow as pa

    return pa.table({"number": [number], "value": [pickle.dumps(value)]})


def _values(table: Any) -> list[Any]:
    """Return the results in a table, by ascending number. They are our own, from this run."""
    return [pickle.loads(row["value"]) for row in table.sort_by("number").to_pylist()]


def _read_sample(df: Any) -> list[Any]:
    """Return the first rows of each partition, by which columns are encoded."""
    share = max(64, SAMPLE_ROWS // max(1, df.rdd.getNumPartitions()))
    batches: list[Any] = (
        df.mapInArrow(partial(_first_rows, share), df.schema).toArrow().to_batches()
    )
    return batches


def _first_rows(most: int, batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.slice(0, most)
        most -= min(most, batch.num_rows)
        if not most:
            return
