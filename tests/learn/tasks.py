"""Small tasks for the tests: blobs with the columns in another order for each task."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from olss.learn import recipe
from olss.learn.learner import TaskCost
from olss.learn.training import Batch


@dataclass
class Tiny:
    X: Any
    y: Any
    X_test: Any = None
    y_test: Any = None
    classes: Any = None
    name: str = "tiny"
    scale: float = 1.0


def blobs(seed=0, rows=120, classes=3, width=8, task=0, offset=0, test=60):
    """Gaussian classes, the same for all tasks, with the columns permuted by task."""
    centres = 2.0 * np.random.default_rng(99).standard_normal((classes, width))
    order = np.random.default_rng(task).permutation(width)
    rng = np.random.default_rng([seed, task])
    y = rng.integers(classes, size=rows + test)
    X = (centres[y] + rng.standard_normal((rows + test, width)))[:, order].astype(np.float32)
    y = y + offset
    return Tiny(
        X[:rows], y[:rows], X[rows:], y[rows:], tuple(range(offset, offset + classes)), f"t{task}"
    )


def stream(tasks=3, **options):
    return [blobs(task=task, **options) for task in range(tasks)]


def class_stream(tasks=3, classes=2, rows=80):
    """Each task brings classes of its own."""
    whole = blobs(rows=rows * tasks, classes=classes * tasks, test=60 * tasks)
    made = []
    for i in range(tasks):
        own = tuple(range(classes * i, classes * (i + 1)))
        train, test = np.isin(whole.y, own), np.isin(whole.y_test, own)
        parts = whole.X[train], whole.y[train], whole.X_test[test], whole.y_test[test]
        made.append(Tiny(*parts, own, f"c{i}"))
    return made


def numbers(task=0, rows=100, width=5, seed=0):
    """A regression task."""
    rng = np.random.default_rng([seed, task])
    X = rng.standard_normal((rows + 50, width)).astype(np.float32)
    y = X @ np.linspace(-1, 1, width) + 0.01 * rng.standard_normal(rows + 50)
    return Tiny(X[:rows], y[:rows], X[rows:], y[rows:], None, f"n{task}")


def learned(head="seen", tasks=3, **settings):
    """Return a learner that replays, and the stream of classes it learned."""
    settings = {"net": "mlp-16", "batch": 20, "lr": 0.05, "epochs": 5, "size": 60} | settings
    learner = recipe("er", head=head, **settings)
    stream = class_stream(tasks)
    learner.start(range(2 * tasks))
    for task in stream:
        learner.fit_task(task)
    return learner, stream


def examples(learner, task):
    """Return a task's training rows as a learner takes them, and the classes it holds."""
    model = learner.model
    X, y, present = model.check_task(task, task.X, task.y, "")
    return Batch(X, y, torch.full((len(y),), model.tasks), torch.arange(len(y))), present


def step_loss(learner, batch, replayed=0):
    """Return the loss the training loop computes for a batch, without taking the step."""

    class Captured(BaseException):
        pass

    def capture(loss):
        raise Captured(loss)

    learner._augment_rng = np.random.default_rng(0)
    training = SimpleNamespace(steps=1, batches=lambda epochs, rng: [(batch, replayed)])
    try:
        with patch("torch.autograd.backward", capture):
            learner._train(training, 1, None, TaskCost())
    except Captured as found:
        learner.model.net.eval()
        return found.args[0]
    raise AssertionError("the training loop computed no loss")
