"""Nets: the paper's two, any other by an `nn.Module`, and what is asked of every net."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from olss.errors import InputError
from olss.learn.components import imported

__all__ = [
    "Net", "build", "check_net", "describe", "is_named", "last_linear", "mlp", "penultimate",
    "resnet18", "stages",
]  # fmt: skip

Net = str | nn.Module | Callable[[], nn.Module]

NAMES = (
    "'mlp' (two layers of 400), 'mlp-100-100' (any widths), 'resnet18', 'resnet18-64' (its maps), "
    "an nn.Module, a function that makes one, or its name as 'module:Name'"
)


def mlp(inputs: int, outputs: int, widths: Sequence[int] = (400, 400)) -> nn.Module:
    """Rectified linear layers, Xavier-uniform weights and zero biases.

    Examples
    --------
    >>> sum(p.numel() for p in mlp(784, 10, (100, 100)).parameters())
    89610
    """
    layers: list[nn.Module] = [nn.Flatten()]
    sizes = [inputs, *widths, outputs]
    for before, after in pairwise(sizes):
        linear = nn.Linear(before, after)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def resnet18(channels: int, outputs: int, maps: int = 20) -> nn.Module:
    """ResNet-18 for small images (He et al. 2016); 20 maps are three times fewer than its 64.

    Examples
    --------
    >>> sum(p.numel() for p in resnet18(3, 100).parameters())
    1109240
    """
    blocks: list[nn.Module] = []
    width = maps
    for stage in range(4):
        for stride in (1 if stage == 0 else 2, 1):
            blocks.append(_Block(width, maps * 2**stage, stride))
            width = maps * 2**stage
    return nn.Sequential(
        _conv(channels, maps, 1),
        nn.BatchNorm2d(maps),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, outputs),
    )


class _Block(nn.Module):
    """Two 3x3 convolutions and a short cut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(_conv(inputs, outputs, stride), nn.BatchNorm2d(outputs))
        self.second = nn.Sequential(_conv(outputs, outputs, 1), nn.BatchNorm2d(outputs))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            narrow = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.second(torch.relu(self.first(x)))
        return torch.relu(inner + self.shortcut(x))


def _conv(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def build(net: Net, shape: Sequence[int], outputs: int, seed: int) -> nn.Module:
    """Make a net for rows of `shape`; its first weights come from `seed` alone.

    A module is copied with the weights it has, so a pretrained net stays pretrained; a
    function is called under the seed. The global generator is left as it was.
    """
    if isinstance(net, nn.Module):
        return copy.deepcopy(net)
    if isinstance(net, str) and ":" in net:
        net = imported("net", net)
    if not isinstance(net, str):
        return _made(net, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kind, numbers = _parse(net)
        if kind == "mlp":
            return mlp(math.prod(shape), outputs, numbers or (400, 400))
        if len(shape) == 2:
            return nn.Sequential(nn.Unflatten(1, (1, shape[0])), resnet18(1, outputs, *numbers))
        if len(shape) != 3:
            raise InputError(
                f"net {net!r} takes images of shape (channels, height, width), found rows of "
                f"shape {tuple(shape)}."
            )
        return resnet18(shape[0], outputs, *numbers)


def _made(net: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return what a function makes under a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = net()
    if not isinstance(made, nn.Module):
        raise InputError(f"net must make an nn.Module, found {type(made).__name__}.")
    return made


def check_net(net: Net) -> None:
    """Raise unless it is a net, or says how to make one."""
    if isinstance(net, str):
        if ":" in net:
            imported("net", net)
        else:
            _parse(net)
    elif not callable(net):  # as a module is
        raise InputError(f"net must be {NAMES}; found {net!r}.")


def is_named(net: Net) -> bool:
    """Whether a net is one of those made here."""
    return isinstance(net, str) and ":" not in net


def describe(net: Net) -> Any:
    """Say in JSON which net it is; layers of one's own are told apart by what they print.

    Examples
    --------
    >>> describe("mlp-100")
    'mlp-100'
    >>> describe(lambda: nn.Linear(4, 3))
    {'function': '<lambda>', 'module': 'Linear', 'parameters': 15, 'layers': '120e3c709e2b'}
    """
    check_net(net)
    if isinstance(net, str):
        return net
    if isinstance(net, nn.Module):
        size = sum(p.numel() for p in net.parameters())
        layers = hashlib.sha256(str(net).encode()).hexdigest()[:12]
        return {"module": type(net).__qualname__, "parameters": size, "layers": layers}
    name = getattr(net, "__qualname__", type(net).__qualname__)
    return {"function": name, **describe(_made(net, 0))}


def _parse(name: str) -> tuple[str, tuple[int, ...]]:
    kind, *rest = name.split("-")
    numbers = tuple(int(part) for part in rest if part.isdecimal())
    fits = len(numbers) == len(rest) and 0 not in numbers
    if kind == "mlp" and fits:
        return kind, numbers
    if kind == "resnet18" and fits and len(numbers) <= 1:
        return kind, numbers
    raise InputError(f"net must be {NAMES}; found {name!r}.")


def last_linear(
    net: nn.Module, ask: Callable[[Tensor], Tensor], x: Tensor
) -> tuple[nn.Linear, Tensor, Tensor, Tensor]:
    """Find the layer that answers: the `nn.Linear` that is called last.

    Returns
    -------
    The layer, what goes into it, what comes of it, and what `ask` makes of the net.
    """
    caught: list[tuple[nn.Linear, Tensor, Tensor]] = []

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        assert isinstance(module, nn.Linear)
        caught[:] = [(module, inputs[0], output)]

    linears = [module for module in net.modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_hook(note) for module in linears]
    try:
        outputs = ask(x)
    finally:
        for hook in hooks:
            hook.remove()
    if not caught:
        raise InputError("The net has no nn.Linear layer, so it has no penultimate features.")
    return *caught[0], outputs


def penultimate(
    net: nn.Module, ask: Callable[[Tensor], Tensor], x: Tensor
) -> tuple[Tensor, Tensor]:
    """Return what goes into the last linear layer, (n, k), and what `ask` makes of the net."""
    _, hidden, _, outputs = last_linear(net, ask, x)
    return hidden.flatten(1), outputs


def stages(net: nn.Module, ask: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the last stages of a net see, (n, k), and what `ask` makes of the net.

    That is what goes into the last linear layer and, of a net of convolutions, its last maps in
    each of the two smallest sizes, averaged over 2 x 2 cells; each of the three has length one.
    """
    maps: dict[torch.Size, Tensor] = {}

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 4 and min(output.shape[2:]) > 1:
            maps.pop(output.shape[2:], None)  # sizes are in the order of their last maps
            maps[output.shape[2:]] = output

    hooks = [module.register_forward_hook(note) for module in net.modules()]
    try:
        hidden, outputs = penultimate(net, ask, x)
    finally:
        for hook in hooks:
            hook.remove()
    cells = [functional.adaptive_avg_pool2d(m.float(), 2) for m in list(maps.values())[-2:]]
    parts = [functional.normalize(part.flatten(1).float()) for part in (hidden, *cells)]
    return torch.cat(parts, 1), outputs
