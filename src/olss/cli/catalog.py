"""The commands ``olss list`` and ``olss data``: what is available, and downloads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from olss.util.terminal import echo, report_errors
from olss.util.text import escape_controls

EXAMPLES = """\
**Examples**

`olss list`  everything

`olss list policies`  for `olss compress --policy`, `Sketch(policy=...)`, `policy = ` in a file

`olss list recipes`  for `recipe = ` in an experiment file, `olss.learn.recipe`

`olss list streams`  for `[stream] name = ` and its `steps`

`olss list datasets`  for `dataset = `, and where each was found
"""


DATA_EXAMPLES = """\
**Examples**

`olss data list`  all data sets and where each was found

`olss data get mnist`  download one into the cache folder

`olss data get mnist --into data`  into another folder; set OLSS_DATA=data to use it
"""

data = typer.Typer(no_args_is_help=True, help="List and download data sets.")


def register(app: typer.Typer) -> None:
    """Register ``olss list`` and ``olss data``."""
    app.add_typer(data, name="data", epilog=DATA_EXAMPLES)
    app.command("list", epilog=EXAMPLES)(list_)


class Kind(StrEnum):
    """What can be listed."""

    POLICIES = "policies"
    RECIPES = "recipes"
    STREAMS = "streams"
    DATASETS = "datasets"


@report_errors
def list_(
    kind: Annotated[
        Kind | None, typer.Argument(help="What to list; by default everything.", show_default=False)
    ] = None,
) -> None:
    """List policies, recipes, streams or data sets, a line each."""
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False)
    for shown in Kind if kind is None else [kind]:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, words in LISTS[shown]():
            table.add_row(escape_controls(name), escape_controls(words))
        if kind is None:
            console.print(f"{shown.value.capitalize()}:")
        console.print(table, end="" if kind else "\n")


def _policies() -> list[tuple[str, str]]:
    from olss.memory.policies import POLICIES

    orders = {
        "balanced": " Within them, typical rows first (herding).",
        "balanced-leverage": " Within them, by leverage.",
        "balanced-random": " Within them, at random.",
    }
    return [(name, _summary(policy) + orders.get(name, "")) for name, policy in POLICIES.items()]


def _recipes() -> list[tuple[str, str]]:
    """Return each recipe with what the documentation of `recipe` says of it."""
    from olss.learn import recipe

    text = " ".join(line.strip() for line in (inspect.getdoc(recipe) or "").splitlines())
    bullets = re.findall(r"- ((?:``[\w+-]+``(?:, )?)+): (.*?)(?= - ``| \*\*settings)", text)
    return [
        (name, words.replace("`", "").strip())
        for names, words in bullets
        for name in re.findall(r"``([^`]+)``", names)
    ]


def _streams() -> list[tuple[str, str]]:
    from olss import streams

    found = [(name, _summary(make)) for name, make in streams.BUILDERS.items()]
    return found + [(name, f"A step: {_summary(make)}") for name, make in streams.STEPS.items()]


def _datasets() -> list[tuple[str, str]]:
    from olss.streams import list_datasets

    return [
        (status.name, f"{status.what}: {status.where or f'olss data get {status.name}'}")
        for status in list_datasets()
    ]


def _summary(thing: object) -> str:
    text = (inspect.getdoc(thing) or "").partition("\n")[0].removeprefix("Return ")
    return text[:1].upper() + text[1:]


LISTS: dict[Kind, Callable[[], list[tuple[str, str]]]] = {
    Kind.POLICIES: _policies,
    Kind.RECIPES: _recipes,
    Kind.STREAMS: _streams,
    Kind.DATASETS: _datasets,
}


@data.command("list", epilog=DATA_EXAMPLES)
@report_errors
def data_list() -> None:
    """List the data sets olss knows and where each was found."""
    list_(Kind.DATASETS)


@data.command("get", epilog=DATA_EXAMPLES)
@report_errors
def data_get(
    name: Annotated[str, typer.Argument(help="As `olss data list` names it.", show_default=False)],
    into: Annotated[
        Path | None, typer.Option("--into", help="Data folder instead of the cache folder.")
    ] = None,
) -> None:
    """Download a data set into the cache folder and verify its checksums."""
    from olss.streams import fetch

    echo(f"{name} is in {fetch(name, into)}")
