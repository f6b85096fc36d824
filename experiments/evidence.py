"""Make the tables and figures of the documentation from finished runs.

    python experiments/evidence.py runs      # after `olss run`: gather, then draw
    python experiments/evidence.py           # draw again from what is in experiments/results

Gathering writes one line for each run into ``experiments/results/NAME/runs.csv``. Drawing makes
figures beside it and in ``docs/images``, and writes each table into every page that has a place for
it: between ``<!-- table NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import csv
import math
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from olss.lab.report.figures import LOOK
from olss.lab.report.measures import forgetting, seconds
from olss.lab.report.paper_claims import RATIOS
from olss.lab.report.statistics import difference, interval, log_ratio
from olss.learn.record import Record

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

COLOURS = {
    "paper": "#D55E00",
    "weighted": "#0072B2",
    "reservoir": "#444444",
    "balanced": "#009E73",
    "balanced-leverage": "#CC79A7",
    "balanced-random": "#E69F00",
    "recent": "#999999",
    "weighted, features": "#56B4E9",
    "balanced, features": "#7ACC9E",
}
SIZES = (200, 500, 2_000, 10_000)
STREAMS = ("permuted", "rotated")

# Buzzega et al. (2020), table 2.
PUBLISHED = {
    ("permuted", "er"): (72.4, 80.6, 89.9),
    ("permuted", "der++"): (83.6, 88.2, 92.3),
    ("rotated", "er"): (85.0, 88.9, 93.5),
    ("rotated", "der++"): (90.4, 92.8, 94.7),
}

Row = dict[str, Any]


# ------------------------------------------------------------------ gathering


def gather(runs: Path) -> None:
    """Write one line for each finished run, by the folder of results it belongs to."""
    found: dict[str, list[Row]] = defaultdict(list)
    for path in sorted(runs.glob("*/*/seed-*/record.json")):
        experiment = path.parts[-4]
        name = next((n for n in ("equal-memory", "der-protocol", "noise") if n in experiment), None)
        if name:
            found[name].append(_line(experiment, Record.load(path.parent)))
        elif experiment.startswith("paper-"):
            target = RESULTS / "paper" / path.relative_to(runs).parent
            target.mkdir(parents=True, exist_ok=True)
            for file in ("record.json", "timing.json"):
                shutil.copy(path.parent / file, target / file)
    for name, rows in found.items():
        (RESULTS / name).mkdir(parents=True, exist_ok=True)
        with (RESULTS / name / "runs.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


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
        "average": round(100 * float(record.average_accuracy[-1]), 3),
        "first": round(100 * float(record.accuracy[-1, 0]), 3),
        "newest": round(100 * float(record.accuracy[-1, -1]), 3),
        "learned": round(100 * float(record.accuracy.diagonal().mean()), 3),
        "forgetting": round(100 * forgetting(record), 3),
        "held": int(record.stored_examples[-1]),
        "disturbed": int(record.disturbed_rows[-1]),
        "seconds": round(seconds(record), 2),
    }


def load(name: str) -> list[Row]:
    """Read the lines of one folder of results."""
    path = RESULTS / name / "runs.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        for key in ("share", "average", "first", "newest", "learned", "forgetting", "seconds"):
            row[key] = float(row[key])
        for key in ("seed", "held", "disturbed"):
            row[key] = int(row[key])
        row["memory"] = int(row["memory"]) if row["memory"].isdigit() else row["memory"]
        row["choice"] = row["policy"] + (", features" if row["features"] else "")
    return rows


def select(rows: Iterable[Row], **wanted: Any) -> dict[int, float]:
    """Give the average of each seed of the runs with these values."""
    return {
        row["seed"]: row["average"]
        for row in rows
        if all(row[key] == value for key, value in wanted.items())
    }


def mean_of(rows: Iterable[Row], **wanted: Any) -> Any:
    """Give the average over seeds of the runs with these values, with its interval."""
    return interval(list(select(rows, **wanted).values()))


# ------------------------------------------------------------------ the paper

SHOWN = {  # label in the experiment: words, colour
    "sgd": ("SGD", "#999999"),
    "ewc": ("EWC", "#CC79A7"),
    "si": ("SI", "#E69F00"),
    "gem": ("GEM", "#56B4E9"),
    "icarl": ("iCaRL", "#F0E442"),
    "olss": ("OLSS, as in the paper", "#D55E00"),
    "reservoir": ("the same with a reservoir", "#444444"),
    "olss-weighted": ("OLSS, weighted", "#0072B2"),
    "olss-balanced": ("OLSS, balanced", "#009E73"),
    "olss-mix": ("OLSS, weighted, mixed with the task", "#000000"),
    "er": ("ER", "#444444"),
    "joint": ("all rows of all tasks", "#BBBBBB"),
}
PAPER = ("paper-permuted-mnist", "paper-rotated-mnist", "paper-incremental-cifar100")


def paper() -> None:
    """Draw the paper's figures and give its table of times, with what stands beside them."""
    for folder in sorted((RESULTS / "paper").glob("paper-*")):
        records = _records(folder)
        fill(folder.name, _paper_table(folder.name, records))
    full = [name for name in PAPER if (RESULTS / "paper" / name).is_dir()]
    if full:
        draw("paper", "paper", lambda: _curves({n: _records(RESULTS / "paper" / n) for n in full}))


def _records(folder: Path) -> dict[str, dict[int, Record]]:
    """Read the records of an experiment, by label and seed."""
    found: dict[str, dict[int, Record]] = {}
    for label in SHOWN:
        for path in sorted((folder / label).glob("seed-*/record.json")):
            record = Record.load(path.parent)
            found.setdefault(label, {})[record.seed] = record
    return found


def _paper_table(name: str, records: dict[str, dict[int, Record]]) -> str:
    kind = name.split("-")[1]
    base = {seed: _task_seconds(record) for seed, record in records.get("sgd", {}).items()}
    lines = []
    for label, by_seed in records.items():

        def points(of: Callable[[Record], Any], by_seed: dict[int, Record] = by_seed) -> str:
            return _plain(interval([100 * float(of(record)) for record in by_seed.values()]))

        time = log_ratio({seed: _task_seconds(record) for seed, record in by_seed.items()}, base)
        claimed = RATIOS.get(label, {}).get(kind)
        lines.append(
            [
                SHOWN[label][0],
                str(len(by_seed)),
                points(lambda r: r.average_accuracy[-1]),
                points(lambda r: r.accuracy[-1, 0]),
                points(lambda r: r.accuracy[-1, -1]),
                points(lambda r: r.accuracy.diagonal().mean()),
                f"{time.mean:.2f}" if time.count else "—",
                f"{claimed:.1f}" if claimed else "1.0" if label == "sgd" else "—",
            ]
        )
    columns = ["", "seeds", "average", "task 1", "newest task", "when learned", "time / SGD"]
    return table([*columns, "the paper's"], lines)


def _task_seconds(record: Record) -> float:
    """Give the median of the tasks' seconds, which other work on the machine hardly moves."""
    return float(np.median(record.task_seconds["select"] + record.task_seconds["train"]))


def _curves(streams: dict[str, dict[str, dict[int, Record]]]) -> Figure:
    titles = {"permuted": "permuted MNIST", "rotated": "rotated MNIST", "incremental": "CIFAR-100"}
    figure = Figure(figsize=(9, 3.1 * len(streams)))
    axes = figure.subplots(len(streams), 2, squeeze=False, sharex=True, sharey="row")
    for line, (name, records) in zip(axes, streams.items(), strict=True):
        for axis, words in zip(line, ("average over tasks so far", "task 1"), strict=True):
            for label, by_seed in records.items():
                all_curves = [
                    100 - 100 * (r.average_accuracy if words != "task 1" else r.accuracy[:, 0])
                    for r in by_seed.values()
                ]
                x = range(1, len(all_curves[0]) + 1)
                text, colour = SHOWN[label]
                axis.plot(x, np.mean(all_curves, axis=0), color=colour, label=text)
                axis.fill_between(
                    x, np.min(all_curves, axis=0), np.max(all_curves, axis=0), color=colour,
                    alpha=0.2, linewidth=0,
                )  # fmt: skip
            axis.set_title(f"{titles[name.split('-')[1]]}: {words}", fontsize=9)
            axis.set_xlabel("tasks learned", fontsize=8)
            axis.set_xlim(1, len(x))
            axis.set_xticks([1, 5, 10, 15, 20])
            axis.set_yscale("log")
            axis.set_yticks([2, 5, 10, 20, 50, 100], ["2", "5", "10", "20", "50", "100"])
            axis.minorticks_off()
        line[0].set_ylabel("error, %", fontsize=8)
    _legend(figure, ncols=4)
    return figure


# ------------------------------------------------------------------ equal memory


def equal_memory() -> None:
    """Policies and methods at equal memory: two figures, four tables."""
    rows = load("equal-memory")
    if not rows:
        return
    draw("equal-memory", "policies", lambda: _policies(rows))
    draw("equal-memory", "methods", lambda: _methods(rows))
    for stream in STREAMS:
        mine = [row for row in rows if row["stream"] == stream]
        fill(f"policies-{stream}", _policy_table(mine))
        fill(f"methods-{stream}", _method_table(mine))


def _regime(regime: str) -> dict[str, str]:
    return {"recipe": "olss", "regime": regime}


def _policies(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(9.5, 5.4))
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    names = {
        "sketch": "on the sketch alone",
        "mix": "on a mix of constant size",
        "replay": "by replay",
    }
    for line, stream in zip(axes, STREAMS, strict=True):
        for axis, (regime, words) in zip(line, names.items(), strict=True):
            mine = [r for r in rows if r["stream"] == stream and r["regime"] == regime]
            mine = [r for r in mine if r["recipe"] == "olss"]
            for number, choice in enumerate(COLOURS):
                ends = [(s * 1.03 ** (number - 4), _against(mine, choice, s)) for s in SIZES]
                ends = [(s, e) for s, e in ends if e.count]
                if choice in ("reservoir", "recent") or not ends:
                    continue
                axis.errorbar(
                    [s for s, _ in ends], [e.mean for _, e in ends],
                    [_standard_error(e) for _, e in ends], label=choice,
                    color=COLOURS[choice], marker="o", markersize=3.5, capsize=2,
                )  # fmt: skip
            axis.axhline(0, color=COLOURS["reservoir"], linewidth=1)
            axis.set_ylim(-12, 18)
            _by_memory(axis)
            axis.set_title(f"{stream}, trained {words}", fontsize=8)
        line[0].set_ylabel("points above a reservoir", fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("rows remembered of 200,000", fontsize=8)
    _legend(figure, ncols=7)
    return figure


def _against(rows: list[Row], choice: str, size: int) -> Any:
    """Compare a policy with a reservoir of the same size, seed by seed."""
    return difference(
        select(rows, choice=choice, memory=size), select(rows, choice="reservoir", memory=size)
    )


METHODS: dict[str, dict[str, Any]] = {
    "replay + distillation, balanced": {"recipe": "olss+der++", "policy": "balanced"},
    "DER++ (the same with a reservoir)": {"recipe": "der++"},
    "replay, balanced": {**_regime("replay"), "choice": "balanced"},
    "replay, reservoir (ER)": {**_regime("replay"), "choice": "reservoir"},
    "mix, balanced": {**_regime("mix"), "choice": "balanced"},
    "mix, reservoir": {**_regime("mix"), "choice": "reservoir"},
    "sketch alone, balanced": {**_regime("sketch"), "choice": "balanced"},
    "sketch alone, reservoir": {**_regime("sketch"), "choice": "reservoir"},
    "sketch alone, paper": {**_regime("sketch"), "choice": "paper"},
    "GEM": {"recipe": "gem"},
}
LINES = {
    "replay + distillation, balanced": ("#009E73", "-"),
    "DER++ (the same with a reservoir)": ("#444444", "-"),
    "replay, balanced": ("#009E73", "--"),
    "replay, reservoir (ER)": ("#444444", "--"),
    "sketch alone, balanced": ("#009E73", ":"),
    "sketch alone, paper": ("#D55E00", ":"),
    "GEM": ("#CC79A7", "-"),
}


def _methods(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(9, 3.6))
    for axis, stream in zip(figure.subplots(1, 2, sharey=True), STREAMS, strict=True):
        mine = [row for row in rows if row["stream"] == stream]
        for name, (colour, dash) in LINES.items():
            ends = [(s, mean_of(mine, memory=s, **METHODS[name])) for s in SIZES]
            ends = [(s, e) for s, e in ends if e.count]
            axis.errorbar(
                [s for s, _ in ends], [e.mean for _, e in ends],
                [_standard_error(e) for _, e in ends], color=colour, linestyle=dash,
                marker="o", markersize=3.5, capsize=2, label=name,
            )  # fmt: skip
        _by_memory(axis)
        axis.set_title(f"{stream} MNIST", fontsize=9)
        axis.set_xlabel("rows remembered of 200,000", fontsize=8)
        axis.set_ylabel("average accuracy, %", fontsize=8)
    _legend(figure, ncols=4)
    return figure


def _policy_table(rows: list[Row]) -> str:
    lines = []
    for regime in ("sketch", "mix", "replay"):
        mine = [row for row in rows if row["regime"] == regime and row["recipe"] == "olss"]
        base = [mean_of(mine, choice="reservoir", memory=s) for s in SIZES]
        lines.append([f"**{regime}**: reservoir", *(_plain(value) for value in base)])
        for choice in COLOURS:
            cells = [_against(mine, choice, size) for size in SIZES]
            if choice != "reservoir" and any(cell.count for cell in cells):
                lines.append([f"{regime}: {choice}", *map(_signed, cells)])
    return table(["", *(f"{size:,} rows" for size in SIZES)], lines)


def _method_table(rows: list[Row]) -> str:
    lines = [
        [name, *(_plain(mean_of(rows, memory=s, **how)) for s in SIZES)]
        for name, how in METHODS.items()
    ]
    return table(["", *(f"{size:,} rows" for size in SIZES)], lines)


# ------------------------------------------------------------------ DER's protocol

DER: dict[str, dict[str, Any]] = {
    "balanced, distillation, weak EWC": {"recipe": "olss+der+++online-ewc"},
    "balanced, distillation": {"recipe": "olss+der++"},
    "DER++": {"recipe": "der++"},
    "ER": {"recipe": "er"},
}


def der_protocol() -> None:
    """Our recipes beside the published numbers."""
    rows = load("der-protocol")
    if not rows:
        return
    sizes = (200, 500, 5120)
    columns = ["", *(f"{s}, {size:,} rows" for s in STREAMS for size in sizes)]
    lines = []
    for name in DER:
        cells = [_plain(_of(rows, stream, size, name)) for stream in STREAMS for size in sizes]
        lines.append([name, *cells])
    for method in ("der++", "er"):
        values = [value for stream in STREAMS for value in PUBLISHED[stream, method]]
        lines.append([f"*{method.upper()}, published*", *(f"{value:.1f}" for value in values)])
    fill("der-protocol", table(columns, lines))
    shown = [line[:4] for line in lines]
    fill("der-short", table(["", *(f"{size:,} rows remembered" for size in sizes)], shown))


def _of(rows: list[Row], stream: str, size: int, name: str) -> Any:
    return mean_of(rows, stream=stream, memory=size, **DER[name])


# ------------------------------------------------------------------ noise


def noise() -> None:
    """Accuracy and share of noise held, by policy and level."""
    rows = load("noise")
    if not rows:
        return
    clean = [row for row in rows if not row["noise"]]
    kinds = {"label_noise": "wrong labels", "outliers": "pictures of noise"}
    names = ["reservoir", "paper", "weighted", "balanced", "balanced-leverage", "balanced-random"]
    names += ["paper, features", "weighted, features", "balanced, features"]
    for kind in kinds:
        lines = []
        for choice in names:
            cells = [_plain(mean_of(clean, choice=choice))]
            for share in (0.1, 0.3):
                mine = [r for r in rows if r["noise"] == kind and r["share"] == share]
                mine = [r for r in mine if r["choice"] == choice]
                held = interval([_noise_held(r) for r in mine])
                cells += [_plain(interval([r["average"] for r in mine])), _plain(held)]
            lines.append([choice, *cells])
        columns = ["memory", "clean", "10 %", "noise held", "30 %", "noise held"]
        fill(f"noise-{kind}", table(columns, lines))
    draw("noise", "noise", lambda: _noise_figure(rows, kinds, names))


def _noise_figure(rows: list[Row], kinds: dict[str, str], names: list[str]) -> Figure:
    figure = Figure(figsize=(9, 5))
    axes = figure.subplots(2, 2)
    for line, (kind, words) in zip(axes, kinds.items(), strict=True):
        for choice in names:
            mine = [r for r in rows if r["choice"] == choice and r["noise"] in ("", kind)]
            shares = sorted({r["share"] for r in mine})
            at = [[r for r in mine if r["share"] == share] for share in shares]
            colour = COLOURS.get(choice, "#8B4513")
            for axis, value in zip(line, (lambda r: r["average"], _noise_held), strict=True):
                axis.plot(
                    [100 * s for s in shares], [np.mean([value(r) for r in part]) for part in at],
                    color=colour, marker="o", markersize=3.5, label=choice,
                    linestyle="--" if "features" in choice else "-",
                )  # fmt: skip
        line[0].set_ylabel("average accuracy, %", fontsize=8)
        line[1].set_ylabel("noise in the memory, %", fontsize=8)
        line[1].plot([0, 30], [0, 30], color="#999999", linewidth=0.8, linestyle=":")
        for axis in line:
            axis.set_xlabel(f"{words} in the stream, %", fontsize=8)
            axis.set_xticks([0, 10, 30])
    _legend(figure, ncols=4)
    return figure


def _noise_held(row: Row) -> float:
    return 100.0 * row["disturbed"] / max(1, row["held"])


# ------------------------------------------------------------------ writing


def _legend(figure: Figure, ncols: int) -> None:
    """Name every line of a figure once, below it."""
    shown: dict[str, Any] = {}
    for axis in figure.axes:
        handles, names = axis.get_legend_handles_labels()
        shown |= dict(zip(names, handles, strict=True))
    figure.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=ncols, frameon=False,
        fontsize=8,
    )  # fmt: skip


def _by_memory(axis: Any) -> None:
    """Let an axis run over the sizes of memories."""
    axis.set_xscale("log")
    axis.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
    axis.minorticks_off()


def draw(folder: str, name: str, make: Callable[[], Figure]) -> None:
    """Draw a figure beside its data, and into the documentation."""
    with rc_context(LOOK):
        figure = make()
        figure.savefig(RESULTS / folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(
            ROOT / "docs" / "images" / f"{name}.png", dpi=150, metadata={"Software": None}
        )


def fill(name: str, text: str) -> None:
    """Write a table into every page that has a place for it."""
    place = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    pages = [*PAGES, *RESULTS.glob("*/README.md")]
    for page in pages:
        before = page.read_text(encoding="utf-8")
        after = place.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", before)
        if after != before:
            page.write_text(after, encoding="utf-8")


def table(columns: list[str], lines: list[list[str]]) -> str:
    """Give a table in Markdown."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [columns, rule, *lines])


def _standard_error(value: Any) -> float:
    return float(value.sd / math.sqrt(value.count)) if value.count > 1 else 0.0


def _plain(value: Any) -> str:
    if not value.count:
        return "—"
    return f"{value.mean:.1f}" + (f" ± {value.half:.1f}" if value.count > 1 else "")


def _signed(value: Any) -> str:
    if not value.count:
        return "—"
    clear = value.count > 1 and abs(value.mean) > value.half
    text = f"{value.mean:+.1f}".replace("-", "−")
    text += f" ± {value.half:.1f}" if value.count > 1 else ""
    return f"**{text}**" if clear else text


# ------------------------------------------------------------------ the first figure


def headline() -> None:
    """Draw what the README shows first: the paper's stream, and DER's protocol."""
    rows, records = load("der-protocol"), _records(RESULTS / "paper" / PAPER[0])
    if rows and records:
        draw("paper", "headline", lambda: _headline(rows, records))


def _headline(rows: list[Row], records: dict[str, dict[int, Record]]) -> Figure:
    figure = Figure(figsize=(9, 3.4))
    left, right = figure.subplots(1, 2)
    for label in ("sgd", "ewc", "si", "olss", "olss-mix"):
        text, colour = SHOWN[label]
        curves = [100 * r.average_accuracy for r in records[label].values()]
        x = range(1, len(curves[0]) + 1)
        left.plot(x, np.mean(curves, axis=0), color=colour, label=text)
    left.set(xlim=(1, len(x)), xticks=[1, 5, 10, 15, 20], ylim=(50, 100))
    left.set_title("20 tasks of 60,000 permuted digits", fontsize=9)
    left.set_xlabel("tasks learned", fontsize=8)
    left.set_ylabel("average accuracy on all tasks so far, %", fontsize=8)
    sizes = (200, 500, 5120)
    for name, colour in zip(DER, ("#009E73", "#0072B2", "#444444", "#999999"), strict=True):
        ends = [_of(rows, "permuted", size, name) for size in sizes]
        if all(end.count for end in ends):
            right.errorbar(
                range(3), [e.mean for e in ends], [_standard_error(e) for e in ends],
                color=colour, marker="o", markersize=4, capsize=2, label=name,
            )  # fmt: skip
    right.plot(
        range(3), PUBLISHED["permuted", "der++"], "x", color="#D55E00", label="DER++, published"
    )
    right.set_xticks(range(3), [f"{size:,}" for size in sizes])
    right.set_title("the same, once through, by memory", fontsize=9)
    right.set_xlabel("rows remembered of 1,200,000", fontsize=8)
    right.set_ylabel("average accuracy at the end, %", fontsize=8)
    for axis in (left, right):
        axis.legend(frameon=False, fontsize=7, loc="lower left" if axis is left else "lower right")
    return figure


def make() -> None:
    """Make every table and figure there are results for."""
    headline()
    paper()
    equal_memory()
    der_protocol()
    noise()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        gather(Path(sys.argv[1]))
    make()
