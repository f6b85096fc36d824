from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from olss.cli.lab import register
from olss.errors import OlssError
from olss.lab.executors import Event
from olss.lab.experiment import RunSpec, load
from olss.lab.single_run import check, run_in_folder
from olss.streams.record import Record
from tests.lab.small import write_experiment


class Inline:
    """Does runs one after the other in this process: the commands' own work, without waiting."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.specs: list[RunSpec] = []
        self.interrupt = False

    def check(self, specs: Sequence[RunSpec]) -> int:
        return check(specs)

    def submit(self, spec: RunSpec) -> None:
        self.specs.append(spec)

    def events(self) -> Iterator[Event]:
        for spec in self.specs:
            yield Event("start", spec)
            if self.interrupt:
                raise KeyboardInterrupt
            records: dict[int, Record] = {}
            try:
                run_in_folder(self.root / spec.folder, spec, records.__setitem__)
            except OlssError as error:
                yield Event("failed", spec, text=str(error))
                continue
            yield from (Event("task", spec, record) for record in records.values())
            yield Event("done", spec, records[max(records)])

    def close(self) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("olss.lab.runner.create_executor", lambda root, *_: Inline(root))
    write_experiment(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, arguments)


def test_run_ends_with_a_table_and_where_the_results_are(folder: Path) -> None:
    result = call("run", "small.toml", "--seeds", "0-1")
    assert result.exit_code == 0, result.output
    assert "small  3 tasks · 200 training rows a task" in result.output
    assert "sgd, seed 1: average" in result.output
    rows = {line.split()[0]: line for line in result.output.splitlines() if "–" in line}
    assert "±" not in result.output
    assert set(rows) == {"sgd", "sketch"}
    assert "olss report runs/small" in result.output
    assert len(list(folder.glob("runs/small/*/seed-*/record.json"))) == 4
    experiment = json.loads((folder / "runs/small/experiment.json").read_text())
    assert experiment["seeds"] == [0, 1]


def test_run_again_keeps_what_is_finished_and_adds_what_is_not(folder: Path) -> None:
    first = call("run", "small.toml", "--only", "sgd")
    stamps = {p: p.stat().st_mtime_ns for p in folder.glob("runs/small/sgd/seed-0/*.json")}
    again = call("run", "small.toml")
    assert first.exit_code == again.exit_code == 0
    assert "1 of 2 runs were finished before and are kept." in again.output
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps
    noted = json.loads((folder / "runs/small/experiment.json").read_text())
    assert [learner["name"] for learner in noted["learner"]] == ["sgd", "sketch"]
    third = call("run", "small.toml")
    assert "seed 0: average" not in third.output  # nothing was run
    assert "sketch" in third.output


def test_changed_settings_are_noticed(folder: Path) -> None:
    call("run", "small.toml", "--only", "sgd")
    result = call("run", "small.toml", "--only", "sgd", "--set", "train.epochs=2")
    assert result.exit_code == 1
    assert "settings.epochs is 1 there and 2 now" in result.stderr
    beside = call(
        "run", "small.toml", "--only", "sgd", "--set", "train.epochs=2", "--set", "name=b"
    )
    assert beside.exit_code == 0
    assert (folder / "runs/b/sgd/seed-0/record.json").exists()
    assert call("run", "small.toml", "--only", "sgd", "--device", "cuda").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "none.toml"), 1, "Error: none.toml: No such file or directory."),
        (("run",), 2, "Missing argument"),
        (("run", "small.toml", "--jobs", "x"), 2, "jobs"),
        (("run", "small.toml", "--only", "sdg"), 1, "Did you mean 'sgd'?"),
        (("run", "small.toml", "--seeds", "x"), 1, "seeds must be like"),
        (("run", "small.toml", "--set", "train.epoch=1"), 1, "'epoch'. Did you mean 'epochs'"),
        (("run", "small.toml", "--set", "stream.dataset=minst"), 1, "Did you mean 'mnist'?"),
        (("run", "small.toml", "--device", "nowhere"), 1, "device must be one torch can use"),
        (("run", "small.toml", "--set", "train.threads=two"), 1, "threads must be a positive"),
    ],
)
def test_mistakes_end_with_a_code_and_a_line(
    folder: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = call(*arguments)
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.output
    if code == 1:
        assert len(result.stderr.strip().splitlines()) == 1


def test_a_failed_run_is_exit_code_1_and_the_others_go_on(folder: Path) -> None:
    result = call("run", "small.toml", "--set", "learner.sgd.lr=1e30")
    assert result.exit_code == 1
    assert "sgd, seed 0: failed: the loss became" in result.stderr
    assert "1 of the runs failed" in result.stderr
    assert (folder / "runs/small/sketch/seed-0/record.json").exists()


def test_ctrl_c_is_130_and_says_how_to_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(root: Path, *_: object) -> Inline:
        made = Inline(root)
        made.interrupt = True
        return made

    monkeypatch.setattr("olss.lab.runner.create_executor", interrupted)
    result = call("run", "small.toml")
    assert result.exit_code == 130
    assert "the same command resumes" in result.stderr


def test_more_jobs_than_cores_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.process_cpu_count", lambda: 4, raising=False)
    few = call("run", "small.toml", "--jobs", "4", "--only", "sgd")
    assert few.stderr == ""
    many = call("run", "small.toml", "--jobs", "4", "--only", "sgd", "--set", "train.threads=2",
                "--set", "name=b")  # fmt: skip
    assert "4 runs of 2 thread(s) on 4 cores" in many.stderr


def test_tensorboard_by_a_flag(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    assert call("run", "small.toml", "--only", "sgd", "--tensorboard").exit_code == 0
    assert len(list(folder.glob("runs/small/sgd/seed-0/events.out.tfevents.*"))) == 1


def test_tune_says_when_its_choice_lies_at_the_edge(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"chosen": {"settings": {"lr": 1.0}, "score": 0.5}, "edges": {}, "trials": []}
    found = {"sgd": {**chosen, "edges": {"lr": "highest"}}, "sketch": {**chosen, "edges": {}}}
    monkeypatch.setattr("olss.lab.tune.tune", lambda *_: found)
    output = call("tune", "small.toml").output
    assert "lr=1.0 of sgd is the highest value tried" in output
    assert "tune.space.lr" in output
    assert "of sketch is the" not in output


def test_what_tune_reached_is_shown_as_the_metric_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = {"settings": {"lr": 0.3}, "score": 0.4812}
    found = {
        learner: {"chosen": best, "edges": {}, "trials": [{"state": "complete", "metric": metric}]}
        for learner, metric in (("sgd", "r2"), ("sketch", "accuracy"))
    }
    monkeypatch.setattr("olss.lab.tune.tune", lambda *_: found)
    lines = call("tune", "small.toml").output.splitlines()
    shown = {line.split()[0]: line.split() for line in lines if "lr=" in line}
    assert "0.481" in shown["sgd"]
    assert "48.1" in shown["sketch"]


def test_a_choice_is_written_whole_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"chosen": {"settings": {"lr": 0.3}, "score": 0.5}, "edges": {}, "trials": []}
    monkeypatch.setattr("olss.lab.tune.tune", lambda *_: {"sgd": chosen, "sketch": chosen})
    (folder / "tuned.toml").write_text("mine")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert call("tune", "small.toml", "--write", "tuned.toml").exit_code == 1
    assert (folder / "tuned.toml").read_text() == "mine"
    assert call("tune", "small.toml", "--write", "tuned.toml").exit_code == 0
    assert load(folder / "tuned.toml").learner("sgd").settings["lr"] == 0.3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("train.lr=nan", "train.lr of small.toml must be a finite number, found nan"),
        ("stream.steps=5", "stream.steps of small.toml must be a list of tables, found 5"),
        ("train.day=2026-01-01", "date in quotes"),
        (f"train.epochs={10**30}", "train.epochs of small.toml must be an integer of at most"),
        ("seeds=0-99999999999", "seeds must be at most 10,000"),
    ],
)
def test_values_no_record_could_hold_are_one_line_before_anything_is_written(
    folder: Path, change: str, said: str
) -> None:
    result = call("run", "small.toml", "--set", change)
    assert result.exit_code == 1
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (folder / "runs").exists()


def test_a_search_that_chose_nothing_fails_and_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"settings": {"lr": 0.3}, "state": "fail", "score": None, "failed": "no space"}
    chosen = {"chosen": {"settings": {"lr": 0.3}, "score": 0.5}, "edges": {}, "trials": []}
    none = {"chosen": None, "edges": {}, "trials": [failed]}
    monkeypatch.setattr("olss.lab.tune.tune", lambda *_: {"sgd": none, "sketch": none})
    result = call("tune", "small.toml", "--write", "tuned.toml")
    assert result.exit_code == 1
    assert "2 of the trials failed; the same command tries them again." in result.output
    assert "Nothing was chosen for sgd, sketch." in result.output
    assert "The choice is in" not in result.output
    assert not (folder / "tuned.toml").exists()

    monkeypatch.setattr("olss.lab.tune.tune", lambda *_: {"sgd": none, "sketch": chosen})
    assert call("tune", "small.toml", "--write", "tuned.toml").exit_code == 1
    assert load(folder / "tuned.toml").learner("sketch").settings["lr"] == 0.3
