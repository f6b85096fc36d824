"""One net and memory under every head, on validation rows of the first four tasks.

    python experiments/class_incremental_heads.py [RATE [SCHEDULE]]

Prints the average over tasks so far, in percent, after each task; about six minutes on one core.
Needs CIFAR-100. The tables of docs/class-incremental.md that chose the recipe are from rates 0.06
(constant) and 0.1 (linear).
"""

from __future__ import annotations

import sys

import torch

from olss.learn import recipe
from olss.learn.answers import ANSWERS, Answer
from olss.streams import incremental

HEADS = {name: ANSWERS[name]() for name in ("seen", "nearest-mean", "ridge", "discriminant")}
HEADS |= {name: ANSWERS[name]() for name in ("logistic", "weight-aligned", "bias-corrected")}
TASKS = 4


def main(rate: float = 0.06, schedule: str = "constant") -> None:
    """Train once, and let each head answer after each task."""
    torch.set_num_threads(1)
    stream = incremental("cifar100", tasks=20).validation(0.1)
    learner = recipe(
        "olss-replay", net="resnet18-20", size=500, lr=rate, schedule=schedule, batch=10,
        replay_rows=10, epochs=4, augment="crop-flip", input_mean=[0.5071, 0.4865, 0.4409],
        input_std=[0.2673, 0.2564, 0.2762],
    )  # fmt: skip
    learner.start(stream.classes)
    print("tasks", *HEADS, sep="\t")
    for number in range(TASKS):
        learner.fit_task(stream[number])
        scores = [accuracy(learner, head, stream, number + 1) for head in HEADS.values()]
        print(number + 1, *(f"{100 * score:.1f}" for score in scores), sep="\t", flush=True)


def accuracy(learner: object, head: Answer, stream: object, tasks: int) -> float:
    """Return the mean over the first tasks of the accuracy of a head."""
    model = learner.model
    head.fit(model, learner.memory.held)
    found = []
    for number in range(tasks):
        task = stream[number]
        answers = head(model, model.tensor(task.X_test), None)
        found.append(model.score(answers, model.tensor(model.targets(task.y_test))))
    return sum(found) / tasks


if __name__ == "__main__":
    main(*(kind(value) for kind, value in zip((float, str), sys.argv[1:], strict=False)))
