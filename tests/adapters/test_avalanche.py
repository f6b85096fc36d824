"""Against avalanche-lib itself, where it can be imported (see also conftest.py)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from olss.memory.policies import POLICIES
from olss.sketch import Sketch
from olss.streams import permuted

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        from avalanche.benchmarks import tensors_benchmark
        from avalanche.training.plugins import ReplayPlugin
        from avalanche.training.supervised import Naive

        from olss.adapters.avalanche import SketchBuffer
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"avalanche-lib cannot be imported: {error}", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")
STREAM = permuted("digits", tasks=3, train_rows=300, seed=0)


def tensors(X, y):
    return torch.from_numpy(X.reshape(len(X), -1) / np.float32(STREAM.scale)), torch.from_numpy(y)


@pytest.fixture(scope="module")
def scenario():
    return tensors_benchmark(
        train_tensors=[tensors(task.X, task.y) for task in STREAM],
        test_tensors=[tensors(task.X_test, task.y_test) for task in STREAM],
        task_labels=[0, 0, 0],
        complete_test_set_only=False,
    )


def trained(scenario, buffer):
    """Train a small net on all experiences, and give its accuracy on the first."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    plugins = [ReplayPlugin(mem_size=90, storage_policy=buffer)] if buffer else []
    strategy = Naive(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.2),
        criterion=torch.nn.CrossEntropyLoss(),
        train_mb_size=20,
        train_epochs=6,
        plugins=plugins,
        evaluator=None,
    )
    for experience in scenario.train_stream:
        strategy.train(experience)
    X, y = tensors(STREAM[0].X_test, STREAM[0].y_test)
    return (net(X).argmax(dim=1) == y).float().mean().item()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_buffer_holds_the_rows_of_the_sketch(scenario, policy):
    buffer = SketchBuffer(90, policy, seed=1)
    sketch = Sketch(90, policy, seed=1)
    for number, experience in enumerate(scenario.train_stream):
        buffer.post_adapt(None, experience)
        sketch.update(*tensors(STREAM[number].X, STREAM[number].y), task=number)
        np.testing.assert_array_equal(buffer.sketch.index, sketch.index)
        assert len(buffer.buffer) == 90
        for i in (0, 17, 89):
            x, y = buffer.buffer[i][:2]
            assert torch.equal(x, sketch.X[i])
            assert int(y) == int(sketch.y[i])


def test_replay_from_it_keeps_the_first_experience(scenario):
    with_buffer = trained(scenario, SketchBuffer(90, seed=0))
    without = trained(scenario, None)
    assert with_buffer > without + 0.1


def test_resize(scenario):
    buffer = SketchBuffer(60, "weighted", seed=0)
    for experience in scenario.train_stream:
        buffer.post_adapt(None, experience)
    before = set(buffer.sketch.index.tolist())
    buffer.resize(None, 25)
    assert len(buffer.buffer) == len(buffer.sketch) == buffer.max_size == 25
    assert set(buffer.sketch.index.tolist()) < before
    for i in range(25):
        assert torch.equal(buffer.buffer[i][0], buffer.sketch.X[i])
    buffer.resize(None, 40)
    buffer.post_adapt(None, scenario.train_stream[0])
    assert len(buffer.buffer) == 40


def test_resized_again_and_again_the_weights_are_right_on_average(scenario):
    totals = []
    for seed in range(30):
        buffer = SketchBuffer(60, "weighted", seed=seed)
        buffer.post_adapt(None, scenario.train_stream[0])
        buffer.resize(None, 30)
        totals.append(buffer.sketch.weight.sum())
    assert abs(np.mean(totals) - 300) < 4 * np.std(totals) / np.sqrt(30)
