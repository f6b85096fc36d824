"""Tables of a report, each as CSV (all digits), Markdown and LaTeX (fit for print)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from olss.util.text import (
    explain_spread,
    format_bytes,
    format_count,
    format_ratio,
    format_score,
    format_seconds,
)

__all__ = [
    "ReportTable",
    "claim_table",
    "stream_tables",
    "tex",
    "to_csv",
    "to_latex",
    "to_markdown",
]

PLAIN = ("mean", "low", "high", "least", "most", "sd", "count")


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
        One for each row, for CSV.
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


def stream_tables(stream: dict[str, Any]) -> list[ReportTable]:
    """Return the tables of one stream."""
    after = [f"After {i + 1}" for i in range(len(stream["tasks"]))]
    each = [f"Task {i + 1}" for i in range(len(stream["tasks"]))]
    return [
        _results(stream),
        _times(stream),
        _costs(stream),
        _curve_table(stream, "average", "average over tasks seen", "average", after),
        _curve_table(stream, "first", "task 1", "first", after),
        _curve_table(stream, "final", "each task after the last", "final", each),
        _matrix_table(
            stream, "matrices", f"each task after each task, mean {_unit(stream)}", "accuracy",
            lambda cell: format_score({"mean": cell}, stream["metric"]),
        ),
        _matrix_table(
            stream, "memory", "rows of each task held after each task, mean", "memory_rows",
            lambda cell: format_count({"mean": cell}),
        ),
        _settings(stream),
    ]  # fmt: skip


def claim_table(content: dict[str, Any]) -> ReportTable:
    """Return all claims as one table."""
    titles = {stream["id"]: stream["title"] for stream in content["streams"]}
    rows = [
        [c["source"], titles[c["stream"]], c["claimed"], c["measured"], c["verdict"], c["setting"]]
        for c in content["claims"]
    ]
    columns = ["Source", "Stream", "Claimed", "Measured", "Verdict", "Setting"]
    values = [
        dict(zip(columns, row, strict=True))
        | {"mean": c["value"]["mean"], "low": c["value"]["low"], "high": c["value"]["high"]}
        | {"claimed low": c["low"], "claimed high": c["high"]}
        for row, c in zip(rows, content["claims"], strict=True)
    ]
    caption = "Claims, checked: 95% confidence intervals over seeds"
    return ReportTable("claims", caption, columns, rows, values)


def _results(stream: dict[str, Any]) -> ReportTable:
    metric = stream["metric"]

    def points(value: dict[str, Any]) -> str:
        return format_score(value, metric)

    shown: list[tuple[str, str, Callable[[dict[str, Any]], str]]] = [
        ("average", "Average", points),
        ("first", "Task 1", points),
        ("newest", "Newest task", points),
        ("learned", "When learned", points),
        ("forgetting", "Forgetting", points),
        ("backward", "Backward transfer", points),
        ("forward", "Forward transfer", points),
        ("stored", "Stored examples", format_count),
        ("bytes", "Stored", format_bytes),
    ]
    if any(m["values"]["disturbed"]["mean"] for m in stream["methods"]):
        shown.append(("disturbed", "Noise held", lambda value: format_score(value, "accuracy")))
    table = _by_method(stream, "results", f"{stream['title']}: {_unit(stream)}", shown)
    for column, (key, _, _) in enumerate(shown[:7], start=2):
        sign = -1 if key == "forgetting" else 1
        means = [m["values"][key]["mean"] for m in stream["methods"]]
        known = [(sign * mean, row) for row, mean in enumerate(means) if mean is not None]
        if len(known) > 1:
            table.best[column] = max(known)[1]
    return table


def _times(stream: dict[str, Any]) -> ReportTable:
    shown: list[tuple[str, str, Callable[[dict[str, Any]], str]]] = [
        ("seconds", "Select + train", format_seconds),
        ("ratio", "Ratio to SGD", format_ratio),
        ("select", "Select", format_seconds),
        ("train", "Train", format_seconds),
        ("evaluate", "Evaluate", format_seconds),
        ("steps", "Steps", format_count),
        ("peak", "Peak memory", format_bytes),
    ]
    return _by_method(stream, "time", f"{stream['title']}: seconds", shown)


def _by_method(
    stream: dict[str, Any], name: str, caption: str,
    shown: Sequence[tuple[str, str, Callable[[dict[str, Any]], str]]],
) -> ReportTable:  # fmt: skip
    rows, values = [], []
    for method in stream["methods"]:
        cells = [write(method["values"][key]) for key, _, write in shown]
        rows.append([method["label"], _seeds(method), *cells])
        values.append(
            {"method": method["label"], "seeds": len(method["seeds"])}
            | {"missing seeds": " ".join(method["missing"])}
            | {f"{key} {end}": method["values"][key][end] for key, _, _ in shown for end in PLAIN}
        )
    columns = ["Method", "Seeds", *(title for _, title, _ in shown)]
    return ReportTable(name, caption, columns, rows, values, _note(stream, rows))


def _costs(stream: dict[str, Any]) -> ReportTable:
    shown: list[tuple[str, str, Callable[[dict[str, Any]], str]]] = [
        ("average", "Average", lambda value: format_score(value, stream["metric"])),
        ("seconds", "Seconds, select + train", format_seconds),
        ("stored", "Stored examples", format_count),
        ("bytes", "Stored", format_bytes),
    ]
    return _by_method(stream, "costs", f"{stream['title']}: score against costs", shown)


def _curve_table(
    stream: dict[str, Any], name: str, words: str, curve: str, columns: Sequence[str]
) -> ReportTable:
    rows, values = [], []
    for method in stream["methods"]:
        ends = {key: at for key, at in method["curves"][curve].items() if key != "runs"}
        points = [dict(zip(ends, point, strict=True)) for point in zip(*ends.values(), strict=True)]
        rows.append([method["label"], *(format_score(point, stream["metric"]) for point in points)])
        values += [
            {"method": method["label"], "task": i + 1, "name": stream["tasks"][i], **point}
            for i, point in enumerate(points)
        ]
    caption = f"{stream['title']}: {words}, {_unit(stream)}"
    return ReportTable(name, caption, ["Method", *columns], rows, values, _note(stream, rows))


def _matrix_table(
    stream: dict[str, Any], name: str, words: str, key: str, write: Callable[[Any], str]
) -> ReportTable:
    rows, values = [], []
    numbers = [str(i + 1) for i in range(len(stream["tasks"]))]
    for method in stream["methods"]:
        if not any(any(row) for row in method[key]):
            continue
        for after, row in zip(numbers, method[key], strict=True):
            rows.append([method["label"], after, *map(write, row)])
            values += [
                {"method": method["label"], "after task": after, "task": task, key: cell}
                for task, cell in zip(numbers, row, strict=True)
            ]
    columns = ["Method", "After task", *(f"Task {number}" for number in numbers)]
    return ReportTable(name, f"{stream['title']}: {words}", columns, rows, values, _note(stream))


def _settings(stream: dict[str, Any]) -> ReportTable:
    rows = [[m["label"], m["recipe"], m["settings"] or "—"] for m in stream["methods"]]
    columns = ["Method", "Recipe", "Settings of its own"]
    values = [dict(zip(columns, row, strict=True)) for row in rows]
    return ReportTable(
        "settings", f"{stream['title']}: settings", columns, rows, values, _note(stream)
    )


def _seeds(method: dict[str, Any]) -> str:
    missing = method["missing"]
    return f"{len(method['seeds'])}" + (f" ({len(missing)} missing)" if missing else "")


def _unit(stream: dict[str, Any]) -> str:
    return "accuracy, %" if stream["metric"] == "accuracy" else "R²"


def _note(stream: dict[str, Any], rows: Sequence[Sequence[str]] = ()) -> str:
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
            f"\\textbf{{{tex(cell)}}}" if table.best.get(j) == i else tex(cell)
            for j, cell in enumerate(row)
        ]
        for i, row in enumerate(table.rows)
    ]
    numeric = all(len(row[-1]) < 40 for row in table.rows)
    form = "l" + ("r" if numeric else "l") * (len(table.columns) - 1)
    lines = [" & ".join(map(tex, table.columns)), *(" & ".join(row) for row in rows)]
    head, *body = (line + r" \\" for line in lines)
    return "\n".join(
        [
            r"\begin{table}", r"\centering",
            f"\\caption{{{tex(table.caption)}. {tex(table.note)}}}",
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


def tex(text: str) -> str:
    """Return a text as LaTeX takes it."""
    return "".join(TEX.get(character, character) for character in text)
