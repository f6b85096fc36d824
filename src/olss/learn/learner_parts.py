"""What a learner is made of, and what a task costs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from olss.learn.answers import Answer
from olss.learn.augmentation import Augmentation
from olss.learn.losses import Loss
from olss.learn.memories import Memory
from olss.learn.penalties import Penalty
from olss.learn.projections import Projection
from olss.learn.regimes import Regime
from olss.learn.training import Training

__all__ = ["Effort", "Parts"]


@dataclass(frozen=True)
class Parts:
    """What a learner is made of, each part one decision.

    Attributes
    ----------
    training : Training
        The net, its optimiser, steps and epochs.
    loss : Loss
        What is learned from labels.
    answer : Answer
        How it answers.
    augmentation : Augmentation
        What is done to images in a step.
    memory : Memory
        What is remembered.
    regime : Regime
        What is trained on.
    penalties : sequence of Penalty
        What is added to the loss.
    projection : Projection
        What is done to the gradient.
    restart : bool
        Whether each task begins with the first weights.
    """

    training: Training
    loss: Loss
    answer: Answer
    augmentation: Augmentation
    memory: Memory
    regime: Regime
    penalties: Sequence[Penalty] = ()
    projection: Projection = field(default_factory=Projection)
    restart: bool = False


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
