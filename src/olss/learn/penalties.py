"""What is added to the loss so that the past is not unlearned: EWC, SI, distillation.

EWC and SI are quadratics in the parameters: vector arithmetic after each step, which costs the
same however many tasks there were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from olss.common.checks import known_name, number, share, whole
from olss.learn import losses
from olss.learn.fisher import fisher_diagonal, squared_mean_gradient

if TYPE_CHECKING:
    from olss.learn.batch import Examples
    from olss.learn.learner import Learner
    from olss.learn.parameter_vector import Flat

__all__ = ["Distillation", "Ewc", "OnlineEwc", "Penalty", "Si"]


class Penalty:
    """Does nothing at each of the moments a penalty may act: the base of those that do.

    `state` names the tensors that live on from task to task.
    """

    state: dict[str, Tensor]
    stores_outputs = False

    def start(self, learner: Learner) -> None:
        """Begin a run."""
        self.state = {}

    def begin_task(self, learner: Learner) -> None:
        """Begin a task."""

    def loss(
        self, learner: Learner, outputs: Tensor, batch: Examples, replayed: int
    ) -> Tensor | None:
        """Give a term for the loss of a batch, whose last `replayed` rows are from memory."""
        return None

    def after_step(self, flat: Flat, lr: float) -> None:
        """Act on the parameters after the optimiser's step with the loss's gradient."""

    def end_task(self, learner: Learner, rows: Examples) -> None:
        """Learn from a task that was trained on `rows`."""


class _Quadratic(Penalty):
    """strength * sum_p [ F_p t_p^2 - 2 m_p t_p ]: quadratics around past values, merged.

    ``sum_j F_j (t - t_j)^2`` has this form with F = sum F_j and m = sum F_j t_j, up to a
    constant. It is minimised beside the loss by implicit (proximal) steps: after the
    optimiser's step, ``t <- argmin_x 1/2 |x - t|^2 + lr penalty(x)``, which is
    ``(t + c m) / (1 + c F)`` with ``c = 2 lr strength``. To first order in lr this is a step
    along the penalty's gradient; that one blows up where c F > 2, this one never does.
    """

    strength: float

    def begin_task(self, learner: Learner) -> None:
        """Forget the divisor of the task before."""
        self.divisor: tuple[float, Tensor] | None = None

    def after_step(self, flat: Flat, lr: float) -> None:
        """Pull the parameters towards where past tasks want them."""
        if not self.state or self.strength == 0:
            return
        scale = 2 * lr * self.strength
        if self.divisor is None or self.divisor[0] != scale:
            self.divisor = scale, self.state["F"] * scale + 1
        flat.theta.add_(self.state["m"], alpha=scale).div_(self.divisor[1])

    def value(self, flat: Flat) -> float:
        """Give the penalty up to a constant that does not depend on the parameters."""
        if not self.state:
            return 0.0
        theta = flat.theta.double()
        quadratic = self.state["F"].double() * theta**2 - 2 * self.state["m"].double() * theta
        return self.strength * float(quadratic.sum())


class Ewc(_Quadratic):
    """Elastic weight consolidation (Kirkpatrick et al. 2017), a penalty for each past task.

    ``ewc_strength * sum_j sum_p F_p^j (t_p - t_p^j)^2`` over past tasks j, as in the OLSS
    paper (no factor one half).

    Parameters
    ----------
    ewc_strength : float
    fisher_rows : int
        Rows of the task's training set the Fisher diagonal is taken on.
    fisher : str
        "example": the mean of the squared gradients of single rows. "mean": the square of the
        mean gradient, as in the published code of GEM; for comparison only.
    """

    def __init__(
        self, ewc_strength: float = 1.0, fisher_rows: int = 1000, fisher: str = "example"
    ) -> None:
        self.fisher = known_name("fisher", fisher, ("example", "mean"))
        self.strength = number("ewc_strength", ewc_strength, least=0)
        self.fisher_rows = whole("fisher_rows", fisher_rows)

    def information(self, learner: Learner, rows: Examples) -> Tensor:
        """Give the Fisher diagonal on some of the rows."""
        rng = learner.seeds.rng("parts", learner.tasks)
        chosen = rows.take(learner.tensor(rng.permutation(len(rows))[: self.fisher_rows]))

        def row_loss(outputs: Tensor, numbers: Tensor) -> Tensor:
            outputs = learner.head.mask(outputs, chosen.task[numbers])
            return losses.loss_of_rows(learner.loss.kind, outputs, chosen.y[numbers])

        measure = fisher_diagonal if self.fisher == "example" else squared_mean_gradient
        return measure(learner.flat, learner.inputs(chosen.X), row_loss)

    def end_task(self, learner: Learner, rows: Examples) -> None:
        """Add the task's quadratic."""
        F = self.information(learner, rows)
        m = F * learner.flat.theta
        if self.state:
            F, m = F + self.state["F"], m + self.state["m"]
        self.state = {"F": F, "m": m}


class OnlineEwc(Ewc):
    """EWC with one running penalty around the newest parameters (Schwarz et al. 2018).

    ``F <- ewc_decay F + F_new``; the centre is where the last task ended.
    """

    def __init__(
        self,
        ewc_strength: float = 1.0,
        fisher_rows: int = 1000,
        fisher: str = "example",
        ewc_decay: float = 0.9,
    ) -> None:
        super().__init__(ewc_strength, fisher_rows, fisher)
        self.decay = share("ewc_decay", ewc_decay)

    def end_task(self, learner: Learner, rows: Examples) -> None:
        """Fold the task into the running penalty."""
        F = self.information(learner, rows)
        if self.state:
            F = F + self.decay * self.state["F"]
        self.state = {"F": F, "m": F * learner.flat.theta}


class Si(_Quadratic):
    """Synaptic intelligence (Zenke et al. 2017).

    Along a task, each parameter earns ``w_p = - sum g_p dt_p``: the part it had in lowering
    the task's own loss (g without the penalty). At its end the importance grows by
    ``max(0, w_p) / (D_p^2 + si_damping)``, D being the way from start to end, and the
    penalty is ``si_strength * sum_p F_p (t_p - t_p^end)^2``.
    """

    def __init__(self, si_strength: float = 1.0, si_damping: float = 0.1) -> None:
        self.strength = number("si_strength", si_strength, least=0)
        self.damping = number("si_damping", si_damping, above=0)

    def begin_task(self, learner: Learner) -> None:
        """Begin the path of a task."""
        self.origin = learner.flat.theta.clone()
        self.earned = torch.zeros_like(self.origin)
        self.before = self.origin.clone()
        super().begin_task(learner)

    def after_step(self, flat: Flat, lr: float) -> None:
        """Pull, then add what the whole step earned."""
        super().after_step(flat, lr)
        self.earned.addcmul_(flat.gradient, self.before.sub_(flat.theta))
        self.before.copy_(flat.theta)

    def end_task(self, learner: Learner, rows: Examples) -> None:
        """Turn what was earned into importance."""
        way = learner.flat.theta - self.origin
        F = self.earned.clamp(min=0) / (way.square() + self.damping)
        if self.state:
            F += self.state["F"]
        self.state = {"F": F, "m": F * learner.flat.theta}


class Distillation(Penalty):
    """Stay near the outputs stored with remembered rows: DER and DER++ (Buzzega et al. 2020).

    With replayed rows the loss is ``L(current) + beta L(replayed) + alpha mse(replayed)``,
    from one replayed batch (the paper's code draws two). Where remembered rows are part of the
    training set itself, their labels already count like all others, and alpha times the mean
    squared distance is added.

    Parameters
    ----------
    alpha : float
        Weight of the distance to the stored outputs. `Loss.beta` weighs the replayed rows'
        labels; 0 is DER.
    """

    stores_outputs = True

    def __init__(self, alpha: float = 0.5) -> None:
        self.alpha = number("alpha", alpha, least=0)

    def loss(
        self, learner: Learner, outputs: Tensor, batch: Examples, replayed: int
    ) -> Tensor | None:
        """Give the alpha term."""
        if batch.outputs is None:
            return None
        rows = replayed or len(batch)
        return self.alpha * losses.stored_output_loss(outputs, batch.outputs, rows)
