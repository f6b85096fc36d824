"""At which rates distillation trains where plain replay does.

    python experiments/distillation_rates.py          # six permuted tasks of digits, minutes
    python experiments/distillation_rates.py mnist    # twenty of 10,000 MNIST rows, half an hour

Average accuracy after the last task, in percent, for three seeds. The published form adds its
terms: with these weights that is twice the rate of their mean.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from olss.learn import DivergedError, recipe, run
from olss.streams import permuted

FORMS = {
    "plain replay": ([], 1, {}),
    "as published": (["der++"], 2, {"distance": "squared"}),
    "averaged": (["der++"], 1, {"distance": "squared"}),
    "the default": (["der++"], 1, {}),
}
DIGITS = {"net": "mlp-100", "batch": 20, "epochs": 4, "size": 300, "policy": "reservoir"}
MNIST = {"net": "mlp", "batch": 100, "size": 1_000, "policy": "balanced"}


def accuracy(stream: Any, methods: list[str], seed: int, **settings: Any) -> str:
    """Return the average accuracy, or that training blew up."""
    learner = recipe(["olss", *methods], regime="replay", threads=1, **settings)
    try:
        record = run(stream, learner, seed=seed)
    except DivergedError:
        return "blew up"
    return f"{100 * record.average_accuracy[-1]:.1f}"


def main(mnist: bool) -> None:
    """Print a line for each rate."""
    print("rate", *FORMS, sep="\t")
    for rate in (0.3, 0.6) if mnist else (0.1, 0.3, 0.5, 0.8, 1.2):
        cells = []
        for methods, factor, settings in FORMS.values():
            found = []
            for seed in (0, 1, 2):
                stream = permuted("digits", tasks=6, seed=seed)
                if mnist:
                    rows = {"train_rows": 10_000, "test_rows": 2_000}
                    stream = permuted("mnist", tasks=20, seed=seed, **rows)
                common = {**(MNIST if mnist else DIGITS), "lr": factor * rate, **settings}
                found.append(accuracy(stream, methods, seed, **common))
            cells.append(", ".join(found))
        print(rate, *cells, sep="\t", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main("mnist" in sys.argv[1:])
