"""Experiment files: what to run, as typed values read from TOML.

A custom part is named ``module:Name`` and found beside the file. The checksum of its module is a
setting of the run: runs with other code are neither resumed nor mixed with these. Modules that it
imports are not checked.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from olss.errors import InputError
from olss.lab.toml_tables import (
    TuneSpec,
    apply_change,
    check_keys,
    check_space,
    check_values,
    get_string,
    get_table,
    parse_seeds,
    parse_tune,
)
from olss.streams.record import COMPETING
from olss.util.checks import suggest

NOT_PROTOCOL = ("name", "title", "seeds", "device", "tune")  # not part of a protocol
OWN_CODE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")


@dataclass(frozen=True)
class LearnerSpec:
    """One learner of an experiment."""

    name: str  # what it is called in tables, figures and folders
    recipe: str  # see `olss.learn.recipe`
    # its own, over those of `Experiment.train`
    settings: dict[str, Any] = field(default_factory=dict)
    # its own search space, over that of `TuneSpec`
    tune: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunSpec:
    """One run: a learner with one seed. Everything that decides its record.

    `code` has the checksum of each of the user's modules that the settings name.
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
        content: dict[str, Any] = json.loads(json.dumps(vars(self)))
        return {k: v for k, v in content.items() if v or k not in ("title", "code")}


@dataclass(frozen=True)
class Experiment:
    """The content of an experiment file."""

    name: str  # name of the folder of its results
    # see `olss.streams.from_config`. Without a seed, each run's own seed makes its stream
    stream: dict[str, Any]
    learners: tuple[LearnerSpec, ...]
    # A description in the user's words, for the records. The protocol that is printed is made from
    # the configuration
    protocol: str = ""
    title: str = ""  # what reports call the stream
    net: str = "mlp"
    # training settings shared by all learners; see `olss.learn.recipe`
    train: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"
    tune: TuneSpec = field(default_factory=TuneSpec)

    def learner(self, name: str) -> LearnerSpec:
        """Return the learner of that name; raise with a suggestion if there is none."""
        learners = {learner.name: learner for learner in self.learners}
        if name not in learners:
            raise InputError(f"{self.name} has no learner {name!r}. {suggest(name, learners)}")
        return learners[name]

    def only(self, names: Iterable[str]) -> Experiment:
        """Return the experiment with these learners alone; of a sweep, one or all of its values."""
        chosen: dict[str, LearnerSpec] = {}
        for name in names:
            of_sweep = re.compile(re.escape(name) + r"( \w+=|$)")
            found = [learner for learner in self.learners if of_sweep.match(learner.name)]
            chosen |= {learner.name: learner for learner in found or [self.learner(name)]}
        return replace(self, learners=tuple(chosen.values()))

    def run_specs(self) -> list[RunSpec]:
        """Return every run: all learners with the first seed, then with the next."""
        return [self.run_spec(learner, seed) for seed in self.seeds for learner in self.learners]

    def run_spec(self, learner: LearnerSpec, seed: int) -> RunSpec:
        """Return the run of one learner with one seed."""
        settings = self._settings(learner)
        return RunSpec(
            experiment=self.name,
            label=learner.name,
            recipe=learner.recipe,
            settings=settings,
            stream={"seed": seed, **self.stream},
            seed=seed,
            protocol=self.protocol,
            device=self.device,
            title=self.title,
            code=find_code(settings, self.name),
        )

    def _settings(self, learner: LearnerSpec) -> dict[str, Any]:
        return {"net": self.net, **self.train, **learner.settings}

    def describe_protocol(self) -> list[str]:
        """Return what is done, in short phrases made from the configuration."""
        tasks = self.stream.get("tasks")
        shared = shared_settings([self._settings(learner) for learner in self.learners])
        if all(learner.recipe == "analytic" for learner in self.learners):
            shared.pop("net", None)  # it has none
        return describe_protocol(self.stream, tasks if type(tasks) is int else None, shared, None)

    def content(self) -> dict[str, Any]:
        """Return it as in a file: `parse` makes the same experiment from it."""
        content: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        content["tune"] = {k: v for k, v in content["tune"].items() if v is not None}
        content["learner"] = [
            {"name": learner["name"], "recipe": learner["recipe"], **learner["settings"]}
            | ({"tune": learner["tune"]} if learner["tune"] else {})
            for learner in content.pop("learners")
        ]
        return content


def load(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Read an experiment file.

    Parameters
    ----------
    path : path
        A .toml file. `name` is by default that of the file.
    changes : sequence of str
        What to change, such as "train.epochs=1", "stream.tasks=5", "learner.olss.lr=0.1".
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
    if any(not change.strip().startswith(NOT_PROTOCOL) for change in changes):
        content.pop("protocol", None)  # it describes the file, not the experiment as changed
    for folder in (path.parent.resolve(), Path.cwd()):  # for the user's code, after all installed
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    return parse({"name": path.stem, **content}, str(path))


def parse(content: Mapping[str, Any], source: str = "the experiment") -> Experiment:
    """Make an experiment from the content of a file, checking every key.

    Examples
    --------
    >>> stream = {"name": "permuted", "dataset": "digits", "tasks": 2}
    >>> parse({"name": "try", "stream": stream, "learner": [{"recipe": "sgd"}]}).learners[0].name
    'sgd'
    >>> parse({"name": "try", "steam": stream, "learner": [{"recipe": "sgd"}]})
    Traceback (most recent call last):
    olss.errors.InputError: the experiment has an unknown key 'steam'. Did you mean 'stream'?
    """
    known = {item.name for item in fields(Experiment)} - {"learners"} | {"learner"}
    check_keys(content, known, source)
    check_values(content, "", source)
    for key in ("stream", "learner"):
        if not content.get(key):
            raise InputError(f"{source} must have a [{key}] table, found none.")
    stream = get_table(content["stream"], "stream", source)
    steps = stream.get("steps", [])
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise InputError(f"stream.steps of {source} must be a list of tables, found {steps!r}.")
    if not isinstance(content["learner"], list):
        raise InputError(f"learners of {source} are written [[learner]], with two brackets.")
    return Experiment(
        name=get_string(content, "name", "", source),
        stream=stream,
        learners=_parse_learners(content["learner"], source),
        protocol=get_string(content, "protocol", "", source),
        title=get_string(content, "title", "", source),
        net=get_string(content, "net", "mlp", source),
        train=get_table(content.get("train", {}), "train", source),
        seeds=parse_seeds(content.get("seeds", [0])),
        device=get_string(content, "device", "cpu", source),
        tune=parse_tune(get_table(content.get("tune", {}), "tune", source), source),
    )


def safe_name(name: str) -> str:
    """Return a name that every file system takes.

    Examples
    --------
    >>> safe_name("olss, size=2/3")
    'olss-size=2-3'
    """
    return re.sub(r"[^\w.+=%-]+", "-", name).strip("-. ") or "unnamed"


def _parse_learners(given: list[Any], source: str) -> tuple[LearnerSpec, ...]:
    specs = [
        learner
        for number, entry in enumerate(given, start=1)
        for learner in _parse_learner(get_table(entry, f"learner {number}", source), number, source)
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


def _parse_learner(table: dict[str, Any], number: int, source: str) -> list[LearnerSpec]:
    """Return a learner, or one for each combination of its sweep."""
    recipe = table.pop("recipe", table.get("name"))
    if isinstance(recipe, list):
        recipe = "+".join(map(str, recipe))
    if not isinstance(recipe, str):
        raise InputError(f"learner {number} of {source} must have a recipe, found {recipe!r}.")
    name = str(table.pop("name", recipe))
    tune = get_table(table.pop("tune", {}), f"tune of {name}", source)
    check_space(tune, name)
    sweep = get_table(table.pop("sweep", {}), f"sweep of {name}", source)
    for key, values in sweep.items():
        if key in table:
            raise InputError(
                f"{key} of {name} is {table[key]!r} and is swept, too: leave one out, or change "
                f"the sweep (--set learner.{name}.sweep.{key}=[...])."
            )
        if not isinstance(values, list) or not values:
            raise InputError(f"sweep.{key} of {name} must be a list of values, found {values!r}.")
    learners = []
    for values in itertools.product(*sweep.values()):
        chosen = dict(zip(sweep, values, strict=True))
        suffix = "".join(f" {key}={value}" for key, value in chosen.items())
        learners.append(LearnerSpec(f"{name}{suffix}", recipe, {**table, **chosen}, tune))
    return learners


def find_code(settings: Mapping[str, Any], source: str) -> dict[str, str]:
    """Return the SHA-256 of each module that settings name as ``module:Name``.

    Raises
    ------
    InputError
        If a module is not found. Whether it has what is asked for is seen when the learner is
        created, before anything runs.

    Examples
    --------
    >>> list(find_code({"loss": "fractions:Fraction", "policy": "paper"}, "the experiment"))
    ['fractions']
    """
    return {
        found[1]: _hash_module(key, found[1], source)
        for key, value in settings.items()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str) and (found := OWN_CODE.fullmatch(one))
    }


def _hash_module(key: str, module: str, source: str) -> str:
    origin = _find_file(module)
    if origin is None:
        raise InputError(
            f"{key} of {source} names the module {module!r}, which was not found: put "
            f"{module.partition('.')[0]}.py beside the experiment file or into the current folder."
        )
    return hashlib.sha256(origin.read_bytes()).hexdigest()


def _find_file(module: str) -> Path | None:
    """Return the file of a module, without importing it or the packages it is in."""
    parts, places, found = module.split("."), None, None
    for depth in range(len(parts)):
        found = PathFinder.find_spec(".".join(parts[: depth + 1]), places)
        if found is None:
            return None
        places = found.submodule_search_locations
        if places is None and depth + 1 < len(parts):
            return None
    origin = None if found is None or not found.origin else Path(found.origin)
    return origin if origin is not None and origin.is_file() else None


# Stated once for all methods where every one has the same value.
PROTOCOL_SETTINGS = ("net", "epochs", "batch", "lr", "optimizer", "momentum", "weight_decay",
                     "schedule", "loss", "head", "threads")  # fmt: skip
PHRASES = {"epochs": "{} epochs", "batch": "batches of {}", "lr": "learning rate {}"}
# Defaults are not mentioned; records from before a setting existed lack it.
DEFAULTS = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "threads": 1} | {
    "finish_epochs": 0, "finish_rate": 0.1, "average_steps": 0, "precision": "float32",
    "augment": "none", "crop_padding": 4, "head_layers": "last",
}  # fmt: skip


def describe_protocol(
    stream: Mapping[str, Any], tasks: int | None, shared: Mapping[str, Any], compete: str | None
) -> list[str]:
    """Return what was done, in short phrases.

    Examples
    --------
    >>> stream = {"name": "permuted", "train_rows": 1000}
    >>> describe_protocol(stream, 5, {"epochs": 1, "batch": 20}, "seen")[:2]
    ['5 tasks', '1,000 training rows a task']
    """
    words = [] if tasks is None else [f"{tasks} task{'s' * (tasks != 1)}"]
    for key, kind in (("train_rows", "training"), ("test_rows", "test")):
        rows = stream.get(key)
        words.append(f"{rows:,} {kind} rows a task" if type(rows) is int else f"all {kind} rows")
    if compete is not None:
        words.append(COMPETING[compete])
    for key in PROTOCOL_SETTINGS:
        if key in shared and shared[key] != DEFAULTS.get(key) and key not in ("head", "loss"):
            phrase = PHRASES.get(key, describe_setting(key, "{}")).format(shared[key])
            words.append("1 epoch" if phrase == "1 epochs" else phrase)
    for step in stream.get("steps", []):
        options = [describe_setting(k, v) for k, v in step.items() if k not in ("name", "seed")]
        name = str(step.get("name", "step")).replace("_", " ")
        words.append(f"{name} {', '.join(options)}".strip())
    if "validation" in stream:
        words.append("tested on held-out training rows (validation)")
    return words


def shared_settings(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return those settings of a protocol that all methods have in common."""
    first = settings[0]
    return {
        key: first[key]
        for key in PROTOCOL_SETTINGS
        if first.get(key) is not None and all(one.get(key) == first[key] for one in settings)
    }


def drop_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are neither off nor at their default.

    Examples
    --------
    >>> drop_defaults({"beta": 0.0, "mirrored": False, "features": None, "momentum": 0.0})
    {'beta': 0.0}
    """
    off: tuple[Any, ...] = (None, "", [], {})
    return {
        key: value
        for key, value in settings.items()
        if value is not False and value not in off and value != DEFAULTS.get(key)
    }


def describe_setting(key: str, value: Any) -> str:
    """Return a setting in words.

    Examples
    --------
    >>> describe_setting("gem_rows", 256)
    'gem rows 256'
    """
    if isinstance(value, dict):
        value = value.get("name", json.dumps(value, sort_keys=True))
    if isinstance(value, list):
        value = ", ".join(str(v.get("name", v)) if isinstance(v, dict) else str(v) for v in value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    if isinstance(value, float):
        value = f"{value:.6g}"
    return f"{key.replace('_', ' ')} {value}"
