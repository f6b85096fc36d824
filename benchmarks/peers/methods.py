"""How each library keeps `size` rows: its fastest documented way, as a user would write it.

A method is a function of the rows, how many to keep and a seed. Libraries are imported inside, for
each lives in an environment of its own; they are loaded before the clock starts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .problems import Kept, Source

Keep = Callable[[Source, int, int], Kept]


@dataclass(frozen=True)
class Method:
    """One way of a library.

    Attributes
    ----------
    peer : str
        The library, whose environment it runs in.
    keep : function of source, size and seed
    by_columns : bool
        Whether it takes columns rather than rows.
    streams : bool
        Whether it can go without holding all rows at once.
    classes : bool
        Whether it needs to know the class of a row.
    """

    peer: str
    keep: Keep
    by_columns: bool = False
    streams: bool = True
    classes: bool = False


def reading(source: Source, size: int, seed: int) -> Kept:
    """Read all rows and keep none: what all times are measured against."""
    for _ in source.batches() if source.path else source.blocks():
        pass
    return Kept(np.empty((0, 1)))


def olss(policy: str, scores: str = "auto") -> Keep:
    """Keep rows by a policy; files are compressed, blocks update a sketch."""

    def keep(source: Source, size: int, seed: int) -> Kept:
        from olss import Sketch
        from olss.files import compress

        if source.path is None:
            sketch = Sketch(size, policy=policy, scores=scores, seed=seed)
            for X, y in source.blocks():
                sketch.update(X, y)
            rows, weight = sketch.X, sketch.weight
        else:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "out.parquet"
                compress(source.path, into=out, size=size, policy=policy, scores=scores, seed=seed)
                table = pq.read_table(out)
            rows, weight = _rows(table), table["olss_weight"].to_numpy()
        return Kept(rows, None if policy == "paper" else weight)  # whose weights are all 1

    return keep


def duckdb(source: Source, size: int, seed: int) -> Kept:
    """Keep a reservoir by SQL, from the file or from a stream of Arrow batches."""
    import duckdb

    with duckdb.connect(config={"threads": len(os.sched_getaffinity(0))}) as database:
        if source.path is None:
            batches = source.batches()
            first = next(batches)
            table = pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))
            database.register("rows", table)
        else:
            database.execute(f"CREATE VIEW rows AS FROM read_parquet('{source.path}')")
        sampled = database.sql(f"FROM rows USING SAMPLE reservoir({size} ROWS) REPEATABLE ({seed})")
        return Kept(np.column_stack(list(sampled.fetchnumpy().values())))


def polars(source: Source, size: int, seed: int) -> Kept:
    """Keep a sample of a frame that is held whole."""
    import polars as pl

    if source.path is None:
        frame = pl.concat([pl.from_arrow(batch) for batch in source.batches()])
    else:
        frame = pl.read_parquet(source.path)
    return Kept(frame.sample(size, seed=seed).to_numpy())


def pandas(source: Source, size: int, seed: int) -> Kept:
    """Keep the rows of the smallest random numbers, in three lines."""
    return Kept(pandas_frame(source, size, seed).drop(columns="key").to_numpy())


def pandas_frame(source: Source, size: int, seed: int) -> Any:
    """Return the rows of the smallest random numbers, with those numbers."""
    import pandas as pd

    rng, kept = np.random.default_rng(seed), []
    for batch in source.batches():
        block = batch.to_pandas().assign(key=rng.random(batch.num_rows))
        kept = [pd.concat([*kept, block]).nsmallest(size, "key")]
    return kept[0]


def varopt(source: Source, size: int, seed: int) -> Kept:
    """Keep rows by their squared length. There is no seed to give."""
    return varopt_rows(varopt_sketch(source, size))


def varopt_sketch(source: Source, size: int) -> Any:
    """Return a VarOpt sketch of rows as lists, each updated with its squared length."""
    from datasketches import var_opt_sketch

    sketch = var_opt_sketch(size)
    for X, _ in source.blocks():
        lengths = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        for row, length in zip(X.tolist(), lengths.tolist(), strict=True):
            sketch.update(row, length)
    return sketch


def varopt_rows(sketch: Any) -> Kept:
    """Return the rows of a VarOpt sketch: its weights are of squared lengths, made into counts."""
    rows, lengths = (np.array(part) for part in zip(*sketch, strict=True))
    return Kept(rows, lengths / (rows**2).sum(axis=1))


def apricot(source: Source, size: int, seed: int) -> Kept:
    """Keep rows by a feature-based function; streams by its sieve. Features may not be negative."""
    from apricot import FeatureBasedSelection

    selector = FeatureBasedSelection(size, concave_func="sqrt", random_state=seed)
    if source.path is None and len(source.stored) > 1:
        for X, _ in source.blocks():
            selector.partial_fit(np.abs(X))
        return Kept(selector.subset[: len(selector.ranking)])
    X, _ = source.whole()
    selector.fit(np.abs(X))
    return Kept(X[selector.ranking])


def apricot_facility(source: Source, size: int, seed: int) -> Kept:
    """Keep rows by facility location, all rows being compared with all."""
    from apricot import FacilityLocationSelection

    X, _ = source.whole()
    selector = FacilityLocationSelection(size, metric="euclidean", random_state=seed)
    return Kept(X[selector.fit(X).ranking])


def farthest_points(source: Source, size: int, seed: int) -> Kept:
    """Keep the farthest point from those kept, again and again."""
    from skmatter.sample_selection import FPS

    X, _ = source.whole()
    selector = FPS(n_to_select=size, initialize="random", random_state=seed)
    return Kept(X[selector.fit(X).selected_idx_])


def cur(source: Source, size: int, seed: int) -> Kept:
    """Keep the rows of the largest leverage in the first singular vector, without recomputing."""
    from skmatter.sample_selection import CUR

    X, _ = source.whole()
    selector = CUR(n_to_select=size, recompute_every=0, random_state=seed)
    return Kept(X[selector.fit(X).selected_idx_])


def herding(source: Source, size: int, seed: int) -> Kept:
    """Keep rows by kernel herding, the kernel matrix in blocks; its MapReduce hung on one core."""
    import equinox
    from coreax.data import Data
    from coreax.solvers import KernelHerding

    X, _ = source.whole()
    solver = KernelHerding(size, kernel=_kernel(X), block_size=1_000)
    coreset, _ = equinox.filter_jit(solver.reduce)(Data(X))
    return Kept(np.asarray(coreset.points.data))


def cholesky(source: Source, size: int, seed: int) -> Kept:
    """Keep the pivots of a randomly pivoted Cholesky factor of the kernel matrix."""
    import equinox
    import jax
    from coreax.data import Data
    from coreax.solvers import RPCholesky

    X, _ = source.whole()
    solver = RPCholesky(size, random_key=jax.random.key(seed), kernel=_kernel(X))
    coreset, _ = equinox.filter_jit(solver.reduce)(Data(X))
    return Kept(np.asarray(coreset.points.data))


def _kernel(X: Any) -> Any:
    """Return a Gaussian kernel with the median distance of a thousand rows."""
    from coreax.kernels import SquaredExponentialKernel, median_heuristic

    rows = np.random.default_rng(0).choice(len(X), min(1_000, len(X)), replace=False)
    return SquaredExponentialKernel(length_scale=float(median_heuristic(X[rows])))


def avalanche(kind: str) -> Keep:
    """Keep rows in a buffer of Avalanche."""

    def keep(source: Source, size: int, seed: int) -> Kept:
        from .avalanche_buffers import buffer_of, rows_of, updated

        return rows_of(updated(buffer_of(kind, size, seed), source))

    return keep


def river(source: Source, size: int, seed: int) -> Kept:
    """Look for something that keeps a number of rows."""
    import pkgutil

    import river

    found = [m.name for m in pkgutil.walk_packages(river.__path__, "river.")]
    if named := [name for name in found if "reservoir" in name]:
        raise NotImplementedError(f"there is {named} now: add it here")
    raise NotImplementedError("has nothing that keeps a given number of rows")


def _rows(table: pa.Table) -> np.ndarray:
    columns = [name for name in table.column_names if not name.startswith("olss_")]
    return np.column_stack([table[name].to_numpy() for name in columns])


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


METHODS = {
    "reading alone": Method("olss", reading),
    "olss reservoir": Method("olss", olss("reservoir")),
    "olss weighted, exact": Method("olss", olss("weighted", "exact")),
    "olss weighted, sketched": Method("olss", olss("weighted", "sketched")),
    "olss paper": Method("olss", olss("paper")),
    "olss balanced": Method("olss", olss("balanced"), classes=True),
    "DuckDB reservoir": Method("duckdb", duckdb, by_columns=True),
    "polars sample": Method("polars", polars, by_columns=True, streams=False),
    "pandas, three lines": Method("pandas", pandas, by_columns=True),
    "DataSketches VarOpt": Method("datasketches", varopt),
    "apricot, features": Method("apricot", apricot),
    "apricot, facilities": Method("apricot", apricot_facility, streams=False),
    "scikit-matter FPS": Method("skmatter", farthest_points, streams=False),
    "scikit-matter CUR": Method("skmatter", cur, streams=False),
    "coreax, kernel herding": Method("coreax", herding, streams=False),
    "coreax, RPCholesky": Method("coreax", cholesky, streams=False),
    "Avalanche reservoir": Method("avalanche", avalanche("reservoir")),
    "Avalanche class-balanced": Method("avalanche", avalanche("class-balanced"), classes=True),
    "Avalanche herding": Method("avalanche", avalanche("herding"), classes=True),
    "river": Method("river", river),
}
