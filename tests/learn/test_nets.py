import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from olss.errors import InputError
from olss.learn.nets import (
    build_net,
    check_net,
    describe_net,
    mlp,
    penultimate_features,
    resnet18,
    stage_features,
)


def size(net):
    return sum(p.numel() for p in net.parameters())


def test_the_nets_of_the_papers_have_their_sizes():
    assert size(mlp(784, 10, (100, 100))) == 89_610
    assert size(build_net("mlp", (28, 28), 10, 0)) == 784 * 400 + 400 + 400 * 400 + 400 + 4010
    assert size(resnet18(3, 100)) == 1_109_240


def test_resnet_answers_for_images_with_and_without_channels():
    x = torch.rand(2, 3, 32, 32)
    assert build_net("resnet18", (3, 32, 32), 7, 0).eval()(x).shape == (2, 7)
    assert build_net("resnet18-8", (28, 28), 10, 0).eval()(torch.rand(2, 28, 28)).shape == (2, 10)


def test_mlp_weights_are_xavier_uniform_with_zero_bias():
    first = mlp(300, 10, (200,))[1]
    limit = (6 / 500) ** 0.5
    assert first.weight.abs().max() <= limit
    # The standard deviation of 60,000 uniform draws has a relative error of 0.2%.
    assert first.weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.02)
    assert (first.bias == 0).all()


@pytest.mark.parametrize("net", ["mlp-20", "resnet18-4", lambda: nn.Linear(4, 3)])
def test_first_weights_come_from_the_seed_and_leave_the_global_generator_alone(net):
    before = torch.random.get_rng_state()
    shape = (3, 8, 8)
    a, b, c = (build_net(net, shape, 3, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    first = [next(made.parameters()) for made in (a, b, c)]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_a_module_keeps_its_weights_and_is_not_touched():
    own = nn.Linear(4, 3)
    made = build_net(own, (4,), 3, 0)
    assert torch.equal(made.weight, own.weight)
    assert made.weight.data_ptr() != own.weight.data_ptr()


@pytest.mark.parametrize("name", ["mpl", "mlp-", "mlp-0", "mlp-a", "resnet18-1-2", "resnet50"])
def test_a_misspelt_net_names_those_there_are(name):
    with pytest.raises(InputError, match="net must be"):
        check_net(name)


def test_resnet_refuses_rows_that_are_no_images():
    with pytest.raises(InputError, match=r"channels, height, width.*found rows of shape \(5,\)"):
        build_net("resnet18", (5,), 3, 0)


def test_a_function_must_make_a_module():
    with pytest.raises(InputError, match=r"net must return.*found int"):
        build_net(lambda: 3, (5,), 3, 0)


def test_nets_of_ones_own_are_told_apart_by_their_layers():
    """Reports average runs whose nets are described alike."""
    wide, deep = (lambda: mlp(4, 3, (6,))), (lambda: mlp(4, 3, (2, 4)))
    nets = wide, deep, wide(), deep()
    before = torch.random.get_rng_state()
    told = [describe_net(net) for net in nets]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert len({str(one) for one in told}) == 4
    assert told[0] == describe_net(wide)
    relu, tanh = (nn.Sequential(nn.Linear(4, 3), kind()) for kind in (nn.ReLU, nn.Tanh))
    assert describe_net(relu) != describe_net(tanh)


def test_penultimate_features_are_what_goes_into_the_last_layer():
    net = mlp(6, 3, (5, 4))
    x = torch.rand(7, 6)
    features, outputs = penultimate_features(net, net, x)
    assert torch.equal(features, net[:-1](x))
    assert torch.equal(outputs, net(x))
    assert not net[-1]._forward_pre_hooks


def test_stages_are_the_last_layer_s_features_and_the_last_maps_of_two_sizes_in_cells():
    torch.manual_seed(0)
    net = resnet18(3, 5, 4).eval()
    x = torch.rand(2, 3, 16, 16)
    features, outputs = stage_features(net, net, x)
    # Stem, then eight blocks: maps of 16, 16, 8, 8, 4, 4, 2, 2 pixels.
    of_4, of_2 = net[:9](x), net[:11](x)
    cells = of_4.reshape(2, 16, 2, 2, 2, 2).mean((3, 5)).flatten(1), of_2.flatten(1)
    expected = [of_2.mean((2, 3)), cells[0], cells[1]]
    unit = [part / part.norm(dim=1, keepdim=True) for part in expected]
    torch.testing.assert_close(features, torch.cat(unit, 1))
    torch.testing.assert_close(outputs, net(x))
    assert not any(module._forward_hooks for module in net.modules())


def test_stages_of_a_net_without_maps_are_the_last_layer_s_features():
    net = mlp(6, 3, (5, 4))
    x = torch.rand(7, 6)
    torch.testing.assert_close(stage_features(net, net, x)[0], normalize(net[:-1](x)))


def test_a_net_without_a_linear_layer_has_no_features():
    net = nn.Conv2d(1, 1, 3)
    with pytest.raises(InputError, match=r"no nn\.Linear"):
        penultimate_features(net, net, torch.rand(1, 1, 5, 5))


class Two(nn.Module):
    """The same net whichever of its layers is made first."""

    def __init__(self, out_first, end=None):
        super().__init__()
        for name in ("out", "body") if out_first else ("body", "out"):
            setattr(self, name, nn.Linear(4, 3) if name == "out" else nn.Linear(6, 4))
        self.end = end or nn.Identity()

    def forward(self, x):
        return self.end(self.out(torch.relu(self.body(x))))


@pytest.mark.parametrize("out_first", [True, False])
def test_the_last_layer_is_the_one_called_last(out_first):
    net, x = Two(out_first), torch.randn(5, 6)
    hidden, outputs = penultimate_features(net, net, x)
    torch.testing.assert_close(hidden, torch.relu(net.body(x)))
    torch.testing.assert_close(outputs, net(x))
