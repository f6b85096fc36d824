import numpy as np
import pytest
import quadprog
import torch

from olss.learn import recipe
from olss.learn.losses import row_losses
from olss.learn.regularizers import gem_multipliers, project_agem, project_gem

from .tasks import stream


def problem(seed, tasks, size):
    rng = np.random.default_rng(seed)
    common = rng.standard_normal(size)
    G = rng.standard_normal((tasks, size)) + 0.5 * common
    g = -common + rng.standard_normal(size)
    return torch.tensor(g, dtype=torch.float32), torch.tensor(G, dtype=torch.float32)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_the_multipliers_are_those_of_a_qp_solver(seed, margin):
    g, G = problem(seed, tasks=1 + seed, size=60)
    G, g = G.double(), g.double()
    gram, dots = (G @ G.T).numpy(), (G @ g).numpy()
    P = gram + 1e-3 * np.eye(len(gram))
    eye = np.eye(len(gram))
    expected = quadprog.solve_qp(P, -dots, eye, np.full(len(gram), margin))[0]
    np.testing.assert_allclose(gem_multipliers(gram, dots, margin), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("size", [60, 10_000])
def test_the_projected_gradient_opposes_no_past_task(seed, size):
    g, G = problem(seed, tasks=8, size=size)
    assert (G @ g < 0).any()
    new = project_gem(g, G, margin=0.0)
    # The ridge of 1e-3 lets a product be that much times the multiplier below zero.
    slack = 1e-3 * 10 + 1e-4 * float(G.norm() * new.norm())
    assert (G @ new >= -slack).all()


def test_gem_is_the_nearest_gradient_that_opposes_nothing():
    g, G = problem(3, tasks=5, size=40)
    new = project_gem(g, G, margin=0.0)
    x = quadprog.solve_qp(np.eye(40), g.double().numpy(), G.T.double().numpy(), np.zeros(5))[0]
    np.testing.assert_allclose(new.numpy(), x, atol=2e-3)


def test_gem_never_changes_a_gradient_that_violates_nothing():
    g, G = problem(0, tasks=4, size=50)
    assert project_gem(g, torch.stack([g, 2 * g, g + 0.01 * G[0]]), 0.5) is g


def test_gem_with_parallel_and_zero_gradients_has_a_solution():
    g, G = problem(1, tasks=2, size=50)
    singular = torch.stack([-g, -g, torch.zeros_like(g), 1e4 * G[0]])
    assert project_gem(g, singular, 0.5).isfinite().all()


def test_agem_by_hand_and_only_in_conflict():
    g, r = torch.tensor([1.0, -1.0]), torch.tensor([0.0, 2.0])
    assert project_agem(g, r).tolist() == [1.0, 0.0]
    assert project_agem(-g, r) is not r
    assert project_agem(-g, r).tolist() == [-1.0, 1.0]


def step(name, **settings):
    """Learn a task, then take one step of another; give the change and the learner."""
    first, second = stream(2)
    learner = recipe(name, net="mlp-16", batch=120, lr=0.1, **settings)
    learner.fit_task(first)
    before = learner.model.params.theta.clone()
    learner.fit_task(second)
    return (before - learner.model.params.theta) / 0.1, learner


def test_gems_memory_is_a_constraint_and_not_replayed():
    # The step is g + G'v for the gradients of the two tasks, v being 0 or the solution.
    sgd, _ = step("sgd")
    gem, learner = step("gem", gem_rows=32)
    assert learner.buffer.count_by_task(2) == [32, 32]
    again = recipe("sgd", net="mlp-16", batch=120, lr=0.1)
    again.fit_task(stream(1)[0])
    again.model.params.gradient.zero_()
    past = learner.buffer.held.take((learner.buffer.held.task == 0).nonzero().flatten())
    again.model.mask.begin_task(torch.arange(3))
    row_losses("cross-entropy", again.model.net(past.X), past.y).mean().backward()
    expected = project_gem(sgd, again.model.params.gradient[None], 0.5)
    torch.testing.assert_close(gem, expected, rtol=1e-3, atol=1e-5)


def test_agem_draws_from_all_past_tasks_only():
    learner = recipe("a-gem", net="mlp-16", batch=20, gem_rows=16)
    for task in stream(3):
        learner.fit_task(task)
    assert sorted(set(learner.parts.projection.past.task.tolist())) == [0, 1]
    assert len(learner.parts.projection.past) == 32


def test_gem_takes_its_rows_from_the_sketch_of_olss():
    learner = recipe("olss+gem", net="mlp-16", batch=20, size=90, policy="reservoir", gem_rows=10)
    for task in stream(3):
        learner.fit_task(task)
    assert [len(rows) for rows in learner.parts.projection.past] == [10, 10]
    assert len(learner.buffer.held) == 90
