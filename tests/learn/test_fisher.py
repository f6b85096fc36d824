import pytest
import torch
from torch import nn
from torch.nn import functional

from olss.learn.model import Flat
from olss.learn.nets import mlp, resnet18
from olss.learn.regularizers import fisher_diagonal, squared_mean_gradient


class Shared(nn.Module):
    """The same linear layer twice: its gradients add up within a row."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Tokens(nn.Module):
    """A linear layer on a sequence: its gradient sums over places within a row."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 5)
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(x.view(len(x), 2, 3))).sum(1))


class Patches(Tokens):
    """Places of a row as rows of their own."""

    def forward(self, x):
        return self.last(torch.tanh(self.inner(x.view(-1, 3))).view(len(x), 2, 5).sum(1))


class Tied(nn.Module):
    """Two linear layers with one weight."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.after = nn.Linear(6, 6)
        self.after.weight = self.inner.weight
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.after(torch.tanh(self.inner(x)))))


class Functional(Shared):
    """A layer's weight used once more, outside the layer."""

    def forward(self, x):
        return self.last(functional.linear(torch.tanh(self.inner(x)), self.inner.weight))


class Unused(Shared):
    """A layer whose output goes nowhere."""

    def forward(self, x):
        self.inner(x)
        return self.last(x)


class Named(Shared):
    """A layer that is given its input by name."""

    def forward(self, x):
        return self.last(input=torch.tanh(self.inner(input=x)))


class Recurrent(nn.Module):
    """A layer of which torch has no gradients of many rows at once."""

    def __init__(self):
        super().__init__()
        self.inner = nn.GRU(3, 5, batch_first=True)
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.inner(x)[0][:, -1])


def in_place():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3))


NETS = {
    "mlp": (lambda: mlp(6, 3, (5, 4)), (6,)),
    "no bias": (lambda: nn.Linear(6, 3, bias=False), (6,)),
    "shared": (Shared, (6,)),
    "tokens": (Tokens, (6,)),
    "patches": (Patches, (6,)),
    "tied": (Tied, (6,)),
    "functional": (Functional, (6,)),
    "unused": (Unused, (6,)),
    "named": (Named, (6,)),
    "in place": (in_place, (6,)),
    "recurrent": (Recurrent, (4, 3)),
    "resnet": (lambda: resnet18(3, 3, 2), (3, 8, 8)),
}


def one_by_one(flat, x, row_loss):
    """The definition: a backward pass for each row."""
    flat.net.eval()
    total = torch.zeros_like(flat.theta)
    for i in range(len(x)):
        flat.gradient.zero_()
        row_loss(flat.net(x[i : i + 1]), torch.tensor([i])).sum().backward()
        total += flat.gradient.square()
    flat.gradient.zero_()
    return total / len(x)


@pytest.mark.parametrize("name", NETS)
def test_fisher_is_the_mean_of_squared_gradients_of_single_rows(name):
    make, shape = NETS[name]
    torch.manual_seed(0)
    flat = Flat(make())
    x, y = torch.randn(70, *shape), torch.randint(3, (70,))

    def row_loss(outputs, numbers):
        return functional.cross_entropy(outputs, y[numbers], reduction="none")

    expected = one_by_one(flat, x, row_loss)
    flat.net.train()
    found = fisher_diagonal(flat, x, row_loss)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-9)
    assert flat.net.training
    assert (flat.gradient == 0).all()
    # Not the square of the mean gradient, which is what a common mistake computes.
    flat.net.eval()
    mistaken = squared_mean_gradient(flat, x, row_loss)
    assert found.sum() > 3 * mistaken.sum()


def test_built_in_layers_keep_the_quick_way(monkeypatch):
    monkeypatch.setattr("olss.learn.regularizers._general", None)
    torch.manual_seed(0)
    for flat in (Flat(mlp(6, 3, (5, 4))), Flat(in_place())):
        # Rows learned so well that the gradient of their loss is mere rounding.
        found = fisher_diagonal(
            flat,
            torch.randn(9, 6),
            lambda outputs, numbers: functional.cross_entropy(
                100 * outputs, outputs.argmax(1), reduction="none"
            ),
        )
        assert found.isfinite().all()


def test_rows_beyond_a_block_count_too():
    flat = Flat(mlp(2, 2, ()))
    x = torch.randn(2500, 2)

    def row_loss(outputs, numbers):
        return outputs[:, 0] * (numbers >= 1000)

    found = flat.split(fisher_diagonal(flat, x, row_loss))[0][0]
    torch.testing.assert_close(found, x[1000:].square().sum(0) / 2500, rtol=1e-4, atol=0)


def test_a_frozen_layer_has_no_place_in_the_result():
    net = mlp(6, 3, (5,))
    net[1].requires_grad_(False)
    flat = Flat(net)
    x = torch.randn(10, 6)

    def row_loss(outputs, numbers):
        return outputs.square().sum(1)

    torch.testing.assert_close(
        fisher_diagonal(flat, x, row_loss), one_by_one(flat, x, row_loss), rtol=1e-4, atol=1e-7
    )
