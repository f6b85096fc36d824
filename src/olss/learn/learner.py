"""A learner: a net, and the parts that keep it from forgetting."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from olss.errors import DataError, DivergedError, InputError
from olss.learn.buffers import Buffer, ReplayStrategy, TrainingSet
from olss.learn.checkpoint import read_state, save_learner, write_state
from olss.learn.heads import Head
from olss.learn.losses import Loss
from olss.learn.model import (
    Labels,
    Model,
    check_rows,
    check_task,
    labels_of,
    score_answers,
    strip_prefix,
)
from olss.learn.regularizers import Projection, Regularizer
from olss.learn.training import Augmentation, Batch, Training, step_length
from olss.util import checks

__all__ = ["Learner", "Parts", "TaskCost"]


@dataclass(frozen=True)
class Parts:
    """What a learner is composed of, each part one decision."""

    training: Training  # the net, its optimizer, steps and epochs
    loss: Loss  # what is learned from labels
    head: Head  # how it predicts
    augmentation: Augmentation  # how the images of a step are changed
    buffer: Buffer  # which rows are kept
    replay: ReplayStrategy  # which rows a task is trained on
    regularizers: Sequence[Regularizer] = ()  # what is added to the loss
    projection: Projection = field(default_factory=Projection)  # how the gradient is changed
    restart: bool = False  # whether each task begins with the initial weights


class TaskCost:
    """What a task costs: steps, rows passed through the net, and the time of each phase."""

    def __init__(self) -> None:
        self.steps = self.row_passes = 0
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}
        self._last = time.perf_counter(), time.process_time()

    def end_phase(self, phase: str) -> None:
        """Add the time since the last phase ended to this one."""
        now, spent = (time.perf_counter(), time.process_time()), (self.seconds, self.cpu_seconds)
        for seconds, before, after in zip(spent, self._last, now, strict=True):
            seconds[phase] = seconds.get(phase, 0.0) + after - before
        self._last = now


class Learner:
    """A net that learns task after task; made by `recipe`.

    Attributes
    ----------
    name : str
    config : dict
        All of its settings.
    parts : Parts
    buffer : Buffer
        ``buffer.held`` are the rows kept.
    model : Model
        The net, and what it takes to train and query it; once started.

    Examples
    --------
    >>> from olss.learn import recipe
    >>> from olss.streams import permuted
    >>> learner = recipe("olss", net="mlp-32", lr=0.3, batch=20, policy="reservoir")
    >>> stream = permuted("digits", tasks=2)
    >>> for task in stream:
    ...     cost = learner.fit_task(task)
    >>> learner.predict(stream[0].X_test[:5]).shape
    (5,)
    """

    model: Model

    def __init__(self, name: str, parts: Parts, config: dict[str, Any] | None = None) -> None:
        self.name, self.parts, self.config = name, parts, config or {}
        self.buffer = parts.buffer
        self._started = False

    def __repr__(self) -> str:
        done = f"{self.model.tasks} tasks learned" if self._started else "not started"
        return f"Learner({self.name!r}, {done})"

    def start(self, classes: Any = None, seed: int = 0, device: str = "cpu") -> Learner:
        """Begin from scratch: forget everything learned.

        Parameters
        ----------
        classes : array-like, optional
            All labels that will ever occur. Without them, those of the first task.
        seed : int
            Of the net's initial weights, the order of rows and the buffer.
        device : str
            Where the net lives.
        """
        parts = self.parts
        kind, compete = parts.loss.kind, parts.head.compete
        self.model = Model(parts.training, kind, compete, classes, seed, device)
        self.buffer.start(self.model.seeds, self.model.device)
        for regularizer in parts.regularizers:
            regularizer.start()
        parts.head.start()
        self._rows_seen = 0
        self._head_is_fitted = False
        self._started = True
        return self

    # ------------------------------------------------------------------ learning

    def fit_task(self, task: Any) -> TaskCost:
        """Learn a task: anything with `X`, `y` and, optionally, `classes` and `scale`.

        A failed call leaves the learner as it was before.
        """
        check_task(task, ("X", "y"))
        if not self._started:
            self.start()
        parts, model, buffer = self.parts, self.model, self.buffer
        cost = TaskCost()
        with self._undo_on_error():
            X, y, present = model.check_task(task, task.X, task.y, "")
            index = torch.arange(self._rows_seen, self._rows_seen + len(y), device=model.device)
            current = Batch(X, y, torch.full_like(index, model.tasks), index)
            model.mask.begin_task(present)
            parts.augmentation.check(tuple(X.shape[1:]))
            buffer.check(int(model.mask.seen.sum()))
            # Layers with randomness of their own, such as dropout, draw from torch's generator.
            torch.manual_seed(model.seeds.number("net", model.tasks))
            rng = model.seeds.rng("order", model.tasks)
            self._augment_rng = model.seeds.rng("augment", model.tasks)

            # Which rows to train on.
            parts.head.begin_task(model)
            if parts.restart:
                model.params.load(model.first)
            model.average.begin_task(parts.restart)
            if parts.replay.updates_buffer_first:
                buffer.update(current, model.tasks, model.features)
            batch = parts.training.batch
            training = parts.replay.training_set(current, buffer.held, buffer.size, batch, rng)
            cost.end_phase("select")

            # Train.
            training = parts.loss.begin_task(model, training)
            for regularizer in parts.regularizers:
                regularizer.begin_task(model)
            parts.projection.begin_task(model, buffer.held)
            self._train(training, parts.training.epochs, rng, cost)
            cost.end_phase("train")

            # What stays of the task.
            if not parts.replay.updates_buffer_first:
                buffer.update(current, model.tasks, model.features)
            cost.end_phase("select")
            if parts.training.finish_epochs and buffer.held is not None:
                finish = parts.loss.begin_task(model, TrainingSet(buffer.held, batch))
                rate = parts.training.finish_rate
                self._train(finish, parts.training.finish_epochs, rng, cost, rate)
            for regularizer in parts.regularizers:
                regularizer.end_task(model, training.rows, buffer)
            model.average.end_task()
            parts.head.end_task(model, current, buffer.held)
            parts.head.fit(model, buffer.held)
            cost.end_phase("train")
            model.tasks += 1
            self._rows_seen += len(y)
            self._head_is_fitted = True
        return cost

    def _train(
        self,
        training: TrainingSet,
        epochs: int,
        rng: np.random.Generator,
        cost: TaskCost,
        rate: float = 1.0,
    ) -> None:
        """Run the training loop over a training set, at `rate` times the learning rate."""
        parts, model, params = self.parts, self.model, self.model.params
        steps = epochs * training.steps
        optimizer, scheduler = parts.training.make_optimizer(params.theta, steps, rate)
        model.net.train()
        for batch, replayed in training.batches(epochs, rng):
            batch = dataclasses.replace(batch, X=parts.augmentation(batch.X, self._augment_rng))
            params.gradient.zero_()
            outputs = model.forward(model.inputs(batch.X))
            loss = parts.loss(model, outputs, batch, replayed)
            if not isinstance(loss, Tensor) or loss.dim():
                found = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
                raise InputError(
                    f"loss must return a tensor with one number, such as the mean over the rows of "
                    f"a step, found {found}."
                )
            weight = parts.loss.weight(replayed)
            for regularizer in parts.regularizers:
                term = regularizer.loss(model, outputs, batch, replayed)
                if term is not None:  # loss and terms are averaged by their weights
                    share = regularizer.weight / (weight + regularizer.weight)
                    loss, weight = (1 - share) * loss + share * term, weight + regularizer.weight
            torch.autograd.backward(loss)
            cost.steps += 1
            cost.row_passes += len(batch)
            if not math.isfinite(loss.item()):
                raise self._diverged(cost.steps, loss.item())
            parts.projection(model)
            self._step(optimizer)
            model.average.after_step()
            if scheduler is not None:
                scheduler.step()
        model.net.eval()
        if not params.theta.isfinite().all():
            raise self._diverged(cost.steps, math.nan)

    def _step(self, optimizer: torch.optim.Optimizer) -> None:
        """Take a step along the loss's gradient, and along those of the regularizers."""
        params, regularizers = self.model.params, self.parts.regularizers
        length = step_length(optimizer)
        if length is not None:
            optimizer.step()
            for regularizer in regularizers:
                regularizer.after_step(params, length)
            return
        own = params.gradient.clone()
        terms = [regularizer.gradient(params) for regularizer in regularizers]
        for term in terms:
            if term is not None:
                params.gradient.add_(term)
        optimizer.step()
        params.gradient.copy_(own)  # regularizers learn from the loss's gradient alone
        for regularizer, term in zip(regularizers, terms, strict=True):
            lr = optimizer.param_groups[0]["lr"]
            regularizer.after_step(params, lr if term is None else 0.0)

    def _diverged(self, step: int, loss: float) -> DivergedError:
        return DivergedError(
            f"the loss became {loss} in task {self.model.tasks + 1} at step {step}. Choose a "
            f"smaller learning rate than lr={self.parts.training.lr:g}. The learner is as it was "
            "before this task."
        )

    @contextmanager
    def _undo_on_error(self) -> Iterator[None]:
        """Restore net, mask, buffer, regularizers and head if the task fails."""
        model, regularizers = self.model, self.parts.regularizers
        before, was_built = {**vars(model), "labels": copy(model.labels)}, model.shape is not None
        buffer, kept = self.buffer.snapshot(), [r.state for r in regularizers]
        rows_seen, head = self._rows_seen, self.parts.head.state
        learned = model.state() if was_built else {}
        try:
            with torch.random.fork_rng():
                yield
        except BaseException:
            vars(model).clear()
            vars(model).update(before)  # the first task builds the net
            if was_built:
                model.load(learned)
                model.net.eval()
            self.buffer.restore(buffer)
            for regularizer, state in zip(regularizers, kept, strict=True):
                regularizer.state = state
            self.parts.head.state = head
            self._rows_seen, self._head_is_fitted = rows_seen, False
            raise

    # ------------------------------------------------------------------ predicting

    def predict(self, X: Any, task: int | None = None) -> NDArray[Any]:
        """Predict the targets of rows, on the scale of those trained on.

        Parameters
        ----------
        X : array (n, ...)
        task : int, optional
            The task of the rows, counted from 0: what head="task" needs.

        Returns
        -------
        array (n,)
            Labels; in regression numbers, (n,) or (n, targets).
        """
        answers = self._answers(X, task)
        if self.model.regression:
            values: NDArray[Any] = answers.cpu().numpy()
            return values[:, 0] if self.model.flat_targets else values
        return self.model.labels.decode(answers.argmax(1).cpu().numpy())

    def score(self, X: Any, y: Any, task: int | None = None) -> float:
        """Return the accuracy on rows; R squared in regression.

        Parameters
        ----------
        X, y : array (n, ...), (n,)
        task : int, optional
            As in `predict`.
        """
        answers = self._answers(X, task)
        targets = self.model.tensor(self.model.targets(y))
        if answers.shape[: targets.dim()] != targets.shape:
            raise DataError(
                f"y must have a label (or all targets) for each of the {len(answers)} rows of X, "
                f"found shape {np.shape(y)}."
            )
        return score_answers(answers, targets, self.model.regression)

    def score_ahead(self, task: Any) -> tuple[float, float]:
        """Score the test rows of a task not yet learned, its classes competing.

        Returns
        -------
        The score now, and that of the net's initial weights.
        """
        model = self.model
        if model.labels.classes is None and getattr(task, "classes", None) is None:
            model.labels = Labels(None if model.regression else labels_of([task]))
        X, y, present = model.check_task(task, task.X_test, task.y_test, "_test")
        learned = model.state()
        try:
            model.mask.begin_task(present)
            ahead = self.score(task.X_test, task.y_test, model.tasks)
            model.params.load(model.first)
            answers = model.mask.apply(model.outputs(X), model.tasks)
            return ahead, score_answers(answers, y, model.regression)
        finally:
            model.load(learned)

    def _answers(self, X: Any, task: int | None) -> Tensor:
        """Return a score for each output that competes, (n, outputs)."""
        if not self._started or self.model.shape is None:
            raise InputError("The learner has learned nothing yet: call fit_task first.")
        if not self._head_is_fitted:
            self.parts.head.fit(self.model, self.buffer.held)
            self._head_is_fitted = True
        rows = check_rows(X, self.model.device)
        if tuple(rows.shape[1:]) != self.model.shape:
            raise DataError(
                f"X must hold rows of shape {self.model.shape}, as in training, found "
                f"{tuple(rows.shape[1:])}."
            )
        if self.parts.head.compete == "task" and task is not None:
            last = len(self.model.mask.table) - 1
            task = checks.integer("task", task, minimum=0, maximum=last)
        return self.parts.head(self.model, rows, task)

    # ------------------------------------------------------------------ what a run asks

    @property
    def tasks(self) -> int:
        """Tasks learned."""
        return self.model.tasks

    @property
    def threads(self) -> int | None:
        """Threads of the arithmetic; None leaves them as they are."""
        return self.parts.training.threads

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted, not classes."""
        return self.parts.loss.regression

    @property
    def protocol(self) -> str:
        """Which classes compete, in words."""
        return "" if self.regression else self.parts.head.protocol

    @property
    def stored_bytes(self) -> int:
        """Bytes kept for later tasks beside the net: buffer, averaged weights, states of parts."""
        states = [self.model.average.state, self.parts.head.state]
        states += [regularizer.state for regularizer in self.parts.regularizers]
        kept = sum(value.nbytes for state in states for value in state.values())
        return kept + (0 if self.buffer.held is None else self.buffer.held.nbytes)

    # ------------------------------------------------------------------ on disk

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue later into a directory, atomically.

        It replaces what a learner saved there before; a directory with other files is refused.
        """
        if not self._started or self.model.shape is None:
            raise InputError("The learner has learned nothing yet: there is nothing to save.")
        save_learner(path, self._write)

    def _write(self, folder: Path) -> None:
        model = self.model
        tensors = model.state()
        for i, regularizer in enumerate(self.parts.regularizers):
            tensors |= {f"regularizer.{i}.{name}": v for name, v in regularizer.state.items()}
        tensors |= {f"head.{name}": value for name, value in self.parts.head.state.items()}
        classes = model.labels.classes
        state = {
            "config": self.config,
            "seed": model.seeds.seed,
            "tasks": model.tasks,
            "seen": self._rows_seen,
            "shape": list(model.shape or ()),
            "outputs": model.out,
            "scale": model.scale,
            "flat_targets": model.flat_targets,
            "classes": None if classes is None else classes.tolist(),
        }
        write_state(folder, state, tensors)
        self.buffer.save(folder)

    def load(self, path: str | os.PathLike[str], device: str = "cpu") -> Learner:
        """Continue from what a learner of the same recipe saved.

        Raises
        ------
        DamagedCheckpointError
            If a file is missing or has changed since it was written.
        """
        folder = Path(path)
        state, tensors = read_state(folder, self.config, device)
        self.start(state["classes"], state["seed"], device)
        model = self.model
        model.labels = Labels(state["classes"])
        model.tasks, self._rows_seen = state["tasks"], state["seen"]
        model.flat_targets = state["flat_targets"]
        model.build(tuple(state["shape"]), state["outputs"], state["scale"])
        model.load(tensors)
        for i, regularizer in enumerate(self.parts.regularizers):
            regularizer.state = strip_prefix(f"regularizer.{i}.", tensors)
        self.parts.head.state = strip_prefix("head.", tensors)
        self.buffer.load(folder)
        # Now, since the first prediction may be for a task ahead, with other classes competing.
        self.parts.head.fit(model, self.buffer.held)
        self._head_is_fitted = True
        return self
