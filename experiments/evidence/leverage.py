"""Where leverage pays: fits to a few rows of real tables, and rare groups, by policy."""

from __future__ import annotations

import csv
from itertools import product
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from olss.lab.report.figures import SKY
from olss.lab.report.statistics import Interval, difference
from olss.util.text import format_interval

from . import pages
from .gather import Row
from .pages import CHOICES, RESULTS, ends, table

FOLDER = "leverage-pays"
TABLES = {
    "flights": "flights: arrival delay",
    "diamonds": "diamonds: price",
    "murders": "counties: murders",
    "mothers": "mothers: hours worked",
    "visits": "insured: visits to a doctor",
}
SIZES = ("300", "1,000", "5,000", "1%")
POLICIES = ("uniform", "weighted", "half uniform", "target", "balanced", "paper")
SHADES = {name: style.colour for name, style in CHOICES.items()}
SHADES |= {"uniform": SHADES["reservoir"], "target": SKY}
TARGETED = (
    ("least squares", "measure", "R²"),
    ("logistic", "measure", "accuracy"),
    ("logistic", "loss", "log loss"),
)
FLOOR = 5e-4  # of the figure
TICKS = ["0.1%", "1%", "10%", "100%", "×10", "×100"]
MODELS = ("least squares", "ridge", "quantile", "logistic", "pca")


def make() -> None:
    """Make the tables of the page, and the figure."""
    fits = _records("fits")
    if not fits:
        return
    names = [name for name in TABLES if any(fit["table"] == name for fit in fits)]
    ordered = _records("orders")
    for model in ("least squares", "logistic"):
        pages.fill(f"leverage-{model.replace(' ', '-')}", _measures(fits, names, model))
    for model in ("least squares", "logistic", "rare"):
        pages.fill(f"leverage-orders-{model.replace(' ', '-')}", _orders(ordered, names, model))
    pages.fill("leverage-follow-cost", _cost(ordered, names))
    pages.fill("leverage-no-rows", _no_rows(ordered, names))
    pages.fill("leverage-models", _models(fits, names))
    pages.fill("leverage-certificate", _certificates(fits, names))
    pages.fill("leverage-target", _targets(fits, names))
    pages.fill("leverage-groups", _groups(_records("groups"), names))
    pages.fill("leverage-drift", _drift())
    pages.fill("leverage-seeds", _seeds(fits, names))
    pages.draw(FOLDER, FOLDER, lambda: _figure(fits, names))


def _records(kind: str) -> list[Row]:
    lines: list[Row] = []
    for path in sorted((RESULTS / FOLDER).glob(f"{kind}-*.csv")):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                lines.append(row | {key: _number(row[key]) for key in row if key != "size"})
    return lines


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _of(records: list[Row], value: str, **wanted: Any) -> list[float]:
    return [row[value] for row in records if all(row[key] == want for key, want in wanted.items())]


def _named(policy: str, model: str) -> str:
    """Return what a policy is called in the records: the target is what the model predicts."""
    kind = "class" if model == "logistic" else "number"
    return policy.replace("target", f"target {kind}")


def _measures(fits: list[Row], names: list[str], model: str) -> str:
    """Give median and worst of what people read, R² or accuracy, by table, size and policy."""
    lines = []
    for name in names:
        everything = _of(fits, "measure", table=name, policy="all rows", model=model)[0]
        for size in SIZES:
            found = [
                _of(
                    fits,
                    "measure",
                    table=name,
                    policy=_named(policy, model),
                    size=size,
                    model=model,
                )
                for policy in POLICIES
            ]
            if not any(found):
                continue
            best = max(median(values) for values in found if values)
            cells = [_pair(values, best) for values in found]
            lines.append([name, _rows(fits, name, size), *cells, _three(everything)])
    return table(["table", "rows", *POLICIES, "all rows"], lines)


EXACT = {  # where a model comes from, and how that is called
    "sketch": "from the sketch",
    "leverage rows": "leverage rows",
    "target rows": "target rows",
    "uniform rows": "uniform rows",
}
CORRECTED = {
    "all rows, one against the rest": "all rows",
    "followed": "`glm=`",
    "sketch": "moments",
    "leverage rows": "leverage rows",
    "target rows": "target rows",
    "uniform rows": "uniform rows",
    "uniform followed": "uniform, `glm=`",
    "uniform sketch": "uniform, moments",
}
ORDERS = ("file", "random", "sorted", "class")


def _orders(ordered: list[Row], names: list[str], model: str) -> str:
    """Give the loss above that of all rows, median / worst, by order and where a model is from."""
    sources = EXACT if model == "least squares" else CORRECTED
    lines = []
    for name, size, order in product(names, (1_000, 5_000), ORDERS):
        found = []
        for source in sources:
            wanted = {"from": source, "table": name, "model": model}
            if not source.startswith("all rows"):
                wanted |= {"order": order, "rows": size}
            found.append(_of(ordered, "excess", **wanted))
        if not any(found[1:]):
            continue
        fitted = found[sources is CORRECTED :]
        best = min(median(values) for values in fitted if values)
        cells = [_excess(values, best) for values in fitted]
        if sources is CORRECTED:
            cells.insert(0, _share(found[0][0]) if found[0] else "0%")
        seeds = sorted({len(values) for values in found[1:] if values})
        lines.append([name, f"{size:,}", order, *cells, " to ".join(map(str, seeds))])
    return table(["table", "rows", "order", *sources.values(), "seeds"], lines)


def _cost(ordered: list[Row], names: list[str]) -> str:
    """Give the processor time of updates with glm= over that without, median over orders."""
    lines = []
    for name in names:
        cells = []
        for size in (1_000, 5_000):
            ratio = []
            for order in ORDERS:
                seconds = [
                    _of(
                        ordered,
                        "seconds",
                        table=name,
                        rows=size,
                        order=order,
                        model="logistic",
                        **{"from": source},
                    )
                    for source in ("followed", "sketch")
                ]
                ratio += [a / b for a, b in zip(*seconds, strict=True)]
            cells.append(f"{median(ratio):.1f}" if ratio else "—")
        lines.append([name, *cells])
    return table(["table", "1,000 rows", "5,000 rows"], lines)


def _excess(values: list[float], best: float) -> str:
    if not values:
        return "—"
    middle, worst = (_share(value) for value in (median(values), max(values)))
    return f"{f'**{middle}**' if median(values) <= best + 5e-5 else middle} / {worst}"


def _share(value: float) -> str:
    text = f"{100 * value:.2f}" if abs(value) < 0.1 else f"{100 * value:.0f}"
    return ("0" if float(text) == 0 else text.replace("-", "−")) + "%"


def _no_rows(ordered: list[Row], names: list[str]) -> str:
    """Give the largest difference from the fit to all rows over orders, sizes and seeds."""
    lines = []
    for name in names:
        cells = []
        for model in ("least squares", "ridge", "pca"):
            found = _of(ordered, "excess", table=name, model=model, **{"from": "sketch"})
            worst = 100 * max(map(abs, found), default=np.nan)
            cells.append(f"{worst:.0f}%" if worst >= 10 else f"{worst:.1g}%" if found else "—")
        lines.append([name, *cells])
    return table(["table", "least squares", "ridge", "principal components"], lines)


def _rows(fits: list[Row], name: str, size: str) -> str:
    rows = int(_of(fits, "rows", table=name, size=size)[0])
    return f"{rows:,}" + (" (1%)" if size == "1%" else "")


def _pair(values: list[float], best: float) -> str:
    if not values:
        return "—"
    text = _three(median(values))
    return f"{f'**{text}**' if median(values) >= best - 5e-4 else text} / {_three(min(values))}"


def _three(value: float) -> str:
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    return text.replace("-", "−")


def _models(fits: list[Row], names: list[str]) -> str:
    """Give the loss above that of all rows: uniform, weighted, target; at 1,000 rows."""
    lines = []
    for name in names:
        cells = []
        for model in MODELS:
            found = [
                _of(
                    fits, "excess",
                    table=name, policy=_named(policy, model), size="1,000", model=model,
                )
                for policy in ("uniform", "weighted", "target")
            ]  # fmt: skip
            cells.append(" → ".join(_percent(values) if values else "—" for values in found))
        lines.append([name, *cells])
    return table(["table", *MODELS], lines)


def _percent(values: list[float]) -> str:
    return f"{100 * median(values):.1f}".replace("-", "−") + "%"


def _certificates(fits: list[Row], names: list[str]) -> str:
    lines = []
    for name in names:
        for size in SIZES:
            found = [
                _of(
                    fits, "certificate",
                    table=name, policy=_named(policy, "pca"), size=size, model="pca",
                )
                for policy in POLICIES
            ]  # fmt: skip
            if any(found):
                cells = [f"{median(v):.2f} / {max(v):.2f}" if v else "—" for v in found]
                lines.append([name, _rows(fits, name, size), *cells])
    return table(["table", "rows", *POLICIES], lines)


def _targets(fits: list[Row], names: list[str]) -> str:
    """Give median and worst of scores that know the target, at 1%, and what is gained by them."""
    lines = []
    columns = ["uniform", "weighted", "target", "target, half uniform"]
    for name, (model, value, words) in product(names, TARGETED):
        found = [
            _of(fits, value, table=name, policy=_named(policy, model), size="1%", model=model)
            for policy in columns
        ]
        if not all(found[:3]):
            continue
        sign = -1 if value == "loss" else 1  # the less, the better
        better = [[sign * number for number in values] for values in found]
        best = max(median(values) for values in better if values)
        cells = [_pair(values, best) for values in better]
        cells = [cell.replace("−", "") for cell in cells] if sign < 0 else cells
        gains = [difference(dict(enumerate(found[2])), dict(enumerate(found[i]))) for i in (0, 1)]
        cells += [_gain(gain) for gain in gains]
        lines.append([f"{name}, {words}", *cells])
    return table(["1% of the rows", *columns, "target − uniform", "target − weighted"], lines)


def _gain(gain: Interval) -> str:
    text = format_interval(ends(gain), 4, signed=True)
    return f"**{text}**" if abs(gain.mean) > gain.half else text


def _groups(groups: list[Row], names: list[str]) -> str:
    """Give, for the rare group of each table, errors of its count and mean, and intervals."""
    lines = []
    for name in names:
        for policy in ("uniform", "weighted", "half uniform", "target"):
            mine = [
                row for row in groups
                if (row["table"], row["policy"], row["size"]) == (name, _named(policy, ""), "1,000")
            ]  # fmt: skip
            if not mine:
                continue
            cells = [f"{np.mean([row['group_rows'] for row in mine]):.0f}"]
            for what in ("count", "mean"):
                part = [row for row in mine if row["what"] == what]
                off = [abs(row["estimate"] / row["truth"] - 1) for row in part]
                given = [row for row in part if row["low"] == row["low"]]
                held = sum(row["low"] <= row["truth"] <= row["high"] for row in given)
                error = f"{100 * np.nanmean(off):.0f}%" if not np.isnan(off).all() else "—"
                cells += [error, f"{held} of {len(given)}"]
            true = int(mine[0]["truth"])
            lines.append([f"{name}, {true:,} rows" if policy == "uniform" else "", policy, *cells])
    head = ["rare group", "policy", "rows kept", "count off by", "intervals right"]
    return table([*head, "mean off by", "intervals right"], lines)


def _seeds(fits: list[Row], names: list[str]) -> str:
    """Give how many seeds each size has been measured with."""
    lines = []
    for name, size in product(names, SIZES):
        counts = [
            len(_of(fits, "loss", table=name, policy=_named(policy, "pca"), size=size, model="pca"))
            for policy in POLICIES
        ]
        if any(counts):
            lines.append([name, _rows(fits, name, size), *(str(n) if n else "—" for n in counts)])
    return table(["table", "rows", *POLICIES], lines)


def _drift() -> str:
    path = RESULTS / FOLDER / "drift.csv"
    if not path.exists():
        return ""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = []
    for change in dict.fromkeys(row["change"] for row in rows):
        mine = [row for row in rows if row["change"] == change]
        lines.append([change, *(f"{row['alarms']} of {row['batches']}" for row in mine)])
    return table(["alarms", *(f"batches of {int(r['rows']):,} rows" for r in mine)], lines)


def _figure(fits: list[Row], names: list[str]) -> Figure:
    """Draw held-out excess loss of least squares by rows kept: median, and up to the worst."""
    lines = (len(names) + 2) // 3
    figure = Figure(figsize=(9, 0.6 + 2.3 * lines), layout="constrained")
    axes = figure.subplots(lines, 3, squeeze=False, sharey=True).ravel()
    sizes = [300, 1_000, 5_000]
    for axis, name in zip(axes, names, strict=False):
        for policy in ("uniform", "paper", "weighted", "target"):
            kind = _named(policy, MODELS[0])
            found = {
                rows: _of(fits, "excess", table=name, policy=kind, rows=rows, model=MODELS[0])
                for rows in sizes
            }
            at = [rows for rows, values in found.items() if values]
            middle = [max(median(values), FLOOR) for values in found.values() if values]
            worst = [max(*values, FLOOR) for values in found.values() if values]
            axis.fill_between(at, middle, worst, color=SHADES[policy], alpha=0.15, linewidth=0)
            axis.plot(at, worst, color=SHADES[policy], linewidth=0.8, linestyle=":")
            axis.plot(at, middle, color=SHADES[policy], marker="o", markersize=3.5, label=policy)
        axis.set_title(TABLES[name], fontsize=9)
        axis.set_xlabel("rows kept", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.set(xscale="log", yscale="log", xlim=(260, 5_800), ylim=(FLOOR, 100))
        axis.set_xticks(sizes, [f"{rows:,}" for rows in sizes])
        axis.set_yticks([0.001, 0.01, 0.1, 1, 10, 100], TICKS)
        axis.minorticks_off()
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    figure.supylabel("error above that of all rows", fontsize=9)
    pages.legend(figure, ncols=4)
    return figure
