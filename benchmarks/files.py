"""How fast `olss compress` is, against pyarrow reading the same columns, and what memory it takes.

    python benchmarks/files.py --gigabytes 5        # needs as much free disk, and some minutes

Prints ratios measured in one run; `--only weighted`, `reservoir` or `cluster` measures one. Every
measurement is a process of its own; times compared are the best of `--rounds`, taken in turn.

    python benchmarks/files.py --gigabytes 0.256 --duckdb PYTHON

compares a `reservoir` of 10,000 rows with DuckDB's, both from the start of the process to the file
written, best of five in turn; PYTHON is an interpreter that has duckdb.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

COLUMNS = 64
FILE_ROWS = 1_000_000


def generate(folder: Path, gigabytes: float) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    left = int(gigabytes * 1e9 / (4 * COLUMNS))
    number = 0
    while left:
        n = min(left, FILE_ROWS)
        mixing = rng.standard_normal((COLUMNS, COLUMNS), dtype=np.float32)
        X = mixing @ rng.standard_normal((COLUMNS, n), dtype=np.float32)
        table = pa.table({f"x{j:02d}": X[j] for j in range(COLUMNS)})
        path = folder / f"part-{number:03d}.parquet"
        pq.write_table(table, path, row_group_size=250_000, use_dictionary=False)
        left, number = left - n, number + 1


def read(folder: Path) -> None:
    import pyarrow.parquet as pq

    for path in sorted(folder.glob("*.parquet")):
        for _ in pq.ParquetFile(path).iter_batches(batch_size=65_536):
            pass


@contextmanager
def started(workers: int) -> Iterator[str | None]:
    """Start Dask workers, which is not part of what is measured; yield the scheduler's address."""
    if not workers:
        yield None
        return
    from distributed import LocalCluster

    options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
    with LocalCluster(n_workers=workers, **options) as cluster:
        yield cluster.scheduler_address


def measure(what: str, folder: Path) -> dict[str, float]:
    """Do one thing in this process; seconds after imports, and peak memory."""
    from olss.files import compress

    import_module("pyarrow.parquet")  # is imported when needed

    policy, _, workers = what.partition("-")
    with tempfile.TemporaryDirectory() as out, started(int(workers or 0)) as scheduler:
        start = time.perf_counter()
        if what == "read":
            read(folder)
        else:
            compress(
                folder,
                into=Path(out) / "out.parquet",
                size=10_000,
                policy=policy,
                scheduler=scheduler,
                seed=0,
            )
        seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1e3
    return {"seconds": seconds, "megabytes": peak}


def run(what: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", what, "--folder", str(folder)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    print(f"  {what:12} {result['seconds']:7.2f} s  {result['megabytes']:5.0f} MB", flush=True)
    return result


def ratio(one: str, other: str, folder: Path, rounds: int) -> float:
    """Return how many times as long one thing takes as another, at their best."""
    seconds = [[run(what, folder)["seconds"] for what in (one, other)] for _ in range(rounds)]
    ours, theirs = map(min, zip(*seconds, strict=True))
    return ours / theirs


def table(folder: Path, gigabytes: float, only: str | None, rounds: int, cluster: bool) -> None:
    print(f"{gigabytes:g} GB, {os.cpu_count()} cores", flush=True)
    run("read", folder)  # fills the cache of the operating system
    for policy, passes in (("weighted", 2), ("reservoir", 1)):
        if only in (None, policy):
            share = passes * ratio("read", policy, folder, rounds)
            print(f"  {policy}: {share:.0%} of the rate of reading {passes} times")
    if only == "cluster" or (cluster and only is None):
        gain = ratio("weighted-1", "weighted-2", folder, rounds)
        print(f"  two Dask workers against one: {gain:.2f} x")


def against_duckdb(folder: Path, python: str) -> None:
    """Print what a uniform sample takes from the command line, and what DuckDB takes for it."""
    out = folder / "out"
    out.mkdir()
    source = folder / "*.parquet"
    query = (
        f"copy (from '{source}' using sample reservoir(10000 rows) repeatable (0)) "
        f"to '{out / 'duck.parquet'}' (format parquet)"
    )
    options = ["--into", str(out / "own.parquet"), "--size", "10000", "--policy", "reservoir"]
    own = [sys.executable, "-m", "olss", "compress", str(source), *options, "--seed", "0"]
    theirs = [python, "-c", f'import duckdb; duckdb.execute("{query}")']
    best = {"olss": 1e9, "duckdb": 1e9}
    for _ in range(6):  # the first fills the cache of the operating system
        for name, command in (("olss", [*own, "--fresh"]), ("duckdb", theirs)):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            best[name] = min(best[name], time.perf_counter() - start)
    print(f"  a uniform sample: {best['olss']:.2f} s, DuckDB {best['duckdb']:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.5])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=["weighted", "reservoir", "cluster"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--duckdb", metavar="PYTHON", help="compare a reservoir with DuckDB's")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.folder)))
        return
    for gigabytes in options.gigabytes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            generate(Path(folder), gigabytes)
            if options.duckdb:
                against_duckdb(Path(folder), options.duckdb)
                continue
            cluster = gigabytes == max(options.gigabytes)
            table(Path(folder), gigabytes, options.only, options.rounds, cluster)


if __name__ == "__main__":
    main()
