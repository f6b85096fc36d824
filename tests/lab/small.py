"""A small experiment for the tests of the laboratory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from olss.lab.experiment import Experiment, RunSpec, parse

TEXT = """\
protocol = "digits, {tasks} tasks"
seeds = [0]
net = "mlp-16"

[stream]
name = "permuted"
dataset = "digits"
tasks = {tasks}
train_rows = 200
test_rows = 100

[train]
epochs = 1
batch = 20
lr = 0.1

[[learner]]
name = "sgd"

[[learner]]
name = "sketch"
recipe = "olss+ewc"
policy = "reservoir"
"""


def write_experiment(folder: Path, tasks: int = 3, name: str = "small") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(TEXT.format(tasks=tasks), encoding="utf-8")
    return path


def small_content(tasks: int = 3) -> dict[str, Any]:
    import tomllib

    return {"name": "small", **tomllib.loads(TEXT.format(tasks=tasks))}


def small_experiment(tasks: int = 3, **changes: Any) -> Experiment:
    return parse({**small_content(tasks), **changes})


def small_spec(learner: str = "sketch", tasks: int = 3, seed: int = 0) -> RunSpec:
    experiment = small_experiment(tasks)
    return experiment.run_spec(experiment.learner(learner), seed)


def raise_error(pool: Any, rng: Any) -> None:
    """A policy that fails."""
    raise ValueError("not written yet")
