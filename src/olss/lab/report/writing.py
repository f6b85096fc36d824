"""Writing a report's files."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from olss.errors import InputError, MissingExtraError
from olss.lab.report.figures import draw_figures
from olss.lab.report.found_runs import Collection
from olss.lab.report.memory_images import draw_images
from olss.lab.report.page import render
from olss.lab.report.report_tables import (
    ReportTable,
    claim_table,
    stream_tables,
    to_csv,
    to_latex,
    to_markdown,
)
from olss.lab.report.summary import summarise
from olss.util.checksums import write_json
from olss.util.files import write_whole

__all__ = ["write"]

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
    write_whole(page, render(content, by_stream, pictures, beside).encode())
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
        write_whole(out / written[-1], give(table).encode())
    return written
