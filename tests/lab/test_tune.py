from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from olss.errors import InputError
from olss.lab.executors import Event
from olss.lab.experiment import RunSpec, load
from olss.lab.tune import SettingsSearch, _search, find_edges, format_tuned, tune
from olss.streams import from_config
from olss.util.files import file_lock
from tests.lab.small import small_experiment
from tests.lab.test_runner import record

optuna = pytest.importorskip("optuna")

SPACE = {"lr": [0.001, 0.1, 1e30]}


def storage(path: Path) -> Any:
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    return optuna.storages.JournalStorage(backend)


def searching(path: Path, **how: Any) -> SettingsSearch:
    experiment = small_experiment(tune=how)
    return SettingsSearch(experiment, experiment.learner("sgd"), storage(path))


def test_trials_are_scored_on_held_out_training_rows_only(tmp_path: Path) -> None:
    search = searching(tmp_path / "j", share=0.2, space=SPACE)
    spec = search.run_spec({"lr": 0.1}, 0)
    stream, ours = from_config(spec.stream), from_config(small_experiment().run_specs()[0].stream)
    assert stream.config["validation"]["share"] == 0.2
    assert spec.label == "sgd lr=0.1"

    def pictures(X: Any) -> set[bytes]:
        """Permuting pixels keeps their values, so sorted values know a picture again."""
        return {np.sort(row.ravel()).tobytes() for row in X}

    assert not np.array_equal(stream[0].X_test, ours[0].X_test)
    held, tests = pictures(stream[0].X_test), pictures(ours[0].X_test)
    assert len(held & tests) < 0.02 * len(held) + 1  # but for pictures of the same greys


def test_the_whole_way_from_grid_to_a_written_file_and_again(tmp_path: Path) -> None:
    out = io.StringIO()
    experiment = small_experiment(tune={"space": SPACE, "tasks": 2, "seeds": [0, 1]})
    experiment = experiment.only(["sgd"])
    found = tune(experiment, tmp_path, Console(file=out), jobs=2)["sgd"]
    assert found["chosen"]["settings"] == {"lr": 0.1}
    assert found["edges"] == {}
    by_rate = {trial["settings"]["lr"]: trial for trial in found["trials"]}
    assert set(by_rate) == {0.001, 0.1, 1e30}
    assert "smaller learning rate" in by_rate[1e30]["failed"]
    assert by_rate[1e30]["score"] is None
    assert by_rate[0.1]["metric"] == "accuracy"
    scores = []
    for seed in (0, 1):
        path = tmp_path / "small-tune" / "sgd-lr=0.1" / f"seed-{seed}" / "record.json"
        record = json.loads(path.read_text())
        assert len(record["tasks"]) == 2
        assert record["config"]["stream"]["first_tasks"] == 2
        scores.append(np.mean(record["accuracy"][-1]))
    assert by_rate[0.1]["score"] == pytest.approx(np.mean(scores))
    assert json.loads((tmp_path / "small-tune" / "tune.json").read_text())["sgd"] == found

    written = tmp_path / "tuned.toml"
    written.write_text(format_tuned(experiment, {"sgd": found}), encoding="utf-8")
    assert load(written).learner("sgd").settings["lr"] == 0.1
    assert load(written).name == "tuned"
    assert 'title = ""' not in written.read_text(encoding="utf-8")

    again = io.StringIO()
    assert tune(experiment, tmp_path, Console(file=again))["sgd"] == found
    assert again.getvalue() == ""  # nothing was left to try
    other = small_experiment(tune={"space": SPACE, "tasks": 3}).only(["sgd"])
    with pytest.raises(InputError, match="made with other settings"):
        tune(other, tmp_path, Console(file=again))


def test_the_paper_s_grid_is_the_default(tmp_path: Path) -> None:
    search = searching(tmp_path / "j")
    rates = []
    while (trial := search.ask()) is not None:
        rates.append(trial.params["lr"])
    assert rates == [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]


def test_a_learner_without_a_net_is_not_tried_at_several_rates(tmp_path: Path) -> None:
    learner = {"name": "analytic", "tune": {"ridge": [0.01, 0.1]}}
    experiment = small_experiment(learner=[learner], tune={"space": {**SPACE, "width": [50, 100]}})
    search = SettingsSearch(experiment, experiment.learner("analytic"), storage(tmp_path / "j"))
    assert search.space == {"width": [50, 100], "ridge": [0.01, 0.1]}


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_ranges_and_the_number_of_trials(tmp_path: Path, method: str) -> None:
    space = {"lr": {"low": 0.001, "high": 1.0, "log": True}, "batch": {"low": 10, "high": 40}}
    search = searching(tmp_path / "j", method=method, trials=4, space=space)
    for _ in range(3):
        trial = search.ask()
        assert trial is not None
        assert 0.001 <= trial.params["lr"] <= 1
        assert trial.params["batch"] in range(10, 41)
        search.study.tell(trial.optuna, 0.5)
    # A new process goes on, and does not propose the same again.
    more = searching(tmp_path / "j", method=method, trials=4, space=space)
    last = more.ask()
    assert last is not None
    assert more.ask() is None
    tried = [trial.params for trial in more.study.get_trials()]
    assert len({trial["lr"] for trial in tried}) == 4


def test_a_trial_left_behind_is_tried_again(tmp_path: Path) -> None:
    first = searching(tmp_path / "j", space=SPACE).ask()  # and its process is gone
    assert first is not None
    search = searching(tmp_path / "j", space=SPACE)
    rates = []
    while (trial := search.ask()) is not None:
        rates.append(trial.params["lr"])
    assert sorted(rates) == SPACE["lr"]


def rates_left(search: SettingsSearch) -> list[float]:
    rates = []
    while (trial := search.ask()) is not None:
        rates.append(trial.params["lr"])
        search.study.tell(trial.optuna, trial.params["lr"])
    return rates


def test_a_longer_grid_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    assert rates_left(searching(tmp_path / "j", space={"lr": [0.1, 0.9]})) == [0.1, 0.9]
    search = searching(tmp_path / "j", space={"lr": [0.1, 0.3, 0.03]})
    assert rates_left(search) == [0.3, 0.03]
    assert len(search.content()["trials"]) == 3
    assert search.content()["chosen"]["settings"] == {"lr": 0.3}  # 0.9 is no longer asked for


def test_other_seeds_are_other_trials(tmp_path: Path) -> None:
    assert rates_left(searching(tmp_path / "j", space=SPACE)) == SPACE["lr"]
    search = searching(tmp_path / "j", space=SPACE, seeds=[0, 1])
    assert search.content()["chosen"] is None
    assert rates_left(search) == SPACE["lr"]


@pytest.mark.parametrize("values", [[0.1, 0.3, 0.5], {"low": 0.1, "high": 0.3}])
def test_a_list_that_optuna_chose_from_cannot_change(tmp_path: Path, values: Any) -> None:
    how = {"method": "random", "trials": 2}
    rates_left(searching(tmp_path / "j", space={"lr": [0.1, 0.3]}, **how))
    with pytest.raises(InputError, match=r"made with other values.*another name.*small-tune"):
        searching(tmp_path / "j", space={"lr": values}, **how)


def test_settings_that_no_learner_takes_are_told_before_anything_runs(tmp_path: Path) -> None:
    experiment = small_experiment(tune={"space": {"lrr": [0.1]}})
    with pytest.raises(InputError, match=r"no setting 'lrr'. Did you mean 'lr'"):
        tune(experiment, tmp_path, Console(file=io.StringIO()))
    assert not list(tmp_path.glob("small-tune/*/seed-*"))


def test_a_grid_needs_values(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="grid needs a list of values for lr"):
        searching(tmp_path / "j", space={"lr": {"low": 0.1, "high": 1.0}})


def test_settings_may_change_until_there_is_a_result(tmp_path: Path) -> None:
    searching(tmp_path / "j", space=SPACE, tasks=2)
    search = searching(tmp_path / "j", space=SPACE, tasks=3)
    trial = search.ask()
    assert trial is not None
    search.study.tell(trial.optuna, 0.5)
    with pytest.raises(InputError, match="made with other settings"):
        searching(tmp_path / "j", space=SPACE, tasks=2)


def test_one_command_at_a_time(tmp_path: Path) -> None:
    with (
        file_lock(tmp_path / "small-tune" / ".lock"),
        pytest.raises(InputError, match="another olss"),
    ):
        tune(small_experiment(), tmp_path, Console(file=io.StringIO()))


class Acted:
    """ProcessExecutor that tell of made-up scores, one for each learning rate."""

    processes = 1

    def __init__(self, scores: dict[float, float], failing: Event | None = None) -> None:
        self.scores, self.specs, self.stopped = scores, [], []  # type: ignore[var-annotated]
        self.failing = failing

    def submit(self, spec: RunSpec) -> None:
        self.specs.append(spec)

    def stop(self, spec: RunSpec) -> None:
        self.stopped.append(spec)

    def events(self) -> Iterator[Event]:
        while self.specs:
            spec = self.specs.pop(0)
            if self.failing and spec.settings["lr"] == 0.3:
                yield replace(self.failing, spec=spec)
                continue
            score = self.scores[spec.settings["lr"]]
            for tasks in (1, 2, 3):
                yield Event("task", spec, record(tasks, score))
                if spec in self.stopped:
                    yield Event("stopped", spec)
                    break
            else:
                yield Event("done", spec, record(3, score))


@pytest.mark.parametrize("prune", [True, False])
def test_hopeless_trials_are_stopped_early(tmp_path: Path, prune: bool) -> None:
    scores = {0.01: 0.8, 0.03: 0.7, 0.1: 0.9, 0.3: 0.1}
    search = searching(tmp_path / "j", space={"lr": list(scores)}, prune=prune)
    acted = Acted(scores)
    _search([search], acted, tmp_path, Console(file=io.StringIO()))  # type: ignore[arg-type]
    assert [spec.settings["lr"] for spec in acted.stopped] == ([0.3] if prune else [])
    content = search.content()
    assert content["chosen"] == {"settings": {"lr": 0.1}, "score": pytest.approx(0.9)}
    worst = content["trials"][-1]
    assert worst["state"] == ("pruned" if prune else "complete")
    assert len(worst["after each task"]) == (2 if prune else 3)


@pytest.mark.parametrize("method", ["grid", "random"])
@pytest.mark.parametrize("diverged", [True, False])
def test_what_failed_is_tried_again_and_what_diverged_is_not(
    tmp_path: Path, method: str, diverged: bool
) -> None:
    def searched(failing: Event | None) -> SettingsSearch:
        search = searching(tmp_path / "j", space={"lr": [0.3]}, method=method, trials=2)
        acted = Acted({0.3: 0.9}, failing)
        _search([search], acted, tmp_path, Console(file=io.StringIO()))  # type: ignore[arg-type]
        return search

    spec = small_experiment().run_specs()[0]
    content = searched(Event("failed", spec, text="no space", diverged=diverged)).content()
    state = "pruned" if diverged else "fail"
    assert [(t["state"], t["failed"]) for t in content["trials"]] == [(state, "no space")] * (
        1 if method == "grid" else 2
    )
    assert content["chosen"] is None
    again = searched(None).content()
    assert again["chosen"] == (None if diverged else {"settings": {"lr": 0.3}, "score": 0.9})
    assert {trial["state"] for trial in again["trials"]} == {"pruned" if diverged else "complete"}


@pytest.mark.parametrize("method", ["grid", "random"])
def test_a_trial_whose_score_is_not_known_failed_and_the_search_ends(
    tmp_path: Path, method: str
) -> None:
    space = {"lr": [0.1, 0.3]}
    search = searching(tmp_path / "j", space=space, method=method, trials=3)
    out = io.StringIO()
    acted = Acted(dict.fromkeys(space["lr"], np.nan))
    _search([search], acted, tmp_path, Console(file=out))  # type: ignore[arg-type]
    content = search.content()
    assert content["chosen"] is None
    assert {trial["state"] for trial in content["trials"]} == {"fail"}
    assert len(content["trials"]) == (2 if method == "grid" else 3)
    assert "tune.share" in content["trials"][0]["failed"]
    assert "tune.share" in out.getvalue()


def test_the_same_values_may_be_tried_at_the_same_time(tmp_path: Path) -> None:
    search = searching(tmp_path / "j", space={"lr": [0.1]}, method="random", trials=5, seeds=[0, 1])
    acted = Acted({0.1: 0.9})
    acted.processes = 3
    _search([search], acted, tmp_path, Console(file=io.StringIO()))  # type: ignore[arg-type]
    trials = search.content()["trials"]
    assert [(trial["state"], trial["score"]) for trial in trials] == [("complete", 0.9)] * 5


@pytest.mark.parametrize(
    ("value", "values", "edge"),
    [
        (0.1, [0.1, 0.01, 0.001], "highest"),
        (0.001, [0.1, 0.01, 0.001], "lowest"),
        (0.01, [0.1, 0.01, 0.001], None),
        (1, [1, 2], None),  # a comparison rather than a grid
        ("paper", ["paper", "weighted", "reservoir"], None),
        (True, [True, False], None),
        (0.98, {"low": 0.0, "high": 1.0}, "highest"),
        (0.5, {"low": 0.0, "high": 1.0}, None),
        (1.1, {"low": 1, "high": 1000, "log": True}, "lowest"),
        (30.0, {"low": 1, "high": 1000, "log": True}, None),
    ],
)
def test_a_choice_at_the_edge_of_the_space_is_found(value: Any, values: Any, edge: Any) -> None:
    assert find_edges({"x": value}, {"x": values}).get("x") == edge
