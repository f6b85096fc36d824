"""Experiment files: what to run, as typed values read from TOML."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from olss.errors import InputError
from olss.lab.protocol import describe_protocol, shared_settings
from olss.lab.toml_tables import (
    TuneSpec,
    apply_change,
    check_keys,
    check_values,
    checked_space,
    seed_list,
    table_of,
    text_of,
    tune_spec,
)
from olss.util.checks import suggest

__all__ = [
    "Experiment",
    "LearnerSpec",
    "RunSpec",
    "allow_imports_from",
    "code_sums",
    "load",
    "parse",
    "safe_name",
]


APART = ("name", "title", "seeds", "device", "tune")  # changes no protocol speaks of


@dataclass(frozen=True)
class LearnerSpec:
    """One learner of an experiment.

    Attributes
    ----------
    name : str
        What it is called in tables, figures and folders.
    recipe : str
        See `olss.learn.recipe`.
    settings : dict
        Its own, over those of `Experiment.train`.
    tune : dict
        Its own search space, over that of `TuneSpec`.
    """

    name: str
    recipe: str
    settings: dict[str, Any] = field(default_factory=dict)
    tune: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSpec:
    """One run: a learner with one seed. Everything that decides its record.

    `code` has the sum of each module of one's own that its settings name.
    """

    experiment: str
    label: str
    recipe: str
    settings: dict[str, Any]
    stream: dict[str, Any]
    seed: int
    protocol: str
    device: str = "cpu"
    first_tasks: int | None = None
    title: str = ""
    code: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Where its files go, inside the folder of results."""
        return Path(safe_name(self.experiment)) / safe_name(self.label) / f"seed-{self.seed}"

    def content(self) -> dict[str, Any]:
        """Return all of it as JSON gives it back, so that a saved spec equals a live one."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("title", "code"):  # nothing is said of what there is not
            values = values if values[name] else {k: v for k, v in values.items() if k != name}
        content: dict[str, Any] = json.loads(json.dumps(values))
        return content


@dataclass(frozen=True)
class Experiment:
    """What an experiment file says.

    Attributes
    ----------
    name : str
        Of the folder of its results.
    protocol : str
        Words of one's own for the records. What is printed as the protocol is made from the
        configuration.
    title : str
        What reports call the stream.
    stream : dict
        See `olss.streams.from_config`. Without a seed, each run's own seed makes its stream.
    net : str
    train : dict
        Training settings shared by all learners; see `olss.learn.training.Training`.
    learners : tuple of LearnerSpec
    seeds : tuple of int
    device : str
    tune : TuneSpec
    """

    name: str
    stream: dict[str, Any]
    learners: tuple[LearnerSpec, ...]
    protocol: str = ""
    title: str = ""
    net: str = "mlp"
    train: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"
    tune: TuneSpec = field(default_factory=TuneSpec)

    def learner(self, name: str) -> LearnerSpec:
        """Return the learner of that name, or an error offering the nearest."""
        for learner in self.learners:
            if learner.name == name:
                return learner
        names = [learner.name for learner in self.learners]
        raise InputError(f"{self.name} has no learner {name!r}. {suggest(name, names)}")

    def only(self, names: Iterable[str]) -> Experiment:
        """Return the experiment with these learners alone; of a sweep, one or all of its values."""
        chosen: dict[str, LearnerSpec] = {}
        for name in names:
            of_it = re.compile(re.escape(name) + r"( \w+=|$)")
            found = [learner for learner in self.learners if of_it.match(learner.name)]
            chosen |= {learner.name: learner for learner in found or [self.learner(name)]}
        return replace(self, learners=tuple(chosen.values()))

    def run_specs(self) -> list[RunSpec]:
        """Return every run: all learners with the first seed, then with the next."""
        return [self.run_spec(learner, seed) for seed in self.seeds for learner in self.learners]

    def run_spec(self, learner: LearnerSpec, seed: int) -> RunSpec:
        """Return the run of one learner with one seed."""
        return RunSpec(
            experiment=self.name,
            label=learner.name,
            recipe=learner.recipe,
            settings={"net": self.net, **self.train, **learner.settings},
            stream={"seed": seed, **self.stream},
            seed=seed,
            protocol=self.protocol,
            device=self.device,
            title=self.title,
            code=code_sums({"net": self.net, **self.train, **learner.settings}, self.name),
        )

    def describe_protocol(self) -> list[str]:
        """Return what is done, in short phrases made from the configuration."""
        tasks = self.stream.get("tasks")
        settings = [{"net": self.net, **self.train, **one.settings} for one in self.learners]
        return describe_protocol(
            self.stream, tasks if type(tasks) is int else None, shared_settings(settings), None
        )

    def content(self) -> dict[str, Any]:
        """Return it as a file would say it: `parse` makes the same experiment from it."""
        tune = {item.name: getattr(self.tune, item.name) for item in fields(TuneSpec)}
        return {
            "name": self.name,
            "protocol": self.protocol,
            "title": self.title,
            "seeds": list(self.seeds),
            "net": self.net,
            "device": self.device,
            "stream": copy.deepcopy(self.stream),
            "train": dict(self.train),
            "tune": {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in tune.items()
                if value is not None
            },
            "learner": [
                {"name": learner.name, "recipe": learner.recipe, **learner.settings}
                | ({"tune": learner.tune} if learner.tune else {})
                for learner in self.learners
            ],
        }


def load(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Read an experiment file.

    Parameters
    ----------
    path : path
        A .toml file. `name` is by default that of the file.
    changes : sequence of str
        Such as "train.epochs=1", "stream.tasks=5", "learner.olss.lr=0.1": what to change.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8.") from error
    for change in changes:
        apply_change(content, change)
    if any(not change.strip().startswith(APART) for change in changes):
        content.pop("protocol", None)  # words on what the file says, not on what is run now
    allow_imports_from(path.parent)
    return parse({"name": path.stem, **content}, str(path))


def parse(content: Mapping[str, Any], source: str = "the experiment") -> Experiment:
    """Make an experiment of what a file says, checking every key.

    Examples
    --------
    >>> stream = {"name": "permuted", "dataset": "digits", "tasks": 2}
    >>> parse({"name": "try", "stream": stream, "learner": [{"recipe": "sgd"}]}).learners[0].name
    'sgd'
    >>> parse({"name": "try", "steam": stream, "learner": [{"recipe": "sgd"}]})
    Traceback (most recent call last):
    olss.errors.InputError: the experiment has no use for 'steam'. Did you mean 'stream'?
    """
    known = {item.name for item in fields(Experiment)} - {"learners"} | {"learner"}
    check_keys(content, known, source)
    check_values(content, "", source)
    for key in ("stream", "learner"):
        if not content.get(key):
            raise InputError(f"{source} must have a [{key}] table, found none.")
    stream = table_of(content["stream"], "stream", source)
    train = table_of(content.get("train", {}), "train", source)
    steps = stream.get("steps", [])
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise InputError(f"stream.steps of {source} must be a list of tables, found {steps!r}.")
    learners = content["learner"]
    if not isinstance(learners, list):
        raise InputError(f"learners of {source} are written [[learner]], with two brackets.")
    return Experiment(
        name=text_of(content, "name", "", source),
        stream=stream,
        learners=_learners(learners, source),
        protocol=text_of(content, "protocol", "", source),
        title=text_of(content, "title", "", source),
        net=text_of(content, "net", "mlp", source),
        train=train,
        seeds=seed_list(content.get("seeds", [0])),
        device=text_of(content, "device", "cpu", source),
        tune=tune_spec(table_of(content.get("tune", {}), "tune", source), source),
    )


def safe_name(name: str) -> str:
    """Return a name a file system takes.

    Examples
    --------
    >>> safe_name("olss, size=2/3")
    'olss-size=2-3'
    """
    return re.sub(r"[^\w.+=%-]+", "-", name).strip("-. ") or "unnamed"


def _learners(given: list[Any], source: str) -> tuple[LearnerSpec, ...]:
    specs: list[LearnerSpec] = []
    for number, entry in enumerate(given, start=1):
        table = table_of(entry, f"learner {number}", source)
        recipe = table.pop("recipe", table.get("name"))
        if isinstance(recipe, list):
            recipe = "+".join(map(str, recipe))
        if not isinstance(recipe, str):
            raise InputError(f"learner {number} of {source} must have a recipe, found {recipe!r}.")
        name = str(table.pop("name", recipe))
        tune = checked_space(table_of(table.pop("tune", {}), f"tune of {name}", source), name)
        sweep = table_of(table.pop("sweep", {}), f"sweep of {name}", source)
        for key in sorted(sweep.keys() & table.keys()):
            raise InputError(
                f"{key} of {name} is {table[key]!r} and is swept, too: leave one out, or change "
                f"the sweep (--set learner.{name}.sweep.{key}=[...])."
            )
        specs += [
            LearnerSpec(f"{name}{suffix}", recipe, {**table, **chosen}, tune)
            for suffix, chosen in _swept(sweep, name)
        ]
    folders: dict[str, str] = {}
    for learner in specs:
        # Folder names must differ even where upper and lower case are the same.
        other = folders.setdefault(safe_name(learner.name).lower(), learner.name)
        if other is not learner.name:
            raise InputError(
                f"two learners of {source} are called {other!r} and {learner.name!r}, which share "
                "a folder: give each a name of its own."
            )
    return tuple(specs)


def _swept(sweep: dict[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a suffix of the name and settings for each combination of values."""
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise InputError(f"sweep.{key} of {name} must be a list of values, found {values!r}.")
    chosen = [
        dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())
    ]
    return [("".join(f" {key}={value}" for key, value in c.items()), c) for c in chosen]


# ------------------------------------------------------------------ own code

OWN = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")


def allow_imports_from(folder: Path) -> None:
    """Let modules in a folder and in the current one be imported, after all that are installed."""
    for place in (folder.resolve(), Path.cwd()):
        if str(place) not in sys.path:
            sys.path.append(str(place))


def code_sums(settings: Mapping[str, Any], source: str) -> dict[str, str]:
    """Return the SHA-256 of the file of each module that settings name as ``module:Name``.

    Raises
    ------
    InputError
        If a module is not to be found. Whether it has what is asked for is seen when the
        learner is made, before anything runs.

    Examples
    --------
    >>> list(code_sums({"loss": "fractions:Fraction", "policy": "paper"}, "the experiment"))
    ['fractions']
    """
    return {module: _sum(key, module, source) for key, module in _named(settings)}


def _named(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and (found := OWN.fullmatch(one)):
                yield key, found[1]


def _sum(key: str, module: str, source: str) -> str:
    try:
        found = find_spec(module)
    except (ImportError, ValueError):  # a package above it is missing
        found = None
    if found is None or not found.origin or not Path(found.origin).is_file():
        raise InputError(
            f"{key} of {source} is of the module {module!r}, which is not to be found: put "
            f"{module.partition('.')[0]}.py beside the experiment file or into the current folder."
        )
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()
