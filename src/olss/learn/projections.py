"""Projections: changes of a gradient so that past tasks do not suffer: GEM and A-GEM."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from torch import Tensor

from olss.learn.losses import row_losses
from olss.learn.model import Model
from olss.learn.training import Batch
from olss.util import checks

__all__ = ["AGem", "Gem", "Projection"]

Floats = NDArray[np.float64]
BLOCK = 4096


class Projection:
    """Leave the gradient unchanged: the base of all projections."""

    def begin_task(self, model: Model, held: Batch | None) -> None:
        """Receive the rows of the buffer, those of earlier tasks among them."""

    def __call__(self, model: Model) -> None:
        """Change ``model.params.gradient`` in place."""


class Gem(Projection):
    """Gradient episodic memory (Lopez-Paz & Ranzato 2017).

    Each step computes the gradient on the buffer's rows of every past task; if the step's gradient
    has a negative product with any of them, it is projected by `project_gem`. The rows are
    constraints only: they are in no loss.

    Parameters
    ----------
    gem_rows : int
        Rows of each past task, at most; fewer where the buffer holds fewer.
    gem_margin : float
        The least value of each multiplier, once a constraint is violated.
    """

    def __init__(self, gem_rows: int = 256, gem_margin: float = 0.5) -> None:
        self.gem_rows = checks.integer("gem_rows", gem_rows)
        self.margin = checks.number("gem_margin", gem_margin, minimum=0)

    def begin_task(self, model: Model, held: Batch | None) -> None:
        self.past = rows_by_task(held, model.tasks, self.gem_rows)
        self.gradients = model.params.theta.new_empty((len(self.past), model.params.theta.numel()))

    def __call__(self, model: Model) -> None:
        if not self.past:
            return
        gradient = model.params.gradient.clone()
        for row, rows in zip(self.gradients, self.past, strict=True):
            row.copy_(_label_gradient(model, rows))
        model.params.gradient.copy_(project_gem(gradient, self.gradients, self.margin))


class AGem(Projection):
    """Averaged GEM (Chaudhry et al. 2019): one constraint, on rows sampled from all past tasks.

    Parameters
    ----------
    reference_rows : int
        Rows of the buffer sampled in each step.
    """

    def __init__(self, reference_rows: int = 256) -> None:
        self.reference_rows = checks.integer("reference_rows", reference_rows)

    def begin_task(self, model: Model, held: Batch | None) -> None:
        past = rows_by_task(held, model.tasks)
        self.past = past[0] if past else None
        for rows in past[1:]:
            self.past = rows.join(self.past)
        self.rng = model.seeds.rng("parts", model.tasks)

    def __call__(self, model: Model) -> None:
        if self.past is None:
            return
        gradient = model.params.gradient.clone()
        size = min(self.reference_rows, len(self.past))
        sampled = self.rng.choice(len(self.past), size, replace=False, shuffle=False)
        reference = _label_gradient(model, self.past.take(model.tensor(sampled)))
        model.params.gradient.copy_(project_agem(gradient, reference))


def _label_gradient(model: Model, rows: Batch) -> Tensor:
    """Return the gradient of the mean loss of rows at their labels, in ``params.gradient``."""
    model.params.gradient.zero_()
    outputs = model.mask.apply(model.forward(model.inputs(rows.X)), rows.task)
    torch.autograd.backward(row_losses(model.kind, outputs, rows.y).mean())
    return model.params.gradient


def rows_by_task(held: Batch | None, tasks: int, limit: int | None = None) -> list[Batch]:
    """Return the rows of each of the first `tasks` tasks that has any, `limit` at most."""
    if held is None:
        return []
    groups = []
    for task in range(tasks):
        rows = (held.task == task).nonzero().flatten()
        if limit is not None and len(rows) > limit:
            # Spread over the rows held, whatever their order.
            rows = rows[torch.linspace(0, len(rows) - 1, limit, device=rows.device).long()]
        if len(rows):
            groups.append(held.take(rows))
    return groups


def project_gem(gradient: Tensor, past: Tensor, margin: float) -> Tensor:
    """Return the gradient unchanged if no past gradient opposes it, else GEM's projection.

    ``g + G' v`` with ``v = argmin 1/2 v' (G G' + 1e-3 I) v + (G g)' v, v >= margin``.
    """
    dots = _products(past, gradient[None])[:, 0]
    if (dots >= 0).all():
        return gradient
    if not np.isfinite(dots).all():
        return gradient * torch.nan  # the next loss reports that training diverged
    v = gem_multipliers(_products(past, past), dots, margin)
    return gradient + torch.from_numpy(v).to(past) @ past


def gem_multipliers(gram: Floats, dots: Floats, margin: float, ridge: float = 1e-3) -> Floats:
    """Solve GEM's quadratic program exactly, as a non-negative least squares problem.

    With ``P = G G' + ridge I = L L'`` and ``v = u + margin`` the program is
    ``min |L' u + L^-1 (P margin + G g)|^2, u >= 0``.
    """
    scale = np.trace(gram) / len(gram)
    P = gram + max(ridge, 1e-9 * scale) * np.eye(len(gram))
    L = np.linalg.cholesky(P)
    c = P.sum(1) * margin + dots
    u, _ = nnls(L.T, -solve_triangular(L, c, lower=True))
    return np.asarray(u + margin)


def project_agem(gradient: Tensor, reference: Tensor) -> Tensor:
    """Remove from the gradient what opposes the reference; unchanged without a conflict."""
    dot = gradient @ reference
    if dot >= 0:
        return gradient
    return gradient - (dot / (reference @ reference)) * reference


def _products(A: Tensor, B: Tensor) -> Floats:
    """Return A B' in float64, from float32 products of short blocks, without a copy."""
    whole = A.shape[1] // BLOCK * BLOCK
    total = (A[:, whole:] @ B[:, whole:].T).double()
    if whole:
        blocks = [M[:, :whole].view(len(M), -1, BLOCK).transpose(0, 1) for M in (A, B)]
        total += torch.bmm(blocks[0], blocks[1].transpose(1, 2)).double().sum(0)
    return np.asarray(total.cpu().numpy())
