"""Do one thing in this process, and print what came of it as JSON.

python -m benchmarks.peers.worker JSON
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from .environments import PEERS
from .lasting import LASTING
from .methods import METHODS
from .problems import PROBLEMS, Kept, Source, error, source_of

REPETITIONS = 50


def limited(seconds: float) -> None:
    """End this process, even inside a library, after so many seconds of work on all its cores."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Keep rows once: seconds after imports, memory beyond what was held, how good they are."""
    problem, method = PROBLEMS[job["problem"]], METHODS[job["method"]]
    source = source_of(problem, Path(job["data"]), method.by_columns)
    before = _status("VmRSS")
    limited(job["limit"])
    worked, start = time.process_time(), time.perf_counter()
    kept = method.keep(source, problem.size, 0)
    seconds, processor = time.perf_counter() - start, time.process_time() - worked
    limited(0)
    answer = {"seconds": seconds, "processor": processor, "kept": len(kept.rows)}
    answer["megabytes"] = _status("VmHWM") - before
    if len(kept.rows):
        gram = np.load(Path(job["data"]) / f"{Path(problem.file).stem}.npy")
        answer |= {"error": error(kept, problem.rows, gram), "rows": digest(kept)}
    return answer


def properties(job: dict[str, Any]) -> dict[str, Any]:
    """Keep rows of a small problem with many seeds; also in two parts."""
    problem, method = PROBLEMS["small"], METHODS[job["method"]]
    source = source_of(problem, Path(job["data"]), method.by_columns)
    total = float(sum(X[:, 0].sum(dtype=np.float64) for X, _ in source.stored))
    found, rows = [], []
    limited(job["limit"])
    for seed in range(REPETITIONS):
        kept = method.keep(source, problem.size, seed)
        found.append(estimate(kept, problem.rows) / total - 1)
        rows.append(digest(kept))
    lasts = lasting(job["method"], source, problem.size)
    return {"processor": time.process_time(), "off": found, "rows": rows, **lasts}


def lasting(name: str, source: Source, size: int) -> dict[str, Any]:
    """Say whether what was kept of two halves can be merged, and whether one can be continued."""
    answer = {"merged": False, "continued": False}
    half = len(source.stored) // 2
    halves = Source(None, source.stored[:half]), Source(None, source.stored[half:])
    for what, function in LASTING.get(name, {}).items():
        with tempfile.TemporaryDirectory() as folder:
            answer[what] = len(function(*halves, size, Path(folder)).rows) == size
    return answer


def estimate(kept: Kept, rows: int) -> float:
    """Return what the rows kept say the total of the first column is."""
    amount = kept.rows[:, 0].astype(np.float64)
    return float(amount.mean() * rows if kept.weight is None else amount @ kept.weight)


def digest(kept: Kept) -> str:
    """Return a name for the rows kept, in whatever order."""
    rows = np.ascontiguousarray(kept.rows, dtype=np.float32)
    return hashlib.sha256(b"".join(sorted(row.tobytes() for row in rows))).hexdigest()[:16]


def _status(what: str) -> float:
    """Return a number of megabytes that Linux tells of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1e3


def main() -> None:
    job = json.loads(sys.argv[1])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, random.sample(cores, min(job["cores"], len(cores))))
    resource.setrlimit(resource.RLIMIT_DATA, (int(job["gigabytes"] * 1e9),) * 2)
    try:
        for module in PEERS[METHODS[job["method"]].peer].modules:
            import_module(module)
        answer = (measure if job["what"] == "measure" else properties)(job)
    except NotImplementedError as failure:
        answer = {"reason": str(failure)}
    except Exception as failure:
        answer = {"reason": f"{type(failure).__name__}: {failure}"}
    print("\n" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
