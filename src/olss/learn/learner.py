"""A learner: a net, and the parts that keep it from forgetting."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from olss.errors import DivergedError, InputError
from olss.learn import losses
from olss.learn.answers import Answer
from olss.learn.augmentation import Augmentation
from olss.learn.batch import Examples, as_tensor
from olss.learn.checkpoint import load_state, save_state, save_whole
from olss.learn.clock import Clock
from olss.learn.losses import Loss
from olss.learn.memories import Memory
from olss.learn.model import Model
from olss.learn.penalties import Penalty
from olss.learn.projections import Projection
from olss.learn.regimes import Regime, TrainingSet
from olss.learn.training import Training

__all__ = ["Effort", "Learner"]


@dataclass(frozen=True)
class Effort:
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


class Learner(Model):
    """A net that learns task after task; made by `recipe`.

    Parts, each one decision: the *memory* is what is remembered, the *regime* what is trained
    on, the *augmentation* what is done to images in a step, the *loss* what is learned from
    labels, *penalties* what is added to it, the *projection* what is done to the gradient, the
    *answer* how it answers.

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

    def __init__(
        self,
        name: str,
        training: Training,
        loss: Loss,
        answer: Answer,
        augmentation: Augmentation,
        memory: Memory,
        regime: Regime,
        penalties: Sequence[Penalty] = (),
        projection: Projection | None = None,
        *,
        restart: bool = False,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.training = training
        self.loss = loss
        self.answer = answer
        self.augmentation = augmentation
        self.memory = memory
        self.regime = regime
        self.penalties = tuple(penalties)
        self.projection = projection
        self.restart = restart
        self.config = config or {}
        self.started = False

    def __repr__(self) -> str:
        done = f"{self.tasks} tasks learned" if self.started else "not started"
        return f"Learner({self.name!r}, {done})"

    # ------------------------------------------------------------------ beginning

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
        self.begin(classes, seed, device)
        self.tasks = 0
        self.seen = 0
        self._answer_fitted = False
        self.memory.start(self.seeds, self.device)
        for penalty in self.penalties:
            penalty.start(self)
        self.started = True
        return self

    # ------------------------------------------------------------------ learning

    def fit_task(self, task: Any) -> Effort:
        """Learn a task: anything with `X`, `y` and, if need be, `classes` and `scale`.

        After an error the learner is as it was before the call.
        """
        current, present = self.examples(task)
        net, table = self.flat.state(), self.head.table
        self._answer_fitted = False
        memory, kept = self.memory.snapshot(), [penalty.state for penalty in self.penalties]
        try:
            self.head.open(present)
            self.memory.check(int(self.head.seen.sum()))
            with torch.random.fork_rng():
                # Layers with chance of their own, such as dropout, draw from torch's generator.
                torch.manual_seed(self.seeds.number("net", self.tasks))
                effort = self._fit(current)
        except BaseException:
            self.flat.load(net)
            self.net.eval()
            self.head.load(table)
            self.memory.restore(memory)
            for penalty, state in zip(self.penalties, kept, strict=True):
                penalty.state = state
            raise
        self.tasks += 1
        self.seen += len(current)
        return effort

    def _fit(self, current: Examples) -> Effort:
        clock = Clock()
        rng = self.seeds.rng("order", self.tasks)
        if self.restart:
            self.flat.load(self.first)
        if self.regime.takes_in_first:
            self.memory.take_in(current, self.tasks, self.features)
        held, size = self.memory.held, self.memory.size
        training = self.regime.training_set(current, held, size, self.training.batch, rng)
        clock.stop("select")

        training = self.loss.begin_task(self, training)
        for penalty in self.penalties:
            penalty.begin_task(self)
        if self.projection:
            self.projection.begin_task(self)
        self._chance = self.seeds.rng("augment", self.tasks)
        steps, passes = self._train(training, self.training.epochs, rng)
        clock.stop("train")

        if not self.regime.takes_in_first:
            self.memory.take_in(current, self.tasks, self.features)
        clock.stop("select")
        held = self.memory.held
        if self.training.finish_epochs and held is not None:
            finish = self.loss.begin_task(self, TrainingSet(held, self.training.batch))
            more = self._train(
                finish, self.training.finish_epochs, rng, self.training.finish_rate, steps
            )
            steps, passes = steps + more[0], passes + more[1]
        for penalty in self.penalties:
            penalty.end_task(self, training.rows)
        if any(penalty.stores_outputs for penalty in self.penalties):
            self.memory.store_outputs(self.outputs)
        if self.memory.held is not None:
            self.answer.fit(self, self.memory.held)
        self._answer_fitted = True
        clock.stop("train")
        return Effort(steps, passes, clock.wall, clock.cpu)

    def _train(
        self,
        training: TrainingSet,
        epochs: int,
        rng: np.random.Generator,
        rate: float = 1.0,
        done: int = 0,
    ) -> tuple[int, int]:
        """Train, and return the steps taken and how many rows went through the net."""
        flat, passes, step = self.flat, 0, done
        optimiser, schedule = self.training.optimiser(flat.theta, epochs * training.count, rate)
        self.net.train()
        for step, (batch, replayed) in enumerate(training.steps(epochs, rng), start=done + 1):
            passes += len(batch)
            flat.gradient.zero_()
            loss = self.loss_of(self._augmented(batch), replayed)
            torch.autograd.backward(loss)
            if not math.isfinite(loss.item()):
                raise self.diverged(step, loss.item())
            if self.projection:
                self.projection(self)
            optimiser.step()
            for penalty in self.penalties:
                penalty.after_step(flat, optimiser.param_groups[0]["lr"])
            if schedule:
                schedule.step()
        self.net.eval()
        if not flat.theta.isfinite().all():
            raise self.diverged(step, math.nan)
        return step - done, passes

    def _augmented(self, batch: Examples) -> Examples:
        return dataclasses.replace(batch, X=self.augmentation(batch.X, self._chance))

    def loss_of(self, batch: Examples, replayed: int = 0) -> Tensor:
        """Return the loss of a batch whose last `replayed` rows come from the memory."""
        outputs = self.forward(self.inputs(batch.X))
        total = self.loss(self, outputs, batch, replayed)
        for penalty in self.penalties:
            term = penalty.loss(self, outputs, batch, replayed)
            total = total if term is None else total + term
        return total

    def label_loss(self, batch: Examples) -> Tensor:
        """Return the mean loss of rows at their labels, whatever else is in the learner's loss."""
        outputs = self.head.mask(self.forward(self.inputs(batch.X)), batch.task)
        return losses.loss_of_rows(self.loss.kind, outputs, batch.y).mean()

    def diverged(self, step: int, loss: float) -> DivergedError:
        """Make the error for a loss that is no longer a number."""
        return DivergedError(
            f"the loss became {loss} in task {self.tasks + 1} at step {step}. Choose a smaller "
            f"learning rate than lr={self.training.lr:g}"
            + ". The learner is as it was before this task."
        )

    @property
    def stored_bytes(self) -> int:
        """Bytes kept for later tasks: the remembered rows and what penalties hold."""
        held = self.memory.held
        kept = sum(v.nbytes for p in self.penalties for v in p.state.values())
        return kept + (0 if held is None else held.nbytes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to go on later into a directory, whole or not at all."""
        if not self.started or self.shape is None:
            raise InputError("the learner has learned nothing yet: there is nothing to save.")
        save_whole(Path(path), lambda folder: save_state(self, folder))

    def load(self, path: str | os.PathLike[str], device: str = "cpu") -> Learner:
        """Become what a learner of the same recipe was when it was saved."""
        load_state(self, Path(path), device)
        return self

    # ------------------------------------------------------------------ rows and answers

    def examples(self, task: Any) -> tuple[Examples, Tensor]:
        """Check a task's training rows and give them as tensors, with the classes it holds."""
        if not self.started:
            self.start()
        X, y, present = self.checked(task, task.X, task.y, "")
        rows = Examples(
            X=X,
            y=y,
            task=torch.full((len(y),), self.tasks, device=self.device),
            index=torch.arange(self.seen, self.seen + len(y), device=self.device),
        )
        return rows, present

    def predict(self, X: Any, task: int | None = None) -> NDArray[Any]:
        """Answer for rows, on the scale of those trained on.

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
        if not self.started or self.shape is None:
            raise InputError("the learner has learned nothing yet: call fit_task first.")
        answers = self.answers(as_tensor(X, self.device), task)
        if self.loss.regression:
            values: NDArray[Any] = answers.cpu().numpy()
            return values[:, 0] if self.flat_targets else values
        return self.labels.decode(answers.argmax(1).cpu().numpy())

    def answers(self, X: Tensor, task: int | None) -> Tensor:
        """Return a score for each output that may answer, (n, outputs)."""
        held = self.memory.held
        if held is None:
            return self.head.mask(self.outputs(X), task)
        if not self._answer_fitted:
            self.answer.fit(self, held)
            self._answer_fitted = True
        return self.answer(self, X, task)

    def score(self, X: Tensor, y: Tensor, task: int | None) -> float:
        """Give the accuracy on rows `checked`, or R squared with a loss for numbers."""
        answers = self.answers(X, task)
        if not self.loss.regression:
            return float((answers.argmax(1) == y).double().mean())
        y = y.double()
        spread = (y - y.mean(0)).square().sum()
        return float(1 - (answers.double() - y).square().sum() / spread)

    def score_ahead(self, X: Tensor, y: Tensor, present: Tensor) -> tuple[float, float]:
        """Score a task not yet learned, its classes allowed: now, and with the first weights."""
        table, now = self.head.table, self.flat.state()
        self.head.open(present)
        ahead = self.score(X, y, self.tasks)
        self.flat.load(self.first)
        held, self.memory.held = self.memory.held, None
        initial = self.score(X, y, self.tasks)
        self.memory.held = held
        self.flat.load(now)
        self.head.load(table)
        return ahead, initial
