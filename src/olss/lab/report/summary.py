"""The content of a report as one dictionary for JSON, and its tables in CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olss.lab.experiment import (
    PROTOCOL_SETTINGS,
    describe_protocol,
    describe_setting,
    drop_defaults,
    shared_settings,
)
from olss.lab.report.claims import own_claims, paper_claims
from olss.lab.report.collect import Collection, Group, Method
from olss.lab.report.figures import Style, assign_styles
from olss.lab.report.statistics import (
    LEVEL,
    MEASURES,
    difference,
    interval,
    log_ratio,
    phase_seconds,
    seconds,
)
from olss.streams.record import PHASES, Record
from olss.util.text import (
    FEW,
    explain_spread,
    format_bytes,
    format_count,
    format_interval,
    format_ratio,
    format_score,
    format_seconds,
)


def summarize(collection: Collection) -> dict[str, Any]:
    """Compute the whole content of a report."""
    import olss

    groups = collection.groups
    styles = assign_styles(
        (m.label, m.recipe, m.learner.get("policy")) for group in groups for m in group.methods
    )
    claims = [claim for g in groups for of in (paper_claims, own_claims) for claim in of(g)]
    content: dict[str, Any] = _to_json(
        {
            "format": "olss-report",
            "version": 1,
            "olss": olss.__version__,
            "level": LEVEL,
            "measures": {name: [m.title, m.definition] for name, m in MEASURES.items()},
            "streams": [_summarize_group(group, styles) for group in groups],
            "claims": [asdict(claim) for claim in claims],
            "problems": [asdict(problem) for problem in collection.problems],
        }
    )
    return content


def _to_json(value: Any) -> Any:
    """Return a value as JSON has it: no arrays, None for what is not a finite number."""
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return _to_json(value.tolist())
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value


def _summarize_group(group: Group, styles: dict[str, Style]) -> dict[str, Any]:
    shared, own = _describe_settings(group)
    compete = group.compete if group.metric == "accuracy" else None
    sgd = next((m for m in group.methods if m.recipe == "sgd"), None)
    return {
        "id": group.slug,
        "title": group.title,
        "winner": describe_winner(group),
        "protocol": group.protocol,
        "protocol_words": describe_protocol(group.stream, len(group.tasks), shared, compete),
        "metric": group.metric,
        "stream": group.stream,
        "tasks": group.tasks,
        "methods": [
            _summarize_method(method, styles[method.label], sgd) | {"settings": own[method.label]}
            for method in group.methods
        ],
    }


def _summarize_method(method: Method, style: Style, sgd: Method | None) -> dict[str, Any]:
    records = [run.record for run in method.runs]

    def over_seeds(of: Callable[[Record], float]) -> dict[str, Any]:
        each = [of(record) for record in records]
        return asdict(interval(each)) | {"each": each}

    def spent_in(phase: str) -> dict[str, Any]:
        return over_seeds(lambda record: phase_seconds(record)[phase])

    accuracy = np.stack([record.accuracy for record in records])
    own, base = (
        {run.seed: seconds(run.record) for run in m.runs} if m else {} for m in (method, sgd)
    )
    return {
        "label": method.label,
        "recipe": method.recipe,
        "colour": style.colour,
        "dash": list(style.dash),
        "seeds": [run.seed for run in method.runs],
        "missing": method.missing,
        "values": {name: over_seeds(measure.of) for name, measure in MEASURES.items()}
        | {phase: spent_in(phase) for phase in PHASES}
        | {
            "seconds": over_seeds(seconds),
            "ratio": asdict(log_ratio(own, base)),
            "stored": over_seeds(lambda r: float(r.stored_examples[-1])),
            "disturbed": over_seeds(
                lambda r: float(r.disturbed_rows[-1] / max(1, r.stored_examples[-1]))
            ),
            "bytes": over_seeds(lambda r: float(r.stored_bytes[-1])),
            "peak": over_seeds(lambda r: float(r.peak_memory) or math.nan),
            "steps": over_seeds(lambda r: float(r.steps.sum())),
        },
        "curves": {
            "average": _curve(np.stack([record.average_accuracy for record in records])),
            "first": _curve(accuracy[:, :, 0]),
            "final": _curve(accuracy[:, -1]),
        },
        "accuracy": accuracy.mean(axis=0),
        "memory_rows": np.mean([record.memory_rows for record in records], axis=0),
        "runs": [
            {
                "seed": run.seed,
                "average": run.record.average_accuracy,
                "accuracy": run.record.accuracy,
                "seconds": run.record.seconds,
                "versions": run.record.versions,
            }
            for run in method.runs
        ],
    }


def _curve(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return the mean of curves (seeds, points) with its interval, and the curves if few."""
    points = [asdict(interval(column)) for column in values.T]
    keys = ("mean", "low", "high", "least", "most", "count")
    few = values.tolist() if 1 < len(values) < FEW else []
    return {key: [point[key] for point in points] for key in keys} | {"runs": few}


def _describe_settings(group: Group) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the training settings all methods share, and each method's own in words."""
    whole = [{"net": m.config.get("net"), **m.config.get("training", {})} for m in group.methods]
    chosen = [drop_defaults(settings) for settings in whole]
    own = {}
    for method, mine in zip(group.methods, chosen, strict=True):
        training = {
            key: mine[key]
            for key in dict.fromkeys([*PROTOCOL_SETTINGS, *mine])
            if key in mine and any(other.get(key) != mine[key] for other in chosen)
        }
        learner = drop_defaults(method.learner)
        if learner.get("regime") != "mix":
            learner.pop("share", None)  # of a mix of current and remembered rows
        words = [
            describe_setting(key, value)
            for key, value in (training | learner).items()
            if key not in ("label", "recipe")
        ]
        own[method.label] = ", ".join(words)
    return shared_settings(whole), own


def describe_winner(group: Group) -> str:
    """Return a sentence on the method with the highest average and its lead over the next.

    Training on everything (`joint`) does not compete: it is there as the upper bound.
    """
    competing = [method for method in group.methods if method.recipe != "joint"]
    averages = {method.label: _averages(method) for method in competing or group.methods}
    means = {label: interval(list(scores.values())) for label, scores in averages.items()}
    ranked = [label for label, value in means.items() if not math.isnan(value.mean)]
    ranked.sort(key=lambda label: means[label].mean, reverse=True)
    if not ranked:
        return f"{group.title}: no method has an average over all tasks."
    best, *others = ranked
    unit = "%" if group.metric == "accuracy" else "R²"
    score = f"{format_score(means[best].content(), group.metric)} {unit} over all tasks"
    if not others:
        return f"{group.title}: {best} ends at {score}."
    lead = _describe_lead(averages[best], averages[others[0]], others[0], group.metric)
    return f"{group.title}: {best} ends highest, {score}, {lead}."


def _describe_lead(best: dict[str, float], second: dict[str, float], name: str, metric: str) -> str:
    gap = difference(best, second)
    factor, digits, unit = (100, 1, " points") if metric == "accuracy" else (1, 3, "")
    if round(gap.mean, 9) < 0:  # its mean is higher thanks to seeds that the other lacks
        lost = difference(second, best).content()
        below = f"{format_interval(lost, digits, factor)}{unit} below {name}"
        return f"but {below} on the {gap.count} seed{'s' * (gap.count != 1)} both have"
    lead = f"{format_interval(gap.content(), digits, factor)}{unit} above {name}"
    if math.isnan(gap.low):
        return f"{lead} (too few seeds to say whether that is chance)"
    return lead if gap.low > 0 else f"{lead}, which {gap.count} seeds cannot tell from chance"


def _averages(method: Method) -> dict[str, float]:
    return {run.seed: MEASURES["average"].of(run.record) for run in method.runs}


Stream = dict[str, Any]
Columns = dict[str, tuple[str, Callable[[dict[str, Any]], str]]]  # key to title and format
ENDS = ("mean", "low", "high", "least", "most", "sd", "count")
TIMES: Columns = {
    "seconds": ("Select + train", format_seconds),
    "ratio": ("Ratio to SGD", format_ratio),
    "select": ("Select", format_seconds),
    "train": ("Train", format_seconds),
    "evaluate": ("Evaluate", format_seconds),
    "steps": ("Steps", format_count),
    "peak": ("Peak memory", format_bytes),
}
STORED: Columns = {"stored": ("Stored examples", format_count), "bytes": ("Stored", format_bytes)}


@dataclass(frozen=True)
class ReportTable:
    """A table: text as shown and values as computed."""

    name: str  # for files
    caption: str
    columns: list[str]
    rows: list[list[str]]  # as shown; a missing value is an em dash
    values: list[dict[str, Any]]  # for CSV
    note: str = ""  # the protocol the numbers were made with
    # column number to the row with the best mean in it
    best: dict[int, int] = field(default_factory=dict)


def stream_tables(stream: Stream) -> list[ReportTable]:
    """Return the tables of one stream."""
    score = partial(format_score, metric=stream["metric"])
    unit = "accuracy, %" if stream["metric"] == "accuracy" else "R²"
    numbers = range(1, len(stream["tasks"]) + 1)
    after, each = [f"After {n}" for n in numbers], [f"Task {n}" for n in numbers]
    costs: Columns = {
        "average": ("Average", score),
        "seconds": ("Seconds, select + train", format_seconds),
    }
    return [
        _results_table(stream, unit, score),
        _method_table(stream, "time", "seconds", TIMES),
        _method_table(stream, "costs", "score against costs", costs | STORED),
        _curve_table(stream, "average", f"average over tasks seen, {unit}", after, score),
        _curve_table(stream, "first", f"task 1, {unit}", after, score),
        _curve_table(stream, "final", f"each task after the last, {unit}", each, score),
        _matrix_table(
            stream, "matrices", f"each task after each task, mean {unit}", "accuracy", score
        ),
        _matrix_table(
            stream, "memory", "rows of each task held after each task, mean", "memory_rows",
            format_count,
        ),
        _settings_table(stream),
    ]  # fmt: skip


def claim_table(content: dict[str, Any]) -> ReportTable:
    """Return all claims as one table."""
    titles = {stream["id"]: stream["title"] for stream in content["streams"]}
    columns = ["Source", "Stream", "Claimed", "Measured", "Verdict", "Setting"]
    rows, values = [], []
    for claim in content["claims"]:
        cells = claim | {"stream": titles[claim["stream"]]}
        rows.append([cells[column.lower()] for column in columns])
        values.append(
            dict(zip(columns, rows[-1], strict=True))
            | {end: claim["value"][end] for end in ("mean", "low", "high")}
            | {"claimed low": claim["low"], "claimed high": claim["high"]}
        )
    caption = "Claims, checked: 90% confidence intervals over seeds, 5% beyond either end"
    return ReportTable("claims", caption, columns, rows, values)


def _results_table(
    stream: Stream, unit: str, score: Callable[[dict[str, Any]], str]
) -> ReportTable:
    titles = {
        "average": "Average", "first": "Task 1", "newest": "Newest task",
        "learned": "When learned", "forgetting": "Forgetting", "backward": "Backward transfer",
        "forward": "Forward transfer",
    }  # fmt: skip
    columns: Columns = {key: (title, score) for key, title in titles.items()} | STORED
    if any(m["values"]["disturbed"]["mean"] for m in stream["methods"]):
        columns["disturbed"] = ("Noise held", format_score)
    table = _method_table(stream, "results", unit, columns)
    for column, key in enumerate(titles, start=2):
        sign = -1 if key == "forgetting" else 1
        means = [m["values"][key]["mean"] for m in stream["methods"]]
        known = [(sign * mean, row) for row, mean in enumerate(means) if mean is not None]
        if len(known) > 1:
            table.best[column] = max(known)[1]
    return table


def _method_table(stream: Stream, name: str, words: str, columns: Columns) -> ReportTable:
    """Return a table with a row for each method."""
    rows, values = [], []
    for method in stream["methods"]:
        missing = f" ({len(method['missing'])} missing)" if method["missing"] else ""
        cells = [write(method["values"][key]) for key, (_, write) in columns.items()]
        rows.append([method["label"], f"{len(method['seeds'])}{missing}", *cells])
        values.append(
            {"method": method["label"], "seeds": len(method["seeds"])}
            | {"missing seeds": " ".join(method["missing"])}
            | {f"{key} {end}": method["values"][key][end] for key in columns for end in ENDS}
        )
    titles = ["Method", "Seeds", *(title for title, _ in columns.values())]
    caption = f"{stream['title']}: {words}"
    return ReportTable(name, caption, titles, rows, values, _note(stream, rows))


def _curve_table(
    stream: Stream, curve: str, words: str, columns: Sequence[str],
    score: Callable[[dict[str, Any]], str],
) -> ReportTable:  # fmt: skip
    rows, values = [], []
    for method in stream["methods"]:
        ends = {key: at for key, at in method["curves"][curve].items() if key != "runs"}
        points = [dict(zip(ends, point, strict=True)) for point in zip(*ends.values(), strict=True)]
        rows.append([method["label"], *map(score, points)])
        values += [
            {"method": method["label"], "task": i + 1, "name": stream["tasks"][i], **point}
            for i, point in enumerate(points)
        ]
    caption = f"{stream['title']}: {words}"
    return ReportTable(curve, caption, ["Method", *columns], rows, values, _note(stream, rows))


def _matrix_table(
    stream: Stream, name: str, words: str, key: str, write: Callable[[dict[str, Any]], str]
) -> ReportTable:
    rows, values = [], []
    numbers = [str(i + 1) for i in range(len(stream["tasks"]))]
    for method in stream["methods"]:
        if not any(any(row) for row in method[key]):
            continue
        for after, row in zip(numbers, method[key], strict=True):
            rows.append([method["label"], after, *(write({"mean": cell}) for cell in row)])
            values += [
                {"method": method["label"], "after task": after, "task": task, key: cell}
                for task, cell in zip(numbers, row, strict=True)
            ]
    columns = ["Method", "After task", *(f"Task {number}" for number in numbers)]
    return ReportTable(name, f"{stream['title']}: {words}", columns, rows, values, _note(stream))


def _settings_table(stream: Stream) -> ReportTable:
    rows = [[m["label"], m["recipe"], m["settings"] or "—"] for m in stream["methods"]]
    columns = ["Method", "Recipe", "Settings of its own"]
    values = [dict(zip(columns, row, strict=True)) for row in rows]
    caption = f"{stream['title']}: settings"
    return ReportTable("settings", caption, columns, rows, values, _note(stream))


def _note(stream: Stream, rows: Sequence[Sequence[str]] = ()) -> str:
    """Return the protocol the numbers were made with, and what their spread means."""
    meaning = explain_spread(" ".join(cell for row in rows for cell in row))
    protocol = "Protocol: " + "; ".join(stream["protocol_words"]) + "."
    return f"{protocol} {meaning[0].upper()}{meaning[1:]}." if meaning else protocol


# ------------------------------------------------------------------ forms


def to_csv(table: ReportTable) -> str:
    """Return the values behind a table, all digits, one row of CSV each."""
    buffer = io.StringIO()
    names = list(dict.fromkeys(name for row in table.values for name in row))
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table.values)
    return buffer.getvalue()


def to_markdown(table: ReportTable) -> str:
    """Return a table in Markdown, the best of a column in bold."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rows = [
        [f"**{cell}**" if table.best.get(j) == i else cell for j, cell in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    rule = "|" + "|".join([" --- ", *(" ---: " for _ in table.columns[1:])]) + "|"
    note = f"\n{table.note}\n" if table.note else ""
    body = "\n".join([line(table.columns), rule, *map(line, rows)])
    return f"**{table.caption}**\n\n{body}\n{note}"


def to_latex(table: ReportTable) -> str:
    """Return a table in LaTeX (booktabs), the best of a column in bold."""
    rows = [
        [
            f"\\textbf{{{_escape_tex(cell)}}}" if table.best.get(j) == i else _escape_tex(cell)
            for j, cell in enumerate(row)
        ]
        for i, row in enumerate(table.rows)
    ]
    numeric = all(len(row[-1]) < 40 for row in table.rows)
    form = "l" + ("r" if numeric else "l") * (len(table.columns) - 1)
    lines = [" & ".join(map(_escape_tex, table.columns)), *(" & ".join(row) for row in rows)]
    head, *body = (line + r" \\" for line in lines)
    return "\n".join(
        [
            r"\begin{table}", r"\centering",
            f"\\caption{{{_escape_tex(table.caption)}. {_escape_tex(table.note)}}}",
            f"\\begin{{tabular}}{{{form}}}", r"\toprule", head, r"\midrule", *body,
            r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
        ]
    )  # fmt: skip


TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "−": "$-$", "×": r"$\times$", "—": "---", "–": "--", "²": "$^2$", "’": "'",
    "\u202f": r"\,", "→": r"$\to$",
}  # fmt: skip


def _escape_tex(text: str) -> str:
    """Return a text as LaTeX takes it."""
    return "".join(TEX.get(character, character) for character in text)
