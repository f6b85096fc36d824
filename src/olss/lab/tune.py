"""Choosing settings on validation rows, with Optuna proposing what to try."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olss.errors import InputError, MissingExtraError
from olss.lab.executors import Event, ProcessExecutor
from olss.lab.experiment import Experiment, LearnerSpec, RunSpec, safe_name
from olss.lab.runner import format_seeds
from olss.util.files import file_lock, write_json

if TYPE_CHECKING:
    from rich.console import Console

log = logging.getLogger(__name__)
ENDED = ("COMPLETE", "PRUNED")
NO_SCORE = (
    "R squared is undefined, since all held-out targets of a task are the same: hold out more rows "
    "(tune.share)"
)


@dataclass
class _Trial:
    """A running trial: Optuna's handle, and the seeds still to be run."""

    optuna: Any
    params: dict[str, Any]
    seeds: list[int]
    scores: list[float] = field(default_factory=list)


class SettingsSearch:
    """The search for one learner's settings."""

    def __init__(self, experiment: Experiment, learner: LearnerSpec, storage: Any) -> None:
        self.experiment, self.learner = experiment, learner
        from olss.learn.methods import ignored_settings

        ignored = ignored_settings(learner.recipe)
        shared = {k: v for k, v in experiment.tune.space.items() if k not in ignored}
        self.space = {**shared, **learner.tune}
        self.optuna: Any = import_module("optuna")
        samplers, pruners = self.optuna.samplers, self.optuna.pruners
        self.study = self.optuna.create_study(
            study_name=learner.name,
            storage=storage,
            direction="maximize",
            load_if_exists=True,
            pruner=pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1)
            if experiment.tune.prune
            else pruners.NopPruner(),
        )
        kind = samplers.TPESampler if experiment.tune.method == "tpe" else samplers.RandomSampler
        # Another seed after a resumption, or the same values would be proposed again.
        self.study.sampler = kind(seed=len(self.study.get_trials(deepcopy=False)))
        self.failed: list[int] = []  # trials of this call, to be tried again by the next
        self.grid: list[dict[str, Any]] | None = None  # points still to try
        self._check_settings()
        self._resume()

    def _check_settings(self) -> None:
        """Never mix trials of two configurations."""
        now = self.run_spec({}, 0).content()
        if not any(t.state.name in ENDED for t in self.study.get_trials(deepcopy=False)):
            self.study.set_user_attr("settings", now)
        elif self.study.user_attrs["settings"] != now:
            raise self._mismatch("settings")

    def _mismatch(self, what: str) -> InputError:
        return InputError(
            f"the trials of {self.learner.name!r} so far were made with other {what}: choose "
            f"another name (--set name=...) or delete {safe_name(self.experiment.name)}-tune."
        )

    def _resume(self) -> None:
        """Find what is left to try, including unfinished trials of a process that ended."""
        trials = self.study.get_trials(deepcopy=False)
        left = [trial for trial in trials if trial.state.name == "RUNNING"]
        for trial in left:
            self.study.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
        if self.experiment.tune.method == "grid":
            done = [_settings(t) for t in trials if t.state.name in ENDED and self._matches(t)]
            self.grid = [point for point in self._grid_points() if point not in done]
            return
        made = self._distributions()
        for trial in trials:
            if any(
                not _same_choices(was, made.get(key, was))
                for key, was in trial.distributions.items()
            ):
                raise self._mismatch("values to choose from")
        for trial in left:
            if self._matches(trial):
                self.study.enqueue_trial(trial.params)

    def _grid_points(self) -> list[dict[str, Any]]:
        """Return the points of the grid."""
        for key, values in self.space.items():
            if not isinstance(values, list):
                raise InputError(f"the grid needs a list of values for {key}, found {values!r}.")
        products = itertools.product(*self.space.values())
        points = [dict(zip(self.space, values, strict=True)) for values in products]
        return [point for i, point in enumerate(points) if point not in points[:i]]

    def _matches(self, trial: Any) -> bool:
        """Whether a trial has the seeds of this search, and values in its space."""
        seeds, settings = list(self.experiment.tune.seeds), _settings(trial)
        if trial.user_attrs.get("seeds", seeds) != seeds or settings.keys() != self.space.keys():
            return False
        return all(_within(settings[key], values) for key, values in self.space.items())

    def has_more(self) -> bool:
        """Whether there is more to try."""
        if self.grid is not None:
            return bool(self.grid)
        trials = self.study.get_trials(deepcopy=False)
        tried = sum(t.state.name in (*ENDED, "RUNNING") and self._matches(t) for t in trials)
        return tried + len(self.failed) < self.experiment.tune.trials

    def ask(self) -> _Trial | None:
        """Return the next trial, None when there are enough."""
        if not self.has_more():
            return None
        # Optuna never lets the choices of a list change, and a grid has no need of it to choose.
        trial = self.study.ask(self._distributions() if self.grid is None else None)
        params = dict(trial.params) if self.grid is None else self.grid.pop(0)
        seeds = list(self.experiment.tune.seeds)
        trial.set_user_attr("settings", params)
        trial.set_user_attr("seeds", seeds)
        log.info("%s: trial %d tries %s", self.learner.name, trial.number, params)
        return _Trial(trial, params, list(seeds))

    def first_point(self) -> dict[str, Any]:
        """Return the first or lowest value of each setting of the space."""
        return {k: v[0] if isinstance(v, list) else v["low"] for k, v in self.space.items()}

    def _distributions(self) -> dict[str, Any]:
        kinds = self.optuna.distributions
        made = {}
        for key, values in self.space.items():
            if isinstance(values, list):
                made[key] = kinds.CategoricalDistribution(values)
            elif all(isinstance(value, int) for value in values.values()):
                made[key] = kinds.IntDistribution(**values)
            else:
                made[key] = kinds.FloatDistribution(**values)
        return made

    def run_spec(self, params: dict[str, Any], seed: int) -> RunSpec:
        """Return the run of a trial: on validation rows, with its values in the name."""
        tune = self.experiment.tune
        label = self.learner.name + "".join(f" {key}={value}" for key, value in params.items())
        learner = replace(self.learner, name=label, settings={**self.learner.settings, **params})
        spec = self.experiment.run_spec(learner, seed)
        return replace(
            spec,
            experiment=f"{self.experiment.name}-tune",
            stream={**spec.stream, "validation": {"share": tune.share}},
            first_tasks=tune.tasks,
        )

    def content(self) -> dict[str, Any]:
        """Return every trial and, if there is one, the choice, ready for JSON."""
        trials = [
            {
                "settings": _settings(trial),
                "state": trial.state.name.lower(),
                "score": trial.value if trial.state.name == "COMPLETE" else None,
                "after each task": [
                    value for _, value in sorted(trial.intermediate_values.items())
                ],
                **trial.user_attrs,
            }
            for trial in self.study.get_trials(deepcopy=False)
            if (trial.state.name in ENDED and self._matches(trial)) or trial.number in self.failed
        ]
        finished = [trial for trial in trials if trial["score"] is not None]
        best = max(finished, key=lambda trial: trial["score"], default=None)
        chosen = best and {"settings": best["settings"], "score": best["score"]}
        edges = find_edges(chosen["settings"], self.space) if chosen else {}
        return {"chosen": chosen, "edges": edges, "space": self.space, "trials": trials}


def tune(experiment: Experiment, root: Path, console: Console, jobs: int = 1) -> dict[str, Any]:
    """Choose the settings of every learner, or continue doing so."""
    try:
        optuna: Any = import_module("optuna")
    except ImportError as error:
        raise MissingExtraError("optuna", "tune", "olss tune") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = root / f"{safe_name(experiment.name)}-tune"
    with contextlib.ExitStack() as stack:
        if not stack.enter_context(file_lock(folder / ".lock")):
            raise InputError(
                f"another olss tune is using {folder}; --jobs N runs several trials at a time."
            )
        backend = optuna.storages.journal.JournalFileBackend(str(folder / "optuna.journal"))
        storage = optuna.storages.JournalStorage(backend)
        searches = [SettingsSearch(experiment, learner, storage) for learner in experiment.learners]
        if any(search.has_more() for search in searches):
            workers = ProcessExecutor(root, jobs)
            stack.callback(workers.close)
            workers.check([search.run_spec(search.first_point(), 0) for search in searches])
            _search(searches, workers, folder, console)
        return _save(searches, folder)


def find_edges(settings: dict[str, Any], space: dict[str, Any]) -> dict[str, str]:
    """Return which chosen numbers lie at an edge of their space: a better one may lie beyond.

    A list needs three numbers or more to have an edge; of a range, 5% at either end count.

    Examples
    --------
    >>> find_edges({"lr": 0.1, "epochs": 3}, {"lr": [0.001, 0.01, 0.1], "epochs": [1, 3, 9]})
    {'lr': 'highest'}
    """
    edges = {}
    for key, values in space.items():
        is_range, value = isinstance(values, dict), settings[key]
        numbers = [values["low"], values["high"]] if is_range else _sorted_numbers(values)
        if type(value) not in (int, float) or len(numbers) < (2 if is_range else 3):
            continue
        scale = math.log if is_range and values.get("log") else float
        low, high = scale(numbers[0]), scale(numbers[-1])
        margin = 0.05 * (high - low) if is_range else 0.0
        if scale(value) <= low + margin:
            edges[key] = "lowest"
        elif scale(value) >= high - margin:
            edges[key] = "highest"
    return edges


def _sorted_numbers(values: list[Any]) -> list[float]:
    """Return the different numbers of a list, in order."""
    return sorted({value for value in values if type(value) in (int, float)})


def format_tuned(experiment: Experiment, content: dict[str, Any]) -> str:
    """Return an experiment file with the chosen settings; its runs go by the new file's name."""
    learners = tuple(
        replace(learner, settings={**learner.settings, **chosen["settings"]})
        if (chosen := content[learner.name]["chosen"])
        else learner
        for learner in experiment.learners
    )
    table = replace(experiment, learners=learners).content()
    del table["name"]
    table = {key: value for key, value in table.items() if value != ""}
    text = import_module("tomli_w").dumps(table)
    share = f"{100 * experiment.tune.share:g} %"
    return f"# {experiment.name}, with settings chosen on {share} of the training rows.\n{text}"


def _search(
    searches: list[SettingsSearch], workers: ProcessExecutor, folder: Path, console: Console
) -> None:
    """Keep the workers busy until every search has enough trials."""
    proposals = _proposals(searches)
    # Optuna may propose what is under way already: such runs wait for each other, in this order.
    under_way: dict[Path, list[tuple[SettingsSearch, _Trial]]] = {}

    def submit(search: SettingsSearch, trial: _Trial) -> None:
        spec = search.run_spec(trial.params, trial.seeds.pop(0))
        under_way.setdefault(spec.folder, []).append((search, trial))
        workers.submit(spec)

    for search, trial in itertools.islice(proposals, workers.processes):
        submit(search, trial)
    for event in workers.events():
        search, trial = under_way[event.spec.folder][0]
        if event.kind == "task" and not trial.scores and event.record is not None:
            step, average = len(event.record.tasks) - 1, float(event.record.average_accuracy[-1])
            if not math.isnan(average):
                trial.optuna.report(average, step)
            if trial.optuna.should_prune():
                workers.stop(event.spec)
        if event.kind not in ("done", "failed", "stopped"):
            continue
        del under_way[event.spec.folder][0]
        if event.kind == "done" and event.record is not None:
            trial.scores.append(float(event.record.average_accuracy[-1]))
            if trial.seeds:
                submit(search, trial)
                continue
            if math.isnan(statistics.fmean(trial.scores)):
                event = replace(event, kind="failed", text=NO_SCORE)
        _record_outcome(search, trial, event, folder)
        console.print(
            _describe_outcome(search, trial, event), highlight=False, markup=False, soft_wrap=True
        )
        _save(searches, folder)
        for pair in itertools.islice(proposals, 1):
            submit(*pair)


def _proposals(searches: list[SettingsSearch]) -> Iterator[tuple[SettingsSearch, _Trial]]:
    for search in searches:
        while (trial := search.ask()) is not None:
            yield search, trial


def _record_outcome(search: SettingsSearch, trial: _Trial, event: Event, folder: Path) -> None:
    if event.kind == "done" and event.record is not None:
        trial.optuna.set_user_attr("metric", event.record.metric)
        search.study.tell(trial.optuna, statistics.fmean(trial.scores))
        return
    states = search.optuna.trial.TrialState
    if event.kind == "failed":
        trial.optuna.set_user_attr("failed", event.text)
    if event.kind == "failed" and not event.diverged:
        search.failed.append(trial.optuna.number)
        search.study.tell(trial.optuna, state=states.FAIL)
        return
    # What diverged is as good as pruned: known to be bad, and not to be tried again.
    search.study.tell(trial.optuna, state=states.PRUNED)
    shutil.rmtree(folder.parent / event.spec.folder / "checkpoint", ignore_errors=True)


def _describe_outcome(search: SettingsSearch, trial: _Trial, event: Event) -> str:
    values = "".join(f", {key}={value}" for key, value in trial.params.items())
    said = {"failed": f"failed: {event.text}", "stopped": "stopped early"}.get(event.kind)
    if said is None and event.record is not None:
        said = format_seeds(trial.scores, event.record.metric)
    return f"{search.learner.name}{values}: {said}"


def _save(searches: list[SettingsSearch], folder: Path) -> dict[str, Any]:
    content = {search.learner.name: search.content() for search in searches}
    write_json(folder / "tune.json", content)
    return content


def _settings(trial: Any) -> dict[str, Any]:
    """Return what a trial tries."""
    return dict(trial.user_attrs.get("settings", trial.params))


def _within(value: Any, values: Any) -> bool:
    """Whether a value is in a list or a range."""
    if isinstance(values, list):
        return value in values
    return isinstance(value, (int, float)) and values["low"] <= value <= values["high"]


def _same_choices(before: Any, now: Any) -> bool:
    """Whether Optuna accepts another distribution: ranges may change, lists may not."""
    return type(before) is type(now) and getattr(before, "choices", 0) == getattr(now, "choices", 0)
