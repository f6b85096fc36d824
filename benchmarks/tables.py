"""What a mixed pandas frame costs on its way to scores and back, against reading it from Parquet.

    python benchmarks/tables.py            # some seconds

100,000 rows of 10 numbers, 6 texts, 2 dates and 2 categories; 10,000 of them are kept. The unit is
pyarrow reading the same rows from a Parquet file in memory, on one core. Each time is the best of
some, taken in turn with the unit, so that a noisy machine disturbs both alike.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from olss import Sketch
from olss.files import compress
from olss.memory.encoder import Encoder
from olss.memory.moments import SeenMoments
from olss.tables.encoder import fit_encoder
from olss.tables.frames import from_arrow, to_arrow
from olss.tables.schema import conform, unify_schemas
from olss.tables.scoring import TableRows, blocks, one_batch

ROWS, KEPT, SAMPLE, TIMES = 100_000, 10_000, 16_384, 7


def mixed_frame(rows: int) -> pd.DataFrame:
    """Return numbers with some gaps, texts of few and many values, dates, categories."""
    rng = np.random.default_rng(0)

    def words(different: int) -> Any:
        return rng.choice([f"value {i}" for i in range(different)], rows)

    numbers = {f"number {i}": rng.standard_normal(rows) for i in range(10)}
    numbers["number 0"][rng.random(rows) < 0.1] = np.nan
    texts = {f"text of {k}": words(k) for k in (3, 10, 30, 100, 500, 50_000)}
    start = pd.Timestamp("2026-01-01")
    dates = {
        f"date {i}": start + pd.to_timedelta(rng.integers(0, 10**7, rows), "s") for i in range(2)
    }
    categories = {f"category of {k}": pd.Categorical(words(k)) for k in (5, 40)}
    return pd.DataFrame(numbers | texts | dates | categories)


def ratio(function: Callable[[], Any], unit: Callable[[], Any]) -> float:
    """Return the best time of a function over that of the unit, run in turn."""
    taken: dict[Callable[[], Any], list[float]] = {unit: [], function: []}
    for _ in range(TIMES):
        for f, seconds in taken.items():
            start = time.perf_counter()
            f()
            seconds.append(time.perf_counter() - start)
    return min(taken[function]) / min(taken[unit])


def main() -> None:
    frame = mixed_frame(ROWS)
    table, kind = to_arrow(frame)
    file = io.BytesIO()
    pq.write_table(table, file)
    turned = table.select(table.schema.names[::-1])
    plan = fit_encoder(table.slice(0, SAMPLE))
    batch, numbers = one_batch(table), Encoder(plan=plan)
    seen = numbers.accumulate(SeenMoments(), batch, np.ones(ROWS))
    scorer = numbers.scorer(seen, "exact", KEPT, 0)
    rows = np.sort(np.random.default_rng(1).choice(ROWS, KEPT, replace=False))
    kept = table.take(rows)

    def put_right() -> Any:
        return conform(
            turned, unify_schemas(table.schema, turned.schema, place="rows"), place="rows"
        )

    steps: dict[str, Callable[[], Any]] = {
        "pandas to Arrow columns": lambda: to_arrow(frame),
        "columns put in order by name": put_right,
        f"plan, decided on {SAMPLE:,} rows": lambda: fit_encoder(table.slice(0, SAMPLE)),
        "columns as NumPy arrays": lambda: plan.encode(batch),
        f"... as {plan.width} numbers a row": lambda: [None for _ in blocks(plan, batch)],
        "... and their Gram matrix": lambda: SeenMoments().update(TableRows(plan, batch)),
        "... or their scores": lambda: scorer(batch),
        f"{KEPT:,} rows taken": lambda: table.take(rows),
        f"{KEPT:,} rows back to pandas": lambda: from_arrow(kept, kind),
    }
    shown = Table("step", "times reading from Parquet")
    with threadpool_limits(1):
        for name, step in steps.items():
            shown.add_row(
                name, f"{ratio(step, lambda: pq.read_table(file, use_threads=False)):.3f}"
            )
    Console().print(shown)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "rows.parquet", Path(folder) / "out.parquet"
        path.write_bytes(file.getvalue())
        found = ratio(
            lambda: len(Sketch(KEPT, seed=0).update(frame)),
            lambda: compress(path, into=out, size=KEPT, seed=0, fresh=True),
        )
    Console().print(f"update of the frame takes {found:.2f} times compress of the same rows")


if __name__ == "__main__":
    main()
