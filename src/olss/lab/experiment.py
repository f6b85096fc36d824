"""Experiment files: what to run, as typed values read from TOML.

A custom part is named ``module:Name`` and found beside the file. The checksum of its module is a
setting of the run: runs with other code are neither resumed nor mixed with these. Modules that it
imports are not checked.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import re
import sys
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from olss.errors import InputError
from olss.streams.record import COMPETING
from olss.util import checks
from olss.util.checks import suggest

MOST_SEEDS = 10_000
LARGEST = 2**63 - 1  # integer that JSON, TOML and NumPy can all hold
PAPER_GRID = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise at the first unknown key, suggesting a similar one."""
    names = set(known)
    for key in table:
        if key not in names:
            raise InputError(f"{where} has an unknown key {key!r}. {suggest(key, names)}")


def check_values(value: Any, path: str, source: str) -> None:
    """Raise at the first value that a record could not hold: dates, NaN, control characters."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_values(key, f"a key of {path or 'the file'}", source)
            check_values(item, f"{path}.{key}" if path else str(key), source)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value, start=1):
            check_values(item, f"{path} {number}", source)
    elif allowed := _what_is_allowed(value):
        raise InputError(f"{path} of {source} must be {allowed}, found {value!r}.")


def _what_is_allowed(value: Any) -> str:
    """Return what a value should have been, nothing if it is right."""
    if isinstance(value, str):
        hidden = any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" for c in value)
        return "a string without control characters" if hidden else ""
    if isinstance(value, int):
        return "" if abs(value) <= LARGEST else f"an integer of at most {LARGEST}"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "a finite number"
    return "a string, a number, true, false, a list or a table (write a date in quotes)"


def get_table(value: Any, name: str, source: str) -> dict[str, Any]:
    """Return a copy of a table; raise if it is something else."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} of {source} must be a table, found {value!r}.")
    return copy.deepcopy(dict(value))


def get_string(content: Mapping[str, Any], key: str, default: str, source: str) -> str:
    """Return a string of a table; raise if it is something else."""
    value = content.get(key, default)
    if not isinstance(value, str):
        raise InputError(f"{key} of {source} must be a string, found {value!r}.")
    return value


def parse_seeds(given: Any) -> tuple[int, ...]:
    """Return seeds given as 3, [0, 1, 2], "0-4" or "0,2,5-7".

    Examples
    --------
    >>> parse_seeds("0-2,7")
    (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in given if isinstance(given, list) else str(given).split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", str(part))
        if not match:
            raise InputError(f"seeds must be like 3, [0, 1], '0-4' or '0,2,5-7', found {given!r}.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last > LARGEST or len(seeds) + last - first >= MOST_SEEDS:
            raise InputError(
                f"seeds must be at most {MOST_SEEDS:,}, none above {LARGEST}, found {given!r}."
            )
        seeds += range(first, last + 1)
    if not seeds:
        raise InputError(f"seeds must name at least one, found {given!r}.")
    return tuple(dict.fromkeys(seeds))


def apply_change(content: dict[str, Any], change: str) -> None:
    """Set one value of an experiment file's content.

    Examples
    --------
    >>> content = {"train": {"epochs": 5}, "learner": [{"recipe": "sgd"}]}
    >>> apply_change(content, "train.epochs=1")
    >>> apply_change(content, "learner.sgd.lr=0.3")
    >>> content
    {'train': {'epochs': 1}, 'learner': [{'recipe': 'sgd', 'lr': 0.3}]}
    """
    path, equals, text = change.partition("=")
    names = path.strip().split(".")
    if not equals or not all(names):
        raise InputError(f"--set takes a.b=value, such as train.epochs=1; found {change!r}.")
    place = content
    if names[0] == "learner" and len(names) > 2:
        place, names = _find_learner(content, names[1]), names[2:]
    for name in names[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise InputError(f"--set {change}: {name} is not a table.")
    try:
        place[names[-1]] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        place[names[-1]] = text.strip()


def _find_learner(content: dict[str, Any], name: str) -> dict[str, Any]:
    entries = content.get("learner", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"--set: learners are written [[learner]], found {entries!r}.")
    found: dict[str, dict[str, Any]] = {
        str(entry.get("name", entry.get("recipe"))): entry for entry in entries
    }
    if name not in found:
        raise InputError(f"--set: there is no learner {name!r}. {suggest(name, found)}")
    return found[name]


# ------------------------------------------------------------------ search spaces


@dataclass(frozen=True)
class TuneSpec:
    """How settings are chosen."""

    method: str = "grid"  # "grid", "random" or "tpe"
    trials: int = 20  # for random and tpe: how many for each learner
    tasks: int | None = None  # only the first tasks of the stream
    share: float = 0.1  # share of the training rows held out to score on
    seeds: tuple[int, ...] = (0,)  # A trial's score is the mean over these
    prune: bool = True  # stop trials that are worse than the median of the others at the same task
    # setting -> list of values, or a table with low, high and optionally log or step
    space: dict[str, Any] = field(default_factory=lambda: {"lr": list(PAPER_GRID)})


def parse_tune(table: dict[str, Any], source: str) -> TuneSpec:
    """Read the [tune] table of an experiment file."""
    check_keys(table, {item.name for item in fields(TuneSpec)}, f"[tune] of {source}")
    if "space" in table:
        table["space"] = get_table(table["space"], "tune.space", source)
        check_space(table["space"], source)
    if "seeds" in table:
        table["seeds"] = parse_seeds(table["seeds"])
    spec = TuneSpec(**table)
    checks.choice("tune.method", spec.method, ("grid", "random", "tpe"))
    checks.number("tune.share", spec.share, above=0, below=1)
    checks.integer("tune.trials", spec.trials)
    if spec.tasks is not None:
        checks.integer("tune.tasks", spec.tasks)
    checks.boolean("tune.prune", spec.prune)
    return spec


def check_space(space: dict[str, Any], where: str) -> None:
    """Raise unless each setting has a list of values or a range.

    Examples
    --------
    >>> check_space({"lr": [0.1, 0.3], "ewc_strength": {"low": 1, "high": 100, "log": True}}, "")
    """
    for key, values in space.items():
        if isinstance(values, dict):
            _check_range(key, values)
        elif not isinstance(values, list) or not values:
            raise InputError(
                f"the space of {key} in {where} must be a list of values or a table with low and "
                f"high, found {values!r}."
            )


def _check_range(key: str, values: dict[str, Any]) -> None:
    check_keys(values, ("low", "high", "log", "step"), f"the range of {key}")
    low = checks.number(f"low of {key}", values.get("low"))
    high = checks.number(f"high of {key}", values.get("high"))
    if not low < high:
        raise InputError(f"the range of {key} must have low below high, found {low} and {high}.")
    log, step = checks.boolean(f"log of {key}", values.get("log", False)), values.get("step")
    if log and low <= 0:
        raise InputError(f"the range of {key} with log must begin above 0, found {low}.")
    if step is not None:
        checks.number(f"step of {key}", step, above=0)
        if log:
            raise InputError(f"the range of {key} has log and step: leave one out.")


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
                "a folder: give each its own name."
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
