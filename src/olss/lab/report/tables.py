"""Tables of a report, each as CSV (all digits), Markdown and LaTeX (fit for print)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from olss.util.text import (
    explain_spread,
    format_bytes,
    format_count,
    format_ratio,
    format_score,
    format_seconds,
)

__all__ = ["ReportTable", "claim_table", "stream_tables", "to_csv", "to_latex", "to_markdown"]

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
    """A table: text as shown and values as computed.

    Attributes
    ----------
    name : str
        For files.
    caption : str
    columns : list of str
    rows : list of list of str
        As shown; a missing value is an em dash.
    values : list of dict
        For CSV.
    note : str
        The protocol the numbers were made with.
    best : dict of int to int
        Column number to the row with the best mean in it.
    """

    name: str
    caption: str
    columns: list[str]
    rows: list[list[str]]
    values: list[dict[str, Any]]
    note: str = ""
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
    caption = "Claims, checked: 95% confidence intervals over seeds"
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
