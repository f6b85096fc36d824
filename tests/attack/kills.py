"""kill -9 of `olss compress` and `olss run` at random instants; the same command then goes on.

The file and the record that come out in the end must be those of a command left in peace.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from tests.lab.small import write_experiment

OLSS = [sys.executable, "-m", "olss"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
RUN_EVERY = 3  # one trial in so many kills a run, the others a compression


class Attack:
    """Trials that kill commands."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        rng = np.random.default_rng(seed)
        for name in ("first", "second"):
            np.save(folder / f"{name}.npy", rng.standard_normal((100_000, 20)))
        self.seconds: dict[str, float] = {}
        self.truth: dict[str, bytes] = {}

    def trial(self, number: int) -> tuple[str, str]:
        rng = np.random.default_rng([self.seed, number])
        kind = "run" if number % RUN_EVERY == 0 else "compress"
        place = self.folder / f"{kind}-{number}"
        if kind not in self.truth:
            start = time.monotonic()
            peace = self.prepared(kind, self.folder / f"{kind}-peace")
            done = self.command(kind, peace).wait()
            if done:
                return "foreign", f"{kind} in peace ended with {done}"
            self.seconds[kind] = time.monotonic() - start
            self.truth[kind] = self.outcome(kind, peace)
        self.prepared(kind, place)
        process = self.command(kind, place)
        delay = float(rng.uniform(0, self.seconds[kind]))
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGKILL)
        killed = process.wait() != 0
        again = self.command(kind, place)
        if again.wait() != 0:
            return "foreign", f"{kind} killed after {delay:.2f} s did not go on"
        same = self.outcome(kind, place) == self.truth[kind]
        left = [path.name for path in place.rglob("*.part")] if not killed else []
        note = f"{kind} killed after {delay:.2f} of {self.seconds[kind]:.2f} s, left {left}"
        return ("fine" if same and not left else "torn"), note

    def prepared(self, kind: str, place: Path) -> Path:
        place.mkdir()
        if kind == "run":
            write_experiment(place, tasks=2)
        else:
            for name in ("first", "second"):
                (place / f"{name}.npy").symlink_to(self.folder / f"{name}.npy")
        return place

    def command(self, kind: str, place: Path) -> subprocess.Popen[bytes]:
        words = {
            "run": "run small.toml --only sketch",
            "compress": "compress first.npy second.npy --into out.parquet --size 500 --seed 0",
        }
        return subprocess.Popen(
            [*OLSS, *words[kind].split()],
            cwd=place,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def outcome(self, kind: str, place: Path) -> bytes:
        if kind == "run":
            return (place / "runs/small/sketch/seed-0/record.json").read_bytes()
        return (place / "out.parquet").read_bytes()
