"""The paper's streams, methods and times."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from olss.lab.report.claims import FAILS, HOLDS, NOT_RUN, RATIOS, UNKNOWN
from olss.lab.report.collect import collect
from olss.lab.report.figures import assign_styles, draw_figures, line_kwargs
from olss.lab.report.page import render
from olss.lab.report.statistics import MEASURES, interval, log_ratio, seconds
from olss.lab.report.summary import stream_tables, summarize
from olss.streams.record import Record
from olss.util.files import write_atomic

from . import pages
from .pages import RESULTS, legend, plain, signed, table

SHOWN = {  # label in the experiment: words
    "sgd": "SGD",
    "sgd-0.1": "SGD, at the rate of the others",
    "ewc": "EWC",
    "si": "SI",
    "gem": "GEM",
    "gem-256": "GEM, 240 rows in all",
    "icarl": "iCaRL",
    "olss": "OLSS, as in the paper",
    "reservoir": "the same with a reservoir",
    "olss-weighted": "OLSS, weighted",
    "olss-balanced": "OLSS, balanced",
    "olss-mix": "OLSS, weighted, mixed with the task",
    "er": "ER",
    "joint": "all rows of all tasks",
}
POLICY = {
    "olss": "paper",
    "reservoir": "reservoir",
    "olss-weighted": "weighted",
    "olss-balanced": "balanced",
    "olss-mix": "weighted",
}
LINES = {  # the same in every figure, whatever else is in it
    label: line_kwargs(style)
    for label, style in assign_styles(
        (label, "olss" if label in POLICY else re.sub(r"-[\d.]+$", "", label), POLICY.get(label))
        for label in SHOWN
    ).items()
}
CIFAR100 = "paper-incremental-cifar100"
DRAWN = {  # experiment: title
    "paper-permuted-mnist": "permuted MNIST",
    "paper-rotated-mnist": "rotated MNIST",
    f"{CIFAR100}-bfloat16": "incremental CIFAR-100",
}
LEADS = {  # what the paper says of two methods on CIFAR-100: measure, a, b
    "OLSS above SGD, average": ("average", "olss", "sgd"),
    "OLSS above EWC, average": ("average", "olss", "ewc"),
    "OLSS above iCaRL, average": ("average", "olss", "icarl"),
    "OLSS above SGD, task 1": ("first", "olss", "sgd"),
    "OLSS above EWC, task 1": ("first", "olss", "ewc"),
    "OLSS above iCaRL, task 1": ("first", "olss", "icarl"),
    "SI above EWC, when learned": ("learned", "si", "ewc"),
}


def make() -> None:
    """Draw the paper's figures and give its table of times, with what stands beside them."""
    for folder in sorted((RESULTS / "paper").glob("paper-*")):
        records = records_of(folder)
        pages.fill(folder.name, _paper_table(folder.name, records))
    pages.fill("paper-cifar100-leads", _leads())
    streams = {title: records_of(RESULTS / "paper" / name) for name, title in DRAWN.items()}
    streams = {title: records for title, records in streams.items() if records}
    if streams:
        pages.draw("paper", "paper", lambda: _curves(streams))


def report() -> None:
    """Make the page of the paper's experiments, and check its claims."""
    content = summarize(collect([RESULTS / "paper"]))
    tables = {stream["id"]: stream_tables(stream) for stream in content["streams"]}
    with tempfile.TemporaryDirectory() as folder:
        figures = {s["id"]: draw_figures(s, Path(folder)) for s in content["streams"]}
    page, claims = render(content, tables, figures, {}, []), "\n".join(_claims(content))
    write_atomic(RESULTS / "paper" / "page.html", page.encode())
    write_atomic(RESULTS / "paper" / "claims.md", claims.encode())


def _claims(content: dict[str, Any]) -> Iterator[str]:
    """Return the claims in Markdown, a table for each stream."""
    yield "# Claims, checked\n"
    yield (
        "A claim holds when its whole interval over seeds lies in the range claimed, and does "
        "not hold when the whole interval lies outside. Intervals are of 90% confidence, 5% "
        "beyond either end: a verdict is wrong at most once in twenty. One seed has no "
        "interval and decides nothing. Runs are paired by seed within one precision; pairs of "
        "both precisions count together. In brackets: the range of the seeds.\n"
    )
    verdicts = Counter(claim["verdict"] for claim in content["claims"])
    not_run = sum(claim["measured"] == NOT_RUN for claim in content["claims"])
    told = f"{verdicts[UNKNOWN] - not_run} cannot be told from the seeds there are"
    told += f", and {not_run} speak of a method that was not run" if not_run else ""
    yield (
        f"Of {verdicts.total()} claims, over all streams, {verdicts[HOLDS]} hold, "
        f"{verdicts[FAILS]} do not hold, and {told}. On all of incremental CIFAR-100 GEM remembers "
        "12 rows of each task, 240 in all: with 256 of each, as on the other streams, a seed would "
        "take about 15 hours of one core.\n"
    )
    for stream in content["streams"]:
        claims = [claim for claim in content["claims"] if claim["stream"] == stream["id"]]
        lines = [[claim[key] for key in ("claimed", "measured", "verdict")] for claim in claims]
        yield f"## {stream['title']}\n"
        for setting in {claim["setting"]: None for claim in claims if claim["setting"]}:
            yield f"{setting[0].upper()}{setting[1:]}.\n"
        yield table(["Claimed", "Measured", "Verdict"], lines, rule="---")


def records_of(folder: Path) -> dict[str, dict[int, Record]]:
    """Read the records of an experiment, by label and seed."""
    found: dict[str, dict[int, Record]] = {}
    for label in SHOWN:
        for path in sorted((folder / label).glob("seed-*/record.json")):
            record = Record.load(path.parent)
            found.setdefault(label, {})[record.seed] = record
    return found


def _paper_table(name: str, records: dict[str, dict[int, Record]]) -> str:
    kind = name.split("-")[1]
    base = {seed: seconds(record) for seed, record in records.get("sgd", {}).items()}
    lines = []
    for label, by_seed in records.items():
        time = log_ratio({seed: seconds(record) for seed, record in by_seed.items()}, base)
        claimed = RATIOS.get(label.removesuffix("-256"), {}).get(kind)
        lines.append(
            [
                SHOWN[label],
                str(len(by_seed)),
                *(
                    _over_seeds([100 * MEASURES[name].of(r) for r in by_seed.values()])
                    for name in ("average", "first", "newest", "learned")
                ),
                f"{time.mean:.2f}" if time.count else "—",
                f"{claimed:.1f}" if claimed else "1.0" if label == "sgd" else "—",
            ]
        )
    columns = ["", "seeds", "average", "task 1", "newest task", "when learned", "time / SGD"]
    return table([*columns, "the paper's"], lines)


def _over_seeds(values: list[float]) -> str:
    """Return the mean and half its interval; of two, whose interval says little, the two."""
    if len(values) != 2:
        return plain(interval(values))
    return f"{np.mean(values):.1f} ({min(values):.1f}, {max(values):.1f})"


def _leads() -> str:
    """Return points between methods on CIFAR-100, seed by seed.

    Both methods of a seed have the same precision: bfloat16, or float32 where only that was run.
    """
    full, half = (records_of(RESULTS / "paper" / f"{CIFAR100}{end}") for end in ("", "-bfloat16"))
    found = {}
    for words, (name, a, b) in LEADS.items():
        of = MEASURES[name].of
        found[words] = {
            seed: 100 * (of(records[a][seed]) - of(records[b][seed]))
            for records in (full, half)
            for seed in sorted(records.get(a, {}).keys() & records.get(b, {}).keys())
        }
    seeds = sorted({seed for by_seed in found.values() for seed in by_seed})
    kinds = {seed: "bfloat16" if seed in half.get("olss", {}) else "float32" for seed in seeds}
    lines = []
    for words, by_seed in found.items():
        single = [f"{by_seed[s]:+.1f}".replace("-", "−") if s in by_seed else "—" for s in seeds]
        lines.append([words, *single, signed(interval(list(by_seed.values())))])
    return table(["", *(f"seed {s}, {kinds[s]}" for s in seeds), "all seeds"], lines)


def _curves(streams: dict[str, dict[str, dict[int, Record]]]) -> Figure:
    figure = Figure(figsize=(9, 3.1 * len(streams)))
    axes = figure.subplots(len(streams), 2, squeeze=False, sharex=True, sharey="row")
    for line, (title, records) in zip(axes, streams.items(), strict=True):
        for axis, words in zip(line, ("average over tasks so far", "task 1"), strict=True):
            for label, by_seed in records.items():
                all_curves = [
                    100 - 100 * (r.average_accuracy if words != "task 1" else r.accuracy[:, 0])
                    for r in by_seed.values()
                ]
                x = range(1, len(all_curves[0]) + 1)
                axis.plot(x, np.mean(all_curves, axis=0), label=SHOWN[label], **LINES[label])
                for single in all_curves if len(all_curves) > 1 else ():
                    axis.plot(x, single, linewidth=0.5, alpha=0.5, **LINES[label])
            axis.set_title(f"{title}: {words}", fontsize=9)
            axis.set_xlabel("tasks learned", fontsize=8)
            axis.set_xlim(1, len(x))
            axis.set_xticks([1, 5, 10, 15, 20])
            if "MNIST" in title:  # from two percent to all
                axis.set_yscale("log")
                axis.set_yticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
                axis.minorticks_off()
        line[0].set_ylabel("error, %", fontsize=8)
    legend(figure, ncols=4)
    return figure
