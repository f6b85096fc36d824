"""One machine, Dask and Spark on the same Parquet files: ``python -m benchmarks.cluster [--gb 4]``.

Two cores each: threads of one process, two Dask workers, and Spark in local[2]. Starting workers
is not part of what is measured; for Spark the first of two runs starts them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.goals import parquet

SETTINGS: dict[str, Any] = {"size": 10_000, "seed": 0}


def on_threads(folder: Path) -> float:
    """Return the seconds of `olss.compress`."""
    from olss import compress

    start = time.perf_counter()
    compress(folder, into=folder.parent / "threads.parquet", **SETTINGS)
    return time.perf_counter() - start


def on_dask(folder: Path) -> float:
    """Return the seconds of `olss.compress` with two workers."""
    from distributed import LocalCluster

    from olss import compress

    options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
    with LocalCluster(n_workers=2, **options) as local:
        start = time.perf_counter()
        into = folder.parent / "dask.parquet"
        compress(folder, into=into, scheduler=local.scheduler_address, **SETTINGS)
        return time.perf_counter() - start


def on_spark(folder: Path) -> float:
    """Return the seconds of `olss.spark.sketch`, of the second of two runs."""
    from pyspark.sql import SparkSession

    import olss.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    with builder.config("spark.driver.memory", "4g").getOrCreate() as spark:
        df = spark.read.parquet(str(folder))
        olss.spark.sketch(df.limit(1_000), **SETTINGS)
        start = time.perf_counter()
        olss.spark.sketch(df, **SETTINGS)
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=4.0)
    gigabytes = parser.parse_args().gb
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; 64 float32 columns, two passes")
    with parquet(int(gigabytes * 3_900_000), 64, max(2, int(4 * gigabytes))) as folder:
        size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
        ways = {"threads": on_threads, "two Dask workers": on_dask, "Spark local[2]": on_spark}
        for name, run in ways.items():
            seconds = run(folder)
            print(f"{name:20} {seconds:7.1f} s  {2 * size / seconds / 1e9:5.2f} GB/s", flush=True)


if __name__ == "__main__":
    main()
