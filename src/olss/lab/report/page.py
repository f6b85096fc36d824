"""The files of a report: the page, its figures, pictures and tables.

The page is one self-contained HTML file that works from disk and offline. It embeds the SVG
figures that are written beside it, so that their colours follow the page (light or dark) and a few
lines of script can hide methods in them. Without scripts, every figure and table is still there.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olss.errors import FormatError, InputError, MissingExtraError, OlssError
from olss.lab.report.claims import NOT_RUN
from olss.lab.report.collect import Group, Method, collect
from olss.lab.report.figures import GRID, INK, draw_figures
from olss.lab.report.summary import (
    ReportTable,
    claim_table,
    stream_tables,
    summarize,
    to_csv,
    to_latex,
    to_markdown,
)
from olss.streams import Dataset, Stream, from_config, permuted
from olss.util.files import ARRAY_FILE_ERRORS, read_json, write_atomic, write_json
from olss.util.text import FEW, explain_spread, html_environment

if TYPE_CHECKING:
    from markupsafe import Markup


Pictures = list[dict[str, str]]
FORMATS = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
MOST_PICTURES = 1_000_000  # bytes, of a page that should stay below 3 MB
# What a figure does not need inside the page: a style of its own, a size, fonts, digits.
SHORTER = {
    r"<metadata>.*?</metadata>|<style.*?</style>": "",
    r'(<svg [^>]*?) width="[^"]*"': r"\1",
    r'(<svg [^>]*?) height="[^"]*"': r"\1",
    r'<g id="[^"]*"': "<g",
    r" font-family: [^;\"]*;?": "",
    r' transform="rotate\(-0 [^"]*"': "",
    r"\s*\n\s*": "\n",
}
# Class of the style sheet and sign of each verdict: never shown by colour alone.
VERDICTS = {
    "holds": ("holds", "✓"),
    "does not hold": ("fails", "✗"),
    "cannot be told": ("open", "?"),
}


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Write the report of all records below some folders.

    Parameters
    ----------
    runs : sequence of Path
        Folders; every ``record.json`` below them is read.
    out : Path
        Folder to write ``index.html``, ``report.json``, ``tables`` and ``figures`` into; made
        if it is not there. The page needs none of the other files.

    Returns
    -------
    Path
        The page, which is written last.
    """
    collection, out = collect([Path(folder) for folder in runs]), Path(out)
    if out.exists() and not out.is_dir():
        raise InputError(f"out must be a folder, found the file {str(out)!r}.")
    try:
        import_module("matplotlib")  # before anything is written
    except ImportError as error:
        raise MissingExtraError("matplotlib", "lab", "A report") from error
    for folder in ("figures", "tables"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    content = summarize(collection)
    written = ["report.json"]
    tables, figures, pictures = {}, {}, {}
    for group, stream in zip(collection.groups, content["streams"], strict=True):
        tables[group.slug] = stream_tables(stream)
        for table in tables[group.slug]:
            written += _save(table, f"{group.slug}-{table.name}", out)
        figures[group.slug] = draw_figures(stream, out / "figures")
        pictures[group.slug] = draw_images(group, out / "figures")
        written += [
            f"figures/{group.slug}-{name}.{end}"
            for name in figures[group.slug]
            for end in ("svg", "png")
        ]
        written += [f"figures/{picture['file']}" for picture in pictures[group.slug]]
    if content["claims"]:
        written += _save(claim_table(content), "claims", out)
    _delete_outdated(out, written)
    write_json(out / "report.json", {**content, "files": written})
    page = out / "index.html"
    write_atomic(page, render(content, tables, figures, pictures, written).encode())
    return page


def _delete_outdated(out: Path, written: Sequence[str]) -> None:
    """Delete the figures and tables of an earlier report in the folder, and no other file."""
    try:
        earlier = read_json(out / "report.json")["files"]
    except (OSError, FormatError, KeyError, TypeError):
        return
    for name in earlier if isinstance(earlier, list) else []:
        ours = isinstance(name, str) and re.fullmatch(
            r"(figures|tables)/[\w-]+\.(csv|md|tex|svg|png)", name
        )
        if ours and name not in written:
            (out / name).unlink(missing_ok=True)


def _save(table: ReportTable, name: str, out: Path) -> list[str]:
    for ending, convert in FORMATS.items():
        write_atomic(out / "tables" / f"{name}.{ending}", convert(table).encode())
    return [f"tables/{name}.{ending}" for ending in FORMATS]


def render(
    content: dict[str, Any],
    tables: Mapping[str, list[ReportTable]],
    figures: Mapping[str, Mapping[str, str]],
    pictures: Mapping[str, Pictures],
    written: Sequence[str],
) -> str:
    """Return the page as text."""
    from markupsafe import Markup

    template = files("olss.lab.report") / "template"
    css, script = (
        Markup((template / name).read_text(encoding="utf-8")) for name in ("page.css", "page.js")
    )
    pictures = _drop_heavy(pictures)
    streams = [
        _stream(stream, content["claims"], tables[stream["id"]], figures.get(stream["id"], {}))
        | {"pictures": pictures.get(stream["id"], [])}
        for stream in content["streams"]
    ]
    return (
        html_environment("olss.lab.report")
        .get_template("page.html")
        .render(
            title="Continual learning, measured",
            lead=_lead(content),
            streams=streams,
            swatches={m["label"]: _swatch(m) for s in content["streams"] for m in s["methods"]},
            problems=content["problems"],
            counts=_count_verdicts(content["claims"]),
            count=_count_verdicts,
            not_run=NOT_RUN,
            few=FEW,
            open=len(content["claims"]) <= 40,
            measures=[
                (title, f"{text[0].upper()}{text[1:]}.")
                for title, text in content["measures"].values()
            ],
            files=written,
            version=content["olss"],
            css=css,
            script=script,
        )
    )


def _stream(
    stream: dict[str, Any],
    claims: list[dict[str, Any]],
    tables: list[ReportTable],
    figures: Mapping[str, str],
) -> dict[str, Any]:
    """Return a stream with everything the template shows of it."""
    claims = [
        claim | {"look": VERDICTS[claim["verdict"]], "forest": _forest(claim)}
        for claim in claims
        if claim["stream"] == stream["id"]
    ]
    labels = [method["label"] for method in stream["methods"]]
    return stream | {
        "claims": claims,
        "setting": next((claim["setting"] for claim in claims if claim["setting"]), ""),
        "tables": {
            table.name: vars(table)
            | {"latex": to_latex(table), "spread": explain_spread(to_markdown(table))}
            for table in tables
        },
        "figures": {
            name: _embed(svg, f"{stream['id']}-{name}", labels) for name, svg in figures.items()
        },
        "unit": "Accuracy in per cent" if stream["metric"] == "accuracy" else "R²",
    }


def _embed(svg: str, name: str, labels: Sequence[str]) -> Markup:
    """Return a figure for the page: no fixed size, ids of its own, colours that follow the page."""
    from markupsafe import Markup, escape

    svg = re.sub(
        r'<g id="method-(\d+)-\d+"',
        lambda found: f'<g data-method="{escape(labels[int(found[1])])}"',
        svg[svg.index("<svg") :],
    )
    for pattern, short in SHORTER.items():
        svg = re.sub(pattern, short, svg, flags=re.DOTALL)
    # Coordinates, but not the text between tags.
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r"([1-9]\d*\.\d\d)\d+", r"\1", tag[0]), svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', lambda found: f"{found[1]}{name}-", svg)
    for colour, of_page in ((INK, "var(--ink)"), (GRID, "var(--grid)"), ("#ffffff", "none")):
        svg = svg.replace(colour.lower(), of_page)
    found = re.search(r'viewBox="0 0 ([\d.]+)', svg)
    width = float(found[1]) if found else 300.0
    size = f"min-width:{width:.0f}px;max-width:{1.7 * width:.0f}px"  # readable, not overwhelming
    opening = f'<svg class="chart" aria-hidden="true" style="{size}" '
    return Markup(svg.replace("<svg ", opening, 1))


def _drop_heavy(pictures: Mapping[str, Pictures]) -> dict[str, Pictures]:
    """Leave pictures out of the page, not out of the files, once they would make it heavy."""
    left = MOST_PICTURES
    chosen: dict[str, Pictures] = {stream: [] for stream in pictures}
    for place in range(max(map(len, pictures.values()), default=0)):
        for stream, several in pictures.items():
            if place < len(several) and len(several[place]["source"]) <= left:
                left -= len(several[place]["source"])
                chosen[stream].append(several[place])
    return chosen


def _lead(content: dict[str, Any]) -> str:
    streams = content["streams"]
    methods = [method for stream in streams for method in stream["methods"]]
    seeds = [len(method["seeds"]) for method in methods]
    each = f"{min(seeds)} to {max(seeds)}" if min(seeds) < max(seeds) else f"{max(seeds)}"
    return (
        f"{sum(seeds)} runs: {_plural(len({m['label'] for m in methods}), 'method')} on "
        f"{_plural(len(streams), 'stream')} of tasks, {each} seed{'s' * (max(seeds) != 1)} each. "
        "Every number, figure and verdict on this page is computed from the records of these runs."
    )


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _count_verdicts(claims: list[dict[str, Any]]) -> dict[str, tuple[str, str, int]]:
    found = [claim["verdict"] for claim in claims]
    return {
        verdict: (*look, found.count(verdict))
        for verdict, look in VERDICTS.items()
        if verdict in found
    }


def _swatch(method: dict[str, Any]) -> str:
    """Return the style of a method's swatch: its colour, with gaps where its line has them."""
    colour = f"--c:{method['colour']}"
    if not method["dash"]:
        return colour
    stops, place = [], 0.0
    for k, length in enumerate(method["dash"]):
        ink = "transparent" if k % 2 else "var(--c)"
        stops.append(f"{ink} {place:g}px {place + length:g}px")
        place += length
    return f"{colour};--dash:repeating-linear-gradient(90deg,{','.join(stops)})"


def _forest(claim: dict[str, Any]) -> dict[str, float | None] | None:
    """Return where to draw a claim's range and its measured interval, from 0 to 180."""
    value = claim["value"]
    if value["mean"] is None or claim["kind"] == "share":
        return None
    scale = math.log if claim["kind"] == "ratio" else float
    numbers = {key: value[key] for key in ("mean", "low", "high")}
    numbers |= {"left": claim["low"], "right": claim["high"]}
    numbers["origin"] = 1.0 if claim["kind"] == "ratio" else 0.0
    # A ratio of zero has no place on a logarithmic axis.
    known = {k: scale(v) for k, v in numbers.items() if v is not None and (v or scale is float)}
    room = 0.12 * (max(known.values()) - min(known.values()) or 1)
    first, last = min(known.values()) - room, max(known.values()) + room
    places = {k: round(180 * (v - first) / (last - first), 1) for k, v in known.items()}
    return {"left": 0.0, "right": 180.0, "low": None, "high": None, **places}


TASKS, EXAMPLES, GAP = 4, 8, 1


def draw_images(group: Group, folder: Path) -> list[dict[str, str]]:
    """Draw a picture for each method that has images in memory, into files and for the page."""
    streams: dict[str, Stream | None] = {}
    pictures: list[dict[str, str]] = []
    for method in group.methods:
        run = method.runs[0]
        held = _read_memory(run.folder / "memory.npz")
        if held is None:
            continue
        config = run.record.config["stream"]
        key = repr(config)
        if key not in streams:
            streams[key] = _load_stream(config)
        stream = streams[key]
        sheet = None if stream is None else _draw_sheet(stream, config, held)
        if sheet is None:
            continue
        tasks, image = sheet
        name = f"{group.slug}-images-{len(pictures) + 1}.png"
        # Files are enlarged by integer factors, so that viewers do not blur them.
        write_atomic(folder / name, _encode_png(image, max(1, round(900 / image.shape[1]))))
        pictures.append(_describe_picture(method, tasks, _encode_png(image, 1), name))
    return pictures


def _describe_picture(method: Method, tasks: list[int], png: bytes, name: str) -> dict[str, str]:
    rows = ", ".join(str(task + 1) for task in tasks)
    caption = (
        f"One row of images for each of the tasks {rows}: left of the line {EXAMPLES} that stayed, "
        f"right of it {EXAMPLES} that went, drawn at random from each; seed {method.runs[0].seed}, "
        "after the last task. Permuted images are shown put back in order."
    )
    return {
        "label": method.label,
        "alt": f"Images of tasks {rows}: left kept, right not kept by {method.label}",
        "caption": caption,
        "file": name,
        "source": "data:image/png;base64," + base64.b64encode(png).decode(),
    }


def _read_memory(path: Path) -> NDArray[np.int64] | None:
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            held = dict(file).get("rows", np.empty((0, 2), np.int64))
    except ARRAY_FILE_ERRORS:
        return None
    return held if held.ndim == 2 and held.shape[1] == 2 and len(held) else None


def _load_stream(config: dict[str, Any]) -> Stream | None:
    """Return the stream, or None if its data is not available: pictures are optional."""
    # The laboratory adds keys that `from_config` does not take.
    made_of = {k: v for k, v in config.items() if k not in ("title", "first_tasks")}
    try:
        return from_config(made_of)
    except (OlssError, OSError):
        return None


def _draw_sheet(
    stream: Stream, config: dict[str, Any], held: NDArray[np.int64]
) -> tuple[list[int], NDArray[Any]] | None:
    """Return the tasks shown and one image: a row for each task, kept ones left."""
    count = len(stream)
    tasks = np.unique(np.linspace(0, count - 1, min(TASKS, count)).round().astype(int)).tolist()
    # A generator of its own for each sheet: the same choice for every method.
    rng = np.random.default_rng(0)
    rows = []
    for number in tasks:
        task = stream[number]
        if task.X.ndim not in (3, 4):
            return None
        images = np.asarray(task.X, np.float64) / task.scale
        images = _undo_permutation(images, config, number)
        kept = np.zeros(len(images), bool)
        mine = held[held[:, 0] == number, 1]
        kept[mine[mine < len(images)]] = True
        sides = [images[_sample(np.flatnonzero(side), rng)] for side in (kept, ~kept)]
        rows.append([_draw_strip(side, images.shape[1:]) for side in sides])
    height = rows[0][0].shape[0]
    bar = np.full((height, 2 * GAP, 3), (0.84, 0.37, 0.0))
    return tasks, np.concatenate([np.concatenate([a, bar, b], axis=1) for a, b in rows])


def _undo_permutation(images: NDArray[Any], config: dict[str, Any], number: int) -> NDArray[Any]:
    """Undo a permutation of pixels, found by sending pixel numbers through the same stream."""
    if config.get("name") != "permuted":
        return images
    shape = images.shape[1:]
    pixels = np.arange(int(np.prod(shape))).reshape(1, *shape)
    label = np.zeros(1, np.int64)
    probe = permuted(
        Dataset("pixels", pixels, label, pixels, label), tasks=number + 1,
        permute_first=config.get("permute_first", True), seed=config.get("seed", 0),
    )  # fmt: skip
    order = probe[number].X[0].ravel()
    flat = np.empty((len(images), pixels.size))
    flat[:, order] = images.reshape(len(images), -1)
    return flat.reshape(images.shape)


def _sample(rows: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    return rng.permutation(rows)[:EXAMPLES]


def _draw_strip(images: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Put images side by side, white where there are too few; (height, width, 3)."""
    if len(shape) == 3:
        images = np.moveaxis(images, 1, -1)
        height, width = shape[1:]
    else:
        images = np.repeat(1 - images[..., None], 3, axis=-1)  # ink on paper
        height, width = shape
    strip = np.ones((height + GAP, EXAMPLES * (width + GAP), 3))
    for i, image in enumerate(images):
        left = i * (width + GAP)
        strip[:height, left : left + width] = image if image.shape[-1] == 3 else image[..., :1]
    return strip


def _encode_png(image: NDArray[np.float64], factor: int) -> bytes:
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    pixels = np.rint(255 * image.clip(0, 1)).astype(np.uint8)
    imsave(buffer, pixels.repeat(factor, 0).repeat(factor, 1), format="png")
    return buffer.getvalue()
