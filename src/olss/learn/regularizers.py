"""What is added to the loss so that the past is not unlearned: EWC, SI, distillation.

EWC and SI are quadratics in the parameters: vector arithmetic after each step, which costs the
same however many tasks there were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from olss.learn.buffers import Buffer
from olss.learn.model import Model, ParameterVector
from olss.learn.training import Examples, loss_of_rows
from olss.util import checks

__all__ = [
    "Distillation",
    "Ewc",
    "OnlineEwc",
    "Regularizer",
    "Si",
    "fisher_diagonal",
    "squared_mean_gradient",
    "stored_output_loss",
]

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (n, c) and the numbers of their rows, (n,) -> the loss of each row, (n,)."""


def fisher_diagonal(flat: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Mean over the rows of the squared gradient of each row's own loss.

    ``F_p = 1/n sum_i (d loss_i / d theta_p)^2``: the empirical Fisher diagonal, at the labels
    the data have (Kirkpatrick et al. 2017 and the code of GEM; Kunstner et al. 2019 on how it
    differs from labels drawn from the model). The net is taken in evaluation mode, so that a
    row's gradient depends on that row alone.

    Linear layers need no gradient of a single row: with inputs a_i and output gradients
    d_i, the squared gradient of a weight is the product of squares, so the sum is
    ``(d^2)' (a^2)``. Other nets go through `torch.func`: those with other layers, and those
    whose linear layers do more to a row than one product.
    """
    training = flat.net.training
    flat.net.eval()
    try:
        total = _linear(flat, x, row_loss) if _is_linear(flat, x[:2]) else None
        return (_general(flat, x, row_loss) if total is None else total) / len(x)
    finally:
        flat.net.train(training)
        flat.gradient.zero_()


def squared_mean_gradient(flat: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Square the gradient of the mean loss: what the published code of GEM takes for Fisher.

    Not the Fisher diagonal (gradients of opposite signs cancel before the square); here to
    compare with results that used it.
    """
    flat.gradient.zero_()
    losses = row_loss(flat.net(x), torch.arange(len(x), device=x.device))
    torch.autograd.backward(losses.mean())
    square = flat.gradient.square()
    flat.gradient.zero_()
    return square


def _is_linear(flat: ParameterVector, x: Tensor) -> bool:
    """Whether the way of linear layers is right for a net, tried on a few rows.

    A weight that is used outside its layer cannot be seen in the net, only in its gradient. The
    loss is a plain sum of the outputs, since that of a row learned well is mere rounding.
    """

    def weighted(outputs: Tensor, numbers: Tensor) -> Tensor:
        return outputs @ torch.arange(1, outputs.shape[1] + 1).to(outputs)

    found = _linear(flat, x, weighted)
    if found is None:
        return False
    expected = _row_by_row(flat, x, weighted)
    return all(
        bool((a - b).norm() <= 1e-3 * b.norm())  # far above rounding, far below a mistake
        for a, b in zip(flat.split(found), flat.split(expected), strict=True)
    )


def _linear(
    flat: ParameterVector, x: Tensor, row_loss: RowLoss, block: int = 1000
) -> Tensor | None:
    """Sum of squares if every parameter is a linear layer's, used once, on rows (n, k)."""
    total = torch.zeros_like(flat.theta)
    squares = dict(zip(map(id, flat.parameters), flat.split(total), strict=True))
    linears, owned = [], Counter[int]()
    for module in flat.net.modules():
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
            return out.clone()  # a layer in place would write over it

        hooks = [module.register_forward_hook(note, with_kwargs=True) for module in linears]
        try:
            outputs = flat.net(x[start : start + block])
        finally:
            for hook in hooks:
                hook.remove()
        once = Counter(module for module, _, _ in calls) == Counter(linears)
        if not once or any(a.dim() != 2 or len(a) != len(outputs) for _, a, _ in calls):
            return None
        numbers = torch.arange(start, start + len(outputs), device=x.device)
        loss = row_loss(outputs, numbers).sum()
        outs = [out for _, _, out in calls]
        deltas = torch.autograd.grad(loss, outs, allow_unused=True, materialize_grads=True)
        for (module, a, _), delta in zip(calls, deltas, strict=True):
            if id(module.weight) in squares:
                squares[id(module.weight)].addmm_(delta.square().T, a.square())
            if module.bias is not None and id(module.bias) in squares:
                squares[id(module.bias)].add_(delta.square().sum(0))
    return total


def _general(flat: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Sum of squares for any net; where torch has no gradients of rows in blocks, one by one."""
    try:
        return _in_blocks(flat, x, row_loss)
    except RuntimeError:  # layers that vmap does not know, such as recurrent ones
        return _row_by_row(flat, x, row_loss)


def _row_by_row(flat: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Sum of squares through a backward pass for each row."""
    total = torch.zeros_like(flat.theta)
    pieces = flat.split(total)
    for place, row in enumerate(torch.split(x, 1)):
        loss = row_loss(flat.net(row), torch.tensor([place], device=x.device)).sum()
        gradients = torch.autograd.grad(loss, flat.parameters, allow_unused=True)
        for piece, gradient in zip(pieces, gradients, strict=True):
            if gradient is not None:
                piece.add_(gradient.square())
    return total


def _in_blocks(flat: ParameterVector, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Sum of squares through gradients of single rows in blocks."""
    trainable = {name: p.detach() for name, p in flat.net.named_parameters() if p.requires_grad}
    fixed = {name: value.detach() for name, value in flat.buffers().items()}
    block = max(1, min(64, 2**25 // flat.theta.numel()))

    def loss(values: dict[str, Tensor], row: Tensor, number: Tensor) -> Tensor:
        outputs = torch.func.functional_call(flat.net, (values, fixed), (row[None],))
        return row_loss(outputs, number[None])[0]

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    total = torch.zeros_like(flat.theta)
    pieces = flat.split(total)
    for start in range(0, len(x), block):
        rows = x[start : start + block]
        numbers = torch.arange(start, start + len(rows), device=x.device)
        for piece, gradient in zip(
            pieces, gradients(trainable, rows, numbers).values(), strict=True
        ):
            piece.add_(gradient.square().sum(0))
    return total


class Regularizer:
    """Does nothing at each of the moments a penalty may act: the base of those that do.

    `state` names the tensors that live on from task to task. `weight` is what its term of the
    loss counts beside the labels of new rows, which count 1: all are averaged, so that a rate
    that suits the labels suits the whole.
    """

    state: dict[str, Tensor]
    weight = 1.0

    def start(self) -> None:
        """Begin a run."""
        self.state = {}

    def begin_task(self, model: Model) -> None:
        """Begin a task."""

    def loss(self, model: Model, outputs: Tensor, batch: Examples, replayed: int) -> Tensor | None:
        """Return a term for the loss of a step whose last `replayed` rows are from memory."""
        return None

    def gradient(self, flat: ParameterVector) -> Tensor | None:
        """Return what joins the gradient, asked for only where a step has no one length (Adam)."""
        return None

    def after_step(self, flat: ParameterVector, lr: float) -> None:
        """Act on the parameters after the optimiser's step with the loss's gradient.

        `lr` is how far a lasting gradient of 1 moves a parameter in a step: with momentum, more
        than the learning rate. 0: `gradient` was part of the step.
        """

    def end_task(self, model: Model, rows: Examples, memory: Buffer) -> None:
        """Learn from a task that was trained on `rows`; the memory holds what stays of it."""


class _Quadratic(Regularizer):
    """strength * sum_p [ F_p t_p^2 - 2 m_p t_p ]: quadratics around past values, merged.

    ``sum_j F_j (t - t_j)^2`` has this form with F = sum F_j and m = sum F_j t_j, up to a
    constant. It is minimised beside the loss by implicit (proximal) steps: after the
    optimiser's step, ``t <- argmin_x 1/2 |x - t|^2 + lr penalty(x)``, which is
    ``(t + c m) / (1 + c F)`` with ``c = 2 lr strength``. To first order in lr this is a step
    along the penalty's gradient; that one blows up where c F > 2, this one never does.
    Optimisers other than SGD take steps of another length for each parameter; for them the
    penalty's gradient joins that of the loss.
    """

    strength: float

    def begin_task(self, model: Model) -> None:
        """Forget the divisor of the task before."""
        self.divisor: tuple[float, Tensor] | None = None

    def gradient(self, flat: ParameterVector) -> Tensor | None:
        """Return the penalty's gradient."""
        if not self.state or self.strength == 0:
            return None
        return (self.state["F"] * flat.theta).sub_(self.state["m"]).mul_(2 * self.strength)

    def after_step(self, flat: ParameterVector, lr: float) -> None:
        """Pull the parameters towards where past tasks want them."""
        if not self.state or self.strength == 0 or lr == 0:
            return
        scale = 2 * lr * self.strength
        if self.divisor is None or self.divisor[0] != scale:
            self.divisor = scale, self.state["F"] * scale + 1
        flat.theta.add_(self.state["m"], alpha=scale).div_(self.divisor[1])

    def value(self, flat: ParameterVector) -> float:
        """Return the penalty up to a constant that does not depend on the parameters."""
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
        self.fisher = checks.choice("fisher", fisher, ("example", "mean"))
        self.strength = checks.number("ewc_strength", ewc_strength, minimum=0)
        self.fisher_rows = checks.integer("fisher_rows", fisher_rows)

    def information(self, model: Model, rows: Examples) -> Tensor:
        """Return the Fisher diagonal on some of the rows."""
        rng = model.seeds.rng("parts", model.tasks)
        chosen = rows.take(model.tensor(rng.permutation(len(rows))[: self.fisher_rows]))

        def row_loss(outputs: Tensor, numbers: Tensor) -> Tensor:
            outputs = model.mask.apply(outputs[:, : model.out], chosen.task[numbers])
            return loss_of_rows(model.kind, outputs, chosen.y[numbers])

        measure = fisher_diagonal if self.fisher == "example" else squared_mean_gradient
        return measure(model.params, model.inputs(chosen.X), row_loss)

    def end_task(self, model: Model, rows: Examples, memory: Buffer) -> None:
        """Add the task's quadratic."""
        F = self.information(model, rows)
        m = F * model.params.theta
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
        self.decay = checks.fraction("ewc_decay", ewc_decay)

    def end_task(self, model: Model, rows: Examples, memory: Buffer) -> None:
        """Fold the task into the running penalty."""
        F = self.information(model, rows)
        if self.state:
            F = F + self.decay * self.state["F"]
        self.state = {"F": F, "m": F * model.params.theta}


class Si(_Quadratic):
    """Synaptic intelligence (Zenke et al. 2017).

    Along a task, each parameter earns ``w_p = - sum g_p dt_p``: the part it had in lowering
    the task's own loss (g without the penalty). At its end the importance grows by
    ``max(0, w_p) / (D_p^2 + si_damping)``, D being the way from start to end, and the
    penalty is ``si_strength * sum_p F_p (t_p - t_p^end)^2``.
    """

    def __init__(self, si_strength: float = 1.0, si_damping: float = 0.1) -> None:
        self.strength = checks.number("si_strength", si_strength, minimum=0)
        self.damping = checks.number("si_damping", si_damping, above=0)

    def begin_task(self, model: Model) -> None:
        """Begin the path of a task."""
        self.origin = model.params.theta.clone()
        self.earned = torch.zeros_like(self.origin)
        self.before = self.origin.clone()
        super().begin_task(model)

    def after_step(self, flat: ParameterVector, lr: float) -> None:
        """Pull, then add what the whole step earned."""
        super().after_step(flat, lr)
        self.earned.addcmul_(flat.gradient, self.before.sub_(flat.theta))
        self.before.copy_(flat.theta)

    def end_task(self, model: Model, rows: Examples, memory: Buffer) -> None:
        """Turn what was earned into importance."""
        way = model.params.theta - self.origin
        F = self.earned.clamp(min=0) / (way.square() + self.damping)
        if self.state:
            F += self.state["F"]
        self.state = {"F": F, "m": F * model.params.theta}


class Distillation(Regularizer):
    """Stay near the outputs stored with remembered rows, as DER and DER++ (Buzzega et al. 2020).

    With replayed rows the loss is the mean of ``L(current)``, ``L(replayed)`` with weight beta
    and ``D(replayed)`` with weight alpha, all from one replayed batch (the paper's code draws
    two). Where remembered rows are part of the training set itself, their labels count like all
    others.

    The paper adds the three instead of averaging them, so that a step is up to twice as long as
    that of plain replay with the same rate, and takes squared distances as they are. Outputs
    grow as a net becomes sure; the curvature of the cross-entropy then falls, that of the
    squared distance stays: a rate that trains plainly may blow up. Hence the mean, and distances
    over the stored outputs' own spread.

    Parameters
    ----------
    alpha : float
        Weight of the distance to the stored outputs. `Loss.beta` weighs the replayed rows'
        labels; 0 is DER.
    distance : {"scaled", "squared"}
        Squared distances over the standard deviation of the stored outputs where that is above
        1, or as they are.
    """

    def __init__(self, alpha: float = 0.5, distance: str = "scaled") -> None:
        self.weight = checks.number("alpha", alpha, minimum=0)
        self.scaled = checks.choice("distance", distance, ("scaled", "squared")) == "scaled"

    def loss(self, model: Model, outputs: Tensor, batch: Examples, replayed: int) -> Tensor | None:
        """Return the distance."""
        if batch.outputs is None:
            return None
        distance = stored_output_loss(outputs, batch.outputs, replayed or len(batch))
        return distance / output_spread(batch.outputs).clamp(min=1) if self.scaled else distance

    def end_task(self, model: Model, rows: Examples, memory: Buffer) -> None:
        """Store what the net answers now to the rows that have no stored outputs yet."""
        memory.store_outputs(model.outputs)


def stored_output_loss(outputs: Tensor, stored: Tensor, rows: int) -> Tensor:
    """Return the squared distance to stored outputs.

    ``sum_i mean_c (z_ic - s_ic)^2 / rows`` over the rows i that have stored outputs (NaN marks
    those that have none) and all outputs c: those of classes to come too, which keeps new
    classes from taking over old rows.
    """
    known = ~stored[:, :1].isnan()
    return (outputs - stored).where(known, 0.0).square().mean(1).sum() / rows


def output_spread(stored: Tensor) -> Tensor:
    """Return the standard deviation of stored outputs around the mean of their row."""
    known = ~stored[:, :1].isnan()
    around = (stored - stored.mean(1, keepdim=True)).where(known, 0.0)
    return (around.square().mean(1).sum() / known.sum().clamp(min=1)).sqrt()
