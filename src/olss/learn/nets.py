"""Nets: the paper's two and custom ones, their layers' features, their parameters as one vector."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from olss.errors import InputError

__all__ = ["mlp", "resnet18"]

Net = str | nn.Module | Callable[[], nn.Module]
Forward = Callable[[Tensor], Tensor]

NAMES = (
    "'mlp' (two layers of 400), 'mlp-100-100' (any widths), 'resnet18', 'resnet18-64' (its maps), "
    "an nn.Module, a function that returns one, or the name of either as 'module:Name'"
)


def mlp(inputs: int, outputs: int, widths: Sequence[int] = (400, 400)) -> nn.Module:
    """Return rectified linear layers with Xavier-uniform weights and zero biases.

    Examples
    --------
    >>> sum(p.numel() for p in mlp(784, 10, (100, 100)).parameters())
    89610
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise([inputs, *widths, outputs]):
        linear = nn.Linear(before, after)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def resnet18(channels: int, outputs: int, maps: int = 20) -> nn.Module:
    """Return a ResNet-18 for small images (He et al. 2016); it has 64 maps there, 20 here.

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
    """Two 3x3 convolutions and a shortcut around them."""

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


def build_net(net: Net, shape: Sequence[int], outputs: int, seed: int) -> nn.Module:
    """Build a net for rows of `shape` with initial weights that depend on `seed` alone.

    A module is copied with the weights it has, so a pretrained net stays pretrained; a function
    is called under the seed. The global generator is not changed.
    """
    if isinstance(net, nn.Module):
        return copy.deepcopy(net)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not isinstance(net, str):
            made = net()
            if not isinstance(made, nn.Module):
                raise InputError(f"net must return an nn.Module, found {type(made).__name__}.")
            return made
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


def check_net(net: Net) -> None:
    """Raise unless `net` names a net, is one, or is a function that returns one."""
    if isinstance(net, str):
        _parse(net)
    elif not callable(net):  # modules are callable
        raise InputError(f"net must be {NAMES}; found {net!r}.")


def describe_net(net: Net) -> Any:
    """Return what identifies a net as JSON; custom layers are identified by their printed form.

    Examples
    --------
    >>> describe_net("mlp-100")
    'mlp-100'
    >>> describe_net(lambda: nn.Linear(4, 3))
    {'function': '<lambda>', 'module': 'Linear', 'parameters': 15, 'layers': '120e3c709e2b'}
    """
    if isinstance(net, str):
        return net
    if isinstance(net, nn.Module):
        size = sum(p.numel() for p in net.parameters())
        layers = hashlib.sha256(str(net).encode()).hexdigest()[:12]
        return {"module": type(net).__qualname__, "parameters": size, "layers": layers}
    name = getattr(net, "__qualname__", type(net).__qualname__)
    return {"function": name, **describe_net(build_net(net, (), 0, 0))}


def _parse(name: str) -> tuple[str, tuple[int, ...]]:
    kind, *rest = name.split("-")
    numbers = tuple(int(part) for part in rest if part.isdecimal())
    fits = len(numbers) == len(rest) and 0 not in numbers
    if fits and (kind == "mlp" or (kind == "resnet18" and len(numbers) <= 1)):
        return kind, numbers
    raise InputError(f"net must be {NAMES}; found {name!r}.")


@contextmanager
def forward_hooks(modules: Iterable[nn.Module], hook: Callable[..., Any], **options: Any) -> Any:
    """Call `hook` whenever one of the modules is called inside the block."""
    handles = [module.register_forward_hook(hook, **options) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def penultimate_features(net: nn.Module, forward: Forward, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the input of the `nn.Linear` called last, (n, k), and ``forward(x)``."""
    hidden: list[Tensor] = []

    def note(_module: nn.Module, inputs: Any, _output: Tensor) -> None:
        hidden[:] = inputs

    with forward_hooks((m for m in net.modules() if isinstance(m, nn.Linear)), note):
        outputs = forward(x)
    if not hidden:
        raise InputError("The net has no nn.Linear layer, so it has no penultimate features.")
    return hidden[0].flatten(1), outputs


def stage_features(net: nn.Module, forward: Forward, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the features of the last stages of a net, (n, k), and ``forward(x)``.

    These are the input of the last linear layer and, in a convolutional net, the last maps of each
    of the two smallest sizes, averaged over 2 x 2 cells; each of the three is scaled to length one.
    """
    maps: dict[torch.Size, Tensor] = {}

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 4 and min(output.shape[2:]) > 1:
            maps.pop(output.shape[2:], None)  # keeps sizes in the order of their last maps
            maps[output.shape[2:]] = output

    with forward_hooks(net.modules(), note):
        hidden, outputs = penultimate_features(net, forward, x)
    cells = [functional.adaptive_avg_pool2d(m.float(), 2) for m in list(maps.values())[-2:]]
    parts = [functional.normalize(part.flatten(1).float()) for part in (hidden, *cells)]
    return torch.cat(parts, 1), outputs


class ParameterVector:
    """The trainable parameters of a net as one vector `theta`, their gradients as `gradient`.

    The net's parameters and their ``.grad`` are views into the two vectors: changing either side
    changes the other, and a step copies nothing. `channels_last` makes convolutions fastest, but
    rules out views of their outputs such as ``x.view(len(x), -1)``.
    """

    def __init__(self, net: nn.Module, channels_last: bool = False) -> None:
        self.net = net
        self.parameters = [p for p in net.parameters() if p.requires_grad]
        if not self.parameters:
            raise InputError("The net has no trainable parameter.")
        kinds = {str(p.dtype) for p in self.parameters}
        if len(kinds) > 1:
            raise InputError(f"The net mixes parameters of {', '.join(sorted(kinds))}; use one.")
        self.strides = [
            p.detach().contiguous(memory_format=torch.channels_last).stride()
            if channels_last and p.dim() == 4
            else p.detach().contiguous().stride()
            for p in self.parameters
        ]
        self.theta = torch.empty_like(torch.cat([p.detach().flatten() for p in self.parameters]))
        self.gradient = torch.zeros_like(self.theta)
        for p, value, grad in zip(
            self.parameters, self.split(self.theta), self.split(self.gradient), strict=True
        ):
            p.data = value.copy_(p.detach())
            p.grad = grad
        self.theta.grad = self.gradient

    def split(self, vector: Tensor) -> list[Tensor]:
        """View a vector as tensors of the parameters' shapes."""
        pieces = torch.split(vector, [p.numel() for p in self.parameters])
        return [
            piece.as_strided(p.shape, stride)
            for piece, p, stride in zip(pieces, self.parameters, self.strides, strict=True)
        ]

    def tensors(self) -> dict[str, Tensor]:
        """Return everything the net holds: `theta`, and what is not trained, by name."""
        tensors = {"theta": self.theta}
        for name, value in (*self.net.named_parameters(), *self.net.named_buffers()):
            if not value.requires_grad:
                tensors[f"buffer.{name}"] = value.detach()
        return tensors

    def state(self) -> dict[str, Tensor]:
        """Copy everything the net holds."""
        return {name: value.clone() for name, value in self.tensors().items()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned, in place."""
        for name, value in self.tensors().items():
            value.copy_(state[name])


class WeightAverage:
    """The average of a net's weights over the last training steps (Polyak & Juditsky 1992).

    At a constant rate the weights keep moving around what they learn, and the last layer towards
    the classes of the last few steps. Their average predicts; training continues from the weights.
    Over the first `steps` steps it is plain, then exponential: a step counts ``1 / steps``. The
    net's buffers, such as running means, are averaged alike.
    """

    def __init__(self, params: ParameterVector, steps: int) -> None:
        self.params, self.steps = params, steps
        self.state: dict[str, Tensor] = {}

    def begin_task(self, restart: bool = False) -> None:
        """Load the weights training continues from; `restart`: begin with those in the net."""
        if not self.steps:
            return
        self.mean, self.count = self.params.state(), 0
        if self.state and not restart:
            self.count = int(self.state["steps"])
            self.params.load(self.state)

    def after_step(self) -> None:
        """Add the weights of a step to the average."""
        if not self.steps:
            return
        self.count = min(self.count + 1, self.steps)
        for name, value in self.params.tensors().items():
            if value.is_floating_point():
                self.mean[name].lerp_(value, 1 / self.count)
            else:
                self.mean[name].copy_(value)

    def end_task(self) -> None:
        """Load the average into the net, and keep the weights of training for the next task."""
        if self.steps:
            self.state = {**self.params.state(), "steps": torch.tensor(self.count)}
            self.params.load(self.mean)
