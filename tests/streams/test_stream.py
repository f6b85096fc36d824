import hashlib
import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from olss.errors import InputError
from olss.streams import Stream, Task, from_config, incremental, permuted, rotated

# One of each kind, with disturbances, small enough to make in a moment.
CONFIGS = [
    {"name": "rotated", "dataset": "digits", "tasks": 4, "angles": "bins", "train_rows": 50},
    {"name": "rotated", "dataset": "digits", "tasks": 2, "validation": {"share": 0.2}},
    {"name": "permuted", "dataset": "digits", "tasks": 3, "test_rows": 40, "seed": 7},
    {
        "name": "incremental",
        "dataset": "digits",
        "tasks": 5,
        "steps": [
            {"name": "label_noise", "share": 0.2},
            {"name": "outliers", "share": 0.05, "seed": 4},
            {"name": "imbalanced", "ratio": 5},
            {"name": "unequal", "ratio": 3},
            {"name": "returning", "task": 1},
            {"name": "interleaved", "share": 0.5},
        ],
    },
]
HASH_ALL = """
import hashlib, json, sys
from olss.streams import from_config
state = hashlib.sha256()
for config in json.loads(sys.argv[1]):
    for task in reversed([*from_config(config)]):
        for part in (task.X, task.y, task.X_test, task.y_test):
            state.update(part.tobytes())
print(state.hexdigest())
"""


def parts(task: Task) -> list[np.ndarray]:
    return [task.X, task.y, task.X_test, task.y_test]


def hash_all() -> str:
    state = hashlib.sha256()
    for config in CONFIGS:
        stream = from_config(config)
        for number in reversed(range(len(stream))):
            for part in parts(stream[number]):
                state.update(part.tobytes())
    return state.hexdigest()


@pytest.mark.parametrize("threads", ["1", "2"])
def test_same_seed_same_bytes_in_another_process_with_any_threads(threads: str) -> None:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "PYTHONHASHSEED": threads,
    }
    done = subprocess.run(
        [sys.executable, "-c", HASH_ALL, json.dumps(CONFIGS)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == hash_all()


@pytest.mark.parametrize("config", [CONFIGS[0], *CONFIGS[2:]], ids=lambda config: config["name"])
def test_another_seed_gives_other_training_rows(config: dict[str, object]) -> None:
    one, other = (from_config({**config, "seed": seed})[0] for seed in (0, 1))
    assert one.X.shape != other.X.shape or (one.X != other.X).any()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["name"])
def test_a_stream_survives_pickle(config: dict[str, object]) -> None:
    stream = from_config(config)
    again = pickle.loads(pickle.dumps(stream))
    assert again.config == stream.config
    for one, other in zip(parts(stream[1]), parts(again[1]), strict=True):
        np.testing.assert_array_equal(one, other)


def counted(made: list[int]) -> Stream:
    def make(number: int) -> Task:
        made.append(number)
        empty = np.zeros((0, 2))
        return Task(str(number), empty, empty, empty, empty, None)

    return Stream(make, "abc", {"name": "counted", "seed": 5}, None, lambda share, seed: stream)


stream = permuted("digits", tasks=3)


def test_tasks_are_made_one_at_a_time_when_asked_for() -> None:
    made: list[int] = []
    lazy = counted(made)
    assert len(lazy) == 3
    assert made == []
    tasks = iter(lazy)
    next(tasks)
    assert made == [0]
    assert [task.name for task in lazy] == ["0", "1", "2"]
    assert lazy[-1].name == "2"
    assert lazy.seed == 5


def test_numbers_out_of_range_and_slices_are_refused() -> None:
    with pytest.raises(IndexError, match="task 3 of a stream of 3 tasks"):
        stream[3]
    with pytest.raises(InputError, match="one task at a time"):
        stream[1:]  # type: ignore[index]


def test_config_is_plain_json_and_a_copy() -> None:
    config = incremental("digits", order=np.arange(10), tasks=2).config
    assert json.loads(json.dumps(config)) == config
    again = incremental("digits", order=np.arange(10), tasks=2)
    again.config["seed"] = 9
    assert again.config["seed"] == 0


def test_repr_says_what_the_stream_is() -> None:
    text = repr(from_config(CONFIGS[3]))
    assert text.startswith("Stream(incremental, dataset='digits', tasks=5, order='seeded', seed=0)")
    assert " + label_noise(share=0.2, seed=0) + outliers(" in text
    assert ".validation(share=0.2, seed=0)" in repr(from_config(CONFIGS[1]))
    assert len(repr(rotated("digits", tasks=100, angles=list(range(100))))) < 250


def test_describe_has_a_line_for_each_task() -> None:
    lines = stream.describe().splitlines()
    assert lines[1] == "inputs of shape (8, 8), uint8, divided by 16; 10 classes"
    assert lines[-1].split() == ["3", "1438", "359", "10", "permutation", "3"]


def test_validation_of_validation_is_refused() -> None:
    with pytest.raises(InputError, match="validation was asked for twice"):
        stream.validation().validation()


@pytest.mark.parametrize("share", [0, 1, -1, "a"])
def test_bad_validation_share_is_named(share: object) -> None:
    with pytest.raises(InputError, match=f"share must be .* at most 0.9, found {share!r}"):
        stream.validation(share)  # type: ignore[arg-type]


def test_scale_brings_images_into_0_to_1() -> None:
    assert stream.scale == stream[0].scale == 16
    assert (stream[0].X / stream.scale).max() == 1
