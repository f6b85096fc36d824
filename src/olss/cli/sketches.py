"""Commands that read or change a sketch file: inspect, estimate, fit and forget."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from olss.errors import InputError
from olss.util.terminal import echo, report_errors

if TYPE_CHECKING:
    from olss.diagnostics.estimates import Estimate, Estimates
    from olss.files.forget import Forgotten
    from olss.sketch import Sketch

Condition: TypeAlias = str | tuple[str, str] | None

GROUPS = 50  # most lines of a table

WHERE = typer.Option(
    "--where",
    metavar="COL=VALUE",
    help="Rows in which COL is VALUE; COL= where it is missing. Also ranges: 'COL<VALUE', <=, >, "
    ">= (quote them). Columns and ranges must all match; of several values of a column, any.",
)

AS_JSON = typer.Option(
    "--json", help="Print JSON; numbers that are not known or not finite are null."
)

INSPECT_EXAMPLES = """\
**Examples**

`olss inspect small.parquet`

`olss inspect small.parquet --html page.html`  a page to read and to share

`olss inspect small.parquet --against today.csv`  whether new rows are unlike those seen

`olss inspect small.parquet --against today.csv --monitor monitor.json`  an alarm for every night

Exit codes: 0 done, and with --against no drift alarm; 1 failed; 4 drift alarm: the new rows are \
unlike those seen.
"""
DRIFTED = 4  # exit code when new rows are unlike those seen

ESTIMATE_EXAMPLES = """\
**Examples**

`olss estimate small.parquet`  how many rows were seen

`olss estimate small.parquet --mean delay --total distance --by carrier`

`olss estimate small.parquet --mean delay --where carrier=UA --where carrier=AA --level 0.99`

`olss estimate small.parquet --where "date>=2026-01-01" --where "date<2026-02-01"`

`olss estimate small.parquet --total delay --calibrate`  by the exact totals of scored columns
"""

FIT_EXAMPLES = """\
**Examples**

`olss fit small.parquet`  the model of its target: ridge for numbers, logistic for classes

`olss fit small.parquet --target price --kind least-squares --json model.json`

Least squares, ridge, discriminant and ridge classifier equal the fit to all rows ever seen.
"""

FORGET_EXAMPLES = """\
**Examples**

`olss forget small.parquet --where person=4711`

`olss forget small.parquet --where carrier=UA --where origin=JFK`  rows in which both hold

`olss forget small.parquet --where task=logs/2026-10-01.csv`  the rows of a file

`olss forget small.parquet --where "date<2024-01-01" --dry-run`  how many rows that would remove

Exit codes: 0 done, or nothing to remove; 1 failed, the file is unchanged; 2 more than half of the \
rows would be removed, and this was not confirmed.
"""
REFUSED = 2  # exit code without confirmation


def register(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("inspect", epilog=INSPECT_EXAMPLES)(report_errors(_inspect))
    app.command("estimate", epilog=ESTIMATE_EXAMPLES)(report_errors(_estimate))
    app.command("fit", epilog=FIT_EXAMPLES)(report_errors(_fit))
    app.command("forget", epilog=FORGET_EXAMPLES)(report_errors(_forget))


def _inspect(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="OUT", help="A file made by compress or Sketch.save."),
    ],
    html: Annotated[
        Path | None,
        typer.Option(metavar="PAGE.html", help="Also write a self-contained HTML page."),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="NEW...", help="Test these files for drift; exit with 4 if found."),
    ] = None,
    monitor: Annotated[
        Path | None,
        typer.Option(
            metavar="STATE.json",
            help="A sequential alarm, created if there is no such file; NEW is its next batch and "
            "decides the exit code.",
        ),
    ] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Print what a sketch file holds, how good it is, and whether new files are unlike it."""
    from olss.files import inspect

    path, *more = paths
    if more and not against:
        raise InputError(
            f"inspect takes one file, found {len(paths)}; to compare with new ones: --against."
        )
    # The shell makes several files of a pattern; all but the first come without the option.
    found = inspect(path, against=[*against, *more] if against else None, monitor=monitor)
    if html is not None:
        from olss.files.page import write_page

        write_page(found, html)
    echo(_to_json(found.to_dict()) if as_json else found)
    if html is not None and not as_json:
        echo(f"\nThe page is {html}")
    if found.alarm:
        raise typer.Exit(DRIFTED)


def _estimate(
    path: Annotated[
        str, typer.Argument(metavar="OUT", help="A file made by compress or Sketch.save.")
    ],
    mean: Annotated[
        list[str] | None, typer.Option("--mean", metavar="COL", help="The mean of a column.")
    ] = None,
    total: Annotated[
        list[str] | None, typer.Option("--total", metavar="COL", help="The sum of a column.")
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="The number of rows; the default.")
    ] = False,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="COL", help="Group by this column; repeat for several."),
    ] = None,
    where: Annotated[list[str] | None, WHERE] = None,
    level: Annotated[
        float, typer.Option("--level", help="Confidence level of the intervals.")
    ] = 0.95,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Use the exactly known totals of scored columns."),
    ] = False,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Estimate counts, totals and means of everything seen, with intervals, by group.

    Requires a file made with the policy weighted or reservoir.
    """
    from olss.diagnostics.select import names_of
    from olss.sketch import Sketch, state_of
    from olss.util import checks

    asked = [("mean", name) for name in mean or ()] + [("total", name) for name in total or ()]
    if count or not asked:
        asked.insert(0, ("count", ""))
    sketch = Sketch.load(path)
    columns = names_of(state_of(sketch))
    for option, name in [*asked, *(("by", name) for name in by or ())]:
        if name:
            checks.column(f"--{option}", name, columns)
    names, conditions = tuple(by or ()), _parse_conditions(sketch, where)
    found = [
        sketch.estimate(name or None, by=names or None, where=conditions, calibrate=calibrate)
        for _, name in asked
    ]
    if as_json:
        pairs = zip(asked, found, strict=True)
        lines = [line for (what, name), one in pairs for line in _to_dicts(one, what, name, level)]
        echo(_to_json({"path": path, "level": level, "estimates": lines}))
    else:
        echo(_format_estimates(sketch, found, asked, names, conditions, level))


def _fit(
    path: Annotated[
        str, typer.Argument(metavar="OUT", help="A file made by compress or Sketch.save.")
    ],
    target: Annotated[
        str | None,
        typer.Option(metavar="COL", help="Column to predict; by default the target of the file."),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="auto, ridge, least-squares, discriminant, ridge-classifier, logistic or poisson.",
        ),
    ] = "auto",
    ridge: Annotated[
        str, typer.Option(metavar="NUMBER", help="The penalty; auto: by cross-validation.")
    ] = "auto",
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the model as JSON.")
    ] = None,
) -> None:
    """Fit a linear model to everything a sketch file has seen, and print it."""
    from olss.sketch import Sketch
    from olss.util.files import open_atomic

    try:
        penalty = ridge if ridge == "auto" else float(ridge)
    except ValueError:
        raise InputError(f"--ridge must be a number or auto, found {ridge!r}.") from None
    model = Sketch.load(path).linear_model(target, kind, penalty)  # type: ignore[arg-type]
    if json_file is not None:
        with open_atomic(json_file) as file:
            file.write((json.dumps(model.to_dict(), indent=1) + "\n").encode())
    echo(model)


def _to_dicts(
    found: Estimate | Estimates, what: str, name: str, level: float
) -> Iterator[dict[str, Any]]:
    """Yield a dictionary for each group, or one."""
    from olss.diagnostics.estimates import Estimates

    columns = list(found.groups) if isinstance(found, Estimates) else []
    pairs = found if isinstance(found, Estimates) else [((), found)]
    for labels, one in pairs:
        figure, (low, high) = one.figures[what], one.interval(what, level)  # type: ignore[arg-type]
        labels = labels if len(columns) != 1 else (labels,)
        yield {
            "what": what,
            "column": name or None,
            "group": dict(zip(columns, labels, strict=True)),
            "value": figure.value,
            "se": figure.se,
            "low": low,
            "high": high,
            "rows": one.rows,
            "missing": found.missing,
        }


def _to_json(value: object) -> str:
    """Return JSON; what is not finite is null, what is not JSON (dates) a string."""
    return json.dumps(_plain(value), allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # of NumPy
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _forget(
    path: Annotated[
        str, typer.Argument(metavar="OUT", help="A file made by compress or Sketch.save.")
    ],
    where: Annotated[list[str], WHERE],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print how many rows match; change nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask if more than half of the rows match.")
    ] = False,
) -> None:
    """Remove rows for good: the file is replaced by one without them, and can be continued.

    Prints how many rows were removed, and what remains of them in the moments.
    """
    from olss.files import forget
    from olss.sketch import Sketch

    conditions = _parse_conditions(Sketch.load(path), where) or {}
    if not dry_run and not yes:
        planned = forget(path, conditions, dry_run=True)
        if planned.removed > planned.rows and not _confirm(planned):
            raise typer.Exit(REFUSED)
    echo(forget(path, conditions, dry_run=dry_run))


def _confirm(planned: Forgotten) -> bool:
    """Ask before removing most of the rows; without a terminal, print how to confirm."""
    echo(planned, err=True)
    if sys.stdin.isatty():
        return typer.confirm("More than half of the rows. Remove them for good?", err=True)
    echo("Error: this is more than half of the rows. Confirm it with --yes.", err=True)
    return False


def _parse_conditions(
    sketch: Sketch, where: Sequence[str] | None
) -> dict[str, list[Condition]] | None:
    """Return columns, and the values or ranges wanted, from texts such as COL=VALUE."""
    from olss.diagnostics.select import names_of
    from olss.sketch import state_of

    if not where:
        return None
    names = set(names_of(state_of(sketch)))
    found: dict[str, list[Condition]] = {}
    for text in where:
        places = list(re.finditer("<=|>=|<|>|=", text))
        if not places:
            raise InputError(f"--where must be COL=VALUE or COL<VALUE, found {text!r}.")
        # A column's name may hold an operator, too.
        known = [place for place in places if {(n := text[: place.start()]), n.strip()} & names]
        place = (known or places)[0]
        sign, value = place.group(), text[place.end() :]
        condition = (value or None) if sign == "=" else (sign, value.strip())
        name = text[: place.start()]
        found.setdefault(name if name in names else name.strip(), []).append(condition)
    return found


def _format_estimates(
    sketch: Sketch, found: Sequence[Any], asked: Sequence[tuple[str, str]], by: tuple[str, ...],
    where: Any, level: float,
) -> str:  # fmt: skip
    """Return a table of estimates: a line each, or a line a group."""
    from olss.diagnostics.estimates import Estimate
    from olss.sketch import config_of
    from olss.util.text import align_columns

    titles = [f"{what} {name}".strip() for what, name in asked]
    percent = f"{100 * level:.10g}%"
    if not by:
        head = [["", "estimate", percent, "from rows kept"]]
        lines = align_columns(
            head
            + [
                [title, *_format_figure(one, what, level), f"{one.rows:,}"]
                for title, (what, _), one in zip(titles, asked, found, strict=True)
                if isinstance(one, Estimate)
            ],
            left=1,
        )
    else:
        lines = _group_lines(sketch, found, asked, by, where, level, titles, percent)
    missing = [
        f"{name}: {one.missing:,} rows kept have no value and are left out"
        for (_, name), one in zip(asked, found, strict=True)
        if one.missing
    ]
    half_life = config_of(sketch).half_life
    if half_life is not None:
        missing.append("Rows count by their age: half after the half-life the file was made with.")
    return "\n".join(lines + list(dict.fromkeys(missing)))


def _group_lines(
    sketch: Sketch, found: Sequence[Any], asked: Sequence[tuple[str, str]],
    by: tuple[str, ...], where: Any, level: float, titles: Sequence[str], percent: str,
) -> list[str]:  # fmt: skip
    import numpy as np

    from olss.diagnostics.describe import find_largest
    from olss.util.text import align_columns

    counts = _by_label(sketch.estimate(by=by, where=where))
    by_group = [_by_label(one) for one in found]
    groups = list(counts)  # sorted by value
    largest = find_largest(np.array([one.count for one in counts.values()]), GROUPS)
    table = [[*by, "rows kept"] + [cell for title in titles for cell in (title, percent)]]
    for group in (groups[place] for place in largest):
        line = [*group, f"{counts[group].rows:,}"]
        for (what, _), estimates in zip(asked, by_group, strict=True):
            one = estimates.get(group)
            line += ["—", "no value"] if one is None else _format_figure(one, what, level)
        table.append(line)
    lines = align_columns(table, left=len(by))
    if len(groups) > GROUPS:
        lines.append(
            f"the {GROUPS} largest of {len(groups):,} groups; all: "
            f"olss.Sketch.load(OUT).estimate(..., by={by!r}).to_frame()"
        )
    return lines


def _by_label(estimates: Any) -> dict[tuple[str, ...], Estimate]:
    """Return the estimate of each group, by what the group is called."""
    from olss.diagnostics.estimates import label_text

    return {
        tuple(map(label_text, name if isinstance(name, tuple) else (name,))): one
        for name, one in estimates
    }


def _format_figure(one: Estimate, what: str, level: float) -> list[str]:
    """Return a number and its interval, in words."""
    return next([number, between] for name, number, between in one.texts(level) if name == what)
