"""Choosing settings on validation rows, with Optuna proposing what to try."""

from __future__ import annotations

import contextlib
import itertools
import logging
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olss.common.lock import locked
from olss.common.sealed_json import write_json
from olss.errors import InputError, MissingExtraError
from olss.lab import toml_writing
from olss.lab.executor import Event
from olss.lab.experiment import Experiment, LearnerSpec, RunSpec, safe
from olss.lab.process_executor import ProcessExecutor
from olss.lab.progress import said_score

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["SettingsSearch", "tune", "tuned"]


log = logging.getLogger(__name__)


@dataclass
class _Trial:
    """A trial under way: what Optuna knows it by, and the seeds still to be run."""

    optuna: Any
    params: dict[str, Any]
    seeds: list[int]
    scores: list[float] = field(default_factory=list)


class SettingsSearch:
    """The search for one learner's settings.

    Parameters
    ----------
    experiment : Experiment
    learner : LearnerSpec
    storage : optuna storage
        Remembers all trials.
    """

    def __init__(self, experiment: Experiment, learner: LearnerSpec, storage: Any) -> None:
        self.experiment, self.learner = experiment, learner
        self.space = {**experiment.tune.space, **learner.tune}
        self.optuna: Any = import_module("optuna")
        self.study = self.optuna.create_study(
            study_name=learner.name,
            storage=storage,
            direction="maximize",
            load_if_exists=True,
            sampler=self._sampler(len(_trials(storage, learner.name))),
            pruner=self._pruner(),
        )
        self._check_same()
        self._take_up()

    def _sampler(self, known: int) -> Any:
        # Another seed after a resumption, else the same values would be proposed again.
        if self.experiment.tune.method == "tpe":
            return self.optuna.samplers.TPESampler(seed=known)
        return self.optuna.samplers.RandomSampler(seed=known)

    def _pruner(self) -> Any:
        if self.experiment.tune.prune:
            return self.optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1)
        return self.optuna.pruners.NopPruner()

    def _check_same(self) -> None:
        """Never mix trials of two configurations."""
        now = self.run_spec({}, 0).content()
        if not self._count("COMPLETE", "PRUNED"):
            self.study.set_user_attr("settings", now)
        elif self.study.user_attrs["settings"] != now:
            raise InputError(
                f"the trials of {self.learner.name!r} so far were made with other settings: choose "
                f"another name (--set name=...) or delete {safe(self.experiment.name)}-tune."
            )

    def _take_up(self) -> None:
        """Enqueue the grid, and the trials that a process left behind when it ended."""
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.name == "RUNNING":
                self.study.tell(trial.number, state=self.optuna.trial.TrialState.FAIL)
                self.study.enqueue_trial(trial.params)
        if self.experiment.tune.method != "grid":
            return
        for key, values in self.space.items():
            if not isinstance(values, list):
                raise InputError(f"the grid needs a list of values for {key}, found {values!r}.")
        for values in itertools.product(*self.space.values()):
            params = dict(zip(self.space, values, strict=True))
            self.study.enqueue_trial(params, skip_if_exists=True)

    def _count(self, *states: str) -> int:
        return sum(t.state.name in states for t in self.study.get_trials(deepcopy=False))

    def unfinished(self) -> bool:
        """Whether there is more to try."""
        if self._count("WAITING"):
            return True
        tried = self._count("COMPLETE", "PRUNED", "RUNNING")
        return self.experiment.tune.method != "grid" and tried < self.experiment.tune.trials

    def ask(self) -> _Trial | None:
        """Return the next trial, None when there are enough."""
        if not self.unfinished():
            return None
        trial = self.study.ask(self._distributions())
        log.info("%s: trial %d tries %s", self.learner.name, trial.number, trial.params)
        return _Trial(trial, dict(trial.params), list(self.experiment.tune.seeds))

    def _distributions(self) -> dict[str, Any]:
        kinds = self.optuna.distributions
        made = {}
        for key, values in self.space.items():
            if isinstance(values, list):
                made[key] = kinds.CategoricalDistribution(values)
            elif isinstance(values["low"], int) and isinstance(values["high"], int):
                made[key] = kinds.IntDistribution(**values)
            else:
                made[key] = kinds.FloatDistribution(**values)
        return made

    def run_spec(self, params: dict[str, Any], seed: int) -> RunSpec:
        """Return the run of a trial: on validation rows, under a name that says its values."""
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
                "settings": trial.params,
                "state": trial.state.name.lower(),
                "score": trial.value if trial.state.name == "COMPLETE" else None,
                "after each task": [
                    value for _, value in sorted(trial.intermediate_values.items())
                ],
                **trial.user_attrs,
            }
            for trial in self.study.get_trials(deepcopy=False)
            if trial.state.name in ("COMPLETE", "PRUNED")
        ]
        finished = [trial for trial in trials if trial["score"] is not None]
        best = max(finished, key=lambda trial: trial["score"], default=None)
        chosen = best and {"settings": best["settings"], "score": best["score"]}
        return {"chosen": chosen, "space": self.space, "trials": trials}


def tune(experiment: Experiment, root: Path, console: Console, jobs: int = 1) -> dict[str, Any]:
    """Choose the settings of every learner; go on with what there is.

    Parameters
    ----------
    experiment : Experiment
        Its `tune` says how.
    root : Path
        Folder of results; trials go to ``NAME-tune`` in it.
    console : rich.console.Console
        Where to say how it goes.
    jobs : int
        Trials at the same time.

    Returns
    -------
    dict
        For each learner the choice, the space and every trial; also in ``tune.json``.
    """
    try:
        optuna: Any = import_module("optuna")
    except ImportError as error:
        raise MissingExtraError("optuna", "tune", "olss tune") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = root / f"{safe(experiment.name)}-tune"
    with contextlib.ExitStack() as stack:
        if not stack.enter_context(locked(folder / ".lock")):
            raise InputError(f"another olss tune is at {folder}; --jobs N does several at a time.")
        backend = optuna.storages.journal.JournalFileBackend(str(folder / "optuna.journal"))
        storage = optuna.storages.JournalStorage(backend)
        searches = [SettingsSearch(experiment, learner, storage) for learner in experiment.learners]
        if any(search.unfinished() for search in searches):
            workers = ProcessExecutor(root, jobs)
            stack.callback(workers.close)
            workers.check(experiment.run_specs())
            _search(searches, workers, folder, console)
        return _write(searches, folder)


def tuned(experiment: Experiment, content: dict[str, Any]) -> str:
    """Return an experiment file with the chosen settings; its runs have the new file's name."""
    learners = tuple(
        replace(learner, settings={**learner.settings, **chosen["settings"]})
        if (chosen := content[learner.name]["chosen"])
        else learner
        for learner in experiment.learners
    )
    table = replace(experiment, learners=learners).content()
    del table["name"]
    text = toml_writing.dumps(table)
    share = f"{100 * experiment.tune.share:g} %"
    return f"# {experiment.name}, with settings chosen on {share} of the training rows.\n{text}"


def _search(
    searches: list[SettingsSearch], workers: ProcessExecutor, folder: Path, console: Console
) -> None:
    """Keep the workers busy until every search has enough trials."""
    proposals = _proposals(searches)
    under_way: dict[Path, tuple[SettingsSearch, _Trial]] = {}

    def submit(search: SettingsSearch, trial: _Trial) -> None:
        spec = search.run_spec(trial.params, trial.seeds.pop(0))
        under_way[spec.folder] = (search, trial)
        workers.submit(spec)

    for search, trial in itertools.islice(proposals, workers.processes):
        submit(search, trial)
    for event in workers.events():
        search, trial = under_way[event.spec.folder]
        if event.kind == "task" and not trial.scores and event.record is not None:
            step = len(event.record.tasks) - 1
            trial.optuna.report(float(event.record.average_accuracy[-1]), step)
            if trial.optuna.should_prune():
                workers.stop(event.spec)
        if event.kind not in ("done", "failed", "stopped"):
            continue
        del under_way[event.spec.folder]
        if event.kind == "done" and event.record is not None:
            trial.scores.append(float(event.record.average_accuracy[-1]))
            if trial.seeds:
                submit(search, trial)
                continue
        _tell(search, trial, event, folder)
        console.print(_line(search, trial, event), highlight=False, markup=False, soft_wrap=True)
        _write(searches, folder)
        for pair in itertools.islice(proposals, 1):
            submit(*pair)


def _proposals(searches: list[SettingsSearch]) -> Iterator[tuple[SettingsSearch, _Trial]]:
    for search in searches:
        while (trial := search.ask()) is not None:
            yield search, trial


def _tell(search: SettingsSearch, trial: _Trial, event: Event, folder: Path) -> None:
    if event.kind == "done":
        search.study.tell(trial.optuna, statistics.fmean(trial.scores))
        return
    # What diverged is as good as pruned: known to be bad, and not to be tried again.
    if event.kind == "failed":
        trial.optuna.set_user_attr("failed", event.text)
    search.study.tell(trial.optuna, state=search.optuna.trial.TrialState.PRUNED)
    shutil.rmtree(folder.parent / event.spec.folder / "checkpoint", ignore_errors=True)


def _line(search: SettingsSearch, trial: _Trial, event: Event) -> str:
    values = ", ".join(f"{key}={value}" for key, value in trial.params.items())
    said = {"failed": f"failed: {event.text}", "stopped": "stopped early"}.get(event.kind)
    if said is None and event.record is not None:
        said = said_score(trial.scores, event.record.metric)
    return f"{search.learner.name}, {values}: {said}"


def _write(searches: list[SettingsSearch], folder: Path) -> dict[str, Any]:
    content = {search.learner.name: search.content() for search in searches}
    write_json(folder / "tune.json", content)
    return content


def _trials(storage: Any, name: str) -> list[Any]:
    try:
        return list(storage.get_all_trials(storage.get_study_id_from_name(name)))
    except KeyError:
        return []
