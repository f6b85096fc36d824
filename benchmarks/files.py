"""How fast `olss compress` is, against pyarrow reading the same columns, and what memory it takes.

    python benchmarks/files.py --gigabytes 5        # needs as much free disk, and some minutes

Prints ratios measured in one run. Every measurement is a process of its own.
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

    for part in ("steps", "engines", "dask_engine", "readers"):  # are imported when needed
        import_module(f"olss.files.{part}")

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


def table(folder: Path, gigabytes: float, cluster: bool) -> None:
    print(f"{gigabytes:g} GB, {os.cpu_count()} cores", flush=True)
    run("read", folder)  # fills the cache of the operating system
    once = run("read", folder)["seconds"]
    weighted = run("weighted", folder)["seconds"]
    reservoir = run("reservoir", folder)["seconds"]
    once = (once + run("read", folder)["seconds"]) / 2
    print(f"  two-pass leverage, share of the rate of reading twice: {2 * once / weighted:.0%}")
    print(f"  reservoir, share of the rate of reading once:          {once / reservoir:.0%}")
    if cluster:
        one, two = (run(f"weighted-{n}", folder)["seconds"] for n in (1, 2))
        print(f"  two Dask workers against one:                          {one / two:.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.5])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.folder)))
        return
    for gigabytes in options.gigabytes:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            generate(Path(folder), gigabytes)
            table(Path(folder), gigabytes, cluster=gigabytes == max(options.gigabytes))


if __name__ == "__main__":
    main()
