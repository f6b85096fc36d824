"""The public API changes on purpose, with a line in the changelog, or not at all.

``tests/public_api.txt`` lists every public name with its signature. After a change, write the line
of the changelog and then, from the root of the repository:

    python -m tests.test_public_api "a piece of the new line in CHANGELOG.md"
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SNAPSHOT = ROOT / "tests" / "public_api.txt"
TITLE = "In the changelog: "
MODULES = [
    "olss",
    "olss.statistics",
    "olss.memory",
    "olss.core.sampling",
    "olss.files",
    "olss.spark",
    "olss.streams",
    "olss.learn",
    "olss.adapters.sklearn",
    "olss.adapters.analytic",
    "olss.adapters.incremental",
    "olss.adapters.torch",
]


def public_api() -> list[str]:
    """List all public names: functions and classes with signatures, classes with their members."""
    lines = []
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(module.__all__):
            lines += described(f"{name}.{public}", getattr(module, public))
    return lines


def described(name: str, value: object) -> list[str]:
    if not callable(value):
        return [name]
    lines = [name + signature(value)]
    if inspect.isclass(value) and value.__module__.startswith("olss"):
        members = {
            key: member
            for base in reversed(value.__mro__)
            if base.__module__.startswith("olss")
            for key, member in vars(base).items()
        }
        for key in sorted(members):
            # scikit-learn adds methods such as set_score_request to every estimator.
            if not key.startswith("_") and not key.endswith("_request"):
                # Taken from the class: a class method has no signature in its dictionary.
                lines += [f"{name}.{key}{signature(getattr(value, key))}"]
    return lines


def signature(value: object) -> str:
    """Give the parameters with their defaults, without types, which differ between versions."""
    if not callable(value):
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:  # exceptions take what they take
        return ""
    if any(p.name in ("args", "kwargs") for p in parameters):
        return ""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    text = str(inspect.Signature([p for p in plain if p.name != "self"]))
    return re.sub(r"<(\w+)[^<>]*>", r"<\1>", text)  # memory addresses, factories


def read() -> tuple[str, list[str]]:
    first, *lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    return first.removeprefix(TITLE), lines


def test_the_public_api_is_the_one_written_down():
    before, now = set(read()[1]), set(public_api())
    changes = [f"- {line}" for line in sorted(before - now)]
    changes += [f"+ {line}" for line in sorted(now - before)]
    assert not changes, "\n".join([__doc__ or "", "The public API has changed:", *changes])


def test_the_last_change_is_in_the_changelog():
    sentence = read()[0]
    assert len(sentence) > 20
    assert sentence in words(ROOT / "CHANGELOG.md")


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_on_the_page_of_the_api(module):
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    names = importlib.import_module(module).__all__
    assert not [name for name in names if f"`{name}`" not in page]


def test_every_name_says_what_it_is():
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                assert inspect.getdoc(value), f"{module.__name__}.{name} has no docstring"


def words(path: Path) -> str:
    """Read a text with its lines joined."""
    return " ".join(path.read_text(encoding="utf-8").split())


def write(sentence: str) -> None:
    """Write the API of now, once a new piece of the changelog is named."""
    if sentence not in words(ROOT / "CHANGELOG.md"):
        sys.exit("That is not in CHANGELOG.md: write the line there first.")
    if SNAPSHOT.exists() and read()[0] == sentence:
        sys.exit("That piece of the changelog is of the last change: name that of this one.")
    SNAPSHOT.write_text("\n".join([TITLE + sentence, *public_api()]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(" ".join(sys.argv[1:]))
