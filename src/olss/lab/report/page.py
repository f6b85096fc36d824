"""The page of a report: one HTML file that needs nothing else, from disk, without network.

Charts are drawn by a script of our own (``template/page.js``, some 20 kB) rather than by a
library. A library small enough to embed (uPlot, 50 kB) draws on a canvas: no labels at the
ends of lines, no style sheet for dark pages, nothing for screen readers. Those that do more
(Plotly, Vega, ECharts) weigh 1 to 4 MB. Pictures drawn beforehand could neither leave out a
method and rescale nor fit a phone. Without scripts the tables still have every number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from olss.errors import InputError, MissingExtraError
from olss.lab.report.claims import NOT_RUN
from olss.lab.report.collect import Collection
from olss.lab.report.figures import draw_figures
from olss.lab.report.images import draw_images
from olss.lab.report.statistics import FEW
from olss.lab.report.summary import summarise
from olss.lab.report.tables import (
    ReportTable,
    claim_table,
    stream_tables,
    tex,
    to_csv,
    to_latex,
    to_markdown,
)
from olss.util.checksums import write_json
from olss.util.files import write_atomic
from olss.util.text import PLUS_MINUS

__all__ = ["render", "write"]


MOST_PICTURES = 1_000_000  # bytes, of a page that should stay below 3 MB
LARGE = ("matrices", "memory")  # tables with a row for each task
# Class of the style sheet and sign of each verdict: never told by colour alone.
VERDICTS = {
    "holds": ("holds", "✓"),
    "does not hold": ("fails", "✗"),
    "cannot be told": ("open", "?"),
}


def render(
    content: dict[str, Any],
    tables: dict[str, list[ReportTable]],
    pictures: dict[str, list[dict[str, str]]],
    beside: Sequence[str],
) -> str:
    """Return the page as text.

    Parameters
    ----------
    content : dict
        From `summarise`.
    tables : dict
        Tables of each stream, by its id.
    pictures : dict
        Images that stay and go, by the stream's id.
    beside : sequence of str
        Files written next to the page, relative to it.
    """
    from jinja2 import Environment
    from markupsafe import Markup

    template = files("olss.lab.report") / "template"
    css, script, page = (
        (template / name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js", "page.html")
    )
    pictures = _affordable(pictures)
    streams = [
        _stream(stream, content, tables[stream["id"]], pictures.get(stream["id"], []), Markup)
        for stream in content["streams"]
    ]
    # A "<" in a name could end the script element; JSON reads the escape as the same.
    data = json.dumps(_embedded(content), separators=(",", ":")).replace("<", "\\u003c")
    environment = Environment(autoescape=True, trim_blocks=True)
    return environment.from_string(page).render(
        title="Continual learning, measured",
        lead=_lead(content),
        streams=streams,
        swatches={m["label"]: _swatch(m) for s in content["streams"] for m in s["methods"]},
        problems=content["problems"],
        counts=_counts(content["claims"]),
        count=_counts,
        not_run=NOT_RUN,
        plus_minus=PLUS_MINUS,
        few=FEW,
        open=len(content["claims"]) <= 40,
        measures=[
            (title, f"{text[0].upper()}{text[1:]}.") for title, text in content["measures"].values()
        ],
        files=beside,
        version=content["olss"],
        css=Markup(css),
        script=Markup(script),
        data=Markup(data),
    )


def _stream(
    stream: dict[str, Any],
    content: dict[str, Any],
    tables: list[ReportTable],
    pictures: list[dict[str, str]],
    markup: Any,
) -> dict[str, Any]:
    claims = [claim for claim in content["claims"] if claim["stream"] == stream["id"]]
    by_name = {table.name: _shown(table) for table in tables}
    return stream | {
        "claims": [
            claim
            | {"class": VERDICTS[claim["verdict"]][0], "sign": VERDICTS[claim["verdict"]][1]}
            | {"plot": markup(_forest(claim))}
            for claim in claims
        ],
        "setting": next((claim["setting"] for claim in claims if claim["setting"]), ""),
        "tables": by_name | {"measures": by_name["results"]},
        "unit": "Accuracy in per cent" if stream["metric"] == "accuracy" else "R²",
        "has_memory": any(any(map(any, m["memory_rows"])) for m in stream["methods"]),
        "pictures": pictures,
    }


def _shown(table: ReportTable) -> dict[str, Any]:
    """Return a table ready for the template; the script makes the rows of large ones itself."""
    if table.name in LARGE:
        table = replace(table, rows=[])
    return vars(table) | {"latex": to_latex(table)}


def _affordable(pictures: dict[str, list[dict[str, str]]]) -> dict[str, list[dict[str, str]]]:
    """Leave pictures out of the page, not out of the files, once they would make it heavy."""
    left = MOST_PICTURES
    chosen: dict[str, list[dict[str, str]]] = {stream: [] for stream in pictures}
    for place in range(max(map(len, pictures.values()), default=0)):
        for stream, several in pictures.items():
            if place < len(several) and len(several[place]["source"]) <= left:
                left -= len(several[place]["source"])
                chosen[stream].append(several[place])
    return chosen


def _lead(content: dict[str, Any]) -> str:
    streams = content["streams"]
    runs = sum(len(m["seeds"]) for s in streams for m in s["methods"])
    methods = len({m["label"] for s in streams for m in s["methods"]})
    seeds = [len(m["seeds"]) for s in streams for m in s["methods"]]
    spread = f"{min(seeds)} to {max(seeds)}" if min(seeds) < max(seeds) else f"{max(seeds)}"
    return (
        f"{runs} runs: {methods} {_plural('method', methods)} on {len(streams)} "
        f"{_plural('stream', len(streams))} of tasks, {spread} {_plural('seed', max(seeds))} each. "
        "Every number, figure and verdict here is computed from the records of these runs."
    )


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _counts(claims: list[dict[str, Any]]) -> dict[str, tuple[str, str, int]]:
    found = [claim["verdict"] for claim in claims]
    return {
        verdict: (*look, found.count(verdict))
        for verdict, look in VERDICTS.items()
        if verdict in found
    }


def _embedded(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out what no chart needs: single runs, and digits nobody sees."""
    streams = [
        {key: stream[key] for key in ("id", "title", "metric", "tasks")}
        | {
            "methods": [
                {key: _short(value) for key, value in method.items() if key != "runs"}
                | {"tex": tex(method["label"]), "swatch": _swatch(method)}
                for method in stream["methods"]
            ]
        }
        for stream in content["streams"]
    ]
    return {"streams": streams, "measures": content["measures"], "few": FEW}


def _swatch(method: dict[str, Any]) -> str:
    """Return the style of a method's sign: its colour, with gaps where its line has them."""
    colour = f"--c:{method['colour']}"
    if not method["dash"]:
        return colour
    stops, place = [], 0.0
    for k, length in enumerate(method["dash"]):
        ink = "transparent" if k % 2 else "var(--c)"
        stops.append(f"{ink} {place:g}px {place + length:g}px")
        place += length
    return f"{colour};--dash:repeating-linear-gradient(90deg,{','.join(stops)})"


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list):
        return [_short(item) for item in value]
    return {key: _short(item) for key, item in value.items()} if isinstance(value, dict) else value


def _forest(claim: dict[str, Any]) -> str:
    """Draw a claim's range, shaded, and the measured interval over it."""
    value = claim["value"]
    if value["mean"] is None or claim["kind"] == "share":
        return "<span></span>"
    ratio = claim["kind"] == "ratio"
    origin = 1.0 if ratio else 0.0
    position = math.log if ratio else float
    known = [v for v in (value["mean"], value["low"], value["high"], origin) if v is not None]
    known += [v for v in (claim["low"], claim["high"]) if v is not None]
    places = [position(v) for v in known if not ratio or v > 0]
    low, high = min(places), max(places)
    room = (high - low or 1) * 0.12
    low, high = low - room, high + room

    def x(v: float | None, other: float) -> float:
        return other if v is None else round(180 * (position(v) - low) / (high - low), 1)

    left, right = x(claim["low"], 0), x(claim["high"], 180)
    width = round(right - left, 1)
    parts = [
        f'<rect class="range" x="{left}" y="3" width="{width}" height="20" rx="3"/>',
        '<line class="axis" x1="0" x2="180" y1="13" y2="13"/>',
        f'<line class="zero" x1="{x(origin, 0)}" x2="{x(origin, 0)}" y1="1" y2="25"/>',
    ]
    if value["low"] is not None:
        ends = f'x1="{x(value["low"], 0)}" x2="{x(value["high"], 180)}"'
        parts.append(f'<line class="whisker" {ends} y1="13" y2="13"/>')
    parts.append(f'<circle cx="{x(value["mean"], 0)}" cy="13" r="4.5"/>')
    # The words beside it say the same.
    return f'<svg class="forest" viewBox="0 0 180 26" aria-hidden="true">{"".join(parts)}</svg>'


# ------------------------------------------------------------------ writing

FORMS = {"csv": to_csv, "md": to_markdown, "tex": to_latex}


def write(collection: Collection, out: Path) -> Path:
    """Write everything into a folder; return the path of the page, which is written last."""
    if out.exists() and not out.is_dir():
        raise InputError(f"out must be a folder, found the file {str(out)!r}.")
    _check_packages()
    figures, tables = out / "figures", out / "tables"
    for folder in (figures, tables):
        folder.mkdir(parents=True, exist_ok=True)
    content = summarise(collection)
    write_json(out / "report.json", content)

    beside = ["report.json"]
    by_stream, pictures = {}, {}
    for group, stream in zip(collection.groups, content["streams"], strict=True):
        by_stream[group.slug] = stream_tables(stream)
        for table in by_stream[group.slug]:
            beside += _save(table, f"{group.slug}-{table.name}", out)
        for name in draw_figures(stream, figures):
            beside += [f"figures/{name}.svg", f"figures/{name}.png"]
        pictures[group.slug] = draw_images(group, figures)
        beside += [f"figures/{picture['file']}" for picture in pictures[group.slug]]
    if content["claims"]:
        beside += _save(claim_table(content), "claims", out)
    page = out / "index.html"
    write_atomic(page, render(content, by_stream, pictures, beside).encode())
    return page


def _check_packages() -> None:
    """Say what is missing before anything is written."""
    for package in ("matplotlib", "jinja2"):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingExtraError(package, "lab", "A report") from error


def _save(table: ReportTable, name: str, out: Path) -> list[str]:
    written = []
    for form, give in FORMS.items():
        written.append(f"tables/{name}.{form}")
        write_atomic(out / written[-1], give(table).encode())
    return written
