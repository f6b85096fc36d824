"""At which rates distillation trains where plain replay does: six permuted tasks of digits.

    python experiments/distillation_rates.py

Average accuracy after the last task, in percent, for three seeds; a minute or two. The published
form adds its terms: with these weights that is twice the rate of their mean.
"""

from __future__ import annotations

import torch

from olss.learn import DivergedError, recipe, run
from olss.streams import permuted

FORMS = {
    "plain replay": ("er", 1, {}),
    "as published": ("der++", 2, {"distance": "squared"}),
    "averaged": ("der++", 1, {"distance": "squared"}),
    "the default": ("der++", 1, {}),
}


def accuracy(name: str, rate: float, seed: int, **settings: str) -> str:
    """Return the average accuracy, or that training blew up."""
    learner = recipe(name, net="mlp-100", batch=20, epochs=4, size=300, lr=rate, **settings)
    try:
        record = run(permuted("digits", tasks=6, seed=seed), learner, seed=seed)
    except DivergedError:
        return "blew up"
    return f"{100 * record.average_accuracy[-1]:.1f}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("rate", *FORMS, sep="\t")
    for rate in (0.1, 0.3, 0.5, 0.8, 1.2):
        cells = [
            ", ".join(accuracy(name, factor * rate, seed, **settings) for seed in (0, 1, 2))
            for name, factor, settings in FORMS.values()
        ]
        print(rate, *cells, sep="\t", flush=True)
