"""Find records and group what may be compared.

Runs share a `Group` when their protocol, their metric, the classes that compete and their stream
(seeds aside) are equal; within it they share a `Method` when net, training and learner are.
Averages never cross groups or methods. Records that cannot be used are listed as problems.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from olss.errors import FormatError, InputError
from olss.lab.experiment import describe_setting, drop_defaults, safe_name
from olss.streams.record import COMPETING, Record

log = logging.getLogger(__name__)
CHECKPOINT = "checkpoint"  # a folder inside a run's own, with records of tasks so far
# From least to most help against forgetting, the usual order in tables of this field.
ORDER = (
    "sgd", "ewc", "online-ewc", "si", "gem", "a-gem", "icarl", "er", "er-ace", "der", "der++",
    "gdumb", "olss", "olss-replay", "analytic", "joint",
)  # fmt: skip
DATASETS = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"} | {
    "cifar100": "CIFAR-100"
}


@dataclass(frozen=True)
class FoundRun:
    """A record and where it was found."""

    record: Record
    folder: Path

    @property
    def seed(self) -> str:
        """The run's seed, with the stream's where that is another."""
        stream = self.record.config.get("stream", {}).get("seed", self.record.seed)
        own = self.record.seed
        return str(own) if stream == own else f"{own} (stream {stream})"


@dataclass
class Method:
    """Runs that differ by their seeds alone."""

    label: str
    runs: list[FoundRun]
    missing: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of all runs, their seeds aside."""
        return self.runs[0].record.config

    @property
    def learner(self) -> dict[str, Any]:
        """Settings of the learner."""
        return dict(self.config.get("learner", {}))

    @property
    def recipe(self) -> str:
        """Name of the recipe."""
        return str(self.learner.get("recipe", self.label))


@dataclass
class Group:
    """Methods that may be compared: one protocol on one stream."""

    slug: str
    title: str
    protocol: str
    metric: str
    compete: str
    stream: dict[str, Any]
    tasks: list[str]
    methods: list[Method]


@dataclass(frozen=True)
class Problem:
    """A record that was not used, or is missing."""

    where: str
    what: str


@dataclass
class Collection:
    """Everything found below the given folders."""

    groups: list[Group]
    problems: list[Problem]


def collect(folders: Sequence[Path]) -> Collection:
    """Read every record below the folders and sort them into groups.

    Raises
    ------
    InputError
        If a folder does not exist, or no record in all of them can be used.
    """
    problems: list[Problem] = []
    runs = _drop_unusable(_share_titles(list(_find_runs(folders, problems))), problems)
    by_group: dict[str, list[FoundRun]] = defaultdict(list)
    for run in runs:
        by_group[_group_key(run.record)].append(run)
    groups = [_make_group(members, problems) for members in by_group.values()]
    if not groups:
        raise InputError(_describe_nothing(folders, problems))
    log.info("%d runs in %d groups, %d problems", len(runs), len(groups), len(problems))
    _make_titles_unique(groups)
    groups.sort(key=lambda group: group.title)
    return Collection(groups, problems)


# ------------------------------------------------------------------ finding


def _find_runs(folders: Sequence[Path], problems: list[Problem]) -> Iterator[FoundRun]:
    seen: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"runs must be folders, found {str(folder)!r}: no such folder.")
        problems += _find_never_run(folder)
        places = {
            path.parent
            for path in folder.rglob("record.json")
            if CHECKPOINT not in path.relative_to(folder).parts
        }
        # A run is written into seed-<k>; without a record it has not come to its end.
        begun = [path for path in (folder, *folder.rglob("seed-*")) if path.is_dir()]
        places |= {path for path in begun if path.name.startswith("seed-")}
        for place in sorted(places):
            if place.resolve() in seen:
                continue
            seen.add(place.resolve())
            path = place / "record.json"
            if not path.exists():
                states = place.glob(f"{CHECKPOINT}/after-*")
                done = max((int(state.name.removeprefix("after-")) for state in states), default=0)
                saved = f", {done} tasks saved" if done else ""
                what = f"not finished{saved}: the same command continues it"
                problems.append(Problem(_shorten(place), what))
                continue
            try:
                yield FoundRun(Record.load(place), place)
            except FormatError as error:
                what = str(error).replace(str(path), path.name)
                problems.append(Problem(_shorten(place), what))


def _find_never_run(folder: Path) -> Iterator[Problem]:
    """Find learners of an experiment that were never run."""
    for path in sorted(folder.rglob("experiment.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            names = [str(learner["name"]) for learner in content["learner"]]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not ours, or damaged: the records do without it
        for name in names:
            if not (path.parent / safe_name(name)).is_dir():
                yield Problem(f"{path.parent.name}/{name}", "not run")


def _share_titles(runs: list[FoundRun]) -> list[FoundRun]:
    """Give a stream without a title, as made in Python, that of the same stream in experiments."""
    keys = [_group_key(_set_title(run.record, None)) for run in runs]
    titles = defaultdict(set)
    for key, run in zip(keys, runs, strict=True):
        titles[key].add(run.record.config.get("stream", {}).get("title"))
    shared = {key: found - {None} for key, found in titles.items() if None in found}
    return [
        replace(run, record=_set_title(run.record, *shared[key]))
        if len(shared.get(key, ())) == 1
        else run
        for key, run in zip(keys, runs, strict=True)
    ]


def _set_title(record: Record, title: str | None) -> Record:
    stream = {k: v for k, v in record.config.get("stream", {}).items() if k != "title"}
    stream |= {"title": title} if title else {}
    return replace(record, config={**record.config, "stream": stream})


def _drop_unusable(runs: list[FoundRun], problems: list[Problem]) -> list[FoundRun]:
    """Leave out empty, half-finished and repeated records."""
    kept: dict[str, FoundRun] = {}
    longest: dict[str, int] = defaultdict(int)
    for run in runs:
        stream = run.record.config.get("stream", {})
        stated = stream.get("first_tasks", stream.get("tasks"))
        done = len(run.record.accuracy)  # steps such as `returning` add tasks
        key = _group_key(run.record)
        longest[key] = max(longest[key], done, stated if isinstance(stated, int) else 0)
    for run in runs:
        key = _group_key(run.record)
        done, expected = len(run.record.accuracy), longest[key]
        if done == 0 or done < expected:
            what = f"half-finished: {done} of {expected} tasks" if expected else "empty: no task"
            problems.append(Problem(_shorten(run.folder), what))
            continue
        other = kept.setdefault(_to_key([key, _method_key(run.record), run.seed]), run)
        if other is not run:
            same = _outcome(other.record) == _outcome(run.record)
            what = "the same run again" if same else "another outcome of the same configuration"
            problems.append(
                Problem(_shorten(run.folder), f"{what}: {_shorten(other.folder)} is used")
            )
    return list(kept.values())


def _outcome(record: Record) -> dict[str, Any]:
    """Return what was measured, and with which versions; names and words are no part of it."""
    return {k: v for k, v in record.content().items() if k not in ("config", "protocol")}


def _describe_nothing(folders: Sequence[Path], problems: list[Problem]) -> str:
    names = ", ".join(str(folder) for folder in folders)
    if not problems:
        return f"no record.json was found below {names}: run an experiment first."
    shown = "; ".join(f"{p.where}: {p.what}" for p in problems[:5])
    more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
    return f"no record below {names} can be used. {shown}{more}."


# ------------------------------------------------------------------ grouping


def _make_group(runs: list[FoundRun], problems: list[Problem]) -> Group:
    first = runs[0].record
    together: dict[str, list[FoundRun]] = defaultdict(list)
    for run in runs:
        together[_method_key(run.record)].append(run)
    members = [sorted(m, key=lambda run: (run.record.seed, run.seed)) for m in together.values()]
    labels = label_methods([m[0].record.config for m in members])
    methods = [Method(label, m) for label, m in zip(labels, members, strict=True)]
    stream = _drop_seeds(first.config.get("stream", {}))
    title = stream_title(stream, len(first.accuracy))
    seeds = sorted({run.seed for run in runs}, key=lambda seed: (len(seed), seed))
    for method in methods:
        method.missing = [s for s in seeds if s not in {run.seed for run in method.runs}]
        if method.missing:
            problems.append(
                Problem(f"{title}: {method.label}", f"missing seeds {', '.join(method.missing)}")
            )
    return Group(
        slug(title), title, _custom_protocol(first), first.metric, _competing_classes(first),
        stream, _task_names(runs), sort_methods(methods),
    )  # fmt: skip


def _task_names(runs: list[FoundRun]) -> list[str]:
    """Return the tasks' names; where they depend on the seed (random angles), numbers."""
    names = runs[0].record.tasks
    if all(run.record.tasks == names for run in runs):
        return list(names)
    return [f"task {i + 1}" for i in range(len(names))]


def _make_titles_unique(groups: list[Group]) -> None:
    """Make titles and file names of groups unique, by what differs between them."""
    by_title: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_title[group.title].append(group)
    for title, same in by_title.items():
        if len(same) == 1:
            continue
        apart = [_experiment_name(group) for group in same]
        if len(set(apart)) < len(same) or not all(apart):
            apart = describe_differences(
                [
                    {"protocol": g.protocol, "metric": g.metric, "compete": g.compete, **g.stream}
                    for g in same
                ]
            )
        for number, (group, words) in enumerate(zip(same, apart, strict=True), start=1):
            if apart.count(words) > 1:
                words = f"{words}, {number}" if words else str(number)
            group.title = f"{title} ({words})" if words else title
            group.slug = f"{slug(title)}-{number}"


def _experiment_name(group: Group) -> str:
    """Return the name of the experiment all runs of a group are of, or nothing."""
    folders = {run.folder.parent.parent for method in group.methods for run in method.runs}
    folder = folders.pop()
    return "" if folders or not (folder / "experiment.json").exists() else folder.name


def _group_key(record: Record) -> str:
    stream = _drop_seeds(record.config.get("stream", {}))
    return _to_key([_custom_protocol(record), record.metric, _competing_classes(record), stream])


def _custom_protocol(record: Record) -> str:
    """Return a protocol that the user passed to `olss.learn.run`, or nothing.

    The protocol of an experiment file (its runs have a label) and the default of `run` follow from
    the configuration.
    """
    if "label" in record.config.get("learner", {}):
        return ""
    words = record.protocol.partition(", answered by ")[0]
    return "" if words in COMPETING.values() else record.protocol


def _method_key(record: Record) -> str:
    """Return what tells methods apart; a setting that an older record lacks was off.

    In experiments the label of a learner defaults to its recipe.
    """
    parts = {
        key: drop_defaults(_drop_seeds(value)) if isinstance(value, dict) else value
        for key, value in record.config.items()
        if key != "stream"
    }
    learner = parts.get("learner", {})
    if learner.get("label") == learner.get("recipe"):
        learner.pop("label", None)
    return _to_key(parts)


def _competing_classes(record: Record) -> str:
    """Return which classes compete in an answer; a fitted head is over all classes seen."""
    head = str(record.config.get("training", {}).get("head", "seen"))
    return head if head in COMPETING else "seen"


def _drop_seeds(config: Any) -> Any:
    if isinstance(config, dict):
        return {key: _drop_seeds(value) for key, value in config.items() if key != "seed"}
    if isinstance(config, list):
        return [_drop_seeds(value) for value in config]
    return config


def _to_key(content: Any) -> str:
    return json.dumps(content, sort_keys=True)


def _shorten(path: Path) -> str:
    """Return the last parts of a path: experiment, learner and seed."""
    return "/".join(path.parts[-3:])


# ------------------------------------------------------------------ names


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


def label_methods(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Return each method's label; equal ones get the settings that differ added, else a number.

    Examples
    --------
    >>> label_methods([{"learner": {"recipe": "er", "size": 200}},
    ...             {"learner": {"recipe": "er", "size": 500}}, {"learner": {"recipe": "sgd"}}])
    ['er (size 200)', 'er (size 500)', 'sgd']
    >>> label_methods([{"learner": {"recipe": "sgd"}},
    ...             {"learner": {"recipe": "sgd"}, "training": {"precision": "bfloat16"}}])
    ['sgd', 'sgd (precision bfloat16)']
    >>> label_methods([{"learner": {"recipe": "sgd", "label": "mine"}},
    ...             {"learner": {"recipe": "er", "size": 200, "label": "mine"}}])
    ['mine (recipe sgd)', 'mine (recipe er)']
    """
    learners = [config.get("learner", {}) for config in configs]
    names = [str(one.get("label") or one.get("recipe") or "learner") for one in learners]
    labels = list(names)
    for name, count in Counter(names).items():
        if count == 1:
            continue
        places = [i for i, other in enumerate(names) if other == name]
        flat = [
            drop_defaults({**configs[i].get("learner", {}), **configs[i].get("training", {})})
            | {"net": configs[i].get("net"), "code": _describe_code(configs[i])}
            for i in places
        ]
        apart = _describe_by_recipe(flat)
        for number, (i, words) in enumerate(zip(places, apart, strict=True), start=1):
            if apart.count(words) > 1:
                words = f"{words}, {number}" if words else str(number)
            labels[i] = f"{name} ({words})" if words else name  # with every setting as it is
    return labels


def _describe_by_recipe(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Return the recipe where it differs, and what differs among methods of the same recipe."""
    recipes = [str(one.get("recipe", "")) for one in settings]
    words = [""] * len(settings)
    for recipe in set(recipes):
        places = [i for i, other in enumerate(recipes) if other == recipe]
        own = f"recipe {recipe}" if len(places) < len(settings) and recipe else ""
        for i, apart in zip(
            places, describe_differences([settings[i] for i in places]), strict=True
        ):
            words[i] = ", ".join(part for part in (own, apart) if part)
    return words


def describe_differences(configs: Sequence[dict[str, Any]]) -> list[str]:
    """Return for each of several settings what it has that not all have."""
    keys = list(dict.fromkeys(key for config in configs for key in config if key != "label"))
    apart = [
        key
        for key in keys
        if len({json.dumps(config.get(key), sort_keys=True) for config in configs}) > 1
    ]
    return [
        ", ".join(describe_setting(key, c[key]) for key in apart if c.get(key) not in (None, ""))
        for c in configs
    ]


def sort_methods(methods: list[Method]) -> list[Method]:
    """Sort methods as tables of this field do, by recipe and then by label."""

    def place(method: Method) -> tuple[int, int, str]:
        parts = method.recipe.replace("der++", "der\0").split("+")
        known = [ORDER.index(name) for p in parts if (name := p.replace("\0", "++")) in ORDER]
        return (max(known, default=len(ORDER)), len(parts), method.label)

    return sorted(methods, key=place)


def _describe_code(config: dict[str, Any]) -> str:
    """Return the custom modules, each with the first digits of its checksum."""
    code = config.get("code")
    return " ".join(f"{n} {str(s)[:7]}" for n, s in code.items()) if isinstance(code, dict) else ""
