import pytest
import torch
from torch import nn

from olss.errors import InputError
from olss.learn.model import Flat
from olss.learn.nets import mlp, resnet18


def test_parameters_and_gradients_are_views_of_the_vectors():
    net = mlp(5, 3, (4,))
    expected = [p.detach().clone() for p in net.parameters()]
    flat = Flat(net)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), expected, strict=True))
    x = torch.rand(6, 5)
    net(x).square().sum().backward()
    by_hand = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    torch.testing.assert_close(flat.gradient, torch.cat([g.flatten() for g in by_hand]))
    flat.theta.zero_()
    assert all((p == 0).all() for p in net.parameters())


def test_an_optimiser_on_the_vector_steps_the_net():
    net = mlp(5, 3, (4,))
    flat = Flat(net)
    before = flat.theta.clone()
    net(torch.rand(6, 5)).sum().backward()
    torch.optim.SGD([flat.theta], lr=0.5).step()
    torch.testing.assert_close(flat.theta, before - 0.5 * flat.gradient)
    assert net[1].weight.data_ptr() == flat.theta.data_ptr()


def test_state_holds_running_means_and_comes_back():
    net = resnet18(3, 5, 4)
    flat = Flat(net)
    first = flat.state()
    net.train()(torch.rand(4, 3, 8, 8)).sum().backward()
    flat.theta.add_(1)
    assert not torch.equal(net[1].running_mean, first["buffer.1.running_mean"])
    flat.load(first)
    assert torch.equal(net[1].running_mean, first["buffer.1.running_mean"])
    assert torch.equal(flat.theta, first["theta"])


def test_frozen_parameters_stay_out():
    net = mlp(5, 3, (4,))
    net[1].weight.requires_grad_(False)
    flat = Flat(net)
    assert flat.theta.numel() == 4 + 12 + 3
    assert "buffer.1.weight" in flat.state()


def test_nothing_to_train_or_mixed_precision_is_refused():
    with pytest.raises(InputError, match="no trainable parameter"):
        Flat(nn.ReLU())
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(InputError, match=r"torch\.float32, torch\.float64"):
        Flat(mixed)
