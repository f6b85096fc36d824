"""imbalanced-learn's under-samplers at equal rows: what they keep, their time and their memory.

Each sample is taken in a process of its own, ours too: an under-sampler is given all rows, as it
needs them; a sketch reads them from a file, a tenth at a time.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .records import add, done, read
from .samples import SAMPLES, UPDATES, judge
from .tables import CACHE, Rows, Table

SIZE = 3_000
LIMIT = 100  # seconds of processor time
GIGABYTES = 8
DETERMINISTIC = ("NearMiss-1", "NearMiss-2", "NearMiss-3")
SEEDS = {"RandomUnderSampler": range(3), "ClusterCentroids": range(3)}
OURS = tuple(sample.policy for sample in SAMPLES if "%" not in sample.policy)
PEERS = ("RandomUnderSampler", *DETERMINISTIC, "ClusterCentroids", "InstanceHardnessThreshold")
NAME, COSTS = "samplers", "sampler-costs"


def run(name: str, table: Table, models: list[str]) -> None:
    """Measure every sampler on a table, where that has not been done."""
    if find_spec("imblearn") is None:  # or each sampler would be recorded as one that fails
        raise SystemExit("imbalanced-learn is not installed: pip install imbalanced-learn")
    made = done(NAME, ("table", "policy", "seed", "model"))
    reasons = {
        (line["table"], line["policy"], line["seed"]): line["reason"] for line in read(COSTS)
    }
    folder = CACHE / "samplers"
    folder.mkdir(parents=True, exist_ok=True)
    for part, values in (("X", table.train.X), ("y", table.train.y)):
        values.tofile(folder / f"{name}-{part}.bin")
    for policy in (*OURS, *PEERS):
        for seed in SEEDS.get(policy, range(1)):
            path = folder / f"{name}-{policy}-{seed}.npz"
            key = (name, policy, str(seed))
            wanted = [model for model in models if (*key, model) not in made]
            if policy in OURS:  # whose models are in the other part
                wanted = []
            if key not in reasons:
                cost = _sample(name, table, policy, seed, path)
                add(COSTS, [cost])
                reasons[key] = cost["reason"]
            elif wanted and not reasons[key] and not path.exists():
                _sample(name, table, policy, seed, path)  # its cost is known, its rows are lost
            if reasons[key] or not wanted:
                continue
            with np.load(path) as found:
                kept = Rows(found["X"], found["y"])
            for model in wanted:
                head = {
                    "table": name, "policy": policy, "rows": len(kept), "seed": seed,
                    "model": model, "rare": int(kept.y.sum()),
                }  # fmt: skip
                add(NAME, judge(table, kept, None, model, seed, head))


def _sample(name: str, table: Table, policy: str, seed: int, path: Path) -> dict[str, Any]:
    """Take a sample in a process of its own; return what it cost, or why there is none."""
    job = {"table": name, "policy": policy, "seed": seed, "columns": table.train.X.shape[1]}
    command = [sys.executable, "-m", __spec__.name, json.dumps(job | {"path": str(path)})]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20 * LIMIT)
    answer = {"processor": "", "megabytes": "", "kept": "", "reason": ""}
    if ended.returncode == 0:
        answer |= json.loads(ended.stdout.splitlines()[-1])
    elif ended.returncode == -signal.SIGPROF:
        answer["reason"] = f"not done in {LIMIT} seconds of processor time"
    else:
        said = ended.stderr.strip().splitlines() or [f"killed by signal {-ended.returncode}"]
        answer["reason"] = said[-1][:100]
    print(f"{name}, {policy}, seed {seed}: {answer}", flush=True)
    return {"table": name, "policy": policy, "seed": seed, **answer}


def work(job: dict[str, Any]) -> None:
    """Take one sample; print its cost."""
    name, policy, seed = job["table"], job["policy"], job["seed"]
    X, y = (CACHE / "samplers" / f"{name}-{part}.bin" for part in "Xy")
    sampler = None if policy in OURS else _sampler(policy, seed)
    before = _megabytes("VmRSS")
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    resource.setrlimit(resource.RLIMIT_DATA, (int(GIGABYTES * 1e9),) * 2)
    start = time.process_time()
    if sampler is None:
        kept = _stream(policy, seed, X, y, job["columns"])
    else:
        rows = Rows(np.fromfile(X, np.float32).reshape(-1, job["columns"]), np.fromfile(y, int))
        rare = min(int(rows.y.sum()), SIZE // 2)
        sampler.set_params(sampling_strategy={0: SIZE - rare, 1: rare})
        kept = Rows(*sampler.fit_resample(rows.X, rows.y))
    seconds = time.process_time() - start
    np.savez(job["path"], X=kept.X, y=kept.y)
    cost = {"processor": round(seconds, 2), "megabytes": round(_megabytes("VmHWM") - before)}
    print(json.dumps(cost | {"kept": len(kept)}))


def _stream(policy: str, seed: int, X: Path, y: Path, columns: int) -> Rows:
    """Keep rows of a file with a sketch, a tenth at a time."""
    sample = next(sample for sample in SAMPLES if sample.policy == policy)
    sketch = sample.start(SIZE, seed)
    rows = y.stat().st_size // 8
    with X.open("rb") as first, y.open("rb") as second:
        for part in np.array_split(np.arange(rows), UPDATES):
            batch = np.fromfile(first, np.float32, len(part) * columns).reshape(-1, columns)
            sketch.update(batch, np.fromfile(second, np.int64, len(part)))
    return Rows(np.asarray(sketch.X), np.asarray(sketch.y))


def _sampler(name: str, seed: int) -> Any:
    from imblearn import under_sampling
    from sklearn.cluster import MiniBatchKMeans

    if name in DETERMINISTIC:
        return under_sampling.NearMiss(version=int(name[-1]))
    if name == "ClusterCentroids":
        return under_sampling.ClusterCentroids(
            estimator=MiniBatchKMeans(n_init=1, random_state=seed), random_state=seed
        )
    return getattr(under_sampling, name)(random_state=seed)


def _megabytes(what: str) -> float:
    """Return a number that Linux tells of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1e3


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
