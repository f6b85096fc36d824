"""What keeps a net from unlearning the past: terms of its loss, and changes of its gradient.

EWC and SI are quadratics in the parameters: vector arithmetic after each step, at a cost that does
not grow with the number of tasks. EWC's Fisher information is exact, row by row. GEM and A-GEM
project the gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import nnls
from torch import Tensor, nn

from olss.learn.buffers import Buffer
from olss.learn.losses import row_losses
from olss.learn.model import Model, strip_prefix
from olss.learn.nets import ParameterVector, forward_hooks
from olss.learn.training import Batch
from olss.util import checks

__all__ = ["AGem", "Distillation", "Ewc", "Gem", "OnlineEwc", "Projection", "Regularizer", "Si"]

Floats = NDArray[np.float64]
BLOCK = 4096

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (n, c) and the positions of their rows, (n,) -> the loss of each row, (n,)."""


class Regularizer:
    """Do nothing at every step of training: the base of all regularizers.

    `state` holds the tensors that are kept from task to task. `weight` is what its term of the
    loss counts beside the labels of new rows, which count 1; all are averaged.
    """

    state: dict[str, Tensor]
    weight = 1.0

    def start(self) -> None:
        """Begin a run."""
        self.state = {}

    def begin_task(self, model: Model) -> None:
        """Begin a task."""

    def loss(self, model: Model, outputs: Tensor, batch: Batch, replayed: int) -> Tensor | None:
        """Return a term for the loss of a step whose last `replayed` rows are from the buffer."""
        return None

    def gradient(self, params: ParameterVector) -> Tensor | None:
        """Return what is added to the gradient where steps have no one length, as with Adam."""
        return None

    def after_step(self, params: ParameterVector, lr: float) -> None:
        """Change the parameters after the optimizer's step along the loss's gradient.

        `lr` is how far a lasting gradient of 1 moves a parameter in a step: with momentum, more
        than the learning rate. 0: `gradient` was part of the step.
        """

    def end_task(self, model: Model, rows: Batch, buffer: Buffer) -> None:
        """Learn from a task that was trained on `rows`; the buffer holds what is kept of it."""


class _Quadratic(Regularizer):
    """strength * sum_p [ F_p t_p^2 - 2 m_p t_p ]: quadratics around past values, merged.

    ``sum_j F_j (t - t_j)^2`` has this form with F = sum F_j and m = sum F_j t_j, up to a
    constant. It is minimized beside the loss by implicit (proximal) steps: after the optimizer's
    step, ``t <- argmin_x 1/2 |x - t|^2 + lr penalty(x)``, which is ``(t + c m) / (1 + c F)`` with
    ``c = 2 lr strength``. To first order in lr this is a step along the penalty's gradient, which
    diverges where c F > 2; this one never does. Optimizers other than SGD take steps of a
    different length for each parameter; for them the penalty's gradient is added to the loss's.
    """

    strength: float

    def begin_task(self, model: Model) -> None:
        self.divisor: tuple[float, Tensor] | None = None

    def gradient(self, params: ParameterVector) -> Tensor | None:
        if not self.state or self.strength == 0:
            return None
        return (self.state["F"] * params.theta).sub_(self.state["m"]).mul_(2 * self.strength)

    def after_step(self, params: ParameterVector, lr: float) -> None:
        if not self.state or self.strength == 0 or lr == 0:
            return
        scale = 2 * lr * self.strength
        if self.divisor is None or self.divisor[0] != scale:
            self.divisor = scale, self.state["F"] * scale + 1
        params.theta.add_(self.state["m"], alpha=scale).div_(self.divisor[1])


class Ewc(_Quadratic):
    """Elastic weight consolidation (Kirkpatrick et al. 2017), a penalty for each past task.

    ``ewc_strength * sum_j sum_p F_p^j (t_p - t_p^j)^2`` over past tasks j, as in the OLSS
    paper (no factor one half).

    Parameters
    ----------
    ewc_strength : float
    fisher_rows : int
        Rows of the task's training set from which the Fisher diagonal is estimated.
    fisher : str
        "example": the mean of the squared gradients of single rows. "mean": the square of the
        mean gradient, as in the published code of GEM; for comparison only.
    """

    def __init__(
        self, ewc_strength: float = 1.0, fisher_rows: int = 1000, fisher: str = "example"
    ) -> None:
        self.fisher = checks.choice("fisher", fisher, ("example", "mean"))
        self.strength = checks.number("ewc_strength", ewc_strength, minimum=0)
        self.fisher_rows = checks.integer("fisher_rows", fisher_rows)

    def information(self, model: Model, rows: Batch) -> Tensor:
        """Return the Fisher diagonal on some of the rows."""
        rng = model.seeds.rng("parts", model.tasks)
        chosen = rows.take(model.tensor(rng.permutation(len(rows))[: self.fisher_rows]))

        def row_loss(outputs: Tensor, rows: Tensor) -> Tensor:
            outputs = model.mask.apply(outputs[:, : model.out], chosen.task[rows])
            return row_losses(model.kind, outputs, chosen.y[rows])

        measure = fisher_diagonal if self.fisher == "example" else squared_mean_gradient
        return measure(model.params, model.inputs(chosen.X), row_loss)

    def end_task(self, model: Model, rows: Batch, buffer: Buffer) -> None:
        F = self.information(model, rows)
        m = F * model.params.theta
        if self.state:
            F, m = F + self.state["F"], m + self.state["m"]
        self.state = {"F": F, "m": m}


class OnlineEwc(Ewc):
    """EWC with one running penalty around the newest parameters (Schwarz et al. 2018).

    ``F <- ewc_decay F + F_new``; the center is where the last task ended.
    """

    def __init__(
        self,
        ewc_strength: float = 1.0,
        fisher_rows: int = 1000,
        fisher: str = "example",
        ewc_decay: float = 0.9,
    ) -> None:
        super().__init__(ewc_strength, fisher_rows, fisher)
        self.decay = checks.fraction("ewc_decay", ewc_decay)

    def end_task(self, model: Model, rows: Batch, buffer: Buffer) -> None:
        F = self.information(model, rows)
        if self.state:
            F = F + self.decay * self.state["F"]
        self.state = {"F": F, "m": F * model.params.theta}


class Si(_Quadratic):
    """Synaptic intelligence (Zenke et al. 2017).

    Along a task, each parameter earns ``w_p = - sum g_p dt_p``: its part in lowering the task's
    own loss (g without the penalty). At the end its importance grows by
    ``max(0, w_p) / (D_p^2 + si_damping)``, D being the distance from start to end, and the
    penalty is ``si_strength * sum_p F_p (t_p - t_p^end)^2``.
    """

    def __init__(self, si_strength: float = 1.0, si_damping: float = 0.1) -> None:
        self.strength = checks.number("si_strength", si_strength, minimum=0)
        self.damping = checks.number("si_damping", si_damping, above=0)

    def begin_task(self, model: Model) -> None:
        self.origin = model.params.theta.clone()
        self.earned = torch.zeros_like(self.origin)
        self.before = self.origin.clone()
        super().begin_task(model)

    def after_step(self, params: ParameterVector, lr: float) -> None:
        super().after_step(params, lr)
        self.earned.addcmul_(params.gradient, self.before.sub_(params.theta))
        self.before.copy_(params.theta)

    def end_task(self, model: Model, rows: Batch, buffer: Buffer) -> None:
        distance = model.params.theta - self.origin
        F = self.earned.clamp(min=0) / (distance.square() + self.damping)
        if self.state:
            F += self.state["F"]
        self.state = {"F": F, "m": F * model.params.theta}


class Distillation(Regularizer):
    """Stay near the outputs stored with rows, as in DER and DER++ (Buzzega et al. 2020).

    With replayed rows the loss is the mean of ``L(current)``, ``L(replayed)`` with weight beta
    and ``D(replayed)`` with weight alpha, all from one replayed batch (the paper's code samples
    two). The paper adds the three, which makes steps up to twice as long, and uses squared
    distances, whose curvature stays while that of the cross-entropy falls as outputs grow: a rate
    that trains plain replay may diverge. Hence the mean, and distances relative to the spread of
    the stored outputs.

    Parameters
    ----------
    alpha : float
        Weight of the distance to the stored outputs. `Loss.beta` weighs the replayed rows'
        labels; 0 is DER.
    distance : {"scaled", "squared"}
        Squared distances divided by the standard deviation of the stored outputs where that is
        above 1, or plain ones.
    """

    def __init__(self, alpha: float = 0.5, distance: str = "scaled") -> None:
        self.weight = checks.number("alpha", alpha, minimum=0)
        self.scaled = checks.choice("distance", distance, ("scaled", "squared")) == "scaled"

    def loss(self, model: Model, outputs: Tensor, batch: Batch, replayed: int) -> Tensor | None:
        if batch.outputs is None:
            return None
        distance = stored_output_loss(outputs, batch.outputs, replayed or len(batch))
        return distance / output_spread(batch.outputs).clamp(min=1) if self.scaled else distance

    def end_task(self, model: Model, rows: Batch, buffer: Buffer) -> None:
        buffer.store_outputs(model.outputs)


def stored_output_loss(outputs: Tensor, stored: Tensor, rows: int) -> Tensor:
    """Return the squared distance to stored outputs.

    ``sum_i mean_c (z_ic - s_ic)^2 / rows`` over the rows i with stored outputs (NaN marks those
    without) and all outputs c: those of future classes too, which keeps new classes from taking
    over old rows.
    """
    known = ~stored[:, :1].isnan()
    return (outputs - stored).where(known, 0.0).square().mean(1).sum() / rows


def output_spread(stored: Tensor) -> Tensor:
    """Return the standard deviation of stored outputs around the mean of their row."""
    known = ~stored[:, :1].isnan()
    around = (stored - stored.mean(1, keepdim=True)).where(known, 0.0)
    return (around.square().mean(1).sum() / known.sum().clamp(min=1)).sqrt()


def fisher_diagonal(params: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Return the mean over the rows of the squared gradient of each row's own loss.

    ``F_p = 1/n sum_i (d loss_i / d theta_p)^2``: the empirical Fisher diagonal, at the labels of
    the data (Kirkpatrick et al. 2017; Kunstner et al. 2019 on how it differs from sampled labels),
    in evaluation mode, so that a row's gradient depends on that row alone.

    With inputs a_i and output gradients d_i of a linear layer, the squared gradient of a weight is
    a product of squares, so the sum is ``(d^2)' (a^2)``. Nets with other layers, or whose linear
    layers do more to a row than one product, go through `torch.func`.
    """
    training = params.net.training
    params.net.eval()
    try:
        total = _linear_squares(params, x, row_loss) if _is_linear(params, x[:2]) else None
        return (_general_squares(params, x, row_loss) if total is None else total) / len(x)
    finally:
        params.net.train(training)
        params.gradient.zero_()


def squared_mean_gradient(params: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Return the square of the mean loss's gradient, which GEM's published code uses for Fisher.

    Not the Fisher diagonal (gradients of opposite signs cancel before the square); here to
    compare with results that used it.
    """
    params.gradient.zero_()
    losses = row_loss(params.net(x), torch.arange(len(x), device=x.device))
    torch.autograd.backward(losses.mean())
    square = params.gradient.square()
    params.gradient.zero_()
    return square


def _is_linear(params: ParameterVector, x: Tensor) -> bool:
    """Return whether `_linear_squares` is right for a net, by trying it on a few rows.

    A weight that is used outside its layer shows in its gradient alone.
    """

    def trial_loss(outputs: Tensor, rows: Tensor) -> Tensor:
        return outputs @ torch.arange(1, outputs.shape[1] + 1).to(outputs)

    found = _linear_squares(params, x, trial_loss)
    if found is None:
        return False
    expected = _squares_row_by_row(params, x, trial_loss)
    return all(
        bool((a - b).norm() <= 1e-3 * b.norm())  # far above rounding, far below a mistake
        for a, b in zip(params.split(found), params.split(expected), strict=True)
    )


def _linear_squares(
    params: ParameterVector, x: Tensor, row_loss: RowLoss, block: int = 1000
) -> Tensor | None:
    """Sum the squares if every parameter is a linear layer's, used once, on rows (n, k)."""
    total = torch.zeros_like(params.theta)
    squares = dict(zip(map(id, params.parameters), params.split(total), strict=True))
    linears, owned = [], Counter[int]()
    for module in params.net.modules():
        own = {id(p) for p in module.parameters(recurse=False)} & squares.keys()
        if own and isinstance(module, nn.Linear):
            linears.append(module)
            owned.update(own)
    if owned != Counter(squares.keys()):
        return None
    for start in range(0, len(x), block):
        calls: list[tuple[nn.Linear, Tensor, Tensor]] = []

        def note(module: nn.Module, args: Any, named: Any, out: Tensor, calls: Any = calls) -> Any:
            calls.append((module, (args or [*named.values()])[0].detach(), out))
            return out.clone()  # an in-place layer would overwrite it

        with forward_hooks(linears, note, with_kwargs=True):
            outputs = params.net(x[start : start + block])
        once = Counter(module for module, _, _ in calls) == Counter(linears)
        if not once or any(a.dim() != 2 or len(a) != len(outputs) for _, a, _ in calls):
            return None
        loss = row_loss(outputs, torch.arange(start, start + len(outputs), device=x.device)).sum()
        outs = [out for _, _, out in calls]
        deltas = torch.autograd.grad(loss, outs, allow_unused=True, materialize_grads=True)
        for (module, a, _), delta in zip(calls, deltas, strict=True):
            if id(module.weight) in squares:
                squares[id(module.weight)].addmm_(delta.square().T, a.square())
            if module.bias is not None and id(module.bias) in squares:
                squares[id(module.bias)].add_(delta.square().sum(0))
    return total


def _general_squares(params: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Sum the squares for any net, in blocks of rows or, where torch cannot, row by row."""
    try:
        return _squares_in_blocks(params, x, row_loss)
    except RuntimeError:  # layers that vmap does not support, such as recurrent ones
        return _squares_row_by_row(params, x, row_loss)


def _squares_row_by_row(params: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    total = torch.zeros_like(params.theta)
    pieces = params.split(total)
    for position, row in enumerate(torch.split(x, 1)):
        loss = row_loss(params.net(row), torch.tensor([position], device=x.device)).sum()
        gradients = torch.autograd.grad(loss, params.parameters, allow_unused=True)
        for piece, gradient in zip(pieces, gradients, strict=True):
            if gradient is not None:
                piece.add_(gradient.square())
    return total


def _squares_in_blocks(params: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    trainable = {name: p.detach() for name, p in params.net.named_parameters() if p.requires_grad}
    fixed = strip_prefix("buffer.", params.tensors())
    block = max(1, min(64, 2**25 // params.theta.numel()))

    def loss(values: dict[str, Tensor], row: Tensor, position: Tensor) -> Tensor:
        outputs = torch.func.functional_call(params.net, (values, fixed), (row[None],))
        return row_loss(outputs, position[None])[0]

    gradients_of = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    total = torch.zeros_like(params.theta)
    pieces = params.split(total)
    for start in range(0, len(x), block):
        rows = x[start : start + block]
        positions = torch.arange(start, start + len(rows), device=x.device)
        gradients = gradients_of(trainable, rows, positions).values()
        for piece, gradient in zip(pieces, gradients, strict=True):
            piece.add_(gradient.square().sum(0))
    return total


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
