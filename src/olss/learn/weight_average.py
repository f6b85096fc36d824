"""The running mean of a net's weights, which answers in their place."""

from __future__ import annotations

import torch
from torch import Tensor

from olss.learn.parameter_vector import Flat

__all__ = ["WeightAverage"]


class WeightAverage:
    """Averages the weights of a net over the last steps of training (Polyak & Juditsky 1992).

    Steps at a constant rate never come to rest: the weights go on moving around what they learn,
    and the last layer towards the classes of the last few steps. Their mean is at rest and is as
    ready for the next task, since training goes on from the weights themselves.

    Within the first `steps` steps the mean is plain, from then on it is exponential: a step
    counts ``1 / steps``. The net's buffers, such as running means, are averaged alike.

    Parameters
    ----------
    flat : Flat
    steps : int
        How far back the mean reaches; 0: there is none, and nothing is done.

    Attributes
    ----------
    state : dict of Tensor
        What lives on from task to task: the weights training goes on from, and how many steps
        were averaged. The mean itself is in the net between tasks.
    """

    def __init__(self, flat: Flat, steps: int) -> None:
        self.flat, self.steps = flat, steps
        self.state: dict[str, Tensor] = {}

    def begin(self, restart: bool = False) -> None:
        """Let the weights of training be in the net; `restart`: those it has, as the first."""
        if not self.steps:
            return
        self.mean, self.count = self.flat.state(), 0
        if self.state and not restart:
            self.count = int(self.state["steps"])
            self.flat.load(self.state)

    def after_step(self) -> None:
        """Take the weights of a step into the mean."""
        if not self.steps:
            return
        self.count = min(self.count + 1, self.steps)
        now = {f"buffer.{name}": value for name, value in self.flat.buffers().items()}
        for name, value in {"theta": self.flat.theta, **now}.items():
            if value.is_floating_point():
                self.mean[name].lerp_(value, 1 / self.count)
            else:
                self.mean[name].copy_(value)

    def end(self) -> None:
        """Let the mean be in the net, and keep the weights of training for the next task."""
        if not self.steps:
            return
        self.state = {**self.flat.state(), "steps": torch.tensor(self.count)}
        self.flat.load(self.mean)
