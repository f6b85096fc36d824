import json
import tomllib

import numpy as np
import pytest

from olss.errors import InputError
from olss.streams import from_arrays, from_config
from tests.streams.test_stream import CONFIGS


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["name"])
def test_config_brings_the_same_stream_back(config: dict[str, object]) -> None:
    stream = from_config(config)
    again = from_config(json.loads(json.dumps(stream.config)))
    assert again.config == stream.config
    assert (again.names, again.classes, again.scale) == (stream.names, stream.classes, stream.scale)
    for one, other in zip(stream, again, strict=True):
        np.testing.assert_array_equal(one.X, other.X)
        np.testing.assert_array_equal(one.y, other.y)


def test_a_toml_table_makes_a_stream() -> None:
    text = """
    [stream]
    name = "rotated"
    dataset = "digits"
    tasks = 3
    angles = [0, 10, 20]
    [[stream.steps]]
    name = "label_noise"
    share = 0.1
    """
    stream = from_config(tomllib.loads(text)["stream"])
    assert stream.names == ("0 degrees", "10 degrees", "20 degrees")
    assert stream[0].disturbed is not None


def test_held_out_rows_of_a_config_are_those_of_the_method() -> None:
    config = {"name": "permuted", "dataset": "digits", "tasks": 2}
    steps = [{"name": "label_noise", "share": 0.5}]
    one = from_config({**config, "steps": steps}).validation(0.2, seed=3)
    two = from_config({**config, "steps": steps, "validation": {"share": 0.2, "seed": 3}})
    assert one.config == two.config
    np.testing.assert_array_equal(one[1].y, two[1].y)
    np.testing.assert_array_equal(one[1].X_test, two[1].X_test)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"name": "rotatd"}, "name 'rotatd' .*'rotated'"),
        ({}, "name None"),
        (
            {"name": "rotated", "task": 3},
            "the stream rotated has no option 'task'. Did you mean 't",
        ),
        (
            {"name": "permuted", "dataset": "digits", "steps": [{"name": "noise"}]},
            "name 'noise' .*label_noise",
        ),
        (
            {"name": "permuted", "dataset": "digits", "steps": [{"name": "outliers", "shar": 1}]},
            "the step outliers has no option 'shar'. Did you mean 'share'",
        ),
        (
            {"name": "permuted", "dataset": "digits", "validation": {"shares": 0.1}},
            "validation has no option 'shares'. Did you mean 'share'",
        ),
        (
            {"name": "permuted", "dataset": {"name": "mine", "sha256": ""}},
            "arrays in memory",
        ),
    ],
)
def test_unknown_names_offer_the_nearest(config: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_config(config)


def test_arrays_cannot_be_brought_back() -> None:
    stream = from_arrays([(np.zeros((4, 2)), np.arange(4))])
    with pytest.raises(InputError, match="arrays"):
        from_config(stream.config)


@pytest.mark.parametrize("step", ["label_noise", "outliers", "imbalanced", "unequal"])
def test_a_disturbance_has_the_seed_of_its_stream_unless_it_has_its_own(step):
    def seed_of(stream_seed, **own):
        stream = {"name": "permuted", "dataset": "digits", "tasks": 2, "seed": stream_seed}
        return from_config({**stream, "steps": [{"name": step, **own}]}).config["steps"][0]["seed"]

    assert (seed_of(7), seed_of(8), seed_of(8, seed=0)) == (7, 8, 0)
