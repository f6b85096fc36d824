"""Ctrl-C, and exceptions from other signal handlers, at random instants.

What raises must have changed nothing; what returns must have changed everything. The truth is a
twin that was given the same work in peace.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import olss
from olss.files import compress

SIZE = 200
OUTSIDE = "outside of olss"
PACKAGE = Path(olss.__file__).parent


class AlarmError(Exception):
    """What another signal handler of the user's program raises."""


def alarm(*_: Any) -> None:
    raise AlarmError


class Attack:
    """Trials with signals into update, merge, remove and compress."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((2_000, 10))
        self.y = rng.integers(0, 4, 2_000)
        np.save(folder / "in.npy", self.X)
        np.save(folder / "more.npy", self.X[:700] + 1)
        compress(folder / "in.npy", into=folder / "start.parquet", size=SIZE, seed=0)
        other = self.sketch("weighted", start=500)
        self.works: list[tuple[str, Callable[[Any], Any]]] = [
            ("update", lambda s: s.update(self.X, self.y, task=2)),
            ("merge", lambda s: s.merge(other)),
            ("remove", lambda s: s.remove(s.index[::2].copy())),
            ("remove most", lambda s: s.remove(s.index[5:].copy())),
        ]

    def trial(self, number: int) -> tuple[str, str]:
        rng = np.random.default_rng([self.seed, number])
        kind = signal.SIGINT if number % 2 else signal.SIGUSR1
        signal.signal(signal.SIGUSR1, alarm)
        if number % 10 == 9:
            verdict, note = self.into_compress(kind, rng)
        else:
            verdict, note = self.into_sketch(number, kind, rng)
        return verdict, f"{kind.name} in {note}"

    def sketch(self, policy: str, start: int = 0) -> olss.Sketch:
        X, y = self.X[start:], self.y[start:]
        return olss.Sketch(SIZE, policy, seed=1).update(X[:900], y[:900], task=1)

    def into_sketch(self, number: int, kind: signal.Signals, rng: Any) -> tuple[str, str]:
        name, work = self.works[number % len(self.works)]
        policy = str(rng.choice(["weighted", "balanced", "reservoir", "paper"]))
        if name == "merge":
            policy = "weighted"
        victim, twin = self.sketch(policy), self.sketch(policy)
        before = self.content(twin)
        self.content(victim)  # looked at like its twin: rows that waited have been drawn from
        start = time.perf_counter()
        work(twin)
        length = time.perf_counter() - start
        after = self.content(twin)
        raised = struck(lambda: work(victim), kind, rng.random() * 1.1 * length)
        found = self.content(victim)
        note = f"{name}, {policy}, raised {raised!r}"
        # Once removed rows are being overwritten, there is no way back: it is done.
        if name.startswith("remove") and raised and found == after:
            return "fine", note
        return verdict_on(found, before, after, raised), note

    def into_compress(self, kind: signal.Signals, rng: Any) -> tuple[str, str]:
        path = self.folder / "out.parquet"
        begin = (self.folder / "start.parquet").read_bytes()

        def work() -> None:
            compress(self.folder / "more.npy", into=path)

        path.write_bytes(begin)
        start = time.perf_counter()
        work()
        length = time.perf_counter() - start
        after = path.read_bytes()
        path.write_bytes(begin)
        raised = struck(work, kind, rng.random() * 1.1 * length)
        left = [p.name for p in self.folder.iterdir() if p.name.endswith(".part")]
        found = path.read_bytes()
        # Trying again does no harm here: what was taken in is passed over.
        verdict = "fine" if raised and found == after else verdict_on(found, begin, after, raised)
        return ("torn" if left else verdict), f"compress, raised {raised!r}, left {left}"

    def content(self, sketch: olss.Sketch) -> bytes:
        """Return all a sketch is, its generator included, as the bytes it is saved as."""
        path = self.folder / "content.parquet"
        sketch.save(path)
        return path.read_bytes()


def struck(work: Callable[[], Any], kind: signal.Signals, delay: float) -> str:
    """Do the work with a signal after `delay` seconds; return what was raised, and where.

    A signal may come before the work begins or when it has returned; what is raised then passed
    through no line of olss, and is none of its business.
    """
    done = threading.Event()

    def send() -> None:
        time.sleep(delay)
        os.kill(os.getpid(), kind)
        done.set()

    sender = threading.Thread(target=send)
    raised = ""
    try:
        sender.start()
        work()
    except (KeyboardInterrupt, AlarmError) as error:
        raised = type(error).__name__ if inside(error.__traceback__) else OUTSIDE
    while sender.is_alive() or not done.is_set():
        try:
            sender.join()
        except (KeyboardInterrupt, AlarmError):
            continue
    return raised


def inside(trace: TracebackType | None) -> bool:
    """Tell whether something was raised inside olss."""
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
            return True
        trace = trace.tb_next
    return False


def verdict_on(found: bytes, before: bytes, after: bytes, raised: str) -> str:
    if raised == OUTSIDE:
        return "fine" if found in (before, after) else "torn"
    if raised:
        # Applied though it raised: whoever tries again counts twice.
        return "clean error" if found == before else "silent" if found == after else "torn"
    return "fine" if found == after else "silent" if found == before else "torn"
