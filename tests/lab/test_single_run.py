from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from olss.errors import FormatError, InputError, OlssError
from olss.lab.report.page import _read_memory
from olss.lab.single_run import (
    CountedStream,
    create_stream,
    finished_record,
    run_in_folder,
    run_once,
)
from olss.learn import Record
from olss.streams import permuted
from olss.util.files import add_checksum
from tests.lab.small import small_spec


class Killed(BaseException):
    """Stands for a process that ends here."""


def stop_after(tasks: int) -> Any:
    def on_task(i: int, _: Record) -> None:
        if i + 1 == tasks:
            raise Killed

    return on_task


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run_in_folder(folder, small_spec())
    return folder


def written(folder: Path) -> dict[str, int]:
    """Return when each file was written; the lock is signed by whoever holds it."""
    files = (path for path in folder.iterdir() if path.name != ".lock")
    return {path.name: path.stat().st_mtime_ns for path in files}


def test_a_finished_run_is_kept(whole: Path) -> None:
    before = written(whole)
    record = run_in_folder(whole, small_spec(), stop_after(1))  # would raise if a task were learned
    assert record is not None
    assert add_checksum(record.content()) == json.loads((whole / "record.json").read_text())
    assert written(whole) == before


def test_what_is_in_the_folder(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert names == {".lock", "settings.json", "record.json", "timing.json", "memory.npz"}
    record = Record.load(whole)
    assert record.config["learner"]["label"] == "sketch"
    assert record.protocol == "digits, 3 tasks"


def test_the_memory_s_rows_are_rows_of_their_tasks() -> None:
    """The file names rows by task and place; those places hold what the memory held."""
    from olss.lab.single_run import create_learner
    from olss.learn import run

    spec = small_spec()
    _, memory = run_once(spec)
    assert memory is not None
    learner = create_learner(spec)
    run(create_stream(spec), learner, spec.seed)
    held = learner.buffer.held
    assert held is not None
    stream = create_stream(spec).stream
    tasks = [stream[number] for number in range(3)]
    rows = np.stack([tasks[task].X[row] for task, row in memory])
    assert np.array_equal(rows, held.X.numpy())
    assert len(set(memory[:, 0])) == 3


def test_without_a_memory_there_is_no_memory_file(tmp_path: Path) -> None:
    run_in_folder(tmp_path, small_spec("sgd"))
    assert not (tmp_path / "memory.npz").exists()


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_goes_on_after_its_last_task_with_the_same_bytes(
    tmp_path: Path, whole: Path, tasks: int
) -> None:
    with pytest.raises(Killed):
        run_in_folder(tmp_path, small_spec(), stop_after(tasks))
    assert finished_record(tmp_path, small_spec()) is None
    learned: list[int] = []
    run_in_folder(tmp_path, small_spec(), lambda i, _: learned.append(i))
    assert learned == list(range(tasks, 3))
    for name in ("record.json", "memory.npz", "settings.json"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()
    assert not (tmp_path / "checkpoint").exists()


def test_other_settings_are_never_mixed_in(tmp_path: Path, whole: Path) -> None:
    spec = small_spec()
    other = replace(spec, settings={**spec.settings, "lr": 0.3}, seed=4)
    with pytest.raises(InputError, match=r"seed is 0 there and 4 now; settings.lr is 0.1 there"):
        run_in_folder(whole, other)
    with pytest.raises(Killed):
        run_in_folder(tmp_path, spec, stop_after(1))
    before = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
    with pytest.raises(InputError, match="other settings"):
        run_in_folder(tmp_path, other)
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == before


def test_a_run_that_failed_at_once_stands_in_nobody_s_way(tmp_path: Path) -> None:
    wrong = replace(small_spec(), settings={**small_spec().settings, "net": "fractions:Fraction"})
    with pytest.raises(InputError, match="net must return"):
        run_in_folder(tmp_path, wrong)
    assert (tmp_path / "settings.json").exists()
    assert run_in_folder(tmp_path, small_spec()) is not None


def test_a_damaged_record_is_set_aside_and_made_again(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "record.json").write_text('{"format": "olss-rec')
    notes: list[str] = []
    run_in_folder(folder, small_spec(), note=notes.append)
    assert "was damaged" in notes[0]
    assert (folder / "record.json").read_bytes() == (whole / "record.json").read_bytes()
    assert (folder / "record.json.damaged").exists()


@pytest.mark.parametrize("name", ["net.safetensors", "state.json", "memory.parquet"])
def test_a_damaged_checkpoint_is_not_gone_on_from(tmp_path: Path, whole: Path, name: str) -> None:
    with pytest.raises(Killed):
        run_in_folder(tmp_path, small_spec(), stop_after(2))
    path = tmp_path / "checkpoint" / "after-0002" / "learner" / name
    path.write_bytes(path.read_bytes()[:50])
    notes: list[str] = []
    run_in_folder(tmp_path, small_spec(), note=notes.append)
    assert "Resuming from the task before" in notes[0]
    assert (tmp_path / "record.json").read_bytes() == (whole / "record.json").read_bytes()


def test_where_no_checkpoint_is_whole_the_run_begins_again(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(Killed):
        run_in_folder(tmp_path, small_spec(), stop_after(2))
    for path in tmp_path.glob("checkpoint/after-*/learner/state.json"):
        path.unlink()
    notes: list[str] = []
    run_in_folder(tmp_path, small_spec(), note=notes.append)
    assert "Resuming from the task before" in notes[0]
    assert "starts again" in notes[-1]
    assert (tmp_path / "record.json").read_bytes() == (whole / "record.json").read_bytes()


@pytest.mark.parametrize("name", ["net.safetensors", "state.json", "record.json"])
def test_a_checkpoint_with_a_missing_part_begins_again(
    tmp_path: Path, whole: Path, name: str
) -> None:
    with pytest.raises(Killed):
        run_in_folder(tmp_path, small_spec(), stop_after(2))
    for place in (tmp_path / "checkpoint").rglob(name):
        place.unlink()
    notes: list[str] = []
    run_in_folder(tmp_path, small_spec(), note=notes.append)
    assert "starts again" in notes[-1]
    assert (tmp_path / "record.json").read_bytes() == (whole / "record.json").read_bytes()


@pytest.mark.parametrize("error", [InputError("no such data"), OSError("disk"), OlssError("other")])
def test_no_other_error_throws_a_checkpoint_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with pytest.raises(Killed):
        run_in_folder(tmp_path, small_spec(), stop_after(2))
    before = sorted(path for path in (tmp_path / "checkpoint").rglob("*"))

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("olss.lab.single_run.create_stream", fails)
    with pytest.raises(type(error), match=str(error)):
        run_in_folder(tmp_path, small_spec())
    assert sorted(path for path in (tmp_path / "checkpoint").rglob("*")) == before


@pytest.mark.parametrize("name", ["record.json", "timing.json", "settings.json", "memory.npz"])
def test_no_flipped_bit_of_a_finished_run_changes_a_result(
    tmp_path: Path, whole: Path, name: str
) -> None:
    """Forty places, one bit each: the run is done again, refused, or known without its seconds."""
    rng = np.random.default_rng(0)
    good, right = (whole / name).read_bytes(), Record.load(whole)
    rows = np.load(whole / "memory.npz")["rows"]
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    for place in rng.choice(len(good), 40, replace=False):
        bad = bytearray(good)
        bad[place] ^= 1 << int(rng.integers(8))
        (folder / name).write_bytes(bad)
        try:
            record = finished_record(folder, small_spec())
            held = _read_memory(folder / "memory.npz")
        except (FormatError, InputError):
            continue
        assert record is None or record.content() == right.content()
        assert record is None or name == "timing.json" or record.timing() == right.timing()
        assert held is None or np.array_equal(held, rows)


def test_damaged_seconds_are_set_aside_and_the_rest_is_kept(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    path = folder / "timing.json"
    path.write_text(path.read_text().replace('"peak_memory": ', '"peak_memory": 1'))
    notes: list[str] = []
    record = run_in_folder(folder, small_spec(), stop_after(1), note=notes.append)
    assert record is not None
    assert np.isnan(record.task_seconds["train"]).all()
    assert "timing.json.damaged" in notes[0]


def test_a_checkpoint_of_other_versions_begins_again(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(Killed):
        run_in_folder(tmp_path, small_spec(), stop_after(2))
    path = tmp_path / "checkpoint" / "after-0002" / "record.json"
    content = json.loads(path.read_text())
    content["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(content))
    notes: list[str] = []
    run_in_folder(tmp_path, small_spec(), note=notes.append)
    assert "other versions" in notes[0]
    assert (tmp_path / "record.json").read_bytes() == (whole / "record.json").read_bytes()


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"mine": 1}')
    with pytest.raises(FormatError, match="settings it was made with are missing"):
        run_in_folder(tmp_path, small_spec())
    assert (tmp_path / "record.json").read_text() == '{"mine": 1}'


def test_a_record_of_another_kind_is_refused(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "record.json").write_text('{"mine": 1}')
    with pytest.raises(FormatError, match="not an olss record"):
        run_in_folder(folder, small_spec())
    assert (folder / "record.json").read_text() == '{"mine": 1}'


def test_strangers_in_the_folder_do_no_harm(tmp_path: Path, whole: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoint" / "after-banana").mkdir(parents=True)
    (tmp_path / "record.json.123.part").write_text("half")
    run_in_folder(tmp_path, small_spec())
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "record.json.123.part").exists()
    assert (tmp_path / "record.json").read_bytes() == (whole / "record.json").read_bytes()


@pytest.mark.parametrize("works", range(0, 13, 3))
def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, works: int
) -> None:
    """The disk is full after so many files; with room again the run ends the same."""
    synced = os.fsync
    count = 0

    def fsync(descriptor: int) -> None:
        nonlocal count
        count += 1
        if count > works:
            raise OSError(errno.ENOSPC, "No space left on device")
        synced(descriptor)

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="No space left"):
            run_in_folder(tmp_path, small_spec())
    assert not (tmp_path / "record.json").exists()
    run_in_folder(tmp_path, small_spec())
    for name in ("record.json", "memory.npz"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_two_at_one_folder_do_not_mix(tmp_path: Path, whole: Path) -> None:
    at_it, go_on = threading.Event(), threading.Event()
    results: list[Record | None] = []

    def first_task(i: int, _: Record) -> None:
        at_it.set()
        go_on.wait(30)

    def work() -> None:
        results.append(run_in_folder(tmp_path, small_spec(), first_task))

    first = threading.Thread(target=work)
    first.start()
    assert at_it.wait(30)
    assert run_in_folder(tmp_path, small_spec()) is None  # taken
    second = threading.Thread(
        target=lambda: results.append(
            run_in_folder(tmp_path, small_spec(), stop_after(1), wait=True)
        )
    )
    second.start()
    go_on.set()
    first.join(30)
    second.join(30)
    assert len(results) == 2
    assert all(record is not None for record in results)
    assert (tmp_path / "record.json").read_bytes() == (whole / "record.json").read_bytes()


def test_the_first_tasks_of_a_stream() -> None:
    stream = permuted("digits", tasks=5, train_rows=50)
    first = CountedStream(stream, 2)
    assert len(first) == 2
    assert [task.name for task in first] == ["permutation 1", "permutation 2"]
    assert first.rows == [50, 50]
    assert first.config == {**stream.config, "first_tasks": 2}
    assert CountedStream(stream, 9).config == stream.config
