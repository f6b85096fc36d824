import json
import math
import subprocess
import sys

import numpy as np
import pytest

from olss.errors import FormatError
from olss.streams.record import Record

NAN = math.nan


def make() -> Record:
    return Record(
        accuracy=[[0.9, NAN], [0.1 + 0.2, 0.8]],
        ahead=[0.1, 0.2],
        initial=[NAN, 0.15],
        memory_rows=[[10, 0], [4, 6]],
        stored_examples=[10, 10],
        stored_bytes=[640, 640],
        steps=[5, 5],
        tasks=["a", "b"],
        seed=3,
        config={"learner": {"name": "olss"}, "stream": {"kind": "made"}},
        versions={"olss": "0"},
        protocol="seen",
        task_seconds={"select": [0.5, 0.25], "train": [1.0, 1.0], "evaluate": [0.1, 0.2]},
        peak_memory=123,
    )


def test_a_saved_record_comes_back_whole(tmp_path):
    record = make()
    record.save(tmp_path / "run")
    back = Record.load(tmp_path / "run")
    assert back.content() == record.content()
    assert back.timing() == record.timing()
    np.testing.assert_array_equal(back.accuracy, record.accuracy)
    assert back.seconds == {"select": 0.75, "train": 2.0, "evaluate": pytest.approx(0.3)}


def test_the_same_content_is_the_same_bytes_and_has_no_seconds(tmp_path):
    first, second = make(), make()
    second.task_seconds["train"] = np.array([7.0, 9.0])
    second.peak_memory = 9
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    assert (tmp_path / "a/record.json").read_bytes() == (tmp_path / "b/record.json").read_bytes()
    assert (tmp_path / "a/timing.json").read_bytes() != (tmp_path / "b/timing.json").read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "record.json",
        "timing.json",
    ]


def test_a_record_from_before_disturbed_rows_were_counted_is_read(tmp_path):
    content = make().content()
    del content["disturbed_rows"]
    assert Record.from_json(content, {}).disturbed_rows.tolist() == [0, 0]


def test_nan_is_stored_as_null(tmp_path):
    make().save(tmp_path)
    content = json.loads((tmp_path / "record.json").read_text())
    assert content["accuracy"][0] == [0.9, None]
    assert content["initial"] == [None, 0.15]


def test_averages_are_over_the_tasks_seen():
    np.testing.assert_allclose(make().average_accuracy, [0.9, (0.3 + 0.8) / 2])


def test_a_record_without_timing_has_seconds_nan(tmp_path):
    make().save(tmp_path)
    (tmp_path / "timing.json").unlink()
    assert np.isnan(Record.load(tmp_path).task_seconds["train"]).all()


def test_a_record_of_no_task_can_be_saved(tmp_path):
    Record(accuracy=np.empty((0, 0))).save(tmp_path)
    assert Record.load(tmp_path).accuracy.shape == (0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text.replace('"version": 2', '"version": 99'), "version 99"),
        (lambda text: text.replace("olss-record", "other"), "not an olss record"),
        (lambda text: text.replace('"steps"', '"stops"'), "damaged"),
        (lambda text: "[]", "not an olss record"),
    ],
)
def test_a_damaged_or_foreign_record_is_refused(tmp_path, change, message):
    make().save(tmp_path)
    path = tmp_path / "record.json"
    path.write_text(change(path.read_text()))
    with pytest.raises(FormatError, match=message):
        Record.load(tmp_path)


def test_a_folder_without_a_record_is_refused(tmp_path):
    with pytest.raises(FormatError, match=r"record\.json"):
        Record.load(tmp_path)


def test_reading_records_loads_no_torch():
    code = "import sys; from olss.learn import Record; print('torch' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"
