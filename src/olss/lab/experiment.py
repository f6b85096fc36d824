"""Experiment files: what to run, as typed values read from TOML."""

from __future__ import annotations

import copy
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from olss.common.near_names import nearest
from olss.errors import InputError
from olss.lab.search_space import TuneSpec, checked_space, tune_spec
from olss.lab.toml_tables import apply_change, check_keys, seed_list, table_of, text_of

__all__ = ["Experiment", "Job", "LearnerSpec", "load", "parse", "safe"]


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
class Job:
    """One run: a learner with one seed. Everything that decides its record."""

    experiment: str
    label: str
    recipe: str
    settings: dict[str, Any]
    stream: dict[str, Any]
    seed: int
    protocol: str
    device: str = "cpu"
    first_tasks: int | None = None

    @property
    def folder(self) -> Path:
        """Where its files go, inside the folder of results."""
        return Path(safe(self.experiment)) / safe(self.label) / f"seed-{self.seed}"

    def content(self) -> dict[str, Any]:
        """Give all of it as JSON gives it back, so that a saved job equals a live one."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
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
        Words printed beside every number: what competes, how much is trained.
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
    net: str = "mlp"
    train: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"
    tune: TuneSpec = field(default_factory=TuneSpec)

    def learner(self, name: str) -> LearnerSpec:
        """Give the learner of that name, or an error offering the nearest."""
        for spec in self.learners:
            if spec.name == name:
                return spec
        names = [spec.name for spec in self.learners]
        raise InputError(f"{self.name} has no learner {name!r}. {nearest(name, names)}")

    def only(self, names: Iterable[str]) -> Experiment:
        """Give the experiment with these learners alone; of a sweep, one or all of its values."""
        chosen: dict[str, LearnerSpec] = {}
        for name in names:
            of_it = re.compile(re.escape(name) + r"( \w+=|$)")
            found = [spec for spec in self.learners if of_it.match(spec.name)]
            chosen |= {spec.name: spec for spec in found or [self.learner(name)]}
        return replace(self, learners=tuple(chosen.values()))

    def jobs(self) -> list[Job]:
        """Give every run: all learners with the first seed, then with the next."""
        return [self.job(spec, seed) for seed in self.seeds for spec in self.learners]

    def job(self, spec: LearnerSpec, seed: int) -> Job:
        """Give the run of one learner with one seed."""
        return Job(
            experiment=self.name,
            label=spec.name,
            recipe=spec.recipe,
            settings={"net": self.net, **self.train, **spec.settings},
            stream={"seed": seed, **self.stream},
            seed=seed,
            protocol=self.protocol,
            device=self.device,
        )

    def content(self) -> dict[str, Any]:
        """Give it as a file would say it: `parse` makes the same experiment from it."""
        tune = {item.name: getattr(self.tune, item.name) for item in fields(TuneSpec)}
        return {
            "name": self.name,
            "protocol": self.protocol,
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
                {"name": spec.name, "recipe": spec.recipe, **spec.settings}
                | ({"tune": spec.tune} if spec.tune else {})
                for spec in self.learners
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
    for key in ("stream", "learner"):
        if not content.get(key):
            raise InputError(f"{source} must have a [{key}] table, found none.")
    stream = table_of(content["stream"], "stream", source)
    train = table_of(content.get("train", {}), "train", source)
    learners = content["learner"]
    if not isinstance(learners, list):
        raise InputError(f"learners of {source} are written [[learner]], with two brackets.")
    return Experiment(
        name=text_of(content, "name", "", source),
        stream=stream,
        learners=_learners(learners, source),
        protocol=text_of(content, "protocol", "", source),
        net=text_of(content, "net", "mlp", source),
        train=train,
        seeds=seed_list(content.get("seeds", [0])),
        device=text_of(content, "device", "cpu", source),
        tune=tune_spec(table_of(content.get("tune", {}), "tune", source), source),
    )


def safe(name: str) -> str:
    """Give a name a file system takes.

    Examples
    --------
    >>> safe("olss, size=2/3")
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
        specs += [
            LearnerSpec(f"{name}{suffix}", recipe, {**table, **chosen}, tune)
            for suffix, chosen in _swept(sweep, name)
        ]
    folders: dict[str, str] = {}
    for spec in specs:
        # Folder names must differ even where upper and lower case are the same.
        other = folders.setdefault(safe(spec.name).lower(), spec.name)
        if other is not spec.name:
            raise InputError(
                f"two learners of {source} are called {other!r} and {spec.name!r}, which share a "
                "folder: give each a name of its own."
            )
    return tuple(specs)


def _swept(sweep: dict[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
    """Give a suffix of the name and settings for each combination of values."""
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise InputError(f"sweep.{key} of {name} must be a list of values, found {values!r}.")
    chosen = [
        dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())
    ]
    return [("".join(f" {key}={value}" for key, value in c.items()), c) for c in chosen]
