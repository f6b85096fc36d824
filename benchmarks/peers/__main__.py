"""Measure every method on every problem, and write what came of it."""

from __future__ import annotations

import argparse
import csv
import json
import math
import signal
import statistics
import subprocess
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from . import problems
from .environments import PEERS, python_of, version_of
from .methods import METHODS, Method

ROOT = Path(__file__).resolve().parents[2]
READING = "reading alone"
TIMED = ("file", "stream", "digits")
ENOUGH = 20.0  # seconds of processor time after which a measurement is not repeated
PATIENCE = 10  # times the limit, for processes that wait for ever
MEASURED = (
    "problem", "method", "version", "date", "ratio", "processor", "reading", "seconds", "megabytes",
    "kept", "error", "rounds", "same", "reason",
)  # fmt: skip
PROPERTIES = ("method", "same", "off", "spread", "z", "merged", "continued", "reason")
Row = dict[str, Any]
Start = Callable[[str, str, str, int], Row]  # what, method, problem, cores


def run(python: str, **job: Any) -> Row:
    """Run one job in a process of its own; a process that dies says why in `reason`."""
    command = [python, "-m", "benchmarks.peers.worker", json.dumps(job)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=120 + PATIENCE * job["limit"]
        )
    except subprocess.TimeoutExpired as late:
        return {"reason": f"not done after {late.timeout:g} seconds, most of them asleep"}
    if done.returncode == -signal.SIGPROF:
        return {"reason": f"not done in {job['limit']:g} seconds of processor time"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return {"reason": f"ended by {_ending(done.returncode)}: {last}"}
    answer: Row = json.loads(done.stdout.splitlines()[-1])
    return answer


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def why_not(method: Method, problem: str) -> str:
    """Return why a method is not measured on a problem, or nothing."""
    if method.classes and problem in ("file", "stream"):
        return "needs classes, which these rows have not"
    if problem == "stream" and not method.streams:
        return "cannot stream: needs all rows at once"
    return ""


def timed(problem: str, asked: list[str], times: int, start: Start) -> Iterator[list[Row]]:
    """Yield, after each round, a row for each method: the best of the rounds so far."""
    found: dict[str, list[Row]] = {name: [] for name in [READING, *asked]}
    for cores in [1] * times + [2]:  # the last only for the rows it keeps
        for name, answers in found.items():
            if answers and ("reason" in answers[0] or answers[0]["processor"] > ENOUGH):
                continue
            reason = why_not(METHODS[name], problem)
            answer = {"reason": reason} if reason else start("measure", name, problem, cores)
            answers.append(answer | {"cores": cores})
            tell(problem, name, cores, answer)
        read = min(a["processor"] for a in found[READING] if a["cores"] == 1)
        yield [
            {"problem": problem, "method": name, **_best(answers, read)}
            for name, answers in found.items()
        ]


def tell(problem: str, name: str, cores: int, answer: Row) -> None:
    """Print that a job is done."""
    said = answer.get("reason") or f"{answer['processor']:.2f} s of processor time"
    print(f"{problem:8}{cores} cores  {name:26}{said}", flush=True)


def _best(answers: list[Row], read: float) -> Row:
    """Return the best of some measurements, and whether all kept the same rows."""
    if "reason" in answers[0]:
        return {"reason": answers[0]["reason"]}
    timed = [a for a in answers if a["cores"] == 1]
    processor = min(a["processor"] for a in timed)
    rows = [a["rows"] for a in answers if "rows" in a]
    return {
        "ratio": round(processor / read, 2),
        "processor": round(processor, 3),
        "reading": round(read, 3),
        "seconds": round(min(a["seconds"] for a in timed), 3),
        "megabytes": round(min(a["megabytes"] for a in timed)),
        "kept": answers[0]["kept"],
        "error": f"{answers[0]['error']:.3g}" if "error" in answers[0] else "",
        "rounds": len(answers),
        "same": len(set(rows)) == 1 if len(rows) > 1 else "",
    }


def lasting(name: str, start: Start) -> Row:
    """Return what holds of a method on a small problem: over seeds, on one core and on two."""
    one, two = (start("properties", name, "small", cores) for cores in (1, 2))
    tell("small", name, 2, two)
    if "reason" in one or "reason" in two:
        return {"reason": one.get("reason") or two["reason"]}
    off, spread = statistics.fmean(one["off"]), statistics.stdev(one["off"])
    z = off / (spread / math.sqrt(len(one["off"]))) if spread > 1e-12 else math.inf
    return {
        "same": one["rows"] == two["rows"],
        "off": round(100 * off, 2),
        "spread": round(100 * spread, 2),
        "z": round(z, 2),
        "merged": two["merged"],
        "continued": two["continued"],
    }


def write(path: Path, rows: list[Row], key: tuple[str, ...], columns: tuple[str, ...]) -> None:
    """Write rows; those of an earlier run stay where this one has none in their place."""
    before: list[Row] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            before = list(csv.DictReader(file))
    held = {tuple(row[part] for part in key): row for row in [*before, *rows]}
    order = [*TIMED, *METHODS]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(held[k] for k in sorted(held, key=lambda k: [order.index(p) for p in k]))


def show(folder: Path) -> None:
    """Print what is in a folder of results as tables, and draw it."""
    from experiments.evidence import peers
    from matplotlib import rc_context

    from olss.lab.report.figures import LOOK

    measured, lasts = (peers.read(folder, name) for name in ("measurements", "properties"))
    for problem in dict.fromkeys(row["problem"] for row in measured):
        print(f"\n{problems.PROBLEMS[problem].title}\n\n{peers.times(measured, problem)}")
    if lasts:
        print(f"\n{problems.PROBLEMS['small'].title}\n\n{peers.properties(measured, lasts)}")
    if measured:
        with rc_context(LOOK):
            peers.figure(measured).savefig(folder / "peers.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description="Keep a few rows of many, with many libraries.")
    parser.add_argument("--only", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument(
        "--problems", nargs="+", choices=[*TIMED, "small"], default=[*TIMED, "small"]
    )
    parser.add_argument("--times", type=int, default=2, help="rounds on one core")
    parser.add_argument("--limit", type=float, default=120, help="seconds of processor time")
    parser.add_argument("--gigabytes", type=float, default=12, help="memory a process may take")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "olss" / "peers")
    parser.add_argument("--into", type=Path, default=ROOT / "experiments" / "results" / "peers")
    options = parser.parse_args()
    data = options.cache.absolute() / "data"
    pythons = {}
    for name in dict.fromkeys(["olss", *options.only]):
        print(f"environment of {name}", flush=True)
        pythons[name] = python_of(name, options.cache.absolute())

    def start(what: str, name: str, problem: str, cores: int) -> Row:
        python, reason = pythons[METHODS[name].peer]
        if reason:
            return {"reason": reason}
        return run(
            python, what=what, method=name, problem=problem, cores=cores, data=str(data),
            limit=options.limit, gigabytes=options.gigabytes,
        )  # fmt: skip

    asked = [n for n, m in METHODS.items() if m.peer in options.only and n != READING]
    for problem in options.problems:
        problems.make(problem, data)
        if problem == "small":
            for name in asked:
                rows = [{"method": name, **lasting(name, start)}]
                write(options.into / "properties.csv", rows, ("method",), PROPERTIES)
            continue
        for rows in timed(problem, asked, options.times, start):
            for row in rows:
                version = version_of(METHODS[row["method"]].peer)
                row |= {"version": version, "date": date.today().isoformat()}
            write(options.into / "measurements.csv", rows, ("problem", "method"), MEASURED)
    show(options.into)


if __name__ == "__main__":
    main()
