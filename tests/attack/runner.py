"""Runs trials in a process of their own, which may hang, crash or run out of memory, and counts."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from olss.errors import OlssError

VERDICTS = ("fine", "clean error", "foreign", "torn", "silent", "hung")
GOOD = ("fine", "clean error")
MEMORY = 6 << 30  # bytes a trial may take: what asks for more is told by a MemoryError
# What a caller is told of a path by the system itself, in its own words.
OF_PATHS = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


@dataclass
class Tally:
    """How often a trial ended how, with the first few that ended badly."""

    kind: str
    counts: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, number: int, verdict: str, note: str) -> None:
        self.counts[verdict] += 1
        if verdict not in GOOD:
            self.bad.append(f"{self.kind} {number}: {verdict}: {note}")

    @property
    def tried(self) -> int:
        return self.counts.total()


def judge(error: BaseException) -> tuple[str, str]:
    """Return the verdict on what was raised."""
    clean = isinstance(error, (OlssError, *OF_PATHS))
    # What is no path at all is told by the system, too, as `open` tells it.
    clean |= isinstance(error, TypeError) and "os.PathLike" in str(error)
    return ("clean error" if clean else "foreign"), f"{type(error).__name__}: {error}"[:300]


def run(kind: str, count: int, seed: int, timeout: float, start: int = 0) -> Tally:
    """Return the tally of `count` trials of a kind, each numbered and repeatable alone."""
    tally = Tally(kind)
    worker: Worker | None = None
    try:
        for number in range(start, start + count):
            worker = worker or Worker(kind, seed)
            verdict, note = worker.ask(number, timeout)
            if verdict in ("hung", "crashed"):
                worker.stop()
                worker = None
            tally.add(number, "foreign" if verdict == "crashed" else verdict, note)
    finally:
        if worker is not None:
            worker.stop()
    return tally


class Worker:
    """A process that makes trials of one kind when asked."""

    def __init__(self, kind: str, seed: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.ours, theirs = context.Pipe()
        self.folder = tempfile.TemporaryDirectory(prefix="olss-attack-")
        self.process = context.Process(target=serve, args=(theirs, kind, seed, self.folder.name))
        self.process.start()
        theirs.close()
        if not self.ours.poll(120) or self.ours.recv() != "ready":
            raise RuntimeError(f"the worker for {kind} did not start")

    def ask(self, number: int, timeout: float) -> tuple[str, str]:
        try:
            self.ours.send(number)
            if not self.ours.poll(timeout):
                return "hung", f"no answer within {timeout:g} s"
            verdict, note = self.ours.recv()
        except (EOFError, ConnectionError):
            self.process.join(5)
            return "crashed", f"the process ended with {self.process.exitcode}"
        return verdict, note

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.ours.close()
        self.folder.cleanup()


def serve(connection: object, kind: str, seed: int, folder: str) -> None:
    """Answer with a verdict for every number received, until killed."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module = importlib.import_module(f"tests.attack.{kind}")
    if getattr(module, "BOUNDED", False):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.chdir(folder)
    attack = module.Attack(Path(folder), seed)
    connection.send("ready")  # type: ignore[attr-defined]
    while True:
        number = connection.recv()  # type: ignore[attr-defined]
        verdict, note = attack.trial(number)
        connection.send((verdict, note.replace(folder, "")))  # type: ignore[attr-defined]
