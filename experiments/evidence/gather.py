"""Gather finished runs into ``experiments/results``, and read them from there."""

from __future__ import annotations

import csv
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from olss.lab.report.statistics import MEASURES, interval, seconds
from olss.streams.record import Record

from .pages import RESULTS

Row = dict[str, Any]
# How the names of experiments begin; of some, whole records are kept.
GATHERED = (
    "paper", "equal-memory", "der-protocol", "noise", "class-incremental", "combinations", "space",
    "survey-er", "analytic",
)  # fmt: skip
KEPT_WHOLE = ("paper", "class-incremental", "survey-er", "analytic")
MEASURED = ("average", "first", "newest", "learned", "forgetting")


def gather(runs: Path) -> None:
    """Write one line for each finished run, by the folder of results it belongs to."""
    found: dict[str, list[Row]] = defaultdict(list)
    for path in sorted(runs.glob("*/*/seed-*/record.json")):
        experiment, record = path.parts[-4], Record.load(path.parent)
        name = next((name for name in GATHERED if experiment.startswith(name)), None)
        if name is None or "validation" in record.config["stream"]:
            continue  # another experiment, or a trial on validation rows
        if name in KEPT_WHOLE:
            folder = path.relative_to(runs).parent
            target = RESULTS / folder if folder.parts[0] == name else RESULTS / name / folder
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
            if (path.parent / "timing.json").exists():  # it may be taken away if work disturbed it
                shutil.copy(path.parent / "timing.json", target)
        else:
            found[name].append(_line(experiment, record))
    for name, rows in found.items():
        path = RESULTS / name / "runs.csv"
        lines = {_identity(row): row for row in [*_read(path), *rows]}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines[key] for key in sorted(lines))


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _identity(row: Row) -> tuple[str, ...]:
    """Return what says which run a line is of: all columns before its measurements."""
    columns = list(row)
    return tuple(str(row[column]) for column in columns[: columns.index("average")])


def _line(experiment: str, record: Record) -> Row:
    learner, stream = record.config["learner"], record.config["stream"]
    noise = (stream.get("steps") or [{}])[-1]
    rows = learner.get("size", learner.get("gem_rows", 0) * len(record.tasks))
    return {
        "experiment": experiment,
        "stream": stream["name"],
        "noise": noise.get("name", ""),
        "share": noise.get("share", 0),
        "recipe": learner["recipe"],
        "regime": learner.get("regime", ""),
        "policy": learner.get("policy", ""),
        "features": learner.get("features") or "",
        "memory": rows,
        "lr": record.config["training"]["lr"],
        "alpha": learner.get("alpha", ""),
        "beta": learner.get("beta", ""),
        "seed": record.seed,
        **{name: round(100 * MEASURES[name].of(record), 3) for name in MEASURED},
        "held": int(record.stored_examples[-1]),
        "disturbed": int(record.disturbed_rows[-1]),
        "bytes": int(record.stored_bytes[-1]),
        "seconds": round(seconds(record), 2),
    }


def load(name: str, file: str = "runs.csv") -> list[Row]:
    """Read the lines of one folder of results."""
    rows = _read(RESULTS / name / file)
    for row in rows:
        for key in ("share", *MEASURED, "seconds"):
            row[key] = float(row[key])
        for key in ("seed", "held", "disturbed", "bytes"):
            row[key] = int(row[key])
        row["memory"] = int(row["memory"]) if row["memory"].isdigit() else row["memory"]
        row["choice"] = row["policy"] + (", features" if row["features"] else "")
    return rows


def matching(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def select(rows: Iterable[Row], **wanted: Any) -> dict[int, float]:
    """Return the average of each seed of the runs with these values."""
    found: dict[int, float] = {}
    for row in matching(rows, **wanted):
        if row["seed"] in found:
            raise ValueError(f"two runs of seed {row['seed']} with {wanted}: {row}")
        found[row["seed"]] = row["average"]
    return found


def mean_of(rows: Iterable[Row], **wanted: Any) -> Any:
    """Return the average over seeds of the runs with these values, with its interval."""
    return interval(list(select(rows, **wanted).values()))
