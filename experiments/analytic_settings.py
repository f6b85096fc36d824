"""Choose the settings of the analytic learner on validation rows of CIFAR-100.

A tenth of the training rows is held out for choosing; test rows are looked at with --test only.
The dictionary is learned from the first task of 20 x 5 classes, as in the stream. What is solved is
what the learner would answer after the last task, whatever the order of the others.

    python experiments/analytic_settings.py --centres 800 --mirror --log settings.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from olss.core.linear_fit import choose_ridge, fit_discriminant, solve_ridge
from olss.core.moments import Moments, one_hot
from olss.learn.features import Patches
from olss.streams import incremental, load_dataset

CLASSES, BLOCK = 100, 2_500
RIDGES = (1e-4, 3e-4, 1e-3, 3e-3)  # in parts of the mean of the diagonal
SETTINGS = ("centres", "layers", "cells", "patch", "threshold", "power", "precision")


def main() -> None:
    """Fit, score and log one choice of settings."""
    args = _parse()
    torch.set_num_threads(args.threads)
    begin = time.perf_counter()
    data = load_dataset("cifar100")
    X, y = torch.tensor(np.array(data.X)), np.asarray(data.y)
    if args.test:
        train, X_held, y_held = slice(None), torch.tensor(np.array(data.X_test)), data.y_test
    else:
        order = np.random.default_rng(12345).permutation(len(y))
        train, X_held, y_held = order[5_000:], X[order[:5_000]], y[order[:5_000]]
    settings = {name: getattr(args, name) for name in SETTINGS}
    features = Patches(**settings)
    features.fit(_first_images(args), args.seed)

    moments = None
    for part, views in _blocks(X[train], args):
        F = np.mean([features(view).numpy() for view in views], axis=0)
        if moments is None:
            moments = Moments.empty(F.shape[1], CLASSES, np.float32)
        moments = moments.update(F, one_hot(y[train][part], CLASSES))
    assert moments is not None
    learned = time.perf_counter() - begin
    models = _solve(moments, args.ridge)
    right = dict.fromkeys(models, 0)
    for part, views in _blocks(X_held, args):
        F = np.mean([features(view).numpy() for view in views], axis=0)
        for name, (coef, intercept) in models.items():
            answers = (F @ coef + intercept).argmax(axis=1)
            right[name] += int((answers == y_held[part]).sum())
    row = settings | {
        "mirror": "mean" if args.mirror else False, "cell_shape": "fading",
        "shifts": args.shifts, "seed": args.seed, "dictionary": args.dictionary,
        "first_rows": args.first_rows,
        "rows": "test" if args.test else "validation", "features": moments.columns,
        "megabytes": round(moments.nbytes / 1e6, 1), "learn_seconds": round(learned),
        "seconds": round(time.perf_counter() - begin), "threads": args.threads,
        "accuracy": {name: round(count / len(y_held), 4) for name, count in right.items()},
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    with Path(args.log).open("a") as file:
        file.write(json.dumps(row) + "\n")


def _blocks(X: Tensor, args: argparse.Namespace) -> Iterator[tuple[slice, list[Tensor]]]:
    """Yield blocks of rows, and the forms in which images are learned and answered."""
    for start in range(0, len(X), BLOCK):
        part = slice(start, start + BLOCK)
        block, s = X[part] / 255, args.shifts
        views = [block]
        if s:
            wide = torch.nn.functional.pad(block, (s, s, s, s), mode="reflect")
            views += [wide[..., : -2 * s, : -2 * s], wide[..., 2 * s :, 2 * s :]]
        yield part, views + [view.flip(-1) for view in views] * args.mirror


def _first_images(args: argparse.Namespace) -> Tensor:
    """Return the images the dictionary is learned from: the first task's, or unlike ones."""
    if args.dictionary == "mnist":  # white digits on black, as large and with as many channels
        digits = torch.tensor(np.array(load_dataset("mnist").X[: args.first_rows]))[:, None] / 255
        return torch.nn.functional.pad(digits, (2, 2, 2, 2)).expand(-1, 3, -1, -1).contiguous()
    first = incremental("cifar100", tasks=20, seed=args.seed)[0]
    return torch.tensor(np.array(first.X[: args.first_rows])) / 255


def _solve(moments: Moments, only: float | None) -> dict[str, tuple[NDArray[Any], Any]]:
    """Return coefficients and intercepts of discriminants, and of one ridge regression."""
    mean_square = float(moments.scatter.diagonal().mean())
    ridges = {f"discriminant {r:g}": r * mean_square for r in ([only] if only else RIDGES)}
    if not only:
        ridges["discriminant gcv"] = choose_ridge(moments)
    fits = {name: fit_discriminant(moments, ridge=ridge) for name, ridge in ridges.items()}
    found = {name: (fit.coef, fit.intercept) for name, fit in fits.items()}
    if not only:
        found["ridge 0.0003"] = solve_ridge(moments, 3e-4 * mean_square)
    return found


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--centres", type=int, default=200)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--cells", type=int, default=2)
    parser.add_argument("--patch", type=int, default=6)
    parser.add_argument("--threshold", type=float, default=0.25)
    parser.add_argument("--power", type=float, default=2 / 3)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--shifts", type=int, default=0, help="pixels of two more views")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log", default="settings.jsonl")
    parser.add_argument("--ridge", type=float, help="the only one; by default several")
    parser.add_argument("--first-rows", type=int, default=2_500, help="rows of the first task")
    parser.add_argument(
        "--dictionary", default="first task", help="or mnist: images unlike CIFAR's"
    )
    for name in ("mirror", "test"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
