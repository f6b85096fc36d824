import hashlib
import json
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from olss.errors import InputError
from olss.streams import (
    Dataset,
    Stream,
    Task,
    from_arrays,
    from_config,
    incremental,
    load_dataset,
    permuted,
    rotated,
)
from olss.streams.stream import hash_arrays, sample_rows, sample_stratified, task_generator

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
    with pytest.raises(IndexError, match="3 is out of range"):
        stream[3]
    with pytest.raises(InputError, match="index must be one task"):
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
    with pytest.raises(InputError, match="validation"):
        stream.validation().validation()


@pytest.mark.parametrize("share", [0, 1, -1, "a"])
def test_bad_validation_share_is_named(share: object) -> None:
    with pytest.raises(InputError, match=f"share must be .* at most 0.9, found {share!r}"):
        stream.validation(share)  # type: ignore[arg-type]


def test_scale_brings_images_into_0_to_1() -> None:
    assert stream.scale == stream[0].scale == 16
    assert (stream[0].X / stream.scale).max() == 1


def test_repr_says_what_it_is() -> None:
    assert "1438 training and 359 test rows of shape (8, 8), 10 classes" in repr(
        permuted("digits", tasks=1)[0]
    )
    X = load_dataset("digits").X.reshape(-1, 64)
    assert "numeric target" in repr(from_arrays([(X, X[:, 20] / 16)])[0])


def test_a_task_cannot_be_rebound() -> None:
    task = permuted("digits", tasks=1)[0]
    with pytest.raises(FrozenInstanceError):
        task.name = "other"  # type: ignore[misc]


def test_generators_differ_by_seed_purpose_and_task_and_repeat() -> None:
    keys = [(s, p, t) for s in (0, 1) for p in ("angle", "train rows") for t in (0, 1)]
    first = [task_generator(*key).random() for key in keys]
    assert len(set(first)) == len(keys)
    assert first == [task_generator(*key).random() for key in keys]


def test_draw_takes_distinct_rows_in_random_order() -> None:
    rows = sample_rows(np.arange(100, 200), 50, np.random.default_rng(0))
    assert len(np.unique(rows)) == 50
    assert rows.min() >= 100
    assert not (np.sort(rows) == rows).all()


@pytest.mark.parametrize("size", [0, 1, 6, 19, 20])
def test_stratified_gives_each_class_its_share_up_to_one(size: int) -> None:
    y = np.repeat([5, 2, 9], [7, 3, 10])
    rows = sample_stratified(y, np.arange(20), size, np.random.default_rng(size))
    assert len(np.unique(rows)) == size
    for label, count in ((5, 7), (2, 3), (9, 10)):
        # Systematic sampling: a run of c of n rows gets floor or ceil of c * size / n.
        assert abs((y[rows] == label).sum() - count * size / 20) < 1


def test_stratified_gives_every_row_the_same_chance() -> None:
    y, size, repeats = np.repeat([0, 1], [7, 13]), 6, 4000
    rng = np.random.default_rng()
    counts = np.zeros(20)
    for _ in range(repeats):
        counts[sample_stratified(y, np.arange(20), size, rng)] += 1
    # Standard error 0.0072; 5.5 of them for each of 20 rows fail once in a million runs.
    assert np.abs(counts / repeats - size / 20).max() < 5.5 * np.sqrt(0.3 * 0.7 / repeats)


def test_hash_follows_values_kind_and_shape() -> None:
    X = np.arange(6)
    same = hash_arrays(X, None)
    assert same == hash_arrays(np.arange(12)[::2] // 2, None)
    others = [X + 1, X.astype(np.int32), X.reshape(2, 3), X[:0], np.array(["a"] * 6)]
    assert len({same, hash_arrays(X), *(hash_arrays(other, None) for other in others)}) == 7


def test_tasks_go_across_and_examples_down(tmp_path: Path) -> None:
    stream = permuted("digits", tasks=7)
    figure = stream.preview(tmp_path / "stream.png", tasks=3, examples=4)
    with Image.open(tmp_path / "stream.png") as picture:
        assert picture.size[0] > 300
        assert np.asarray(picture.convert("L")).std() > 10
    assert len(figure.axes) == 12
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["1\npermutation 1", "4\npermutation 4", "7\npermutation 7"]
    drawn = np.asarray(figure.axes[3].images[0].get_array())  # second row, first task
    np.testing.assert_allclose(drawn, stream[0].X[1] / 16)


@pytest.mark.parametrize("shape", [(3, 5, 5), (1, 5, 5), (5, 5), (7,)])
def test_colours_single_channels_and_tables_can_be_drawn(shape: tuple[int, ...]) -> None:
    X = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    y = np.arange(12) % 4
    data = Dataset("noise", X, y, X, y, 255.0, ("a", "b", "c", "d"))
    figure = incremental(data, tasks=2).preview(examples=8)
    assert len(figure.axes) == 16
    figure.canvas.draw()
    labels = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert labels == {"a", "b", "c", "d"}


def test_real_targets_are_written_below() -> None:
    X = np.arange(40.0).reshape(10, 4)
    figure = from_arrays([(X, X[:, 0] / 3)]).preview(examples=2)
    assert all(axes.lines for axes in figure.axes)
    assert "." in figure.axes[1].texts[0].get_text()
