"""A learner: a net, and the parts that keep it from forgetting."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from olss.errors import DataError, DivergedError, InputError
from olss.learn.buffers import Buffer
from olss.learn.checkpoint import check_replaceable, read_state, save_whole, write_state
from olss.learn.heads import Head
from olss.learn.labels import Labels
from olss.learn.losses import Loss
from olss.learn.model import Model
from olss.learn.projections import Projection
from olss.learn.regularizers import Regularizer
from olss.learn.replay import ReplayStrategy, TrainingSet
from olss.learn.training import Augmentation, Examples, Training, step_length

__all__ = ["Clock", "Learner", "Parts", "TaskCost"]


class Clock:
    """Seconds spent on each part of a task, by the clock and of the processor."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.last = time.perf_counter(), time.process_time()

    def stop(self, part: str) -> None:
        """Count what has passed since the last stop for a part."""
        now = time.perf_counter(), time.process_time()
        for spent, before, after in zip((self.wall, self.cpu), self.last, now, strict=True):
            spent[part] = spent.get(part, 0.0) + after - before
        self.last = now


@dataclass(frozen=True)
class Parts:
    """What a learner is made of, each part one decision.

    Attributes
    ----------
    training : Training
        The net, its optimiser, steps and epochs.
    loss : Loss
        What is learned from labels.
    head : Head
        How it answers.
    augmentation : Augmentation
        What is done to images in a step.
    buffer : Buffer
        What is remembered.
    replay : ReplayStrategy
        What is trained on.
    regularizers : sequence of Regularizer
        What is added to the loss.
    projection : Projection
        What is done to the gradient.
    restart : bool
        Whether each task begins with the first weights.
    """

    training: Training
    loss: Loss
    head: Head
    augmentation: Augmentation
    buffer: Buffer
    replay: ReplayStrategy
    regularizers: Sequence[Regularizer] = ()
    projection: Projection = field(default_factory=Projection)
    restart: bool = False


@dataclass(frozen=True)
class TaskCost:
    """What a task cost.

    Attributes
    ----------
    steps : int
        Of the optimiser.
    row_passes : int
        Rows that went through the net in them, each counted as often as it did.
    seconds, cpu_seconds : dict
        Of "select" and "train": by the clock, and of the processor.
    """

    steps: int
    row_passes: int
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]


class Learner:
    """A net that learns task after task; made by `recipe`.

    Attributes
    ----------
    name : str
    config : dict
        All of its settings.
    parts : Parts
    buffer : Buffer
        ``buffer.held`` are the remembered rows.
    model : Model
        The net and what is known of its inputs and classes, once started.

    Examples
    --------
    >>> from olss.learn import recipe
    >>> from olss.streams import permuted
    >>> learner = recipe("olss", net="mlp-32", lr=0.3, batch=20, policy="reservoir")
    >>> stream = permuted("digits", tasks=2)
    >>> for task in stream:
    ...     effort = learner.fit_task(task)
    >>> learner.predict(stream[0].X_test[:5]).shape
    (5,)
    """

    def __init__(self, name: str, parts: Parts, config: dict[str, Any] | None = None) -> None:
        self.name, self.parts, self.config = name, parts, config or {}
        self.buffer = parts.buffer
        self._started = False

    def __repr__(self) -> str:
        done = f"{self.model.tasks} tasks learned" if self._started else "not started"
        return f"Learner({self.name!r}, {done})"

    def start(self, classes: Any = None, seed: int = 0, device: str = "cpu") -> Learner:
        """Begin afresh: forget everything learned.

        Parameters
        ----------
        classes : array-like, optional
            All labels that will ever come. Without them, those of the first task.
        seed : int
            Of the net's first weights, the order of rows and the memory.
        device : str
            Where the net lives.
        """
        parts = self.parts
        kind, compete = parts.loss.kind, parts.head.compete
        self.model = Model(parts.training, kind, compete, classes, seed, device)
        self.buffer.start(self.model.seeds, self.model.device)
        for penalty in parts.regularizers:
            penalty.start()
        self._seen = 0
        self._ready = False
        self._started = True
        return self

    # ------------------------------------------------------------------ learning

    def fit_task(self, task: Any) -> TaskCost:
        """Learn a task: anything with `X`, `y` and, if need be, `classes` and `scale`.

        After an error the learner is as it was before the call.
        """
        if not self._started:
            self.start()
        model, before = self.model, dict(vars(self.model))
        try:
            return self._learned(task)
        except BaseException:  # a first task opens the net
            vars(model).clear()
            vars(model).update(before)
            raise

    def _learned(self, task: Any) -> TaskCost:
        current, present = self._examples(task)
        model, penalties = self.model, self.parts.regularizers
        net, training, table = model.params.state(), model.average.state, model.mask.table
        memory, kept = self.buffer.snapshot(), [penalty.state for penalty in penalties]
        self._ready = False
        try:
            model.mask.open(present)
            self.parts.augmentation.check(tuple(current.X.shape[1:]))
            self.buffer.check(int(model.mask.seen.sum()))
            with torch.random.fork_rng():
                # Layers with chance of their own, such as dropout, draw from torch's generator.
                torch.manual_seed(model.seeds.number("net", model.tasks))
                effort = self._fit(current)
        except BaseException:
            model.params.load(net)
            model.average.state = training
            model.net.eval()
            model.mask.load(table)
            self.buffer.restore(memory)
            for penalty, state in zip(penalties, kept, strict=True):
                penalty.state = state
            raise
        model.tasks += 1
        self._seen += len(current)
        self._ready = True
        return effort

    def _fit(self, current: Examples) -> TaskCost:
        parts, model, memory, clock = self.parts, self.model, self.buffer, Clock()
        rng = model.seeds.rng("order", model.tasks)
        if parts.restart:
            model.params.load(model.first)
        model.average.begin(parts.restart)
        if parts.replay.updates_buffer_first:
            memory.update(current, model.tasks, model.features)
        batch = parts.training.batch
        training = parts.replay.training_set(current, memory.held, memory.size, batch, rng)
        clock.stop("select")

        training = parts.loss.begin_task(model, training)
        for penalty in parts.regularizers:
            penalty.begin_task(model)
        parts.projection.begin_task(model, memory.held)
        self._chance = model.seeds.rng("augment", model.tasks)
        steps, passes = self._train(training, parts.training.epochs, rng)
        clock.stop("train")

        if not parts.replay.updates_buffer_first:
            memory.update(current, model.tasks, model.features)
        clock.stop("select")
        if parts.training.finish_epochs and memory.held is not None:
            finish = parts.loss.begin_task(model, TrainingSet(memory.held, batch))
            epochs, rate = parts.training.finish_epochs, parts.training.finish_rate
            more = self._train(finish, epochs, rng, rate, steps)
            steps, passes = steps + more[0], passes + more[1]
        for penalty in parts.regularizers:
            penalty.end_task(model, training.rows, memory)
        model.average.end()
        parts.head.fit(model, memory.held)
        clock.stop("train")
        return TaskCost(steps, passes, clock.wall, clock.cpu)

    def _train(
        self,
        training: TrainingSet,
        epochs: int,
        rng: np.random.Generator,
        rate: float = 1.0,
        done: int = 0,
    ) -> tuple[int, int]:
        """Train, and return the steps taken and how many rows went through the net."""
        parts, model, flat = self.parts, self.model, self.model.params
        optimiser, schedule = parts.training.optimiser(flat.theta, epochs * training.count, rate)
        passes, step = 0, done
        model.net.train()
        for step, (rows, replayed) in enumerate(training.steps(epochs, rng), start=done + 1):
            X = parts.augmentation(rows.X, self._chance)
            flat.gradient.zero_()
            loss = self._loss(dataclasses.replace(rows, X=X), replayed)
            torch.autograd.backward(loss)
            if not math.isfinite(loss.item()):
                raise self._diverged(step, loss.item())
            parts.projection(model)
            self._step(optimiser)
            model.average.after_step()
            schedule.step()
            passes += len(rows)
        model.net.eval()
        if not flat.theta.isfinite().all():
            raise self._diverged(step, math.nan)
        return step - done, passes

    def _step(self, optimiser: Any) -> None:
        """Take a step with the loss's gradient, and with what the penalties make of it."""
        flat, penalties = self.model.params, self.parts.regularizers
        length = step_length(optimiser)
        if length is not None:
            optimiser.step()
            for penalty in penalties:
                penalty.after_step(flat, length)
            return
        own, terms = flat.gradient.clone(), [penalty.gradient(flat) for penalty in penalties]
        for term in terms:
            if term is not None:
                flat.gradient.add_(term)
        optimiser.step()
        flat.gradient.copy_(own)  # what a penalty may learn from is the loss's
        for penalty, term in zip(penalties, terms, strict=True):
            lr = optimiser.param_groups[0]["lr"]
            penalty.after_step(flat, lr if term is None else 0.0)

    def _loss(self, rows: Examples, replayed: int = 0) -> Tensor:
        """Return the loss of a step whose last `replayed` rows come from the memory."""
        model = self.model
        outputs = model.forward(model.inputs(rows.X))
        loss = self.parts.loss(model, outputs, rows, replayed)
        weights = self.parts.loss.weight(replayed)
        for penalty in self.parts.regularizers:
            term = penalty.loss(model, outputs, rows, replayed)
            if term is not None:
                # The mean of what is there already, `weights` in all, and this term.
                share = penalty.weight / (weights + penalty.weight)
                loss, weights = (1 - share) * loss + share * term, weights + penalty.weight
        return loss

    def _diverged(self, step: int, loss: float) -> DivergedError:
        return DivergedError(
            f"the loss became {loss} in task {self.model.tasks + 1} at step {step}. Choose a "
            f"smaller learning rate than lr={self.parts.training.lr:g}. The learner is as it was "
            "before this task."
        )

    # ------------------------------------------------------------------ answering

    def predict(self, X: Any, task: int | None = None) -> NDArray[Any]:
        """Predict for rows, on the scale of those trained on.

        Parameters
        ----------
        X : array (n, ...)
        task : int, optional
            Which task the rows are of, counted from 0: what head="task" needs.

        Returns
        -------
        array (n,)
            Labels; with a loss for numbers, those, (n,) or (n, targets).
        """
        answers = self._answers(X, task)
        if self.model.regression:
            values: NDArray[Any] = answers.cpu().numpy()
            return values[:, 0] if self.model.flat_targets else values
        return self.model.labels.decode(answers.argmax(1).cpu().numpy())

    def score(self, X: Any, y: Any, task: int | None = None) -> float:
        """Return the accuracy on rows; R squared with a loss for numbers.

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
        return self.model.score(answers, targets)

    def _answers(self, X: Any, task: int | None) -> Tensor:
        """Return a score for each output that may answer, (n, outputs)."""
        if not self._started or self.model.shape is None:
            raise InputError("the learner has learned nothing yet: call fit_task first.")
        if not self._ready:
            self.parts.head.fit(self.model, self.buffer.held)
            self._ready = True
        return self.parts.head(self.model, self.model.rows(X), task)

    def _examples(self, task: Any) -> tuple[Examples, Tensor]:
        """Return a task's training rows, checked, and the classes it holds."""
        model = self.model
        X, y, present = model.checked(task, task.X, task.y, "")
        index = torch.arange(self._seen, self._seen + len(y), device=model.device)
        return Examples(X, y, torch.full_like(index, model.tasks), index), present

    # ------------------------------------------------------------------ on disk

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to go on later into a directory, whole or not at all.

        What a learner saved there before is replaced; a directory with other files is refused.
        """
        if not self._started or self.model.shape is None:
            raise InputError("the learner has learned nothing yet: there is nothing to save.")
        check_replaceable(Path(path))
        save_whole(Path(path), self._write)

    def _write(self, folder: Path) -> None:
        model = self.model
        tensors = {f"net.{name}": value for name, value in model.params.state().items()}
        tensors["head"] = model.mask.table
        tensors |= {f"average.{name}": value for name, value in model.average.state.items()}
        for i, penalty in enumerate(self.parts.regularizers):
            tensors |= {f"penalty.{i}.{name}": value for name, value in penalty.state.items()}
        classes = model.labels.classes
        state = {
            "config": self.config,
            "seed": model.seeds.seed,
            "tasks": model.tasks,
            "seen": self._seen,
            "shape": list(model.shape or ()),
            "outputs": model.out,
            "scale": model.scale,
            "flat_targets": model.flat_targets,
            "classes": None if classes is None else classes.tolist(),
        }
        write_state(folder, state, tensors)
        self.buffer.save(folder)

    def load(self, path: str | os.PathLike[str], device: str = "cpu") -> Learner:
        """Become what a learner of the same recipe was when it was saved.

        Raises
        ------
        DamagedCheckpointError
            If a file is missing or is not as it was written.
        """
        folder = Path(path)
        state, tensors = read_state(folder, device)
        if state["config"] != self.config:
            raise InputError(
                f"{folder} holds another learner: {state['config']}, this one is {self.config}."
            )
        self.start(state["classes"], state["seed"], device)
        model = self.model
        model.labels = Labels(state["classes"])
        model.tasks, self._seen = state["tasks"], state["seen"]
        model.flat_targets = state["flat_targets"]
        model.open(tuple(state["shape"]), state["outputs"], state["scale"])
        model.params.load(_under("net.", tensors))
        model.average.state = _under("average.", tensors)
        model.mask.load(tensors["head"])
        for i, penalty in enumerate(self.parts.regularizers):
            penalty.state = _under(f"penalty.{i}.", tensors)
        self.buffer.load(folder)
        # Now, not when it is first asked, perhaps for a task ahead with other classes allowed.
        self.parts.head.fit(model, self.buffer.held)
        self._ready = True
        return self


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
