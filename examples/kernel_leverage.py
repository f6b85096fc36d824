"""Landmarks for a kernel machine: rows drawn at random, by linear and by kernel leverage.

A kernel ridge classifier with 40 landmarks (Nyström) of scikit-learn's digits, once as they are and
once with a long tail: the last class has one row in twenty of the first.

    python examples/kernel_leverage.py [SEEDS]
"""

import sys

import numpy as np

import olss
from olss.core.kernels import bless
from olss.core.sampling import inclusion_probabilities, pivotal_sample
from olss.streams import imbalanced, permuted

LANDMARKS, RIDGE = 40, 1.0


def kernel(A, B, gamma):
    squares = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1) - 2 * A @ B.T
    return np.exp(-gamma * squares.clip(0))


def measure(task, scores, gamma, rng):
    """Return accuracies, mean over classes and of the three rarest, and what is not described."""
    X, X_test = (rows.reshape(len(rows), -1) / task.scale for rows in (task.X, task.X_test))
    rows = pivotal_sample(inclusion_probabilities(scores, LANDMARKS), rng)
    C, W = kernel(X, X[rows], gamma), kernel(X[rows], X[rows], gamma)
    left = 1 - np.einsum("ij,jk,ik->i", C, np.linalg.pinv(W, rcond=1e-10), C)
    goal = np.eye(10)[task.y]
    weights = np.linalg.solve(C.T @ C + 1e-3 * W + 1e-8 * np.eye(len(rows)), C.T @ goal)
    right = (kernel(X_test, X[rows], gamma) @ weights).argmax(axis=1) == task.y_test
    by_class = np.array([right[task.y_test == label].mean() for label in range(10)])
    rare = np.argsort(np.bincount(task.y, minlength=10), kind="stable")[:3]
    return by_class.mean(), by_class[rare].mean(), left[np.isin(task.y, rare)].mean()


def compare(ratio, seeds):
    results = {"reservoir (random)": [], "linear leverage": [], "kernel leverage": []}
    for seed in range(seeds):
        stream = permuted("digits", tasks=1, permute_first=False)
        task = (imbalanced(stream, ratio=ratio, seed=seed) if ratio > 1 else stream)[0]
        rng = np.random.default_rng(seed)
        X = task.X.reshape(len(task.X), -1) / task.scale
        some = X[rng.permutation(len(X))[:300]]
        squares = -np.log(kernel(some, some, 1.0))
        gamma = 1 / np.median(squares[squares > 1e-9])
        scores = {
            "reservoir (random)": np.ones(len(X)),
            "linear leverage": olss.leverage_scores(X),
            "kernel leverage": bless(X, RIDGE, gamma=gamma, seed=seed)[0],
        }
        for name, values in scores.items():
            results[name].append(measure(task, values, gamma, rng))
    return {name: np.array(values) for name, values in results.items()}


def main(seeds=10):
    print(f"{LANDMARKS} landmarks, {seeds} seeds; in brackets the standard error")
    for ratio in (1, 20):
        print(f"\n{'digits as they are' if ratio == 1 else f'long tail, 1 : {ratio}'}")
        print(f"{'':20s} {'accuracy':>14s} {'rare classes':>14s} {'not described':>14s}")
        for name, values in compare(ratio, seeds).items():
            means, errors = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(seeds)
            told = [f"{100 * m:.1f} ({100 * e:.1f})" for m, e in zip(means, errors, strict=True)]
            print(f"{name:20s} {told[0]:>14s} {told[1]:>14s} {told[2]:>14s}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
