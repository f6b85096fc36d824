"""The waits users notice, each beside its yardstick and its goal, in one table.

    python -m benchmarks.goals                 # all; some minutes on an idle machine, 6 GB of disk
    python -m benchmarks.goals blocks help     # some of them; --list names them

Every measurement is a process of its own. Ratios compare the best of several repetitions that are
taken in turn with their yardstick. With --cpu, processor time is taken, with that of child
processes, instead of wall-clock time: it is less sensitive to other load. DuckDB, Dask and the data
sets are needed where they are named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Row = tuple[str, float, str, float]  # what, measured, "<=" or ">=", goal

ROUNDS = 5


def cpu_seconds() -> float:
    """Return the processor time of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


clock = time.perf_counter


def best_of(actions: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the least seconds of each action; they are taken in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            start = clock()
            action()
            seconds[name].append(clock() - start)
    return {name: min(taken) for name, taken in seconds.items()}


def blocks() -> list[Row]:
    """1,000 blocks of 10,000 x 20 into 10,000 rows, one thread, CPU time; and 10^5 single rows."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    from olss import Sketch

    rng = np.random.default_rng(0)
    some = [rng.standard_normal((10_000, 20), dtype=np.float32) for _ in range(20)]
    rows = rng.standard_normal((100_000, 1, 20))
    found = []
    with threadpool_limits(1):
        for count, parts in ((10_000_000, some * 50), (100_000, list(rows))):
            sketch = Sketch(10_000, seed=0)
            half, marks = len(parts) // 2, [time.process_time()]
            for stretch in (parts[:half], parts[half:]):
                for part in stretch:
                    sketch.update(part)
                marks.append(time.process_time())
            first, second = (marks[1] - marks[0], marks[2] - marks[1])
            found.append((1e6 * (first + second) / count, second / first))
    return [
        ("stream of blocks, us a row", found[0][0], "<=", 0.2),
        ("... second half by first", found[0][1], "<=", 1.1),
        ("single rows, us a row", found[1][0], "<=", 5),
    ]


def update() -> list[Row]:
    """60,000 x 784 into 60,000, in units of a float32 product."""
    rows = []
    for scores, goal in (("auto", 1.0), ("sketched", 0.5)):
        command = [sys.executable, "benchmarks/sketch.py", "--case", "weighted", scores]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        name = "sketched scores" if scores == "sketched" else "exact scores"
        rows.append((f"weighted update, {name}, GEMM", float(out.split()[1]), "<=", goal))
    return rows


def mixed() -> list[Row]:
    """Update a full sketch with a mixed table of 100,000 x 20, on one core."""
    import io

    import pyarrow.parquet as pq
    from benchmarks.tables import mixed_frame
    from threadpoolctl import threadpool_limits

    from olss import Sketch
    from olss.tables.frames import to_arrow

    table, _ = to_arrow(mixed_frame(100_000))
    file = io.BytesIO()
    pq.write_table(table, file)
    with threadpool_limits(1):
        full = Sketch(10_000, seed=0).update(table)
        seconds = best_of(
            {
                "read": lambda: pq.read_table(io.BytesIO(file.getvalue()), use_threads=False),
                "update": lambda: full.copy().update(table),
                "copy": lambda: full.copy(),
            }
        )
    return [
        (
            "mixed table update, reads",
            (seconds["update"] - seconds["copy"]) / seconds["read"],
            "<=",
            2.5,
        )
    ]


def targets() -> list[Row]:
    """Update a full sketch with rows and their targets, by the same without, on one core."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    from olss import Sketch

    found: list[Row] = []
    rng = np.random.default_rng(0)
    for rows, columns in ((100_000, 20), (20_000, 784)):
        X = rng.standard_normal((rows, columns), dtype=np.float32)
        kinds = {"none": None, "numbers": rng.standard_normal(rows), "ten classes": None}
        kinds["ten classes"] = rng.integers(0, 10, rows)
        with threadpool_limits(1):
            full = {kind: Sketch(10_000, seed=0).update(X, y) for kind, y in kinds.items()}
            seconds = best_of(
                {
                    kind: lambda sketch=full[kind], X=X, y=y: sketch.copy().update(X, y)
                    for kind, y in kinds.items()
                }
            )
        for kind in ("numbers", "ten classes"):
            name = f"{columns} columns with {kind} by without"
            found.append((name, seconds[kind] / seconds["none"], "<=", 1.1))
    return found


@contextmanager
def parquet(rows: int, columns: int, files: int) -> Iterator[Path]:
    """Generate float32 Parquet files whose columns are correlated, differently in each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name) / "in", np.random.default_rng(0)
        folder.mkdir()
        for number in range(files):
            mixing = rng.standard_normal((columns, columns), dtype=np.float32)
            X = mixing @ rng.standard_normal((columns, rows // files), dtype=np.float32)
            table = pa.table({f"x{j:02d}": X[j] for j in range(columns)})
            path = folder / f"part-{number:03d}.parquet"
            pq.write_table(table, path, row_group_size=250_000, use_dictionary=False)
        yield folder


def files() -> list[Row]:
    """1 GB of Parquet, two passes and one, against reading it."""
    import pyarrow.parquet as pq

    from olss import Sketch, compress

    with parquet(3_900_000, 64, 4) as folder:
        out = folder.parent

        def read() -> None:
            for path in sorted(folder.glob("*.parquet")):
                for _ in pq.ParquetFile(path).iter_batches(batch_size=65_536):
                    pass

        def run(passes: int, policy: str = "weighted") -> None:
            settings: dict[str, Any] = {"size": 10_000, "passes": passes, "policy": policy}
            into = out / f"{policy}-{passes}.parquet"
            compress(folder, into=into, **settings, seed=0, fresh=True)

        read()
        ways = {"reservoir": lambda: run(1, "reservoir"), "one": lambda: run(1)}
        seconds = best_of({"read": read, **ways, "two": lambda: run(2)})
        error = [Sketch.load(out / f"weighted-{n}.parquet").error().relative for n in (1, 2)]
    return [
        (
            "compress, 2 passes, share of two reads",
            2 * seconds["read"] / seconds["two"],
            ">=",
            0.75,
        ),
        ("compress, 1 pass, share of one read", seconds["read"] / seconds["one"], ">=", 0.75),
        ("certificate, 1 pass by 2 passes", error[0] / error[1], "<=", 1.3),
        ("reservoir, share of one read", seconds["read"] / seconds["reservoir"], ">=", 0.75),
    ]


def command() -> list[Row]:
    """Run the whole command on 3.2 million x 20, against DuckDB's USING SAMPLE reservoir."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with parquet(3_200_000, 20, 4) as folder:
        source, out = folder / "*.parquet", folder.parent
        query = (
            f"copy (from '{source}' using sample reservoir(10000 rows) repeatable (0)) "
            f"to '{out / 'duck.parquet'}' (format parquet)"
        )

        def own(policy: str) -> Callable[[], Any]:
            options = ["--into", str(out / "own.parquet"), "--size", "10000", "--policy", policy]
            words = [sys.executable, "-m", "olss", "compress", str(folder), *options, "--fresh"]
            return lambda: subprocess.run(words, check=True, capture_output=True)

        theirs = [sys.executable, "-c", f'import duckdb; duckdb.execute("{query}")']
        seconds = best_of(
            {
                "duckdb": lambda: subprocess.run(theirs, check=True, capture_output=True),
                "reservoir": own("reservoir"),
                "weighted": own("weighted"),
            }
        )
    return [
        ("command, reservoir, by DuckDB's", seconds["reservoir"] / seconds["duckdb"], "<=", 1.7),
        ("command, weighted, by DuckDB's", seconds["weighted"] / seconds["duckdb"], "<=", 2.5),
    ]


def daily() -> list[Row]:
    """One more daily file when 944 are in; bytecode is cached."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as name:
        folder, rng = Path(name) / "in", np.random.default_rng(0)
        folder.mkdir()

        def write(day: int) -> None:
            X = rng.standard_normal((1_000, 10))
            kind = rng.choice(["a", "b", "c"], 1_000)
            table = pa.table({f"x{j}": X[:, j] for j in range(10)} | {"kind": kind})
            pq.write_table(table, folder / f"day-{day:04d}.parquet")

        for day in range(944):
            write(day)
        words = [sys.executable, "-m", "olss", "compress", str(folder)]
        words += ["--into", str(Path(name) / "out.parquet")]
        subprocess.run([*words, "--size", "5000"], check=True, capture_output=True)
        seconds = []
        for day in range(944, 944 + ROUNDS):
            write(day)
            start = clock()
            subprocess.run(words, check=True, capture_output=True)
            seconds.append(clock() - start)
    return [("one more daily file, s", min(seconds), "<=", 1.0)]


def start() -> list[Row]:
    """`olss --help`, and `olss compress` until it looks for its input; bytecode is cached."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    words = [sys.executable, "-m", "olss"]
    missing = [*words, "compress", "no-such-file.parquet", "--into", "x.parquet", "--size", "5"]
    with tempfile.TemporaryDirectory() as folder:
        seconds = best_of(
            {
                "python": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
                "help": lambda: subprocess.run([*words, "--help"], check=True, capture_output=True),
                "compress": lambda: subprocess.run(missing, cwd=folder, capture_output=True),
            },
            9,
        )
    return [
        ("olss --help, s", seconds["help"], "<=", 0.35),
        ("olss compress, to the first look at a file, s", seconds["compress"], "<=", 0.35),
        ("(python -c '', s)", seconds["python"], "<=", 0.35),
    ]


def cluster() -> list[Row]:
    """Two Dask workers against one, 4 GB."""
    from distributed import LocalCluster

    from olss import compress

    with parquet(15_600_000, 64, 16) as folder:
        seconds = {}
        for workers in (1, 2):
            options = {"threads_per_worker": 1, "memory_limit": 0, "dashboard_address": None}
            with LocalCluster(n_workers=workers, **options) as local:
                into, address = folder.parent / "out.parquet", local.scheduler_address
                settings: dict[str, Any] = {"size": 10_000, "seed": 0, "fresh": True}
                seconds[workers] = min(
                    best_of(
                        {
                            "run": lambda into=into, address=address, settings=settings: compress(
                                folder, into=into, scheduler=address, **settings
                            )
                        },
                        2,
                    ).values()
                )
    return [("two Dask workers against one, 4 GB", seconds[1] / seconds[2], ">=", 1.7)]


def learners() -> list[Row]:
    """Learners of one epoch against a plain PyTorch loop."""
    goals = {"sgd": 1.05, "ewc": 1.3, "olss": 1.8, "olss, sketched scores": 1.35}
    words = [sys.executable, "benchmarks/learners.py", "--rounds", "4", "--only", ";".join(goals)]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    ratios = dict(re.findall(r"^\| ([^|]+) \| ([\d.]+) \|", out, re.MULTILINE))
    return [
        (f"learner {name}, plain loop = 1", float(ratios[name]), "<=", goal)
        for name, goal in goals.items()
    ]


def demo() -> list[Row]:
    """`olss demo`, from start to report."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "olss", "demo", "--into", str(Path(folder) / "demo")]
        seconds = best_of(
            {"demo": lambda: subprocess.run(words, check=True, capture_output=True)}, 1
        )
    return [("olss demo, s", seconds["demo"], "<=", 40)]


def growth() -> list[Row]:
    """CPU time a row and memory, 10^6 to 10^8 rows; CPU time a number, 64 to 4,096 columns."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)

    def write(path: Path, rows: int, columns: int) -> None:
        names, chunk = [f"x{j}" for j in range(columns)], min(rows, 5_000_000 // columns)
        schema = pa.schema([(name, pa.float32()) for name in names])
        with pq.ParquetWriter(path, schema, use_dictionary=False) as file:
            for start in range(0, rows, chunk):
                shape = (columns, min(chunk, rows - start))
                X = rng.standard_normal(shape, dtype=np.float32)
                file.write_table(pa.Table.from_arrays([pa.array(x) for x in X], names))

    def measure(rows: int, columns: int, policy: str) -> tuple[float, float]:
        """Return CPU seconds and peak megabytes of the whole command."""
        with tempfile.TemporaryDirectory() as folder:
            source, into = Path(folder) / "in.parquet", Path(folder) / "out.parquet"
            write(source, rows, columns)
            words = [sys.executable, "-m", "olss", "compress", str(source), "--into", str(into)]
            words += ["--size", "5000", "--policy", policy, "--quiet"]
            _, status, used = os.wait4(subprocess.Popen(words).pid, 0)
            if status:
                raise RuntimeError(f"olss compress ended with status {status}")
            return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3

    small, middle, large = (measure(rows, 5, "weighted") for rows in (10**6, 10**7, 10**8))
    per_row = [(b[0] - a[0]) / 9 / n for a, b, n in ((small, middle, 1e6), (middle, large, 1e7))]
    found: list[Row] = [
        ("growth, us a row beyond 10^6 rows", 1e6 * per_row[0], "<=", 2.0),
        ("... beyond 10^7 rows, by that", per_row[1] / per_row[0], "<=", 1.1),
        ("... memory at 10^8 rows by 10^7", large[1] / middle[1], "<=", 1.1),
    ]
    base = measure(1_000, 16, "reservoir")[0]
    few, many = (measure(40_000_000 // d, d, "reservoir")[0] - base for d in (64, 4_096))
    found.append(("a number in 4,096 columns by 64, reservoir", many / few, "<=", 2.0))
    return found


def paths() -> dict[str, float]:
    """Return seconds of calls that use threads, on the cores that this process may use."""
    import numpy as np
    from benchmarks.tables import mixed_frame

    from olss import Sketch, compress, leverage_scores
    from olss.tables.frames import to_arrow

    rng = np.random.default_rng(0)
    few, narrow, wide = (
        rng.standard_normal(shape, dtype=np.float32)
        for shape in ((1_000, 20), (100_000, 20), (20_000, 500))
    )
    table, _ = to_arrow(mixed_frame(50_000))
    held = {
        name: Sketch(5_000, seed=0).update(rows)
        for name, rows in (("narrow", narrow), ("wide", wide), ("mixed", table))
    }
    with parquet(800_000, 20, 4) as folder:
        into = folder.parent / "out.parquet"
        settings: dict[str, Any] = {"into": into, "size": 5_000, "fresh": True}
        return best_of(
            {
                "100 scores of 1,000 x 20": lambda: [leverage_scores(few) for _ in range(100)],
                "scores of 20,000 x 500": lambda: leverage_scores(wide),
                "update, 100,000 x 20": lambda: held["narrow"].copy().update(narrow),
                "update, 20,000 x 500": lambda: held["wide"].copy().update(wide),
                "update, mixed table": lambda: held["mixed"].copy().update(table),
                "certificate, 500 columns": lambda: held["wide"].error(),
                "compress, 800,000 x 20": lambda: compress(folder, **settings),
            }
        )


def cores() -> list[Row]:
    """Run the same calls on one core and on two (Linux): none may be slower on two."""
    seconds = []
    for allowed in ({0}, {0, 1}):
        code = f"import os; os.sched_setaffinity(0, {allowed}); from benchmarks import goals; "
        code += "import json; print(json.dumps(goals.paths()))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        seconds.append(json.loads(done.stdout.splitlines()[-1]))
    one, two = seconds
    return [(f"{name}, one core by two", one[name] / two[name], ">=", 0.95) for name in one]


MEASUREMENTS: dict[str, Callable[[], list[Row]]] = {
    "blocks": blocks,
    "update": update,
    "mixed": mixed,
    "targets": targets,
    "files": files,
    "command": command,
    "daily": daily,
    "start": start,
    "cluster": cluster,
    "learners": learners,
    "demo": demo,
    "growth": growth,
    "cores": cores,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="processor time, not wall-clock time")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        if options.cpu:
            globals()["clock"] = cpu_seconds
        print(json.dumps(MEASUREMENTS[options.measure]()))
        return
    if options.list:
        for name, function in MEASUREMENTS.items():
            print(f"{name:10} {function.__doc__}")
        return
    load = os.getloadavg()[0]
    what = "processor time" if options.cpu else "wall-clock time"
    print(f"{what}, {os.cpu_count()} cores, load {load:.1f}\n")
    print(f"{'':48} {'measured':>9}  {'goal':>8}")
    for name in options.names or MEASUREMENTS:
        run = [sys.executable, "-m", "benchmarks.goals", "--measure", name]
        run += ["--cpu"] if options.cpu else []
        done = subprocess.run(run, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: failed: {(done.stderr.strip() or '?').splitlines()[-1]}")
            continue
        for what, value, sign, goal in json.loads(done.stdout.splitlines()[-1]):
            met = value <= goal if sign == "<=" else value >= goal
            print(
                f"{what:48} {value:9.2f}  {sign} {goal:5.2f}  {'' if met else 'missed'}", flush=True
            )


if __name__ == "__main__":
    main()
