"""Names for people: of streams, of methods and of what tells two of them apart."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from olss.lab.protocol import set_on_purpose, setting

if TYPE_CHECKING:
    from olss.lab.report.found_runs import Method

__all__ = ["differing", "in_order", "slug", "stream_title", "told_apart"]

# From none to most help against forgetting, as readers know tables of this field.
ORDER = (
    "sgd", "ewc", "online-ewc", "si", "gem", "a-gem", "icarl", "er", "er-ace", "der", "der++",
    "gdumb", "olss", "olss-replay", "joint",
)  # fmt: skip
DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"} | {
    "cifar100": "CIFAR-100"
}


def slug(text: str) -> str:
    """Return a text as the name of a file.

    Examples
    --------
    >>> slug("Permuted MNIST, 20 tasks")
    'permuted-mnist-20-tasks'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "stream"


def stream_title(stream: dict[str, Any], tasks: int) -> str:
    """Return what a stream is called: by its own title, else by what it is made of.

    Examples
    --------
    >>> stream_title({"name": "rotated", "dataset": "mnist"}, 20)
    'Rotated MNIST, 20 tasks'
    """
    if stream.get("title"):
        return str(stream["title"])
    dataset = stream.get("dataset", "")
    if isinstance(dataset, dict):
        dataset = dataset.get("name", "own data")
    words = [str(stream.get("name", "stream")).capitalize(), DATASETS.get(dataset, str(dataset))]
    steps = [str(step.get("name", "")).replace("_", " ") for step in stream.get("steps", [])]
    extra = "".join(f", {step}" for step in steps if step)
    if "validation" in stream:
        extra += ", validation"
    return f"{' '.join(word for word in words if word)}, {tasks} task{'s' * (tasks != 1)}{extra}"


def told_apart(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Return each method's label; equal ones get the settings that differ added, else a number.

    Examples
    --------
    >>> told_apart([{"learner": {"recipe": "er", "size": 200}},
    ...             {"learner": {"recipe": "er", "size": 500}}, {"learner": {"recipe": "sgd"}}])
    ['er (size 200)', 'er (size 500)', 'sgd']
    >>> told_apart([{"learner": {"recipe": "sgd"}},
    ...             {"learner": {"recipe": "sgd"}, "training": {"precision": "bfloat16"}}])
    ['sgd', 'sgd (precision bfloat16)']
    """
    names = [_label(config) for config in configs]
    labels = list(names)
    for name, count in Counter(names).items():
        if count == 1:
            continue
        places = [i for i, other in enumerate(names) if other == name]
        flat = [
            set_on_purpose({**configs[i].get("learner", {}), **configs[i].get("training", {})})
            | {"net": configs[i].get("net"), "code": _code(configs[i])}
            for i in places
        ]
        apart = differing(flat)
        for number, (i, words) in enumerate(zip(places, apart, strict=True), start=1):
            if apart.count(words) > 1:
                words = f"{words}, {number}" if words else str(number)
            labels[i] = f"{name} ({words})" if words else name  # with every setting as it is
    return labels


def differing(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Return for each of several settings what it has that not all have."""
    keys = list(dict.fromkeys(key for config in configs for key in config if key != "label"))
    apart = [
        key
        for key in keys
        if len({json.dumps(config.get(key), sort_keys=True) for config in configs}) > 1
    ]
    return [
        ", ".join(setting(key, c[key]) for key in apart if c.get(key) not in (None, ""))
        for c in configs
    ]


def in_order(methods: list[Method]) -> list[Method]:
    """Sort methods as tables of this field do, by recipe and then by label."""

    def place(method: Method) -> tuple[int, int, str]:
        parts = method.recipe.replace("der++", "der\0").split("+")
        known = [ORDER.index(name) for p in parts if (name := p.replace("\0", "++")) in ORDER]
        return (max(known, default=len(ORDER)), len(parts), method.label)

    return sorted(methods, key=place)


def _label(config: dict[str, Any]) -> str:
    learner = config.get("learner", {})
    return str(learner.get("label") or learner.get("recipe") or "learner")


def _code(config: dict[str, Any]) -> str:
    """Return the modules of one's own, each with the first digits of its sum."""
    code = config.get("code")
    return " ".join(f"{n} {str(s)[:7]}" for n, s in code.items()) if isinstance(code, dict) else ""
