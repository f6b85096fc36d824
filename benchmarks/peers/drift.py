"""Alarms of olss, river, Evidently and NannyML on the same batches, by their defaults.

    python -m benchmarks.peers.drift [--cache FOLDER]

Batches are those of `experiments.drift_streams`, real tables in the order of time, of equally many
rows each (at most 150); from the thirteenth on, each is asked about as it is and with a change made
to one column. A change is not passed on to the batches after it. River's detectors see the numeric
columns row by row, one detector for each, and any of them raises the alarm. Evidently compares with
all batches before and alarms where half of the columns drift. NannyML takes the first twelve
batches for reference, and any column raises the alarm. Writes
``experiments/results/drift/peers.csv``.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .environments import python_of, version_of

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results" / "drift"
FIRST = 12
MOST_ROWS = 150
STREAMS = ("weather, weeks", "electricity, weeks", "Seattle weather, months", "flights, weeks")
Ask = Iterator[tuple[int, str, bool]]  # batch, change, alarm


def make(folder: Path) -> None:
    """Write the batches as one Parquet file a stream, those with changes among them."""
    import numpy as np
    import pandas as pd
    from experiments.drift_streams import changes, numeric, streams

    folder.mkdir(parents=True, exist_ok=True)
    for name in STREAMS:
        batches = streams()[name]()
        rows = min(MOST_ROWS, *(len(batch) for batch in batches))
        rng, parts = np.random.default_rng(3), []
        for number, whole in enumerate(batches):
            places = np.linspace(0, len(whole) - 1, rows).astype(int)
            batch = whole.iloc[places].reset_index(drop=True)
            batch = batch.drop(columns=[c for c in ("time",) if c in batch])
            asked = {"none": batch}
            if number >= FIRST:
                column, before = str(rng.choice(numeric(batch))), batches[number - 1]
                asked |= {what: f(batch, column, before) for what, f in changes().items()}
            parts += [frame.assign(batch=number, change=what) for what, frame in asked.items()]
        pd.concat(parts).to_parquet(folder / f"{name}.parquet")


def batches_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each batch as it is ("none"), and with changes."""
    import pandas as pd

    frame = pd.read_parquet(path)
    for number, part in frame.groupby("batch"):
        asked = {
            str(what): mine.drop(columns=["batch", "change"]).reset_index(drop=True)
            for what, mine in part.groupby("change", sort=False)
        }
        yield int(number), asked


def olss_usual(path: Path) -> Ask:
    """Ask `Sketch.drift`."""
    from olss import Sketch

    sketch = Sketch(1_000, seed=0)
    for number, asked in batches_of(path):
        for what, rows in asked.items() if number >= FIRST else ():
            yield number, what, bool(sketch.drift(rows))
        sketch.update(asked["none"])


def olss_difference(path: Path) -> Ask:
    """Ask whether there is any difference, the first of the three answers of `Sketch.drift`."""
    from olss import Sketch

    sketch = Sketch(1_000, seed=0)
    for number, asked in batches_of(path):
        for what, rows in asked.items() if number >= FIRST else ():
            yield number, what, sketch.drift(rows).p <= 0.01
        sketch.update(asked["none"])


def _river(path: Path, create: Callable[[], Any]) -> Ask:
    detectors: dict[str, Any] = {}
    for number, asked in batches_of(path):
        numbers = [c for c in asked["none"] if asked["none"][c].dtype.kind in "if"]
        detectors = detectors or {name: create() for name in numbers}
        before = copy.deepcopy(detectors)
        for what, rows in asked.items():
            mine = detectors if what == "none" else copy.deepcopy(before)
            alarm = False
            for name, detector in mine.items():
                for value in rows[name].dropna().tolist():
                    detector.update(value)
                    alarm |= detector.drift_detected
            if number >= FIRST:
                yield number, what, alarm


def river_adwin(path: Path) -> Ask:
    """Ask ADWIN."""
    from river.drift import ADWIN

    return _river(path, ADWIN)


def river_kswin(path: Path) -> Ask:
    """Ask KSWIN."""
    from river.drift import KSWIN

    return _river(path, lambda: KSWIN(seed=0))


def evidently_preset(path: Path) -> Ask:
    """Ask Evidently's preset."""
    import pandas as pd
    from evidently import Report
    from evidently.presets import DataDriftPreset

    before: list[Any] = []
    for number, asked in batches_of(path):
        for what, rows in asked.items() if number >= FIRST else ():
            result = Report([DataDriftPreset()]).run(rows, pd.concat(before)).dict()
            yield number, what, result["metrics"][0]["value"]["share"] >= 0.5
        before.append(asked["none"])


def nannyml_univariate(path: Path) -> Ask:
    """Ask NannyML's univariate calculator."""
    import nannyml
    import pandas as pd

    known = list(batches_of(path))
    reference = pd.concat([asked["none"] for _, asked in known[:FIRST]])
    size = len(known[0][1]["none"])
    calculator = nannyml.UnivariateDriftCalculator(
        column_names=list(reference.columns), chunk_size=size
    ).fit(reference.reset_index(drop=True))
    for number, asked in known[FIRST:]:
        for what, rows in asked.items():
            found = calculator.calculate(rows).filter(period="analysis").to_df()
            alerts = found.xs("alert", axis=1, level=2)
            yield number, what, bool(alerts.to_numpy().any())


METHODS: dict[str, tuple[str, Callable[[Path], Ask]]] = {
    "olss, larger than usual": ("olss", olss_usual),
    "olss, any difference": ("olss", olss_difference),
    "river ADWIN": ("river", river_adwin),
    "river KSWIN": ("river", river_kswin),
    "Evidently": ("evidently", evidently_preset),
    "NannyML": ("nannyml", nannyml_univariate),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Drift alarms of several libraries.")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "olss" / "peers")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    folder = options.cache.absolute() / "drift"
    make(folder)
    head = ["stream", "method", "version", "change", "batches", "alarms", "reason"]
    path = RESULTS / "peers.csv"
    lines: list[list[Any]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            lines = [row for row in list(csv.reader(file))[1:] if row[1] not in options.only]
    for name in options.only:
        peer = METHODS[name][0]
        python, reason = python_of(peer, options.cache.absolute())
        for stream in STREAMS:
            job = [python, "-m", "benchmarks.peers.drift", "--ask", name, str(folder), stream]
            done = None
            if not reason:
                done = subprocess.run(job, cwd=ROOT, capture_output=True, text=True, timeout=3_600)
            if done is None or done.returncode:
                why = reason or (done.stderr.strip().splitlines() if done else [""])[-1]
                lines.append([stream, name, version_of(peer), "none", 0, 0, why])
                print(name, stream, why, flush=True)
                continue
            for what, (batches, alarms) in json.loads(done.stdout.splitlines()[-1]).items():
                lines.append([stream, name, version_of(peer), what, batches, alarms, ""])
            print(name, stream, done.stdout.splitlines()[-1], flush=True)
            RESULTS.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([head, *lines])


def ask(name: str, folder: Path, stream: str) -> None:
    """Print how many batches, and how many alarms, there were of each change."""
    batches: Counter[str] = Counter()
    alarms: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    for _, what, alarm in METHODS[name][1](folder / f"{stream}.parquet"):
        batches[what] += 1
        alarms[what] += int(alarm)
    print(json.dumps({what: [batches[what], alarms[what]] for what in batches}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        main()
