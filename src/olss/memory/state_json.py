"""Settings and state of a sketch as JSON, and back: what is read is checked as what it must be."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from olss.errors import FormatError, InputError
from olss.memory.numbers import Numbers
from olss.memory.policies import from_json, to_json
from olss.memory.pool import Policy
from olss.memory.settings import checked_settings
from olss.memory.spectrum import Spectrum
from olss.memory.state import Settings, State
from olss.memory.store import Array, RowStore
from olss.memory.table_intake import TableKind
from olss.tables.encoder import TableEncoder
from olss.tables.frames import FrameKind
from olss.tables.missing_values import MissingIndicator
from olss.util.checksums import Metadata

__all__ = ["settings_from_json", "settings_to_json", "state_from_json", "state_to_json"]


def settings_to_json(settings: Settings) -> dict[str, Any]:
    """Return settings; of a policy or a feature map of one's own, that there was one."""
    content = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return content | {
        "policy": to_json(settings.policy),
        "features": settings.features is not None,
    }


def settings_from_json(
    content: Metadata, policy: Policy | None, features: Callable[[Array], Array] | None
) -> Settings:
    """Return settings, with a policy and a feature map of one's own in their places."""
    known = from_json(content.object("policy")) if "policy" in content else _missing("policy")
    own = features or (_missing("features") if content.boolean("features") else None)
    given = {field.name: content.value(field.name) for field in fields(Settings)}
    try:
        return checked_settings(**given | {"policy": policy or known, "features": own})
    except InputError as error:
        raise content.error(str(error)) from error


def _missing(name: str) -> Callable[..., Any]:
    """Stand in for what a file cannot hold."""

    def missing(*_: Any) -> Any:
        raise InputError(
            f"this sketch was saved with {name} of its own, which a file does not hold; "
            f"load it with load(path, {name}=...)."
        )

    return missing


def state_to_json(state: State) -> dict[str, Any]:
    """Return all of a state but its rows."""
    table, plan, gaps = state.table, state.numbers.plan, state.numbers.gaps
    spectrum = state.spectrum
    return {
        "generator": _generator_to_json(state.generator),
        "seen": state.seen,
        "task": state.task,
        "now": state.now,
        "classes": state.classes,
        "plan": None if plan is None else plan.to_json(),
        "gaps": None if gaps is None else gaps.to_json(),
        "spectrum": None if spectrum is None else base64.b64encode(spectrum.to_bytes()).decode(),
        "blurred": state.blurred,
        "table": None
        if table is None
        else {
            "rows": table.rows.to_json(),
            "y": None if table.y is None else table.y.to_json(),
            "target": table.target,
            "task": table.task,
        },
        "files": state.files,
        "runs": state.runs,
        "removed": state.removed,
    }


def state_from_json(content: Metadata, rows: RowStore, settings: Settings) -> State:
    """Return the state that `state_to_json` wrote, or raise `FormatError`."""
    try:
        return State(
            generator=_generator_from_json(content.object("generator")),
            rows=rows,
            seen=content.integer("seen", minimum=len(rows)),
            task=_task(content),
            now=content.number("now"),
            classes=content.boolean("classes") if "classes" in content else None,
            numbers=Numbers(
                features=settings.features,
                plan=TableEncoder.from_json(content.value("plan")) if "plan" in content else None,
                gaps=MissingIndicator.from_json(content.value("gaps"))
                if "gaps" in content
                else None,
                intercept=settings.intercept,
            ),
            spectrum=_spectrum(content) if "spectrum" in content else None,
            blurred=content.boolean("blurred") if "blurred" in content else False,
            table=_table(content.object("table")) if "table" in content else None,
            files=tuple(_file(content, line) for line in content.array("files")),
            runs=content.integer("runs"),
            removed=content.integer("removed"),
        )
    except (InputError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, FormatError):
            raise
        raise content.error(str(error)) from error


def _spectrum(content: Metadata) -> Spectrum:
    return Spectrum.from_bytes(base64.b64decode(content.string("spectrum"), validate=True))


def _table(content: Metadata) -> TableKind:
    return TableKind(
        FrameKind.from_json(content.value("rows")),
        FrameKind.from_json(content.value("y")) if "y" in content else None,
        content.string("target") if "target" in content else None,
        content.string("task") if "task" in content else None,
    )


def _file(content: Metadata, line: Any) -> dict[str, Any]:
    entry = Metadata(content.path, line, "files")
    return {
        "address": entry.string("address"),
        "fingerprint": entry.string("fingerprint"),
        "bytes": entry.integer("bytes"),
        "modified": entry.integer("modified"),
        "inode": entry.integer("inode"),
        "rows": entry.integer("rows"),
        "run": entry.integer("run"),
    }


def _task(content: Metadata) -> int | str:
    if isinstance(content.value("task"), str):
        return content.string("task")
    return content.integer("task", minimum=-(2**63))


def _generator_to_json(state: dict[str, Any]) -> dict[str, Any]:
    bits = state["state"]
    return {
        "state": f"{bits['state']:032x}",
        "inc": f"{bits['inc']:032x}",
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }


def _generator_from_json(packed: Metadata) -> dict[str, Any]:
    words = {name: packed.string(name) for name in ("state", "inc")}
    for name, word in words.items():
        if not re.fullmatch("[0-9a-f]{32}", word):
            raise packed.error(f"generator.{name} is no state of random bits")
    return {
        "bit_generator": "PCG64",
        "state": {name: int(word, 16) for name, word in words.items()},
        "has_uint32": packed.integer("has_uint32", maximum=1),
        "uinteger": packed.integer("uinteger", maximum=2**32 - 1),
    }
