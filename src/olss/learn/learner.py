"""A learner: a net, and the parts that keep it from forgetting."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from olss.errors import DivergedError, InputError
from olss.learn import losses
from olss.learn.batch import Examples, as_tensor
from olss.learn.checkpoint import load_state, save_state, save_whole
from olss.learn.heads import nearest_mean
from olss.learn.memories import Memory
from olss.learn.model import Model
from olss.learn.penalties import Distillation, Penalty
from olss.learn.projections import Projection
from olss.learn.regimes import Regime
from olss.learn.training import Training

__all__ = ["Effort", "Learner"]


@dataclass(frozen=True)
class Effort:
    """What a task cost: optimiser steps, seconds of selection and of training."""

    steps: int
    select: float
    train: float


class Learner(Model):
    """A net that learns task after task; made by `recipe`.

    Parts, each one decision: the *memory* is what is remembered, the *regime* what is trained
    on, *penalties* are added to the loss, the *projection* is done to the gradient, the
    *head* (in `training`) is how it answers.

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
        self.remembered: Tensor | None = None
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
        begin = time.perf_counter()
        flat, setting, rng = self.flat, self.training, self.seeds.rng("order", self.tasks)
        if self.restart:
            flat.load(self.first)
        if self.regime.takes_in_first:
            self.memory.take_in(current, self.tasks, self.features)
        rows, replay = self.regime.rows(current, self.memory.held, self.memory.size, rng)
        select = time.perf_counter() - begin

        for penalty in self.penalties:
            rows = penalty.begin_task(self, rows)
        if self.projection:
            self.projection.begin_task(self)
        bounds = batches(len(rows), setting.batch)
        optimiser, schedule = setting.optimiser(flat.theta, setting.epochs * len(bounds))
        self.net.train()
        step = 0
        for _ in range(setting.epochs):
            order = self.tensor(rng.permutation(len(rows)))
            for start, stop in bounds:
                batch, replayed = rows.take(order[start:stop]), 0
                if replay is not None:
                    replayed = stop - start
                    batch = batch.join(
                        replay.take(self.tensor(rng.integers(len(replay), size=replayed)))
                    )
                flat.gradient.zero_()
                loss = self.loss(batch, replayed)
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
                step += 1
        self.net.eval()
        if not flat.theta.isfinite().all():
            raise self.diverged(step, math.nan)

        trained = time.perf_counter()
        if not self.regime.takes_in_first:
            self.memory.take_in(current, self.tasks, self.features)
        select += time.perf_counter() - trained
        for penalty in self.penalties:
            penalty.end_task(self, rows)
        if any(penalty.stores_outputs for penalty in self.penalties):
            self.memory.store_outputs(self.outputs)
        self.remembered = None
        return Effort(step, select, time.perf_counter() - begin - select)

    def loss(self, batch: Examples, replayed: int = 0) -> Tensor:
        """Give the loss of a batch whose last `replayed` rows come from the memory."""
        outputs = self.forward(self.inputs(batch.X))
        terms = [penalty.loss(self, outputs, batch, replayed) for penalty in self.penalties]
        if not any(penalty.replaces_loss for penalty in self.penalties):
            shares = self._shares(batch, replayed)
            masked = self.head.mask(outputs, batch.task)
            terms.append(losses.mean_loss(self.training.loss, masked, batch.y, shares))
        first, *rest = (term for term in terms if term is not None)
        return sum(rest, first)

    def label_loss(self, batch: Examples) -> Tensor:
        """Give the mean loss of rows at their labels, whatever else is in the learner's loss."""
        outputs = self.head.mask(self.forward(self.inputs(batch.X)), batch.task)
        return losses.mean_loss(self.training.loss, outputs, batch.y)

    def _shares(self, batch: Examples, replayed: int) -> Tensor | None:
        """Give what each row counts in the loss; None: all the same."""
        weighted = self.training.weighted_loss and batch.weight is not None
        betas = [p.beta for p in self.penalties if isinstance(p, Distillation)]
        if not weighted and not (betas and replayed):
            return None
        weight = batch.weight if weighted else torch.ones(len(batch), device=self.device)
        assert weight is not None
        if not (betas and replayed):
            return weight / weight.sum()
        own, past = weight[:-replayed], weight[-replayed:]
        return torch.cat([own / own.sum(), betas[0] * past / past.sum()])

    def diverged(self, step: int, loss: float) -> DivergedError:
        """Make the error for a loss that is no longer a number."""
        return DivergedError(
            f"the loss became {loss} in task {self.tasks + 1} at step {step + 1}. Choose a smaller "
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
        if self.training.regression:
            values: NDArray[Any] = answers.cpu().numpy()
            return values[:, 0] if self.flat_targets else values
        return self.labels.decode(answers.argmax(1).cpu().numpy())

    def answers(self, X: Tensor, task: int | None) -> Tensor:
        """Give a score for each output that may answer, (n, outputs)."""
        held = self.memory.held
        if self.training.head != "nearest-mean" or held is None:
            return self.head.mask(self.outputs(X), task)
        if self.remembered is None:
            self.remembered = self.features(held.X)
        return nearest_mean(self.features(X), self.remembered, held.y, self.out)

    def score(self, X: Tensor, y: Tensor, task: int | None) -> float:
        """Give the accuracy on rows `checked`, or R squared with a loss for numbers."""
        answers = self.answers(X, task)
        if not self.training.regression:
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


def batches(rows: int, size: int) -> list[tuple[int, int]]:
    """Cut rows into steps; a single row left over joins the step before it.

    Batch normalisation cannot work on one row.

    Examples
    --------
    >>> batches(5, 2)
    [(0, 2), (2, 5)]
    """
    starts = list(range(0, rows, size))
    if len(starts) > 1 and rows - starts[-1] == 1 and size > 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], rows], strict=True))
