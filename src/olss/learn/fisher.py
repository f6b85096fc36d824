"""The diagonal of the Fisher information, exactly, example by example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from olss.learn.parameter_vector import Flat

__all__ = ["fisher_diagonal", "squared_mean_gradient"]

RowLoss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (n, c) and the numbers of their rows, (n,) -> the loss of each row, (n,)."""


def fisher_diagonal(flat: Flat, x: Tensor, row_loss: RowLoss) -> Tensor:
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


def squared_mean_gradient(flat: Flat, x: Tensor, row_loss: RowLoss) -> Tensor:
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


def _is_linear(flat: Flat, x: Tensor) -> bool:
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


def _linear(flat: Flat, x: Tensor, row_loss: RowLoss, block: int = 1000) -> Tensor | None:
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


def _general(flat: Flat, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Sum of squares for any net; where torch has no gradients of rows in blocks, one by one."""
    try:
        return _in_blocks(flat, x, row_loss)
    except RuntimeError:  # layers that vmap does not know, such as recurrent ones
        return _row_by_row(flat, x, row_loss)


def _row_by_row(flat: Flat, x: Tensor, row_loss: RowLoss) -> Tensor:
    """Sum of squares through a backward pass for each row."""
    total = torch.zeros_like(flat.theta)
    pieces = flat.split(total)
    for number, row in enumerate(torch.split(x, 1)):
        loss = row_loss(flat.net(row), torch.tensor([number], device=x.device)).sum()
        gradients = torch.autograd.grad(loss, flat.parameters, allow_unused=True)
        for piece, gradient in zip(pieces, gradients, strict=True):
            if gradient is not None:
                piece.add_(gradient.square())
    return total


def _in_blocks(flat: Flat, x: Tensor, row_loss: RowLoss) -> Tensor:
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
